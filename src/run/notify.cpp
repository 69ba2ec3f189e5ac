// Chooses the targets of notifications and says when they are sent; see notify.h.
#include "run/notify.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/environment.h"
#include "base/file_trust.h"
#include "base/quantity.h"
#include "base/suggestion.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/users.h"
#include "harbour/record.h"
#include "run/notify_sender.h"

namespace berth {
namespace {

constexpr std::string_view kAllEvents = "all";
constexpr std::string_view kNone = "none";
constexpr std::array kDefaultEvents{NotifyEvent::ended, NotifyEvent::failed,
                                    NotifyEvent::out_of_memory, NotifyEvent::refused};

template <class Value, std::size_t N>
std::vector<std::string> names_of(const std::array<Value, N>& values) {
  std::vector<std::string> names;
  names.reserve(N);
  for (const Value value : values) names.emplace_back(to_string(value));
  return names;
}

Error unknown_word_error(std::string_view word, std::string_view what,
                         const std::vector<std::string>& known) {
  const std::string similar = find_similar_word(word, known);
  return {ErrorKind::usage,
          fmt::format("{} is not {}; {}", in_quotes(word), what,
                      similar.empty() ? fmt::format("write {}", join_text(known, ", "))
                                      : fmt::format("did you mean {}?", similar))};
}

Result<NotifyTarget> parse_target(std::string_view word) {
  for (const NotifyTarget target : kNotifyTargets) {
    if (to_string(target) == word) return target;
  }
  std::vector<std::string> known = names_of(kNotifyTargets);
  known.emplace_back(kNone);
  return tl::make_unexpected(unknown_word_error(word, "a target of notifications", known));
}

Result<void> add_event(std::string_view word, std::set<NotifyEvent>& events) {
  if (word == kAllEvents) {
    events.insert(kNotifyEvents.begin(), kNotifyEvents.end());
    return {};
  }
  if (const auto event = find_notify_event(word)) {
    events.insert(*event);
    return {};
  }
  std::vector<std::string> known = names_of(kNotifyEvents);
  known.emplace_back(kAllEvents);
  return tl::make_unexpected(unknown_word_error(word, "an event of a job", known));
}

Result<std::set<NotifyEvent>> parse_events(std::string_view text) {
  std::set<NotifyEvent> events;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    TRY(add_event(text.substr(begin, end - begin), events));
    begin = end + 1;
  }
  return events;
}

// One address that is safe in a header: no blank, control character, comma or angle bracket.
bool is_mail_address(std::string_view text) {
  constexpr std::size_t kMaxLength = 254;
  return !text.empty() && text.size() <= kMaxLength && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c < 0x7F &&
                  std::string_view(",;:<>()[]\"\\").find(c) == std::string_view::npos;
         });
}

Error bad_address_error(std::string_view address) {
  return {ErrorKind::usage,
          fmt::format("{} is not a mail address; write one, such as ann@example.org",
                      in_quotes(address))};
}

const Setting* find_setting(const NotifySettings& settings, std::string_view name) {
  const auto found = settings.texts.find(name);
  return found == settings.texts.end() ? nullptr : &found->second;
}

const ListSetting* find_list(const NotifySettings& settings, std::string_view name) {
  const auto found = settings.lists.find(name);
  return found == settings.lists.end() ? nullptr : &found->second;
}

Result<std::set<NotifyEvent>> configured_events(const NotifySettings& settings) {
  const ListSetting* const list = find_list(settings, "events");
  if (list == nullptr) return std::set<NotifyEvent>(kDefaultEvents.begin(), kDefaultEvents.end());
  std::set<NotifyEvent> events;
  for (const std::string& name : list->values) {
    if (auto added = add_event(name, events); !added) {
      return tl::make_unexpected(
          setting_error(list->source, list->line, "events: " + added.error().message));
    }
  }
  return events;
}

// The choices in `always`, with the same text as --notify.
Result<NotifyOptions> configured_choices(const NotifySettings& settings) {
  NotifyOptions options;
  const ListSetting* const list = find_list(settings, "always");
  if (list == nullptr) return options;
  for (const std::string& text : list->values) {
    if (auto added = add_notify_choice(text, options); !added) {
      return tl::make_unexpected(
          setting_error(list->source, list->line, "always: " + added.error().message));
    }
  }
  return options;
}

Result<WebhookFormat> configured_format(const NotifySettings& settings) {
  const Setting* const setting = find_setting(settings, "webhook_format");
  if (setting == nullptr) return WebhookFormat::json;
  if (const auto format = find_webhook_format(setting->value)) return *format;
  const Error problem =
      unknown_word_error(setting->value, "a format of webhooks", {"json", "ntfy", "slack"});
  return tl::make_unexpected(
      setting_error(setting->source, setting->line, "webhook_format: " + problem.message));
}

