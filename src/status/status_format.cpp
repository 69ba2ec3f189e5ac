// Formats the parts of a status; see status_format.h.
#include "status/status_format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

namespace berth {
namespace {

std::string to_text(const GpuIndex& index) {
  return to_string(index);
}

// A model as users write it ("A100", "RTX-6000"); any other text in quotes.
std::string format_model(const std::string& name) {
  const bool is_simple = std::all_of(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
  return is_simple ? name : in_quotes(name);
}

// "GPU 0", "GPUs 0,2", "2 A100 GPUs of 0,1,3".
std::string format_requested_gpus(const Request& request, const Status& status) {
  const std::vector<GpuIndex> selected = find_requested_gpus(request, status);
  if (!selected.empty() && request.uuids->size() == request.count) {
    return format_gpu_list(selected);
  }
  const std::string model = request.name ? format_model(*request.name) + " " : "";
  std::string text =
      fmt::format("{} {}{}", request.count, model, request.count == 1 ? "GPU" : "GPUs");
  if (!selected.empty()) text += fmt::format(" of {}", join_text(selected, ",", to_text));
  return text;
}

}  // namespace

Style style_of(GpuState state) {
  switch (state) {
    case GpuState::free:
      return Style::good;
    case GpuState::leased:
    case GpuState::shared:
      return Style::notice;
    case GpuState::stranger:
    case GpuState::lost:
      return Style::bad;
    case GpuState::drained:
    case GpuState::unknown:
      return Style::warning;
  }
  return Style::plain;
}

std::string format_bar(double share, std::size_t width, Charset charset) {
  share = std::clamp(share, 0.0, 1.0);
  std::string out;
  if (charset == Charset::ascii) {
    const auto filled = round_positive(share * static_cast<double>(width));
    return std::string(filled, '#') + std::string(width - filled, '.');
  }
  constexpr std::array<std::string_view, 9> eighths{"·", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  auto left_over = round_positive(share * static_cast<double>(width) * 8);
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t here = std::min<std::size_t>(left_over, 8);
    out += eighths[here];
    left_over -= here;
  }
  return out;
}

std::string format_memory(const Gpu& gpu) {
  if (!gpu.memory_total) return std::string(kAbsent);
  const bool small = *gpu.memory_total < gib(1);
  const double unit = static_cast<double>(small ? mib(1).count : gib(1).count);
  const auto amount = [&](Bytes size) { return static_cast<double>(size.count) / unit; };
  const std::string used = gpu.memory_used
                               ? fmt::format("{:.{}f}", amount(*gpu.memory_used), small ? 0 : 1)
                               : std::string(kAbsent);
  return fmt::format("{}/{:.0f} {}", used, amount(*gpu.memory_total), small ? "MiB" : "GiB");
}

std::optional<double> memory_share(const Gpu& gpu) {
  if (!gpu.memory_total || !gpu.memory_used || gpu.memory_total->count == 0) return std::nullopt;
  return static_cast<double>(gpu.memory_used->count) / static_cast<double>(gpu.memory_total->count);
}

std::string_view without_vendor(std::string_view gpu_name) {
  constexpr std::string_view kVendorPrefix = "NVIDIA ";
  if (gpu_name.starts_with(kVendorPrefix)) gpu_name.remove_prefix(kVendorPrefix.size());
  return gpu_name;
}

std::string format_age(TimePoint since, TimePoint now) {
  const auto past = std::chrono::floor<std::chrono::seconds>(now - since);
  return format_duration(std::max(past, std::chrono::seconds(0)));
}

std::string format_rough_duration(std::chrono::nanoseconds time) {
  using std::chrono::seconds;
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  const std::int64_t exact = std::max<std::int64_t>(std::chrono::round<seconds>(time).count(), 0);
  // Rounded before it is split into units, so that it never says "60m".
  const std::int64_t unit = exact < kMinute      ? 1
                            : exact < 10 * kHour ? kMinute
                            : exact < 10 * kDay  ? kHour
                                                 : kDay;
  return format_duration(seconds((exact + unit / 2) / unit * unit));
}

std::string format_end(const std::optional<LeaseEnd>& end, TimePoint now, TextForm form) {
  const bool is_column = form == TextForm::column;
  if (!end) return is_column ? std::string(kAbsent) : "end unknown";
  const std::string_view mark = end->source == EndSource::estimated ? "~" : "";
  if (end->overdue) return fmt::format("{}{} late", mark, format_rough_duration(now - end->at));
  return fmt::format("{}in {}{}", is_column ? "" : "ends ", mark,
                     format_rough_duration(end->at - now));
}

std::string format_next_free(const NextFree& next, TimePoint now) {
  return fmt::format("next free: {} in about {}", format_gpu_list(next.gpus),
                     format_rough_duration(next.at - now));
}

std::string format_start(const std::optional<TimePoint>& starts, TimePoint now, TextForm form) {
  const bool is_column = form == TextForm::column;
  if (!is_start_expected(starts, now)) return is_column ? std::string(kAbsent) : "start unknown";
  return fmt::format("{}{}", is_column ? "in ~" : "starts in about ",
                     format_rough_duration(*starts - now));
}

const std::string& record_title(const Record& record) {
  return record.label.empty() ? record.command : record.label;
}

std::string label_and_command(const Record& record) {
  if (!record.is_readable()) return "unreadable record (berth doctor)";
  if (record.label.empty() || record.command.empty()) return record_title(record);
  return fmt::format("{}: {}", record.label, record.command);
}

std::vector<GpuIndex> find_requested_gpus(const Request& request, const Status& status) {
  std::vector<GpuIndex> found;
  if (!request.uuids) return found;
  for (const GpuStatus& one : status.gpus) {
    const auto& uuids = *request.uuids;
    if (std::find(uuids.begin(), uuids.end(), one.view.gpu.uuid) == uuids.end()) continue;
    found.push_back(one.view.gpu.index);
  }
  return found;
}

std::string format_gpu_list(const std::vector<GpuIndex>& gpus) {
  return gpu_list(join_text(gpus, ",", to_text));
}

std::string format_request(const Request& request, const Status& status) {
  std::string text = format_requested_gpus(request, status);
  if (request.min_memory) text += fmt::format(" of {} or more", format_size(*request.min_memory));
  if (request.memory) text += fmt::format(", {} each", format_size(*request.memory));
  if (request.time) text += fmt::format(", {}", format_duration(*request.time));
  return text;
}

bool needs_reason_line(const GpuStatus& status) {
  if (status.state_reason.reason.empty()) return false;
  const auto& processes = status.view.processes;
  const bool shown = std::any_of(processes.begin(), processes.end(),
                                 [](const AttributedProcess& one) { return one.is_stranger(); });
  const GpuState state = status.state_reason.state;
  return !shown || state == GpuState::drained || state == GpuState::lost ||
         state == GpuState::unknown;
}

std::string format_gpu_counts(const Status& status) {
  std::map<GpuState, std::size_t> counts;
  for (const GpuStatus& gpu : status.gpus) ++counts[gpu.state_reason.state];
  std::string states;
  for (const auto& [state, count] : counts) {
    states += fmt::format("{}{} {}", states.empty() ? ": " : ", ", count, to_string(state));
  }
  const std::size_t count = status.gpus.size();
  return fmt::format("{} {}{}", count, count == 1 ? "GPU" : "GPUs", states);
}

std::string format_driver(const Status& status) {
  return fmt::format("{}driver {}", status.simulated ? "simulated " : "",
                     status.driver.value_or(std::string(kAbsent)));
}

std::string format_data_age(const Status& status) {
  if (!status.is_remote) return "";
  return status.age ? fmt::format("reported {} ago", format_duration(*status.age))
                    : "reported at an unknown time";
}

}  // namespace berth
