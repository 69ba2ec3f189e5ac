// The tickets, leases and drains of one host in a Redis harbour.
//
// Clients of all hosts can read them. Every change is one script, which Redis runs as one atomic
// step. Running it twice does no harm, so it is repeated if its reply was lost. Hosts do not
// contend: a change concerns the keys of one host (except for tickets that wait on several hosts).
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

// A silent client counts for its time to live (TTL) and this long: heartbeats may be late on a busy
// network.
constexpr std::chrono::milliseconds kSilenceGrace(5'000);
// The recovery time, in which clients put back what the server may have lost, is one heartbeat
// interval and this long.
constexpr std::chrono::milliseconds kRecoveryGrace(2'000);

// A lease or a ticket as Redis has it. Any client with the URL may have written it.
struct StoreEntry {
  std::string id;
  std::string record;                     // JSON; empty if it is missing or far too long
  std::chrono::milliseconds time_left{};  // until it no longer counts, grace included
  // The time since it was rung, if its client has not decided since.
  std::optional<std::chrono::milliseconds> unanswered;
};

// The data of a host at one moment.
struct StoreSnapshot {
  std::string version;      // changes with each new lease and each drain
  std::uint64_t epoch = 0;  // for a lease that is decided by this snapshot
  bool ended = false;       // the ticket of the client that reads was cancelled
  std::vector<StoreEntry> leases;
  std::vector<TicketName> queue;  // sorted
  // The tickets with their records. A client that decides reads only those at the front of the
  // queue and around its own.
  std::vector<StoreEntry> tickets;
  bool has_all_tickets = false;  // `tickets` has all of `queue`
  std::size_t own_position = 0;  // of the client's own ticket in `queue`; its length if it has none
  std::vector<std::pair<std::string, std::string>> drains;  // UUID, JSON

  std::string tail;              // the last member of the queue in Redis, even if it is not an id
  std::string server_epoch;      // the server's run id, and when grants resume after a loss of data
  std::string grants_resume_at;  // when grants resume on this host after all clients were silent
  // No GPU is granted for this long: clients put back what the server may have lost.
  std::chrono::milliseconds recovery_time_left{};

  // Times of the server's clock: now, when the TTL of each client ends, and when each client that
  // has not answered was rung.
  std::chrono::milliseconds now{};
  std::map<std::string, std::chrono::milliseconds> expires_at;
  std::map<std::string, std::chrono::milliseconds> rung_at;
  StoreEntry make_entry(const std::string& id, const std::string& record) const;
};

// Changes that are committed together. Records are JSON.
struct StoreChange {
  std::string id{};                    // of the client whose ticket or lease is written
  std::optional<std::string> lease{};  // its record
  // The lease (and a drain) rests on these values of the snapshot: the commit is refused if the
  // version, or for a lease any of them, has changed.
  std::string version{};
  std::string server_epoch{};
  std::string grants_resume_at{};
  std::uint64_t epoch = 0;  // of the lease
  // The ticket that the lease replaces, if it waits on several hosts (see
  // cluster/remote/multi_host_ticket.h).
  std::optional<std::string> replaced_ticket{};
  // The end of the queue, if the lease rests on that, too, because its client has no ticket.
  std::optional<std::string> tail{};
  std::optional<std::string> ticket{};   // its record
  std::optional<std::uint64_t> order{};  // the ticket's old place; without it, the end of the queue
  bool leave_queue = false;              // remove the client's own ticket
  // Ids and records of leases that Redis has lost.
  std::vector<std::pair<std::string, std::string>> leases_to_restore{};
  // Leases that the server has, with their changed records.
  std::vector<std::pair<std::string, std::string>> leases_to_replace{};
  // Ids and records of leases that have ended. A lease with another record by now is not removed.
  std::vector<std::pair<std::string, std::string>> leases_to_remove{};
  std::vector<std::string> tickets_to_remove{};
  // Clients of these two lists that count as dead only because they were silent. A client that has
  // sent a heartbeat since is not removed, and then no lease is written, since it rests on that.
  std::vector<std::string> silent_clients{};
  std::vector<std::string> tickets_to_end{};                  // tickets to cancel
  std::vector<std::string> heartbeats{};                      // leases whose holders are alive
  std::vector<std::pair<std::string, std::string>> drains{};  // UUID, JSON
  std::vector<std::string> undrains{};
  std::vector<std::string> rings{};

  bool is_empty() const;
};

struct StoreOutcome {
  bool committed = false;  // false: another client was faster, and nothing has changed
  std::optional<std::uint64_t> order{};  // of the ticket
  std::vector<std::string> removed{};    // leases that this commit removed, of leases_to_remove
};

// A record as Redis has it. Its uid is the one outside of a user namespace, since other hosts read
// it. Parsing maps a uid that this process's namespace does not have to the overflow uid (see
// base/users.h).
std::string format_shared_record(Record record);
Result<Record> parse_shared_record(std::string_view text);

// The drain that Redis has in the field `uuid`. ErrorKind::io: `text` is not a drain, or that of
// another GPU; the message says which.
Result<Drain> parse_shared_drain(const std::string& uuid, std::string_view text);
// The drain that counts in place of one with such an error: the GPU was taken out of service, so it
// must not be granted.
Drain unreadable_drain(const std::string& uuid);

// What a host has published about itself (see cluster/store/host_info.h).
struct StoredHostInfo {
  std::string host;
  std::string info_json;                         // empty if it is far too long
  std::optional<std::chrono::milliseconds> age;  // nullopt: unknown
};

enum class HeartbeatReply : std::uint8_t { accepted, missing, ended, rung };

// The tickets that a deciding client reads before it takes the lock of its host: under the lock it
// must not wait for the server.
struct TicketRange {
  std::size_t front = 64;   // so many at the front of the queue
  std::size_t around = 16;  // so many on each side of the client's own

  // Includes the ticket at `index`, which a client at `place` needed and had not read.
  void extend(std::size_t index, std::size_t place);
  // Goes back towards the default: few decisions need much of the queue.
  void shrink();
};

// Not thread-safe: one thread at a time. A forked child opens connections of its own.
class RedisHostStore {
 public:
  RedisHostStore(RedisUrl url, std::string host);
  RedisHostStore(const RedisHostStore&) = delete;
  RedisHostStore& operator=(const RedisHostStore&) = delete;

  const RedisUrl& url() const { return url_; }
  const std::string& host() const { return host_; }
  // A third of the TTL: two heartbeats may get lost.
  std::chrono::milliseconds heartbeat_interval() const { return url_.ttl / 3; }

  // Closes all connections. A forked child must do so before it closes inherited descriptors.
  void disconnect();

  // If `client` is the id of a client that decides: the snapshot has the tickets at the front of
  // the queue and around its own, and its earlier rings are removed, since the snapshot covers
  // them. If `client` is empty: the snapshot has all tickets, all of one moment, and nothing is
  // changed. `directory_id` is that of this host's directory, where bells show whether clients
  // live.
  Result<StoreSnapshot> read_snapshot(const std::string& client, const std::string& directory_id);
  // Makes the next snapshot include the ticket at `index` of the queue, which a decision needs and
  // `snapshot` does not have.
  void extend_ticket_range(const StoreSnapshot& snapshot, std::size_t index);
  Result<StoreOutcome> commit(const StoreChange& change);

  // These do nothing if the server was recently unavailable, and ignore errors: other clients find
  // out without them that a client is gone.
  void release(const std::string& id);
  void leave_queue(const std::string& id);
  void ring_front();

  // The host and the lease that a ticket of several hosts has led to.
  struct Claim {
    std::string host;
    std::string lease;  // its id
  };
  // nullopt: the ticket was not granted.
  Result<std::optional<Claim>> read_claim(const std::string& ticket);

  // Does nothing if the server was recently unavailable, and ignores errors.
  void publish_info(const std::string& info_json);
  // The information of every host, sorted by name.
  Result<std::vector<StoredHostInfo>> read_host_infos();

  Result<HeartbeatReply> send_ticket_heartbeat(const TicketName& ticket);

  // Returns a descriptor that becomes readable when the client is rung or the connection fails. An
  // error means that the client cannot be rung now. Keeps an existing connection for the same id.
  Result<int> listen(const std::string& id);
  // Reads what has arrived there. False: the connection failed; call listen() again.
  bool receive_ring();

  // Sends the heartbeat of a lease without waiting for the reply.
  Result<void> send_lease_heartbeat(const std::string& id);
  // Whether a reply to send_lease_heartbeat() is outstanding.
  bool is_heartbeat_pending() const { return heartbeat_connection_ && heartbeat_sent_at_; }
  // The reply, once it has arrived; an error if none arrived in time. Never blocks. nullopt: no
  // reply has arrived yet, or none is outstanding.
  std::optional<Result<HeartbeatReply>> poll_heartbeat();

 private:
  Result<Reply> run(const Script& script, const std::vector<std::string>& arguments);
  void run_if_available(const Script& script, const std::vector<std::string>& arguments);
  std::vector<std::string> keys() const;
  std::string recovery_time_ms() const;
  Result<std::vector<StoreEntry>> read_tickets(const std::vector<std::string>& ids,
                                               const StoreSnapshot& snapshot);
  RedisCommand read_tickets_command(const std::vector<std::string>& ids) const;
  // Begins a recovery time if the server may have lost data, and sets what the snapshot has of it.
  Result<void> check_recovery(StoreSnapshot& snapshot, const std::string& directory_id);

  RedisUrl url_;
  std::string host_;
  RedisSession session_;
  std::vector<std::string> nearby_tickets_;  // tickets that the last snapshot included
  TicketRange range_;
  std::optional<RedisConnection> ring_connection_;
  std::optional<RedisConnection> heartbeat_connection_;
  std::optional<std::chrono::steady_clock::time_point> heartbeat_sent_at_;
  std::string ring_client_;  // the id that ring_connection_ waits for
};

}  // namespace berth
