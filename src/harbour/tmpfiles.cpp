// Writes and reads the configuration of tmpfiles.d(5); see tmpfiles.h. Tested with systemd 252:
// each of the two lines (d, x) alone keeps the files, whatever characters the path has.
#include "harbour/tmpfiles.h"

#include <algorithm>
#include <fmt/format.h>
#include <fnmatch.h>
#include <vector>

#include "base/text.h"

namespace berth {
namespace {

constexpr std::string_view kFirstLine = "# Written by 'berth setup'";

constexpr std::string_view kExplanation =
    ": keeps berth's harbour, where leases and the queue live, and its history.\n"
    "# d: made at every boot, root's, sticky and writable for all.\n"
    "# x: nothing in it is removed for its age, since a job may run longer than temporary files "
    "are\n"
    "# kept. 'sudo berth setup --remove' removes this file.\n";

bool is_control(unsigned char c) {
  return c < 0x20 || c == 0x7F;
}

bool is_plain(char c) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._+-";
  return letters.find(c) != std::string_view::npos;
}

enum class WordKind { path, glob };

// The path as a word of tmpfiles.d. systemd processes quotes and backslashes first, then specifiers
// ('%'), then, in an x line, the glob. Other bytes are written as they are: not every version of
// systemd knows escapes such as \x0a.
std::string format_word(std::string_view path, WordKind kind) {
  std::string out;
  bool plain = true;
  for (const char c : path) {
    plain = plain && is_plain(c);
    const bool wild = c == '*' || c == '?' || c == '[' || c == '\\';
    if (wild && kind == WordKind::glob) out += R"(\\)";
    if (c == '"' || c == '\\') out += '\\';
    if (c == '%') out += '%';
    out += c;
  }
  return plain ? out : fmt::format("\"{}\"", out);
}

std::vector<std::string> split_words(std::string_view line) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = '\0';
  while (!line.empty()) {
    const char c = line.front();
    line.remove_prefix(1);
    const bool blank = c == ' ' || c == '\t' || c == '\r';
    if (blank && quote == '\0') {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = '\0';
    } else if (c == '\\' && !line.empty()) {
      words.back() += line.front();
      line.remove_prefix(1);
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string unescape_specifiers(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "%%") ++i;
    out += text[i];
  }
  return out;
}

bool line_excludes(std::string_view line, const std::string& path) {
  // Line types that have an age of their own; without an age, files are kept forever.
  constexpr std::string_view directories = "dDeqQv";
  constexpr std::size_t kAge = 5;
  const std::vector<std::string> words = split_words(line);
  if (words.size() < 2 || words[0].empty() || words[0].front() == '#') return false;
  const std::string named = unescape_specifiers(words[1]);
  if (words[0].front() == 'x') return ::fnmatch(named.c_str(), path.c_str(), FNM_PATHNAME) == 0;
  return directories.find(words[0].front()) != std::string_view::npos && named == path &&
         (words.size() <= kAge || words[kAge] == "-");
}

}  // namespace

Result<std::string> format_tmpfiles(std::string_view path, std::string_view archive) {
  for (const std::string_view one : {path, archive}) {
    if (std::any_of(one.begin(), one.end(), is_control)) {
      return fail(ErrorKind::io, fmt::format("{} has a control character in its name, which "
                                             "tmpfiles.d cannot express; choose another path",
                                             in_quotes(one)));
    }
  }
  const auto directory = [](std::string_view folder) {
    return fmt::format("d {} 1777 root root -\n", format_word(folder, WordKind::path));
  };
  const auto exclusion = [](std::string_view folder) {
    return fmt::format("x {}\n", format_word(folder, WordKind::glob));
  };
  std::string text = fmt::format("{}{}{}{}{}", kFirstLine, kExplanation, directory(path),
                                 exclusion(path), directory(archive));
  if (!archive.starts_with(fmt::format("{}/", path))) text += exclusion(archive);
  return text;
}

bool is_berth_tmpfiles(std::string_view text) {
  return text.starts_with(kFirstLine);
}

bool excludes_from_cleaning(std::string_view configuration, const std::string& path) {
  while (!configuration.empty()) {
    const std::string_view line = configuration.substr(0, configuration.find('\n'));
    if (line_excludes(line, path)) return true;
    configuration.remove_prefix(std::min(configuration.size(), line.size() + 1));
  }
  return false;
}

}  // namespace berth
