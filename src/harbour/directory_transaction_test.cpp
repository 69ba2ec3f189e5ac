// Unit tests of the directory harbour: which files count, and that a client's place becomes free
// however the client ends.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <set>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <tuple>

#include "base/process.h"
#include "harbour/bell.h"
#include "harbour/file_names.h"
#include "harbour/harbour.h"
#include "harbour/safe_directory.h"
#include "harbour/transaction.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

// Until the clock from which the kernel takes the times of files has passed the present time.
void wait_for_clock_tick() {
  timespec now{};
  timespec file_time{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  do {
    ::clock_gettime(CLOCK_REALTIME_COARSE, &file_time);
  } while (std::tie(file_time.tv_sec, file_time.tv_nsec) <= std::tie(now.tv_sec, now.tv_nsec));
}

class HarbourTest : public testing::Test {
 protected:
  HarbourTest() {
    std::string name = "/tmp/berth-harbour-test.XXXXXX";
    path_ = ::mkdtemp(name.data());
    fs::permissions(path_, static_cast<fs::perms>(01777));
    auto harbour = Harbour::open({path_.string(), true});
    if (harbour) harbour_.emplace(std::move(*harbour));
  }
  ~HarbourTest() override { fs::remove_all(path_); }

  std::unique_ptr<DirectoryTransaction> begin(LockMode mode = LockMode::exclusive) {
    auto transaction = harbour_->begin_directory(mode, {});
    EXPECT_TRUE(transaction) << transaction.error().message;
    return std::move(*transaction);
  }

  // A live client. It lives while the caller keeps the bell.
  std::pair<Record, UniqueFd> client(std::vector<std::string> uuids = {}) {
    auto bell = harbour_->make_bell();
    Record record;
    record.id = bell->id;
    record.uid = ::geteuid();
    record.pid = ::getpid();
    record.since = std::chrono::system_clock::now();
    record.uuids = std::move(uuids);
    return {record, std::move(bell->fd).share()};
  }

  std::vector<std::string> problems(DirectoryTransaction& transaction) {
    EXPECT_TRUE(transaction.list());
    EXPECT_TRUE(transaction.read_leases());
    std::vector<std::string> found;
    for (const IgnoredEntry& entry : transaction.ignored_entries()) found.push_back(entry.problem);
    return found;
  }

  fs::path path_;
  std::optional<Harbour> harbour_;
};

TEST_F(HarbourTest, a_lease_lives_as_long_as_its_bell) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  ASSERT_EQ(begin()->read_leases()->size(), 1U);
  bell.reset();
  EXPECT_EQ(begin()->read_leases()->size(), 0U);
}

TEST_F(HarbourTest, a_child_that_inherits_the_bell_keeps_the_lease) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  bell.reset();
  auto leases = begin()->read_leases();
  ASSERT_EQ(leases->size(), 1U);
  ::kill(child, SIGKILL);
  pollfd end{leases->front().bell.get(), 0, 0};
  EXPECT_EQ(::poll(&end, 1, 10'000), 1);  // POLLERR: the last reader is gone
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(begin()->read_leases()->size(), 0U);
}

TEST_F(HarbourTest, a_ring_wakes_and_does_not_pile_up) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  auto leases = begin()->read_leases();
  const int end = leases->front().bell.get();
  EXPECT_FALSE(unanswered_for(end));
  for (int i = 0; i < 100'000; ++i) ring(end);
  EXPECT_TRUE(unanswered_for(end));
  pollfd own{bell.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&own, 1, 0), 1);
  clear_rings(bell.get());
  EXPECT_EQ(::poll(&own, 1, 0), 0);
  bell.reset();
  ring(end);  // without a reader; must not raise SIGPIPE
}

TEST_F(HarbourTest, tickets_are_read_in_the_order_in_which_they_came) {
  std::vector<std::pair<Record, UniqueFd>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(client());
    const auto transaction = begin();
    ASSERT_TRUE(transaction->write_ticket(clients.back().first, *transaction->next_file_number()));
  }
  const auto transaction = begin();
  ASSERT_EQ(transaction->listing().tickets.size(), clients.size());
  for (std::size_t i = 0; i < clients.size(); ++i) {
    EXPECT_EQ(transaction->listing().tickets[i].id, clients[i].first.id);
  }
}

