// Tests of state.h: memory is freed when its process ends, and is never allocated twice.
#include "sim/state.h"

#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <thread>

#include "sim/test_support.h"

namespace berth::sim {
namespace {

constexpr Unit kFirst{0, {}};
constexpr StateFile::Limits kRoomy{1000, false};
using Outcome = StateFile::Outcome;

StateFile& open_state(const std::string& path) {
  const auto state = StateFile::open(path);
  if (!state) {
    ADD_FAILURE() << state.error().message;
    ::_exit(1);
  }
  return **state;
}

std::uint64_t sum_of(const std::vector<ProcessUse>& uses) {
  std::uint64_t sum = 0;
  for (const ProcessUse& use : uses) sum += use.memory;
  return sum;
}

TEST(State, OwnUseIsSeen) {
  const TestFolder folder;
  in_child([&] {
    StateFile& state = open_state(folder.file("state"));
    EXPECT_TRUE(state.uses_on(0).empty());
    EXPECT_EQ(state.add_context(kFirst, 10, kRoomy), Outcome::done);
    EXPECT_EQ(state.add_memory(kFirst, 90, kRoomy), Outcome::done);
    state.set_utilization(kFirst, 70);
    const auto uses = state.uses_on(0);
    ASSERT_EQ(uses.size(), 1U);
    EXPECT_EQ(uses[0].pid, ::getpid());
    EXPECT_EQ(uses[0].memory, 100U);
    EXPECT_EQ(uses[0].utilization, 70U);
    EXPECT_TRUE(state.uses_on(1).empty());
    state.remove_memory(kFirst, 90);
    EXPECT_EQ(sum_of(state.uses_on(0)), 10U);
    state.remove_context(kFirst, 10);
    EXPECT_TRUE(state.uses_on(0).empty());
  });
}

TEST(State, MemoryOfAKilledProcessIsGone) {
  const TestFolder folder;
  StateFile& state = open_state(folder.file("state"));
  for (int round = 0; round < 3; ++round) {
    Child child([&](const Child::Point& point) {
      EXPECT_EQ(state.add_context(kFirst, 0, kRoomy), Outcome::done);
      EXPECT_EQ(state.add_memory(kFirst, 500, kRoomy), Outcome::done);
      point();
    });
    ASSERT_TRUE(child.wait_for_point());
    const auto uses = state.uses_on(0);
    ASSERT_EQ(uses.size(), 1U);
    EXPECT_EQ(uses[0].pid, child.pid());
    EXPECT_EQ(uses[0].memory, 500U);
    child.kill();
    EXPECT_TRUE(state.uses_on(0).empty());
  }
}

TEST(State, ASlotThatIsUsedAgainShowsNothingOfItsOldOwner) {
  const TestFolder folder;
  StateFile& state = open_state(folder.file("state"));
  {
    Child first([&](const Child::Point& point) {
      EXPECT_EQ(state.add_context(kFirst, 0, kRoomy), Outcome::done);
      EXPECT_EQ(state.add_memory(kFirst, 900, kRoomy), Outcome::done);
      point();
    });
    ASSERT_TRUE(first.wait_for_point());
  }
  Child second([&](const Child::Point& point) {
    EXPECT_EQ(state.add_context({1, {}}, 1, kRoomy), Outcome::done);
    point();
    EXPECT_EQ(state.add_context(kFirst, 0, kRoomy), Outcome::done);
    point();
  });
  ASSERT_TRUE(second.wait_for_point());
  EXPECT_TRUE(state.uses_on(0).empty());
  EXPECT_EQ(sum_of(state.uses_on(1)), 1U);
  second.go_on();
  ASSERT_TRUE(second.wait_for_point());
  EXPECT_EQ(sum_of(state.uses_on(0)), 0U);
  EXPECT_EQ(state.uses_on(0).size(), 1U);
}

TEST(State, AForkedChildOwnsNothingOfItsParent) {
  const TestFolder folder;
  in_child([&] {
    StateFile& state = open_state(folder.file("state"));
    EXPECT_EQ(state.add_context(kFirst, 5, kRoomy), Outcome::done);
    in_child([&] {
      // When this child exits, its copy of the descriptor is closed; the parent keeps its locks.
      EXPECT_EQ(sum_of(state.uses_on(0)), 5U);
    });
    EXPECT_EQ(sum_of(state.uses_on(0)), 5U);
  });
}

TEST(State, RacingProcessesGetExactlyWhatThereIs) {
  const TestFolder folder;
  StateFile& state = open_state(folder.file("state"));
  constexpr std::size_t racers = 6;
  std::vector<std::unique_ptr<Child>> children;
  for (std::size_t i = 0; i < racers; ++i) {
    children.push_back(std::make_unique<Child>([&](const Child::Point& point) {
      EXPECT_EQ(state.add_context(kFirst, 0, kRoomy), Outcome::done);
      point();
      while (state.add_memory(kFirst, 7, kRoomy) == Outcome::done) {
      }
      point();
    }));
  }
  for (auto& child : children) ASSERT_TRUE(child->wait_for_point());
  for (auto& child : children) child->go_on();
  for (auto& child : children) ASSERT_TRUE(child->wait_for_point());
  EXPECT_EQ(state.uses_on(0).size(), racers);
  EXPECT_EQ(sum_of(state.uses_on(0)), 1000U / 7 * 7);
  children.front()->kill();
  EXPECT_EQ(state.uses_on(0).size(), racers - 1);
}

// Only one allocation fits at a time: while a process has it, it must never see another one.
TEST(State, TheLimitHoldsUnderContention) {
  const TestFolder folder;
  StateFile& state = open_state(folder.file("state"));
  constexpr StateFile::Limits narrow{10, false};
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(std::make_unique<Child>([&](const Child::Point& point) {
      EXPECT_EQ(state.add_context(kFirst, 0, narrow), Outcome::done);
      point();
      for (int round = 0; round < 3000; ++round) {
        if (state.add_memory(kFirst, 7, narrow) != Outcome::done) continue;
        ASSERT_EQ(sum_of(state.uses_on(0)), 7U);
        state.remove_memory(kFirst, 7);
      }
    }));
  }
  for (auto& child : children) ASSERT_TRUE(child->wait_for_point());
  for (auto& child : children) child->go_on();
  for (auto& child : children) EXPECT_EQ(child->finish(), 0);
}

TEST(State, ThreadsOfOneProcessGetExactlyWhatThereIs) {
  const TestFolder folder;
  in_child([&] {
    StateFile& state = open_state(folder.file("state"));
    EXPECT_EQ(state.add_context(kFirst, 0, kRoomy), Outcome::done);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (state.add_memory(kFirst, 3, kRoomy) == Outcome::done) state.uses_on(0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sum_of(state.uses_on(0)), 999U);
  });
}

TEST(State, ExclusiveMeansOneProcess) {
  const TestFolder folder;
  StateFile& state = open_state(folder.file("state"));
  constexpr StateFile::Limits alone{1000, true};
  Child child([&](const Child::Point& point) {
    EXPECT_EQ(state.add_context(kFirst, 0, alone), Outcome::done);
    EXPECT_EQ(state.add_context(kFirst, 0, alone), Outcome::done) << "a second context of its own";
    point();
  });
  ASSERT_TRUE(child.wait_for_point());
  in_child([&] { EXPECT_EQ(state.add_context(kFirst, 0, alone), Outcome::busy); });
  child.kill();
  in_child([&] { EXPECT_EQ(state.add_context(kFirst, 0, alone), Outcome::done); });
}

TEST(State, SeveralUsersShareTheFileWhateverTheirUmask) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  const TestFolder folder;
  ASSERT_EQ(::chmod(folder.file(".").c_str(), 01777), 0);
  Child first([&](const Child::Point& point) {
    ::umask(077);
    ASSERT_EQ(::setuid(12345), 0);
    StateFile& state = open_state(folder.file("state"));
    EXPECT_EQ(state.add_context(kFirst, 3, kRoomy), Outcome::done);
    point();
  });
  ASSERT_TRUE(first.wait_for_point());
  const pid_t pid = first.pid();
  in_child([&] {
    ASSERT_EQ(::setuid(23456), 0);
    StateFile& state = open_state(folder.file("state"));
    EXPECT_EQ(state.add_context(kFirst, 4, kRoomy), Outcome::done);
    const auto uses = state.uses_on(0);
    EXPECT_EQ(sum_of(uses), 7U);
    EXPECT_EQ(uses.at(0).pid, pid);
  });
}

