"""The attacker wants a GPU that Alice holds to be granted to Bob (or to themselves), so that the two collide.

They tried: a lease with the id of the outer lease that Alice's inner lease once belonged to (F3); two leases that name each
other as the outer one; the owner of the harbour's directory moves Alice's record away, or marks it as ended (F6); a hard link
to another file of Alice's as the record of her lease; a race at `sudo berth cancel` that changes the mode of another file (F16).
"""

import json
import os
import stat

import pytest
from conftest import wait_until
from users import ALICE, BOB, MALLORY, eventually, create_client, put, record, world  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.needs_root

# An outer lease that ends while the inner one goes on: the outer job leaves a process with the inner lease alone.
INNER_STAYS = ["sh", "-c", '"$BERTH" run -- sh -c \'echo "$BERTH_LEASE $BERTH_GPUS"; read -r line\' <&0 & '
               'eval "exec $(ls /proc/$$/fd | sed -n "s/^\\(3[0-9][0-9]\\)$/\\1>\\&-/p" | tr "\\n" " ")"; wait']


@pytest.fixture
def harbour():
    return "directory"


def lease_file(world, name):
    return json.loads(open(world.path(f"lease-{name}")).read())


def fake_outer(world, name, uuid, uid=MALLORY):
    return world.start_process(uid, create_client, world.harbour, f"lease-{name}", record(name, uid, [uuid]))


def test_an_outer_lease_of_another_user_hides_nothing(world):
    """Alice's lease says that it is inside of one that has ended. The attacker makes a lease of that id."""
    world.server.use("2x24GiB")
    alice = world.start_process(ALICE, create_client, world.harbour, "lease-aaaaaaaa",
                         record("aaaaaaaa", ALICE, [world.uuid(0)], within="bbbbbbbb"))
    assert world.try_now(BOB, "--gpu", "0").returncode == 75
    for held in (world.uuid(0), world.uuid(1)):
        mallory = fake_outer(world, "bbbbbbbb", held)
        assert world.try_now(BOB, "--gpu", "0").returncode == 75
        assert world.leases().get("aaaaaaaa") == str(ALICE)
        mallory.stop()
        os.unlink(world.path("lease-bbbbbbbb"))
        os.unlink(world.path("bell-bbbbbbbb"))
    alice.stop()
    assert world.try_now(BOB, "--gpu", "0").returncode == 0


def test_two_leases_that_name_each_other_still_count(world):
    uuid, now = world.uuid(), 1_700_000_000_000
    for own, other in (("aaaaaaaa", "bbbbbbbb"), ("bbbbbbbb", "aaaaaaaa")):
        world.start_process(MALLORY, create_client, world.harbour, f"lease-{own}",
                     record(own, MALLORY, [uuid], within=other, granted_ms=now))
    assert world.try_now(BOB).returncode == 75


def test_an_outer_lease_that_has_less_does_not_cover_the_inner_one(world):
    """The attacker reserves one byte, and uses a card inside of that."""
    uuid = world.uuid()
    tiny, large = {"count": 1, "memory_bytes": 1}, {"count": 1, "memory_bytes": 20 << 30}
    world.start_process(MALLORY, create_client, world.harbour, "lease-aaaaaaaa",
                 record("aaaaaaaa", MALLORY, [uuid], request=tiny, granted_ms=1_700_000_000_000))
    world.start_process(MALLORY, create_client, world.harbour, "lease-bbbbbbbb",
                 record("bbbbbbbb", MALLORY, [uuid], request=large, within="aaaaaaaa"))
    assert world.try_now(BOB, "--mem", "10GiB").returncode == 75
    assert world.try_now(BOB, "--mem", "1GiB").returncode == 0


def test_an_honest_inner_lease_takes_up_nothing_more(world):
    inside = ["sh", "-c", f'{world.berth_path} run -- sh -c "echo inner \\$BERTH_GPUS"; read -r line']
    alice = world.run(ALICE, command=inside)
    wait_until(lambda: "inner 0" in alice.out.read_text(), "the inner job")
    assert len(world.leases()) == 1


# The first owner of the directory.

def own_harbour(world, uid):
    os.chown(world.harbour, uid, uid)


def test_the_owner_of_the_directory_cannot_end_a_jobs_lease(world):
    own_harbour(world, MALLORY)
    alice = world.hold(ALICE)
    name = f"lease-{alice.lease}"
    inode = os.stat(world.path(name)).st_ino
    world.do(MALLORY, os.rename, world.path(name), world.path(f"end-{alice.lease}"))
    eventually(lambda: os.path.exists(world.path(name)) and os.stat(world.path(name)).st_ino != inode, "the lease put back")
    assert world.try_now(BOB).returncode == 75
    alice.said(alice.lease)


def test_the_owner_of_the_directory_cannot_mark_anothers_record(world):
    own_harbour(world, MALLORY)
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    [ticket] = world.names("ticket-")
    for name in (f"lease-{alice.lease}", ticket):
        with pytest.raises(AssertionError, match="Permission"):
            world.do(MALLORY, os.chmod, world.path(name), 0o1644)
    assert world.berth(MALLORY, "cancel", bob.lease).returncode == 77
    alice.end()
    bob.started()


def test_run_warns_once_while_another_user_owns_the_harbour(world):
    own_harbour(world, MALLORY)
    first = world.berth(ALICE, "run", "--no-wait", "--", "true")
    assert first.returncode == 0 and "berth setup" in first.stderr and str(MALLORY) in first.stderr
    os.chown(world.harbour, 0, 0)
    assert world.berth(ALICE, "run", "--no-wait", "--", "true").stderr == ""
    own_harbour(world, ALICE)
    assert world.berth(ALICE, "run", "--no-wait", "--", "true").stderr == ""


@pytest.mark.parametrize("mode", [0, 0o1644, 0o200])
def test_a_jobs_lease_counts_whatever_its_mode(world, mode):
    """Not even its owner ends it while the job runs: the job would go on with a GPU that is granted to another."""
    alice = world.hold(ALICE)
    world.do(ALICE, os.chmod, world.path(f"lease-{alice.lease}"), mode)
    for uid in (BOB, 0):
        assert world.try_now(uid).returncode == 75
    alice.end()
    assert world.try_now(BOB).returncode == 0


def test_root_marks_no_file_but_the_record(world):
    """F16: between the look and the chmod the attacker puts a link to Alice's file in the place of their ticket."""
    alice = world.hold(ALICE)
    private = world.server.folder / "private"
    private.write_text("mine")
    private.chmod(0o640)
    os.chown(private, ALICE, ALICE)
    ticket = "ticket-000000000000001-mmmmmmmm"
    world.start_process(MALLORY, create_client, world.harbour, ticket, record("mmmmmmmm", MALLORY, order=1))
    trace = world.server.folder / "trace"
    # Stopped after the directory was locked: then the name is exchanged, and cancel goes on.
    job = world.run(0, "mmmmmmmm", subcommand="cancel", command=None,
                    prefix=["strace", "-f", "-o", trace, "-e", "trace=flock", "-e", "inject=flock:signal=SIGSTOP:when=3"])
    wait_until(lambda: trace.exists() and "stopped by SIGSTOP" in trace.read_text(), "the stop")
    world.do(MALLORY, os.unlink, world.path(ticket))
    world.do(MALLORY, os.symlink, str(private), world.path(ticket))
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as children:
        for pid in children.read().split():
            os.kill(int(pid), 18)
    job.process.wait(LIMIT)
    assert stat.S_IMODE(private.stat().st_mode) == 0o640
    alice.end()
