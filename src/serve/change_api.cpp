// Validates change requests and runs them; see change_api.h.
#include "serve/change_api.h"

#include <fmt/format.h>

#include "base/text.h"
#include "harbour/record.h"
#include "lease/cancel_and_release.h"
#include "lease/drain_gpus.h"
#include "lease/request_options.h"
#include "serve/http_request.h"

namespace berth::serve {
namespace {

// `usage_status` is the HTTP status for ErrorKind::usage, whose cause depends on the endpoint.
HttpResponse to_error_response(const Error& error, int usage_status) {
  switch (error.kind) {
    case ErrorKind::usage:
      return error_response(usage_status, error.message);
    case ErrorKind::permission:
      return error_response(403, error.message);
    case ErrorKind::impossible:
      return error_response(409, error.message);
    default:
      return error_response(503, error.message);
  }
}

template <class T>
HttpResponse to_response(const Result<T>& result, int usage_status) {
  if (!result) return to_error_response(result.error(), usage_status);
  return json_response(std::string("{\"done\": true}\n"));
}

tl::unexpected<Error> invalid_id_error(const std::string& text) {
  return fail(ErrorKind::usage, describe_invalid_id(text));
}

bool is_uuid(std::string_view text) {
  return text.size() <= 128 && (text.starts_with("GPU-") || text.starts_with("MIG-"));
}

tl::unexpected<Error> invalid_uuid_error(const std::string& text) {
  return fail(ErrorKind::usage, fmt::format("{} is not the UUID of a GPU", in_quotes(text)));
}

// The reason of {"reason": TEXT}; "" if the body is empty.
Result<std::string> parse_reason(const std::string& body) {
  if (body.empty()) return "";
  const auto reason = parse_body_field(body, "reason");
  if (!reason) return fail(ErrorKind::usage, "the body must be {\"reason\": \"...\"}");
  return parse_public_text(*reason);
}

}  // namespace

std::string describe_invalid_id(const std::string& text) {
  return fmt::format("{} is not an id (8 letters and digits)", in_quotes(text));
}

Result<WorkQueue::Work> prepare_cancel(const ChangeRequest& request) {
  if (!is_id(request.target)) return invalid_id_error(request.target);
  return [id = request.target] { return to_response(cancel_tickets({id}), 404); };
}

Result<WorkQueue::Work> prepare_release(const ChangeRequest& request) {
  if (!is_id(request.target)) return invalid_id_error(request.target);
  // ErrorKind::usage has two causes here. A lease that the snapshot has cannot be released from
  // this server: a job holds it and it ends with the job, or it is on another host (409). An id
  // that the snapshot does not have is not the id of a lease (404).
  const int usage_status = request.snapshot->lease_ids.contains(request.target) ? 409 : 404;
  return [id = request.target, usage_status] {
    return to_response(release_leases({id}, {}), usage_status);
  };
}

Result<WorkQueue::Work> prepare_drain(const ChangeRequest& request) {
  if (!is_uuid(request.target)) return invalid_uuid_error(request.target);
  std::string reason = TRY(parse_reason(request.body));
  const bool is_local = request.snapshot->local_gpu_uuids.contains(request.target);
  return [uuid = request.target, reason = std::move(reason), is_local] {
    if (!is_local) return error_response(404, "this host has no GPU with this UUID");
    return to_response(drain_gpus({uuid}, reason), 400);
  };
}

Result<WorkQueue::Work> prepare_undrain(const ChangeRequest& request) {
  if (!is_uuid(request.target)) return invalid_uuid_error(request.target);
  return [uuid = request.target,
          is_local = request.snapshot->local_gpu_uuids.contains(request.target)]() -> HttpResponse {
    const auto drains = read_removable_drains();
    if (!drains) return to_error_response(drains.error(), 400);
    bool drained = false;
    for (const Drain& drain : *drains) drained = drained || drain.uuid == uuid;
    if (!drained && !is_local) {
      return error_response(404, "this host has no GPU with this UUID");
    }
    return to_response(undrain_gpus({uuid}), 400);
  };
}

}  // namespace berth::serve
