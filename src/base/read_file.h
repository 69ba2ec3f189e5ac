// Reads an open file, pipe or terminal to its end.
#pragma once

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <unistd.h>

namespace berth {

// nullopt, with errno set, if the file cannot be read or has more than `max_size` bytes (EFBIG).
inline std::optional<std::string> read_to_end(int file, std::size_t max_size) {
  std::string text;
  std::array<char, 65536> chunk{};
  for (;;) {
    const ssize_t size = TEMP_FAILURE_RETRY(::read(file, chunk.data(), chunk.size()));
    if (size < 0) return std::nullopt;
    if (size == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(size));
    if (text.size() > max_size) {
      errno = EFBIG;
      return std::nullopt;
    }
  }
}

}  // namespace berth
