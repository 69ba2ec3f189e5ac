// Formats and parses the names of files; see file_names.h.
#include "harbour/file_names.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.h"
#include "harbour/record.h"

namespace berth {
namespace {

constexpr std::size_t kNumberDigits = 15;

}  // namespace

std::string bell_file_name(const std::string& id) {
  return fmt::format("{}{}", kBellPrefix, id);
}

std::string lease_file_name(const std::string& id) {
  return fmt::format("{}{}", kLeasePrefix, id);
}

std::string ticket_file_name(const TicketName& name) {
  return fmt::format("{}{:0{}}-{}", kTicketPrefix, name.file_number, kNumberDigits, name.id);
}

std::string request_file_name(const std::string& id) {
  return fmt::format("{}{}", kRequestPrefix, id);
}

std::string drain_file_name(std::string uuid) {
  // Older drivers write the UUIDs of MIG instances with slashes: "MIG-GPU-…/1/0".
  std::replace(uuid.begin(), uuid.end(), '/', '_');
  return fmt::format("{}{}", kDrainPrefix, uuid);
}

std::string temporary_file_name(const std::string& file) {
  return fmt::format("{}{}-{}", kTemporaryPrefix, make_id(), file);
}

std::optional<TicketName> parse_ticket_file_name(std::string_view file) {
  if (!file.starts_with(kTicketPrefix)) return std::nullopt;
  const std::string_view rest = file.substr(kTicketPrefix.size());
  if (rest.size() < kNumberDigits + 2 || rest[kNumberDigits] != '-') return std::nullopt;
  const auto number = parse_integer<std::uint64_t>(rest.substr(0, kNumberDigits));
  const std::string_view id = rest.substr(kNumberDigits + 1);
  if (!number || !is_id(id)) return std::nullopt;
  return TicketName{0, std::string(id), *number};
}

std::string_view replaced_file_name(std::string_view file) {
  const std::size_t start = kTemporaryPrefix.size() + make_id().size() + 1;
  return file.starts_with(kTemporaryPrefix) && file.size() > start ? file.substr(start) : "";
}

bool has_harbour_prefix(std::string_view file) {
  const auto prefixes = {kBellPrefix,    kLeasePrefix, kTicketPrefix,
                         kRequestPrefix, kDrainPrefix, kTemporaryPrefix};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [file](std::string_view prefix) { return file.starts_with(prefix); });
}

}  // namespace berth
