"""Several real users on one simulated server, honest and hostile.

Alice and Bob are honest, Mallory is not. Attacks are made with raw system calls by processes of Mallory's uid
(`World.puppet`, `World.do`); what must hold is asked of the real binary, run by the others.
"""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import pickle
import resource
import signal
import struct
import subprocess
import tempfile
import time

import pytest
from conftest import remove, wait_until
from waiting import LIMIT

ALICE, BOB, MALLORY = 2001, 2002, 2003
SAY_AND_STAY = ["sh", "-c", 'echo "$BERTH_LEASE $BERTH_GPUS"; read -r line; exit 0']
LIBC = ctypes.CDLL(None)


def become(uid, *kept):
    """The rest of this process is another user's, with no file of the test's but those."""
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) > 2 and int(fd) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(fd))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def eventually(condition, what="the condition"):
    return wait_until(condition, what, LIMIT)


class UserProcess:
    """A process of some user that has run a function, and keeps what that opened until it is let go."""

    def __init__(self, uid, function, arguments, kept=()):
        answer, say = os.pipe()
        leash, self.leash = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(uid, say, leash, *kept)
                try:
                    value = (True, function(*arguments))
                except BaseException as problem:  # noqa: BLE001: told to the test
                    value = (False, repr(problem))
                try:
                    text = pickle.dumps(value)
                except Exception:  # noqa: BLE001: open files and the like stay here
                    text = pickle.dumps((value[0], None))
                os.write(say, struct.pack("I", len(text)) + text)
                os.close(say)
                os.read(leash, 1)
            finally:
                os._exit(0)
        os.close(say)
        os.close(leash)
        with os.fdopen(answer, "rb") as pipe:
            head = pipe.read(4)
            assert len(head) == 4, f"{function.__name__} died"
            done, self.value = pickle.loads(pipe.read(struct.unpack("I", head)[0]))
        assert done, self.value

    def stop(self):
        if self.pid is None:
            return
        os.close(self.leash)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = None


class Job:
    def __init__(self, process, folder, number):
        self.process, self.pid, self.lease, self.gpus = process, process.pid, None, None
        self.out, self.err = folder / f"{number}.out", folder / f"{number}.err"

    def started(self):
        def said():
            assert self.process.poll() is None or "\n" in self.out.read_text(), self.err.read_text()
            return "\n" in self.out.read_text()
        eventually(said, f"the start of {self.process.args}")
        self.lease, self.gpus = self.out.read_text().split("\n")[0].split(" ")
        return self

    def said(self, text):
        def seen():
            words = self.err.read_text(errors="surrogateescape")
            assert self.process.poll() is None or text in words, (self.process.returncode, words)
            return words if text in words else None
        return eventually(seen, f"'{text}'")

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(LIMIT) == 0, self.err.read_text()

    def kill(self):
        """With its job, so that nobody has the bell any more."""
        os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(LIMIT)


class World:
    """One simulated server with one GPU (unless told otherwise), and users on it."""

    def __init__(self, server, build):
        self.server, self.berth_path, self.harbour = server.use("1x24GiB"), build / "bin" / "berth", str(server.harbour)
        self.jobs, self.processes, self.folders = [], [], []
        (server.folder / "jobs").mkdir()
        # The state is shared by all users, whoever is first.
        self.berth(ALICE, "status")

    def in_memory(self):
        """A harbour where it costs nothing to make thousands of files."""
        self.harbour = tempfile.mkdtemp(prefix="berth-test-", dir="/dev/shm")
        self.folders.append(pathlib.Path(self.harbour))
        os.chmod(self.harbour, 0o1777)
        self.server.env["BERTH_DIR"] = self.harbour
        return self

    def prefix(self, uid):
        return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]

    def berth(self, uid, *arguments, prefix=(), **options):
        return self.server.run(*prefix, *self.prefix(uid), self.berth_path, *arguments, **options)

    def try_now(self, uid, *flags, **options):
        """`berth run --no-wait`: 0 if there was a GPU, 75 if not."""
        return self.berth(uid, "run", "--no-wait", *flags, "--", "true", **options)

    def run(self, uid, *flags, command=SAY_AND_STAY, prefix=(), env=None, subcommand="run"):
        number = len(self.jobs)
        folder = self.server.folder / "jobs"
        with open(folder / f"{number}.out", "w") as out, open(folder / f"{number}.err", "w") as err:
            words = [*prefix, *self.prefix(uid), self.berth_path, subcommand, *flags]
            words += ["--", *command] if command else []
            process = subprocess.Popen([str(word) for word in words], env={**self.server.env, **(env or {})},
                                       stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True)
        self.jobs.append(Job(process, folder, number))
        return self.jobs[-1]

    def hold(self, uid, *flags, **options):
        return self.run(uid, *flags, **options).started()

    def wait(self, uid, *flags, **options):
        """One that waits; its id is .lease."""
        before = {ticket["ticket"] for ticket in self.status()["queue"]}
        job = self.run(uid, *flags, **options)
        job.said("waiting, position")

        def ticket():
            new = [one["ticket"] for one in self.status()["queue"] if one["ticket"] not in before]
            return new[0] if new else None
        job.lease = eventually(ticket, "a ticket")
        return job

    def status(self, uid=BOB):
        result = self.berth(uid, "status", "--json")
        assert (result.returncode, result.stderr) == (0, ""), result
        return json.loads(result.stdout)

    def leases(self):
        return {lease["id"]: lease["user"] for gpu in self.status()["gpus"] for lease in gpu["leases"]}

    def queue(self):
        return [ticket["ticket"] for ticket in self.status()["queue"]]

    def uuid(self, index=0):
        return self.status()["gpus"][index]["uuid"]

    def start_process(self, uid, function, *arguments):
        self.processes.append(UserProcess(uid, function, arguments))
        return self.processes[-1]

    def do(self, uid, function, *arguments):
        process = UserProcess(uid, function, arguments)
        process.stop()
        return process.value

    def path(self, name):
        return os.path.join(self.harbour, name)

    def names(self, part=""):
        return sorted(name for name in os.listdir(self.harbour) if part in name)

    def close(self):
        for process in self.processes:
            process.stop()
        for job in self.jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.process.wait()
            job.process.stdin.close()
        for folder in self.folders:
            remove(folder)


