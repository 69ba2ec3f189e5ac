// The program berth-sim-job: a simulated training job, which uses memory of simulated GPUs.
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <getopt.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/environment.h"
#include "base/json.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "sim/job_cuda.h"
#include "sim/job_plan.h"

namespace berth::sim {
namespace {

constexpr int kExitFailed = 1;  // like a training program that fails

struct Options {
  std::optional<Bytes> memory;
  std::vector<Step> curve;
  unsigned utilization = 90;
  std::optional<std::chrono::nanoseconds> time;
  unsigned samples = 0;
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

// Waits until the simulated driver has listed the GPU's processes `count` times: by then a sampler
// has seen the job's memory.
void wait_for_samples(const JobGpu& gpu, unsigned count) {
  constexpr std::int64_t interval_ns = 5'000'000;
  const auto end = gpu.process_lists() + count;
  while (gpu.process_lists() < end) sleep_until(monotonic_ns() + interval_ns);
}

// Writes each line by one write(2), so that the lines of jobs that share a log do not mix.
Result<void> write_log(const Options& options, std::string_view event,
                       const std::vector<JobGpu>& gpus) {
  if (options.log.empty()) return {};
  Json uuids = Json::array();
  for (const JobGpu& gpu : gpus) uuids.push_back(gpu.uuid());
  const auto lease = get_env("BERTH_LEASE");
  const Json line{{"event", event},
                  {"pid", ::getpid()},
                  {"time_ns", monotonic_ns()},
                  {"uuids", std::move(uuids)},
                  {"lease", lease ? Json(printable(*lease)) : Json(nullptr)}};
  const std::string text = to_ascii_json(line) + "\n";
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
  for (const Step& step : options.curve) {
    if (options.time && step.at >= *options.time && step.at.count() != 0) break;
    sleep_until(start + step.at.count());
    for (JobGpu& gpu : *gpus) {
      if (const auto resized = gpu.resize(step.memory); !resized)
        return report_error(resized.error());
    }
    if (step.at.count() != 0) continue;
    if (const auto logged = write_log(options, "start", *gpus); !logged)
      return report_error(logged.error());
    print_start_line(options, *gpus);
  }
  while (!options.time && options.samples == 0) ::pause();
  if (options.time) sleep_until(start + options.time->count());
  wait_for_samples(gpus->front(), options.samples);
  if (const auto logged = write_log(options, "end", *gpus); !logged)
    return report_error(logged.error());
  return options.exit_code;
}

int usage_error(std::string_view what) {
  print_problem(fmt::format("{}; see berth-sim-job --help", what));
  return exit_code(ErrorKind::usage);
}

constexpr const char* kHelp =
    "Uses the memory of every visible simulated GPU, as a training job would.\n"
    "Usage: berth-sim-job [OPTIONS]\n"
    "\n"
    "Options:\n"
    "  --mem SIZE       Memory on each GPU (default 1GiB)\n"
    "  --curve STEPS    Memory over time, instead of --mem, such as 0s:1GiB,2s:4GiB\n"
    "  --util PCT       Utilization that the driver reports (default 90)\n"
    "  --time DURATION  Run time (default: until killed)\n"
    "  --samples N      Run until the driver listed the first GPU's processes N times, too\n"
    "  --gpus N         Use only the first N visible GPUs (default: all)\n"
    "  --fail CODE      Exit code at the end of the run (default 0)\n"
    "  --log FILE       File to which to append a JSON line at start and end\n"
    "  --quiet          Do not print a line at the start\n"
    "  --version        Show the version\n"
    "  -h, --help       Show this help\n"
    "\n"
    "BERTH_SIM describes the GPUs: 4x24GiB, or a file (see docs/simulated-driver.md).\n"
    "CUDA_VISIBLE_DEVICES selects the GPUs that are visible to the job.\n"
    "\n"
    "Exit codes: 0 (or that of --fail), 1 out of memory or no GPU, 64 wrong usage,\n"
    "69 the simulated driver cannot be used.\n"
    "\n"
    "Example: BERTH_SIM=4x24GiB berth-sim-job --mem 8GiB --time 1m\n";

template <class Number>
Result<Number> parse_between(std::string_view text, Number least, Number most) {
  const auto number = parse_integer<Number>(text);
  if (number && *number >= least && *number <= most) return *number;
  return fail(ErrorKind::usage,
              fmt::format("{} is not a number between {} and {}", in_quotes(text), least, most));
}

// Sets the option `name` to `value`.
Result<void> set_option(Options& options, std::string_view name, std::string_view value) {
  if (name == "mem") options.memory = TRY(parse_size(value));
  if (name == "curve") options.curve = TRY(parse_curve(value));
  if (name == "util") options.utilization = TRY(parse_between(value, 0U, 100U));
  if (name == "time") options.time = TRY(parse_duration(value));
  if (name == "samples") options.samples = TRY(parse_between(value, 0U, 1'000'000U));
  if (name == "gpus") options.gpus = TRY(parse_between<std::size_t>(value, 1, 64));
  if (name == "fail") options.exit_code = TRY(parse_between(value, 0, 255));
  if (name == "log") options.log = value;
  if (name == "quiet") options.quiet = true;
  return {};
}

}  // namespace

int main_of_job(int argc, char** argv) {
  static constexpr std::array<option, 12> flags{{{"mem", required_argument, nullptr, 0},
                                                 {"curve", required_argument, nullptr, 0},
                                                 {"util", required_argument, nullptr, 0},
                                                 {"time", required_argument, nullptr, 0},
                                                 {"samples", required_argument, nullptr, 0},
                                                 {"gpus", required_argument, nullptr, 0},
                                                 {"fail", required_argument, nullptr, 0},
                                                 {"log", required_argument, nullptr, 0},
                                                 {"quiet", no_argument, nullptr, 0},
                                                 {"version", no_argument, nullptr, 'v'},
                                                 {"help", no_argument, nullptr, 'h'},
                                                 {nullptr, 0, nullptr, 0}}};
  Options options;
  opterr = 0;  // getopt_long() itself prints nothing
  for (;;) {
    const char* const word = argv[optind];
    int index = 0;
    const int found = ::getopt_long(argc, argv, ":h", flags.data(), &index);
    if (found == -1) break;
    if (found == 'h') return std::fputs(kHelp, stdout) < 0 ? kExitFailed : 0;
    if (found == 'v') return std::puts("berth-sim-job " BERTH_VERSION) < 0 ? kExitFailed : 0;
    if (found == ':') return usage_error(fmt::format("{} needs a value", in_quotes(word)));
    if (found == '?') return usage_error(fmt::format("there is no option {}", in_quotes(word)));
    const char* const name = flags[static_cast<std::size_t>(index)].name;
    if (const auto set = set_option(options, name, optarg == nullptr ? "" : optarg); !set)
      return usage_error(fmt::format("--{}: {}", name, set.error().message));
  }
  if (optind < argc)
    return usage_error(fmt::format("there are no arguments such as {}", in_quotes(argv[optind])));
  if (options.memory && !options.curve.empty())
    return usage_error("--mem and --curve cannot be used together");
  if (options.curve.empty())
    options.curve.push_back({std::chrono::nanoseconds{0}, options.memory.value_or(gib(1))});
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
