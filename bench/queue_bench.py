"""Measures the queue: hand-over from one job to the next, who wakes, and what waiting costs."""

import os
import pathlib
import signal
import statistics
import subprocess
import time

TICKS = 10  # seconds for which idle waiters are watched


def children_of(processes):
    return [process.pid for process in processes]


def status_field(pid, field):
    """A number from /proc/PID/status; None if the process is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


def cpu_ns(pid):
    """Time on a processor, in nanoseconds, of all threads."""
    total = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text().split()[0])
    return total


class Queue:
    """Waiters behind a job that holds the only GPU until it is told to let go."""

    def __init__(self, berth, job, env, folder):
        self.berth, self.job, self.env = berth, job, env
        self.harbour = pathlib.Path(env["BERTH_DIR"])
        self.log = folder / "handover.log"
        self.log.unlink(missing_ok=True)
        self.waiters = []
        self.first = subprocess.Popen([berth, "run", "--", "sleep", "1h"], env=env)
        self.wait_until(lambda: list(self.harbour.glob("lease-*")))

    @staticmethod
    def wait_until(condition, seconds=300):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("the queue does not move")
            time.sleep(0.02)

    def add(self, count):
        """Starts waiters, at most 32 at a time on their way, and waits until all stand in the queue."""
        goal = len(self.waiters) + count
        while len(self.waiters) < goal:
            self.wait_until(lambda: len(self.waiters) - self.length() < 32)
            self.waiters.append(subprocess.Popen(
                [self.berth, "run", "--", self.job, str(self.log)], env=self.env,
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.wait_until(lambda: self.length() >= goal)
        time.sleep(0.5)

    def length(self):
        return len(list(self.harbour.glob("ticket-*")))

    def start(self):
        """Lets go of the GPU: the waiters have it one after the other."""
        self.first.send_signal(signal.SIGTERM)
        self.first.wait()

    def records(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return sorted(tuple(map(int, line.split())) for line in lines)

    def stop(self):
        for process in [self.first, *self.waiters]:
            if process.poll() is None:
                process.kill()
        for process in [self.first, *self.waiters]:
            process.wait()


def handover(berth, job, env, folder, waiting, measured):
    """Hand-overs in microseconds while at least `waiting` others wait, and wake-ups per release."""
    queue = Queue(berth, job, env, folder)
    try:
        queue.add(waiting + measured)
        behind = children_of(queue.waiters)
        before = {pid: status_field(pid, "voluntary_ctxt_switches") for pid in behind}
        queue.start()
        queue.wait_until(lambda: len(queue.records()) >= measured)
        # Those that still wait when the last measured one has run: who of them ever woke?
        after = {pid: status_field(pid, "voluntary_ctxt_switches") for pid in behind}
        still = {pid for pid in behind if after[pid] is not None}
        woken = sum(1 for pid in still if after[pid] != before[pid])
        records = queue.records()
        gaps = [(b[0] - a[1]) / 1000 for a, b in zip(records, records[1:])][:measured]
        # Every waiter that ran woke; of the others, those near the front did.
        return gaps, (len(records) + woken) / max(1, len(records))
    finally:
        queue.stop()


def idle(berth, job, env, folder, waiting):
    """CPU seconds of all waiters in TICKS seconds, and the resident memory of one in MiB."""
    queue = Queue(berth, job, env, folder)
    try:
        queue.add(waiting)
        pids = children_of(queue.waiters)
        before = sum(cpu_ns(pid) for pid in pids)
        time.sleep(TICKS)
        used = (sum(cpu_ns(pid) for pid in pids) - before) / 1e9
        memory = statistics.median(status_field(pid, "VmRSS") for pid in pids) / 1024
        return used, memory
    finally:
        queue.stop()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