TEST_F(HarbourTest, a_forged_number_gains_nothing_and_moves_no_other_ticket) {
  auto [first, first_bell] = client();
  auto [forged, forged_bell] = client();
  auto [future, future_bell] = client();
  auto [last, last_bell] = client();
  const auto write = [&](const Record& record, std::optional<std::uint64_t> number) {
    const auto transaction = begin();
    const std::uint64_t honest = *transaction->next_file_number();
    ASSERT_TRUE(transaction->write_ticket(record, number.value_or(honest)));
  };
  write(first, std::nullopt);
  // The times of files are those of the last clock tick: a forged number gains up to a tick.
  wait_for_clock_tick();
  write(forged, 1);  // a time in 1970
  write(future, 999'999'999'999'999);
  wait_for_clock_tick();
  write(last, std::nullopt);
  std::vector<std::string> ids;
  const auto transaction = begin();
  for (const TicketName& name : transaction->listing().tickets) ids.push_back(name.id);
  EXPECT_EQ(ids, (std::vector<std::string>{first.id, forged.id, last.id, future.id}));
}

TEST_F(HarbourTest, a_changed_request_keeps_its_place) {
  auto [first, first_bell] = client();
  auto [second, second_bell] = client();
  const std::uint64_t number = *begin()->next_file_number();
  ASSERT_TRUE(begin()->write_ticket(first, number));
  const std::uint64_t second_number = *begin()->next_file_number();
  ASSERT_TRUE(begin()->write_ticket(second, second_number));
  first.request.memory = mib(100);
  ASSERT_TRUE(begin()->write_ticket(first, number));
  first.request.memory = mib(200);
  ASSERT_TRUE(begin()->write_ticket(first, number));
  const auto transaction = begin();
  const auto& tickets = transaction->listing().tickets;
  ASSERT_EQ(tickets.size(), 2U);
  EXPECT_EQ(tickets[0].id, first.id);
  EXPECT_EQ((*transaction->read_ticket(tickets[0]))->record.request.memory, mib(200));
  transaction->remove_ticket(TicketName(tickets[0]));
  EXPECT_FALSE(fs::exists(path_ / request_file_name(first.id)));
}

// Otherwise a user could let a ticket wait for the right moment, or have tickets granted by turns.
TEST_F(HarbourTest, a_changed_request_asks_for_no_more) {
  const auto with = [](std::optional<Bytes> memory) {
    Request request;
    request.memory = memory;
    return request;
  };
  const auto read_after_change = [&](const Request& original, const Request& changed) {
    auto [record, bell] = client();
    record.request = original;
    const std::uint64_t number = *begin()->next_file_number();
    EXPECT_TRUE(begin()->write_ticket(record, number));
    record.request = changed;
    EXPECT_TRUE(begin()->write_ticket(record, number));
    const auto transaction = begin();
    const TicketName& name = transaction->listing().tickets.back();
    EXPECT_EQ(name.id, record.id);
    auto read = transaction->read_ticket(name);
    EXPECT_TRUE(read && *read);
    return std::move(**read);
  };
  const Client reduced = read_after_change(with({}), with(mib(100)));
  EXPECT_EQ(reduced.record.request, with(mib(100)));
  EXPECT_EQ(reduced.original_request, with({}));
  for (const std::optional<Bytes> more : {std::optional(mib(101)), std::optional<Bytes>()}) {
    const Client client = read_after_change(with(mib(100)), with(more));
    EXPECT_EQ(client.record.request, with(mib(100)));
    EXPECT_FALSE(client.original_request);
  }
  Request other;
  other.count = 2;
  EXPECT_EQ(read_after_change(with({}), other).record.request, with({}));
  other = with({});
  other.uuids = {{"GPU-1"}};
  EXPECT_EQ(read_after_change(with({}), other).record.request, with({}));
  other = with({});
  other.time = std::chrono::hours(1);
  EXPECT_EQ(read_after_change(with({}), other).record.request, other);
}

