// Tests of notification.h: each form carries the facts, and no text breaks out of it.
#include "run/notification.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace berth {
namespace {

constexpr std::string_view kHostile =
    "x\r\nBcc: eve@example.org\n\n.\n\"; url = \"http://eve/\"\x1b]0;title\x07<!channel>\xff";

Notification make_notification(NotifyEvent event) {
  Notification one;
  one.id = "abcd1234-ended";
  one.event = event;
  one.time = TimePoint(std::chrono::seconds(1'700'000'000));
  one.host = "gpu07";
  one.user = "ann";
  one.job = "abcd1234";
  one.lease = "abcd1234";
  one.gpus = "0,2:1";
  one.label = "thesis";
  one.command = "python train.py";
  one.directory = "/home/ann";
  return one;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(Notification, each_event_has_a_name_that_is_found_again) {
  for (const NotifyEvent event : kNotifyEvents)
    EXPECT_EQ(find_notify_event(to_string(event)), event);
  EXPECT_EQ(find_notify_event("idel"), std::nullopt);
}

TEST(Notification, says_what_happened) {
  Notification one = make_notification(NotifyEvent::granted);
  EXPECT_EQ(format_notification_text(one), "granted GPUs 0,2:1: thesis (job abcd1234 on gpu07)");
  one.event = NotifyEvent::failed;
  one.exit_code = 3;
  one.run_time = std::chrono::seconds(90);
  EXPECT_EQ(format_notification_text(one),
            "failed with exit code 3 after 1m 30s: thesis (job abcd1234 on gpu07)");
  one.signal = 9;
  one.label.clear();
  EXPECT_EQ(format_notification_text(one),
            "was ended by signal 9 after 1m 30s: python train.py (job abcd1234 on gpu07)");
  one.event = NotifyEvent::refused;
  one.message = "no GPU here has 90 GiB";
  EXPECT_TRUE(contains(format_notification_text(one), "did not run (no GPU here has 90 GiB)"));
}

TEST(Notification, a_mail_has_no_line_that_is_too_long) {
  Notification one = make_notification(NotifyEvent::refused);
  for (int i = 0; i < 600; ++i) one.message += "\x01\u20ac";
  std::string_view mail;
  const std::string text = format_mail(one, "ann@example.org");
  for (mail = text; !mail.empty();) {
    const std::size_t length = std::min(mail.find('\n'), mail.size());
    EXPECT_LE(length, 998U);
    mail.remove_prefix(std::min(mail.size(), length + 1));
  }
  EXPECT_EQ(count(text, "\u20ac"), 600U) << "no character is cut";
}

TEST(Notification, an_alert_has_its_time) {
  Notification one = make_notification(NotifyEvent::idle);
  EXPECT_TRUE(notification_json(one).find("idle_s")->is_null());
  one.idle = std::chrono::minutes(30);
  one.ends = TimePoint(std::chrono::seconds(1'700'000'600));
  const Json json = notification_json(one);
  EXPECT_EQ(json.find("idle_s")->as_unsigned(), 1800U);
  EXPECT_EQ(json.find("ends")->as_string()->c_str(), std::string("2023-11-14T22:23:20Z"));
}

TEST(Notification, counts_the_lines_of_a_batch) {
  Notification one = make_notification(NotifyEvent::failed);
  one.is_batch = true;
  one.counts = NotifyCounts{10, 6, 1, 0, 3};
  EXPECT_TRUE(
      contains(format_notification_text(one), "batch failed, 1 of 10 lines failed, 3 not started"));
  const Json json = notification_json(one);
  EXPECT_EQ(json.find("kind")->as_string()->c_str(), std::string("batch"));
  EXPECT_EQ(json.find("batch")->find("succeeded")->as_unsigned(), 6U);
}

TEST(Notification, json_has_the_texts_as_they_are_and_null_for_what_is_unknown) {
  Notification one = make_notification(NotifyEvent::refused);
  one.label = kHostile;
  one.lease.clear();
  const auto text = to_ascii_json(notification_json(one));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = parse_json(text);
  ASSERT_TRUE(json);
  EXPECT_TRUE(json->find("exit_code")->is_null());
  EXPECT_TRUE(json->find("lease")->is_null());
  EXPECT_TRUE(json->find("label")->as_string()->starts_with("x\r\nBcc:"));
  ASSERT_EQ(json->find("gpus")->size(), 2U);
  EXPECT_EQ((*json->find("gpus")->as_array())[0].as_unsigned(), 0U);
  EXPECT_EQ(*(*json->find("gpus")->as_array())[1].as_string(), "2:1");
}

TEST(Notification, no_text_adds_a_header_to_a_mail) {
  Notification one = make_notification(NotifyEvent::ended);
  one.label = kHostile;
  one.command = kHostile;
  one.directory = kHostile;
  const std::string mail = format_mail(one, "ann@example.org");
  const std::string_view headers = std::string_view(mail).substr(0, mail.find("\n\n"));
  EXPECT_EQ(count(headers, "\n"), 7U) << headers;  // eight headers
  EXPECT_EQ(count(mail, "\nBcc:"), 0U);
  EXPECT_EQ(mail.find('\r'), std::string::npos);
  EXPECT_EQ(mail.find('\x1b'), std::string::npos);
  EXPECT_EQ(count(mail, "\n.\n"), 0U);
}

TEST(Notification, a_subject_is_encoded_if_it_is_not_ascii) {
  Notification one = make_notification(NotifyEvent::ended);
  EXPECT_TRUE(contains(format_mail(one, "ann"), "\nSubject: berth: ended: thesis\n"));
  one.label = "Prüfung";
  EXPECT_TRUE(contains(format_mail(one, "ann"),
                       "\nSubject: =?UTF-8?B?YmVydGg6IGVuZGVkOiBQcsO8ZnVuZw==?=\n"));
  // What looks like an encoded word is text.
  one.label = "=?UTF-8?B?eA==?=";
  EXPECT_FALSE(contains(format_mail(one, "ann"), "Subject: berth: ended: =?"));
  for (const std::string& unit : {std::string("ü"), std::string("語"), std::string("a")}) {
    one.label = "ü";
    for (int i = 0; i < 300; ++i) one.label += unit;
    const std::string mail = format_mail(one, "ann");
    for (std::size_t begin = mail.find("Subject: "), end = 0; begin < mail.find("\nAuto");
         begin = end + 1) {
      end = mail.find('\n', begin);
      EXPECT_LE(end - begin, 85U) << mail.substr(begin, end - begin);
    }
  }
}

TEST(Notification, no_text_leaves_its_line_in_the_configuration_of_curl) {
  Notification one = make_notification(NotifyEvent::ended);
  one.label = kHostile;
  one.command = kHostile;
  for (const char* const name : {"json", "ntfy", "slack"}) {
    const Webhook webhook{"https://hooks.example.org/a\"b\\c",
                          {"Authorization: Bearer \"tk\""},
                          *find_webhook_format(name)};
    const std::string text = format_curl_configuration(one, webhook, std::chrono::seconds(10));
    EXPECT_EQ(count(text, "\nurl"), 0U);
    EXPECT_TRUE(text.starts_with("url = \"https://hooks.example.org/a\\\"b\\\\c\"\n")) << text;
    EXPECT_TRUE(contains(text, "\nheader = \"Authorization: Bearer \\\"tk\\\"\"\n")) << text;
    EXPECT_EQ(text.find('\r'), std::string::npos);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    // Each line is an option that Berth has written.
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      const std::string_view line = std::string_view(text).substr(begin);
      const std::string_view option = line.substr(0, line.find_first_of(" \n"));
      EXPECT_TRUE(contains(
          "url silent globoff proto max-time output write-out user-agent header data-raw", option))
          << option;
    }
  }
}

TEST(Notification, slack_does_not_mention_a_channel) {
  Notification one = make_notification(NotifyEvent::ended);
  one.label = "<!channel> & <@U1>";
  const std::string text = format_curl_configuration(one, {"https://x/", {}, WebhookFormat::slack},
                                                     std::chrono::seconds(10));
  EXPECT_TRUE(contains(text, "&lt;!channel&gt; &amp; &lt;@\\\\u200bU1&gt;")) << text;
}

TEST(Notification, a_terminal_gets_no_sequence_of_the_job) {
  Notification one = make_notification(NotifyEvent::ended);
  one.label = kHostile;
  const std::string text = format_bell(one, true);
  EXPECT_EQ(count(text, "\x1b"), 2U);
  EXPECT_EQ(count(text, "\x07"), 3U);
  EXPECT_EQ(format_bell(one, false), "\a");
}

TEST(Notification, variables_have_one_line_and_no_name_that_berth_reads) {
  Notification one = make_notification(NotifyEvent::ended);
  one.label = kHostile;
  one.exit_code = 0;
  for (const auto& [name, value] : notification_variables(one)) {
    EXPECT_EQ(value.find('\n'), std::string::npos) << name;
    for (const char* const own :
         {"BERTH_LEASE", "BERTH_HOST", "BERTH_URL", "BERTH_DIR", "BERTH_COMMANDS", "BERTH_EPOCH"})
      EXPECT_NE(name, own);
  }
}

TEST(Notification, a_long_text_is_cut_between_letters) {
  std::string text = "a";
  while (text.size() < 2000) text += "é";
  const std::string cut = cut_notification_text(text);
  EXPECT_LE(cut.size(), kMaxNotificationText + 3);
  EXPECT_TRUE(is_utf8(cut));
  EXPECT_EQ(cut_notification_text("short"), "short");
  EXPECT_LE(cut_notification_text(std::string(2000, '\xff')).size(), kMaxNotificationText + 3);
}

}  // namespace
}  // namespace berth
