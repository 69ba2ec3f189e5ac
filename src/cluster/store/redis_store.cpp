// Commands and scripts of a Redis harbour, and their replies; see redis_store.h.
#include "cluster/store/redis_store.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <set>
#include <utility>

#include "base/configuration.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "base/uid_map.h"
#include "base/users.h"
#include "cluster/store/redis_scripts.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Script make_script(std::string_view body) {
  return Script(fmt::format("{}{}", kScriptPrologue, body));
}

struct Scripts {
  Script commit = make_script(kCommitScript);
  Script release = make_script(kReleaseScript);
  Script leave = make_script(kLeaveScript);
  Script ring_front = make_script(kRingFrontScript);
  Script heartbeat = make_script(kHeartbeatScript);
  Script check_epoch = make_script(kCheckEpochScript);
  Script publish = make_script(kPublishScript);
};

const Scripts& scripts() {
  static const Scripts all;
  return all;
}

milliseconds parse_ms(const std::string& text) {
  return milliseconds(parse_integer<std::int64_t>(text).value_or(0));
}

// The i-th element of a list; nil if there is no such element.
const Reply& element_at(const Reply& reply, std::size_t i) {
  static const Reply nil;
  return i < reply.list().size() ? reply.list()[i] : nil;
}

std::vector<std::pair<std::string, std::string>> parse_pairs(const Reply& reply) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto& list = reply.list();
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    pairs.emplace_back(list[i].text(), list[i + 1].text());
  }
  return pairs;
}

std::vector<TicketName> parse_queue(const Reply& reply) {
  std::vector<TicketName> queue;
  for (const auto& [id, score] : parse_pairs(reply)) {
    const auto order = parse_integer<std::uint64_t>(score);
    if (order && is_id(id)) queue.push_back({*order, id});
  }
  return queue;
}

std::map<std::string, milliseconds> parse_times(const Reply& reply) {
  std::map<std::string, milliseconds> times;
  for (const auto& [id, time] : parse_pairs(reply)) times.emplace(id, parse_ms(time));
  return times;
}

// The reply to TIME.
std::chrono::microseconds parse_time(const Reply& reply) {
  return std::chrono::microseconds(
      parse_integer<std::uint64_t>(element_at(reply, 0).text()).value_or(0) * 1'000'000 +
      parse_integer<std::uint64_t>(element_at(reply, 1).text()).value_or(0));
}

// The tickets that a decision reads: the first ones, and those around its own.
std::vector<std::string> ticket_ids_in_range(const TicketRange& range,
                                             const StoreSnapshot& snapshot) {
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < snapshot.queue.size(); ++i) {
    const bool around =
        i + range.around >= snapshot.own_position && i <= snapshot.own_position + range.around;
    if (i < range.front || around) ids.push_back(snapshot.queue[i].id);
  }
  return ids;
}

// The entries of `wanted_ids`, from the reply with the records of `requested_ids`.
std::vector<StoreEntry> parse_tickets(const std::vector<std::string>& requested_ids,
                                      const Reply& reply,
                                      const std::vector<std::string>& wanted_ids,
                                      const StoreSnapshot& snapshot) {
  const std::set<std::string_view> ids(wanted_ids.begin(), wanted_ids.end());
  std::vector<StoreEntry> found;
  found.reserve(requested_ids.size());
  for (std::size_t i = 0; i < requested_ids.size(); ++i) {
    if (!ids.contains(requested_ids[i])) continue;
    found.push_back(snapshot.make_entry(requested_ids[i], element_at(reply, i).text()));
  }
  return found;
}

Json json_or_false(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(false);  // in Lua a null would be userdata, which is true
}

Json pairs_json(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json list = Json::array();
  for (const auto& [first, second] : pairs) list.push_back(Json::array({first, second}));
  return list;
}

