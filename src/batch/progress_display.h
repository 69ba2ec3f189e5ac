// Shows a running batch on stderr.
//
// On a terminal: a block at the bottom that is redrawn, and above it a line for each failure and
// notice. In a file or pipe: a line for each event, with the time in front.
#pragma once

#include <cstddef>
#include <string>

#include "base/terminal.h"
#include "batch/joblog.h"
#include "batch/lines.h"
#include "batch/progress.h"
#include "batch/run_event_parser.h"

namespace berth::batch {

class ProgressDisplay {
 public:
  explicit ProgressDisplay(std::size_t total) : total_(total) {}
  ~ProgressDisplay() { clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // Whether stderr is a terminal: then call update() every second.
  bool is_live() const;
  void show_started(const BatchLine& line, const RunEvent& grant, unsigned attempt);
  void show_ended(const BatchLine& line, const LineResult& result, bool again);
  void show_notice(const std::string& text);
  void show_notice(const BatchLine& line, const std::string& text);
  void update(const Progress& progress);
  // Call it after SIGCONT: the shell has written below the block, so the old block is left where it
  // is, and the next update() draws a new one.
  void detach() { drawn_lines_ = 0; }
  // Call it when the terminal has a new size: the next update() draws the block even if its text is
  // the same.
  void redraw() { drawn_text_.clear(); }
  // Removes the block.
  void clear();

 private:
  void print_line(Style style, const std::string& text);

  std::size_t total_;
  std::size_t drawn_lines_ = 0;  // lines of the block; the cursor is below them
  std::string drawn_text_;       // the block as it was last drawn
  std::string reason_;           // the last wait reason that was printed
};

// "ok in 12s", "failed (exit 1) after 3s".
std::string format_line_result(const LineResult& result);

}  // namespace berth::batch
