"""What a Python program leaves in the history."""

import json
import os
import signal

import pytest
from leasing import eventually, jobs  # noqa: F401
from pythons import first_line, python  # noqa: F401

pytestmark = pytest.mark.release_only


def endings(server):
    result = server.berth("log", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return [(entry["ending"], [gpu["index"] for gpu in entry["gpus"]])
            for entry in map(json.loads, result.stdout.splitlines())]


def test_each_lease_is_there_once(python):
    python.says("""
        for count in (1, 2, 3):
            with berth.gpus(count): pass
    """)
    assert endings(python.server) == [("released", ["0"]), ("released", ["0", "1"]), ("released", ["0", "1", "2"])]


def test_who_ends_without_release(python):
    python.says("lease = berth.acquire(gpu=3)")
    assert endings(python.server) == [("released", ["3"])]


def test_it_is_written_while_the_program_goes_on(python):
    job = python.start("berth.acquire(gpu=1).release(); lease = berth.acquire(gpu=2); say('ready'); stay()")
    assert first_line(job) == "ready"
    [folder] = eventually(lambda: list((python.server.harbour / "archive").glob("*/*")))
    eventually(lambda: '"released"' in folder.read_text() and '"running"' in folder.read_text())
    assert endings(python.server) == [("released", ["1"]), ("running", ["2"])]
    job.end()
    assert endings(python.server) == [("released", ["1"]), ("released", ["2"])]


def test_who_is_killed(python):
    job = python.start("lease = berth.acquire(); say('ready'); stay()")
    first_line(job)
    os.kill(job.pid, signal.SIGKILL)
    job.process.wait()
    python.server.berth("run", "--", "true")
    assert endings(python.server) == [("lost", ["0"]), ("exited", ["0"])]


def test_a_fork_writes_of_its_own_leases_alone(python):
    python.says("""
        import os, sys
        lease = berth.acquire(gpu=0, set_environment=False)
        if os.fork() == 0:
            other = berth.acquire(gpu=1)
            sys.exit()
        os.wait()
    """)
    assert endings(python.server) == [("released", ["0"]), ("released", ["1"])]
    lines = [line for file in (python.server.harbour / "archive").glob("*/*") for line in file.read_text().splitlines()]
    assert len(lines) == 2


def test_a_program_that_leases_all_the_time(python):
    python.says("""
        for _ in range(500): berth.acquire().release()
    """)
    assert len(endings(python.server)) == 500
