// Implements the screen with ncurses; see screen.h.
#include "top/screen.h"

#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <algorithm>
#include <array>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <curses.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/terminal.h"
#include "base/text.h"

// Declared in <term.h>, which also defines macros for words such as tab, lines and columns.
extern "C" int setupterm(const char* type, int fd, int* result);

namespace berth::top {
namespace {

// Switches off what ncurses may have switched on for the mouse: reports, and their SGR form.
constexpr std::string_view kMouseOff = "\x1b[?1000l\x1b[?1006l";
constexpr std::chrono::milliseconds kDoubleClickTime(400);

constexpr const char* kAlternative = "use 'berth status --watch' instead";

// What the signal handler needs to restore the terminal. It is computed in advance, because the
// handler may only make system calls.
struct TerminalRestore {
  termios modes{};
  bool known = false;            // the handler is installed
  std::array<char, 256> text{};  // the control sequences
  std::size_t size = 0;
};
TerminalRestore terminal_restore;

constexpr std::array kFatalSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kFatalSignals.size()> previous_actions;

// A signal handler: makes only system calls.
void restore_and_reraise(int number) {
  if (terminal_restore.known) {
    [[maybe_unused]] const auto written =
        ::write(STDOUT_FILENO, terminal_restore.text.data(), terminal_restore.size);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_restore.modes);
  }
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (kFatalSignals[i] == number) ::sigaction(number, &previous_actions[i], nullptr);
  }
  ::raise(number);  // is delivered after this handler has returned
}

// A control sequence of the terminal, without its delays ("$<5>"); "" if the terminal lacks it.
std::string capability(const char* name) {
  const char* text = ::tigetstr(name);
  if (text == nullptr || reinterpret_cast<std::intptr_t>(text) == -1) return "";
  std::string plain = text;
  for (auto at = plain.find("$<"); at != std::string::npos; at = plain.find("$<", at)) {
    const auto end = plain.find('>', at);
    if (end == std::string::npos) break;
    plain.erase(at, end - at + 1);
  }
  return plain;
}

void install_terminal_restore() {
  std::string text =
      capability("sgr0") + capability("rmkx") + capability("cnorm") + capability("rmcup");
  if (!capability("kmous").empty()) text += kMouseOff;
  terminal_restore.size = std::min(text.size(), terminal_restore.text.size());
  std::copy_n(text.begin(), terminal_restore.size, terminal_restore.text.begin());
  terminal_restore.known = true;
  struct sigaction action {};
  action.sa_handler = restore_and_reraise;
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    ::sigaction(kFatalSignals[i], &action, &previous_actions[i]);
  }
}

void remove_terminal_restore() {
  if (!terminal_restore.known) return;
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    ::sigaction(kFatalSignals[i], &previous_actions[i], nullptr);
  }
  terminal_restore.known = false;
}

