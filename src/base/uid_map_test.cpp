// Tests of uid_map.h with the maps of a host, of a rootless container, and of no map.
#include "base/uid_map.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(UidMap, on_the_host_every_uid_is_itself) {
  const UidMap map("         0          0 4294967295\n");
  for (const uid_t uid : {uid_t{0}, uid_t{2001}, uid_t{65534}, uid_t{4294967294}}) {
    EXPECT_EQ(map.outside(uid), uid);
    EXPECT_EQ(map.inside(uid), uid);
  }
}

TEST(UidMap, a_rootless_container_maps_root_and_subordinate_uids) {
  const UidMap map("0 2001 1\n1 100000 65536\n");
  EXPECT_EQ(map.outside(0), 2001U);
  EXPECT_EQ(map.outside(1000), 100999U);
  EXPECT_EQ(map.inside(2001), 0U);
  EXPECT_EQ(map.inside(100999), 1000U);
  EXPECT_EQ(map.outside(70000), std::nullopt);
  EXPECT_EQ(map.inside(0), std::nullopt) << "root of the host is not mapped";
}

TEST(UidMap, without_a_map_no_uid_is_known_outside) {
  EXPECT_EQ(UidMap("").outside(65534), std::nullopt);
  EXPECT_EQ(UidMap("nonsense").inside(0), std::nullopt);
}

TEST(UidMap, knows_the_hosts_own) {
  EXPECT_TRUE(UidMap("         0          0 4294967295\n").is_identity());
  EXPECT_FALSE(UidMap("0 2001 1\n").is_identity());
  EXPECT_FALSE(UidMap("0 0 65536\n").is_identity());
  EXPECT_FALSE(UidMap("0 0 1\n1 100000 65536\n").is_identity());
  EXPECT_FALSE(UidMap("").is_identity());
}

}  // namespace
}  // namespace berth
