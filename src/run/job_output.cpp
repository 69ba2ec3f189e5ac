// Reads and follows the output of a detached job; see job_output.h.
#include "run/job_output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/text.h"
#include "run/job_wait.h"

namespace berth {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kPieceSize = std::size_t{64} << 10;
// Where the kernel reports neither new output (a network file system) nor the end of the process
// (another host, a container).
constexpr milliseconds kUnreportedInterval(1'000);

class OutputPrinter {
 public:
  OutputPrinter(const DetachedJob& job, OutputReader reader, const OutputOptions& options)
      : job_(job), reader_(std::move(reader)), options_(options) {}

  Result<std::optional<int>> print_all() {
    // Before the first read, so that no write is missed.
    if (options_.follow) watch_output();
    for (;;) {
      // Before the output is read: what the job wrote before its end is then printed.
      const bool ended = !options_.follow || !watch_process();
      if (!TRY(print_rest()) || ended) return stopped_by_;
      if (!wait_for_change()) return stopped_by_;
    }
  }

 private:
  void watch_output() {
    changes_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (changes_ && ::inotify_add_watch(changes_.get(), job_.output_path().c_str(), IN_MODIFY) < 0)
      changes_.reset();
  }

  // False if the job's berth process has ended.
  bool watch_process() {
    if (process_ && !has_ended(process_)) return true;
    process_ = open_job_process(job_);
    return process_ || is_job_alive(job_.path);
  }

  // False: stopped.
  Result<bool> print_rest() {
    while (const auto piece = reader_.read_next()) {
      if (piece->missing > 0) report_hole(piece->missing);
      if (!TRY(write(piece->bytes))) return false;
    }
    return true;
  }

  void report_hole(off_t missing) {
    const bool on_terminal = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
    if (on_terminal && last_byte_ != '\n') print_error("\n");
    print_message(
        fmt::format("{} of the output are not kept here (limit: the setting output in [jobs])",
                    format_size({static_cast<std::uint64_t>(missing)})));
  }

  // False: stopped. Waits for room before each write, so that a signal stops a write to a full
  // pipe.
  Result<bool> write(std::string_view bytes) {
    while (!bytes.empty()) {
      std::array<pollfd, 2> entries{{{STDOUT_FILENO, POLLOUT, 0}, {signal_fd(), POLLIN, 0}}};
      if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) break;
      if (!handle_signals()) return false;
      if (entries[0].revents == 0) continue;
      const std::size_t length = std::min<std::size_t>(bytes.size(), write_size());
      const ssize_t written = ::write(STDOUT_FILENO, bytes.data(), length);
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written < 0 && errno == EPIPE) return stop(SIGPIPE);
      if (written <= 0) {
        return fail(ErrorKind::io,
                    fmt::format("the output cannot be written: {}", std::strerror(errno)));
      }
      last_byte_ = bytes[static_cast<std::size_t>(written) - 1];
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
  }

  // A pipe that has room takes PIPE_BUF bytes without blocking.
  std::size_t write_size() const {
    return options_.signals == nullptr ? kPieceSize : std::size_t{PIPE_BUF};
  }

  int signal_fd() const { return options_.signals == nullptr ? -1 : options_.signals->fd(); }

  bool stop(int number) {
    stopped_by_ = number;
    return false;
  }

  bool handle_signals() {
    while (options_.signals != nullptr) {
      const auto signal = options_.signals->next();
      if (!signal) break;
      const auto number = static_cast<int>(signal->ssi_signo);
      if (!options_.on_signal(number)) return stop(number);
    }
    return true;
  }

  // False: stopped.
  bool wait_for_change() {
    std::array<pollfd, 4> entries{{{changes_ ? changes_.get() : -1, POLLIN, 0},
                                   {process_ ? process_.get() : -1, POLLIN, 0},
                                   {signal_fd(), POLLIN, 0},
                                   {STDOUT_FILENO, 0, 0}}};
    const bool is_reported = changes_ && process_;
    const int timeout = is_reported ? -1 : static_cast<int>(kUnreportedInterval.count());
    ::poll(entries.data(), entries.size(), timeout);
    if (!handle_signals()) return false;
    if ((entries[3].revents & (POLLERR | POLLHUP)) != 0) return stop(SIGPIPE);
    std::array<char, 4096> events{};
    while (changes_ && ::read(changes_.get(), events.data(), events.size()) > 0) {
    }
    return true;
  }

  const DetachedJob& job_;
  OutputReader reader_;
  const OutputOptions& options_;
  UniqueFd changes_;  // inotify
  UniqueFd process_;  // pidfd of the job's berth process
  std::optional<int> stopped_by_;
  char last_byte_ = '\n';
};

}  // namespace

