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

class BatchView {
 public:
  explicit BatchView(std::size_t total) : total_(total) {}
  ~BatchView() { finish(); }
  BatchView(const BatchView&) = delete;
  BatchView& operator=(const BatchView&) = delete;

  // A terminal that wants to be drawn anew every second.
  bool live() const;
  void started(const Line& line, const std::string& gpus, unsigned attempt);
  void ended(const Line& line, const LineEnd& end, bool again);
  void notice(const std::string& text);
  void notice(const Line& line, const std::string& text);
  void show(const Progress& progress);
  // The block stands elsewhere by now (the shell has written below it), and is left there.
  void forget() { drawn_ = 0; }
  // The terminal has another size: the block is written again, even if it is the same.
  void redraw() { shown_.clear(); }
  // Takes the block away.
  void finish();

 private:
  void print_line(Style style, const std::string& text);

  std::size_t total_;
  std::size_t drawn_ = 0;  // lines of the block; the cursor stands below them
  std::string shown_;      // the block as it was written last
  std::string reason_;     // the last that was said
};

// "ok in 12s", "failed (exit 1) after 3s".
std::string end_text(const LineEnd& end);

}  // namespace berth::batch
