"""Real processes of real users on a simulated server, and waiting for what they do.

The jobs here use no GPU memory unless a test says so: a GPU granted twice must not be hidden by the
driver's list of processes.
"""

import concurrent.futures
import errno
import json
import os
import pathlib
import select
import stat
import subprocess

import pytest
import redis_server
from leftovers import kill_all_of, processes_of
from waiting import LIMIT, wait_until

ALICE, BOB, CAROL, DAVE = 20001, 20002, 20003, 20004
USERS = (ALICE, BOB, CAROL, DAVE)

wait_for = wait_until


class Gate:
    """A job that starts, says so, and ends when it is let go."""

    def __init__(self, folder, name):
        self.path = folder / f"{name}.gate"
        self.started = folder / f"{name}.started"
        os.mkfifo(self.path)
        self.path.chmod(0o666)

    def command(self):
        # The shell becomes cat, which waits for a writer, and then for its end.
        return ["sh", "-c", f"echo $$ >{self.started}.new; mv {self.started}.new {self.started}; "
                            f"exec cat {self.path}"]

    def pid(self):
        return int(self.started.read_text()) if self.started.exists() else None

    def wait_until_started(self, seconds=LIMIT, who=None):
        return wait_for(self.pid, lambda: f"the job starts; {who and who.errors()}", seconds)

    def open(self):
        def opened():
            try:
                os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
                return True
            except OSError as problem:
                assert problem.errno == errno.ENXIO, problem
                return False
        wait_for(opened, "the job waits at its gate")


class Client:
    """A command of a user, with its errors in a file."""

    def __init__(self, process, errors):
        self.process = process
        self.error_file = errors
        self.pid = process.pid

    def errors(self):
        return self.error_file.read_text()

    def wait(self, seconds=LIMIT):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s: {self.process.args}\n{self.errors()}")

    def send(self, number):
        self.process.send_signal(number)


class Host:
    """A simulated server, its users, and a view of its harbour that does not go through berth."""

    def __init__(self, server, build):
        self.server = server
        self.folder = server.folder
        self.harbour = server.harbour
        self.build = build
        # The search for leaks works by ptrace, as strace does, and fails where processes are stopped.
        self.env = {**server.env, "PATH": f"{build / 'bin'}:{os.environ['PATH']}", "ASAN_OPTIONS": "detect_leaks=0"}
        self.berth = str(build / "bin" / "berth")
        self.job = str(build / "bin" / "berth-sim-job")
        self.clients = []
        self.gates = 0

    def gate(self):
        self.gates += 1
        return Gate(self.folder, f"job{self.gates}")

    def start(self, *command, uid=ALICE, env=None, **options):
        errors = self.folder / f"errors{len(self.clients)}"
        with errors.open("w") as file:
            process = subprocess.Popen([str(part) for part in command], env={**self.env, **(env or {})},
                                       stdin=options.pop("stdin", subprocess.DEVNULL),
                                       stdout=options.pop("stdout", file), stderr=file, user=uid, group=uid,
                                       extra_groups=[], start_new_session=True, cwd=self.folder, **options)
        client = Client(process, errors)
        self.clients.append(client)
        return client

    def run(self, *arguments, uid=BOB, seconds=LIMIT, env=None, command=("true",)):
        """`berth run` to its end, with the exit code and the errors."""
        client = self.start(self.berth, "run", *arguments, "--", *command, uid=uid, env=env)
        return client.wait(seconds), client.errors()

    def hold(self, *arguments, uid=ALICE, prefix=(), env=None, **options):
        """A `berth run` whose job is running, and the gate that ends it."""
        gate = self.gate()
        client = self.start(*prefix, self.berth, "run", *arguments, "--", *gate.command(), uid=uid, env=env, **options)
        gate.wait_until_started(who=client)
        return client, gate

    def queue(self, *arguments, uid=BOB, prefix=(), env=None, **options):
        """A `berth run` that waits in the queue."""
        gate = self.gate()
        client = self.start(*prefix, self.berth, "run", "--label", gate.path.name, *arguments, "--", *gate.command(),
                            uid=uid, env=env, **options)
        wait_for(lambda: any(ticket["label"] == gate.path.name for ticket in self.tickets()),
                 lambda: f"it takes its place; {client.errors()}")
        return client, gate

    # The harbour, by its files alone.

    def is_live(self, name):
        """Does anybody have the reading end of this client's bell?"""
        try:
            os.close(os.open(self.harbour / f"bell-{name}", os.O_WRONLY | os.O_NONBLOCK))
            return True
        except OSError as problem:
            assert problem.errno in (errno.ENXIO, errno.ENOENT), problem
            return False

    def records(self, kind):
        found = []
        try:
            names = sorted(os.listdir(self.harbour))
        except FileNotFoundError:
            return []
        for name in names:
            if not name.startswith(f"{kind}-") or not self.is_live(name.rsplit("-", 1)[1]):
                continue
            try:
                found.append(json.loads((self.harbour / name).read_text()))
            except (FileNotFoundError, ValueError):
                continue  # gone, or about to be written
        return found

    def leases(self):
        return self.records("lease")

    def tickets(self):
        url = self.env.get("BERTH_URL")
        if not url:
            return self.records("ticket")
        records = [json.loads(text) for text in redis_server.tickets_of(url)]
        return [record for record in records if self.is_live(record["id"])]

    def wait_until_free(self, seconds=LIMIT):
        wait_for(lambda: not self.leases() and not self.tickets(),
                 lambda: f"the harbour is empty: {self.leases()} {self.tickets()}", seconds)

    def processes(self):
        return processes_of(self.harbour)

    def stop(self):
        kill_all_of(self.harbour)
        for client in self.clients:
            client.process.kill()
            client.process.wait()


def in_lanes(hosts, work, items):
    """work(host, item) for all items, each host one at a time."""
    def lane(number):
        for item in items[number::len(hosts)]:
            try:
                work(hosts[number], item)
            except BaseException as problem:
                raise AssertionError(f"{item}: {problem}") from problem
    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
        for done in [pool.submit(lane, number) for number in range(len(hosts))]:
            done.result()


def state_of(pid):
    """The kernel's letter for what a process does (T: stopped), or nothing if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def ended(pidfds, seconds):
    """Those of the processes that have ended; waits for the first, but not longer than this."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    return [pidfd for pidfd, _ in poll.poll(max(0, seconds) * 1000)]


def wait_until_stopped(pid):
    wait_for(lambda: state_of(pid) in ("T", "t"), f"process {pid} stops")


def is_fifo(path):
    return stat.S_ISFIFO(os.lstat(path).st_mode)
