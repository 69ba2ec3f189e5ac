"""berth cancel: ends running jobs, batches and shells' leases, and tells what it did."""

import contextlib
import fcntl
import json
import os
import signal

import pytest
from conftest import BERTH, assert_one_line_error
from leasing import jobs  # noqa: F401
from leasing import eventually
from processes import ALICE, BOB, state_of
from test_commands import users  # noqa: F401

IGNORES_SIGTERM = ["sh", "-c", 'trap "" TERM; echo "$BERTH_GPUS"; while :; do sleep 1; done']
ENDS_WITH_5 = ["sh", "-c", 'trap "exit 5" TERM; echo "$BERTH_GPUS"; while :; do sleep 0.05; done']


def cancel(server, *arguments):
    """The lines that a successful `berth cancel` prints."""
    result = server.berth("cancel", *arguments)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout.splitlines()


def lease_ids(server):
    return [lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"]]


def commands_with_lease(server):
    return [lease["command"] for gpu in server.status()["gpus"] for lease in gpu["leases"]]


def detach(server, *flags, command):
    result = server.berth("run", "-d", *flags, "--", *command)
    assert result.returncode == 0, result
    return result.stdout.strip()


@pytest.mark.each_harbour
def test_a_running_job_gets_sigterm_and_its_exit_code_is_kept(server, jobs):  # noqa: F811
    server.use("1x24GiB")
    job = jobs.hold(command=ENDS_WITH_5)
    [lease] = lease_ids(server)
    next_one = jobs.wait(command=["sh", "-c", 'echo "$BERTH_GPUS"'])
    assert cancel(server, lease) == [f"job {lease} has ended"]
    assert job.process.wait() == 5
    assert next_one.process.wait() == 0, "the GPU is free for the next one"


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace_time(server, jobs):  # noqa: F811
    job = jobs.hold(command=IGNORES_SIGTERM)
    [lease] = lease_ids(server)
    [line] = cancel(server, "--grace", "100ms", lease)
    assert line == f"job {lease} did not end within 100ms and was killed"
    assert job.process.wait() == 128 + signal.SIGKILL, "its berth process has recorded the end"
    assert lease_ids(server) == []


def test_what_a_killed_berth_process_left_behind_is_ended(server, jobs):  # noqa: F811
    job = jobs.hold()
    [lease] = lease_ids(server)
    job.process.kill()
    job.process.wait()
    assert lease_ids(server) == [lease], "the job lives, and holds its lease"
    assert cancel(server, lease) == [f"job {lease} has ended"]
    assert lease_ids(server) == []


def test_a_shells_lease_is_released(server, jobs):  # noqa: F811
    shell = jobs.start("bash", "-c", f'eval "$({BERTH} acquire)"; echo $BERTH_LEASE; read -r line')
    lease = shell.gpus()
    assert cancel(server, lease) == [f"lease {lease} is released"]
    assert shell.runs, "only the lease ends"
    assert lease_ids(server) == []


def test_by_label_and_only_what_waits(server, jobs):  # noqa: F811
    server.use("1x24GiB")
    running = jobs.hold("--label", "sweep")
    waiting = jobs.wait("--label", "sweep")
    other = jobs.wait("--label", "other")
    assert len(cancel(server, "--label", "sweep", "--waiting")) == 1
    assert waiting.process.wait() == 75
    assert running.runs and other.runs
    assert len(cancel(server, "--label", "sweep")) == 1
    running.process.wait()
    other.gpus()
    assert len(cancel(server, "--mine")) == 1
    assert server.berth("cancel", "--all").stdout == "", "nothing is left"


def test_detached_jobs_that_run_wait_and_are_held(server):
    server.use("1x24GiB")
    running = detach(server, command=["sleep", "1000"])
    waiting = detach(server, command=["sleep", "1000"])
    held = detach(server, "--after", running, command=["sleep", "1000"])
    assert cancel(server, running, waiting, held) == [f"job {running} has ended", f"ticket {waiting} is cancelled",
                                                      f"job {held} is cancelled"]
    assert server.status()["queue"] == [] and lease_ids(server) == []
    assert_one_line_error(server.berth("cancel", running), 64, running, "ended already")


def test_a_detached_job_that_ignores_signals_dies_with_all_its_processes(server):
    pids = server.folder / "pids"
    job = detach(server, command=["sh", "-c", f'trap "" TERM; (trap "" TERM; echo $BASHPID; exec sleep 1000 3</dev/null) & '
                                              f'echo $! >>{pids}; echo $$ >>{pids}; while :; do sleep 1; done'])
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the job runs")
    cancel(server, "--grace", "0s", job)
    for pid in map(int, pids.read_text().split()):
        eventually(lambda: state_of(pid) in (None, "Z"), f"process {pid} ends")
    assert lease_ids(server) == []


def test_a_detached_batch_ends_with_its_lines(server):
    server.use("2x24GiB")
    result = server.berth("batch", "-d", "--logs", server.folder / "logs", "--", "sleep 1000", "sleep 1000", "sleep 1000")
    assert result.returncode == 0, result
    batch = result.stdout.strip()
    eventually(lambda: len(lease_ids(server)) == 2, "two lines run")
    assert cancel(server, batch) == [f"job {batch} has ended"]
    assert lease_ids(server) == [] and server.status()["queue"] == []


def test_nothing_is_ended_if_one_id_is_wrong(server, jobs):  # noqa: F811
    job = jobs.hold()
    [lease] = lease_ids(server)
    assert_one_line_error(server.berth("cancel", lease, "abcdefgh"), 64, "abcdefgh", "berth jobs")
    assert job.runs


@pytest.mark.parametrize("arguments", [["--grace", "x", "--all"], ["--label", "a", "abcdefgh"], ["--mine", "abcdefgh"]])
def test_wrong_arguments(server, arguments):
    assert_one_line_error(server.berth("cancel", *arguments), 64)


@pytest.mark.needs_root
def test_only_the_owner_and_root_end_a_job(server, users):  # noqa: F811
    server.env["HOME"] = str(server.folder / "root")
    job = users.start(ALICE, "run", "--", "sh", "-c", 'echo "$BERTH_GPUS"; exec sleep 1000')
    eventually(lambda: lease_ids(server), "the job runs")
    [lease] = lease_ids(server)
    assert_one_line_error(users.run(BOB, "cancel", lease), 77, lease, str(ALICE))
    assert users.run(BOB, "cancel", "--all").stdout == ""
    assert job.poll() is None
    assert cancel(server, "--all") == [f"job {lease} has ended"], "root ends everything"
    assert job.wait() == 128 + signal.SIGTERM


def test_a_cancel_that_is_killed_leaves_nothing_half_done(server, jobs):  # noqa: F811
    """The berth process has its SIGTERM, or has not; in both cases it and its job agree."""
    job = jobs.hold(command=ENDS_WITH_5)
    [lease] = lease_ids(server)
    for number in range(1, 40, 3):
        result = server.run("strace", "-o", "/dev/null", "-e", "trace=pidfd_open,pidfd_send_signal,openat,newfstatat,poll", "-e",
                            f"inject=pidfd_open,pidfd_send_signal:signal=SIGKILL:when={number}", BERTH, "cancel", lease)
        if result.returncode == 0 or not job.runs:
            break
        assert lease_ids(server) == [lease]
    with contextlib.suppress(AssertionError):
        cancel(server, lease)
    assert job.process.wait() == 5
    assert lease_ids(server) == []
    assert not os.path.exists(server.harbour / f"lease-{lease}")


def test_a_job_that_takes_long_to_end_is_named(server):
    job = detach(server, command=["sh", "-c", 'trap "" TERM; echo started; while :; do sleep 1; done'])
    eventually(lambda: "started" in server.berth("logs", job).stdout, "the job runs")
    result = server.berth("cancel", "--grace", "1500ms", job)
    assert result.returncode == 0 and "killed" in result.stdout
    assert job in result.stderr and "not ended yet" in result.stderr and result.stderr.count("\n") == 1


def test_a_line_of_a_batch_is_a_job_of_its_own(server):
    server.use("2x24GiB")
    result = server.berth("batch", "-d", "-k", "--logs", server.folder / "logs", "--", "true", "sleep 1000", "sleep 1000")
    batch = result.stdout.strip()
    eventually(lambda: commands_with_lease(server) == ["sleep 1000"] * 2, "two lines run")
    line = lease_ids(server)[0]
    assert cancel(server, line) == [f"job {line} has ended"]
    eventually(lambda: len(lease_ids(server)) == 1, "only that line ends")
    assert_one_line_error(server.berth("cancel", line), 64, line)
    assert len(cancel(server, batch)) == 1


def test_the_lines_of_a_killed_batch_are_ended(server):
    server.use("2x24GiB")
    line = 'trap "" TERM; while :; do sleep 1; done'
    result = server.berth("batch", "-d", "--logs", server.folder / "logs", "--", line, line)
    batch = result.stdout.strip()
    path = server.folder / ".local/state/berth/jobs" / batch / "events"
    eventually(lambda: path.read_text().count('"granted"') == 2, "the batch knows that two lines run")
    events = path.read_text()
    os.kill(next(json.loads(one)["pid"] for one in events.splitlines() if "started" in one), signal.SIGKILL)
    cancel(server, "--grace", "100ms", batch)
    eventually(lambda: lease_ids(server) == [], "its lines have ended")


def test_all_lines_of_a_batch_are_ended_that_is_killed_during_the_cancel(server):
    server.use("2x24GiB")
    line = 'trap "" TERM; while :; do sleep 1; done'
    batch = server.berth("batch", "-d", "--logs", server.folder / "logs", "--", line, line).stdout.strip()
    folder = server.folder / ".local/state/berth/jobs" / batch
    eventually(lambda: (folder / "events").read_text().count('"granted"') == 2, "the batch knows that two lines run")
    process = next(json.loads(one)["pid"] for one in (folder / "events").read_text().splitlines() if "started" in one)
    os.kill(process, signal.SIGKILL)
    eventually(lambda: state_of(process) in (None, "Z"), "it is killed")
    with (folder / "alive").open("w") as lock:  # the cancel still sees it alive
        eventually(lambda: take_lock(lock), "its lock is free")
        server.berth("cancel", "--grace", "0s", batch)
    assert lease_ids(server) == []


def take_lock(file):
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@pytest.mark.needs_root
@pytest.mark.parametrize("trick", ["link", "passed on"])
def test_root_ends_only_processes_of_the_leases_owner(server, users, open_folder, trick):  # noqa: F811
    """The owner of a lease replaces its bell by a link to a file that others have open, or passes it to a process of root."""
    server.env["HOME"] = str(server.folder / "root")
    bystander = server.start("sleep", "1000")  # of root; it has /dev/null open
    job = users.start(ALICE, "run", "--", "sleep", "1000")
    eventually(lambda: lease_ids(server), "the job runs")
    [lease] = lease_ids(server)
    bell = server.harbour / f"bell-{lease}"
    if trick == "link":
        os.rename(bell, server.harbour / "bell-old")
        os.symlink("/dev/null", bell)
        os.lchown(bell, ALICE, ALICE)
    else:
        holder = server.start("sh", "-c", f"exec 7<>{bell}; echo ready; exec sleep 1000")
        assert holder.stdout.readline() == "ready\n"
        bystander = holder
    server.berth("cancel", "--grace", "0s", lease)
    assert bystander.poll() is None
    job.kill()


@pytest.mark.release_only
def test_the_open_files_of_each_process_are_read_once_for_all_jobs(server, jobs):  # noqa: F811
    bystander = server.start("sleep", "1000")
    held = [jobs.hold() for _ in range(4)]
    for job in held:  # while it lives, a signal to the berth process suffices
        job.process.kill()
        job.process.wait()
    assert len(lease_ids(server)) == 4
    trace = server.folder / "trace"
    result = server.run("strace", "-f", "-o", trace, "-e", "trace=openat", BERTH, "cancel", "--all")
    assert result.returncode == 0 and len(result.stdout.splitlines()) == 4, result
    assert trace.read_text().count(f'"/proc/{bystander.pid}/fd"') == 1
    assert lease_ids(server) == []


@pytest.mark.release_only
def test_no_process_is_searched_for_while_the_berth_process_lives(server, jobs):  # noqa: F811
    bystander = server.start("sleep", "1000")
    jobs.hold(command=ENDS_WITH_5)
    trace = server.folder / "trace"
    assert server.run("strace", "-f", "-o", trace, "-e", "trace=openat", BERTH, "cancel", "--all").returncode == 0
    assert f"/proc/{bystander.pid}/fd" not in trace.read_text()


@pytest.mark.parametrize("instead", ["link", "file", "nothing"])
def test_a_lease_whose_bell_its_owner_broke_does_not_count(server, jobs, instead):  # noqa: F811
    """docs/harbour-protocol.md: the record is ignored. All commands agree."""
    foreground = jobs.hold()
    [lease] = lease_ids(server)
    detached = detach(server, command=["sh", "-c", "echo started; exec sleep 1000"])
    eventually(lambda: detached in lease_ids(server), "the job runs")
    for one in (lease, detached):
        bell = server.harbour / f"bell-{one}"
        bell.rename(server.folder / one)
        if instead == "link":
            bell.symlink_to("/dev/null")
        elif instead == "file":
            bell.write_text("")
    assert lease_ids(server) == []
    listed = {job["id"]: job for job in json.loads(server.berth("jobs", "--json").stdout)["jobs"]}
    assert lease not in listed
    for command in ("wait", "cancel"):
        assert_one_line_error(server.berth(command, lease), 64, lease)
    assert foreground.runs
    # Of the detached job, its berth process tells that it lives.
    assert listed[detached]["state"] == "running"
    assert server.berth("wait", "--timeout", "50ms", detached).returncode == 75
    assert server.berth("cancel", detached).returncode == 0
    assert server.berth("wait", detached).returncode == 128 + signal.SIGTERM


@pytest.mark.release_only
def test_a_bell_that_a_security_module_protects_counts_as_alive(server):
    """EPERM cannot come from the bell's owner, so it says nothing about the processes of the job."""
    job = detach(server, command=["sleep", "1000"])
    events = server.folder / ".local/state/berth/jobs" / job / "events"
    berth = json.loads(events.read_text().splitlines()[0])["pid"]
    os.kill(berth, signal.SIGKILL)
    eventually(lambda: state_of(berth) in (None, "Z"), "its berth process is dead")

    def denied(*words):
        return server.run("strace", "-f", "-o", "/dev/null", "-P", f"bell-{job}", "-e", "trace=openat", "-e", "inject=openat:error=EPERM", BERTH,
                          *words)
    assert denied("wait", "--timeout", "100ms", job).returncode == 75
    assert [one["state"] for one in json.loads(denied("jobs", "--json").stdout)["jobs"]] == ["running"]
    assert server.berth("wait", "--timeout", "100ms", job).returncode == 75
    assert cancel(server, job) == [f"job {job} has ended"]
    assert server.berth("wait", job).returncode == 70
