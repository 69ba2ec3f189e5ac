// What fits; see fitting.h.
#include "batch/startable_lines.h"

#include <chrono>
#include <list>
#include <utility>

#include "devices/driver.h"
#include "status/host_view.h"
#include "status/status.h"

namespace berth::batch {

Fitting::Fitting(AcquireRequest ask, const std::vector<std::string>& types, SlowDriver slow)
    : ask_(std::move(ask)), types_(types), slow_(std::move(slow)) {}

const Request& Fitting::request_of(const std::string& type, const std::vector<Gpu>& gpus) {
  const auto found = requests_.find(type);
  if (found != requests_.end()) return found->second;
  Record record = make_record(ask_, "");
  (void)fit(record, {type, true, !ask_.request.time}, gpus, ask_.harbour);
  return requests_.emplace(type, std::move(record.request)).first->second;
}

std::vector<std::size_t> Fitting::now(const std::vector<std::size_t>& lines) {
  std::vector<std::size_t> fitting;
  if (lines.empty()) return fitting;
  if (!probe_) {
    auto probe = open_driver(slow_.say);
    if (!probe) return fitting;
    probe_ = std::move(*probe);
    probe_->interrupt_by(slow_.interrupt);
  }
  const auto snapshot = probe_->snapshot();
  if (!snapshot) return fitting;
  if (!std::exchange(restricted_, true) && !restrict_choice(ask_.request, ask_, snapshot->gpus)) {
    return fitting;
  }
  auto harbour = Harbour::open_existing(ask_.harbour);
  if (!harbour) return fitting;
  HarbourContents ledger;
  if (*harbour) {
    auto read = read_contents(**harbour);
    if (!read) return fitting;
    ledger = std::move(*read);
  }
  const HostView scene = attribute_processes(*snapshot, ledger.leases, ledger.drains);
  const PlanInput input = plan_input(scene, {}, std::chrono::system_clock::now());
  Planner planner(input);
  std::list<QueuedTicket> tickets;  // a list: the scheduler keeps references to them
  const auto granted = [&](QueuedTicket ticket) {
    tickets.push_back(std::move(ticket));
    return planner.decide(tickets.back(), Planner::Explain::no).grant.has_value();
  };
  for (std::size_t i = 0; i < ledger.tickets.size() && !planner.exhausted(); ++i) {
    (void)granted(queued(ledger.tickets[i], ledger.stopped[i]));
  }
  requests_.clear();
  for (const std::size_t line : lines) {
    if (planner.exhausted()) break;
    if (granted({std::to_string(line), request_of(types_[line], snapshot->gpus)})) {
      fitting.push_back(line);
    }
  }
  return fitting;
}

}  // namespace berth::batch
