// Unit tests of checks.h.
#include "doctor/checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/shell.h"
#include "doctor/doctor_text.h"
#include "harbour/setup.h"

namespace berth {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr TimePoint kNow{std::chrono::hours(500'000)};

// The only finding of a check.
Finding only_finding(const Findings& findings, const std::string& check) {
  const auto is = [&](const Finding& one) { return one.check == check; };
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), is), 1) << check;
  const auto found = std::find_if(findings.begin(), findings.end(), is);
  return found == findings.end() ? Finding{} : *found;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

WaitingTicket ticket(char letter) {
  WaitingTicket one;
  one.record.id = std::string(8, letter);
  one.record.pid = 4711;
  return one;
}

DirectoryFacts good_directory() {
  DirectoryFacts facts;
  facts.where = {"/tmp/berth", false};
  facts.owner_name = "root";
  return facts;
}

TEST(DoctorChecks, an_error_is_split_into_what_and_what_to_do) {
  const Finding finding =
      make_problem("driver", {ErrorKind::no_driver, "it hangs; wait; or reboot"});
  EXPECT_EQ(finding.text, "it hangs");
  EXPECT_EQ(finding.remedy, "wait; or reboot");
  EXPECT_EQ(make_problem("driver", {ErrorKind::no_driver, "it hangs"}).remedy, "");
}

TEST(DoctorChecks, shell_commands_are_quoted) {
  EXPECT_EQ(shell_quote("/tmp/berth"), "/tmp/berth");
  EXPECT_EQ(shell_quote("/a b'c$d"), R"('/a b'\''c$d')");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(setup_command({"/tmp/berth", false}), "sudo berth setup");
  EXPECT_EQ(setup_command({"/srv/a b", true}), "sudo BERTH_DIR='/srv/a b' berth setup");
}

TEST(DoctorChecks, a_good_directory_is_ok) {
  for (const Finding& finding : check_directory(good_directory())) {
    EXPECT_EQ(finding.level, Level::ok) << finding.check << finding.text;
    EXPECT_EQ(finding.remedy, "");
  }
}

TEST(DoctorChecks, a_wrong_owner_is_noted_except_when_simulated) {
  DirectoryFacts facts = good_directory();
  facts.owner = 1000;
  facts.owner_name = "bob";
  const Finding owner = only_finding(check_directory(facts), "owner");
  EXPECT_EQ(owner.level, Level::note);
  EXPECT_TRUE(contains(owner.text, "bob")) << owner.text;
  EXPECT_TRUE(contains(owner.remedy, "sudo berth setup")) << owner.remedy;
  facts.simulated = true;
  EXPECT_EQ(only_finding(check_directory(facts), "owner").level, Level::ok);
}

TEST(DoctorChecks, an_access_control_list_is_a_problem) {
  DirectoryFacts facts = good_directory();
  facts.has_access_list = true;
  const Finding list = only_finding(check_directory(facts), "acl");
  EXPECT_EQ(list.level, Level::problem);
  EXPECT_TRUE(contains(list.remedy, "sudo berth setup")) << list.remedy;
  facts.simulated = true;
  EXPECT_TRUE(
      contains(only_finding(check_directory(facts), "acl").remedy, "setfacl -bk /tmp/berth"));
}

TEST(DoctorChecks, modes) {
  DirectoryFacts facts = good_directory();
  const auto level = [&](mode_t mode) {
    facts.mode = mode;
    return only_finding(check_directory(facts), "mode").level;
  };
  EXPECT_EQ(level(01777), Level::ok);
  EXPECT_EQ(level(03777), Level::ok);
  EXPECT_EQ(level(0777), Level::problem);
  EXPECT_EQ(level(0775), Level::problem);
  EXPECT_EQ(level(0755), Level::problem) << "the default is for all";
  facts.where.is_custom = true;
  EXPECT_EQ(level(0700), Level::note) << "the user who chose it may want it for themselves";
  EXPECT_EQ(level(01770), Level::note);
  EXPECT_EQ(level(0770), Level::problem);
}

TEST(DoctorChecks, a_network_file_system_and_a_full_one) {
  DirectoryFacts facts = good_directory();
  facts.network_file_system = "NFS";
  facts.writable = false;
  facts.free_space = Bytes{4096};
  const Findings findings = check_directory(facts);
  EXPECT_TRUE(contains(only_finding(findings, "file_system").text, "NFS"));
  for (const char* check : {"file_system", "writable", "space"}) {
    EXPECT_EQ(only_finding(findings, check).level, Level::problem);
    EXPECT_NE(only_finding(findings, check).remedy, "");
  }
  facts.free_space = mib(10);
  EXPECT_EQ(only_finding(check_directory(facts), "space").level, Level::note);
  facts.free_space = gib(10);
  facts.free_files = 3;
  EXPECT_EQ(only_finding(check_directory(facts), "space").level, Level::problem);
}

TEST(DoctorChecks, twenty_untrusted_files_are_listed_and_the_rest_counted) {
  std::vector<IgnoredFile> files;
  for (int i = 0; i < 25; ++i)
    files.push_back({{fmt::format("lease-{}", i), 61234, "bad", false}, 1});
  files.push_back({{"lease-aaaaaaaa", 61234, "its process is gone", true}, 1});
  const Findings findings = check_files("/tmp/berth", files, 1);
  EXPECT_EQ(findings.size(), 22);
  EXPECT_TRUE(contains(findings[20].text, "5 more files")) << findings[20].text;
  const std::string leftovers = only_finding(findings, "leftovers").text;
  EXPECT_TRUE(contains(leftovers, "1 file ") && contains(leftovers, "1 of 61234")) << leftovers;
}

TEST(DoctorChecks, files_that_berth_would_never_name_so_are_one_note) {
  std::vector<IgnoredFile> files;
  for (const char* name : {"bin", "lib", "share", "src", "local"})
    files.push_back({{name, 0, "it is not a file of berth (a directory)"}, 1});
  const Finding finding = only_finding(check_files("/usr", files, 0), "planted");
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_TRUE(finding.text.starts_with("'bin', 'lib', 'local' and 2 more are ignored"))
      << finding.text;
  EXPECT_TRUE(contains(finding.remedy, "a directory of its own")) << finding.remedy;
  files.push_back({{"lease-aaaaaaaa", 61234, "it is a FIFO"}, 1});
  const Findings both = check_files("/usr", files, 0);
  EXPECT_EQ(std::count_if(both.begin(), both.end(),
                          [](const Finding& one) { return one.level == Level::problem; }),
            1);
}

TEST(DoctorText, more_than_five_findings_of_a_check_are_counted) {
  Findings findings{{"stranger", Level::problem, "a stranger", ""}};
  for (int i = 0; i < 2000; ++i) {
    findings.push_back({"silent", Level::problem, fmt::format("ticket {} is silent", i), "cancel"});
    findings.push_back({"stopped", Level::note, fmt::format("ticket {} is stopped", i), ""});
  }
  findings.push_back({"silent", Level::problem, "10 more", "", 10});
  Terminal terminal;
  terminal.width = 80;
  const std::string text = doctor_text(findings, terminal, false);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 25) << text;
  EXPECT_TRUE(contains(text, "ticket 4 is silent") && !contains(text, "ticket 5 is silent"));
  EXPECT_TRUE(contains(text, "2005 more like these") && contains(text, "1995 more like these"))
      << text;
  EXPECT_TRUE(contains(text, "2002 problems, 2000 notes.")) << text;
  EXPECT_TRUE(contains(doctor_text(findings, terminal, true), "ticket 1999 is silent"));
}

