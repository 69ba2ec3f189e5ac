// The line of who waits; see wait_display.h.
#include "run/wait_display.h"

#include <chrono>
#include <fmt/format.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/signals.h"
#include "base/terminal.h"

namespace berth {
std::string wait_text(const WaitNews& news, TimePoint now) {
  std::string text = news.position == 0 ? news.reason
                                        : fmt::format("position {} of {}: {}", news.position,
                                                      news.length, news.reason);
  if (news.starts && *news.starts > now) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(*news.starts - now);
    text += fmt::format("; expected in about {}", format_duration(left));
  }
  return text;
}

void WaitDisplay::show(const WaitNews& news) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  const std::string text =
      terminal.show(fmt::format("waiting, {}", wait_text(news, std::chrono::system_clock::now())));
  if (!terminal.drawable) {
    if (text != last_) print_error(fmt::format("berth: {}\n", text));
    last_ = text;
    return;
  }
  const std::size_t room = terminal.width.value_or(80);
  print_error(fmt::format("\r{}\x1b[K", fitted(fmt::format("berth: {}", text),
                                               room > 1 ? room - 1 : 1, terminal.charset)));
  line_ = true;
}

void WaitDisplay::notice(const std::string& text) {
  finish();
  say(text);
}

void WaitDisplay::finish() {
  if (line_) print_error("\r\x1b[K");
  line_ = false;
}

Hooks WaitDisplay::hooks(int interrupt) {
  return {[this](const WaitNews& news) { show(news); },
          [this](const std::string& text) { notice(text); },
          interrupt,
          {}};
}

Result<std::variant<Lease, int>> wait_for(Probe& probe, AcquireRequest ask, int owner, const Show& show) {
  SignalQueue leaving({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  WaitDisplay display;
  const UniqueFd either = owner < 0 ? UniqueFd() : readable_if_any({leaving.fd(), owner});
  const int interrupt = either ? either.get() : leaving.fd();
  probe.interrupt_by(interrupt);
  Hooks hooks = display.hooks(interrupt);
  if (show.news) hooks.on_wait = show.news;
  if (show.notice) hooks.on_notice = show.notice;
  auto lease = acquire(probe, std::move(ask), hooks);
  display.finish();
  probe.interrupt_by(-1);
  if (!lease) return tl::make_unexpected(lease.error());
  if (*lease) return std::move(**lease);
  return static_cast<int>(leaving.next().value_or(signalfd_siginfo{}).ssi_signo);
}

}  // namespace berth
