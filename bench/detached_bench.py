"""Measures detached jobs: what idle ones cost that wait for a GPU."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

import queue_bench

STARTING_AT_ONCE = 8
LEAVES_S = 10  # a process that was killed is gone after this time at most


class DetachedQueue:
    """Detached jobs that wait behind another one, in a state folder of their own."""

    def __init__(self, berth, env, folder):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.env = {**queue_bench.env_in_folder(env, self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        self.harbour = pathlib.Path(self.env["BERTH_DIR"])
        self.command = [berth, "run", "-d", "--", "sleep", "1000000"]
        subprocess.run(self.command, env=self.env, check=True, capture_output=True)

    def add(self, count):
        for _ in range(0, count, STARTING_AT_ONCE):
            starting = [subprocess.Popen(self.command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        for _ in range(min(STARTING_AT_ONCE, count))]
            for process in starting:
                if process.wait() != 0:
                    raise RuntimeError("berth run -d has failed")
        queue_bench.Queue.wait_until(lambda: self.length() >= count)

    def length(self):
        return sum(name.startswith("ticket-") for name in os.listdir(self.harbour))

    def jobs(self):
        """The PID of the berth process of each job, and the names of the job's events."""
        for path in (self.folder / "state").glob("berth/jobs/*/events"):
            events = [json.loads(line) for line in path.read_text().splitlines()]
            yield events[0]["pid"], {event["event"] for event in events}

    def waiting(self):
        return [pid for pid, events in self.jobs() if "granted" not in events]

    def stop(self):
        pids = [pid for pid, _ in self.jobs() if pathlib.Path(f"/proc/{pid}").exists()]
        # While all are stopped, none gets the GPU of a job that ends.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.killpg(pid, number)  # with the job
        queue_bench.Queue.wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), LEAVES_S)


def idle(berth, env, folder, waiting):
    """CPU seconds of all waiting jobs in IDLE_SECONDS, and the resident memory of one in MiB."""
    queue = DetachedQueue(berth, env, folder)
    try:
        queue.add(waiting)
        time.sleep(queue_bench.AUDIT_SECONDS)
        pids = queue.waiting()
        before = sum(queue_bench.cpu_ns(pid) for pid in pids)
        time.sleep(queue_bench.IDLE_SECONDS)
        used = (sum(queue_bench.cpu_ns(pid) for pid in pids) - before) / 1e9
        return used, statistics.median(queue_bench.status_field(pid, "VmRSS") for pid in pids) / 1024
    finally:
        queue.stop()
