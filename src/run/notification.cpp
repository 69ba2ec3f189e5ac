// The forms of a notification; see notification.h.
#include "run/notification.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <iterator>

#include "base/text.h"
#include "base/time_text.h"

namespace berth {
namespace {

struct EventName {
  NotifyEvent event;
  std::string_view name;
  std::string_view ntfy_tags;      // emoji short codes
  std::string_view ntfy_priority;  // 1 to 5; 3 is the default
};

constexpr std::array kEventNames{
    EventName{NotifyEvent::granted, "granted", "arrow_forward", "3"},
    EventName{NotifyEvent::ended, "ended", "white_check_mark", "3"},
    EventName{NotifyEvent::failed, "failed", "x", "4"},
    EventName{NotifyEvent::out_of_memory, "out_of_memory", "x", "4"},
    EventName{NotifyEvent::refused, "refused", "no_entry", "4"},
    EventName{NotifyEvent::about_to_end, "about_to_end", "hourglass_flowing_sand", "3"},
    EventName{NotifyEvent::idle, "idle", "zzz", "3"},
    EventName{NotifyEvent::stranger, "stranger", "warning", "4"},
    EventName{NotifyEvent::gpu_lost, "gpu_lost", "rotating_light", "5"},
};
static_assert(kEventNames.size() == kNotifyEvents.size());

const EventName& entry_of(NotifyEvent event) {
  return *std::find_if(kEventNames.begin(), kEventNames.end(),
                       [&](const EventName& entry) { return entry.event == event; });
}

// The job as its user knows it.
std::string describe_job(const Notification& one) {
  return printable(one.label.empty() ? one.command : one.label);
}

std::string describe_batch_end(const Notification& one) {
  const NotifyCounts& counts = *one.counts;
  std::string text = one.event == NotifyEvent::ended
                         ? fmt::format("{} of {} lines succeeded", counts.succeeded, counts.total)
                         : fmt::format("{} of {} lines failed", counts.failed, counts.total);
  if (counts.interrupted > 0) text += fmt::format(", {} interrupted", counts.interrupted);
  if (counts.not_started > 0) text += fmt::format(", {} not started", counts.not_started);
  return text;
}

std::string describe_failure(const Notification& one) {
  if (one.signal) return fmt::format("was ended by signal {}", *one.signal);
  return fmt::format("failed with exit code {}", one.exit_code.value_or(1));
}

std::string describe_event(const Notification& one) {
  const std::string after =
      one.run_time ? fmt::format(" after {}", format_whole_seconds(*one.run_time)) : "";
  const std::string subject = one.is_batch ? "batch " : "";
  switch (one.event) {
    case NotifyEvent::granted:
      return one.gpus.empty() ? subject + "started"
                              : fmt::format("{}granted {}", subject, gpu_list(one.gpus));
    case NotifyEvent::ended:
    case NotifyEvent::failed:
      if (one.counts) {
        return fmt::format("batch {}{}, {}", to_string(one.event), after, describe_batch_end(one));
      }
      if (one.event == NotifyEvent::ended) return fmt::format("ended{}", after);
      return describe_failure(one) + after;
    case NotifyEvent::out_of_memory:
      return fmt::format("ran out of GPU memory{}", after);
    case NotifyEvent::refused:
      return fmt::format("{}did not run ({})", subject, printable(one.message));
    case NotifyEvent::about_to_end:
    case NotifyEvent::idle:
    case NotifyEvent::stranger:
    case NotifyEvent::gpu_lost:
      return printable(one.message);
  }
  return "";
}

Json gpus_json(const std::string& gpus) {
  Json list = Json::array();
  for (std::string_view rest = gpus; !rest.empty();) {
    const std::string_view index = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), index.size() + 1));
    const auto number = parse_integer<unsigned>(index);
    list.push_back(number ? Json(*number) : Json(index));
  }
  return list;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json counts_json(const NotifyCounts& counts) {
  return {{"total", counts.total},
          {"succeeded", counts.succeeded},
          {"failed", counts.failed},
          {"interrupted", counts.interrupted},
          {"not_started", counts.not_started}};
}

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view part = bytes.substr(i, 3);
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8U | (j < part.size() ? static_cast<unsigned char>(part[j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= part.size() ? kDigits[bits >> (18 - 6 * j) & 0x3FU] : '=';
  }
  return text;
}

// The value of a mail's header (RFC 2047), from text without control characters.
std::string encode_header(std::string_view text) {
  constexpr std::size_t kMaxColumns = 200;
  // 75 characters for each encoded word, with "=?UTF-8?B?" and "?=".
  constexpr std::size_t kMaxWordBytes = 45;
  const std::string shown = truncate_text(text, kMaxColumns);
  const bool is_ascii = std::all_of(shown.begin(), shown.end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (is_ascii && shown.find("=?") == std::string::npos) return shown;
  std::string words;
  std::string word;
  for (std::string_view rest = shown; !rest.empty();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(rest));
    if (word.size() + length > kMaxWordBytes) {
      words += fmt::format("=?UTF-8?B?{}?=\n ", to_base64(word));
      word.clear();
    }
    word += rest.substr(0, length);
    rest.remove_prefix(length);
  }
  return words + fmt::format("=?UTF-8?B?{}?=", to_base64(word));
}

std::string format_title(const Notification& one) {
  return fmt::format("berth: {}{}{}", one.is_batch ? "batch " : "", to_string(one.event),
                     describe_job(one).empty() ? "" : fmt::format(": {}", describe_job(one)));
}

// The facts below each other, for people.
std::string format_facts(const Notification& one) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<12}{}\n", fmt::format("{}:", name), value);
  };
  add("Job", one.job);
  if (one.lease != one.job) add("Lease", one.lease);
  add("GPUs", one.gpus);
  add("Label", printable(one.label));
  add("Command", printable(one.command));
  add("Folder", printable(one.directory));
  if (one.exit_code) add("Exit code", fmt::format("{}", *one.exit_code));
  if (one.run_time) add("Ran for", format_whole_seconds(*one.run_time));
  add("Host", printable(one.host));
  add("Time", format_local_time(one.time));
  return text;
}

