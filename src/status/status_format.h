// What every view of a `Status` has in common: how states, figures, times and requests read.
#pragma once

#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>

#include "base/terminal.h"
#include "status/status.h"

namespace berth {

constexpr std::string_view kAbsent = "-";

Style style_of(GpuState state);

// A bar of `width` columns, in eighths of a column where the character set has them.
std::string format_bar(double share, std::size_t width, Charset charset);

// "9.1/24 GiB".
std::string format_memory(const Gpu& gpu);

// "70%", or "-".
template <class T>
std::string format_value(const std::optional<T>& value, std::string_view unit) {
  if (!value) return std::string(kAbsent);
  return fmt::format("{:.0f}{}", static_cast<double>(*value), unit);
}

// How long `since` is past, in whole seconds: "10m".
std::string format_age(TimePoint since, TimePoint now);

// Of a lease or a ticket: its label, else its command. As it came.
const std::string& record_title(const Record& record);

// What it asked for: "2 GPUs, 8 GiB each, for 4h", "GPU 0,2". As it came.
std::string format_request(const Request& request, const Status& status);

// Why it waits, and the estimate: "GPU 0 leased by bob; expected in about 10m". As it came.
std::string format_wait_reason(const TicketStatus& ticket, TimePoint now);

// A stranger that the process list shows needs no second line in words.
bool needs_reason_line(const GpuStatus& status);

// "4 GPUs: 3 free, 1 leased".
std::string format_gpu_counts(const Status& status);

// "simulated driver 570.86.15". As it came.
std::string format_driver(const Status& status);

// Of another host: "told 12s ago", else nothing.
std::string format_data_age(const Status& status);

}  // namespace berth
