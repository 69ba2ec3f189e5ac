// The command `berth report [--since WHEN] [--user NAME] [--host NAME] [--gpu GPU,…] [--by WHAT]
// [--json] [--csv] [--html [FILE]]`.
#include "archive/report.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "archive/history_json.h"
#include "base/configuration.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/gpu_arguments.h"
#include "cli/history_flags.h"
#include "cli/output/report_csv.h"
#include "cli/output/report_html.h"
#include "cli/output/report_text.h"
#include "cluster/store/hosts.h"
#include "devices/driver.h"
#include "lease/lease_history.h"

namespace berth {
namespace {

constexpr std::chrono::hours kDefaultReportPeriod(24 * 30);

struct ReportCommandOptions {
  HistoryFilter history = make_recent_filter(kDefaultReportPeriod);
  std::string by;
  bool json = false;
  bool csv = false;
  std::optional<std::string> html;  // a file; "-": stdout
};

ReportBy parse_by(std::string_view word) {
  if (word == "user") return ReportBy::user;
  if (word == "job") return ReportBy::job;
  if (word == "gpu") return ReportBy::gpu;
  return word == "day" ? ReportBy::day : ReportBy::all;
}

Result<void> write_page(const std::string& path, const std::string& page) {
  if (path == "-") {
    print(page);
    return {};
  }
  std::FILE* const file = std::fopen(path.c_str(), "we");
  bool written = file != nullptr && std::fwrite(page.data(), 1, page.size(), file) == page.size();
  int problem = errno;
  if (file != nullptr && std::fclose(file) != 0) {
    if (written) problem = errno;
    written = false;
  }
  if (written) return {};
  return fail(ErrorKind::usage, fmt::format("cannot write the page to {}: {}; name another file",
                                            in_quotes(path), ::strerrordesc_np(problem)));
}

// The GPUs of all hosts, for the occupancy. A driver or harbour that does not answer is ignored:
// the report does not depend on them.
std::vector<GpuIdentity> list_present_gpus(const HarbourLocation& where) {
  std::vector<GpuIdentity> gpus;
  const auto probe = open_driver(print_driver_is_slow);
  const auto hosts = observe_all(probe ? probe->get() : nullptr, where);
  if (!hosts) return gpus;
  for (const Status& host : *hosts) {
    for (const GpuStatus& status : host.gpus) {
      const Gpu& gpu = status.view.gpu;
      if (gpu.uuid)
        gpus.push_back({*gpu.uuid, to_string(gpu.index), gpu.name.value_or(""), host.host});
    }
  }
  return gpus;
}

// Prints why the report is empty: perhaps this host does not have the GPU that the user named. A
// driver that does not answer is ignored.
void report_no_leases(const std::string& gpus) {
  const auto found = gpus.empty() ? Result<std::vector<NamedGpu>>() : find_gpus(gpus);
  if (!found && found.error().kind == ErrorKind::impossible) {
    return print_message(fmt::format("no leases found: {}", found.error().message));
  }
  print_message("no leases found; 'berth report --help' lists the filters, such as --since");
}

Result<int> show_report(const ReportCommandOptions& options) {
  const HarbourLocation where = harbour_location();
  const HistoryFilter filter = resolve_host_filter(options.history, where);
  prefetch_driver_snapshot();  // the driver starts while the history is read
  const auto history = TRY(read_merged_leases(where, filter.since, filter.lease_filter));
  warn_about_omitted_history(history.damaged, history.truncated, where);
  const Report report = make_filtered_report(history, filter, list_present_gpus(where));
  const std::string host = where.url ? filter.lease_filter.host : kernel_host_name();
  const ReportBy by = parse_by(options.by);
  if (options.json) {
    print(report_json(report, by, host, history.damaged));
  } else if (options.csv) {
    print(report_csv(report, by));
  } else if (options.html) {
    TRY(write_page(*options.html, report_html(report, by, host.empty() ? "all hosts" : host)));
  } else if (report.total.leases == 0) {
    report_no_leases(filter.gpus);
  } else {
    print(report_text(report, by, terminal_at(STDOUT_FILENO)));
  }
  return 0;
}

Result<void> check_options(const ReportCommandOptions& options) {
  const auto both = [](const char* one, const char* other) {
    return fail(ErrorKind::usage,
                fmt::format("{} and {} exclude each other; use only one of them", one, other));
  };
  if (options.json && options.html) return both("--json", "--html");
  if (options.json && options.csv) return both("--json", "--csv");
  if (options.csv && options.html) return both("--csv", "--html");
  if (options.html == "-" && ::isatty(STDOUT_FILENO) == 1) {
    return fail(
        ErrorKind::usage,
        "--html: stdout is a terminal; name a file, such as: berth report --html page.html");
  }
  return {};
}

}  // namespace

Action define_report(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<ReportCommandOptions>();
  add_history_flags(command, options->history,
                    "Only the time since: 12h, 30d (default), 2026-11-16");
  command.add_choice("--by", "user|job|gpu|day", "Only this table, with all rows", options->by);
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.add_flag("--csv", options->csv, "Print one table as CSV, for spreadsheets");
  command.add_optional_value("--html", "FILE",
                             "Write an HTML page with plots to FILE (default: stdout)",
                             [options](std::string_view file) -> Result<void> {
                               options->html = file.empty() ? "-" : file;
                               return {};
                             });
  command.set_check([options] { return check_options(*options); });
  command.set_footer(
      "Shows the GPU-hours of the leases of all users, the occupancy (the share of the time of\n"
      "all GPUs that was leased), utilization while leased, idle time, energy and median waiting\n"
      "time: in total, and by user, job, GPU and day; then the leases that held GPUs longest\n"
      "without using them. Short times are in minutes or seconds; \"-\" means not measured.\n"
      "Leases on a part of a GPU (--mem) are counted separately. docs/history.md defines the\n"
      "numbers.\n"
      "\nExamples:\n"
      "  berth report --since 7d\n"
      "  berth report --by job --user $USER\n"
      "  berth report --html report.html\n"
      "  berth report --by day --csv > days.csv\n"
      "  berth report --json | jq '.users[] | [.user, .gpu_hours]'");
  return [options]() { return show_report(*options); };
}

}  // namespace berth
