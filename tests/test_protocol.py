"""docs/harbour-protocol.md is complete: a client written from it alone (harbour_peer.py) and the binary share a queue."""

import ast
import heapq
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time

import pytest
from conftest import BERTH, ROOT, SIM_JOB
from processes import ended
from waiting import LIMIT, wait_until

pytestmark = pytest.mark.release_only  # the paths of test_job_control.py

PEER = ROOT / "tests" / "harbour_peer.py"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

COMMANDS = {"peer": [sys.executable, PEER], "berth": [BERTH, "run"]}
BOTH_WAYS = pytest.mark.parametrize("first, second", [("peer", "berth"), ("berth", "peer")])
EACH_PAIR = pytest.mark.parametrize("first, second", list(itertools.product(COMMANDS, repeat=2)))


def records(server, kind):
    return sorted(path.name for path in server.harbour.glob(f"{kind}-*"))


class Gate:
    """A job that ends when its gate is opened."""

    def __init__(self, server):
        self.path, self.pid_file = (server.folder / f"{what}-{len(server.processes)}" for what in ("gate", "pid"))
        os.mkfifo(self.path)
        self.path.chmod(0o666)
        self.job = ["sh", "-c", f"echo $$ > {self.pid_file}; read line < {self.path}"]

    def pid(self):
        """The job's, once it runs."""
        return int(wait_until(lambda: self.pid_file.exists() and self.pid_file.read_text()))

    def open(self):
        self.path.write_text("go\n")


def hold(server, kind, *flags, prefix=(), command=None):
    """Starts a client of that kind, and returns it and its gate once its job runs."""
    gate = Gate(server)
    client = server.start(*prefix, *(command or COMMANDS[kind]), *flags, "--", *gate.job)
    gate.pid()
    return client, gate


def queue_up(server, kind, *flags, job, prefix=(), command=None, cwd=None):
    """Starts a client of that kind, and returns it once it stands in the queue."""
    before = records(server, "ticket")
    client = server.start(*prefix, *(command or COMMANDS[kind]), *flags, "--", *job, cwd=cwd)
    wait_until(lambda: set(records(server, "ticket")) - set(before))
    return client


def assert_all_free(server):
    status = wait_until(lambda: (now := server.status()) and all(gpu["state"] == "free" for gpu in now["gpus"]) and now)
    assert status["queue"] == []


@pytest.mark.release_only
def test_the_peer_is_small_and_needs_nothing_but_python():
    text = PEER.read_text()
    assert text.count("\n") < 220
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in imports for alias in node.names}
    assert all(isinstance(node, ast.Import) for node in imports) and names <= sys.stdlib_module_names


@BOTH_WAYS
def test_they_exclude_each_other(server, first, second):
    client, gate = hold(server, first, "-n", "3")
    refusal = {"peer": ["--timeout", "0"], "berth": ["--no-wait"]}[second]
    assert server.run(*COMMANDS[second], *refusal, "-n", "2", "--", "true").returncode == 75
    show = ["printenv", "CUDA_VISIBLE_DEVICES", "BERTH_LEASE"]
    other = server.run(*COMMANDS[second], "-n", "1", *(["--ids", "uuid"] if second == "berth" else []), "--", *show)
    assert other.returncode == 0
    uuid, lease = other.stdout.splitlines()
    gpus = server.status()["gpus"]
    assert [gpu["state"] for gpu in gpus if gpu["uuid"] == uuid] == ["free"]
    assert sorted(gpu["state"] for gpu in gpus) == ["free", "leased", "leased", "leased"]
    assert records(server, "lease") != [f"lease-{lease}"]
    gate.open()
    assert client.wait(LIMIT) == 0
    assert_all_free(server)


def test_status_shows_a_peer_as_it_shows_berth(server):
    client, gate = hold(server, "peer", "-n", "4")
    waiting = queue_up(server, "peer", "-n", "2", job=["true"])
    status = server.status()
    [lease] = status["gpus"][0]["leases"]
    assert (lease["user"], lease["pid"], lease["exclusive"]) == ("root", client.pid, True)
    [ticket] = status["queue"]
    assert (ticket["position"], ticket["pid"], ticket["count"]) == (1, waiting.pid, 2)
    gate.open()
    assert (client.wait(LIMIT), waiting.wait(LIMIT)) == (0, 0)


