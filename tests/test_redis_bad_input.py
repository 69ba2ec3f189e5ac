"""What berth finds in Redis, or in the URL, that nobody of ours has written: one clear line, or an entry that is ignored and
reported; never a crash, never a wrong grant, never a password in what is said."""

import json
import re
import signal
import subprocess
import time

import pytest
import redis_server
from conftest import ALL_REDIS_FAULTS, ROOT, assert_fit_for_terminal, assert_one_line_error
from leasing import eventually
from redis_lanes import Lane, assert_lines
from redis_server import RedisServer
from waiting import LIMIT

pytestmark = pytest.mark.release_only

USAGE, HARBOUR_FAILS, NOT_GRANTED = 64, 74, 75
HUGE = "x" * (10 << 20)
SECRET = "s3cr3t-W0rd"


@pytest.fixture
def lane(open_folder):
    one = Lane(open_folder / "lane", redis_server.shared_server(), gpus=2)
    yield one
    one.stop()
    with one.redis.client() as client:
        for key in client.scan_iter(f"{one.prefix}:*"):
            client.delete(key)


class Closed(RedisServer):
    """To who does not know the password."""

    def __init__(self, folder, password):
        self.password = password
        super().__init__(folder, "--requirepass", password)

    def secret(self):
        return {"REDISCLI_AUTH": self.password}

    def client(self, **options):
        return super().client(password=self.password, **options)


def pairs(names, values):
    """Each name with each value; where not all faults are wanted, each name and each value with some."""
    return [(name, value) for i, name in enumerate(names) for j, value in enumerate(values)
            if ALL_REDIS_FAULTS or (i + j) % 4 == 0]


# The URL


@pytest.mark.parametrize("url", ["redis", "redis:", "redis://", "http://127.0.0.1", "rediss://127.0.0.1", "redis://:@h",
                                 "redis://h:0", "redis://h:65536", "redis://h:port", "redis://h/x", "redis://h/0/1",
                                 "redis://h?prefix=", "redis://h?prefix=a%20b", "redis://h?ttl=0s", "redis://h?ttl=2h",
                                 "redis://h?ttl=x", "redis://h?what=1", "redis://a@b@c", "redis+unix://relative",
                                 "redis+unix:///" + "x" * 200, "redis+sentinel://h", "redis+sentinel:///m", "redis://h\n",
                                 "redis://\x1b[31mh", "redis://" + "h" * 10_000, "file:/nowhere"])
def test_a_wrong_url_gets_one_line(lane, url):
    for words in (["run", "--no-wait", "--", "true"], ["status"], ["queue"], ["cancel", "abcdefgh"], ["release", "--all"]):
        result = lane.berth(*words, env={"BERTH_URL": url})
        assert_one_line_error(result, result.returncode)
        assert result.returncode in (USAGE, HARBOUR_FAILS), result


@pytest.mark.parametrize("words", [["run", "--no-wait", "--", "true"], ["run", "--timeout", "1s", "--", "true"], ["status"],
                                   ["status", "--json"], ["queue"], ["doctor"], ["drain", "0", "--reason", "x"],
                                   ["cancel", "abcdefgh"], ["acquire", "--no-wait"], ["release", "--all"]])
def test_no_password_is_ever_shown(open_folder, words):
    folder = open_folder / "redis"
    folder.mkdir()

    server = Closed(folder, "right-" + SECRET)
    lane = Lane(open_folder / "lane", server)
    try:
        address = f"127.0.0.1:{server.port}"
        for login in (f":{SECRET}@", f"somebody:{SECRET}@", f"{SECRET}:x@", f":{SECRET}%40%2F@"):
            result = lane.berth(*words, env={"BERTH_URL": f"redis://{login}{address}"})
            assert result.returncode in (HARBOUR_FAILS, 1) if words == ["doctor"] else result.returncode == HARBOUR_FAILS, result
            assert SECRET not in result.stdout + result.stderr, result
            assert_fit_for_terminal(result.stderr)
        for url in (f"redis://:{SECRET}@{address}/x", f"redis://:{SECRET}@h@{address}", f"redis://a:{SECRET}#@{address}",
                    f"redis://:{SECRET}%zz@{address}", f"rediss://:{SECRET}@{address}", f"redi://:{SECRET}@{address}",
                    f"redis://:{SECRET}@127.0.0.1:1", f"redis+sentinel://:{SECRET}@127.0.0.1:1/m",
                    f"redis://:right-{SECRET}@{address}/99"):
            result = lane.berth(*words, env={"BERTH_URL": url})
            assert result.returncode not in (0, -6, -11), result
            assert SECRET not in result.stdout + result.stderr, result
    finally:
        lane.stop()
        server.kill()


