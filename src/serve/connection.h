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

namespace berth::serve {

// For one thread.
class HttpConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // `socket` does not block.
  explicit HttpConnection(UniqueFd socket);

  int fd() const { return socket_.get(); }
  // The address at which it came in, as a Host header would have it: IPv6 in brackets.
  const std::string& local_address() const { return local_address_; }

  // Is there anything to read by then? Nothing is read yet.
  bool wait_readable(Clock::time_point deadline) const;
  // Request line and headers, up to and with the empty line. All that is read of the request, here
  // and by read(), must come before `deadline`. Nothing, and no refusal: the other side has gone.
  std::optional<std::string> read_head(Clock::time_point deadline,
                                       std::optional<HttpRefusal>& refusal);
  // What comes behind the head, `size` bytes of it. False as above.
  bool read_body(std::string& bytes, std::size_t size, std::optional<HttpRefusal>& refusal);

  // By then what is written from now on must have left.
  void set_write_deadline(Clock::time_point deadline) { write_deadline_ = deadline; }
  bool write(std::string_view bytes);

  enum class WakeReason : std::uint8_t { event, closed, timeout };
  // Waits for a poke. Who `is_viewer` has nothing more to say: whatever comes from him is that he
  // goes. Anybody else may have closed his half, and still wants to be answered.
  WakeReason wait(const EventFd& wake_event, bool is_viewer, Clock::time_point deadline) const;

  // All is sent. What the other side still sends is thrown away for a moment, since a connection
  // that is closed over it would take the answer with it.
  void linger(Clock::time_point deadline);

 private:
  // Appends what there is to the buffer. False: nothing comes any more, or not in time.
  enum class ReadResult : std::uint8_t { data, closed, timeout };
  ReadResult receive(Clock::time_point deadline);

  UniqueFd socket_;
  std::string local_address_;
  std::string buffer_;  // read, but not taken
  Clock::time_point read_deadline_{};
  Clock::time_point write_deadline_ = Clock::time_point::max();
};

}  // namespace berth::serve
