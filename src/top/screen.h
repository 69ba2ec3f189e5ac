// The terminal: draws frames, reads keys, and restores the terminal at the end.
//
// Only screen.cpp uses ncurses.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "top/frame.h"

namespace berth::top {

// Used by one thread. There may be only one Screen at a time, because the terminal belongs to the
// whole process.
class Screen {
 public:
  // Switches the terminal of stdin and stdout to full-screen mode. ErrorKind::usage: there is no
  // terminal, or its type does not support that.
  //
  // SIGTSTP and SIGWINCH must be blocked: the caller waits for them, and their handlers must not
  // run.
  static Result<std::unique_ptr<Screen>> open();

  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  // Restores the terminal. The handler of fatal signals (SIGSEGV, SIGABRT, …) does the same.
  ~Screen();

  // Size and character set, as of the last refresh().
  const Canvas& canvas() const { return canvas_; }

  // Writes only the differences from what the terminal shows.
  void draw(const Frame& frame);

  // The next key that was pressed, or action of the mouse; nullopt if there is none. Does not
  // block.
  std::optional<KeyPress> read();

  // Call it when the terminal has a new size, or when another program has written to it: the next
  // draw() writes everything.
  void refresh();

  // Restores the terminal, stops this process as Ctrl-Z does, and takes the terminal again when the
  // process is continued (SIGCONT).
  void suspend();

 private:
  Screen();
  std::optional<KeyPress> read_mouse();

  struct NcursesState;  // keeps <curses.h> out of this header
  std::unique_ptr<NcursesState> ncurses_;
  Canvas canvas_;
};

}  // namespace berth::top
