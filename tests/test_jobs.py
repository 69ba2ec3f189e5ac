"""Detached jobs from another terminal: `berth jobs`, `berth logs`, `berth wait` and `berth attach`."""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import BERTH, ROOT, assert_fit_for_terminal, assert_one_line_error
from leasing import eventually, is_alive, jobs, watches_files  # noqa: F401
from test_run import terminal  # noqa: F401
from users import ALICE, BOB, create_client, record, world  # noqa: F401
from waiting import LIMIT

NOW_MS = int(time.time() * 1000)
ESCAPES = "\x1b[31m\x1b]0;owned\x07\r\n\t\u202etxt"


class DetachedJobs:
    """Starts detached jobs that write a line, wait at a gate, and end with a code."""

    def __init__(self, server):
        self.server = server
        self.folder = server.folder / ".local/state/berth/jobs"

    def submit(self, *flags, command=("true",), **options):
        result = self.server.berth("run", "-d", *flags, "--", *command, **options)
        assert result.returncode == 0, result
        assert re.fullmatch("[a-z0-9]{8}\n", result.stdout)
        return result.stdout.strip()

    def gate(self, name):
        path = self.server.folder / f"{name}.gate"
        os.mkfifo(path)
        return path

    def hold(self, *flags, code=0, name="job", text="started"):
        """A job that runs until open() is called with the gate."""
        gate = self.gate(name)
        job = self.submit(*flags, command=["sh", "-c", f"echo {text}; cat {gate}; exit {code}"])
        self.wait_for_state(job, "running")
        eventually(lambda: text in self.output(job), "the job's output")
        return job, gate

    @staticmethod
    def open(gate):
        gate.write_text("")

    def list(self, *flags, **options):
        result = self.server.berth("jobs", "--json", *flags, **options)
        assert (result.returncode, result.stderr) == (0, ""), result
        return json.loads(result.stdout)["jobs"]

    def one(self, job, *flags):
        [found] = [one for one in self.list(*flags) if one["id"] == job]
        return found

    def wait_for_state(self, job, state):
        def reached():
            one = self.one(job)
            return one if one["state"] == state else None
        return eventually(reached, lambda: f"{job} is {state}: {self.one(job)}")

    def output(self, job):
        return (self.folder / job / "output").read_text()

    def events(self, job):
        return [json.loads(line) for line in (self.folder / job / "events").read_text().splitlines()]

    def process(self, job):
        """The PID of its berth process."""
        return self.events(job)[0]["pid"]

    def kill(self, job):
        """Only its berth process."""
        pid = self.process(job)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_alive(pid), "the end of the berth process")

    def make(self, job, events, alive=False):
        """A folder as a job on a host that was restarted has left it."""
        folder = self.folder / job
        folder.mkdir(parents=True, mode=0o700)
        spec = {"version": 1, "id": job, "kind": "run", "command": ["old", "job"], "label": "", "directory": "/",
                "host": os.uname().nodename, "harbour": str(self.server.harbour), "submitted_ms": NOW_MS - 86_400_000 * 3}
        (folder / "spec.json").write_text(json.dumps(spec) + "\n")
        (folder / "events").write_text("".join(json.dumps(event) + "\n" for event in events))
        (folder / "output").write_text("old output\n")
        lock = open(folder / "alive", "w")
        if alive:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return lock
        lock.close()
        return folder


@pytest.fixture
def detached(server):
    server.use("1x24GiB")
    return DetachedJobs(server)


def started(pid, ticks=1, namespace=None):
    namespace = os.stat("/proc/self/ns/pid").st_ino if namespace is None else namespace
    return {"event": "started", "pid": pid, "start_ticks": ticks, "pid_namespace": namespace, "at_ms": NOW_MS}


def end_of(process):
    """The exit code and the whole output of a process of server.start()."""
    text = process.stdout.read()
    return process.wait(LIMIT), text


def waits(process):
    """Whether the process waits for descriptors."""
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{process.pid}/wchan") as file:
        return "poll" in file.read()
    return False


# berth jobs

def test_no_jobs(server, detached):
    result = server.berth("jobs")
    assert (result.returncode, result.stdout) == (0, "")
    assert "berth run -d" in result.stderr
    assert detached.list() == []
    assert not (server.folder / ".local").exists()