TEST_F(HarbourTest, equal_requests_have_the_same_hash_in_the_listing) {
  std::vector<std::pair<Record, UniqueFd>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(client());
  clients[1].first.since += std::chrono::seconds(1);
  clients[1].first.command = "another command";
  clients[2].first.request.uuids = {{"GPU-1"}};
  clients[3].first.pid_namespace = 1;
  clients[4].first.is_profiling_run = true;
  clients[4].first.job = "train";
  for (auto& [record, bell] : clients) {
    const auto transaction = begin();
    ASSERT_TRUE(transaction->write_ticket(record, *transaction->next_file_number()));
  }
  const auto find = [&](const Record& record) {
    const auto queue = begin()->queue();
    return *std::find_if(queue.begin(), queue.end(),
                         [&](const TicketName& name) { return name.id == record.id; });
  };
  std::set<std::uint64_t> hashes;
  for (const auto& [record, bell] : clients) hashes.insert(find(record).request_hash);
  EXPECT_EQ(find(clients[0].first).request_hash, find(clients[1].first).request_hash);
  EXPECT_EQ(hashes.size(), 4U);
  EXPECT_FALSE(hashes.contains(0));
  // A changed request is in another file, so the hash says nothing any more.
  clients[0].first.request.memory = mib(1);
  const std::uint64_t number = find(clients[0].first).file_number;
  ASSERT_TRUE(begin()->write_ticket(clients[0].first, number));
  EXPECT_EQ(find(clients[0].first).request_hash, 0U);
  // The time at which a file was really written is not a hash.
  fs::last_write_time(path_ / ticket_file_name(find(clients[1].first)),
                      fs::file_time_type::clock::now());
  EXPECT_EQ(find(clients[1].first).request_hash, 0U);
}

TEST_F(HarbourTest, a_ticket_is_read_without_proof_only_if_it_would_count) {
  auto [waiting, bell] = client();
  auto [broken, broken_bell] = client();
  auto [ended, ended_bell] = client();
  auto [holder, holder_bell] = client();
  waiting.request.count = 3;
  ASSERT_TRUE(begin()->write_ticket(waiting, 1));
  ASSERT_TRUE(begin()->write_ticket(broken, 2));
  ASSERT_TRUE(begin()->write_ticket(ended, 3));
  ASSERT_TRUE(begin()->write_ticket(holder, 4));
  std::ofstream(path_ / ticket_file_name({0, broken.id, 2})) << "{";
  const auto names = begin()->queue();
  const auto find = [&](const Record& record) {
    return *std::find_if(names.begin(), names.end(),
                         [&](const TicketName& name) { return name.id == record.id; });
  };
  ASSERT_TRUE(begin()->end_ticket(find(ended)));
  holder.uuids = {"GPU-1"};
  ASSERT_TRUE(begin()->write_lease(holder));
  bell.reset();  // its client does not live any more
  EXPECT_FALSE(*begin()->read_ticket(find(waiting)));
  const auto unproved = begin()->read_unproved_ticket(find(waiting));
  ASSERT_TRUE(unproved);
  EXPECT_EQ(unproved->record.request.count, 3U);
  EXPECT_EQ(unproved->record.uid, ::geteuid());
  EXPECT_FALSE(begin()->read_unproved_ticket(find(broken)));
  EXPECT_FALSE(begin()->read_unproved_ticket(find(ended)));
  EXPECT_FALSE(begin()->read_unproved_ticket(find(holder)));
}

