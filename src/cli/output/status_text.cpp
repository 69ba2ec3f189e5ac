// One line for each GPU and each ticket; see status_text.h.
#include "cli/output/status_text.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "base/users.h"
#include "cli/output/status_details.h"
#include "cli/output/text_table.h"
#include "status/status_format.h"

namespace berth {
namespace {

constexpr std::size_t kMaxUserWidth = 12;  // "another user"
constexpr std::size_t kLoadBarWidth = 8;
// From this width on, each GPU has a bar of its memory.
constexpr std::size_t kMinWidthForBars = 100;
constexpr const char* kEmptyQueueText = "The queue is empty.\n";
constexpr const char* kNoHostsText =
    "No host has registered yet: run 'berth status' once on each host with GPUs.\n";

// How a status is shown: where, for which user, and at which time.
struct View {
  const Terminal& terminal;
  uid_t viewer;
  TimePoint now;

  bool is_own(const Record& record) const { return record.uid == viewer; }
};

// "*ann" for a record of the viewer.
std::string marked_user(const Record& record, const View& view) {
  return (view.is_own(record) ? "*" : "") + view.terminal.escape(user_name(record.uid));
}

std::vector<const Record*> leases_on(const GpuStatus& gpu, const Status& status) {
  std::vector<const Record*> found;
  for (const Record& lease : status.leases) {
    if (gpu.view.has_lease(lease.id)) found.push_back(&lease);
  }
  return found;
}

// "60/80 GiB".
std::string format_whole_memory(const Gpu& gpu) {
  const bool is_large = gpu.memory_used && gpu.memory_total && *gpu.memory_total >= gib(10);
  if (!is_large) return format_memory(gpu);
  const auto amount = [](Bytes size) {
    return round_positive(static_cast<double>(size.count) / static_cast<double>(gib(1).count));
  };
  return fmt::format("{}/{} GiB", amount(*gpu.memory_used), amount(*gpu.memory_total));
}

std::string format_memory_bar(const Gpu& gpu, Charset charset) {
  const auto share = memory_share(gpu);
  return share ? format_bar(*share, kLoadBarWidth, charset) : "";
}

// "*ann", or "*ann +2" for a GPU that three users share.
Cell user_cell(const std::vector<const Record*>& leases, const View& view) {
  std::vector<std::string> users;
  for (const Record* lease : leases) {
    const std::string user = marked_user(*lease, view);
    if (std::find(users.begin(), users.end(), user) != users.end()) continue;
    users.insert(view.is_own(*lease) ? users.begin() : users.end(), user);
  }
  const bool own = users.front().starts_with('*');
  std::string text = users.front();
  if (users.size() > 1) {
    const std::string others = fmt::format(" +{}", users.size() - 1);
    text = truncate_text(text, kMaxUserWidth - std::min(others.size(), kMaxUserWidth),
                         view.terminal.charset) +
           others;
  }
  return {text, own ? Style::bold : Style::plain};
}

Bytes sum_reserved(const std::vector<const Record*>& leases) {
  std::uint64_t sum = 0;
  for (const Record* lease : leases)
    sum = saturating_add(sum, lease->request.memory.value_or(Bytes{}).count);
  return Bytes{sum};
}

// "2 jobs, 58 GiB reserved: *ann 20 GiB, bob 38 GiB", the oldest first.
std::string shared_job_text(std::vector<const Record*> leases, const View& view) {
  constexpr std::size_t kMaxNamed = 8;
  std::sort(leases.begin(), leases.end(),
            [](const Record* a, const Record* b) { return a->granted < b->granted; });
  const std::size_t more = leases.size() > kMaxNamed + 1 ? leases.size() - kMaxNamed : 0;
  const std::vector<const Record*> named(leases.begin(),
                                         leases.end() - static_cast<std::ptrdiff_t>(more));
  const std::string shares = join_text(named, ", ", [&](const Record* lease) {
    return fmt::format("{} {}", marked_user(*lease, view),
                       lease->request.memory ? format_size(*lease->request.memory) : "exclusive");
  });
  return fmt::format("{} jobs, {} reserved: {}{}", leases.size(), format_size(sum_reserved(leases)),
                     shares, more > 0 ? fmt::format(" and {} more", more) : "");
}

// "train.py"; "20 GiB, train.py" on a part of a GPU.
Cell job_cell(const std::vector<const Record*>& leases, const View& view) {
  if (leases.size() > 1) return {shared_job_text(leases, view)};
  const Bytes reserved = sum_reserved(leases);
  const auto idle = idle_since(*leases.front(), view.now);
  return {fmt::format("{}{}{}",
                      idle ? fmt::format("idle {}, ", format_rough_duration(view.now - *idle)) : "",
                      reserved.count > 0 ? format_size(reserved) + ", " : "",
                      view.terminal.escape(label_and_command(*leases.front()))),
          idle ? Style::warning : Style::plain};
}

// Why a GPU without a lease is not free. A stranger's user stands in the column of the users:
// "ann  no lease: python (pid 4711)".
void add_reason(TableRow& row, const GpuStatus& gpu, const View& view) {
  row.note = view.terminal.escape(gpu.state_reason.reason);
  row.note_style = style_of(gpu.state_reason.state);
  if (gpu.state_reason.state != GpuState::stranger) return;
  std::vector<const GpuProcess*> strangers;
  for (const AttributedProcess& one : gpu.view.processes) {
    if (one.is_stranger()) strangers.push_back(&one.process);
  }
  const auto is_of_first = [&](const GpuProcess* process) {
    return process->uid && process->uid == strangers.front()->uid;
  };
  // The full reason names each of several users, or the memory that no process accounts for.
  if (strangers.empty() || !std::all_of(strangers.begin(), strangers.end(), is_of_first)) return;
  row.cells.push_back({view.terminal.escape(user_name(*strangers.front()->uid))});
  row.note = "no lease: " + join_text(strangers, ", ", [&](const GpuProcess* process) {
               return view.terminal.escape(
                   fmt::format("{} (pid {})", process->name.value_or("a process"), process->pid));
             });
}

TableRow gpu_row(const GpuStatus& gpu, const Status& status, const View& view) {
  const Gpu& device = gpu.view.gpu;
  const GpuState state = gpu.state_reason.state;
  const Style row_style = state == GpuState::free ? Style::good : Style::plain;
  TableRow row{{{to_string(device.index), row_style},
                {std::string(to_string(state)), style_of(state)},
                {format_memory_bar(device, view.terminal.charset), style_of(state)},
                {format_whole_memory(device), row_style},
                {format_value(device.utilization_pct, "%"), row_style}}};
  const auto leases = leases_on(gpu, status);
  if (leases.empty()) {
    add_reason(row, gpu, view);
    return row;
  }
  std::optional<TimePoint> oldest;
  for (const Record* lease : leases) {
    if (lease->is_readable()) oldest = std::min(oldest.value_or(lease->granted), lease->granted);
  }
  const auto end = find_last_end(leases, view.now);
  row.cells.push_back(user_cell(leases, view));
  row.cells.push_back({oldest ? format_rough_duration(view.now - *oldest) : std::string(kAbsent)});
  row.cells.push_back({format_end(end, view.now, TextForm::column),
                       end && end->overdue ? Style::bad : Style::plain});
  row.cells.push_back(job_cell(leases, view));
  return row;
}

// The columns of gpu_lines(), in the order of the line.
struct GpuLine {
  enum Column : std::size_t { index, state, bar, memory, load, user, held, ends, job };
};

std::string gpu_lines(const Status& status, const View& view) {
  const bool with_bar = view.terminal.width && *view.terminal.width >= kMinWidthForBars;
  std::vector<TableColumn> columns{
      {"GPU", true},    {"STATE"},      {"", false, with_bar ? kLoadBarWidth : 0},
      {"MEMORY", true}, {"LOAD", true}, {"USER", false, kMaxUserWidth},
      {"FOR", true},    {"ENDS"},       {"JOB"}};
  std::vector<TableRow> rows;
  for (const GpuStatus& gpu : status.gpus) {
    rows.push_back(gpu_row(gpu, status, view));
    const std::string reason = view.terminal.escape(gpu.state_reason.reason);
    if (rows.back().note.empty() && !reason.empty())  // a stranger or a drain, besides the leases
      rows.push_back({{{}, {}}, fmt::format("! {}", reason), style_of(gpu.state_reason.state)});
  }
  // Without room for the job: first for how long it runs, then load and memory.
  return TextTable(std::move(columns), std::move(rows),
                   {GpuLine::held, GpuLine::load, GpuLine::memory}, view.terminal)
      .render();
}

// The columns of ticket_rows(), in the order of the line.
struct TicketLine {
  enum Column : std::size_t { position, starts, user, waits, request, job };
};

std::string ticket_rows(const Status& status, const View& view) {
  std::vector<TableRow> rows;
  for (const TicketStatus& ticket : status.queue) {
    const Record& record = ticket.record;
    rows.push_back({{{std::to_string(ticket.position)},
                     {format_start(ticket.starts, view.now, TextForm::column)},
                     {marked_user(record, view), view.is_own(record) ? Style::bold : Style::plain},
                     {format_rough_duration(view.now - record.since)},
                     {view.terminal.escape(format_request(record.request, status))},
                     {view.terminal.escape(label_and_command(record))}}});
  }
  return TextTable({{"  #", true},
                    {"STARTS"},
                    {"USER", false, kMaxUserWidth},
                    {"WAITS", true},
                    {"REQUEST"},
                    {"JOB"}},
                   std::move(rows), {TicketLine::waits}, view.terminal)
      .render();
}

// "1. k3f9a2mx  starts in about 40m  waits 3h 12m  bob  2 GPUs, 30m  python train.py  pid 4711",
// with the job, and if need be the request, on a line of its own if the terminal is too narrow, and
// the reason of the wait below.
std::string ticket_lines(const TicketStatus& ticket, const Status& status, const View& view) {
  constexpr std::size_t kTicketIndent = 5;
  const Record& record = ticket.record;
  std::string head =
      fmt::format("  {}. {}  {}  waits {}  {}", ticket.position, record.id,
                  format_start(ticket.starts, view.now, TextForm::sentence),
                  format_rough_duration(view.now - record.since), marked_user(record, view));
  const std::string request = view.terminal.escape(format_request(record.request, status));
  const std::string pid = fmt::format("  pid {}", record.pid);
  std::string job = view.terminal.escape(label_and_command(record));
  const std::size_t width = view.terminal.width.value_or(~0UL);
  if (display_width(head) + display_width(request) + 2 <= width) {
    head += "  " + request;
  } else {
    job = fmt::format("{}{}{}", request, job.empty() ? "" : "  ", job);
  }
  if (display_width(head) + display_width(job) + pid.size() + 2 <= width) {
    head += "  " + std::exchange(job, "") + pid;
  }
  const Style style = view.is_own(record) ? Style::bold : Style::plain;
  std::string out =
      view.terminal.paint(style, truncate_text(head, width, view.terminal.charset)) + "\n";
  if (!job.empty()) {
    const std::size_t used = kTicketIndent + pid.size();
    job = truncate_text(job, width > used ? width - used : 0, view.terminal.charset) + pid;
    out += std::string(kTicketIndent, ' ') + view.terminal.paint(style, job) + "\n";
  }
  const auto add_note = [&](const std::string& text) {
    const std::string note =
        wrap_text(view.terminal.escape(text), view.terminal.width, kTicketIndent);
    out += view.terminal.paint(Style::dim, note) + "\n";
  };
  add_note(ticket.reason);
  if (!ticket.start_unknown_reason.empty())
    add_note(fmt::format("start unknown, because {}", ticket.start_unknown_reason));
  return out;
}

std::string ticket_list(const Status& status, const View& view) {
  std::string out;
  for (const TicketStatus& ticket : status.queue) out += ticket_lines(ticket, status, view);
  return out;
}

// "8 x NVIDIA H100", or "GPU 0: NVIDIA T4; GPUs 1,2: NVIDIA A100".
std::string format_models(const Status& status) {
  std::vector<std::pair<std::string, std::vector<GpuIndex>>> models;
  for (const GpuStatus& gpu : status.gpus) {
    const std::string name = gpu.view.gpu.name.value_or("unknown model");
    auto same = std::find_if(models.begin(), models.end(),
                             [&](const auto& model) { return model.first == name; });
    if (same == models.end()) same = models.insert(models.end(), {name, {}});
    same->second.push_back(gpu.view.gpu.index);
  }
  if (models.size() == 1) return fmt::format("{} x {}", status.gpus.size(), models.front().first);
  return join_text(models, "; ", [](const auto& model) {
    return fmt::format("{}: {}", format_gpu_list(model.second), model.first);
  });
}

bool shows_own_record(const Status& status, const View& view) {
  return std::any_of(status.leases.begin(), status.leases.end(),
                     [&](const Record& lease) { return view.is_own(lease); }) ||
         std::any_of(status.queue.begin(), status.queue.end(),
                     [&](const TicketStatus& ticket) { return view.is_own(ticket.record); });
}

// The state of the host in one line, and its hardware in another.
std::string summary_lines(const Status& status, const View& view, StatusDetail detail) {
  const std::string data_age = format_data_age(status);
  const std::string state =
      fmt::format("{} - {}{}{}{}", view.terminal.escape(status.host),
                  status.next_free ? format_next_free(*status.next_free, view.now) + " - " : "",
                  format_gpu_counts(status), data_age.empty() ? "" : " - ", data_age);
  std::string hardware = view.terminal.escape(format_driver(status));
  if (detail == StatusDetail::brief && !status.gpus.empty())
    hardware = view.terminal.escape(format_models(status)) + " - " + hardware;
  if (shows_own_record(status, view)) hardware += " - * yours";
  return fmt::format("{}\n{}\n",
                     view.terminal.paint(Style::bold, wrap_text(state, view.terminal.width, 0)),
                     view.terminal.paint(Style::dim, wrap_text(hardware, view.terminal.width, 0)));
}

std::string queue_heading(const Status& status) {
  return fmt::format("Queue: {} waiting", status.queue.size());
}

// `host`: the name of the host, if several are shown.
std::string queue_with_reasons(const Status& status, const View& view,
                               const std::string& host = {}) {
  const std::string next =
      status.next_free ? ", " + format_next_free(*status.next_free, view.now) : std::string();
  const std::string heading =
      fmt::format("{}{}{}{}", host, host.empty() ? "" : " - ", queue_heading(status), next);
  return wrap_text(heading, view.terminal.width, 0) + "\n" + ticket_list(status, view);
}

}  // namespace

std::string queue_text(const Status& status, const Terminal& terminal, uid_t viewer) {
  return status.queue.empty() ? kEmptyQueueText
                              : queue_with_reasons(status, {terminal, viewer, status.time});
}

std::string hosts_text(const std::vector<Status>& hosts, const Terminal& terminal, uid_t viewer,
                       StatusDetail detail) {
  if (hosts.empty()) return kNoHostsText;
  return join_text(hosts, "\n",
                   [&](const Status& host) { return status_text(host, terminal, viewer, detail); });
}

std::string hosts_queue_text(const std::vector<Status>& hosts, const Terminal& terminal,
                             uid_t viewer) {
  if (hosts.empty()) return kNoHostsText;
  std::string out;
  for (const Status& host : hosts) {
    if (host.queue.empty()) continue;
    out += queue_with_reasons(host, {terminal, viewer, host.time}, terminal.escape(host.host));
  }
  return out.empty() ? kEmptyQueueText : out;
}

std::string status_text(const Status& status, const Terminal& terminal, uid_t viewer,
                        StatusDetail detail) {
  const View view{terminal, viewer, status.time};
  if (!status.problem.empty()) {
    return wrap_text(fmt::format("{} - GPUs unknown: {}", terminal.escape(status.host),
                                 terminal.escape(status.problem)),
                     terminal.width, 0) +
           "\n";
  }
  std::string out = summary_lines(status, view, detail);
  if (status.gpus.empty()) return out + "The driver reports no GPU.\n";
  const bool full = detail == StatusDetail::full;
  out += '\n';
  out += full ? status_details(status, terminal, viewer) : gpu_lines(status, view);
  if (status.queue.empty()) return out;
  // The reasons take several lines for each ticket.
  return out + fmt::format("\n{}{}\n", queue_heading(status), full ? "" : " (why: berth queue)") +
         (full ? ticket_list(status, view) : ticket_rows(status, view));
}

}  // namespace berth
