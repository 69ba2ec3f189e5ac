// User ids on both sides of a user namespace, for records that other hosts read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace berth {

// The kernel's map of uids between a user namespace and the one around it.
class UidMap {
 public:
  // `text` as in /proc/PID/uid_map: on each line the first uid inside, the first outside, and a
  // count.
  explicit UidMap(std::string_view text);

  // Nothing if the namespace does not map it.
  std::optional<uid_t> outside(uid_t inside) const;
  std::optional<uid_t> inside(uid_t outside) const;

  // Every uid is the same on both sides: this is the host's own namespace, or as good as that.
  bool is_identity() const;

 private:
  struct Range {
    std::uint64_t inside = 0;
    std::uint64_t outside = 0;
    std::uint64_t count = 0;
  };
  std::vector<Range> ranges_;
};

// The uid that a user of this process's namespace has outside of it, and the other way round. On a
// host, or without /proc, they are the same. The kernel tells of one level only: in a namespace
// inside another one, "outside" is that other one.
const UidMap& own_uid_map();
std::optional<uid_t> uid_outside(uid_t inside);
std::optional<uid_t> uid_inside(uid_t outside);

}  // namespace berth
