// Renders the details of a row; see details.h.
#include "top/details.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/time_text.h"
#include "base/users.h"
#include "status/status_format.h"
#include "top/pending_action.h"
#include "top/plots.h"

namespace berth::top {
namespace {

constexpr std::size_t kNameWidth = 15;
constexpr std::size_t kMinPlotHeight = 3;

// Lines with a name at the left and a wrapped text at the right.
class FactList {
 public:
  explicit FactList(const RenderContext& context) : context_(context) {}

  // Escapes `text` and shows all of it. An empty text adds no line.
  void add(const char* name, std::string_view text, Style style = Style::plain) {
    if (text.empty()) return;
    const std::size_t indent = 1 + kNameWidth;
    const std::size_t room = std::max<std::size_t>(context_.canvas.width, indent + 21) - indent - 1;
    std::string rest = context_.canvas.escape(text);
    bool first = true;
    while (!rest.empty()) {
      const std::string line = take_first_line(rest, room);
      StyledLine out =
          make_line(Style::dim, fmt::format(" {}", align_left(first ? name : "", kNameWidth)));
      lines_.push_back(out.add(style, line));
      first = false;
    }
  }
  void add_time(const char* name, TimePoint time) {
    add(name, fmt::format("{} ({} ago)", format_local_time(time), format_age(time, context_.now)));
  }
  void add_blank_line() { lines_.emplace_back(); }
  void add(StyledLine line) { lines_.push_back(std::move(line)); }
  std::size_t size() const { return lines_.size(); }
  std::vector<StyledLine> take_lines() { return std::move(lines_); }

 private:
  // Removes the first line from `rest` and returns it. Breaks it at a blank if it has one;
  // otherwise inside a word, because commands have words that are longer than a line.
  static std::string take_first_line(std::string& rest, std::size_t room) {
    std::size_t bytes = 0;
    std::size_t blank = 0;
    std::size_t wide = 0;
    while (bytes < rest.size()) {
      const std::size_t length =
          std::max<std::size_t>(utf8_length(std::string_view(rest).substr(bytes)), 1);
      const std::size_t columns = display_width(std::string_view(rest).substr(bytes, length));
      if (wide + columns > room) break;
      wide += columns;
      bytes += length;
      if (rest[bytes - 1] == ' ') blank = bytes;
    }
    if (bytes < rest.size() && blank > 0) bytes = blank;
    std::string line = rest.substr(0, bytes);
    rest.erase(0, bytes);
    return line;
  }

