"""The messages that users see, all in one file, messages.txt: each with the command that provokes it.

Read that file to review the language of the program. After a deliberate change of a message:

    BERTH_UPDATE_MESSAGES=1 build/venv/bin/python -m pytest tests/test_messages.py

(without -n: one process writes the file). Other tests assert exit codes and key words, not sentences.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time

import pytest
from conftest import BERTH, BUILD, ROOT, wait_until
from redis_server import RedisServer, free_port
from serving import Serving
from waiting import LIMIT

FILE = ROOT / "tests" / "messages.txt"
UPDATE = bool(os.environ.get("BERTH_UPDATE_MESSAGES"))
pytestmark = pytest.mark.release_only

# Commands of the file that are not programs of this host. The introduction of the file explains them.
HELPERS = {
    "as": """#!/bin/sh
user=$1
shift
exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"
""",
    "findings": """#!/bin/sh
COLUMNS=2000 berth doctor -v | awk -v checks=" $* " '
  /^[a-z]/ { shown = index(checks, " " $2 " ") > 0; if (shown && $1 == "problem") code = 1 }
  /^$/ { exit }
  shown
  END { exit code }'
""",
    "http": """#!/bin/sh
path=$1
shift
exec curl -s -w '[status %{http_code}]\\n' "$@" "http://localhost:$PORT$path"
""",
    "keys": """#!/bin/sh
tmux="tmux -S $(mktemp -u) -f /dev/null"
wait_until() {
  for i in $(seq 300); do
    eval "$1" && return
    sleep 0.05
  done
}
$tmux -u new-session -d -x 160 -y 24 berth top
wait_until '$tmux capture-pane -p | grep -q "Simulated"'
$tmux send-keys "$@"
wait_until '! $tmux capture-pane -p | grep -q "q quit"'
$tmux capture-pane -p | tail -1
$tmux kill-server
""",
    "raises": f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(BUILD / "python")!r})
import berth
try:
    exec(sys.argv[1])
except Exception as problem:
    sys.exit(f"{{type(problem).__module__}}.{{type(problem).__name__}}: {{problem}}".replace("builtins.", ""))
""",
    "terminal": """#!/bin/sh
script -qec "$*" /dev/null | tr -d '\\r'
""",
}


class Case:
    """A section of the file: its lines in their order, preparations ("% ...") and commands ("$ ...") with what they print."""

    def __init__(self, group, title):
        self.group = group
        self.title = title
        self.items = []  # [line, lines that it prints]

    def name(self):
        return f"{self.group}: {self.title}"

    def text(self):
        lines = [f"== {self.title}"]
        for line, expected in self.items:
            lines += [line, *expected]
        return "\n".join(lines) + "\n"


def read_cases():
    """What stands before the first group is the introduction."""
    introduction, cases, group = [], [], None
    for line in FILE.read_text().splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif group is None:
            introduction.append(line)
        elif line.startswith("== "):
            cases.append(Case(group, line[3:]))
        elif line.startswith(("% ", "$ ")):
            cases[-1].items.append([line, []])
        elif cases and cases[-1].items:
            cases[-1].items[-1][1].append(line)
    for case in cases:
        for _, expected in case.items:
            while expected and not expected[-1].strip():
                expected.pop()
    return introduction, cases


def file_text():
    parts, group = ["\n".join(INTRODUCTION).rstrip("\n") + "\n"], None
    for case in CASES:
        if case.group != group:
            parts.append(f"## {case.group}\n")
            group = case.group
        parts.append(case.text())
    return "\n".join(parts)


INTRODUCTION, CASES = read_cases()


class ErrorServer(socketserver.ThreadingTCPServer):
    """A server with the protocol of Redis that answers every command with the same error."""

    allow_reuse_address = daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.error = ""
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while line := self.rfile.readline():
                for _ in range(int(line[1:])):
                    self.rfile.read(int(self.rfile.readline()[1:]) + 2)
                self.wfile.write(self.server.error.encode() + b"\r\n")


class LockedRedis(RedisServer):
    """A Redis server with the password "secret"."""

    def secret(self):
        return {"REDISCLI_AUTH": "secret"}


