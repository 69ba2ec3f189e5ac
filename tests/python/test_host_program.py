"""Berth inside another program: what the program does with signals stays as it is, and waiting for the lock has an end."""

import fcntl
import os

import pytest
from pythons import python  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

# What the program does with every real-time signal. Python's own handlers restart system calls (SA_RESTART) with
# siginterrupt(False).
HABITS = {
    "nothing": "",
    "handles-all": "for n in ALL: signal.signal(n, handler); signal.siginterrupt(n, False)",
    "handles-one": "signal.signal(signal.SIGRTMAX - 2, handler); signal.siginterrupt(signal.SIGRTMAX - 2, False)",
    "ignores-all": "for n in ALL: signal.signal(n, signal.SIG_IGN)",
    "blocks-all": "signal.pthread_sigmask(signal.SIG_BLOCK, ALL)",
    "blocks-one": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMAX - 2})",
}
PROGRAM = """
    import signal
    ALL = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
    def handler(*_): say("the program's handler was called")
    def habits():
        with open("/proc/self/status") as file:
            masks = {line.split(":")[0]: int(line.split()[1], 16) for line in file if line.startswith("Sig")
                     and not line.startswith("SigQ")}
        return [masks[name] >> (signal.SIGRTMIN - 1) for name in ("SigBlk", "SigIgn", "SigCgt")], [
            signal.getsignal(n) for n in ALL]
    HABIT
    before = habits()
    try:
        berth.acquire(no_wait=True)
    except berth.HarbourError as problem:
        say(problem)
    assert habits() == before, (before, habits())
    say("as before")
"""


def test_waiting_for_the_lock_has_an_end_and_leaves_signals_alone(python):
    """All at once, since each waits for as long as Berth has patience."""
    lock = os.open(python.server.harbour, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        programs = {name: python.start(PROGRAM.replace("HABIT", habit)) for name, habit in HABITS.items()}
        for name, program in programs.items():
            assert program.process.wait(LIMIT) == 0, (name, program.err)
            [error, last] = program.out.splitlines()
            assert f"(pid {os.getpid()}, " in error and "kill -CONT" in error, name
            assert last == "as before", name
    finally:
        os.close(lock)
