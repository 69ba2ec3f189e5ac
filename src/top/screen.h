// The terminal: draws frames, reads keys, and leaves it as it found it. All of ncurses is behind
// this.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "top/frame.h"

namespace berth::top {

// There is one at a time, for one thread: the terminal is the whole process's.
class Screen {
 public:
  // Takes the terminal of stdin and stdout. The error (ErrorKind::usage) says why that cannot be:
  // no terminal, or one that cannot be drawn on.
  //
  // SIGTSTP and SIGWINCH must be blocked: the library has handlers of its own for those.
  static Result<std::unique_ptr<Screen>> open();

  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  // Gives the terminal back, as a fatal signal (SIGSEGV, SIGABRT, …) does.
  ~Screen();

  // What there is to draw on, as of the last resize().
  const Canvas& canvas() const { return canvas_; }

  // Writes what differs from what is there.
  void draw(const Frame& frame);

  // The next key that waits, if any.
  std::optional<KeyPress> read();

  // The terminal has another size, or was used by somebody else: the next draw() writes it all.
  void refresh();

  // Gives the terminal back, stops this process as Ctrl-Z does, and takes the terminal again once
  // somebody lets it go on.
  void suspend();

 private:
  Screen();

  struct NcursesState;  // what is ncurses'
  std::unique_ptr<NcursesState> ncurses_;
  Canvas canvas_;
};

}  // namespace berth::top
