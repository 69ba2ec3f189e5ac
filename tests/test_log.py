"""`berth log`, and what is written for it: who had what, when, and how it ended."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from conftest import BERTH, assert_fit_for_terminal, assert_one_line_error
from leasing import NOBODY, eventually, jobs, ready  # noqa: F401
from redis_server import history_length
from waiting import LIMIT

ESCAPES = "\x1b[31m\x1b]0;owned\x07\r\n\t\u202etxt\u2066"


def log(server, *flags, **options):
    """The entries of `berth log --json`; it must succeed and complain of nothing."""
    result = server.berth("log", "--json", *flags, **options)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.isascii()
    return [json.loads(line) for line in result.stdout.splitlines()]


def endings(server, *flags):
    return [(entry["ending"], entry["exit_code"], entry["signal"]) for entry in log(server, *flags)]


def history_files(server):
    return sorted((server.harbour / "archive").glob("*/history-*.jsonl"))


def has_begun(server):
    """Is it written, and sent where there is somebody to send it to, that a job has begun?"""
    url = server.env.get("BERTH_URL")
    return any(file.read_text() for file in history_files(server)) and (not url or history_length(url))


# What is written.

@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_a_job(server):
    server.berth("run", "-n", "2", "--mem", "8GiB", "--label", "try", "--", "true")
    [entry] = log(server)
    assert len(entry["lease"]) == 8 and entry["user"] == "root" and entry["command"] == "true"
    assert entry["label"] == "try" and entry["within"] is None
    assert [gpu["index"] for gpu in entry["gpus"]] == ["0", "1"]
    assert entry["gpus"][0]["uuid"].startswith("GPU-") and entry["gpus"][0]["name"] == "Simulated 24 GiB GPU"
    assert (entry["exclusive"], entry["memory_mib"]) == (False, 8192)
    assert entry["asked"] <= entry["granted"] <= entry["ended"]
    assert (entry["ending"], entry["exit_code"], entry["signal"]) == ("exited", 0, None)
    assert entry["waited_s"] >= 0 and entry["lasted_s"] >= 0


def test_all_text_is_ascii(server):
    server.berth("run", "--label", "größer", "--", "true")
    assert log(server)[0]["label"] == "größer"


@pytest.mark.each_harbour
def test_how_jobs_end(server):
    server.berth("run", "--", "sh", "-c", "exit 137")
    server.berth("run", "--", "sh", "-c", "kill -KILL $$")
    server.berth("run", "--", "no-such-program")
    assert endings(server) == [("exited", 137, None), ("killed", None, 9)]


@pytest.mark.each_harbour
def test_a_shells_lease(server, jobs):
    shell = jobs.start("bash", "-c", 'eval "$(berth acquire)"; echo ready; read -r line; berth release; read -r line')
    ready(shell)
    eventually(lambda: endings(server) == [("running", None, None)])
    shell.process.stdin.write(b"\n")
    shell.process.stdin.flush()
    eventually(lambda: endings(server) == [("released", None, None)])


@pytest.mark.each_harbour
def test_a_lease_inside_another_names_it(server):
    server.berth("run", "--", BERTH, "run", "--", "true")
    [outer] = [entry for entry in log(server) if entry["within"] is None]
    [inner] = [entry for entry in log(server) if entry["within"] is not None]
    assert inner["within"] == outer["lease"]


@pytest.mark.each_harbour
def test_a_running_job_is_there_while_it_runs(server, jobs):
    job = jobs.hold()
    [entry] = log(server)
    assert (entry["ending"], entry["ended"]) == ("running", None)
    assert job.end() == 0
    assert endings(server) == [("exited", 0, None)]


def written(server, ending):
    """The lines of the history that tell of such an end."""
    lines = [json.loads(line) for file in history_files(server) for line in file.read_text().splitlines()]
    return [line for line in lines if line["ending"] == ending]


@pytest.mark.each_harbour
def test_what_a_job_leaves_behind_keeps_its_lease_in_the_log(server, jobs):
    job = jobs.run(command=["sh", "-c", "exec 3<&0; read -r line <&3 & exit 7"])
    assert job.process.wait(LIMIT) == 7
    assert endings(server) == [("running", None, None)]
    assert json.loads(server.berth("report", "--json").stdout)["total"]["running"] == 1
    # The last of its processes ends, and somebody notices.
    job.process.stdin.close()
    eventually(lambda: server.berth("run", "--", "true").returncode == 0 and written(server, "lost"), "the end of its lease")
    [exited, lost] = written(server, "exited")[0], written(server, "lost")[0]
    assert exited["id"] == lost["id"] and exited["ended_ms"] < lost["ended_ms"]
    entry = log(server)[0]
    assert (entry["ending"], entry["exit_code"]) == ("exited", 7)
    assert entry["lasted_s"] == pytest.approx((lost["ended_ms"] - lost["granted_ms"]) / 1000)


def test_the_first_second_is_not_taken_for_the_whole(server, jobs):
    server.use("1x24GiB")
    job = jobs.run(command=["sh", "-c", "berth-sim-job --mem 1GiB & read -r line; kill $!"])
    [line] = eventually(lambda: written(server, "running"), "it has lasted a second")
    assert "idle_ms" not in line and set(line["gpus"][0]) == {"uuid", "index", "name"}
    assert job.end() == 0
    assert "idle_ms" in written(server, "exited")[0]


def kill_holder(job):
    """berth and the job itself, at once; then they hold nothing any more."""
    children = [int(pid) for pid in open(f"/proc/{job.pid}/task/{job.pid}/children").read().split()]
    for pid in [job.pid, *children]:
        os.kill(pid, signal.SIGKILL)
    job.process.wait()
    for pid in children:
        eventually(lambda pid=pid: is_dead(pid), "the job's death")


def is_dead(pid):
    """A zombie has closed its files."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.each_harbour
