// From a request to the broker; see changes.h.
#include "serve/change_api.h"

#include <fmt/format.h>

#include "base/text.h"
#include "harbour/record.h"
#include "lease/cancel_release.h"
#include "lease/drain.h"
#include "lease/request_options.h"
#include "serve/http_request.h"

namespace berth {
namespace {

// `unknown` is the status where the command would speak of wrong usage.
HttpAnswer refusal(const Error& error, int unknown) {
  switch (error.kind) {
    case ErrorKind::usage:
      return error_answer(unknown, error.message);
    case ErrorKind::permission:
      return error_answer(403, error.message);
    case ErrorKind::impossible:
      return error_answer(409, error.message);
    default:
      return error_answer(503, error.message);
  }
}

template <class T>
HttpAnswer outcome(const Result<T>& done, int unknown) {
  if (!done) return refusal(done.error(), unknown);
  return json_answer(std::string("{\"done\": true}\n"));
}

tl::unexpected<Error> no_id(const std::string& word) {
  return fail(ErrorKind::usage, fmt::format("{} is no id: 8 letters and digits", in_quotes(word)));
}

bool is_uuid(std::string_view word) {
  return word.size() <= 128 && (word.starts_with("GPU-") || word.starts_with("MIG-"));
}

tl::unexpected<Error> no_uuid(const std::string& word) {
  return fail(ErrorKind::usage, fmt::format("{} is no GPU's UUID", in_quotes(word)));
}

// {"reason": TEXT}, or nothing at all.
Result<std::string> reason_of(const std::string& body) {
  if (body.empty()) return "";
  const auto reason = body_text(body, "reason");
  if (!reason) return fail(ErrorKind::usage, "the body must be {\"reason\": \"...\"}");
  return parse_text(*reason);
}

}  // namespace

Result<WorkQueue::Work> change_cancel(const ChangeAsked& asked) {
  if (!is_id(asked.word)) return no_id(asked.word);
  return [id = asked.word] { return outcome(cancel_tickets({id}), 404); };
}

Result<WorkQueue::Work> change_release(const ChangeAsked& asked) {
  if (!is_id(asked.word)) return no_id(asked.word);
  // One that is there is a job's, which ends with the job.
  const int unknown = asked.picture->leases.contains(asked.word) ? 409 : 404;
  return [id = asked.word, unknown] { return outcome(release_leases({id}, {}), unknown); };
}

Result<WorkQueue::Work> change_drain(const ChangeAsked& asked) {
  if (!is_uuid(asked.word)) return no_uuid(asked.word);
  auto reason = reason_of(asked.body);
  if (!reason) return tl::make_unexpected(reason.error());
  const bool here = asked.picture->uuids.contains(asked.word);
  return [uuid = asked.word, reason = std::move(*reason), here] {
    if (!here) return error_answer(404, "this host has no such GPU");
    return outcome(drain_gpus({uuid}, reason), 400);
  };
}

Result<WorkQueue::Work> change_undrain(const ChangeAsked& asked) {
  if (!is_uuid(asked.word)) return no_uuid(asked.word);
  return [uuid = asked.word, here = asked.picture->uuids.contains(asked.word)]() -> HttpAnswer {
    const auto drains = own_drains();
    if (!drains) return refusal(drains.error(), 400);
    bool drained = false;
    for (const Drain& drain : *drains) drained = drained || drain.uuid == uuid;
    if (!drained && !here) return error_answer(404, "this host has no such GPU");
    return outcome(undrain_gpus({uuid}), 400);
  };
}

}  // namespace berth
