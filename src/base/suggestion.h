// What a user may have meant by a word that is not a command, or not a flag.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace berth {

// The candidate that differs from `word` in the fewest letters. Upper case, and '_' in the place of
// '-', do not count as different. Empty if too many letters differ.
std::string find_similar_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace berth