@pytest.mark.each_harbour
def test_the_states_of_detached_jobs(server, detached):
    job, gate = detached.hold("--time", "1h", "--label", "first", code=3)
    second = detached.submit("--label", "second")
    running, waiting = detached.list()
    assert (running["id"], running["state"], running["kind"], running["detached"]) == (job, "running", "run", True)
    assert (running["gpus"], running["leases"], running["label"]) == ([0], [job], "first")
    assert running["ends_source"] == "announced" and running["started"] and running["ended"] is None
    assert running["result"] is running["exit_code"] is running["reason"] is running["position"] is None
    assert running["output"] == str(detached.folder / job / "output")
    assert (waiting["id"], waiting["state"], waiting["position"]) == (second, "waiting", 1)
    assert "GPU 0 leased" in waiting["reason"] and waiting["gpus"] == [] and waiting["starts"]
    text = server.berth("jobs").stdout
    assert re.search(rf"^{job}  running +0 .* in 1h|59m", text, re.MULTILINE) and "position 1: GPU 0 leased" in text
    detached.open(gate)
    assert server.berth("wait", job, second).returncode == 3
    first, last = detached.list()
    assert (first["state"], first["result"], first["exit_code"], first["gpus"]) == ("ended", "failed", 3, [0])
    assert (last["state"], last["result"], last["exit_code"]) == ("ended", "succeeded", 0)
    assert first["ended"] and first["ends"] is None
    assert [one["id"] for one in detached.list(second)] == [second]


def test_held(server, detached):
    events = [started(os.getpid()), {"event": "held", "reason": "waits for job \x1b[31m to end", "at_ms": 1}]
    with detached.make("hedhedhe", events, alive=True):
        [job] = detached.list()
        assert (job["state"], job["reason"]) == ("held", "waits for job \x1b[31m to end")
        text = server.berth("jobs").stdout
        assert_fit_for_terminal(text)
        assert "held" in text and "waits for job \\x1b[31m to end" in text


def test_held_by_another_job(server, detached):
    job, gate = detached.hold()
    after = detached.submit("--after", job)
    one = detached.wait_for_state(after, "held")
    assert job in one["reason"] and one["gpus"] == [] and one["position"] is None
    waiter = server.start(BERTH, "wait", after)
    detached.open(gate)
    assert end_of(waiter) == (0, "")


@pytest.mark.each_harbour
def test_foreground_jobs_tickets_and_shells(server, detached, jobs):
    job = jobs.hold("--label", "here")
    waiting = jobs.wait("--label", "next")
    first, second = detached.list()
    assert (first["state"], first["detached"], first["label"], first["kind"]) == ("running", False, "here", "run")
    assert (second["state"], second["label"], second["output"]) == ("waiting", "next", None)
    waiting.process.terminate()
    waiting.process.wait(LIMIT)
    assert job.end() == 0
    [ended] = eventually(lambda: [one for one in detached.list() if one["state"] == "ended"], "the end of the job")
    assert (ended["id"], ended["exit_code"], ended["result"]) == (first["id"], 0, "succeeded")
    shell = jobs.start("sh", "-c", f'eval "$({BERTH} acquire)"; echo ready; read -r l; {BERTH} release; echo done; read -r l')
    eventually(lambda: "ready" in shell.out)
    [lease] = [one for one in detached.list() if one["state"] == "running"]
    assert lease["kind"] == "shell"
    waiter = server.start(BERTH, "wait", lease["id"])
    shell.process.stdin.write(b"\n")
    shell.process.stdin.flush()
    assert end_of(waiter) == (0, "")
    [released] = [one for one in detached.list() if one["id"] == lease["id"]]
    assert (released["state"], released["result"], released["exit_code"]) == ("ended", "released", None)


def test_since_and_ids(server, detached, jobs):
    assert jobs.run(command=["false"]).process.wait(LIMIT) == 1
    detached.make("geegeege", [started(1), {"event": "finished", "code": 5, "message": "", "at_ms": NOW_MS - 2 * 86_400_000}])
    assert [one["exit_code"] for one in detached.list()] == [5, 1]
    assert [one["exit_code"] for one in detached.list("--since", "1h")] == [1]
    assert [one["exit_code"] for one in detached.list("geegeege")] == [5]


