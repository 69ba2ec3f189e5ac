// Reads /proc/self/uid_map; see uid_map.h.
#include "base/uid_map.h"

#include <fstream>
#include <sstream>
#include <string>

namespace berth {
namespace {

constexpr const char* kIdentityMap = "0 0 4294967295\n";

}  // namespace

const UidMap& own_uid_map() {
  static const UidMap map([] {
    std::ifstream file("/proc/self/uid_map");
    if (!file) return std::string(kIdentityMap);
    std::string text;
    for (std::string line; std::getline(file, line);) text += line + "\n";
    return text;
  }());
  return map;
}

UidMap::UidMap(std::string_view text) {
  std::istringstream lines{std::string(text)};
  Range range;
  while (lines >> range.inside >> range.outside >> range.count) ranges_.push_back(range);
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
