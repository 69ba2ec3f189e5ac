"""Jobs that share GPUs by what was learned, killed at random, beside strangers that grow: I1 and I2 hold, nobody waits
for ever, and no job runs out of memory.

BERTH_TEST_SEED=N replays the decisions of a run: who arrives when, of which type, who is struck.
"""

import os
import random
import signal
import threading
import time

import pytest
from conftest import BERTH
from leasing import eventually
from processes import USERS, Host
from waiting import LIMIT

pytestmark = pytest.mark.release_only  # a scenario of paths that test_learning.py runs

CARD_MIB = 24 * 1024
MARGIN_MIB = 256
TYPES_GIB = {"small": 1, "medium": 5, "large": 9, "huge": 16}


@pytest.fixture
def host(server, open_build):
    server.use("3x24GiB")
    one = Host(server, open_build)
    yield one
    one.stop()


class Watch:
    """Looks at the leases again and again while something goes on, and keeps what must not be."""

    def __init__(self, server):
        self.server = server
        self.broken = []
        self.looked = 0
        self.most = 0  # leases that shared a GPU
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.is_set():
            for gpu in self.server.status()["gpus"]:
                self.check(gpu)
            self.looked += 1

    def check(self, gpu):
        leases = gpu["leases"]
        self.most = max(self.most, len(leases))
        if any(lease["exclusive"] for lease in leases) and len(leases) > 1:
            self.broken.append(f"I1: {leases}")
        reserved = sum(lease["memory_mib"] or 0 for lease in leases)
        if reserved + (MARGIN_MIB if len(leases) > 1 else 0) > CARD_MIB:
            self.broken.append(f"I2: {reserved} MiB reserved: {leases}")


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            return file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def strike(chance, process):
    """Kills `berth run`, its job, or both, some time after the start."""
    target = chance.choice(["parent", "job", "both"])
    time.sleep(chance.choice([0, 0.01, 0.05, 0.2, 0.4]))
    try:
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            children = [int(word) for word in file.read().split() if name_of(word) == "berth-sim-job"]
    except FileNotFoundError:
        return  # it has ended
    victims = ([process.pid] if target != "job" else []) + (children if target != "parent" else [])
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.each_harbour
@pytest.mark.release_only  # with sanitizers too few run at once to share
def test_whatever_is_killed_shared_memory_is_never_promised_twice(host):
    seed = os.environ.get("BERTH_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"BERTH_TEST_SEED={seed}")
    chance = random.Random(seed)
    count = 80
    running, strikes = [], []
    with Watch(host.server) as watch:
        for number in range(count):
            kind = chance.choice(list(TYPES_GIB))
            log = host.server.folder / f"sharing{number}.log"
            uid = chance.choice(USERS[:2])
            command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", host.berth, "run", "--mem", "auto",
                       "--job", kind, "--retry-oom", "2", "--", host.job, "--quiet", "--mem",
                       f"{TYPES_GIB[kind]}GiB", "--time", f"{chance.choice([50, 150, 300, 600])}ms", "--fail",
                       str(chance.choice([0, 0, 0, 0, 3]))]
            log.touch()
            process = host.server.start("sh", "-c", 'exec "$@" > "$0" 2>&1', log, *command)
            running.append((process, log))
            if chance.random() < 0.3:
                thread = threading.Thread(target=strike, args=(random.Random(chance.random()), process))
                strikes.append(thread)
                thread.start()
            time.sleep(chance.choice([0, 0.02, 0.05]))
        for thread in strikes:
            thread.join()
        for process, log in running:
            assert process.wait(LIMIT) in (0, 3, 137, -9), log.read_text()
    assert not watch.broken, "\n".join([f"BERTH_TEST_SEED={seed}", *watch.broken])
    assert watch.looked > 5 and watch.most > 1, "GPUs were to be shared, and looked at"
    said = [log.read_text() for _, log in running]
    assert not any("out of memory" in text for text in said), f"BERTH_TEST_SEED={seed}"
    eventually(lambda: all(gpu["state"] == "free" for gpu in host.server.status()["gpus"]), "all GPUs are free")
    assert host.server.status()["queue"] == []


@pytest.mark.each_harbour
def test_strangers_that_grow_while_jobs_start(host):
    """Whoever is granted memory beside strangers has it beside what they had when he asked."""
    host.server.use("1x24GiB")
    host.env["BERTH_SIM"] = host.server.env["BERTH_SIM"]
    steps = [f"{i * 100}ms:{1 + i}GiB" for i in range(20)]  # up to 20 GiB in 2 s
    # Another user's: what is one's own is taken for one's lease's.
    stranger = host.server.start_job("--curve", ",".join(steps), gpu=0, program=host.job,
                                     prefix=["setpriv", f"--reuid={USERS[0]}", "--clear-groups"])
    chance = random.Random(os.environ.get("BERTH_TEST_SEED") or "1")
    granted = []
    holders = []

    def used_by_stranger():
        [gpu] = host.server.status()["gpus"]
        return sum(one["memory_mib"] for one in gpu["processes"] if one["pid"] == stranger.pid)

    while used_by_stranger() < 20 * 1024:
        before = used_by_stranger()
        wanted = chance.choice([1, 2, 4]) * 1024
        held = sum(lease["memory_mib"] for gpu in host.server.status()["gpus"] for lease in gpu["leases"])
        job = host.server.start(BERTH, "run", "--mem", f"{wanted}MiB", "--max-processes", "1", "--no-wait", "--", "sh", "-c",
                                "echo granted; exec sleep 1h")
        if job.stdout.readline() == "granted\n":
            granted.append(wanted)
            holders.append(job)
            assert before + held + wanted + MARGIN_MIB <= CARD_MIB, (before, held, wanted)
        else:
            job.wait(LIMIT)
    assert granted, "some were to be granted while there was room"
    [gpu] = host.server.status()["gpus"]
    reserved = sum(lease["memory_mib"] for lease in gpu["leases"])
    # What has grown into what others reserved cannot be undone; nobody is granted anything more.
    result = host.server.berth("run", "--mem", "1GiB", "--max-processes", "1", "--no-wait", "--", "true")
    full = used_by_stranger() + reserved + 1024 + MARGIN_MIB > CARD_MIB
    assert result.returncode == (75 if full else 0), result
