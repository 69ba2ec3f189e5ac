"""Measures `berth serve`: the load of viewers, the time until a job is shown, and the load time and size of the page."""

import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import queue_bench

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from page import Browser, Page  # noqa: E402

VIEWERS = 20
LEASED = "document.querySelectorAll('.card[data-state=leased]').length"


class Viewer:
    """A client of the live stream."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.leased = threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        data = b""
        with contextlib.suppress(OSError):  # closed
            while piece := self.socket.recv(1 << 16):
                *events, data = (data + piece).split(b"\n\n")
                if any(b'"state":"leased"' in event for event in events):
                    self.leased.set()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@contextlib.contextmanager
def serving(build, env, base):
    """A server on a free port with a new harbour: its process, port and environment."""
    with tempfile.TemporaryDirectory(dir=base) as name:
        own = queue_bench.env_in_folder(env, pathlib.Path(name))
        process = subprocess.Popen([build.berth, "serve", "--port", "0"], env=own, stdout=subprocess.PIPE, text=True)
        try:
            yield process, int(re.search(r":(\d+)/", process.stdout.readline())[1]), own
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
            process.stdout.close()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def cpu_seconds(pid):
    """CPU time of a process and of its driver helper. Read from the scheduler's statistics: the usual clock counts ticks, and
    misses a process that works for a millisecond in each second."""
    total = 0
    for one in (pid, *children(pid)):
        for thread in os.listdir(f"/proc/{one}/task"):
            with open(f"/proc/{one}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
    return total / 1e9


def share_of_a_core(build, env, base, seconds, rounds):
    """Percent of one core in each round, with VIEWERS viewers of 8 GPUs. Half of the GPUs run jobs whose memory changes all
    the time, so that each poll has something to send."""
    steps = range(2 * (rounds + 2) * seconds)
    curve = ",".join(f"{500 * step}ms:{1 + step % 7}GiB" for step in steps)
    with serving(build, env, base) as (process, port, own):
        jobs = [subprocess.Popen([build.berth, "run", "-n", "2", "--", build.bin / "berth-sim-job", "--curve", curve],
                                 env=own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for _ in range(2)]
        viewers = [Viewer(port) for _ in range(VIEWERS)]
        for viewer in viewers:
            viewer.leased.wait(30)
        shares = []
        for _ in range(rounds):
            before, began = cpu_seconds(process.pid), time.monotonic()
            time.sleep(seconds)
            shares.append(100 * (cpu_seconds(process.pid) - before) / (time.monotonic() - began))
        for viewer in viewers:
            viewer.close()
        for job in jobs:
            job.terminate()
            job.wait()
    return shares


def times_to_show(build, page, env, rounds):
    """Seconds from the start of a job's program until the page shows it, in each round."""
    times = []
    for _ in range(rounds):
        page.wait(f"{LEASED} === 0")
        job = subprocess.Popen([build.berth, "run", "--", "sh", "-c", "echo; exec cat"], env=env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        job.stdout.readline()
        began = time.monotonic()
        page.wait(f"{LEASED} === 1")
        times.append(time.monotonic() - began)
        job.stdin.close()
        job.wait()
        job.stdout.close()
    return times


def page_loads(page, rounds):
    """Milliseconds until the browser has loaded the page, and until it shows a card for each GPU, in each round."""
    loads, cards = [], []
    for _ in range(rounds):
        began = time.monotonic()
        page.do("reload")
        page.wait("document.querySelectorAll('.card').length === 8")
        cards.append(1000 * (time.monotonic() - began))
        loads.append(page.js("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    return loads, cards


def in_browser(build, env, base, rounds):
    with serving(build, env, base) as (_, port, own):
        browser = Browser()
        try:
            page = Page(browser, 1, f"http://127.0.0.1:{port}/")
            loads, cards = page_loads(page, rounds)
            return {"shown": times_to_show(build, page, own, rounds), "loads": loads, "cards": cards}
        finally:
            browser.stop()


def bundle_bytes(build, env, base):
    """The size in bytes of the page and of all files that it refers to."""
    with serving(build, env, base) as (_, port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        size = 0
        wanted, seen = ["/"], {"/"}
        while wanted:
            connection.request("GET", wanted.pop())
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, answer.status
            size += len(body)
            # References in a page, a style sheet or a module: quoted names of our own files.
            for name in re.findall(rb"""["'](?:\./|/)?([a-z_0-9-]+\.(?:js|css|svg))["']""", body):
                path = "/" + name.decode()
                if path not in seen:
                    seen.add(path)
                    wanted.append(path)
        connection.close()
    return size


def measure(build, env, base, rounds, seconds):
    """All measurements: CPU shares in percent, times to show in seconds, load times in milliseconds, bytes of the page."""
    eight = {**env, "BERTH_SIM": "8x80GiB"}
    return {"shares": share_of_a_core(build, eight, base, seconds, max(1, rounds // 2)),
            **in_browser(build, eight, base, 2 * rounds), "bytes": bundle_bytes(build, eight, base)}