def test_old_jobs_are_removed(server, detached):
    """Detached ones 14 days after their end, by default."""
    old = detached.make("geegeege", [started(1), {"event": "finished", "code": 5, "message": "", "at_ms": NOW_MS - 15 * 86_400_000}])
    recent = detached.make("recentxx", [started(1), {"event": "finished", "code": 5, "message": "", "at_ms": NOW_MS - 13 * 86_400_000}])
    killed = detached.make("kiedkied", [started(1)])
    for path in (old, old / "output", recent, killed, killed / "output"):
        os.utime(path, (1, 1))
    with detached.make("runsruns", [started(1)], alive=True):
        os.utime(detached.folder / "runsruns", (1, 1))
        assert sorted(one["id"] for one in detached.list()) == ["recentxx", "runsruns"]
    (server.folder / "config").mkdir()
    (server.folder / "config" / "berth.toml").write_text('[jobs]\nkeep = "1d"\n')
    assert server.berth("run", "-d", "--", "true", env={"XDG_CONFIG_HOME": str(server.folder / "config")}).returncode == 0
    eventually(lambda: not recent.exists() and not old.exists() and not killed.exists(), "the job removes them at its end")


def test_wrong_ids(server, detached):
    for command in (["jobs"], ["logs"], ["wait"], ["attach"]):
        for word in ("zzzzzzzz", "../../..", "", ESCAPES):
            assert_one_line_error(server.berth(*command, word), 64, "there is no job")
    assert_one_line_error(server.berth("wait"), 64, "no job given")
    assert_one_line_error(server.berth("logs"), 64, "no detached jobs")
    assert_one_line_error(server.berth("logs", "a", "b"), 64)
    assert_one_line_error(server.berth("logs", "-n", "x"), 64, "--lines")
    assert_one_line_error(server.berth("wait", "zzzzzzzz", "--timeout", "soon"), 64, "--timeout")
    assert_one_line_error(server.berth("jobs", "--since", "soon"), 64, "--since")


def test_a_job_that_is_not_detached_has_no_output(server, jobs):
    jobs.hold()
    [job] = json.loads(server.berth("jobs", "--json").stdout)["jobs"]
    for command in ("logs", "attach"):
        assert_one_line_error(server.berth(command, job["id"]), 64, "not started with -d")


def test_hostile_texts_are_escaped(server, detached):
    job = detached.submit("--label", ESCAPES, command=["sh", "-c", "true", ESCAPES])
    assert server.berth("wait", job).returncode == 0
    text = server.berth("jobs").stdout
    assert_fit_for_terminal(text)
    assert "\\x1b[31m" in text
    assert detached.one(job)["label"] == ESCAPES
    # A user can write anything into the own part of the history.
    [history] = (server.harbour / "archive").glob("*/history-*.jsonl")
    [line] = [json.loads(line) for line in history.read_text().splitlines() if json.loads(line)["ending"] != "running"]
    with open(history, "a") as file:
        file.write(json.dumps(line | {"id": ESCAPES + 50 * "x", "command": ESCAPES, "gpus": [{"uuid": ESCAPES, "index": ESCAPES, "name": ESCAPES}]}) + "\n")
    assert len(detached.list()) == 2
    for columns in ("20", "60", "600"):
        text = server.berth("jobs", env={"COLUMNS": columns}).stdout
        assert_fit_for_terminal(text)
        assert all(len(line) <= int(columns) for line in text.splitlines()), text


def test_every_key_is_documented(server, detached):
    text = (ROOT / "docs" / "json.md").read_text().split("## `berth jobs --json`")[1].split("\n## ")[0]
    [job] = [detached.submit()]
    keys = set(detached.one(job))
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_without_a_driver(server, detached):
    job, gate = detached.hold()
    broken = {"BERTH_SIM": "1x24GiB,nonsense"}
    [one] = detached.list(env=broken)
    assert (one["id"], one["state"]) == (job, "running")
    detached.open(gate)
    assert server.berth("wait", job, env=broken).returncode == 0


def test_a_request_that_can_never_be_met_is_refused_at_once(server, detached):
    for _ in range(10):
        assert_one_line_error(server.berth("run", "-d", "-n", "2", "--", "true"), 69, "1")
    assert detached.list() == []


def test_a_narrow_terminal_shows_which_job_it_is(server, detached, terminal):
    server.use("4x24GiB")
    job = server.berth("run", "-d", "-n", "4", "--label", "vision", "--", "sh", "-c", "exit 3").stdout.strip()
    assert server.berth("wait", job).returncode == 3
    screen = terminal(BERTH, "jobs", columns=40)
    assert screen.wait() == 0
    line = next(line for line in screen.written.decode().splitlines() if job in line)
    assert "failed" in line and "vision" in line, line


def test_logs_of_a_job_that_waits_say_so(server, detached, jobs):
    jobs.hold()
    job = detached.submit()
    assert_one_line_error(server.berth("logs", job), 0, job, "waits for its GPUs", f"berth jobs {job}")
    assert server.berth("logs", job).stdout == ""
    server.berth("cancel", job)
    assert "waits" not in server.berth("logs", job).stderr