// ncurses measures characters by the locale. If the user's locale is not installed, UTF-8 would be
// drawn as garbage: then another UTF-8 locale is used, or ASCII.
Charset set_utf8_locale(Charset charset) {
  if (charset == Charset::ascii) return charset;
  for (const char* name : {"", "C.UTF-8", "C.utf8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) == nullptr) continue;
    if (std::string_view(::nl_langinfo(CODESET)) == "UTF-8") return charset;
  }
  return Charset::ascii;
}

attr_t style_attribute(Style style, bool coloured) {
  const auto colour = [](short pair) { return static_cast<attr_t>(COLOR_PAIR(pair)); };
  switch (style) {
    case Style::plain:
      return A_NORMAL;
    case Style::dim:
      return A_DIM;
    case Style::bold:
      return A_BOLD;
    case Style::good:
      return coloured ? colour(1) : A_NORMAL;
    case Style::notice:
      return coloured ? colour(2) : A_NORMAL;
    case Style::warning:
      return coloured ? colour(3) : A_BOLD;
    case Style::bad:
      return coloured ? colour(4) | A_BOLD : A_BOLD;
  }
  return A_NORMAL;
}

std::optional<KeyKind> decode_function_key(wint_t key) {
  switch (key) {
    case KEY_UP:
      return KeyKind::up;
    case KEY_DOWN:
      return KeyKind::down;
    case KEY_PPAGE:
      return KeyKind::page_up;
    case KEY_NPAGE:
      return KeyKind::page_down;
    case KEY_HOME:
      return KeyKind::first;
    case KEY_END:
      return KeyKind::last;
    case KEY_ENTER:
      return KeyKind::enter;
    case KEY_BACKSPACE:
    case KEY_DC:
      return KeyKind::erase;
    default:
      return std::nullopt;
  }
}

std::optional<KeyPress> decode_character(wint_t c) {
  switch (c) {
    case '\r':
    case '\n':
      return KeyPress{KeyKind::enter};
    case 27:
      return KeyPress{KeyKind::escape};
    case 8:
    case 127:
      return KeyPress{KeyKind::erase};
    case '\t':
      return KeyPress{KeyKind::tab};
    default:
      break;
  }
  if (c < 32) return std::nullopt;
  KeyPress input{KeyKind::text};
  append_utf8(input.text, c);
  return input;
}

// ncurses sets SIGTSTP to SIG_IGN for the time of each redraw, and the kernel then discards a
// pending one: the user's Ctrl-Z would be lost. It leaves the signal alone if it finds a handler.
// This one never runs, because the signal is blocked.
void keep_ncurses_from_ignoring_ctrl_z() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTSTP, &action, nullptr);
}

}  // namespace

struct Screen::NcursesState {
  SCREEN* screen = nullptr;
  bool coloured = false;
  // Of the last click, for double clicks. ncurses would delay each click to recognize them.
  std::chrono::steady_clock::time_point click_time{};
  std::size_t click_line = 0;
};

Screen::Screen() : ncurses_(std::make_unique<NcursesState>()) {}

Result<std::unique_ptr<Screen>> Screen::open() {
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
    return fail(ErrorKind::usage,
                fmt::format("top: stdin and stdout must be a terminal; {}", kAlternative));
  }
  const std::string type(get_env_or_empty("TERM"));
  int known = 0;
  // newterm() would do the same checks, but does not report why it fails.
  const bool is_supported = terminal.drawable &&
                            ::setupterm(type.c_str(), STDOUT_FILENO, &known) == OK &&
                            !capability("cup").empty();
  if (!is_supported && terminal.drawable && known < 1) {
    return fail(ErrorKind::usage,
                fmt::format("top: this host does not know the terminal type {} (TERM); try "
                            "TERM=xterm-256color berth top, or 'berth status --watch'",
                            in_quotes(type)));
  }
  if (!is_supported) {
    return fail(ErrorKind::usage,
                fmt::format("top: a terminal of type {} (TERM) has no full-screen mode; {}",
                            in_quotes(type), kAlternative));
  }
  std::unique_ptr<Screen> screen(new Screen);
  screen->canvas_.charset = set_utf8_locale(terminal.charset);
  if (::tcgetattr(STDIN_FILENO, &terminal_restore.modes) != 0) {
    return fail(ErrorKind::usage,
                fmt::format("top: stdin and stdout must be a terminal; {}", kAlternative));
  }
  keep_ncurses_from_ignoring_ctrl_z();
  screen->ncurses_->screen = ::newterm(type.c_str(), stdout, stdin);
  if (screen->ncurses_->screen == nullptr) {
    return fail(ErrorKind::usage,
                fmt::format("top: the terminal cannot be initialized; {}", kAlternative));
  }
  install_terminal_restore();
  ::cbreak();
  ::noecho();
  ::nonl();
  ::set_escdelay(25);
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  ::mouseinterval(0);
  ::mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, nullptr);
  screen->ncurses_->coloured = terminal.colour && ::has_colors();
  if (screen->ncurses_->coloured) {
    ::start_color();
    ::use_default_colors();
    ::init_pair(1, COLOR_GREEN, -1);
    ::init_pair(2, COLOR_CYAN, -1);
    ::init_pair(3, COLOR_YELLOW, -1);
    ::init_pair(4, COLOR_RED, -1);
  }
  screen->refresh();
  return screen;
}

