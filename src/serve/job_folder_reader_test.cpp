// Tests of JobFolderReader, with threads that use it at the same time.
#include "serve/job_folder_reader.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

namespace berth::serve {
namespace {

TEST(JobFolderReader, ReadsAgainWhenRequested) {
  std::string path = testing::TempDir() + "berth-jobs-XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  ::setenv("XDG_STATE_HOME", path.c_str(), 1);
  {
    const ViewerActivity viewer_activity;
    JobFolderReader reader(viewer_activity);
    reader.wait_for_first_read(std::chrono::minutes(1));
    ASSERT_TRUE(reader.current());
    EXPECT_TRUE(reader.current()->jobs.empty());
    const auto job = make_job_folder({});
    ASSERT_TRUE(job);
    std::atomic<bool> done{false};
    std::thread other([&] {
      while (!done) {
        reader.request_read();
        std::this_thread::yield();
      }
    });
    while (reader.current()->jobs.empty()) std::this_thread::yield();
    done = true;
    other.join();
    EXPECT_EQ(reader.current()->jobs.front().spec.id, job->spec.id);
  }
  ::unsetenv("XDG_STATE_HOME");
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace berth::serve
