"""--json of the commands that change something, and of berth wait: what programs read (docs/json.md)."""

import json

import pytest
from conftest import BERTH
from leasing import NOBODY, jobs  # noqa: F401

STAY = ["sleep", "1000"]


def run_json(server, *words, code=0):
    result = server.berth(*words, "--json")
    assert result.returncode == code, result.stderr
    assert result.stdout.isascii()
    return json.loads(result.stdout)


def detach(server, *command):
    result = server.berth("run", "-d", "--label", "ü\x1b", "--", *command)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_wait(server):
    good, bad = detach(server, "true"), detach(server, "sh", "-c", "exit 3")
    assert run_json(server, "wait", good, bad, code=3) == {"jobs": [
        {"id": good, "result": "succeeded", "exit_code": 0, "reason": None}, {"id": bad, "result": "failed", "exit_code": 3, "reason": None}]}
    assert [job["id"] for job in run_json(server, "wait", "--any", bad, good, code=3)["jobs"]] == [bad]


def test_wait_for_a_job_that_was_refused(server, jobs):  # noqa: F811
    jobs.hold("-n", "4")
    first = server.berth("run", "-d", "--timeout", "10ms", "--", "true").stdout.strip()
    [job] = run_json(server, "wait", first, code=75)["jobs"]
    assert (job["result"], job["exit_code"]) == ("failed", 75) and "10ms" in job["reason"]


def test_wait_fails_without_json(server):
    """An error of the command itself is text on stderr."""
    job = detach(server, *STAY)
    for words, code in ((["--timeout", "0s", job], 75), (["abcdefgh"], 64), ([], 64)):
        result = server.berth("wait", "--json", *words)
        assert (result.returncode, result.stdout) == (code, "") and result.stderr.startswith("berth: ")
    assert server.berth("cancel", job).returncode == 0


def test_cancel(server, jobs):  # noqa: F811
    jobs.hold("-n", "4")
    waiting = detach(server, *STAY)
    running = server.status()["gpus"][0]["leases"][0]["id"]
    assert [(job["id"], job["result"]) for job in run_json(server, "cancel", waiting)["jobs"]] == [(waiting, "cancelled")]
    [ended] = run_json(server, "cancel", running)["jobs"]
    assert (ended["id"], ended["result"]) == (running, "ended") and running in ended["text"]
    server.berth("wait", waiting)  # its process takes a moment to notice
    assert run_json(server, "cancel", "--all") == {"jobs": []}


def test_cancel_of_a_job_that_ignores_sigterm(server, jobs):  # noqa: F811
    jobs.hold(command=["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    running = server.status()["gpus"][0]["leases"][0]["id"]
    assert [job["result"] for job in run_json(server, "cancel", "--grace", "10ms", running)["jobs"]] == ["killed"]


def test_extend(server, jobs):  # noqa: F811
    jobs.hold("--time", "1h")
    lease = server.status()["gpus"][0]["leases"][0]
    assert run_json(server, "extend", lease["id"], "1h") == {"id": lease["id"], "ends": server.status()["gpus"][0]["leases"][0]["ends"]}


def test_release(server):
    script = f'eval "$({BERTH} acquire)"; echo "$BERTH_LEASE"; {BERTH} release --json; {BERTH} release --all --json'
    result = server.run("sh", "-c", script)
    lease, _, rest = result.stdout.partition("\n")
    decoder = json.JSONDecoder()
    first, end = decoder.raw_decode(rest)
    assert (first, json.loads(rest[end:])) == ({"leases": [lease]}, {"leases": []}), result


def test_drain_and_undrain(server, jobs):  # noqa: F811
    jobs.hold("--gpu", "1")
    lease = server.status()["gpus"][1]["leases"][0]
    zero, one = (gpu["uuid"] for gpu in server.status()["gpus"][:2])
    assert run_json(server, "drain", "0-1") == {"gpus": [
        {"index": 0, "uuid": zero, "leases": []}, {"index": 1, "uuid": one, "leases": [{"id": lease["id"], "user": lease["user"]}]}]}
    assert run_json(server, "undrain", "0", "2")["gpus"][0] == {"index": 0, "uuid": zero, "was_drained": True}
    assert [(gpu["index"], gpu["was_drained"]) for gpu in run_json(server, "undrain", "--all")["gpus"]] == [(1, True)]
    assert run_json(server, "undrain", "--all") == {"gpus": []}


@pytest.mark.needs_root
def test_a_refusal_prints_no_json(server, jobs):  # noqa: F811
    jobs.hold()
    lease = server.status()["gpus"][0]["leases"][0]["id"]
    for command in (["cancel", lease], ["extend", lease, "1h"], ["release", lease], ["wait", lease]):
        result = server.run(*NOBODY, BERTH, *command, "--json")
        assert (result.returncode, result.stdout) == (77, ""), (command, result)
