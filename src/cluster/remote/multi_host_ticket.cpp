// Waiting on several hosts; see roaming.h.
#include "cluster/remote/multi_host_ticket.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/text.h"
#include "profile/learning.h"
#include "status/explain.h"

namespace berth {
namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<Gpu> gpus_of(const HostState& host) {
  std::vector<Gpu> gpus;
  for (const GpuWithLeases& placed : host.card->gpus) gpus.push_back(placed.gpu);
  return gpus;
}

// What strangers do and how busy the GPUs are is known there alone: here it is assumed that nobody
// is in the way but who has a lease.
HostView assume_no_strangers(const HostState& host) {
  HostView scene = scene_of(host);
  for (GpuWithLeases& placed : scene.gpus) {
    placed.processes.clear();
    placed.unexplained.reset();
    placed.gpu.utilization_pct = 0;
    placed.gpu.memory_utilization_pct = 0;
  }
  scene.tickets = host.ledger.tickets;
  return scene;
}

Outcome outcome_for(const Record& record, const HostState& host, const HostView& scene) {
  PlanInput input = plan_input(scene, {}, std::chrono::system_clock::now());
  bool known = false;
  for (std::size_t i = 0; i < host.ledger.tickets.size(); ++i) {
    const Record& ticket = host.ledger.tickets[i];
    known = known || ticket.id == record.id;
    input.tickets.push_back(queued(ticket, ticket.id != record.id && host.ledger.stopped[i]));
  }
  if (!known) input.tickets.push_back(queued(record, false));
  auto outcomes = plan(input);
  const auto own = std::find_if(outcomes.begin(), outcomes.end(),
                                [&](const Outcome& one) { return one.ticket == record.id; });
  return own == outcomes.end() ? Outcome{} : std::move(*own);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

MultiHostTicket::MultiHostTicket(Harbour harbour, Harbour::OwnBell&& bell)
    : harbour_(std::move(harbour)), id_(std::move(bell.id)), bell_(std::move(bell.fd)) {}

Result<MultiHostTicket> MultiHostTicket::make(const AcquireRequest& ask, const std::vector<std::string>& names,
                                          bool any) {
  auto harbour = Harbour::open(ask.harbour);
  if (!harbour) return tl::make_unexpected(harbour.error());
  auto hosts = look_at_hosts(*ask.harbour.url);
  if (!hosts) return tl::make_unexpected(hosts.error());
  std::vector<std::string> known;
  for (const HostState& host : *hosts) known.push_back(host.name);
  for (const std::string& name : names) {
    if (any || contains(known, name)) continue;
    return fail(ErrorKind::impossible,
                fmt::format("no host {} has told of itself in this harbour ({}); run 'berth "
                            "status' there once",
                            in_quotes(name),
                            known.empty() ? "nor has any other" : "known: " + listed(known)));
  }
  auto bell = harbour->make_bell();
  if (!bell) return tl::make_unexpected(bell.error());
  MultiHostTicket ticket(std::move(*harbour), std::move(*bell));
  std::optional<Error> last;
  for (HostState& host : *hosts) {
    if (!contains(names, host.name)) continue;
    if (!host.card) {
      last =
          Error{ErrorKind::impossible, fmt::format("{}: {}", host.name, host.card.error().message)};
      continue;
    }
    Record record = make_record(ask, ticket.id_);
    record.directory_id = ticket.harbour_.directory_id();
    const std::vector<Gpu> gpus = gpus_of(host);
    auto chosen = restrict_choice(record.request, ask, gpus);
    if (chosen && ask.learning) (void)fit(record, *ask.learning, gpus, ask.harbour);
    const HostView scene = assume_no_strangers(host);
    const Outcome outcome = chosen ? outcome_for(record, host, scene) : Outcome{};
    if (!chosen || outcome.impossible) {
      const Error why =
          chosen ? explain_impossible(*outcome.impossible, record.request, scene) : chosen.error();
      last = Error{why.kind, fmt::format("{}: {}", host.name, why.message)};
      continue;
    }
    ticket.candidates_.push_back({std::move(host), std::move(record)});
  }
  if (!ticket.candidates_.empty()) return ticket;
  if (last && hosts->size() == 1) return tl::make_unexpected(*last);
  return fail(ErrorKind::impossible,
              last ? fmt::format("no host can ever grant this; {}", last->message)
                   : fmt::format("none of the hosts {} has told of itself in this harbour yet; run "
                                 "'berth status' once on each that has GPUs",
                                 listed(names)));
}

MultiHostTicket::~MultiHostTicket() {
  if (!bell_) return;
  for (const Candidate& one : candidates_) {
    if (one.placed) RedisHostStore(url(), one.sight.name).leave(id_);
  }
  harbour_.remove_bell(id_);
}

std::vector<std::string> MultiHostTicket::hosts() const {
  std::vector<std::string> names;
  for (const Candidate& one : candidates_) names.push_back(one.sight.name);
  return names;
}

Result<void> MultiHostTicket::place() {
  for (Candidate& one : candidates_) {
    if (one.placed) continue;
    StoreChange change;
    change.id = id_;
    change.ticket = write_shared_record(one.record);
    change.order = order_;
    one.placed = true;  // also where the answer is lost
    const auto outcome = RedisHostStore(url(), one.sight.name).commit(change);
    if (!outcome) return tl::make_unexpected(outcome.error());
    if (outcome->order) order_ = outcome->order;
  }
  return {};
}

Result<MultiHostTicket::View> MultiHostTicket::look() {
  View view;
  std::string reasons;
  for (Candidate& one : candidates_) {
    auto looked = look_again(one.sight, url(), id_, harbour_.directory_id());
    if (!looked) return tl::make_unexpected(looked.error());
    view.ended = view.ended || one.sight.ended;
    const auto& names = one.sight.ledger.ticket_names;
    const auto mine = std::find_if(names.begin(), names.end(),
                                   [&](const TicketName& name) { return name.id == id_; });
    one.placed = mine != names.end();
    if (one.sight.settles.count() > 0) {
      view.settles = std::max(view.settles.value_or(one.sight.settles), one.sight.settles);
      continue;
    }
    const HostView scene = assume_no_strangers(one.sight);
    const Outcome outcome = outcome_for(one.record, one.sight, scene);
    if (outcome.grant) view.ready.push_back(one.sight.name);
    if (!outcome.wait) continue;
    const auto position = static_cast<std::size_t>(mine - names.begin()) + 1;
    if (view.news.position == 0 || position < view.news.position) {
      view.news.position = position;
      view.news.length = names.size();
    }
    if (outcome.wait->starts && (!view.news.starts || *outcome.wait->starts < *view.news.starts)) {
      view.news.starts = outcome.wait->starts;
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", one.sight.name,
                           explain_wait(*outcome.wait, one.record.request, scene));
  }
  view.news.reason = std::move(reasons);
  return view;
}

Result<int> MultiHostTicket::listen() {
  return harbour_.part()->listen(id_);
}

void MultiHostTicket::receive_ring() {
  (void)harbour_.part()->receive_ring();
}

Result<bool> MultiHostTicket::beat() {
  bool news = false;
  for (const Candidate& one : candidates_) {
    const auto heard = RedisHostStore(url(), one.sight.name).beat({order_.value_or(0), id_});
    if (!heard) return tl::make_unexpected(heard.error());
    news = news || *heard != Beat::heard;
  }
  return news;
}

std::chrono::milliseconds MultiHostTicket::beat_interval() const {
  return url().ttl / 3;
}

void MultiHostTicket::give_up(const std::string& host) {
  std::erase_if(candidates_, [&](const Candidate& one) {
    if (one.sight.name != host) return false;
    RedisHostStore(url(), host).leave(id_);
    return true;
  });
}

Result<std::optional<RedisHostStore::Claim>> MultiHostTicket::claim() {
  auto claim = harbour_.part()->claim_of(id_);
  if (claim && *claim && (*claim)->lease == forgotten_) return std::nullopt;
  if (claim && *claim) {
    for (Candidate& one : candidates_) one.placed = false;
  }
  return claim;
}

Result<void> MultiHostTicket::forget_claim() {
  auto claim = harbour_.part()->claim_of(id_);
  if (!claim) return tl::make_unexpected(claim.error());
  if (*claim) forgotten_ = std::move((*claim)->lease);
  return {};
}

std::optional<pid_t> MultiHostTicket::holder(const RedisHostStore::Claim& claim) const {
  const auto sight = RedisHostStore(url(), claim.host).look("", "");
  if (!sight) return std::nullopt;
  for (const StoreEntry& entry : sight->leases) {
    if (entry.id != claim.lease) continue;
    const auto record = read_record(entry.record);
    if (record) return record->pid;
  }
  return std::nullopt;
}

}  // namespace berth
