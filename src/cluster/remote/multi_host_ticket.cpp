// Waiting in the queues of several hosts; see multi_host_ticket.h.
#include "cluster/remote/multi_host_ticket.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/text.h"
#include "profile/learning.h"
#include "status/explain.h"
#include "status/start_estimates.h"

namespace berth {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<Gpu> collect_gpus(const HostState& host) {
  std::vector<Gpu> gpus;
  for (const GpuWithLeases& gpu_entry : host.info->gpus) gpus.push_back(gpu_entry.gpu);
  return gpus;
}

// Only the host itself knows its strangers and how busy its GPUs are. This view assumes that
// nothing but leases keeps the GPUs from being granted.
HostView assume_no_strangers(const HostState& host) {
  HostView view = build_host_view(host);
  for (GpuWithLeases& gpu_entry : view.gpus) {
    gpu_entry.processes.clear();
    gpu_entry.unexplained.reset();
    gpu_entry.gpu.utilization_pct = 0;
    gpu_entry.gpu.memory_utilization_pct = 0;
  }
  view.tickets = host.contents.tickets;
  return view;
}

struct HostOutcome {
  Outcome outcome;
  std::optional<TimePoint> start;  // when the ticket is expected to start, if it has to wait
};

HostOutcome plan_outcome(const Record& record, const HostState& host, const HostView& view) {
  PlanInput input = make_plan_input(view, {}, std::chrono::system_clock::now());
  const std::vector<Record>& tickets = host.contents.tickets;
  const auto own = static_cast<std::size_t>(
      std::find_if(tickets.begin(), tickets.end(),
                   [&](const Record& ticket) { return ticket.id == record.id; }) -
      tickets.begin());
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    input.tickets.push_back(make_queued_ticket(tickets[i], i != own && host.contents.stopped[i]));
  }
  if (own == tickets.size()) input.tickets.push_back(make_queued_ticket(record, false));
  HostOutcome found{std::move(plan(input)[own]), {}};
  if (!found.outcome.wait) return found;
  found.start = estimate_starts(std::move(input))[own].time;
  if (!found.start) found.start = found.outcome.wait->expected_start;
  return found;
}

}  // namespace

MultiHostTicket::MultiHostTicket(Harbour harbour, Harbour::OwnBell&& bell)
    : harbour_(std::move(harbour)), id_(std::move(bell.id)), bell_(std::move(bell.fd)) {}

Result<MultiHostTicket> MultiHostTicket::create(const AcquireRequest& request,
                                                const std::vector<std::string>& names,
                                                bool skip_unknown_hosts) {
  Harbour harbour = TRY(Harbour::open(request.harbour));
  std::vector<HostState> hosts = TRY(read_hosts(*request.harbour.url));
  std::vector<std::string> known_hosts;
  known_hosts.reserve(hosts.size());
  for (const HostState& host : hosts) known_hosts.push_back(host.name);
  for (const std::string& name : names) {
    if (skip_unknown_hosts || contains(known_hosts, name)) continue;
    return fail(ErrorKind::impossible,
                fmt::format("host {} has not registered in this harbour ({}); run 'berth status' "
                            "there once",
                            in_quotes(name),
                            known_hosts.empty() ? "no hosts known"
                                                : "known: " + join_text(known_hosts, ", ")));
  }
  Harbour::OwnBell bell = TRY(harbour.make_bell(request.preferred_id));
  MultiHostTicket ticket(std::move(harbour), std::move(bell));
  std::optional<Error> last_error;
  for (HostState& host : hosts) {
    if (!contains(names, host.name)) continue;
    if (!host.info) {
      last_error =
          Error{ErrorKind::impossible, fmt::format("{}: {}", host.name, host.info.error().message)};
      continue;
    }
    Record record = make_record(request, ticket.id_);
    record.directory_id = ticket.harbour_.directory_id();
    const std::vector<Gpu> gpus = collect_gpus(host);
    auto chosen = restrict_to_allowed_gpus(record.request, request, gpus);
    if (chosen && request.profile_options)
      (void)apply_profile(record, *request.profile_options, gpus, request.harbour);
    const HostView view = assume_no_strangers(host);
    const Outcome outcome = chosen ? plan_outcome(record, host, view).outcome : Outcome{};
    if (!chosen || outcome.impossible) {
      const Error reason =
          chosen ? explain_impossible(*outcome.impossible, record.request, view) : chosen.error();
      last_error = Error{reason.kind, fmt::format("{}: {}", host.name, reason.message)};
      continue;
    }
    ticket.candidates_.push_back({std::move(host), std::move(record)});
  }
  if (!ticket.candidates_.empty()) return ticket;
  if (last_error && hosts.size() == 1) return tl::make_unexpected(*last_error);
  if (!last_error && names.size() == 1) {
    return fail(ErrorKind::impossible,
                fmt::format("host {} has not registered in this harbour; run 'berth status' there "
                            "once",
                            names.front()));
  }
  return fail(ErrorKind::impossible,
              last_error
                  ? fmt::format("no host can ever grant this request; {}", last_error->message)
                  : fmt::format("none of the hosts {} has registered in this harbour; run "
                                "'berth status' once on each host that has GPUs",
                                join_text(names, ", ")));
}