  const RenderContext& context_;
  std::vector<StyledLine> lines_;
};

std::string user_and_pid(const Record& record) {
  return fmt::format("{}, pid {}", user_name(record.uid), record.pid);
}

// The facts that leases and tickets have in common.
void add_record(FactList& facts, const Record& record, const Status& host) {
  facts.add("user", user_and_pid(record));
  facts.add("host", host.host);
  facts.add("command", record.command);
  facts.add("label", record.label);
  facts.add("job", record.job);
  facts.add("request", format_request(record.request, host));
  facts.add("",
            record.is_profiling_run ? "profiling run: measured for later runs of this job" : "");
}

std::string_view mode_text(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::shared:
      return "default";
    case ComputeMode::exclusive_process:
      return "exclusive process";
    case ComputeMode::prohibited:
      return "prohibited";
  }
  return kAbsent;
}

std::string memory_text(const Row& row) {
  const Gpu& gpu = row.gpu->view.gpu;
  const auto size = [](const std::optional<Bytes>& bytes) {
    return bytes ? format_size(*bytes) : std::string(kAbsent);
  };
  std::string text = fmt::format("{} used of {}", size(gpu.memory_used), size(gpu.memory_total));
  const Bytes reserved = reserved_unused(*row.host, *row.gpu);
  if (reserved.count > 0) text += fmt::format(", {} more reserved", format_size(reserved));
  return text;
}

std::string process_text(const AttributedProcess& attributed) {
  const GpuProcess& process = attributed.process;
  return fmt::format("{}{} (pid {}), {}, {}, {}", attributed.is_stranger() ? "! " : "",
                     process.name.value_or(std::string(kAbsent)), process.pid,
                     process.uid ? user_name(*process.uid) : std::string("user unknown"),
                     process.memory ? format_size(*process.memory) : std::string("memory unknown"),
                     !attributed.lease.empty() ? fmt::format("lease {}", attributed.lease)
                                               : std::string(attributed.is_stranger() ? "no lease"
                                                             : attributed.daemon      ? "driver"
                                                                                      : "display"));
}

void add_plot(FactList& facts, const char* title, const Series& series, ValueStyle style,
              std::size_t height, const RenderContext& context) {
  const std::size_t width = std::max<std::size_t>(context.canvas.width - kNameWidth - 3, 10);
  auto plot = tall_plot(series.columns(width), width, height, style, context.canvas.charset);
  facts.add_blank_line();
  for (std::size_t i = 0; i < plot.size(); ++i) {
    const std::string name = i == 0                 ? fmt::format("{} 100%", title)
                             : i + 1 == plot.size() ? "0%"
                                                    : "";
    StyledLine line = make_line(Style::dim, fmt::format(" {} ", align_right(name, kNameWidth - 1)));
    facts.add(std::move(line.append(std::move(plot[i]))));
  }
}

std::vector<StyledLine> gpu_details(const Row& row, const RenderContext& context) {
  const GpuWithLeases& view = row.gpu->view;
  const Gpu& gpu = view.gpu;
  FactList facts(context);
  const GpuState state = row.gpu->state_reason.state;
  facts.add("state", berth::to_string(state), style_of(state));
  facts.add("", row.gpu->state_reason.reason, style_of(state));
  for (const Record& lease : row.host->leases) {
    if (!view.has_lease(lease.id)) continue;
    if (!lease.is_readable()) {
      facts.add("lease", fmt::format("{}, {}: {}", lease.id, user_name(lease.uid), lease.problem),
                Style::warning);
      continue;
    }
    facts.add(
        "lease",
        fmt::format("{}, {}, {}, {}, for {}: {}", lease.id, user_name(lease.uid),
                    format_end(find_lease_end(lease, context.now), context.now, TextForm::sentence),
                    lease.request.memory ? format_size(*lease.request.memory) : "exclusive",
                    format_rough_duration(context.now - lease.granted), label_and_command(lease)));
  }
  for (const AttributedProcess& one : view.processes) {
    facts.add("process", process_text(one), one.is_stranger() ? Style::bad : Style::plain);
  }
  facts.add("name", gpu.name.value_or(std::string(kAbsent)));
  facts.add("UUID", gpu.uuid.value_or(std::string(kAbsent)));
  facts.add("host", row.host->host);
  facts.add("driver", format_driver(*row.host));
  facts.add("memory", memory_text(row));
  facts.add("utilization", fmt::format("GPU {}, memory {}", format_value(gpu.utilization_pct, "%"),
                                       format_value(gpu.memory_utilization_pct, "%")));
  facts.add("temperature",
            format_value(gpu.temperature_c, context.canvas.charset == Charset::utf8 ? "°C" : "C"),
            temperature_style(gpu.temperature_c));
  facts.add("power", fmt::format("{}{}", format_value(gpu.power_w, " W"),
                                 gpu.performance_state ? fmt::format(", performance state P{}",
                                                                     *gpu.performance_state)
                                                       : ""));
  if (gpu.compute_mode) facts.add("compute mode", mode_text(*gpu.compute_mode));
  if (gpu.display_active == true) facts.add("display", "drives a display");
  if (view.drain) facts.add_time("drained", view.drain->since);
  if (const GpuSeries* gpu_series = context.history.find(*row.host, gpu)) {
    // Two plots, each below a blank line, use the lines that the facts, the head of the screen (two
    // lines), the title with a blank line, the line below the plots and the foot leave.
    const std::size_t taken = facts.size() + 8;
    const std::size_t left_over = context.canvas.height - std::min(context.canvas.height, taken);
    const std::size_t height = std::max(left_over / 2, kMinPlotHeight);
    add_plot(facts, "memory", gpu_series->memory, memory_style, height, context);
    add_plot(facts, "util", gpu_series->utilization, load_style, height, context);
    facts.add("", fmt::format("the last {}", format_duration(context.history.duration())),
              Style::dim);
  }
  return facts.take_lines();
}

void add_end(FactList& facts, const Record& lease, const RenderContext& context) {
  const auto end = find_lease_end(lease, context.now);
  if (!end) {
    facts.add("ends", "unknown: not announced with --time, and not known from earlier runs");
    return;
  }
  facts.add("ends",
            fmt::format("{} ({}), {}", format_end(end, context.now, TextForm::column),
                        format_local_time(end->at),
                        end->source == EndSource::announced ? "announced with --time"
                                                            : "estimated from earlier runs"),
            end->overdue ? Style::warning : Style::plain);
}

std::vector<StyledLine> lease_details(const Row& row, const RenderContext& context) {
  const Record& lease = *row.lease;
  FactList facts(context);
  if (!lease.is_readable()) {
    facts.add("user", user_name(lease.uid));
    facts.add("problem", lease.problem, Style::warning);
    facts.add("", "it counts as holding all GPUs that it may hold; see berth doctor");
    return facts.take_lines();
  }
  add_end(facts, lease, context);
  facts.add(lease.uuids.size() == 1 ? "GPU" : "GPUs", format_lease_gpus(lease, *row.host));
  facts.add("share", lease.request.memory
                         ? format_size(*lease.request.memory) + " on each GPU, shared with others"
                         : "exclusive");
  add_record(facts, lease, *row.host);
  facts.add("holder", lease.adopted_start
                          ? "process that ran before (berth adopt); r releases the lease"
                      : lease.holder == HolderKind::shell
                          ? "shell or script (berth acquire); r releases the lease"
                          : "job (berth run); the lease ends with the job");
  facts.add_time("requested", lease.since);
  facts.add_time("granted", lease.granted);
  if (const auto idle = idle_since(lease, context.now)) {
    facts.add("idle", fmt::format("no utilization for {}", format_age(*idle, context.now)),
              Style::warning);
  }
  facts.add("parent lease", lease.parent_lease);
  if (lease.epoch > 0) facts.add("epoch", std::to_string(lease.epoch));
  for (const GpuStatus& gpu : row.host->gpus) {
    for (const AttributedProcess& one : gpu.view.processes) {
      if (one.lease != lease.id) continue;
      facts.add("process",
                fmt::format("GPU {}: {}", berth::to_string(gpu.view.gpu.index), process_text(one)));
    }
  }
  return facts.take_lines();
}

std::vector<StyledLine> ticket_details(const Row& row, const RenderContext& context) {
  const TicketStatus& ticket = *row.ticket;
  FactList facts(context);
  facts.add("starts",
            is_start_expected(ticket.starts, context.now)
                ? fmt::format("{} ({})", format_start(ticket.starts, context.now, TextForm::column),
                              format_local_time(*ticket.starts))
                : "unknown");
  facts.add("", ticket.start_unknown_reason.empty()
                    ? ""
                    : fmt::format("because {}", ticket.start_unknown_reason));
  facts.add("position", fmt::format("{} of {}", ticket.position, row.host->queue.size()));
  facts.add("waiting for", ticket.reason);
  add_record(facts, ticket.record, *row.host);
  facts.add_time("waiting since", ticket.record.since);
  return facts.take_lines();
}

}  // namespace

