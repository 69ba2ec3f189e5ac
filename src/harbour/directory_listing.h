// The entries of the harbour's directory, known by their names and inodes alone, and the order of
// the tickets among them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "harbour/transaction.h"

namespace berth {

// The number and total size of one user's tickets, and their limits: other clients must read them.
struct TicketTotals {
  static constexpr std::size_t kMaxTickets = 2000;
  static constexpr std::uint64_t kMaxBytes = 4 << 20;

  std::size_t count = 0;
  std::uint64_t bytes = 0;

  bool has_room_for(std::uint64_t size) const {
    return count < kMaxTickets && bytes + size <= kMaxBytes;
  }
  void add(std::uint64_t size) {
    ++count;
    bytes += size;
  }
  void remove(std::uint64_t size) {
    --count;
    bytes -= size;
  }
};

struct DirectoryListing {
  std::vector<std::string> leases;         // ids, sorted
  std::vector<TicketName> tickets;         // in the order of the queue
  std::vector<std::string> bells;          // ids
  std::vector<std::string> requests;       // ids of tickets whose request has changed, sorted
  std::vector<std::string> drains;         // UUIDs, with '_' for '/'
  std::vector<std::string> unknown_names;  // names that Berth does not use
  TicketTotals own_tickets{};              // the tickets of this process's user
};

// Called for each file that does not count; see IgnoredEntry.
using IgnoreFile =
    std::function<void(const std::string& file, std::optional<uid_t> owner, std::string problem)>;

// Lists `directory`, an open and locked descriptor. Sorts the tickets by ticket_order(), and leaves
// out those that exceed the limit of their owner.
Result<DirectoryListing> list_directory(int directory, const IgnoreFile& ignore);

// TicketName::order of a ticket: the later of its file_number and the time at which its file got
// its name. The kernel sets the ctime then, and no user can set it back, so a forged small number
// gains nothing. A larger number only moves its own ticket back. Where other users can change the
// ctime (by a hard link), the birth time of the file takes its place.
std::uint64_t ticket_order(std::uint64_t file_number, const struct statx& file_info);
// The file_number for a ticket that is written now, behind `tickets`.
std::uint64_t next_file_number(const std::vector<TicketName>& tickets);

}  // namespace berth
