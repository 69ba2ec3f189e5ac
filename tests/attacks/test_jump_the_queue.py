"""The attacker wants to be served before those who came earlier, or wants others to lose their place.

They tried: a ticket numbered 1, or 999999999999999, after which every later ticket had the same number (F11); a ticket
file prepared long before and renamed when it is needed; a changed request; more tickets than anyone could look at (F19).
"""

import os
import time

import pytest
from users import ALICE, BOB, MALLORY, ids, live, live_many, put, record, world  # noqa: F401

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")


@pytest.fixture
def harbour():
    return "directory"


def ticket(number, name):
    return f"ticket-{number:015}-{name}"


@pytest.mark.parametrize("number", [0, 1, 999_999_999_999_999])
def test_a_forged_number_gains_nothing(world, number):
    world.hold(ALICE)
    first = world.wait(BOB)
    world.puppet(MALLORY, live, world.harbour, ticket(number, "mmmmmmmm"), record("mmmmmmmm", MALLORY, order=number))
    second, third = world.wait(ALICE), world.wait(BOB)
    order = world.queue()
    honest = [one for one in order if one != "mmmmmmmm"]
    assert honest == [first.lease, second.lease, third.lease]
    assert order.index("mmmmmmmm") >= 1, "it came after the first"
    world.jobs[0].end()
    first.started()


def prepare(harbour, name):
    fd = live(harbour, f"request-{name}", record(name, MALLORY, order=1))
    return fd


def test_a_ticket_that_was_prepared_early_came_when_it_got_its_name(world):
    world.hold(ALICE)
    mallory = world.puppet(MALLORY, prepare, world.harbour, "mmmmmmmm")
    bob = world.wait(BOB)
    world.do(MALLORY, os.rename, world.path("request-mmmmmmmm"), world.path(ticket(1, "mmmmmmmm")))
    assert world.queue() == [bob.lease, "mmmmmmmm"]
    mallory.let_go()


def test_doctor_does_not_blame_the_honest(world):
    world.hold(ALICE)
    world.puppet(MALLORY, live, world.harbour, ticket(999_999_999_999_999, "mmmmmmmm"),
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
    world.puppet(MALLORY, live_many, world.harbour, many)
    assert len(world.queue()) == 2_000
    assert world.try_now(BOB, "--gpu", "1").returncode == 0
    result = world.berth(MALLORY, "run", "--timeout", "5s", "--gpu", "0", "--", "true")
    assert result.returncode == 75 and "2100 tickets" in result.stderr, result