# Berth processes that are killed, and hosts that restart.

@pytest.mark.each_harbour
def test_killed_while_it_waits(server, detached, jobs):
    jobs.hold()
    job = detached.submit()
    waiter = server.start(BERTH, "wait", job)
    follower = server.start(BERTH, "logs", "-f", job)
    eventually(lambda: watches_files(follower.pid))
    detached.kill(job)
    code, text = end_of(waiter)
    assert code == 70 and text.count("\n") == 1 and "unknown" in text
    code, text = end_of(follower)
    assert code == 0 and text.count("\n") == 1 and "waits for its GPUs" in text
    one = detached.one(job)
    assert (one["state"], one["result"], one["exit_code"], one["ended"]) == ("ended", "unknown", None, None)
    assert "killed" in one["reason"]
    assert re.search(rf"^{job}  ended .* unknown  ", server.berth("jobs").stdout, re.MULTILINE)
    assert server.berth("wait", job).returncode == 70


@pytest.mark.each_harbour
def test_killed_while_its_job_runs_on(server, detached):
    job, gate = detached.hold()
    waiter = server.start(BERTH, "wait", job)
    detached.kill(job)
    one = detached.one(job)
    assert (one["state"], one["gpus"], one["result"]) == ("running", [0], None)
    assert "exit code will be unknown" in one["reason"]
    result = server.berth("wait", job, "--timeout", "100ms")
    assert_one_line_error(result, 75, job)
    assert server.berth("logs", "-f", job).returncode == 0  # what is left behind is not waited for
    assert waiter.poll() is None
    detached.open(gate)
    code, text = end_of(waiter)
    assert code == 70 and "unknown" in text
    assert detached.one(job)["state"] == "ended"


def test_with_another_harbour_both_commands_say_the_same(server, detached):
    """The folder says which harbour the job uses."""
    job, gate = detached.hold(name="held", code=0)
    waiting = detached.submit()
    other = server.folder / "other-harbour"
    other.mkdir()
    other.chmod(0o1777)
    env = {"BERTH_DIR": str(other), "BERTH_URL": ""}

    def state(one):
        [found] = [seen for seen in detached.list(env=env) if seen["id"] == one]
        return found["state"], found["exit_code"]
    assert state(job) == ("running", None) and state(waiting) == ("waiting", None)
    assert str(server.harbour) in next(one["reason"] for one in detached.list(env=env) if one["id"] == waiting)
    detached.kill(job)
    assert state(job) == ("running", None)
    assert server.berth("wait", "--timeout", "10ms", job, env=env).returncode == 75
    detached.open(gate)
    assert server.berth("wait", job, env=env).returncode == 70
    assert state(job) == ("ended", None)
    assert server.berth("wait", waiting).returncode == 0


def test_a_foreground_run_is_killed_while_its_job_runs_on(server, detached, jobs):
    gate = detached.gate("job")
    run = jobs.run(command=["sh", "-c", f"echo 0; cat {gate}"])
    run.gpus()
    [job] = detached.list()
    waiter = server.start(BERTH, "wait", job["id"])
    run.process.kill()
    run.process.wait(LIMIT)
    assert detached.one(job["id"])["state"] == "running"
    detached.open(gate)
    code, text = end_of(waiter)
    assert code == 70 and "unknown" in text


def test_after_a_restart_the_pid_is_that_of_another_process(server, detached):
    detached.make("restartd", [started(os.getpid()), {"event": "granted", "lease": "restartd", "gpus": "0", "at_ms": 1}])
    [one] = detached.list()
    assert (one["state"], one["result"], one["gpus"]) == ("ended", "unknown", [0])
    assert_one_line_error(server.berth("wait", "restartd"), 70, "restarted")
    result = server.berth("logs", "-f", "restartd")
    assert (result.returncode, result.stdout) == (0, "old output\n")
    assert server.berth("attach", "restartd").returncode == 70


def test_a_process_that_cannot_be_seen_is_awaited_by_its_lock(server, detached):
    lock = detached.make("esewhere", [started(os.getpid(), namespace=1)], alive=True)
    waiter = server.start(BERTH, "wait", "esewhere")
    follower = server.start(BERTH, "logs", "-f", "esewhere")
    assert follower.stdout.readline() == "old output\n"
    with open(detached.folder / "esewhere" / "events", "a") as events:
        events.write(json.dumps({"event": "finished", "code": 9, "message": "", "at_ms": 1}) + "\n")
    lock.close()
    assert end_of(waiter) == (9, "")
    assert end_of(follower) == (0, "")


