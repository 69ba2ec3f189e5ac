// A notification about a job, and its forms: JSON, one line of text, a mail, the bodies of
// webhooks.
//
// The texts in a notification come from users (labels, commands) and may contain anything. Each
// form escapes them: no text adds a header to a mail, a line to the configuration of curl, a
// sequence to a terminal or a mention to a chat.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/time.h"

namespace berth {

enum class NotifyEvent : std::uint8_t {
  granted,        // the job has its GPUs, and starts
  ended,          // with exit code 0
  failed,         // with another exit code, or by a signal
  out_of_memory,  // it failed, and had run out of GPU memory
  refused,        // it ended before it ran: its request cannot be met, or a job before it failed
  about_to_end,   // its announced end comes soon; nothing ends it then
  idle,           // none of its GPUs was utilized for some time
  stranger,       // a process of another user computes on a GPU that the job has alone
  gpu_lost,       // the driver has lost a GPU of the job
};

inline constexpr std::array kNotifyEvents{
    NotifyEvent::granted,       NotifyEvent::ended,    NotifyEvent::failed,
    NotifyEvent::out_of_memory, NotifyEvent::refused,  NotifyEvent::about_to_end,
    NotifyEvent::idle,          NotifyEvent::stranger, NotifyEvent::gpu_lost};

// The name of the event for users: that of its constant.
std::string_view to_string(NotifyEvent event);
std::optional<NotifyEvent> find_notify_event(std::string_view name);

// The lines of a batch.
struct NotifyCounts {
  std::size_t total = 0;
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  std::size_t interrupted = 0;
  std::size_t not_started = 0;
};

struct Notification {
  std::string id;  // of the job, the event and how many of its kind: the same in each try
  NotifyEvent event = NotifyEvent::ended;
  bool is_batch = false;
  TimePoint time;
  std::string host;
  std::string user;
  std::string job;    // the id of a detached job, or that of the lease; may be empty
  std::string lease;  // empty: it had none
  std::string gpus;   // "0,1"; empty: it had none
  std::string label;
  std::string command;
  std::string directory;
  std::optional<int> exit_code{};
  std::optional<int> signal{};  // that ended the job
  bool interrupted = false;     // the user asked it to end
  std::optional<std::chrono::nanoseconds> run_time{};
  std::string message{};  // the reason of `refused`, the stranger, the GPU that is lost, and so on
  std::optional<TimePoint> ends{};                 // of `about_to_end`
  std::optional<std::chrono::nanoseconds> idle{};  // of `idle`: for how long
  std::optional<NotifyCounts> counts{};
};

// An event of a running job, for a notification.
struct JobAlert {
  NotifyEvent event = NotifyEvent::stranger;
  std::string message;
  std::optional<TimePoint> ends{};
  std::optional<std::chrono::nanoseconds> idle{};
};

// The longest label, command and directory in a notification, in bytes.
constexpr std::size_t kMaxNotificationText = 512;
// `text`, or its beginning and a mark.
std::string cut_notification_text(std::string_view text);

// What happened, in one line without control characters: "failed with exit code 1 after 3h 2m:
// python train.py (job k3f9a2mx on gpu07)".
std::string format_notification_text(const Notification& notification);
// docs/notifications.md describes the keys. They are an interface: stable, new ones may be added.
Json notification_json(const Notification& notification);
// BERTH_EVENT and others, for a command. No name is a variable that Berth reads.
std::vector<std::pair<std::string, std::string>> notification_variables(
    const Notification& notification);
// A message for `sendmail -t`, with its headers.
std::string format_mail(const Notification& notification, const std::string& address);
// The sequences by which a terminal rings, shows a notice (OSC 9) and changes its title (OSC 0);
// `has_title`: false for a terminal that does not know sequences.
std::string format_bell(const Notification& notification, bool has_title);

enum class WebhookFormat : std::uint8_t { json, ntfy, slack };

std::optional<WebhookFormat> find_webhook_format(std::string_view name);

struct Webhook {
  std::string url;
  std::vector<std::string> headers{};  // "NAME: VALUE"
  WebhookFormat format = WebhookFormat::json;
};

// The configuration that `curl --config -` reads: URL, headers and body. Arguments would show them
// in `ps`.
std::string format_curl_configuration(const Notification& notification, const Webhook& webhook,
                                      std::chrono::seconds time_limit);

}  // namespace berth
