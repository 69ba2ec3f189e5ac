"""History and profiles of several hosts, which meet in one Redis."""

import json
import os
import pwd
import signal
import subprocess
import sys

import pytest
from conftest import BERTH, BUILD, SIM_JOB, Server, assert_fit_for_terminal, assert_one_line_error
from leasing import Jobs, eventually
from redis_server import RedisServer
from waiting import LIMIT

ME = pwd.getpwuid(os.geteuid()).pw_name
HARBOUR_FAILS = 74


@pytest.fixture
def redis(open_folder):
    folder = open_folder / "redis"
    folder.mkdir()
    folder.chmod(0o755)
    server = RedisServer(folder)
    server.skip_recovery_wait()
    yield server
    server.kill()


class Host(Server):
    """A host of its own: its name, its directory, its GPUs."""

    def __init__(self, folder, redis, name):
        folder.mkdir()
        folder.chmod(0o1777)
        super().__init__(folder)
        self.name = name
        self.redis = redis
        self.env |= {"BERTH_URL": redis.url(), "BERTH_HOST": name}
        self.jobs = Jobs(self)

    def log(self, *flags, **options):
        result = self.berth("log", "--json", *flags, **options)
        assert (result.returncode, result.stderr) == (0, ""), result
        return [json.loads(line) for line in result.stdout.splitlines()]

    def report(self, *flags):
        result = self.berth("report", "--json", *flags)
        assert (result.returncode, result.stderr) == (0, "")
        return json.loads(result.stdout)

    def profiles(self, *words, **options):
        result = self.berth("profile", *words, "--json", **options)
        assert (result.returncode, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    def learn(self, *flags, gib=5):
        return self.berth("run", "--mem", "auto", "--job", "train", *flags, "--", SIM_JOB, "--quiet", "--samples", "5",
                          "--mem", f"{gib}GiB")

    def unsent(self):
        return self.harbour / "archive" / str(os.geteuid()) / "unsent.jsonl"


@pytest.fixture
def hosts(open_folder, redis):
    both = [Host(open_folder / name, redis, name) for name in ("ahost", "bhost")]
    yield both
    for host in both:
        host.jobs.stop()
        host.stop()


def sent(redis):
    with redis.client() as client:
        return [json.loads(fields["line"]) for _, fields in client.xrange("berth:history")]


# History.

def test_each_host_knows_what_every_host_did(hosts):
    a, b = hosts
    a.berth("run", "--label", "one", "--", "true")
    b.berth("run", "--label", "two", "--", "sh", "-c", "exit 3")
    for host in hosts:
        assert [(entry["host"], entry["user"], entry["label"], entry["exit_code"]) for entry in host.log()] == [
            ("ahost", ME, "one", 0), ("bhost", ME, "two", 3)]
        assert [entry["label"] for entry in host.log("--host", "bhost")] == ["two"]
        assert host.log("--host", "chost") == []
        assert host.report()["total"]["leases"] == 2 and host.report()["host"] is None
        assert host.report("--host", "ahost")["total"]["leases"] == 1
        assert host.report("--host", "ahost")["host"] == "ahost"
    assert [gpu["host"] for gpu in a.report()["gpus"]] == ["ahost", "bhost"]
    assert len(a.report()["users"]) == 1
    # What a host wrote itself is there without Redis, too.
    assert [entry["label"] for entry in b.log(env={"BERTH_URL": ""})] == ["two"]
    assert [entry["host"] for entry in b.log("--host", "bhost", env={"BERTH_URL": ""})] == ["bhost"]
    assert b.log("--host", "ahost", env={"BERTH_URL": ""}) == []


def test_the_host_is_a_column(hosts):
    a, b = hosts
    b.berth("run", "--", "true")
    heading, line = a.berth("log").stdout.splitlines()
    assert heading.split() == ["GRANTED", "LASTED", "WAITED", "HOST", "USER", "GPU", "MEMORY", "END", "COMMAND"]
    assert "  bhost  " in line
    assert "HOST" not in b.berth("log", env={"BERTH_URL": ""}).stdout
    assert "bhost:0 Simulated" in a.berth("report").stdout


def test_names_count_and_not_uids(hosts, redis):
    a, _ = hosts
    a.berth("run", "--", "true")
    line = sent(redis)[-1]
    assert (line["host"], line["user"]) == ("ahost", ME)
    with redis.client() as client:
        client.xadd("berth:history", {"line": json.dumps({**line, "host": "chost", "user": "somebody"})})
    assert [entry["user"] for entry in a.log()] == [ME, "somebody"]
    assert [entry["host"] for entry in a.log("--user", "somebody")] == ["chost"]
    assert [entry["host"] for entry in a.log("--user", ME)] == ["ahost"]
    assert a.report("--user", "somebody")["users"][0]["user"] == "somebody"


def test_what_runs_elsewhere_is_running_until_its_host_says_otherwise(hosts, redis):
    a, b = hosts
    job = b.jobs.hold(command=["sh", "-c", 'echo "$BERTH_GPUS"; exec sleep 3600'])
    [entry] = eventually(lambda: a.log(), "the line that it has begun")
    assert (entry["host"], entry["ending"]) == ("bhost", "running")
    assert a.report()["total"]["running"] == 1
    assert [one["lease"] for one in a.log("--since", "2096-01-01")] == [entry["lease"]]
    with redis.client() as client:  # as if the host had crashed, and its time to live were over
        record = client.hget("berth:bhost:leases", entry["lease"])
        client.hdel("berth:bhost:leases", entry["lease"])
        assert [one["ending"] for one in a.log()] == ["lost"] and a.report()["total"]["lost"] == 1
        client.hset("berth:ahost:leases", entry["lease"], record)  # of another host, it says nothing
        assert [one["ending"] for one in a.log("--host", "bhost")] == ["lost"]
    job.process.kill()


def test_follow_sees_other_hosts(hosts):
    a, b = hosts
    follower = a.jobs.start(BERTH, "log", "--follow", "--json")
    a.berth("run", "--label", "one", "--", "true")
    eventually(lambda: "one" in follower.out)
    b.berth("run", "--label", "two", "--", "true")
    eventually(lambda: "two" in follower.out)
    entries = [json.loads(line) for line in follower.out.splitlines()]
    # If it was slow to begin, it has seen the first one run, too.
    assert [one["host"] for one in entries if one["ending"] != "running"] == ["ahost", "bhost"]


def test_follow_goes_on_when_the_server_is_back(hosts, redis):
    a, b = hosts
    follower = a.jobs.start(BERTH, "log", "--follow", "--json")
    a.berth("run", "--label", "one", "--", "true")
    eventually(lambda: "one" in follower.out)
    redis.kill()
    redis.start()
    redis.skip_recovery_wait()
    b.berth("run", "--label", "two", "--", "true")
    eventually(lambda: "two" in follower.out, "what came after the server was back")


@pytest.mark.release_only  # the package is built once
def test_a_python_program_sends_its_lines(hosts):
    a, b = hosts
    program = "import berth\nfor name in ('one', 'two'):\n    with berth.gpus(label=name): pass"
    result = a.run(sys.executable, "-c", program, env={"PYTHONPATH": str(BUILD / "python")})
    assert (result.returncode, result.stderr) == (0, "")
    assert [(entry["label"], entry["ending"]) for entry in b.log()] == [("one", "released"), ("two", "released")]


# A server that is away.

def test_readers_say_that_the_server_is_away(hosts, redis):
    a, _ = hosts
    redis.kill()
    for words in (["log"], ["log", "--follow"], ["report"], ["profile"], ["profile", "set", "x", "--mem", "1GiB"],
                  ["profile", "of", "--", "true"]):
        assert_one_line_error(a.berth(*words), HARBOUR_FAILS, "redis.sock")


def test_what_ended_without_a_server_is_sent_once_when_it_is_back(hosts, redis):
    a, b = hosts
    job = a.jobs.hold("--label", "cut off")
    redis.kill()
    assert job.end() == 0
    assert [json.loads(line)["label"] for line in a.unsent().read_text().splitlines()][-1] == "cut off"
    redis.start()  # with nothing in it
    redis.skip_recovery_wait()
    assert b.log() == []
    a.berth("run", "--label", "next", "--", "true")
    assert a.unsent().read_text() == ""
    assert [(entry["label"], entry["ending"]) for entry in b.log()] == [("cut off", "exited"), ("next", "exited")]
    before = len(sent(redis))
    a.berth("log")
    assert len(sent(redis)) == before


def test_who_reads_sends_what_is_left(hosts, redis):
    a, b = hosts
    a.berth("run", "--label", "one", "--", "true")
    line = json.dumps(sent(redis)[-1])
    with redis.client() as client:
        client.delete("berth:history")
    a.unsent().write_text(line + "\n")  # as if it had been killed before it could send it
    assert b.log() == []
    assert [entry["label"] for entry in a.log()] == ["one"] == [entry["label"] for entry in b.log()]
    a.unsent().write_text(line + "\n")  # as if it had been killed after it had sent it
    assert len(a.log()) == 1 and len(sent(redis)) == 2
    assert a.report()["total"]["leases"] == 1


def test_a_full_disk_keeps_no_line_from_others(hosts):
    a, b = hosts
    (a.harbour / "archive").write_text("in the way")
    assert a.berth("run", "--label", "one", "--", "true").stderr == ""
    assert [entry["label"] for entry in b.log()] == ["one"]


@pytest.mark.release_only
def test_a_silent_server_holds_nobody_up_for_long(hosts, redis):
    """It takes connections and answers nothing: nobody waits for it at each step."""
    a, _ = hosts
    job = a.jobs.hold("--job", "train", "--label", "patient")
    redis.process.send_signal(signal.SIGSTOP)
    try:
        assert job.end() == 0
        assert "patient" in a.unsent().read_text()
    finally:
        redis.process.send_signal(signal.SIGCONT)
    assert [entry["ending"] for entry in a.log()] == ["exited"]


# What is no line of ours.

def test_bad_values_are_left_out_and_said(hosts, redis):
    a, _ = hosts
    a.berth("run", "--", "true")
    line = sent(redis)[-1]
    with redis.client() as client:
        for value in ("{", "x" * (10 << 20), "null", json.dumps({**line, "host": "\x1b[31m"}),
                      json.dumps({**line, "user": ""}), json.dumps({key: line[key] for key in line if key != "id"})):
            client.xadd("berth:history", {"line": value})
        client.xadd("berth:history", {"something": "else"})
        client.xadd("berth:history", {"line": json.dumps({**line, "id": "another2", "user": "\x1b]0;owned\x07"})})
    result = a.berth("log")
    assert len(result.stdout.splitlines()) == 3
    assert_fit_for_terminal(result.stdout)
    assert "7 lines" in result.stderr and "redis+unix://" in result.stderr and result.stderr.count("\n") == 1
    assert a.berth("report").stderr == result.stderr
    assert_fit_for_terminal(a.berth("report").stdout)


def test_another_type_of_key_is_an_error_and_jobs_run(hosts, redis):
    a, _ = hosts
    with redis.client() as client:
        client.set("berth:history", "mine")
        client.set("berth:profiles", "mine")
        client.set(f"berth:profiles:{ME}", "mine")
    assert a.learn().returncode == 0
    for words in (["log"], ["report"], ["profile"]):
        assert_one_line_error(a.berth(*words), HARBOUR_FAILS)


# Profiles.

def test_what_one_host_learned_all_reserve(hosts):
    a, b = hosts
    assert a.learn().stderr == ""
    [profile] = b.profiles()
    assert (profile["type"], profile["user"], len(profile["runs"])) == ("train", ME, 1)
    assert b.learn().stderr == ""
    assert b.log("--host", "bhost")[0]["memory_mib"] == 5632
    assert len(a.profiles()[0]["runs"]) == 2
    assert b.profiles(env={"BERTH_URL": ""}) == []


def test_of_two_hosts_that_end_at_once_neither_is_lost(hosts):
    commands = [[BERTH, "run", "--mem", "auto", "--job", "train", "--", SIM_JOB, "--quiet", "--time", "300ms", "--mem",
                 "5GiB"]] * 4
    runs = [subprocess.Popen(list(map(str, command)), env=host.env, stdin=subprocess.DEVNULL)
            for host in hosts for command in commands]
    assert [run.wait(LIMIT) for run in runs] == [0] * 8
    assert len(hosts[0].profiles()[0]["runs"]) == 8
    assert len(hosts[0].log()) == 8


def test_profiles_of_before_are_found_and_taken_along(hosts):
    a, b = hosts
    alone = {"BERTH_URL": ""}
    a.berth("profile", "set", "train", "--mem", "7GiB", env=alone)
    assert [one["type"] for one in a.profiles()] == ["train"] and b.profiles() == []
    assert "reserves 7 GiB" in a.berth("profile", "show", "train").stdout
    a.learn()
    [profile] = b.profiles()
    assert profile["set_memory_mib"] == 7 * 1024 and len(profile["runs"]) == 1


def test_what_is_forgotten_stays_forgotten(hosts):
    a, b = hosts
    for host in hosts:
        host.berth("profile", "set", "train", "--mem", "7GiB", env={"BERTH_URL": ""})
    said = a.berth("profile", "forget", "train").stdout
    assert said.count("\n") == 1 and "train" in said
    assert a.profiles() == [] and b.profiles() == []


def test_bad_profiles_are_left_out_and_said(hosts, redis):
    a, _ = hosts
    a.learn()
    with redis.client() as client:
        client.hset(f"berth:profiles:{ME}", mapping={"huge": "x" * (10 << 20), "broken": "{", "list": "[]"})
    result = a.berth("profile")
    assert "train" in result.stdout and len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("berth: 3 profiles ") and result.stderr.count("\n") == 1


def test_a_job_that_ends_without_a_server_teaches_nothing(hosts, redis):
    a, _ = hosts
    job = a.jobs.hold("--mem", "auto", "--job", "train")
    redis.kill()
    assert job.end() == 0
    redis.start()
    redis.skip_recovery_wait()
    assert a.profiles() == [] == a.profiles(env={"BERTH_URL": ""})
