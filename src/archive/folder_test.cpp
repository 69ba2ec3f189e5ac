// Folders of users: made, found, and not taken from somebody else.
#include "archive/folder.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace berth {
namespace {

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string pattern = testing::TempDir() + "berth-archive-XXXXXX";
    place_ = ::mkdtemp(pattern.data());
    archive_ = place_ + "/archive";
  }
  ~FolderTest() override { std::filesystem::remove_all(place_); }

  std::string place_;
  std::string archive_;
};

TEST_F(FolderTest, is_beside_the_default_harbour_or_inside_of_another) {
  EXPECT_EQ(archive_path({kDefaultHarbour, false}), "/var/tmp/berth");
  EXPECT_EQ(archive_path({"/dev/shm/lab", true}), "/dev/shm/lab/archive");
}

TEST_F(FolderTest, is_made_for_everybody_to_read_whatever_the_umask) {
  const mode_t before = ::umask(077);
  const auto made = own_folder(archive_);
  ::umask(before);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->uid, ::geteuid());
  struct stat about {};
  ASSERT_EQ(::fstat(made->directory.get(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0755U);
  ASSERT_EQ(::stat(archive_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 01777U);
  EXPECT_EQ(own_folder(archive_)->path, made->path);
  ASSERT_EQ(user_folders(archive_).size(), 1U);
  EXPECT_EQ(user_folders(archive_).front().path, made->path);
}

TEST_F(FolderTest, what_somebody_planted_under_our_name_is_left_alone) {
  ASSERT_TRUE(own_folder(archive_));
  const std::string ours = own_folder(archive_)->path;
  ASSERT_EQ(::rmdir(ours.c_str()), 0);
  ASSERT_EQ(::symlink("/etc", ours.c_str()), 0);
  const auto other = own_folder(archive_);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->path, ours + "-1");
  ASSERT_EQ(user_folders(archive_).size(), 1U);
}

TEST_F(FolderTest, an_archive_that_is_a_link_is_not_used) {
  const std::string target = place_ + "/target";
  const auto there = own_folder(target);  // even where the folder of this user exists already
  ASSERT_TRUE(there);
  ASSERT_EQ(::symlink(target.c_str(), archive_.c_str()), 0);
  EXPECT_FALSE(own_folder(archive_));
  EXPECT_FALSE(existing_folder(archive_));
}

TEST_F(FolderTest, of_another_user_counts_only_as_his) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make files of others";
  ASSERT_TRUE(own_folder(archive_));
  const std::string planted = archive_ + "/1000";
  ASSERT_EQ(::mkdir(planted.c_str(), 0755), 0);  // root's, in another's name
  EXPECT_EQ(user_folders(archive_).size(), 1U);
  ASSERT_EQ(::chown(planted.c_str(), 1000, 1000), 0);
  EXPECT_EQ(user_folders(archive_).size(), 2U);
}

// Else a user could have every reader open any number of folders.
TEST_F(FolderTest, only_the_names_that_berth_gives_count) {
  ASSERT_TRUE(own_folder(archive_));
  const std::string ours = own_folder(archive_)->path;
  for (const char* more : {"-1", "-15", "-16", "-01", "-x", "-", "x"}) {
    ASSERT_EQ(::mkdir((ours + more).c_str(), 0755), 0);
  }
  EXPECT_EQ(user_folders(archive_).size(), 3U) << "the usual one, -1 and -15";
}

TEST_F(FolderTest, what_is_opened_is_neither_a_link_nor_elsewhere) {
  const auto folder = own_folder(archive_);
  ASSERT_TRUE(folder);
  const int at = folder->directory.get();
  ASSERT_EQ(::symlinkat("/etc/passwd", at, "link"), 0);
  EXPECT_FALSE(open_inside(at, "link", O_RDONLY));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_FALSE(open_inside(at, "../..", O_RDONLY));
  ASSERT_EQ(::mkdirat(at, "file", 0755), 0);
  EXPECT_TRUE(open_inside(at, "file", O_RDONLY));
}

TEST_F(FolderTest, says_why_there_can_be_none) {
  const auto none = own_folder(place_ + "/not/there");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("No such file or directory"), std::string::npos);
}

}  // namespace
}  // namespace berth
