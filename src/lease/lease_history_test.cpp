// Unit tests of lease_history.h: the archive and the harbour are read one after the other.
#include "lease/lease_history.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cluster/redis/testing/redis_server.h"
#include "harbour/harbour.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

TEST(MergedHistory, a_lease_that_ends_while_the_archive_is_read_is_not_lost) {
  const testing::TemporaryFolder folder;
  fs::permissions(folder.path(), static_cast<fs::perms>(kHarbourMode));
  const HarbourLocation where{folder.path(), true};
  auto harbour = Harbour::open(where);
  ASSERT_TRUE(harbour);
  auto bell = harbour->make_bell();
  ASSERT_TRUE(bell);
  Record record;
  record.id = bell->id;
  record.uid = ::geteuid();
  record.pid = ::getpid();
  record.uuids = {"GPU-1"};
  {
    auto transaction = harbour->begin(LockMode::exclusive, {}, record.id);
    ASSERT_TRUE(transaction);
    ASSERT_TRUE((*transaction)->write_lease(record));
    ASSERT_TRUE((*transaction)->commit().value_or(false));
  }
  ASSERT_TRUE(archive_entry(where, make_history_entry(record, {}, Ending::running)));

  const auto read_ending = [&](const EntryFilter& filter) {
    const auto history = read_merged_history(where, {}, filter);
    return history && history->entries.size() == 1 ? std::optional(history->entries[0].ending)
                                                   : std::nullopt;
  };
  EXPECT_EQ(read_ending([&](const HistoryEntry&) {
              harbour->remove_client(record.id, {});
              return true;
            }),
            Ending::running);
  EXPECT_EQ(read_ending([](const HistoryEntry&) { return true; }), Ending::lost);
}

}  // namespace
}  // namespace berth
