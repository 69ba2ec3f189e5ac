// Tests of nvml_api.h with complete, old, broken and missing driver libraries.
#include "devices/nvml_api.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>

namespace berth::nvml {
namespace {

const std::string kSim = BERTH_TEST_SIM_DIR "/libnvidia-ml.so.1";
const std::string kOldSim = BERTH_TEST_SIM_DIR "-r418/libnvidia-ml.so.1";

TEST(LoadApi, finds_everything_in_a_new_driver) {
  const auto api = load_api(kSim);
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_NE(api->memory_v2, nullptr);
  EXPECT_NE(api->compute_processes[2], nullptr);
  EXPECT_NE(api->mig_by_index, nullptr);
  EXPECT_NE(api->nvlink_remote_pci, nullptr);
}

TEST(LoadApi, does_without_what_an_old_driver_lacks) {
  const auto api = load_api(kOldSim);
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_EQ(api->memory_v2, nullptr);
  EXPECT_EQ(api->compute_processes[2], nullptr);
  EXPECT_EQ(api->compute_processes[1], nullptr);
  EXPECT_NE(api->compute_processes[0], nullptr);
  EXPECT_EQ(api->mig_mode, nullptr);
}

TEST(LoadApi, says_which_function_is_missing) {
  const auto api = load_api("libm.so.6");
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().kind, ErrorKind::no_driver);
  EXPECT_NE(api.error().message.find("lacks nvmlInit_v2"), std::string::npos);
}

TEST(LoadApi, tells_missing_from_broken) {
  EXPECT_NE(load_api("libnvidia-ml-of-no-host.so.1").error().message.find("no NVIDIA driver"),
            std::string::npos);
  const std::string path = testing::TempDir() + "broken-driver.so";
  std::ofstream(path) << "not a library";
  const auto broken = load_api(path);
  std::remove(path.c_str());
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("cannot be loaded"), std::string::npos);
}

}  // namespace
}  // namespace berth::nvml
