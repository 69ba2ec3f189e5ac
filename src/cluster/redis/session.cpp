// Connections that are kept and renewed; see session.h.
#include "cluster/redis/session.h"

#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <pthread.h>
#include <string_view>
#include <utility>

#include "base/mutex.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kJustAway(10);
constexpr std::chrono::seconds kSilent(1);

// What the sessions of this process leave to each other: of the last server that was asked.
struct Shared {
  Mutex mutex;
  std::string server GUARDED_BY(mutex);  // the whole URL
  std::optional<RedisConnection> connection GUARDED_BY(mutex);
  std::optional<std::string> run_id GUARDED_BY(mutex);
  std::optional<Clock::time_point> away_at GUARDED_BY(mutex);
};

// Never destroyed: a thread may outlive main(). A fork makes its own: another thread may have had
// the mutex at that moment, and is not there to unlock it.
std::atomic<Shared*> current{nullptr};

Shared& shared() {
  if (Shared* const one = current) return *one;
  static const int once = ::pthread_atfork(nullptr, nullptr, [] { current = nullptr; });
  (void)once;
  auto* const made = new Shared;
  Shared* other = nullptr;
  if (current.compare_exchange_strong(other, made)) return *made;
  delete made;
  return *other;
}

std::string key_of(const RedisUrl& url) {
  return fmt::format("{} {} {}", shown(url), url.user, url.password);
}

std::optional<RedisConnection> take_spare(const RedisUrl& url, std::optional<std::string>& run_id) {
  Shared& last = shared();
  const MutexLock lock(last.mutex);
  if (!last.connection || last.server != key_of(url)) return std::nullopt;
  run_id = last.run_id;
  return std::exchange(last.connection, std::nullopt);
}

void note(const RedisUrl& url, std::optional<Clock::time_point> away_at) {
  Shared& last = shared();
  const MutexLock lock(last.mutex);
  if (last.server != key_of(url)) last.connection.reset();
  last.server = key_of(url);
  last.away_at = away_at;
}

}  // namespace

RedisSession::RedisSession(RedisUrl url) : url_(std::move(url)) {}

RedisSession::~RedisSession() {
  if (!connection_) return;
  Shared& last = shared();
  const MutexLock lock(last.mutex);
  if (last.server != key_of(url_)) return;
  last.connection = std::move(connection_);
  last.run_id = std::move(run_id_);
}

bool RedisSession::was_just_away() const {
  Shared& last = shared();
  const MutexLock lock(last.mutex);
  return last.server == key_of(url_) && last.away_at && Clock::now() - *last.away_at < kJustAway;
}

void RedisSession::note_away() const {
  note(url_, Clock::now());
}

void RedisSession::disconnect() {
  connection_.reset();
}

Result<std::string> RedisSession::run_id() {
  constexpr std::string_view kName = "run_id:";
  if (connection_ && run_id_) return *run_id_;
  const auto info = call({"INFO", "server"});
  if (!info && info.error().kind == ErrorKind::unavailable) return tl::make_unexpected(info.error());
  const std::string text = info ? info->text() : "";
  const auto begin = text.find(kName);
  run_id_ = begin == std::string::npos
                ? ""
                : text.substr(begin + kName.size(),
                              text.find_first_of("\r\n", begin) - begin - kName.size());
  return *run_id_;
}

template <class AcquireRequest>
auto RedisSession::ask(AcquireRequest ask) -> decltype(ask(std::declval<RedisConnection&>())) {
  // A connection that was open may have been cut since: then the same again, on a new one.
  const auto begin = Clock::now();
  for (;;) {
    if (!connection_) connection_ = take_spare(url_, run_id_);
    const bool fresh = !connection_;
    if (fresh) {
      run_id_.reset();
      auto opened = RedisConnection::open(url_);
      if (!opened) {
        note(url_, Clock::now());
        return tl::make_unexpected(opened.error());
      }
      connection_ = std::move(*opened);
    }
    auto answer = ask(*connection_);
    if (answer) {
      note(url_, std::nullopt);
      return answer;
    }
    connection_.reset();
    if (answer.error().kind != ErrorKind::unavailable) return answer;
    note(url_, Clock::now());
    // One that was cut says so at once. One that is silent would be silent again.
    if (fresh || Clock::now() - begin > kSilent) return answer;
  }
}

Result<Reply> RedisSession::call(const RedisConnection::Words& words) {
  return ask([&](RedisConnection& server) { return server.call(words); });
}

Result<std::vector<Reply>> RedisSession::pipeline(
    const std::vector<RedisConnection::Words>& commands) {
  return ask([&](RedisConnection& server) { return server.pipeline(commands); });
}

Result<Reply> RedisSession::run(const Script& script, const std::vector<std::string>& keys,
                                const std::vector<std::string>& arguments) {
  return ask([&](RedisConnection& server) { return script.run(server, keys, arguments); });
}

}  // namespace berth
