"""Two hundred jobs of several users over eight GPUs, struck by signals at random: no invariant breaks.

A third of them runs in user namespaces, as in rootless containers. BERTH_TEST_SEED=N replays the decisions of a run: who
arrives when, what they ask for, who is struck. BERTH_TEST_JOBS=N makes more of them.
"""

import dataclasses
import os
import random
import signal

import pytest
from chaos import GIB, Chaos, Life, Plan, Server, Shape, Strike, check, history_around, make_plans
from conftest import SANITIZED
from processes import USERS, Host, wait_for

CARDS = 8
MEMORY_MIB = 24 * GIB


@pytest.fixture
def host(server, open_build):
    # Two more, which nobody can call free: of one the driver does not say who uses it, the other is a stranger's.
    server.use({"gpus": [{"memory": "24GiB", "name": "Kaede 24", "count": CARDS // 2},
                         {"memory": "24GiB", "name": "Momiji 24", "count": CARDS // 2 + 2}],
                "strangers": [{"gpu": CARDS + 1, "name": "python", "memory": "2GiB"}],
                "faults": [{"gpu": CARDS, "call": "nvmlDeviceGetComputeRunningProcesses", "answer": "unknown"}]})
    one = Host(server, open_build)
    yield one
    one.stop()


def server_of(host):
    gpus = host.server.status()["gpus"]
    return Server([gpu["uuid"] for gpu in gpus], [gpu["name"] for gpu in gpus], MEMORY_MIB,
                  tuple(gpu["uuid"] for gpu in gpus if gpu["state"] != "free"))


@pytest.mark.each_harbour
def test_whatever_is_killed_no_gpu_is_granted_twice_and_none_is_lost(host):
    seed = os.environ.get("BERTH_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"BERTH_TEST_SEED={seed}")
    server = server_of(host)
    assert len(server.unknown) == 2
    jobs = int(os.environ.get("BERTH_TEST_JOBS") or (60 if SANITIZED else 200))
    plans = make_plans(seed, jobs, USERS, CARDS, MEMORY_MIB)
    lives = Chaos(host, plans).run(deadline_s=240 + jobs)
    violations = check(server, lives)
    assert not violations, "\n".join([f"BERTH_TEST_SEED={seed}", *violations, *history_around(server, lives, violations)])
    print(f"{sum(life.lethal is not None for life in lives)} of {jobs} jobs were killed")
    started = [life for life in lives if life.start is not None]
    assert len(started) > jobs / 2, "the jobs were to run, not only to die"

    # I3: every grant was delivered or taken back.
    wait_for(lambda: all(gpu["state"] == "free" for gpu in host.server.status()["gpus"][:CARDS]),
             lambda: f"all GPUs are free: {host.server.status()}", 20)
    status = host.server.status()
    assert status["queue"] == []
    assert not host.leases() and not host.tickets() and not host.processes()
    assert host.run("-n", CARDS, "--timeout", "20s")[0] == 0


# The order of tickets is told by their files.
@pytest.mark.release_only
@pytest.mark.parametrize("shape", [Shape(), Shape(memory_mib=14 * GIB)], ids=["exclusive", "shared"])
def test_equal_requests_are_served_in_the_order_of_arrival(host, shape):
    """Over few GPUs, which are in use until ten jobs wait; still with strikes."""
    seed = os.environ.get("BERTH_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"BERTH_TEST_SEED={seed}")
    host.server.use("2x24GiB")
    host.env["BERTH_SIM"] = host.server.env["BERTH_SIM"]
    server = server_of(host)
    _, gate = host.hold("--count", "2")
    chaos = Chaos(host, make_plans(seed, 40, USERS, 2, MEMORY_MIB, pace_s=0.05, shapes=[shape]))
    chaos.block_until_queued(10, gate.open)
    lives = chaos.run(deadline_s=240)
    violations = check(server, lives)
    assert not violations, "\n".join([f"BERTH_TEST_SEED={seed}", *violations, *history_around(server, lives, violations)])
    assert sum(life.queued is not None for life in lives) >= 10, "there was to be a queue"


# The order of tickets is told by their files.
@pytest.mark.release_only
def test_the_first_ticket_is_not_delayed_by_those_behind(host):
    """Narrow and wide requests, none of which says how long it takes."""
    seed = os.environ.get("BERTH_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"BERTH_TEST_SEED={seed}")
    host.server.use("4x24GiB")
    host.env["BERTH_SIM"] = host.server.env["BERTH_SIM"]
    shapes = [Shape(), Shape(), Shape(count=2), Shape(count=3), Shape(memory_mib=8 * GIB)]
    lives = Chaos(host, make_plans(seed, 60, USERS, 4, MEMORY_MIB, pace_s=0.05, shapes=shapes)).run(deadline_s=240)
    violations = check(server_of(host), lives)
    assert not violations, "\n".join([f"BERTH_TEST_SEED={seed}", *violations, *history_around(server, lives, violations)])


# The order of tickets is told by their files.
@pytest.mark.release_only
def test_the_first_ticket_may_be_of_a_job_that_never_starts(host):
    """Job 1 waits for GPU 0 and gives up. Until then it is the first: GPU 1 is reserved for nobody, and job 3 takes it, though
    job 2 waits for both."""
    host.server.use("2x24GiB")
    host.env["BERTH_SIM"] = host.server.env["BERTH_SIM"]
    shapes = [(0.0, Shape(gpus=(0,)), 6.0), (0.5, Shape(gpus=(0,), timeout_s=4), 1.0), (1.0, Shape(count=2), 0.1), (1.5, Shape(), 0.1)]
    plans = [Plan(number, arrives, USERS[0], shape, runs, GIB) for number, (arrives, shape, runs) in enumerate(shapes)]
    lives = Chaos(host, plans).run(deadline_s=240)
    server = server_of(host)
    violations = check(server, lives)
    assert not violations, "\n".join([*violations, *history_around(server, lives, violations)])
    assert [life.queued is not None for life in lives[:3]] == [False, True, True], "both tickets were read"


def test_the_same_seed_makes_the_same_decisions():
    make = [make_plans(seed, 50, USERS, CARDS, MEMORY_MIB) for seed in ("7", "7", "8")]
    assert make[0] == make[1] != make[2]


# The checker: it complains of what is wrong, and of nothing else. Times in seconds.

GPUS = Server([f"GPU-{i}" for i in range(CARDS)], ["Kaede 24"] * 4 + ["Momiji 24"] * 4, MEMORY_MIB)


def life(number, start=None, end=None, gpus=(), shape=Shape(), at=0.0, **more):
    """A job that ran from `start` to `end` on these GPUs; its files were made in the order of its number."""
    plan = Plan(number, at, USERS[0], shape, 1, 1, strikes=more.pop("strikes", ()), code=0)
    times = {name: None if value is None else int(value * 1e9)
             for name, value in {"start": start, "logged_end": end, **more}.items()}
    one = Life(plan, int(at * 1e9), lease=f"lease{number}", uuids=tuple(f"GPU-{i}" for i in gpus), arrived=number * 3,
               claimed=None if start is None else 1000 + int(start * 100), code=0, gone=int((end or start or at) * 1e9))
    return dataclasses.replace(one, **times)


def waited(one, queued, **changes):
    return dataclasses.replace(one, queued=queued, queued_by=one.submitted, **changes)


def unknown(number, at, gone, left=None, shape=Shape(timeout_s=1)):
    """A job that never started, and whose ticket nobody has read."""
    return dataclasses.replace(life(number, shape=shape, at=at), lease=None, arrived=None, possible_tickets=((30, left),), gone=int(gone * 1e9),
                               code=75)


def gave_up(number, queued, shape=Shape(), *, at, gone, **more):
    """A job that never started, with a ticket."""
    shape = dataclasses.replace(shape, timeout_s=1)
    return waited(dataclasses.replace(life(number, shape=shape, at=at), lease=None, gone=int(gone * 1e9), code=75), queued, **more)


@pytest.mark.parametrize("lives, says", [
    ([life(1, 1, 3, [0]), life(2, 2, 4, [0])], "I1"),
    ([life(1, 1, 3, [0, 1], Shape(count=2)), life(2, 2, 4, [1])], "I1"),
    ([life(1, 1, 3, [0]), life(2, 2, 4, [0], Shape(memory_mib=512))], "I1"),
    # Killed by a signal at 3: it surely ran until then.
    ([life(1, 1, None, [0], lethal=3, struck=3), life(2, 2, 4, [0])], "I1"),
    ([life(1, 1, 9, [0]), life(2, 2, 3, [1]), life(3, 4, 5, [0])], "I1"),
    ([life(1, 1, 3, [0], Shape(memory_mib=12 * GIB)), life(2, 2, 4, [0], Shape(memory_mib=12 * GIB))], "I2"),
    ([life(1, 1, 3, [0], Shape(memory_mib=20 * GIB)), life(2, 2, 4, [0], Shape(memory_mib=3 * GIB)),
      life(3, 2.5, 4, [0], Shape(memory_mib=1 * GIB))], "I2"),
    ([life(1, 1, 3, [0], Shape(count=2))], "I8"),
    ([life(1, 1, 3, [0, 0], Shape(count=2))], "I8"),
    ([life(1, 1, 3, [0, 1])], "I8"),
    ([life(1, 1, 3, [5], Shape(name="kaede"))], "I8"),
    ([life(1, 1, 3, [5], Shape(gpus=(0, 1)))], "I8"),
    ([dataclasses.replace(life(1, 1, 3, [0]), lease_owner=USERS[1])], "I10"),
    ([life(1, 1, 3, [0], lease_deleted_by=2)], "I10"),
    ([dataclasses.replace(life(1), code=1)], "I3"),
    ([dataclasses.replace(life(1), code=75)], "I3"),
    ([dataclasses.replace(life(1), code=0)], "I3"),
    ([dataclasses.replace(life(1, 1, 3, [0]), code=137)], "I3"),
    # All eight wanted by both: the second to come was first served.
    ([waited(life(1, 6, 7, range(8), Shape(count=8)), 5), waited(life(2, 3, 5, range(8), Shape(count=8)), 8)], "I4"),
    # The second never waited at all.
    ([waited(life(1, 6, 7, range(8), Shape(count=8)), 5), life(2, 3, 5, range(8), Shape(count=8))], "I4"),
    ([*[life(i, 1, 9, [i]) for i in range(7)], waited(life(10, 5, 7, [7], at=1.5), 31),
      waited(life(11, 3, 4, [7], at=2), 34)], "I4"),
    ([waited(life(1, 6, 7, [0], Shape(gpus=(0,), memory_mib=20 * GIB)), 5),
      life(2, 3, 5, [0], Shape(gpus=(0,), memory_mib=20 * GIB))], "I4"),
    # The first wants two; one was free, and the other ended at 4: whoever came later took the free one.
    ([*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]),
      waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 7, [7], at=2.5)], "I5"),
    ([life(0, 1, 9, range(6), Shape(count=6)), life(6, 1, 4, [6]),
      waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31),
      waited(life(11, 3, 7, [7], Shape(memory_mib=GIB), at=2.5), 34)], "I5"),
    # The same: a job of which no file is known had gone before, and another one, of which the ticket is known.
    ([*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]), unknown(8, at=1.2, gone=2.2), gave_up(9, 30, at=1.3, gone=2.3),
      waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 7, [7], at=2.5)], "I5"),
    # The same: the bell of a ticket that nobody has read was removed before the second was served.
    ([*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]), unknown(9, at=1.2, gone=4, left=1299),
      waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 7, [7], at=2.5)], "I5"),
    # The same: the first never started, since it was killed at 5.
    ([*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]), gave_up(10, 31, Shape(count=2), at=2, gone=5, left=2000),
      life(11, 3, 7, [7], at=2.5)], "I5"),
    ([life(1, 1, 3, [7], at=0.5)], "I9"),
    # GPU 0 was free from 2 on, and the one who wanted it got it at 40.
    ([life(1, 1, 2, [0]), waited(life(2, 40, 41, [0], Shape(gpus=(0,)), at=1.5), 7)], "I6"),
    ([life(1, 1, 2, range(8), Shape(count=8)), waited(life(2, 40, 41, range(8), Shape(count=8), at=1.5), 7),
      life(3, 39, 41, [0], Shape(gpus=(0,)), at=38)], "I6"),
], ids=str)
def test_the_checker_complains(lives, says):
    found = check(dataclasses.replace(GPUS, unknown=("GPU-7",)) if says == "I9" else GPUS, lives)
    assert any(line.startswith(says) for line in found), found