@pytest.fixture
def world(server, open_build):
    one = World(server, open_build)
    yield one
    one.close()


# What an attacker does. Each of these runs in a process of the attacker's.

def refusals(calls):
    """The names of the calls that the kernel let through."""
    done = []
    for name, call in calls.items():
        try:
            call()
        except OSError as problem:
            assert problem.errno in (errno.EPERM, errno.EACCES, errno.EEXIST, errno.EINVAL), (name, problem)
        else:
            done.append(name)
    return done


def change_files(harbour, names, hard_links):
    os.chdir(harbour)
    done = []
    for name in names:
        with open("mine", "w"):
            pass
        calls = {"unlink": lambda: os.unlink(name), "rename away": lambda: os.rename(name, "stolen"),
                 "rename over": lambda: os.rename("mine", name), "truncate": lambda: os.truncate(name, 0),
                 "chmod": lambda: os.chmod(name, 0o777), "chown": lambda: os.chown(name, MALLORY, MALLORY),
                 "utime": lambda: os.utime(name, (0, 0)), "remove attributes": lambda: os.setxattr(name, "user.x", b"y"),
                 "make again": lambda: os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
                 "symlink over": lambda: os.symlink("/dev/null", name)}
        if not name.startswith("bell-"):
            calls |= {"write": lambda: os.open(name, os.O_WRONLY), "append": lambda: os.open(name, os.O_RDWR | os.O_APPEND)}
        else:
            calls |= {"read": lambda: os.open(name, os.O_RDONLY | os.O_NONBLOCK), "both": lambda: os.open(name, os.O_RDWR)}
        if hard_links:
            calls["link"] = lambda: os.link(name, "linked")
        done += [f"{call} {name}" for call in refusals(calls)]
        os.unlink("mine")
    return done


def record(name, uid, gpus=(), **changes):
    now = int(time.time() * 1000)
    one = {"version": 1, "id": name, "state": "holding" if gpus else "waiting", "uid": uid, "pid": os.getpid(),
           "pid_namespace": os.stat("/proc/self/ns/pid").st_ino, "holder": "job", "command": "attack", "label": "",
           "since_ms": now, "request": {"count": 1}}
    if gpus:
        one |= {"gpus": list(gpus), "granted_ms": now}
    return one | changes


def changed(one, key, value):
    return {name: old for name, old in {**one, key: value}.items() if old is not ...}


def put(path, content):
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    if isinstance(content, str):
        content = content.encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, content)
    os.close(fd)


def bell(harbour, name):
    path = f"{harbour}/bell-{name}"
    os.mkfifo(path, 0o600)
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.fchmod(fd, 0o622)
    return fd


def create_client(harbour, file, content):
    """A live client by hand: the bell and the record."""
    fd = bell(harbour, file[-8:])
    put(f"{harbour}/{file}", content)
    return fd


def create_clients(harbour, files):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return [create_client(harbour, file, content) for file, content in files]


LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def ids(prefix, count):
    """Ids of the harbour's form that differ."""
    out = []
    for number in range(count):
        tail = ""
        for _ in range(8 - len(prefix)):
            tail = LETTERS[number % 32] + tail
            number //= 32
        out.append(prefix + tail)
    return out
