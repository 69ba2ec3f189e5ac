"""Random schedules: a few clients over two GPUs, while the way to Redis fails, Redis loses its data, and clients die.

Everything that is random comes from a seed. Each job logs its start and its end by the monotonic clock, and the GPUs
that it had; a checker says whether two ever had the same one. At the end of each schedule all must be free.

BERTH_TEST_SCHEDULES says how many (BERTH_TEST_LANES at a time), BERTH_TEST_SEED the first seed.
"""

import contextlib
import dataclasses
import json
import os
import random
import signal
import time

import pytest
from conftest import ALL_REDIS_FAULTS, SIM_JOB
from leasing import eventually, is_alive
from processes import in_lanes
from redis_lanes import Lane, same_host_elsewhere
from redis_proxy import Fault
from redis_server import RedisServer

pytestmark = pytest.mark.release_only  # what was promised does not depend on the build; the moments do

SCHEDULES = int(os.environ.get("BERTH_TEST_SCHEDULES", "20" if ALL_REDIS_FAULTS else "8"))
LANES = int(os.environ.get("BERTH_TEST_LANES", "4"))
FIRST_SEED = int(os.environ.get("BERTH_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
GPUS = 2
ELSEWHERE = 0.15  # so many have a directory of their own, as in a container: they know of the others by Redis alone


@dataclasses.dataclass(frozen=True)
class Step:
    """Something that happens `after` so many seconds since the one before it."""

    after: float
    what: str
    number: int = 0
    argument: object = None


@dataclasses.dataclass(frozen=True)
class Schedule:
    seed: int
    steps: tuple
    faults: tuple


def make_schedule(seed):
    chance = random.Random(seed)
    clients = chance.randint(3, 6)
    steps = []
    for number in range(clients):
        flags = ["-n", "2"] if chance.random() < 0.3 else []
        flags += chance.choice([[], [], [], ["--no-wait"], ["--timeout", "300ms"]])
        through_proxy = chance.random() < 0.75
        runs_ms = chance.choice([10, 30, 50, 50, 120, 400])
        elsewhere = chance.random() < ELSEWHERE
        steps.append(Step(chance.choice([0, 0, 0.01, 0.05, 0.1]), "client", number,
                          (tuple(flags), through_proxy, runs_ms, elsewhere)))
        for _ in range(chance.choice([0, 0, 1, 2])):
            kind = chance.choice(["kill parent", "kill parent", "kill job", "kill both", "terminate", "stop", "flushall",
                                  "restart", "restart with data", "clients killed", "cut", "out of memory", "stop redis"])
            steps.append(Step(chance.choice([0, 0.005, 0.02, 0.05, 0.1, 0.2]), kind, chance.randrange(number + 1),
                              chance.choice([0.05, 0.2, 0.5])))
    faults = []
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        kind = chance.choice(["drop", "lose", "late", "delay", "cut", "refuse"])
        faults.append(Fault(chance.randint(1, 30), kind, chance.choice([0.02, 0.1, 0.4])))
    if chance.random() < 0.02:
        faults.append(Fault(chance.randint(1, 30), "swallow", 5.5))
    return Schedule(seed, tuple(steps), tuple(faults))


class Running:
    """One schedule, carried out."""

    def __init__(self, lane, schedule):
        self.lane = lane
        self.schedule = schedule
        self.log = lane.server.folder / "jobs.log"
        self.log.unlink(missing_ok=True)
        self.clients = {}
        self.killed = {}  # pid of a job: the time before the signal was sent
        self.stopped = set()

    def events(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def carry_out(self):
        lane = self.lane
        lane.proxy.reset(*self.schedule.faults)
        for step in self.schedule.steps:
            time.sleep(step.after)  # when it happens is part of the schedule
            self.do(step)
        lane.proxy.reset()
        for client in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                client.process.send_signal(signal.SIGCONT)
        for client in self.clients.values():
            eventually(lambda: not client.runs, lambda: f"still waits: {client.err} {lane.left()}")
            assert client.process.returncode in (0, 74, 75, 69, -9, -15, 137, 143), (client.process.returncode, client.err)
            assert "Assertion" not in client.err and "terminate called" not in client.err, client.err
        eventually(lambda: not self.alive(), "the last job ends")

    def alive(self):
        ended = {event["pid"] for event in self.events() if event["event"] == "end"}
        started = {event["pid"] for event in self.events() if event["event"] == "start"}
        return [pid for pid in started - ended if is_alive(pid)]

    def do(self, step):
        lane, server = self.lane, self.lane.redis
        match step.what:
            case "client":
                flags, through_proxy, runs_ms, elsewhere = step.argument
                # Its memory is of another state: a GPU granted twice must not be hidden by the driver.
                job = ["env", f"BERTH_SIM_STATE={lane.server.folder / 'jobs.state'}", str(SIM_JOB), "--quiet", "--mem", "1MiB",
                       "--time", f"{runs_ms}ms", "--log", str(self.log)]
                env = {**(lane.faulty if through_proxy else {}), **(lane.elsewhere if elsewhere else {})}
                self.clients[step.number] = lane.jobs.run(*flags, command=job, env=env)
            case "kill parent" | "kill both" | "terminate" | "stop":
                client = self.clients[step.number]
                if step.what == "kill both":
                    self.kill_job(client)
                number = {"terminate": signal.SIGTERM, "stop": signal.SIGSTOP}.get(step.what, signal.SIGKILL)
                if client.runs:
                    client.process.send_signal(number)
                if step.what == "stop":
                    self.stopped.add(client)
            case "kill job":
                self.kill_job(self.clients[step.number])
            case "flushall":
                server.cli("flushall")
            case "restart" | "restart with data":
                if step.what == "restart with data":
                    server.cli("save")
                else:
                    (server.folder / "dump.rdb").unlink(missing_ok=True)
                server.kill()
                time.sleep(step.argument / 2)
                server.start()
            case "clients killed":
                server.cli("client", "kill", "type", "normal", "skipme", "yes")
            case "cut":
                lane.proxy.cut()
            case "out of memory":
                server.cli("config", "set", "maxmemory", "1")
                time.sleep(step.argument)
                server.cli("config", "set", "maxmemory", "0")
            case "stop redis":
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(step.argument)
                server.process.send_signal(signal.SIGCONT)
            case _:
                raise AssertionError(step)

    def kill_job(self, client):
        """The job of this client that runs now, if there is one."""
        children = []
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = open(f"/proc/{client.pid}/task/{client.pid}/children").read().split()
        jobs = {event["pid"] for event in self.events() if event["event"] == "start"}
        for child in map(int, children):
            if child in jobs:
                self.killed.setdefault(child, time.monotonic_ns())
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)


def double_use(events, killed):
    """Pairs of jobs that surely had the same GPU at the same time."""
    spans = []
    for event in events:
        if event["event"] != "start":
            continue
        ends = [one["time_ns"] for one in events if one["event"] == "end" and one["pid"] == event["pid"]]
        ends += [killed[event["pid"]]] if event["pid"] in killed else []
        if ends:
            spans.append((event["time_ns"], min(ends), set(event["uuids"]), event["pid"]))
    spans.sort(key=lambda span: span[:2])
    return [(a, b) for i, a in enumerate(spans) for b in spans[i + 1:]
            if b[0] < a[1] and a[2] & b[2] and a[3] != b[3]]


def test_the_checker_finds_double_use():
    def line(event, pid, time_ns, *uuids):
        return {"event": event, "pid": pid, "time_ns": time_ns, "uuids": list(uuids)}
    apart = [line("start", 1, 0, "a"), line("end", 1, 10, "a"), line("start", 2, 11, "a"), line("end", 2, 20, "a")]
    beside = [line("start", 1, 0, "a"), line("end", 1, 10, "a"), line("start", 2, 5, "b"), line("end", 2, 20, "b")]
    twice = [line("start", 1, 0, "a"), line("end", 1, 10, "a"), line("start", 2, 5, "b", "a"), line("end", 2, 20, "b", "a")]
    assert not double_use(apart, {}) and not double_use(beside, {})
    assert len(double_use(twice, {})) == 1
    unended = [one for one in twice if one["event"] == "start" or one["pid"] == 2]
    assert not double_use(unended, {1: 4}) and len(double_use(unended, {1: 6})) == 1


def run_schedule(lane, seed):
    schedule = make_schedule(seed)
    running = Running(lane, schedule)
    try:
        running.carry_out()
        assert not double_use(running.events(), running.killed), (running.events(), running.killed)
        lane.assert_all_free()
        lane.ran += 1
        lane.jobs_ran += len(running.events())
    except BaseException as problem:
        raise AssertionError(f"BERTH_TEST_SEED={seed} BERTH_TEST_SCHEDULES=1: {schedule}: {problem}") from problem
    finally:
        for client in running.stopped:
            with contextlib.suppress(ProcessLookupError):
                client.process.send_signal(signal.SIGCONT)
        lane.jobs.stop()
        lane.jobs.all = []


def test_no_gpu_is_used_twice_whatever_fails(open_folder):
    lanes = []
    servers = []
    try:
        for i in range(min(LANES, SCHEDULES)):
            folder = open_folder / f"redis{i}"
            folder.mkdir()
            servers.append(RedisServer(folder))
            lanes.append(Lane(open_folder / f"lane{i}", servers[-1], gpus=GPUS))
            lanes[-1].ran = lanes[-1].jobs_ran = 0
            lanes[-1].elsewhere = same_host_elsewhere(lanes[-1])
        in_lanes(lanes, run_schedule, list(range(FIRST_SEED, FIRST_SEED + SCHEDULES)))
        assert sum(lane.ran for lane in lanes) == SCHEDULES
        print(f"{SCHEDULES} schedules from seed {FIRST_SEED}, {sum(lane.jobs_ran for lane in lanes)} starts and ends of jobs")
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
        for lane in lanes:
            lane.stop()
        for server in servers:
            server.kill()