def test_damaged_folders(server, detached):
    for name, spec in {"aaaaaaaa": "", "bbbbbbbb": "{}", "cccccccc": "[1]", "dddddddd": '{"id": "../../x"}'}.items():
        folder = detached.folder / name
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(spec)
        (folder / "events").write_bytes(b"\xff\x00{\n{}\n[]\n")
    (detached.folder / "eeeeeeee").write_text("a file")
    assert detached.list() == []
    assert server.berth("wait", "bbbbbbbb").returncode == 64


# berth wait

@pytest.mark.each_harbour
def test_the_exit_code_of_a_job_that_runs(server, detached):
    job, gate = detached.hold(code=7)
    waiter = server.start(BERTH, "wait", job)
    eventually(lambda: waits(waiter))
    detached.open(gate)
    assert end_of(waiter) == (7, "")


@pytest.mark.each_harbour
def test_the_exit_code_of_a_foreground_job(server, detached, jobs):
    run = jobs.run(command=["sh", "-c", "echo 0; read -r line; exit 6"])
    run.gpus()
    [job] = detached.list()
    waiters = [server.start(BERTH, "wait", job["id"]) for _ in range(3)]
    eventually(lambda: all(waits(waiter) for waiter in waiters))
    assert run.end() == 6
    assert [end_of(waiter) for waiter in waiters] == [(6, "")] * 3
    assert server.berth("wait", job["id"]).returncode == 6


def test_a_waiting_foreground_job_that_is_granted_meanwhile(server, detached, jobs):
    first = jobs.hold()
    second = jobs.wait(command=["sh", "-c", "exit 5"])
    [job] = [one for one in detached.list() if one["state"] == "waiting"]
    waiter = server.start(BERTH, "wait", job["id"])
    first.end()
    assert second.process.wait(LIMIT) == 5
    assert end_of(waiter) == (5, "")


def test_a_ticket_that_leaves_the_queue(server, detached, jobs):
    jobs.hold()
    jobs.wait()
    [job] = [one for one in detached.list() if one["state"] == "waiting"]
    waiter = server.start(BERTH, "wait", job["id"])
    eventually(lambda: waits(waiter))
    assert server.berth("cancel", job["id"]).returncode == 0
    code, text = end_of(waiter)
    assert code == 70 and "without a grant" in text


def test_a_detached_job_that_is_cancelled_in_the_queue(server, detached, jobs):
    jobs.hold()
    job = detached.submit()
    assert server.berth("cancel", job).returncode == 0
    code = server.berth("wait", job).returncode
    assert code in (75, 128 + signal.SIGTERM)
    assert detached.one(job)["exit_code"] == code


def test_several_jobs(server, detached):
    server.use("4x24GiB")
    good, bad, worse = (detached.submit(command=["sh", "-c", f"exit {code}"]) for code in (0, 3, 4))
    assert server.berth("wait", good, bad, worse).returncode == 3
    assert server.berth("wait", worse, good, bad).returncode == 4
    assert server.berth("wait", good, good).returncode == 0
    detached.make("restartd", [started(os.getpid())])
    assert server.berth("wait", good, "restartd", bad).returncode == 70
    assert server.berth("wait", bad, "restartd").returncode == 3
    assert_one_line_error(server.berth("wait", good, "zzzzzzzz"), 64, "zzzzzzzz")


def test_any(server, detached):
    server.use("4x24GiB")
    slow, slow_gate = detached.hold(name="slow", code=1)
    quick, quick_gate = detached.hold(name="quick", code=2)
    waiter = server.start(BERTH, "wait", "--any", slow, quick)
    all_of_them = server.start(BERTH, "wait", quick, slow)
    detached.open(quick_gate)
    assert end_of(waiter) == (2, "")
    assert server.berth("wait", "--any", slow, quick).returncode == 2
    assert all_of_them.poll() is None
    detached.open(slow_gate)
    assert end_of(all_of_them) == (2, "")


def test_the_time_limit_and_signals(server, detached):
    job, _ = detached.hold()
    assert_one_line_error(server.berth("wait", job, "--timeout", "50ms"), 75, job, "50ms")
    assert_one_line_error(server.berth("wait", "--any", job, job, "--timeout", "0s"), 75)
    for number in (signal.SIGINT, signal.SIGTERM):
        waiter = server.start(BERTH, "wait", job)
        eventually(lambda: waits(waiter))
        waiter.send_signal(number)
        code, output = end_of(waiter)
        assert code == 128 + number
        assert job in output and "goes on" in output and output.count("\n") == 1


