// Holding a lease; see lease.h.
#include "broker/lease.h"

#include <array>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "harbour/bell.h"

namespace berth {

bool Lease::release() {
  bell_.reset();
  // If nobody can say whether others hold it, it stays: they may.
  const auto bell = open_bell(harbour_.directory(), id(), record_.uid);
  if (!bell || bell->state != PeerBell::State::dead) return false;
  harbour_.remove(id(), std::nullopt);
  return true;
}

int Lease::deletion_watch() {
  if (watch_) return watch_.get();
  watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch_) return -1;
  const std::string& path = harbour_.location().path;
  const std::string bell = fmt::format("{}/{}", path, bell_name(id()));
  // The bell is open, so its deletion shows as a change of its number of links.
  ::inotify_add_watch(watch_.get(), bell.c_str(), IN_ATTRIB | IN_MOVE_SELF);
  ::inotify_add_watch(watch_.get(), path.c_str(), IN_MOVE_SELF | IN_DELETE_SELF);
  return watch_.get();
}

Result<bool> Lease::restore() {
  if (watch_) {
    std::array<char, 4096> events{};
    while (::read(watch_.get(), events.data(), events.size()) > 0) {
    }
  }
  if (harbour_.has_bell(id(), bell_.get())) return false;
  auto harbour = Harbour::open(harbour_.location());
  if (!harbour) return tl::make_unexpected(harbour.error());
  harbour_ = std::move(*harbour);
  auto bell = make_bell(harbour_.directory(), id());
  if (!bell) return tl::make_unexpected(bell.error());
  if (!*bell) return fail(ErrorKind::harbour, "somebody else has taken this lease's name");
  // Without the lock: that we hold these GPUs is a fact, and whoever made the new directory keeps
  // it locked for a moment, to let us say so.
  UniqueFd directory(::openat(harbour_.directory(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Transaction transaction(std::move(directory));
  if (auto written = transaction.write_lease(record_); !written) {
    return tl::make_unexpected(written.error());
  }
  // The old bell stays open in the job. From now on this process proves that the lease lives.
  bell_ = std::move(**bell);
  watch_.reset();
  return true;
}

}  // namespace berth
