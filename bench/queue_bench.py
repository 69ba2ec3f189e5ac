"""Measures the queue: the hand-over from one job to the next, the number of waiters that wake, and the cost of waiting."""

import contextlib
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

IDLE_SECONDS = 10  # how long idle waiters are observed
AUDIT_SECONDS = 35  # after this time waiters begin to check each other, which must be measured, too
WAKEUP_SECONDS = 0.05  # after this time a waiter that was woken sleeps again
MAX_COUNTED = 20  # releases for which the waiters that wake are counted; later, waiters also wake to check each other


def status_field(pid, field):
    """A number from /proc/PID/status."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise ValueError(f"no {field} for {pid}")


def cpu_ns(pid):
    """CPU time of all threads, in nanoseconds."""
    total = 0
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text().split()[0])
    return total


def env_in_folder(env, folder):
    """The environment with a new harbour and a new simulated driver in `folder`."""
    harbour = folder / "harbour"
    harbour.mkdir()
    harbour.chmod(0o1777)
    return {**env, "BERTH_DIR": str(harbour), "BERTH_SIM_STATE": str(folder / "sim.state")}


class Queue:
    """Waiters behind a job that holds the only GPU that they may use; each job holds it until release() is called."""

    def __init__(self, berth, job, env, folder, flags=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.env = env_in_folder(env, self.folder)
        self.harbour = pathlib.Path(self.env["BERTH_DIR"])
        os.mkfifo(self.folder / "gate")
        self.gate = os.open(self.folder / "gate", os.O_RDWR)
        self.log = self.folder / "log"
        self.log.touch()
        self.command = [berth, "run", *flags, "--", job, self.log, self.folder / "gate"]
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
                raise TimeoutError(f"the expected state of the queue was not reached in {seconds} s")
            time.sleep(0.01)

    def add(self, count):
        """Starts waiters, and waits until all are in the queue. At most 32 are starting at a time."""
        for number in range(count):
            self.wait_until(lambda: number - self.length() < 32)
            self.start_one()
        self.wait_until(lambda: self.length() >= count)
        time.sleep(0.5)

    def length(self):
        return sum(name.startswith("ticket-") for name in os.listdir(self.harbour))

    def alive(self):
        """The PIDs of the waiters and of the holder."""
        return [process.pid for process in self.processes if process.poll() is None]

    def starts(self):
        return self.log.read_text().count("start")

    def release(self):
        """Ends the job that holds the GPU, and waits until the next job runs."""
        goal = self.starts() + 1
        os.write(self.gate, b"!")
        self.wait_until(lambda: self.starts() >= goal)

    def gaps(self):
        """The times from the end of each job to the start of the next, in microseconds."""
        times = sorted(int(line.split()[1]) for line in self.log.read_text().splitlines())
        return [(start - end) / 1000 for end, start in zip(times[1::2], times[2::2])]

    def stop(self):
        # From the back, so that no waiter gets the GPU of a job that was stopped. The job of a killed berth goes on.
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        os.close(self.gate)  # ends the job


def switches(queue):
    """The number of times that each process went to sleep; if it grows, the process was woken."""
    return {pid: status_field(pid, "voluntary_ctxt_switches") for pid in queue.alive()}


def handovers(berth, job, env, folder, lengths, measured):
    """By the length of the queue: the hand-over times in microseconds with at least so many waiters, and the number of waiters
    that a release woke. All queues exist at the same time, and release by turns."""
    with contextlib.ExitStack() as stack:
        queues = {}
        woken = dict.fromkeys(lengths, 0)
        for waiting in lengths:
            queues[waiting] = Queue(berth, job, env, folder)
            stack.callback(queues[waiting].stop)
            queues[waiting].add(waiting + measured)
        counted = min(measured, MAX_COUNTED)
        for number in range(measured):
            for waiting, queue in queues.items():
                before = switches(queue) if number < counted else {}
                queue.release()
                time.sleep(WAKEUP_SECONDS)
                woken[waiting] += sum(count != before[pid] for pid, count in switches(queue).items() if pid in before)
        return {waiting: (queue.gaps(), woken[waiting] / counted) for waiting, queue in queues.items()}


def idle(berth, job, env, folder, waiting):
    """CPU seconds of all waiters in IDLE_SECONDS, and the resident memory of a waiter in MiB."""
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


@contextlib.contextmanager
def waiting_for_gpu_0(berth, job, env, folder, waiting):
    """The environment of a harbour in which `waiting` tickets want GPU 0, which is in use, and no other GPU."""
    queue = Queue(berth, job, env, folder, ["--gpu", "0"])
    try:
        queue.add(waiting)
        yield queue.env
    finally:
        queue.stop()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
