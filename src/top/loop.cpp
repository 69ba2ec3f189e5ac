// The one loop that waits for everything; see loop.h.
#include "top/loop.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <unistd.h>

#include "base/process.h"
#include "base/signals.h"
#include "devices/driver.h"
#include "top/action_thread.h"
#include "top/frame.h"
#include "top/screen.h"
#include "top/status_thread.h"

namespace berth::top {
namespace {

constexpr std::chrono::milliseconds kPeriod(1000);
constexpr int kClockMs = 1000;  // the time of day and the ages move on, whoever is silent
constexpr std::chrono::milliseconds kPatience(500);

// What leads out of the view.
struct Ending {
  bool now = false;
  int signal = 0;  // by which, if by one
};

class View {
 public:
  View(Screen& screen, Watcher& watcher, SignalQueue& signals)
      : screen_(screen), watcher_(watcher), signals_(signals), model_(::geteuid()) {}

  Ending run() {
    Ending ending;
    while (!ending.now) {
      screen_.draw(make_frame(model_, history_, screen_.sheet(), std::chrono::system_clock::now()));
      ending = wait();
    }
    return ending;
  }

 private:
  Ending wait() {
    enum : std::size_t { keys, signals, news, errand };
    std::array<pollfd, 4> watched{{{STDIN_FILENO, POLLIN, 0},
                                   {signals_.fd(), POLLIN, 0},
                                   {watcher_.fd(), POLLIN, 0},
                                   {errand_.fd(), POLLIN, 0}}};
    if (::poll(watched.data(), watched.size(), kClockMs) <= 0) return {};
    if (watched[news].revents != 0) take_picture();
    if (watched[errand].revents != 0) {
      if (auto notice = errand_.result()) model_.tell(std::move(*notice));
    }
    if (watched[signals].revents != 0) {
      if (const Ending ending = obey_signals(); ending.now) return ending;
    }
    if ((watched[keys].revents & POLLIN) != 0) return read_keys();
    // The terminal is gone, and with it whoever looked.
    return {(watched[keys].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0, 0};
  }

  void take_picture() {
    auto picture = watcher_.news();
    if (picture->seen && picture->problem.empty() && !picture->slow) {
      history_.note(picture->hosts, std::chrono::steady_clock::now());
    }
    model_.take(std::move(picture));
  }

  Ending obey_signals() {
    while (const auto signal = signals_.next()) {
      const int number = static_cast<int>(signal->ssi_signo);
      if (number == SIGTSTP) {
        screen_.stop();
      } else if (number == SIGWINCH || number == SIGCONT) {
        screen_.refresh();
      } else {
        return {true, number};
      }
    }
    return {};
  }

  Ending read_keys() {
    while (const auto input = screen_.read()) {
      const auto outcome = model_.press(*input);
      if (outcome.leave) return {true, 0};
      if (!outcome.wish) continue;
      if (errand_.busy()) {
        model_.tell({Style::warning, "Not yet: what was asked for before is still under way."});
      } else {
        errand_.start(*outcome.wish);
      }
    }
    return {};
  }

  Screen& screen_;
  Watcher& watcher_;
  SignalQueue& signals_;
  Model model_;
  History history_{kPeriod};
  ActionThread errand_;
};

// A setting that is wrong does not heal: it is told at once, and not in the view.
Result<void> check_settings(const HarbourLocation& where) {
  if (where.wrong) return tl::make_unexpected(*where.wrong);
  if (auto limit = driver_time_limit(); !limit) return tl::make_unexpected(limit.error());
  return {};
}

}  // namespace

Result<int> run_view() {
  HarbourLocation where = harbour_location();
  if (auto fit = check_settings(where); !fit) return tl::make_unexpected(fit.error());
  set_helper_program(this_program());
  Ending ending;
  bool ended = false;
  {
    // Before any thread is: all inherit what is blocked, and the queue alone gets it.
    SignalQueue signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    auto screen = Screen::open();
    if (!screen) return tl::make_unexpected(screen.error());
    Watcher watcher(std::move(where), kPeriod);
    {
      View view(**screen, watcher, signals);
      ending = view.run();
      screen->reset();  // first: whoever waits for the rest has the terminal back
    }
    ended = watcher.end(kPatience);
    if (ending.signal != 0) std::signal(ending.signal, SIG_DFL);
  }
  if (ending.signal != 0) ::raise(ending.signal);
  // Nothing may be torn down that the thread still uses.
  if (!ended) std::_Exit(0);
  return 0;
}

}  // namespace berth::top
