"""Faults of the way to a Redis server: at every command of every life, each kind of harm that a network can do.

First the commands of a life are counted without harm, then it is repeated with each kind of harm at each of them.
"""

import itertools

import pytest
import redis_server
from conftest import ALL_REDIS_FAULTS, SANITIZED
from leasing import eventually
from processes import in_lanes
from redis_lanes import Lane, assert_lines, using
from redis_proxy import Fault
from waiting import LIMIT

LANES = 4  # so many hosts at a time
# Every so many faults. No number of kinds is a multiple of it, so that each kind comes at some command.
STEP = (5 if SANITIZED else 1) if ALL_REDIS_FAULTS else 35 if SANITIZED else 7
HARBOUR_FAILS, NOT_GRANTED = 74, 75
SECONDS = {"late": 0.3, "delay": 0.3, "refuse": 0.7, "swallow": 6}  # berth waits 5 s for an answer
KINDS = ("drop", "lose", "late", "delay", "cut", "refuse")


@pytest.fixture
def lanes(open_folder):
    some = [Lane(open_folder / f"lane{i}", redis_server.shared_server()) for i in range(LANES)]
    yield some
    for lane in some:
        lane.stop()


def at_every_command(lanes, life, kinds=KINDS, step=STEP):
    """life(lane) under each kind of harm at each of its commands, or every `step`-th of these."""
    lane = lanes[0]
    for _ in range(2):  # the server does not know the scripts at first
        lane.proxy.reset()
        life(lane)
        lane.assert_all_free()
    names = list(lane.proxy.names)
    assert len(names) >= 2, names
    faults = [Fault(number, kind, SECONDS.get(kind, 0))
              for number, kind in itertools.product(range(1, len(names) + 1), kinds)]

    missed = []

    def harmed(lane, fault):
        lane.proxy.reset(fault)
        try:
            life(lane)
        except BaseException as problem:
            raise AssertionError(f"of {names}, now {lane.proxy.names}: {problem}") from problem
        finally:
            if not lane.proxy.hit:
                missed.append((fault, lane.proxy.names))
            lane.proxy.reset()
        lane.assert_all_free()
    in_lanes(lanes, harmed, faults[::step])
    # How many heartbeats are sent depends on how long it took: some runs send fewer commands than the first.
    assert all(len(sent) < fault.number for fault, sent in missed), (names, missed)
    assert len(missed) * 4 <= len(faults[::step]), (names, missed)


def life_of_run(lane):
    """Longer than a beat takes to come."""
    result = lane.berth("run", "--", *using("sleep 0.45"), env=lane.faulty)
    assert (result.returncode, result.stdout) == (0, "0\n"), result
    assert_lines(result.stderr)


def life_of_impatient(lane):
    """It is granted at once, or says in one line why not."""
    result = lane.berth("run", "--no-wait", "--", *using(), env=lane.faulty)
    if result.returncode != 0:
        assert result.returncode in (HARBOUR_FAILS, NOT_GRANTED) and result.stdout == "", result
        assert result.stderr.count("\n") == 1, result
    assert_lines(result.stderr)


def life_of_waiter(lane):
    """Behind somebody, and with somebody behind it, whose ways are good."""
    holder = lane.hold()
    victim = lane.run(env=lane.faulty)
    eventually(lambda: len(lane.tickets()) == 1, lambda: f"it takes its place: {victim.err}")
    behind = lane.wait()
    assert holder.end() == 0
    started = eventually(lambda: [job for job in (victim, behind) if job.out], lambda: victim.err + behind.err)
    assert len(started) == 1
    assert started[0].end() == 0
    last = behind if started[0] is victim else victim
    last.gpus()
    assert last.end() == 0
    assert_lines(victim.err)


SHELL = '''
lease=$(berth acquire --timeout 25s) || exit 1
eval "$lease"
[ -n "$BERTH_GPUS" ] || exit 2
mkdir "$USED/$BERTH_GPUS" || echo "$BERTH_GPUS" >>"$USED/twice"
sleep 0.4
rmdir "$USED/$BERTH_GPUS"
berth release >/dev/null
echo $?
'''


def life_of_shell(lane):
    """`release` may fail: then the shell's end does it."""
    result = lane.server.run("sh", "-c", SHELL, env=lane.faulty)
    assert result.returncode == 0, result
    assert result.stdout.strip() in ("0", str(HARBOUR_FAILS)), result
    assert_lines(result.stderr)
    eventually(lambda: not lane.processes(), "the keeper has ended, too")