TEST_F(HarbourTest, untrusted_files_are_ignored_and_reported) {
  auto [record, bell] = client({"GPU-1"});
  const std::string text = format_record(record);
  const auto name = [](const char* id) { return lease_file_name(id); };
  fs::create_symlink("/etc/passwd", path_ / name("aaaaaaaa"));
  fs::create_directory(path_ / name("bbbbbbbb"));
  ASSERT_EQ(::mkfifo((path_ / name("cccccccc")).c_str(), 0666), 0);
  std::ofstream(path_ / name("dddddddd")) << std::string(200'000, 'x');
  std::ofstream(path_ / name("eeeeeeee")) << text;  // no bell
  std::ofstream(path_ / "outside") << text;
  const auto transaction = begin();
  const auto found = problems(*transaction);
  EXPECT_EQ(found.size(), 6U);
  EXPECT_EQ(transaction->listing().unknown_names, std::vector<std::string>{"outside"});
  EXPECT_EQ(transaction->read_leases()->size(), 0U);
}

TEST_F(HarbourTest, the_owner_is_the_owner_of_the_file) {
  auto [record, bell] = client({"GPU-1"});
  record.uid += 1;
  ASSERT_TRUE(begin()->write_lease(record));
  const auto transaction = begin();
  const auto leases = transaction->read_leases();
  ASSERT_EQ(leases->size(), 1U);
  EXPECT_EQ(leases->front().record.uid, ::geteuid());
}

TEST_F(HarbourTest, a_bell_that_is_not_a_fifo_proves_nothing) {
  auto [record, bell] = client({"GPU-2"});
  ASSERT_TRUE(begin()->write_lease(record));
  fs::remove(path_ / bell_file_name(record.id));
  std::ofstream(path_ / bell_file_name(record.id)) << "not a FIFO";
  EXPECT_EQ(begin()->read_leases()->size(), 0U);
}

TEST_F(HarbourTest, a_live_lease_that_cannot_be_read_holds_what_it_may_hold) {
  const auto lease_with = [&](const std::string& text) {
    auto [record, bell] = client({"GPU-1"});
    std::ofstream(path_ / lease_file_name(record.id)) << text;
    const auto found = begin()->read_leases();
    EXPECT_TRUE(found);
    EXPECT_EQ(found->size(), 1U) << text.substr(0, 80);
    Record read = found->empty() ? Record{} : found->front().record;
    harbour_->remove_client(record.id, std::nullopt);
    return read;
  };
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string(200'000, 'x'),
        std::string(R"({"gpus": 7})"), std::string(R"({"version": 99})")}) {
    EXPECT_TRUE(lease_with(text).holds_all_gpus) << text.substr(0, 80);
  }
  const Record in_part = lease_with(R"({"version": "one", "gpus": ["GPU-7"]})");
  EXPECT_FALSE(in_part.holds_all_gpus);
  EXPECT_EQ(in_part.uuids, std::vector<std::string>{"GPU-7"});
  EXPECT_FALSE(in_part.problem.empty());
  EXPECT_EQ(in_part.uid, ::geteuid());
}

TEST_F(HarbourTest, a_lease_is_not_dead_when_its_bell_cannot_be_checked) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  const auto transaction = begin();
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const auto leases = transaction->read_leases();
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(leases);
  EXPECT_EQ(leases.error().kind, ErrorKind::io);
}

TEST_F(HarbourTest, a_shells_lease_is_ended_from_outside_at_once) {
  auto [record, bell] = client({"GPU-1"});
  record.holder = HolderKind::shell;
  ASSERT_TRUE(begin()->write_lease(record));
  EXPECT_FALSE(harbour_->is_lease_ended(record.id));
  ASSERT_TRUE(begin()->end_lease({record, {}}));
  EXPECT_TRUE(harbour_->is_lease_ended(record.id));
  EXPECT_EQ(begin()->read_leases()->size(), 0U);
  harbour_->remove_client(record.id, std::nullopt);
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(HarbourTest, a_jobs_lease_ends_only_with_its_processes) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  ASSERT_TRUE(begin()->end_lease({record, {}}));
  EXPECT_EQ(begin()->read_leases()->size(), 1U);
  fs::permissions(path_ / lease_file_name(record.id), fs::perms::none);
  EXPECT_EQ(begin()->read_leases()->size(), 1U);  // only root can read it
}

TEST_F(HarbourTest, a_ticket_is_ended_from_outside) {
  auto [waiting, waiting_bell] = client();
  ASSERT_TRUE(begin()->write_ticket(waiting, 7));
  const TicketName name = begin()->listing().tickets.front();
  EXPECT_FALSE(begin()->is_ended(waiting.id, name));
  ASSERT_TRUE(begin()->end_ticket(name));
  EXPECT_TRUE(begin()->is_ended(waiting.id, name));
  EXPECT_FALSE(*begin()->read_ticket(name));
}

