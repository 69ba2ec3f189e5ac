// Unit tests of user_folder.h: folders are created and found, and those of others are not used.
#include "archive/user_folder.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace berth {
namespace {

class UserFolderTest : public testing::Test {
 protected:
  UserFolderTest() {
    std::string pattern = testing::TempDir() + "berth-archive-XXXXXX";
    temp_folder_ = ::mkdtemp(pattern.data());
    archive_ = temp_folder_ + "/archive";
  }
  ~UserFolderTest() override { std::filesystem::remove_all(temp_folder_); }

  std::string temp_folder_;
  std::string archive_;
};

TEST_F(UserFolderTest, archive_path_depends_on_the_harbour) {
  EXPECT_EQ(archive_path({kDefaultHarbour, false}), "/var/tmp/berth");
  EXPECT_EQ(archive_path({"/dev/shm/lab", true}), "/dev/shm/lab/archive");
}

TEST_F(UserFolderTest, is_world_readable_whatever_the_umask) {
  const mode_t before = ::umask(077);
  const auto made = open_own_folder(archive_);
  ::umask(before);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->uid, ::geteuid());
  struct stat status {};
  ASSERT_EQ(::fstat(made->directory.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0755U);
  ASSERT_EQ(::stat(archive_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777U);
  EXPECT_EQ(open_own_folder(archive_)->path, made->path);
  ASSERT_EQ(open_user_folders(archive_).size(), 1U);
  EXPECT_EQ(open_user_folders(archive_).front().path, made->path);
}

TEST_F(UserFolderTest, avoids_a_name_taken_by_another_user) {
  ASSERT_TRUE(open_own_folder(archive_));
  const std::string ours = open_own_folder(archive_)->path;
  ASSERT_EQ(::rmdir(ours.c_str()), 0);
  ASSERT_EQ(::symlink("/etc", ours.c_str()), 0);
  const auto other = open_own_folder(archive_);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->path, ours + "-1");
  ASSERT_EQ(open_user_folders(archive_).size(), 1U);
}

TEST_F(UserFolderTest, rejects_an_archive_that_is_a_symlink) {
  const std::string target = temp_folder_ + "/target";
  const auto there = open_own_folder(target);  // even if this user's folder exists there
  ASSERT_TRUE(there);
  ASSERT_EQ(::symlink(target.c_str(), archive_.c_str()), 0);
  EXPECT_FALSE(open_own_folder(archive_));
  EXPECT_FALSE(find_own_folder(archive_));
}

TEST_F(UserFolderTest, requires_the_owner_to_match_the_name) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make files of others";
  ASSERT_TRUE(open_own_folder(archive_));
  const std::string planted = archive_ + "/1000";
  ASSERT_EQ(::mkdir(planted.c_str(), 0755), 0);  // owned by root, with the name of another user
  EXPECT_EQ(open_user_folders(archive_).size(), 1U);
  ASSERT_EQ(::chown(planted.c_str(), 1000, 1000), 0);
  EXPECT_EQ(open_user_folders(archive_).size(), 2U);
}

// Otherwise a user could make every reader open any number of folders.
TEST_F(UserFolderTest, ignores_names_that_berth_does_not_make) {
  ASSERT_TRUE(open_own_folder(archive_));
  const std::string ours = open_own_folder(archive_)->path;
  for (const char* more : {"-1", "-15", "-16", "-01", "-x", "-", "x"}) {
    ASSERT_EQ(::mkdir((ours + more).c_str(), 0755), 0);
  }
  EXPECT_EQ(open_user_folders(archive_).size(), 3U) << "the usual one, -1 and -15";
}

TEST_F(UserFolderTest, open_inside_rejects_links_and_parent_paths) {
  const auto folder = open_own_folder(archive_);
  ASSERT_TRUE(folder);
  const int at = folder->directory.get();
  ASSERT_EQ(::symlinkat("/etc/passwd", at, "link"), 0);
  EXPECT_FALSE(open_inside(at, "link", O_RDONLY));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_FALSE(open_inside(at, "../..", O_RDONLY));
  ASSERT_EQ(::mkdirat(at, "file", 0755), 0);
  EXPECT_TRUE(open_inside(at, "file", O_RDONLY));
}

TEST_F(UserFolderTest, reports_why_it_cannot_be_made) {
  const auto none = open_own_folder(temp_folder_ + "/not/there");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("No such file or directory"), std::string::npos);
}

}  // namespace
}  // namespace berth
