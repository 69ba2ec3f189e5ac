// The JSON of the timeline; see timeline_json.h.
#include "archive/timeline_json.h"

#include "base/json.h"
#include "base/users.h"

namespace berth {

std::string timeline_json(const Timeline& timeline) {
  Json gpus = Json::array();
  for (const TimelineGpu& row : timeline.gpus) {
    Json spans = Json::array();
    for (const TimelineSpan& span : row.spans) {
      spans.push_back({{"user", user_name(span.owner.uid, span.owner.user)},
                       {"start", format_iso_time(span.start)},
                       {"end", format_iso_time(span.end)},
                       {"leases", span.leases},
                       {"shared", span.shared}});
    }
    gpus.push_back({{"host", row.gpu.host},
                    {"uuid", row.gpu.uuid},
                    {"index", row.gpu.index.empty() ? Json(nullptr) : Json(row.gpu.index)},
                    {"name", row.gpu.name.empty() ? Json(nullptr) : Json(row.gpu.name)},
                    {"spans", std::move(spans)}});
  }
  const Json json{{"since", format_iso_time(timeline.since)},
                  {"until", format_iso_time(timeline.until)},
                  {"resolution_s", timeline.resolution.count()},
                  {"gpus", std::move(gpus)}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace berth
