// Tests of the flags of a request: their meaning, and the one-line message for a wrong one.
#include "cli/request_flags.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using Arguments = std::vector<std::string>;

struct Parsed {
  std::shared_ptr<RequestOptions> options;
  std::string error;  // empty: none
};

Parsed parse(const Arguments& arguments) {
  Flags flags;
  Parsed parsed{add_request_flags(flags), ""};
  std::vector<const char*> words;
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  if (const auto asked = flags.parse(words); !asked) parsed.error = asked.error().message;
  return parsed;
}

RequestOptions parse_flags(const Arguments& arguments) {
  const Parsed parsed = parse(arguments);
  EXPECT_EQ(parsed.error, "");
  return *parsed.options;
}

std::string parse_error(const Arguments& arguments) {
  return parse(arguments).error;
}

// Expects an error whose message contains all of `parts`.
void expect_error(const Arguments& arguments, const Arguments& parts) {
  const std::string message = parse_error(arguments);
  EXPECT_NE(message, "");
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

TEST(RequestOptions, the_default_is_one_whole_idle_gpu) {
  const RequestOptions options = parse_flags({});
  EXPECT_EQ(options.request.count, 1U);
  EXPECT_FALSE(options.request.memory || options.request.time || options.request.uuids ||
               options.request.name || options.request.min_memory ||
               options.request.max_utilization_pct || options.request.max_memory_utilization_pct);
  EXPECT_EQ(options.request.policy, Policy::spread);
  EXPECT_EQ(options.request.max_processes, 0U);
  EXPECT_EQ(options.gpus + options.label, "");
  EXPECT_FALSE(options.no_wait || options.timeout);
}

TEST(RequestOptions, every_flag_reaches_its_field) {
  const RequestOptions options = parse_flags({"-n",
                                              "2",
                                              "--name",
                                              "RTX 3090",
                                              "--mem",
                                              "8GiB",
                                              "--min-mem",
                                              "20G",
                                              "--max-util",
                                              "5",
                                              "--max-mem-util",
                                              "100",
                                              "--max-processes",
                                              "3",
                                              "--policy",
                                              "pack",
                                              "--time",
                                              "2h",
                                              "--label",
                                              "mine",
                                              "--timeout",
                                              "10m"});
  EXPECT_EQ(options.request.count, 2U);
  EXPECT_EQ(options.request.name, "RTX 3090");
  EXPECT_EQ(options.request.memory, gib(8));
  EXPECT_EQ(options.request.min_memory, gib(20));
  EXPECT_EQ(options.request.max_utilization_pct, 5U);
  EXPECT_EQ(options.request.max_memory_utilization_pct, 100U);
  EXPECT_EQ(options.request.max_processes, 3U);
  EXPECT_EQ(options.request.policy, Policy::pack);
  EXPECT_EQ(options.request.time, hours(2));
  EXPECT_EQ(options.label, "mine");
  EXPECT_EQ(options.timeout, minutes(10));
  EXPECT_EQ(parse_flags({"--policy", "random"}).request.policy, Policy::random);
  EXPECT_EQ(parse_flags({"--policy", "spread"}).request.policy, Policy::spread);
  EXPECT_TRUE(parse_flags({"--no-wait"}).no_wait);
  EXPECT_EQ(parse_flags({"--count=4096"}).request.count, 4096U);
}

// As in gpuselect, whose devices=[0, 1] selects both.
TEST(RequestOptions, all_named_gpus_are_wanted_unless_a_count_says_how_many) {
  EXPECT_EQ(parse_flags({"--gpu", "2"}).request.count, 1U);
  const RequestOptions both = parse_flags({"--gpu", "0,GPU-1a2b"});
  EXPECT_EQ(both.request.count, 2U);
  EXPECT_EQ(both.gpus, "0,GPU-1a2b");
  EXPECT_EQ(parse_flags({"--gpu", "0,2", "-n", "1"}).request.count, 1U);
  EXPECT_EQ(parse_flags({"-n", "2", "--gpu", "0,1,2"}).request.count, 2U);
  expect_error({"--gpu", "0,2", "-n", "3"}, {"--count", "3 GPUs", "--gpu", "2"});
}

TEST(RequestOptions, a_malformed_list_is_refused_before_any_driver_is_asked) {
  expect_error({"--gpu", "x"}, {"--gpu: 'x'", "index", "UUID"});
  EXPECT_NE(parse_error({"--gpu", ""}), "");
  EXPECT_NE(parse_error({"--gpu", "0,"}), "");
}

TEST(RequestOptions, numbers_have_limits) {
  expect_error({"-n", "0"}, {"--count: '0'", "1 to 4096"});
  EXPECT_NE(parse_error({"--max-util", "101"}), "");
  EXPECT_NE(parse_error({"--max-mem-util", "101"}), "");
  EXPECT_EQ(parse_flags({"--max-util", "0"}).request.max_utilization_pct, 0U);
  for (const char* text :
       {"4097", "-1", "+1", "1.5", "x", "", "1x", " 1", "0x2", "99999999999999"}) {
    EXPECT_NE(parse_error({std::string("--count=") + text}), "") << text;
    EXPECT_NE(parse_error({std::string("--max-processes=") + text}), "") << text;
  }
}

TEST(RequestOptions, sizes_and_durations_have_units_and_are_something) {
  expect_error({"--mem", "0GiB"}, {"--mem: '0GiB'"});
  expect_error({"--mem", "8"}, {"--mem: ", "'8'", "unit", "8GiB"});
  EXPECT_NE(parse_error({"--min-mem", "8"}), "");
  expect_error({"--time", "0s"}, {"--time: '0s'", "1h30m"});
  EXPECT_NE(parse_error({"--time", "2"}), "");
  EXPECT_NE(parse_error({"--timeout", "2"}), "");
  EXPECT_NE(parse_error({"--timeout=-2s"}), "");
  EXPECT_EQ(parse_flags({"--timeout", "0"}).timeout, nanoseconds::zero());
  EXPECT_EQ(parse_flags({"--timeout", "0s"}).timeout, nanoseconds::zero());
}

TEST(RequestOptions, a_policy_is_one_of_three) {
  expect_error({"--policy", "fair"}, {"--policy: 'fair'", "spread", "pack", "random"});
  EXPECT_NE(parse_error({"--policy", ""}), "");
}

TEST(RequestOptions, a_label_is_kept_as_it_is) {
  for (const char* text :
       {"", "{}", "[a,b]", "%%", "a=b", "x\ny", "\x1b[2J", "\"\\", "Größe \u202e"}) {
    EXPECT_EQ(parse_flags({"--label", text}).label, text);
  }
  EXPECT_EQ(parse_flags({"--label=-x"}).label, "-x");
  EXPECT_EQ(parse_flags({"--label", std::string(256, 'x')}).label, std::string(256, 'x'));
  expect_error({"--label", std::string(257, 'x')}, {"--label: ", "257 bytes", "256"});
}

TEST(RequestOptions, text_is_utf8) {
  for (const char* text : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    expect_error({"--label", text}, {"--label: ", "UTF-8"});
    expect_error({"--name", text}, {"--name: ", "UTF-8"});
  }
  expect_error({"--name", ""}, {"--name: ", "empty"});
}

TEST(RequestOptions, an_option_is_given_once) {
  expect_error({"-n", "1", "--count", "2"}, {"--count: ", "more than once"});
  const Arguments flags{"--gpu=0", "--label=x", "--mem=1GiB", "--policy=pack", "--time=1h"};
  for (const std::string& flag : flags) {
    expect_error({flag, flag}, {flag.substr(0, flag.find('=')), "more than once"});
  }
}

TEST(RequestOptions, no_wait_and_a_timeout_contradict_each_other) {
  expect_error({"--no-wait", "--timeout", "1m"}, {"--no-wait", "--timeout"});
  EXPECT_NE(parse_error({"--timeout", "0", "--no-wait"}), "");
}

TEST(RequestOptions, what_follows_a_value_is_not_taken_for_more_of_it) {
  EXPECT_NE(parse_error({"--gpu", "0", "1"}), "");
}

// A '|' in a type name makes shell completion offer these words.
TEST(RequestOptions, only_the_policy_completes_to_words) {
  Flags flags;
  add_request_flags(flags);
  for (const Option& option : flags.options()) {
    EXPECT_EQ(!option.choices().empty(), option.name == "--policy") << option.name;
  }
}

}  // namespace
}  // namespace berth