@EACH_PAIR
@pytest.mark.parametrize("how", ["ends", "client and job are killed", "client is killed", "job is killed"])
def test_a_release_wakes_the_other(server, first, second, how):
    holder, gate = hold(server, first, "-n", "4")
    waiter = queue_up(server, second, "-n", "4", job=["true"])
    if "client" in how:
        holder.kill()
        holder.wait()
    if how == "client is killed":
        assert [lease["pid"] for gpu in server.status()["gpus"] for lease in gpu["leases"]] == [holder.pid] * 4
        gate.open()  # the lease is the job's, whose parent is no more
    elif "killed" in how:
        os.kill(gate.pid(), signal.SIGKILL)
    else:
        gate.open()
    assert waiter.wait(LIMIT) == 0
    assert holder.wait(LIMIT) == {"ends": 0, "job is killed": 137}.get(how, -9)
    assert_all_free(server)


@EACH_PAIR
def test_processes_left_behind_keep_the_lease(server, first, second):
    left = Gate(server)
    holder = server.start(*COMMANDS[first], "-n", "4", "--", "sh", "-c", f"sh -c '{left.job[2]}' &")
    left.pid()
    assert holder.wait(LIMIT) == 0
    assert len(records(server, "lease")) == 1
    waiter = queue_up(server, second, "-n", "1", job=["true"])
    left.open()
    assert waiter.wait(LIMIT) == 0


@pytest.mark.parametrize("kinds", [("peer", "berth") * 4, ("berth", "peer") * 4, ("peer", "peer", "berth", "berth") * 2])
def test_first_come_first_served(server, kinds):
    order = server.folder / "order"
    _, gate = hold(server, kinds[-1], "-n", "4")
    clients = [queue_up(server, kind, "-n", "4", job=["sh", "-c", f"echo {place} >> {order}"])
               for place, kind in enumerate(kinds)]
    assert [ticket["pid"] for ticket in server.status()["queue"]] == [client.pid for client in clients]
    gate.open()
    assert [client.wait(2 * LIMIT) for client in clients] == [0] * len(kinds)
    assert order.read_text().split() == [str(place) for place in range(len(kinds))]


@BOTH_WAYS
def test_a_wide_request_is_not_starved(server, first, second):
    """The first ticket reserves: who came later gets no GPU that it could use, though one is free."""
    _, gate = hold(server, second, "-n", "3")
    wide = queue_up(server, first, "-n", "4", job=["true"])
    refusal = {"peer": ["--timeout", "0"], "berth": ["--no-wait"]}[second]
    assert server.run(*COMMANDS[second], *refusal, "--", "true").returncode == 75
    gate.open()
    assert wide.wait(LIMIT) == 0


def test_the_peer_does_not_pass_who_shares_or_names_gpus(server):
    """Three of four GPUs are held. The tickets want, together, the fourth and more."""
    for flags in [["--mem", "20GiB", "-n", "2"], ["--name", "simulated", "-n", "2"], ["--gpu", "0,1,2,3"],
                  ["--min-mem", "24GiB", "-n", "2"], ["--max-util", "50", "-n", "2"]]:
        client, gate = hold(server, "berth", "-n", "3")
        waiter = queue_up(server, "berth", *flags, job=["true"])
        assert server.run(*COMMANDS["peer"], "--timeout", "0", "--", "true").returncode == 75, flags
        gate.open()
        assert waiter.wait(LIMIT) == 0, flags
        assert client.wait(LIMIT) == 0


def test_the_peer_passes_only_who_cannot_use_what_it_takes(server):
    client, gate = hold(server, "berth", "--gpu", "0")
    waiter = queue_up(server, "berth", "--gpu", "0", job=["true"])
    assert server.run(*COMMANDS["peer"], "-n", "4", "--timeout", "0", "--", "true").returncode == 75
    assert server.run(*COMMANDS["peer"], "-n", "3", "--timeout", "0", "--", "true").returncode == 0
    gate.open()
    assert (client.wait(LIMIT), waiter.wait(LIMIT)) == (0, 0)


