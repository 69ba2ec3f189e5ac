// Writes the progress of a batch to stderr; see progress_display.h.
#include "batch/progress_display.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"
#include "base/time_text.h"

namespace berth::batch {
namespace {

constexpr std::size_t kDefaultHeight = 24;

// Moves the cursor from below the block to its first line.
std::string cursor_to_top(std::size_t lines) {
  return lines == 0 ? std::string() : fmt::format("\r\x1b[{}A", lines);
}

}  // namespace

std::string format_line_result(const LineResult& result) {
  const std::string time = format_brief_duration(std::max(result.end, result.begin) - result.begin);
  if (result.succeeded()) return fmt::format("ok in {}", time);
  const auto signal = result.signal();
  const std::string code =
      signal ? fmt::format("signal {}", *signal) : fmt::format("exit {}", result.code);
  const char* cause = result.timed_out       ? "time limit, "
                      : result.out_of_memory ? "out of memory, "
                                             : "";
  return fmt::format("failed ({}{}) after {}", cause, code, time);
}

bool ProgressDisplay::is_live() const {
  return terminal_at(STDERR_FILENO).drawable;
}

void ProgressDisplay::print_line(Style style, const std::string& text) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  clear();
  const std::string time =
      terminal.drawable ? "" : format_local_time(std::chrono::system_clock::now()) + ' ';
  print_error(fmt::format("{}{}\n", time, terminal.paint(style, terminal.escape(text))));
}

void ProgressDisplay::show_started(const BatchLine& line, const RunEvent& grant, unsigned attempt) {
  reason_.clear();
  if (is_live()) return;
  const std::string again = attempt > 1 ? fmt::format(" again (attempt {})", attempt) : "";
  const std::string memory = grant.text.empty() ? "" : fmt::format(" ({})", grant.text);
  print_line(Style::plain,
             fmt::format("{} started{} on {}{}: {}", format_position(line.number, total_), again,
                         gpu_list(grant.gpus), memory, line.command));
}

void ProgressDisplay::show_ended(const BatchLine& line, const LineResult& result, bool again) {
  if (is_live() && result.succeeded()) return;
  print_line(result.succeeded() ? Style::plain
             : again            ? Style::warning
                                : Style::bad,
             fmt::format("{} {}{}: {}", format_position(line.number, total_),
                         format_line_result(result), again ? ", retrying" : "", line.command));
}

void ProgressDisplay::show_notice(const std::string& text) {
  print_line(Style::plain, fmt::format("berth: {}", text));
}

void ProgressDisplay::show_notice(const BatchLine& line, const std::string& text) {
  print_line(Style::plain, fmt::format("{} {}", format_position(line.number, total_), text));
}

void ProgressDisplay::update(const Progress& progress) {
  const Terminal terminal = terminal_at(STDERR_FILENO);
  if (!terminal.drawable) {
    const bool idle = progress.running.empty() && !progress.reason.empty() && !progress.stopping;
    if (!idle || progress.reason == reason_) return;
    reason_ = progress.reason;
    return print_line(Style::plain, fmt::format("berth: {}", format_waiting(progress)));
  }
  // The last row stays free for the cursor: the terminal shows ^C and ^Z there. After a long line
  // they would begin a new line and shift the block.
  const std::size_t height = terminal.height.value_or(kDefaultHeight);
  const auto lines = progress_lines(progress, terminal, std::max<std::size_t>(height, 3) - 1);
  std::string block;
  for (const std::string& line : lines) block.append(line).append("\x1b[K\n");
  if (drawn_lines_ == lines.size() && block == drawn_text_) return;
  print_error(fmt::format("{}{}\x1b[J", cursor_to_top(drawn_lines_), block));
  drawn_lines_ = lines.size();
  drawn_text_ = std::move(block);
}

void ProgressDisplay::clear() {
  if (drawn_lines_ > 0) print_error(fmt::format("{}\x1b[J", cursor_to_top(drawn_lines_)));
  drawn_lines_ = 0;
}

}  // namespace berth::batch
