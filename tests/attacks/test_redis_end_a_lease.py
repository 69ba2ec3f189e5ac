"""The attacker knows the URL of the Redis harbour (every user of berth does) and wants a GPU that Alice holds.

They tried, by plain commands to Redis: the key that once told a lease to end; removing the lease, its beat and its
host; another owner in its record; a record of an outer lease, which would make Alice's lease a part of it that takes up
nothing; `berth release` on another host and in a container. None of it ends Alice's lease or lets Bob have her GPU:
on its own host a lease is what its file and its bell say, and only Alice and root can mark that file as ended.
"""

import json
import os
import socket

import pytest
from conftest import assert_one_line_error
from hostile import ALICE, BOB, MALLORY
from leasing import eventually, is_alive, jobs, only_keeper, ready  # noqa: F401

pytestmark = pytest.mark.needs_root

HOST = socket.gethostname()
ACQUIRE = 'eval "$(berth acquire --gpu 0)" && echo "$BERTH_LEASE" && echo ready && read -r line'


@pytest.fixture
def harbour():
    return "redis"


class Attack:
    """A server with two GPUs. Alice has the first; Bob, who is honest, asks for it; Mallory talks to Redis."""

    def __init__(self, server, build, jobs):
        self.server, self.jobs = server.use("2x24GiB"), jobs
        self.berth = build / "bin" / "berth"
        server.env["PATH"] = f"{build / 'bin'}:{server.env['PATH']}"
        server.env["BERTH_URL"] += "&ttl=3s"  # so that a lease beats every second
        self.redis = server.redis.client()
        assert self.run(ALICE, "status").returncode == 0
        self.uuid = json.loads(self.run(ALICE, "status", "--json").stdout)["gpus"][0]["uuid"]

    def prefix(self, uid):
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]

    def run(self, uid, *words, **options):
        return self.server.run(*self.prefix(uid), self.berth, *words, **options)

    def shell(self, uid, script, **options):
        """A shell that runs the script, and what it has printed before `ready`."""
        job = self.jobs.start(*self.prefix(uid), "sh", "-c", script, **options)
        return job, ready(job)

    def key(self, name):
        return f"{self.server.prefix}:{HOST}:{name}"

    def record(self, lease):
        return json.loads(self.redis.hget(self.key("leases"), lease))

    def leases(self, index=0):
        status = json.loads(self.run(BOB, "status", "--json").stdout)
        return {lease["id"]: lease["user"] for lease in status["gpus"][index]["leases"]}

    def bob_gets(self, *flags):
        """What Bob is told when he asks for Alice's GPU: 0, or 75."""
        return self.run(BOB, "run", "--no-wait", *(flags or ["--gpu", "0"]), "--", "true").returncode

    def beats(self, lease):
        return int(self.redis.hget(self.key("beats"), lease) or 0)

    def has_beaten_twice(self, lease):
        """The holder has asked Redis since: what is written there has reached it."""
        for _ in range(2):
            last = self.beats(lease)
            eventually(lambda: self.beats(lease) > last, "a beat")


@pytest.fixture
def attack(server, open_build, jobs):  # noqa: F811
    one = Attack(server, open_build, jobs)
    yield one
    one.redis.close()


def tell_to_end(attack, lease):
    attack.redis.set(f"{attack.server.prefix}:ended:{lease}", "1")
    attack.redis.lpush(f"{attack.server.prefix}:ring:{lease}", "x")


def test_the_key_that_ends_tickets_ends_no_lease_of_a_shell(attack, server):
    shell, [lease] = attack.shell(ALICE, ACQUIRE)
    keeper = only_keeper(server)
    tell_to_end(attack, lease)
    attack.has_beaten_twice(lease)
    assert is_alive(keeper) and shell.runs
    assert attack.leases() == {lease: str(ALICE)} and attack.bob_gets() == 75


def test_nor_does_it_end_the_heartbeat_of_a_job_whose_berth_was_killed(attack):
    script = 'echo "$BERTH_LEASE"; echo ready; read -r line'
    job = attack.jobs.start(*attack.prefix(ALICE), attack.berth, "run", "--gpu", "0", "--", "sh", "-c", script)
    [lease] = ready(job)
    attack.has_beaten_twice(lease)  # by then the process that goes on with the heartbeat is there
    os.kill(job.pid, 9)
    tell_to_end(attack, lease)
    attack.has_beaten_twice(lease)
    assert attack.record(lease)["gpus"] == [attack.uuid] and attack.bob_gets() == 75


@pytest.mark.parametrize("what", ["lease", "beat", "all"])
def test_what_is_removed_from_redis_is_put_back(attack, what):
    _, [lease] = attack.shell(ALICE, ACQUIRE)
    if what == "all":
        attack.redis.delete(*attack.redis.keys(f"{attack.server.prefix}:{HOST}:*"))
    else:
        attack.redis.hdel(attack.key("leases" if what == "lease" else "beats"), lease)
    assert attack.bob_gets() == 75
    eventually(lambda: attack.redis.hexists(attack.key("leases"), lease), "it is put back")
    attack.has_beaten_twice(lease)
    assert attack.leases() == {lease: str(ALICE)} and attack.bob_gets() == 75


