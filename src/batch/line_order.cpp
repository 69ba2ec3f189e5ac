// The order of lines; see line_order.h.
#include "batch/line_order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace berth::batch {

LineOrder::LineOrder(const std::vector<std::size_t>& lines)
    : LineOrder(lines, std::vector<std::string>(lines.size()), {}) {}

LineOrder::LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
                     Work work)
    : work_(std::move(work)), left_(lines.size()) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [place, added] = places.try_emplace(types[i], types_.size());
    if (added) types_.push_back({types[i], {}, work_ ? work_(types[i]) : std::nullopt});
    types_[place->second].lines.push_back(lines[i]);
    type_of_.resize(std::max(type_of_.size(), lines[i] + 1));
    type_of_[lines[i]] = place->second;
  }
}

std::size_t LineOrder::taken(Type& type) {
  const std::size_t line = type.lines.front();
  type.lines.pop_front();
  ++type.running;
  --left_;
  return line;
}

std::optional<std::size_t> LineOrder::first_again() {
  if (again_.empty()) return std::nullopt;
  const std::size_t line = again_.front();
  again_.pop_front();
  ++types_[type_of_[line]].running;
  --left_;
  return line;
}

std::optional<std::size_t> LineOrder::next_in_any_case() {
  if (const auto line = first_again()) return line;
  for (Type& type : types_) {
    if (!type.lines.empty() && !type.work && type.running == 0) return taken(type);
  }
  return std::nullopt;
}

std::optional<std::size_t> LineOrder::next() {
  if (const auto line = next_in_any_case()) return line;
  // Those of unknown types come last: they would only wait for who is measured.
  Type* best = nullptr;
  for (Type& type : types_) {
    if (type.lines.empty()) continue;
    if (best == nullptr || type.work.value_or(-1) > best->work.value_or(-1)) best = &type;
  }
  if (best == nullptr) return std::nullopt;
  return taken(*best);
}

std::vector<std::size_t> LineOrder::known(std::size_t most) const {
  std::vector<const Type*> types;
  for (const Type& type : types_) {
    if (type.work && !type.lines.empty()) types.push_back(&type);
  }
  std::stable_sort(types.begin(), types.end(),
                   [](const Type* a, const Type* b) { return *a->work > *b->work; });
  std::vector<std::size_t> lines;
  for (const Type* type : types) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, type->lines.size()));
    lines.insert(lines.end(), type->lines.begin(), type->lines.begin() + count);
  }
  return lines;
}

void LineOrder::take(std::size_t line) {
  Type& type = types_[type_of_[line]];
  std::erase(type.lines, line);
  ++type.running;
  --left_;
}

void LineOrder::ended(std::size_t line) {
  Type& type = types_[type_of_[line]];
  --type.running;
  if (work_) type.work = work_(type.name);
}

void LineOrder::again(std::size_t line) {
  again_.push_back(line);
  ++left_;
}

}  // namespace berth::batch
