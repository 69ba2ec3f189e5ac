// What is sent back for a request: a status, a body that many answers may share, and the headers
// that every answer has.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth {

// Rendered once, sent to many.
using SharedText = std::shared_ptr<const std::string>;
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kJsonType = "application/json";

struct HttpAnswer {
  int status = 200;
  std::string type = kJsonType;
  SharedText body{};
  std::string_view lasting{};  // instead of `body`: what lasts as long as the program
  HttpHeaders headers{};       // beside those that all have

  std::string_view content() const { return body ? std::string_view(*body) : lasting; }
};

HttpAnswer json_answer(SharedText body, int status = 200);
HttpAnswer json_answer(std::string body, int status = 200);
// {"error": TEXT}
HttpAnswer error_answer(int status, std::string_view text);
// To one too many.
HttpAnswer full_answer();

// All headers but those of type, length and connection: also those that keep browsers from doing
// more with a page than showing it. There is none that would let another site's page read it
// (CORS).
HttpHeaders all_headers(const HttpAnswer& answer);

}  // namespace berth