@pytest.mark.parametrize("change", [{"uid": MALLORY}, {"uid": MALLORY, "witness": "elsewhere"}, {"gpus": ["GPU-x"]},
                                    {"within": "aaaaaaaa"}, {"version": 99}, {"holder": "shell", "uid": BOB}])
def test_a_forged_record_changes_neither_owner_nor_gpus(attack, change):
    _, [lease] = attack.shell(ALICE, ACQUIRE)
    attack.redis.hset(attack.key("leases"), lease, json.dumps(attack.record(lease) | change))
    assert attack.leases() == {lease: str(ALICE)} and attack.bob_gets() == 75
    assert_one_line_error(attack.run(MALLORY, "release", lease), 77, lease, str(ALICE))
    assert attack.leases() == {lease: str(ALICE)}
    # Alice herself can, and so the GPU is free.
    assert attack.run(ALICE, "release", lease).returncode == 0
    assert attack.leases() == {} and attack.bob_gets() == 0


def inner_lease(attack):
    """Alice's job inside a lease of her shell, which she has given back: the job's lease holds the GPU alone."""
    script = f'{ACQUIRE.rsplit(" && ", 2)[0]} && (berth run -- sh -c \'echo "$BERTH_LEASE"; echo ready; read -r x\')'
    job, [outer, inner] = attack.shell(ALICE, script)
    return job, outer, inner


def forge_outer(attack, inner, outer, **changes):
    record = attack.record(inner) | {"id": outer, "within": "", "epoch": 1, "holder": "job"} | changes
    attack.redis.hset(attack.key("leases"), outer, json.dumps(record))
    attack.redis.hset(attack.key("beats"), outer, "9" * 14)


FORGED = {"another GPU": {"gpus": ["GPU-elsewhere"]}, "another user": {"uid": MALLORY}, "no memory": {},
          "a little memory": {"request": {"count": 1, "memory_bytes": 1}},
          "another GPU, a container": {"gpus": ["GPU-elsewhere"], "witness": "elsewhere"},
          "a container": {"witness": "elsewhere", "uid": ALICE}}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("planted", [False, True], ids=["no files", "planted files"])
def test_a_forged_outer_lease_hides_no_inner_one(attack, server, changes, planted):
    """With the id of an outer lease that has ended, in Redis alone or with files of Mallory's beside it."""
    _, outer, inner = inner_lease(attack)
    assert attack.run(ALICE, "release", outer).returncode == 0
    eventually(lambda: not os.path.exists(server.harbour / f"bell-{outer}"), "its keeper has gone")
    assert attack.leases() == {inner: str(ALICE)}
    bell = None
    if planted:
        bell = plant(attack, server.harbour, outer)
    forge_outer(attack, inner, outer, **changes)
    try:
        assert attack.leases().get(inner) == str(ALICE)
        assert attack.bob_gets() == 75 and attack.bob_gets("--gpu", "0", "--mem", "1GiB") == 75
    finally:
        if bell is not None:
            os.close(bell)


def plant(attack, folder, lease):
    """A file of the lease's name, and a bell that lives, both Mallory's."""
    (folder / f"lease-{lease}").write_text("{}")
    os.chown(folder / f"lease-{lease}", MALLORY, MALLORY)
    bell = folder / f"bell-{lease}"
    os.mkfifo(bell, 0o622)
    bell.chmod(0o622)
    os.chown(bell, MALLORY, MALLORY)
    return os.open(bell, os.O_RDWR | os.O_NONBLOCK)


def test_an_inner_lease_stays_part_of_its_outer_one(attack):
    """Whatever Redis says of the outer one: else its GPUs would be counted twice."""
    _, outer, inner = inner_lease(attack)
    assert attack.leases() == {outer: str(ALICE)}
    for changes in ({"gpus": ["GPU-elsewhere"]}, {"uid": MALLORY}, {"witness": "elsewhere"}):
        forge_outer(attack, inner, outer, **changes)
        assert attack.leases() == {outer: str(ALICE)} and attack.bob_gets() == 75


def test_a_lease_is_released_on_its_own_host(attack, server):
    _, [lease] = attack.shell(ALICE, ACQUIRE)
    elsewhere = server.folder / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o1777)
    other = {"BERTH_DIR": str(elsewhere), "BERTH_HOST": "other-host", "BERTH_SIM_STATE": str(server.folder / "other.state")}
    container = {"BERTH_DIR": str(elsewhere)}
    for uid in (ALICE, MALLORY, 0):
        assert_one_line_error(attack.run(uid, "release", lease, env=other), 64, f"ssh {HOST} berth release {lease}")
    for uid in (ALICE, 0):
        assert_one_line_error(attack.run(uid, "release", lease, env=container), 64, lease, "container")
    result = attack.run(ALICE, "release", "--all", env=container)
    assert result.returncode == 0 and result.stdout == "", result
    assert attack.leases() == {lease: str(ALICE)} and attack.bob_gets() == 75
    assert attack.run(0, "release", lease).returncode == 0
    assert attack.leases() == {}