def test_no_password_is_kept_anywhere(open_folder):
    folder = open_folder / "redis"
    folder.mkdir()

    server = Closed(folder, SECRET)
    lane = Lane(open_folder / "lane", server)
    try:
        server.skip_recovery_wait()
        lane.server.env["BERTH_URL"] = f"redis://:{SECRET}@127.0.0.1:{server.port}"
        holder = lane.hold()
        for words in (["status", "--json"], ["queue", "--json"], ["doctor"], ["log", "--json"]):
            result = lane.berth(*words)
            assert SECRET not in result.stdout + result.stderr, result
        with server.client() as client:
            found = client.keys("*")
            assert found, "nothing is in Redis"
            values = json.dumps([client.hgetall(key) for key in found if client.type(key) == "hash"])
        assert SECRET not in values and "command" in values
        assert holder.end() == 0
        for path in [*lane.server.harbour.rglob("*"), *lane.server.folder.rglob("*")]:
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path
    finally:
        lane.stop()
        server.kill()


def test_the_user_that_the_documents_advise_may_do_all_that_is_needed(open_folder):
    """The words of docs/redis.md, as an administrator would copy them."""
    [words] = re.findall(r"`(ACL SETUSER berth .*)`", (ROOT / "docs" / "redis.md").read_text())
    folder = open_folder / "redis"
    folder.mkdir()
    server = RedisServer(folder)
    lane = Lane(open_folder / "lane", server)
    try:
        server.skip_recovery_wait()
        server.cli(*words.split())
        lane.prefix = "berth"
        lane.server.env["BERTH_URL"] = f"redis://berth:PASSWORD@127.0.0.1:{server.port}"
        holder = lane.hold()
        for command in (["status", "--all"], ["queue", "--all"], ["drain", "0", "--reason", "dust"], ["undrain", "0"],
                        ["log"], ["report"], ["profile", "set", "train", "--mem", "1GiB"], ["profile"], ["cancel", "--all", "--waiting"],
                        ["doctor"]):
            result = lane.berth(*command)
            assert result.returncode == 0, (command, result)
        waiter = lane.jobs.wait()
        assert holder.end() == 0
        waiter.gpus()
        assert waiter.end() == 0
    finally:
        lane.stop()
        server.kill()


# Another program's keys

HASHES = ("leases", "tickets", "beats", "drains")
COMMANDS = (["status"], ["status", "--json"], ["queue"], ["doctor"], ["release", "--all"], ["cancel", "abcdefgh"], ["drain", "1", "--reason", "x"], ["undrain", "1"],
            ["run", "--no-wait", "--gpu", "0", "--", "true"], ["run", "--timeout", "500ms", "--gpu", "0", "--", "true"],
            ["acquire", "--no-wait", "--gpu", "0"])


def assert_endures(lane):
    """Each command ends with an answer or one line. GPU 0 is held, and nobody else gets it."""
    for words in COMMANDS:
        result = lane.berth(*words, timeout=40)
        assert 0 <= result.returncode <= NOT_GRANTED, (words, result)
        assert_lines(result.stderr)
        assert_fit_for_terminal(result.stdout)
        assert len(result.stdout + result.stderr) < 20_000, (words, len(result.stdout))
        if result.returncode in (HARBOUR_FAILS, NOT_GRANTED) and "--timeout" not in words:
            assert result.stderr.count("\n") == 1, (words, result)
        if words[0] in ("run", "acquire"):
            assert result.returncode in (HARBOUR_FAILS, NOT_GRANTED), (words, result)


@pytest.mark.parametrize("name, other", pairs([*HASHES, "queue", "version", "rung", ":hosts", ":order", ":born", ":heard"],
                                              ["string", "list", "hash", "zset", "set", "stream"]))
