// Unit tests of job_list.h: what the sources say about one job becomes one line.
#include "run/job_list.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "base/users.h"

namespace berth {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr uid_t kViewer = 1000;
constexpr uid_t kOther = 1001;
constexpr std::uint64_t kNamespace = 77;
const TimePoint kNow(std::chrono::seconds(1'790'000'000));

DetachedJob detached(const std::string& id, bool is_alive = true) {
  DetachedJob job;
  job.spec.id = id;
  job.spec.command = {"python", "train.py"};
  job.spec.submitted = kNow - hours(1);
  job.path = "/jobs/" + id;
  job.is_alive = is_alive;
  job.process = JobProcess{4711, 1, kNamespace};
  return job;
}

Record record(const std::string& id, uid_t uid = kViewer, pid_t pid = 1) {
  Record one;
  one.id = id;
  one.uid = uid;
  one.pid = pid;
  one.pid_namespace = kNamespace;
  one.since = kNow - minutes(30);
  return one;
}

Record lease(const std::string& id, uid_t uid = kViewer, pid_t pid = 1) {
  Record one = record(id, uid, pid);
  one.uuids = {"GPU-a", "GPU-b"};
  one.granted = kNow - minutes(10);
  return one;
}

HistoryEntry entry(const std::string& id, Ending ending, int code = 0, uid_t uid = kViewer) {
  HistoryEntry one;
  one.id = id;
  one.uid = uid;
  one.asked = one.granted = kNow - hours(2);
  one.ended = kNow - minutes(5);
  one.ending = ending;
  one.code = code;
  return one;
}

JobSources sources() {
  JobSources all;
  all.viewer = kViewer;
  all.now = kNow;
  all.pid_namespace = kNamespace;
  all.gpu_indices = {{"GPU-a", "0"}};
  all.parent_of = [](pid_t) { return 0; };
  return all;
}

JobInfo only_job(const JobSources& all) {
  const auto jobs = merge_jobs(all);
  EXPECT_EQ(jobs.size(), 1U);
  return jobs.empty() ? JobInfo{} : jobs.front();
}

TEST(JobList, a_detached_job_with_a_lease_runs) {
  JobSources all = sources();
  all.detached = {detached("aaaaaaaa")};
  all.leases = {lease("aaaaaaaa")};
  const JobInfo job = only_job(all);
  EXPECT_EQ(job.state, JobState::running);
  EXPECT_EQ(job.gpus, (std::vector<std::string>{"0", "GPU-b"}));
  EXPECT_EQ(job.started, kNow - minutes(10));
  EXPECT_TRUE(job.reason.empty());
  EXPECT_TRUE(job.is_detached);
}

TEST(JobList, a_killed_job_runs_as_long_as_its_lease_is_held) {
  JobSources all = sources();
  all.detached = {detached("aaaaaaaa", false)};
  all.leases = {lease("aaaaaaaa")};
  EXPECT_EQ(only_job(all).state, JobState::running);
  EXPECT_FALSE(only_job(all).reason.empty());
  all.leases.clear();
  const JobInfo job = only_job(all);
  EXPECT_EQ(job.state, JobState::ended);
  EXPECT_FALSE(job.exit_code);
  EXPECT_FALSE(job.ended);
}

TEST(JobList, another_attempt_is_found_by_the_process) {
  JobSources all = sources();
  DetachedJob job = detached("aaaaaaaa");
  job.grants = {{"aaaaaaaa", "0,1", kNow - hours(1)}};
  all.detached = {job};
  all.queue = {{record("bbbbbbbb", kViewer, 4711), 3, "GPU 0 leased by bob", std::nullopt}};
  const JobInfo waiting = only_job(all);
  EXPECT_EQ(waiting.state, JobState::waiting);
  EXPECT_EQ(waiting.position, 3U);
  EXPECT_TRUE(waiting.gpus.empty());
  // In another PID namespace the number means another process.
  all.queue.front().record.pid_namespace = kNamespace + 1;
  EXPECT_EQ(merge_jobs(all).size(), 2U);
}

TEST(JobList, records_of_another_user_are_other_jobs) {
  JobSources all = sources();
  all.detached = {detached("aaaaaaaa")};
  all.leases = {lease("aaaaaaaa", kOther, 4711)};
  all.queue = {{record("bbbbbbbb", kOther, 4711), 1, "", std::nullopt}};
  const auto jobs = merge_jobs(all);
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].state, JobState::waiting);  // its own ticket is not there yet
  EXPECT_FALSE(jobs[0].position);
  EXPECT_FALSE(jobs[1].is_own || jobs[2].is_own);
}

TEST(JobList, a_batch_is_listed_once) {
  JobSources all = sources();
  DetachedJob batch = detached("aaaaaaaa");
  batch.spec.kind = JobKind::batch;
  batch.grants = {{"eeeeeeee", "0", kNow - hours(1)}};
  batch.batch = BatchCounts{150, 10, 2, 1};
  all.detached = {batch};
  all.leases = {lease("bbbbbbbb", kViewer, 5001)};
  all.queue = {{record("cccccccc", kViewer, 5002), 1, "", std::nullopt}};
  all.history = {entry("eeeeeeee", Ending::exited)};
  all.parent_of = [](pid_t pid) { return pid > 5000 ? 4711 : 1; };
  const JobInfo job = only_job(all);
  EXPECT_EQ(job.state, JobState::running);
  EXPECT_EQ(job.origin, JobOrigin::batch);
  EXPECT_EQ(job.started, kNow - hours(1));
  EXPECT_EQ(job.leases, (std::vector<std::string>{"eeeeeeee", "bbbbbbbb"}));
  all.leases.clear();
  EXPECT_EQ(only_job(all).state, JobState::waiting);
}

TEST(JobList, a_job_that_is_held) {
  JobSources all = sources();
  all.detached = {detached("aaaaaaaa")};
  all.detached.front().held = "waits for job bbbbbbbb to end";
  EXPECT_EQ(only_job(all).state, JobState::held);
  all.queue = {{record("aaaaaaaa"), 1, "", std::nullopt}};
  EXPECT_EQ(only_job(all).state, JobState::waiting);
  all.detached.front().finish = JobFinish{kNow, 69, "no GPU here has 90 GiB of memory"};
  EXPECT_EQ(only_job(all).state, JobState::ended);
  EXPECT_EQ(only_job(all).exit_code, 69);
  EXPECT_EQ(only_job(all).reason, "no GPU here has 90 GiB of memory");
}

TEST(JobList, the_ends_of_jobs_without_a_folder) {
  JobSources all = sources();
  const auto code = [&](Ending ending, int number) {
    all.history = {entry("aaaaaaaa", ending, number)};
    return only_job(all).exit_code;
  };
  EXPECT_EQ(code(Ending::exited, 3), 3);
  EXPECT_EQ(code(Ending::killed, 9), 137);
  EXPECT_EQ(code(Ending::released, 0), std::nullopt);
  EXPECT_TRUE(only_job(all).is_released);
  EXPECT_EQ(code(Ending::lost, 0), std::nullopt);
  EXPECT_FALSE(only_job(all).reason.empty());
  EXPECT_EQ(code(Ending::running, 0), std::nullopt);
  EXPECT_EQ(only_job(all).state, JobState::running);
}

TEST(JobList, the_history_does_not_repeat_a_job) {
  JobSources all = sources();
  DetachedJob job = detached("aaaaaaaa", false);
  job.grants = {{"aaaaaaaa", "0", kNow}, {"bbbbbbbb", "0", kNow}};
  job.finish = JobFinish{kNow, 0, ""};
  all.detached = {job};
  all.leases = {lease("cccccccc")};
  all.history = {entry("aaaaaaaa", Ending::exited, 1), entry("bbbbbbbb", Ending::exited),
                 entry("cccccccc", Ending::running), entry("aaaaaaaa", Ending::exited, 5, kOther)};
  const auto jobs = merge_jobs(all);
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].exit_code, 5);  // the other user's, which was submitted first
  EXPECT_FALSE(jobs[0].is_own);
  EXPECT_EQ(jobs[1].exit_code, 0);
  EXPECT_EQ(jobs[2].id, "cccccccc");
}

