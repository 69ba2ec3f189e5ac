// Which line of a batch is run next.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace berth::batch {

// The order of the file, unless the lines are of several types and it is known how long those run.
// Then first comes one line of each type that is still to be measured: the others of that type wait
// for it in any case. Of the others, in turns, the one that runs longest (at the end of a batch it
// would leave the other GPUs idle) and one of the type of which most is left: so that lines of
// different sizes, which fit beside each other, are in the queue at the same time. docs/batch.md
// has the figures.
class LineOrder {
 public:
  // How long a line of this type is expected to run, in seconds; nothing: it is to be measured.
  using Seconds = std::function<std::optional<double>(const std::string& type)>;

  // Lines from 0 on that are left to be run: `types` has the type of each of `lines`.
  LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
            Seconds seconds);
  // In the order given.
  explicit LineOrder(const std::vector<std::size_t>& lines);

  // The next one, which is then not here any more; nothing if none is left.
  std::optional<std::size_t> next();
  // A line that next() gave has ended: by now more may be known of its type.
  void ended(std::size_t line);
  // It is to be run once more, before the others.
  void again(std::size_t line);

  std::size_t left() const { return left_; }

 private:
  struct Type {
    std::string name{};
    std::deque<std::size_t> lines{};
    std::optional<double> seconds{};
    std::size_t running = 0;
  };
  Type* best();

  std::vector<Type> types_;           // by their first line
  std::vector<std::size_t> type_of_;  // by line
  std::deque<std::size_t> again_;
  Seconds seconds_;
  std::size_t left_ = 0;
  bool by_sum_ = false;  // the next one is of the type of which most is left
};

}  // namespace berth::batch
