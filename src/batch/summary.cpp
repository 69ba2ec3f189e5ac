// Formats the summary of a batch; see summary.h.
#include "batch/summary.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/unique_fd.h"

namespace berth::batch {
namespace {

constexpr std::size_t kMaxShownFailures = 20;
constexpr std::size_t kMaxShownLines = 5;

std::string format_failure(const FailedLine& failed, std::size_t total, const Terminal& terminal) {
  const BatchLine& line = *failed.line;
  const std::string on =
      failed.result.gpus.empty() ? "" : fmt::format(" on {}", gpu_list(failed.result.gpus));
  std::string text = terminal.paint(
      Style::bad,
      terminal.escape(fmt::format("{} {}{}: {}", format_position(line.number, total),
                                  format_line_result(failed.result), on, line.command)));
  text += '\n';
  for (const std::string& log_line :
       last_lines(failed.result.log, failed.log_begin, kMaxShownLines)) {
    text += fmt::format("    | {}\n", terminal.escape(log_line));
  }
  const std::string where = line.line == 0 ? "" : fmt::format("line {}, ", line.line);
  const std::string tries =
      failed.result.attempts > 1 ? fmt::format("{} attempts, ", failed.result.attempts) : "";
  return text + terminal.escape(fmt::format("    {}{}log: {}", where, tries, failed.result.log)) +
         "\n";
}

}  // namespace

std::vector<std::string> last_lines(const std::string& path, std::size_t begin, std::size_t count) {
  constexpr std::size_t kMaxTailSize = 16 << 10;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size <= begin) return {};
  begin = std::max(begin, size > kMaxTailSize ? size - kMaxTailSize : 0);
  std::string text(size - begin, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(begin));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::vector<std::string> lines;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    // A progress bar overwrites its line after each CR: only the text after the last CR is visible.
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto over = line.rfind('\r'); over != std::string_view::npos) {
      line.remove_prefix(over + 1);
    }
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.emplace_back(line);
  }
  if (lines.size() > count) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  }
  return lines;
}

std::string format_summary(const BatchPlan& plan, const BatchResult& result,
                           const Terminal& terminal) {
  std::string text;
  const std::size_t total = plan.lines.size();
  const std::size_t shown_count = std::min(result.failed.size(), kMaxShownFailures);
  for (std::size_t i = 0; i < shown_count; ++i) {
    text += format_failure(result.failed[i], total, terminal);
  }
  if (result.failed.size() > shown_count) {
    text += fmt::format("and {} more failed; the joblog lists all of them\n",
                        result.failed.size() - shown_count);
  }
  const std::size_t before = total - plan.to_run.size();
  std::string counts = fmt::format("{} succeeded", result.succeeded);
  if (before > 0) counts += fmt::format(" (and {} earlier)", before);
  counts += fmt::format(", {} failed", result.failed.size());
  if (result.interrupted > 0) counts += fmt::format(", {} interrupted", result.interrupted);
  if (result.not_started > 0) counts += fmt::format(", {} not started", result.not_started);
  text += terminal.escape(fmt::format("{} in {}; {} of GPU time; logs in {}", counts,
                                      format_brief_duration(result.elapsed),
                                      format_brief_duration(result.gpu_time), plan.logs->path()));
  text += '\n';
  if (result.failed.size() + result.interrupted + result.not_started > 0) {
    text += terminal.escape(
        fmt::format("Run the same command with {} to run the lines that have not succeeded.",
                    plan.resume_flags));
    text += '\n';
  }
  return text;
}

}  // namespace berth::batch
