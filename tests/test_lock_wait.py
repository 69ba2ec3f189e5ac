"""Clients that wait for the harbour's lock longer than a snapshot of the GPUs may be old: a herd of new clients, a slow host.

Such a client uses its turn all the same: it writes its ticket, and if it is in front it claims its lease. The test itself holds
the lock; strace shows what a client does in its first turn.
"""

import contextlib
import fcntl
import os
import re
import struct
import termios

from leasing import eventually, jobs  # noqa: F401

WAITS_FOR_LOCK = "waiting for the harbour lock"  # is said after 3 s, when every snapshot is older than 2 s


@contextlib.contextmanager
def locked(harbour):
    directory = os.open(harbour, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def traced(path):
    return ["strace", "-o", str(path), "-y", "-e", "signal=none", "-e", "trace=flock,openat"]


def turns(path):
    """What the process has done each time that it had the lock: the names of the files that it made."""
    sections = re.findall(r"^flock\(\d+<[^>]*>, LOCK_EX(?:\|LOCK_NB)?\) += 0\n(.*?)^flock\(\d+<[^>]*>, LOCK_UN\)",
                          path.read_text(errors="replace"), re.MULTILINE | re.DOTALL)
    return [re.findall(r'"(\w+)-[^"]*", [^)]*O_CREAT', section) for section in sections]


def test_a_new_client_writes_its_ticket_in_its_first_turn(server, jobs, tmp_path):  # noqa: F811
    server.use("1x24GiB")
    jobs.hold()
    with locked(server.harbour):
        client = jobs.run(prefix=traced(tmp_path / "trace"))
        eventually(lambda: WAITS_FOR_LOCK in client.err, "it waits for the lock")
    eventually(lambda: "position" in client.err, "it has a place in the queue")
    assert turns(tmp_path / "trace")[0] == ["ticket"]


def test_a_client_that_may_start_needs_no_second_turn(server, jobs, tmp_path):  # noqa: F811
    """It asks the driver again while it waits for the lock, however long that takes."""
    server.use("1x24GiB")
    holder = jobs.hold()
    client = jobs.run(prefix=traced(tmp_path / "trace"))
    client.waits()
    before = len(turns(tmp_path / "trace"))
    with locked(server.harbour):
        holder.end()
        eventually(lambda: WAITS_FOR_LOCK in client.err, "it waits for the lock")
    client.gpus()
    assert turns(tmp_path / "trace")[before] == ["lease"]


def test_a_client_that_waits_for_the_lock_reads_its_bell(server, jobs):  # noqa: F811
    """Other clients take an unread bell for that of a stopped process, and pass over its ticket."""
    server.use("1x24GiB")
    holder = jobs.hold()
    client = jobs.run()
    client.waits()
    [ticket] = server.harbour.glob("ticket-*")
    with locked(server.harbour):
        holder.end()
        eventually(lambda: WAITS_FOR_LOCK in client.err, "it waits for the lock")
        bell = os.open(server.harbour / f"bell-{ticket.name.rpartition('-')[2]}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(bell, b".")
            eventually(lambda: struct.unpack("i", fcntl.ioctl(bell, termios.FIONREAD, b"\0" * 4)) == (0,), "it reads its bell")
        finally:
            os.close(bell)
    client.gpus()
