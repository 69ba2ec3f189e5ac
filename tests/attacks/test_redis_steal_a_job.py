"""The attacker knows the URL of the Redis harbour, or has root on one of its hosts, and wants Alice's job: its command,
its secrets (environment, BERTH_URL, ssh agent), or to run something as Alice.

They tried: a host of their own among the hosts in Redis, with many free GPUs; a host that answers under another's name
with a key of its own; the forwardings that Alice's ssh configuration has for other purposes; another PID in the
record of Alice's lease, so that her Ctrl-C kills another process of hers; `ps` on Alice's own host.
"""

import json
import os
import subprocess

import pytest
from conftest import BERTH, assert_one_line_error, wait_until
from ssh_lab import Lab
from waiting import LIMIT

pytestmark = pytest.mark.needs_root


@pytest.fixture
def harbour():
    return "redis"


@pytest.fixture
def victim(server):
    """Alice on a host without GPUs. Her ssh writes down how it was called and what it was given, and does no more."""
    tools = server.folder / "tools"
    tools.mkdir()
    log = server.folder / "ssh.log"
    (tools / "ssh").write_text(f'#!/bin/sh\necho "$@" >> {log}\ncat >> {log}\nexit 255\n')
    (tools / "ssh").chmod(0o755)
    server.env |= {"PATH": f"{tools}:{server.env['PATH']}", "BERTH_HOST": "head", "SECRET": "hunter2",
                   "BERTH_SITE_FILE": str(server.folder / "berth.toml")}
    server.sent = lambda: log.read_text() if log.exists() else ""
    server.allow = lambda text: (server.folder / "berth.toml").write_text(text)
    for name in ("gpu-a", "evil"):
        assert server.berth("status", env={"BERTH_HOST": name}).returncode == 0
    del server.env["BERTH_SIM"]
    return server


def run(victim, host):
    return victim.berth("run", "--host", host, "--env", "SECRET", "--no-wait", "--", "train")


def test_any_goes_to_no_host_that_only_redis_names(victim):
    assert_one_line_error(run(victim, "any"), 64, "hosts = [", "berth.toml")
    assert victim.sent() == ""
    victim.allow("hosts = ['gpu-a', 'gpu-b']\n")
    result = run(victim, "any")
    assert result.returncode == 69 and "gpu-a" in result.stderr, result
    assert "gpu-a" in victim.sent() and "hunter2" in victim.sent() and "evil" not in victim.sent()


def test_any_without_a_listed_host_in_redis(victim):
    victim.allow("hosts = ['gpu-b', 'gpu-c']\n")
    assert_one_line_error(run(victim, "any"), 69, "gpu-b, gpu-c")
    victim.allow("hosts = []\n")
    assert run(victim, "any").returncode == 69
    assert victim.sent() == ""


def test_a_name_is_refused_that_is_not_in_the_list(victim):
    victim.allow("hosts = ['gpu-a']\n")
    for hosts in ("evil", "gpu-a,evil"):
        assert_one_line_error(run(victim, hosts), 64, "evil", "berth.toml")
    assert victim.sent() == ""


def test_without_a_list_the_user_may_name_a_host(victim):
    assert run(victim, "gpu-a").returncode == 69  # this ssh fails
    assert "gpu-a" in victim.sent() and "evil" not in victim.sent()


@pytest.mark.parametrize("text", ["hosts = 'any'", "hosts = ['any', 3]", "hosts = ['-oProxyCommand=x y']", "hosts = [['a']]"])
def test_a_list_that_makes_no_sense_allows_nothing(victim, text):
    victim.allow(f"{text}\n")
    assert_one_line_error(run(victim, "any"), 64, "berth.toml", "line 1", "hosts")
    assert victim.sent() == ""


@pytest.fixture
def lab(server):
    one = Lab(server, {"gpu-a": "1x24GiB"})
    yield one
    one.stop()


def configure(lab, text):
    config = lab.head.home / ".ssh" / "config"
    config.write_text(text + config.read_text())


