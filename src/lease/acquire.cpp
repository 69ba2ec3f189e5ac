// Waiting and claiming; see acquire.h.
#include "lease/acquire.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <random>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "archive/folder.h"
#include "base/pid_namespace.h"
#include "base/process.h"
#include "base/rate_limiter.h"
#include "base/text.h"
#include "base/users.h"
#include "cluster/store/hosts.h"
#include "harbour/bell.h"
#include "harbour/setup.h"
#include "lease/decision.h"
#include "lease/gpu_selection.h"
#include "lease/lease_history.h"
#include "lease/sublease.h"
#include "status/explain.h"

namespace berth {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kAskDriverAgain(2);         // for what only the driver can tell
constexpr seconds kAskDriverLater(8);         // the same, where a ticket before this one asks, too
constexpr milliseconds kAskServerAgain(500);  // that is away; with as much by chance
constexpr seconds kUnclaimed(1);              // time for a granted ticket before this one to claim
constexpr seconds kLookLater(1);              // after the end of a lease that others should notice
constexpr seconds kSecondWatcher(5);  // then the first ticket sees to it that there is a second
constexpr seconds kAuditAtLeast(30);  // the safety net
constexpr seconds kAuditSpread(30);
constexpr std::size_t kNearTheFront = 3;
constexpr const char* kSettling =
    "Redis is new to berth, was restarted, or was away; leases that it may have lost are being put "
    "back";

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class AcquireLoop {
 public:
  AcquireLoop(Probe& probe, Harbour harbour, AcquireRequest ask, const Hooks& hooks)
      : probe_(probe), harbour_(std::move(harbour)), ask_(std::move(ask)), hooks_(hooks) {
    if (ask_.timeout) deadline_ = begin_ + *ask_.timeout;
    // Who does not want to wait is told after a moment who keeps the lock.
    if (!ask_.no_wait) patience_.limit = std::chrono::hours(24 * 365);
    patience_.give_up = [this] { return gave_up_ = interrupted() || late(); };
    patience_.on_slow = [this](const std::string& holder) {
      notice("the harbour is locked by " + holder + "; waiting for it");
    };
  }

  AcquireLoop(const AcquireLoop&) = delete;
  AcquireLoop& operator=(const AcquireLoop&) = delete;
  ~AcquireLoop() { leave(); }

  Result<std::optional<Lease>> run() {
    if (auto entered = enter(); !entered) return tl::make_unexpected(entered.error());
    for (;;) {
      // Before the driver is asked, which may take seconds: an unread bell means that this process
      // does not run.
      me_.rung = quiet(me_.bell.get()) || me_.rung;
      auto snapshot = probe_.snapshot();
      if (interrupted()) return std::nullopt;
      if (!snapshot) {
        if (try_again(snapshot.error())) continue;
        if (interrupted()) return std::nullopt;
        return tl::make_unexpected(snapshot.error());
      }
      // Once: indices may change later, UUIDs do not.
      if (!std::exchange(restricted_, true)) {
        auto chosen = restrict_choice(me_.record.request, ask_, snapshot->gpus);
        if (!chosen) return tl::make_unexpected(chosen.error());
        will_do_ = me_.record.request.uuids;
      }
      const auto waited = me_.record.profiles ? me_.ticket : std::nullopt;
      if (ask_.learning) consider_learned(snapshot->gpus);
      const bool too_few = ask_.selector && !select(snapshot->gpus);
      if (ask_.selector && interrupted()) return std::nullopt;  // it may have raised
      if (me_.record.request.count > 1) topology_ = probe_.topology().value_or(Topology{});
      auto decision = decide(harbour_, me_, *snapshot, topology_, patience_);
      if (waited && !me_.record.profiles) wake_next_waiter(harbour_, me_.record, *waited);
      if (decision) archive_dead(harbour_.location(), decision->dead, snapshot->gpus);
      if (interrupted()) return std::nullopt;
      if (!decision) {
        const bool away = decision.error().kind == ErrorKind::unavailable;
        unsure_ = unsure_ || away;
        if (try_again(decision.error())) continue;
        if (interrupted()) return std::nullopt;
        if (!gave_up_ && !(away && late())) return tl::make_unexpected(decision.error());
        return fail(ErrorKind::not_granted,
                    fmt::format("not granted within {}: {}", format_duration(*ask_.timeout),
                                decision.error().message));
      }
      troubles_ = 0;
      if (!decision->scene.gpus.empty() && !std::exchange(published_, true)) {
        publish(harbour_, decision->scene, snapshot->driver_version);
      }
      if (decision->stale) {
        if (last_news_.reason.empty()) last_news_.reason = "others were faster each time";
        if (late()) return tl::make_unexpected(not_granted(last_news_));
        pace_.keep(hooks_.interrupt);  // whatever keeps refusing us
        continue;
      }
      if (decision->cancelled) {
        return fail(ErrorKind::not_granted,
                    "this ticket was taken out of the queue (berth cancel)");
      }
      if (decision->impossible && too_few) {
        const WaitNews news = tell(selector_news(snapshot->gpus.size()));
        if (!me_.may_wait || late()) return tl::make_unexpected(not_granted(news));
        pause(kAskDriverAgain);
        continue;
      }
      if (decision->impossible) {
        return tl::make_unexpected(
            explain_impossible(*decision->impossible, me_.record.request, decision->scene));
      }
      if (decision->granted) {
        return Lease(std::move(harbour_), std::move(me_.record), std::move(me_.bell).shared(),
                     std::move(snapshot->gpus));
      }
      const WaitNews news =
          tell({decision->position, decision->length,
                decision->settles.count() > 0
                    ? kSettling
                    : explain_wait(decision->wait, me_.record.request, decision->scene),
                decision->wait.starts});
      if (!me_.may_wait || late()) return tl::make_unexpected(not_granted(news));
      if (!decision->front) probe_.rest();
      snapshot_ = std::move(*snapshot);
      wait(*decision);
      pace_.keep(hooks_.interrupt);  // anybody may ring us without end
      if (interrupted()) return std::nullopt;
      if (late()) return tl::make_unexpected(not_granted(news));
    }
  }

 private:
  Result<void> enter() {
    auto bell = harbour_.make_bell();
    if (!bell) return tl::make_unexpected(bell.error());
    me_.bell = std::move(bell->fd);
    me_.may_wait = !ask_.no_wait && !(ask_.timeout && ask_.timeout->count() == 0);
    me_.instead_of = ask_.instead_of;
    me_.record = make_record(ask_, std::move(bell->id));
    me_.record.directory_id = harbour_.directory_id();
    return {};
  }

  // Who has waited for hours does not lose its place because the driver is being updated, or the
  // host was out of descriptors for a moment. For a server that is away one waits from the start.
  // True once it is time to look again.
  bool try_again(const Error& error) {
    const bool away = error.kind == ErrorKind::unavailable;
    if (late() || !(me_.ticket || (away && me_.may_wait))) return false;
    if (std::exchange(last_trouble_, error.message) != error.message) {
      notice(fmt::format("{}; {}trying again", error.message,
                         me_.ticket ? "keeping the place in the queue, and " : ""));
    }
    // Longer and longer, so that who is behind finds out that we do not answer, and passes.
    constexpr unsigned kMostDoublings = 3;
    const auto first = away ? kAskServerAgain : milliseconds(kAskDriverAgain);
    const auto spread = away ? milliseconds(random_() % kAskServerAgain.count()) : milliseconds(0);
    pause(first * (1U << std::min(troubles_++, kMostDoublings)) + spread);
    return !interrupted() && !late();
  }

  // Until somebody interrupts it or the time for the whole is up.
  void pause(Clock::duration length) const {
    std::vector<pollfd> watched;
    if (hooks_.interrupt >= 0) watched.push_back({hooks_.interrupt, POLLIN, 0});
    auto until = Clock::now() + length;
    if (deadline_) until = std::min<Clock::time_point>(until, *deadline_);
    sleep(watched, until);
  }

  // What is known of this type may have changed while we waited.
  void consider_learned(const std::vector<Gpu>& gpus) {
    if (!ask_.learning->memory && std::exchange(learned_, true)) return;
    const bool changed = fit(me_.record, *ask_.learning, gpus, harbour_.location());
    me_.changed = me_.changed || changed;
  }

  // Narrows the choice to what the selector takes now. Whether that is enough, or no selector could
  // take more: then it is for the scheduler to say what is wrong.
  bool select(const std::vector<Gpu>& gpus) {
    Request& request = me_.record.request;
    const auto before = std::exchange(request.uuids, will_do_);
    narrow(request, ask_.selector());
    me_.changed = me_.changed || request.uuids != before;
    const std::size_t most = will_do_ ? will_do_->size() : gpus.size();
    return request.uuids->size() >= request.count || most < request.count;
  }

  WaitNews selector_news(std::size_t all) const {
    const std::size_t chosen = me_.record.request.uuids->size();
    return {0, 0,
            fmt::format("the selector takes {} of {} GPUs as they are now, and {} {} asked for",
                        chosen, will_do_ ? will_do_->size() : all, me_.record.request.count,
                        me_.record.request.count == 1 ? "is" : "are"),
            std::nullopt};
  }

  WaitNews tell(WaitNews news) {
    if (me_.may_wait && news != last_news_ && hooks_.on_wait) hooks_.on_wait(news);
    last_news_ = news;
    return news;
  }

  void notice(const std::string& text) const {
    if (hooks_.on_notice) hooks_.on_notice(text);
  }

  Error not_granted(const WaitNews& news) const {
    if (ask_.no_wait || !deadline_) {
      return {ErrorKind::not_granted,
              fmt::format("not granted now, and {} was given: {}",
                          argument_name("--no-wait", ask_.spelling), news.reason)};
    }
    return {ErrorKind::not_granted,
            fmt::format("not granted within {}: {}; a longer {} waits longer",
                        format_duration(*ask_.timeout), news.reason,
                        argument_name("--timeout", ask_.spelling))};
  }

  bool late() const { return deadline_ && Clock::now() >= *deadline_; }

  bool interrupted() {
    leaving_ = leaving_ || is_fork();
    if (hooks_.interrupt < 0 || leaving_) return leaving_;
    pollfd entry{hooks_.interrupt, POLLIN, 0};
    if (::poll(&entry, 1, 0) <= 0) return false;
    leaving_ = !hooks_.leaves || hooks_.leaves() || is_fork();
    return leaving_;
  }

  // A hook is the caller's code, which may fork: the child returns here, and the ticket and the
  // lock are its parent's.
  bool is_fork() const { return ::getpid() != process_; }

  // Sleeps until something has changed that may let us through. The next decision finds out what it
  // was.
  void wait(Decision& decision) {
    if (is_fork()) return;
    std::vector<pollfd> watched{{me_.bell.get(), POLLIN, 0}};
    if (hooks_.interrupt >= 0) watched.push_back({hooks_.interrupt, POLLIN, 0});
    if (harbour_.is_shared() && !listen(watched)) return;
    for (const UniqueFd& bell : decision.neighbours) watched.push_back({bell.get(), 0, 0});
    const std::vector<UniqueFd> strangers = watch_strangers(decision);
    for (const UniqueFd& stranger : strangers) watched.push_back({stranger.get(), POLLIN, 0});
    const std::size_t leases = watched.size();  // they stand behind the others
    for (const UniqueFd& bell : decision.bells) watched.push_back({bell.get(), 0, 0});
    auto second_watcher = Clock::now() + kSecondWatcher;
    for (;;) {
      auto until = Clock::now() + audit_after();
      if (deadline_) until = std::min(until, *deadline_);
      if (decision.decide_again) until = std::min(until, *decision.decide_again);
      if (decision.unclaimed && !decision.decide_again) {
        until = std::min(until, Clock::now() + kUnclaimed);
      }
      if (ask_driver_) until = std::min(until, Clock::now() + *ask_driver_);
      if (decision.look_again) until = std::min(until, Clock::now() + *decision.look_again);
      if (!decision.behind.empty()) until = std::min(until, second_watcher);
      if (sleep_and_beat(watched, until)) {
        const bool others_notice = !decision.front && !harbour_.is_shared();
        if (!others_notice || any_ready(watched, leases)) return;
        watched.resize(leases);
        if (sleep(watched, Clock::now() + kLookLater) || !look_again(decision)) return;
        for (const UniqueFd& bell : decision.bells) watched.push_back({bell.get(), 0, 0});
        continue;
      }
      const bool timing = decision.unclaimed || decision.decide_again;
      if (!decision.behind.empty() && Clock::now() >= second_watcher) {
        for (const UniqueFd& bell : decision.behind) ring(bell.get());
        decision.behind.clear();
        if (!timing && !ask_driver_ && !late()) continue;
      }
      if (decision.front || late() || timing || ask_driver_ || decision.look_again) return;
      if (!all_is_well(decision)) return;
    }
  }

  static bool any_ready(const std::vector<pollfd>& watched, std::size_t first) {
    return std::any_of(watched.begin(), watched.begin() + static_cast<std::ptrdiff_t>(first),
                       [](const pollfd& one) { return one.revents != 0; });
  }

  // A lease has ended, which the first two tickets of the queue notice, too. They may be another
  // user's, and do nothing about it. False if a ticket could be granted GPUs that it has not
  // claimed: then it is time to decide. Does not ask the driver.
  bool look_again(Decision& decision) {
    auto seen = look(harbour_, me_, snapshot_, topology_, patience_);
    if (!seen || seen->unclaimed || seen->front || seen->unwatched) return false;
    decision.bells = std::move(seen->bells);
    decision.look_again = seen->look_again;
    return true;
  }

  // Hears rings from now on; false if nobody can, and it is time to look again.
  bool listen(std::vector<pollfd>& watched) {
    const auto ears = harbour_.part()->listen(me_.record.id);
    if (ears) {
      watched.push_back({*ears, POLLIN, 0});
    } else {
      pause(kAskServerAgain);
    }
    return ears.has_value();
  }

  // The same as sleep(), and says meanwhile that we live, where that must be said. What is lost
  // there, or was told to end, has happened, too.
  bool sleep_and_beat(std::vector<pollfd>& watched, Clock::time_point until) {
    RedisHostStore* part = harbour_.part();
    if (part == nullptr) return sleep(watched, until);
    for (;;) {
      const auto beat_at = beaten_ + part->beat_interval();
      if (sleep(watched, std::min(until, beat_at))) {
        (void)part->receive_ring();
        return true;
      }
      if (Clock::now() >= beat_at) {
        beaten_ = Clock::now();
        const auto heard = part->beat(me_.ticket.value_or(TicketName{0, me_.record.id}));
        if (!heard || *heard != Beat::heard) return true;
      }
      if (Clock::now() >= until) return false;
    }
  }

  // True if something happened before `until`.
  static bool sleep(std::vector<pollfd>& watched, Clock::time_point until) {
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      const int timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
      const int ready = ::poll(watched.data(), watched.size(), timeout);
      if (ready > 0) return true;
      if (ready == 0 && left <= timeout) return false;
      if (ready < 0 && errno != EINTR) return false;  // more of them than RLIMIT_NOFILE, say
    }
  }

