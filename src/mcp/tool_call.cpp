// Starts berth commands and reads their output; see tool_call.h.
#include "mcp/tool_call.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "run/job.h"

namespace berth::mcp {
namespace {

constexpr std::size_t kMaxOutput = std::size_t{1} << 20;

tl::unexpected<Error> cannot_start() {
  return fail(ErrorKind::io, fmt::format("berth cannot be run: {}", std::strerror(errno)));
}

// Runs between fork() and exec, so it must not allocate memory.
[[noreturn]] void exec_berth(char* const* argv, pid_t parent, int folder, int input, int out,
                             int err) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // If the server was killed before prctl(), no signal comes.
  if (::getppid() != parent) ::_exit(1);
  const bool ready = ::fchdir(folder) == 0 && ::dup2(input, STDIN_FILENO) >= 0 &&
                     ::dup2(out, STDOUT_FILENO) >= 0 && ::dup2(err, STDERR_FILENO) >= 0;
  ::signal(SIGPIPE, SIG_DFL);  // the server ignores it; a job must not
  // The file that runs now, even if another version was installed in its place meanwhile.
  if (ready) ::execv("/proc/self/exe", argv);
  ::_exit(1);
}

}  // namespace

Json text_result(const std::string& text, bool is_error) {
  return {{"content", Json::array({Json{{"type", "text"}, {"text", text}}})},
          {"isError", is_error}};
}

void ToolCall::OutputPipe::read_all() {
  std::array<char, 65536> buffer{};
  while (read_end) {
    const ssize_t size = ::read(read_end.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return read_end.reset();
    text.append(buffer.data(), static_cast<std::size_t>(size));
    if (text.size() <= kMaxOutput) continue;
    text.erase(0, text.size() - kMaxOutput);
    is_too_long = true;
  }
}

Result<ToolCall> ToolCall::start(const AgentTool& tool, std::vector<std::string> words,
                                 const std::string& folder) {
  ToolCall call(tool);
  const UniqueFd directory(
      ::open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::faccessat(directory.get(), ".", X_OK, AT_EACCESS) != 0) {
    return fail(ErrorKind::usage, fmt::format("the folder {} cannot be entered: {}",
                                              in_quotes(folder), std::strerror(errno)));
  }
  const UniqueFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input) return cannot_start();
  std::array<UniqueFd, 2> write_ends;
  for (std::size_t i = 0; i < write_ends.size(); ++i) {
    std::array<int, 2> fds{-1, -1};
    if (::pipe2(fds.data(), O_CLOEXEC) != 0) return cannot_start();
    (i == 0 ? call.out_ : call.err_).read_end = UniqueFd(fds[0]);
    write_ends[i] = UniqueFd(fds[1]);
    ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  }
  words.insert(words.begin(), "berth");
  const std::vector<char*> argv = exec_pointers(words);
  const pid_t parent = ::getpid();
  call.pid_ = ::fork();
  if (call.pid_ < 0) return cannot_start();
  if (call.pid_ == 0)
    exec_berth(argv.data(), parent, directory.get(), input.get(), write_ends[0].get(),
               write_ends[1].get());
  call.process_ = open_process(call.pid_);
  if (!call.process_) {
    const auto problem = cannot_start();
    ::kill(call.pid_, SIGKILL);
    ::waitpid(call.pid_, nullptr, 0);
    return problem;
  }
  return call;
}

void ToolCall::add_poll_entries(std::vector<pollfd>& entries) const {
  for (const UniqueFd* const fd : {&out_.read_end, &err_.read_end, &process_}) {
    if (*fd) entries.push_back({fd->get(), POLLIN, 0});
  }
}

bool ToolCall::poll_end() {
  int status = kUnknownStatus;
  const bool has_ended = ::waitpid(pid_, &status, WNOHANG) != 0;
  out_.read_all();  // after waitpid(), so that nothing is missed
  err_.read_all();
  if (has_ended) exit_code_ = exit_code(status);
  return has_ended;
}

Json ToolCall::result() const {
  Json structured;
  if (tool_->output == Output::json && !out_.is_too_long) {
    if (auto json = parse_json(out_.text); json && json->is_object()) structured = std::move(*json);
  }
  if (tool_->output == Output::job_id && exit_code_ == 0)
    structured = Json{{"id", out_.text.substr(0, out_.text.find('\n'))}};
  bool failed = exit_code_ != 0;
  std::string text = out_.text;
  if (tool_->output == Output::json) {
    failed = structured.is_null();
    if (out_.is_too_long)
      text = "the result is longer than 1 MiB; ask for less, such as a shorter 'since'";
  } else if (out_.is_too_long) {
    text.insert(0, "[the beginning of the output is left out: it is longer than 1 MiB]\n");
  }
  Json result = text_result(text, failed);
  // Also of a command that succeeds: what `berth logs` has left out, where the output of a job
  // goes.
  if (!err_.text.empty()) {
    Json& content = result["content"];
    if (text.empty()) content = Json::array();
    content.push_back({{"type", "text"}, {"text", err_.text}});
  }
  result["_meta"] = Json{{"exit_code", exit_code_}};
  if (!structured.is_null()) result["structuredContent"] = std::move(structured);
  return result;
}

void ToolCall::terminate() const {
  send_signal(process_, SIGTERM);
}

}  // namespace berth::mcp
