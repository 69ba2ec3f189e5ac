// What a site sets once for all its users: where the harbour's server is, this host's name, the
// hosts on which `berth run --host` may start jobs, and whether other users see commands.
//
// From the environment (BERTH_URL, BERTH_HOST, BERTH_COMMANDS), else from
// $XDG_CONFIG_HOME/berth.toml or ~/.config/berth.toml, else from /etc/berth.toml (or the file that
// BERTH_SITE_FILE names):
//
//   url = "redis://gpu-head/0"          # or "file:/etc/berth.url", where the URL has a password
//   host = "gpu07"
//   hosts = ["gpu07", "gpu08"]          # that --host may connect to
//   commands = "hidden"                 # publish the program's name only; default: what `ps` shows
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace berth {

constexpr std::size_t kMaxHostNameLength = 64;

struct Configuration {
  std::string url;         // with its password; empty: no server, but the directory of this host
  std::string url_source;  // where it was written: "BERTH_URL", or the path of a file
  std::string host;        // letters, digits and -_. only, at most 64
  // The hosts that `berth run --host` may connect to; nothing: no file says.
  std::optional<std::vector<std::string>> hosts{};
  std::string hosts_source{};  // the path of the file
  // Whether to keep command lines from other users; nothing: as `ps` does on this host.
  std::optional<bool> hides_commands{};
};

// Errors name the file and the line, and no secret. ErrorKind::usage: what is written there is
// wrong. ErrorKind::io: a file cannot be read, or others could read a password in it.
Result<Configuration> read_configuration();

// The URL that is meant by one that a user gave: the first line of PATH for "file:PATH", which
// others must not be able to read; else the same. `source` becomes PATH, too.
Result<std::string> resolve_file_url(const std::string& url, std::string& source);

// May a host be called so?
bool is_host_name(std::string_view name);

// The file that a site writes: /etc/berth.toml, or what BERTH_SITE_FILE names.
std::string configuration_path();

}  // namespace berth
