// Bells: the FIFO of each client, which proves that the client lives and which wakes it.
//
// A client is a ticket (it waits) or a lease (it holds GPUs). Its processes keep the bell open: the
// process that made it, and the children that inherited it. A bell rests on these facts about
// Linux, which tests check:
// - Opening a FIFO for writing fails with ENXIO if no process has its read end open.
// - Only the owner and root can open a FIFO of mode 0622 for reading, so another user cannot make a
//   dead client look alive.
// - A process that keeps the write end open gets POLLERR when the last reader is gone. Readers
//   include grandchildren.
// No PID is involved, so PID namespaces (containers) do not matter.
//
// All functions are thread-safe. `directory` is an open descriptor of the harbour's directory.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace berth {

// Creates the FIFO bell-`id` with mode 0622, whatever the umask is, and opens it. nullopt if a file
// of that name exists. The descriptor is read-write: with a read-only one, each probe that opens
// and closes the write end would leave POLLHUP set, and the poll() of the waiter would return at
// once, forever.
Result<std::optional<UniqueFd>> make_bell(int directory, const std::string& id);

// Discards the rings that are in the bell now. Returns whether there was one. Rings that arrive
// during the call stay in the bell, so a user that rings without end cannot prolong the call.
bool clear_rings(int bell);

// The bell of any client, opened for writing.
struct PeerBell {
  enum class State {
    alive,    // a process has the read end open
    unknown,  // the kernel forbids to open it although its mode permits it (a security module, for
              // example): the client counts as alive, but cannot be rung or watched
    dead,     // no process has the read end open, or the file does not exist
    untrusted,  // not a FIFO, of another owner, or made unopenable by its owner
  };
  State state = State::dead;
  UniqueFd write_end;   // only of a live client
  std::string problem;  // why the state is unknown or untrusted, for messages
  uid_t owner = 0;      // set if the state is alive or unknown

  bool counts_as_alive() const { return state == State::alive || state == State::unknown; }
};

// Opens bell-`id` for writing. It must belong to `owner`; without `owner`, any user's bell is
// accepted. An Error (ErrorKind::io) means that the state cannot be determined, because this
// process has no descriptor left, for example: the caller must not treat the client as dead.
Result<PeerBell> open_bell(int directory, const std::string& id, std::optional<uid_t> owner);

// Wakes the client whose bell has this write end. Does nothing if the client has an unread ring.
// Never raises SIGPIPE.
void ring(int write_end);

// The age of the oldest unread ring: the client is stopped, or slow. nullopt if every ring was
// read. May be negative, since the owner of a FIFO can set its times.
std::optional<std::chrono::nanoseconds> unanswered_for(int write_end);

}  // namespace berth
