// Lists the directory and sorts the tickets; see directory_listing.h.
#include "harbour/directory_listing.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <dirent.h>
#include <map>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "base/users.h"
#include "harbour/file_error.h"
#include "harbour/file_names.h"
#include "harbour/location.h"
#include "harbour/record_file.h"
#include "harbour/safe_directory.h"

namespace berth {
namespace {

// The file numbers of tickets are times, in units of 100 µs since 1970.
constexpr std::uint64_t kUnitNs = 100'000;
constexpr std::uint64_t kUnitsPerSecond = 1'000'000'000 / kUnitNs;

// A UUID is part of a file's name, so it must not contain '/'.
bool is_uuid(std::string_view text) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return !text.empty() && text.size() <= 128 &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

bool add_to_listing(std::string_view name, DirectoryListing& listing) {
  const auto has_id_after = [&name](std::string_view prefix) {
    return name.starts_with(prefix) && is_id(name.substr(prefix.size()));
  };
  if (has_id_after(kLeasePrefix)) {
    listing.leases.emplace_back(name.substr(kLeasePrefix.size()));
  } else if (has_id_after(kBellPrefix)) {
    listing.bells.emplace_back(name.substr(kBellPrefix.size()));
  } else if (has_id_after(kRequestPrefix)) {
    listing.requests.emplace_back(name.substr(kRequestPrefix.size()));
  } else if (name.starts_with(kDrainPrefix) && is_uuid(name.substr(kDrainPrefix.size()))) {
    listing.drains.emplace_back(name.substr(kDrainPrefix.size()));
  } else if (auto ticket = parse_ticket_file_name(name)) {
    listing.tickets.push_back(std::move(*ticket));
  } else {
    return false;
  }
  return true;
}

std::uint64_t to_units(const statx_timestamp& time) {
  if (time.tv_sec < 0) return 0;
  return static_cast<std::uint64_t>(time.tv_sec) * kUnitsPerSecond + time.tv_nsec / kUnitNs;
}

std::uint64_t units_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kUnitsPerSecond +
         static_cast<std::uint64_t>(now.tv_nsec) / kUnitNs;
}

// Some file systems do not report types in a listing (DT_UNKNOWN).
bool is_directory(int parent, const dirent64& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct statx file_info {};
  if (!stat_at(parent, entry.d_name, file_info)) return false;
  if (is_mount_point(file_info)) return std::string_view(entry.d_name) == kArchiveInHarbour;
  return S_ISDIR(file_info.stx_mode);
}

// Sorts the tickets by ticket_order(), and drops those of a user that exceed the limit.
void order_tickets(int directory, DirectoryListing& listing, const IgnoreFile& ignore) {
  struct statx file_info {};
  struct Ticket {
    TicketName name;
    std::optional<uid_t> owner;
    std::uint64_t size;
  };
  std::vector<Ticket> tickets;
  tickets.reserve(listing.tickets.size());
  for (TicketName& name : listing.tickets) {
    // A ticket whose file cannot be examined has its file_number as order. read_ticket() decides
    // later whether it counts.
    const bool known = stat_at(directory, ticket_file_name(name), file_info);
    if (known && is_mount_point(file_info)) {
      ignore(ticket_file_name(name), std::nullopt, find_file_problem(file_info));
      continue;
    }
    name.order = known ? ticket_order(name.file_number, file_info) : name.file_number;
    if (known && is_identified(file_info.stx_uid)) name.owner = file_info.stx_uid;
    // A changed request is in a file of its own (see write_ticket()).
    if (known && !std::binary_search(listing.requests.begin(), listing.requests.end(), name.id))
      name.request_hash = to_request_hash(file_info.stx_mtime);
    tickets.push_back({std::move(name), known ? std::optional(file_info.stx_uid) : std::nullopt,
                       std::min<std::uint64_t>(file_info.stx_size, kMaxRecordSize)});
  }
  std::sort(tickets.begin(), tickets.end(),
            [](const Ticket& a, const Ticket& b) { return a.name < b.name; });
  listing.tickets.clear();
  // Owners that this user namespace does not map have no limit: they all look like one user, and
  // the tickets of one of them would make those of another not count.
  std::map<uid_t, TicketTotals> totals;
  for (Ticket& ticket : tickets) {
    TicketTotals unlimited;
    TicketTotals& total = ticket.name.owner ? totals[*ticket.name.owner] : unlimited;
    const bool has_room = total.has_room_for(ticket.size);
    total.add(ticket.size);
    if (has_room) {
      listing.tickets.push_back(std::move(ticket.name));
    } else {
      ignore(ticket_file_name(ticket.name), ticket.owner, "its owner has too many tickets");
    }
  }
  listing.own_tickets = totals[::geteuid()];
}

}  // namespace

Result<DirectoryListing> list_directory(int directory, const IgnoreFile& ignore) {
  DirectoryListing listing;
  DirectoryListing subdirectories;
  // opendir() would allocate and free 32 KiB, which costs more than the listing itself.
  alignas(dirent64) std::array<char, 16384> buffer;
  ::lseek(directory, 0, SEEK_SET);
  for (;;) {
    const auto length = ::getdents64(directory, buffer.data(), buffer.size());
    if (length < 0) return file_error("list", directory);
    if (length == 0) break;
    for (ssize_t at = 0; at < length;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      // Directories are never opened: the owner of a directory can mount a file system there (FUSE)
      // that does not answer.
      const bool is_subdirectory = is_directory(directory, *entry);
      if (is_subdirectory && name == kArchiveInHarbour) continue;
      if (!add_to_listing(name, is_subdirectory ? subdirectories : listing)) {
        listing.unknown_names.emplace_back(name);
        ignore(std::string(name), std::nullopt, "it is not a file of berth");
      } else if (is_subdirectory) {
        ignore(std::string(name), std::nullopt, "it is a directory");
      }
    }
  }
  std::sort(listing.leases.begin(), listing.leases.end());
  std::sort(listing.requests.begin(), listing.requests.end());
  if (!listing.tickets.empty()) order_tickets(directory, listing, ignore);
  return listing;
}

std::uint64_t ticket_order(std::uint64_t file_number, const struct statx& file_info) {
  const bool use_birth_time = others_can_link() && (file_info.stx_mask & STATX_BTIME) != 0;
  return std::max(file_number,
                  to_units(use_birth_time ? file_info.stx_btime : file_info.stx_ctime));
}

std::uint64_t next_file_number(const std::vector<TicketName>& tickets) {
  const std::uint64_t now = units_now();
  if (tickets.empty()) return now;
  // Two tickets of the same moment keep their order. A ticket with a number from the future changes
  // the numbers of others by a millisecond at most.
  const std::uint64_t last = tickets.back().order;
  return last >= now && last - now < kUnitsPerSecond / 1000 ? last + 1 : now;
}

}  // namespace berth
