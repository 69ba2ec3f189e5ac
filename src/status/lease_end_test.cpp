// Unit tests of the expected ends of leases, and of the GPU that becomes free first.
#include "status/lease_end.h"

#include <gtest/gtest.h>
#include <string>

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const TimePoint kNow{hours(500'000)};

Gpu make_gpu(unsigned index) {
  Gpu gpu;
  gpu.index = {index, {}};
  gpu.uuid = "GPU-" + std::to_string(index);
  gpu.name = index == 0 ? "T4" : "A100";
  gpu.memory_total = gib(24);
  gpu.memory_used = mib(8);
  return gpu;
}

// A lease that began ten minutes ago.
Record make_lease(const std::string& id, const std::string& uuid,
                  std::optional<minutes> run_time = {}) {
  Record lease;
  lease.id = id;
  lease.uuids = {uuid};
  lease.granted = kNow - minutes(10);
  if (run_time) lease.request.time = *run_time;
  return lease;
}

std::optional<NextFree> next_free(std::vector<Record> leases, const Request* request = nullptr) {
  const Snapshot snapshot{"", {make_gpu(0), make_gpu(1)}};
  return find_next_free(make_host_view(snapshot, leases, {}), kNow, request);
}

NextFree expected(unsigned index, minutes in, EndSource source = EndSource::announced) {
  return {{{index, {}}}, kNow + in, source};
}

TEST(LeaseEnd, is_announced_or_estimated_or_unknown) {
  Record lease = make_lease("a", "GPU-0", minutes(30));
  EXPECT_EQ(find_lease_end(lease, kNow),
            (LeaseEnd{kNow + minutes(20), EndSource::announced, false}));
  lease.time_is_estimated = true;
  EXPECT_EQ(find_lease_end(lease, kNow)->source, EndSource::estimated);
  EXPECT_FALSE(find_lease_end(make_lease("a", "GPU-0"), kNow));
}

TEST(LeaseEnd, that_has_passed_is_overdue) {
  EXPECT_TRUE(find_lease_end(make_lease("a", "GPU-0", minutes(9)), kNow)->overdue);
  EXPECT_FALSE(find_lease_end(make_lease("a", "GPU-0", minutes(11)), kNow)->overdue);
}

TEST(LeaseEnd, an_overdue_end_counts_before_all_others) {
  const Record unknown = make_lease("a", "GPU-0");
  const Record overdue = make_lease("b", "GPU-0", minutes(5));
  const Record late = make_lease("c", "GPU-0", minutes(90));
  EXPECT_TRUE(find_last_end({&unknown, &overdue, &late}, kNow)->overdue);
  EXPECT_FALSE(find_last_end({&unknown, &late}, kNow));
  EXPECT_FALSE(find_last_end({}, kNow));
}

TEST(NextFree, is_the_gpu_whose_leases_end_first) {
  const Record late = make_lease("a", "GPU-0", minutes(90));
  const Record early = make_lease("b", "GPU-1", minutes(30));
  EXPECT_EQ(next_free({late, early}), expected(1, minutes(20)));
  Record both = make_lease("c", "GPU-0", minutes(30));
  both.uuids.emplace_back("GPU-1");
  EXPECT_EQ(next_free({both})->gpus.size(), 2U);
}

TEST(NextFree, waits_for_the_last_lease_of_a_shared_gpu) {
  Record first = make_lease("a", "GPU-0", minutes(30));
  Record last = make_lease("b", "GPU-0", minutes(40));
  first.request.memory = last.request.memory = gib(4);
  last.time_is_estimated = true;
  const Record other = make_lease("c", "GPU-1");
  EXPECT_EQ(next_free({first, last, other}), expected(0, minutes(30), EndSource::estimated));
}

TEST(NextFree, needs_a_known_end_in_the_future) {
  const Record unknown = make_lease("a", "GPU-0");
  const Record overdue = make_lease("b", "GPU-1", minutes(5));
  EXPECT_FALSE(next_free({unknown, overdue}));
}

TEST(NextFree, is_nothing_if_a_gpu_is_free) {
  EXPECT_FALSE(next_free({make_lease("a", "GPU-0", minutes(30))}));
}

TEST(NextFree, considers_only_the_gpus_that_a_request_accepts) {
  const Record early = make_lease("a", "GPU-0", minutes(30));
  const Record late = make_lease("b", "GPU-1", minutes(90));
  Request request;
  request.name = "A100";
  EXPECT_EQ(next_free({early, late}, &request), expected(1, minutes(80)));
  EXPECT_EQ(next_free({late}, &request), expected(1, minutes(80)));
}

TEST(NextFree, leaves_out_gpus_with_strangers_and_drained_ones) {
  Snapshot snapshot{"", {make_gpu(0), make_gpu(1)}};
  snapshot.gpus[0].processes = {
      {4711, ProcessKind::compute, gib(1), std::string("python"), std::nullopt}};
  const std::vector<Record> leases{make_lease("a", "GPU-0", minutes(30)),
                                   make_lease("b", "GPU-1", minutes(30))};
  Drain drain;
  drain.uuid = "GPU-1";
  EXPECT_FALSE(find_next_free(make_host_view(snapshot, leases, {drain}), kNow));
  EXPECT_EQ(find_next_free(make_host_view(snapshot, leases, {}), kNow), expected(1, minutes(20)));
}

}  // namespace
}  // namespace berth