def test_a_holder_that_was_killed_is_recorded_by_who_notices(server, jobs):
    job = jobs.hold(command=["sh", "-c", 'echo "$BERTH_GPUS"; exec sleep 3600'])
    kill_holder(job)
    server.berth("run", "--", "true")
    assert endings(server) == [("lost", None, None), ("exited", 0, None)]
    [file] = history_files(server)
    assert sum('"lost"' in line for line in file.read_text().splitlines()) == 1


@pytest.mark.each_harbour
def test_what_has_begun_and_is_gone_is_lost_even_if_nobody_noticed(server, jobs):
    """As after a reboot, which empties the harbour."""
    job = jobs.hold(command=["sh", "-c", 'echo "$BERTH_GPUS"; exec sleep 3600'])
    eventually(lambda: has_begun(server), "the line that a job has begun")
    kill_holder(job)
    for file in server.harbour.iterdir():
        if file.is_file() or file.is_fifo():
            file.unlink()
    assert endings(server) == [("lost", None, None)]
    assert log(server)[0]["lasted_s"] is None


@pytest.mark.each_harbour
def test_a_release_needs_no_history(server):
    (server.harbour / "archive").write_text("in the way")
    result = server.berth("run", "--", "true")
    assert (result.returncode, result.stderr) == (0, "")
    assert all(gpu["state"] == "free" for gpu in server.status()["gpus"])


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_only_his_own(server, open_build):
    """Each user writes in a folder of his own, and everybody can read it."""
    server.berth("run", "--", "true")
    server.run(*NOBODY, open_build / "bin" / "berth", "run", "--", "true")
    assert [entry["user"] for entry in log(server)] == ["root", "nobody"]
    result = server.run(*NOBODY, open_build / "bin" / "berth", "log", "--json")
    assert len(result.stdout.splitlines()) == 2
    owners = {file.parent.name: file.stat().st_uid for file in history_files(server)}
    assert owners == {"0": 0, "65534": 65534}


@pytest.mark.needs_root
def test_a_strict_umask_hides_nothing_from_the_others(server, open_build):
    server.run("sh", "-c", 'umask 077; exec "$@"', "sh", "berth", "run", "--", "true")
    result = server.run(*NOBODY, open_build / "bin" / "berth", "log", "--json")
    assert [json.loads(line)["user"] for line in result.stdout.splitlines()] == ["root"]


