// Chooses the next line of a batch; see line_order.h.
#include "batch/line_order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace berth::batch {

LineOrder::LineOrder(const std::vector<std::size_t>& lines)
    : LineOrder(lines, std::vector<std::string>(lines.size()), {}) {}

LineOrder::LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
                     WorkEstimate work)
    : work_(std::move(work)), remaining_(lines.size()) {
  std::map<std::string, std::size_t> type_indices;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto [type_index, added] = type_indices.try_emplace(types[i], types_.size());
    if (added) types_.push_back({types[i], {}, work_ ? work_(types[i]) : std::nullopt});
    types_[type_index->second].lines.push_back(lines[i]);
    type_of_.resize(std::max(type_of_.size(), lines[i] + 1));
    type_of_[lines[i]] = type_index->second;
  }
}

std::size_t LineOrder::pop_front_line(Type& type) {
  const std::size_t line = type.lines.front();
  type.lines.pop_front();
  ++type.running;
  --remaining_;
  return line;
}

std::optional<std::size_t> LineOrder::pop_retry() {
  if (retries_.empty()) return std::nullopt;
  const std::size_t line = retries_.front();
  retries_.pop_front();
  ++types_[type_of_[line]].running;
  --remaining_;
  return line;
}

std::optional<std::size_t> LineOrder::next_required() {
  if (const auto line = pop_retry()) return line;
  for (Type& type : types_) {
    if (!type.lines.empty() && !type.work && type.running == 0) return pop_front_line(type);
  }
  return std::nullopt;
}

std::optional<std::size_t> LineOrder::next() {
  if (const auto line = next_required()) return line;
  // Other lines of a type that is being measured come last: they would only wait for that.
  Type* best = nullptr;
  for (Type& type : types_) {
    if (type.lines.empty()) continue;
    if (best == nullptr || type.work.value_or(-1) > best->work.value_or(-1)) best = &type;
  }
  if (best == nullptr) return std::nullopt;
  return pop_front_line(*best);
}

std::vector<std::size_t> LineOrder::known_lines(std::size_t max_per_type) const {
  std::vector<const Type*> types;
  for (const Type& type : types_) {
    if (type.work && !type.lines.empty()) types.push_back(&type);
  }
  std::stable_sort(types.begin(), types.end(),
                   [](const Type* a, const Type* b) { return *a->work > *b->work; });
  std::vector<std::size_t> lines;
  for (const Type* type : types) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(max_per_type, type->lines.size()));
    lines.insert(lines.end(), type->lines.begin(), type->lines.begin() + count);
  }
  return lines;
}

void LineOrder::remove(std::size_t line) {
  Type& type = types_[type_of_[line]];
  std::erase(type.lines, line);
  ++type.running;
  --remaining_;
}

void LineOrder::on_line_ended(std::size_t line) {
  Type& type = types_[type_of_[line]];
  --type.running;
  if (work_) type.work = work_(type.name);
}

void LineOrder::requeue(std::size_t line) {
  retries_.push_back(line);
  ++remaining_;
}

}  // namespace berth::batch