TEST_F(HarbourTest, hard_links_neither_end_nor_duplicate_clients) {
  auto [record, bell] = client({"GPU-1"});
  auto [waiting, waiting_bell] = client();
  ASSERT_TRUE(begin()->write_lease(record));
  ASSERT_TRUE(begin()->write_ticket(waiting, 7));
  fs::create_hard_link(path_ / lease_file_name(record.id), path_ / "kept");
  fs::create_hard_link(path_ / lease_file_name(record.id),
                       path_ / ticket_file_name({0, record.id, 1}));
  const fs::path ticket = path_ / ticket_file_name({0, waiting.id, 7});
  for (const std::uint64_t number : {0UL, 8UL, 999'999'999'999'999UL}) {
    fs::create_hard_link(ticket, path_ / ticket_file_name({0, waiting.id, number}));
  }
  fs::create_hard_link(ticket, path_ / lease_file_name(waiting.id));
  const auto transaction = begin();
  EXPECT_EQ(transaction->read_leases()->size(), 1U);
  std::vector<std::uint64_t> numbers;
  for (const TicketName& name : transaction->listing().tickets) {
    if (*transaction->read_ticket(name)) numbers.push_back(name.file_number);
  }
  EXPECT_EQ(numbers, std::vector<std::uint64_t>{7});
}

TEST_F(HarbourTest, a_hard_link_to_an_ended_lease_is_not_a_ticket) {
  auto [record, bell] = client({"GPU-1"});  // its keeper has not noticed the end yet
  record.holder = HolderKind::shell;
  ASSERT_TRUE(begin()->write_lease(record));
  fs::create_hard_link(path_ / lease_file_name(record.id),
                       path_ / ticket_file_name({0, record.id, 1}));
  ASSERT_TRUE(begin()->end_lease({record, {}}));
  const auto transaction = begin();
  ASSERT_EQ(transaction->listing().tickets.size(), 1U);
  EXPECT_FALSE(*transaction->read_ticket(transaction->listing().tickets.front()));
}

TEST_F(HarbourTest, a_name_conflict_is_reported) {
  auto [record, bell] = client({"GPU-1"});
  std::ofstream(path_ / lease_file_name(record.id)) << "planted";
  const auto transaction = begin();
  EXPECT_FALSE(transaction->write_lease(record));
  EXPECT_TRUE(transaction->has_name_conflict());
}

TEST_F(HarbourTest, a_lease_that_cannot_be_watched_counts) {
  std::vector<std::pair<Record, UniqueFd>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(client({"GPU-1"}));
    ASSERT_TRUE(begin()->write_lease(clients.back().first));
  }
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const auto transaction = begin();
  const rlimit few{static_cast<rlim_t>(transaction->directory()) + 80, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const auto leases = transaction->read_leases();
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(leases);
  EXPECT_EQ(leases->size(), 40U);
  EXPECT_TRUE(leases->front().bell);
  EXPECT_FALSE(leases->back().bell);
}