std::string change_to_json(const StoreChange& change, const RedisHostStore& store) {
  const Json json{{"id", change.id},
                  {"ttl", store.url().ttl.count()},
                  {"lease", json_or_false(change.lease)},
                  {"version", change.version},
                  {"born", change.server_epoch},
                  {"settled", change.grants_resume_at},
                  {"epoch", std::to_string(change.epoch)},
                  {"host", store.host()},
                  {"instead_of", json_or_false(change.replaced_ticket)},
                  {"tail", json_or_false(change.tail)},
                  {"ticket", json_or_false(change.ticket)},
                  {"order", change.order ? Json(std::to_string(*change.order)) : Json(false)},
                  {"leave", change.leave_queue},
                  {"put_back", pairs_json(change.leases_to_restore)},
                  {"replace", pairs_json(change.leases_to_replace)},
                  {"remove", pairs_json(change.leases_to_remove)},
                  {"remove_tickets", change.tickets_to_remove},
                  {"silent", change.silent_clients},
                  {"grace", kSilenceGrace.count()},
                  {"ended", change.tickets_to_end},
                  {"beats", change.heartbeats},
                  {"drains", pairs_json(change.drains)},
                  {"undrains", change.undrains},
                  {"rings", change.rings}};
  return to_ascii_json(json);
}

Result<HeartbeatReply> parse_heartbeat_reply(const Reply& reply) {
  if (reply.text() == "ended") return HeartbeatReply::ended;
  if (reply.text() == "rung") return HeartbeatReply::rung;
  return reply.text() == "heard" ? HeartbeatReply::accepted : HeartbeatReply::missing;
}

}  // namespace

StoreEntry StoreSnapshot::make_entry(const std::string& id, const std::string& record) const {
  StoreEntry entry{id, record.size() > kMaxRecordSize ? "" : record, kSilenceGrace - now,
                   std::nullopt};
  if (const auto expiry = expires_at.find(id); expiry != expires_at.end())
    entry.time_left += expiry->second;
  if (const auto ring = rung_at.find(id); ring != rung_at.end())
    entry.unanswered = now - ring->second;
  return entry;
}

std::string format_shared_record(Record record) {
  record.uid = uid_outside(record.uid).value_or(record.uid);
  return format_record(record);
}

Result<Record> parse_shared_record(std::string_view text) {
  auto record = parse_record(text);
  if (record) record->uid = uid_inside(record->uid).value_or(overflow_uid());
  return record;
}

Result<Drain> parse_shared_drain(const std::string& uuid, std::string_view text) {
  Drain drain = TRY(parse_drain(text));
  if (drain.uuid != uuid) return fail(ErrorKind::io, "its record names another GPU");
  return drain;
}

Drain unreadable_drain(const std::string& uuid) {
  return {uuid, 0, "the record of this drain cannot be read", {}};
}

bool StoreChange::is_empty() const {
  return !lease && !ticket && !leave_queue && leases_to_restore.empty() &&
         leases_to_replace.empty() && leases_to_remove.empty() && tickets_to_remove.empty() &&
         tickets_to_end.empty() && heartbeats.empty() && drains.empty() && undrains.empty() &&
         rings.empty();
}

void TicketRange::extend(std::size_t index, std::size_t place) {
  constexpr std::size_t kFactor = 4;  // so that few attempts are needed in a very long queue
  const std::size_t distance = index > place ? index - place : place - index;
  if (distance < index) {
    around = std::max(around, kFactor * (distance + 1));
  } else {
    front = std::max(front, kFactor * (index + 1));
  }
}

void TicketRange::shrink() {
  constexpr TicketRange kDefault;
  front = std::max(kDefault.front, front - front / 8);
  around = std::max(kDefault.around, around - around / 8);
}

RedisHostStore::RedisHostStore(RedisUrl url, std::string host)
    : url_(std::move(url)), host_(std::move(host)), session_(url_) {}

void RedisHostStore::disconnect() {
  session_.disconnect();
  ring_connection_.reset();
  heartbeat_connection_.reset();
}

std::string RedisHostStore::recovery_time_ms() const {
  return std::to_string((heartbeat_interval() + kRecoveryGrace).count());
}

std::vector<std::string> RedisHostStore::keys() const {
  return {fmt::format("{}:", url_.prefix), fmt::format("{}:{}", url_.prefix, host_)};
}

Result<Reply> RedisHostStore::run(const Script& script, const std::vector<std::string>& arguments) {
  return session_.run(script, keys(), arguments);
}

void RedisHostStore::run_if_available(const Script& script,
                                      const std::vector<std::string>& arguments) {
  if (session_.was_recently_unavailable()) return;
  (void)run(script, arguments);
}

