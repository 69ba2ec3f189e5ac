// The order in which the lines of a batch run.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace berth::batch {

// The lines that are still to be run, in the order of the file, unless their types and the work of
// each type are known. Then one line of each type that must still be measured comes first, because
// the other lines of that type wait for its measurement anyway. After those, the line with the most
// work comes first: if it came last, the other GPUs would be idle while it runs. Used by one
// thread.
//
// Lines are identified by their index in BatchPlan::lines.
class LineOrder {
 public:
  // The work of a line of this type: its memory times its run time, in any unit. nullopt: the type
  // must still be measured.
  using WorkEstimate = std::function<std::optional<double>(const std::string& type)>;

  // `types` has the type of each of `lines`.
  LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
            WorkEstimate work);
  // Keeps the given order.
  explicit LineOrder(const std::vector<std::size_t>& lines);

  // Removes and returns the next line; nullopt if there is none.
  std::optional<std::size_t> next();
  // Removes and returns the next line that must start even if it has to wait for a GPU: a retry, or
  // a line to measure.
  std::optional<std::size_t> next_required();
  // Lines of types that were measured, those with the most work first; at most `max_per_type` of
  // each type. Does not remove them.
  std::vector<std::size_t> known_lines(std::size_t max_per_type) const;
  // Removes a line that known_lines() has returned.
  void remove(std::size_t line);

  // A line that was removed has ended. Updates the estimate of its type.
  void on_line_ended(std::size_t line);
  // Adds a line that has ended again, before all others.
  void requeue(std::size_t line);

  std::size_t remaining() const { return remaining_; }

 private:
  struct Type {
    std::string name{};
    std::deque<std::size_t> lines{};
    std::optional<double> work{};
    std::size_t running = 0;
  };
  std::size_t pop_front_line(Type& type);
  std::optional<std::size_t> pop_retry();

  std::vector<Type> types_;           // in the order of their first lines
  std::vector<std::size_t> type_of_;  // line -> index in types_
  std::deque<std::size_t> retries_;
  WorkEstimate work_;
  std::size_t remaining_ = 0;
};

}  // namespace berth::batch