def test_keys_of_another_type(lane, name, other):
    key = f"{lane.prefix}{name}" if name.startswith(":") else lane.key(name)
    kind = "hash" if name in (*HASHES, "rung", ":hosts") else "zset" if name == "queue" else "string"
    if kind == other:
        return
    holder = lane.hold("--gpu", "0")
    with lane.redis.client() as client:
        client.delete(key)
        match other:
            case "string":
                client.set(key, "another program's")
            case "list":
                client.rpush(key, "a", "b")
            case "hash":
                client.hset(key, "a", "b")
            case "zset":
                client.zadd(key, {"a": 1})
            case "set":
                client.sadd(key, "a")
            case "stream":
                client.xadd(key, {"a": "b"})
    assert_endures(lane)
    lane.ask("DEL", key)
    assert holder.end() == 0
    assert lane.berth("undrain", "0,1").returncode == 0
    lane.assert_never_twice()
    assert lane.berth("run", "-n", "2", "--timeout", "25s", "--", "true").returncode == 0


def test_a_commit_that_fails_half_way_leaves_no_place_in_the_queue(lane):
    holder = lane.hold("-n", "2")
    lane.ask("SET", lane.key("tickets"), "another program's")
    assert_one_line_error(lane.berth("run", "--timeout", "500ms", "--", "true"), HARBOUR_FAILS)
    lane.ask("DEL", lane.key("tickets"))
    assert holder.end() == 0
    assert lane.berth("run", "-n", "2", "--timeout", "25s", "--", "true").returncode == 0
    assert lane.tickets() == []


# Garbage of the right type


def record(lane, **changes):
    """Of a lease of another directory of this host."""
    whole = {"version": 1, "id": "abcdefgh", "state": "holding", "uid": 0, "pid": 1, "pid_namespace": 1, "holder": "job",
             "command": "x", "label": "", "since_ms": 1, "granted_ms": 1, "witness": "elsewhere", "epoch": 1,
             "gpus": [lane.status()["gpus"][1]["uuid"]], "request": {"count": 1}}
    return json.dumps({key: value for key, value in (whole | changes).items() if value is not None})


GARBAGE = {"empty": "", "huge": HUGE, "a word": "x", "a list": "[]", "nothing": "{}", "binary": "\x00\x1b[31m\x7f", "deep": "[" * 60_000,
           "a number": "1e999", "long words": json.dumps({"version": 1, "id": "y" * 60_000})}


@pytest.mark.parametrize("what", [*GARBAGE, "another directory's"])
def test_whatever_redis_has_of_a_lease_its_own_file_counts(lane, what):
    holder = lane.hold("--gpu", "0")
    [(lease, text)] = lane.leases().items()
    if what == "another directory's":
        lane.ask("HDEL", lane.key("beats"), lease)
        text = json.dumps(json.loads(text) | {"witness": "elsewhere"})
        holder.process.send_signal(signal.SIGSTOP)  # it does not beat
    lane.ask("HSET", lane.key("leases"), lease, GARBAGE.get(what, text))
    if what == "another directory's":
        lane.ask("HDEL", lane.key("beats"), lease)
    try:
        result = lane.berth("run", "--no-wait", "--gpu", "0", "--", "true")
        assert result.returncode == NOT_GRANTED, result
    finally:
        holder.process.send_signal(signal.SIGCONT)
        holder.end()


@pytest.mark.parametrize("name, what", pairs(HASHES, GARBAGE))
def test_garbage_in_a_hash(lane, name, what):
    holder = lane.hold("--gpu", "0")
    uuids = [gpu["uuid"] for gpu in lane.status()["gpus"]]
    with lane.redis.client() as client:
        ids = [*(client.hkeys(lane.key("leases")) if name != "leases" else []), "abcdefgh", "", "../../etc/passwd", "\x1b[31m", "x" * 1000]
        for field in uuids if name == "drains" else ids:
            client.hset(lane.key(name), field, GARBAGE[what])
        client.zadd(lane.key("queue"), {"abcdefgh": 1})
    assert_endures(lane)
    assert holder.runs
    if name == "drains":  # unknown is not free
        assert lane.berth("undrain", *uuids).returncode == 0
    assert holder.end() == 0
    result = lane.berth("run", "-n", "2", "--timeout", "25s", "--", "true")
    assert result.returncode == 0, (result, str(lane.left())[:2000])


@pytest.mark.parametrize("name, value", pairs(["version", ":order", ":born", ":heard"],
                                              ["x", "", "-1", "1e300", "inf", "nan", "99999999999999999999",
                                               "18446744073709551615", "huge"]))
