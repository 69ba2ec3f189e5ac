// The display of a waiting request; see wait_display.h.
#include "run/wait_display.h"

#include <chrono>
#include <cstddef>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "run/grant_message.h"
#include "status/status_format.h"

namespace berth {
namespace {

constexpr std::chrono::minutes kMinShownWait(1);

// A person reads such a file later. The program at the other end of a pipe may expect only what the
// job writes.
bool is_log_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// Removes the code of the program and its libraries from the memory of this process. The kernel
// keeps it in the page cache and maps again what is used: while a client waits, that is a small
// part. On a host with a long queue, this halves what `ps` shows as used.
void unmap_code() {
  const auto unmap_object = [](dl_phdr_info* object, std::size_t, void*) {
    const auto page = static_cast<ElfW(Addr)>(::sysconf(_SC_PAGESIZE));
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = object->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
      const ElfW(Addr) begin = (object->dlpi_addr + segment.p_vaddr) / page * page;
      const ElfW(Addr) end = object->dlpi_addr + segment.p_vaddr + segment.p_memsz;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader describes addresses as numbers
      ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
    return 0;
  };
  ::dl_iterate_phdr(unmap_object, nullptr);
}

}  // namespace

std::string format_wait_status(const WaitStatus& status, TimePoint now) {
  std::string text = "waiting";
  if (status.since != TimePoint{} && now - status.since >= kMinShownWait)
    text += fmt::format(" {}", format_rough_duration(now - status.since));
  if (is_start_expected(status.expected_start, now))
    text += fmt::format(", {}", format_start(status.expected_start, now, TextForm::sentence));
  if (status.next_free && status.next_free->at > now)
    text += fmt::format(", {}", format_next_free(*status.next_free, now));
  if (status.queue_position > 0)
    text += fmt::format(", position {} of {}", status.queue_position, status.queue_length);
  return fmt::format("{}: {}", text, status.reason);
}

void WaitDisplay::show(const WaitStatus& status) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  const bool has_changed = status != last_status_;
  last_status_ = status;
  if (!terminal.drawable && !has_changed) return;
  const std::string text =
      terminal.escape(format_wait_status(status, std::chrono::system_clock::now()));
  if (!terminal.drawable) return print_error(fmt::format("berth: {}\n", text));
  const std::size_t room = terminal.width.value_or(80);
  print_error(fmt::format("\r{}\x1b[K", truncate_text(fmt::format("berth: {}", text),
                                                      room > 1 ? room - 1 : 1, terminal.charset)));
  has_live_line_ = true;
}

void WaitDisplay::refresh() {
  if (has_live_line_) show(*last_status_);
}

void WaitDisplay::show_notice(const std::string& text) {
  finish();
  print_message(text);
}

void WaitDisplay::finish() {
  if (has_live_line_) print_error("\r\x1b[K");
  has_live_line_ = false;
}

AcquireCallbacks WaitDisplay::make_callbacks(int interrupt) {
  return {[this](const WaitStatus& status) { show(status); },
          [this](const std::string& text) { show_notice(text); },
          interrupt,
          {},
          [this] { refresh(); }};
}

Result<std::variant<Lease, int>> acquire_with_display(Probe& probe, AcquireRequest request,
                                                      int owner, const WaitCallbacks& callbacks) {
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  WaitDisplay display;
  const UniqueFd signal_or_owner = owner < 0 ? UniqueFd() : open_epoll({signals.fd(), owner});
  const int interrupt = signal_or_owner ? signal_or_owner.get() : signals.fd();
  probe.set_interrupt(interrupt);
  AcquireCallbacks acquire_callbacks = display.make_callbacks(interrupt);
  if (callbacks.on_wait) acquire_callbacks.on_wait = callbacks.on_wait;
  if (callbacks.on_notice) acquire_callbacks.on_notice = callbacks.on_notice;
  bool waits = false;
  acquire_callbacks.on_wait =
      [&waits, show = std::move(acquire_callbacks.on_wait)](const WaitStatus& status) {
        show(status);
        waits = true;
      };
  acquire_callbacks.on_sleep = unmap_code;
  const std::optional<ProfileOptions> profile_options = request.profile_options;
  auto lease = acquire(probe, std::move(request), acquire_callbacks);
  display.finish();
  probe.set_interrupt(-1);
  if (!lease) return tl::make_unexpected(lease.error());
  if (*lease) {
    const bool is_displayed = !callbacks.on_wait;
    const bool has_auto_memory = profile_options && profile_options->use_memory;
    const bool is_job = owner < 0;  // the shell that gets a lease shows it itself
    const bool is_wanted = waits || (is_job && is_log_file(STDERR_FILENO)) ||
                           (has_auto_memory && ::isatty(STDERR_FILENO) == 1);
    if (is_displayed && is_wanted) print_message(format_grant(**lease, waits, profile_options));
    return std::move(**lease);
  }
  return static_cast<int>(signals.next().value_or(signalfd_siginfo{}).ssi_signo);
}

}  // namespace berth