  // What the slow audit of a waiter far back asks: cheap, since there may be a thousand.
  bool all_is_well(const Decision& decision) {
    if (decision.watches) return false;  // no other ticket watches for this one
    if (!harbour_.has_bell(me_.record.id, me_.bell.get())) return false;
    if (!decision.before) return true;
    // If it is stopped, so may be all before it, and then only this client could notice a death.
    if (!harbour_.has_ticket(*decision.predecessor) || is_unresponsive(*decision.before) ||
        me_.stopped.read({decision.before->record})) {
      return false;
    }
    // Whether clients are stopped that cannot be seen (containers, hidepid), only a decision finds
    // out. Clients near the front take one, the others by chance, so that there are few in any
    // case.
    const std::size_t position = decision.position;  // as it was then; it only becomes less
    return position > kNearTheFront && random_() % position >= kNearTheFront;
  }

  // Strangers are watched by the first ticket that they block, and by every client that relies on
  // no other ticket. A stranger that cannot be watched (in a container, or a process that is gone
  // while the driver still shows its memory) is asked for.
  std::vector<UniqueFd> watch_strangers(const Decision& decision) {
    ask_driver_.reset();
    std::vector<UniqueFd> handles;
    if (decision.unwatched) ask_driver_ = kAskDriverAgain;  // and the harbour with it
    const bool see_pids = in_host_pid_namespace();
    for (const Blocker& obstacle : decision.wait.obstacles) {
      const bool first = decision.front || decision.looks_after.contains(obstacle.uuid);
      if (!first && !decision.watches) continue;
      const milliseconds interval(first ? kAskDriverAgain : kAskDriverLater);
      const auto ask = [&] { ask_driver_ = std::min(ask_driver_.value_or(interval), interval); };
      if (obstacle.hindrance == BlockReason::busy) ask();
      for (const GpuWithLeases& placed : decision.scene.gpus) {
        if (placed.gpu.uuid != obstacle.uuid) continue;
        // A client that takes a GPU back into service rings; of its health only the driver knows.
        if (obstacle.hindrance == BlockReason::unusable && !placed.drain) ask();
        if (obstacle.hindrance != BlockReason::strangers && obstacle.hindrance != BlockReason::memory) {
          continue;
        }
        if (placed.unexplained || placed.gpu.memory_is_hosts) ask();
        for (const AttributedProcess& one : placed.processes) {
          if (!one.stranger()) continue;
          UniqueFd handle;
          if (see_pids) handle = open_process(static_cast<pid_t>(one.process.pid));
          // One that has ended and was not reaped yet would wake us again and again.
          if (handle && !has_ended(handle)) {
            handles.push_back(std::move(handle));
            continue;
          }
          ask();
          // It ended between the snapshot and now: look again at once, but only once for it.
          const bool news = first && see_pids && gone_.insert(one.process.pid).second;
          if (news) ask_driver_ = milliseconds(0);
        }
      }
    }
    return handles;
  }

