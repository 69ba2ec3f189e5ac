// Which line of a batch is run next.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace berth::batch {

// The order of the file, unless the lines are of several types and it is known what those need.
// Then first comes one line of each type that is still to be measured: the others of that type wait
// for it in any case. Of the others, the one that takes up most comes first: at the end of a batch
// it would leave the other GPUs idle.
class LineOrder {
 public:
  // What a line of this type takes up: its memory times its run time, in any unit; nothing: it is
  // to be measured.
  using WorkEstimate = std::function<std::optional<double>(const std::string& type)>;

  // Lines from 0 on that are left to be run: `types` has the type of each of `lines`.
  LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
            WorkEstimate work);
  // In the order given.
  explicit LineOrder(const std::vector<std::size_t>& lines);

  // The next one, which is then not here any more; nothing if none is left.
  std::optional<std::size_t> next();
  // The next one that is run whatever fits: once more, or to be measured.
  std::optional<std::size_t> next_required();
  // Lines of which it is known what they need, the largest first: of each type `max_per_type` at
  // most.
  std::vector<std::size_t> known_lines(std::size_t max_per_type) const;
  // Takes out one that known_lines() gave.
  void remove(std::size_t line);

  // A line that was taken has ended: by now more may be known of its type.
  void on_line_ended(std::size_t line);
  // It is to be run once more, before the others.
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

  std::vector<Type> types_;           // by their first line
  std::vector<std::size_t> type_of_;  // by line
  std::deque<std::size_t> retries_;
  WorkEstimate work_;
  std::size_t remaining_ = 0;
};

}  // namespace berth::batch