Result<std::chrono::nanoseconds> configured_time(const NotifySettings& settings,
                                                 std::string_view name,
                                                 std::chrono::nanoseconds otherwise) {
  const Setting* const setting = find_setting(settings, name);
  if (setting == nullptr) return otherwise;
  const auto time = parse_duration(setting->value);
  if (time && *time > std::chrono::nanoseconds::zero()) return *time;
  return tl::make_unexpected(setting_error(
      setting->source, setting->line,
      fmt::format("{}: {}", name,
                  time ? "the time is zero; write a duration such as 10m" : time.error().message)));
}

Result<Notifier::AlertTimes> configured_alert_times(const NotifySettings& settings) {
  return Notifier::AlertTimes{TRY(configured_time(settings, "about_to_end", kDefaultBeforeEnd)),
                              TRY(configured_time(settings, "idle", kDefaultIdle))};
}

// A command and a webhook exist only in the configuration.
Result<const Setting*> require_setting(const NotifySettings& settings, NotifyTarget target) {
  const std::string_view name = to_string(target);
  if (const Setting* const setting = find_setting(settings, name);
      setting != nullptr && !setting->value.empty())
    return setting;
  const char* const example = target == NotifyTarget::webhook
                                  ? "webhook = \"file:~/.config/berth-webhook\""
                                  : "command = \"notify-send ...\"";
  if (!settings.distrust_reason.empty()) {
    return fail(ErrorKind::usage,
                fmt::format("--notify {}: [notify] in your configuration does not count: {}", name,
                            settings.distrust_reason));
  }
  return fail(ErrorKind::usage,
              fmt::format("--notify {}: the configuration has no {}; write below [notify] in "
                          "~/.config/berth.toml: {}",
                          name, name, example));
}

// Whether no other user could have put the program there, as far as this user's PATH says. Root may
// have the PATH of another user.
bool is_trusted_program(const std::string& folder, const std::string& path) {
  struct stat file {};
  if (!folder.starts_with('/') || ::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode) ||
      ::access(path.c_str(), X_OK) != 0)
    return false;
  // It is run later, again and again: a link could lead elsewhere by then.
  return ::geteuid() != 0 || is_roots_path(path);
}

// The path of the program; empty: it was not found. Not in the current folder, which may be another
// user's: the user has not typed the program's name.
std::string find_sender_program(const std::string& name, std::string_view more_folders = "") {
  const std::string folders =
      fmt::format("{}:{}", get_env("PATH").value_or("/bin:/usr/bin"), more_folders);
  for (std::string_view rest = folders; !rest.empty();) {
    const std::string folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    std::string path = fmt::format("{}/{}", folder, name);
    if (is_trusted_program(folder, path)) return path;
  }
  return "";
}

std::string find_sender(NotifyTarget target) {
  if (target == NotifyTarget::webhook) {
    std::string path = find_sender_program("curl");
    if (path.empty()) {
      print_message(
          "no notification is sent by webhook, since the program curl was not found; install it "
          "(apt install curl)");
    }
    return path;
  }
  if (target == NotifyTarget::mail) {
    // Administrators' folders are often not in the PATH of a user.
    std::string path = find_sender_program("sendmail", "/usr/sbin:/usr/lib");
    if (path.empty()) {
      print_message(
          "no notification is sent by mail, since the program sendmail was not found; install one "
          "(apt install msmtp-mta)");
    }
    return path;
  }
  return "/bin/sh";
}

bool is_header(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos) return false;
  const std::string_view name = line.substr(0, colon);
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; }) &&
         std::none_of(line.begin(), line.end(),
                      [](unsigned char c) { return c < ' ' && c != '\t'; });
}

bool is_http_url(std::string_view url) {
  constexpr std::size_t kMaxLength = 4096;
  return (url.starts_with("https://") || url.starts_with("http://")) && url.size() <= kMaxLength &&
         std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c != 0x7F; });
}

// The messages do not quote the lines: each may be a secret.
Result<Webhook> read_webhook(const NotifySettings& settings) {
  const Setting& setting = *TRY(require_setting(settings, NotifyTarget::webhook));
  std::vector<std::string> lines = TRY(read_webhook_lines(setting));
  const std::string place = setting.value.starts_with("file:")
                                ? fmt::format("the first line of {}", in_quotes(setting.value))
                                : fmt::format("webhook in {}", printable(setting.source));
  if (lines.empty() || !is_http_url(lines.front())) {
    return fail(ErrorKind::usage,
                fmt::format("{} is not the URL of a webhook; write https://HOST/PATH", place));
  }
  Webhook webhook{std::move(lines.front()), {}, TRY(configured_format(settings))};
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (!is_header(lines[i])) {
      return fail(ErrorKind::usage,
                  fmt::format("line {} of {} is not an HTTP header; write NAME: VALUE", i + 1,
                              in_quotes(setting.value)));
    }
    webhook.headers.push_back(std::move(lines[i]));
  }
  return webhook;
}