Result<StoreSnapshot> RedisHostStore::read_snapshot(const std::string& client,
                                                    const std::string& directory_id) {
  const bool is_deciding = !client.empty();
  const auto key = [host_key = keys()[1]](const char* name) {
    return fmt::format("{}:{}", host_key, name);
  };
  std::vector<RedisCommand> commands{{"MULTI"},
                                     {"TIME"},
                                     {"GET", key("version")},
                                     {"HGETALL", key("leases")},
                                     {"ZRANGE", key("queue"), "0", "-1", "WITHSCORES"},
                                     {"HGETALL", key("beats")},
                                     {"HGETALL", key("rung")},
                                     {"HGETALL", key("drains")},
                                     {"GET", fmt::format("{}:born", url_.prefix)},
                                     {"GET", key("settles")}};
  if (is_deciding) {
    commands.push_back({"EXISTS", fmt::format("{}:ended:{}", url_.prefix, client)});
    commands.push_back({"DEL", fmt::format("{}:ring:{}", url_.prefix, client)});
    commands.push_back({"HDEL", key("rung"), client});
    // Its own ticket, and those that the last snapshot included. Most of them are needed again:
    // that saves a round trip.
    if (std::find(nearby_tickets_.begin(), nearby_tickets_.end(), client) == nearby_tickets_.end())
      nearby_tickets_.push_back(client);
    commands.push_back(read_tickets_command(nearby_tickets_));
  } else {
    commands.push_back({"HGETALL", key("tickets")});
  }
  commands.push_back({"EXEC"});
  const auto replies = TRY(session_.pipeline(commands));
  const auto reply_at = [&all = replies.back()](std::size_t i) -> const Reply& {
    return element_at(all, i);
  };
  const std::chrono::microseconds now = parse_time(reply_at(0));
  StoreSnapshot snapshot;
  snapshot.version = reply_at(1).is_nil() ? "0" : reply_at(1).text();
  snapshot.epoch = std::max(parse_integer<std::uint64_t>(snapshot.version).value_or(0) + 1,
                            static_cast<std::uint64_t>(now.count()));
  snapshot.now = std::chrono::floor<milliseconds>(now);
  snapshot.expires_at = parse_times(reply_at(4));
  snapshot.rung_at = parse_times(reply_at(5));
  for (auto& [id, record] : parse_pairs(reply_at(2)))
    snapshot.leases.push_back(snapshot.make_entry(id, record));
  snapshot.queue = parse_queue(reply_at(3));
  std::sort(snapshot.queue.begin(), snapshot.queue.end());
  const auto own = std::find_if(snapshot.queue.begin(), snapshot.queue.end(),
                                [&](const TicketName& name) { return name.id == client; });
  snapshot.own_position = static_cast<std::size_t>(own - snapshot.queue.begin());
  const auto& members = reply_at(3).list();
  if (members.size() >= 2) snapshot.tail = members[members.size() - 2].text();
  snapshot.drains = parse_pairs(reply_at(6));
  snapshot.server_epoch = reply_at(7).text();
  snapshot.grants_resume_at = reply_at(8).text();
  if (!is_deciding) {
    std::map<std::string, std::string> records;
    for (auto& [id, record] : parse_pairs(reply_at(9))) records.emplace(id, std::move(record));
    for (const TicketName& name : snapshot.queue) {
      snapshot.tickets.push_back(snapshot.make_entry(name.id, records[name.id]));
    }
    snapshot.has_all_tickets = true;
    return snapshot;
  }
  snapshot.ended = reply_at(9).integer().value_or(0) != 0;
  TRY(check_recovery(snapshot, directory_id));
  auto nearby = ticket_ids_in_range(range_, snapshot);
  range_.shrink();
  snapshot.has_all_tickets = nearby.size() == snapshot.queue.size();
  snapshot.tickets = parse_tickets(nearby_tickets_, reply_at(12), nearby, snapshot);
  const std::set<std::string> read(nearby_tickets_.begin(), nearby_tickets_.end());
  std::vector<std::string> missing;
  for (const std::string& id : nearby) {
    if (!read.contains(id)) missing.push_back(id);
  }
  nearby_tickets_ = std::move(nearby);
  auto more = TRY(read_tickets(missing, snapshot));
  snapshot.tickets.insert(snapshot.tickets.end(), std::make_move_iterator(more.begin()),
                          std::make_move_iterator(more.end()));
  return snapshot;
}

