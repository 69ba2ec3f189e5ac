// Formats the parts of a Status for all views: states, figures, times and requests.
//
// Texts of users in the results may have control characters, so printable() before they are shown.
#pragma once

#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "status/status.h"

namespace berth {

constexpr std::string_view kAbsent = "-";

Style style_of(GpuState state);

// A bar of `width` columns, filled to `share` (0 to 1), in eighths of a column if the charset has
// them.
std::string format_bar(double share, std::size_t width, Charset charset);

// "9.1/24 GiB": used and total.
std::string format_memory(const Gpu& gpu);

// The share of the memory that is in use, 0 to 1; nothing if it is unknown.
std::optional<double> memory_share(const Gpu& gpu);

// "GeForce RTX 4090" for "NVIDIA GeForce RTX 4090": the vendor says little.
std::string_view without_vendor(std::string_view gpu_name);

// "70%", or "-".
template <class T>
std::string format_value(const std::optional<T>& value, std::string_view unit) {
  if (!value) return std::string(kAbsent);
  return fmt::format("{:.0f}{}", static_cast<double>(*value), unit);
}

// The time from `since` to `now` in whole seconds: "10m".
std::string format_age(TimePoint since, TimePoint now);

// Rounded to what matters to a person: "45s", "39m", "3h 12m", "23h", "3d 4h".
std::string format_rough_duration(std::chrono::nanoseconds time);

// How a time in the future is written: as the text of a column, or as a part of a sentence.
enum class TextForm { column, sentence };

// When a lease ends. column: "in 39m"; "in ~39m" if it is an estimate; "12m late" if it has passed;
// "-" if it is unknown. sentence: "ends in 39m", "12m late", "end unknown".
std::string format_end(const std::optional<LeaseEnd>& end, TimePoint now, TextForm form);

// "next free: GPU 3 in about 40m".
std::string format_next_free(const NextFree& next, TimePoint now);

// When a ticket is expected to start. column: "in ~40m", or "-" if no start is expected. sentence:
// "starts in about 40m", "start unknown".
std::string format_start(const std::optional<TimePoint>& starts, TimePoint now, TextForm form);
inline bool is_start_expected(const std::optional<TimePoint>& starts, TimePoint now) {
  return starts && *starts > now;
}

// The label of a lease or ticket; its command if it has no label.
const std::string& record_title(const Record& record);

// "ViT large: python train.py": the label and the command, as far as there are any.
std::string label_and_command(const Record& record);

// The GPUs of the host that the request selects (--gpu); empty if it accepts any.
std::vector<GpuIndex> find_requested_gpus(const Request& request, const Status& status);

// "GPU 3", "GPUs 0,2".
std::string format_gpu_list(const std::vector<GpuIndex>& gpus);

// "2 A100 GPUs, 8 GiB each, 4h", "GPUs 0,2".
std::string format_request(const Request& request, const Status& status);

// Whether a view that lists the processes should also show the reason of the GPU's state. False if
// the reason only repeats the strangers in that list.
bool needs_reason_line(const GpuStatus& status);

// "4 GPUs: 3 free, 1 leased".
std::string format_gpu_counts(const Status& status);

// "simulated driver 570.86.15".
std::string format_driver(const Status& status);

// The age of the GPU data of a remote host: "reported 12s ago"; empty for this host.
std::string format_data_age(const Status& status);

}  // namespace berth
