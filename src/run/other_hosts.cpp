// Reads the other hosts' tickets, leases and history; see other_hosts.h.
#include "run/other_hosts.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include "base/users.h"
#include "cluster/store/hosts.h"
#include "cluster/store/redis_store.h"
#include "harbour/bell.h"
#include "lease/lease_history.h"

namespace berth {
namespace {

// The client of a ticket of several hosts has its bell where it was started. There the kernel says
// at once that it is gone; Redis says so when its time to live is over.
class LocalBells {
 public:
  static Result<LocalBells> open(const HarbourLocation& where) {
    LocalBells bells;
    bells.harbour_ = TRY(Harbour::open_existing(where));
    return bells;
  }

  bool is_gone(const Record& ticket) const {
    if (!harbour_ || ticket.directory_id.empty() || ticket.directory_id != harbour_->directory_id())
      return false;
    const auto bell = open_bell(harbour_->directory(), ticket.id, ticket.uid);
    return bell && !bell->write_end;
  }

 private:
  std::optional<Harbour> harbour_;
};

void add_clients(const HostState& host, const std::string& id, const LocalBells& bells,
                 std::vector<RemoteClient>& found) {
  for (const Record& lease : host.contents.leases) {
    if (has_job_id(lease, id)) found.push_back({host.name, lease});
  }
  for (const Record& ticket : host.contents.tickets) {
    if (has_job_id(ticket, id) && !bells.is_gone(ticket)) found.push_back({host.name, ticket});
  }
}

Result<void> add_clients_of(const std::string& name, const std::string& id,
                            const HarbourLocation& where, const LocalBells& bells,
                            std::vector<RemoteClient>& found) {
  HostState host{name, std::nullopt, tl::make_unexpected(Error{})};
  TRY(refresh_host(host, *where.url, "", ""));
  add_clients(host, id, bells, found);
  return {};
}

}  // namespace

Result<std::vector<Status>> read_other_hosts(const HarbourLocation& where) {
  std::vector<Status> others;
  if (!where.url) return others;
  const LocalBells bells = TRY(LocalBells::open(where));
  const TimePoint now = std::chrono::system_clock::now();
  for (const HostState& host : TRY(read_hosts(*where.url))) {
    if (host.name == where.host) continue;
    others.push_back(build_status(host, now));
    std::erase_if(others.back().queue,
                  [&](const TicketStatus& ticket) { return bells.is_gone(ticket.record); });
  }
  return others;
}

Result<std::vector<RemoteClient>> find_remote_clients(const std::string& id,
                                                      const std::string& last_host) {
  const HarbourLocation where = harbour_location();
  std::vector<RemoteClient> found;
  if (!where.url) return found;
  const LocalBells bells = TRY(LocalBells::open(where));
  if (!last_host.empty()) TRY(add_clients_of(last_host, id, where, bells, found));
  if (!found.empty()) return found;
  for (const StoredHostInfo& host : TRY(RedisHostStore(*where.url, "").read_host_infos())) {
    if (host.host != where.host) TRY(add_clients_of(host.host, id, where, bells, found));
  }
  return found;
}

Result<std::optional<Record>> find_sent_job(Harbour& harbour, const std::string& id) {
  const auto transaction = TRY(harbour.begin(LockMode::shared, {}));
  for (Client& lease : TRY(transaction->read_leases())) {
    if (lease.record.job_id == id && lease.record.uid == ::geteuid())
      return std::move(lease.record);
  }
  return std::nullopt;
}

Result<std::string> find_job_host(const std::string& id) {
  const HarbourLocation where = harbour_location();
  if (!where.url || !is_id(id)) return "";
  for (const RemoteClient& client : TRY(find_remote_clients(id))) {
    if (client.record.uid != ::geteuid()) continue;
    return client.record.job_host.empty() ? client.host : client.record.job_host;
  }
  std::optional<Harbour> harbour = TRY(Harbour::open_existing(where));
  if (harbour) {
    if (const auto sent = TRY(find_sent_job(*harbour, id))) return sent->job_host;
  }
  const LeaseFilter own{::geteuid(), user_name(::geteuid()), ""};
  const History history =
      TRY(read_merged_history(where, TimePoint{}, [&](const HistoryEntry& entry) {
        return (entry.id == id || entry.job_id == id) &&
               own.matches(entry.uid, entry.user, entry.host);
      }));
  if (history.entries.empty()) return "";
  const HistoryEntry& last = history.entries.back();
  return last.job_host.empty() ? last.host : last.job_host;
}

}  // namespace berth
