// Reads /proc/PID/status; see process_table.h.
#include "devices/process_table.h"

#include <array>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>

#include "base/pid_namespace.h"
#include "base/unique_fd.h"

namespace berth {
namespace {

// What follows `key` on its line, without the leading blank.
std::optional<std::string_view> field(std::string_view status, std::string_view key) {
  const auto start = status.find(key);
  if (start == std::string_view::npos) return std::nullopt;
  status.remove_prefix(start + key.size());
  return status.substr(0, status.find('\n'));
}

// The kernel writes a newline in a name as \n, and a backslash as two.
std::string unescaped(std::string_view name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) {
      ++i;
      out += name[i] == 'n' ? '\n' : name[i];
    } else {
      out += name[i];
    }
  }
  return out;
}

}  // namespace

std::optional<ProcessIdentity> identify_process(std::int64_t pid) {
  static const bool host_pids = in_host_pid_namespace();
  if (!host_pids || pid <= 0) return std::nullopt;
  const UniqueFd file(::open(fmt::format("/proc/{}/status", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 1024> buffer{};  // Name is its first line, Uid its ninth
  const auto length = ::read(file.get(), buffer.data(), buffer.size());
  if (length <= 0) return std::nullopt;
  const std::string_view status(buffer.data(), static_cast<std::size_t>(length));
  const auto name = field(status, "Name:\t");
  const auto uids = field(status, "\nUid:\t");
  if (!name || !uids) return std::nullopt;
  ProcessIdentity identity;
  identity.name = unescaped(*name);
  const auto [end, problem] =
      std::from_chars(uids->data(), uids->data() + uids->size(), identity.uid);
  if (problem != std::errc{}) return std::nullopt;
  return identity;
}

}  // namespace berth
