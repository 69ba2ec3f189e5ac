// One connection, for the thread that has it: reads and writes that end in time, however the other
// side behaves.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/event_fd.h"
#include "base/unique_fd.h"
#include "serve/http_request.h"

namespace berth {

// For one thread.
class HttpConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // `socket` does not block.
  explicit HttpConnection(UniqueFd socket);

  int fd() const { return socket_.get(); }
  // The address at which it came in, as a Host header would have it: IPv6 in brackets.
  const std::string& local() const { return local_; }

  // Is there anything to read by then? Nothing is read yet.
  bool await(Clock::time_point until) const;
  // Request line and headers, up to and with the empty line. All that is read of the request, here
  // and by read(), must come before `until`. Nothing, and no refusal: the other side has gone.
  std::optional<std::string> take_head(Clock::time_point until,
                                       std::optional<HttpRefusal>& refusal);
  // What comes behind the head, `size` bytes of it. False as above.
  bool read(std::string& bytes, std::size_t size, std::optional<HttpRefusal>& refusal);

  // By then what is written from now on must have left.
  void write_until(Clock::time_point until) { write_until_ = until; }
  bool write(std::string_view bytes);

  enum class Woken : std::uint8_t { news, gone, late };
  // Waits for a poke. Who `watches` has nothing more to say: whatever comes from him is that he
  // goes. Anybody else may have closed his half, and still wants to be answered.
  Woken wait(const EventFd& poke, bool watches, Clock::time_point until) const;

  // All is sent. What the other side still sends is thrown away for a moment, since a connection
  // that is closed over it would take the answer with it.
  void linger(Clock::time_point until);

 private:
  // Appends what there is to the buffer. False: nothing comes any more, or not in time.
  enum class Got : std::uint8_t { some, end, late };
  Got receive(Clock::time_point until);

  UniqueFd socket_;
  std::string local_;
  std::string buffer_;  // read, but not taken
  Clock::time_point read_until_{};
  Clock::time_point write_until_ = Clock::time_point::max();
};

}  // namespace berth