def test_a_host_with_another_key_gets_nothing(lab):
    """Also where the user's configuration would accept it, and where its key is not known at all."""
    configure(lab, "StrictHostKeyChecking no\n")
    known = lab.folder / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", lab.key("other")], check=True)
    key = (lab.folder / "other.pub").read_text()
    for text in (f"gpu-a {key}", ""):
        known.write_text(text)
        result = lab.head.run(BERTH, "run", "--host", "gpu-a", "--", "touch", lab.folder / "ran")
        assert result.returncode == 69 and "gpu-a" in result.stderr and "ey" in result.stderr, result
        assert "@@@" not in result.stderr
    assert not (lab.folder / "ran").exists() and known.read_text() == ""
    assert "Accepted" not in (lab.hosts["gpu-a"].folder / "sshd.log").read_text()


def test_nothing_is_forwarded_whatever_the_configuration_says(lab):
    ran = lab.folder / "local-command-ran"
    agent = lab.head.start("ssh-agent", "-D", "-a", lab.folder / "agent.sock")
    wait_until(lambda: (lab.folder / "agent.sock").exists(), "the agent")
    environment = {"SSH_AUTH_SOCK": str(lab.folder / "agent.sock"), "DISPLAY": ":7"}
    configure(lab, f"ForwardAgent yes\nForwardX11 yes\nForwardX11Trusted yes\nPermitLocalCommand yes\nLocalCommand touch {ran}\n"
                   "RemoteForward 7777 localhost:22\nRemoteCommand false\nRequestTTY force\n")
    show = 'echo "<$SSH_AUTH_SOCK><$DISPLAY>"; ss -ltn | grep -c 7777; test -t 1 && echo at a terminal; exit 7'
    result = lab.head.run(BERTH, "run", "--host", "gpu-a", "--", "sh", "-c", show, env=environment)
    assert (result.returncode, result.stdout) == (7, "<><>\n0\n"), result
    assert not ran.exists()
    agent.kill()


def test_a_signal_reaches_the_job_and_no_process_that_redis_names(lab, server):
    host = lab.hosts["gpu-a"]
    other = host.start("sleep", "1000")
    wait_until(lambda: child(other.pid), "sleep runs")
    job = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "sh", "-c", "echo ready; sleep 1000; true")
    assert job.stdout.readline() == "ready\n"
    key = f"{server.prefix}:gpu-a:leases"
    with server.redis.client() as client:
        [(lease, record)] = client.hgetall(key).items()
        client.hset(key, lease, json.dumps(json.loads(record) | {"pid": child(other.pid)}))
    os.kill(child(job.pid) or job.pid, 2)
    assert job.wait(LIMIT) != 0
    assert other.poll() is None
    wait_until(lambda: b'"leases": [{' not in host.run(BERTH, "status", "--json").stdout.encode(), "the lease has ended")


def child(pid):
    """nsenter runs a program in its own place or as its child."""
    words = open(f"/proc/{pid}/cmdline").read().split("\0")
    if words[0] != "nsenter":
        return pid
    children = subprocess.run(["pgrep", "-P", str(pid)], text=True, capture_output=True).stdout.split()
    return int(children[0]) if children else None


def test_no_value_of_env_stands_in_ps(lab):
    """Neither here, where --env NAME=VALUE is an argument of berth, nor on the other host."""
    for form in (["--env", "TOKEN=s3cr3t"], ["--env=TOKEN=s3cr3t"], ["--env", "TOKEN"]):
        job = lab.head.start(BERTH, "run", "--host", "gpu-a", *form, "--", "sh", "-c", 'echo "$TOKEN"; read x',
                             env={"TOKEN": "s3cr3t"}, stdin=subprocess.PIPE)
        assert job.stdout.readline() == "s3cr3t\n"
        lines = subprocess.run(["ps", "-eww", "-o", "args"], text=True, capture_output=True, check=True).stdout
        mine = [line for line in lines.splitlines() if "nsenter" not in line]  # which the test itself has called
        assert not any("s3cr3t" in line for line in mine) and lab.common["BERTH_URL"] not in lines
        job.stdin.close()
        assert job.wait(LIMIT) in (0, 1)
