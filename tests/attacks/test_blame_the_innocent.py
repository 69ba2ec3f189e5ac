"""Goal of the attacker: Berth tells another user, or root, to kill a process that did nothing.

The kernel names the process that took a lock by its PID, even when it has ended and the PID is another process's.
Tried: Mallory takes the harbour's lock, forks, and exits; the fork keeps the lock, and a process of Alice's gets the PID
of the one that exited.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import signal

import pytest
from hostile import ALICE, BOB, MALLORY

pytestmark = pytest.mark.needs_root

PRCTL = ctypes.CDLL(None).prctl
PR_SET_DUMPABLE = 4
SYSCALL = ctypes.CDLL(None).syscall
SYS_CLONE3 = 435
CLONE_PARENT = 0x8000


class CloneArguments(ctypes.Structure):
    """What clone3() takes; see clone(2)."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls", "set_tid",
        "set_tid_size", "cgroup")]


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    PRCTL(PR_SET_DUMPABLE, 1)  # as after exec: the user may look into it


def start(uid, function, *arguments):
    """A process of that user, which ends with its function."""
    child = os.fork()
    if child == 0:
        try:
            become(uid)
            function(*arguments)
        finally:
            os._exit(0)
    return child


def lock_and_pass_on(harbour, answer):
    """A fork keeps the lock; this process is the one that took it."""
    fd = os.open(harbour, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    heir = os.fork()
    if heir == 0:
        signal.pause()
    os.write(answer, str(heir).encode())


def reuse(pid, uid):
    """A process of that user with that PID, which must be free: a child of ours."""
    def clone():
        wanted = ctypes.c_int(pid)
        arguments = CloneArguments(flags=CLONE_PARENT, set_tid=ctypes.addressof(wanted), set_tid_size=1)
        if SYSCALL(SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments)) == 0:
            become(uid)
            signal.pause()

    os.waitpid(start(0, clone), 0)  # in a process of its own, because clone3() tells the C library nothing of the new one
    assert os.path.exists(f"/proc/{pid}"), f"no process got the PID {pid}"
    return pid


def end(pid, ours=True):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if ours:
        os.waitpid(pid, 0)


@pytest.fixture
def plot(server):
    """The PID that the kernel names, which is free; and the PID of the process that has the lock."""
    reading, writing = os.pipe()
    taker = start(MALLORY, lock_and_pass_on, server.harbour, writing)
    heir = int(os.read(reading, 20))
    os.waitpid(taker, 0)
    yield taker, heir
    end(heir, ours=False)
    os.close(reading)
    os.close(writing)


def refused_as(server, open_build, uid):
    result = server.run("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", open_build / "bin" / "berth",
                        "run", "--no-wait", "--", "true")
    assert result.returncode == 74 and result.stderr.count("\n") == 2, result  # that it waits, and that it gives up
    return result.stderr


def test_nobody_is_advised_to_kill_the_process_that_has_the_pid_now(server, open_build, plot):
    """Bob cannot look into Alice's process: it may be the one, and is not called so."""
    taker, _ = plot
    innocent = reuse(taker, ALICE)
    try:
        words = refused_as(server, open_build, BOB)
    finally:
        end(innocent)
    assert "unknown" in words and str(innocent) in words, words
    assert not re.search(r"\bkill\b|-CONT", words), words


def test_the_users_own_process_is_not_blamed_at_all(server, open_build, plot):
    """Bob's own process has the PID: Bob can see that it does not have the lock."""
    taker, _ = plot
    innocent = reuse(taker, BOB)
    try:
        words = refused_as(server, open_build, BOB)
    finally:
        end(innocent)
    assert str(innocent) not in words and not re.search(r"\bkill\b|-CONT", words), words


@pytest.mark.parametrize("reused", [False, True], ids=["free", "reused"])
def test_root_finds_the_process_that_has_the_lock(server, open_build, plot, reused):
    taker, heir = plot
    innocent = reuse(taker, ALICE) if reused else None
    try:
        words = refused_as(server, open_build, 0)
        doctor = server.berth("doctor").stdout
    finally:
        if innocent:
            end(innocent)
    for text in (words, doctor):
        assert f"(pid {heir}, user {MALLORY})" in text and f"kill -CONT {heir}" in text, text
        assert str(taker) not in text, text


def test_a_stopped_process_that_has_the_lock_is_named(server, open_build):
    """The honest case: Bob's own job was stopped in the middle of a decision."""
    def lock_and_stop():
        fcntl.flock(os.open(server.harbour, os.O_RDONLY), fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGSTOP)

    holder = start(BOB, lock_and_stop)
    try:
        os.waitpid(holder, os.WUNTRACED)
        words = refused_as(server, open_build, BOB)
    finally:
        end(holder)
    assert f"(pid {holder}, user {BOB})" in words and f"kill -CONT {holder}" in words