@pytest.mark.parametrize("kind", ["detached", "foreground"])
def test_a_wait_costs_nothing(server, detached, jobs, kind):
    if kind == "detached":
        job, gate = detached.hold()
    else:
        run = jobs.hold()
        [one] = detached.list()
        job = one["id"]
    trace = server.folder / "trace"
    waiter = server.start("strace", "-o", trace, "-e", "trace=poll", BERTH, "wait", job)
    eventually(lambda: trace.exists() and "-1" in trace.read_text(), "a wait without a time limit")
    detached.open(gate) if kind == "detached" else run.end()
    assert end_of(waiter)[0] == 0
    [blocking] = [line for line in trace.read_text().splitlines() if re.search(r"\], \d, -1\)", line)]
    assert "= 1" in blocking


# berth logs

def test_the_output(server, detached):
    text = "".join(f"line {i}\n" for i in range(5))
    job = detached.submit(command=["printf", text.replace("\n", "\\n") + "no end \\377"])
    server.berth("wait", job)
    result = subprocess.run([BERTH, "logs", job], env=server.env, capture_output=True, check=True)
    assert result.stdout == b"berth: granted GPU 0\n" + text.encode() + b"no end \xff"
    assert result.stderr == b""

    def last(count):
        return subprocess.run([BERTH, "logs", "-n", str(count)], env=server.env, capture_output=True, check=True).stdout
    assert last(0) == b""
    assert last(1) == b"no end \xff"
    assert last(3) == b"line 3\nline 4\nno end \xff"
    assert last(1000) == result.stdout


def test_the_last_lines_end_with_a_line_break(server, detached):
    job = detached.submit(command=["seq", "100000"])
    server.berth("wait", job)
    assert server.berth("logs", "-n", "2").stdout == "99999\n100000\n"
    assert len(server.berth("logs", "-n", "50000").stdout.splitlines()) == 50000


def test_follow_until_the_job_ends(server, detached):
    job, gate = detached.hold(code=3)
    follower = server.start(BERTH, "logs", "-f", job)
    assert follower.stdout.readline() == "berth: granted GPU 0\n"
    assert follower.stdout.readline() == "started\n"
    assert follower.poll() is None
    gate.write_text("more\n")
    assert end_of(follower) == (0, "more\n")
    assert server.berth("logs", "-f", "-n", "1", job).stdout == "more\n"


def test_follow_a_job_that_waits(server, detached, jobs):
    first = jobs.hold()
    job = detached.submit(command=["echo", "at last"])
    follower = server.start(BERTH, "logs", "--follow", job)
    eventually(lambda: watches_files(follower.pid))
    first.end()
    code, text = end_of(follower)
    assert code == 0 and "waits for its GPUs" in text and text.endswith("\nberth: granted GPU 0\nat last\n")


def test_follow_does_not_wait_for_what_is_left_behind(server, detached):
    gate = detached.gate("left")
    job = detached.submit(command=["sh", "-c", f"cat {gate} >/dev/null & echo main; exit 0"])
    result = server.berth("logs", "-f", job)
    assert result.returncode == 0 and "main\n" in result.stdout
    assert server.berth("wait", job).returncode == 0
    assert "still hold its lease" in detached.one(job)["reason"]
    detached.open(gate)


def test_follow_ends_with_its_reader_and_by_signals(server, detached):
    job, _ = detached.hold()
    reader, writer = os.pipe()
    follower = subprocess.Popen([BERTH, "logs", "-f", job], env=server.env, stdout=writer)
    os.close(writer)
    assert os.read(reader, 6) == b"berth:"
    os.close(reader)
    assert follower.wait(LIMIT) in (128 + signal.SIGPIPE, -signal.SIGPIPE)
    follower = server.start(BERTH, "logs", "-f", job)
    follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    assert follower.wait(LIMIT) == -signal.SIGINT
    assert is_alive(detached.process(job))


