// Connections that are reused, and renewed when they were cut; see session.h.
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

constexpr std::chrono::seconds kUnavailableWindow(10);
constexpr std::chrono::seconds kRetryWindow(1);

// What sessions of this process leave to later ones, for the server that was used last.
struct IdleConnection {
  Mutex mutex;
  std::string server_key GUARDED_BY(mutex);  // the URL with the login
  std::optional<RedisConnection> connection GUARDED_BY(mutex);
  std::optional<std::string> run_id GUARDED_BY(mutex);
  std::optional<Clock::time_point> unavailable_at GUARDED_BY(mutex);
};

// Never destroyed: a thread may outlive main(). A forked child creates its own: at the fork another
// thread may have held the mutex, and that thread does not exist in the child to unlock it.
std::atomic<IdleConnection*> idle_connection_of_process{nullptr};

IdleConnection& idle_connection() {
  if (IdleConnection* const existing = idle_connection_of_process) return *existing;
  static const int once =
      ::pthread_atfork(nullptr, nullptr, [] { idle_connection_of_process = nullptr; });
  (void)once;
  auto* const created = new IdleConnection;
  IdleConnection* existing = nullptr;
  if (idle_connection_of_process.compare_exchange_strong(existing, created)) return *created;
  delete created;
  return *existing;
}

std::string server_key(const RedisUrl& url) {
  return fmt::format("{} {} {}", format_redacted_url(url), url.user, url.password);
}

std::optional<RedisConnection> take_idle_connection(const RedisUrl& url,
                                                    std::optional<std::string>& run_id) {
  IdleConnection& idle = idle_connection();
  const MutexLock lock(idle.mutex);
  if (!idle.connection || idle.server_key != server_key(url)) return std::nullopt;
  run_id = idle.run_id;
  return std::exchange(idle.connection, std::nullopt);
}

void record_contact(const RedisUrl& url, std::optional<Clock::time_point> unavailable_at) {
  IdleConnection& idle = idle_connection();
  const MutexLock lock(idle.mutex);
  if (idle.server_key != server_key(url)) idle.connection.reset();
  idle.server_key = server_key(url);
  idle.unavailable_at = unavailable_at;
}

}  // namespace

RedisSession::RedisSession(RedisUrl url) : url_(std::move(url)) {}

RedisSession::~RedisSession() {
  if (!connection_) return;
  IdleConnection& idle = idle_connection();
  const MutexLock lock(idle.mutex);
  if (idle.server_key != server_key(url_)) return;
  idle.connection = std::move(connection_);
  idle.run_id = std::move(run_id_);
}

bool RedisSession::was_recently_unavailable() const {
  IdleConnection& idle = idle_connection();
  const MutexLock lock(idle.mutex);
  return idle.server_key == server_key(url_) && idle.unavailable_at &&
         Clock::now() - *idle.unavailable_at < kUnavailableWindow;
}

void RedisSession::note_unavailable() const {
  record_contact(url_, Clock::now());
}

void RedisSession::disconnect() {
  connection_.reset();
}

Result<std::string> RedisSession::run_id() {
  constexpr std::string_view kName = "run_id:";
  if (connection_ && run_id_) return *run_id_;
  const auto info = call({"INFO", "server"});
  if (!info && info.error().kind == ErrorKind::unavailable)
    return tl::make_unexpected(info.error());
  const std::string text = info ? info->text() : "";
  const auto begin = text.find(kName);
  run_id_ = begin == std::string::npos
                ? ""
                : text.substr(begin + kName.size(),
                              text.find_first_of("\r\n", begin) - begin - kName.size());
  return *run_id_;
}

template <class Operation>
auto RedisSession::run_with_retry(Operation operation)
    -> decltype(operation(std::declval<RedisConnection&>())) {
  // An open connection may have been cut since its last use: then repeat on a new one.
  const auto begin = Clock::now();
  for (;;) {
    if (!connection_) connection_ = take_idle_connection(url_, run_id_);
    const bool is_new = !connection_;
    if (is_new) {
      run_id_.reset();
      auto opened = RedisConnection::open(url_);
      if (!opened) {
        // A permanent error, such as a wrong password, is reported each time: it does not make the
        // server unavailable.
        if (opened.error().kind == ErrorKind::unavailable) record_contact(url_, Clock::now());
        return tl::make_unexpected(opened.error());
      }
      connection_ = std::move(*opened);
    }
    auto answer = operation(*connection_);
    if (answer) {
      record_contact(url_, std::nullopt);
      return answer;
    }
    connection_.reset();
    if (answer.error().kind != ErrorKind::unavailable) return answer;
    record_contact(url_, Clock::now());
    // A cut connection fails at once. A server that did not answer in time would not do so again.
    if (is_new || Clock::now() - begin > kRetryWindow) return answer;
  }
}

Result<Reply> RedisSession::call(const RedisCommand& command) {
  return run_with_retry([&](RedisConnection& server) { return server.call(command); });
}

Result<std::vector<Reply>> RedisSession::pipeline(const std::vector<RedisCommand>& commands) {
  return run_with_retry([&](RedisConnection& server) { return server.pipeline(commands); });
}

Result<Reply> RedisSession::run(const Script& script, const std::vector<std::string>& keys,
                                const std::vector<std::string>& arguments) {
  return run_with_retry(
      [&](RedisConnection& server) { return script.run(server, keys, arguments); });
}

}  // namespace berth
