"""`berth status --all` and `berth queue --all`: every host of a shared harbour, as it has told of itself."""

import json
import re
import subprocess

import pytest
from conftest import BERTH, assert_fit_for_terminal, assert_one_line_error, wait_until
from waiting import LIMIT


@pytest.fixture
def harbour():
    return "redis"


class Host:
    def __init__(self, server, name, gpus):
        self.server, self.name = server, name
        folder = server.folder / name
        folder.mkdir()
        folder.chmod(0o1777)
        self.env = {"BERTH_HOST": name, "BERTH_DIR": str(folder), "BERTH_SIM": gpus,
                    "BERTH_SIM_STATE": str(server.folder / f"{name}.state")}

    def berth(self, *words, **options):
        return self.server.berth(*words, env={**self.env, **options.pop("env", {})}, **options)

    def start(self, *words, **options):
        return self.server.start(BERTH, *words, env=self.env, **options)

    def all(self, command="status", **options):
        result = self.berth(command, "--all", "--json", **options)
        assert (result.returncode, result.stderr) == (0, ""), result
        return {host["host"]: host for host in json.loads(result.stdout)["hosts"]}


@pytest.fixture
def hosts(server):
    found = [Host(server, "gpu-a", "2x24GiB"), Host(server, "gpu-b", "1x80GiB")]
    for host in found:
        assert host.berth("status").returncode == 0
    return found


def test_every_host_is_shown(hosts):
    one, other = hosts
    job = other.start("run", "--", "sh", "-c", "echo ready; read x", stdin=subprocess.PIPE)
    assert job.stdout.readline() == "ready\n"
    waits = other.start("run", "--label", "next", "--", "true")
    wait_until(lambda: other.all("queue")["gpu-b"]["queue"], "it waits")
    seen = one.all()
    assert list(seen) == ["gpu-a", "gpu-b"]
    assert [gpu["state"] for gpu in seen["gpu-a"]["gpus"]] == ["free", "free"]
    gpu, = seen["gpu-b"]["gpus"]
    assert gpu["state"] == "leased" and gpu["memory_total_mib"] == 80 * 1024
    assert gpu["leases"][0]["command"].startswith("sh -c")
    assert seen["gpu-b"]["queue"][0]["label"] == "next" and "leased" in seen["gpu-b"]["queue"][0]["reason"]
    assert seen["gpu-a"]["age_s"] == 0 and seen["gpu-b"]["age_s"] >= 0
    assert {name: len(host["queue"]) for name, host in one.all("queue").items()} == {"gpu-a": 0, "gpu-b": 1}
    text = one.berth("status", "--all").stdout
    assert text.startswith("gpu-a - ") and "\n\ngpu-b - " in text and " ago\n" in text
    text = one.berth("queue", "--all").stdout
    assert text.startswith("gpu-b - Queue: 1 waiting") and "\n  1. " in text
    job.stdin.close()
    assert waits.wait(LIMIT) == 0
    wait_until(lambda: one.all()["gpu-b"]["gpus"][0]["state"] == "free", "its lease has ended")


def test_from_a_host_without_gpus(hosts):
    head = {"BERTH_HOST": "head", "BERTH_SIM": None}
    assert list(hosts[0].all(env=head)) == ["gpu-a", "gpu-b"]
    assert [host["queue"] for host in hosts[0].all("queue", env=head).values()] == [[], []]
    assert hosts[0].berth("queue", "--all", env=head).stdout.count("\n") == 1


def test_strangers_and_drains_of_another_host(hosts):
    one, other = hosts
    server = one.server
    stranger = server.start_job("--mem", "3GiB", env={**other.env, "CUDA_VISIBLE_DEVICES": "0"})
    assert other.berth("status").returncode == 0
    gpu, = one.all()["gpu-b"]["gpus"]
    assert gpu["state"] == "stranger" and str(stranger.pid) in gpu["reason"]
    assert [process["pid"] for process in gpu["processes"]] == [stranger.pid]
    assert other.berth("drain", "0", "--reason", "fan\x1b[2J").returncode == 0
    assert one.all()["gpu-b"]["gpus"][0]["state"] == "drained"
    assert_fit_for_terminal(one.berth("status", "--all").stdout)


def test_one_host_alone_is_all_there_is(hosts):
    alone = json.loads(hosts[0].berth("status", "--all", "--json", env={"BERTH_URL": ""}).stdout)
    assert len(alone["hosts"]) == 1 and len(alone["hosts"][0]["gpus"]) == 2


CARDS = {"cut": ("{", "JSON"), "list": ("[]", "JSON"), "later": ('{"version": 99}', "version"),
         "no GPUs": ('{"version": 1, "gpus": 3}', "list"), "huge": ("x" * (10 << 20), "JSON"),
         "no index": ('{"version": 1, "gpus": [{"index": "\\u001b"}]}', "index"), "deep": ("[" * 100000, "JSON")}


@pytest.mark.parametrize("card, words", CARDS.values(), ids=CARDS)
def test_a_card_that_cannot_be_read(hosts, card, words):
    with redis_of(hosts[0]) as client:
        client.hset(f"{prefix_of(hosts[0])}:hosts", "gpu-b", card)
        client.hset(f"{prefix_of(hosts[0])}:hosts", "a\x1bname", "{}")
    host = hosts[0].all()["gpu-b"]
    assert words in host["problem"] and host["gpus"] == []
    text = hosts[0].berth("status", "--all").stdout
    assert re.search(rf"^gpu-b - .*{words}", text, re.MULTILINE)
    assert_fit_for_terminal(text)


def test_a_card_that_says_strange_things(hosts):
    card = {"version": 1, "gpus": [{"index": "0", "health": "fine", "uuid": 3, "memory_total": -1, "utilization_pct": 1e99,
                                    "name": "\x1b]0;x\x07", "processes": [7, {"pid": "x"}, {"uid": -1, "lease": []}]}]}
    with redis_of(hosts[0]) as client:
        client.hset(f"{prefix_of(hosts[0])}:hosts", "gpu-b", json.dumps(card))
    gpu, = hosts[0].all()["gpu-b"]["gpus"]
    assert gpu["state"] == "unknown" and gpu["memory_total_mib"] is None
    assert_fit_for_terminal(hosts[0].berth("status", "--all").stdout)


def test_bad_flags(hosts):
    assert_one_line_error(hosts[0].berth("status", "--all", "--topology"), 64, "--topology")
    assert_one_line_error(hosts[0].berth("status", "--all", env={"BERTH_URL": "redis://127.0.0.1:1"}), 74, "127.0.0.1")


def prefix_of(host):
    return host.server.folder.name


def redis_of(host):
    import redis_server
    return redis_server.shared_server().client()