def test_a_hole_in_a_large_output(server, detached):
    config = server.folder / "config"
    config.mkdir()
    (config / "berth.toml").write_text('[jobs]\noutput = "2MiB"\n')
    env = {"XDG_CONFIG_HOME": str(config)}
    gate = detached.gate("job")
    # 20 MB of numbered lines, then a pause in which the hole is made.
    job = detached.submit(command=["sh", "-c", f"seq 1000000 3500000; cat {gate}; echo the end"], env=env)
    output = detached.folder / job / "output"
    eventually(lambda: output.stat().st_size > 20_000_000 and output.stat().st_blocks * 512 < 8_000_000, "a hole")
    detached.open(gate)
    result = server.berth("logs", "-f", job)
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1 and "not kept" in result.stderr and "MiB" in result.stderr
    assert result.stdout.startswith("berth: granted GPU 0\n1000000\n1000001\n")
    assert result.stdout.endswith("3500000\nthe end\n")
    assert "\0" not in result.stdout
    assert len(result.stdout) <= output.stat().st_blocks * 512
    result = server.berth("logs", "-n", "3", job)
    assert (result.stdout, result.stderr) == ("3499999\n3500000\nthe end\n", "")
    assert "not kept" in server.berth("logs", "-n", "100000000", job).stderr


def test_the_logs_of_the_lines_of_a_batch(server, detached):
    folder = detached.make("batchbat", [started(1), {"event": "finished", "code": 0, "message": "", "at_ms": 1}])
    spec = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps(spec | {"kind": "batch", "line_logs": "/home/ann/jobs.logs"}))
    (folder / "progress.json").write_text(json.dumps({"total": 150, "succeeded": 10, "failed": 2, "running": 0}))
    result = server.berth("logs")
    assert result.stdout == "old output\n" and "/home/ann/jobs.logs" in result.stderr
    one = detached.one("batchbat")
    assert one["kind"] == "batch"
    assert one["batch"] == {"total": 150, "succeeded": 10, "failed": 2, "running": 0}
    assert "12/150 (2 failed)" in server.berth("jobs").stdout


def test_a_batch(server, detached):
    gate = detached.gate("job")
    (server.folder / "lines.txt").write_text(f"true\nfalse\ncat {gate}\ntrue\n")
    batch = server.berth("batch", "-d", "-k", "--logs", "line logs", "lines.txt", cwd=server.folder).stdout.strip()
    one = eventually(lambda: (one := detached.one(batch))["batch"] and one["batch"]["running"] and one["batch"]["failed"] and one)
    assert (one["kind"], one["state"], one["gpus"]) == ("batch", "running", [0])
    assert one["batch"] == {"total": 4, "succeeded": 1, "failed": 1, "running": 1}
    assert "2/4 (1 failed)" in server.berth("jobs").stdout
    assert [other["id"] for other in detached.list()] == [batch]  # its lines are not listed on their own
    follower = server.start(BERTH, "logs", "-f", batch)
    assert f"'{server.folder}/line logs'" in follower.stdout.readline()
    line = one["leases"][-1]
    waiter = server.start(BERTH, "wait", line)
    eventually(lambda: waits(waiter))
    detached.open(gate)
    assert end_of(waiter) == (0, "")  # that of the line
    assert server.berth("wait", batch).returncode == 1
    code, text = end_of(follower)
    assert code == 0 and "3 succeeded, 1 failed" in text
    one = detached.one(batch)
    assert (one["state"], one["exit_code"], one["batch"]["succeeded"], len(one["leases"])) == ("ended", 1, 3, 4)
    assert [other["id"] for other in detached.list()] == [batch]


# berth attach

def test_attach_and_detach(server, detached, terminal):
    job, gate = detached.hold()
    screen = terminal(BERTH, "attach", job, columns=200)
    screen.read_until(b"started")
    assert b"Ctrl-C detaches" in screen.written and b"Ctrl-\\ ends" in screen.written
    screen.type(b"\x03")
    assert screen.wait() == 0
    assert b"detached from job " + job.encode() in screen.written
    assert is_alive(detached.process(job))
    screen = terminal(BERTH, "attach", columns=200)
    screen.read_until(b"started")
    gate.write_text("last words\n")
    assert screen.wait() == 0
    assert b"last words" in screen.written


def test_attach_and_end_the_job(server, detached, terminal):
    job, gate = detached.hold()
    screen = terminal(BERTH, "attach", job, columns=200)
    screen.read_until(b"started")
    screen.type(b"\x1c")
    assert screen.wait() == 143
    assert b"SIGTERM" in screen.written
    assert detached.one(job)["exit_code"] == 143
    assert server.berth("wait", job).returncode == 143


