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
constexpr std::chrono::milliseconds kSettleGrace(2'000);

struct StoreEntry {
  std::string id;
  std::string record;                                // JSON; empty if it is far too long
  std::chrono::milliseconds left{};                  // of its time to live, grace included
  std::optional<std::chrono::milliseconds> unheard;  // since it was rung, if it has not looked yet
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
  bool all_tickets = false;  // `tickets` has all of `queue`
  std::size_t place = 0;     // of the client's own ticket in `queue`, by order; else its length
  std::vector<std::pair<std::string, std::string>> drains;  // UUID, JSON

  std::string tail;     // the last of the queue, whatever it is
  std::string server_epoch;     // which run of the server this is, and when it was settled
  std::string settled;  // when this part was, after nobody could be heard of
  // For so long nobody is granted anything: what the server may have lost is put back.
  std::chrono::milliseconds settles{};

  // By the server's clock: now, when each client's time to live ends, and since when it was rung in
  // vain.
  std::chrono::milliseconds now{};
  std::map<std::string, std::chrono::milliseconds> beats;
  std::map<std::string, std::chrono::milliseconds> rung;
  StoreEntry entry(const std::string& id, const std::string& record) const;
};

struct StoreChange {
  std::string id{};  // whose ticket or lease is written
  std::optional<std::string> lease{};
  std::string version{};  // on which the lease rests
  std::string server_epoch{};     // likewise
  std::string settled{};
  std::uint64_t epoch = 0;
  // The ticket of several hosts (see cluster/remote/multi_host_ticket.h) whose place the lease
  // takes.
  std::optional<std::string> instead_of{};
  std::optional<std::string> tail{};  // the last of the queue, if it rests on that, too
  std::optional<std::string> ticket{};
  std::optional<std::uint64_t> order{};  // its old place; else it goes to the end
  bool leave = false;                    // the queue
  std::vector<std::pair<std::string, std::string>> put_back{};  // leases that Redis has lost
  std::vector<std::pair<std::string, std::string>> remove{};    // leases of the dead, as read
  std::vector<std::string> remove_tickets{};
  // Of these two, who counts as dead by its silence alone: if it was heard of since, no lease is
  // written that rests on it, and it is not removed.
  std::vector<std::string> silent{};
  std::vector<std::string> ended{};  // tickets that are told to end
  std::vector<std::string> beats{};  // clients that live
  std::vector<std::pair<std::string, std::string>> drains{};
  std::vector<std::string> undrains{};
  std::vector<std::string> rings{};

  bool is_empty() const;
};

struct StoreOutcome {
  bool done = false;  // else somebody was faster, and nothing has changed
  std::optional<std::uint64_t> order{};
  std::vector<std::string> removed{};  // of the leases of the dead, by us
};

// A record as Redis has it: other hosts read it, so its uid is the one outside of a user namespace.
// A uid that this process's namespace does not map is read as the overflow uid (see base/users.h).
std::string write_shared_record(Record record);
Result<Record> read_shared_record(std::string_view text);

// What a host has told of itself (see cluster/store/host_info.h).
struct StoredHostInfo {
  std::string host;
  std::string card;                              // JSON; empty if it is far too long
  std::optional<std::chrono::milliseconds> age;  // nothing: nobody knows
};

enum class Beat : std::uint8_t { heard, missing, ended, rung };

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
  std::chrono::milliseconds beat_interval() const { return url_.ttl / 3; }

  // Lets go of every connection, as a fork must before it closes what it has inherited.
  void disconnect();

  // `client` is who decides: its rings so far are covered by what it sees, and it gets the tickets
  // at the front and around its own. Without one: all of one moment, and nothing is changed.
  // `directory_id` is that of this host's directory, whose bells tell of its own clients.
  Result<StoreSnapshot> look(const std::string& client, const std::string& directory_id);
  // A decision needs the ticket at `index` of the queue, which `sight` does not have: the next look
  // reads further.
  void read_further(const StoreSnapshot& sight, std::size_t index);
  Result<StoreOutcome> commit(const StoreChange& change);

  // These wait for nobody who was away a moment ago: whoever dies is found dead without them.
  void release(const std::string& id);
  void leave(const std::string& id);
  void ring_front();

  // Where a ticket of several hosts was granted, if it was: the host, and the id of the lease.
  struct Claim {
    std::string host;
    std::string lease;
  };
  Result<std::optional<Claim>> claim_of(const std::string& ticket);

  void publish(const std::string& card);
  // Of every host, by their names.
  Result<std::vector<StoredHostInfo>> cards();

  Result<Beat> beat(const TicketName& ticket);

  // Waiting for a ring: a descriptor that is readable then, or when there is trouble. The error:
  // nobody can hear now.
  Result<int> listen(const std::string& id);
  // Takes what can be read there. False: nobody can hear any more; listen again.
  bool receive_ring();

  // The beat of a lease, whose answer nobody waits for: sent, and asked for later.
  Result<void> send_beat(const std::string& id);
  bool is_beating() const { return heartbeat_connection_ && beat_sent_; }  // an answer is due
  std::optional<Result<Beat>> poll_heartbeat();

 private:
  Result<Reply> run(const Script& script, const std::vector<std::string>& arguments);
  void try_to(const Script& script, const std::vector<std::string>& arguments);
  std::vector<std::string> keys() const;
  std::string settle_time() const;  // in ms
  Result<std::vector<StoreEntry>> tickets(const std::vector<std::string>& ids,
                                         const StoreSnapshot& sight);
  RedisConnection::Words ticket_question(const std::vector<std::string>& ids) const;
  Result<void> settle(StoreSnapshot& sight, const std::string& directory_id);

  RedisUrl url_;
  std::string host_;
  RedisSession session_;
  std::vector<std::string> near_;  // the tickets that the last look wanted
  TicketRange range_;
  std::optional<RedisConnection> ring_connection_;
  std::optional<RedisConnection> heartbeat_connection_;
  std::optional<std::chrono::steady_clock::time_point> beat_sent_;
  std::string listens_for_;
};

}  // namespace berth
