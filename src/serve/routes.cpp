// The table of routes and their handlers; see routes.h.
#include "serve/routes.h"

#include <array>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "harbour/record.h"
#include "serve/assets.h"
#include "serve/change_api.h"
#include "serve/history_api.h"
#include "serve/job_api.h"

namespace berth::serve {
namespace {

struct RoutedRequest {
  const HttpRequest& request;
  std::string path_parameter;  // the text at {} in the path, decoded
  ServerContext& context;
};

enum class Access { everybody, viewers, changers, job_viewers, job_output_viewers };

struct Route {
  std::string_view method;
  std::string_view prefix;  // the path before {}, or the whole path
  std::string_view suffix;  // the path after {}; empty: the path has no {}
  Access access;
  RouteResult (*handler)(const RoutedRequest& routed);
};

// A document of the snapshot; status 503 if no poll has succeeded yet.
template <SharedText ServeSnapshot::*kDocument>
RouteResult show_document(const RoutedRequest& routed) {
  const auto snapshot = routed.context.publisher.current();
  if (const SharedText& text = (*snapshot).*kDocument) return json_response(text);
  const std::string& why = snapshot->problem;
  return error_response(503,
                        why.empty() ? "there is no data yet; try again in a few seconds" : why);
}

// The same for a client that counts as a viewer for a few seconds, since it may ask again.
template <SharedText ServeSnapshot::*kDocument>
RouteResult show_to_viewer(const RoutedRequest& routed) {
  routed.context.viewer_activity.record_request(ViewerActivity::Clock::now());
  return show_document<kDocument>(routed);
}

RouteResult show_metrics(const RoutedRequest& routed) {
  RouteResult result = show_document<&ServeSnapshot::metrics>(routed);
  if (result.response->status == 200)
    result.response->type = "text/plain; version=0.0.4; charset=utf-8";
  return result;
}

RouteResult show_health(const RoutedRequest& routed) {
  const auto snapshot = routed.context.publisher.current();
  if (snapshot->problem.empty()) return json_response(std::string("{\"status\": \"ok\"}\n"));
  // A monitoring program without the token sees that there is a problem, but not which one.
  const bool sees = !routed.context.access_control.check_view(routed.request);
  const Json json{{"status", "problem"},
                  {"problem", sees ? snapshot->problem : "a token is needed to see the problem"}};
  return json_response(to_ascii_json(json) + "\n", 503);
}

RouteResult show_openapi(const RoutedRequest& /*routed*/) {
  const auto asset = find_asset("/openapi.json");
  if (!asset) return error_response(404, "this build has no openapi.json");
  HttpResponse response;
  response.static_body = asset->content;
  return response;
}

RouteResult show_events(const RoutedRequest& routed) {
  const bool with_jobs = !routed.context.access_control.check_jobs(routed.request);
  return RouteResult::make_stream(with_jobs);
}

RouteResult check_token(const RoutedRequest& routed) {
  return routed.context.access_control.check_token(routed.request);
}

// Clients with the same query share one result.
template <Result<std::string> (*kMakeDocument)(const HistoryQuery&)>
RouteResult submit_history_query(const RoutedRequest& routed) {
  const auto pairs = parse_query_string(routed.request.query);
  if (!pairs) return error_response(400, "the query does not have the form name=value&name=value");
  const HistoryQuery query{*pairs, routed.context.command_visibility,
                           routed.context.publisher.current()};
  return RouteResult(routed.context.history_queue.submit_once(
      history_cache_key(routed.request.path, query), [query] {
        auto document = kMakeDocument(query);
        if (document) return json_response(std::move(*document));
        const Error& error = document.error();
        return error_response(error.kind == ErrorKind::usage ? 400 : 503, error.message);
      }));
}

template <Result<WorkQueue::Work> (*kPrepare)(const ChangeRequest&)>
RouteResult submit_change(const RoutedRequest& routed) {
  auto work =
      kPrepare({routed.path_parameter, routed.request.body, routed.context.publisher.current()});
  if (!work) return error_response(400, work.error().message);
  ViewerActivity& viewer_activity = routed.context.viewer_activity;
  return RouteResult(
      routed.context.change_queue.submit([work = std::move(*work), &viewer_activity] {
        HttpResponse response = work();
        viewer_activity.record_change();
        return response;
      }));
}

// Requests to end the same job share one result: a second SIGTERM could disturb a job that is
// saving its state.
RouteResult submit_job_end(const RoutedRequest& routed) {
  const std::string& id = routed.path_parameter;
  if (!is_id(id)) return error_response(400, describe_invalid_id(id));
  ViewerActivity& viewer_activity = routed.context.viewer_activity;
  return RouteResult(routed.context.end_queue.submit_once(id, [id, &viewer_activity] {
    HttpResponse response = end_job(id);
    viewer_activity.record_change();
    return response;
  }));
}

RouteResult submit_job_output(const RoutedRequest& routed) {
  const std::string& id = routed.path_parameter;
  if (!is_id(id)) return error_response(400, describe_invalid_id(id));
  return RouteResult(
      routed.context.job_output_queue.submit_once(id, [id] { return read_job_output(id); }));
}

constexpr std::array kRoutes{
    Route{"GET", "/healthz", "", Access::everybody, show_health},
    Route{"GET", "/metrics", "", Access::viewers, show_metrics},
    Route{"GET", "/api/v1/openapi.json", "", Access::everybody, show_openapi},
    Route{"GET", "/api/v1/status", "", Access::viewers, show_to_viewer<&ServeSnapshot::status>},
    Route{"GET", "/api/v1/queue", "", Access::viewers, show_to_viewer<&ServeSnapshot::queue>},
    Route{"GET", "/api/v1/samples", "", Access::viewers, show_document<&ServeSnapshot::samples>},
    Route{"GET", "/api/v1/events", "", Access::viewers, show_events},
    Route{"GET", "/api/v1/log", "", Access::viewers, submit_history_query<log_document>},
    Route{"GET", "/api/v1/report", "", Access::viewers, submit_history_query<report_document>},
    Route{"GET", "/api/v1/timeline", "", Access::viewers, submit_history_query<timeline_document>},
    Route{"GET", "/api/v1/jobs", "", Access::job_viewers, show_to_viewer<&ServeSnapshot::jobs>},
    Route{"GET", "/api/v1/jobs/", "/output", Access::job_output_viewers, submit_job_output},
    Route{"POST", "/api/v1/session", "", Access::everybody, check_token},
    Route{"POST", "/api/v1/tickets/", "/cancel", Access::changers, submit_change<prepare_cancel>},
    Route{"POST", "/api/v1/leases/", "/release", Access::changers, submit_change<prepare_release>},
    Route{"POST", "/api/v1/jobs/", "/cancel", Access::changers, submit_job_end},
    Route{"POST", "/api/v1/gpus/", "/drain", Access::changers, submit_change<prepare_drain>},
    Route{"POST", "/api/v1/gpus/", "/undrain", Access::changers, submit_change<prepare_undrain>},
};

// The decoded text at {} in the path; "" if the route has no {}; nullopt if the path differs.
std::optional<std::string> match_path(const Route& route, std::string_view path) {
  if (route.suffix.empty()) {
    return path == route.prefix ? std::optional<std::string>("") : std::nullopt;
  }
  if (path.size() <= route.prefix.size() + route.suffix.size()) return std::nullopt;
  if (!path.starts_with(route.prefix) || !path.ends_with(route.suffix)) return std::nullopt;
  path.remove_prefix(route.prefix.size());
  path.remove_suffix(route.suffix.size());
  if (path.find('/') != std::string_view::npos) return std::nullopt;
  return url_decode(path);
}

std::optional<HttpResponse> check_access(const Route& route, const HttpRequest& request,
                                         const AccessControl& access_control) {
  switch (route.access) {
    case Access::everybody:
      return std::nullopt;
    case Access::viewers:
      return access_control.check_view(request);
    case Access::changers:
      return access_control.check_change(request);
    case Access::job_viewers:
      return access_control.check_jobs(request);
    case Access::job_output_viewers:
      return access_control.check_job_output(request);
  }
  return error_response(403, "access denied");
}

HttpResponse method_not_allowed(const char* allowed) {
  const std::string_view methods = allowed;
  HttpResponse response = error_response(
      405, fmt::format("wrong method; use {}", methods == "GET, HEAD" ? "GET or HEAD" : methods));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

// The files of the page. They contain no secret, so no token is needed.
HttpResponse asset_response(const HttpRequest& request, const Asset& asset) {
  HttpResponse response;
  response.type = asset.content_type;
  response.static_body = asset.content;
  const std::string tag = fmt::format("\"{}\"", asset.tag);
  // The browser may cache the file but must revalidate it: the server may be upgraded at any time.
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("ETag", tag);
  if (request.header("if-none-match") == tag) response.status = 304;
  return response;
}

}  // namespace

RouteResult::RouteResult(SharedPendingResponse submitted) : pending(std::move(submitted)) {
  if (pending) return;
  response = error_response(503, "too many requests at once; try again in a few seconds");
  response->headers.emplace_back("Retry-After", "3");
}

RouteResult RouteResult::make_stream(bool with_jobs) {
  RouteResult result;
  result.stream = true;
  result.stream_with_jobs = with_jobs;
  return result;
}

RouteResult handle_request(const HttpRequest& request, std::string_view local,
                           ServerContext& context) {
  if (auto refusal = context.access_control.check_host(request, local)) return *refusal;
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";
  const char* allowed = nullptr;
  for (const Route& route : kRoutes) {
    auto path_parameter = match_path(route, request.path);
    if (!path_parameter) continue;
    if (route.method != method) {
      allowed = route.method == "GET" ? "GET, HEAD" : "POST";
      continue;
    }
    if (auto refusal = check_access(route, request, context.access_control)) return *refusal;
    if (request.method == "HEAD" && route.handler == show_events) return method_not_allowed("GET");
    return route.handler({request, std::move(*path_parameter), context});
  }
  if (allowed != nullptr) return method_not_allowed(allowed);
  const auto asset = find_asset(request.path);
  if (!asset)
    return error_response(404, fmt::format("there is no page {}", in_quotes(request.path)));
  if (method != "GET") return method_not_allowed("GET, HEAD");
  return asset_response(request, *asset);
}

}  // namespace berth::serve
