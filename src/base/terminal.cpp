// Detects what the terminal can show, and lays out text for it; see terminal.h.
#include "base/terminal.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/environment.h"

namespace berth {
namespace {

// Reads only the variables: even a locale that is not installed says what the terminal shows, and
// the C library's locale need not be initialised.
Charset detect_charset() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = get_env_or_empty(name);
    if (value.empty()) continue;
    const auto dot = value.rfind('.');
    const std::string codeset(dot == std::string_view::npos ? "" : value.substr(dot + 1));
    const bool utf8 = ::strncasecmp(codeset.c_str(), "utf-8", 5) == 0 ||
                      ::strncasecmp(codeset.c_str(), "utf8", 4) == 0;
    return utf8 ? Charset::utf8 : Charset::ascii;
  }
  return Charset::ascii;
}

std::optional<std::size_t> read_columns_variable() {
  const auto columns = parse_integer<std::size_t>(get_env_or_empty("COLUMNS"));
  return columns == 0 ? std::nullopt : columns;
}

std::string_view style_code(Style style) {
  switch (style) {
    case Style::plain:
      return "";
    case Style::dim:
      return "2";
    case Style::bold:
      return "1";
    case Style::good:
      return "32";
    case Style::notice:
      return "36";
    case Style::warning:
      return "33";
    case Style::bad:
      return "1;31";
  }
  return "";
}

std::string blanks(std::size_t count) {
  return std::string(count, ' ');
}

}  // namespace

std::string Terminal::paint(Style style, std::string_view text) const {
  if (!colour || style == Style::plain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", style_code(style), text);
}

Terminal terminal_at(int fd) {
  Terminal terminal;
  terminal.charset = detect_charset();
  terminal.width = read_columns_variable();
  if (::isatty(fd) != 1) return terminal;
  winsize size{};
  const bool has_size = ::ioctl(fd, TIOCGWINSZ, &size) == 0;
  terminal.width = has_size && size.ws_col > 0 ? size.ws_col : terminal.width.value_or(80);
  if (has_size && size.ws_row > 0) terminal.height = size.ws_row;
  const std::string_view type = get_env_or_empty("TERM");
  terminal.drawable = !type.empty() && type != "dumb";
  terminal.colour = terminal.drawable && get_env_or_empty("NO_COLOR").empty();
  return terminal;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void print_message(std::string_view text) {
  print_error(fmt::format("berth: {}\n", terminal_at(STDERR_FILENO).escape(text)));
}

void print_driver_is_slow() {
  if (::isatty(STDERR_FILENO) == 1) print_message("waiting for the driver to answer");
}

std::string wrap_text(std::string_view text, std::optional<std::size_t> width, std::size_t indent) {
  const std::size_t room = width ? std::max<std::size_t>(*width, indent + 20) - indent : ~0UL;
  std::string out = blanks(indent);
  std::size_t column = 0;
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t columns = display_width(word);
    if (column > 0 && column + 1 + columns > room) {
      out += '\n';
      out += blanks(indent);
      column = 0;
    }
    if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns;
  }
  return out;
}

std::string align_left(std::string_view text, std::size_t width) {
  const std::size_t columns = display_width(text);
  return std::string(text) + blanks(width > columns ? width - columns : 0);
}

std::string align_right(std::string_view text, std::size_t width) {
  const std::size_t columns = display_width(text);
  return blanks(width > columns ? width - columns : 0) + std::string(text);
}

}  // namespace berth
