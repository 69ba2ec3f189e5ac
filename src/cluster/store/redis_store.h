// One host's part of a Redis harbour: its tickets, leases and drains, which clients of any host can
// see.
//
// Every change is one script, which Redis runs as one indivisible step and which does no harm when
// it is repeated because its reply was lost. Hosts do not contend: what one changes is its own
// part.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/redis/connection.h"
#include "cluster/redis/script.h"
#include "cluster/redis/session.h"
#include "cluster/redis/url.h"
#include "harbour/transaction.h"

namespace berth {

// How much longer than its time to live a silent client counts: a busy network is no death.
constexpr std::chrono::milliseconds kSilenceGrace(5'000);
// How much longer than from one beat to the next everybody is given to put back what a server may
// have lost.
constexpr std::chrono::milliseconds kRecoveryGrace(2'000);

struct StoreEntry {
  std::string id;
  std::string record;                     // JSON; empty if it is far too long
  std::chrono::milliseconds time_left{};  // of its time to live, grace included
  std::optional<std::chrono::milliseconds>
      unanswered;  // since it was rung, if it has not looked yet
};

// What was there at one moment.
struct StoreSnapshot {
  std::string version;      // another one after each new lease and each drain
  std::uint64_t epoch = 0;  // of a lease that is written on this sight
  bool ended = false;       // who looks was told to end
  std::vector<StoreEntry> leases;
  std::vector<TicketName> queue;
  // With their records. A client that decides reads those at the front and around its own place.
  std::vector<StoreEntry> tickets;
  bool has_all_tickets = false;  // `tickets` has all of `queue`
  std::size_t own_position = 0;  // of the client's own ticket in `queue`, by order; else its length
  std::vector<std::pair<std::string, std::string>> drains;  // UUID, JSON

  std::string tail;              // the last of the queue, whatever it is
  std::string server_epoch;      // which run of the server this is, and when it was settled
  std::string grants_resume_at;  // when this part was, after nobody could be heard of
  // For so long nobody is granted anything: what the server may have lost is put back.
  std::chrono::milliseconds recovery_time_left{};

  // By the server's clock: now, when each client's time to live ends, and since when it was rung in
  // vain.
  std::chrono::milliseconds now{};
  std::map<std::string, std::chrono::milliseconds> expires_at;
  std::map<std::string, std::chrono::milliseconds> rung_at;
  StoreEntry make_entry(const std::string& id, const std::string& record) const;
};

struct StoreChange {
  std::string id{};  // whose ticket or lease is written
  std::optional<std::string> lease{};
  std::string version{};       // on which the lease rests
  std::string server_epoch{};  // likewise
  std::string grants_resume_at{};
  std::uint64_t epoch = 0;
  // The ticket of several hosts (see cluster/remote/multi_host_ticket.h) whose place the lease
  // takes.
  std::optional<std::string> replaced_ticket{};
  std::optional<std::string> tail{};  // the last of the queue, if it rests on that, too
  std::optional<std::string> ticket{};
  std::optional<std::uint64_t> order{};  // its old place; else it goes to the end
  bool leave_queue = false;              // the queue
  std::vector<std::pair<std::string, std::string>>
      leases_to_restore{};  // leases that Redis has lost
  std::vector<std::pair<std::string, std::string>>
      leases_to_remove{};  // leases of the dead, as read
  std::vector<std::string> tickets_to_remove{};
  // Of these two, who counts as dead by its silence alone: if it was heard of since, no lease is
  // written that rests on it, and it is not removed.
  std::vector<std::string> silent_clients{};
  std::vector<std::string> tickets_to_end{};  // tickets that are told to end
  std::vector<std::string> heartbeats{};      // clients that live
  std::vector<std::pair<std::string, std::string>> drains{};
  std::vector<std::string> undrains{};
  std::vector<std::string> rings{};

  bool is_empty() const;
};

struct StoreOutcome {
  bool committed = false;  // else somebody was faster, and nothing has changed
  std::optional<std::uint64_t> order{};
  std::vector<std::string> removed{};  // of the leases of the dead, by us
};

// A record as Redis has it: other hosts read it, so its uid is the one outside of a user namespace.
// A uid that this process's namespace does not map is read as the overflow uid (see base/users.h).
std::string format_shared_record(Record record);
Result<Record> parse_shared_record(std::string_view text);

// What a host has told of itself (see cluster/store/host_info.h).
struct StoredHostInfo {
  std::string host;
  std::string info_json;                         // JSON; empty if it is far too long
  std::optional<std::chrono::milliseconds> age;  // nothing: nobody knows
};

enum class HeartbeatReply : std::uint8_t { accepted, missing, ended, rung };

// How many tickets a deciding client reads before it takes the lock: under the lock it must not ask
// the server for more.
struct TicketRange {
  std::size_t front = 64;   // of the queue
  std::size_t around = 16;  // on each side of its own place

  // Makes room for a ticket at `index` that was not read by a client at `place`.
  void extend(std::size_t index, std::size_t place);
  // Goes back towards the default: a decision that reads the queue far is rare.
  void shrink();
};

// A fork gets connections of its own.
class RedisHostStore {
 public:
  RedisHostStore(RedisUrl url, std::string host);
  RedisHostStore(const RedisHostStore&) = delete;
  RedisHostStore& operator=(const RedisHostStore&) = delete;

  const RedisUrl& url() const { return url_; }
  const std::string& host() const { return host_; }
  // A third of the time to live: two beats may get lost.
  std::chrono::milliseconds heartbeat_interval() const { return url_.ttl / 3; }

  // Lets go of every connection, as a fork must before it closes what it has inherited.
  void disconnect();

  // `client` is who decides: its rings so far are covered by what it sees, and it gets the tickets
  // at the front and around its own. Without one: all of one moment, and nothing is changed.
  // `directory_id` is that of this host's directory, whose bells tell of its own clients.
  Result<StoreSnapshot> read_snapshot(const std::string& client, const std::string& directory_id);
  // A decision needs the ticket at `index` of the queue, which `snapshot` does not have: the next
  // look reads further.
  void extend_ticket_range(const StoreSnapshot& snapshot, std::size_t index);
  Result<StoreOutcome> commit(const StoreChange& change);

  // These wait for nobody who was away a moment ago: whoever dies is found dead without them.
  void release(const std::string& id);
  void leave_queue(const std::string& id);
  void ring_front();

  // Where a ticket of several hosts was granted, if it was: the host, and the id of the lease.
  struct Claim {
    std::string host;
    std::string lease;
  };
  Result<std::optional<Claim>> read_claim(const std::string& ticket);

  void publish_info(const std::string& info_json);
  // Of every host, by their names.
  Result<std::vector<StoredHostInfo>> read_host_infos();

  Result<HeartbeatReply> send_ticket_heartbeat(const TicketName& ticket);

  // Waiting for a ring: a descriptor that is readable then, or when there is trouble. The error:
  // nobody can hear now.
  Result<int> listen(const std::string& id);
  // Takes what can be read there. False: nobody can hear any more; listen again.
  bool receive_ring();

  // The beat of a lease, whose answer nobody waits for: sent, and asked for later.
  Result<void> send_lease_heartbeat(const std::string& id);
  bool is_heartbeat_pending() const {
    return heartbeat_connection_ && heartbeat_sent_at_;
  }  // an answer is due
  std::optional<Result<HeartbeatReply>> poll_heartbeat();

 private:
  Result<Reply> run(const Script& script, const std::vector<std::string>& arguments);
  void run_if_available(const Script& script, const std::vector<std::string>& arguments);
  std::vector<std::string> keys() const;
  std::string recovery_time_ms() const;  // in ms
  Result<std::vector<StoreEntry>> read_tickets(const std::vector<std::string>& ids,
                                               const StoreSnapshot& snapshot);
  RedisCommand read_tickets_command(const std::vector<std::string>& ids) const;
  Result<void> check_recovery(StoreSnapshot& snapshot, const std::string& directory_id);

  RedisUrl url_;
  std::string host_;
  RedisSession session_;
  std::vector<std::string> nearby_tickets_;  // the tickets that the last look wanted
  TicketRange range_;
  std::optional<RedisConnection> ring_connection_;
  std::optional<RedisConnection> heartbeat_connection_;
  std::optional<std::chrono::steady_clock::time_point> heartbeat_sent_at_;
  std::string ring_client_;
};

}  // namespace berth
