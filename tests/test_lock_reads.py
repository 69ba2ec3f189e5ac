"""Nothing of another process is read, and nothing is sent or received, while the harbour's lock is held.

Such a read can wait for ever (the process's memory lock may be held by a driver that hangs), as can a server, and then every
client on the host waits for the lock. strace shows each process's own system calls; between flock(LOCK_EX or LOCK_SH) and
the release no path of another process's folder in /proc may be named, and no socket may be used.
"""

import os
import re
import signal

import pytest
from conftest import BERTH, SIM_JOB
from leasing import eventually, jobs  # noqa: F401
from users import ALICE, BOB, MALLORY, world  # noqa: F401

TRACED = "trace=flock,close,%file,%network"
NETWORK = re.compile(r"(socket|connect|send\w*|recv\w*)\(")


def traced(folder):
    """A prefix for a command whose trace is written to that folder, a file for each process."""
    folder.mkdir()
    return ["strace", "-f", "-ff", "-y", "-o", folder / "trace", "-e", "signal=none", "-e", TRACED]


def calls_under_lock(folder, harbour):
    """How often the harbour's lock was taken, and the calls while it was held, each with the PID of its process."""
    taken, found = 0, []
    for trace in folder.glob("trace.*"):
        held = set()
        for line in trace.read_text(errors="replace").splitlines():
            if locked := re.match(rf"flock\((\d+)<{re.escape(str(harbour))}>, (LOCK_\w+)(?:\|LOCK_NB)?\) += 0", line):
                if locked[2] == "LOCK_UN":
                    held.discard(locked[1])
                else:
                    held.add(locked[1])
                    taken += 1
            elif closed := re.match(r"close\((\d+)<", line):
                held.discard(closed[1])
            elif held:
                found.append((trace.suffix[1:], line))
    return taken, found


def slow_calls_under_lock(folder, harbour):
    """How often the lock was taken, and the calls under it that named files of other processes or used a socket."""
    taken, calls = calls_under_lock(folder, harbour)
    found = set()
    for own, line in calls:
        if (path := re.search(r'"/proc/(\d+)(/?[^"]*)"', line)) and path[1] != own:
            found.add(f"{line.split('(')[0]} /proc/PID{path[2]}")
        elif used := NETWORK.match(line):
            found.add(used[1])
    return taken, sorted(found)


def lookups(folder, harbour):
    """Was a user looked up at all, and which lookups were made while the lock was held?"""
    sign = re.compile(r'"[^"]*(passwd|nscd|nsswitch|libnss)[^"]*"')
    everything = "".join(trace.read_text(errors="replace") for trace in folder.glob("trace.*"))
    return bool(sign.search(everything)), [line for _, line in calls_under_lock(folder, harbour)[1] if sign.search(line)]


@pytest.fixture
def busy(server, jobs):  # noqa: F811
    """A server with two leases on a GPU, a process that belongs to neither, a stranger, and a waiting client."""
    server.use("2x24GiB")
    for _ in range(2):
        jobs.run("--mem", "4GiB", "--gpu", "0", command=[SIM_JOB, "--mem", "1GiB"])
    eventually(lambda: len(server.status()["gpus"][0]["processes"]) == 2, "the jobs are on their GPU")
    for gpu in (0, 1):
        server.start_job("--mem", "1GiB", gpu=gpu)
    jobs.run("-n", "2").waits()
    return server


@pytest.mark.parametrize("command", [
    ("status",), ("status", "--json"), ("queue",), ("run", "--no-wait", "--", "true"), ("run", "-n", "2", "--no-wait", "--", "true"),
    ("drain", "1"), ("cancel", "no-such-id"), ("doctor",)],
    ids=lambda command: " ".join(command[:2]))
def test_a_command_reads_nothing_of_others_under_the_lock(busy, tmp_path, command):
    folder = tmp_path / "traces"
    result = busy.run(*traced(folder), BERTH, *command)
    assert result.returncode in (0, 1, 64, 75), result
    taken, found = slow_calls_under_lock(folder, busy.harbour)
    assert taken > 0 and found == []


def test_a_waiting_client_reads_nothing_of_others_under_the_lock(server, jobs, tmp_path):  # noqa: F811
    """From its first look to its turn, with others that come and go."""
    server.use("1x24GiB")
    folder = tmp_path / "traces"
    holder = jobs.hold()
    waiter = jobs.run(prefix=[str(word) for word in traced(folder)])
    waiter.waits()
    behind = jobs.run()
    behind.waits()
    holder.end()
    waiter.gpus()
    behind.process.send_signal(signal.SIGTERM)
    waiter.end()
    taken, found = slow_calls_under_lock(folder, server.harbour)
    assert taken > 1 and found == []


@pytest.mark.needs_root
@pytest.mark.parametrize("command", ["cancel", "release", "release-gpu", "run", "drain"])
def test_no_user_is_looked_up_under_the_lock(world, tmp_path, command):  # noqa: F811
    """A host's user directory may be a server that does not answer."""
    os.chown(world.harbour, BOB, BOB)
    holder = world.hold(ALICE)
    waiter = world.wait(ALICE)
    words, env = {"cancel": (["cancel", waiter.lease], {}), "release": (["release", holder.lease], {}),
                  "release-gpu": (["release", "0"], {}), "run": (["run", "--", "true"], {"BERTH_LEASE": holder.lease}),
                  "drain": (["drain", "0", "--reason", "x"], {})}[command]
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    folder = tmp_path / "traces"
    prefix = traced(folder)
    folder.chmod(0o777)
    result = world.berth(MALLORY, *words, prefix=prefix, env=env)
    assert result.returncode == 77 and any(word in result.stderr for word in ("belongs", "leased", "root")), result
    assert lookups(folder, world.harbour) == (True, [])