Result<void> RedisHostStore::check_recovery(StoreSnapshot& snapshot,
                                            const std::string& directory_id) {
  const bool silent =
      std::any_of(snapshot.leases.begin(), snapshot.leases.end(), [&](const StoreEntry& lease) {
        if (lease.time_left.count() > 0) return false;
        const auto record = parse_record(lease.record);
        return !record || record->directory_id.empty() || record->directory_id != directory_id;
      });
  const std::string run_id = TRY(session_.run_id());
  const auto resume_time = [&snapshot] {
    return std::max(parse_ms(snapshot.server_epoch.substr(snapshot.server_epoch.find(' ') + 1)),
                    parse_ms(snapshot.grants_resume_at));
  };
  // Later than any client can have written: the server's clock was set back.
  const bool too_far = resume_time() - snapshot.now > heartbeat_interval() + kRecoveryGrace;
  if (silent || too_far || !snapshot.server_epoch.starts_with(run_id + " ")) {
    const Reply reply = TRY(
        run(scripts().check_epoch, {run_id, recovery_time_ms(), std::to_string(url_.ttl.count())}));
    snapshot.server_epoch = element_at(reply, 0).text();
    snapshot.grants_resume_at = element_at(reply, 1).text();
  }
  snapshot.recovery_time_left = std::max(resume_time() - snapshot.now, milliseconds(0));
  return {};
}

Result<std::vector<StoreEntry>> RedisHostStore::read_tickets(const std::vector<std::string>& ids,
                                                             const StoreSnapshot& snapshot) {
  if (ids.empty()) return std::vector<StoreEntry>{};
  const Reply reply = TRY(session_.call(read_tickets_command(ids)));
  return parse_tickets(ids, reply, ids, snapshot);
}

void RedisHostStore::extend_ticket_range(const StoreSnapshot& snapshot, std::size_t index) {
  range_.extend(index, snapshot.own_position);
}

RedisCommand RedisHostStore::read_tickets_command(const std::vector<std::string>& ids) const {
  RedisCommand words{"HMGET", fmt::format("{}:tickets", keys()[1])};
  words.insert(words.end(), ids.begin(), ids.end());
  return words;
}

Result<StoreOutcome> RedisHostStore::commit(const StoreChange& change) {
  const Reply reply = TRY(run(scripts().commit, {change_to_json(change, *this)}));
  StoreOutcome outcome;
  outcome.committed = element_at(reply, 0).integer() == 1;
  outcome.order = parse_integer<std::uint64_t>(element_at(reply, 1).text());
  for (const Reply& id : element_at(reply, 2).list()) outcome.removed.push_back(id.text());
  if (!change.lease || !outcome.committed) return outcome;
  // The session may have had to reconnect: perhaps to a server that was restarted or has taken
  // over, and has lost a lease that was granted after the snapshot.
  const std::string run_id = TRY(session_.run_id());
  if (!change.server_epoch.starts_with(run_id + " ")) {
    release(change.id);
    outcome.committed = false;
  }
  return outcome;
}

void RedisHostStore::release(const std::string& id) {
  run_if_available(scripts().release, {id, std::to_string(kSilenceGrace.count())});
}

void RedisHostStore::leave_queue(const std::string& id) {
  run_if_available(scripts().leave, {id});
}

void RedisHostStore::ring_front() {
  run_if_available(scripts().ring_front, {std::to_string(kSilenceGrace.count())});
}

Result<std::optional<RedisHostStore::Claim>> RedisHostStore::read_claim(const std::string& ticket) {
  const Reply reply = TRY(session_.call({"GET", fmt::format("{}:claim:{}", url_.prefix, ticket)}));
  const auto blank = reply.text().find(' ');
  if (blank == std::string::npos) return std::nullopt;
  return Claim{reply.text().substr(0, blank), reply.text().substr(blank + 1)};
}

void RedisHostStore::publish_info(const std::string& info_json) {
  run_if_available(scripts().publish, {host_, info_json});
}

