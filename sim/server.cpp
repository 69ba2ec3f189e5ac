// Reads BERTH_SIM: the short form, the file with the JSON form, derived UUIDs; see server.h.
#include "sim/server.h"

#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/read_file.h"
#include "base/simulation.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "sim/json_fields.h"

namespace berth::sim {
namespace {

constexpr std::size_t kMaxFileSize = std::size_t{1} << 20;

tl::unexpected<Error> refuse(std::string_view what) {
  return fail(ErrorKind::usage, fmt::format("BERTH_SIM: {}", what));
}

// Removes a number of `digits` digits (0: any) from the start of `text` and returns it.
std::optional<std::uint32_t> consume_number(std::string_view& text, int base, std::size_t digits) {
  std::uint32_t number = 0;
  const char* start = text.data();
  const char* end = start + (digits == 0 ? text.size() : std::min(digits, text.size()));
  const auto [rest, problem] = std::from_chars(start, end, number, base);
  const auto length = static_cast<std::size_t>(rest - start);
  if (problem != std::errc{} || (digits != 0 && length != digits)) return {};
  text.remove_prefix(length);
  return number;
}

bool consume(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

Result<Server> read_short_form(std::string_view value) {
  constexpr std::string_view form = "write a number of cards and their memory, such as 4x24GiB";
  std::string_view rest = value;
  const auto count = consume_number(rest, 10, 0);
  if (!count || *count < 1 || *count > kMaxCards || !consume(rest, 'x')) {
    return refuse(fmt::format("{}: the number of cards must be 1 to {}; {}", in_quotes(value),
                              kMaxCards, form));
  }
  const auto memory = parse_size(rest);
  if (!memory) {
    return refuse(
        fmt::format("{}: {}; {}", in_quotes(value), without_remedy(memory.error().message), form));
  }
  if (*memory < mib(1) || *memory > gib(4096)) {
    return refuse(fmt::format("{}: a card must have 1 MiB to 4 TiB; {}", in_quotes(value), form));
  }
  Server server;
  for (std::uint32_t i = 0; i < *count; ++i) {
    Card card;
    card.name = fmt::format("Simulated {} GPU", format_size(*memory));
    card.memory = *memory;
    card.pci.bus = i + 1;
    server.cards.push_back(std::move(card));
  }
  return server;
}

Result<std::string> read_file(const std::string& path) {
  // O_NONBLOCK: opening a named pipe would wait for a writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) {
    return refuse(fmt::format("cannot read {}: {}; give a file, or a short form such as 4x24GiB",
                              in_quotes(path), std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return refuse(fmt::format("{} is not a regular file; name a JSON file", in_quotes(path)));
  }
  auto text = read_to_end(file.get(), kMaxFileSize);
  if (text) return std::move(*text);
  return refuse(
      errno == EFBIG
          ? fmt::format("{} is larger than 1 MiB, the limit for a description", in_quotes(path))
          : fmt::format("cannot read {}: {}", in_quotes(path), std::strerror(errno)));
}

std::string derive_uuid(std::string_view prefix, std::string_view identity, std::string_view what) {
  const std::string text = fmt::format("{}/{}", identity, what);
  const std::uint64_t high = hash_text(text, 1);
  const std::uint64_t low = hash_text(text, 2);
  return fmt::format("{}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", prefix, high >> 32,
                     (high >> 16) & 0xFFFF, high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFF);
}

}  // namespace

std::optional<DriverVersion> parse_driver_version(std::string_view text) {
  const auto branch = consume_number(text, 10, 0);
  if (!branch || !consume(text, '.')) return {};
  const auto minor = consume_number(text, 10, 0);
  if (!minor) return {};
  std::optional<std::uint32_t> patch = 0;
  if (!text.empty()) patch = consume(text, '.') ? consume_number(text, 10, 0) : std::nullopt;
  constexpr std::uint32_t most = 9999;
  if (!patch || !text.empty() || *branch > most || *minor > most || *patch > most) return {};
  return DriverVersion{static_cast<int>(*branch), static_cast<int>(*minor),
                       static_cast<int>(*patch)};
}

std::optional<PciAddress> parse_pci(std::string_view text) {
  const std::size_t domain_digits = text.find(':') == 8 ? 8 : 4;
  const auto domain = consume_number(text, 16, domain_digits);
  if (!domain || !consume(text, ':')) return {};
  const auto bus = consume_number(text, 16, 2);
  if (!bus || !consume(text, ':')) return {};
  const auto device = consume_number(text, 16, 2);
  if (!device || *device > 0x1F || text != ".0") return {};
  return PciAddress{*domain, *bus, *device};
}

void assign_uuids(Server& server, std::string_view identity) {
  for (std::size_t i = 0; i < server.cards.size(); ++i) {
    Card& card = server.cards[i];
    if (card.uuid.empty()) card.uuid = derive_uuid("GPU", identity, fmt::format("{}", i));
    for (std::size_t k = 0; k < card.instances.size(); ++k) {
      auto& instance = card.instances[k];
      if (!instance) continue;
      if (server.driver_version < DriverVersion{470}) {
        // Before driver 470, instances had no UUIDs of their own.
        instance->uuid = fmt::format("MIG-{}/{}/0", card.uuid, k + 1);
      } else if (instance->uuid.empty()) {
        instance->uuid = derive_uuid("MIG", identity, fmt::format("{}:{}", i, k));
      }
    }
  }
}

Result<Server> read_server(std::string_view value, std::string_view identity) {
  if (is_sim_shorthand(value)) {
    auto server = read_short_form(value);
    if (server) assign_uuids(*server, identity);
    return server;
  }
  if (value.find('\0') != std::string_view::npos) return refuse("the path contains a NUL byte");
  const std::string text = TRY(read_file(std::string(value)));
  return parse_server(text, value, identity);
}

}  // namespace berth::sim
