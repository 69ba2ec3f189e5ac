// The order of lines; see line_order.h.
#include "cli/batch/line_order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace berth::batch {

LineOrder::LineOrder(const std::vector<std::size_t>& lines)
    : LineOrder(lines, std::vector<std::string>(lines.size()), {}) {}

LineOrder::LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
                     Seconds seconds)
    : seconds_(std::move(seconds)), left_(lines.size()) {
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [place, added] = known.try_emplace(types[i], types_.size());
    if (added) types_.push_back({types[i], {}, seconds_ ? seconds_(types[i]) : std::nullopt});
    types_[place->second].lines.push_back(lines[i]);
    type_of_.resize(std::max(type_of_.size(), lines[i] + 1));
    type_of_[lines[i]] = place->second;
  }
}

// 2: to be measured, and nobody does; 1: known; 0: it would only wait for who measures it.
LineOrder::Type* LineOrder::best() {
  const auto rank = [](const Type& type) { return type.seconds ? 1 : type.running == 0 ? 2 : 0; };
  const auto work = [this](const Type& type) {
    return *type.seconds * (by_sum_ ? static_cast<double>(type.lines.size()) : 1);
  };
  Type* found = nullptr;
  for (Type& type : types_) {
    if (type.lines.empty()) continue;
    const bool better = found == nullptr || rank(type) > rank(*found) ||
                        (rank(type) == 1 && rank(*found) == 1 && work(type) > work(*found));
    if (better) found = &type;
  }
  return found;
}

std::optional<std::size_t> LineOrder::next() {
  std::size_t line = 0;
  if (!again_.empty()) {
    line = again_.front();
    again_.pop_front();
  } else if (Type* type = best()) {
    line = type->lines.front();
    type->lines.pop_front();
    by_sum_ = type->seconds && !by_sum_;
  } else {
    return std::nullopt;
  }
  ++types_[type_of_[line]].running;
  --left_;
  return line;
}

void LineOrder::ended(std::size_t line) {
  Type& type = types_[type_of_[line]];
  --type.running;
  if (seconds_) type.seconds = seconds_(type.name);
}

void LineOrder::again(std::size_t line) {
  again_.push_back(line);
  ++left_;
}

}  // namespace berth::batch