def stopped_at(time):
    return {"strikes": (Strike("submit", 0, "parent", signal.SIGSTOP),), "struck": time}


@pytest.mark.parametrize("lives", [
    [life(1, 1, 3, [0]), life(2, 3, 4, [0])],
    [life(1, 1, 3, [0]), life(2, 2, 4, [1])],
    [life(1, 1, 3, [0], Shape(memory_mib=12 * GIB)), life(2, 2, 4, [0], Shape(memory_mib=11 * GIB))],
    [life(1, 1, 3, [0], Shape(memory_mib=24 * GIB))],
    # Struck at 2, so nobody knows whether it lived at 2.5.
    [dataclasses.replace(life(1, 1, None, [0], lethal=2, struck=2,
                              strikes=(Strike("start", 1, "job", signal.SIGKILL),)), code=137), life(2, 2.5, 4, [0])],
    # The first was stopped when the second was served.
    [waited(life(1, 6, 7, range(8), Shape(count=8), **stopped_at(1)), 5), life(2, 3, 5, range(8), Shape(count=8))],
    # Both were granted in one decision, and the second claimed first: there was room for both.
    [waited(life(1, 3.5, 7, [0], at=1), 5), waited(life(2, 3, 5, [1], at=2), 8)],
    # They want different things.
    [waited(life(1, 6, 7, range(8), Shape(count=8)), 5), life(2, 3, 5, [0], Shape(time_s=1))],
    # The first wants two, and can have them only when both come back at once: the free one helps nobody.
    [life(0, 1, 9, range(5), Shape(count=5)), life(5, 1, 4, [5, 6], Shape(count=2)),
     waited(life(10, 8, 9, [5, 6], Shape(count=2, gpus=(5, 6)), at=2), 31), life(11, 3, 7, [7], at=2.5)],
    [life(0, 1, 9, range(7), Shape(count=7)), waited(life(10, 9.5, 10, [0, 1], Shape(count=2), at=2), 31),
     life(11, 3, 7, [7], at=2.5)],
    # The second said for how long.
    [*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]),
     waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 3.5, [7], Shape(time_s=1), at=2.5)],
    # The first was stopped then.
    [*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]),
     waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2, **stopped_at(2.1)), 31), life(11, 3, 7, [7], at=2.5)],
    # Another stood before it.
    [*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]),
     waited(life(9, 12, 13, [0], Shape(gpus=(0,)), at=1.5), 30),
     waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 7, [7], at=2.5)],
    # Another stood before it and gave up later. Of the one the ticket is known, of the other nothing.
    [*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]), gave_up(9, 30, Shape(gpus=(0,)), at=1.5, gone=3.5),
     waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 7, [7], at=2.5)],
    [*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]), unknown(9, at=1.5, gone=3.5),
     waited(life(10, 8, 9, [6, 7], Shape(count=2), at=2), 31), life(11, 3, 7, [7], at=2.5)],
    # The first gave up just before, and its process ended later.
    [*[life(i, 1, 9, [i]) for i in range(6)], life(6, 1, 4, [6]), gave_up(10, 31, Shape(count=2), at=2, gone=5, left=1299),
     life(11, 3, 7, [7], at=2.5)],
    # It waited for long, and somebody had the GPU.
    [life(1, 1, 39, [0]), waited(life(2, 40, 41, [0], Shape(gpus=(0,)), at=1.5), 7)],
    # Behind somebody who waited for long.
    [life(1, 1, 39, range(4), Shape(count=4)), waited(life(2, 40, 41, range(8), Shape(count=8), at=1.5), 7),
     waited(life(3, 42, 43, [5], at=2), 10)],
    [dataclasses.replace(life(1, shape=Shape(no_wait=True)), code=75)],
    [dataclasses.replace(life(1, shape=Shape(timeout_s=1)), code=75)],
    [dataclasses.replace(life(1, strikes=(Strike("submit", 0, "parent", signal.SIGTERM),), struck=1), code=143)],
], ids=str)
def test_the_checker_accuses_nobody_wrongly(lives):
    assert check(GPUS, lives) == []
