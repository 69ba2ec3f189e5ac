// A ticket that waits on several hosts at once, for whichever can grant it first.
//
// It stands in the queue of each of them, at the same place, since one counter orders all hosts of
// a harbour. Only a process of a host can decide there: it alone sees the GPUs and the bells. So
// where it seems to be granted something, `berth run` on that host decides, and takes the ticket's
// place in one step with all other hosts: exactly one of them is granted it.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/store/hosts.h"
#include "harbour/harbour.h"
#include "lease/acquire.h"

namespace berth {

class MultiHostTicket {
 public:
  // `names` are the hosts that will do. With `skip_unknown_hosts`, those that the harbour does not
  // know are left out; else they are an error. Errors: no host is known that could ever grant it
  // (impossible), and the harbour's.
  static Result<MultiHostTicket> create(const AcquireRequest& request,
                                        const std::vector<std::string>& names,
                                        bool skip_unknown_hosts);

  MultiHostTicket(MultiHostTicket&&) noexcept = default;
  MultiHostTicket& operator=(MultiHostTicket&&) = delete;
  ~MultiHostTicket();  // leaves every queue

  const std::string& id() const { return id_; }
  std::vector<std::string> hosts() const;

  // Puts it into the queues where it is not yet, or not any more.
  Result<void> enqueue();

  struct WaitState {
    bool ended = false;  // by 'berth cancel'
    std::vector<std::string>
        ready_hosts;  // hosts that would grant it, as far as can be seen from here
    WaitStatus wait_status;
    std::optional<std::chrono::milliseconds>
        recovery_time_left;  // for so long nobody is granted anything
  };
  Result<WaitState> read_state();

  // Readable when some host has rung, or there is trouble: then receive_ring(), and look.
  Result<int> listen();
  void receive_ring();

  // Says on every host that it lives. True: look.
  Result<bool> send_heartbeats();
  std::chrono::milliseconds heartbeat_interval() const;

  // This host will not do after all.
  void remove_host(const std::string& host);

  // Where it was granted, if it was. It is in no queue any more then.
  Result<std::optional<RedisHostStore::Claim>> read_claim();
  // What it was granted so far counts no more: a host was granted it, did not learn that (the
  // answer was lost), and has not run it.
  Result<void> forget_claim();
  // The process that holds that lease, on its host.
  std::optional<pid_t> find_holder_pid(const RedisHostStore::Claim& claim) const;

 private:
  struct Candidate {
    HostState host;
    Record record;  // as its queue is to have it
    bool enqueued = false;
  };
  MultiHostTicket(Harbour harbour, Harbour::OwnBell&& bell);
  const RedisUrl& url() const { return *harbour_.location().url; }

  Harbour harbour_;
  std::string id_;
  PrivateFd bell_;
  std::vector<Candidate> candidates_;
  std::optional<std::uint64_t> order_;
  std::string forgotten_lease_;  // a lease that counts no more
};

}  // namespace berth
