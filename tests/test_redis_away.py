"""A Redis server that goes away, and comes back with what it had, with less, or with something old.

Running jobs go on and keep their GPUs, whoever comes meanwhile waits and says why, and afterwards all is as it was.
"""

import os
import re
import signal
import subprocess
import time

import pytest
import redis
from conftest import wait_until
from leasing import eventually
from redis_lanes import Lane, assert_lines, same_host_elsewhere, using
from redis_server import RedisServer, free_port
from waiting import LIMIT

pytestmark = pytest.mark.release_only  # what the server does; test_redis_faults.py does harm to every build

HARBOUR_FAILS, NOT_GRANTED = 74, 75
GRACE_S = 5  # kSilenceGrace
SILENT_S = 1 + GRACE_S  # what was not heard of for so long, with a TTL of 1 s, counts as gone


@pytest.fixture
def own_redis(open_folder):
    folder = open_folder / "redis"
    folder.mkdir()
    server = RedisServer(folder)
    yield server
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGCONT)
    server.kill()


@pytest.fixture
def lane(open_folder, own_redis):
    one = Lane(open_folder / "lane", own_redis, gpus=2, ttl="3s")
    yield one
    if own_redis.process.poll() is None:
        own_redis.process.send_signal(signal.SIGCONT)
    one.stop()


class Away:
    """How a server goes away, and how it comes back."""

    answers = False  # meanwhile

    def __init__(self, lane):
        self.lane = lane
        self.redis = lane.redis

    def prepare(self):
        """Before anybody is there."""

    def go(self):
        pass

    def come_back(self):
        pass


class WithoutData(Away):
    def go(self):
        self.redis.kill()

    def come_back(self):
        self.redis.start()


class WithData(WithoutData):
    def go(self):
        self.redis.cli("save")
        self.redis.kill()


class WithOldData(WithoutData):
    def prepare(self):
        self.redis.cli("set", "something", "old")
        self.redis.cli("save")


class Flushed(Away):
    answers = True

    def go(self):
        self.redis.cli("flushall")


class ClientsKilled(Away):
    answers = True

    def go(self):
        for _ in range(3):
            self.redis.cli("client", "kill", "type", "normal", "skipme", "yes")


class Stopped(Away):
    def go(self):
        self.redis.process.send_signal(signal.SIGSTOP)

    def come_back(self):
        self.redis.process.send_signal(signal.SIGCONT)


class OutOfMemory(Away):
    def go(self):
        self.redis.cli("config", "set", "maxmemory-policy", "noeviction")
        self.redis.cli("config", "set", "maxmemory", "1")

    def come_back(self):
        self.redis.cli("config", "set", "maxmemory", "0")


class ReadOnly(Away):
    def go(self):
        self.redis.cli("replicaof", "127.0.0.1", str(free_port()))

    def come_back(self):
        self.redis.cli("replicaof", "no", "one")


class Full(Away):
    """As many clients as it takes."""

    def go(self):
        self.one = self.redis.client()
        self.one.config_set("maxclients", 1)
        self.one.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def come_back(self):
        self.one.config_set("maxclients", 1000)
        self.one.close()


class CannotSave(Away):
    def go(self):
        (self.redis.folder / "dump.rdb").mkdir()  # where its data should be
        self.redis.cli("config", "set", "save", "1 1")
        self.redis.cli("set", "something", "new")
        self.redis.cli("bgsave")
        wait_until(lambda: "MISCONF" in self.redis.cli("set", "something", "newer", check=False).stdout, "it stops")

    def come_back(self):
        self.redis.cli("config", "set", "save", "")