@pytest.mark.needs_root
def test_nobody_tells_of_others(server, open_build):
    server.run(*NOBODY, open_build / "bin" / "berth", "run", "--", "true")
    [file] = history_files(server)
    line = json.loads(file.read_text())
    with file.open("a") as more:
        more.write(json.dumps({**line, "id": "forged22", "uid": 0}) + "\n")
    result = server.berth("log", "--json")
    assert [json.loads(line)["user"] for line in result.stdout.splitlines()] == ["nobody"]
    assert "1 line " in result.stderr


# What is read.

def test_damaged_lines_alone_are_lost_and_it_says_so(server):
    server.berth("run", "--", "true")
    [file] = history_files(server)
    with file.open("ab") as more:
        more.write(b'{"id":"half a line')
    server.berth("run", "--", "false")
    with file.open("ab") as more:
        more.write(b"\xff\xfe\nnull\n")
    result = server.berth("log", "--json")
    assert [json.loads(line)["exit_code"] for line in result.stdout.splitlines()] == [0, 1]
    assert result.stderr.startswith("berth: 3 lines ") and result.stderr.count("\n") == 1
    assert f"{server.harbour}/archive" in result.stderr


@pytest.mark.needs_root
def test_the_table(server):
    server.berth("run", "--label", "a label", "--", "sh", "-c", "exit 3")
    result = server.berth("log")
    heading, line = result.stdout.splitlines()
    assert heading.split() == ["GRANTED", "LASTED", "WAITED", "USER", "GPU", "MEMORY", "END", "COMMAND"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .* <1s +<1s  root  0 +whole  exit 3 +a label: sh -c exit 3", line)


@pytest.mark.needs_root
def test_the_table_on_80_columns_has_room_for_the_command(server):
    command = "python train.py --config configs/large.yaml --seed 17"
    server.berth("run", "--", "/bin/sh", "-c", f": {command}")
    heading, line = server.berth("log", env={"COLUMNS": "80"}).stdout.splitlines()
    assert heading.split() == ["GRANTED", "LASTED", "WAITED", "USER", "GPU", "END", "COMMAND"]  # every lease has whole GPUs
    assert re.match(r"\d\d-\d\d \d\d:\d\d  ", line) and ": python train.py --config " in line and "sh -c" not in line
    server.berth("run", "--mem", "1GiB", "--", "sleep", "0")
    heading, first, second = server.berth("log", env={"COLUMNS": "80"}).stdout.splitlines()
    assert "MEMORY" in heading and " whole " in first and " 1 GiB " in second
    heading, first, second = server.berth("log", env={"COLUMNS": "60"}).stdout.splitlines()
    assert "WAITED" not in heading and ": python train.py" in first  # the command is worth more
    assert max(map(len, (heading, first, second))) <= 60


def test_nothing_that_a_terminal_would_obey(server):
    server.berth("run", "--label", ESCAPES, "--", "sh", "-c", "exit 0", ESCAPES)
    result = server.berth("log")
    assert_fit_for_terminal(result.stdout)
    assert len(result.stdout.splitlines()) == 2
    narrow = server.berth("log", env={"COLUMNS": "100"})
    assert all(len(line) <= 100 for line in narrow.stdout.splitlines())


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_filters(server, open_build):
    server.berth("run", "--gpu", "1", "--", "true")
    server.run(*NOBODY, open_build / "bin" / "berth", "run", "--gpu", "2,3", "--", "true")
    uuid = log(server)[0]["gpus"][0]["uuid"]
    assert [entry["user"] for entry in log(server, "--user", "nobody")] == ["nobody"]
    assert [entry["user"] for entry in log(server, "--user", "65534")] == ["nobody"]
    assert [entry["user"] for entry in log(server, "--gpu", "1")] == ["root"]
    assert [entry["user"] for entry in log(server, "--gpu", uuid)] == ["root"]
    assert [entry["user"] for entry in log(server, "--gpu", "0,3")] == ["nobody"]
    assert log(server, "--gpu", "0") == []
    assert len(log(server, "--since", "1h")) == len(log(server, "--since", "2020-01-31")) == 2
    assert log(server, "--since", "2096-01-01 12:00") == []


def test_since_goes_by_the_end(server):
    server.berth("run", "--", "true")
    [file] = history_files(server)
    line = json.loads(file.read_text())
    old = {**line, "id": "longago2", "ended_ms": line["ended_ms"] - 10 * 86_400_000}
    with file.open("a") as more:
        more.write(json.dumps(old) + "\n")
    assert len(log(server)) == 1 and len(log(server, "--since", "11d")) == 2


@pytest.mark.each_harbour
def test_what_runs_is_there_whenever_it_began(server, jobs):
    jobs.hold("--gpu", "1")
    [line] = eventually(lambda: written(server, "running"), "it has lasted a second")
    eventually(lambda: time.time() * 1000 - line["ended_ms"] > 1500, "what is written is older than --since")
    for flags in ([], ["--gpu", "1"], ["--gpu", line["gpus"][0]["uuid"]]):
        [entry] = log(server, "--since", "1s", *flags)
        assert (entry["lease"], entry["gpus"][0]["index"], entry["ending"]) == (line["id"], "1", "running")
    assert log(server, "--since", "1s", "--gpu", "0") == []


@pytest.mark.parametrize("flags, words", [
    (["--since", "soon"], ["--since", "'soon'", "2h"]),
    (["--since", "2026-13-01"], ["--since", "2026-13-01"]),
    (["--host", "no host"], ["--host", "'no host'"]),
    (["--gpu", "first"], ["--gpu", "first"]),
    (["yesterday"], ["yesterday"]),
])
def test_wrong_usage(server, flags, words):
    assert_one_line_error(server.berth("log", *flags), 64, *words)


@pytest.mark.parametrize("command", ["log", "report"])
def test_a_user_whom_nobody_knows(server, command):
    assert_one_line_error(server.berth(command, "--user", "no such user"), 64, "--user", "'no such user'")


def test_an_empty_history_says_what_to_do(server):
    result = server.berth("log")
    assert (result.returncode, result.stdout) == (0, "")
    assert "--since" in result.stderr and re.search(r" since \d{4}-\d\d-\d\d \d\d:\d\d;", result.stderr)
    assert log(server) == []
    assert "on GPU 1 since" in server.berth("log", "--gpu", "1").stderr
    missing = server.berth("log", "--gpu", "9", "--user", "root")
    assert missing.returncode == 0
    assert "of root on GPU 9 since" in missing.stderr and "no such GPU" in missing.stderr


@pytest.mark.each_harbour
def test_follow(server, jobs):
    server.berth("run", "--label", "before", "--", "true")
    follower = jobs.start(BERTH, "log", "--follow", "--json")
    eventually(lambda: "before" in follower.out)
    server.berth("run", "--label", "first", "--", "true")
    running = jobs.hold("--label", "second")
    eventually(lambda: "first" in follower.out)
    assert running.end() == 0
    eventually(lambda: "second" in follower.out)
    assert [json.loads(line)["label"] for line in follower.out.splitlines()] == ["before", "first", "second"]
    follower.process.send_signal(signal.SIGINT)
    assert follower.process.wait(LIMIT) == -signal.SIGINT


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_follow_sees_users_who_come_later(server, jobs, open_build):
    follower = jobs.start(BERTH, "log", "--follow")
    eventually(lambda: "GRANTED" in follower.out)
    server.run(*NOBODY, open_build / "bin" / "berth", "run", "--label", "somebody new", "--", "true")
    eventually(lambda: "somebody new" in follower.out)


def test_follow_ends_with_its_reader(server, jobs):
    follower = jobs.start("bash", "-c", f"{BERTH} log --follow | head -1; echo done")
    server.berth("run", "--", "true")
    eventually(lambda: "done" in follower.out)
    assert "GRANTED" in follower.out


def test_follow_ends_when_its_reader_closes_a_socket(server):
    reader, writer = socket.socketpair()
    process = subprocess.Popen([BERTH, "log", "--follow"], env=server.env, stdin=subprocess.DEVNULL, stdout=writer)
    try:
        writer.close()
        assert b"GRANTED" in reader.recv(4096)
        reader.close()
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait()