Result<OutputReader> OutputReader::open(const std::string& path) {
  // The job may have put a FIFO in its place, which would block.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (file && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode))
    return OutputReader(std::move(file));
  if (file) return fail(ErrorKind::io, fmt::format("{} is not a regular file", in_quotes(path)));
  return fail(ErrorKind::io,
              fmt::format("cannot read {}: {}", in_quotes(path), std::strerror(errno)));
}

off_t OutputReader::size() const {
  struct stat info {};
  return ::fstat(file_.get(), &info) == 0 ? info.st_size : 0;
}

std::vector<OutputReader::Extent> OutputReader::list_extents() const {
  std::vector<Extent> extents;
  const off_t end = size();
  for (off_t position = 0; position < end;) {
    const off_t data = ::lseek(file_.get(), position, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // only a hole is left
    const off_t begin = std::max(data, position);
    const off_t hole = ::lseek(file_.get(), begin, SEEK_HOLE);
    position = hole > begin ? std::min(hole, end) : end;
    if (begin < position) extents.push_back({begin, position});
  }
  return extents;
}

void OutputReader::seek_last_lines(std::size_t lines) {
  const std::vector<Extent> extents = list_extents();
  offset_ = extents.empty() || lines == 0 ? size() : extents.back().end;
  if (lines == 0) return;
  std::string block(kPieceSize, '\0');
  std::size_t found = 0;
  bool is_last_byte = true;  // a line break there ends the last line
  for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent) {
    for (off_t end = extent->end; end > extent->begin;) {
      const off_t begin = std::max<off_t>(extent->begin, end - static_cast<off_t>(kPieceSize));
      const auto length = static_cast<std::size_t>(end - begin);
      if (::pread(file_.get(), block.data(), length, begin) != end - begin) return;
      for (std::size_t i = length; i-- > 0;) {
        const bool breaks = !std::exchange(is_last_byte, false) && block[i] == '\n';
        if (!breaks || ++found < lines) continue;
        offset_ = begin + static_cast<off_t>(i) + 1;
        return;
      }
      offset_ = end = begin;
    }
    if (++found >= lines) return;
    is_last_byte = true;  // a line break before a hole and the hole are one
  }
  offset_ = 0;
}

void OutputReader::seek_last_bytes(std::size_t bytes) {
  offset_ = std::max<off_t>(0, size() - static_cast<off_t>(bytes));
}

std::optional<OutputReader::Piece> OutputReader::read_next() {
  const off_t end = size();
  if (end < offset_) offset_ = 0;  // the job has truncated the file
  if (end == offset_) return std::nullopt;
  Piece piece;
  piece.bytes.resize(std::min<std::size_t>(kPieceSize, static_cast<std::size_t>(end - offset_)));
  const ssize_t length = ::pread(file_.get(), piece.bytes.data(), piece.bytes.size(), offset_);
  if (length <= 0) return std::nullopt;
  piece.bytes.resize(static_cast<std::size_t>(length));
  // After the bytes were read: those of a hole that was made meanwhile are zeros.
  const off_t data = ::lseek(file_.get(), offset_, SEEK_DATA);
  if (data > offset_ || (data < 0 && errno == ENXIO)) {
    const off_t next = data < 0 ? end : data;
    return Piece{"", next - std::exchange(offset_, next)};
  }
  const off_t hole = ::lseek(file_.get(), offset_, SEEK_HOLE);
  if (hole > offset_ && hole < offset_ + length)
    piece.bytes.resize(static_cast<std::size_t>(hole - offset_));
  offset_ += static_cast<off_t>(piece.bytes.size());
  return piece;
}

Result<std::optional<int>> print_job_output(const DetachedJob& job, const OutputOptions& options) {
  OutputReader reader = TRY(OutputReader::open(job.output_path()));
  if (options.lines) reader.seek_last_lines(*options.lines);
  struct stat file {};
  const bool is_empty = ::stat(job.output_path().c_str(), &file) == 0 && file.st_size == 0;
  if (is_empty && job.is_alive && job.held.empty() && job.grants.empty()) {
    print_message(
        fmt::format("job {0} waits for its GPUs and has no output yet; to see why: "
                    "berth jobs {0}",
                    job.spec.id));
  }
  return OutputPrinter(job, std::move(reader), options).print_all();
}

}  // namespace berth
