// What `berth run` sends by ssh to `berth run` on another host: the command, and how to run it.
//
// It is sent through a pipe into a file that only the user can read. No command line contains any
// of it, since there may be passwords in the environment and in BERTH_URL.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace berth {

struct RemoteJobSpec {
  std::string host;       // that is to run it, by its name in the harbour
  std::string ticket;     // the ticket to replace; see cluster/remote/multi_host_ticket.h
  std::string sender;     // the host on which the job was submitted, by its name in the harbour
  std::string directory;  // in which the command runs
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;
};

std::string format_job_spec(const RemoteJobSpec& spec);

// Reads the file `path`, which must belong to this user and be unreadable for other users.
Result<RemoteJobSpec> read_job_spec(const std::string& path);

// Copies the arguments of this program. Then overwrites the values of --env NAME=VALUE in `argv`
// itself, which `ps` shows to every user.
std::vector<std::string> copy_and_mask_arguments(int argc, char** argv);

// The variables that the selectors name: "NAME" for a variable of this process, "NAME=VALUE" for a
// new one, or "PREFIX*" for all variables of this process that begin with PREFIX, except those that
// are only valid on this host. Errors are ErrorKind::usage.
Result<std::vector<std::pair<std::string, std::string>>> select_environment(
    const std::vector<std::string>& selectors);

}  // namespace berth
