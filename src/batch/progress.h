// How far a batch is, and the text that says so.
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
  std::string command;
};

struct Progress {
  std::size_t total = 0;
  std::size_t succeeded = 0;  // in an earlier batch, too
  std::size_t failed = 0;
  std::vector<RunningJob> running{};  // in the order of their start
  std::string reason{};               // why the next one waits; empty if none does
  std::chrono::nanoseconds elapsed{};
  std::optional<std::chrono::nanoseconds> left{};  // an estimate, if there is one
  bool stopping = false;

  std::size_t waiting() const { return total - succeeded - failed - running.size(); }
};

// The live block: at most `rows` lines that fit the width.
std::vector<std::string> progress_lines(const Progress& progress, const Terminal& terminal,
                                        std::size_t rows);

// Ten seconds and more to the second; what is shorter, a little more exactly.
std::string format_brief_duration(std::chrono::nanoseconds time);

// "[3/200]", of the same width for each.
std::string format_position(std::size_t number, std::size_t total);

// How long jobs take, learned as they end, and how much longer the rest will.
class RunTimes {
 public:
  void add(const std::string& type, std::chrono::nanoseconds lasted);
  // Has one of this type ended?
  bool has_type(const std::string& type) const { return types_.contains(type); }
  // Of a line of this type: by those that have ended, or by `known`, or by the others that have.
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