// A line of a mail has at most 998 bytes (RFC 5322).
std::string break_mail_lines(std::string_view text) {
  constexpr std::size_t kMaxLine = 900;
  std::string broken;
  std::size_t line = 0;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(text));
    if (line + length > kMaxLine) {
      broken += '\n';
      line = 0;
    }
    line = text.front() == '\n' ? 0 : line + length;
    broken += text.substr(0, length);
    text.remove_prefix(length);
  }
  return broken;
}

// `text` in double quotes, as curl reads it in a configuration.
std::string quote_for_curl(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else if (c != '\0' && c != '\r') {
      quoted += c;
    }
  }
  return quoted + '"';
}

// Slack's three characters of markup, and an invisible character (zero width space) behind each @:
// nothing mentions a channel or a user then. Mattermost needs no markup for "@channel".
std::string escape_for_slack(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '@') {
      escaped += "@\u200b";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

struct HttpBody {
  std::vector<std::string> headers;
  std::string text;
};

HttpBody make_body(const Notification& one, WebhookFormat format) {
  switch (format) {
    case WebhookFormat::json:
      return {{"Content-Type: application/json"}, to_ascii_json(notification_json(one))};
    case WebhookFormat::slack:
      return {{"Content-Type: application/json"},
              to_ascii_json({{"text", escape_for_slack(format_notification_text(one))}})};
    case WebhookFormat::ntfy:
      const EventName& entry = entry_of(one.event);
      return {{"Content-Type: text/plain; charset=utf-8",
               fmt::format("Title: berth: {}{}", one.is_batch ? "batch " : "", entry.name),
               fmt::format("Tags: {}", entry.ntfy_tags),
               fmt::format("Priority: {}", entry.ntfy_priority)},
              format_notification_text(one)};
  }
  return {};
}

}  // namespace

std::string_view to_string(NotifyEvent event) {
  return entry_of(event).name;
}

std::optional<NotifyEvent> find_notify_event(std::string_view name) {
  for (const EventName& entry : kEventNames) {
    if (entry.name == name) return entry.event;
  }
  return std::nullopt;
}

std::string cut_notification_text(std::string_view text) {
  if (text.size() <= kMaxNotificationText) return std::string(text);
  std::size_t end = 0;
  for (;;) {
    const std::size_t next = end + std::max<std::size_t>(1, utf8_length(text.substr(end)));
    if (next > kMaxNotificationText) break;
    end = next;
  }
  return fmt::format("{}…", text.substr(0, end));
}

std::string format_notification_text(const Notification& notification) {
  const std::string name = describe_job(notification);
  const std::string job = notification.job.empty() ? "" : fmt::format("job {} ", notification.job);
  return fmt::format("{}{} ({}on {})", describe_event(notification),
                     name.empty() ? "" : fmt::format(": {}", name), job,
                     printable(notification.host));
}

