"""A queue of many tickets that wait for another GPU: what they cost a client that does not need that GPU, and what still counts.

The tickets are files that a process of another user keeps alive, without berth. strace counts the system calls of berth itself.
"""

import fcntl
import os
import re
import struct
import termios

import pytest
from users import ALICE, BOB, MALLORY, create_clients, eventually, ids, record, world  # noqa: F401

pytestmark = pytest.mark.needs_root

CAROL = 2004
HASH_NS = (2**32 + 5) * 10**9 + 77  # a modification time that is a hash (docs/harbour-protocol.md)


@pytest.fixture
def harbour():
    return "directory"


@pytest.fixture
def two_gpus(world):  # noqa: F811
    """Alice holds GPU 0, and GPU 1 is free."""
    world.in_memory().server.use("2x24GiB")
    world.uuids = [gpu["uuid"] for gpu in world.status()["gpus"]]
    world.hold(ALICE, "--gpu", "0")
    return world


def ticket(name):
    return f"ticket-{0:015}-{name}"


def keep_tickets(harbour, files, modification_ns):
    create_clients(harbour, files)
    for file, _ in files:
        os.utime(f"{harbour}/{file}", ns=(modification_ns, modification_ns))


def add_tickets(world, uid, prefix, count, gpu=0, modification_ns=HASH_NS):  # noqa: F811
    """Tickets of one process of that user, which neither reads its bells nor claims. Returns their IDs."""
    names = ids(prefix, count)
    files = [(ticket(name), record(name, uid, order=0, request={"count": 1, "gpus": [world.uuids[gpu]]})) for name in names]
    world.start_process(uid, keep_tickets, world.harbour, files, modification_ns)
    return names


def unread_rings(world, name):  # noqa: F811
    bell = os.open(f"{world.harbour}/bell-{name}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return struct.unpack("i", fcntl.ioctl(bell, termios.FIONREAD, b"\0" * 4))[0]
    finally:
        os.close(bell)


def count_calls(trace):
    return len(re.findall(r"^\w+\(", trace.read_text(errors="replace"), re.MULTILINE))


@pytest.mark.parametrize(("modification_ns", "limit"), [(HASH_NS, 1.3), (10**9, 6.3)], ids=["with a hash", "without"])
def test_a_ticket_for_another_gpu_costs_few_system_calls(two_gpus, tmp_path, modification_ns, limit):
    """statx, in the listing; without a hash also statx, openat2, fstat, pread and close."""
    calls = []
    for prefix, count in (("b", 20), ("c", 400)):
        add_tickets(two_gpus, BOB, prefix, count, modification_ns=modification_ns)
        trace = tmp_path / f"{prefix}.trace"
        assert two_gpus.try_now(CAROL, "--gpu", "1", prefix=["strace", "-o", trace]).returncode == 0
        calls.append(count_calls(trace))
    assert (calls[1] - calls[0]) / 400 < limit, calls


def test_a_ticket_behind_the_first_costs_few_system_calls(two_gpus, tmp_path):
    """The first of the queue decides whenever a lease ends."""
    trace = tmp_path / "trace"
    first = two_gpus.run(ALICE, "--gpu", "0", prefix=["strace", "-o", trace])
    first.said("waiting, position 1")
    add_tickets(two_gpus, BOB, "b", 400)

    def decisions():
        """The system calls between taking the lock and releasing it, of each decision that listed all tickets."""
        found = re.findall(r"^flock\(\d+, LOCK_EX.*?\) += 0\n(.*?)^flock\(\d+, LOCK_UN", trace.read_text(errors="replace"),
                           re.MULTILINE | re.DOTALL)
        return [calls for calls in map(str.splitlines, found) if len(calls) > 400]
    before = len(decisions())
    assert two_gpus.try_now(CAROL, "--gpu", "1").returncode == 0
    # The claim rings the first, and so does the end of the job.
    calls = eventually(lambda: len(found := decisions()) > before and found, "the first decides")
    assert all(len(one) < 400 * 1.3 + 100 for one in calls[before:]), [len(one) for one in calls]


def test_a_new_lease_is_known_to_the_first_two_that_live(two_gpus):
    """The others are left out, but the first two of each user watch all leases."""
    bobs = add_tickets(two_gpus, BOB, "b", 8)
    dead = two_gpus.start_process(MALLORY, keep_tickets, two_gpus.harbour, [(ticket("mdeadaaa"), record("mdeadaaa", MALLORY, order=0))],
                                  HASH_NS)
    mallorys = add_tickets(two_gpus, MALLORY, "ma", 8)
    dead.stop()
    assert not any(unread_rings(two_gpus, name) for name in bobs + mallorys)
    assert two_gpus.try_now(CAROL, "--gpu", "1").returncode == 0
    assert [unread_rings(two_gpus, name) for name in bobs] == [1, 1, 0, 0, 0, 0, 0, 0]
    assert [unread_rings(two_gpus, name) for name in mallorys] == [1, 1, 0, 0, 0, 0, 0, 0]


def test_a_forged_hash_costs_nobody_but_its_owner_a_place(two_gpus):
    """Mallory's tickets have the hash of Bob's, but ask for another GPU."""
    add_tickets(two_gpus, MALLORY, "ma", 8)
    add_tickets(two_gpus, BOB, "b", 1, gpu=1)
    assert two_gpus.try_now(CAROL, "--gpu", "1").returncode == 75


@pytest.mark.parametrize(("modification_ns", "code"), [(10**9, 75), (HASH_NS, 0)], ids=["honest", "forged"])
def test_an_owner_who_forges_a_hash_loses_a_place(two_gpus, modification_ns, code):
    add_tickets(two_gpus, MALLORY, "ma", 8)
    add_tickets(two_gpus, MALLORY, "mb", 1, gpu=1, modification_ns=modification_ns)
    assert two_gpus.try_now(CAROL, "--gpu", "1").returncode == code


def test_a_waiting_client_knows_which_earlier_tickets_count(two_gpus):
    """A client that is granted GPUs at once may leave out Mallory's dead tickets. One that waits must notice them: they stand behind
    it even if Mallory makes them count later, so its position does not count them."""
    add_tickets(two_gpus, MALLORY, "ma", 2)
    add_tickets(two_gpus, MALLORY, "mb", 3)
    two_gpus.processes[-1].stop()
    two_gpus.wait(CAROL, "--gpu", "0").said("waiting, position 3")
