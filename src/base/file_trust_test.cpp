// Tests of file_trust.h: which files count as parts of one installation.
#include "base/file_trust.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace berth {
namespace {

namespace fs = std::filesystem;

class FileTrustTest : public testing::Test {
 protected:
  FileTrustTest() {
    std::string pattern = (fs::temp_directory_path() / "own-files-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    create_file("lib/python/berth/module");
    create_file("bin/berth");
  }
  ~FileTrustTest() override { fs::remove_all(folder_); }

  void create_file(const std::string& name) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << "text\n";
    for (fs::path part = folder_ / name; part != folder_; part = part.parent_path()) {
      set_mode(part.lexically_relative(folder_), fs::is_directory(part) ? 0755 : 0644);
    }
  }
  void set_mode(const std::string& name, mode_t mode) const {
    ASSERT_EQ(::chmod((folder_ / name).c_str(), mode), 0);
  }
  void set_owner(const std::string& name, uid_t uid, gid_t gid) const {
    ASSERT_EQ(::lchown((folder_ / name).c_str(), uid, gid), 0);
  }
  std::string trust_problem() const {
    return describe_trust_problem((folder_ / "lib/python/berth").string(),
                                  (folder_ / "bin/berth").string())
        .value_or("");
  }

  fs::path folder_;
};

TEST_F(FileTrustTest, the_same_owner_is_trusted) {
  EXPECT_EQ(trust_problem(), "");
}

TEST_F(FileTrustTest, a_missing_file_is_not_trusted) {
  fs::remove(folder_ / "bin/berth");
  EXPECT_NE(trust_problem(), "");
}

TEST_F(FileTrustTest, a_folder_that_others_may_write_to_is_not_trusted) {
  set_mode("bin", 0757);
  EXPECT_NE(trust_problem().find("every user"), std::string::npos);
  set_mode("bin", 01757);  // a user could have created the file before Berth was installed
  EXPECT_NE(trust_problem().find("every user"), std::string::npos);
  set_mode("bin", 0775);
  EXPECT_NE(trust_problem().find("the group"), std::string::npos);
}

TEST_F(FileTrustTest, a_file_that_others_may_write_to_is_not_trusted) {
  set_mode("bin/berth", 0757);
  EXPECT_NE(trust_problem().find("every user"), std::string::npos);
}

TEST_F(FileTrustTest, writers_that_can_change_our_own_files_are_trusted) {
  set_mode("bin", 0775);
  set_mode("lib/python", 0775);
  EXPECT_EQ(trust_problem(), "");
  set_mode("bin/berth", 0777);
  EXPECT_NE(trust_problem(), "");
  set_mode("lib", 01777);  // in a sticky folder other users cannot replace Berth's files
  EXPECT_NE(trust_problem(), "");
  set_mode("lib", 0777);
  EXPECT_EQ(trust_problem(), "");
}

TEST_F(FileTrustTest, owners) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kAlice = 2001;
  constexpr uid_t kMallory = 2003;
  set_owner("bin/berth", kMallory, kMallory);
  EXPECT_NE(trust_problem().find("belongs to user"), std::string::npos);
  set_owner("lib/python/berth", kMallory, kMallory);  // the package is Mallory's
  EXPECT_EQ(trust_problem(), "");
  set_owner("bin", kAlice, kAlice);
  EXPECT_NE(trust_problem().find("belongs to user"), std::string::npos);
  set_owner("lib", kAlice, kAlice);
  EXPECT_EQ(trust_problem(), "");
  set_mode("bin", 0775);
  set_owner("bin", kAlice, 0);
  set_mode("lib", 0775);  // another group
  EXPECT_NE(trust_problem().find("the group"), std::string::npos);
}

TEST_F(FileTrustTest, a_link_to_our_own_files_is_resolved) {
  fs::create_directory(folder_ / "elsewhere");
  fs::create_symlink(folder_ / "lib/python/berth", folder_ / "elsewhere/berth");
  EXPECT_EQ(describe_trust_problem((folder_ / "elsewhere/berth").string(),
                                   (folder_ / "bin/berth").string()),
            std::nullopt);
}

// The owner of a link can change its target at any time.
TEST_F(FileTrustTest, the_owner_of_a_link_must_be_trusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kMallory = 2003;
  fs::rename(folder_ / "bin", folder_ / "programs");
  fs::create_symlink("programs", folder_ / "bin");
  EXPECT_EQ(trust_problem(), "");
  set_owner("bin", kMallory, kMallory);
  EXPECT_NE(trust_problem().find("belongs to user"), std::string::npos);
  set_owner("bin", 0, 0);
  fs::rename(folder_ / "programs/berth", folder_ / "programs/berth-1");
  fs::create_symlink("berth-1", folder_ / "programs/berth");
  EXPECT_EQ(trust_problem(), "");
  set_owner("programs/berth", kMallory, kMallory);
  EXPECT_NE(trust_problem().find("belongs to user"), std::string::npos);
  set_owner("lib/python/berth", kMallory, kMallory);  // the package is Mallory's, too
  EXPECT_EQ(trust_problem(), "");
}

TEST_F(FileTrustTest, a_link_to_a_file_that_others_can_change_is_not_trusted) {
  fs::rename(folder_ / "bin/berth", folder_ / "bin/berth-1");
  fs::create_symlink("berth-1", folder_ / "bin/berth");
  set_mode("bin/berth-1", 0757);
  EXPECT_NE(trust_problem().find("every user"), std::string::npos);
}

TEST_F(FileTrustTest, a_link_that_leads_nowhere_is_not_trusted) {
  fs::remove(folder_ / "bin/berth");
  fs::create_symlink("nowhere", folder_ / "bin/berth");
  EXPECT_NE(trust_problem(), "");
}

}  // namespace
}  // namespace berth