Result<std::string> choose_address(const NotifyChoice& choice, const NotifySettings& settings) {
  if (!choice.address.empty()) return choice.address;
  if (const Setting* const setting = find_setting(settings, "mail");
      setting != nullptr && !setting->value.empty()) {
    if (is_mail_address(setting->value)) return setting->value;
    return tl::make_unexpected(setting_error(setting->source, setting->line,
                                             "mail: " + bad_address_error(setting->value).message));
  }
  return user_name(::geteuid());  // the mail system of the host delivers it, or forwards it
}

// The job may get a new end, and its GPUs may be idle again. Everything else is sent once.
bool can_repeat(NotifyEvent event) {
  return event == NotifyEvent::about_to_end || event == NotifyEvent::idle;
}

void warn_about_distrust(const NotifySettings& settings) {
  if (settings.distrust_reason.empty()) return;
  print_message(
      fmt::format("[notify] in your configuration does not count: {}", settings.distrust_reason));
}

// Only on the terminal in whose foreground this process is: another program may draw on it else.
void ring_terminal(const Notification& notification) {
  if (::isatty(STDERR_FILENO) != 1 || ::tcgetpgrp(STDERR_FILENO) != ::getpgrp()) return;
  const std::string_view type = get_env_or_empty("TERM");
  const std::string text = format_bell(notification, !type.empty() && type != "dumb");
  const UniqueFd terminal(::open("/dev/tty", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (terminal) (void)!::write(terminal.get(), text.data(), text.size());
}

}  // namespace

std::string_view to_string(NotifyTarget target) {
  switch (target) {
    case NotifyTarget::command:
      return "command";
    case NotifyTarget::webhook:
      return "webhook";
    case NotifyTarget::mail:
      return "mail";
    case NotifyTarget::bell:
      return "bell";
  }
  return "";
}

Result<void> add_notify_choice(std::string_view text, NotifyOptions& options) {
  NotifyChoice choice;
  const std::size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  if (const std::size_t equals = name.find('='); equals != std::string_view::npos) {
    choice.address = name.substr(equals + 1);
    name = name.substr(0, equals);
    if (name != to_string(NotifyTarget::mail)) {
      return fail(ErrorKind::usage,
                  fmt::format("{} takes no value; only mail=ADDRESS has one", in_quotes(name)));
    }
    if (!is_mail_address(choice.address))
      return tl::make_unexpected(bad_address_error(choice.address));
  }
  options.texts.emplace_back(text);
  if (text == kNone) {
    options.none = true;
    return {};
  }
  choice.text = text;
  choice.target = TRY(parse_target(name));
  if (colon != std::string_view::npos) choice.events = TRY(parse_events(text.substr(colon + 1)));
  options.choices.push_back(std::move(choice));
  return {};
}

const NotifyChoice* find_choice_without_batch_events(const NotifyOptions& options) {
  const auto is_of_single_job = [](NotifyEvent event) {
    return event == NotifyEvent::about_to_end || event == NotifyEvent::idle ||
           event == NotifyEvent::stranger || event == NotifyEvent::gpu_lost;
  };
  for (const NotifyChoice& choice : options.choices) {
    if (choice.events &&
        std::all_of(choice.events->begin(), choice.events->end(), is_of_single_job))
      return &choice;
  }
  return nullptr;
}

Result<void> check_notify_settings(const NotifySettings& settings) {
  TRY(configured_events(settings));
  TRY(configured_choices(settings));
  TRY(configured_format(settings));
  TRY(configured_alert_times(settings));
  if (find_setting(settings, "mail") != nullptr) TRY(choose_address({}, settings));
  return {};
}

Result<Notifier> Notifier::create(const NotifyOptions& options, NotifySubject subject,
                                  bool use_always) {
  Notifier notifier;
  if (options.none) return notifier;
  if (options.choices.empty() && !use_always) return notifier;
  const Configuration configuration = TRY(read_configuration());
  const NotifySettings& settings = configuration.notify;
  const bool is_asked_for = !options.choices.empty();
  if (!is_asked_for) warn_about_distrust(settings);
  const NotifyOptions chosen = is_asked_for ? options : TRY(configured_choices(settings));
  if (chosen.none || chosen.choices.empty()) return notifier;
  for (const NotifyChoice& choice : chosen.choices) {
    Target target{choice.target, choice.events ? *choice.events : TRY(configured_events(settings))};
    switch (choice.target) {
      case NotifyTarget::command:
        target.command = TRY(require_setting(settings, choice.target))->value;
        break;
      case NotifyTarget::webhook:
        target.webhook = TRY(read_webhook(settings));
        break;
      case NotifyTarget::mail:
        target.address = TRY(choose_address(choice, settings));
        break;
      case NotifyTarget::bell:
        break;
    }
    target.program = find_sender(choice.target);
    if (target.program.empty()) continue;
    // "mail:granted" and "mail:failed" together mean both events; an event is sent once.
    const auto same =
        std::find_if(notifier.targets_.begin(), notifier.targets_.end(), [&](const Target& other) {
          return other.kind == target.kind && other.address == target.address;
        });
    if (same != notifier.targets_.end()) {
      same->events.merge(target.events);
    } else {
      notifier.targets_.push_back(std::move(target));
    }
  }
  if (is_asked_for) warn_about_distrust(settings);
  const auto wants = [&](NotifyEvent event) {
    return std::any_of(notifier.targets_.begin(), notifier.targets_.end(),
                       [event](const Target& target) { return target.events.contains(event); });
  };
  notifier.alert_times_ = TRY(configured_alert_times(settings));
  if (!wants(NotifyEvent::about_to_end)) notifier.alert_times_.before_end.reset();
  if (!wants(NotifyEvent::idle)) notifier.alert_times_.idle.reset();
  std::error_code problem;
  notifier.subject_ = std::move(subject);
  notifier.subject_.label = cut_notification_text(notifier.subject_.label);
  notifier.subject_.command = cut_notification_text(notifier.subject_.command);
  notifier.directory_ = cut_notification_text(std::filesystem::current_path(problem).string());
  notifier.host_ = configuration.host;
  // Now, since a directory service that hangs must not delay a job that has GPUs.
  if (notifier.is_active()) notifier.user_ = user_name(::geteuid());
  notifier.id_ = make_id();
  ::getrlimit(RLIMIT_NOFILE, &notifier.descriptors_);
  return notifier;
}

void Notifier::set_detached_job(const std::string& id, const std::string& folder) {
  id_ = id;
  job_ = id;
  folder_ = folder;
}

Notification Notifier::make_notification(NotifyEvent event) const {
  Notification notification;
  const auto sent = sent_.find(event);
  notification.id = fmt::format("{}-{}", id_, to_string(event));
  if (sent != sent_.end()) notification.id += fmt::format("-{}", sent->second + 1);
  notification.event = event;
  notification.is_batch = subject_.is_batch;
  notification.time = std::chrono::system_clock::now();
  notification.host = host_;
  notification.user = user_;
  notification.job = job_;
  notification.lease = lease_;
  notification.gpus = gpus_;
  notification.label = subject_.label;
  notification.command = subject_.command;
  notification.directory = directory_;
  return notification;
}

void Notifier::send_granted(const std::string& lease, const std::string& gpus) {
  if (!is_active()) return;
  lease_ = lease;
  gpus_ = gpus;
  if (job_.empty()) job_ = lease;
  send(make_notification(NotifyEvent::granted));
}

void Notifier::send_end(const JobResult& result) {
  if (!is_active()) return;
  const NotifyEvent event = result.exit_code == 0  ? NotifyEvent::ended
                            : result.out_of_memory ? NotifyEvent::out_of_memory
                                                   : NotifyEvent::failed;
  Notification notification = make_notification(event);
  notification.exit_code = result.exit_code;
  notification.signal = result.signal;
  notification.interrupted = result.interrupted;
  notification.run_time = result.run_time;
  notification.counts = result.counts;
  has_ended_ = true;
  send(notification);
}

void Notifier::send_refused(const Error& error) {
  if (!is_active() || has_ended_) return;
  const bool was_granted = sent_.contains(NotifyEvent::granted);
  Notification notification =
      make_notification(was_granted ? NotifyEvent::failed : NotifyEvent::refused);
  notification.exit_code = exit_code(error.kind);
  notification.message = cut_notification_text(error.message);
  send(notification);
}

void Notifier::send_alert(const JobAlert& alert) {
  if (!is_active() || (sent_.contains(alert.event) && !can_repeat(alert.event))) return;
  Notification notification = make_notification(alert.event);
  notification.message = cut_notification_text(alert.message);
  notification.ends = alert.ends;
  notification.idle = alert.idle;
  send(notification);
}

void Notifier::send(const Notification& notification) {
  if (sent_[notification.event]++ > 0 && !can_repeat(notification.event)) return;
  std::vector<const Target*> receivers;
  for (const Target& target : targets_) {
    if (!target.events.contains(notification.event)) continue;
    if (target.kind != NotifyTarget::bell) {
      receivers.push_back(&target);
    } else if (folder_.empty()) {
      ring_terminal(notification);
    }
  }
  if (receivers.empty()) return;
  send_from_own_processes(receivers, notification, folder_, descriptors_);
}

}  // namespace berth
