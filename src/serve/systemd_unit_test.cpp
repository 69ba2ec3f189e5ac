// Tests the text of the unit; tests/test_unit.py checks it with systemd itself.
#include "serve/systemd_unit.h"

#include <gtest/gtest.h>
#include <string>

namespace berth::serve {
namespace {

bool unit_has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
bool unit_lacks(const std::string& text, const std::string& part) {
  return !unit_has(text, part);
}

UnitOptions options() {
  UnitOptions options;
  options.program = "/usr/local/bin/berth";
  options.user = "alice";
  return options;
}

TEST(Unit, runs_this_program_with_its_arguments) {
  UnitOptions some = options();
  some.arguments = {"--listen", "0.0.0.0", "--token-file", "/etc/my token"};
  EXPECT_PRED2(unit_has, format_unit(some), "\nUser=alice\n");
  EXPECT_PRED2(unit_has, format_unit(some),
               "\nExecStart=/usr/local/bin/berth serve --listen 0.0.0.0 "
               "--token-file \"/etc/my token\"\n");
}

TEST(Unit, does_not_isolate_tmp_proc_users_or_devices) {
  for (const char* setting :
       {"\nPrivateTmp", "\nProtectProc", "\nProcSubset", "\nPrivateUsers", "\nPrivateDevices",
        "\nProtectClock", "\nDynamicUser", "\nDeviceAllow"}) {
    EXPECT_PRED2(unit_lacks, format_unit(options()), setting);
  }
}

TEST(Unit, has_write_access_to_the_harbour_only_with_allow_changes) {
  EXPECT_PRED2(unit_has, format_unit(options()), "\nReadWritePaths=-/var/tmp/berth\n");
  UnitOptions some = options();
  some.harbour = "/srv/a b/harbour";
  EXPECT_PRED2(unit_has, format_unit(some), "\nReadWritePaths=\"-/srv/a b/harbour/archive\"\n");
  some.harbour.clear();
  some.allow_changes = true;
  EXPECT_PRED2(unit_has, format_unit(some), "\nReadWritePaths=/tmp /var/tmp\n");
  some.harbour = "/srv/a b/harbour/";
  EXPECT_PRED2(unit_has, format_unit(some), "\nReadWritePaths=\"/srv/a b\"\n");
  EXPECT_PRED2(unit_has, format_unit(some), "\nEnvironment=\"BERTH_DIR=/srv/a b/harbour/\"\n");
}

TEST(QuoteUnitWord, escapes_special_characters) {
  EXPECT_EQ(quote_unit_word("/usr/bin/berth", UnitContext::command), "/usr/bin/berth");
  EXPECT_EQ(quote_unit_word("", UnitContext::command), "\"\"");
  EXPECT_EQ(quote_unit_word("50%", UnitContext::command), "50%%");
  EXPECT_EQ(quote_unit_word("$HOME", UnitContext::command), "$$HOME");
  EXPECT_EQ(quote_unit_word("$HOME", UnitContext::setting), "$HOME");
  EXPECT_EQ(quote_unit_word("a\"b\\c'd", UnitContext::command), R"("a\"b\\c\'d")");
  EXPECT_EQ(quote_unit_word("a\nb", UnitContext::command), R"("a\x0ab")");
}

}  // namespace
}  // namespace berth::serve
