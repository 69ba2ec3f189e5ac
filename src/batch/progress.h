// The progress of a batch, and its text for the terminal. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/terminal.h"

namespace berth::batch {

struct RunningJob {
  std::string gpus;  // "0,1"
  std::chrono::nanoseconds lasted{};
  std::size_t number = 0;  // of the line
  std::string command;
  std::string short_command{};  // shown if not all whole commands fit; see DifferingWords
};

struct Progress {
  std::size_t total = 0;
  std::size_t succeeded = 0;  // including those of an earlier batch
  std::size_t failed = 0;
  std::vector<RunningJob> running{};  // in the order of their start
  std::string reason{};               // why the next line waits; empty if no line waits
  std::optional<std::chrono::nanoseconds> starts_in{};  // estimate of when that line starts
  std::chrono::nanoseconds elapsed{};
  std::optional<std::chrono::nanoseconds> left{};  // estimate; nullopt: unknown
  bool stopping = false;

  std::size_t waiting() const { return total - succeeded - failed - running.size(); }
};

// The progress block for a terminal: at most `rows` lines, each of which fits the width.
std::vector<std::string> progress_lines(const Progress& progress, const Terminal& terminal,
                                        std::size_t rows);

// "waiting, starts in about 40m: GPU 0 leased by bob".
std::string format_waiting(const Progress& progress);

// From 10 s on in whole seconds, from 1 s on in tenths, below that in milliseconds.
std::string format_brief_duration(std::chrono::nanoseconds time);

// "[  3/200]": the width is the same for all numbers up to `total`.
std::string format_position(std::size_t number, std::size_t total);

// The run times of the jobs of this batch, and estimates from them.
class RunTimes {
 public:
  // The learned run time of a type, in seconds; nullopt: unknown. May read a file, so it is called
  // only if needed, and its result is kept until a line of that type ends.
  using KnownSeconds = std::function<std::optional<double>(const std::string& type)>;

  explicit RunTimes(KnownSeconds known = nullptr) : read_known_(std::move(known)) {}

  void add(const std::string& type, std::chrono::nanoseconds lasted);
  // A line of this type has ended, so its profile may have changed.
  void on_line_ended(const std::string& type) { known_.erase(type); }
  // The expected run time of a line: the average of its type; without one the known value; without
  // that the average of all types; nullopt without any of those.
  std::optional<double> expected_seconds(const std::string& type);

 private:
  struct Sum {
    double seconds = 0;
    double count = 0;
  };
  std::map<std::string, Sum> types_;
  Sum all_;
  KnownSeconds read_known_;
  std::map<std::string, std::optional<double>> known_;  // the results of read_known_
};

// A line that runs or waits for GPUs.
struct StartedLine {
  std::string type;
  std::optional<std::chrono::nanoseconds> lasted{};  // nullopt: it waits
};

// The time until all lines have ended. Assumes that as many lines as now keep running at once.
// `to_start` is the number of lines of each type that are not started. nullopt: unknown.
std::optional<std::chrono::nanoseconds> estimate_time_left(
    RunTimes& run_times, const std::map<std::string, std::size_t>& to_start,
    const std::vector<StartedLine>& started);

}  // namespace berth::batch
