// Reads requests, runs their commands and writes the replies; see server.h.
#include "mcp/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <list>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/json.h"
#include "base/process.h"
#include "base/shell.h"
#include "base/text.h"
#include "mcp/tools.h"

extern char** environ;

namespace berth::mcp {
namespace {

// The versions of the protocol whose messages this server understands, newest first.
constexpr std::array<std::string_view, 3> kVersions{"2025-06-18", "2025-03-26", "2024-11-05"};
constexpr std::size_t kMaxMessage = std::size_t{1} << 20;
constexpr std::size_t kMaxOutput = std::size_t{1} << 20;
constexpr std::size_t kMaxCalls = 64;

enum class RpcError : int {
  parse = -32700,
  invalid_request = -32600,
  unknown_method = -32601,
  invalid_arguments = -32602,
  internal = -32603,
};

Json text_content(const std::string& text) {
  return Json::array({Json{{"type", "text"}, {"text", text}}});
}

// A command that runs for a request.
struct Call {
  Json id;
  Output output = Output::text;
  pid_t pid = 0;
  UniqueFd process;  // a pidfd
  UniqueFd out;
  UniqueFd err;
  std::string out_text{};
  std::string err_text{};
};

class Server {
 public:
  explicit Server(bool allow_changes) : allow_changes_(allow_changes) {}

  ~Server() {
    for (const Call& call : calls_) send_signal(call.process, SIGTERM);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

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
    for (const Call& call : calls_) {
      if (call.out) watched.push_back({call.out.get(), POLLIN, 0});
      if (call.err) watched.push_back({call.err.get(), POLLIN, 0});
      if (!call.out && !call.err) watched.push_back({call.process.get(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), -1) < 0) return;
    if (watched.front().revents != 0) read_requests();
    for (Call& call : calls_) {
      read_output(call.out, call.out_text);
      read_output(call.err, call.err_text);
    }
  }

  // Reads what is there; closes the pipe at its end. Drops what is too much.
  static void read_output(UniqueFd& pipe, std::string& text) {
    std::array<char, 65536> buffer{};
    while (pipe) {
      const ssize_t size = ::read(pipe.get(), buffer.data(), buffer.size());
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EAGAIN) return;
      if (size <= 0) return pipe.reset();
      const std::size_t room = kMaxOutput - std::min(kMaxOutput, text.size());
      text.append(buffer.data(), std::min(static_cast<std::size_t>(size), room));
    }
  }

  void read_requests() {
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
      if (!line.empty()) handle_message(line);
    }
    if (input_.size() <= kMaxMessage) return;
    reply_error(nullptr, RpcError::parse, "the message is longer than 1 MiB");
    read_input_ = false;  // where the next message begins is unknown
  }

  void handle_message(const std::string& line) {
    const auto message = parse_json(line);
    if (!message) return reply_error(nullptr, RpcError::parse, message.error().message);
    const Json* const method = message->find("method");
    const std::string* const name = method == nullptr ? nullptr : method->as_string();
    const Json* const id = message->find("id");
    if (name == nullptr) {
      // A reply to a request that this server never sends.
      if (message->is_object() && id != nullptr && message->find("result") != nullptr) return;
      return reply_error(id == nullptr ? Json() : *id, RpcError::invalid_request,
                         "the message has no method");
    }
    const Json* const given = message->find("params");
    const Json parameters = given == nullptr ? Json(Json::Object{}) : *given;
    if (id == nullptr) return handle_notification(*name, parameters);
    handle_request(*id, *name, parameters);
  }

  void handle_notification(std::string_view name, const Json& parameters) {
    if (name != "notifications/cancelled") return;
    const Json* const id = parameters.find("requestId");
    if (id == nullptr) return;
    for (auto call = calls_.begin(); call != calls_.end(); ++call) {
      if (to_ascii_json(call->id) != to_ascii_json(*id)) continue;
      send_signal(call->process, SIGTERM);
      ::waitpid(call->pid, nullptr, 0);  // berth commands end at once by SIGTERM
      calls_.erase(call);                // the client expects no reply
      return;
    }
  }

