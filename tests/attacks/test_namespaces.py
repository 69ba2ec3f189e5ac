"""There is no attacker: two honest users, one of them in a rootless container, want one GPU (F2).

Inside a user namespace the kernel shows other numbers for the owners of files, and 65534 for users that the namespace does
not map. Holders and waiters in every kind of user namespace, in other PID and mount namespaces and on the host share one
harbour: never do two of them hold the same GPU, each wakes the other, and nobody is root of the host inside.
"""

import json

import pytest
import user_namespace
from users import ALICE, BOB, MALLORY, World, eventually

pytestmark = pytest.mark.needs_root

PLACES = ["host", *user_namespace.MAPS]


@pytest.fixture
def harbour():
    return "directory"


class Places(World):
    """Users of whom some are in a namespace: (uid, kind) instead of a uid."""

    def prefix(self, user):
        uid, kind = user if isinstance(user, tuple) else (user, "host")
        return super().prefix(uid) if kind == "host" else user_namespace.prefix(kind, uid)


@pytest.fixture
def world(server, open_build):
    one = Places(server, open_build)
    yield one
    one.close()


@pytest.mark.parametrize("waiter", PLACES)
@pytest.mark.parametrize("holder", PLACES)
def test_one_gpu_two_users_any_two_places(world, holder, waiter):
    alice = world.hold((ALICE, holder))
    refused = world.try_now((BOB, waiter))
    assert refused.returncode == 75, refused
    bob = world.run((BOB, waiter))
    bob.said("position 1 ")
    assert world.try_now(MALLORY).returncode == 75
    assert len(world.leases()) == 1 and len(world.queue()) == 1
    alice.end()
    bob.started()
    assert world.try_now((ALICE, holder)).returncode == 75
    bob.kill()
    eventually(lambda: world.try_now((ALICE, holder)).returncode == 0, "the end of the processes that were killed")


@pytest.mark.parametrize("place", list(user_namespace.MAPS))
def test_the_host_knows_whose_lease_it_is(world, place):
    alice = world.hold((ALICE, place))
    assert world.leases() == {alice.lease: str(ALICE)}
    assert "planted" not in [one["check"] for one in json.loads(world.berth(BOB, "doctor", "--json").stdout)["findings"]
                             if one["level"] == "problem"]


@pytest.mark.parametrize("place", list(user_namespace.MAPS))
def test_root_inside_is_not_root_outside(world, place):
    """It neither ends what is another's, nor tidies or archives it."""
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    for words in (["release", alice.lease], ["cancel", bob.lease], ["drain", "0", "--reason", "x"]):
        result = world.berth((MALLORY, place), *words)
        assert result.returncode == 77 and result.stderr.count("\n") == 1, (words, result)
    assert "another user" in world.berth((MALLORY, place), "status").stdout
    assert world.leases() == {alice.lease: str(ALICE)} and world.queue() == [bob.lease]


def test_without_any_map_every_user_looks_alike_and_nothing_is_granted_twice(world):
    alice = world.hold(ALICE)
    assert world.try_now((BOB, "unmapped")).returncode == 75
    assert world.berth((BOB, "unmapped"), "release", alice.lease).returncode != 0
    alice.end()
    bob = world.hold((BOB, "unmapped"))
    assert world.leases() == {bob.lease: str(BOB)}
    assert world.try_now(ALICE).returncode == 75
    bob.kill()
    eventually(lambda: world.try_now(ALICE).returncode == 0, "the end of the processes that were killed")


@pytest.mark.parametrize("place", list(user_namespace.MAPS))
def test_an_inner_lease_in_a_container_takes_up_nothing_more(world, place):
    """A job that starts a container, in which another `berth run` takes part of the same lease."""
    inside = ["sh", "-c", f'{world.berth_path} run -- sh -c "echo inner \\$BERTH_GPUS"; read -r line']
    alice = world.run((ALICE, place), command=inside)
    eventually(lambda: "inner 0" in alice.out.read_text(), "the inner job")
    assert len(world.leases()) == 1