TEST_F(HarbourTest, a_writer_that_does_not_stop_does_not_keep_the_reader_busy) {
  auto [record, bell] = client({"GPU-1"});
  const std::string path = path_ / bell_file_name(record.id);
  const pid_t child = ::fork();
  if (child == 0) {
    const int end = ::open(path.c_str(), O_WRONLY | O_NONBLOCK);
    const std::string noise(1 << 16, '!');
    for (;;) (void)!::write(end, noise.data(), noise.size());
  }
  pollfd own{bell.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&own, 1, 10'000), 1);
  for (int i = 0; i < 1000; ++i) clear_rings(bell.get());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// A datagram socket takes the place of the bell: FIONREAD counts only the first datagram, so the
// second is like a ring that arrives during the call.
TEST(Bell, rings_during_clear_rings_stay_unread) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(::write(writing.get(), "!", 1), 1);
  pollfd own{reading.get(), POLLIN, 0};
  clear_rings(reading.get());
  EXPECT_EQ(::poll(&own, 1, 0), 1);
  clear_rings(reading.get());
  EXPECT_EQ(::poll(&own, 1, 0), 0);
}

TEST_F(HarbourTest, remove_leftovers_keeps_files_of_live_clients) {
  auto [dead, dead_bell] = client({"GPU-1"});
  auto [alive, alive_bell] = client({"GPU-2"});
  auto [waiting, waiting_bell] = client();
  auto [young, young_bell] = client();  // has a bell, but no record yet
  ASSERT_TRUE(begin()->write_lease(dead));
  ASSERT_TRUE(begin()->write_lease(alive));
  ASSERT_TRUE(begin()->write_ticket(waiting, 1));
  dead_bell.reset();
  young_bell.reset();
  const auto transaction = begin();
  ASSERT_TRUE(transaction->read_leases());
  transaction->remove_leftovers();
  EXPECT_FALSE(fs::exists(path_ / lease_file_name(dead.id)));
  EXPECT_FALSE(fs::exists(path_ / bell_file_name(dead.id)));
  EXPECT_TRUE(fs::exists(path_ / lease_file_name(alive.id)));
  EXPECT_TRUE(fs::exists(path_ / bell_file_name(waiting.id)));
  EXPECT_TRUE(fs::exists(path_ / bell_file_name(young.id)));
}

// Any user can create a lease file, and root's history would record it when root removes it.
TEST_F(HarbourTest, a_dead_lease_is_reported_as_removed_only_with_a_bell_of_its_owner) {
  constexpr uid_t kMallory = 2003;
  enum class Change { none, missing, regular_file, foreign };
  for (const Change change :
       {Change::none, Change::missing, Change::regular_file, Change::foreign}) {
    if (change == Change::foreign && ::geteuid() != 0) continue;  // only root can give files away
    auto [record, bell] = client({"GPU-1"});
    ASSERT_TRUE(begin()->write_lease(record));
    bell.reset();
    const fs::path file = path_ / bell_file_name(record.id);
    const auto transaction = begin();
    ASSERT_EQ(transaction->read_leases()->size(), 0U);
    // The bell was found dead. Its owner can still replace it until remove_leftovers() is called.
    if (change == Change::missing || change == Change::regular_file) fs::remove(file);
    if (change == Change::regular_file) std::ofstream(file).flush();
    if (change == Change::foreign) {
      ASSERT_EQ(::chown(file.c_str(), kMallory, kMallory), 0);
    }
    transaction->remove_leftovers();
    EXPECT_FALSE(fs::exists(path_ / lease_file_name(record.id)));
    EXPECT_EQ(transaction->removed_leases().size(), change == Change::none ? 1U : 0U)
        << static_cast<int>(change);
  }
}

// A ticket with a number from the future could be overtaken by a later ticket of another user.
TEST_F(HarbourTest, a_ticket_takes_no_number_from_the_future) {
  const auto units = [] {
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                      std::chrono::microseconds(100));
  };
  for (const std::uint64_t ahead : {9'000U, 100'000U}) {  // 0.9 s, 10 s
    const fs::path decoy = path_ / ticket_file_name({0, "zzzzzzzz", units() + ahead});
    std::ofstream(decoy).flush();
    const auto order = begin()->next_file_number();
    ASSERT_TRUE(order);
    EXPECT_LE(*order, units() + 10);
    fs::remove(decoy);
  }
}

TEST_F(HarbourTest, a_request_that_the_same_transaction_changed_goes_with_its_ticket) {
  auto [record, bell] = client();
  const std::uint64_t number = *begin()->next_file_number();
  ASSERT_TRUE(begin()->write_ticket(record, number));
  const auto transaction = begin();
  record.request.memory = mib(100);
  ASSERT_TRUE(transaction->write_ticket(record, number));
  ASSERT_TRUE(fs::exists(path_ / request_file_name(record.id)));
  transaction->remove_ticket(TicketName(transaction->queue().front()));
  EXPECT_FALSE(fs::exists(path_ / request_file_name(record.id)));
}

