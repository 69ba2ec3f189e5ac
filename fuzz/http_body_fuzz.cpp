// Fuzzes the bodies of requests to `berth serve`.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "serve/access.h"
#include "serve/http_request.h"

namespace berth {

using namespace serve;

void fuzz(std::string_view input) {
  const auto reason = parse_body_field(input, "reason");
  auto json = nlohmann::json::parse(input, nullptr, false);
  if (!parse_json(input)) json = nullptr;  // such as one that is nested too deeply
  check(reason.has_value() <= json.is_object(), "a body is a JSON object");
  if (reason && json.contains("reason")) check(json["reason"] == *reason, "the text is the reason");
  if (reason && !json.contains("reason")) check(reason->empty(), "no reason was invented");

  const std::string token = "0123456789abcdef";
  const AccessControl access_control({{"localhost"}, "", token, true, true});
  HttpRequest request;
  request.body = input;
  const HttpResponse response = access_control.check_token(request);
  const bool right = json.is_object() && json.contains("token") && json["token"] == token;
  check((response.status == 200) == right, "only the token is accepted");
  check(nlohmann::json::accept(response.content()), "the answer is JSON");
}

}  // namespace berth
