"""berth extend: the announced end of a running job moves, for everybody to see."""

import datetime
import json

import pytest
from conftest import BERTH, assert_one_line_error
from leasing import jobs  # noqa: F401
from processes import ALICE
from test_commands import users  # noqa: F401


def only_lease(server):
    [lease] = [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]
    return lease


def seconds_left(server):
    end = only_lease(server)["ends"]
    return None if end is None else (datetime.datetime.fromisoformat(end.replace("Z", "+00:00"))
                                     - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


@pytest.mark.each_harbour
def test_the_end_moves_and_waiting_jobs_follow(server, jobs):  # noqa: F811
    server.use("1x24GiB")
    jobs.hold("--time", "1h")
    jobs.wait()
    lease = only_lease(server)
    result = server.berth("extend", lease["id"], "2h")
    assert (result.returncode, result.stderr) == (0, "") and lease["id"] in result.stdout
    assert 3 * 3600 - 120 < seconds_left(server) < 3 * 3600 + 5
    [ticket] = json.loads(server.berth("queue", "--json").stdout)["queue"]
    assert ticket["starts"] == only_lease(server)["ends"]
    assert server.berth("extend", lease["id"], "1h").returncode == 0
    assert seconds_left(server) > 4 * 3600 - 120, "each time further"


@pytest.mark.each_harbour
def test_it_announces_an_end_and_the_lease_stays(server, jobs):  # noqa: F811
    job = jobs.hold()
    assert seconds_left(server) is None
    assert server.berth("extend", only_lease(server)["id"], "90s").returncode == 0
    assert 30 < seconds_left(server) <= 91
    assert job.end() == 0
    assert [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]] == []


def test_a_shells_lease_can_be_extended_and_released(server, jobs):  # noqa: F811
    shell = jobs.start("bash", "-c", f'eval "$({BERTH} acquire --time 1h)"; echo $BERTH_LEASE; read -r line')
    lease = shell.gpus()
    assert server.berth("extend", lease, "1h").returncode == 0
    assert seconds_left(server) > 2 * 3600 - 120
    assert server.berth("release", lease).returncode == 0
    assert server.status()["gpus"][0]["leases"] == []
    assert_one_line_error(server.berth("extend", lease, "1h"), 64, lease)


@pytest.mark.parametrize("arguments", [[], ["k3f9a2mx"], ["k3f9a2mx", "1h"], ["../x", "1h"], ["k3f9a2mx", "soon"], ["k3f9a2mx", "0s"],
                                       ["k3f9a2mx", "99999999w"]])
def test_wrong_arguments(server, jobs, arguments):  # noqa: F811
    jobs.hold("--time", "1h")
    before = only_lease(server)["ends"]
    lease = only_lease(server)["id"]
    assert_one_line_error(server.berth("extend", *[lease if word == "k3f9a2mx" and arguments[1:] not in (["1h"], []) else word
                                                   for word in arguments]), 64)
    assert only_lease(server)["ends"] == before


@pytest.mark.needs_root
def test_only_the_owner(server, users, jobs):  # noqa: F811
    jobs.hold("--time", "1h")
    lease = only_lease(server)["id"]
    assert_one_line_error(users.run(ALICE, "extend", lease, "1h"), 77, lease)
    assert 3000 < seconds_left(server) < 3700


def test_killed_at_any_call_the_lease_is_there_with_the_old_end_or_the_new(server, jobs):  # noqa: F811
    jobs.hold("--time", "1h")
    lease = only_lease(server)["id"]
    ends = set()
    for name in ("openat", "write", "renameat", "fchmod", "flock", "unlinkat"):
        for number in range(1, 12):
            code = server.run("strace", "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:signal=SIGKILL:when={number}",
                              BERTH, "extend", lease, "1h").returncode
            assert only_lease(server)["id"] == lease
            ends.add(only_lease(server)["ends"])
            if code == 0:
                break
    assert len(ends) > 1
    assert server.berth("run", "--", "true").returncode == 0, "the harbour works"