TEST(State, ManyCreateItAtOnce) {
  const TestFolder folder;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 6; ++i) {
    children.push_back(std::make_unique<Child>([&](const Child::Point& point) {
      point();
      EXPECT_EQ(open_state(folder.file("state")).add_context(kFirst, 1, kRoomy), Outcome::done);
      point();
    }));
  }
  for (auto& child : children) ASSERT_TRUE(child->wait_for_point());
  for (auto& child : children) child->go_on();
  for (auto& child : children) ASSERT_TRUE(child->wait_for_point());
  EXPECT_EQ(sum_of(open_state(folder.file("state")).uses_on(0)), 6U);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file(".")))
    files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 1U) << "no draft is left behind";
}

TEST(State, WhatIsNotAStateFileIsRefused) {
  const TestFolder folder;
  folder.write("text", "hello");
  ASSERT_EQ(::mkfifo(folder.file("fifo").c_str(), 0666), 0);
  ASSERT_EQ(::symlink("/tmp/elsewhere", folder.file("link").c_str()), 0);
  folder.write("zeros", "");
  {
    const TestFolder other;
    open_state(other.file("state"));
    std::filesystem::resize_file(folder.file("zeros"),
                                 std::filesystem::file_size(other.file("state")));
  }
  for (const char* name : {"text", "fifo", "link", ".", "zeros", "absent/state"}) {
    const auto state = StateFile::open(folder.file(name));
    ASSERT_FALSE(state) << name;
    EXPECT_EQ(state.error().kind, ErrorKind::io);
    EXPECT_TRUE(state.error().message.starts_with("BERTH_SIM: the state file '"))
        << state.error().message;
  }
}

TEST(State, ARemovedFileIsARestart) {
  const TestFolder folder;
  StateFile& before = open_state(folder.file("state"));
  EXPECT_EQ(&before, &open_state(folder.file("state")));
  ASSERT_EQ(::unlink(folder.file("state").c_str()), 0);
  StateFile& after = open_state(folder.file("state"));
  EXPECT_NE(&before, &after);
  EXPECT_LE(after.uptime(), before.uptime());
}

TEST(State, AnotherBootIsARestart) {
  const TestFolder folder;
  in_child([&] { open_state(folder.file("state")).count_init_call(); });
  // The second and third number of the file are the boot and the start of the server.
  const int fd = ::open(folder.file("state").c_str(), O_RDWR | O_CLOEXEC);
  const std::array<std::uint64_t, 2> old{1, 1};
  ASSERT_EQ(::pwrite(fd, old.data(), sizeof(old), 8), static_cast<ssize_t>(sizeof(old)));
  ::close(fd);
  const StateFile& state = open_state(folder.file("state"));
  EXPECT_LT(state.uptime(), std::chrono::minutes{1});
  EXPECT_EQ(state.init_calls(), 0U);
}

}  // namespace
}  // namespace berth::sim
