// Tests of notify.h: the values of --notify and of [notify].
#include "run/notify.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

std::string error_of(std::string_view text) {
  NotifyOptions options;
  const auto added = add_notify_choice(text, options);
  EXPECT_FALSE(added) << text;
  if (added) return "";
  EXPECT_EQ(added.error().kind, ErrorKind::usage);
  return added.error().message;
}

bool says(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(Notify, parses_targets_events_and_addresses) {
  NotifyOptions options;
  ASSERT_TRUE(add_notify_choice("mail", options));
  ASSERT_TRUE(add_notify_choice("webhook:granted,failed", options));
  ASSERT_TRUE(add_notify_choice("mail=ann@example.org:all", options));
  ASSERT_EQ(options.choices.size(), 3U);
  EXPECT_EQ(options.choices[0].target, NotifyTarget::mail);
  EXPECT_FALSE(options.choices[0].events);
  EXPECT_EQ(options.choices[1].events, (std::set{NotifyEvent::granted, NotifyEvent::failed}));
  EXPECT_EQ(options.choices[2].address, "ann@example.org");
  EXPECT_EQ(options.choices[2].events->size(), kNotifyEvents.size());
  EXPECT_FALSE(options.none);
  ASSERT_TRUE(add_notify_choice("none", options));
  EXPECT_TRUE(options.none);
}

TEST(Notify, suggests_what_was_meant) {
  EXPECT_TRUE(says(error_of("mial"), "did you mean mail?"));
  EXPECT_TRUE(says(error_of("webhok:ended"), "did you mean webhook?"));
  EXPECT_TRUE(says(error_of("mail:granted,fialed"), "did you mean failed?"));
  EXPECT_TRUE(says(error_of("pigeon"), "command, webhook, mail, bell, none"));
  EXPECT_TRUE(says(error_of("mail:"), "granted, ended"));
  EXPECT_TRUE(says(error_of("webhook=https://secret"), "mail=ADDRESS"));
  EXPECT_FALSE(says(error_of("webhook=https://secret"), "secret"));
}

TEST(Notify, refuses_addresses_that_could_add_a_header_or_a_flag) {
  for (const char* const address :
       {"mail=", "mail=a b@x", "mail=a@x\nBcc: b@x", "mail=-f@x", "mail=a@x,b@x", "mail=<a@x>",
        "mail=\xc3\xa4@x", "mail=\"a\"@x"})
    EXPECT_TRUE(says(error_of(address), "is not a mail address")) << address;
}

TEST(Notify, checks_the_settings) {
  NotifySettings settings;
  EXPECT_TRUE(check_notify_settings(settings));
  settings.lists["events"] = {{"granted", "all"}, "/x/berth.toml", 4};
  settings.lists["always"] = {{"mail", "bell:ended"}, "/x/berth.toml", 5};
  settings.texts["webhook_format"] = {"ntfy", "/x/berth.toml", 6};
  settings.texts["mail"] = {"ann@example.org", "/x/berth.toml", 7};
  EXPECT_TRUE(check_notify_settings(settings));
  const auto message = [&] {
    const auto checked = check_notify_settings(settings);
    return checked ? std::string() : checked.error().message;
  };
  settings.lists["events"].values = {"endet"};
  EXPECT_TRUE(says(message(), "/x/berth.toml, line 4: events: 'endet' is not an event"));
  settings.lists.erase("events");
  settings.lists["always"].values = {"mali"};
  EXPECT_TRUE(says(message(), "/x/berth.toml, line 5: always: 'mali'"));
  settings.lists.erase("always");
  settings.texts["webhook_format"].value = "slak";
  EXPECT_TRUE(says(message(),
                   "line 6: webhook_format: 'slak' is not a format of webhooks; did "
                   "you mean slack?"));
  settings.texts.erase("webhook_format");
  settings.texts["mail"].value = "ann\nBcc: eve";
  EXPECT_TRUE(says(message(), "line 7: mail: "));
}

}  // namespace
}  // namespace berth