def test_another_process_with_the_recorded_pid_is_not_ended(server, detached, terminal):
    other = server.start("sleep", "1h")
    with detached.make("pidreuse", [started(other.pid)], alive=True):
        screen = terminal(BERTH, "attach", "pidreuse", columns=200)
        screen.read_until(b"old output")
        screen.type(b"\x1c")
        screen.read_until(b"cannot be ended from here")
        screen.type(b"\x03")
        assert screen.wait() == 0
        assert other.poll() is None
        waiter = server.start(BERTH, "wait", "pidreuse")
        eventually(lambda: waits(waiter))
        other.kill()
        other.wait()
        assert waiter.poll() is None and server.berth("wait", "pidreuse", "--timeout", "1500ms").returncode == 75
    assert end_of(waiter)[0] == 70


def test_attach_without_a_terminal(server, detached):
    job, gate = detached.hold(code=4)
    follower = server.start(BERTH, "attach", job)
    assert follower.stdout.readline() == "berth: granted GPU 0\n"
    detached.open(gate)
    assert end_of(follower) == (4, "started\n")
    assert server.berth("attach", job).returncode == 4


# Other users

@pytest.mark.needs_root
def test_jobs_of_another_user(world, open_folder):
    homes = {}
    for uid in (ALICE, BOB):
        homes[uid] = open_folder / f"home{uid}"
        homes[uid].mkdir()
        os.chown(homes[uid], uid, uid)

    def berth(uid, *words):
        return world.berth(uid, *words, env={"HOME": str(homes[uid])})
    job = berth(ALICE, "run", "-d", "--label", ESCAPES, "--", "sh", "-c", "echo secret; read -r l </dev/null; exec sleep 1000").stdout.strip()
    eventually(lambda: world.leases().get(job) == str(ALICE))
    waiting = berth(ALICE, "run", "-d", "--", "true").stdout.strip()
    for words in (["wait", job], ["logs", job], ["attach", job], ["wait", waiting], ["logs", waiting]):
        assert_one_line_error(berth(BOB, *words), 77, str(ALICE))
    assert json.loads(berth(BOB, "jobs", "--json").stdout) == {"jobs": []}
    assert_one_line_error(berth(BOB, "jobs", job), 64)
    listed = json.loads(berth(BOB, "jobs", "--all", "--json").stdout)["jobs"]
    assert [(one["id"], one["user"], one["state"]) for one in listed] == [(job, str(ALICE), "running"), (waiting, str(ALICE), "waiting")]
    assert all(one["output"] is None and not one["detached"] for one in listed)
    text = berth(BOB, "jobs", "--all").stdout
    assert_fit_for_terminal(text)
    assert str(ALICE) in text
    folder = homes[ALICE] / ".local/state/berth/jobs" / job
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "output").stat().st_mode & 0o777 == 0o600
    # It ends, and is in the history.
    for pid in [json.loads((folder / "events").read_text().splitlines()[0])["pid"]]:
        os.kill(pid, signal.SIGTERM)
    assert berth(ALICE, "wait", job).returncode == 143
    assert berth(ALICE, "wait", waiting).returncode == 0
    assert_one_line_error(berth(BOB, "wait", job), 77, str(ALICE))
    ended = json.loads(berth(BOB, "jobs", "--all", "--json").stdout)["jobs"]
    assert [(one["id"], one["exit_code"]) for one in ended] == [(job, 143), (waiting, 0)]


@pytest.mark.needs_root
def test_another_user_cannot_pretend_to_be_a_job(world, open_folder):
    """A lease and a ticket of another user with the id of a job of mine change nothing."""
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, ALICE, ALICE)
    env = {"HOME": str(home)}
    job = world.berth(ALICE, "run", "-d", "--", "sh", "-c", "exit 3", env=env).stdout.strip()
    assert world.berth(ALICE, "wait", job, env=env).returncode == 3
    world.start_process(BOB, create_client, world.harbour, f"lease-{job}", record(job, BOB, [world.uuid()]))
    assert world.leases() == {job: str(BOB)}
    assert world.berth(ALICE, "wait", job, env=env).returncode == 3
    [one] = json.loads(world.berth(ALICE, "jobs", "--json", env=env).stdout)["jobs"]
    assert (one["state"], one["exit_code"]) == ("ended", 3)
    both = json.loads(world.berth(ALICE, "jobs", "--all", "--json", env=env).stdout)["jobs"]
    assert sorted((one["user"], one["state"]) for one in both) == [(str(ALICE), "ended"), (str(BOB), "running")]


# Completion

def test_completion_of_ids(server, detached, jobs):
    job, _ = detached.hold("--label", "mine")
    jobs.run(command=["true"], env={}).process
    for command in ("logs", "attach", "wait", "jobs"):
        lines = server.berth("complete", "--", "berth", command, "").stdout.splitlines()
        assert lines[0] == "words" and f"{job}\trunning, mine" in lines
