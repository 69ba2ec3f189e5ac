"""A monitor process that puts a GPU back into GPUGET's list when its lease ends, however it ends.

`GPU.py --get` forks the monitor before it takes a GPU. The monitor takes the GPU out of the list, writes its ID to the
parent, and waits for the end of the parent (which executes `berth acquire`), and then for the bell of the lease. If the
monitor is killed, the next `GPU.py` of this host puts the GPU back: see recover_lost_gpus().
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

from . import _shared_folder
from ._gpuget_redis_lists import RedisLists

_MAX_ATTEMPTS = 60  # one a second, if Redis does not answer when a lease ends


def lease_label(mark: str) -> str:
    """The label of the lease. `mark` is the text "HOST PID TOKEN", which identifies the monitor in Redis."""
    return f"GPU.py {mark.rsplit(' ', 1)[-1]}"


def take_gpu(lists: RedisLists, managed: List[str], holder: int) -> Tuple[str, str]:
    """Starts a monitor that takes a GPU out of GPUGET's list, and waits until it has one. Returns the ID of the GPU and
    the label that its lease must have."""
    read, write = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(read)
        _run_monitor(lists, managed, holder, parent, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        reply = pipe.read()
    gpu, _, rest = reply.partition(" ")
    if not gpu.isdecimal():
        raise berth.HarbourError(rest or "the monitor process of GPUGET's list ended unexpectedly; try again")
    return gpu, lease_label(rest)


def _run_monitor(lists: RedisLists, managed: List[str], holder: int, parent: int, pipe: int) -> None:
    """The monitor process. Never returns."""
    try:
        parent_fd = os.pidfd_open(parent)
        os.setsid()
        mark = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(4)}"
        gpu = _wait_for_gpu(lists, managed, holder, mark, parent_fd)
        if gpu is None:
            os._exit(0)
        os.write(pipe, f"{gpu} {mark}".encode())
        os.close(pipe)
        _detach_from_shell()
        _wait_until_readable(parent_fd)
        _wait_for_lease_end(lists, gpu, mark)
        for _ in range(_MAX_ATTEMPTS):
            try:
                lists.put_back(gpu, mark, f"released by PID {holder}.")
                break
            except berth.HarbourError:
                time.sleep(1)
    except berth.Error as problem:
        os.write(pipe, f"! {problem}".encode())
    finally:
        os._exit(0)


def _wait_for_gpu(lists: RedisLists, managed: List[str], holder: int, mark: str, parent_fd: int) -> Optional[str]:
    while not select.select([parent_fd], [], [], 0)[0]:
        free = [str(gpu.index) for gpu in berth.status() if gpu.state == "free"]
        # First GPUs that Berth would grant at once; for another one, `berth acquire` waits in Berth's queue.
        gpu = lists.take_gpu(mark, holder, [one for one in managed if one in free] + managed)
        if gpu is not None:
            return gpu
        lists.wait_for_idle()
    return None


def _detach_from_shell() -> None:
    """Replaces the standard streams by /dev/null: a program that reads the output of GPU.py waits until no process has
    it open. Ignores the signals of the terminal."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for standard_fd in (0, 1, 2):
        os.dup2(null_fd, standard_fd)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _wait_until_readable(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()


def _wait_for_lease_end(lists: RedisLists, gpu: str, mark: str) -> None:
    """Waits for the end of the lease, if there is one. Its bell has a reader as long as one of its holders runs."""
    lease = next((lease for one in berth.status() for lease in one.leases if lease.label == lease_label(mark)), None)
    if lease is None or lease.pid is None:
        return
    try:
        bell = os.open(os.path.join(_shared_folder.harbour_path(), f"bell-{lease.id}"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # it has ended
    with contextlib.suppress(berth.HarbourError):
        lists.set_holder_pid(gpu, mark, lease.pid)
    poll = select.poll()
    poll.register(bell, 0)  # reports POLLERR when the last reader has closed the bell
    poll.poll()


def recover_lost_gpus(lists: RedisLists) -> None:
    """Puts back the GPUs whose monitor on this host was killed."""
    idle = lists.idle()
    for gpu in lists.managed():
        mark = lists.read_holder(gpu).mark if gpu not in idle else ""
        words = mark.split(" ")
        if len(words) != 3 or words[0] != socket.gethostname() or _is_running(words[1]):
            continue
        labels = [lease.label for one in berth.status() for lease in one.leases]
        labels += [ticket.label for ticket in berth.queue()]
        if lease_label(mark) not in labels:
            lists.put_back(gpu, mark, "was put back by berth, since its lease has ended.")


def _is_running(pid: str) -> bool:
    """Whether the process runs. A zombie does not count: in a container it may never be reaped."""
    if not (pid.isascii() and pid.isdecimal()):
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