Result<std::vector<StoredHostInfo>> RedisHostStore::read_host_infos() {
  constexpr std::size_t kMaxInfoSize = 1 << 20;
  const std::vector<RedisCommand> commands{{"TIME"},
                                           {"HGETALL", fmt::format("{}:hosts", url_.prefix)},
                                           {"HGETALL", fmt::format("{}:seen", url_.prefix)}};
  const auto replies = TRY(session_.pipeline(commands));
  const auto now = std::chrono::floor<milliseconds>(parse_time(replies.at(0)));
  const auto seen = parse_times(replies.at(2));
  std::vector<StoredHostInfo> infos;
  for (auto& [host, info_json] : parse_pairs(replies.at(1))) {
    if (!is_host_name(host)) continue;
    StoredHostInfo stored{host, info_json.size() > kMaxInfoSize ? "" : std::move(info_json),
                          std::nullopt};
    if (const auto then = seen.find(host); then != seen.end()) {
      stored.age = std::max(now - then->second, milliseconds(0));
    }
    infos.push_back(std::move(stored));
  }
  std::sort(infos.begin(), infos.end(),
            [](const StoredHostInfo& a, const StoredHostInfo& b) { return a.host < b.host; });
  return infos;
}

Result<HeartbeatReply> RedisHostStore::send_ticket_heartbeat(const TicketName& ticket) {
  return parse_heartbeat_reply(
      TRY(run(scripts().heartbeat,
              {ticket.id, std::to_string(url_.ttl.count()), "tickets", recovery_time_ms()})));
}

Result<int> RedisHostStore::listen(const std::string& id) {
  if (ring_connection_ && ring_client_ == id) return ring_connection_->fd();
  ring_connection_ = TRY(RedisConnection::open(url_));
  ring_client_ = id;
  if (auto sent =
          ring_connection_->send({"BLPOP", fmt::format("{}:ring:{}", url_.prefix, id), "0"});
      !sent) {
    ring_connection_.reset();
    return tl::make_unexpected(sent.error());
  }
  return ring_connection_->fd();
}

bool RedisHostStore::receive_ring() {
  if (!ring_connection_) return false;
  const auto reply = ring_connection_->receive();
  if (reply && !*reply) return true;  // no complete ring yet
  const bool again =
      reply &&
      ring_connection_->send({"BLPOP", fmt::format("{}:ring:{}", url_.prefix, ring_client_), "0"});
  if (!again) ring_connection_.reset();
  return again;
}

Result<void> RedisHostStore::send_lease_heartbeat(const std::string& id) {
  if (!heartbeat_connection_) {
    auto opened = RedisConnection::open(url_);
    if (!opened) {
      if (opened.error().kind == ErrorKind::unavailable) session_.note_unavailable();
      return tl::make_unexpected(opened.error());
    }
    heartbeat_connection_ = std::move(*opened);
  }
  // By its source, not by its digest: nothing waits here for the reply of a server that does not
  // have the script.
  const auto key = keys();
  auto sent =
      heartbeat_connection_->send({"EVAL", scripts().heartbeat.source(), "2", key[0], key[1], id,
                                   std::to_string(url_.ttl.count()), "leases", recovery_time_ms()});
  if (!sent) {
    heartbeat_connection_.reset();
    return sent;
  }
  heartbeat_sent_at_ = Clock::now();
  return {};
}

std::optional<Result<HeartbeatReply>> RedisHostStore::poll_heartbeat() {
  if (!is_heartbeat_pending()) return std::nullopt;
  auto reply = heartbeat_connection_->receive();
  if (reply && !*reply) {
    if (Clock::now() - *heartbeat_sent_at_ < kRedisCommandTimeout) return std::nullopt;
    reply =
        fail(ErrorKind::unavailable, fmt::format("{} did not answer", format_redacted_url(url_)));
  }
  heartbeat_sent_at_.reset();
  if (!reply) {
    if (reply.error().kind == ErrorKind::unavailable) session_.note_unavailable();
    heartbeat_connection_.reset();
    return tl::make_unexpected(reply.error());
  }
  return parse_heartbeat_reply(**reply);
}

}  // namespace berth
