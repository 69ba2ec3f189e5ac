// Tests of berth-sim-job: memory curves, and the program itself.
#include <cstdio>

#include "sim/job_plan.h"
#include "sim/test_support.h"

namespace berth::sim {
namespace {

TEST(Curve, GoodAndBad) {
  const auto steps = parse_curve("0s:1GiB,2s:4GiB,5s:0B");
  ASSERT_TRUE(steps) << steps.error().message;
  ASSERT_EQ(steps->size(), 3U);
  EXPECT_EQ((*steps)[1].at, std::chrono::seconds{2});
  EXPECT_EQ((*steps)[1].memory, gib(4));
  for (const char* bad :
       {"", "0s", "1s:1GiB", "0s:1GiB,0s:2GiB", "0s:1GiB,", "0s:1GiB,2s:", "0s:-1GiB", "x:1GiB"}) {
    const auto refused = parse_curve(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().kind, ErrorKind::usage);
  }
}

struct Finished {
  int status;
  std::string output;  // stdout and stderr
};

Finished run_job(const std::string& arguments) {
  std::FILE* pipe =
      ::popen(fmt::format("{}/berth-sim-job {} 2>&1", BERTH_TEST_BIN_DIR, arguments).c_str(), "r");
  std::string output;
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr)
    output += part.data();
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

class Job : public testing::Test {
 protected:
  TestFolder folder;
  Job() {
    use_server(folder, "2x8GiB");
    ::setenv("LD_LIBRARY_PATH", BERTH_TEST_SIM_DIR, 1);
    ::unsetenv("BERTH_LEASE");
  }
};

TEST_F(Job, RunsAndEnds) {
  const auto job = run_job("--mem 2GiB --time 10ms --fail 3 --log " + folder.file("log"));
  EXPECT_EQ(job.status, 3) << job.output;
  EXPECT_TRUE(job.output.starts_with("berth-sim-job: pid ")) << job.output;
  EXPECT_TRUE(job.output.ends_with(": 2 GiB each\n")) << job.output;
  std::ifstream log(folder.file("log"));
  std::string start;
  std::string end;
  std::getline(log, start);
  std::getline(log, end);
  EXPECT_NE(start.find(R"({"event":"start","pid":)"), std::string::npos) << start;
  EXPECT_NE(end.find(R"("event":"end")"), std::string::npos) << end;
}

TEST_F(Job, OutOfMemory) {
  const auto job = run_job("--curve 0s:1GiB,20ms:9GiB --time 1s --quiet");
  EXPECT_EQ(job.status, 1);
  EXPECT_NE(job.output.find("CUDA out of memory. Tried to allocate 9 GiB on device 0 (GPU-"),
            std::string::npos)
      << job.output;
}

TEST_F(Job, WrongUse) {
  EXPECT_EQ(run_job("--mem much").status, 64);
  EXPECT_EQ(run_job("--mem 1GiB --curve 0s:1GiB").status, 64);
  EXPECT_EQ(run_job("--util 101").status, 64);
  EXPECT_EQ(run_job("--unknown").status, 64);
  EXPECT_EQ(run_job("surplus").status, 64);
  EXPECT_EQ(run_job("--help").status, 0);
  EXPECT_EQ(run_job("--gpus 3 --time 1ms").status, 1);
}

TEST_F(Job, NothingToUse) {
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  auto job = run_job("--time 1ms");
  EXPECT_EQ(job.status, 1);
  EXPECT_EQ(job.output, "berth-sim-job: no CUDA device is visible (CUDA_VISIBLE_DEVICES='7')\n");
  ::setenv("BERTH_SIM", "0x8GiB", 1);
  job = run_job("--time 1ms");
  EXPECT_EQ(job.status, 64);
  EXPECT_TRUE(job.output.starts_with("berth-sim-job: BERTH_SIM: ")) << job.output;
  ::setenv("BERTH_SIM", "2x8GiB", 1);
  ::setenv("BERTH_SIM_STATE", "/dev/null", 1);
  job = run_job("--time 1ms");
  EXPECT_EQ(job.status, 69) << job.output;
}

}  // namespace
}  // namespace berth::sim
