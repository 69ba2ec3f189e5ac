"""The attacker wants every GPU to stay idle while others wait.

They tried (F10): a ticket that is granted GPUs, reads its bell and never claims them; eight such tickets, of one or of
several users, that each want every GPU; forty of them; a wide one that would keep what the first honest client leaves;
tickets that never read their bell, as in a paused container; the harbour's lock, held until an honest ticket looks
unresponsive; two tickets that change their requests so that one is granted while the other is impossible, by turns,
before either has been granted for long enough to be silent; odd records beside live bells, which block what they may hold but are named with their owner.
"""

import fcntl
import json
import os
import time

import pytest
from users import ALICE, BOB, MALLORY, eventually, ids, create_client, create_clients, put, record, world  # noqa: F401

pytestmark = pytest.mark.needs_root

OTHERS = [MALLORY, 2004, 2005, 2006]


@pytest.fixture
def harbour():
    return "directory"


def ticket(name):
    return f"ticket-{0:015}-{name}"


def read_for_ever(harbour, files):
    """Live tickets whose bells are read at once, and that never claim what they are granted."""
    bells = create_clients(harbour, files)
    if os.fork() == 0:
        while True:
            for fd in bells:
                try:
                    os.read(fd, 1 << 16)
                except BlockingIOError:
                    pass
            time.sleep(0.01)
    return True


def silent(world, uid, tickets, reads, gpus=1):
    names = ids("s" + "abcdefgh"[uid % 8], tickets)
    files = [(ticket(name), record(name, uid, order=0, request={"count": gpus})) for name in names]
    return world.start_process(uid, read_for_ever if reads else create_clients, world.harbour, files), names


def take_turns(harbour, first, second, uid, requests, seconds):
    """Two tickets: one has the first request, the other the second one, and they swap every so many seconds."""
    create_clients(harbour, [(ticket(name), record(name, uid, order=0, request=request))
                             for name, request in zip((first, second), requests)])
    if os.fork() == 0:
        while True:
            time.sleep(seconds)
            for name, request in zip((second, first), requests):
                put(f"{harbour}/new-{name}-request-{name}", record(name, uid, order=0, request=request))
                os.rename(f"{harbour}/new-{name}-request-{name}", f"{harbour}/request-{name}")
            first, second = second, first
    return True


TOO_MUCH = 1 << 40  # bytes of memory that no GPU has
TURNS = {
    "more GPUs than there are": {"count": 99},
    "another GPU": {"count": 2, "gpus": ["GPU-00000000-0000-0000-0000-000000000000"]},
    "too much memory": {"count": 2, "memory_bytes": TOO_MUCH},
    "less memory": {"count": 2, "memory_bytes": 1},
}


