// Reads and checks the commands of a batch; see lines.h.
#include "batch/lines.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <utility>

#include "base/read_file.h"
#include "base/sha1.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace berth::batch {
namespace {

// The kernel's limit of one argument (MAX_ARG_STRLEN), without its final NUL.
constexpr std::size_t kMaxCommandLength = (128 << 10) - 1;
constexpr std::size_t kMaxFileSize = 256 << 20;
constexpr std::string_view kBlanks = " \t\r";

// The FNV-1a hash of the command and of the number of equal commands before it. It does not depend
// on the other lines, so a user may add, remove and move lines before --resume.
std::string make_line_key(std::string_view command, std::size_t occurrence) {
  constexpr std::uint64_t kBasis = 14695981039346656037ULL;
  constexpr std::uint64_t kPrime = 1099511628211ULL;
  std::uint64_t hash = kBasis;
  const auto hash_byte = [&](unsigned char byte) { hash = (hash ^ byte) * kPrime; };
  for (const char letter : command) hash_byte(static_cast<unsigned char>(letter));
  hash_byte(0);
  for (const char digit : fmt::format("{}", occurrence))
    hash_byte(static_cast<unsigned char>(digit));
  return fmt::format("{:016x}", hash);
}

tl::unexpected<Error> cannot_read(std::string_view path, std::string_view content, int reason) {
  return usage_failure(fmt::format("{} cannot be read: {}; name a file that has {}, or - for stdin",
                                   source_name(path), std::strerror(reason), content));
}

}  // namespace

const char* LineCollector::add(std::string_view command, std::size_t line) {
  if (command.find('\0') != std::string_view::npos) {
    return "contains a NUL byte, which is not allowed in a command; write commands as text";
  }
  if (command.size() > kMaxCommandLength)
    return "is too long for a command; put the command into a script";
  const std::size_t occurrence = seen_[std::string(command)]++;
  lines_.push_back(
      {lines_.size() + 1, line, std::string(command), make_line_key(command, occurrence)});
  return nullptr;
}

tl::unexpected<Error> usage_failure(std::string_view problem) {
  return fail(ErrorKind::usage, fmt::format("batch: {}", problem));
}

std::string source_name(std::string_view path) {
  return path == "-" ? "stdin" : in_quotes(path);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  return text.substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

Result<std::vector<BatchLine>> parse_lines(std::string_view text, std::string_view source) {
  text = without_byte_order_mark(text);
  LineCollector commands;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlanks)));
    if (line.empty() || line.starts_with('#')) continue;
    if (const char* problem = commands.add(line, number)) {
      return usage_failure(fmt::format("line {} of {} {}", number, source_name(source), problem));
    }
  }
  return commands.take_lines();
}

Result<std::vector<BatchLine>> make_lines(const std::vector<std::string>& words) {
  LineCollector commands;
  for (const std::string& word : words) {
    if (word.find_first_not_of(kBlanks) == std::string::npos) continue;
    if (const char* problem = commands.add(word, 0)) {
      return usage_failure(fmt::format("{} {}", in_quotes(word), problem));
    }
  }
  return commands.take_lines();
}

Result<std::string> read_source(const std::string& path, std::string_view content) {
  const UniqueFd file(path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                                  : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return cannot_read(path, content, errno);
  auto text = read_to_end(file.get(), kMaxFileSize);
  if (!text) return cannot_read(path, content, errno);
  return std::move(*text);
}

std::string log_name(const BatchLine& line, std::size_t total) {
  constexpr std::size_t kMaxNameLength = 60;
  std::string name;
  for (const char letter : line.command) {
    if (name.size() >= kMaxNameLength) break;
    const bool plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                       (letter >= 'A' && letter <= 'Z') ||
                       std::string_view(".,=+-").find(letter) != std::string_view::npos;
    if (plain) {
      name += letter;
    } else if (!name.ends_with('_')) {
      name += '_';
    }
  }
  const std::size_t digits = std::max<std::size_t>(3, fmt::formatted_size("{}", total));
  return fmt::format("{:0{}}-{}.log", line.number, digits, name);
}

std::string default_log_folder(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  const auto dot = name.rfind('.');
  if (dot != std::string_view::npos && dot > 0) name = name.substr(0, dot);
  return fmt::format("{}.logs", name);
}

std::string default_log_folder(const std::vector<BatchLine>& lines) {
  constexpr std::size_t kDigits = 8;
  return fmt::format("batch-{}.logs",
                     sha1(join_text(lines, " ", &BatchLine::key)).substr(0, kDigits));
}

}  // namespace berth::batch
