// A unit that systemd reads as it is meant. That it takes it, tests/test_unit.py asks itself.
#include "serve/systemd_unit.h"

#include <gtest/gtest.h>
#include <string>

namespace berth {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool lacks(const std::string& text, const std::string& part) {
  return !has(text, part);
}

UnitOptions options() {
  UnitOptions options;
  options.program = "/usr/local/bin/berth";
  options.user = "nobody";
  return options;
}

TEST(Unit, runs_this_program_as_told) {
  UnitOptions some = options();
  some.arguments = {"--listen", "0.0.0.0", "--token-file", "/etc/my token"};
  EXPECT_PRED2(has, unit_text(some), "\nUser=nobody\n");
  EXPECT_PRED2(has, unit_text(some),
               "\nExecStart=/usr/local/bin/berth serve --listen 0.0.0.0 "
               "--token-file \"/etc/my token\"\n");
}

TEST(Unit, hides_nothing_that_leases_are_known_by) {
  for (const char* setting :
       {"\nPrivateTmp", "\nProtectProc", "\nProcSubset", "\nPrivateUsers", "\nPrivateDevices",
        "\nProtectClock", "\nDynamicUser", "\nDeviceAllow"}) {
    EXPECT_PRED2(lacks, unit_text(options()), setting);
  }
}

TEST(Unit, writes_only_where_it_may_change_something) {
  EXPECT_PRED2(lacks, unit_text(options()), "ReadWritePaths");
  UnitOptions some = options();
  some.changes = true;
  EXPECT_PRED2(has, unit_text(some), "\nReadWritePaths=/tmp /var/tmp\n");
  some.harbour = "/srv/a b/harbour/";
  EXPECT_PRED2(has, unit_text(some), "\nReadWritePaths=\"/srv/a b\"\n");
  EXPECT_PRED2(has, unit_text(some), "\nEnvironment=\"BERTH_DIR=/srv/a b/harbour/\"\n");
}

TEST(UnitWord, means_what_it_says) {
  EXPECT_EQ(unit_word("/usr/bin/berth", UnitPlace::command), "/usr/bin/berth");
  EXPECT_EQ(unit_word("", UnitPlace::command), "\"\"");
  EXPECT_EQ(unit_word("50%", UnitPlace::command), "50%%");
  EXPECT_EQ(unit_word("$HOME", UnitPlace::command), "$$HOME");
  EXPECT_EQ(unit_word("$HOME", UnitPlace::setting), "$HOME");
  EXPECT_EQ(unit_word("a\"b\\c'd", UnitPlace::command), R"("a\"b\\c\'d")");
  EXPECT_EQ(unit_word("a\nb", UnitPlace::command), R"("a\x0ab")");
}

}  // namespace
}  // namespace berth