  Clock::duration audit_after() {
    return kAuditAtLeast + milliseconds(random_() % milliseconds(kAuditSpread).count());
  }

  // Out of the queue. The one behind watches our bell, and notices.
  void leave() {
    if (!me_.bell || is_fork()) return;
    if (me_.ticket || unsure_) {
      harbour_.remove(me_.record.id, me_.ticket);
    } else {
      harbour_.remove_bell(me_.record.id);
    }
    me_.bell.reset();
  }

  Probe& probe_;
  Harbour harbour_;
  AcquireRequest ask_;
  const Hooks& hooks_;
  PendingClient me_;
  Snapshot snapshot_;  // of the last decision
  Topology topology_;
  Patience patience_;
  Clock::time_point begin_ = Clock::now();
  std::optional<Clock::time_point> deadline_;
  RateLimiter pace_;
  bool restricted_ = false;
  bool learned_ = false;
  bool published_ = false;
  std::optional<std::vector<std::string>> will_do_;  // of which the selector chooses
  bool leaving_ = false;
  WaitNews last_news_;
  std::string last_trouble_;
  unsigned troubles_ = 0;  // one after the other
  bool gave_up_ = false;   // waiting for the lock
  bool unsure_ = false;    // whether a server that was away has something of us
  Clock::time_point beaten_ = Clock::now();
  std::optional<milliseconds> ask_driver_;  // when to look again at what only the driver can tell
  std::set<std::int64_t> gone_;             // strangers that ended while they were looked at
  pid_t process_ = ::getpid();
  std::minstd_rand random_{static_cast<unsigned>(process_)};
};

