// Unit tests of job_folder.h: jobs that are listed again and again.
#include "run/job_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "base/descriptors.h"

namespace berth {
namespace {

class JobFolderTest : public testing::Test {
 protected:
  JobFolderTest() : path_(testing::TempDir() + "berth-jobs-XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
    ::setenv("XDG_STATE_HOME", path_.c_str(), 1);
  }
  ~JobFolderTest() override {
    ::unsetenv("XDG_STATE_HOME");
    std::filesystem::remove_all(path_);
  }

  static const DetachedJob& find(const std::vector<DetachedJob>& jobs, const NewJobFolder& wanted) {
    return *std::find_if(jobs.begin(), jobs.end(),
                         [&](const DetachedJob& one) { return one.spec.id == wanted.spec.id; });
  }
  static NewJobFolder make_job() { return std::move(*make_job_folder({})); }
  static void finish(const NewJobFolder& job) {
    EXPECT_TRUE(
        write_all(job.events.get(), "{\"event\": \"finished\", \"code\": 3, \"at_ms\": 1}\n"));
  }

  std::string path_;
};

TEST_F(JobFolderTest, jobs_that_have_ended_are_read_once) {
  NewJobFolder alive = make_job();
  NewJobFolder ended = make_job();
  finish(ended);
  ended.alive.reset();
  std::vector<DetachedJob> jobs = *list_jobs({});
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_TRUE(find(jobs, alive).is_alive && !find(jobs, alive).finish);
  EXPECT_TRUE(!find(jobs, ended).is_alive && find(jobs, ended).finish);
  // Nothing writes to such a folder any more; here it shows whether it is read.
  std::filesystem::remove(ended.path + "/events");
  finish(alive);
  jobs = *list_jobs(std::move(jobs));
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_TRUE(find(jobs, alive).is_alive && find(jobs, alive).finish);
  EXPECT_TRUE(find(jobs, ended).finish);
  remove_job_folder(ended.path);
  EXPECT_EQ(list_jobs(std::move(jobs))->size(), 1U);
}

}  // namespace
}  // namespace berth
