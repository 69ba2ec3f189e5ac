// The terminal, by ncurses; see screen.h.
#include "top/screen.h"

#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <algorithm>
#include <array>
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

// Of <term.h>, which would make macros of words such as tab, lines and columns.
extern "C" int setupterm(const char* type, int fd, int* result);

namespace berth::top {
namespace {

constexpr const char* kInstead = "'berth status --watch' works without";

// What a crash needs, and must not ask for: how the terminal was, and what makes it so again.
struct TerminalRestore {
  termios modes{};
  bool known = false;
  std::array<char, 256> text{};
  std::size_t size = 0;
};
TerminalRestore farewell;

constexpr std::array kFatal{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kFatal.size()> before_us;

// In a signal handler: nothing but system calls.
void restore_and_die(int number) {
  if (farewell.known) {
    [[maybe_unused]] const auto written =
        ::write(STDOUT_FILENO, farewell.text.data(), farewell.size);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &farewell.modes);
  }
  for (std::size_t i = 0; i < kFatal.size(); ++i) {
    if (kFatal[i] == number) ::sigaction(number, &before_us[i], nullptr);
  }
  ::raise(number);  // once this handler has returned
}

// A capability of the terminal without its marks of delays, "$<5>".
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

void prepare_farewell() {
  const std::string text =
      capability("sgr0") + capability("rmkx") + capability("cnorm") + capability("rmcup");
  farewell.size = std::min(text.size(), farewell.text.size());
  std::copy_n(text.begin(), farewell.size, farewell.text.begin());
  farewell.known = true;
  struct sigaction action {};
  action.sa_handler = restore_and_die;
  for (std::size_t i = 0; i < kFatal.size(); ++i) {
    ::sigaction(kFatal[i], &action, &before_us[i]);
  }
}

void forget_farewell() {
  if (!farewell.known) return;
  for (std::size_t i = 0; i < kFatal.size(); ++i) {
    ::sigaction(kFatal[i], &before_us[i], nullptr);
  }
  farewell.known = false;
}

// The library measures characters by the locale. One that is named but not installed must not turn
// UTF-8 into garbage.
Charset take_locale(Charset charset) {
  if (charset == Charset::ascii) return charset;
  for (const char* name : {"", "C.UTF-8", "C.utf8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) == nullptr) continue;
    if (std::string_view(::nl_langinfo(CODESET)) == "UTF-8") return charset;
  }
  return Charset::ascii;
}

attr_t attribute_of(Style style, bool coloured) {
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

std::string utf8(wint_t c) {
  std::string text;
  const auto add = [&](wint_t bits) { text += static_cast<char>(bits); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | (c >> 6));
  } else if (c < 0x10000) {
    add(0xE0 | (c >> 12));
    add(0x80 | ((c >> 6) & 0x3F));
  } else {
    add(0xF0 | (c >> 18));
    add(0x80 | ((c >> 12) & 0x3F));
    add(0x80 | ((c >> 6) & 0x3F));
  }
  if (c >= 0x80) add(0x80 | (c & 0x3F));
  return text;
}

std::optional<Press> function_key(wint_t key) {
  switch (key) {
    case KEY_UP:
      return Press::up;
    case KEY_DOWN:
      return Press::down;
    case KEY_PPAGE:
      return Press::page_up;
    case KEY_NPAGE:
      return Press::page_down;
    case KEY_HOME:
      return Press::first;
    case KEY_END:
      return Press::last;
    case KEY_ENTER:
      return Press::enter;
    case KEY_BACKSPACE:
    case KEY_DC:
      return Press::erase;
    default:
      return std::nullopt;
  }
}

std::optional<Input> typed(wint_t c) {
  switch (c) {
    case '\r':
    case '\n':
      return Input{Press::enter};
    case 27:
      return Input{Press::escape};
    case 8:
    case 127:
      return Input{Press::erase};
    case '\t':
      return Input{Press::tab};
    default:
      return c < 32 ? std::nullopt : std::optional(Input{Press::text, utf8(c)});
  }
}

}  // namespace

struct Screen::Library {
  SCREEN* screen = nullptr;
  bool coloured = false;
};

Screen::Screen() : library_(std::make_unique<Library>()) {}

Result<std::unique_ptr<Screen>> Screen::open() {
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
    return fail(ErrorKind::usage, fmt::format("top: it needs a terminal; {}", kInstead));
  }
  const std::string type(setting("TERM"));
  int known = 0;
  // Only asks: newterm() would do the same, and could not say why it failed.
  const bool described = terminal.drawable &&
                         ::setupterm(type.c_str(), STDOUT_FILENO, &known) == OK &&
                         !capability("cup").empty();
  if (!described && terminal.drawable && known < 1) {
    return fail(ErrorKind::usage,
                fmt::format("top: this host knows no terminal of the type {} (TERM); try "
                            "TERM=xterm-256color berth top, or 'berth status --watch'",
                            in_quotes(type)));
  }
  if (!described) {
    return fail(ErrorKind::usage,
                fmt::format("top: a terminal of the type {} (TERM) cannot be drawn on; {}",
                            in_quotes(type), kInstead));
  }
  std::unique_ptr<Screen> screen(new Screen);
  screen->sheet_.charset = take_locale(terminal.charset);
  if (::tcgetattr(STDIN_FILENO, &farewell.modes) != 0) {
    return fail(ErrorKind::usage, fmt::format("top: it needs a terminal; {}", kInstead));
  }
  screen->library_->screen = ::newterm(type.c_str(), stdout, stdin);
  if (screen->library_->screen == nullptr) {
    return fail(ErrorKind::usage, fmt::format("top: the terminal cannot be taken; {}", kInstead));
  }
  prepare_farewell();
  ::cbreak();
  ::noecho();
  ::nonl();
  ::set_escdelay(25);
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  screen->library_->coloured = terminal.colour && ::has_colors();
  if (screen->library_->coloured) {
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
  if (library_->screen == nullptr) return;
  ::curs_set(1);
  ::endwin();
  forget_farewell();
  ::delscreen(library_->screen);
}

void Screen::refresh() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
    ::resizeterm(size.ws_row, size.ws_col);
  }
  sheet_.height = static_cast<std::size_t>(std::max(::getmaxy(stdscr), 1));
  sheet_.width = static_cast<std::size_t>(std::max(::getmaxx(stdscr), 1));
  ::clearok(stdscr, TRUE);
}

