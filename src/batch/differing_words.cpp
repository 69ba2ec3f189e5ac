// Compares the commands of a batch; see differing_words.h.
#include "batch/differing_words.h"

#include <algorithm>

namespace berth::batch {
namespace {

std::vector<std::string_view> split_at_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  std::vector<std::string_view> words;
  for (;;) {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlanks)));
    if (text.empty()) return words;
    words.push_back(text.substr(0, text.find_first_of(kBlanks)));
    text.remove_prefix(words.back().size());
  }
}

}  // namespace

DifferingWords::DifferingWords(const std::vector<BatchLine>& lines) {
  for (const BatchLine& line : lines) {
    const auto words = split_at_blanks(line.command);
    const auto [found, is_new] = groups_.try_emplace(words.size());
    Group& group = found->second;
    if (is_new) group = {words, std::vector<bool>(words.size())};
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] != group.words[i]) group.differs[i] = true;
    }
  }
}

std::string DifferingWords::shorten(std::string_view command, Charset charset) const {
  const auto words = split_at_blanks(command);
  const auto found = groups_.find(words.size());
  if (found == groups_.end()) return std::string(command);
  const std::vector<bool>& differs = found->second.differs;
  if (std::find(differs.begin(), differs.end(), true) == differs.end()) return std::string(command);
  const std::string_view gap = charset == Charset::utf8 ? "…" : "...";
  std::vector<std::string_view> shown;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_flag_of_next =
        words[i].starts_with('-') && i + 1 < words.size() && differs[i + 1];
    if (differs[i] || is_flag_of_next) {
      shown.push_back(words[i]);
    } else if (shown.empty() || shown.back() != gap) {
      shown.push_back(gap);
    }
  }
  return join_text(shown, " ");
}

}  // namespace berth::batch
