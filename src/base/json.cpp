// Reads and writes JSON text; see json.h. Only this file compiles the parser and the writer of the
// library, which take seconds to compile.
#include "base/json.h"

#include "base/json_fields.h"

namespace berth {
namespace {

template <class AnyJson>
std::string write(const AnyJson& json, int indent, bool ascii) {
  return json.dump(indent, ' ', ascii, AnyJson::error_handler_t::replace);
}

}  // namespace

std::string to_ascii_json(const Json& json, int indent) {
  return write(json, indent, true);
}
std::string to_ascii_json(const ParsedJson& json, int indent) {
  return write(json, indent, true);
}
std::string to_utf8_json(const Json& json, int indent) {
  return write(json, indent, false);
}

ParsedJson parse_json(std::string_view text) {
  return ParsedJson::parse(text, nullptr, false);
}

bool is_utf8(std::string_view text) {
  try {
    return !ParsedJson(text).dump().empty();
  } catch (const ParsedJson::type_error&) {
    return false;
  }
}

}  // namespace berth
