"""berth adopt: a process that uses GPUs without a lease gets one, and keeps it until it ends."""

import json
import os
import pathlib
import signal
import subprocess

import harbour_client
import pytest
from conftest import BERTH, SIM_JOB, assert_fit_for_terminal, assert_one_line_error
from leasing import eventually, gpu, is_alive, jobs, keepers, only_keeper, state_of  # noqa: F401
from processes import ALICE
from test_commands import as_user, users  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.needs_root  # user names, other users, namespaces


def leases(server):
    return {lease["id"]: lease for one in server.status()["gpus"] for lease in one["leases"]}


def adopt(server, pid, *flags):
    result = server.berth("adopt", *flags, pid)
    assert result.returncode == 0, result
    assert_fit_for_terminal(result.stderr)
    return result.stdout.strip()


def refused(server, pid, code, *words, flags=()):
    """One clear line, and nothing is left behind."""
    before = leases(server)
    assert_one_line_error(server.berth("adopt", *flags, pid), code, *words)
    assert leases(server) == before
    assert len(keepers(server)) == sum(lease["holder"] == "shell" for lease in before.values())


def listed_job(server, lease):
    [job] = [job for job in json.loads(server.berth("jobs", "--json").stdout)["jobs"] if job["id"] == lease]
    return job


def start_launcher(server, *scripts):
    """A process that uses no GPU, and starts a berth-sim-job for each script's environment."""
    lines = " ".join(f"{environment} {SIM_JOB} --mem 1GiB & " for environment in scripts)
    launcher = server.start("bash", "-c", f"export CUDA_DEVICE_ORDER=PCI_BUS_ID; {lines} wait; true")
    for _ in scripts:
        assert launcher.stdout.readline().startswith("berth-sim-job: pid")
    return launcher


@pytest.mark.each_harbour
def test_a_stranger_gets_a_lease_until_it_ends(server, jobs):  # noqa: F811
    process = server.start_job("--mem", "2GiB", gpu=1)
    assert state_of(server, 1) == "stranger"
    result = server.berth("adopt", "--time", "2h", "--label", "mine", process.pid)
    lease = result.stdout.strip()
    assert result.returncode == 0 and result.stdout == lease + "\n"
    assert "GPU 1 " in result.stderr and str(process.pid) in result.stderr and f"berth release {lease}" in result.stderr
    one = gpu(server.status(), 1)
    assert one["state"] == "leased" and [process["lease"] for process in one["processes"]] == [lease]
    [held] = one["leases"]
    assert held["adopted"] and held["exclusive"] and held["pid"] == process.pid and held["label"] == "mine" and held["ends"]
    job = listed_job(server, lease)
    assert job["kind"] == "adopted" and job["state"] == "running" and "berth-sim-job" in job["command"]
    waiter = jobs.wait("--gpu", "1")
    wait = server.start(BERTH, "wait", lease)
    process.kill()
    assert waiter.gpus() == "1"
    assert wait.wait() == 70 and lease in wait.stdout.read()
    assert lease not in leases(server)
    eventually(lambda: not keepers(server), "the keeper has recorded the end")
    job = listed_job(server, lease)
    assert (job["kind"], job["state"], job["result"], job["exit_code"]) == ("adopted", "ended", "released", None)
    [entry] = [json.loads(line) for line in server.berth("log", "--json").stdout.splitlines() if lease in line]
    assert entry["adopted"] and entry["ending"] == "released"
    assert server.berth("wait", lease).returncode == 70, "also long after"


def test_json(server):
    process = server.start_job("--mem", "1GiB", gpu=2)
    result = server.berth("adopt", "--json", process.pid)
    answer = json.loads(result.stdout)
    assert answer == {"lease": answer["lease"], "gpus": [gpu(server.status(), 2)["uuid"]], "indices": [2],
                      "pid": process.pid, "ends": None}
    assert answer["lease"] in leases(server)


@pytest.mark.each_harbour
def test_all_gpus_of_a_launcher_and_what_it_started(server):
    launcher = start_launcher(server, "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=3")
    answer = json.loads(server.berth("adopt", "--json", launcher.pid).stdout)
    assert answer["indices"] == [0, 3]
    assert [state_of(server, index) for index in range(4)] == ["leased", "free", "free", "leased"]
    lease = answer["lease"]
    assert {process["lease"] for one in server.status()["gpus"] for process in one["processes"]} == {lease}


