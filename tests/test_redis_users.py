"""Who a lease in Redis belongs to: other hosts have nothing but the record, so its uid is the one of the host."""

import json
import socket

import pytest
from leasing import eventually, jobs, ready  # noqa: F401
from redis_server import tickets_of

pytestmark = pytest.mark.needs_root

ALICE = ["setpriv", "--reuid=2001", "--regid=2001", "--clear-groups"]
# Namespaces in which Alice has another uid than on the host, and one in which she keeps hers.
NAMESPACES = {"root": ["unshare", "--user", "--map-root-user"], "another": ["unshare", "--user", "--map-user=77"],
              "the same": ["unshare", "--user", "--map-user=2001"]}


@pytest.fixture
def harbour():
    return "redis"


@pytest.mark.parametrize("namespace", NAMESPACES.values(), ids=NAMESPACES)
def test_the_uid_of_a_record_is_that_of_the_host(server, jobs, open_build, namespace):  # noqa: F811
    server.use("1x24GiB")
    berth = open_build / "bin" / "berth"
    script = 'echo "$BERTH_LEASE"; echo ready; read -r line'
    holder = jobs.start(*ALICE, *namespace, berth, "run", "--", "sh", "-c", script)
    [lease] = ready(holder)
    with server.redis.client() as client:
        record = json.loads(client.hget(f"{server.prefix}:{socket.gethostname()}:leases", lease))
    assert record["uid"] == 2001
    jobs.wait(command=["true"], prefix=[*ALICE, *namespace], program=berth)
    [ticket] = tickets_of(server.env["BERTH_URL"])
    assert json.loads(ticket)["uid"] == 2001
    # Inside and outside, here and on another host, they are hers.
    elsewhere = {"BERTH_HOST": "other", "BERTH_DIR": str(server.folder / "other"), "BERTH_SIM_STATE": str(server.folder / "o")}
    (server.folder / "other").mkdir()
    (server.folder / "other").chmod(0o1777)
    here = json.loads(server.berth("status", "--json").stdout)
    assert [(one["id"], one["user"]) for one in here["gpus"][0]["leases"]] == [(lease, "2001")]
    [host] = [one for one in json.loads(server.berth("status", "--all", "--json", env=elsewhere).stdout)["hosts"]
              if one["host"] != "other"]
    assert [one["user"] for one in host["gpus"][0]["leases"]] == ["2001"] and host["queue"][0]["user"] == "2001"
    for env in ({}, elsewhere):
        # Elsewhere it is known as soon as its host has written that it began, after a second.
        text = eventually(lambda env=env: server.berth("log", "--json", env=env).stdout, "a line of history")
        [one] = map(json.loads, text.splitlines())
        assert (one["lease"], one["ending"]) == (lease, "running")
    assert server.run(*ALICE, *namespace, berth, "cancel", host["queue"][0]["ticket"]).returncode == 0


def test_extend_makes_no_file_for_a_lease_of_another_directory(server, jobs):  # noqa: F811
    """Such a lease belongs to a container, or any client of Redis has written it."""
    [lease] = ready(jobs.start("berth", "run", "--time", "1h", "--", "sh", "-c", 'echo "$BERTH_LEASE"; echo ready; read -r line'))
    container = server.folder / "container"
    container.mkdir()
    container.chmod(0o1777)
    env = {"BERTH_DIR": str(container)}
    assert lease in server.berth("status", "--json", env=env).stdout, "it is a lease of this host"
    result = server.berth("extend", lease, "1h", env=env)
    assert result.returncode == 64 and lease in result.stderr and result.stderr.count("\n") == 1
    assert list(container.glob(f"*{lease}*")) == []
    assert server.berth("extend", lease, "1h").returncode == 0
