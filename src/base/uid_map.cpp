// Reads /proc/self/uid_map; see uid_map.h.
#include "base/uid_map.h"

#include <cstdint>
#include <string>

#include "base/read_file.h"
#include "base/text.h"

namespace berth {
namespace {

constexpr const char* kIdentityMap = "0 0 4294967295\n";

}  // namespace

const UidMap& own_uid_map() {
  static const UidMap map(read_proc_file("/proc/self/uid_map").value_or(kIdentityMap));
  return map;
}

UidMap::UidMap(std::string_view text) {
  for (;;) {
    const auto inside = parse_integer<std::uint64_t>(take_word(text));
    const auto outside = parse_integer<std::uint64_t>(take_word(text));
    const auto count = parse_integer<std::uint64_t>(take_word(text));
    if (!inside || !outside || !count) return;
    ranges_.push_back({*inside, *outside, *count});
  }
}

std::optional<uid_t> UidMap::outside(uid_t inside) const {
  for (const Range& range : ranges_) {
    if (inside < range.inside || inside - range.inside >= range.count) continue;
    return static_cast<uid_t>(range.outside + (inside - range.inside));
  }
  return std::nullopt;
}

std::optional<uid_t> UidMap::inside(uid_t outside) const {
  for (const Range& range : ranges_) {
    if (outside < range.outside || outside - range.outside >= range.count) continue;
    return static_cast<uid_t>(range.inside + (outside - range.outside));
  }
  return std::nullopt;
}

bool UidMap::is_identity() const {
  return ranges_.size() == 1 && ranges_[0].inside == 0 && ranges_[0].outside == 0 &&
         ranges_[0].count == UINT32_MAX;
}

std::optional<uid_t> uid_outside(uid_t inside) {
  return own_uid_map().outside(inside);
}

std::optional<uid_t> uid_inside(uid_t outside) {
  return own_uid_map().inside(outside);
}

}  // namespace berth