def test_two_processes_of_mine_on_one_gpu(server):
    """The lease is for one of them. The other belongs to it as long as it lasts, as all processes of its user do."""
    first, second = (server.start_job("--mem", "1GiB", gpu=0) for _ in range(2))
    lease = adopt(server, first.pid)
    assert {process["lease"] for process in gpu(server.status(), 0)["processes"]} == {lease}
    refused(server, second.pid, 75, lease)
    first.kill()
    eventually(lambda: state_of(server, 0) == "stranger", "the second one is a stranger again")
    assert adopt(server, second.pid) in leases(server)


@pytest.mark.each_harbour
def test_beside_a_lease_that_shares_the_gpu(server, users):  # noqa: F811
    server.use("1x24GiB")
    users.start(ALICE, "run", "--mem", "8GiB", "--", "sleep", "1000")
    eventually(lambda: leases(server), "the lease of the other user")
    process = server.start_job("--mem", "4GiB", gpu=0)
    refused(server, process.pid, 75, str(ALICE))
    refused(server, process.pid, 75, str(ALICE), flags=["--mem", "20GiB"])
    refused(server, process.pid, 64, "4 GiB", flags=["--mem", "2GiB"])
    refused(server, process.pid, 64, "--mem", flags=["--mem", "auto"])
    lease = adopt(server, process.pid, "--mem", "5GiB")
    assert leases(server)[lease]["memory_mib"] == 5 * 1024 and state_of(server, 0) == "shared"
    # 24 GiB, less what both reserve and the margin.
    assert server.berth("run", "--no-wait", "--mem", "11GiB", "--", "true").returncode == 75
    assert server.berth("run", "--no-wait", "--mem", "10GiB", "--", "true").returncode == 0


@pytest.mark.parametrize("arguments", [[], ["0"], ["-1"], ["1x"], ["99999999999"], ["1", "2"], ["--time", "soon", "1"], ["--mem", "0", "1"]])
def test_wrong_arguments(server, arguments):
    assert_one_line_error(server.berth("adopt", *arguments), 64)
    assert leases(server) == {}


def test_processes_that_cannot_be_adopted(server):
    gone = server.start("true")
    gone.wait()
    refused(server, gone.pid, 64, str(gone.pid), "no such process")
    refused(server, os.getpid(), 64, "uses no GPU")
    with_lease = server.start(BERTH, "run", "--gpu", "0", "--", SIM_JOB, "--mem", "1GiB")
    assert with_lease.stdout.readline().startswith("berth-sim-job: pid")
    [process] = gpu(server.status(), 0)["processes"]
    [lease] = leases(server)
    refused(server, process["pid"], 75, lease)
    refused(server, with_lease.pid, 75, lease)
    refused(server, os.getpid(), 75, lease)  # it started that


@pytest.mark.each_harbour
def test_of_another_user(server, users):  # noqa: F811
    """Nobody adopts another user's process, not even root: the lease would be root's, and the user could not end it."""
    sim_job = users.berth.parent / "berth-sim-job"
    own = server.start_job("--mem", "1GiB", gpu=0)
    others = server.start_job("--mem", "1GiB", gpu=1, prefix=as_user(ALICE), program=sim_job)
    refused(server, others.pid, 77, str(others.pid), str(ALICE))
    assert_one_line_error(users.run(ALICE, "adopt", own.pid), 77, str(own.pid), "root")
    assert users.run(ALICE, "adopt", others.pid).returncode == 0
    [lease] = leases(server).values()
    assert lease["user"] == str(ALICE) and lease["pid"] == others.pid
    assert_one_line_error(users.run(ALICE + 1, "release", lease["id"]), 77, str(ALICE))


def test_another_users_process_on_the_gpu(server, users):  # noqa: F811
    own = server.start_job("--mem", "1GiB", gpu=0)
    sim_job = users.berth.parent / "berth-sim-job"
    other = server.start_job("--mem", "1GiB", gpu=0, prefix=as_user(ALICE), program=sim_job)
    refused(server, own.pid, 75, str(ALICE), str(other.pid))
    refused(server, own.pid, 75, str(ALICE), flags=["--mem", "4GiB"])
    assert_one_line_error(users.run(ALICE, "adopt", other.pid), 75, str(own.pid))
    other.kill()
    other.wait()
    assert adopt(server, own.pid) in leases(server)


def test_a_process_whose_user_nobody_knows(server):
    """Unknown is not free: it may be anybody's."""
    server.use({"gpus": [{"name": "A", "memory": "24GiB"}],
                "strangers": [{"gpu": 0, "pid": 4_100_000, "name": "python", "memory": "1GiB"}]})
    own = server.start_job("--mem", "1GiB", gpu=0)
    refused(server, own.pid, 75, "4100000", "whose")