def test_the_peer_keeps_off_strangers_and_shared_gpus(server):
    stranger = server.start_job("--mem", "1GiB", gpu=1)
    _, gate = hold(server, "berth", "--gpu", "2", "--mem", "1GiB")
    assert server.run(*COMMANDS["peer"], "-n", "3", "--timeout", "0", "--", "true").returncode == 75
    waiter = queue_up(server, "peer", "-n", "4", job=["true"])
    gate.open()
    stranger.kill()
    assert waiter.wait(LIMIT) == 0


@EACH_PAIR
def test_a_stopped_waiter_is_passed_over_and_keeps_its_place(server, first, second):
    order = server.folder / "order"
    _, gate = hold(server, second, "-n", "4")
    stopped = queue_up(server, first, "-n", "4", job=["sh", "-c", f"echo first >> {order}"])
    inner = Gate(server)
    passing = queue_up(server, second, "-n", "4", job=["sh", "-c", f"echo second >> {order}; read line < {inner.path}"])
    third = queue_up(server, first, "-n", "4", job=["sh", "-c", f"echo third >> {order}"])
    stopped.send_signal(signal.SIGSTOP)
    gate.open()
    wait_until(order.exists)
    stopped.send_signal(signal.SIGCONT)
    inner.open()
    assert [client.wait(LIMIT) for client in (passing, stopped, third)] == [0, 0, 0]
    assert order.read_text().split() == ["second", "first", "third"]


def test_the_peer_rings_whom_only_others_know_to_be_free_to_go(server):
    """The binary lets a short job pass where that delays nobody. The peer does not know how, but wakes it."""
    hold(server, "berth", "-n", "3", "--time", "1h")
    _, gate = hold(server, "berth", "-n", "1", "--time", "1h")
    peers = [queue_up(server, "peer", "-n", "4", job=["true"]) for _ in range(2)]  # who watch the leases
    short = queue_up(server, "berth", "--time", "1s", job=["true"])
    gate.open()
    assert short.wait(LIMIT) == 0
    assert [peer.poll() for peer in peers] == [None, None]


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_lease_that_is_taken_behind_waiters_is_watched(server, kind):
    """The first two tickets watch all leases, for everybody; also those that others took after they began to wait."""
    hold(server, "berth", "--gpu", "0")
    queue_up(server, "berth", "--gpu", "0", job=["true"])
    queue_up(server, "berth", "--gpu", "0", job=["true"])
    _, gate = hold(server, kind, "-n", "3")
    third = queue_up(server, "berth", "--gpu", "1", job=["true"])
    gate.open()
    assert third.wait(LIMIT) == 0


@pytest.mark.parametrize("kind", COMMANDS)
def test_the_peer_of_another_user(server, open_build, kind):
    """Beside root's clients, in both directions; and it cannot touch root's files."""
    shutil.copy(PEER, server.folder / "peer.py")
    server.env["PATH"] = f"{open_build / 'bin'}:/usr/bin:/bin"
    theirs = {"prefix": NOBODY, "command": ["/usr/bin/python3", server.folder / "peer.py"], "cwd": server.folder}
    roots, gate = hold(server, kind, "-n", "4")
    waiter_gate = Gate(server)
    waiter = queue_up(server, "peer", "-n", "4", job=waiter_gate.job, **theirs)
    [ticket] = server.status()["queue"]
    assert ticket["user"] == "nobody"
    [lease] = records(server, "lease")
    assert server.run(*NOBODY, "rm", "-f", server.harbour / lease).returncode != 0
    gate.open()
    assert roots.wait(LIMIT) == 0
    waiter_gate.pid()
    second = queue_up(server, kind, "-n", "1", job=["true"])
    assert server.status()["gpus"][0]["leases"][0]["user"] == "nobody"
    third = queue_up(server, "peer", "-n", "4", job=["true"], **theirs)
    waiter_gate.open()
    assert [client.wait(LIMIT) for client in (waiter, second, third)] == [0, 0, 0]
    assert_all_free(server)


# Kill -9 at random ---------------------------------------------------------------------------------------------------

JOBS = 240
AT_A_TIME = 14


