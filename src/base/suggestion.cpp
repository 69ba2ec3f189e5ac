// Finds the most similar word; see suggestion.h.
#include "base/suggestion.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace berth {
namespace {

// Longer words are not mistyped words, and the time to compare two words grows with both lengths.
constexpr std::size_t kMaxLength = 64;

std::string normalize(std::string_view word) {
  std::string text = lower_case(word);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// The number of letters to insert, delete, replace or swap that turns `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last.back();
}

}  // namespace

std::string find_similar_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > kMaxLength) return "";
  const std::string wanted = normalize(word);
  const std::size_t letters =
      wanted.size() - std::min(wanted.find_first_not_of('-'), wanted.size());
  // Of a short word, most letters must be right: 'ls' is not a mistyped 'log'.
  std::size_t limit = letters < 4 ? 1 : 2;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(wanted, candidate);
    if (distance > limit || (distance == limit && !found.empty())) continue;
    limit = distance;
    found = candidate;
  }
  return found;
}

}  // namespace berth