def test_one_busy_gpu_of_two_refuses_all(server, users):  # noqa: F811
    launcher = start_launcher(server, "CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1")
    server.start_job("--mem", "1GiB", gpu=1, prefix=as_user(ALICE), program=users.berth.parent / "berth-sim-job")
    refused(server, launcher.pid, 75, "GPU 1", str(ALICE))


@pytest.mark.each_harbour
def test_a_drained_gpu(server):
    process = server.start_job("--mem", "1GiB", gpu=0)
    assert server.berth("drain", "0", "--reason", "broken fan").returncode == 0
    refused(server, process.pid, 75, "drained", "broken fan")
    assert server.berth("undrain", "0").returncode == 0
    lease = adopt(server, process.pid)
    assert lease in server.berth("drain", "0").stdout


def test_in_another_pid_namespace(server):
    process = server.start_job("--mem", "1GiB", gpu=0)
    result = server.run("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", f"{BERTH} adopt $$; {BERTH} adopt {process.pid}")
    assert result.stdout == "" and result.stderr.count("\n") == 2
    assert "PID namespace" in result.stderr and leases(server) == {}
    inside = server.start_job("--mem", "1GiB", gpu=1, prefix=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
    [seen] = gpu(server.status(), 1)["processes"]
    lease = adopt(server, seen["pid"])  # by its number on the host, as the driver has it
    inside.kill()
    eventually(lambda: lease not in leases(server), "the end of the lease")


def test_only_one_of_many_gets_it(server):
    process = server.start_job("--mem", "1GiB", gpu=0)
    tries = [server.start(BERTH, "adopt", process.pid) for _ in range(6)]
    assert sorted(one.wait() for one in tries) == [0, 75, 75, 75, 75, 75]
    assert len(leases(server)) == 1 == len(keepers(server))


@pytest.mark.each_harbour
def test_the_queue(server, jobs):  # noqa: F811
    """The process keeps all tickets off its GPU, except those that accept strangers: these come first."""
    server.use("1x24GiB")
    process = server.start_job("--mem", "1GiB", "--util", "90", gpu=0)
    jobs.wait()
    tolerant = jobs.wait("--max-processes", "1", "--max-util", "10")
    [ticket] = [one for one in json.loads(server.berth("queue", "--json").stdout)["queue"] if one["position"] == 2]
    refused(server, process.pid, 75, ticket["ticket"], "--max-processes")
    tolerant.process.send_signal(signal.SIGINT)
    tolerant.process.wait()
    assert adopt(server, process.pid) in leases(server)


@pytest.mark.each_harbour
def test_a_launcher_that_could_outlive_its_worker_does_not_delay_a_ticket(server, jobs):  # noqa: F811
    server.use("1x24GiB")
    launcher = start_launcher(server, "CUDA_VISIBLE_DEVICES=0")
    waiter = jobs.wait()
    [ticket] = [one["ticket"] for one in json.loads(server.berth("queue", "--json").stdout)["queue"]]
    refused(server, launcher.pid, 75, ticket, "adopt them instead")
    [worker] = [process["pid"] for process in gpu(server.status(), 0)["processes"]]
    assert adopt(server, worker) in leases(server), "the worker itself keeps the ticket off the GPU"
    os.kill(worker, signal.SIGKILL)
    assert waiter.gpus() == "0"


@pytest.mark.each_harbour
def test_release_gives_back_only_the_lease(server):
    process = server.start_job("--mem", "1GiB", gpu=0)
    lease = adopt(server, process.pid)
    assert_one_line_error(server.berth("release"), 64)  # it is not the lease of this shell
    assert server.berth("release", lease).returncode == 0
    assert leases(server) == {} and state_of(server, 0) == "stranger" and process.poll() is None
    eventually(lambda: not keepers(server), "the keeper ends")
    assert server.berth("wait", lease).returncode == 70
    assert adopt(server, process.pid) in leases(server), "again"


@pytest.mark.each_harbour
def test_cancel_ends_the_process(server):
    launcher = start_launcher(server, "CUDA_VISIBLE_DEVICES=0")
    lease = adopt(server, launcher.pid)
    result = server.berth("cancel", lease)
    assert result.returncode == 0 and lease in result.stdout
    assert launcher.wait() == -signal.SIGTERM
    assert leases(server) == {}


def test_cancel_kills_after_the_grace_time(server):
    launcher = server.start("bash", "-c", f"trap '' TERM; {SIM_JOB} --mem 1GiB & wait; wait")
    assert launcher.stdout.readline().startswith("berth-sim-job: pid")
    [worker, *_] = [process["pid"] for process in gpu(server.status(), 0)["processes"]]
    lease = adopt(server, launcher.pid)
    result = server.berth("cancel", "--grace", "100ms", lease)
    assert result.returncode == 0 and "killed" in result.stdout
    assert launcher.wait() == -signal.SIGKILL
    eventually(lambda: not is_alive(worker), "the worker is killed, too")
    assert leases(server) == {}


def test_cancel_never_reaches_another_process(server):
    """A record can name any PID, and a PID can be reused: the start of the process must be that of the record."""
    bystander = server.start("sleep", "1000")
    started = int(pathlib.Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
    lease = harbour_client.Lease(server.harbour, [gpu(server.status(), 0)["uuid"]], pid=bystander.pid, adopted_start=started + 1)
    result = server.berth("cancel", "--grace", "100ms", lease.id)
    assert result.returncode == 0 and result.stdout == f"lease {lease.id} is released\n" and lease.ended
    assert bystander.poll() is None
    lease.close()
    lease = harbour_client.Lease(server.harbour, [gpu(server.status(), 0)["uuid"]], pid=bystander.pid, adopted_start=started)
    server.berth("cancel", "--grace", "100ms", lease.id)
    assert bystander.wait() == -signal.SIGTERM
    lease.close()


def test_root_ends_only_the_processes_of_the_leases_owner(server, users):  # noqa: F811
    """Alice's record names a process of root's, with the right start: `berth cancel` of root must not end it."""
    bystander = server.start("sleep", "1000")
    started = int(pathlib.Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
    uuid = gpu(server.status(), 0)["uuid"]
    source = pathlib.Path(harbour_client.__file__).read_text()
    source = source.split('if __name__ == "__main__"')[0] + (
        f"lease = Lease({str(server.harbour)!r}, [{uuid!r}], pid={bystander.pid}, adopted_start={started})\n"
        "print(lease.id, flush=True)\nsys.stdin.read()\n")
    alice = server.start(*as_user(ALICE), "/usr/bin/python3", "-c", source, stdin=subprocess.PIPE)
    lease = alice.stdout.readline().strip()
    assert leases(server)[lease]["user"] == str(ALICE)
    result = server.berth("cancel", "--grace", "100ms", lease)
    assert result.returncode == 0 and result.stdout == f"lease {lease} is released\n"
    assert bystander.poll() is None and leases(server) == {}


def test_cancel_gives_back_the_gpu_of_a_process_that_is_gone(server, jobs):  # noqa: F811
    """A keeper that was stopped does not notice the end of its process."""
    process = server.start_job("--mem", "1GiB", gpu=0)
    lease = adopt(server, process.pid)
    keeper = only_keeper(server)
    os.kill(keeper, signal.SIGSTOP)
    process.kill()
    process.wait()
    waiter = jobs.wait("--gpu", "0")
    result = server.berth("cancel", lease)
    assert result.returncode == 0 and result.stdout == f"lease {lease} is released\n"
    assert waiter.gpus() == "0"
    os.kill(keeper, signal.SIGCONT)


def test_a_job_that_claims_to_be_adopted_can_be_ended(server):
    """Its own processes hold its lease: a start of no process in its record hides them from no `berth cancel`."""
    source = pathlib.Path(harbour_client.__file__).read_text()
    uuid = gpu(server.status(), 0)["uuid"]
    source = source.split('if __name__ == "__main__"')[0] + (
        f"lease = Lease({str(server.harbour)!r}, [{uuid!r}], holder='job', adopted_start=1)\n"
        "print(lease.id, flush=True)\nsys.stdin.read()\n")
    holder = server.start("/usr/bin/python3", "-c", source, stdin=subprocess.PIPE)
    lease = holder.stdout.readline().strip()
    assert server.berth("cancel", lease).returncode == 0
    assert holder.wait() == -signal.SIGTERM and leases(server) == {}


def test_a_process_with_a_name_for_the_terminal(server):
    program = server.folder / "\x1b]0;owned\x07\x1b[31mtrain"
    program.symlink_to(SIM_JOB)
    process = server.start(program, "--mem", "1GiB", env={"CUDA_VISIBLE_DEVICES": "0"})
    process.stdout.readline()
    result = server.berth("adopt", process.pid)
    assert result.returncode == 0 and "\\x1b" in result.stderr
    for output in (result.stderr, server.berth("jobs").stdout, server.berth("status").stdout, server.berth("adopt", process.pid).stderr):
        assert output
        assert_fit_for_terminal(output)


def test_a_process_that_is_called_like_a_daemon_is_adopted_as_any_other(server):
    program = server.folder / "nvidia-cuda-mps-server"
    program.symlink_to(SIM_JOB)
    process = server.start(*as_user(ALICE), program, "--mem", "1GiB", env={"CUDA_VISIBLE_DEVICES": "0"})
    process.stdout.readline()
    refused(server, process.pid, 77, str(ALICE))


def waits_for_lock(pid):
    """Whether the kernel lists the process as one that waits for a lock of a file."""
    return any(line.split()[1] == "->" and line.split()[5] == str(pid) for line in pathlib.Path("/proc/locks").read_text().splitlines())


@pytest.mark.each_harbour
def test_the_process_ends_during_the_adoption(server):
    """While berth waits for the harbour's lock, after it has asked the driver."""
    process = server.start_job("--mem", "1GiB", gpu=0)
    with harbour_client.locked(server.harbour):
        adopter = server.start(BERTH, "adopt", process.pid)
        eventually(lambda: waits_for_lock(adopter.pid), "it waits for the lock")
        process.kill()
        process.wait()
    assert adopter.wait() == 64 and str(process.pid) in adopter.stdout.read()
    assert leases(server) == {}
    assert server.berth("run", "--", "true").returncode == 0


def test_the_keeper_is_killed(server):
    """Then the lease has no holder, and the process is a stranger again: nobody is granted its GPU."""
    process = server.start_job("--mem", "1GiB", gpu=0)
    lease = adopt(server, process.pid)
    os.kill(only_keeper(server), signal.SIGKILL)
    eventually(lambda: leases(server) == {}, "the end of the lease")
    assert state_of(server, 0) == "stranger" and process.poll() is None
    assert server.berth("run", "--no-wait", "--gpu", "0", "--", "true").returncode == 75
    assert server.berth("wait", lease).returncode == 70
    assert adopt(server, process.pid) in leases(server)


def test_the_reader_of_the_id_is_gone(server):
    """As for berth acquire: a lease that was not delivered does not stay."""
    process = server.start_job("--mem", "1GiB", gpu=0)
    reading, writing = os.pipe()
    os.close(reading)
    adopter = subprocess.run([BERTH, "adopt", str(process.pid)], env=server.env, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert adopter.returncode != 0
    eventually(lambda: not leases(server) and not keepers(server), "nothing is left")


@pytest.mark.parametrize("call", ["openat", "write", "close", "mknodat", "fchmod", "flock", "newfstatat", "poll", "pidfd_open", "pipe2", "clone"])
def test_killed_at_any_call(server, call):
    """The lease has a live keeper, or there is none; the process never notices, and can be adopted again."""
    process = server.start_job("--mem", "1GiB", gpu=0)
    for number in range(1, 100):
        result = server.run("strace", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}",
                            BERTH, "adopt", process.pid)
        eventually(lambda: len(leases(server)) == len(keepers(server)), "each lease has a keeper, and each keeper a lease")
        assert process.poll() is None
        assert state_of(server, 0) == ("leased" if leases(server) else "stranger")
        for lease in leases(server):
            assert server.berth("release", lease).returncode == 0
        eventually(lambda: not keepers(server), "the keeper ends")
        if result.returncode == 0:
            break
    assert number > 1 and result.returncode == 0, "it was killed at each call"
    assert adopt(server, process.pid) in leases(server)


@pytest.mark.parametrize("call", ["setsid", "prctl", "close_range", "read", "poll", "dup2"])
def test_the_keeper_or_its_parent_is_killed_at_any_call(server, call):
    """strace follows the forks (driver helper, keeper), and kills each of them at its own Nth call."""
    process = server.start_job("--mem", "1GiB", gpu=0)
    for number in range(1, 5):
        tracer = server.start("strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}",
                              BERTH, "adopt", process.pid)
        eventually(lambda: tracer.poll() is not None or (leases(server) and keepers(server)), "it is killed, or done")
        for lease in leases(server):
            assert server.berth("release", lease).returncode == 0
        tracer.wait(LIMIT)
        eventually(lambda: not leases(server) and not keepers(server), "nothing is left")
        assert process.poll() is None
    assert adopt(server, process.pid) in leases(server)


def test_completion_offers_my_processes_without_a_lease(server, users):  # noqa: F811
    own = [server.start_job("--mem", "1GiB", gpu=index) for index in (0, 0, 1)]
    server.start_job("--mem", "1GiB", gpu=2, prefix=as_user(ALICE), program=users.berth.parent / "berth-sim-job")
    adopt(server, own[2].pid)
    words = server.berth("complete", "--", "berth", "adopt", "").stdout
    assert all(str(one.pid) in words for one in own[:2]) and str(own[2].pid) not in words
