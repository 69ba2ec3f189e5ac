// A driver library that misbehaves in the way that BERTH_TEST_DRIVER names: for tests only.
//
// It runs in the helper process, whose end of the socket to berth is descriptor 3.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

bool is(const char* mode) {
  const char* chosen = std::getenv("BERTH_TEST_DRIVER");
  return chosen != nullptr && std::strcmp(chosen, mode) == 0;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

// An answer of 60 MB, byte by byte.
[[noreturn]] void dribble() {
  const std::uint32_t size = 60'000'000;
  ::send(3, &size, sizeof size, MSG_NOSIGNAL);
  for (;;) ::send(3, "x", 1, MSG_NOSIGNAL);
}

struct CrashesAtExit {
  ~CrashesAtExit() {
    if (is("crash-at-exit")) std::abort();
  }
} crashes_at_exit;

int misbehave() {
  if (is("close-and-sleep")) {
    ::close(3);
    sleep_for_ever();
  }
  if (is("ignore-signals")) {
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_IGN);
    ::close(3);
    sleep_for_ever();
  }
  if (is("sleep")) sleep_for_ever();
  if (is("dribble")) dribble();
  if (is("close-and-crash")) {
    ::close(3);
    std::abort();
  }
  if (is("exit")) ::_exit(0);
  std::exit(0);  // crash-at-exit
}

}  // namespace

#define CALL(name) extern "C" __attribute__((visibility("default"))) int name() { return misbehave(); }
CALL(nvmlInit_v2)
CALL(nvmlErrorString)
CALL(nvmlSystemGetDriverVersion)
CALL(nvmlDeviceGetCount_v2)
CALL(nvmlDeviceGetHandleByIndex_v2)
CALL(nvmlDeviceGetName)
CALL(nvmlDeviceGetUUID)
CALL(nvmlDeviceGetMemoryInfo)
