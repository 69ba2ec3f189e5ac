"""The attacker plants files in the harbour so that honest commands cost much, keep their leftovers, or miss something.

Each rule about a file of another user has its test here: what an unreadable bell means, what dead tickets cost their
owner, what may stay behind, and how often a planted file is looked at.
"""

import json
import os
import re
import time

import pytest
from users import ALICE, BOB, MALLORY, SAY_AND_STAY, ids, put, record, world  # noqa: F401

pytestmark = pytest.mark.needs_root


@pytest.fixture
def harbour():
    return "directory"


def dead_bell(path, seconds_ago=0):
    os.mkfifo(path, 0o622)
    os.chmod(path, 0o622)
    then = time.time() - seconds_ago
    os.utime(path, (then, then))


def dead_tickets(harbour, names, uid):
    for number, name in enumerate(names):
        dead_bell(f"{harbour}/bell-{name}")
        put(f"{harbour}/ticket-{number:015}-{name}", record(name, uid, order=number))


def lone_bells(harbour, names):
    for name in names:
        dead_bell(f"{harbour}/bell-{name}", seconds_ago=3600)


def plant(harbour, names):
    for name in names:
        put(f"{harbour}/{name}", "{}")


def test_dead_tickets_do_not_use_up_the_limit(world):  # noqa: F811
    """2,000 waiters were killed; their user's next command waits all the same."""
    world.in_memory()
    world.do(ALICE, dead_tickets, world.harbour, ids("d", 2000), ALICE)
    holder = world.hold(BOB)
    alice = world.wait(ALICE)
    assert len(world.names("ticket-")) < 2000
    holder.end()
    alice.started()


def test_bells_of_others_do_not_protect_a_leftover(world):  # noqa: F811
    world.in_memory()
    # Before and after: a file system lists them in some order.
    world.do(ALICE, lone_bells, world.harbour, ["aaaaaaaa"])
    world.do(MALLORY, lone_bells, world.harbour, ids("m", 1000))
    world.do(ALICE, lone_bells, world.harbour, ["aaaaaaab"])
    assert world.try_now(ALICE).returncode == 0
    assert world.names("bell-a") == []


def test_an_inner_lease_is_later_than_the_outer_one(world):  # noqa: F811
    """Also if the clock was set back: else the inner lease would count beside the outer one."""
    outer = world.hold(ALICE)
    path = world.path(f"lease-{outer.lease}")
    one = json.load(open(path))
    with open(path, "w") as file:
        json.dump(one | {"granted_ms": one["granted_ms"] + 3_600_000}, file)
    world.hold(ALICE, env={"BERTH_LEASE": outer.lease}, command=SAY_AND_STAY)
    assert list(world.leases()) == [outer.lease]


@pytest.mark.parametrize("call", ["fchmod", "fremovexattr"])
def test_a_directory_that_cannot_be_finished_is_removed(server, open_build, call):
    server.env["BERTH_DIR"] = str(server.folder / "fresh")
    result = server.run("strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error=EIO",
                        open_build / "bin" / "berth", "run", "--no-wait", "--", "true")
    assert result.returncode == 74, result
    assert [name for name in os.listdir(server.folder) if name.startswith("fresh")] == []


def calls(world, uid):  # noqa: F811
    """How many system calls a decision makes."""
    trace = world.server.folder / f"calls-{time.monotonic_ns()}"
    with open(trace, "w"):
        pass
    os.chmod(trace, 0o666)
    result = world.server.run("strace", "-f", "-c", "-o", trace, *world.prefix(uid), world.berth_path, "run", "--no-wait",
                              "--", "true")
    assert result.returncode == 0, result
    return int(re.search(r"^\s*100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s.*total$", trace.read_text(), re.M)[1])


@pytest.mark.parametrize("kind", ["lease-", "ticket-000000000000001-", "bell-", "request-", "", "new-request-"])
def test_a_planted_file_is_looked_at_a_constant_number_of_times(world, kind):  # noqa: F811
    """F12: counted, not timed."""
    world.in_memory()
    names = [kind + name for name in ids("p", 1000)]
    world.do(MALLORY, plant, world.harbour, names[:500])
    few = calls(world, BOB)
    world.do(MALLORY, plant, world.harbour, names[500:])
    many = calls(world, BOB)
    print(f"{kind}: {(many - few) / 500:.2f} calls a file")
    assert many - few < 500 * 8
