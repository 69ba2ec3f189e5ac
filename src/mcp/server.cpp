// Reads requests, runs their commands and writes the replies; see server.h.
#include "mcp/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <list>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shell.h"
#include "base/text.h"
#include "mcp/json_rpc.h"
#include "mcp/tool_call.h"
#include "mcp/tools.h"

namespace berth::mcp {
namespace {

// The revisions of the protocol, newest first. With the first, each request says by itself that it
// follows it. A client chooses one of the others by the request `initialize`.
constexpr std::array<std::string_view, 5> kVersions{"2026-07-28", "2025-11-25", "2025-06-18",
                                                    "2025-03-26", "2024-11-05"};
constexpr std::string_view kNewestWithInitialize = kVersions[1];
constexpr std::string_view kOnlyVersionWithBatches = "2025-03-26";
constexpr const char* kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr const char* kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr int kListFreshMs = 60'000;
constexpr std::size_t kMaxMessage = std::size_t{1} << 20;
constexpr std::size_t kMaxCalls = 64;

struct RunningCall {
  RpcRequest request;
  ToolCall call;
  bool is_cancelled = false;  // the client expects no reply
};

bool is_known_version(const std::string* version) {
  return version != nullptr && *version != kVersions.front() &&
         std::find(kVersions.begin(), kVersions.end(), *version) != kVersions.end();
}

Json known_versions() {
  Json list = Json::array();
  for (const std::string_view version : kVersions) list.push_back(version);
  return list;
}

const std::string* find_text(const Json& json, std::string_view key) {
  const Json* const value = json.find(key);
  return value == nullptr ? nullptr : value->as_string();
}

class Server {
 public:
  explicit Server(bool allow_changes) : allow_changes_(allow_changes) {}

  int run() {
    while (read_input_) {
      poll_once();
      finish_calls();
    }
    return 0;
  }

 private:
  void poll_once() {
    std::vector<pollfd> watched{{STDIN_FILENO, POLLIN, 0}};
    for (const RunningCall& running : calls_) running.call.add_poll_entries(watched);
    if (::poll(watched.data(), watched.size(), -1) < 0) return;
    if (watched.front().revents != 0) read_messages();
  }

  void read_messages() {
    std::array<char, 65536> buffer{};
    const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) return;
    if (size <= 0) {
      read_input_ = false;
      return;
    }
    input_.append(buffer.data(), static_cast<std::size_t>(size));
    for (std::size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
      const std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      if (!std::exchange(skips_line_, false) && !line.empty()) handle_line(line);
    }
    if (input_.size() <= kMaxMessage) return;
    if (!skips_line_) reply_error({}, RpcError::parse, "the message is longer than 1 MiB");
    skips_line_ = true;
    input_.clear();
  }

  void handle_line(const std::string& line) {
    const auto message = parse_json(line);
    if (!message) return reply_error({}, RpcError::parse, message.error().message);
    const Json::Array* const messages = message->as_array();
    if (messages == nullptr) return handle_message(*message, nullptr);
    if (!accepts_batches_ || messages->empty())
      return reply_error({}, RpcError::invalid_request, "the message is an array");
    // Counts as a request of its own batch, so that no reply leaves before all messages are
    // handled.
    const RpcRequest whole{nullptr, std::make_shared<RpcBatch>(RpcBatch{1})};
    for (const Json& one : *messages) handle_message(one, whole.batch);
    end_without_reply(whole);
  }

  void handle_message(const Json& message, std::shared_ptr<RpcBatch> batch) {
    const std::string* const name = find_text(message, "method");
    const Json* const id = message.find("id");
    const Json* const given = message.find("params");
    const Json parameters = given == nullptr ? Json(Json::Object{}) : *given;
    if (name != nullptr && id == nullptr) return handle_notification(*name, parameters);
    // A reply to a request that this server never sends.
    if (name == nullptr && (message.find("result") != nullptr || message.find("error") != nullptr))
      return;
    RpcRequest request{nullptr, std::move(batch)};
    if (request.batch) ++request.batch->unanswered;
    if (id != nullptr && is_request_id(*id)) request.id = *id;
    if (name == nullptr)
      return reply_error(request, RpcError::invalid_request, "the message has no method");
    if (request.id.is_null())
      return reply_error(request, RpcError::invalid_request,
                         "the id is not a string or an integer");
    if (find_call(request.id) != calls_.end()) {
      return reply_error(request, RpcError::invalid_request,
                         "another request with this id is not answered yet");
    }
    handle_request(std::move(request), *name, parameters);
  }

  void handle_notification(std::string_view name, const Json& parameters) {
    const Json* const id = parameters.find("requestId");
    if (name != "notifications/cancelled" || id == nullptr) return;
    const auto found = find_call(*id);
    if (found == calls_.end()) return;
    found->is_cancelled = true;
    found->call.terminate();
  }

  std::list<RunningCall>::iterator find_call(const Json& id) {
    return std::find_if(calls_.begin(), calls_.end(), [&](const RunningCall& running) {
      return !running.is_cancelled && to_ascii_json(running.request.id) == to_ascii_json(id);
    });
  }