  void handle_request(const Json& id, std::string_view name, const Json& parameters) {
    if (name == "initialize") return reply(id, initialize(parameters));
    if (name == "ping") return reply(id, Json(Json::Object{}));
    if (name == "tools/list") return reply(id, list_tools());
    if (name == "tools/call") return call_tool(id, parameters);
    reply_error(id, RpcError::unknown_method,
                fmt::format("there is no method {}", in_quotes(name)));
  }

  Json initialize(const Json& parameters) const {
    const Json* const asked = parameters.find("protocolVersion");
    const std::string* const version = asked == nullptr ? nullptr : asked->as_string();
    const bool known = version != nullptr &&
                       std::find(kVersions.begin(), kVersions.end(), *version) != kVersions.end();
    return {{"protocolVersion", known ? std::string_view(*version) : kVersions.front()},
            {"capabilities", {{"tools", {{"listChanged", false}}}}},
            {"serverInfo", {{"name", "berth"}, {"version", BERTH_VERSION}}},
            {"instructions",
             allow_changes_
                 ? "Shares the GPUs of this host. Start work on GPUs with submit, and never "
                   "without it; read logs and wait by the id that it returns."
                 : "Shows the GPUs of this host and their users. This server is read-only."}};
  }

  Json list_tools() const {
    Json list = Json::array();
    for (const AgentTool& tool : tools()) {
      if (allow_changes_ || !tool.changes) list.push_back(describe_tool(tool));
    }
    return {{"tools", std::move(list)}};
  }

  void call_tool(const Json& id, const Json& parameters) {
    const Json* const named = parameters.find("name");
    const std::string* const name = named == nullptr ? nullptr : named->as_string();
    const AgentTool* const tool = name == nullptr ? nullptr : find_tool(*name);
    if (tool == nullptr) {
      return reply_error(id, RpcError::invalid_arguments,
                         name == nullptr ? "the call names no tool"
                                         : fmt::format("there is no tool {}", in_quotes(*name)));
    }
    const Json* const given = parameters.find("arguments");
    const Json arguments = given == nullptr || given->is_null() ? Json(Json::Object{}) : *given;
    const auto words = check_arguments(*tool, arguments);
    if (!words) return reply(id, failed_result(words.error().message));
    if (tool->changes && is_preview(arguments)) {
      return reply(
          id, {{"content", text_content("would run: berth " + join_text(*words, " ", shell_quote))},
               {"isError", false}});
    }
    if (tool->changes && !allow_changes_) {
      return reply(id, failed_result(fmt::format(
                           "{} changes something, and this server is read-only; start it with "
                           "'berth mcp --allow-changes'",
                           tool->name)));
    }
    if (calls_.size() >= kMaxCalls)
      return reply(id, failed_result(fmt::format("{} calls run already; wait for one", kMaxCalls)));
    start_call(id, *tool, *words);
  }

  static Result<Words> check_arguments(const AgentTool& tool, const Json& arguments) {
    const Json::Object* const members = arguments.as_object();
    if (members == nullptr) return fail(ErrorKind::usage, "the arguments are not an object");
    const Json properties = tool.properties();
    for (const Json::Member& member : *members) {
      if (properties.find(member.key) == nullptr) {
        return fail(ErrorKind::usage,
                    fmt::format("{} has no argument {}", tool.name, in_quotes(member.key)));
      }
    }
    const Json* const preview = arguments.find("preview");
    if (preview != nullptr && !preview->is_null() && !preview->as_bool())
      return fail(ErrorKind::usage, "the argument 'preview' is not true or false");
    Words words = TRY(tool.make_words(arguments));
    const bool has_nul = std::any_of(words.begin(), words.end(), [](const std::string& word) {
      return word.find('\0') != std::string::npos;
    });
    if (has_nul) return fail(ErrorKind::usage, "an argument contains a NUL character");
    return words;
  }

  static Json failed_result(const std::string& text) {
    return {{"content", text_content(text)}, {"isError", true}};
  }

  void start_call(const Json& id, const AgentTool& tool, const Words& words) {
    Call call;
    call.id = id;
    call.output = tool.output;
    if (const int problem = spawn(words, call); problem != 0)
      return reply(id,
                   failed_result(fmt::format("berth cannot be run: {}", std::strerror(problem))));
    calls_.push_back(std::move(call));
  }

