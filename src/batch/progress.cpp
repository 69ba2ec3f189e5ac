// Formats the progress of a batch; see progress.h.
#include "batch/progress.h"

#include <algorithm>
#include <fmt/format.h>

#include "archive/day_chart.h"
#include "base/quantity.h"
#include "status/status_format.h"

namespace berth::batch {
namespace {

constexpr std::size_t kMaxBarWidth = 40;
constexpr std::size_t kMinBarWidth = 8;

std::chrono::seconds whole_seconds(std::chrono::nanoseconds time) {
  return std::chrono::floor<std::chrono::seconds>(time);
}

std::string progress_bar(const Progress& progress, const Terminal& terminal, std::size_t width) {
  const bool utf8 = terminal.charset == Charset::utf8;
  const auto part = [&](std::size_t count) {
    return progress.total == 0 ? 0 : count * width / progress.total;
  };
  const std::size_t good = part(progress.succeeded);
  const std::size_t done = part(progress.succeeded + progress.failed);
  const std::size_t busy =
      part(progress.succeeded + progress.failed + progress.running.size()) - done;
  return terminal.paint(Style::good, repeat_text(utf8 ? "█" : "#", good)) +
         terminal.paint(Style::bad, repeat_text(utf8 ? "█" : "x", done - good)) +
         terminal.paint(Style::notice, repeat_text(utf8 ? "▒" : "=", busy)) +
         terminal.paint(Style::dim, repeat_text(utf8 ? "░" : ".", width - done - busy));
}

std::string first_line(const Progress& progress, const Terminal& terminal, std::size_t room) {
  const std::size_t done = progress.succeeded + progress.failed;
  const std::string count = fmt::format("{}/{} ({}%)", done, progress.total,
                                        progress.total == 0 ? 100 : done * 100 / progress.total);
  if (room < count.size() + kMinBarWidth + 1) return truncate_text(count, room, terminal.charset);
  const std::size_t width = std::min(kMaxBarWidth, room - count.size() - 1);
  return fmt::format("{} {}", progress_bar(progress, terminal, width), count);
}

std::string counts_text(const Progress& progress) {
  std::string text = fmt::format("{} running, {} failed, {} waiting; {} elapsed",
                                 progress.running.size(), progress.failed, progress.waiting(),
                                 format_duration(whole_seconds(progress.elapsed)));
  if (progress.stopping) return text + ", stopping (Ctrl-C again kills)";
  if (progress.left)
    text += fmt::format(", about {} left", format_duration(whole_seconds(*progress.left)));
  return text;
}

std::vector<std::string> job_lines(const Progress& progress, const Terminal& terminal,
                                   std::size_t room, std::size_t rows) {
  std::vector<std::string> lines;
  std::size_t gpus = 1;
  std::size_t times = 1;
  for (const RunningJob& job : progress.running) {
    gpus = std::max(gpus, display_width(terminal.escape(job.gpus)));
    times = std::max(times, format_duration(whole_seconds(job.lasted)).size());
  }
  gpus = std::min(gpus, room / 4);
  const auto begin_of = [&](const RunningJob& job) {
    return fmt::format(
        "GPU {}  {}  {}  ",
        align_left(truncate_text(terminal.escape(job.gpus), gpus, terminal.charset), gpus),
        align_right(format_duration(whole_seconds(job.lasted)), times),
        align_right(fmt::format("[{}]", job.number), fmt::formatted_size("[{}]", progress.total)));
  };
  const bool all_fit =
      std::all_of(progress.running.begin(), progress.running.end(), [&](const RunningJob& job) {
        return display_width(begin_of(job)) + display_width(terminal.escape(job.command)) <= room;
      });
  for (const RunningJob& job : progress.running) {
    const std::size_t not_shown = progress.running.size() - lines.size();
    if (lines.size() + 1 >= rows && not_shown > 1) {
      lines.push_back(truncate_text(fmt::format("and {} more", not_shown), room, terminal.charset));
      break;
    }
    const std::string& command =
        all_fit || job.short_command.empty() ? job.command : job.short_command;
    lines.push_back(
        truncate_text(begin_of(job) + terminal.escape(command), room, terminal.charset));
  }
  return lines;
}

}  // namespace

std::string format_waiting(const Progress& progress) {
  const bool has_estimate = progress.starts_in && *progress.starts_in > std::chrono::seconds(0);
  return fmt::format(
      "waiting{}: {}",
      has_estimate ? fmt::format(", starts in about {}", format_rough_duration(*progress.starts_in))
                   : "",
      progress.reason);
}

std::string format_brief_duration(std::chrono::nanoseconds time) {
  using Tenths = std::chrono::duration<std::int64_t, std::deci>;
  constexpr std::chrono::seconds kLong(10);
  if (time < std::chrono::seconds(1)) {
    return format_duration(std::chrono::floor<std::chrono::milliseconds>(time));
  }
  return format_duration(time < kLong ? std::chrono::nanoseconds(std::chrono::floor<Tenths>(time))
                                      : whole_seconds(time));
}

std::string format_position(std::size_t number, std::size_t total) {
  return fmt::format("[{:>{}}/{}]", number, fmt::formatted_size("{}", total), total);
}

std::vector<std::string> progress_lines(const Progress& progress, const Terminal& terminal,
                                        std::size_t rows) {
  // The last column stays free: after a character there, some terminals begin a new line.
  const std::size_t room = std::max<std::size_t>(terminal.width.value_or(80), 2) - 1;
  std::vector<std::string> lines{first_line(progress, terminal, room)};
  std::string rest = wrap_text(counts_text(progress), room, 0);
  for (std::size_t end = 0; end != std::string::npos;) {
    end = rest.find('\n');
    lines.push_back(truncate_text(rest.substr(0, end), room, terminal.charset));
    if (end != std::string::npos) rest.erase(0, end + 1);
  }
  if (lines.size() < rows && !progress.running.empty()) {
    for (std::string& line : job_lines(progress, terminal, room, rows - lines.size())) {
      lines.push_back(std::move(line));
    }
  }
  if (progress.running.empty() && !progress.reason.empty() && !progress.stopping) {
    const std::string why = terminal.escape(format_waiting(progress));
    lines.push_back(terminal.paint(Style::dim, truncate_text(why, room, terminal.charset)));
  }
  lines.resize(std::min(lines.size(), std::max<std::size_t>(rows, 1)));
  return lines;
}

void RunTimes::add(const std::string& type, std::chrono::nanoseconds lasted) {
  for (Sum* sum : {&types_[type], &all_}) {
    sum->seconds += std::chrono::duration<double>(lasted).count();
    ++sum->count;
  }
}

std::optional<double> RunTimes::expected_seconds(const std::string& type) {
  if (const auto found = types_.find(type); found != types_.end())
    return found->second.seconds / found->second.count;
  if (read_known_) {
    const auto [known, is_new] = known_.try_emplace(type);
    if (is_new) known->second = read_known_(type);
    if (known->second) return known->second;
  }
  if (all_.count == 0) return std::nullopt;
  return all_.seconds / all_.count;
}

std::optional<std::chrono::nanoseconds> estimate_time_left(
    RunTimes& run_times, const std::map<std::string, std::size_t>& to_start,
    const std::vector<StartedLine>& started) {
  double sum = 0;
  double longest = 0;
  std::size_t running = 0;
  for (const auto& [type, count] : to_start) {
    const auto each = count == 0 ? 0 : run_times.expected_seconds(type);
    if (!each) return std::nullopt;
    sum += *each * static_cast<double>(count);
  }
  for (const StartedLine& line : started) {
    const auto whole = run_times.expected_seconds(line.type);
    if (!whole) return std::nullopt;
    const std::chrono::duration<double> lasted = line.lasted.value_or(std::chrono::nanoseconds());
    const double left = std::max(0.0, *whole - lasted.count());
    sum += left;
    longest = std::max(longest, left);
    if (line.lasted) ++running;
  }
  if (running == 0) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::max(longest, sum / static_cast<double>(running))));
}

}  // namespace berth::batch