void Screen::draw(const Frame& frame) {
  ::werase(stdscr);
  int row = 0;
  for (const Line& line : frame.lines) {
    ::wmove(stdscr, row++, 0);
    std::string rest(sheet_.width - std::min(sheet_.width, line.width()), ' ');
    for (const Piece& piece : line.pieces) {
      ::wattrset(stdscr,
                 static_cast<int>(line.selected ? A_REVERSE
                                                : attribute_of(piece.style, library_->coloured)));
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

std::optional<Input> Screen::read() {
  constexpr wint_t kRedraw = 12;  // Ctrl-L
  for (;;) {
    wint_t key = 0;
    const int kind = ::wget_wch(stdscr, &key);
    if (kind == ERR) return std::nullopt;
    if (kind == KEY_CODE_YES) {
      if (const auto press = function_key(key)) return Input{*press};
    } else if (key == kRedraw) {
      refresh();
    } else if (auto input = typed(key)) {
      return input;
    }
  }
}

void Screen::stop() {
  ::curs_set(1);
  ::endwin();
  struct sigaction ours {};
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTSTP);
  ::sigaction(SIGTSTP, &usual, &ours);
  // As the kernel would have: it does not stop a process that nobody could continue.
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // here it stops
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::sigaction(SIGTSTP, &ours, nullptr);
  ::wrefresh(stdscr);  // which takes the terminal again
  refresh();
}

}  // namespace berth::top
