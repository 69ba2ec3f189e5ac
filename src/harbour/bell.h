// Bells: the FIFOs that prove that a client lives, and that wake it.
//
// The kernel's part, all of it tried: opening a FIFO for writing fails with ENXIO if no process has
// its reading end, and only the owner may open that (mode 0622), so life cannot be forged. Whoever
// keeps the writing end sees POLLERR when the last reader is gone, grandchildren included. No PID
// is involved, so PID namespaces do not matter.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

// Makes `directory`/bell-`id` and opens it. Read-write, not read-only: otherwise each probe that
// opens and closes it would leave POLLHUP set, and the waiter would spin. Nothing if there is a
// file of that name already.
Result<std::optional<UniqueFd>> make_bell(int directory, const std::string& id);

// Forgets every ring so far; true if there was one. What others write meanwhile does not make it
// take longer.
bool drain_rings(int bell);

// The other end: somebody's bell, opened for writing.
struct PeerBell {
  enum class State {
    alive,
    unknown,  // of this owner, and cannot be opened although its mode permits (an ACL, an LSM): it
              // counts as alive, and can be neither rung nor watched
    dead,     // no process has its reading end, or there is no such file
    untrusted,  // not a FIFO of this owner that every user may ring
  };
  State state = State::dead;
  UniqueFd write_end;   // if it is alive
  std::string problem;  // if it is unknown or planted
  uid_t owner = 0;      // if it is alive or unknown

  bool counts_as_alive() const { return state == State::alive || state == State::unknown; }
};

// An Error means that nobody can say (no descriptor left): unknown is not dead. Without `owner`, a
// bell of any user counts.
Result<PeerBell> open_bell(int directory, const std::string& id, std::optional<uid_t> owner);

// Wakes whoever reads the bell whose writing end this is. Does nothing if it was rung and has not
// woken yet. Never raises SIGPIPE.
void ring(int write_end);

// How long ago it was rung, if it has not woken since: it is stopped, or slow.
std::optional<std::chrono::nanoseconds> unanswered_for(int write_end);

std::string bell_file_name(const std::string& id);

}  // namespace berth
