// Tests that known values have a sample and unknown ones do not, and that the format stays valid.
#include "serve/metrics.h"

#include <gtest/gtest.h>
#include <string>

namespace berth::serve {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool lacks(const std::string& text, const std::string& part) {
  return !has(text, part);
}

using std::chrono::seconds;

const TimePoint kNow = TimePoint(seconds(1'763'251'200));

GpuStatus gpu(unsigned card) {
  GpuStatus one{{}, {GpuState::free, ""}};
  one.view.gpu.index = {card, std::nullopt};
  one.view.gpu.uuid = "GPU-" + std::to_string(card);
  one.view.gpu.name = "A6000";
  one.view.gpu.memory_total = gib(48);
  return one;
}

class MetricsTest : public testing::Test {
 protected:
  MetricsTest() {
    Status host;
    host.host = "here";
    host.gpus.push_back(gpu(0));
    hosts_.push_back(host);
    counters_.observe_status(hosts_);
  }

  std::string text(bool success = true) const {
    return format_metrics({hosts_, counters_, success, kNow - seconds(1), kNow, "1.2"});
  }

  std::vector<Status> hosts_;
  LeaseCounters counters_{kNow - seconds(60)};
};

constexpr const char* kGpu0 = R"({host="here",gpu="0",uuid="GPU-0",name="A6000"})";

TEST_F(MetricsTest, unknown_values_have_no_sample) {
  EXPECT_PRED2(lacks, text(), "berth_gpu_utilization_ratio");
  EXPECT_PRED2(lacks, text(), "berth_gpu_memory_used_bytes");
  EXPECT_PRED2(lacks, text(), "berth_gpu_power_watts");
  EXPECT_PRED2(lacks, text(), "berth_queue_oldest_seconds");
  EXPECT_PRED2(has, text(), std::string("berth_gpu_memory_bytes") + kGpu0 + " 51539607552\n");
}

TEST_F(MetricsTest, zero_is_known) {
  hosts_[0].gpus[0].view.gpu.utilization_pct = 0;
  EXPECT_PRED2(has, text(), std::string("berth_gpu_utilization_ratio") + kGpu0 + " 0\n");
}

TEST_F(MetricsTest, unreadable_gpus_have_no_process_counts) {
  hosts_[0].gpus[0].view.gpu.health = Health::unreadable;
  EXPECT_PRED2(lacks, text(), "berth_gpu_processes");
  EXPECT_PRED2(lacks, text(), "berth_gpu_strangers");
}

TEST_F(MetricsTest, exactly_one_state_is_1) {
  const std::string all = text();
  EXPECT_PRED2(has, all, R"(name="A6000",state="free"} 1)");
  EXPECT_PRED2(has, all, R"(name="A6000",state="leased"} 0)");
  EXPECT_PRED2(has, all, R"(name="A6000",state="unknown"} 0)");
}

TEST_F(MetricsTest, reserved_is_the_sum_of_shares_or_all) {
  Record lease;
  lease.id = "a0000001";
  lease.uuids = {"GPU-0"};
  lease.request.memory = gib(8);
  hosts_[0].leases = {lease, lease};
  hosts_[0].leases[1].id = "a0000002";
  GpuWithLeases& view = hosts_[0].gpus[0].view;
  view.leases = {"a0000001", "a0000002"};
  view.shared = true;
  EXPECT_PRED2(has, text(), std::string("reserved_bytes") + kGpu0 + " 17179869184\n");
  view.shared = false;
  EXPECT_PRED2(has, text(), std::string("reserved_bytes") + kGpu0 + " 51539607552\n");
  view.gpu.memory_total.reset();
  EXPECT_PRED2(lacks, text(), "reserved_bytes");
}

TEST_F(MetricsTest, subleases_are_not_counted_again) {
  Record outer;
  outer.id = "a0000001";
  outer.uuids = {"GPU-0"};
  Record inner = outer;
  inner.id = "a0000002";
  inner.parent_lease = outer.id;
  hosts_[0].leases = {outer, inner};
  EXPECT_PRED2(has, text(), "berth_user_leases{host=\"here\",user=\"root\"} 1\n");
  EXPECT_PRED2(has, text(), "berth_user_gpus{host=\"here\",user=\"root\"} 1\n");
}

TEST_F(MetricsTest, shows_the_age_of_the_oldest_ticket) {
  for (const int age : {5, 90, 40}) {
    TicketStatus ticket;
    ticket.record.since = kNow - seconds(age);
    hosts_[0].queue.push_back(ticket);
  }
  EXPECT_PRED2(has, text(), "berth_queue_length{host=\"here\"} 3\n");
  EXPECT_PRED2(has, text(), "berth_queue_oldest_seconds{host=\"here\"} 90\n");
}

TEST_F(MetricsTest, idle_leases_of_remote_hosts_are_unknown) {
  EXPECT_PRED2(has, text(), "berth_idle_leases{host=\"here\"} 0\n");
  hosts_[0].is_remote = true;
  EXPECT_PRED2(lacks, text(), "berth_idle_leases");
  EXPECT_PRED2(lacks, text(), "berth_host_age_seconds");
}

TEST_F(MetricsTest, a_failed_poll_keeps_only_counters) {
  const std::string failed = text(false);
  EXPECT_PRED2(has, failed, "berth_look_success 0\n");
  EXPECT_PRED2(has, failed, "berth_grants_total{host=\"here\"} 0\n");
  EXPECT_PRED2(lacks, failed, "berth_gpu_");
  EXPECT_PRED2(lacks, failed, "berth_queue_");
}

TEST_F(MetricsTest, wait_buckets_are_cumulative) {
  Record lease;
  lease.granted = kNow;
  for (const int waited : {0, 30, 30, 1'000'000}) {
    lease.id = std::to_string(hosts_[0].leases.size());
    lease.since = kNow - seconds(waited);
    hosts_[0].leases.push_back(lease);
  }
  counters_.observe_status(hosts_);
  const std::string all = text();
  EXPECT_PRED2(has, all, R"(berth_wait_seconds_bucket{host="here",le="0.1"} 1)");
  EXPECT_PRED2(has, all, R"(berth_wait_seconds_bucket{host="here",le="60"} 3)");
  EXPECT_PRED2(has, all, R"(berth_wait_seconds_bucket{host="here",le="259200"} 3)");
  EXPECT_PRED2(has, all, R"(berth_wait_seconds_bucket{host="here",le="+Inf"} 4)");
  EXPECT_PRED2(has, all, "berth_wait_seconds_sum{host=\"here\"} 1000060\n");
  EXPECT_PRED2(has, all, "berth_wait_seconds_count{host=\"here\"} 4\n");
}

TEST(EscapeLabelValue, is_one_line_of_utf8) {
  EXPECT_EQ(escape_label_value("a\"b\\c"), R"(a\"b\\c)");
  EXPECT_EQ(escape_label_value("ü"), "ü");
  EXPECT_EQ(escape_label_value("a\nb").find('\n'), std::string::npos);
  EXPECT_EQ(escape_label_value("\xff").find('\xff'), std::string::npos);
}

}  // namespace
}  // namespace berth::serve
