// Unit tests of what --mem auto tells about its reservation.
#include "run/grant_message.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

const ProfileOptions kAuto{"train", true};

Record make_lease(std::optional<Bytes> memory) {
  Record lease;
  lease.request.memory = memory;
  return lease;
}

Profile make_profile(std::size_t runs, Bytes peak) {
  Profile profile;
  for (std::size_t i = 0; i < runs; ++i) {
    ProfileRun run;
    run.peak = peak;
    profile.runs.push_back(run);
  }
  return profile;
}

TEST(GrantMessage, a_learned_reservation_names_the_runs_and_the_margin) {
  EXPECT_EQ(explain_auto_memory(make_lease(mib(6144)), make_profile(2, gib(5)), kAuto),
            "6 GiB reserved: up to 5 GiB in 2 earlier runs, plus 5%");
}

TEST(GrantMessage, a_job_that_nearly_fills_a_gpu_has_it_alone) {
  EXPECT_EQ(explain_auto_memory(make_lease({}), make_profile(1, gib(23)), kAuto),
            "exclusive: up to 23 GiB in 1 earlier run, nearly a whole GPU");
}

TEST(GrantMessage, a_first_run_is_measured) {
  Record lease = make_lease({});
  lease.is_profiling_run = true;
  EXPECT_EQ(explain_auto_memory(lease, std::nullopt, kAuto),
            "exclusive: the memory of this first run is measured");
  EXPECT_EQ(explain_auto_memory(make_lease({}), make_profile(0, {}), kAuto),
            "exclusive: the memory of no earlier run is known");
}

TEST(GrantMessage, what_the_user_has_set_and_what_a_retry_needs_count_first) {
  Profile profile = make_profile(3, gib(5));
  profile.set_memory = gib(8);
  EXPECT_EQ(explain_auto_memory(make_lease(gib(8)), profile, kAuto),
            "8 GiB reserved: set with 'berth profile set'");
  ProfileOptions retry = kAuto;
  retry.min_memory = gib(9);
  EXPECT_EQ(explain_auto_memory(make_lease(gib(9)), profile, retry),
            "9 GiB reserved: an earlier attempt ran out of memory");
}

}  // namespace
}  // namespace berth
