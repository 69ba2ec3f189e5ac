// Reads files to their end, and their words.
#pragma once

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth {

// Reads an open file, pipe or terminal. nullopt, with errno set, if it cannot be read or has more
// than `max_size` bytes (EFBIG).
inline std::optional<std::string> read_to_end(int file, std::size_t max_size) {
  constexpr std::size_t kFirstBytes = 4096;  // more would only be cleared and not used, mostly
  std::string text;
  std::size_t length = 0;
  for (;;) {
    if (length == text.size()) text.resize(std::max(kFirstBytes, 2 * length));
    const ssize_t size =
        TEMP_FAILURE_RETRY(::read(file, text.data() + length, text.size() - length));
    if (size < 0) return std::nullopt;
    length += static_cast<std::size_t>(size);
    if (length > max_size) {
      errno = EFBIG;
      return std::nullopt;
    }
    if (size == 0) break;
  }
  text.resize(length);
  return text;
}

// Reads a file of /proc. nullopt, with errno set, if that fails. Not with a std::ifstream: the
// first use of a stream initialises the locales of the C++ library, which takes longer than the
// rest.
inline std::optional<std::string> read_proc_file(const char* path) {
  constexpr std::size_t kMaxSize = std::size_t{64} << 20;
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  return read_to_end(file.get(), kMaxSize);
}

// Removes the first word of `text`, which ends at a space, tab or line break, and returns it.
// Empty: no word is left.
inline std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\n";
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlanks)));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace berth