// The driver never tells the load of a MIG instance: who limits it would wait for ever.
Result<void> without_mig_if_load_matters(Request& request, const std::vector<Gpu>& gpus,
                                         ArgumentStyle spelling) {
  if (!request.max_utilization_pct && !request.max_memory_utilization_pct) return {};
  std::vector<std::string> telling;
  bool any_silent = false;
  for (const Gpu& gpu : gpus) {
    const bool chosen = gpu.uuid && (!request.uuids || contains(*request.uuids, *gpu.uuid));
    if (!chosen) continue;
    any_silent = any_silent || gpu.index.instance;
    if (!gpu.index.instance) telling.push_back(*gpu.uuid);
  }
  if (!any_silent) return {};
  if (telling.empty()) {
    return fail(ErrorKind::impossible,
                fmt::format("the driver does not tell the load of MIG instances, so none can be "
                            "chosen by it; leave {} and {} out",
                            argument_name("--max-util", spelling), argument_name("--max-mem-util", spelling)));
  }
  request.uuids = std::move(telling);
  return {};
}

// The owner of the directory can delete and rename the files in it, of every user. Each user of
// such a harbour is told once: a file in the user's own folder remembers it.
std::optional<std::string> owner_warning(const Harbour& harbour) {
  struct stat about {};
  if (::fstat(harbour.directory(), &about) != 0) return std::nullopt;
  const uid_t owner = about.st_uid;
  if (owner == 0 || owner == ::geteuid() || !is_identified(owner)) return std::nullopt;
  if (const auto folder = own_folder(archive_path(harbour.location()))) {
    const std::string mark = fmt::format("warned-{:x}-{:x}-{}", about.st_dev, about.st_ino, owner);
    const UniqueFd file(::openat(folder->directory.get(), mark.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file && errno == EEXIST) return std::nullopt;
  }
  return fmt::format(
      "the harbour {} belongs to {}, who can remove the leases and tickets of other users; to give "
      "it to root: {}",
      in_quotes(harbour.location().path), user_name(owner), setup_command(harbour.location()));
}

}  // namespace