Screen::~Screen() {
  if (ncurses_->screen == nullptr) return;
  ::curs_set(1);
  ::endwin();
  remove_terminal_restore();
  ::delscreen(ncurses_->screen);
}

void Screen::refresh() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
    ::resizeterm(size.ws_row, size.ws_col);
  }
  canvas_.height = static_cast<std::size_t>(std::max(::getmaxy(stdscr), 1));
  canvas_.width = static_cast<std::size_t>(std::max(::getmaxx(stdscr), 1));
  ::clearok(stdscr, TRUE);
}

void Screen::draw(const Frame& frame) {
  ::werase(stdscr);
  int row = 0;
  for (const StyledLine& line : frame.lines) {
    ::wmove(stdscr, row++, 0);
    std::string rest(canvas_.width - std::min(canvas_.width, line.width()), ' ');
    for (const StyledText& piece : line.pieces) {
      ::wattrset(stdscr, static_cast<int>(line.selected
                                              ? A_REVERSE
                                              : style_attribute(piece.style, ncurses_->coloured)));
      ::waddstr(stdscr, piece.text.c_str());
    }
    if (line.selected) ::waddstr(stdscr, rest.c_str());
    ::wattrset(stdscr, A_NORMAL);
  }
  ::curs_set(frame.cursor ? 1 : 0);
  if (frame.cursor) {
    ::wmove(stdscr, static_cast<int>(frame.cursor->first), static_cast<int>(frame.cursor->second));
  }
  ::wrefresh(stdscr);
}

std::optional<KeyPress> Screen::read() {
  constexpr wint_t kRedraw = 12;  // Ctrl-L
  for (;;) {
    wint_t key = 0;
    const int kind = ::wget_wch(stdscr, &key);
    if (kind == ERR) return std::nullopt;
    if (kind == KEY_CODE_YES && key == KEY_MOUSE) {
      if (auto input = read_mouse()) return input;
    } else if (kind == KEY_CODE_YES) {
      if (const auto key_kind = decode_function_key(key)) return KeyPress{*key_kind};
    } else if (key == kRedraw) {
      refresh();
    } else if (auto input = decode_character(key)) {
      return input;
    }
  }
}

std::optional<KeyPress> Screen::read_mouse() {
  MEVENT event{};
  if (::getmouse(&event) != OK) return std::nullopt;
  if ((event.bstate & BUTTON4_PRESSED) != 0) return KeyPress{KeyKind::wheel_up};
  if ((event.bstate & BUTTON5_PRESSED) != 0) return KeyPress{KeyKind::wheel_down};
  if ((event.bstate & BUTTON1_PRESSED) == 0) return std::nullopt;
  const auto line = static_cast<std::size_t>(std::max(event.y, 0));
  const auto now = std::chrono::steady_clock::now();
  const bool is_double =
      line == ncurses_->click_line && now - ncurses_->click_time < kDoubleClickTime;
  ncurses_->click_line = line;
  // A third click is not the second half of another double click.
  ncurses_->click_time = is_double ? std::chrono::steady_clock::time_point{} : now;
  return KeyPress{is_double ? KeyKind::double_click : KeyKind::click, "", line};
}

void Screen::suspend() {
  ::curs_set(1);
  ::endwin();
  struct sigaction saved_action {};
  struct sigaction default_action {};
  default_action.sa_handler = SIG_DFL;
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTSTP);
  ::sigaction(SIGTSTP, &default_action, &saved_action);
  // SIGTSTP with its default action, not SIGSTOP: in an orphaned process group, where no shell
  // could continue this process, the kernel then does not stop it.
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // the process stops here
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::sigaction(SIGTSTP, &saved_action, nullptr);
  ::wrefresh(stdscr);  // switches the terminal to full-screen mode again
  refresh();
}

}  // namespace berth::top