Status other_host(const std::string& name) {
  Status other;
  other.host = name;
  other.is_remote = true;
  return other;
}

TEST(JobList, a_detached_job_on_another_host_is_one_job) {
  JobSources all = sources();
  all.host = "head";
  all.detached = {detached("aaaaaaaa")};
  all.detached.front().spec.remote_hosts = {"any"};
  all.other_hosts = {other_host("gpu-a"), other_host("gpu-b")};
  for (Status& other : all.other_hosts)
    other.queue = {{record("aaaaaaaa"), other.host == "gpu-a" ? 2U : 1U, "busy", std::nullopt}};
  const JobInfo waiting = only_job(all);
  EXPECT_EQ(waiting.state, JobState::waiting);
  EXPECT_EQ(waiting.host, "");
  EXPECT_EQ(waiting.queue_hosts, (std::vector<std::string>{"gpu-a", "gpu-b"}));
  EXPECT_EQ(waiting.position, 1U);
  EXPECT_EQ(waiting.reason, "gpu-a: busy; gpu-b: busy");
  for (Status& other : all.other_hosts) other.queue.clear();
  all.other_hosts[1].leases = {lease("bbbbbbbb")};
  all.other_hosts[1].leases.front().job_id = "aaaaaaaa";
  all.history = {entry("bbbbbbbb", Ending::running)};
  all.history.front().host = "gpu-b";
  all.history.front().job_id = "aaaaaaaa";
  const JobInfo running = only_job(all);
  EXPECT_EQ(running.state, JobState::running);
  EXPECT_EQ(running.host, "gpu-b");
  EXPECT_EQ(running.leases, std::vector<std::string>{"bbbbbbbb"});
  // Its berth process is killed: the other host says how it ends.
  all.detached.front().is_alive = false;
  EXPECT_EQ(only_job(all).state, JobState::running);
  EXPECT_FALSE(only_job(all).reason.empty());
  all.other_hosts[1].leases.clear();
  all.history.front().ending = Ending::exited;
  all.history.front().code = 3;
  EXPECT_EQ(only_job(all).state, JobState::ended);
  EXPECT_EQ(only_job(all).exit_code, 3);
}

