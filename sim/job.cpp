// The program berth-sim-job: a simulated training job, which uses memory of simulated GPUs.
#include <CLI/CLI.hpp>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/environment.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "sim/job_cuda.h"
#include "sim/job_plan.h"

namespace berth::sim {
namespace {

constexpr int kExitFailed = 1;  // like a training program that fails

struct Options {
  std::vector<Step> curve{{std::chrono::nanoseconds{0}, gib(1)}};
  unsigned utilization = 90;
  std::optional<std::chrono::nanoseconds> time;
  std::size_t gpus = 0;
  int exit_code = 0;
  std::string log;
  bool quiet = false;
};

// Does not throw if stderr is closed: the exit code must still be right.
void print_problem(std::string_view what) {
  std::fputs(fmt::format("berth-sim-job: {}\n", what).c_str(), stderr);
}

int report_error(const Error& error) {
  print_problem(error.message);
  const bool environment = error.kind == ErrorKind::usage || error.kind == ErrorKind::no_driver;
  return environment ? exit_code(error.kind) : kExitFailed;
}

std::int64_t monotonic_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void sleep_until(std::int64_t time_ns) {
  struct timespec end {};
  end.tv_sec = time_ns / 1'000'000'000;
  end.tv_nsec = time_ns % 1'000'000'000;
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) == EINTR) {
  }
}

// Writes each line by one write(2), so that the lines of jobs that share a log do not mix.
Result<void> write_log(const Options& options, std::string_view event,
                       const std::vector<JobGpu>& gpus) {
  if (options.log.empty()) return {};
  nlohmann::json line{{"event", event}, {"pid", ::getpid()}, {"time_ns", monotonic_ns()}};
  line["uuids"] = nlohmann::json::array();
  for (const JobGpu& gpu : gpus) line["uuids"].push_back(gpu.uuid());
  const auto lease = get_env("BERTH_LEASE");
  line["lease"] = lease ? nlohmann::json(printable(*lease)) : nlohmann::json();
  const std::string text = line.dump() + "\n";
  const UniqueFd file(::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    return {};
  return fail(ErrorKind::usage,
              fmt::format("cannot write to {}: {}", in_quotes(options.log), std::strerror(errno)));
}

void print_start_line(const Options& options, const std::vector<JobGpu>& gpus) {
  if (options.quiet) return;
  const std::string uuids = join_text(gpus, ", ", &JobGpu::uuid);
  const std::string line = fmt::format("berth-sim-job: pid {} on {}: {} each\n", ::getpid(), uuids,
                                       format_size(options.curve.front().memory));
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

int run(const Options& options) {
  auto gpus = find_gpus(options.gpus);
  if (!gpus) return report_error(gpus.error());
  const std::int64_t start = monotonic_ns();
  for (JobGpu& gpu : *gpus) {
    if (const auto opened = gpu.open(); !opened) return report_error(opened.error());
    gpu.set_utilization(options.utilization);
  }
  const auto end = options.time ? std::optional(start + options.time->count()) : std::nullopt;
  for (const Step& step : options.curve) {
    const std::int64_t at = start + step.at.count();
    if (end && at >= *end && step.at.count() != 0) break;
    sleep_until(at);
    for (JobGpu& gpu : *gpus) {
      if (const auto resized = gpu.resize(step.memory); !resized)
        return report_error(resized.error());
    }
    if (step.at.count() != 0) continue;
    if (const auto logged = write_log(options, "start", *gpus); !logged)
      return report_error(logged.error());
    print_start_line(options, *gpus);
  }
  while (!end) ::pause();
  sleep_until(*end);
  if (const auto logged = write_log(options, "end", *gpus); !logged)
    return report_error(logged.error());
  return options.exit_code;
}

int usage_error(std::string_view what) {
  print_problem(fmt::format("{}; see berth-sim-job --help", what));
  return exit_code(ErrorKind::usage);
}

}  // namespace

int main_of_job(int argc, char** argv) {
  Options options;
  std::string memory;
  std::string curve;
  std::string time;
  CLI::App app("Uses the memory of every visible simulated GPU, as a training job would.",
               "berth-sim-job");
  app.set_version_flag("--version", "berth-sim-job " BERTH_VERSION);
  app.set_help_flag("-h,--help", "Show this help");
  const auto* memory_flag =
      app.add_option("--mem", memory, "Memory on each GPU (default 1GiB)")->type_name("SIZE");
  const auto* curve_flag =
      app.add_option("--curve", curve,
                     "Memory over time, instead of --mem, such as 0s:1GiB,2s:4GiB")
          ->type_name("STEPS");
  app.add_option("--util", options.utilization, "Utilization that the driver reports (default 90)")
      ->type_name("PCT")
      ->check(CLI::Range(0, 100).description(""));
  const auto* time_flag =
      app.add_option("--time", time, "Run time (default: until killed)")->type_name("DURATION");
  app.add_option("--gpus", options.gpus, "Use only the first N visible GPUs (default: all)")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""));
  app.add_option("--fail", options.exit_code, "Exit code at the end of the run (default 0)")
      ->type_name("CODE")
      ->check(CLI::Range(0, 255).description(""));
  app.add_option("--log", options.log, "File to which to append a JSON line at start and end")
      ->type_name("FILE");
  app.add_flag("--quiet", options.quiet, "Do not print a line at the start");
  app.footer(
      "BERTH_SIM describes the GPUs: 4x24GiB, or a file (see docs/simulated-driver.md).\n"
      "CUDA_VISIBLE_DEVICES selects the GPUs that are visible to the job.\n"
      "\nExit codes: 0 (or that of --fail), 1 out of memory or no GPU, 64 wrong usage,\n"
      "69 the simulated driver cannot be used.\n"
      "\nExample: BERTH_SIM=4x24GiB berth-sim-job --mem 8GiB --time 1m");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(printable(error.what()));
  }
  if (memory_flag->count() > 0 && curve_flag->count() > 0) {
    return usage_error("--mem and --curve cannot be used together");
  }
  if (memory_flag->count() > 0) {
    const auto size = parse_size(memory);
    if (!size) return usage_error("--mem: " + size.error().message);
    options.curve.front().memory = *size;
  }
  if (curve_flag->count() > 0) {
    auto steps = parse_curve(curve);
    if (!steps) return usage_error("--curve: " + steps.error().message);
    options.curve = std::move(*steps);
  }
  if (time_flag->count() > 0) {
    const auto length = parse_duration(time);
    if (!length) return usage_error("--time: " + length.error().message);
    options.time = *length;
  }
  return run(options);
}

}  // namespace berth::sim

int main(int argc, char** argv) {
  constexpr int internal_error = 70;
  berth::fill_closed_standard_descriptors();
  try {
    return berth::sim::main_of_job(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "berth-sim-job: %s\n", error.what());
  } catch (...) {
    std::fputs("berth-sim-job: unknown error\n", stderr);
  }
  return internal_error;
}
