// Tests of calls.h: the table matches the built libraries, and the rules for versions.
#include "sim/calls.h"

#include "sim/test_support.h"

namespace berth::sim {
namespace {

TEST(Calls, EveryCallIsExported) {
  const Library nvml = nvml_library();
  const Library cuda = cuda_library();
  for (const Call& call : kCalls) {
    const std::string name(call.name);
    EXPECT_EQ(nvml.has(name), name.starts_with("nvml")) << name;
    EXPECT_EQ(cuda.has(name), name.starts_with("cu")) << name;
  }
}

TEST(Calls, TheOldLibraryHasOnlyWhatIsOld) {
  const Library old(BERTH_TEST_R418_DIR "/libnvidia-ml.so.1");
  for (const Call& call : kCalls) {
    const std::string name(call.name);
    if (!name.starts_with("nvml")) continue;
    const bool newer = name == "nvmlDeviceGetTemperatureV" || name == "nvmlDeviceGetDriverModel_v2";
    EXPECT_EQ(old.has(name), !newer && has_call({418, 67}, call)) << name;
  }
}

TEST(Calls, VersionsAreTakenOff) {
  EXPECT_EQ(without_version("nvmlDeviceGetCount_v2"), "nvmlDeviceGetCount");
  EXPECT_EQ(without_version("nvmlInitWithFlags"), "nvmlInit");
  EXPECT_EQ(without_version("nvmlDeviceGetTemperatureV"), "nvmlDeviceGetTemperature");
  EXPECT_EQ(without_version("nvmlDeviceGetBAR1MemoryInfo"), "nvmlDeviceGetBAR1MemoryInfo");
  EXPECT_EQ(without_version("_v"), "_v");
  EXPECT_TRUE(names_call("cuMemAlloc", "cuMemAlloc_v2"));
  EXPECT_FALSE(names_call("nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3"));
}

TEST(Calls, ProcessListsCameAndWent) {
  const Call& second = call_named("nvmlDeviceGetComputeRunningProcesses_v2");
  const Call& third = call_named("nvmlDeviceGetComputeRunningProcesses_v3");
  EXPECT_FALSE(has_call({440, 33}, second));
  EXPECT_TRUE(has_call({450, 51}, second));
  EXPECT_FALSE(has_call({510, 38}, third));
  EXPECT_TRUE(has_call({510, 39}, third));
  EXPECT_TRUE(has_call({535, 86, 10}, third));
  EXPECT_FALSE(has_call({535, 98}, third));
  EXPECT_TRUE(has_call({535, 104, 5}, third));
  EXPECT_FALSE(has_wide_process_records({530, 41}));
  EXPECT_TRUE(has_wide_process_records({535, 43}));
  EXPECT_TRUE(has_wide_process_records({535, 86, 10}));
  EXPECT_FALSE(has_wide_process_records({535, 87}));
  EXPECT_FALSE(has_wide_process_records({535, 104, 5}));
}

}  // namespace
}  // namespace berth::sim
