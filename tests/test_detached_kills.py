"""kill -9 before the system calls of `berth run -d`, `berth cancel` and `berth wait`.

Which calls there are, and how many, a run that is not killed says (strace): a list of names would not notice another libc.
"""

import collections
import json
import os
import re
import signal

import pytest
from conftest import BERTH
from leasing import eventually
from test_detach import STAYS, detach, folder_of, lease_ids, output_of, process_of

pytestmark = pytest.mark.release_only

# What does not reach another process or a file cannot be half done.
OWN_CALLS = set("""access arch_prctl brk close execve exit_group fcntl fstatfs getcwd getdents64 geteuid getpid getppid getrandom ioctl lseek mmap
    mprotect munmap newfstatat pread64 prlimit64 readlink rseq rt_sigaction rt_sigprocmask sched_yield set_robust_list set_tid_address uname
    """.split())


def calls_of(server, words, most, follow):
    """The calls of a run that is not killed, as (name, number): at most so many of each name, spread over all."""
    folder = server.folder / "baseline"
    folder.mkdir()
    server.run("strace", *(["-ff"] if follow else []), "-o", folder / "trace", *words)
    eventually(lambda: all(re.search(r"^\+\+\+ ", path.read_text(), re.M) for path in folder.iterdir()), "all processes have ended")
    counts = collections.Counter()
    for path in folder.iterdir():
        for name, count in collections.Counter(re.findall(r"^(\w+)\(", path.read_text(), re.M)).items():
            counts[name] = max(counts[name], count)
    # The exit is the last call that a process makes, and what it had to write must be written.
    calls = [(name, number) for name, count in counts.items() if name not in OWN_CALLS
             for number in sorted({1 + i * (count - 1) // max(1, min(most, count) - 1) for i in range(min(most, count))})]
    return [*calls, ("exit_group", 1)]


def run_and_kill(server, call, words, follow=False):
    """Returns whether the process that was started was killed."""
    name, number = call
    result = server.run("strace", *(["-f"] if follow else []), "-o", "/dev/null", "-e", f"trace={name}", "-e",
                        f"inject={name}:signal=SIGKILL:when={number}", *words)
    return result.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)


def listed(server, *flags):
    result = server.berth("jobs", "--json", *flags)
    assert (result.returncode, result.stderr) == (0, ""), result
    return {job["id"]: job for job in json.loads(result.stdout)["jobs"]}


def clients(server):
    """The ids of all leases and tickets."""
    return [*lease_ids(server), *(ticket["ticket"] for ticket in server.status()["queue"])]


def words_in(path):
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("follow", [False, True], ids=["the user's process", "all processes"])
def test_a_start(server, follow):
    """No job runs twice, none keeps a ticket or a lease, no output is lost, and the list is true."""
    def submit(name):
        return [BERTH, "run", "-d", "--label", name, "--", "sh", "-c", f"echo {name}; echo ran >>{server.folder}/{name}; exit 3"]
    killed = 0
    calls = calls_of(server, submit("baseline-job"), 6, follow)
    for call in calls:
        name = f"{call[0]}-{call[1]}"
        killed += run_and_kill(server, call, submit(name), follow)
        eventually(lambda: all(job["state"] == "ended" for job in listed(server).values()) and server.status()["queue"] == []
                   and lease_ids(server) == [], "no job, no ticket and no lease is left")
        ran = words_in(server.folder / name)
        mine = [job for job in listed(server).values() if job["label"] == name]
        assert len(ran) <= 1 and len(mine) <= 1, (call, ran, mine)
        for job in mine:
            assert job["exit_code"] in (None, 3, 128 + signal.SIGKILL), (call, job)
            assert job["exit_code"] is None or follow or ran, (call, job)
            assert not ran or name in output_of(server, job["id"]), (call, job)
        if not follow:  # the detached process lives, if it was started
            assert all(job["exit_code"] == 3 for job in mine) or not ran, (call, mine)
    assert {"clone", "rename", "flock", "write"} <= {name for name, _ in calls}
    assert killed > 20


@pytest.mark.parametrize("state", ["running", "waiting", "held", "left behind"])
def test_a_cancel(server, state):
    """The job has ended, or it has not: the list, the harbour and the next cancel agree."""
    server.use("1x24GiB")
    codes = {"running": {143}, "waiting": {75}, "held": {143}, "left behind": {None}}[state]
    first = detach(server, "run", "-d", "--", *STAYS) if state in ("waiting", "held") else None

    def submit():
        job = detach(server, "run", "-d", *(["--after", first] if state == "held" else []), "--", *STAYS)
        if state == "waiting":
            eventually(lambda: job in clients(server), "it has a ticket")
        if not first:
            eventually(lambda: "started" in output_of(server, job), "the job runs")
        if state == "left behind":
            os.kill(process_of(server, job), signal.SIGKILL)
            eventually(lambda: "will be unknown" in (listed(server)[job]["reason"] or ""), "its berth process is dead")
        return job
    # Without a time for the end: a job that has not got its signal lives on.
    calls = calls_of(server, [BERTH, "cancel", "--grace", "1h", submit()], 3, False)
    job, killed, ended = submit(), 0, 0
    for call in calls:
        killed += run_and_kill(server, call, [BERTH, "cancel", "--grace", "1h", job])
        if call[0] == "exit_group":
            eventually(lambda: listed(server)[job]["state"] == "ended", "the job ended before the cancel did")
        eventually(lambda: listed(server)[job]["state"] in ("ended", "held") or job in clients(server), "the list and the harbour agree")
        one = listed(server)[job]
        if one["state"] == "ended" or server.berth("cancel", job).returncode == 64:
            ended += 1
        eventually(lambda: listed(server)[job]["state"] == "ended", f"the next cancel ends the job, after {call}")
        assert listed(server)[job]["exit_code"] in codes, (call, listed(server)[job])
        eventually(lambda: job not in clients(server), "it has no ticket and no lease")
        job = submit()
    assert killed > 10 and 0 < ended < len(calls)
    assert server.berth("cancel", "--all").returncode == 0
    eventually(lambda: not clients(server), "nothing is left")


def test_a_wait(server):
    """Nothing changes, and the next wait knows the exit code."""
    gate = server.folder / "gate"
    os.mkfifo(gate)
    job = detach(server, "run", "-d", "--", "sh", "-c", f"echo started; cat {gate}; exit 3")
    eventually(lambda: "started" in output_of(server, job), "the job runs")
    eventually(lambda: (server.harbour / "archive").exists(), "its berth process has written the grant into the history")
    before = sorted(os.listdir(server.harbour)), sorted(os.listdir(folder_of(server, job)))
    words = [BERTH, "wait", "--timeout", "20ms", job]
    killed = sum(run_and_kill(server, call, words) for call in calls_of(server, words, 4, False))
    assert killed > 10
    assert (sorted(os.listdir(server.harbour)), sorted(os.listdir(folder_of(server, job)))) == before
    assert listed(server)[job]["state"] == "running" and lease_ids(server) == [job]
    gate.write_text("")
    assert server.berth("wait", job).returncode == 3
    ended = [run_and_kill(server, call, [BERTH, "wait", job]) for call in [("openat", 8), ("read", 3), ("flock", 1)]]
    assert any(ended)
    assert server.berth("wait", job).returncode == 3 and listed(server)[job]["exit_code"] == 3


@pytest.mark.parametrize("call, code", [(("unlinkat", 1), 5), (("prlimit64", 2), 143)], ids=["the job has ended", "the driver is not open yet"])
def test_sigterm_where_no_signal_is_awaited(server, call, code):
    """The exit code is known: that of the job, if it has one."""
    name, number = call
    result = server.run("strace", "-f", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:signal=SIGTERM:when={number}", BERTH,
                        "run", "-d", "--", "sh", "-c", "exit 5")
    assert server.berth("wait", result.stdout.strip()).returncode == code
    assert listed(server)[result.stdout.strip()]["exit_code"] == code
