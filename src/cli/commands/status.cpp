// berth status [--all] [--json] [--watch [SECONDS]] [--topology]
#include "status/status.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/output/status_text.h"
#include "cluster/store/hosts.h"
#include "devices/driver.h"
#include "status/status_json.h"

namespace berth {
namespace {

constexpr double kDefaultInterval = 2;

struct Options {
  bool all = false;
  bool json = false;
  bool topology = false;
  bool watching = false;
  double interval = kDefaultInterval;
};

// `probe` may be missing where only others are asked for.
Result<std::string> render(Probe* probe, const Options& options, const Terminal& terminal) {
  // One document per line when there are several: what reads a stream of JSON expects that.
  const JsonForm form = options.watching ? JsonForm::line : JsonForm::pretty;
  if (options.topology) {
    const auto topology = probe->topology();
    if (!topology) return tl::make_unexpected(topology.error());
    return options.json ? topology_json(*topology, form) : topology_text(*topology, terminal);
  }
  if (options.all) {
    const auto hosts = observe_all(probe);
    if (!hosts) return tl::make_unexpected(hosts.error());
    return options.json ? hosts_json(*hosts, form) : hosts_text(*hosts, terminal);
  }
  const auto status = observe(*probe, driver_is_simulated());
  if (!status) return tl::make_unexpected(status.error());
  return options.json ? status_json(*status, form) : status_text(*status, terminal);
}

// Draws over the last picture instead of clearing the screen first, which would flicker. What does
// not fit is cut at the bottom: a screen that scrolls cannot be drawn over.
void redraw(std::string_view text, std::size_t height) {
  std::string out = "\x1b[H";
  for (std::size_t row = 1; !text.empty() && row < height; ++row) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    out += line;
    out += "\x1b[K\n";
  }
  if (!text.empty()) out += "...\x1b[K";
  print(out + "\x1b[J");
}

Result<int> watch(Probe* probe, const Options& options) {
  const std::chrono::duration<double> interval(options.interval);
  for (bool first = true;; first = false) {
    const Terminal terminal = terminal_at(STDOUT_FILENO);  // it may have been resized
    const bool drawing = !options.json && terminal.drawable;
    const auto picture = render(probe, options, terminal);
    if (!picture) return tl::make_unexpected(picture.error());
    if (drawing && first) print("\x1b[2J");
    if (drawing) {
      redraw(*picture, terminal.height.value_or(24));
    } else {
      print((first || options.json ? "" : "\n") + *picture);
    }
    if (std::fflush(stdout) != 0) return 0;  // the caller sees and reports it
    std::this_thread::sleep_for(interval);
  }
}

// Nothing, or a number of seconds that makes sense.
Result<void> take_interval(std::string_view text, Options& options) {
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

Action define_status(Flags& command, CLI::App& /*program*/) {
  auto options = std::make_shared<Options>();
  command.flag("--all", options->all,
               "Every host that shares this harbour (BERTH_URL), not only this");
  command.flag("--json", options->json, "Print JSON, as docs/json.md describes it");
  command.optional_value(
      "--watch", "[SECONDS]", "Show it again every SECONDS (default 2), until Ctrl-C",
      [options](std::string_view text) { return take_interval(text, *options); });
  command.flag("--topology", options->topology, "Show how the cards are connected instead");
  command.footer(
      "States: free; leased and shared, by berth; stranger, used by a process without a lease;\n"
      "drained, out of service; lost, the driver cannot reach it; unknown, the driver does not "
      "say.\n"
      "A '-' is a value that the driver does not give.\n"
      "\nExamples:\n"
      "  berth status\n"
      "  berth status --watch 5\n"
      "  berth status --all\n"
      "  berth status --json | jq '.gpus[] | select(.state == \"free\") | .index'");
  return [options]() -> Result<int> {
    if (options->all && options->topology) {
      return fail(ErrorKind::usage, "status: --topology is of this host alone; leave --all out");
    }
    auto probe = open_driver(say_driver_is_slow);
    if (!probe && !options->all) return tl::make_unexpected(probe.error());
    Probe* const asked = probe ? probe->get() : nullptr;
    if (options->watching) return watch(asked, *options);
    const auto picture = render(asked, *options, terminal_at(STDOUT_FILENO));
    if (!picture) return tl::make_unexpected(picture.error());
    print(*picture);
    return 0;
  };
}

}  // namespace berth
