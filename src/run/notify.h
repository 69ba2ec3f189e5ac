// Sends notifications about a job: by a command, a webhook or a mail of the user, or by the bell of
// the terminal (`--notify`, and the table [notify] of the configuration).
//
// A notification is sent by a process of its own, which has left the job's session and has none of
// its descriptors: it cannot delay the release of a lease or the job. Each target has such a
// process, which tries three times and gives each try 10 s.
//
// What is guaranteed: a job sends each event at most once to each target (`about_to_end` once for
// each end, `idle` once for each idle time). If the job's berth process, the sending process or its
// program is killed, a notification may be missing; nothing sends it later. A try is repeated only
// after one that has failed by itself or took too long, so a receiver that got a notification but
// did not say so in time gets it again, with the same id.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include "base/configuration.h"
#include "base/result.h"
#include "run/notification.h"

namespace berth {

enum class NotifyTarget : std::uint8_t { command, webhook, mail, bell };

inline constexpr std::array kNotifyTargets{NotifyTarget::command, NotifyTarget::webhook,
                                           NotifyTarget::mail, NotifyTarget::bell};

std::string_view to_string(NotifyTarget target);

// How long before a job's announced end, and after which idle time, without a setting.
constexpr std::chrono::minutes kDefaultBeforeEnd(10);
constexpr std::chrono::minutes kDefaultIdle(30);

// A target that the user has named, and for which events.
struct NotifyChoice {
  NotifyTarget target = NotifyTarget::mail;
  std::optional<std::set<NotifyEvent>> events{};  // nullopt: those of the configuration
  std::string address{};                          // of a mail; empty: that of the configuration
  std::string text{};                             // as it was typed
};

// The values of --notify.
struct NotifyOptions {
  std::vector<NotifyChoice> choices;
  bool none = false;               // "none": also not what the configuration says
  std::vector<std::string> texts;  // as they were typed
};

// The first choice that names only events of a single running job, which a batch does not have;
// nullptr: there is none.
const NotifyChoice* find_choice_without_batch_events(const NotifyOptions& options);

// Parses "TARGET", "TARGET:EVENT,EVENT", "mail=ADDRESS" or "none". ErrorKind::usage: the message
// follows the name of the flag.
Result<void> add_notify_choice(std::string_view text, NotifyOptions& options);

// Checks the values of [notify] that name targets, events and formats. ErrorKind::usage: the
// message names the file and the line.
Result<void> check_notify_settings(const NotifySettings& settings);

// The job that the notifications are about.
struct NotifySubject {
  bool is_batch = false;
  std::string label;
  std::string command;  // as other users may see it: the hosts of webhooks are not the user's own
};

// The notifications of one job. Without targets, all calls do nothing. Not thread-safe.
class Notifier {
 public:
  Notifier() = default;

  // Reads the configuration and its secrets. Prints a line about a program that is missing, and
  // about settings that do not count, and leaves out that target. `use_always`: the targets in
  // `always` are used if `options` names none. Errors: usage, io.
  static Result<Notifier> create(const NotifyOptions& options, NotifySubject subject,
                                 bool use_always);

  bool is_active() const { return !targets_.empty(); }

  // The job is detached: its id, and its folder, which gets a log of the notifications. Call it in
  // the process of the job.
  void set_detached_job(const std::string& id, const std::string& folder);

  void send_granted(const std::string& lease, const std::string& gpus);
  // What `out_of_memory`, `signal` and so on mean is described at Notification. Call it after the
  // lease was released.
  struct JobResult {
    int exit_code = 0;
    std::optional<int> signal{};
    bool out_of_memory = false;
    bool interrupted = false;
    std::optional<std::chrono::nanoseconds> run_time{};
    std::optional<NotifyCounts> counts{};
  };
  void send_end(const JobResult& result);
  // The job ends with an error of Berth: `refused`, or `failed` if it had its GPUs before. Does
  // nothing after send_end().
  void send_refused(const Error& error);
  // `stranger` and `gpu_lost` are sent once for a job, the others at each call.
  void send_alert(const JobAlert& alert);
  // How long before the announced end, and after which idle time, the targets want alerts; nullopt:
  // no target does.
  struct AlertTimes {
    std::optional<std::chrono::nanoseconds> before_end{};
    std::optional<std::chrono::nanoseconds> idle{};
  };
  const AlertTimes& alert_times() const { return alert_times_; }

  // For the processes that send.
  struct Target {
    NotifyTarget kind = NotifyTarget::mail;
    std::set<NotifyEvent> events{};
    std::string program{};  // the path
    std::string command{};  // of the user, for a shell
    std::string address{};
    Webhook webhook{};
  };

 private:
  Notification make_notification(NotifyEvent event) const;
  void send(const Notification& notification);

  NotifySubject subject_;
  std::vector<Target> targets_;
  AlertTimes alert_times_;
  std::map<NotifyEvent, unsigned> sent_;  // how often
  bool has_ended_ = false;
  std::string id_;  // the first part of the ids of notifications
  std::string job_;
  std::string folder_;  // of a detached job; empty: it is not detached
  std::string lease_;
  std::string gpus_;
  std::string directory_;
  std::string host_;
  std::string user_;
  rlimit descriptors_{};  // the limit before this process raised it
};

}  // namespace berth
