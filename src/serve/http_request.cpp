// Checks and parses requests; see http_request.h.
#include "serve/http_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/json_fields.h"
#include "base/text.h"

namespace berth::serve {
namespace {

bool is_token_char(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

// Whether a line has no control characters except tabs. Bytes above ASCII are allowed. A CR or LF
// is refused, because only CR LF ends a line.
bool is_line(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  });
}

bool is_target(std::string_view text) {
  return text.starts_with('/') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

HttpRefusal refuse(std::string text, int status = 400) {
  return {status, std::move(text)};
}

// Returns the text up to the next CR LF, and removes both from `text`. nullopt if there is no CR
// LF, or the line has control characters.
std::optional<std::string_view> take_line(std::string_view& text) {
  const auto end = text.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  if (!is_line(line)) return std::nullopt;
  return line;
}

std::optional<HttpRefusal> parse_request_line(std::string_view line, HttpRequest& request) {
  const auto first = line.find(' ');
  const auto second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || !is_token(line.substr(0, first))) {
    return refuse("malformed HTTP request line");
  }
  const std::string_view target = line.substr(first + 1, second - first - 1);
  if (!is_target(target)) return refuse("the path must begin with / and be visible ASCII");
  const std::string_view version = line.substr(second + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return refuse("only HTTP/1.1 and HTTP/1.0 are supported", 505);
  }
  const auto question = target.find('?');
  request.method = line.substr(0, first);
  request.path = target.substr(0, question);
  request.query = question == std::string_view::npos ? "" : target.substr(question + 1);
  request.keep_alive = version == "HTTP/1.1";
  if (!url_decode(request.query)) return refuse("the query has an invalid % escape");
  return std::nullopt;
}

std::optional<HttpRefusal> parse_header(std::string_view line, HttpRequest& request) {
  const std::string_view sent_name = line.substr(0, line.find(':'));
  if (sent_name.size() == line.size() || !is_token(sent_name)) {
    return refuse("a header does not have the form NAME: VALUE");
  }
  std::string_view value = line.substr(sent_name.size() + 1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  value.remove_suffix(value.size() - (value.find_last_not_of(" \t") + 1));
  const std::string name = lower_case(sent_name);
  // If these headers occur twice, a proxy may use the other one, so the request is ambiguous.
  // Lists, such as Accept, may be split into several headers; this server does not read them.
  constexpr std::array kOnce{"host",   "content-length", "transfer-encoding", "authorization",
                             "origin", "content-type",   "connection"};
  const bool once = std::find(kOnce.begin(), kOnce.end(), name) != kOnce.end();
  if (!request.headers.emplace(name, value).second && once) {
    return refuse("the header " + name + " occurs twice");
  }
  return std::nullopt;
}

std::optional<HttpRefusal> parse_body_size(const HttpRequest& request, std::size_t& size) {
  size = 0;
  if (request.header("transfer-encoding")) {
    return refuse("a body must be sent with Content-Length, not with Transfer-Encoding");
  }
  const auto length = request.header("content-length");
  if (!length) return std::nullopt;
  const bool digits = !length->empty() && std::all_of(length->begin(), length->end(),
                                                      [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return refuse("Content-Length is not a number");
  const auto [end, problem] =
      std::from_chars(length->data(), length->data() + length->size(), size);
  if (problem != std::errc{} || size > kMaxBodySize) {
    return refuse("the body is larger than 64 KiB", 413);
  }
  return std::nullopt;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string_view> HttpRequest::header(std::string_view lower_case_name) const {
  const auto found = headers.find(std::string(lower_case_name));
  if (found == headers.end()) return std::nullopt;
  return found->second;
}

std::optional<HttpRefusal> parse_head(std::string_view head, HttpRequest& request,
                                      std::size_t& body_size) {
  for (bool is_first = true;; is_first = false) {
    const auto line = take_line(head);
    if (!line) {
      return refuse(
          "the request head has control characters, or a line that does not end with CR LF");
    }
    if (line->empty() && !is_first) break;
    auto refusal = is_first ? parse_request_line(*line, request) : parse_header(*line, request);
    if (refusal) return refusal;
  }
  if (lower_case(request.header("connection").value_or("")) == "close") request.keep_alive = false;
  return parse_body_size(request, body_size);
}

std::optional<std::string> url_decode(std::string_view text, bool plus) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += plus && text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return result;
}

std::optional<QueryParameters> parse_query_string(std::string_view query) {
  QueryParameters pairs;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) return std::nullopt;
    auto name = url_decode(pair.substr(0, equals), true);
    auto value = url_decode(pair.substr(equals + 1), true);
    if (!name || !value) return std::nullopt;
    pairs.emplace_back(std::move(*name), std::move(*value));
  }
  return pairs;
}

std::optional<std::string> parse_body_field(std::string_view body, const char* key) {
  const auto json = parse_json(body);
  if (!json || !json->is_object()) return std::nullopt;
  const Json* value = json->find(key);
  if (value == nullptr) return "";
  if (value->as_string() == nullptr) return std::nullopt;
  return *value->as_string();
}

}  // namespace berth::serve
