"""`berth jobs`, `logs`, `wait`, `attach` and `cancel` for jobs on other hosts, through real ssh between hosts of the test's own."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import BERTH, assert_fit_for_terminal, assert_one_line_error, wait_until
from redis_proxy import Proxy
from redis_server import client_of
from ssh_lab import lab  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.needs_root


@pytest.fixture
def harbour():
    return "redis"


class Gate:
    """A job reads from it until it is opened. The folder is shared by all hosts."""

    def __init__(self, lab, name="gate"):
        self.path = lab.folder / name
        os.mkfifo(self.path)

    def open(self):
        self.path.write_text("")


def script(gate, code=0, before="echo started"):
    return ["sh", "-c", f"{before}; cat {gate.path}; exit {code}"]


def submit(host, *words):
    result = host.run(BERTH, "run", "-d", *words)
    assert result.returncode == 0, result
    assert re.fullmatch("[a-z0-9]{8}\n", result.stdout)
    return result.stdout.strip()


def jobs(host, *words):
    result = host.run(BERTH, "jobs", "--json", *words)
    assert (result.returncode, result.stderr) == (0, ""), result
    return json.loads(result.stdout)["jobs"]


def only_job(host, *words):
    [job] = jobs(host, *words)
    return job


def wait_for_state(host, job, state):
    def seen():
        [found] = [one for one in jobs(host) if one["id"] == job]
        return found if found["state"] == state else None
    return wait_until(seen, f"the job is {state}", LIMIT)


def wait_until_recorded(lab, job):
    """The history has the beginning of its lease. A `berth wait` that starts when the lease has ended knows of the job by
    that."""
    client, prefix = client_of(lab.common["BERTH_URL"])
    with client:
        wait_until(lambda: any(f'"{job}"' in line["line"] for _, line in client.xrange(f"{prefix}:history")), "it is recorded")


def logs(host, job):
    return host.run(BERTH, "logs", job).stdout


def wait_for_log(host, job, text):
    wait_until(lambda: text in logs(host, job), f"{text} in the output")


def queues(lab):
    hosts = json.loads(lab.head.run(BERTH, "queue", "--all", "--json").stdout)["hosts"]
    return {one["host"]: [ticket["ticket"] for ticket in one["queue"]] for one in hosts}


def leases(lab, host):
    status = json.loads(lab.hosts[host].run(BERTH, "status", "--json").stdout)
    return [lease["id"] for gpu in status["gpus"] for lease in gpu["leases"]]


def hold(lab, host, count):
    job = lab.hosts[host].start(BERTH, "run", "-n", count, "--", "sh", "-c", "echo ready; read x", stdin=subprocess.PIPE)
    assert job.stdout.readline() == "ready\n"
    return job


def berth_process(host, job):
    path = host.home / ".local/state/berth/jobs" / job / "events"
    return json.loads(path.read_text().splitlines()[0])["pid"]


def permit(lab, *hosts):
    (lab.folder / "berth.toml").write_text(f"hosts = {list(hosts)}\n")


def test_a_detached_job_is_one_job_on_every_host(lab):
    gate = Gate(lab)
    job = submit(lab.head, "--host", "gpu-b", "--label", "far", "--", *script(gate, 3))
    seen = wait_for_state(lab.head, job, "running")
    for host in (lab.head, *lab.hosts.values()):
        seen = only_job(host)
        assert (seen["id"], seen["state"], seen["host"], seen["gpus"], seen["label"]) == (job, "running", "gpu-b", [0], "far")
        assert seen["leases"] == leases(lab, "gpu-b") and seen["detached"] == (host is lab.head)
        text = host.run(BERTH, "jobs").stdout.splitlines()
        assert ("HOST" in text[0]) == (host is not lab.hosts["gpu-b"]) and text[1].startswith(job)
    waits = [host.start(BERTH, "wait", job) for host in (lab.head, *lab.hosts.values())]
    assert_one_line_error(lab.hosts["gpu-a"].run(BERTH, "wait", "--timeout", "10ms", job), 75, job)
    wait_for_log(lab.head, job, "started")
    wait_until_recorded(lab, job)
    gate.open()
    for wait in waits:
        assert (wait.communicate(timeout=LIMIT)[0], wait.returncode) == ("", 3)
    for host in (lab.head, *lab.hosts.values()):
        seen = only_job(host)
        assert (seen["id"], seen["state"], seen["host"], seen["exit_code"]) == (job, "ended", "gpu-b", 3)
        assert host.run(BERTH, "wait", job).returncode == 3


def test_a_job_is_extended_on_its_host(lab):
    gate = Gate(lab)
    job = submit(lab.head, "--host", "gpu-b", "--", *script(gate))
    wait_for_log(lab.head, job, "started")
    assert_one_line_error(lab.head.run(BERTH, "extend", job, "2h"), 64, f"ssh gpu-b berth extend {job} 2h")
    assert lab.hosts["gpu-b"].run(BERTH, "extend", job, "2h").returncode == 0
    assert only_job(lab.head)["ends_source"] == "announced"
    gate.open()
    assert lab.head.run(BERTH, "wait", job).returncode == 0


def test_the_job_knows_its_id(lab):
    job = submit(lab.head, "--host", "gpu-a", "--", "sh", "-c", "echo id $BERTH_JOB; hostname")
    assert lab.head.run(BERTH, "wait", job).returncode == 0
    assert logs(lab.head, job).splitlines()[1:] == [f"id {job}", "gpu-a"]
    assert "gpu-a" in logs(lab.head, job).splitlines()[0]


def test_a_waiting_job_is_listed_once_and_leaves_all_queues(lab):
    held = [hold(lab, "gpu-a", 1), hold(lab, "gpu-b", 2)]
    job = submit(lab.head, "--host", "any", "--", "true")
    assert queues(lab) == {"gpu-a": [job], "gpu-b": [job]}
    for host in (lab.head, *lab.hosts.values()):
        [seen] = [one for one in jobs(host) if one["state"] == "waiting"]
        assert (seen["id"], seen["host"], sorted(seen["queue_hosts"])) == (job, None, ["gpu-a", "gpu-b"])
        assert "gpu-a: " in seen["reason"] and "gpu-b: " in seen["reason"] and seen["position"] == 1
    assert "gpu-a,gpu-b" in lab.head.run(BERTH, "jobs").stdout
    wait = lab.head.start(BERTH, "wait", job)
    result = lab.head.run(BERTH, "cancel", job)
    assert (result.returncode, result.stdout) == (0, f"ticket {job} is cancelled\n"), result
    assert queues(lab) == {"gpu-a": [], "gpu-b": []}
    assert wait.wait(LIMIT) == 75
    assert wait_for_state(lab.head, job, "ended")["exit_code"] == 75
    for one in held:
        one.stdin.close()
        one.wait()


def test_a_ticket_on_one_other_host_is_cancelled_from_here(lab):
    """It was not started by `run --host`."""
    held = hold(lab, "gpu-a", 1)
    waiting = lab.hosts["gpu-a"].start(BERTH, "run", "--", "true")
    [ticket] = wait_until(lambda: queues(lab)["gpu-a"], "it waits")
    refused = lab.head.run(BERTH, "cancel", "--json", ticket)
    assert (refused.returncode, refused.stdout) == (64, "") and "--json" in refused.stderr
    assert queues(lab)["gpu-a"] == [ticket], "nothing was cancelled"
    assert lab.head.run(BERTH, "cancel", ticket).returncode == 0
    assert waiting.wait(LIMIT) == 75
    held.stdin.close()


def test_a_job_in_the_foreground(lab):
    gate = Gate(lab)
    job = lab.head.start(BERTH, "run", "--host", "gpu-b", "--", *script(gate, 5))
    assert job.stdout.readline() == "started\n"
    seen = only_job(lab.head)
    assert (seen["state"], seen["host"], seen["detached"]) == ("running", "gpu-b", False)
    assert [only_job(host)["id"] for host in lab.hosts.values()] == [seen["id"]] * 2
    waits = [host.start(BERTH, "wait", seen["id"]) for host in (lab.head, *lab.hosts.values())]
    assert_one_line_error(lab.head.run(BERTH, "logs", seen["id"]), 64, seen["id"], "-d")
    wait_until_recorded(lab, seen["id"])
    gate.open()
    assert job.wait(LIMIT) == 5
    assert [wait.wait(LIMIT) for wait in waits] == [5, 5, 5]
    assert only_job(lab.head)["exit_code"] == 5


def test_a_wait_that_begins_before_the_grant(lab):
    gate = Gate(lab)
    held = hold(lab, "gpu-a", 1)
    job = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", *script(gate, 4))
    [ticket] = wait_until(lambda: queues(lab)["gpu-a"], "it waits")
    waits = [host.start(BERTH, "wait", ticket) for host in (lab.head, *lab.hosts.values())]
    held.stdin.close()
    wait_until_recorded(lab, ticket)
    gate.open()
    assert job.wait(LIMIT) == 4
    assert [wait.wait(LIMIT) for wait in waits] == [4, 4, 4]


@pytest.mark.parametrize("where", ["head", "gpu-a", "gpu-b"])
@pytest.mark.parametrize("detached", [True, False])
def test_cancel_ends_the_job_on_its_host(lab, where, detached):
    """Also one that ignores SIGTERM, and SIGHUP of the connection."""
    gate = Gate(lab)
    command = script(gate, before="trap '' TERM HUP; echo started")
    if detached:
        job = submit(lab.head, "--host", "gpu-b", "--", *command)
        wait_for_log(lab.head, job, "started")
    else:
        process = lab.head.start(BERTH, "run", "--host", "gpu-b", "--", *command)
        assert process.stdout.readline() == "started\n"
        job = only_job(lab.head)["id"]
    host = {"head": lab.head, **lab.hosts}[where]
    result = host.run(BERTH, "cancel", "--grace", "1s", job)
    assert (result.returncode, result.stderr) == (0, "") and job in result.stdout and "killed" in result.stdout, result
    assert ("gpu-b: " in result.stdout) == (where != "gpu-b")
    assert leases(lab, "gpu-b") == []
    if detached:
        assert lab.head.run(BERTH, "wait", job).returncode == 137
    else:
        assert process.wait(LIMIT) == 137
    result = host.run(BERTH, "cancel", job)
    assert result.returncode == 64 and job in result.stderr


def test_cancel_by_selection_reaches_other_hosts(lab):
    gates = [Gate(lab, name) for name in ("one", "two", "three")]
    kept = submit(lab.head, "--host", "gpu-a", "--label", "kept", "--", *script(gates[0]))
    ended = submit(lab.head, "--host", "gpu-b", "--label", "sweep", "--", *script(gates[1]))
    local = submit(lab.hosts["gpu-b"], "--label", "sweep", "--", *script(gates[2]))
    for host, job in ((lab.head, kept), (lab.head, ended), (lab.hosts["gpu-b"], local)):
        wait_for_log(host, job, "started")
    result = lab.head.run(BERTH, "cancel", "--label", "sweep")
    assert result.returncode == 0 and result.stdout.count("gpu-b: job") == 2, result
    assert leases(lab, "gpu-b") == [] and len(leases(lab, "gpu-a")) == 1
    assert lab.head.run(BERTH, "wait", ended).returncode == 143
    waiting = submit(lab.head, "--host", "gpu-a", "--", "true")
    result = lab.head.run(BERTH, "cancel", "--mine", "--waiting")
    assert (result.returncode, result.stdout) == (0, f"ticket {waiting} is cancelled\n"), result
    assert queues(lab)["gpu-a"] == [] and len(leases(lab, "gpu-a")) == 1
    waiting = submit(lab.hosts["gpu-a"], "--host", "any", "-n", "1", "--mem", "20GiB", "--label", "here", "--", *script(gates[1]))
    wait_for_log(lab.hosts["gpu-a"], waiting, "started")
    assert lab.head.run(BERTH, "cancel", "--mine").returncode == 0
    assert leases(lab, "gpu-a") == leases(lab, "gpu-b") == []


def test_a_ticket_in_the_queue_of_this_host_is_cancelled_once(lab):
    held = [hold(lab, "gpu-a", 1), hold(lab, "gpu-b", 2)]
    job = submit(lab.hosts["gpu-a"], "--host", "any", "--label", "two", "--", "true")
    assert queues(lab) == {"gpu-a": [job], "gpu-b": [job]}
    result = lab.hosts["gpu-a"].run(BERTH, "cancel", "--label", "two")
    assert (result.returncode, result.stdout) == (0, f"ticket {job} is cancelled\n"), result
    wait_until(lambda: queues(lab) == {"gpu-a": [], "gpu-b": []}, "it has left both")
    for one in held:
        one.stdin.close()
        one.wait()


def test_only_hosts_of_the_list_are_connected_to(lab):
    gate = Gate(lab)
    job = submit(lab.head, "--host", "gpu-b", "--", *script(gate))
    wait_for_log(lab.head, job, "started")
    permit(lab, "gpu-a")
    for words in (["cancel", job], ["cancel", "--mine"]):
        result = lab.hosts["gpu-a"].run(BERTH, *words)
        assert_one_line_error(result, 64, "gpu-b", "berth.toml", f"ssh gpu-b berth {words[0]}")
    assert_one_line_error(lab.hosts["gpu-a"].run(BERTH, "logs", job), 64, f"ssh head berth logs {job}")
    (lab.folder / "berth.toml").write_text("")
    assert_one_line_error(lab.hosts["gpu-a"].run(BERTH, "cancel", job), 64, f"ssh gpu-b berth cancel {job}")
    assert only_job(lab.head)["state"] == "running"
    # The user named this host when the job was submitted.
    assert lab.head.run(BERTH, "cancel", job).returncode == 0
    assert leases(lab, "gpu-b") == []


def test_the_output_is_read_where_the_job_was_started(lab):
    gate = Gate(lab)
    job = submit(lab.hosts["gpu-a"], "--host", "gpu-b", "--", *script(gate, 6))
    local = submit(lab.hosts["gpu-a"], "--", "echo", "local job")
    for host in (lab.head, lab.hosts["gpu-b"]):
        wait_for_log(host, job, "started")
        assert host.run(BERTH, "logs", "-n", "1", job).stdout == "started\n"
    follows = lab.head.start(BERTH, "logs", "-f", job)
    attached = lab.head.start(BERTH, "attach", job)
    for one in (follows, attached):
        wait_until(lambda: "started" in one.stdout.readline(), "its output")
    gate.open()
    assert follows.wait(LIMIT) == 0 and attached.wait(LIMIT) == 6
    assert lab.head.run(BERTH, "wait", local).returncode == 0
    assert "local job" in logs(lab.head, local)
    assert "started" in logs(lab.hosts["gpu-b"], job)  # also after the end


def test_attached_to_another_host_at_a_terminal(lab):
    """Ctrl-C detaches, and the job goes on; Ctrl-\\ ends it."""
    gate = Gate(lab)
    job = submit(lab.hosts["gpu-a"], "--", *script(gate))
    for key, code in (("\x03", 0), ("\x1c", 143)):
        attached = lab.head.start("script", "-qec", f"{BERTH} attach {job}", "/dev/null", stdin=subprocess.PIPE)
        wait_until(lambda: "started" in attached.stdout.readline(), "its output")
        attached.stdin.write(key)
        attached.stdin.flush()
        out, _ = attached.communicate(timeout=LIMIT)
        assert attached.returncode == code, out
    assert lab.head.run(BERTH, "wait", job).returncode == 143


def test_a_follower_of_another_host_leaves_nothing_behind(lab):
    gate = Gate(lab)
    job = submit(lab.hosts["gpu-a"], "--", *script(gate))
    follows = lab.head.start(BERTH, "logs", "-f", job)
    wait_until(lambda: "started" in follows.stdout.readline(), "its output")
    os.kill(child_of(follows.pid), signal.SIGINT)
    assert follows.wait(LIMIT) == 130
    wait_until(lambda: not followers(lab.hosts["gpu-a"]), "its command there has ended")
    assert only_job(lab.hosts["gpu-a"])["state"] == "running"
    gate.open()


def followers(host):
    def words(pid):
        try:
            return open(f"/proc/{pid}/cmdline").read().split("\0")
        except OSError:
            return []
    return [pid for pid in host.processes_inside() if words(pid)[1:2] == ["logs"]]


def child_of(pid):
    """nsenter runs berth in its own place or as its child."""
    children = subprocess.run(["pgrep", "-P", str(pid), "-x", "berth"], text=True, capture_output=True).stdout.split()
    return int(children[0]) if children else pid


def test_the_local_process_is_killed_and_the_job_ends(lab):
    """The job is sent SIGHUP, and its host records how it ended."""
    gate = Gate(lab)
    job = submit(lab.head, "--host", "gpu-b", "--", *script(gate))
    wait_for_log(lab.head, job, "started")
    wait_until_recorded(lab, job)
    waits = [host.start(BERTH, "wait", job) for host in (lab.head, lab.hosts["gpu-a"])]
    os.kill(berth_process(lab.head, job), signal.SIGKILL)
    assert [wait.wait(LIMIT) for wait in waits] == [129, 129]
    seen = only_job(lab.head)
    assert (seen["state"], seen["host"], seen["exit_code"], seen["reason"]) == ("ended", "gpu-b", 129, None)
    assert leases(lab, "gpu-b") == []


def test_the_local_process_is_killed_and_the_job_goes_on(lab):
    gate = Gate(lab)
    job = submit(lab.head, "--host", "gpu-b", "--", *script(gate, 7, before="trap '' HUP PIPE; echo started"))
    wait_for_log(lab.head, job, "started")
    os.kill(berth_process(lab.head, job), signal.SIGKILL)
    wait = lab.head.start(BERTH, "wait", job)
    for host in (lab.head, lab.hosts["gpu-a"]):
        seen = only_job(host)
        assert (seen["state"], seen["host"]) == ("running", "gpu-b")
    assert "killed" in only_job(lab.head)["reason"]
    gate.open()
    assert wait.wait(LIMIT) == 7
    assert (only_job(lab.head)["state"], only_job(lab.head)["exit_code"]) == ("ended", 7)


def test_a_waiting_job_whose_process_was_killed_has_ended(lab):
    held = [hold(lab, "gpu-a", 1)]
    job = submit(lab.head, "--host", "gpu-a", "--", "true")
    os.kill(berth_process(lab.head, job), signal.SIGKILL)
    assert wait_for_state(lab.head, job, "ended")["result"] == "unknown"
    assert lab.head.run(BERTH, "wait", job).returncode == 70
    process = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "true")
    wait_until(lambda: len(jobs(lab.head)) == 3, "it waits")
    os.kill(child_of(process.pid), signal.SIGKILL)
    process.wait(LIMIT)
    wait_until(lambda: len(jobs(lab.head)) == 2, "a ticket without its process is not listed")
    held[0].stdin.close()


def put_lease(server, host, lease, **changes):
    """A record in Redis that some client of it has written."""
    with server.redis.client() as client:
        key = f"{server.prefix}:{host}"
        [record, *_] = client.hvals(f"{key}:leases")
        record = {**json.loads(record), "id": lease, **changes}
        client.hset(f"{key}:leases", lease, json.dumps(record))
        client.hset(f"{key}:beats", lease, int(client.time()[0] * 1000) + 3600_000)


def test_other_users_on_other_hosts(lab, server, open_build):
    gate = Gate(lab)
    own = submit(lab.hosts["gpu-b"], "--", *script(gate))
    wait_for_log(lab.hosts["gpu-b"], own, "started")
    put_lease(server, "gpu-b", "aaaaaaaa", uid=65534, label="\x1b[31mred", command="x\x1b]0;y\x07")
    assert [job["id"] for job in jobs(lab.head)] == [own]
    assert sorted(job["id"] for job in jobs(lab.head, "--all")) == sorted([own, "aaaaaaaa"])
    text = lab.head.run(BERTH, "jobs", "--all").stdout
    assert_fit_for_terminal(text)
    assert "nobody" in text or "65534" in text
    assert lab.head.run(BERTH, "wait", "aaaaaaaa").returncode == 77
    home = lab.folder / "other"
    home.mkdir()
    home.chmod(0o777)
    for words in (["wait", own], ["cancel", own]):
        result = lab.head.run("setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", open_build / "bin/berth", *words, env={"HOME": str(home)})
        assert_one_line_error(result, 77, own, "root")
    assert only_job(lab.hosts["gpu-b"])["state"] == "running"
    gate.open()


@pytest.mark.parametrize("name", ["x;touch pwned", "-oProxyCommand=touch pwned", "$(touch pwned)", "a b", "\x1b[2J", "head\n"])
def test_a_hostile_host_name_is_not_connected_to(lab, server, name):
    gate = Gate(lab)
    own = submit(lab.hosts["gpu-b"], "--", *script(gate))
    wait_for_log(lab.hosts["gpu-b"], own, "started")
    put_lease(server, "gpu-b", "aaaaaaaa", job_id="bbbbbbbb", job_host=name)
    result = lab.head.run(BERTH, "logs", "bbbbbbbb")
    assert result.returncode == 64 and not (lab.folder / "pwned").exists()
    assert_fit_for_terminal(result.stderr)
    gate.open()


def test_a_record_of_another_host_cannot_divert_what_is_here(lab, server):
    gate, other = Gate(lab), Gate(lab, "other")
    host = lab.hosts["gpu-a"]
    job = submit(host, "--", *script(gate))
    wait_for_log(host, job, "started")
    victim = submit(lab.hosts["gpu-b"], "--", *script(other))
    wait_for_log(lab.hosts["gpu-b"], victim, "started")
    put_lease(server, "gpu-b", victim, job_id=job)
    put_lease(server, "gpu-b", "aaaaaaaa", job_id=job)
    assert [one["id"] for one in jobs(host)].count(job) >= 1
    [own] = [one for one in jobs(host) if one["id"] == job and one["host"] == "gpu-a"]
    assert own["state"] == "running" and own["leases"] == [job]
    result = host.run(BERTH, "cancel", job)
    assert (result.returncode, result.stdout) == (0, f"job {job} has ended\n"), result
    assert leases(lab, "gpu-a") == [] and leases(lab, "gpu-b") == [victim]
    # The other host decides by its own files what a name means.
    result = lab.head.run(BERTH, "cancel", "--label", "no such label")
    assert result.returncode == 0 and leases(lab, "gpu-b") == [victim]
    other.open()


def put_ticket(server, host, ticket, **changes):
    with server.redis.client() as client:
        key = f"{server.prefix}:{host}"
        record = json.loads(client.hvals(f"{server.prefix}:gpu-b:leases")[0])
        del record["gpus"], record["granted_ms"]
        client.hset(f"{key}:tickets", ticket, json.dumps({**record, "id": ticket, "state": "waiting", **changes}))
        client.zadd(f"{key}:queue", {ticket: 1})
        client.hset(f"{key}:beats", ticket, int(client.time()[0] * 1000) + 3600_000)


@pytest.mark.parametrize("words", [["--label", "sweep"], ["--mine", "--waiting"], ["aaaaaaaa"]])
def test_a_forged_ticket_ends_no_other_job(lab, server, words):
    """With the id of a job that runs: the ticket seems to have been granted."""
    gate = Gate(lab)
    job = submit(lab.hosts["gpu-b"], "--", *script(gate))
    wait_for_log(lab.hosts["gpu-b"], job, "started")
    put_ticket(server, "gpu-a", job, label="sweep", job_id="aaaaaaaa")
    result = lab.head.run(BERTH, "cancel", *words)
    assert leases(lab, "gpu-b") == [job], result
    gate.open()
    assert lab.hosts["gpu-b"].run(BERTH, "wait", job).returncode == 0


def test_a_forged_lease_keeps_no_job_of_this_host_from_its_end(lab, server):
    """As if the job ran on another host: the files of this host say that it runs here."""
    gate, other = Gate(lab), Gate(lab, "other")
    host = lab.hosts["gpu-a"]
    held = hold(lab, "gpu-b", 2)
    job = submit(host, "--host", "gpu-a,gpu-b", "--", *script(gate))
    wait_for_log(host, job, "started")
    held.stdin.close()
    kept = submit(lab.hosts["gpu-b"], "--", *script(other))
    wait_for_log(lab.hosts["gpu-b"], kept, "started")
    put_lease(server, "gpu-b", "aaaaaaaa", job_id=job, label="sweep")
    assert host.run(BERTH, "cancel", "--mine").returncode == 0
    assert leases(lab, "gpu-a") == []
    assert host.run(BERTH, "wait", job).returncode == 143


def test_redis_is_away_for_a_while(lab, server):
    """A wait for a job on another host goes on."""
    gate = Gate(lab)
    job = submit(lab.hosts["gpu-b"], "--", *script(gate, 9))
    wait_for_log(lab.hosts["gpu-b"], job, "started")
    with contextlib.closing(Proxy(str(server.redis.socket), lab.folder / "proxy")) as proxy:
        away = {"BERTH_URL": lab.common["BERTH_URL"].replace(str(server.redis.socket), str(proxy.path))}
        wait = lab.head.start(BERTH, "wait", job, env=away)
        wait_until(lambda: proxy.count > 100, "it has found the job, and asks again")
        proxy.refuse()
        proxy.cut()
        assert lab.head.run(BERTH, "jobs", env=away).returncode == 74
        slept = sleeps(child_of(wait.pid))
        wait_until(lambda: wait.poll() is not None or sleeps(child_of(wait.pid)) > slept + 5, "it has asked in vain")
        assert wait.poll() is None
        proxy.allow()
        gate.open()
        assert wait.wait(LIMIT) == 9


def sleeps(pid):
    """How often the process has waited."""
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", open(f"/proc/{pid}/status").read(), re.MULTILINE)[1])
