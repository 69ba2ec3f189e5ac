// Translates user ids between a user namespace and its parent, for records that other hosts read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace berth {

// The kernel's map of uids between a user namespace (inside) and its parent (outside).
class UidMap {
 public:
  // `text` has the format of /proc/PID/uid_map: each line has the first uid inside, the first uid
  // outside, and a count.
  explicit UidMap(std::string_view text);

  // nullopt: the namespace does not map the uid.
  std::optional<uid_t> outside(uid_t inside) const;
  std::optional<uid_t> inside(uid_t outside) const;

  // Whether every uid is the same on both sides: the host's own namespace, or an equivalent one.
  bool is_identity() const;

 private:
  struct Range {
    std::uint64_t inside = 0;
    std::uint64_t outside = 0;
    std::uint64_t count = 0;
  };
  std::vector<Range> ranges_;
};

// The map of this process's namespace, and its translations. Without /proc, it is the identity. The
// kernel shows one level only: in a nested namespace, "outside" is its direct parent.
const UidMap& own_uid_map();
std::optional<uid_t> uid_outside(uid_t inside);
std::optional<uid_t> uid_inside(uid_t outside);

}  // namespace berth
