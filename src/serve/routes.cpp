// The table of paths; see routes.h.
#include "serve/routes.h"

#include <array>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "serve/assets.h"
#include "serve/change_api.h"
#include "serve/history_api.h"

namespace berth {
namespace {

struct Asked {
  const HttpRequest& request;
  std::string word;  // what stands for {} in the path
  ServerContext& counter;
};

enum class Access { everybody, viewers, changers };

struct Route {
  std::string_view method;
  std::string_view before;  // the path up to {}, or all of it
  std::string_view after;   // behind {}; empty: there is no {}
  Access access;
  HttpReply (*answer)(const Asked& asked);
};

// What was seen, or that nothing was yet.
HttpReply seen(const SharedText& text, const ServeSnapshot& picture, const char* type = kJsonType) {
  if (!text) {
    const std::string& why = picture.problem;
    return error_answer(503, why.empty() ? "nothing was seen yet; try again" : why);
  }
  HttpAnswer answer = json_answer(text);
  answer.type = type;
  return answer;
}

void note(const Asked& asked) {
  asked.counter.audience.asked(ViewerCount::Clock::now());
}

HttpReply show_status(const Asked& asked) {
  note(asked);
  const auto picture = asked.counter.board.current();
  return seen(picture->status, *picture);
}

HttpReply show_queue(const Asked& asked) {
  note(asked);
  const auto picture = asked.counter.board.current();
  return seen(picture->queue, *picture);
}

HttpReply show_samples(const Asked& asked) {
  const auto picture = asked.counter.board.current();
  return seen(picture->samples, *picture);
}

HttpReply show_metrics(const Asked& asked) {
  const auto picture = asked.counter.board.current();
  return seen(picture->metrics, *picture, "text/plain; version=0.0.4; charset=utf-8");
}

HttpReply show_health(const Asked& asked) {
  const auto picture = asked.counter.board.current();
  if (picture->problem.empty()) return json_answer(std::string("{\"status\": \"ok\"}\n"));
  // Whoever may not see is told that there is one, for what watches the server, and not which.
  const bool sees = !asked.counter.guard.check_view(asked.request);
  const Json json{{"status", "problem"},
                  {"problem", sees ? picture->problem : "a token is needed to see it"}};
  return json_answer(json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n", 503);
}

HttpReply show_interface(const Asked& /*asked*/) {
  const auto asset = find_asset("/openapi.json");
  if (!asset) return error_answer(404, "this build has no openapi.json");
  HttpAnswer answer;
  answer.lasting = asset->content;
  return answer;
}

HttpReply show_events(const Asked& /*asked*/) {
  return HttpReply::streaming();
}

HttpReply check_token(const Asked& asked) {
  return asked.counter.guard.check_token(asked.request);
}

// The work is done once for all who ask the same.
HttpReply ask_past(const Asked& asked, const char* what, HttpAnswer (*past)(const HistoryQuery&)) {
  const auto pairs = query_pairs(asked.request.query);
  if (!pairs) return error_answer(400, "the query is not of the form name=value&name=value");
  const HistoryQuery question{*pairs, asked.counter.commands_of, asked.counter.board.current()};
  return HttpReply(asked.counter.archive.ask(question_of(what, question),
                                             [question, past] { return past(question); }));
}

HttpReply show_log(const Asked& asked) {
  return ask_past(asked, "log", past_log);
}

HttpReply show_report(const Asked& asked) {
  return ask_past(asked, "report", past_report);
}

HttpReply show_timeline(const Asked& asked) {
  return ask_past(asked, "timeline", past_timeline);
}

HttpReply change(const Asked& asked, Result<WorkQueue::Work> (*make)(const ChangeAsked&)) {
  auto work = make({asked.word, asked.request.body, asked.counter.board.current()});
  if (!work) return error_answer(400, work.error().message);
  ViewerCount& audience = asked.counter.audience;
  return HttpReply(asked.counter.changes.give([work = std::move(*work), &audience] {
    HttpAnswer answer = work();
    audience.changed();
    return answer;
  }));
}

HttpReply cancel(const Asked& asked) {
  return change(asked, change_cancel);
}

HttpReply release(const Asked& asked) {
  return change(asked, change_release);
}

HttpReply drain(const Asked& asked) {
  return change(asked, change_drain);
}

HttpReply undrain(const Asked& asked) {
  return change(asked, change_undrain);
}

constexpr std::array kRoutes{
    Route{"GET", "/healthz", "", Access::everybody, show_health},
    Route{"GET", "/metrics", "", Access::viewers, show_metrics},
    Route{"GET", "/api/v1/openapi.json", "", Access::everybody, show_interface},
    Route{"GET", "/api/v1/status", "", Access::viewers, show_status},
    Route{"GET", "/api/v1/queue", "", Access::viewers, show_queue},
    Route{"GET", "/api/v1/samples", "", Access::viewers, show_samples},
    Route{"GET", "/api/v1/events", "", Access::viewers, show_events},
    Route{"GET", "/api/v1/log", "", Access::viewers, show_log},
    Route{"GET", "/api/v1/report", "", Access::viewers, show_report},
    Route{"GET", "/api/v1/timeline", "", Access::viewers, show_timeline},
    Route{"POST", "/api/v1/session", "", Access::everybody, check_token},
    Route{"POST", "/api/v1/tickets/", "/cancel", Access::changers, cancel},
    Route{"POST", "/api/v1/leases/", "/release", Access::changers, release},
    Route{"POST", "/api/v1/gpus/", "/drain", Access::changers, drain},
    Route{"POST", "/api/v1/gpus/", "/undrain", Access::changers, undrain},
};

// What stands for {} in the path; nothing if the path is another.
std::optional<std::string> matched(const Route& route, std::string_view path) {
  if (route.after.empty()) {
    return path == route.before ? std::optional<std::string>("") : std::nullopt;
  }
  if (path.size() <= route.before.size() + route.after.size()) return std::nullopt;
  if (!path.starts_with(route.before) || !path.ends_with(route.after)) return std::nullopt;
  path.remove_prefix(route.before.size());
  path.remove_suffix(route.after.size());
  if (path.find('/') != std::string_view::npos) return std::nullopt;
  return url_decoded(path);
}

std::optional<HttpAnswer> refused(const Route& route, const HttpRequest& request,
                                  const Guard& guard) {
  switch (route.access) {
    case Access::everybody:
      return std::nullopt;
    case Access::viewers:
      return guard.check_view(request);
    case Access::changers:
      return guard.check_change(request);
  }
  return error_answer(403, "nobody may");
}

HttpAnswer not_allowed(const char* allowed) {
  HttpAnswer answer = error_answer(405, fmt::format("this can only be asked for by {}", allowed));
  answer.headers.emplace_back("Allow", allowed);
  return answer;
}

// The page and what belongs to it: the same for everybody, and no secret.
HttpAnswer asset_answer(const HttpRequest& request, const Asset& asset) {
  HttpAnswer answer;
  answer.type = asset.content_type;
  answer.lasting = asset.content;
  const std::string tag = fmt::format("\"{}\"", asset.tag);
  // Kept, but asked about each time: another version of berth may serve here tomorrow.
  answer.headers.emplace_back("Cache-Control", "no-cache");
  answer.headers.emplace_back("ETag", tag);
  if (request.header("if-none-match") == tag) answer.status = 304;
  return answer;
}

}  // namespace

HttpReply::HttpReply(SharedPending slip) : later(std::move(slip)) {
  if (later) return;
  answer = error_answer(503, "too much is asked for at once; try again in a few seconds");
  answer->headers.emplace_back("Retry-After", "3");
}

HttpReply HttpReply::streaming() {
  HttpReply reply;
  reply.stream = true;
  return reply;
}

HttpReply reply_to(const HttpRequest& request, std::string_view local, ServerContext& counter) {
  if (auto wrong = counter.guard.check_host(request, local)) return *wrong;
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";
  const char* allowed = nullptr;
  for (const Route& route : kRoutes) {
    auto word = matched(route, request.path);
    if (!word) continue;
    if (route.method != method) {
      allowed = route.method == "GET" ? "GET, HEAD" : "POST";
      continue;
    }
    if (auto no = refused(route, request, counter.guard)) return *no;
    if (request.method == "HEAD" && route.answer == show_events) return not_allowed("GET");
    return route.answer({request, std::move(*word), counter});
  }
  if (allowed != nullptr) return not_allowed(allowed);
  const auto asset = find_asset(request.path);
  if (!asset) return error_answer(404, fmt::format("there is no {}", in_quotes(request.path)));
  if (method != "GET") return not_allowed("GET, HEAD");
  return asset_answer(request, *asset);
}

}  // namespace berth
