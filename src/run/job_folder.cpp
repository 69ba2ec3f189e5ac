// Makes, reads and removes the folders of detached jobs; see job_folder.h.
#include "run/job_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <pwd.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/configuration.h"
#include "base/descriptors.h"
#include "base/environment.h"
#include "base/file_trust.h"
#include "base/json.h"
#include "base/read_file.h"
#include "base/text.h"
#include "harbour/record.h"

namespace berth {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr std::size_t kMaxFileSize = std::size_t{16} << 20;
// A process that makes a folder is given this time before the folder counts as left over.
constexpr std::chrono::minutes kMakingTime(10);

Error folder_error(const char* action, const std::string& path) {
  return {ErrorKind::io,
          fmt::format("cannot {} {}: {}", action, in_quotes(path), std::strerror(errno))};
}

// Empty if it has none. Threads of `berth serve` may look up users at the same time.
std::string home_in_user_directory() {
  std::vector<char> buffer(1024);
  passwd entry{};
  passwd* found = nullptr;
  while (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) == ERANGE) {
    buffer.resize(buffer.size() * 2);
  }
  return found == nullptr || found->pw_dir == nullptr ? "" : found->pw_dir;
}

// Root may have the variables of a user (sudo -E), who can replace a folder of theirs by a link to
// any other while a job of root writes there, or while old jobs are removed.
bool is_safe_place(const std::string& folder) {
  return ::geteuid() != 0 || is_roots_path(folder);
}

// Empty if the user has none. Berth makes no home folder: that of a system user is often a path
// that does not exist.
std::string home_folder() {
  std::string home(get_env_or_empty("HOME"));
  if (!home.starts_with('/') || !is_safe_place(home + "/.local/state/berth"))
    home = home_in_user_directory();
  struct stat info {};
  return ::stat(home.c_str(), &info) == 0 && S_ISDIR(info.st_mode) ? home : "";
}

// Makes the folder and those above it, as XDG demands: for the user alone.
Result<void> make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (::mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST)
      return tl::make_unexpected(folder_error("make the folder", folder));
    if (end == std::string::npos) return {};
  }
}