def test_garbage_instead_of_a_number(lane, name, value):
    key = f"{lane.prefix}{name}" if name.startswith(":") else lane.key(name)
    holder = lane.hold("--gpu", "0")
    lane.ask("SET", key, HUGE if value == "huge" else value)
    assert_endures(lane)
    waiter = lane.run("--gpu", "0")
    eventually(lambda: waiter.err or not waiter.runs, "it waits, or says why not")
    assert holder.end() == 0
    eventually(lambda: waiter.out or not waiter.runs, lambda: f"it is granted, or says why not: {waiter.err}")
    code = waiter.end()
    assert code == 0 or code == HARBOUR_FAILS and waiter.err.count("\n") <= 2, (code, waiter.err)
    lane.ask("DEL", key)
    assert lane.berth("undrain", "1").returncode == 0
    lane.assert_all_free()


FOREIGN = {"an id": ("abcdefgh", 1), "an id far behind": ("abcdefgh", 1e15), "no name": ("", 1),
           "too large": ("abcdefgh", 1e300), "infinite": ("abcdefgh", "inf"), "below all": ("abcdefgh", "-inf"),
           "negative": ("abcdefgh", -1), "a fraction": ("abcdefgh", 1.5), "a long name": ("x" * 1000, 1),
           "no id": ("another program's", 1e15), "for a terminal": ("\x1b[31m", 1)}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_member_of_the_queue_stops_nobody(lane, what):
    member, score = FOREIGN[what]
    lane.ask("ZADD", lane.key("queue"), score, member)
    try:
        assert lane.berth("run", "--timeout", "5s", "--", "true", timeout=LIMIT).returncode == 0
    except subprocess.TimeoutExpired:
        pytest.fail("it runs for ever")


# Records of another version


def beat(lane, client="abcdefgh", seconds=3600):
    lane.ask("HSET", lane.key("beats"), client, int((time.time() + seconds) * 1000))


@pytest.mark.parametrize("changes", [{"version": 2}, {"version": 99, "gpus": None}, {"version": 99, "request": None, "pid": None},
                                     {"version": 99, "gpus": "all of them"}, {"version": 99, "state": "dancing"}])
def test_a_lease_of_a_later_version_counts(lane, changes):
    lane.ask("HSET", lane.key("leases"), "abcdefgh", record(lane, **changes))
    beat(lane)
    result = lane.berth("run", "--no-wait", "--gpu", "1", "--", "true")
    assert_one_line_error(result, NOT_GRANTED)
    assert lane.berth("status").returncode == 0
    beat(lane, seconds=-3600)
    assert lane.berth("run", "--timeout", "25s", "--gpu", "1", "--", "true").returncode == 0


@pytest.mark.parametrize("changes", [{"version": 0}, {"version": -1}, {"version": "1"}, {"version": None}, {"id": "other"}, {"uid": None},
                                     {"uid": -1}, {"gpus": None}, {"gpus": []}, {"gpus": [1]}, {"state": "waiting"},
                                     {"request": None}, {"request": {"count": 0}}, {"since_ms": "x"}, {"epoch": "x"}])
def test_a_record_that_makes_no_sense_is_ignored_and_reported(lane, changes):
    lane.ask("HSET", lane.key("leases"), "abcdefgh", record(lane, **changes))
    beat(lane)
    said = [lane.berth("doctor"), lane.berth("status")]
    assert any("abcdefgh" in one.stdout + one.stderr for one in said), said
    assert lane.berth("run", "--no-wait", "-n", "2", "--", "true").returncode == 0


def test_a_ticket_of_a_later_version_waits_for_itself_and_blocks_nobody_for_long(lane):
    ticket = record(lane, version=99, gpus=None, state="waiting")
    lane.ask("HSET", lane.key("tickets"), "abcdefgh", ticket)
    lane.ask("ZADD", lane.key("queue"), 1, "abcdefgh")
    beat(lane)
    assert lane.berth("queue").returncode == 0
    assert lane.berth("run", "--timeout", "25s", "--", "true").returncode == 0


def test_a_forged_witness_gets_nothing(lane):
    """It says that it is of this very directory, where no bell of that name is."""
    holder = lane.hold("--gpu", "0")
    [text] = lane.leases().values()
    forged = json.loads(text) | {"id": "abcdefgh", "gpus": [lane.status()["gpus"][1]["uuid"]]}
    lane.ask("HSET", lane.key("leases"), "abcdefgh", json.dumps(forged))
    beat(lane)
    assert lane.berth("run", "--no-wait", "--gpu", "1", "--", "true").returncode == 0
    assert holder.end() == 0
