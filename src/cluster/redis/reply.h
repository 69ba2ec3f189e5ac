// A command for a Redis server, and its reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace berth {

constexpr std::size_t kMaxRedisReplySize = std::size_t{64} << 20;  // larger replies are refused

// The name of the command, then its arguments.
using RedisCommand = std::vector<std::string>;

struct Reply {
  using List = std::vector<Reply>;
  std::variant<std::nullptr_t, std::int64_t, std::string, List> value = nullptr;

  bool is_nil() const { return std::holds_alternative<std::nullptr_t>(value); }

  // A client that can write to the server can cause a reply of another type than expected. For such
  // a reply these return nullopt, or an empty value.
  std::optional<std::int64_t> integer() const {
    const auto* number = std::get_if<std::int64_t>(&value);
    return number == nullptr ? std::nullopt : std::optional(*number);
  }
  const std::string& text() const {
    static const std::string empty;
    const auto* text = std::get_if<std::string>(&value);
    return text == nullptr ? empty : *text;
  }
  const List& list() const {
    static const List empty;
    const auto* list = std::get_if<List>(&value);
    return list == nullptr ? empty : *list;
  }
};

}  // namespace berth