UniqueFd open_new(const std::string& path, int flags) {
  return UniqueFd(::open(path.c_str(), flags | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
}

std::int64_t to_ms(TimePoint time) {
  return std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

TimePoint from_ms(const Json* value) {
  const auto ms = value == nullptr ? std::nullopt : value->as_integer();
  return TimePoint(std::chrono::milliseconds(ms.value_or(0)));
}

std::string text_of(const Json& object, std::string_view key) {
  const Json* const value = object.find(key);
  const std::string* const text = value == nullptr ? nullptr : value->as_string();
  return text == nullptr ? "" : *text;
}

std::vector<std::string> texts_of(const Json& object, std::string_view key) {
  std::vector<std::string> texts;
  const Json* const value = object.find(key);
  const Json::Array* const words = value == nullptr ? nullptr : value->as_array();
  if (words == nullptr) return texts;
  for (const Json& word : *words) {
    if (const std::string* const text = word.as_string()) texts.push_back(*text);
  }
  return texts;
}

std::uint64_t number_of(const Json& object, std::string_view key) {
  const Json* const value = object.find(key);
  return value == nullptr ? 0 : value->as_unsigned().value_or(0);
}

const char* kind_name(JobKind kind) {
  return kind == JobKind::batch ? "batch" : "run";
}

std::string format_spec(const JobSpec& spec) {
  return to_ascii_json({{"version", 1},
                        {"id", spec.id},
                        {"kind", kind_name(spec.kind)},
                        {"command", spec.command},
                        {"label", spec.label},
                        {"directory", spec.directory},
                        {"host", spec.host},
                        {"harbour", spec.harbour},
                        {"submitted_ms", to_ms(spec.submitted)},
                        {"line_logs", spec.line_logs},
                        {"remote_hosts", spec.remote_hosts}}) +
         "\n";
}

JobSpec parse_spec(const Json& json) {
  JobSpec spec{text_of(json, "id"),
               JobKind::run,
               {},
               text_of(json, "label"),
               text_of(json, "directory"),
               text_of(json, "host"),
               text_of(json, "harbour"),
               from_ms(json.find("submitted_ms")),
               text_of(json, "line_logs")};
  if (text_of(json, "kind") == kind_name(JobKind::batch)) spec.kind = JobKind::batch;
  spec.command = texts_of(json, "command");
  spec.remote_hosts = texts_of(json, "remote_hosts");
  return spec;
}

void apply_event(const Json& event, DetachedJob& job) {
  const std::string name = text_of(event, "event");
  const TimePoint at = from_ms(event.find("at_ms"));
  if (name == "started") {
    job.process = JobProcess{static_cast<pid_t>(number_of(event, "pid")),
                             number_of(event, "start_ticks"), number_of(event, "pid_namespace")};
  } else if (name == "held") {
    job.held = text_of(event, "reason");
  } else if (name == "granted") {
    job.grants.push_back(
        {text_of(event, "lease"), text_of(event, "gpus"), at, text_of(event, "host")});
  } else if (name == "finished") {
    // Without a code the end is unknown, and not a success.
    const Json* const code = event.find("code");
    const auto number = code == nullptr ? std::nullopt : code->as_unsigned();
    if (number) job.finish = JobFinish{at, static_cast<int>(*number), text_of(event, "message")};
  }
}

std::optional<std::string> read_small_file(const std::string& path) {
  // Root may run with the HOME of a user (sudo -E), who can put a FIFO or a forged file here.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != ::geteuid())
    return std::nullopt;
  return read_to_end(file.get(), kMaxFileSize);
}

// A line that is not complete (a full disk) is skipped.
void read_events(DetachedJob& job) {
  const std::string text = read_small_file(job.path + "/events").value_or("");
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (const auto event = parse_json(line)) apply_event(*event, job);
  }
}

void read_progress(DetachedJob& job) {
  const auto text = read_small_file(job.path + "/progress.json");
  const auto json = text ? parse_json(*text) : tl::make_unexpected(Error{});
  if (!json) return;
  job.batch = BatchCounts{number_of(*json, "total"), number_of(*json, "succeeded"),
                          number_of(*json, "failed"), number_of(*json, "running")};
}

std::optional<DetachedJob> read_job(const std::string& path) {
  const auto text = read_small_file(path + "/spec.json");
  if (!text) return std::nullopt;
  const auto json = parse_json(*text);
  if (!json) return std::nullopt;
  DetachedJob job{parse_spec(*json), path};
  if (!is_id(job.spec.id)) return std::nullopt;
  // Before the events: a process that ends now has written its last event before it drops the lock.
  job.is_alive = is_job_alive(path);
  read_events(job);
  read_progress(job);
  return job;
}

// Not a link, and not of another user, whose HOME root has kept.
bool is_own_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

std::vector<std::string> job_folders() {
  std::vector<std::string> found;
  const auto path = jobs_path();
  if (!path || !is_own_folder(*path)) return found;
  std::error_code problem;
  fs::directory_iterator entry(*path, problem);
  for (; !problem && entry != fs::directory_iterator(); entry.increment(problem)) {
    if (is_own_folder(entry->path().string())) found.push_back(entry->path().string());
  }
  return found;
}

TimePoint modification_time(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return TimePoint(std::chrono::seconds(info.st_mtim.tv_sec));
}

}  // namespace

Result<std::string> jobs_path() {
  // XDG: a path that is not absolute counts as not set.
  const auto state = get_env_or_empty("XDG_STATE_HOME");
  if (const auto folder = fmt::format("{}/berth", state);
      state.starts_with('/') && is_safe_place(folder))
    return folder + "/jobs";
  const std::string home = home_folder();
  if (!home.starts_with('/')) {
    return fail(ErrorKind::io,
                "this user has no home folder, where Berth could write the output of a detached "
                "job; set XDG_STATE_HOME to a folder");
  }
  return fmt::format("{}/.local/state/berth/jobs", home);
}

Result<NewJobFolder> make_job_folder(JobSpec spec) {
  const std::string jobs = TRY(jobs_path());
  TRY(make_folders(jobs));
  if (!is_own_folder(jobs)) {
    return fail(ErrorKind::permission,
                fmt::format("{} is a link, or belongs to another user; set HOME or XDG_STATE_HOME "
                            "to a folder of your own",
                            in_quotes(jobs)));
  }
  NewJobFolder folder;
  do {
    spec.id = make_id();
    folder.path = fmt::format("{}/{}", jobs, spec.id);
    if (::mkdir(folder.path.c_str(), kFolderMode) == 0) break;
    if (errno != EEXIST) return tl::make_unexpected(folder_error("make the folder", folder.path));
  } while (true);
  spec.submitted = std::chrono::system_clock::now();
  // On NFS, only a descriptor for writing can have an exclusive lock.
  folder.alive = open_new(folder.path + "/alive", O_RDWR);
  folder.events = open_new(folder.path + "/events", O_WRONLY | O_APPEND);
  folder.output = open_new(folder.path + "/output", O_WRONLY | O_APPEND);
  const std::string unfinished = folder.path + "/spec.new";
  const UniqueFd file = open_new(unfinished, O_WRONLY);
  const bool written = folder.alive && ::flock(folder.alive.get(), LOCK_EX) == 0 && folder.events &&
                       folder.output && file && write_all(file.get(), format_spec(spec)) &&
                       ::rename(unfinished.c_str(), (folder.path + "/spec.json").c_str()) == 0;
  if (!written) {
    Error problem = folder_error("write to", folder.path);
    remove_job_folder(folder.path);
    return tl::make_unexpected(std::move(problem));
  }
  folder.spec = std::move(spec);
  return folder;
}

void remove_job_folder(const std::string& path) {
  std::error_code problem;
  fs::remove(path + "/spec.json", problem);  // first: a folder without it is not a job
  fs::remove_all(path, problem);
}

Result<std::vector<DetachedJob>> list_jobs() {
  return list_jobs(std::vector<DetachedJob>());
}

Result<std::vector<DetachedJob>> list_jobs(std::vector<DetachedJob> known) {
  TRY(jobs_path());
  std::map<std::string, DetachedJob> ended;
  for (DetachedJob& job : known) {
    if (!job.is_alive) ended.emplace(job.path, std::move(job));
  }
  std::vector<DetachedJob> jobs;
  for (const std::string& path : job_folders()) {
    if (const auto found = ended.find(path); found != ended.end()) {
      jobs.push_back(std::move(found->second));
    } else if (auto job = read_job(path)) {
      jobs.push_back(std::move(*job));
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const DetachedJob& one, const DetachedJob& other) {
    return std::pair(one.spec.submitted, one.spec.id) <
           std::pair(other.spec.submitted, other.spec.id);
  });
  return jobs;
}

Result<DetachedJob> find_job(const std::string& id) {
  const std::string jobs = TRY(jobs_path());
  auto job = is_id(id) ? read_job(fmt::format("{}/{}", jobs, id)) : std::nullopt;
  if (job) return std::move(*job);
  // Another attempt (--retry-oom) has a lease with an id of its own. That of a line of a batch is
  // another job.
  for (DetachedJob& one : is_id(id) ? TRY(list_jobs()) : std::vector<DetachedJob>{}) {
    const bool has_lease = std::any_of(one.grants.begin(), one.grants.end(),
                                       [&](const JobGrant& grant) { return grant.lease == id; });
    if (has_lease && one.spec.kind == JobKind::run) return std::move(one);
  }
  return fail(ErrorKind::usage,
              fmt::format("there is no detached job {}; 'berth jobs' lists them", in_quotes(id)));
}

bool is_job_alive(const std::string& path) {
  const UniqueFd file(
      ::open((path + "/alive").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // Without a free descriptor, or on a file system without locks, this is unknown: the job may be
  // alive.
  if (!file) return errno != ENOENT;
  return ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

void remove_old_jobs(std::chrono::seconds age) {
  const TimePoint now = std::chrono::system_clock::now();
  for (const std::string& path : job_folders()) {
    if (!is_id(fs::path(path).filename().string())) continue;
    // A job does not end before its folder was made, so most folders need no further look.
    const bool has_spec = ::access((path + "/spec.json").c_str(), F_OK) == 0;
    if (modification_time(path) + (has_spec ? age : kMakingTime) >= now) continue;
    if (is_job_alive(path)) continue;
    const auto job = read_job(path);
    const TimePoint last_change =
        std::max(modification_time(path), modification_time(path + "/output"));
    const TimePoint ended = job && job->finish ? job->finish->at : last_change;
    const std::chrono::seconds kept = job ? age : kMakingTime;
    if (ended + kept < now) remove_job_folder(path);
  }
}

void remove_expired_jobs() {
  const auto settings = read_configuration();
  if (settings) remove_old_jobs(std::chrono::ceil<std::chrono::seconds>(settings->job_keep));
}

}  // namespace berth
