// The configuration, of a user and of the site: where the harbour's server is, this host's name,
// the hosts on which `berth run --host` may start jobs, whether other users see commands, and
// defaults for requests. docs/configuration.md describes it for users.
//
// Each setting comes from the first of these places that has it: the environment (BERTH_URL,
// BERTH_HOST, BERTH_COMMANDS); $XDG_CONFIG_HOME/berth.toml, or ~/.config/berth.toml without that
// variable; /etc/berth.toml, or the file that BERTH_SITE_FILE names instead:
//
//   url = "redis://gpu-head/0"          # or "file:/etc/berth.url", where the URL has a password
//   host = "gpu07"
//   hosts = ["gpu07", "gpu08"]          # the hosts that --host may connect to
//   commands = "hidden"                 # publish the program's name only; default: what `ps` shows
//   [defaults]                          # for each request that does not state them
//   mem = "auto"
//   [jobs]                              # detached jobs
//   output = "64MiB"
//   keep = "14d"
//   [notify]                            # docs/notifications.md
//   webhook = "file:~/.config/berth-webhook"
//   always = ["webhook"]
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"

namespace berth {

constexpr std::size_t kMaxHostNameLength = 64;

// The settings in the table [defaults]: the flags of a request, without "--".
inline constexpr std::array<std::string_view, 4> kRequestDefaults{"mem", "time", "label", "policy"};

struct Setting {
  std::string value;
  std::string source;    // the variable, or the path of the file
  std::size_t line = 0;  // in the file
};

struct ListSetting {
  std::vector<std::string> values;
  std::string source;  // the path of the file
  std::size_t line = 0;
};

// The table [notify]. The values are not checked; run/notify.h does that when they are used.
//
// The user's file counts only if no other user could have written it: with sudo, HOME may be the
// folder of another user, whose command root must not run. The site's file may have `events`,
// `webhook`, `webhook_format`, `about_to_end` and `idle`; a command that runs, an address, and what
// is sent without a flag are the user's own choice.
struct NotifySettings {
  // mail, webhook, webhook_format, command, about_to_end, idle
  std::map<std::string, Setting, std::less<>> texts{};
  std::map<std::string, ListSetting, std::less<>> lists{};  // events, always
  // Why the table in the user's file does not count; empty: it counts, or there is none.
  std::string distrust_reason{};
};

struct Configuration {
  std::string url;          // with the password; empty: no server, the harbour is a local directory
  std::string url_source;   // "BERTH_URL" or the path of the file that has the URL
  std::string host;         // satisfies is_host_name()
  std::string host_source;  // empty: the name that the kernel has for this host
  // The hosts that `berth run --host` may connect to; nullopt: no file has such a list.
  std::optional<std::vector<std::string>> hosts{};
  std::string hosts_source{};  // the path of the file
  // Whether to hide command lines from other users; nullopt: as `ps` does on this host.
  std::optional<bool> hides_commands{};
  std::string commands_source{};
  // By name, one of kRequestDefaults. The values are not checked; check_request_defaults() does
  // that.
  std::map<std::string, Setting, std::less<>> request_defaults{};
  // The table [jobs], of detached jobs: how much of a job's output is kept, and how long a job is
  // kept after its end.
  Bytes job_output = mib(64);
  std::string job_output_source{};  // empty: the default
  std::chrono::nanoseconds job_keep = std::chrono::hours(24 * 14);
  std::string job_keep_source{};
  NotifySettings notify{};
};

// Errors name the file and the line, and never contain a secret. ErrorKind::usage: a setting is
// wrong. ErrorKind::io: a file cannot be read, or other users could read a password in it.
Result<Configuration> read_configuration();

// The error for a setting in line `line` of the file `source` (ErrorKind::usage).
Error setting_error(const std::string& source, std::size_t line, std::string_view problem);

// For "file:PATH": the first line of that file, which other users must not be able to read or
// replace; `source` becomes PATH. Any other URL is returned unchanged.
Result<std::string> resolve_file_url(const std::string& url, std::string& source);

// The lines of the setting `webhook` of [notify]: the URL, and below it, if the setting is
// "file:PATH", HTTP headers. PATH may begin with "~/". Other users must not be able to read the
// file that has the URL, since a URL of a webhook is a secret.
Result<std::vector<std::string>> read_webhook_lines(const Setting& webhook);

// Whether `name` is a valid host name: 1 to kMaxHostNameLength letters, digits, '-', '_' and '.'.
bool is_host_name(std::string_view name);

// The name that the kernel has for this host, as hostname(1) prints it. Configuration::host may
// override it.
std::string kernel_host_name();

// The user's file, whether or not it exists; nullopt: neither HOME nor XDG_CONFIG_HOME is set.
std::optional<std::string> user_configuration_path();

// The site's file: /etc/berth.toml, or the file that BERTH_SITE_FILE names.
std::string configuration_path();

}  // namespace berth