  void handle_request(RpcRequest request, std::string_view name, const Json& parameters) {
    const Json* const meta = parameters.find("_meta");
    request.is_stateless = meta != nullptr && meta->find(kVersionKey) != nullptr;
    if (request.is_stateless && !check_version(request, *meta)) return;
    if (name == "tools/call") return call_tool(request, parameters);
    if (name == "tools/list") return reply(request, list_tools(request));
    if (request.is_stateless && name == "server/discover") return reply(request, discover());
    if (!request.is_stateless && name == "initialize")
      return reply(request, initialize(parameters));
    if (!request.is_stateless && name == "ping") return reply(request, Json(Json::Object{}));
    reply_error(request, RpcError::unknown_method,
                fmt::format("there is no method {}", in_quotes(name)));
  }

  // false: an error was sent.
  static bool check_version(const RpcRequest& request, const Json& meta) {
    const std::string* const version = find_text(meta, kVersionKey);
    const Json* const capabilities = meta.find(kCapabilitiesKey);
    if (version == nullptr || capabilities == nullptr || !capabilities->is_object()) {
      reply_error(
          request, RpcError::invalid_arguments,
          fmt::format("_meta needs the text {} and the object {}", kVersionKey, kCapabilitiesKey));
      return false;
    }
    if (*version == kVersions.front()) return true;
    reply_error(request, RpcError::unsupported_version, "unsupported protocol version",
                {{"supported", known_versions()}, {"requested", *version}});
    return false;
  }

  Json discover() const {
    return {{"supportedVersions", known_versions()},
            {"capabilities", {{"tools", Json(Json::Object{})}}},
            {"instructions", instructions()},
            {"ttlMs", kListFreshMs},
            {"cacheScope", "private"}};
  }

  Json initialize(const Json& parameters) {
    const std::string* const asked = find_text(parameters, "protocolVersion");
    const std::string_view version =
        is_known_version(asked) ? std::string_view(*asked) : kNewestWithInitialize;
    accepts_batches_ = version == kOnlyVersionWithBatches;
    return {{"protocolVersion", version},
            {"capabilities", {{"tools", {{"listChanged", false}}}}},
            {"serverInfo", server_info()},
            {"instructions", instructions()}};
  }

  const char* instructions() const {
    return allow_changes_
               ? "Shares the GPUs of this host. Start work on GPUs with submit, and never "
                 "without it; read logs and wait by the id that it returns."
               : "Shows the GPUs of this host and their users. This server is read-only.";
  }

  Json list_tools(const RpcRequest& request) const {
    Json list = Json::array();
    for (const AgentTool& tool : tools()) {
      if (allow_changes_ || !tool.changes) list.push_back(describe_tool(tool));
    }
    Json result{{"tools", std::move(list)}};
    if (request.is_stateless)
      result.append_members({{"ttlMs", kListFreshMs}, {"cacheScope", "private"}});
    return result;
  }

  void call_tool(const RpcRequest& request, const Json& parameters) {
    const std::string* const name = find_text(parameters, "name");
    const AgentTool* const tool = name == nullptr ? nullptr : find_tool(*name);
    if (tool == nullptr) {
      return reply_error(request, RpcError::invalid_arguments,
                         name == nullptr ? "the call names no tool"
                                         : fmt::format("there is no tool {}", in_quotes(*name)));
    }
    if (tool->changes && !allow_changes_) {
      return reply(request,
                   text_result(fmt::format("{} changes something, and this server is read-only; "
                                           "start it with 'berth mcp --allow-changes'",
                                           tool->name),
                               true));
    }
    const Json* const given = parameters.find("arguments");
    const Json arguments = given == nullptr || given->is_null() ? Json(Json::Object{}) : *given;
    auto words = make_command_line(*tool, arguments);
    if (!words) return reply(request, text_result(words.error().message, true));
    if (tool->changes && is_preview(arguments)) {
      const std::string folder = find_folder(arguments);
      const std::string change = folder.empty() ? "" : "cd " + shell_quote(folder) + " && ";
      return reply(request, text_result("would run: " + change + "berth " +
                                            join_text(*words, " ", shell_quote),
                                        false));
    }
    if (calls_.size() >= kMaxCalls) {
      return reply(request,
                   text_result(fmt::format("{} calls run already; wait for one", kMaxCalls), true));
    }
    auto call = ToolCall::start(*tool, std::move(*words), find_folder(arguments));
    if (!call) return reply(request, text_result(call.error().message, true));
    calls_.push_back({request, std::move(*call)});
  }

  void finish_calls() {
    for (auto running = calls_.begin(); running != calls_.end();) {
      if (!running->call.poll_end()) {
        ++running;
        continue;
      }
      if (!running->is_cancelled) {
        reply(running->request, running->call.result());
      } else {
        end_without_reply(running->request);
      }
      running = calls_.erase(running);
    }
  }

  bool allow_changes_;
  bool read_input_ = true;
  bool accepts_batches_ = false;
  bool skips_line_ = false;  // its beginning was too long, and is not in input_
  std::string input_;
  std::list<RunningCall> calls_;
};

}  // namespace

Result<int> serve(bool allow_changes) {
  std::signal(SIGPIPE, SIG_IGN);  // a client that is gone closes stdin, too
  // A client may have ignored it: then the kernel discards the exit status of each command.
  std::signal(SIGCHLD, SIG_DFL);
  return Server(allow_changes).run();
}

}  // namespace berth::mcp
