// Showing of a batch; see view.h.
#include "batch/progress_display.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

namespace berth::batch {
namespace {

constexpr int kSignalBase = 128;
constexpr std::size_t kUsualHeight = 24;

// From below the block to its first line.
std::string to_top(std::size_t lines) {
  return lines == 0 ? std::string() : fmt::format("\r\x1b[{}A", lines);
}

}  // namespace

std::string end_text(const LineEnd& end) {
  const std::string time = brief_time(std::max(end.end, end.begin) - end.begin);
  if (end.succeeded()) return fmt::format("ok in {}", time);
  const std::string code = end.code > kSignalBase && end.code < kSignalBase + kSignalBase / 2
                               ? fmt::format("signal {}", end.code - kSignalBase)
                               : fmt::format("exit {}", end.code);
  const char* cause = end.timed_out ? "time limit, " : end.out_of_memory ? "out of memory, " : "";
  return fmt::format("failed ({}{}) after {}", cause, code, time);
}

bool BatchView::live() const {
  return terminal_at(STDERR_FILENO).drawable;
}

void BatchView::print_line(Style style, const std::string& text) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  finish();
  print_error(fmt::format("{}\n", terminal.paint(style, terminal.show(text))));
}

void BatchView::started(const Line& line, const std::string& gpus, unsigned attempt) {
  reason_.clear();
  if (live()) return;
  const std::string again = attempt > 1 ? fmt::format(" again (attempt {})", attempt) : "";
  print_line(Style::plain, fmt::format("{} started{} on GPU {}: {}", place_in(line.number, total_),
                                       again, gpus, line.command));
}

void BatchView::ended(const Line& line, const LineEnd& end, bool again) {
  if (live() && end.succeeded()) return;
  print_line(end.succeeded() ? Style::plain
             : again         ? Style::warning
                             : Style::bad,
             fmt::format("{} {}{}: {}", place_in(line.number, total_), end_text(end),
                         again ? ", runs again" : "", line.command));
}

void BatchView::notice(const std::string& text) {
  print_line(Style::plain, fmt::format("berth: {}", text));
}

void BatchView::notice(const Line& line, const std::string& text) {
  print_line(Style::plain, fmt::format("{} {}", place_in(line.number, total_), text));
}

void BatchView::show(const Progress& progress) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  if (!terminal.drawable) {
    const bool idle = progress.running.empty() && !progress.reason.empty() && !progress.stopping;
    if (!idle || progress.reason == reason_) return;
    reason_ = progress.reason;
    return print_line(Style::plain, fmt::format("berth: waiting: {}", reason_));
  }
  // The last row stays free for the cursor: there the terminal shows ^C and ^Z, which behind a long
  // line would begin a new one.
  const std::size_t height = terminal.height.value_or(kUsualHeight);
  const auto lines = progress_lines(progress, terminal, std::max<std::size_t>(height, 3) - 1);
  std::string block;
  for (const std::string& line : lines) block.append(line).append("\x1b[K\n");
  if (drawn_ == lines.size() && block == shown_) return;
  print_error(fmt::format("{}{}\x1b[J", to_top(drawn_), block));
  drawn_ = lines.size();
  shown_ = std::move(block);
}

void BatchView::finish() {
  if (drawn_ > 0) print_error(fmt::format("{}\x1b[J", to_top(drawn_)));
  drawn_ = 0;
}

}  // namespace berth::batch
