// Unit tests of record.h: formatted records are parsed back, and malformed ones are refused.
#include "harbour/record.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <set>

namespace berth {
namespace {

Record make_full_record() {
  Record record;
  record.id = "k3f9a2mx";
  record.uid = 1000;
  record.pid = 4711;
  record.pid_namespace = 4026531836;
  record.holder = HolderKind::shell;
  record.command = "python train.py \x1b[31m";
  record.label = "größe";
  record.since = TimePoint(std::chrono::milliseconds(1'763'248'000'123));
  record.parent_lease = "abcdefgh";
  record.uuids = {"GPU-1", "GPU-2"};
  record.granted = TimePoint(std::chrono::milliseconds(1'763'248'000'456));
  record.time_is_estimated = true;
  record.adopted_start = 8'123'456;
  record.job_id = "k3f9a2mx";
  record.job_host = "login1";
  Request& request = record.request;
  request.count = 2;
  request.memory = gib(8);
  request.policy = Policy::pack;
  request.time = std::chrono::hours(4);
  request.uuids = {"GPU-1", "GPU-2", "GPU-3"};
  request.name = "A6000";
  request.min_memory = gib(24);
  request.max_utilization_pct = 10;
  request.max_memory_utilization_pct = 20;
  request.max_processes = 3;
  return record;
}

TEST(Record, a_formatted_record_is_parsed_back) {
  const Record record = make_full_record();
  const auto read = parse_record(format_record(record));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(format_record(*read), format_record(record));
  EXPECT_EQ(read->command, record.command);
  EXPECT_EQ(read->request.uuids, record.request.uuids);
  EXPECT_EQ(read->request.time, record.request.time);
  EXPECT_TRUE(read->time_is_estimated);
  EXPECT_EQ(read->adopted_start, record.adopted_start);
  EXPECT_EQ(read->job_id, record.job_id);
  EXPECT_EQ(read->job_host, record.job_host);
  EXPECT_EQ(read->expected_end(), record.granted + std::chrono::hours(4));
}

TEST(Record, a_ticket_names_no_gpus) {
  Record record = make_full_record();
  record.uuids.clear();
  const auto read = parse_record(format_record(record));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->uuids.empty());
}

TEST(Record, a_command_that_is_not_utf8_is_accepted) {
  Record record = make_full_record();
  record.command = std::string("\xff\xfe bad \0 bytes", 14);
  record.command += std::string(100'000, 'x');
  const std::string text = format_record(record);
  EXPECT_LT(text.size(), kMaxRecordSize);
  EXPECT_TRUE(parse_record(text));
}

TEST(Record, malformed_records_are_refused) {
  const std::string good = format_record(make_full_record());
  for (const char* text : {"", "null", "[]", "42", "{", "{}", "\"lease\"",
                           R"({"version":1,"id":"k3f9a2mx","uid":-1})"}) {
    EXPECT_FALSE(parse_record(text)) << text;
  }
  const auto broken = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_FALSE(parse_record(broken("\"version\":1", "\"version\":0")));
  EXPECT_FALSE(parse_record(broken("\"version\":1", "\"version\":\"1\"")));
  EXPECT_FALSE(parse_record(broken("\"uid\":1000", "\"uid\":1e3")));
  EXPECT_FALSE(parse_record(broken("\"uid\":1000", "\"uid\":99999999999")));
  EXPECT_FALSE(parse_record(broken("\"count\":2", "\"count\":0")));
  EXPECT_FALSE(parse_record(broken("\"count\":2", "\"count\":-2")));
  EXPECT_FALSE(parse_record(broken("\"holding\"", "\"waiting\"")));
  EXPECT_FALSE(parse_record(broken("[\"GPU-1\",\"GPU-2\"]", "[1,2]")));
  EXPECT_FALSE(parse_record(broken("\"since_ms\":1763248000123", "\"since_ms\":[]")));
}

TEST(Record, times_far_off_do_not_overflow) {
  std::string text = format_record(make_full_record());
  const std::string granted = "\"granted_ms\":1763248000456";
  text.replace(text.find(granted), granted.size(), "\"granted_ms\":9007199254740992");
  const auto read = parse_record(text);
  ASSERT_TRUE(read);
  EXPECT_GT(*read->expected_end(), read->granted);
}

TEST(Record, a_later_version_holds_the_gpus_that_it_names) {
  const auto lease = parse_record(
      R"({"version":7,"id":"k3f9a2mx","uid":5,"state":"holding","gpus":["GPU-1"],"new":{}})");
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->uuids, std::vector<std::string>{"GPU-1"});
  EXPECT_FALSE(lease->holds_all_gpus);
  EXPECT_EQ(lease->uid, 5U);
  const auto strange = parse_record(R"({"version":7,"id":"k3f9a2mx","uid":5,"gpus":{"all":true}})");
  ASSERT_TRUE(strange);
  EXPECT_TRUE(strange->holds_all_gpus);
}

TEST(Record, deep_nesting_needs_no_stack) {
  const std::string deep = std::string(30'000, '[') + std::string(30'000, ']');
  const std::string text =
      R"({"version":1,"id":"k3f9a2mx","uid":5,"pid":1,"state":"waiting","since_ms":1,"request":)" +
      deep + "}";
  ASSERT_LT(text.size(), kMaxRecordSize);
  pthread_attr_t small;
  ASSERT_EQ(::pthread_attr_init(&small), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&small, 512 << 10), 0);
  const auto read = [](void* given) -> void* {
    EXPECT_FALSE(parse_record(*static_cast<const std::string*>(given)));
    return nullptr;
  };
  pthread_t thread{};
  ASSERT_EQ(::pthread_create(&thread, &small, read, const_cast<std::string*>(&text)), 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&small);
}

TEST(Record, only_brackets_outside_of_strings_are_nesting) {
  const auto with = [](const std::string& value) {
    return parse_record(
        R"({"version":1,"id":"k3f9a2mx","uid":5,"pid":1,"state":"waiting","since_ms":1,"request":{"count":1},"x":)" +
        value + "}");
  };
  EXPECT_TRUE(with("\"\\\"" + std::string(100, '[') + "\""));
  EXPECT_TRUE(with(std::string(15, '[') + std::string(15, ']')));
  EXPECT_FALSE(with(std::string(16, '[') + std::string(16, ']')));
}

TEST(Record, ids_are_random_and_fit_into_a_file_name) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(make_id());
  EXPECT_EQ(ids.size(), 1000U);
  for (const std::string& id : ids) EXPECT_TRUE(is_id(id)) << id;
  for (const char* text : {"", "k3f9a2m", "k3f9a2mxx", "../etc/x", "k3f9a2m/", "K3F9A2MX"}) {
    EXPECT_FALSE(is_id(text)) << text;
  }
}

}  // namespace
}  // namespace berth