std::string details_title(const Row& row, const Canvas& canvas) {
  if (row.ticket != nullptr) return fmt::format("Ticket {}", canvas.escape(row.ticket->record.id));
  if (row.lease != nullptr) return fmt::format("Lease {}", canvas.escape(row.lease->id));
  return fmt::format("GPU {} on {}", berth::to_string(row.gpu->view.gpu.index),
                     canvas.escape(row.host->host));
}

std::vector<StyledLine> details_lines(const Row& row, const RenderContext& context) {
  if (row.ticket != nullptr) return ticket_details(row, context);
  if (row.lease != nullptr) return lease_details(row, context);
  return gpu_details(row, context);
}

std::vector<StyledLine> help_lines(Charset charset) {
  struct Help {
    const char* keys;
    const char* effect;
  };
  static constexpr std::array keys{
      Help{"arrows, j k", "select a GPU, lease or ticket (also PgUp, PgDn, Home, End)"},
      Help{"Tab", "switch between GPUs and queue"},
      Help{"Enter", "show details of the selection; Esc or Enter goes back"},
      Help{"mouse", "click: select; double click: details; wheel: scroll"},
      Help{"", "hold Shift to select text, as in other full-screen programs"},
      Help{"s", "sort by index, user, memory, utilization, or free GPUs first"},
      Help{"v", "rows of the list: as many as fit, compact, leases, or processes"},
      Help{"f or /", "show only users whose name contains the text; Esc shows all"},
      Help{"c", "cancel the selected ticket, if it is yours (asks first)"},
      Help{"r", "release the selected lease, if your shell holds it (asks first)"},
      Help{"p", "pause the display; p again resumes it"},
      Help{"h or ?", "show this help"},
      Help{"q", "quit"},
  };
  std::vector<StyledLine> lines;
  const auto add_legend = [&](Style style, const char* name, std::string text) {
    StyledLine line = make_line(style, fmt::format(" {}", align_left(name, kNameWidth)));
    lines.push_back(line.add(Style::plain, std::move(text)));
  };
  for (const Help& key : keys) add_legend(Style::bold, key.keys, key.effect);
  lines.emplace_back();
  add_legend(style_of(GpuState::free), "free", "can be granted");
  add_legend(style_of(GpuState::leased), "leased, shared", "held by leases, whole or in part");
  add_legend(style_of(GpuState::stranger), "stranger", "used by a process without a lease");
  add_legend(style_of(GpuState::drained), "drained", "out of service");
  add_legend(style_of(GpuState::lost), "lost", "the driver cannot reach it");
  add_legend(style_of(GpuState::unknown), "unknown",
             "the driver does not report whether it is in use");
  lines.emplace_back();
  const bool utf8 = charset == Charset::utf8;
  add_legend(Style::plain, "memory",
             utf8 ? "██ used  ░░ reserved  ·· free" : "## used  == reserved  .. free");
  StyledLine load =
      make_line(Style::plain, fmt::format(" {}", align_left("utilization", kNameWidth)));
  lines.push_back(load.add(Style::dim, "under 5%  ")
                      .add(Style::notice, "under 50%  ")
                      .add(Style::good, "under 85%  ")
                      .add(Style::warning, "85% or more"));
  StyledLine heat =
      make_line(Style::plain, fmt::format(" {}", align_left("temperature", kNameWidth)));
  const std::string unit = utf8 ? "°C" : "C";
  lines.push_back(heat.add(Style::plain, fmt::format("under 80{}  ", unit))
                      .add(Style::warning, fmt::format("80{} or more  ", unit))
                      .add(Style::bad, fmt::format("90{} or more", unit)));
  add_legend(Style::plain, "ends in 40m", "announced with --time");
  add_legend(Style::plain, "ends in ~40m", "estimated from earlier runs");
  add_legend(Style::warning, "5m late", "the announced or estimated end has passed");
  add_legend(Style::plain, "CPU, RAM", "of the host on which berth top runs");
  return lines;
}

}  // namespace berth::top
