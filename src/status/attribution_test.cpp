// Unit tests of the attribution of processes to leases.
#include "status/attribution.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "base/process.h"
#include "status/host_view.h"

namespace berth {
namespace {

constexpr uid_t kAnn = 2001;
constexpr uid_t kBob = 2002;

Gpu gpu() {
  Gpu gpu;
  gpu.uuid = "GPU-1";
  gpu.memory_total = gib(24);
  gpu.memory_used = mib(40);
  return gpu;
}

Record lease(std::string id, uid_t uid, pid_t pid) {
  Record record;
  record.id = std::move(id);
  record.uid = uid;
  record.pid = pid;
  record.pid_namespace = pid_namespace();
  record.uuids = {"GPU-1"};
  record.request.memory = gib(1);
  return record;
}

GpuProcess process(uid_t uid, std::vector<Ancestor> lineage) {
  GpuProcess process;
  process.pid = lineage.front().pid;
  process.name = lineage.front().name;
  process.uid = uid;
  process.memory = mib(30);
  process.lineage = std::move(lineage);
  return process;
}

TEST(Attribution, by_descent) {
  const auto job = process(kBob, {{30, kBob, "python"}, {20, 0, "sudo"}, {10, kAnn, "berth"}});
  const std::vector<Record> leases{lease("bobs", kBob, 11), lease("anns", kAnn, 10)};
  EXPECT_EQ(find_lease_id(job, gpu(), leases), "anns");
  EXPECT_TRUE(runs_under(job, leases[1]));
  EXPECT_FALSE(runs_under(job, leases[0]));
}

TEST(Attribution, not_by_a_number_that_another_users_process_has) {
  const auto job = process(kBob, {{30, kBob, "python"}, {10, kBob, "bash"}});
  EXPECT_EQ(find_lease_id(job, gpu(), {lease("anns", kAnn, 10)}), "");
  Record elsewhere = lease("bobs", kBob, 10);
  elsewhere.pid_namespace = 1;
  EXPECT_FALSE(runs_under(job, elsewhere));
}

// Runs in its own process, in a user namespace that maps no user.
void exit_0_if_unmapped_users_differ() {
  if (::unshare(CLONE_NEWUSER) != 0) ::_exit(0);  // not allowed here
  constexpr uid_t kOverflow = 65534;
  auto job = process(kOverflow, {{30, kOverflow, "python"}, {10, kOverflow, "bash"}});
  const auto one = lease("anns", kOverflow, 10);
  job.lease = one.id;
  const auto roots = process(0, {{40, 0, "python"}});
  const bool stranger = find_lease_id(job, gpu(), {one}).empty() && !runs_under(job, one) &&
                        find_lease_id(job, gpu(), {one, lease("bobs", kOverflow, 11)}).empty();
  ::_exit(stranger && !runs_under(roots, one) ? 0 : 1);
}

TEST(Attribution, two_users_that_the_namespace_does_not_map_are_not_one) {
  // Starts a new process, since a process reads the map of uids only once.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_0_if_unmapped_users_differ(), testing::ExitedWithCode(0), "");
}

TEST(Attribution, by_the_environment_of_the_same_user) {
  auto job = process(kAnn, {{30, kAnn, "python"}});
  job.lease = "second";
  const std::vector<Record> leases{lease("first", kAnn, 10), lease("second", kAnn, 11)};
  EXPECT_EQ(find_lease_id(job, gpu(), leases), "second");
  job.uid = kBob;
  EXPECT_EQ(find_lease_id(job, gpu(), leases), "");
}

TEST(Attribution, by_the_user_if_nothing_else_is_known) {
  const auto job = process(kAnn, {{30, kAnn, "python"}});
  EXPECT_EQ(find_lease_id(job, gpu(), {lease("bobs", kBob, 10), lease("anns", kAnn, 11)}), "anns");
  EXPECT_EQ(find_lease_id(job, gpu(), {}), "");
}

const Ancestor kServer{30, kAnn, "nvidia-cuda-mps"};
const Ancestor kRootServer{30, 0, "nvidia-cuda-mps", true};
const Ancestor kControl{20, 0, "nvidia-cuda-mps", true};

TEST(DriverDaemon, is_roots_or_started_by_roots_control_daemon) {
  EXPECT_TRUE(is_driver_daemon(process(0, {kRootServer})));
  EXPECT_TRUE(is_driver_daemon(process(0, {{30, 0, "nv-hostengine", true}})));
  EXPECT_TRUE(is_driver_daemon(process(kAnn, {kServer, kControl})));
  EXPECT_FALSE(is_driver_daemon(process(0, {{30, 0, "python", true}})));
}

TEST(DriverDaemon, is_not_proven_by_its_name) {
  EXPECT_FALSE(is_driver_daemon(process(kAnn, {kServer})));
  EXPECT_FALSE(is_driver_daemon(process(kAnn, {{30, kAnn, "nv-hostengine"}, kControl})));
  EXPECT_FALSE(is_driver_daemon(process(kAnn, {kServer, {20, kAnn, "nvidia-cuda-mps"}})));
  EXPECT_FALSE(is_driver_daemon(process(kAnn, {kServer, {20, 0, "sshd", true}})));
  // A link of that name to a setuid program such as su: it runs as root, but a user has started it.
  EXPECT_FALSE(is_driver_daemon(process(kAnn, {kServer, {20, 0, "nvidia-cuda-mps", false}})));
  // A grandchild of the control daemon is a program that a user made the server start.
  EXPECT_FALSE(is_driver_daemon(process(kAnn, {kServer, kServer, kControl})));
  auto in_container = process(0, {kRootServer});
  in_container.lineage.clear();
  EXPECT_FALSE(is_driver_daemon(in_container));
}

TEST(DriverDaemon, uses_little_memory) {
  auto server = process(0, {kRootServer});
  server.memory = gib(8);  // the memory of its clients
  EXPECT_FALSE(is_driver_daemon(server));
  server.memory.reset();
  EXPECT_FALSE(is_driver_daemon(server));
}

TEST(DriverDaemon, leaves_its_gpu_free_and_takes_its_memory) {
  Gpu card = gpu();
  card.processes = {process(0, {kRootServer})};
  const HostView view = make_host_view({"", {card}}, {}, {});
  EXPECT_FALSE(view.gpus[0].processes[0].is_stranger());
  const PlanInput input = make_plan_input(view, {}, {});
  EXPECT_EQ(input.gpus[0].strangers, 0U);
  EXPECT_EQ(input.gpus[0].strangers_memory, mib(30));
}

TEST(HostMemory, counts_all_that_the_leases_do_not_have_on_the_gpu) {
  Gpu card = gpu();
  card.memory_is_hosts = true;
  card.memory_total = gib(119);
  card.memory_used = gib(40);
  auto job = process(kAnn, {{30, kAnn, "python"}});
  job.memory = gib(30);
  card.processes = {job};
  const HostView view = make_host_view({"", {card}}, {lease("anns", kAnn, 30)}, {});
  const PlanInput input = make_plan_input(view, {}, {});
  EXPECT_EQ(input.gpus[0].strangers, 0U);
  EXPECT_EQ(input.gpus[0].strangers_memory, gib(10));
}

TEST(HostMemory, reservations_are_added_to_what_the_host_uses) {
  Gpu card = gpu();
  card.memory_is_hosts = true;
  card.memory_total = gib(119);
  card.memory_used = gib(40);
  auto job = process(kAnn, {{30, kAnn, "python"}});
  job.memory = gib(30);
  card.processes = {job};
  Record reserves = lease("anns", kAnn, 30);
  reserves.request.memory = gib(64);
  Record idle = lease("bobs", kBob, 40);
  idle.request.memory = gib(5);
  const HostView view = make_host_view({"", {card}}, {reserves, idle}, {});
  PlanInput input = make_plan_input(view, {}, {});
  ASSERT_EQ(input.leases.size(), 2U);
  EXPECT_EQ(input.leases[0].memory, gib(64));
  EXPECT_EQ(input.leases[0].observed, gib(30));
  EXPECT_EQ(input.leases[1].memory, gib(5));
  EXPECT_EQ(input.gpus[0].strangers_memory, gib(10));
  // 119 - 64 - 5 - 10 GiB are left, of which some is kept for contexts.
  Request fits;
  fits.memory = gib(39);
  Request too_large;
  too_large.memory = gib(41);
  input.tickets = {{"first", too_large}};
  EXPECT_TRUE(plan(input)[0].wait);
  input.tickets = {{"first", fits}};
  EXPECT_TRUE(plan(input)[0].grant);
}

}  // namespace
}  // namespace berth
