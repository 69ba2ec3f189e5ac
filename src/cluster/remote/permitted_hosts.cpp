// Checks host names against the configuration; see permitted_hosts.h.
#include "cluster/remote/permitted_hosts.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/configuration.h"
#include "base/text.h"

namespace berth {
namespace {

bool lists(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Result<std::vector<std::string>> permitted_hosts(
    const std::optional<std::vector<std::string>>& named, const std::string& here) {
  auto settings = TRY(read_configuration());
  if (!settings.hosts) {
    if (named) return *named;
    return fail(ErrorKind::usage,
                fmt::format("run: --host any needs a list of the hosts that may run jobs; write "
                            "hosts = [\"NAME\", \"NAME\"] into {}, or name the hosts",
                            configuration_path()));
  }
  if (!named) return std::move(*settings.hosts);
  for (const std::string& name : *named) {
    if (name == here || lists(*settings.hosts, name)) continue;
    return fail(ErrorKind::usage,
                fmt::format("run: host {} is not in the list of hosts in {}; add it there", name,
                            printable(settings.hosts_source)));
  }
  return *named;
}

Result<void> check_permitted_host(const std::string& host, const std::vector<std::string>& named,
                                  const std::string& what, const std::string& command) {
  const auto settings = TRY(read_configuration());
  if (is_host_name(host) && lists(settings.hosts.value_or(named), host)) return {};
  return fail(
      ErrorKind::usage,
      fmt::format("{}, which is not in the list of hosts in {}; add it there, or type: ssh "
                  "{} {}",
                  what, printable(settings.hosts ? settings.hosts_source : configuration_path()),
                  printable(host), command));
}

}  // namespace berth