  // 0, or an errno. The child reads no input: stdin belongs to the protocol.
  static int spawn(const Words& words, Call& call) {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    if (::pipe2(out.data(), O_CLOEXEC | O_NONBLOCK) != 0) return errno;
    call.out = UniqueFd(out[0]);
    const UniqueFd out_end(out[1]);
    if (::pipe2(err.data(), O_CLOEXEC | O_NONBLOCK) != 0) return errno;
    call.err = UniqueFd(err[0]);
    const UniqueFd err_end(err[1]);
    for (const int fd : {out_end.get(), err_end.get()}) ::fcntl(fd, F_SETFL, 0);
    const std::string program = executable_path();
    std::vector<std::string> texts{"berth"};
    texts.insert(texts.end(), words.begin(), words.end());
    const std::vector<char*> argv = exec_pointers(texts);
    posix_spawn_file_actions_t actions;
    if (const int problem = ::posix_spawn_file_actions_init(&actions); problem != 0) return problem;
    posix_spawnattr_t attributes;
    if (const int problem = ::posix_spawnattr_init(&attributes); problem != 0) return problem;
    sigset_t defaults;
    ::sigemptyset(&defaults);
    ::sigaddset(&defaults, SIGPIPE);  // this server ignores it; a job must not
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int problem =
        ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (problem == 0)
      problem = ::posix_spawn_file_actions_adddup2(&actions, out_end.get(), STDOUT_FILENO);
    if (problem == 0)
      problem = ::posix_spawn_file_actions_adddup2(&actions, err_end.get(), STDERR_FILENO);
    if (problem == 0)
      problem =
          ::posix_spawn(&call.pid, program.c_str(), &actions, &attributes, argv.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (problem == 0) call.process = open_process(call.pid);
    return problem;
  }

  void finish_calls() {
    for (auto call = calls_.begin(); call != calls_.end();) {
      int status = 0;
      const bool ended = !call->out && !call->err && ::waitpid(call->pid, &status, WNOHANG) != 0;
      if (!ended) {
        ++call;
        continue;
      }
      reply(call->id, make_result(*call, status));
      call = calls_.erase(call);
    }
  }

  static Json make_result(const Call& call, int status) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    const bool is_job_code = call.output == Output::none_but_exit_code && call.err_text.empty();
    std::string text = call.out_text;
    if (code != 0 || text.empty()) text += call.err_text;
    if (is_job_code) text = fmt::format("the job has ended with exit code {}", code);
    Json result{{"content", text_content(text)},
                {"isError", code != 0 && !is_job_code},
                {"_meta", {{"exit_code", code}}}};
    if (auto structured = structured_content(call, code))
      result["structuredContent"] = std::move(*structured);
    return result;
  }

  // The result of a call that succeeded, as an object; nullopt: it is only text.
  static std::optional<Json> structured_content(const Call& call, int code) {
    if (call.output == Output::none_but_exit_code && call.err_text.empty())
      return Json{{"exit_code", code}};
    if (code != 0) return std::nullopt;
    if (call.output == Output::job_id)
      return Json{{"id", call.out_text.substr(0, call.out_text.find('\n'))}};
    if (call.output != Output::json) return std::nullopt;
    auto json = parse_json(call.out_text);
    if (!json || !json->is_object()) return std::nullopt;
    return std::move(*json);
  }

  static void reply(const Json& id, Json result) {
    write_message({{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}});
  }

  static void reply_error(const Json& id, RpcError code, const std::string& text) {
    write_message({{"jsonrpc", "2.0"},
                   {"id", id},
                   {"error", {{"code", static_cast<int>(code)}, {"message", text}}}});
  }

  static void write_message(const Json& message) {
    (void)write_all(STDOUT_FILENO, to_ascii_json(message) + "\n");
  }

  bool allow_changes_;
  bool read_input_ = true;
  std::string input_;
  std::list<Call> calls_;
};

}  // namespace

Result<int> serve(bool allow_changes) {
  std::signal(SIGPIPE, SIG_IGN);  // a client that is gone closes stdin, too
  return Server(allow_changes).run();
}

}  // namespace berth::mcp
