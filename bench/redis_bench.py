"""Measures the harbour in Redis, with its own Redis server and several simulated hosts on this machine."""

import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import queue_bench

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))
import redis_server  # noqa: E402

CLIENTS = 40  # on each host; 8 hold its GPUs, and the others wait
GPUS = 8
HOSTS = (1, 2, 4, 8, 16, 32)
DELAY = 0.0005  # seconds in each direction, for a server on another machine
HOLD_MS = 1000  # long, so that this machine does not limit the clients


@contextlib.contextmanager
def own_server():
    """A Redis server without persistence, for which the recovery wait of a new server is over."""
    with tempfile.TemporaryDirectory() as folder:
        server = redis_server.RedisServer(folder)
        try:
            server.skip_recovery_wait()
            yield server
        finally:
            server.kill()


class Relay:
    """A relay to the server that adds the delay of a network. On one machine a round trip is so short that berth's own
    work takes as long as many of them."""

    def __init__(self, target, seconds):
        self.target = target
        self.seconds = seconds  # in each direction
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((client, server), (server, client)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, source, target):
        with contextlib.suppress(OSError):  # one side has closed the connection
            while data := source.recv(1 << 16):
                time.sleep(self.seconds)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def handovers(build, rounds, times, delay, env, base):
    """Microseconds of a release that wakes a waiter, of an LPUSH that wakes a BRPOP, and of a PING, in each round.

    A client that is granted a GPU runs on the GPU's host, where the bell of the lease wakes it before Redis does. So both
    clients are on one host, but each has its own directory, as in two containers: then only Redis can wake them."""
    with own_server() as server, tempfile.TemporaryDirectory(dir=base) as own:
        folder = pathlib.Path(own)
        other_directory = folder / "elsewhere"
        other_directory.mkdir()
        other_directory.chmod(0o1777)
        relay = Relay(server.port, delay) if delay else None
        port = relay.port if relay else server.port
        full_env = {**queue_bench.env_in_folder(env, folder), "BERTH_URL": f"redis://127.0.0.1:{port}", "BERTH_SIM": "1x24GiB"}
        try:
            output = subprocess.run([build.bench / "redis_bench", "handover", str(rounds), str(times), str(port), other_directory], env=full_env,
                                    check=True, capture_output=True, text=True).stdout
        finally:
            if relay:
                relay.close()
    return json.loads(output)


def berth_overhead_us(one):
    """Microseconds that a hand-over by berth takes longer than a bare one."""
    return one["berth_us"] - one["redis_us"]


def handover_fact(where, rounds):
    """A line of the output."""
    parts = (("berth", "berth_us"), ("LPUSH to BRPOP", "redis_us"), ("PING", "ping_us"))
    return f"hand-over through Redis {where}", ", ".join(
        f"{what} {statistics.median(one[key] for one in rounds) / 1000:.2f} ms" for what, key in parts)


class Load(NamedTuple):
    """The load that a number of hosts caused."""

    hosts: int
    grants: float  # per second
    redis_share: float  # of one core
    redis_us: float  # CPU time for each grant
    commands: float  # for each grant, with those in scripts
    requests: float  # for each grant: commands that clients sent


def counts(server):
    """The number of calls of each command since the server started."""
    with server.client() as client:
        return {name.removeprefix("cmdstat_"): values["calls"] for name, values in client.info("commandstats").items()}


def waiting(server):
    with server.client() as client:
        return sum(client.zcard(key) for key in client.keys("berth:*:queue"))


def load(build, hosts, hold_ms, seconds, env, base):
    """`hosts` hosts with equal load: their clients acquire a lease, hold it for `hold_ms` and release it, repeatedly."""
    with own_server() as server, tempfile.TemporaryDirectory(dir=base) as folder:
        process = subprocess.Popen([build.bench / "redis_bench", "hosts", str(hosts), str(CLIENTS), str(hold_ms), folder],
                                   env={**env, "BERTH_URL": server.tcp_url(), "BERTH_SIM": f"{GPUS}x80GiB"},
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def read_counters():
            process.stdin.write("\n")
            process.stdin.flush()
            granted = int(process.stdout.readline())
            return granted, time.monotonic(), queue_bench.cpu_ns(server.process.pid), counts(server)
        try:
            # Some clients are always between two requests.
            queue_bench.Queue.wait_until(lambda: waiting(server) > 0.9 * hosts * (CLIENTS - GPUS))
            before = read_counters()
            time.sleep(seconds)
            after = read_counters()
        finally:
            process.stdin.close()
            process.wait()
    grants, taken, cpu = (b - a for a, b in zip(before[:3], after[:3]))
    calls = {name: count - before[3].get(name, 0) for name, count in after[3].items()}
    requests = sum(calls.get(name, 0) for name in ("evalsha", "eval", "exec", "hmget", "blpop"))
    return Load(hosts, grants / taken, cpu / taken / 1e9, cpu / grants / 1000, sum(calls.values()) / grants, requests / grants)


def fact(load, hold_ms):
    """A line of the output."""
    name = f"{load.hosts} host(s), {load.hosts * (CLIENTS - GPUS)} waiting, each lease held for {hold_ms} ms"
    return name, (f"{load.grants:.0f} grants/s, Redis used {100 * load.redis_share:.0f}% of a core; per grant: "
                  f"{load.redis_us:.0f} us of CPU time of Redis, {load.commands:.0f} commands in {load.requests:.1f} requests")
