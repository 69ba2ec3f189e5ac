// The progress of a batch, and its text for the terminal. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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
  void add(const std::string& type, std::chrono::nanoseconds lasted);
  // Whether a job of this type has ended.
  bool has_type(const std::string& type) const { return types_.contains(type); }
  // The expected run time of a line: the average of its type; without one `known`, the value of its
  // profile; without that the average of all types; nullopt without any of those.
  std::optional<double> estimate_seconds(const std::string& type,
                                         std::optional<double> known) const;

 private:
  struct Sum {
    double seconds = 0;
    double count = 0;
  };
  std::map<std::string, Sum> types_;
  Sum all_;
};

}  // namespace berth::batch
