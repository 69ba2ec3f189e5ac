// Writes the replies; see json_rpc.h.
#include "mcp/json_rpc.h"

#include <unistd.h>
#include <utility>

#include "base/descriptors.h"

namespace berth::mcp {
namespace {

constexpr const char* kServerInfoKey = "io.modelcontextprotocol/serverInfo";

void write_message(const Json& message) {
  (void)write_all(STDOUT_FILENO, to_ascii_json(message) + "\n");
}

void end_batch_request(RpcBatch& batch) {
  if (--batch.unanswered == 0 && batch.replies.size() > 0) write_message(batch.replies);
}

void send_reply(const RpcRequest& request, Json message) {
  if (!request.batch) return write_message(message);
  request.batch->replies.push_back(std::move(message));
  end_batch_request(*request.batch);
}

}  // namespace

bool is_request_id(const Json& id) {
  return id.as_string() != nullptr || id.as_integer() || id.as_unsigned();
}

Json server_info() {
  return {{"name", "berth"}, {"version", BERTH_VERSION}};
}

void reply(const RpcRequest& request, Json result) {
  if (request.is_stateless) {
    result["resultType"] = "complete";
    result["_meta"][kServerInfoKey] = server_info();
  }
  send_reply(request, {{"jsonrpc", "2.0"}, {"id", request.id}, {"result", std::move(result)}});
}

void reply_error(const RpcRequest& request, RpcError code, const std::string& text, Json data) {
  Json error{{"code", static_cast<int>(code)}, {"message", text}};
  if (!data.is_null()) error["data"] = std::move(data);
  send_reply(request, {{"jsonrpc", "2.0"}, {"id", request.id}, {"error", std::move(error)}});
}

void end_without_reply(const RpcRequest& request) {
  if (request.batch) end_batch_request(*request.batch);
}

}  // namespace berth::mcp
