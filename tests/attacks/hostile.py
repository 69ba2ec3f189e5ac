"""What the attacks share: doing something as another user, and pausing berth between two system calls."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess

from users import ALICE, BOB, MALLORY  # noqa: F401: for the attacks
from waiting import LIMIT, wait_until


def as_user(uid, action):
    """Runs `action` in a child process of that user. True if it did not raise OSError."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            action()
            code = 0
        except OSError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1), "the attack itself is wrong"
    return code == 0


def prefix_of(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def owner_and_mode(path):
    about = os.lstat(path)
    return about.st_uid, about.st_mode & 0o7777


def calls_from(trace, mark):
    """Each system call of a trace from the first that names `mark`, as (name, which of that name)."""
    counts, calls, reached = {}, [], False
    for line in pathlib.Path(trace).read_text(errors="replace").splitlines():
        name = re.match(r"(\w+)\(", line)
        if not name:
            continue
        counts[name[1]] = counts.get(name[1], 0) + 1
        reached = reached or mark in line
        if reached:
            calls.append((name[1], counts[name[1]]))
    return calls


def run_with_pause(server, call, meanwhile, *command, inject=()):
    """Runs a command that stops after one system call, as (name, number); does `meanwhile()`, and lets it go on. `inject`:
    more faults, as strace has them."""
    name, number = call
    trace = server.folder / "pause.trace"
    trace.unlink(missing_ok=True)
    faults = [f"{name}:signal=SIGSTOP:when={number}", *inject]
    names = ",".join(fault.partition(":")[0] for fault in faults)
    process = subprocess.Popen(
        ["strace", "-o", trace, "-e", f"trace={names}", *(word for fault in faults for word in ("-e", f"inject={fault}")),
         *map(str, command)], env=server.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)

    def children():
        return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]

    def paused():
        return process.poll() is not None or (trace.exists() and "stopped by SIGSTOP" in trace.read_text(errors="replace"))
    try:
        wait_until(paused, f"{command} stops after {call}")
        if process.poll() is None:
            meanwhile()
            for child in children():
                os.kill(child, signal.SIGCONT)
        output = process.communicate(timeout=LIMIT)
    finally:
        if process.poll() is None:
            for child in children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, *output)