class Stage:
    """Where a case runs: a server with the helpers, and all that the preparations have started."""

    def __init__(self, server):
        self.server = server
        self.ports = {}  # number: name
        self.bells = []
        self.serving = self.redis = self.error_server = None
        self.sentinels = []
        helpers = server.folder / "bin"
        helpers.mkdir()
        for name, text in HELPERS.items():
            (helpers / name).write_text(text)
            (helpers / name).chmod(0o755)
        server.env["PATH"] = f"{helpers}:{server.env['PATH']}"

    def close(self):
        for bell in self.bells:
            os.close(bell)
        if self.serving:
            self.serving.process.kill()
            self.serving.end()
        if self.redis:
            self.redis.kill()
        for process in self.sentinels:
            process.kill()
            process.wait()
        if self.error_server:
            self.error_server.shutdown()
            self.error_server.server_close()
        self.kill_jobs()

    def kill_jobs(self):
        """A job outlives a berth that was killed, and may have a lease of any harbour in this folder."""
        mark = f"BERTH_SIM_STATE={self.server.folder}/".encode()
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)

    def prepare(self, line):
        word, _, rest = line.partition(" ")
        prefix = []
        if word == "as":
            user, word, rest = (rest + "  ").split(" ", 2)
            prefix, rest = ["as", user], rest.strip()
        getattr(self, f"prepare_{word}")(rest, *([prefix] if prefix else []))

    def start(self, command):
        return self.server.start("bash", "--norc", "-c", command, cwd=self.server.folder)

    def leases(self):
        return {lease["id"] for gpu in self.server.status()["gpus"] for lease in gpu["leases"]}

    def tickets(self):
        return {ticket["ticket"] for ticket in self.server.status()["queue"]}

    def start_client(self, command, prefix, kind):
        """Starts it, and waits for its lease or ticket, whose id the commands then have as $LEASE or $TICKET."""
        find = self.leases if kind == "LEASE" else self.tickets
        before = find()
        self.start(" ".join([*prefix, command]))
        wait_until(lambda: find() - before, f"a {kind.lower()} of {command}")
        [self.server.env[kind]] = find() - before

    def prepare_hold(self, flags, prefix=()):
        self.start_client(f"berth run {flags} -- sleep 1h", prefix, "LEASE")

    def prepare_wait(self, flags, prefix=()):
        self.start_client(f"berth run {flags} -- true", prefix, "TICKET")

    def prepare_acquire(self, flags, prefix=()):
        self.start_client(f"bash --norc -c 'berth acquire --print ids {flags}; sleep 1h; true'", prefix, "LEASE")

    def prepare_sim(self, text):
        if text.startswith("{"):
            self.server.use(json.loads(text))
        else:
            self.server.use(ROOT / "sim" / "servers" / text if text.endswith(".json") else text)

    def prepare_use(self, rest):
        gpu, _, flags = rest.partition(" ")
        self.server.env["PROCESS"] = str(self.server.start_job(*shlex.split(flags), gpu=gpu).pid)

    def prepare_write(self, rest):
        name, _, text = rest.partition(" ")
        path = self.server.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("\\n", "\n") + "\n")

    def prepare_env(self, rest):
        name, _, value = rest.partition("=")
        self.server.env[name] = value.replace("FOLDER", str(self.server.folder))

    def prepare_sh(self, command):
        result = self.server.run("bash", "--norc", "-ec", command, cwd=self.server.folder)
        assert result.returncode == 0, (command, result)

    def prepare_start(self, command):
        """The command prints a line when it is ready."""
        process = self.start(command)
        assert process.stdout.readline(), command

    def prepare_users(self, _):
        for part in ("bin", "lib/sim"):
            shutil.copytree(BUILD / part, self.server.folder / "copy" / part, symlinks=True)
        self.server.env["PATH"] = f"{self.server.folder}/bin:{self.server.folder}/copy/bin:{os.environ['PATH']}"
        self.server.status()  # makes the state of the simulated server

    def prepare_client(self, rest):
        """A record that berth did not write, with a live bell."""
        name, _, text = rest.partition(" ")
        bell = self.server.harbour / f"bell-{name[-8:]}"
        os.mkfifo(bell)
        bell.chmod(0o622)
        self.bells.append(os.open(bell, os.O_RDWR | os.O_NONBLOCK))
        now = int(time.time() * 1000)
        if text.startswith("{"):
            record = {"version": 1, "id": name[-8:], "uid": 0, "pid": os.getpid(), "state": "holding", "since_ms": now,
                      "granted_ms": now, "gpus": ["GPU-0"], "request": {"count": 1}}
            record |= json.loads(text)
            text = json.dumps(record | {"granted_ms": now + record.pop("granted_in_ms", 0)})
        (self.server.harbour / name).write_text(text)

    def prepare_serve(self, flags):
        self.serving = Serving(self.server, *shlex.split(flags.replace("FOLDER", str(self.server.folder))))
        self.server.env["PORT"] = str(self.serving.port)
        self.server.env["TOKEN"] = self.serving.token or ""
        self.ports[self.serving.port] = "PORT"

    def use_redis(self, port):
        self.server.env["REDIS"] = f"127.0.0.1:{port}"
        self.server.env["BERTH_URL"] = f"redis://127.0.0.1:{port}"
        self.ports[port] = "PORT"

    def prepare_redis(self, flags):
        folder = self.server.folder / "redis"
        folder.mkdir()
        self.redis = (LockedRedis if "--requirepass" in flags else RedisServer)(folder, *shlex.split(flags))
        self.use_redis(self.redis.port)
        if not flags:
            self.redis.skip_recovery_wait()

    def prepare_sentinel(self, _):
        port = free_port()
        (self.server.folder / "sentinel.conf").touch()
        self.sentinels.append(subprocess.Popen(
            ["redis-server", str(self.server.folder / "sentinel.conf"), "--sentinel", "--port", str(port), "--bind",
             "127.0.0.1"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        self.use_redis(port)
        wait_until(lambda: "PONG" in self.server.run("redis-cli", "-p", str(port), "ping").stdout, "the Sentinel answers")

    def prepare_reply(self, error):
        if self.error_server is None:
            self.error_server = ErrorServer()
            self.use_redis(self.error_server.server_address[1])
        self.error_server.error = error

    def run(self, command):
        """The lines that a command prints, standard error first, and its exit code."""
        clients = self.client_ids()
        result = subprocess.run(["bash", "--norc", "-c", command], env=self.server.env, cwd=self.server.folder, timeout=LIMIT,
                                text=True, capture_output=True, stdin=subprocess.DEVNULL)
        lines = self.normalize(result.stderr + result.stdout, clients | self.client_ids()).rstrip("\n")
        return (lines.split("\n") if lines else []) + [f"[exit code {result.returncode}]"]

    def client_ids(self):
        """Of all tickets and leases in the harbour, and of those that the preparations have started."""
        ids = {path.name.rsplit("-", 1)[-1] for path in self.server.harbour.glob("*-*")}
        return {id for id in ids | {self.server.env.get(name, "") for name in ("LEASE", "TICKET")} if len(id) == 8}

    def normalize(self, text, clients):
        """Without what differs from host to host and run to run."""
        text = text.replace(str(self.server.folder), "FOLDER").replace(str(BUILD), "BUILD")
        text = re.sub(rf"(?<![\w.-]){re.escape(os.uname().nodename)}(?![\w.-])", "HOST", text)
        text = re.sub(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1-UUID", text)
        for client in clients:
            text = re.sub(rf"\b{client}\b", "ID", text)
        for port, name in self.ports.items():
            text = re.sub(rf"\b{port}\b", name, text)
        # A lease that began and ended within the command.
        text = re.sub(r"\blease [a-z0-9]{8}(?= is released|, which has|: \d)", "lease ID", text)
        text = re.sub(r"\bjob [a-z0-9]{8}(?= has ended\n| is unknown: Berth)", "job ID", text)
        text = re.sub(r"(?<=until: berth release )[a-z0-9]{8}\b", "ID", text)
        text = re.sub(r"\b(pid|PID|process|adopt|kill|kill -CONT|ps -fp|inode)( \d+)+", r"\1 N", text)
        text = re.sub(r"(?<!-)\b(for|waiting|waits|after|since) <?\d+(?:\.\d+)?(?:ms|s|m|h|d)(?: \d+(?:s|m|h))?", r"\1 TIME", text)
        text = re.sub(r"\b(in|of) \d+(?:\.\d+)?(?:ms|s)\b", r"\1 TIME", text)
        text = re.sub(r"\d+(?:\.\d+)?(?:ms|s) of GPU time", "TIME of GPU time", text)
        text = re.sub(r" {2,}\d+s(?=  )", "  TIME", text)  # a column
        text = re.sub(r"\b\d+(?:\.\d+)?(?:ms|s) (ago|late)\b", r"TIME \1", text)
        text = re.sub(r"\bby root\b", "by USER", text)
        return re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?Z?", "WHEN", text)


@pytest.fixture
def stage(server):
    one = Stage(server)
    yield one
    one.close()


@pytest.mark.parametrize("case", CASES, ids=[case.name() for case in CASES])
def test_each_command_prints_what_the_file_has(stage, case):
    for item in case.items:
        line, expected = item
        if line.startswith("% "):
            stage.prepare(line[2:])
            continue
        printed = stage.run(line[2:])
        if UPDATE:
            item[1] = printed
        else:
            assert printed == expected, line


def test_titles_are_unique():
    names = [case.name() for case in CASES]
    assert len(names) == len(set(names)) > 40


@pytest.fixture(scope="module", autouse=True)
def write_the_file():
    yield
    if UPDATE:
        FILE.write_text(file_text())
