// Looking at replies; see reply.h.
#include "cluster/redis/reply.h"

namespace berth {

std::optional<std::int64_t> Reply::integer() const {
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number == nullptr) return std::nullopt;
  return *number;
}

const std::string& Reply::text() const {
  static const std::string none;
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? none : *text;
}

const Reply::List& Reply::list() const {
  static const List none;
  const auto* list = std::get_if<List>(&value);
  return list == nullptr ? none : *list;
}

}  // namespace berth
