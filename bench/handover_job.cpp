// A job that logs when it started and when it ended, by a clock that all processes share, and waits
// in between. The time from the end of a job to the start of the next one is the hand-over.
#include <array>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

namespace {

long long now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

bool write_event(int log, const char* what, long long time) {
  std::array<char, 64> line{};
  const int length = std::snprintf(line.data(), line.size(), "%s %lld\n", what, time);
  return ::write(log, line.data(), static_cast<std::size_t>(length)) == length;
}

}  // namespace

// handover_job FILE GATE: appends "start NANOSECONDS\n", waits until it can read from GATE, appends
// "end NANOSECONDS\n". Appends of this size are atomic.
int main(int argc, char** argv) {
  const long long start = now_ns();
  if (argc != 3) return 64;
  const int log = ::open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
  const int gate = ::open(argv[2], O_RDONLY | O_CLOEXEC);
  char byte = 0;
  const bool fine = write_event(log, "start", start) && ::read(gate, &byte, 1) >= 0;
  return fine && write_event(log, "end", now_ns()) ? 0 : 74;
}