Json notification_json(const Notification& notification) {
  const Notification& one = notification;
  Json json{{"version", 1},
            {"id", one.id},
            {"event", to_string(one.event)},
            {"kind", one.is_batch ? "batch" : "run"},
            {"time", format_iso_time(one.time)},
            {"host", one.host},
            {"user", one.user},
            {"job", text_or_null(one.job)},
            {"lease", text_or_null(one.lease)},
            {"gpus", gpus_json(one.gpus)},
            {"label", one.label},
            {"command", one.command},
            {"directory", one.directory},
            {"exit_code", or_null(one.exit_code)},
            {"signal", or_null(one.signal)},
            {"interrupted", one.interrupted},
            {"run_s", Json()},
            {"ends", one.ends ? Json(format_iso_time(*one.ends)) : Json()},
            {"idle_s", Json()},
            {"message", text_or_null(one.message)},
            {"batch", one.counts ? counts_json(*one.counts) : Json()},
            {"text", format_notification_text(one)}};
  if (one.idle) json["idle_s"] = std::chrono::round<std::chrono::seconds>(*one.idle).count();
  if (one.run_time) json["run_s"] = std::chrono::floor<std::chrono::seconds>(*one.run_time).count();
  return json;
}

std::vector<std::pair<std::string, std::string>> notification_variables(
    const Notification& notification) {
  const Notification& one = notification;
  const auto number = [](std::optional<int> value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  std::vector<std::pair<std::string, std::string>> variables{
      {"BERTH_EVENT", std::string(to_string(one.event))},
      {"BERTH_EVENT_ID", one.id},
      {"BERTH_JOB", one.job},
      {"BERTH_LEASE_ID", one.lease},
      {"BERTH_GPUS", one.gpus},
      {"BERTH_EXIT_CODE", number(one.exit_code)},
      {"BERTH_SIGNAL", number(one.signal)},
      {"BERTH_LABEL", printable(one.label)},
      {"BERTH_COMMAND", printable(one.command)},
      {"BERTH_TEXT", format_notification_text(one)}};
  if (one.counts) {
    variables.insert(variables.end(),
                     {{"BERTH_BATCH_TOTAL", fmt::format("{}", one.counts->total)},
                      {"BERTH_BATCH_SUCCEEDED", fmt::format("{}", one.counts->succeeded)},
                      {"BERTH_BATCH_FAILED", fmt::format("{}", one.counts->failed)}});
  }
  return variables;
}

std::string format_mail(const Notification& notification, const std::string& address) {
  return fmt::format(
      "To: {}\nSubject: {}\nAuto-Submitted: auto-generated\nX-Berth-Event: {}\nX-Berth-Id: {}\n"
      "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n"
      "Content-Transfer-Encoding: 8bit\n\n{}\n\n{}",
      address, encode_header(format_title(notification)), to_string(notification.event),
      notification.id, break_mail_lines(format_notification_text(notification)),
      break_mail_lines(format_facts(notification)));
}

std::string format_bell(const Notification& notification, bool has_title) {
  if (!has_title) return "\a";
  constexpr std::size_t kMaxColumns = 100;
  const std::string title = truncate_text(format_title(notification), kMaxColumns);
  return fmt::format("\x1b]0;{0}\x07\x1b]9;{0}\x07\a", title);
}

std::optional<WebhookFormat> find_webhook_format(std::string_view name) {
  if (name == "json") return WebhookFormat::json;
  if (name == "ntfy") return WebhookFormat::ntfy;
  if (name == "slack") return WebhookFormat::slack;
  return std::nullopt;
}

std::string format_curl_configuration(const Notification& notification, const Webhook& webhook,
                                      std::chrono::seconds time_limit) {
  const HttpBody body = make_body(notification, webhook.format);
  // globoff: brackets in a URL have no meaning. A redirection is not followed: it could lead to
  // another host, which would receive the headers.
  std::string text = fmt::format(
      "url = {}\nsilent\ngloboff\nproto = \"=http,https\"\nmax-time = {}\noutput = \"/dev/null\"\n"
      "write-out = \"%{{http_code}}\"\nuser-agent = \"berth\"\n",
      quote_for_curl(webhook.url), time_limit.count());
  for (const auto* headers : {&body.headers, &webhook.headers}) {
    for (const std::string& header : *headers)
      text += fmt::format("header = {}\n", quote_for_curl(header));
  }
  // Not "data": there, text that begins with @ names a file.
  return text + fmt::format("data-raw = {}\n", quote_for_curl(body.text));
}

}  // namespace berth
