"""What the tests of leases share: jobs that run until they are told to end, and waiting for a condition."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import BERTH, wait_until
from leftovers import processes_of
from waiting import LIMIT

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# The job says which GPUs it has, and runs until nobody holds its stdin any more: no test can leave it behind.
SAY_AND_STAY = ["sh", "-c", 'echo "$BERTH_GPUS"; read -r line; exit 0']


eventually = wait_until


def keepers(server):
    """The processes that hold leases of shells in this harbour. Each leads its session, which a fork of it, about to
    become its driver helper, does not."""
    found = []
    for pid in processes_of(server.harbour):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/comm").read_bytes() == b"berth-keeper\n" and os.getsid(pid) == pid:
                found.append(pid)
    return found


def only_keeper(server):
    [keeper] = wait_until(lambda: keepers(server), "a keeper")
    return keeper


class Job:
    """A program that runs beside the test (usually `berth run`), with its output in files."""

    def __init__(self, server, number, command, env, **options):
        self.out_path = server.folder / f"job{number}.out"
        self.err_path = server.folder / f"job{number}.err"
        whole = {name: value for name, value in {**server.env, **(env or {})}.items() if value is not None}
        with open(self.out_path, "w") as out, open(self.err_path, "w") as err:
            self.process = subprocess.Popen(command, env=whole, stdin=subprocess.PIPE, stdout=out, stderr=err,
                                            **options)
        self.pid = self.process.pid

    @property
    def out(self):
        return self.out_path.read_text()

    @property
    def err(self):
        return self.err_path.read_text()

    @property
    def runs(self):
        return self.process.poll() is None

    def gpus(self):
        """The indices that the job has said it has; waits until it has started."""
        def said():
            assert self.runs or "\n" in self.out, (self.process.returncode, self.err)
            return "\n" in self.out
        eventually(said, f"the start of {self.process.args}")
        return self.out.split("\n")[0]

    def waits(self):
        """Waits until it has said why it waits; what it has said."""
        def said():
            assert self.runs, (self.process.returncode, self.err)
            return self.err.endswith("\n") and "berth: waiting" in self.err
        eventually(said, f"the waiting of {self.process.args}")
        return self.err

    def end(self):
        """Lets it end by itself; its exit code."""
        self.process.stdin.close()
        return self.process.wait(LIMIT)


class Jobs:
    def __init__(self, server):
        self.server = server
        self.all = []

    def start(self, *command, env=None, **options):
        job = Job(self.server, len(self.all), [str(word) for word in command], env, **options)
        self.all.append(job)
        return job

    def run(self, *flags, command=None, env=None, prefix=(), program=BERTH):
        """Starts `berth run FLAGS -- COMMAND`, by default with a job that says its GPUs and stays."""
        return self.start(*prefix, program, "run", *flags, "--", *(command or SAY_AND_STAY), env=env)

    def hold(self, *flags, **options):
        """The same, and waits until the job has its GPUs."""
        job = self.run(*flags, **options)
        job.gpus()
        return job

    def wait(self, *flags, **options):
        """The same, and waits until it has a place in the queue."""
        job = self.run(*flags, **options)
        job.waits()
        return job

    def stop(self):
        for job in self.all:
            with contextlib.suppress(BrokenPipeError):
                job.process.stdin.close()
        for job in self.all:
            job.process.kill()
            job.process.wait()


@pytest.fixture
def jobs(server):
    some = Jobs(server)
    yield some
    some.stop()


def ready(job):
    """What a shell has printed before it said that it is ready; waits for that."""
    def said():
        assert job.runs, (job.process.returncode, job.out, job.err)
        return "ready\n" in job.out
    eventually(said, "the shell's script")
    return job.out.split("ready\n")[0].splitlines()


def gpus_of(server, *flags, env=None):
    """The indices that `berth run FLAGS` gives to a job that ends at once."""
    result = server.berth("run", *flags, "--", "sh", "-c", 'echo "$BERTH_GPUS"', env=env)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()


def variables_of(server, *flags, env=None):
    """What berth has put into the environment of its job."""
    result = server.berth("run", *flags, "--", "cat", "/proc/self/environ", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    entries = [entry.split("=", 1) for entry in result.stdout.rstrip("\0").split("\0")]
    assert len(entries) == len({name for name, _ in entries}), "a variable is there twice"
    return dict(entries)


def gpu(status, index):
    return next(one for one in status["gpus"] if str(one["index"]) == str(index))


def state_of(server, index):
    return gpu(server.status(), index)["state"]


def uuids(server):
    return {str(one["index"]): one["uuid"] for one in server.status()["gpus"]}


def events(path):
    """What berth-sim-job has written by --log: whole lines only."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_alive(pid):
    """Runs, and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def watches_files(pid):
    """Whether the process has an inotify descriptor. It opens and closes others meanwhile."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            if "inotify" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                return True
    return False


def processes():
    """Each process of the host: its number, and the fields of its stat behind the name (state, parent, group, session...)."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{name}/stat", errors="replace") as file:
            yield int(name), file.read().rpartition(")")[2].split()


def kill_session(leader):
    """All that somebody has started who was the first of a session, also what outlived him and ignores signals."""
    for pid, fields in processes():
        if int(fields[3]) == leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def read_to_end(descriptor):
    """What a pipe still holds. Its end must come: if somebody keeps it open, this fails and does not hang."""
    os.set_blocking(descriptor, False)
    content = b""

    def ended():
        nonlocal content
        try:
            chunk = os.read(descriptor, 65536)
        except BlockingIOError:
            return False
        content += chunk
        return not chunk
    try:
        eventually(ended, "the end of a pipe")
    finally:
        os.close(descriptor)
    return content


def written_on(terminal):
    """What arrives at a terminal, piece by piece, until its other end is closed."""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            return
        if not chunk:
            return
        yield chunk
