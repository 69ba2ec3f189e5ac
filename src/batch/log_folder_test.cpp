// Tests which log folders are accepted, and that files are opened through the open folder.
#include "batch/log_folder.h"

#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string_view>
#include <unistd.h>

#include "batch/joblog.h"

namespace berth::batch {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOther = 2003;

class LogFolderTest : public testing::Test {
 protected:
  LogFolderTest() {
    std::string pattern = testing::TempDir() + "berth-logs-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    fs::create_directory(folder_ / "own");
  }
  ~LogFolderTest() override { fs::remove_all(folder_); }

  void link(const char* name, const fs::path& target, uid_t owner = ::geteuid()) const {
    fs::create_directory_symlink(target, folder_ / name);
    ASSERT_EQ(::lchown((folder_ / name).c_str(), owner, owner), 0);
  }

  // Whether a log that is opened at `path` appears in `expected`.
  bool opens_in(const fs::path& path, const fs::path& expected) const {
    const auto logs = LogFolder::open(path);
    return logs && logs->open_log("log", true) && fs::remove(expected / "log");
  }

  fs::path folder_;
};

TEST_F(LogFolderTest, follows_links_of_this_user) {
  link("absolute", folder_ / "own");
  link("relative", "own");
  link("chain", folder_ / "relative");
  link("dot", "./own/.");
  for (const char* name : {"own", "own/", "own/.", "absolute", "relative", "relative/", "chain",
                           "dot", "new/and/nested"}) {
    const bool is_new = std::string_view(name).starts_with("new");
    EXPECT_TRUE(opens_in(folder_ / name, folder_ / (is_new ? name : "own"))) << name;
  }
  link("loop", "loop");
  link("dangling", "nothing");
  EXPECT_FALSE(LogFolder::open(folder_ / "loop"));
  EXPECT_FALSE(LogFolder::open(folder_ / "dangling"));
}

TEST_F(LogFolderTest, refuses_links_of_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  link("planted", folder_ / "own", kOther);
  link("mine", folder_ / "planted");
  for (const char* name : {"planted", "mine"}) {
    const auto logs = LogFolder::open(folder_ / name);
    ASSERT_FALSE(logs) << name;
    EXPECT_NE(logs.error().message.find("belongs to"), std::string::npos) << logs.error().message;
  }
}

// Where another user can rename the folder, another folder may have its name at any time.
TEST_F(LogFolderTest, opens_files_through_the_opened_folder) {
  const auto logs = LogFolder::open(folder_ / "own");
  ASSERT_TRUE(logs);
  fs::rename(folder_ / "own", folder_ / "moved");
  fs::create_directory(folder_ / "own");
  {
    const auto joblog = Joblog::open(folder_ / "own" / "joblog.jsonl", *logs);
    ASSERT_TRUE(joblog) << joblog.error().message;
    EXPECT_TRUE(fs::exists(folder_ / "moved" / "joblog.jsonl"));
    EXPECT_FALSE(fs::exists(folder_ / "own" / "joblog.jsonl"));
  }
  // Another path to the folder is recognized; files elsewhere are opened by their path.
  EXPECT_TRUE(logs->open_file(folder_ / "moved" / "file", O_RDWR | O_CREAT));
  EXPECT_TRUE(fs::exists(folder_ / "moved" / "file"));
  EXPECT_TRUE(logs->open_file(folder_ / "elsewhere", O_RDWR | O_CREAT));
  EXPECT_TRUE(fs::exists(folder_ / "elsewhere"));
}

}  // namespace
}  // namespace berth::batch