TEST_F(HarbourTest, remove_leftovers_removes_requests_without_a_ticket) {
  auto [alive, bell] = client();  // its ticket was deleted, and the client will put it back
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  const auto write = [&](const std::string& name, bool is_old) {
    std::ofstream(path_ / name) << "{}";
    if (is_old) fs::last_write_time(path_ / name, old);
    return path_ / name;
  };
  const auto lone = write("request-aaaaaaaa", true);
  const auto unfinished = write("new-aaaaaaaa-request-bbbbbbbb", true);
  const auto drain = write("new-aaaaaaaa-drain-GPU-1", true);
  const auto young = write("request-cccccccc", false);
  const auto of_live_client = write(request_file_name(alive.id), true);
  const auto other = write("new-other", true);
  begin()->remove_leftovers();
  EXPECT_FALSE(fs::exists(lone));
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_FALSE(fs::exists(drain));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(of_live_client));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(HarbourTest, the_first_ticket_of_each_user_is_rung) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  constexpr uid_t kOther = 2003;
  std::vector<std::pair<Record, UniqueFd>> others;
  const auto write = [&](const Record& record) {
    const auto transaction = begin();
    const std::uint64_t number = *transaction->next_file_number();
    ASSERT_TRUE(transaction->write_ticket(record, number));
    if (record.uid == ::geteuid()) return;
    ASSERT_EQ(::chown((path_ / ticket_file_name({0, record.id, number})).c_str(), record.uid, 0),
              0);
    ASSERT_EQ(::chown((path_ / bell_file_name(record.id)).c_str(), record.uid, 0), 0);
  };
  for (int i = 0; i < 40; ++i) {
    others.push_back(client());
    others.back().first.uid = kOther;
    write(others.back().first);
  }
  auto [first, first_bell] = client();
  auto [second, second_bell] = client();
  write(first);
  write(second);
  const auto is_rung = [](const UniqueFd& bell) {
    pollfd one{bell.get(), POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  };
  ASSERT_TRUE(begin()->ring_front());
  EXPECT_TRUE(is_rung(others[0].second));
  EXPECT_FALSE(is_rung(others[1].second));
  EXPECT_TRUE(is_rung(first_bell));
  EXPECT_FALSE(is_rung(second_bell));
}

TEST(StoppedProcesses, a_pid_counts_for_the_user_of_its_process_only) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  Record own;
  own.pid = child;
  own.uid = ::geteuid();
  own.pid_namespace = pid_namespace();
  Record other = own;
  other.uid = own.uid + 1;
  Record elsewhere = own;
  elsewhere.pid_namespace += 1;
  StoppedProcesses stopped;
  EXPECT_TRUE(stopped.read({own}));
  EXPECT_TRUE(stopped.contains(own));
  EXPECT_FALSE(stopped.contains(other));
  EXPECT_FALSE(stopped.contains(elsewhere));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(HarbourTest, times_that_an_owner_sets_do_not_overflow) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  constexpr time_t kFar = 10'000'000'000;  // in the year 2286; more than 64 bits of nanoseconds
  const std::array<timespec, 2> far{timespec{kFar, 0}, timespec{kFar, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (path_ / lease_file_name(record.id)).c_str(), far.data(), 0), 0);
  const auto leases = begin()->read_leases();
  ASSERT_EQ(leases->size(), 1U);
  EXPECT_GT(leases->front().record.last_used, std::chrono::system_clock::now());
  EXPECT_EQ(clamp_file_time(std::numeric_limits<std::int64_t>::min()), 0);
  ring(leases->front().bell.get());
  ASSERT_EQ(::utimensat(AT_FDCWD, (path_ / bell_file_name(record.id)).c_str(), far.data(), 0), 0);
  EXPECT_LT(*unanswered_for(leases->front().bell.get()), std::chrono::seconds(0));
}

