// A call of a tool: the berth command that runs for it, what the command has written, and the
// result that the client gets.
#pragma once

#include <poll.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "mcp/tools.h"

namespace berth::mcp {

// A result that consists of text.
Json text_result(const std::string& text, bool is_error);

// The command gets SIGTERM when this process ends, even by SIGKILL (PR_SET_PDEATHSIG). A job that
// it has submitted is not affected. One thread must do all calls, and last as long as they.
class ToolCall {
 public:
  // Runs this program as `berth WORDS` in `folder` ("": that of this process), with an empty stdin:
  // this process's belongs to the protocol. ErrorKind::usage: there is no such folder.
  // ErrorKind::io: the system cannot start another process.
  static Result<ToolCall> start(const AgentTool& tool, std::vector<std::string> words,
                                const std::string& folder);

  // Adds what becomes readable when poll_end() has something to do.
  void add_poll_entries(std::vector<pollfd>& entries) const;
  // Reads what the command has written; true if the command has ended. Does not block.
  bool poll_end();
  // After poll_end() has returned true. The command has succeeded if it says so by its exit code
  // or, if its output is JSON, has printed that: the exit code of `berth wait` is that of the job.
  Json result() const;
  void terminate() const;

 private:
  // Of a command; the last megabyte is kept.
  struct OutputPipe {
    UniqueFd read_end;
    std::string text;
    bool is_too_long = false;

    void read_all();
  };

  explicit ToolCall(const AgentTool& tool) : tool_(&tool) {}

  const AgentTool* tool_;
  pid_t pid_ = 0;
  UniqueFd process_;  // a pidfd
  OutputPipe out_;
  OutputPipe err_;
  int exit_code_ = 0;  // as of a shell: 128+N for signal N
};

}  // namespace berth::mcp
