// The hosts to which Berth may connect by ssh.
//
// Any client of Redis can add a host name there, so the names come from the user, or from the list
// `hosts` that the administrator or the user wrote into a configuration file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace berth {

// The hosts that may receive a job and its secrets: those that the user has named, or without
// `named` (--host any) those of the list. `here` is this host, which needs no connection.
// ErrorKind::usage: a host is not in the list, or there is none.
Result<std::vector<std::string>> permitted_hosts(
    const std::optional<std::vector<std::string>>& named, const std::string& here);

// Whether `host`, which Redis has named, may be connected to. `named` are hosts that the user has
// named for this job before; they count if there is no list. Otherwise an error (ErrorKind::usage)
// whose message says `what` (such as "job k3f9a2mx runs on gpu07") and what to type instead.
Result<void> check_permitted_host(const std::string& host, const std::vector<std::string>& named,
                                  const std::string& what, const std::string& command);

}  // namespace berth
