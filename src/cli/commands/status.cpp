// The command `berth status [-v] [-a] [--json] [--watch [SECONDS]] [--topology]`.
#include "status/status.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/output/status_text.h"
#include "cluster/store/hosts.h"
#include "devices/driver.h"
#include "status/status_json.h"

namespace berth {
namespace {

constexpr double kDefaultInterval = 2;

struct StatusCommandOptions {
  bool verbose = false;
  bool all = false;
  bool json = false;
  bool topology = false;
  bool watching = false;
  double interval = kDefaultInterval;
};

// `probe` may be null only with --all: the status of other hosts does not need a driver.
Result<std::string> render(Probe* probe, const StatusCommandOptions& options,
                           const Terminal& terminal) {
  // With --watch, one document on each line, as readers of a JSON stream expect.
  const JsonForm form = options.watching ? JsonForm::line : JsonForm::pretty;
  if (options.topology) {
    const Topology topology = TRY(probe->topology());
    return options.json ? topology_json(topology, form) : topology_text(topology, terminal);
  }
  const StatusDetail detail = options.verbose ? StatusDetail::full : StatusDetail::brief;
  if (options.all) {
    const std::vector<Status> hosts = TRY(observe_all(probe));
    return options.json ? hosts_json(hosts, form)
                        : hosts_text(hosts, terminal, ::geteuid(), detail);
  }
  const Status status = TRY(observe_host(*probe, is_driver_simulated()));
  return options.json ? status_json(status, form)
                      : status_text(status, terminal, ::geteuid(), detail);
}

// Draws over the last output instead of clearing the screen first, which would flicker. Output that
// has scrolled cannot be drawn over, so the lines that do not fit are only counted.
void redraw(std::string_view text, std::size_t height) {
  std::string out = "\x1b[H";
  for (std::size_t row = 1; !text.empty() && row < height; ++row) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    out += line;
    out += "\x1b[K\n";
  }
  const auto hidden = std::count(text.begin(), text.end(), '\n');
  if (hidden > 0)
    out += fmt::format("... and {} more {}\x1b[K", hidden, hidden == 1 ? "line" : "lines");
  print(out + "\x1b[J");
}

Result<int> watch(Probe* probe, const StatusCommandOptions& options) {
  const std::chrono::duration<double> interval(options.interval);
  for (bool first = true;; first = false) {
    const Terminal terminal = terminal_at(STDOUT_FILENO);  // it may have been resized
    const bool drawing = !options.json && terminal.drawable;
    const std::string text = TRY(render(probe, options, terminal));
    if (drawing && first) print("\x1b[2J");
    if (drawing) {
      redraw(text, terminal.height.value_or(24));
    } else {
      print((first || options.json ? "" : "\n") + text);
    }
    if (std::fflush(stdout) != 0) return 0;  // the caller reports the failed output
    std::this_thread::sleep_for(interval);
  }
}

// Empty (the default interval), or a number of seconds.
Result<void> parse_interval(std::string_view text, StatusCommandOptions& options) {
  options.watching = true;
  if (text.empty()) return {};
  const auto* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, options.interval);
  const bool sensible = options.interval >= 0.1 && options.interval <= 86400;
  if (problem == std::errc{} && rest == end && sensible) return {};
  return fail(ErrorKind::usage,
              fmt::format("{} is not a number of seconds from 0.1 to 86400", in_quotes(text)));
}

}  // namespace

Action define_status(Flags& command, const CommandContext& /*context*/) {
  auto options = std::make_shared<StatusCommandOptions>();
  command.add_flag("-v,--verbose", options->verbose,
                   "Show all values, leases and processes, and why tickets wait");
  command.add_flag("-a,--all", options->all, "All hosts that share this harbour (BERTH_URL)");
  command.add_flag("--json", options->json, "Print JSON (see docs/json.md)");
  command.add_optional_value(
      "--watch", "[SECONDS]", "Repeat every SECONDS (default 2) until Ctrl-C",
      [options](std::string_view text) { return parse_interval(text, *options); });
  command.add_flag("--topology", options->topology, "Show how the cards are connected");
  command.set_footer(
      "States: free; leased: to one job or shell; shared: leased in parts (--mem); stranger: used\n"
      "by a process without a lease; drained: out of service; lost: the driver cannot reach it;\n"
      "unknown: the driver does not report whether it is in use. '*' marks your own. ENDS is what\n"
      "the user announced (--time); '~': an estimate from earlier runs; 'late': it has passed,\n"
      "and nothing is stopped. '-' is a value that is not known.\n"
      "\nExamples:\n"
      "  berth status\n"
      "  berth status -v\n"
      "  berth status --watch 5\n"
      "  berth status --all\n"
      "  berth status --json | jq '.gpus[] | select(.state == \"free\") | .index'");
  return [options]() -> Result<int> {
    if (options->all && options->topology) {
      return fail(ErrorKind::usage, "status: --topology shows only this host; omit --all");
    }
    auto probe = open_driver(print_driver_is_slow);
    if (!probe && !options->all) return tl::make_unexpected(probe.error());
    Probe* const probe_or_null = probe ? probe->get() : nullptr;
    if (options->watching) return watch(probe_or_null, *options);
    print(TRY(render(probe_or_null, *options, terminal_at(STDOUT_FILENO))));
    return 0;
  };
}

}  // namespace berth