def meanwhile(lane, away):
    """Whoever comes while nobody answers: a patient one, who is returned, and others."""
    patient = lane.run()
    eventually(lambda: "berth: " in patient.err, "it says why it waits")
    impatient = lane.berth("run", "--no-wait", "--", *using())
    assert impatient.returncode in ((NOT_GRANTED,) if away.answers else (HARBOUR_FAILS, NOT_GRANTED)), impatient
    assert impatient.stderr.count("\n") == 1 and impatient.stdout == "", impatient
    assert_lines(impatient.stderr)
    hasty = lane.berth("run", "--timeout", "1s", "--", *using())
    assert hasty.returncode == NOT_GRANTED and hasty.stdout == "", hasty
    assert re.search(r"\b1s\b", hasty.stderr.splitlines()[-1])
    assert_lines(hasty.stderr)
    assert patient.runs and not patient.out
    return patient


LOSING = [WithoutData, WithOldData, Flushed]
KEEPING = [WithData, ClientsKilled, OutOfMemory, ReadOnly, Full, CannotSave]
LONG_STOPPED = pytest.param(Stopped, marks=pytest.mark.all_redis_faults)  # everybody waits for its answers


@pytest.mark.parametrize("kind", LOSING)
def test_leases_that_live_are_there_again(lane, kind):
    away = kind(lane)
    away.prepare()
    holders = [lane.hold(), lane.hold()]
    ids = sorted(lane.leases())
    away.go()
    assert lane.leases() == {} if away.answers else lane.redis.process.poll() is not None
    away.come_back()
    eventually(lambda: sorted(lane.leases()) == ids, lambda: f"its leases are in Redis again: {lane.left()}")
    assert lane.leased() == ids
    assert lane.berth("run", "--no-wait", "--", *using()).returncode == NOT_GRANTED
    assert [holder.end() for holder in holders] == [0, 0]
    lane.assert_all_free()


@pytest.mark.parametrize("kind", [*KEEPING, LONG_STOPPED, *LOSING])
def test_what_lives_is_there_again(lane, kind):
    away = kind(lane)
    away.prepare()
    holders = [lane.hold(), lane.hold()]
    waiters = [lane.wait(), lane.wait()]
    ids, order = sorted(lane.leases()), lane.tickets()
    away.go()
    patient = meanwhile(lane, away)
    assert all(job.runs for job in holders + waiters)
    away.come_back()
    eventually(lambda: sorted(lane.leases()) == ids, lambda: f"its leases are in Redis again: {lane.left()}")
    eventually(lambda: lane.tickets()[:2] == order and len(lane.tickets()) == 3, lambda: (order, lane.left()))
    assert lane.leased() == ids
    # The one who ends frees, and the waiters come in their old order.
    expected = [*waiters, patient]
    running = list(holders)
    for job in expected:
        assert running.pop(0).end() == 0
        eventually(lambda: job.out, lambda: f"its turn: {job.err}")
        assert [one for one in expected if one.out] == expected[:expected.index(job) + 1]
        running.append(job)
    assert [job.end() for job in running] == [0, 0]
    for job in holders + expected:
        assert_lines(job.err)
    lane.assert_all_free()


@pytest.mark.parametrize("kind", [WithoutData, LONG_STOPPED, OutOfMemory, ReadOnly])
def test_a_job_that_ends_meanwhile_is_gone_afterwards(lane, kind):
    away = kind(lane)
    one, other = lane.hold(), lane.hold()
    waiter = lane.wait()
    away.go()
    assert one.end() == 0
    away.come_back()
    waiter.gpus()
    assert (other.end(), waiter.end()) == (0, 0)
    lane.assert_all_free()


@pytest.mark.parametrize("kind", [WithoutData, Flushed, OutOfMemory])
def test_a_job_without_its_parent_keeps_its_gpus(lane, kind):
    """Nobody is left who beats for it. Its files and its bell are."""
    away = kind(lane)
    one, other = lane.hold(), lane.hold()
    one.process.kill()
    one.process.wait()
    away.go()
    away.come_back()
    result = lane.berth("run", "--timeout", "3s", "--", *using())
    assert result.returncode == NOT_GRANTED, result
    assert len(lane.leased()) == 2
    one.process.stdin.close()
    assert lane.berth("run", "--timeout", "20s", "--", *using()).returncode == 0
    assert other.end() == 0
    lane.assert_all_free()


