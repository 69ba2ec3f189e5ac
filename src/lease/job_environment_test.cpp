// Unit tests of the job's environment: an index must never mean another GPU to CUDA than to berth.
#include "lease/job_environment.h"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

namespace berth {
namespace {

using Words = std::vector<std::string>;

Gpu make_gpu(GpuIndex index, std::optional<std::string> uuid) {
  Gpu gpu;
  gpu.index = index;
  gpu.uuid = std::move(uuid);
  return gpu;
}

std::vector<Gpu> three_gpus() {
  return {make_gpu({0, {}}, "GPU-a"), make_gpu({1, {}}, "GPU-b"), make_gpu({2, {}}, "GPU-c")};
}

std::string cuda_devices(const std::vector<Gpu>& gpus, const Words& uuids,
                         GpuIdFormat form = GpuIdFormat::index) {
  for (const auto& [name, value] : make_job_environment(gpus, uuids, form, "lease")) {
    if (name == "CUDA_VISIBLE_DEVICES") return value;
  }
  return "not set";
}

TEST(JobEnvironment, indices_by_default_in_the_order_of_the_lease) {
  const auto variables =
      make_job_environment(three_gpus(), {"GPU-c", "GPU-a"}, GpuIdFormat::index, "ab12");
  const std::map<std::string, std::string> expected = {
      {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
      {"CUDA_VISIBLE_DEVICES", "2,0"},
      {"NVIDIA_VISIBLE_DEVICES", "GPU-c,GPU-a"},
      {"BERTH_GPUS", "2,0"},
      {"BERTH_LEASE", "ab12"},
  };
  EXPECT_EQ((std::map<std::string, std::string>(variables.begin(), variables.end())), expected);
}

// `berth release` unsets these variables.
TEST(JobEnvironment, the_list_of_variables_is_complete) {
  std::set<std::string> listed(kLeaseVariables.begin(), kLeaseVariables.end());
  listed.insert("CUDA_DEVICE_ORDER");  // it is right without a lease, too
  std::set<std::string> set;
  for (const auto& [name, value] :
       make_job_environment(three_gpus(), {"GPU-c"}, GpuIdFormat::index, "ab12", 7)) {
    set.insert(name);
  }
  EXPECT_EQ(set, listed);
}

TEST(JobEnvironment, uuids_where_they_are_asked_for) {
  EXPECT_EQ(cuda_devices(three_gpus(), {"GPU-c", "GPU-a"}, GpuIdFormat::uuid), "GPU-c,GPU-a");
}

TEST(JobEnvironment, a_mig_instance_is_always_named_by_uuid) {
  const std::vector<Gpu> gpus = {make_gpu({0, {}}, "GPU-a"), make_gpu({1, 0}, "MIG-x"),
                                 make_gpu({1, 2}, "MIG-y")};
  EXPECT_EQ(cuda_devices(gpus, {"MIG-y"}), "MIG-y");
  EXPECT_EQ(make_job_environment(gpus, {"MIG-y"}, GpuIdFormat::index, "")[3],
            (std::pair<std::string, std::string>("BERTH_GPUS", "1:2")));
  // A whole card beside it, too: CUDA counts differently on such a host.
  EXPECT_EQ(cuda_devices(gpus, {"GPU-a"}), "GPU-a");
}

TEST(JobEnvironment, uuids_where_a_card_is_missing_from_cudas_count) {
  auto gpus = three_gpus();
  gpus[0].health = Health::lost;
  EXPECT_EQ(cuda_devices(gpus, {"GPU-c"}), "GPU-c");
  gpus = three_gpus();
  gpus[0].uuid.reset();
  EXPECT_EQ(cuda_devices(gpus, {"GPU-c"}), "GPU-c");
  gpus = three_gpus();
  gpus[0].mig_without_instances = true;
  EXPECT_EQ(cuda_devices(gpus, {"GPU-c"}), "GPU-c");
  gpus = three_gpus();
  gpus[0].health = Health::unreadable;  // CUDA still counts it
  EXPECT_EQ(cuda_devices(gpus, {"GPU-c"}), "2");
}

TEST(JobEnvironment, a_gpu_that_the_snapshot_lacks_is_not_dropped) {
  EXPECT_EQ(cuda_devices(three_gpus(), {"GPU-gone", "GPU-b"}), "GPU-gone,GPU-b");
  EXPECT_EQ(format_gpu_indices(three_gpus(), {"GPU-gone", "GPU-b"}), "GPU-gone,1");
}

TEST(FormatDockerDevices, are_quoted_for_csv) {
  EXPECT_EQ(format_docker_devices({"GPU-a"}), "\"device=GPU-a\"");
  EXPECT_EQ(format_docker_devices({"GPU-a", "MIG-b"}), "\"device=GPU-a,MIG-b\"");
}

TEST(SubstituteGpuPlaceholder, replaces_every_occurrence_in_every_argument) {
  EXPECT_EQ(
      substitute_gpu_placeholder({"train", "--gpus", "{}", "log-{}-{}.txt", "x"}, "{}", "0,2"),
      (Words{"train", "--gpus", "0,2", "log-0,2-0,2.txt", "x"}));
  EXPECT_EQ(substitute_gpu_placeholder({"a", "GPUGPU", "gpu"}, "GPU", "1"),
            (Words{"a", "11", "gpu"}));
}

TEST(SubstituteGpuPlaceholder, inserted_text_is_not_replaced_again) {
  EXPECT_EQ(substitute_gpu_placeholder({"a", "0"}, "0", "0,10"), (Words{"a", "0,10"}));
  EXPECT_EQ(substitute_gpu_placeholder({"a", "xxx"}, "xx", "x"), (Words{"a", "xx"}));
}

TEST(SubstituteGpuPlaceholder, keeps_the_program_name_as_xargs_does) {
  EXPECT_EQ(substitute_gpu_placeholder({"bin-{}", "{}"}, "{}", "3"), (Words{"bin-{}", "3"}));
  EXPECT_EQ(substitute_gpu_placeholder({}, "{}", "3"), Words{});
}

TEST(SubstituteGpuPlaceholder, an_empty_placeholder_replaces_nothing) {
  EXPECT_EQ(substitute_gpu_placeholder({"a", "b"}, "", "3"), (Words{"a", "b"}));
}

}  // namespace
}  // namespace berth