def kill_job(pid, log):
    """Kills a job that still runs. Returns a moment at which it lived, or None if it is somebody else by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            ours = os.fsencode(log) in file.read().split(b"\0")
        moment = time.monotonic_ns()
        if ours and not ended([pidfd], 0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return moment
    except (ProcessLookupError, FileNotFoundError):
        pass
    finally:
        os.close(pidfd)
    return None


class Jobs:
    """What the jobs' log tells: who ran where, from when to when."""

    def __init__(self, log):
        self.log, self.killed = log, {}

    def runs(self):
        """[start, end, GPUs, process] of each run; end is None while it lasts, a moment of its life if it was killed."""
        open_runs, done = {}, []
        for line in self.log.read_text().splitlines() if self.log.exists() else []:
            event = json.loads(line)
            if event["event"] == "start":
                open_runs[event["pid"]] = [event["time_ns"], self.killed.get((event["pid"], event["time_ns"])),
                                           event["uuids"], event["pid"]]
                done.append(open_runs[event["pid"]])
            else:
                open_runs.pop(event["pid"])[1] = event["time_ns"]
        return done

    def kill_one(self, rng):
        running = [run for run in self.runs() if run[1] is None]
        if running:
            start, _, _, pid = rng.choice(running)
            moment = kill_job(pid, self.log)
            if moment is not None:
                self.killed[pid, start] = moment


def overlaps(runs, others):
    """Pairs of different runs that were on one GPU at a time."""
    return [(one, other) for one in runs for other in others
            if one is not other and set(one[2]) & set(other[2])
            and one[0] < (other[1] or other[0]) and other[0] < (one[1] or one[0])]


def test_nothing_is_granted_twice_or_lost_when_anybody_is_killed(server):
    seed = int(os.environ.get("BERTH_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"BERTH_TEST_SEED={seed}")
    rng = random.Random(seed)
    whole, shared = Jobs(server.folder / "whole.log"), Jobs(server.folder / "shared.log")
    plans = []
    for number in range(JOBS):
        kind, flags, jobs = ("peer", "berth")[number % 2], ["-n", str(rng.choice([1, 1, 1, 2, 3, 4]))], whole
        if kind == "berth" and rng.random() < 0.25:
            flags, jobs = [*flags, "--mem", "9GiB"], shared  # at most two of them on one GPU
        elif kind == "berth" and rng.random() < 0.3:
            flags = rng.choice([["--gpu", "0,2"], ["--name", "24 gib"], ["--time", "1s"], ["--policy", "random"]])
        job = [SIM_JOB, "--quiet", "--mem", "64MiB", "--time", f"{rng.randrange(1, 150)}ms", "--log", jobs.log]
        fate = rng.choices(["spared", "killed", "one job is killed"], [5, 2, 2])[0]
        plans.append(([*COMMANDS[kind], *flags, "--", *job], fate, rng.uniform(0, 0.8)))
    running, kills, codes, killed_clients = {}, [], [], 0
    deadline = time.monotonic() + 300
    while plans or running:
        assert time.monotonic() < deadline, server.berth("status").stdout
        while plans and len(running) < AT_A_TIME:
            command, fate, delay = plans.pop()
            client = server.start(*command)
            running[os.pidfd_open(client.pid)] = client
            if fate != "spared":
                heapq.heappush(kills, (time.monotonic() + delay, client.pid, fate, client))
        patience = kills[0][0] - time.monotonic() if kills else 10
        for pidfd in ended(running, patience):
            client = running.pop(pidfd)
            os.close(pidfd)
            codes.append(client.wait())
            assert client.returncode in (0, -9, 137), (client.args, client.stdout.read())
        while kills and kills[0][0] <= time.monotonic():
            _, _, fate, client = heapq.heappop(kills)
            if fate == "killed":
                client.kill()  # does nothing if it has ended and was waited for
                killed_clients += 1
            else:
                rng.choice([whole, shared]).kill_one(rng)
    assert_all_free(server)
    exclusive, sharing = whole.runs(), shared.runs()
    print(f"{len(exclusive)} + {len(sharing)} runs, {codes.count(-9)} clients and "
          f"{len(whole.killed) + len(shared.killed)} jobs killed")
    assert overlaps(exclusive, exclusive + sharing) == []
    for one, uuid in ((one, uuid) for one in sharing for uuid in one[2]):
        there = [other for other in sharing if uuid in other[2] and other[0] <= one[0] < (other[1] or other[0] + 1)]
        assert len(there) <= 2, "9 GiB each, on 24"
    assert codes.count(137) <= len(whole.killed) + len(shared.killed)
    assert len(exclusive) + len(sharing) >= JOBS - killed_clients