def test_a_holder_that_was_still_waiting_in_the_old_data_is_put_back(lane):
    """Redis comes back with a state from before the grant."""
    holders = [lane.hold(), lane.hold()]
    waiter = lane.wait()
    [ticket] = lane.tickets()
    lane.redis.cli("save")
    assert holders[0].end() == 0
    waiter.gpus()
    lane.redis.kill()
    lane.redis.start()
    try:
        eventually(lambda: ticket in lane.leases(), lambda: f"its lease is in Redis again: {lane.left()}", 15)
        assert lane.tickets() == []
    finally:
        assert waiter.end() == 0
        assert holders[1].end() == 0
    lane.assert_all_free()


@pytest.mark.xfail(strict=True, reason="that a ticket was cancelled is in Redis alone, and is lost with it")
def test_a_cancelled_waiter_does_not_come_back_with_the_data_gone(lane):
    holders = [lane.hold(), lane.hold()]
    waiter = lane.wait()
    [ticket] = lane.tickets()
    waiter.process.send_signal(signal.SIGSTOP)
    assert lane.berth("cancel", ticket).returncode == 0
    lane.redis.cli("flushall")
    waiter.process.send_signal(signal.SIGCONT)
    assert waiter.process.wait(LIMIT) == NOT_GRANTED
    assert [holder.end() for holder in holders] == [0, 0]
    lane.assert_all_free()


def test_the_first_in_the_queue_stays_the_first_when_all_is_lost(lane):
    """The second looks at an empty queue before the first has put its ticket back."""
    holders = [lane.hold(), lane.hold("--label", "other")]
    first = lane.wait(env=lane.faulty)
    second = lane.wait()
    lane.proxy.refuse()  # the way of the first is slow for a moment
    lane.proxy.cut()
    lane.redis.cli("flushall")
    assert holders[0].end() == 0
    # Were nothing lost, the second would see that it is the first one's turn, and give it a second's time.
    time.sleep(0.5)
    lane.proxy.allow()
    try:
        started = eventually(lambda: [job for job in (first, second) if job.out], "somebody's turn")
        assert started == [first]
    finally:
        for job in (holders[1], first, second):
            job.process.stdin.close()
    lane.assert_never_twice()


# Sentinel


