"""Measures the queue: hand-over from one job to the next, who wakes, and what waiting costs."""

import os
import pathlib
import statistics
import subprocess
import tempfile
import time

IDLE_SECONDS = 10  # seconds for which idle waiters are watched
AUDIT_SECONDS = 35  # seconds after which they begin to look after each other, which must be counted too
WAKEUP_SECONDS = 0.05  # seconds after which whoever was woken sleeps again


def status_field(pid, field):
    """A number from /proc/PID/status."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise ValueError(f"no {field} for {pid}")


def cpu_ns(pid):
    """Time on a processor, in nanoseconds, of all threads."""
    total = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text().split()[0])
    return total


def env_in_folder(env, folder):
    """The environment for a harbour and a simulated driver of their own in `folder`."""
    harbour = folder / "harbour"
    harbour.mkdir()
    harbour.chmod(0o1777)
    return {**env, "BERTH_DIR": str(harbour), "BERTH_SIM_STATE": str(folder / "sim.state")}


class Queue:
    """Waiters behind a job that holds the only GPU; each job holds it until release() is called."""

    def __init__(self, berth, job, env, folder):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.env = env_in_folder(env, self.folder)
        self.harbour = pathlib.Path(self.env["BERTH_DIR"])
        os.mkfifo(self.folder / "gate")
        self.gate = os.open(self.folder / "gate", os.O_RDWR)
        self.log = self.folder / "log"
        self.log.touch()
        self.command = [berth, "run", "--", job, self.log, self.folder / "gate"]
        self.processes = []
        self.start_one()
        self.wait_until(lambda: self.starts())

    def start_one(self):
        self.processes.append(subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL))

    @staticmethod
    def wait_until(condition, seconds=300):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("the queue does not move")
            time.sleep(0.01)

    def add(self, count):
        """Starts waiters, at most 32 at a time on their way, and waits until all stand in the queue."""
        for number in range(count):
            self.wait_until(lambda: number - self.length() < 32)
            self.start_one()
        self.wait_until(lambda: self.length() >= count)
        time.sleep(0.5)

    def length(self):
        return sum(name.startswith("ticket-") for name in os.listdir(self.harbour))

    def alive(self):
        """The PIDs of those that wait, and of the one that holds the GPU."""
        return [process.pid for process in self.processes if process.poll() is None]

    def starts(self):
        return self.log.read_text().count("start")

    def release(self):
        """Ends the job that holds the GPU, and waits until the next one runs."""
        goal = self.starts() + 1
        os.write(self.gate, b"!")
        self.wait_until(lambda: self.starts() >= goal)

    def gaps(self):
        """From the end of each job to the start of the next, in microseconds."""
        times = sorted(int(line.split()[1]) for line in self.log.read_text().splitlines())
        return [(start - end) / 1000 for end, start in zip(times[1::2], times[2::2])]

    def stop(self):
        # From the back, so that nobody is handed the GPU of who was stopped. A job outlives its berth.
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        os.close(self.gate)  # which ends the job


def switches(queue):
    """How often each process went to sleep so far: who did again was woken."""
    return {pid: status_field(pid, "voluntary_ctxt_switches") for pid in queue.alive()}


def handover(berth, job, env, folder, waiting, measured):
    """Hand-overs in microseconds while at least `waiting` others wait, and how many waiters each release woke."""
    queue = Queue(berth, job, env, folder)
    try:
        queue.add(waiting + measured)
        woken = 0
        for _ in range(measured):
            before = switches(queue)
            queue.release()
            time.sleep(WAKEUP_SECONDS)
            woken += sum(count != before[pid] for pid, count in switches(queue).items())
        return queue.gaps(), woken / measured
    finally:
        queue.stop()


def idle(berth, job, env, folder, waiting):
    """CPU seconds of all waiters in TICKS seconds, and the resident memory of one in MiB."""
    queue = Queue(berth, job, env, folder)
    try:
        queue.add(waiting)
        time.sleep(AUDIT_SECONDS)
        pids = queue.alive()
        before = sum(cpu_ns(pid) for pid in pids)
        time.sleep(IDLE_SECONDS)
        used = (sum(cpu_ns(pid) for pid in pids) - before) / 1e9
        memory = statistics.median(status_field(pid, "VmRSS") for pid in pids) / 1024
        return used, memory
    finally:
        queue.stop()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
