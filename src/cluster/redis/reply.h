// What a Redis server said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace berth {

constexpr std::size_t kMaxRedisReplySize = std::size_t{64} << 20;  // what is larger is refused

// A command for a server: its name and its arguments.
using RedisCommand = std::vector<std::string>;

struct Reply {
  using List = std::vector<Reply>;
  std::variant<std::nullptr_t, std::int64_t, std::string, List> value = nullptr;

  // Whoever can write to Redis can make a reply of another kind than was expected. These give
  // nothing, or what is empty, for it.
  bool is_nil() const { return std::holds_alternative<std::nullptr_t>(value); }
  std::optional<std::int64_t> integer() const;
  const std::string& text() const;
  const List& list() const;
};

}  // namespace berth