TEST(DoctorChecks, an_untrusted_file_is_named_safely_and_no_command_deletes_it) {
  const auto remedy = [](std::string name, uid_t viewer) {
    const std::string text =
        only_finding(
            check_files("/tmp/berth", {{{std::move(name), 61234, "bad", false}, 99}}, viewer),
            "planted")
            .remedy;
    for (const char* command : {"rm ", "-delete", "sudo", "~"}) {
      EXPECT_FALSE(contains(text, command)) << text;
    }
    return text;
  };
  EXPECT_TRUE(contains(remedy("junk", 61234), "/tmp/berth/junk"));
  for (const uid_t viewer : {0U, 3U}) {
    EXPECT_TRUE(contains(remedy("junk", viewer), "ask 61234 to remove it: /tmp/berth/junk"));
    for (const char* name : {"a\nb", "x; rm -rf ~"}) {
      EXPECT_TRUE(contains(remedy(name, viewer), "ask 61234 to remove it: inode 99 in /tmp/berth"));
    }
  }
}

TEST(DoctorChecks, stopped_and_silent_tickets_are_named) {
  std::vector<WaitingTicket> tickets{ticket('a'), ticket('b'), ticket('c')};
  const Findings good = check_queue(tickets);
  for (const char* check : {"queue_order", "stopped", "silent"}) {
    EXPECT_EQ(only_finding(good, check).level, Level::ok) << check;
  }
  EXPECT_TRUE(contains(only_finding(good, "queue_order").text, "3 tickets"));
  tickets[0].stopped = true;
  EXPECT_FALSE(contains(only_finding(check_queue(tickets), "stopped").remedy, "kill"))
      << "any PID may stand there";
  tickets[0].stopped_by_signal = true;
  tickets[1].silent = true;
  const Findings bad = check_queue(tickets);
  EXPECT_EQ(only_finding(bad, "stopped").level, Level::note);
  EXPECT_TRUE(contains(only_finding(bad, "stopped").remedy, "kill -CONT 4711"));
  EXPECT_EQ(only_finding(bad, "silent").level, Level::problem);
  EXPECT_TRUE(contains(only_finding(bad, "silent").text, "bbbbbbbb"));
}

