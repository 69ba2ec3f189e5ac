// A ticket that waits on several hosts at once, for the first host that can grant it.
//
// It stands in the queue of each host, at the same place, since one counter orders all queues of a
// harbour. Only a process of a host can decide there, because only it sees the GPUs and the bells.
// So when a host would grant the ticket, as far as this host can see, `berth run` on that host
// decides. If it grants the GPUs, one step replaces the ticket by the lease and removes it from all
// other queues: exactly one host grants it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/store/hosts.h"
#include "harbour/harbour.h"
#include "lease/acquire.h"

namespace berth {

// Not thread-safe: one thread at a time.
class MultiHostTicket {
 public:
  // `names` are the hosts on which the ticket may wait. Hosts that the harbour does not know are
  // left out with `skip_unknown_hosts`, and an error without it. ErrorKind::impossible: no known
  // host could ever grant the request. Other errors are those of the harbour.
  static Result<MultiHostTicket> create(const AcquireRequest& request,
                                        const std::vector<std::string>& names,
                                        bool skip_unknown_hosts);

  MultiHostTicket(MultiHostTicket&&) noexcept = default;
  MultiHostTicket& operator=(MultiHostTicket&&) = delete;
  ~MultiHostTicket();  // leaves every queue

  const std::string& id() const { return id_; }
  bool has_hosts() const { return !candidates_.empty(); }

  // Joins the queues that the ticket is not in, or not any more.
  Result<void> enqueue();

  struct WaitState {
    bool ended = false;                    // by 'berth cancel'
    std::vector<std::string> ready_hosts;  // hosts that would grant it, as far as this host can see
    WaitStatus wait_status;
    // No GPU is granted on some host for this long (see StoreSnapshot).
    std::optional<std::chrono::milliseconds> recovery_time_left;
  };
  Result<WaitState> read_state();

  // Returns a descriptor that becomes readable when a host rings the ticket or the connection
  // fails. Then call receive_ring() and read_state().
  Result<int> listen();
  void receive_ring();

  // Sends a heartbeat for every host. True: something has changed; call read_state().
  Result<bool> send_heartbeats();
  std::chrono::milliseconds heartbeat_interval();

  // Leaves the queue of a host that cannot run the job after all.
  void remove_host(const std::string& host);

  // The host and lease that the ticket has led to; nullopt if it was not granted. A ticket that was
  // granted has left all queues.
  Result<std::optional<RedisHostStore::Claim>> read_claim();
  // Makes read_claim() ignore the current claim. A claim does not count if the `berth run` of that
  // host did not learn of it (the reply was lost) and has not run the job.
  Result<void> forget_claim();
  // The PID, on its host, of the process that holds the lease.
  std::optional<pid_t> find_holder_pid(const RedisHostStore::Claim& claim) const;

 private:
  struct Candidate {
    HostState host;
    Record record;  // of the ticket in the host's queue
    bool enqueued = false;
  };
  MultiHostTicket(Harbour harbour, Harbour::OwnBell&& bell);
  const RedisUrl& url() const { return *harbour_.location().url; }

  Harbour harbour_;
  std::string id_;
  PrivateFd bell_;
  std::vector<Candidate> candidates_;
  std::optional<std::uint64_t> order_;
  std::string forgotten_lease_;  // the lease of the claim that is ignored
};

}  // namespace berth