// From now on this process cannot open files with O_WRONLY, and has no openat2().
void forbid_writing() {
  constexpr auto kArguments = static_cast<unsigned>(offsetof(seccomp_data, args));
  std::array<sock_filter, 7> filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 3, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArguments + 16),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{filter.size(), filter.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST_F(HarbourTest, a_bell_that_the_kernel_forbids_to_open_counts_as_alive) {
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  const pid_t child = ::fork();
  if (child == 0) {
    forbid_writing();
    const auto opened = open_bell(harbour_->directory(), record.id, ::geteuid());
    const auto leases = begin()->read_leases();
    const bool unknown = opened && opened->state == PeerBell::State::unknown;
    ::_exit(unknown && leases && leases->size() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Berth refuses a harbour with an access control list, but its owner can set one after that check.
TEST_F(HarbourTest, a_bell_inherits_no_access_control_list) {
  const std::string command = fmt::format("setfacl -d -m u:2002:--- '{}'", path_.string());
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no access control lists here";
  const auto bell = make_bell(harbour_->directory(), "abcdefgh");
  ASSERT_TRUE(bell && *bell);
  EXPECT_LT(::fgetxattr((*bell)->get(), "system.posix_acl_access", nullptr, 0), 0);
  EXPECT_EQ(errno, ENODATA);
}

TEST_F(HarbourTest, a_drain_is_replaced_and_its_uuid_may_have_slashes) {
  const std::string uuid = "MIG-GPU-1a2b/1/0";
  ASSERT_TRUE(begin()->write_drain({uuid, ::geteuid(), "one", {}}));
  ASSERT_TRUE(begin()->write_drain({uuid, ::geteuid(), "two", {}}));
  auto transaction = begin();
  const auto drains = transaction->read_drains();
  ASSERT_TRUE(drains);
  ASSERT_EQ(drains->size(), 1U);
  EXPECT_EQ(drains->front().uuid, uuid);
  EXPECT_EQ(drains->front().reason, "two");
  EXPECT_EQ(*transaction->harbour_owner(), ::geteuid());
  EXPECT_TRUE(*transaction->remove_drain(uuid));
  EXPECT_FALSE(*transaction->remove_drain(uuid));
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(HarbourTest, a_umask_does_not_change_file_modes) {
  const mode_t before = ::umask(077);
  auto [record, bell] = client({"GPU-1"});
  const auto written = begin()->write_lease(record);
  ::umask(before);
  ASSERT_TRUE(written);
  struct stat file_info {};
  ASSERT_EQ(::stat((path_ / lease_file_name(record.id)).c_str(), &file_info), 0);
  EXPECT_EQ(file_info.st_mode & 0777U, 0644U);
  ASSERT_EQ(::stat((path_ / bell_file_name(record.id)).c_str(), &file_info), 0);
  EXPECT_EQ(file_info.st_mode & 0777U, 0622U);
}

TEST_F(HarbourTest, a_directory_that_was_replaced_is_found_again) {
  fs::rename(path_, path_.string() + ".old");
  fs::create_directory(path_);
  fs::permissions(path_, static_cast<fs::perms>(01777));
  auto [record, bell] = client({"GPU-1"});
  ASSERT_TRUE(begin()->write_lease(record));
  EXPECT_FALSE(fs::exists(path_.string() + ".old/" + lease_file_name(record.id)));
  fs::remove_all(path_.string() + ".old");
}

TEST_F(HarbourTest, a_directory_where_others_could_delete_is_refused) {
  fs::permissions(path_, static_cast<fs::perms>(0777));
  const auto harbour = Harbour::open({path_.string(), true});
  ASSERT_FALSE(harbour);
  EXPECT_NE(harbour.error().message.find("chmod 1777"), std::string::npos);
}

TEST_F(HarbourTest, the_default_path_does_not_follow_symbolic_links) {
  const fs::path link = path_.string() + ".link";
  fs::create_symlink(path_, link);
  EXPECT_FALSE(Harbour::open({link.string(), false}));
  EXPECT_TRUE(Harbour::open({link.string(), true}));  // BERTH_DIR may be a symbolic link
  fs::remove(link);
}

TEST_F(HarbourTest, a_lock_timeout_names_the_holder) {
  const auto held = begin();
  LockOptions lock_options;
  int asked = 0;
  lock_options.should_give_up = [&asked] { return ++asked > 1; };
  const auto transaction = harbour_->begin(LockMode::shared, lock_options);
  ASSERT_FALSE(transaction);
  EXPECT_NE(transaction.error().message.find(std::to_string(::getpid())), std::string::npos)
      << transaction.error().message;
}

TEST(Location, a_relative_path_is_refused) {
  EXPECT_FALSE(Harbour::open({"harbour", true}));
}

}  // namespace
}  // namespace berth
