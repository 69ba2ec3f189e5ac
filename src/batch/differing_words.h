// The words in which the commands of a batch differ, for displays that have no room for whole
// commands.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "batch/lines.h"

namespace berth::batch {

class DifferingWords {
 public:
  // Each command is compared with those that have as many words: the lines of a sweep. `lines` must
  // outlive this object.
  explicit DifferingWords(const std::vector<BatchLine>& lines);

  // "… --lr 0.1 … --seed 3": the command of a line without the words that all commands compared
  // with it have at the same place. A flag before a word that differs stays. The whole command if
  // it differs in no word.
  std::string shorten(std::string_view command, Charset charset) const;

 private:
  struct Group {
    std::vector<std::string_view> words{};  // of its first command
    std::vector<bool> differs{};  // whether another command has another word at this place
  };

  std::map<std::size_t, Group> groups_;  // by the number of words
};

}  // namespace berth::batch
