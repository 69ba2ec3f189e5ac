// Which connection gives way when there are too many.
#include "serve/clients.h"

#include <array>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <vector>

#include "base/unique_fd.h"

namespace berth {
namespace {

class ClientsTest : public testing::Test {
 protected:
  // A connection, from either end.
  struct Ends {
    UniqueFd client;
    UniqueFd server;
  };

  Ends& connect() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    all_.push_back({UniqueFd(ends[0]), UniqueFd(ends[1])});
    return all_.back();
  }

  // All connections that there may be, from one address, each with a request that is just answered.
  void fill(Clients& clients) {
    for (std::size_t i = 0; i < kMostConnections; ++i) {
      const int fd = connect().server.get();
      ASSERT_TRUE(clients.enter(fd, "address"));
      ASSERT_TRUE(clients.begin(fd));
      clients.complete(fd);
    }
  }

  std::size_t closed() const {
    std::size_t count = 0;
    char byte = 0;
    for (const Ends& one : all_) {
      if (::recv(one.client.get(), &byte, 1, MSG_DONTWAIT) == 0) ++count;
    }
    return count;
  }

  std::vector<Ends> all_;
};

TEST_F(ClientsTest, one_address_with_most_connections_loses_one) {
  Clients clients(Clients::Count::by_address);
  fill(clients);
  EXPECT_TRUE(clients.enter(connect().server.get(), "address"));
  EXPECT_EQ(closed(), 1U);
}

// The address is the proxy's: its connections are many clients, and their answers are on the way.
TEST_F(ClientsTest, behind_a_proxy_no_answer_is_cut_off) {
  Clients clients(Clients::Count::by_connection);
  fill(clients);
  const int late = connect().server.get();
  EXPECT_FALSE(clients.enter(late, "address"));
  EXPECT_EQ(closed(), 0U);
  // A connection that is kept for a next request gives way, the oldest first.
  clients.rest(all_[7].server.get());
  EXPECT_TRUE(clients.enter(late, "address"));
  EXPECT_EQ(closed(), 1U);
  char byte = 0;
  EXPECT_EQ(::recv(all_[7].client.get(), &byte, 1, MSG_DONTWAIT), 0);
}

}  // namespace
}  // namespace berth