Record make_record(const AcquireRequest& ask, std::string id) {
  Record record;
  record.id = std::move(id);
  record.uid = ::geteuid();
  record.pid = ask.pid == 0 ? ::getpid() : ask.pid;
  record.pid_namespace = pid_namespace();
  record.holder = ask.holder;
  record.command = ask.command;
  record.label = ask.label;
  record.sampled = true;
  if (ask.learning) record.job = ask.learning->type;
  record.since = std::chrono::system_clock::now();
  record.request = ask.request;
  return record;
}

std::string argument_name(std::string_view flag, ArgumentStyle spelling) {
  if (spelling == ArgumentStyle::flags) return std::string(flag);
  std::string name(flag.substr(std::strlen("--")));
  if (name.starts_with("max-")) name.erase(0, std::strlen("max-"));
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "=";
}

Result<void> restrict_choice(Request& request, const AcquireRequest& ask, const std::vector<Gpu>& gpus) {
  auto visible = visible_gpus(gpus, ask.visible_devices);
  if (!visible) return tl::make_unexpected(visible.error());
  request.uuids = std::move(*visible);
  if (ask.gpus.empty()) return without_mig_if_load_matters(request, gpus, ask.spelling);
  auto named = select_gpus(gpus, ask.gpus);
  if (!named) return tl::make_unexpected(named.error());
  if (request.uuids) {
    std::erase_if(*named, [&](const std::string& uuid) { return !contains(*request.uuids, uuid); });
  }
  if (named->empty()) {
    return fail(ErrorKind::impossible,
                fmt::format("{} names no GPU that CUDA_VISIBLE_DEVICES leaves; unset one of the "
                            "two",
                            argument_name("--gpu", ask.spelling)));
  }
  request.uuids = std::move(*named);
  return without_mig_if_load_matters(request, gpus, ask.spelling);
}