MultiHostTicket::~MultiHostTicket() {
  if (!bell_) return;
  for (const Candidate& candidate : candidates_) {
    if (candidate.enqueued) RedisHostStore(url(), candidate.host.name).leave_queue(id_);
  }
  harbour_.remove_bell(id_);
}

Result<void> MultiHostTicket::enqueue() {
  for (Candidate& candidate : candidates_) {
    if (candidate.enqueued) continue;
    StoreChange change;
    change.id = id_;
    change.ticket = format_shared_record(candidate.record);
    change.order = order_;
    candidate.enqueued = true;  // even if the reply is lost
    const StoreOutcome outcome = TRY(RedisHostStore(url(), candidate.host.name).commit(change));
    if (outcome.order) order_ = outcome.order;
  }
  return {};
}

Result<MultiHostTicket::WaitState> MultiHostTicket::read_state() {
  WaitState state;
  std::string reasons;
  for (Candidate& candidate : candidates_) {
    TRY(refresh_host(candidate.host, url(), id_, harbour_.directory_id()));
    state.ended = state.ended || candidate.host.ended;
    const auto& names = candidate.host.contents.ticket_names;
    const auto own_ticket = std::find_if(names.begin(), names.end(),
                                         [&](const TicketName& name) { return name.id == id_; });
    candidate.enqueued = own_ticket != names.end();
    if (candidate.host.recovery_time_left.count() > 0) {
      state.recovery_time_left =
          std::max(state.recovery_time_left.value_or(candidate.host.recovery_time_left),
                   candidate.host.recovery_time_left);
      continue;
    }
    const HostView view = assume_no_strangers(candidate.host);
    const auto [outcome, start] = plan_outcome(candidate.record, candidate.host, view);
    if (outcome.grant) state.ready_hosts.push_back(candidate.host.name);
    if (!outcome.wait) continue;
    const auto position = static_cast<std::size_t>(own_ticket - names.begin()) + 1;
    if (state.wait_status.queue_position == 0 || position < state.wait_status.queue_position) {
      state.wait_status.queue_position = position;
      state.wait_status.queue_length = names.size();
    }
    auto& expected = state.wait_status.expected_start;
    if (start) expected = std::min(*start, expected.value_or(*start));
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidate.host.name,
                           explain_wait(*outcome.wait, candidate.record.request, view));
  }
  state.wait_status.reason = std::move(reasons);
  return state;
}

Result<int> MultiHostTicket::listen() {
  return harbour_.store()->listen(id_);
}

void MultiHostTicket::receive_ring() {
  (void)harbour_.store()->receive_ring();
}

Result<bool> MultiHostTicket::send_heartbeats() {
  bool needs_refresh = false;
  for (const Candidate& candidate : candidates_) {
    const HeartbeatReply reply = TRY(RedisHostStore(url(), candidate.host.name)
                                         .send_ticket_heartbeat({order_.value_or(0), id_}));
    needs_refresh = needs_refresh || reply != HeartbeatReply::accepted;
  }
  return needs_refresh;
}

std::chrono::milliseconds MultiHostTicket::heartbeat_interval() {
  return harbour_.store()->heartbeat_interval();
}

void MultiHostTicket::remove_host(const std::string& host) {
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    if (candidate.host.name != host) return false;
    RedisHostStore(url(), host).leave_queue(id_);
    return true;
  });
}

Result<std::optional<RedisHostStore::Claim>> MultiHostTicket::read_claim() {
  auto claim = TRY(harbour_.store()->read_claim(id_));
  if (!claim || claim->lease == forgotten_lease_) return std::nullopt;
  for (Candidate& candidate : candidates_) candidate.enqueued = false;
  return claim;
}

Result<void> MultiHostTicket::forget_claim() {
  auto claim = TRY(harbour_.store()->read_claim(id_));
  if (claim) forgotten_lease_ = std::move(claim->lease);
  return {};
}

std::optional<pid_t> MultiHostTicket::find_holder_pid(const RedisHostStore::Claim& claim) const {
  const auto snapshot = RedisHostStore(url(), claim.host).read_snapshot("", "");
  if (!snapshot) return std::nullopt;
  for (const StoreEntry& entry : snapshot->leases) {
    if (entry.id != claim.lease) continue;
    const auto record = parse_record(entry.record);
    if (record) return record->pid;
  }
  return std::nullopt;
}

}  // namespace berth
