// What a person sees of a batch while it runs: on a terminal a live block at the bottom, and what
// went wrong above it; elsewhere a line for each event. Written to stderr.
#pragma once

#include <cstddef>
#include <string>

#include "base/terminal.h"
#include "batch/joblog.h"
#include "batch/lines.h"
#include "batch/progress.h"

namespace berth::batch {

class ProgressDisplay {
 public:
  explicit ProgressDisplay(std::size_t total) : total_(total) {}
  ~ProgressDisplay() { clear(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // A terminal that wants to be drawn anew every second.
  bool is_live() const;
  void show_started(const BatchLine& line, const std::string& gpus, unsigned attempt);
  void show_ended(const BatchLine& line, const LineResult& result, bool again);
  void show_notice(const std::string& text);
  void show_notice(const BatchLine& line, const std::string& text);
  void update(const Progress& progress);
  // The block stands elsewhere by now (the shell has written below it), and is left there.
  void detach() { drawn_lines_ = 0; }
  // The terminal has another size: the block is written again, even if it is the same.
  void redraw() { drawn_text_.clear(); }
  // Takes the block away.
  void clear();

 private:
  void print_line(Style style, const std::string& text);

  std::size_t total_;
  std::size_t drawn_lines_ = 0;  // lines of the block; the cursor stands below them
  std::string drawn_text_;       // the block as it was written last
  std::string reason_;           // the last that was said
};

// "ok in 12s", "failed (exit 1) after 3s".
std::string format_line_result(const LineResult& result);

}  // namespace berth::batch
