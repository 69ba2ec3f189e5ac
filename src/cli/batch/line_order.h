// Which line of a batch is run next.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace berth {

// The order of the file, unless the lines are of several types and it is known what those need.
// Then what needs most comes first (the long and large ones at the end of a batch would leave the
// other GPUs idle), after one line of each type that is still to be measured: the others of that
// type wait for it in any case.
class LineOrder {
 public:
  // What a line of this type is expected to take up, as memory times time; nothing: unknown.
  using Need = std::function<std::optional<double>(const std::string& type)>;

  // Lines from 0 on that are left to be run: `types` has the type of each of `lines`.
  LineOrder(const std::vector<std::size_t>& lines, const std::vector<std::string>& types,
            Need need);
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
    std::optional<double> need{};
    std::size_t running = 0;
  };
  Type* best();

  std::vector<Type> types_;           // by their first line
  std::vector<std::size_t> type_of_;  // by line
  std::deque<std::size_t> again_;
  Need need_;
  std::size_t left_ = 0;
};

}  // namespace berth
