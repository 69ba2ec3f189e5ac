// What `berth run` on one host sends to `berth run` on another, by ssh: what to run, and how.
//
// It travels through a pipe into a file that only the user can read, so nothing of it stands in a
// command line: there may be passwords in the environment and in BERTH_URL.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace berth {

struct RemoteJobSpec {
  std::string host;       // for which it is meant, as the harbour calls it
  std::string ticket;     // the ticket whose place is taken; see cluster/remote/multi_host_ticket.h
  std::string directory;  // in which the command runs
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;
};

std::string format_job_spec(const RemoteJobSpec& spec);

// Reads the file `path`, which must be this user's own and nobody else's to read.
Result<RemoteJobSpec> read_job_spec(const std::string& path);

// Copies of a program's arguments. In `argv` itself, which `ps` shows to every user, the values of
// --env NAME=VALUE are overwritten.
std::vector<std::string> copy_and_mask_arguments(int argc, char** argv);

// The variables of this process that these words name: "NAME", "NAME=VALUE", or "PREFIX*" for all
// that begin so but for those that mean something on this host alone. ErrorKind::usage says what is
// wrong.
Result<std::vector<std::pair<std::string, std::string>>> select_environment(
    const std::vector<std::string>& selectors);

}  // namespace berth