def life_of_cancel(lane):
    holder = lane.hold()
    waiter = lane.wait()
    [ticket] = lane.tickets()
    result = lane.berth("cancel", ticket, env=lane.faulty)
    assert_lines(result.stderr)
    assert result.returncode in (0, HARBOUR_FAILS), result
    if result.returncode == HARBOUR_FAILS:
        assert result.stderr.count("\n") == 1, result
    else:
        assert waiter.process.wait(LIMIT) == NOT_GRANTED
    assert holder.end() == 0
    if result.returncode == HARBOUR_FAILS:  # nobody knows whether it was done
        eventually(lambda: waiter.out or not waiter.runs, lambda: waiter.err)
        assert waiter.end() in (0, NOT_GRANTED)


def life_of_drain(lane):
    for verb, state in (("drain", "drained"), ("undrain", "free")):
        flags = ["--reason", "dust"] if verb == "drain" else []
        result = lane.berth(verb, "0", *flags, env=lane.faulty)
        assert_lines(result.stderr)
        assert result.returncode in (0, HARBOUR_FAILS), result
        if result.returncode == 0:
            assert lane.status()["gpus"][0]["state"] == state
        else:
            assert result.stderr.count("\n") == 1, result
            assert lane.berth(verb, "0", *flags).returncode == 0


LIVES = {"run": life_of_run, "impatient": life_of_impatient, "waiter": life_of_waiter, "shell": life_of_shell,
         "cancel": life_of_cancel, "drain": life_of_drain}


@pytest.mark.parametrize("life", LIVES)
def test_harm_at_any_command_loses_nothing(lanes, life):
    kinds = [kind for kind in KINDS if (life, kind) != ("drain", "late")]  # see below
    at_every_command(lanes, LIVES[life], kinds)


@pytest.mark.release_only
@pytest.mark.parametrize("life", [pytest.param("run", marks=pytest.mark.all_redis_faults), "waiter",
                                  pytest.param("shell", marks=pytest.mark.all_redis_faults), "cancel"])
def test_a_server_that_swallows_everything_for_a_time_loses_nothing(lanes, life):
    step = 2 if life in ("waiter", "shell") else 1
    at_every_command(lanes, LIVES[life], ["swallow"], step if ALL_REDIS_FAULTS else 9)


# What was sent, and given up, and arrives all the same


def test_a_drain_that_arrives_late_does_not_undo_what_came_after_it(lanes):
    lane = lanes[0]
    life_of_drain(lane)
    lane.proxy.reset(Fault(1, "late", 1, "EVALSHA"))
    assert lane.berth("drain", "0", "--reason", "dust", env=lane.faulty).returncode == 0
    assert lane.berth("undrain", "0").returncode == 0
    assert lane.proxy.late_done.wait(LIMIT)
    assert lane.status()["gpus"][0]["state"] == "free"


def test_a_ticket_that_arrives_late_keeps_no_gpu(open_folder):
    lane = Lane(open_folder / "two", redis_server.shared_server(), gpus=2)
    try:
        life_of_shell(lane)  # the server knows the scripts
        holders = [lane.hold(), lane.hold()]
        lane.proxy.reset(Fault(1, "late", 2, "EVALSHA"))
        waiter = lane.run(env=lane.faulty)
        eventually(lambda: lane.tickets(), lambda: waiter.err)
        assert holders[0].end() == 0
        waiter.gpus()
        assert lane.proxy.hit and not lane.tickets()
        assert lane.proxy.late_done.wait(LIMIT)
        assert not lane.tickets()
        assert holders[1].end() == 0
        result = lane.berth("run", "--no-wait", "--", *using())
        waiter.end()
        assert result.returncode == 0, result
    finally:
        lane.stop()


def test_a_grant_whose_answer_was_lost_is_not_kept_from_who_does_not_use_redis(lanes):
    """Its file is withdrawn when no answer comes. Who has the directory alone may then be granted its GPU."""
    lane = lanes[0]
    life_of_shell(lane)  # the server knows the scripts
    assert lane.berth("run", "--", "true", env=lane.faulty).returncode == 0
    # The first asks for what is known of the job, the second is the commit, the third is the same again.
    lane.proxy.reset(Fault(2, "lose", 0, "EVALSHA"), Fault(3, "refuse", 60, "EVALSHA"))
    asks = lane.run(env=lane.faulty)
    eventually(lambda: lane.leases() and "again" in asks.err, lambda: f"no answer comes: {asks.err}")
    beside = lane.hold(env={"BERTH_URL": ""})
    lane.proxy.allow()
    eventually(lambda: lane.tickets() or asks.out, lambda: f"it asks again: {asks.err}")
    assert not asks.out
    assert beside.end() == 0
    asks.gpus()
    assert asks.end() == 0
    lane.assert_all_free()