class Sentinels:
    """A master, its replica, and a Sentinel that watches them."""

    def __init__(self, folder):
        self.servers = []
        for name in ("master", "replica"):
            (folder / name).mkdir()
            flags = ["--replicaof", f"127.0.0.1 {self.servers[0].port}"] if self.servers else []
            self.servers.append(RedisServer(folder / name, "--repl-diskless-sync-delay", "0", *flags))
        self.port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder}/sentinel.log\n"
                          f"sentinel monitor mymaster 127.0.0.1 {self.servers[0].port} 1\n"
                          "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 2000\n")
        self.process = subprocess.Popen(["redis-sentinel", str(config)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL)
        wait_until(lambda: self.ask("replicas", "mymaster"), "the Sentinel knows the replica")
        wait_until(lambda: self.servers[0].client().info("replication")["connected_slaves"] == 1, "the replica follows")
        wait_until(lambda: self.servers[1].client().info("replication")["master_link_status"] == "up", "and is up")

    def ask(self, *words):
        try:
            with redis.Redis(port=self.port, decode_responses=True) as client:
                return client.execute_command("SENTINEL", *words)
        except redis.RedisError:
            return None

    def master_port(self):
        return int((self.ask("get-master-addr-by-name", "mymaster") or [0, 0])[1])

    def stop(self):
        self.process.kill()
        self.process.wait()
        for server in self.servers:
            server.kill()


@pytest.fixture
def sentinels(open_folder):
    folder = open_folder / "sentinels"
    folder.mkdir()
    made = Sentinels.__new__(Sentinels)
    made.process = None
    try:
        made.__init__(folder)
        yield made
    finally:
        for server in getattr(made, "servers", []):
            server.kill()
        if made.process:
            made.process.kill()
            made.process.wait()


def test_a_failover_by_sentinel_keeps_what_lives(open_folder, sentinels):
    lane = Lane(open_folder / "lane", sentinels.servers[0], gpus=2, ttl="3s")
    lane.server.env["BERTH_URL"] = f"redis+sentinel://127.0.0.1:{sentinels.port}/mymaster?{lane.query}"
    try:
        holders = [lane.hold(), lane.hold()]
        waiters = [lane.wait(), lane.wait()]
        ids, order = sorted(lane.leases()), lane.tickets()
        lane.redis.kill()
        newcomer = lane.run()
        wait_until(lambda: sentinels.master_port() == sentinels.servers[1].port, "the failover")
        lane.redis = sentinels.servers[1]
        eventually(lambda: sorted(lane.leases()) == ids, lane.left)
        eventually(lambda: lane.tickets()[:2] == order and len(lane.tickets()) == 3, lambda: (lane.left(), newcomer.err))
        assert lane.leased() == ids
        assert all(job.runs for job in holders + waiters)
        for holder, waiter in zip(holders, waiters):
            assert holder.end() == 0
            eventually(lambda: waiter.out, lambda: waiter.err)
        assert waiters[0].end() == 0
        newcomer.gpus()
        assert (waiters[1].end(), newcomer.end()) == (0, 0)
        lane.assert_all_free()
    finally:
        lane.stop()


# Life


@pytest.fixture
def single(open_folder, own_redis):
    """One GPU; silence is noticed after six seconds."""
    one = Lane(open_folder / "single", own_redis, ttl="1s")
    yield one
    if own_redis.process.poll() is None:
        own_redis.process.send_signal(signal.SIGCONT)
    one.stop()


def assert_not_granted_for(lane, seconds, env=None):
    result = lane.berth("run", "--timeout", f"{seconds}s", "--", *using(), env=env)
    assert (result.returncode, result.stdout) == (NOT_GRANTED, ""), result


def test_a_stopped_parent_loses_nothing_on_its_own_host(single):
    holder = single.hold()
    holder.process.send_signal(signal.SIGSTOP)
    assert_not_granted_for(single, SILENT_S + 1)
    assert len(single.leased()) == 1
    holder.process.send_signal(signal.SIGCONT)
    assert_not_granted_for(single, 1)
    assert holder.end() == 0
    single.assert_all_free()


def test_a_killed_parent_leaves_the_lease_to_its_job(single):
    holder = single.hold()
    waiter = single.wait()
    holder.process.kill()
    holder.process.wait()
    assert_not_granted_for(single, SILENT_S + 1)
    assert not waiter.out
    holder.process.stdin.close()
    waiter.gpus()
    assert waiter.end() == 0
    single.assert_all_free()


def test_a_killed_waiter_blocks_nobody(single):
    holder = single.hold()
    victims = [single.wait(), single.wait()]
    last = single.wait()
    for victim in victims:
        victim.process.kill()
        victim.process.wait()
    assert holder.end() == 0
    last.gpus()
    assert last.end() == 0
    single.assert_all_free()


def test_a_host_that_died_counts_until_it_was_silent_for_long(single):
    elsewhere = same_host_elsewhere(single)
    holder = single.hold(env={"BERTH_HOST": single.host})
    assert_not_granted_for(single, SILENT_S + 1, elsewhere)  # it lives, as its beat says
    for pid in single.processes():
        os.kill(pid, signal.SIGKILL)
    holder.process.wait()
    (single.used / "0").rmdir()
    result = single.berth("run", "--no-wait", "--", *using(), env=elsewhere)
    assert result.returncode == NOT_GRANTED, result
    result = single.berth("run", "--timeout", "25s", "--", *using(), env=elsewhere)
    assert result.returncode == 0, result
    single.assert_all_free()


def test_a_lease_that_was_put_into_a_new_directory_is_its_own(single):
    """Its record in Redis names the directory that was deleted."""
    holder = single.hold()
    single.server.harbour.rename(single.server.folder / "old")
    eventually(lambda: "deleted" in holder.err, "it is put back")
    holder.process.send_signal(signal.SIGSTOP)
    try:
        assert_not_granted_for(single, SILENT_S + 1)
    finally:
        holder.process.send_signal(signal.SIGCONT)
        holder.end()


def test_a_ring_that_nobody_hears_is_not_the_last_word(single):
    """The connection on which a waiter listens is dead, and nobody has told it."""
    assert single.berth("drain", "0", "--reason", "dust").returncode == 0
    waiter = single.wait(env=single.faulty)

    def ears():
        with single.proxy.lock:
            return [one for one in single.proxy.connections if one.blocked]
    [connection] = eventually(ears, "it listens")
    connection.deaf = True
    assert single.berth("undrain", "0").returncode == 0
    waiter.gpus()
    assert waiter.end() == 0
    single.assert_all_free()


# Who cannot hear the bells of the others: a container with a directory of its own.


def test_a_job_whose_parent_was_killed_keeps_its_gpu_for_who_cannot_hear_its_bell(single):
    elsewhere = same_host_elsewhere(single)
    holder = single.hold()
    eventually(lambda: "berth-heartbeat" in subprocess.run(["ps", "-o", "comm=", "--ppid", str(holder.process.pid)],
                                                           text=True, capture_output=True).stdout, "its heartbeat process")
    holder.process.kill()
    holder.process.wait()
    try:
        assert_not_granted_for(single, SILENT_S + 1, elsewhere)
    finally:
        holder.process.stdin.close()


@pytest.mark.parametrize("kind", [WithoutData, Flushed])
def test_leases_are_put_back_before_anything_is_granted(single, kind):
    """To a client that has nothing but Redis to look at."""
    elsewhere = same_host_elsewhere(single)
    away = kind(single)
    holder = single.hold()
    holder.process.send_signal(signal.SIGSTOP)  # so that it comes second, as it well may
    away.go()
    away.come_back()
    try:
        result = single.berth("run", "--no-wait", "--", *using(), env=elsewhere)
        assert result.returncode == NOT_GRANTED, result
    finally:
        holder.process.send_signal(signal.SIGCONT)
        holder.end()


@pytest.mark.parametrize("kind", [WithData, LONG_STOPPED])
def test_the_silence_of_the_server_is_nobodys_death(single, kind):
    """It was away for longer than a silent client counts. The first to come is one that has nothing but Redis."""
    elsewhere = same_host_elsewhere(single)
    away = kind(single)
    holder = single.hold()
    away.go()
    time.sleep(SILENT_S + 0.5)  # the server's clock goes on
    holder.process.send_signal(signal.SIGSTOP)  # so that it comes second, as it well may
    away.come_back()
    try:
        result = single.berth("run", "--no-wait", "--", *using(), env=elsewhere)
        assert result.returncode == NOT_GRANTED, result
    finally:
        holder.process.send_signal(signal.SIGCONT)
        holder.end()


def test_the_silence_of_the_server_is_nobodys_death_though_others_are_heard_first(lane):
    """The same, but somebody else's beat comes before who asks."""
    elsewhere = same_host_elsewhere(lane)
    silent, loud = lane.hold("--gpu", "0"), lane.hold("--gpu", "1")
    [heard] = [one for one, text in lane.leases().items() if f'"pid":{loud.pid},' in text]
    before = lane.ask("HGET", lane.key("beats"), heard)
    lane.redis.process.send_signal(signal.SIGSTOP)
    time.sleep(3 + GRACE_S + 2)  # longer than a silent client counts
    silent.process.send_signal(signal.SIGSTOP)  # only now: so that it comes last, as it well may
    lane.redis.process.send_signal(signal.SIGCONT)
    try:
        eventually(lambda: int(lane.ask("HGET", lane.key("beats"), heard)) > int(before) + 3000, "somebody is heard of")
        result = lane.berth("run", "--no-wait", "--gpu", "0", "--", *using(), env=elsewhere)
        assert result.returncode == NOT_GRANTED, result
    finally:
        silent.process.send_signal(signal.SIGCONT)
        for job in (silent, loud):
            job.process.stdin.close()
