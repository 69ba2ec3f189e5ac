// The messages of JSON-RPC 2.0, by which the server and its client talk: requests and replies,
// alone or in batches.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/json.h"

namespace berth::mcp {

enum class RpcError : int {
  parse = -32700,
  invalid_request = -32600,
  unknown_method = -32601,
  invalid_arguments = -32602,
  unsupported_version = -32022,
};

// Requests that came as one message, whose replies leave as one.
struct RpcBatch {
  std::size_t unanswered = 0;
  Json replies = Json::array();
};

struct RpcRequest {
  Json id;
  std::shared_ptr<RpcBatch> batch{};  // null: it came alone
  // Follows the revision of the protocol without a session: it says so by itself, and so do
  // replies.
  bool is_stateless = false;
};

bool is_request_id(const Json& id);

Json server_info();

// Replies are written to stdout, those of a batch together with the last one. A write blocks until
// the client reads. Meanwhile the server reads no further requests, so that the memory for replies
// is bounded.
void reply(const RpcRequest& request, Json result);
void reply_error(const RpcRequest& request, RpcError code, const std::string& text,
                 Json data = nullptr);
// For a request of a batch that gets no reply.
void end_without_reply(const RpcRequest& request);

}  // namespace berth::mcp
