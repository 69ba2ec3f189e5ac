// Scripts and their replies; see part.h.
#include "cluster/store/redis_store.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/configuration.h"
#include "base/uid_map.h"
#include "base/users.h"
#include "cluster/store/redis_scripts.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

Script script(std::string_view body) {
  return Script(fmt::format("{}{}", kScriptStart, body));
}

struct Scripts {
  Script commit = script(kCommit);
  Script release = script(kRelease);
  Script leave = script(kLeave);
  Script ring_front = script(kRingFront);
  Script beat = script(kBeat);
  Script birth = script(kBirth);
  Script publish = script(kPublish);
};

const Scripts& scripts() {
  static const Scripts all;
  return all;
}

template <class Number>
std::optional<Number> number(const std::string& text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc{} || stop != end) return std::nullopt;
  return value;
}

milliseconds ms(const std::string& text) {
  return milliseconds(number<std::int64_t>(text).value_or(0));
}

// The i-th of a list; nothing that was not there is nil.
const Reply& at(const Reply& reply, std::size_t i) {
  static const Reply nil;
  return i < reply.list().size() ? reply.list()[i] : nil;
}

std::vector<TicketName> queue_of(const Reply& reply) {
  std::vector<TicketName> queue;
  const auto& list = reply.list();
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    const auto order = number<std::uint64_t>(list[i + 1].text());
    if (order && is_id(list[i].text())) queue.push_back({*order, list[i].text()});
  }
  return queue;
}

std::vector<std::pair<std::string, std::string>> pairs_of(const Reply& reply) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto& list = reply.list();
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    pairs.emplace_back(list[i].text(), list[i + 1].text());
  }
  return pairs;
}

std::map<std::string, milliseconds> times_of(const Reply& reply) {
  std::map<std::string, milliseconds> times;
  for (const auto& [id, time] : pairs_of(reply)) times.emplace(id, ms(time));
  return times;
}

// What TIME says.
std::chrono::microseconds time_of(const Reply& reply) {
  return std::chrono::microseconds(number<std::uint64_t>(at(reply, 0).text()).value_or(0) *
                                       1'000'000 +
                                   number<std::uint64_t>(at(reply, 1).text()).value_or(0));
}

// The tickets that a decision looks at: the first ones, and those around its own.
std::vector<std::string> in_range(const TicketRange& range, const StoreSnapshot& sight) {
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < sight.queue.size(); ++i) {
    const bool around = i + range.around >= sight.place && i <= sight.place + range.around;
    if (i < range.front || around) ids.push_back(sight.queue[i].id);
  }
  return ids;
}

// Of the tickets that were asked for, those that are wanted.
std::vector<StoreEntry> found_tickets(const std::vector<std::string>& asked, const Reply& reply,
                                     const std::vector<std::string>& wanted,
                                     const StoreSnapshot& sight) {
  const std::set<std::string_view> ids(wanted.begin(), wanted.end());
  std::vector<StoreEntry> found;
  found.reserve(asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!ids.contains(asked[i])) continue;
    found.push_back(sight.entry(asked[i], at(reply, i).text()));
  }
  return found;
}

Json or_nothing(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(false);  // which Lua has for nothing; null would be userdata
}

