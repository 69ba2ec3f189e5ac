"""The attacker wants to be served before those who came earlier, or wants others to lose their place.

They tried: a ticket numbered 1, or 999999999999999, after which every later ticket had the same number (F11); a ticket
file prepared long before and renamed, or given its bell, when it is needed; another user's file that anyone can write to,
linked as the lease of that user's ticket; a planted request; more tickets than anyone could look at (F19), and tickets of
the largest size.
"""

import json
import os

import pytest
from users import ALICE, BOB, MALLORY, bell, ids, create_client, create_clients, put, record, world  # noqa: F401

pytestmark = pytest.mark.needs_root


@pytest.fixture
def harbour():
    return "directory"


def ticket(number, name):
    return f"ticket-{number:015}-{name}"


@pytest.mark.parametrize("number", [0, 1, 999_999_999_999_999])
def test_a_forged_number_gains_nothing(world, number):
    world.hold(ALICE)
    first = world.wait(BOB)
    world.start_process(MALLORY, create_client, world.harbour, ticket(number, "mmmmmmmm"), record("mmmmmmmm", MALLORY, order=number))
    second, third = world.wait(ALICE), world.wait(BOB)
    order = world.queue()
    honest = [one for one in order if one != "mmmmmmmm"]
    assert honest == [first.lease, second.lease, third.lease]
    assert order.index("mmmmmmmm") >= 1, "it came after the first"
    world.jobs[0].end()
    first.started()


def prepare(harbour, name):
    fd = create_client(harbour, f"request-{name}", record(name, MALLORY, order=1))
    return fd


def test_a_ticket_that_was_prepared_early_came_when_it_got_its_name(world):
    world.hold(ALICE)
    mallory = world.start_process(MALLORY, prepare, world.harbour, "mmmmmmmm")
    bob = world.wait(BOB)
    world.do(MALLORY, os.rename, world.path("request-mmmmmmmm"), world.path(ticket(1, "mmmmmmmm")))
    assert world.queue() == [bob.lease, "mmmmmmmm"]
    mallory.stop()


def prepare_without_bell(harbour, name):
    put(f"{harbour}/{ticket(0, name)}", record(name, MALLORY, order=0))


def test_a_place_cannot_be_prepared(world):
    """A client that waits remembers which tickets did not count when it came."""
    world.hold(ALICE)
    world.do(MALLORY, prepare_without_bell, world.harbour, "mmmmmmmm")
    bob = world.wait(BOB, "--time", "1h")
    world.start_process(MALLORY, bell, world.harbour, "mmmmmmmm")
    world.wait(ALICE)
    world.do(MALLORY, ring, world.harbour, bob.lease)  # so that Bob's client decides again
    bob.said("position 1 of 2")
    assert "position 2" not in bob.err.read_text()


@pytest.mark.parametrize("planted", ["new-request-", "request-"])
def test_a_planted_file_costs_no_ticket_its_place(world, planted):
    """The request of a ticket changes while it waits: what is known of its type has changed."""
    holder = world.hold(BOB)
    first = world.wait(ALICE, "--mem", "auto", "--job", "j1")
    second = world.wait(BOB)
    world.do(MALLORY, put, world.path(f"{planted}{first.lease}"), record(first.lease, MALLORY))
    assert world.berth(ALICE, "profile", "set", "j1", "--mem", "4GiB").returncode == 0
    world.do(MALLORY, ring, world.harbour, first.lease)
    holder.end()
    first.started()
    assert second.out.read_text() == ""


def ring(harbour, name):
    os.write(os.open(f"{harbour}/bell-{name}", os.O_WRONLY | os.O_NONBLOCK), b"!")


def link_lease(harbour, file, content, name):
    with open(file, "w") as lease:
        lease.write(content)
    os.link(file, f"{harbour}/lease-{name}")


def test_a_file_that_others_can_write_to_is_not_a_lease(world):
    """The kernel lets a user make hard links to such files of other users, whatever fs.protected_hardlinks says."""
    world.server.use("2x24GiB")
    file = world.server.folder / "a-file-of-alices"
    file.write_text("")
    os.chown(file, ALICE, ALICE)
    file.chmod(0o666)
    world.hold(BOB)
    alice = world.wait(ALICE, "-n", "2")
    assert world.try_now(BOB).returncode == 75
    forged = json.dumps(record(alice.lease, ALICE, ["GPU-00000000-0000-0000-0000-000000000000"]))
    world.do(MALLORY, link_lease, world.harbour, str(file), forged, alice.lease)
    assert world.try_now(BOB).returncode == 75, "Alice's ticket still reserves both GPUs"
    assert world.queue() == [alice.lease]


def test_doctor_does_not_blame_the_honest(world):
    world.hold(ALICE)
    world.start_process(MALLORY, create_client, world.harbour, ticket(999_999_999_999_999, "mmmmmmmm"),
                 record("mmmmmmmm", MALLORY, order=999_999_999_999_999))
    world.wait(BOB)
    report = world.berth(ALICE, "doctor").stdout
    assert "jumped" not in report and "rm " not in report.replace("berth", "")


def test_one_user_cannot_queue_more_than_can_be_looked_at(world):
    world.server.use("2x24GiB")
    world.in_memory()
    world.hold(ALICE, "--gpu", "0")
    many = [(ticket(1, name), record(name, MALLORY, order=1, request={"count": 1, "gpus": [world.uuid(0)]}))
            for name in ids("m", 2_100)]
    world.start_process(MALLORY, create_clients, world.harbour, many)
    assert len(world.queue()) == 2_000
    assert world.try_now(BOB, "--gpu", "1").returncode == 0
    result = world.berth(MALLORY, "run", "--timeout", "5s", "--gpu", "0", "--", "true")
    assert result.returncode == 75 and "2100 " in result.stderr, result


def test_one_users_tickets_have_a_limit_of_size(world):
    world.in_memory()
    world.hold(ALICE)
    padding = "x" * 60_000
    many = [(ticket(1, name), record(name, MALLORY, order=1, unknown=padding)) for name in ids("m", 100)]
    world.start_process(MALLORY, create_clients, world.harbour, many)
    assert len(world.queue()) == (4 << 20) // len(json.dumps(many[0][1]))