void narrow(Request& request, std::vector<std::string> chosen) {
  if (request.uuids) {
    std::erase_if(chosen, [&](const std::string& uuid) { return !contains(*request.uuids, uuid); });
  }
  request.uuids = std::move(chosen);
}

Result<std::optional<Lease>> acquire(Probe& probe, AcquireRequest ask, const Hooks& hooks) {
  probe.prepare();  // the driver works while we open the harbour and make our bell
  auto harbour = Harbour::open(ask.harbour);
  if (!harbour) return tl::make_unexpected(harbour.error());
  const auto notice = [&hooks](const std::string& text) {
    if (hooks.on_notice) hooks.on_notice(text);
  };
  if (const auto other = private_harbour(harbour->location(), harbour->directory())) notice(*other);
  if (const auto warning = owner_warning(*harbour)) notice(*warning);
  auto outer = enclosing_lease(*harbour, ask.within);
  if (!outer) return tl::make_unexpected(outer.error());
  if (*outer) {
    auto lease = acquire_within(probe, std::move(*harbour), **outer, ask);
    if (!lease) return tl::make_unexpected(lease.error());
    return std::move(*lease);
  }
  if (!ask.within.empty()) {
    notice("the lease that BERTH_LEASE names has ended; this is a new request");
    ask.visible_devices.reset();  // that lease has set it
  }
  return AcquireLoop(probe, std::move(*harbour), std::move(ask), hooks).run();
}

}  // namespace berth