def kill_readers(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        for pid in children.read().split():
            os.kill(int(pid), 9)


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does nothing"])
@pytest.mark.parametrize("count", [1, 8, 40])
def test_silent_tickets_delay_others_once(world, count, reads):
    """Eight take no longer than one."""
    world.server.use("2x24GiB")
    holder = world.hold(ALICE, "-n", "2")
    processes = [silent(world, uid, count // len(OTHERS) or 1, reads, gpus=2)[0] for uid in OTHERS[:count]]
    try:
        bob = world.wait(BOB)
        begin = time.monotonic()
        holder.end()
        bob.started()
        took = time.monotonic() - begin
        print(f"{took:.1f} s behind {count} silent tickets")
    finally:
        for process in processes:
            kill_readers(process)


def test_many_leases_with_known_ends_do_not_make_each_decision_slow(world):
    """Tickets that might delay a reservation are compared with the ends of leases: 1,500 with 4,000 took a minute."""
    world.server.use("4x24GiB")
    first, *_, last = (gpu["uuid"] for gpu in world.server.status()["gpus"])
    shared = ids("many", 4000)
    small = ids("tick", 1500)
    files = [(f"lease-{name}", record(name, MALLORY, [first], request={
                 "count": 1, "memory_bytes": 1, "time_ms": 3600000 + 1000 * i})) for i, name in enumerate(shared)]
    files.append(("lease-wholegpu", record("wholegpu", MALLORY, [last])))
    files.append((ticket("reserves"), record("reserves", MALLORY, order=0, request={
        "count": 2, "gpus": [first, last], "memory_bytes": 1 << 30})))
    files += [(ticket(name), record(name, MALLORY, order=0, request={
        "count": 1, "gpus": [first], "memory_bytes": 1 << 20, "time_ms": 10 ** 8 + i})) for i, name in enumerate(small)]
    world.start_process(MALLORY, create_clients, world.harbour, files)
    job = world.run(ALICE, "--no-wait", "--gpu", "1", command=["true"])
    assert job.process.wait(40) == 0, job.err.read_text()


@pytest.mark.parametrize("seconds", [0.4, 2.5])
@pytest.mark.parametrize("wanted", [{"count": 2}, {"count": 2, "memory_bytes": 1 << 30}], ids=["whole GPUs", "shared GPUs"])
@pytest.mark.parametrize("other", TURNS.values(), ids=TURNS.keys())
def test_tickets_that_are_granted_by_turns_do_not_block_the_queue(world, wanted, other, seconds):
    """The request of a ticket can only become smaller: so each of them stays granted, and is silent, or stays impossible."""
    world.server.use("2x24GiB")
    holder = world.hold(ALICE, "-n", "2")
    attacker = world.start_process(MALLORY, take_turns, world.harbour, *ids("turn", 2), MALLORY, [wanted, other], seconds)
    try:
        bob = world.wait(BOB)
        carol = world.wait(ALICE)
        holder.end()
        for waiter in (bob, carol):
            waiter.started()
    finally:
        kill_readers(attacker)


def test_a_wide_silent_ticket_keeps_nothing_from_the_second_honest_client(world):
    """When the first one has taken a GPU, the silent ticket cannot claim any more, and would reserve the other GPU."""
    world.server.use("2x24GiB")
    holder = world.hold(ALICE, "-n", "2")
    process, _ = silent(world, MALLORY, 1, True, gpus=2)
    try:
        first, second = world.wait(BOB), world.wait(ALICE)
        holder.end()
        first.started()
        second.started()
    finally:
        kill_readers(process)


def ring(harbour, names):
    for name in names:
        os.write(os.open(f"{harbour}/bell-{name}", os.O_WRONLY | os.O_NONBLOCK), b"!")


def test_the_first_goes_on_behind_a_silent_ticket_whoever_is_rung(world):
    """A client far back that is rung does not make all clients before it decide again and again, until none is granted."""
    holder = world.hold(ALICE)
    process, _ = silent(world, MALLORY, 1, True)
    try:
        first = world.wait(BOB)
        others = [world.run(BOB) for _ in range(40)]
        for other in others:
            other.said("position ")
        names = world.queue()[2:]
        assert len(names) == 40
        holder.end()
        world.do(MALLORY, ring, world.harbour, names)
        first.started()
        assert [other.out.read_text() for other in others] == [""] * 40
    finally:
        kill_readers(process)


def test_a_waiting_client_does_not_poll(world, tmp_path):
    """Neither beside an honest ticket nor beside one that is frozen and could claim another GPU."""
    world.server.use("2x24GiB")
    world.hold(ALICE, "--gpu", "0")
    other = world.hold(ALICE, "--gpu", "1")
    name = ids("f", 1)[0]
    world.start_process(MALLORY, create_client, world.harbour, ticket(name),
                 record(name, MALLORY, order=0, request={"count": 1, "gpus": [world.uuid(1)]}))
    world.wait(BOB, "--gpu", "0")
    trace = world.server.folder / "trace"
    trace.write_text("")
    trace.chmod(0o666)
    second = world.wait(BOB, "--gpu", "0", prefix=["strace", "-f", "-o", str(trace), "-e", "trace=flock", "-e", "signal=none"])
    other.end()  # the frozen ticket could claim GPU 1 from now on, and does not read its bell

    def is_quiet():
        before = trace.read_text().count("LOCK_EX")
        time.sleep(5)
        return trace.read_text().count("LOCK_EX") == before
    eventually(is_quiet, lambda: f"{trace.read_text().count('LOCK_EX')} decisions")
    assert second.process.poll() is None


def lock_and_ring(harbour, name, seconds):
    lock = os.open(harbour, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    end = os.open(f"{harbour}/bell-{name}", os.O_WRONLY | os.O_NONBLOCK)
    for _ in range(2):  # the first ring may be read at once, the second lies there
        os.write(end, b"!")
        time.sleep(seconds / 2)
    fcntl.flock(lock, fcntl.LOCK_UN)


def test_a_ticket_is_not_passed_over_because_another_user_held_the_lock(world):
    holder = world.hold(ALICE)
    first, second = world.wait(BOB), world.wait(ALICE)
    holder.process.stdin.close()  # not waited for: its end, too, may take until the lock is free
    world.do(MALLORY, lock_and_ring, world.harbour, first.lease, 7)
    first.started()
    assert second.out.read_text() == ""


def test_status_and_doctor_name_a_silent_ticket(world):
    process, [name] = silent(world, MALLORY, 1, True)
    try:
        [waiting] = world.status()["queue"]
        assert waiting["ticket"] == name and "claimed" in waiting["reason"]
        report = json.loads(world.berth(BOB, "doctor", "--json").stdout)
        [finding] = [one for one in report["findings"] if one["check"] == "silent"]
        assert finding["level"] == "problem" and name in finding["text"] and str(MALLORY) in finding["text"]
    finally:
        kill_readers(process)


def test_the_honest_among_the_silent_are_served_in_their_order(world):
    holder = world.hold(ALICE)
    process, _ = silent(world, MALLORY, 1, True)
    try:
        first = world.wait(BOB)
        second_process, _ = silent(world, 2004, 2, True)
        processes = [process, second_process]
        second = world.wait(ALICE)
        holder.end()
        first.started()
        assert second.out.read_text() == ""
        first.end()
        second.started()
    finally:
        for one in processes:
            kill_readers(one)


# What cannot be understood blocks, and is explained.

@pytest.mark.parametrize("content", ["", "{", "x" * 100_000, '{"version": 1}', json.dumps({"version": 99, "id": "nnnnnnnn"})],
                         ids=["empty", "half", "oversized", "nearly nothing", "newer"])
def test_an_odd_lease_beside_a_live_bell_blocks_and_is_explained(world, content):
    mallory = world.start_process(MALLORY, create_client, world.harbour, "lease-nnnnnnnn", content)
    refused = world.try_now(BOB)
    assert refused.returncode == 75 and str(MALLORY) in refused.stderr, refused
    text = world.berth(BOB, "doctor").stdout
    lines = [line for line in text.splitlines() if "nnnnnnnn" in line]
    assert lines, text
    assert not any("rm " in line for line in text.splitlines() if "nnnnnnnn" in line), text
    mallory.stop()
    assert world.try_now(BOB).returncode == 0
