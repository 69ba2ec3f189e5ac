// The summary of a batch; see summary.h.
#include "batch/summary.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace berth::batch {
namespace {

constexpr std::size_t kShownFailures = 20;
constexpr std::size_t kShownLines = 5;

std::string failure_text(const FailedLine& failed, std::size_t total, const Terminal& terminal) {
  const Line& line = *failed.line;
  const std::string on = failed.end.gpus.empty() ? "" : fmt::format(" on GPU {}", failed.end.gpus);
  std::string text = terminal.paint(
      Style::bad, terminal.show(fmt::format("{} {}{}: {}", place_in(line.number, total),
                                            end_text(failed.end), on, line.command)));
  text += '\n';
  for (const std::string& words : last_lines(failed.end.log, failed.log_begin, kShownLines)) {
    text += fmt::format("    | {}\n", terminal.show(words));
  }
  const std::string where = line.line == 0 ? "" : fmt::format("line {}, ", line.line);
  const std::string tries =
      failed.end.attempts > 1 ? fmt::format("{} attempts, ", failed.end.attempts) : "";
  return text + terminal.show(fmt::format("    {}{}log: {}", where, tries, failed.end.log)) + "\n";
}

}  // namespace

std::vector<std::string> last_lines(const std::string& path, std::size_t begin, std::size_t count) {
  constexpr std::size_t kMost = 16 << 10;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  const auto size = static_cast<std::size_t>(about.st_size);
  if (size <= begin) return {};
  begin = std::max(begin, size > kMost ? size - kMost : 0);
  std::string text(size - begin, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(begin));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::vector<std::string> lines;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    // Of a progress bar that draws over itself, what one would see.
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

std::string summary_text(const BatchPlan& plan, const BatchResult& result,
                         const Terminal& terminal) {
  std::string text;
  const std::size_t total = plan.lines.size();
  const std::size_t shown = std::min(result.failed.size(), kShownFailures);
  for (std::size_t i = 0; i < shown; ++i) {
    text += failure_text(result.failed[i], total, terminal);
  }
  if (result.failed.size() > shown) {
    text +=
        fmt::format("and {} more failed; the joblog has them all\n", result.failed.size() - shown);
  }
  const std::size_t before = total - plan.to_run.size();
  std::string counts = fmt::format("{} succeeded", result.succeeded);
  if (before > 0) counts += fmt::format(" ({} before)", before);
  counts += fmt::format(", {} failed", result.failed.size());
  if (result.not_run > 0) counts += fmt::format(", {} not run", result.not_run);
  text += terminal.show(fmt::format("{} in {}; {} of GPU time; logs in {}", counts,
                                    brief_time(result.elapsed), brief_time(result.gpu_time),
                                    plan.logs->path()));
  text += '\n';
  if (result.failed.size() + result.not_run > 0) {
    text += "The same command with --resume runs what has not succeeded.\n";
  }
  return text;
}

}  // namespace berth::batch