TEST(JobList, another_host_cannot_say_anything_about_a_job_of_this_host) {
  JobSources all = sources();
  all.host = "head";
  all.detached = {detached("aaaaaaaa", false)};
  all.other_hosts = {other_host("gpu-a")};
  all.other_hosts.front().leases = {lease("aaaaaaaa"), lease("bbbbbbbb")};
  all.other_hosts.front().leases.back().job_id = "aaaaaaaa";
  const auto jobs = merge_jobs(all);
  ASSERT_EQ(jobs.size(), 3U);
  const auto own =
      std::find_if(jobs.begin(), jobs.end(), [](const JobInfo& job) { return job.is_detached; });
  EXPECT_EQ(own->state, JobState::ended);
  EXPECT_TRUE(own->leases.empty());
}

TEST(JobList, a_process_of_another_host_is_not_one_of_this_host) {
  JobSources all = sources();
  all.detached = {detached("aaaaaaaa")};
  all.detached.front().spec.remote_hosts = {"any"};
  all.other_hosts = {other_host("gpu-a")};
  all.other_hosts.front().leases = {lease("bbbbbbbb", kViewer, 4711)};
  EXPECT_EQ(merge_jobs(all).size(), 2U);
}

TEST(JobList, the_attempts_of_a_sent_job_are_one_job) {
  JobSources all = sources();
  all.history = {entry("bbbbbbbb", Ending::exited, 1), entry("cccccccc", Ending::exited, 0)};
  for (HistoryEntry& one : all.history) {
    one.host = "gpu-a";
    one.job_id = "aaaaaaaa";
  }
  const JobInfo job = only_job(all);
  EXPECT_EQ(job.id, "aaaaaaaa");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.leases, (std::vector<std::string>{"bbbbbbbb", "cccccccc"}));
}

TEST(JobList, a_killed_job_of_another_harbour_runs_as_long_as_its_bell_is_held) {
  JobSources all = sources();
  all.detached = {detached("aaaaaaaa", false)};
  all.held_jobs = {"aaaaaaaa"};
  EXPECT_EQ(only_job(all).state, JobState::running);
  EXPECT_FALSE(only_job(all).reason.empty());
}

}  // namespace
}  // namespace berth
