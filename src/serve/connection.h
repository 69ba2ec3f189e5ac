// One connection of a client: reads and writes that end at a deadline, whatever the client does.
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

// Owns the socket. Used by one thread.
class HttpConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // `socket` must be non-blocking.
  explicit HttpConnection(UniqueFd socket);

  int fd() const { return socket_.get(); }
  // The address of this server at which the client connected, as in a Host header: IPv6 has
  // brackets.
  const std::string& local_address() const { return local_address_; }

  // Waits until there is something to read; false at the deadline. Reads nothing.
  bool wait_readable(Clock::time_point deadline) const;
  // Reads the request line and the headers, including the empty line. The deadline holds for the
  // whole request, so also for read_body(). On failure returns nullopt; `refusal` is then the
  // answer to send, or stays empty if the client has closed the connection.
  std::optional<std::string> read_head(Clock::time_point deadline,
                                       std::optional<HttpRefusal>& refusal);
  // Reads the `size` bytes after the head. On failure returns false and sets `refusal`.
  bool read_body(std::string& bytes, std::size_t size, std::optional<HttpRefusal>& refusal);

  // Every later write() must end before `deadline`.
  void set_write_deadline(Clock::time_point deadline) { write_deadline_ = deadline; }
  // Writes all bytes. False at the deadline, or if the connection is broken.
  bool write(std::string_view bytes);

  enum class WakeReason : std::uint8_t { event, closed, timeout };
  // Waits until `wake_event` is notified, and clears it. A viewer sends nothing after its request:
  // with `is_viewer`, any input counts as `closed`. Another client may have shut down its sending
  // side, and still reads the answer: only a connection that is closed on both sides is `closed`.
  WakeReason wait(const EventFd& wake_event, bool is_viewer, Clock::time_point deadline) const;

  // Ends the sending side, and discards input until the client closes or the deadline. If the
  // socket were closed with unread input, the kernel would reset the connection, and the client
  // could lose the answer.
  void linger(Clock::time_point deadline);

 private:
  enum class ReadResult : std::uint8_t { data, closed, timeout };
  // Waits for input and appends it to the buffer.
  ReadResult receive(Clock::time_point deadline);

  UniqueFd socket_;
  std::string local_address_;
  std::string buffer_;  // received, but not yet returned
  Clock::time_point read_deadline_{};
  Clock::time_point write_deadline_ = Clock::time_point::max();
};

}  // namespace berth::serve
