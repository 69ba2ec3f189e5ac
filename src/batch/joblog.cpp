// Reads and writes joblogs; see joblog.h.
#include "batch/joblog.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/read_file.h"
#include "base/text.h"
#include "base/time_text.h"

namespace berth::batch {
namespace {

std::string to_line(const Json& json) {
  return to_utf8_json(json) + "\n";
}

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(
             std::chrono::floor<std::chrono::milliseconds>(std::max(end, begin) - begin))
      .count();
}

std::size_t count_field(const Json& json, const char* name) {
  return number_field<std::size_t>(json, name).value_or(0);
}

void apply_event(const Json& json, JoblogContent& content) {
  const std::string event = string_field(json, "event");
  if (event == "begin") {
    content.is_joblog = true;
    content.finished = false;
    content.total = count_field(json, "lines");
  } else if (event == "line" && !string_field(json, "key").empty()) {
    content.is_joblog = true;
    content.finished = false;
    content.lines[string_field(json, "key")] = bool_field(json, "succeeded");
  } else if (event == "end") {
    content.is_joblog = true;
    content.finished = count_field(json, "failed") == 0 && count_field(json, "not_run") == 0;
  }
}

tl::unexpected<Error> cannot_read(const std::string& path, int reason) {
  return fail(ErrorKind::io,
              fmt::format("batch: the joblog {} cannot be read: {}; choose another --joblog",
                          in_quotes(path), std::strerror(reason)));
}

Result<void> check_owner(const UniqueFd& file, const std::string& path) {
  if (is_own_file(file.get())) return {};
  return fail(ErrorKind::io,
              fmt::format("batch: the joblog {} must be your own regular file with a single "
                          "hard link; choose another --joblog",
                          in_quotes(path)));
}

Result<std::string> read_text(const UniqueFd& file, const std::string& path) {
  auto text = read_to_end(file.get(), std::string::npos);
  if (!text) return cannot_read(path, errno);
  return std::move(*text);
}

Result<JoblogContent> parse_checked(const std::string& text, const std::string& path) {
  JoblogContent content = parse_joblog(text);
  if (text.empty() || content.is_joblog) return content;
  return fail(ErrorKind::usage,
              fmt::format("batch: {} is not a joblog; choose another --joblog", in_quotes(path)));
}

}  // namespace

std::optional<int> LineResult::signal() const {
  constexpr int kLastSignal = 64;
  return code > 128 && code <= 128 + kLastSignal ? std::optional(code - 128) : std::nullopt;
}

std::size_t JoblogContent::succeeded() const {
  return static_cast<std::size_t>(
      std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.second; }));
}

JoblogContent parse_joblog(std::string_view text) {
  JoblogContent content;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto json = parse_json(line);
    if (json && json->is_object()) apply_event(*json, content);
  }
  return content;
}

std::string format_joblog_line(const BatchLine& line, const LineResult& result) {
  const auto text = [](const std::string& one) { return one.empty() ? Json(nullptr) : Json(one); };
  return to_line({{"event", "line"},
                  {"key", line.key},
                  {"number", line.number},
                  {"line", line.line == 0 ? Json(nullptr) : Json(line.line)},
                  {"command", line.command},
                  {"succeeded", result.succeeded()},
                  {"exit_code", result.code},
                  {"signal", or_null(result.signal())},
                  {"timed_out", result.timed_out},
                  {"out_of_memory", result.out_of_memory},
                  {"attempts", result.attempts},
                  {"begin", format_iso_time(result.begin)},
                  {"end", format_iso_time(result.end)},
                  {"lasted_s", seconds_between(result.begin, result.end)},
                  {"lease", text(result.lease)},
                  {"gpus", text(result.gpus)},
                  {"log", text(result.log)}});
}

Result<Joblog> Joblog::open(const std::string& path, const LogFolder& logs) {
  Joblog joblog;
  joblog.path_ = path;
  // In a shared folder another user may have put something else at this path: a link, a FIFO, or a
  // joblog of their own, which could claim that lines have succeeded that never ran.
  joblog.file_ = logs.open_file(path, O_RDWR | O_CREAT | O_APPEND);
  if (!joblog.file_) {
    return fail(ErrorKind::io,
                fmt::format("batch: the joblog {} cannot be written: {}; choose another --joblog",
                            in_quotes(path), std::strerror(errno)));
  }
  TRY(check_owner(joblog.file_, path));
  // On a file system without locks, flock() fails with another error: two batches are not detected.
  if (::flock(joblog.file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return fail(ErrorKind::usage,
                fmt::format("batch: another batch is running with the joblog {}; wait for it, or "
                            "choose another --logs",
                            in_quotes(path)));
  }
  const std::string text = TRY(read_text(joblog.file_, path));
  joblog.content_ = TRY(parse_checked(text, path));
  joblog.last_line_incomplete_ = !text.empty() && !text.ends_with('\n');
  return joblog;
}

Result<JoblogContent> read_joblog(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return JoblogContent{};
  if (!file) return cannot_read(path, errno);
  TRY(check_owner(file, path));
  return parse_checked(TRY(read_text(file, path)), path);
}

void Joblog::clear() {
  if (::ftruncate(file_.get(), 0) != 0) problem_ = errno;
  content_ = {};
  last_line_incomplete_ = false;
}

void Joblog::write_begin(std::size_t total, TimePoint now) {
  append(to_line({{"event", "begin"}, {"lines", total}, {"begin", format_iso_time(now)}}));
}

void Joblog::write_line(const BatchLine& line, const LineResult& result) {
  append(format_joblog_line(line, result));
}

void Joblog::write_end(const LineCounts& counts, TimePoint now) {
  append(to_line({{"event", "end"},
                  {"succeeded", counts.succeeded},
                  {"failed", counts.failed},
                  {"not_run", counts.interrupted + counts.not_started},
                  {"interrupted", counts.interrupted},
                  {"end", format_iso_time(now)}}));
}

void Joblog::append(const std::string& line) {
  const std::string text = last_line_incomplete_ ? "\n" + line : line;
  const ssize_t wrote = ::write(file_.get(), text.data(), text.size());
  if (wrote < 0) problem_ = errno;
  const bool whole_line = wrote == static_cast<ssize_t>(text.size());
  if (wrote >= 0 && !whole_line) problem_ = ENOSPC;
  if (wrote > 0) last_line_incomplete_ = !whole_line;
}

std::optional<std::string> Joblog::problem() const {
  if (problem_ == 0) return std::nullopt;
  return fmt::format("the joblog {} cannot be written: {}; --resume may run finished lines again",
                     in_quotes(path_), std::strerror(problem_));
}

}  // namespace berth::batch
