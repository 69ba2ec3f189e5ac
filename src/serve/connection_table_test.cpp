// Tests which connection ConnectionTable evicts when it is full.
#include "serve/connection_table.h"

#include <array>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <vector>

#include "base/unique_fd.h"

namespace berth::serve {
namespace {

class ConnectionTableTest : public testing::Test {
 protected:
  struct SocketPair {
    UniqueFd client;
    UniqueFd server;
  };

  SocketPair& connect() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    all_.push_back({UniqueFd(ends[0]), UniqueFd(ends[1])});
    return all_.back();
  }

  // Adds kMaxConnections connections of one address, each with a response under way.
  void fill_table(ConnectionTable& connections) {
    for (std::size_t i = 0; i < kMaxConnections; ++i) {
      const int fd = connect().server.get();
      ASSERT_TRUE(connections.add(fd, "address"));
      ASSERT_TRUE(connections.begin_request(fd));
      connections.begin_response(fd);
    }
  }

  std::size_t count_closed() const {
    std::size_t count = 0;
    char byte = 0;
    for (const SocketPair& one : all_) {
      if (::recv(one.client.get(), &byte, 1, MSG_DONTWAIT) == 0) ++count;
    }
    return count;
  }

  std::vector<SocketPair> all_;
};

TEST_F(ConnectionTableTest, evicts_from_the_address_with_most_connections) {
  ConnectionTable connections(ConnectionTable::GroupBy::address);
  fill_table(connections);
  EXPECT_TRUE(connections.add(connect().server.get(), "address"));
  EXPECT_EQ(count_closed(), 1U);
}

// The address is that of a proxy: its connections belong to many clients.
TEST_F(ConnectionTableTest, behind_a_proxy_evicts_no_active_response) {
  ConnectionTable connections(ConnectionTable::GroupBy::connection);
  fill_table(connections);
  const int late = connect().server.get();
  EXPECT_FALSE(connections.add(late, "address"));
  EXPECT_EQ(count_closed(), 0U);
  // An idle connection can be evicted.
  connections.set_idle(all_[7].server.get());
  EXPECT_TRUE(connections.add(late, "address"));
  EXPECT_EQ(count_closed(), 1U);
  char byte = 0;
  EXPECT_EQ(::recv(all_[7].client.get(), &byte, 1, MSG_DONTWAIT), 0);
}

}  // namespace
}  // namespace berth::serve
