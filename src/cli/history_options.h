// Which part of the history is meant: the flags that `berth log` and `berth report` share.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "lease/lease_history.h"
#include "cli/flags.h"

namespace berth {

struct HistoryOptions {
  TimePoint since;
  LeaseFilter of;
  std::string gpus;  // a list, or nothing for all
};

// All of the last hours.
HistoryOptions last(std::chrono::hours time);

// Declares --since, --user, --host and --gpu. `options` lives as long as the command.
void declare_history_options(Flags& command, HistoryOptions& options, const char* since_help);

// From what a user wrote. Errors (ErrorKind::usage) are to be read after the name of the flag.
Result<void> set_since(HistoryOptions& options, std::string_view text);
Result<void> set_user(HistoryOptions& options, std::string_view text);
Result<void> set_host(HistoryOptions& options, std::string_view text);
Result<void> set_gpus(HistoryOptions& options, std::string_view text);

// Is the GPU in the list? By its index as it was then: the driver is not asked, and it may be gone.
bool names_gpu(std::string_view list, std::string_view uuid, std::string_view index);
bool wanted(const HistoryEntry& entry, const HistoryOptions& options);

// Where only one host is known, its name means all of it, and another's nothing.
HistoryOptions settled(HistoryOptions options, const HarbourLocation& where);

// Says what was left out, if anything was: damaged lines, and what was too much to read.
void say_left_out(std::size_t damaged, bool truncated, const HarbourLocation& where);

}  // namespace berth
