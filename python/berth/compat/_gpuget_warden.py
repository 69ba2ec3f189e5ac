"""Puts a GPU back into GPUGET's list when its lease ends, however it ends.

The warden is a process of its own, forked by `GPU.py --get` before it takes anything. It takes the GPU, tells its
parent which, and waits: for the parent, which becomes `berth acquire`, and then for the bell of the lease. Where the
warden itself was killed, the next `GPU.py` of this host does its work (see mend).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import time
from typing import List, Optional, Tuple

import berth

from . import _state
from ._gpuget_keys import Keys

_TRIES = 60  # once a second, where Redis is away when a lease ends


def label_of(mark: str) -> str:
    """What the lease has as its label."""
    return f"GPU.py {mark.rsplit(' ', 1)[-1]}"


def take(keys: Keys, managed: List[str], holder: int) -> Tuple[str, str]:
    """A GPU out of GPUGET's list, under the eyes of a warden; waits until there is one. Gives its ID and the label that
    its lease must have."""
    read, write = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(read)
        _be_warden(keys, managed, holder, parent, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    gpu, _, rest = said.partition(" ")
    if not gpu.isdecimal():
        raise berth.HarbourError(rest or "the process that watches over GPUGET's list has died")
    return gpu, label_of(rest)


def _be_warden(keys: Keys, managed: List[str], holder: int, parent: int, pipe: int) -> None:
    """Never returns."""
    try:
        gone = os.pidfd_open(parent)
        os.setsid()
        mark = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(4)}"
        gpu = _taken(keys, managed, holder, mark, gone)
        if gpu is None:
            os._exit(0)
        os.write(pipe, f"{gpu} {mark}".encode())
        os.close(pipe)
        _leave_the_shell()
        _wait(gone)
        _wait_for_end(keys, gpu, mark)
        for _ in range(_TRIES):
            try:
                keys.put_back(gpu, mark, f"released by PID {holder}.")
                break
            except berth.HarbourError:
                time.sleep(1)
    except berth.Error as problem:
        os.write(pipe, f"! {problem}".encode())
    finally:
        os._exit(0)


def _taken(keys: Keys, managed: List[str], holder: int, mark: str, gone: int) -> Optional[str]:
    while not select.select([gone], [], [], 0)[0]:
        free = [str(gpu.index) for gpu in berth.status() if gpu.state == "free"]
        # What berth would give at once comes first; for another one it waits in berth's queue.
        gpu = keys.take(mark, holder, [one for one in managed if one in free] + managed)
        if gpu is not None:
            return gpu
        keys.wait_for_idle()
    return None


def _leave_the_shell() -> None:
    """Whoever reads what GPU.py prints waits until nobody can write there any more."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _wait(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()


def _wait_for_end(keys: Keys, gpu: str, mark: str) -> None:
    """Of the lease, if there is one: its bell is open as long as any of its processes lives."""
    lease = next((lease for one in berth.status() for lease in one.leases if lease.label == label_of(mark)), None)
    if lease is None:
        return
    try:
        bell = os.open(os.path.join(_state.path_of_harbour(), f"bell-{lease.id}"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # it has ended
    with contextlib.suppress(berth.HarbourError):
        keys.name_holder(gpu, mark, lease.pid)
    poll = select.poll()
    poll.register(bell, 0)  # an error, when its last reader is gone
    poll.poll()


def mend(keys: Keys) -> None:
    """Puts back what a warden of this host that was killed should have."""
    idle = keys.idle()
    for gpu in keys.managed():
        mark = keys.holder(gpu).mark if gpu not in idle else ""
        words = mark.split(" ")
        if len(words) != 3 or words[0] != socket.gethostname() or _runs(words[1]):
            continue
        labels = [lease.label for one in berth.status() for lease in one.leases]
        labels += [ticket.label for ticket in berth.queue()]
        if label_of(mark) not in labels:
            keys.put_back(gpu, mark, "was put back by berth, since its lease has ended.")


def _runs(pid: str) -> bool:
    """And is no zombie: in a container, nobody may take those away."""
    if not (pid.isascii() and pid.isdecimal()):
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
