// Waits for keys, signals, snapshots and actions, and draws; see top.h.
#include "top/top.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "base/process.h"
#include "base/signals.h"
#include "devices/driver.h"
#include "top/action_thread.h"
#include "top/frame.h"
#include "top/screen.h"
#include "top/status_thread.h"

namespace berth::top {
namespace {

constexpr std::chrono::milliseconds kPollInterval(1000);
constexpr int kRedrawIntervalMs = 1000;  // the clock and the ages change without any event
constexpr std::chrono::milliseconds kStopTimeout(500);

struct ExitRequest {
  bool requested = false;
  int signal = 0;  // the signal that requested it, if any
};

class TopLoop {
 public:
  TopLoop(Screen& screen, StatusThread& status_thread, SignalQueue& signals)
      : screen_(screen), status_thread_(status_thread), signals_(signals), model_(::geteuid()) {}

  ExitRequest run() {
    ExitRequest exit_request;
    while (!exit_request.requested) {
      const TimePoint now = std::chrono::system_clock::now();
      const Canvas canvas = screen_.canvas();
      if (std::exchange(has_changed_, false)) fit_list(model_, canvas, now);
      frame_ = render_frame(model_, history_, canvas, now);
      screen_.draw(frame_);
      exit_request = wait();
    }
    return exit_request;
  }

 private:
  ExitRequest wait() {
    enum : std::size_t { keys, signals, snapshot, action };
    std::array<pollfd, 4> fds{{{STDIN_FILENO, POLLIN, 0},
                               {signals_.fd(), POLLIN, 0},
                               {status_thread_.fd(), POLLIN, 0},
                               {action_thread_.fd(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), kRedrawIntervalMs) <= 0) return {};
    has_changed_ = true;  // a snapshot, a notice, another size, or a key
    if (fds[snapshot].revents != 0) receive_snapshot();
    if (fds[action].revents != 0) {
      if (auto notice = action_thread_.result()) model_.set_notice(std::move(*notice));
    }
    if (fds[signals].revents != 0) {
      if (const ExitRequest exit_request = handle_signals(); exit_request.requested)
        return exit_request;
    }
    if ((fds[keys].revents & POLLIN) != 0) return read_keys();
    // The terminal is closed, and with it the user's session.
    return {(fds[keys].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0, 0};
  }

  void receive_snapshot() {
    auto snapshot = status_thread_.latest();
    if (snapshot->last_success && snapshot->problem.empty() && !snapshot->driver_is_slow) {
      history_.add_snapshot(snapshot->hosts, std::chrono::steady_clock::now());
    }
    model_.set_snapshot(std::move(snapshot));
  }

  ExitRequest handle_signals() {
    while (const auto signal = signals_.next()) {
      const int number = static_cast<int>(signal->ssi_signo);
      if (number == SIGTSTP) {
        screen_.suspend();
      } else if (number == SIGWINCH || number == SIGCONT) {
        screen_.refresh();
      } else {
        return {true, number};
      }
    }
    return {};
  }

  ExitRequest read_keys() {
    while (const auto input = screen_.read()) {
      if (input->kind == KeyKind::click || input->kind == KeyKind::double_click) {
        if (input->line >= frame_.lines.size()) continue;
        model_.handle_click(frame_.lines[input->line].target, input->kind == KeyKind::double_click);
        continue;
      }
      const auto result = model_.handle_key(*input);
      if (result.quit) return {true, 0};
      if (!result.action) continue;
      if (action_thread_.busy()) {
        model_.set_notice(
            {Style::warning, "Please wait: the previous action is not finished yet."});
      } else {
        action_thread_.start(*result.action);
      }
    }
    return {};
  }

  Screen& screen_;
  StatusThread& status_thread_;
  SignalQueue& signals_;
  Model model_;
  PlotHistory history_{kPollInterval};
  Frame frame_;              // what the screen shows
  bool has_changed_ = true;  // the model or the size of the screen, since fit_list()
  ActionThread action_thread_;
};

// A wrong setting stays wrong: it is reported before the screen is opened.
Result<void> check_settings(const HarbourLocation& where) {
  if (where.configuration_error) return tl::make_unexpected(*where.configuration_error);
  TRY(read_driver_timeout());
  return {};
}

}  // namespace

Result<int> run_top() {
  HarbourLocation where = harbour_location();
  TRY(check_settings(where));
  set_helper_program(executable_path());
  ExitRequest exit_request;
  bool thread_ended = false;
  {
    // Before any thread starts: all threads then inherit the blocked signals, and only this queue
    // receives them.
    SignalQueue signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    std::unique_ptr<Screen> screen = TRY(Screen::open());
    StatusThread status_thread(std::move(where), kPollInterval);
    {
      TopLoop loop(*screen, status_thread, signals);
      exit_request = loop.run();
      screen.reset();  // before the threads are stopped: the user has the terminal back at once
    }
    thread_ended = status_thread.stop(kStopTimeout);
    if (exit_request.signal != 0) std::signal(exit_request.signal, SIG_DFL);
  }
  if (exit_request.signal != 0) ::raise(exit_request.signal);
  // exit() would destroy globals that the thread still uses.
  if (!thread_ended) std::_Exit(0);
  return 0;
}

}  // namespace berth::top