TEST(DoctorChecks, a_live_lease_that_cannot_be_read_is_not_to_be_deleted) {
  Record lease;
  lease.id = "aaaaaaaa";
  EXPECT_EQ(only_finding(check_unreadable("/h", {lease}), "unreadable").level, Level::ok);
  lease.problem = "it cannot be read";
  lease.holds_all_gpus = true;
  const Finding finding = only_finding(check_unreadable("/h", {lease}), "unreadable");
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_TRUE(contains(finding.text, "aaaaaaaa") && contains(finding.text, "every GPU"))
      << finding.text;
  EXPECT_FALSE(contains(finding.remedy, "rm ")) << finding.remedy;
  const IgnoredFile live{{"ticket-000000000000001-bbbbbbbb", 61234, "bad", false, true}, 1};
  EXPECT_FALSE(contains(only_finding(check_files("/h", {live}, 0), "planted").remedy, "rm "));
}

TEST(DoctorChecks, dates_in_the_future_and_later_versions) {
  Record lease;
  lease.granted = kNow + seconds(59);
  EXPECT_EQ(only_finding(check_records({lease}, {}, kNow), "clock").level, Level::ok);
  lease.granted = kNow + minutes(61);
  lease.version = kProtocolVersion + 1;
  Findings findings = check_records({lease}, {}, kNow);
  EXPECT_TRUE(contains(only_finding(findings, "clock").text, "1h 1m in the future"));
  EXPECT_EQ(only_finding(findings, "version").level, Level::note);
  lease.holds_all_gpus = true;
  EXPECT_EQ(only_finding(check_records({lease}, {}, kNow), "version").level, Level::problem);
}

TEST(DoctorChecks, a_stranger_is_named_with_what_to_do) {
  GpuWithLeases gpu_view;
  gpu_view.gpu.index.card = 2;
  GpuProcess process;
  process.pid = 4711;
  process.memory = mib(9318);
  process.name = "python";
  process.uid = 1;
  gpu_view.processes.push_back({process, ""});
  const Finding stranger = only_finding(check_gpus({{gpu_view}, {}}, 0), "stranger");
  EXPECT_EQ(stranger.level, Level::problem);
  for (const char* part : {"GPU 2", "python", "4711", "daemon", "9.1 GiB"}) {
    EXPECT_TRUE(contains(stranger.text, part)) << stranger.text;
  }
  for (const char* part : {"ask daemon", "'berth run'", "kill 4711", "--max-processes 1"}) {
    EXPECT_TRUE(contains(stranger.remedy, part)) << stranger.remedy;
  }
  EXPECT_TRUE(
      contains(only_finding(check_gpus({{gpu_view}, {}}, 1), "stranger").remedy, "'berth run'"));
  gpu_view.processes[0].process.uid.reset();
  EXPECT_TRUE(
      contains(only_finding(check_gpus({{gpu_view}, {}}, 1), "stranger").remedy, "ps -fp 4711"));
  gpu_view.leases = {"aaaaaaaa"};
  EXPECT_EQ(only_finding(check_gpus({{gpu_view}, {}}, 1), "stranger").level, Level::note)
      << "perhaps the lease's own";
}

TEST(DoctorChecks, limits) {
  for (const Finding& finding : check_limits({})) EXPECT_EQ(finding.level, Level::ok);
  for (const Finding& finding : check_limits({255, 63, 15})) {
    EXPECT_EQ(finding.level, Level::problem) << finding.text;
    EXPECT_NE(finding.remedy, "");
  }
  for (const Finding& finding : check_limits({256, 64, 16})) EXPECT_EQ(finding.level, Level::ok);
}

TEST(DoctorChecks, links_that_the_kernel_does_not_protect) {
  const Findings safe = check_links({});
  ASSERT_EQ(safe.size(), 1U);
  EXPECT_EQ(safe[0].level, Level::ok);
  const Findings found = check_links({false, false});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].level, Level::note);
  EXPECT_TRUE(contains(found[0].remedy, "sudo sysctl -w fs.protected_hardlinks=1"));
  EXPECT_TRUE(contains(found[1].remedy, "sudo sysctl -w fs.protected_symlinks=1"));
}

TEST(DoctorChecks, another_harbour_is_reported_once) {
  const OtherHarbours other_harbours{
      2, "/tmp/berth", {{"/tmp/berth", "python", 1}, {"/srv/b", "sh", 2}, {"/srv/b", "sh", 3}}};
  const Findings findings = check_other_harbours(other_harbours, {"/srv/a", true});
  ASSERT_EQ(findings.size(), 2);
  for (const char* part : {"2 leases and tickets", "'/srv/a'", "'/tmp/berth'"}) {
    EXPECT_TRUE(contains(findings[0].text, part)) << findings[0].text;
  }
  for (const char* part : {"sh (pid 2)", "1 more", "'/srv/b'"}) {
    EXPECT_TRUE(contains(findings[1].text, part)) << findings[1].text;
  }
  EXPECT_EQ(only_finding(check_other_harbours({}, {"/srv/a", true}), "harbours").level, Level::ok);
}

}  // namespace
}  // namespace berth
