// Unit tests of the limits of a document: length of the queue and hidden commands.
#include "status/status_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace berth {
namespace {

Status queue_of(std::size_t tickets) {
  Status host;
  host.host = "gpu-a";
  for (std::size_t i = 1; i <= tickets; ++i) {
    TicketStatus ticket;
    ticket.position = i;
    ticket.record.command = "train";
    host.queue.push_back(ticket);
  }
  return host;
}

TEST(StatusJson, a_limited_queue_has_its_length) {
  const auto json = nlohmann::json::parse(hosts_json({queue_of(5)}, JsonForm::line, {{}, 3}));
  const auto& host = json["hosts"][0];
  ASSERT_EQ(host["queue"].size(), 3U);
  EXPECT_EQ(host["queue"][2]["position"], 3);
  EXPECT_EQ(host["queue_length"], 5);
}

TEST(StatusJson, without_a_limit_the_queue_is_complete) {
  const auto json = nlohmann::json::parse(hosts_json({queue_of(5)}, JsonForm::line));
  EXPECT_EQ(json["hosts"][0]["queue"].size(), 5U);
  EXPECT_FALSE(json["hosts"][0].contains("queue_length"));
}

TEST(StatusJson, commands_of_other_users_can_be_hidden) {
  const auto json =
      nlohmann::json::parse(hosts_json({queue_of(1)}, JsonForm::line, {"another-user", {}}));
  EXPECT_TRUE(json["hosts"][0]["queue"][0]["command"].is_null());
}

TEST(StatusJson, all_times_are_for_the_time_of_the_status) {
  using std::chrono::minutes;
  Status host = queue_of(1);
  host.time = TimePoint(std::chrono::seconds(1'000'000'000));
  Record lease;
  lease.id = "aaaaaaaa";
  lease.granted = host.time - minutes(10);
  lease.request.time = minutes(50);
  host.leases.push_back(lease);
  GpuStatus gpu;
  gpu.view.leases = {lease.id};
  host.gpus.push_back(gpu);
  const auto is_overdue = [&] {
    const auto json = nlohmann::json::parse(status_json(host, JsonForm::line));
    return json["gpus"][0]["leases"][0]["overdue"].get<bool>();
  };
  EXPECT_FALSE(is_overdue());
  host.time += minutes(60);
  EXPECT_TRUE(is_overdue());
}

TEST(StatusJson, the_requested_model_is_not_called_like_the_name_of_a_gpu) {
  Status host = queue_of(1);
  host.queue[0].record.request.name = "A100";
  const auto json = nlohmann::json::parse(queue_json(host, JsonForm::line));
  EXPECT_EQ(json["queue"][0]["gpu_name"], "A100");
  EXPECT_FALSE(json["queue"][0].contains("name"));
}

}  // namespace
}  // namespace berth
