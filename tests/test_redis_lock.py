"""No client waits for Redis while it holds the lock of its host's directory.

A Redis server that is slow or away would otherwise stop every client of the host, those without Redis too.
"""

import contextlib
import fcntl
import itertools
import json
import os
import time

import pytest
import redis_server
from conftest import BERTH
from processes import in_lanes
from redis_lanes import Lane, using
from redis_proxy import Fault
from test_lock_reads import slow_calls_under_lock, traced
from waiting import LIMIT, wait_until

LANES = 4
QUEUE = 300  # longer than what a client reads of a queue at first
SILENCE = 2.0  # seconds; berth waits 5 s for an answer
IMPOSSIBLE = 69


class LongQueue(Lane):
    """GPU 0 is held, and many tickets of a container with a directory of its own wait for it. GPU 2 is held by a lease for
    nested requests. GPU 1 is free, so that a new client reads the queue to its end."""

    def __init__(self, folder):
        super().__init__(folder, redis_server.shared_server(), gpus=3, ttl="30s")
        self.hold("--gpu", "0")
        self.hold("--gpu", "2")
        gpus = self.status()["gpus"]
        self.outer = gpus[2]["leases"][0]["id"]
        ticket = {"version": 1, "state": "waiting", "uid": os.getuid(), "pid": 1, "pid_namespace": 1, "command": "train",
                  "since_ms": 1000, "witness": "container", "request": {"count": 1, "gpus": [gpus[0]["uuid"]]}}
        with self.redis.client() as client, client.pipeline() as pipeline:
            names = ["tket" + "".join(letters) for letters in itertools.product("abcdefgh", repeat=4)]
            for i, name in enumerate(names[:QUEUE]):
                pipeline.hset(self.key("tickets"), name, json.dumps(ticket | {"id": name}))
                pipeline.hset(self.key("beats"), name, int(time.time() * 1000) + 3_600_000)
                pipeline.zadd(self.key("queue"), {name: i + 1})
            pipeline.execute()
        assert len(self.status()["queue"]) == QUEUE

    def start(self, case, prefix=(), env=None):
        if case == "nested":
            words, inside = ["run", "-n", "2", "--", "true"], {"BERTH_LEASE": self.outer}
        else:
            words, inside = ["run", "--gpu", "1", "--timeout", "25s", "--", *using()], {}
        return self.server.start(*prefix, BERTH, *words, env={**(env or {}), **inside})


# The first is granted a GPU; the second asks for two GPUs inside a lease of one, and is refused.
CASES = {"run": 0, "nested": IMPOSSIBLE}


@pytest.fixture
def lanes(open_folder):
    some = [LongQueue(open_folder / f"lane{i}") for i in range(LANES)]
    yield some
    for lane in some:
        lane.stop()


@pytest.mark.parametrize("case", CASES)
def test_redis_is_not_asked_under_the_lock(lanes, tmp_path, case):
    client = lanes[0].start(case, prefix=traced(tmp_path / "traces"))
    assert client.wait(LIMIT) == CASES[case], client.stdout.read()
    taken, found = slow_calls_under_lock(tmp_path / "traces", lanes[0].server.harbour)
    assert taken > 0 and found == []


def seconds_to_lock(directory):
    """How long another client waits for the directory's lock."""
    begin = time.monotonic()
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return time.monotonic() - begin
            time.sleep(0.01)
    finally:
        os.close(opened)


def ends_of_questions(names):
    """The numbers of the commands whose answers are waited for: of a transaction of Redis, its EXEC alone."""
    found, inside = [], False
    for number, name in enumerate(names, 1):
        inside = name == "MULTI" or (inside and name != "EXEC")
        if not inside:
            found.append(number)
    return found


@pytest.mark.release_only
@pytest.mark.parametrize("case", CASES)
def test_the_lock_is_free_while_redis_does_not_answer(lanes, case):
    """Redis stops answering at each question of the client in turn."""
    counting = lanes[0]
    for _ in range(2):  # the server does not know the scripts at first
        counting.proxy.reset()
        assert counting.start(case, env=counting.faulty).wait(LIMIT) == CASES[case]
    names = list(counting.proxy.names)
    numbers = ends_of_questions(names)
    assert numbers

    def silent_at(lane, number):
        lane.proxy.reset(Fault(number, "swallow", SILENCE))
        client = lane.start(case, env=lane.faulty)
        wait_until(lambda: lane.proxy.hit or client.poll() is not None, "Redis stops answering")
        waited = seconds_to_lock(lane.server.harbour) if lane.proxy.hit else 0
        assert waited < SILENCE / 2, f"{waited:.1f} s at command {number} of {names}"
        code = client.wait(LIMIT)
        assert code == CASES[case] or (case == "nested" and code != 0), client.stdout.read()
    in_lanes(lanes, silent_at, numbers)
