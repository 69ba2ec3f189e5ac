// Simulates the scheduler with the lines of a batch; see startable_lines.h.
#include "batch/startable_lines.h"

#include <chrono>
#include <list>
#include <utility>

#include "devices/driver.h"
#include "status/host_view.h"
#include "status/status.h"

namespace berth::batch {

StartableLines::StartableLines(AcquireRequest acquire_request,
                               const std::vector<std::string>& types, SlowDriver slow)
    : acquire_request_(std::move(acquire_request)), types_(types), slow_(std::move(slow)) {}

const Request& StartableLines::request_for_type(const std::string& type,
                                                const std::vector<Gpu>& gpus) {
  const auto found = requests_.find(type);
  if (found != requests_.end()) return found->second;
  Record record = make_record(acquire_request_, "");
  (void)apply_profile(record, {type, true, !acquire_request_.gpu_request.time}, gpus,
                      acquire_request_.harbour);
  return requests_.emplace(type, std::move(record.request)).first->second;
}

std::vector<std::size_t> StartableLines::find_startable(const std::vector<std::size_t>& lines) {
  std::vector<std::size_t> startable;
  if (lines.empty()) return startable;
  if (!probe_) {
    auto probe = open_driver(slow_.on_slow);
    if (!probe) return startable;
    probe_ = std::move(*probe);
    probe_->set_interrupt(slow_.interrupt);
  }
  const auto snapshot = probe_->snapshot();
  if (!snapshot) return startable;
  if (!restricted_) {
    const auto restricted =
        restrict_to_allowed_gpus(acquire_request_.gpu_request, acquire_request_, snapshot->gpus);
    if (!restricted) return startable;
    restricted_ = true;
  }
  auto harbour = Harbour::open_existing(acquire_request_.harbour);
  if (!harbour) return startable;
  HarbourContents contents;
  if (*harbour) {
    auto read = read_contents(**harbour);
    if (!read) return startable;
    contents = std::move(*read);
  }
  const HostView view = make_host_view(*snapshot, contents.leases, contents.drains);
  const PlanInput input = make_plan_input(view, {}, std::chrono::system_clock::now());
  Planner planner(input);
  std::list<QueuedTicket> tickets;  // a list, because the planner keeps references to its elements
  const auto is_granted = [&](QueuedTicket ticket) {
    tickets.push_back(std::move(ticket));
    return planner.decide(tickets.back(), Planner::Explain::no).grant.has_value();
  };
  for (std::size_t i = 0; i < contents.tickets.size() && !planner.is_exhausted(); ++i) {
    (void)is_granted(make_queued_ticket(contents.tickets[i], contents.stopped[i]));
  }
  requests_.clear();
  for (const std::size_t line : lines) {
    if (planner.is_exhausted()) break;
    if (is_granted({std::to_string(line), request_for_type(types_[line], snapshot->gpus)})) {
      startable.push_back(line);
    }
  }
  return startable;
}

}  // namespace berth::batch