std::string as_json(const StoreChange& change, const RedisHostStore& part) {
  const Json json{{"id", change.id},
                  {"ttl", part.url().ttl.count()},
                  {"lease", or_nothing(change.lease)},
                  {"version", change.version},
                  {"born", change.server_epoch},
                  {"settled", change.settled},
                  {"epoch", std::to_string(change.epoch)},
                  {"host", part.host()},
                  {"instead_of", or_nothing(change.instead_of)},
                  {"tail", or_nothing(change.tail)},
                  {"ticket", or_nothing(change.ticket)},
                  {"order", change.order ? Json(std::to_string(*change.order)) : Json(false)},
                  {"leave", change.leave},
                  {"put_back", change.put_back},
                  {"remove", change.remove},
                  {"remove_tickets", change.remove_tickets},
                  {"silent", change.silent},
                  {"grace", kSilenceGrace.count()},
                  {"ended", change.ended},
                  {"beats", change.beats},
                  {"drains", change.drains},
                  {"undrains", change.undrains},
                  {"rings", change.rings}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<Beat> beat_of(const Reply& reply) {
  if (reply.text() == "ended") return Beat::ended;
  if (reply.text() == "rung") return Beat::rung;
  return reply.text() == "heard" ? Beat::heard : Beat::missing;
}

}  // namespace

StoreEntry StoreSnapshot::entry(const std::string& id, const std::string& record) const {
  StoreEntry entry{id, record.size() > kLargestRecord ? "" : record, kSilenceGrace - now,
                  std::nullopt};
  if (const auto beat = beats.find(id); beat != beats.end()) entry.left += beat->second;
  if (const auto ring = rung.find(id); ring != rung.end()) entry.unheard = now - ring->second;
  return entry;
}

std::string write_shared_record(Record record) {
  record.uid = uid_outside(record.uid).value_or(record.uid);
  return write_record(record);
}

Result<Record> read_shared_record(std::string_view text) {
  auto record = read_record(text);
  if (record) record->uid = uid_inside(record->uid).value_or(overflow_uid());
  return record;
}

bool StoreChange::is_empty() const {
  return !lease && !ticket && !leave && put_back.empty() && remove.empty() &&
         remove_tickets.empty() && ended.empty() && beats.empty() && drains.empty() &&
         undrains.empty() && rings.empty();
}

void TicketRange::extend(std::size_t index, std::size_t place) {
  constexpr std::size_t kFactor = 4;  // few repetitions, also where the queue is very long
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

std::string RedisHostStore::settle_time() const {
  return std::to_string((beat_interval() + kSettleGrace).count());
}

std::vector<std::string> RedisHostStore::keys() const {
  return {fmt::format("{}:", url_.prefix), fmt::format("{}:{}", url_.prefix, host_)};
}

Result<Reply> RedisHostStore::run(const Script& script, const std::vector<std::string>& arguments) {
  return session_.run(script, keys(), arguments);
}

void RedisHostStore::try_to(const Script& script, const std::vector<std::string>& arguments) {
  if (session_.was_just_away()) return;
  (void)run(script, arguments);
}

Result<StoreSnapshot> RedisHostStore::look(const std::string& client, const std::string& directory_id) {
  const bool decides = !client.empty();
  const auto key = [part = keys()[1]](const char* name) {
    return fmt::format("{}:{}", part, name);
  };
  std::vector<RedisConnection::Words> questions{{"MULTI"},
                                                {"TIME"},
                                                {"GET", key("version")},
                                                {"HGETALL", key("leases")},
                                                {"ZRANGE", key("queue"), "0", "-1", "WITHSCORES"},
                                                {"HGETALL", key("beats")},
                                                {"HGETALL", key("rung")},
                                                {"HGETALL", key("drains")},
                                                {"GET", fmt::format("{}:born", url_.prefix)},
                                                {"GET", key("settles")}};
  if (decides) {
    questions.push_back({"EXISTS", fmt::format("{}:ended:{}", url_.prefix, client)});
    questions.push_back({"DEL", fmt::format("{}:ring:{}", url_.prefix, client)});
    questions.push_back({"HDEL", key("rung"), client});
    // Its own ticket, and those that were near the last time, of which most are so again: then that
    // is one round trip less.
    if (std::find(near_.begin(), near_.end(), client) == near_.end()) near_.push_back(client);
    questions.push_back(ticket_question(near_));
  } else {
    questions.push_back({"HGETALL", key("tickets")});
  }
  questions.push_back({"EXEC"});
  auto replies = session_.pipeline(questions);
  if (!replies) return tl::make_unexpected(replies.error());
  const auto answer = [&all = replies->back()](std::size_t i) -> const Reply& {
    return at(all, i);
  };
  const std::chrono::microseconds now = time_of(answer(0));
  StoreSnapshot sight;
  sight.version = answer(1).is_nil() ? "0" : answer(1).text();
  sight.epoch = std::max(number<std::uint64_t>(sight.version).value_or(0) + 1,
                         static_cast<std::uint64_t>(now.count()));
  sight.now = std::chrono::floor<milliseconds>(now);
  sight.beats = times_of(answer(4));
  sight.rung = times_of(answer(5));
  for (auto& [id, record] : pairs_of(answer(2))) sight.leases.push_back(sight.entry(id, record));
  sight.queue = queue_of(answer(3));
  std::sort(sight.queue.begin(), sight.queue.end());
  const auto own = std::find_if(sight.queue.begin(), sight.queue.end(),
                                [&](const TicketName& name) { return name.id == client; });
  sight.place = static_cast<std::size_t>(own - sight.queue.begin());
  const auto& members = answer(3).list();
  if (members.size() >= 2) sight.tail = members[members.size() - 2].text();
  sight.drains = pairs_of(answer(6));
  sight.server_epoch = answer(7).text();
  sight.settled = answer(8).text();
  if (!decides) {
    std::map<std::string, std::string> records;
    for (auto& [id, record] : pairs_of(answer(9))) records.emplace(id, std::move(record));
    for (const TicketName& name : sight.queue) {
      sight.tickets.push_back(sight.entry(name.id, records[name.id]));
    }
    sight.all_tickets = true;
    return sight;
  }
  sight.ended = answer(9).integer().value_or(0) != 0;
  if (auto settled = settle(sight, directory_id); !settled) return tl::make_unexpected(settled.error());
  auto near = in_range(range_, sight);
  range_.shrink();
  sight.all_tickets = near.size() == sight.queue.size();
  sight.tickets = found_tickets(near_, answer(12), near, sight);
  const std::set<std::string> read(near_.begin(), near_.end());
  std::vector<std::string> missing;
  for (const std::string& id : near) {
    if (!read.contains(id)) missing.push_back(id);
  }
  near_ = std::move(near);
  auto more = tickets(missing, sight);
  if (!more) return tl::make_unexpected(more.error());
  sight.tickets.insert(sight.tickets.end(), std::make_move_iterator(more->begin()),
                       std::make_move_iterator(more->end()));
  return sight;
}

Result<void> RedisHostStore::settle(StoreSnapshot& sight, const std::string& directory_id) {
  const bool silent =
      std::any_of(sight.leases.begin(), sight.leases.end(), [&](const StoreEntry& lease) {
        if (lease.left.count() > 0) return false;
        const auto record = read_record(lease.record);
        return !record || record->directory_id.empty() || record->directory_id != directory_id;
      });
  const auto server = session_.run_id();
  if (!server) return tl::make_unexpected(server.error());
  const auto settled_at = [&sight] {
    return std::max(ms(sight.server_epoch.substr(sight.server_epoch.find(' ') + 1)), ms(sight.settled));
  };
  // Further ahead than anybody can have said: the server's clock was set back.
  const bool too_far = settled_at() - sight.now > beat_interval() + kSettleGrace;
  if (silent || too_far || !sight.server_epoch.starts_with(*server + " ")) {
    auto server_epoch = run(scripts().birth, {*server, settle_time(), std::to_string(url_.ttl.count())});
    if (!server_epoch) return tl::make_unexpected(server_epoch.error());
    sight.server_epoch = at(*server_epoch, 0).text();
    sight.settled = at(*server_epoch, 1).text();
  }
  sight.settles = std::max(settled_at() - sight.now, milliseconds(0));
  return {};
}

Result<std::vector<StoreEntry>> RedisHostStore::tickets(const std::vector<std::string>& ids,
                                                 const StoreSnapshot& sight) {
  if (ids.empty()) return std::vector<StoreEntry>{};
  const auto question = ticket_question(ids);
  auto reply = session_.call(question);
  if (!reply) return tl::make_unexpected(reply.error());
  return found_tickets(ids, *reply, ids, sight);
}

void RedisHostStore::read_further(const StoreSnapshot& sight, std::size_t index) {
  range_.extend(index, sight.place);
}

RedisConnection::Words RedisHostStore::ticket_question(const std::vector<std::string>& ids) const {
  RedisConnection::Words words{"HMGET", fmt::format("{}:tickets", keys()[1])};
  words.insert(words.end(), ids.begin(), ids.end());
  return words;
}

Result<StoreOutcome> RedisHostStore::commit(const StoreChange& change) {
  auto reply = run(scripts().commit, {as_json(change, *this)});
  if (!reply) return tl::make_unexpected(reply.error());
  StoreOutcome outcome;
  outcome.done = at(*reply, 0).integer() == 1;
  outcome.order = number<std::uint64_t>(at(*reply, 1).text());
  for (const Reply& id : at(*reply, 2).list()) outcome.removed.push_back(id.text());
  if (!change.lease || !outcome.done) return outcome;
  // A connection that was cut has been renewed on the way: to a server, perhaps, that was started
  // again or has taken over, and has lost what was granted after our sight.
  const auto server = session_.run_id();
  if (!server) return tl::make_unexpected(server.error());
  if (!change.server_epoch.starts_with(*server + " ")) {
    release(change.id);
    outcome.done = false;
  }
  return outcome;
}

void RedisHostStore::release(const std::string& id) {
  try_to(scripts().release, {id, std::to_string(kSilenceGrace.count())});
}

void RedisHostStore::leave(const std::string& id) {
  try_to(scripts().leave, {id});
}

void RedisHostStore::ring_front() {
  try_to(scripts().ring_front, {std::to_string(kSilenceGrace.count())});
}

Result<std::optional<RedisHostStore::Claim>> RedisHostStore::claim_of(const std::string& ticket) {
  auto reply = session_.call({"GET", fmt::format("{}:claim:{}", url_.prefix, ticket)});
  if (!reply) return tl::make_unexpected(reply.error());
  const auto blank = reply->text().find(' ');
  if (blank == std::string::npos) return std::nullopt;
  return Claim{reply->text().substr(0, blank), reply->text().substr(blank + 1)};
}

void RedisHostStore::publish(const std::string& card) {
  try_to(scripts().publish, {host_, card});
}

Result<std::vector<StoredHostInfo>> RedisHostStore::cards() {
  constexpr std::size_t kLargestCard = 1 << 20;
  const std::vector<RedisConnection::Words> questions{
      {"TIME"},
      {"HGETALL", fmt::format("{}:hosts", url_.prefix)},
      {"HGETALL", fmt::format("{}:seen", url_.prefix)}};
  auto replies = session_.pipeline(questions);
  if (!replies) return tl::make_unexpected(replies.error());
  const auto now = std::chrono::floor<milliseconds>(time_of(replies->at(0)));
  const auto seen = times_of(replies->at(2));
  std::map<std::string, StoredHostInfo> sorted;
  for (auto& [host, card] : pairs_of(replies->at(1))) {
    if (!is_host_name(host)) continue;
    StoredHostInfo one{host, card.size() > kLargestCard ? "" : std::move(card), std::nullopt};
    if (const auto then = seen.find(host); then != seen.end()) {
      one.age = std::max(now - then->second, milliseconds(0));
    }
    sorted.emplace(host, std::move(one));
  }
  std::vector<StoredHostInfo> cards;
  cards.reserve(sorted.size());
  for (auto& [host, card] : sorted) cards.push_back(std::move(card));
  return cards;
}

Result<Beat> RedisHostStore::beat(const TicketName& ticket) {
  auto reply =
      run(scripts().beat, {ticket.id, std::to_string(url_.ttl.count()), "tickets", settle_time()});
  if (!reply) return tl::make_unexpected(reply.error());
  return beat_of(*reply);
}

Result<int> RedisHostStore::listen(const std::string& id) {
  if (ring_connection_ && listens_for_ == id) return ring_connection_->fd();
  auto opened = RedisConnection::open(url_);
  if (!opened) return tl::make_unexpected(opened.error());
  ring_connection_ = std::move(*opened);
  listens_for_ = id;
  if (auto sent = ring_connection_->send({"BLPOP", fmt::format("{}:ring:{}", url_.prefix, id), "0"}); !sent) {
    ring_connection_.reset();
    return tl::make_unexpected(sent.error());
  }
  return ring_connection_->fd();
}

bool RedisHostStore::receive_ring() {
  if (!ring_connection_) return false;
  const auto reply = ring_connection_->receive();
  if (reply && !*reply) return true;  // not yet
  const bool again =
      reply && ring_connection_->send({"BLPOP", fmt::format("{}:ring:{}", url_.prefix, listens_for_), "0"});
  if (!again) ring_connection_.reset();
  return again;
}

Result<void> RedisHostStore::send_beat(const std::string& id) {
  if (!heartbeat_connection_) {
    auto opened = RedisConnection::open(url_);
    if (!opened) {
      session_.note_away();
      return tl::make_unexpected(opened.error());
    }
    heartbeat_connection_ = std::move(*opened);
  }
  // By its source: the answer that a server which does not know it would give comes too late.
  const auto key = keys();
  auto sent = heartbeat_connection_->send({"EVAL", scripts().beat.source(), "2", key[0], key[1], id,
                            std::to_string(url_.ttl.count()), "leases", settle_time()});
  if (!sent) {
    heartbeat_connection_.reset();
    return sent;
  }
  beat_sent_ = Clock::now();
  return {};
}

std::optional<Result<Beat>> RedisHostStore::poll_heartbeat() {
  if (!is_beating()) return std::nullopt;
  auto reply = heartbeat_connection_->receive();
  if (reply && !*reply) {
    if (Clock::now() - *beat_sent_ < kRedisCommandTimeout) return std::nullopt;
    reply = fail(ErrorKind::unavailable, fmt::format("{} does not answer", shown(url_)));
  }
  beat_sent_.reset();
  if (!reply) {
    session_.note_away();
    heartbeat_connection_.reset();
    return tl::make_unexpected(reply.error());
  }
  return beat_of(**reply);
}

}  // namespace berth
