"""Users against each other: what one user does, by any system call, changes nothing of another's.

Alice and Bob are honest, Mallory is not. The attacks are made with raw system calls by processes of Mallory's
uid; what must hold is asked of the real binary, run by the others. docs/harbour-protocol.md has the rules.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import struct
import subprocess
import time

import pytest
from conftest import assert_fit_for_terminal
from leasing import keepers, watches_files
from users import (ALICE, BOB, LETTERS, LIBC, LIMIT, MALLORY, SAY_AND_STAY, UserProcess, become, bell, change_files, changed,
                   eventually, ids, create_client, create_clients, put, record, world)  # noqa: F401

pytestmark = pytest.mark.needs_root

# None can take away what is another's.

def test_the_kernel_refuses_to_change_others_files(world):
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    [ticket] = world.names("ticket-")
    with open("/proc/sys/fs/protected_hardlinks") as setting:
        hard_links = setting.read().strip() == "1"
    names = [f"lease-{alice.lease}", f"bell-{alice.lease}", f"bell-{bob.lease}", ticket]
    assert world.do(MALLORY, change_files, world.harbour, names, hard_links) == []
    assert world.leases() == {alice.lease: str(ALICE)}
    alice.end()
    bob.started()


@pytest.mark.each_harbour
def test_who_holds_a_bell_for_writing_does_not_keep_it_alive(world):
    alice = world.hold(ALICE)
    world.start_process(MALLORY, lambda path: os.open(path, os.O_WRONLY | os.O_NONBLOCK), world.path(f"bell-{alice.lease}"))
    assert world.try_now(BOB).returncode == 75
    alice.kill()
    assert world.try_now(BOB).returncode == 0


@pytest.mark.parametrize("which", ["lease", "bell", "both"])
def test_a_hard_link_to_a_record_does_not_end_the_lease(world, which):
    """Made by root, as anybody can where fs.protected_hardlinks is 0."""
    alice = world.hold(ALICE)
    for kind in ["lease", "bell"] if which == "both" else [which]:
        os.link(world.path(f"{kind}-{alice.lease}"), world.server.folder / f"kept-{kind}")
    assert world.leases() == {alice.lease: str(ALICE)}
    assert world.try_now(BOB).returncode == 75
    alice.end()
    assert world.try_now(BOB).returncode == 0
    # What was kept and put back is no lease: nobody has its bell.
    for kind in ["lease", "bell"]:
        if (world.server.folder / f"kept-{kind}").exists():
            os.link(world.server.folder / f"kept-{kind}", world.path(f"{kind}-{alice.lease}"))
    assert world.try_now(BOB).returncode == 0


def test_a_hard_link_to_a_ticket_neither_ends_nor_moves_nor_doubles_it(world):
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    [ticket] = world.names("ticket-")
    for order in ("000000000000000", "999999999999999", "000000000000002"):
        os.link(world.path(ticket), world.path(f"ticket-{order}-{bob.lease}"))
    os.link(world.path(ticket), world.path(f"lease-{bob.lease}"))
    assert world.queue() == [bob.lease]
    late = world.wait(MALLORY)
    assert world.queue() == [bob.lease, late.lease]
    alice.end()
    bob.started()
    assert late.process.poll() is None and late.out.read_text() == ""
    assert list(world.leases().values()) == [str(BOB)]


@pytest.mark.each_harbour
def test_a_hard_link_does_not_put_a_drained_gpu_back_into_service(world):
    put(world.path(f"drain-{world.uuid()}"), {"version": 1, "gpu": world.uuid(), "uid": 0, "reason": "hot", "since_ms": 1})
    assert world.try_now(ALICE).returncode == 75
    os.link(world.path(f"drain-{world.uuid()}"), world.server.folder / "kept")
    assert world.try_now(ALICE).returncode == 75


@pytest.mark.each_harbour
def test_nobody_but_root_and_the_directorys_owner_drains(world):
    uuid = world.uuid()
    world.do(MALLORY, put, world.path(f"drain-{uuid}"), {"version": 1, "gpu": uuid, "uid": 0, "reason": "x", "since_ms": 1})
    assert world.try_now(ALICE).returncode == 0
    assert world.status()["gpus"][0]["state"] == "free"


def plant_for_ticket(harbour, name, uuid, victim):
    """Everything that Mallory can write under the id of somebody who waits."""
    done = []
    for file, content in {f"lease-{name}": record(name, MALLORY, [uuid]), f"request-{name}": record(name, victim),
                          f"ticket-000000000000000-{name}": record(name, MALLORY),
                          f"ticket-999999999999999-{name}": record(name, victim)}.items():
        with contextlib.suppress(FileExistsError):
            put(f"{harbour}/{file}", content)
            done.append(file)
    return done


def test_files_planted_under_the_id_of_a_ticket_do_not_end_or_move_it(world):
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    done = world.do(MALLORY, plant_for_ticket, world.harbour, bob.lease, world.uuid(), BOB)
    assert len(done) == 4
    assert world.queue() == [bob.lease]
    late = world.wait(MALLORY)
    assert world.queue() == [bob.lease, late.lease]
    # Root tidies what the dead left: what lives must stay.
    assert world.berth(0, "run", "--no-wait", "--", "true").returncode == 75
    assert world.queue() == [bob.lease, late.lease]
    alice.end()
    bob.started()
    assert list(world.leases().values()) == [str(BOB)]
    assert late.process.poll() is None
    bob.end()
    late.started()


def occupy_names(harbour, known, uuid, fd):
    deadline = time.monotonic() + LIMIT
    while True:
        new = [name[5:] for name in os.listdir(harbour) if name.startswith("bell-") and name[5:] not in known]
        if new:
            break
        assert time.monotonic() < deadline
    for name in new:
        put(f"{harbour}/lease-{name}", "mine")
        for order in range(5):
            put(f"{harbour}/ticket-{order:015}-{name}", "mine")
    fcntl.flock(fd, fcntl.LOCK_UN)
    return new


def lock_and_occupy(harbour, known, uuid, go):
    fd = os.open(harbour, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.close(go)
    return occupy_names(harbour, known, uuid, fd)


@pytest.mark.parametrize("waits", [False, True], ids=["granted", "waits"])
def test_names_taken_between_bell_and_record_keep_nobody_out(world, waits):
    """Mallory holds the lock until she has seen the bell and planted every name that its client will want."""
    holder = world.hold(BOB) if waits else None
    known = [name[5:] for name in world.names("bell-")]
    locked, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(MALLORY, go)
            lock_and_occupy(world.harbour, known, "", go)
        finally:
            os._exit(0)
    os.close(go)
    os.read(locked, 1)  # the end of the file: she has the lock
    os.close(locked)
    alice = world.run(ALICE)
    os.waitpid(pid, 0)
    if waits:
        alice.said("position ")
        assert [ticket["user"] for ticket in world.status()["queue"]] == [str(ALICE)]
        holder.end()
    alice.started()
    assert list(world.leases().items()) == [(alice.lease, str(ALICE))]
    assert world.try_now(BOB).returncode == 75


# The end of a shell's lease.

def acquire(world, uid):
    """`berth acquire` for a process of that user; its id."""
    process = world.start_process(uid, os.getpid)
    job = world.run(uid, "--for", process.value, "--print", "json", command=None, subcommand="acquire")
    assert job.process.wait(LIMIT) == 0, job.err.read_text()
    return json.loads(job.out.read_text())["lease"], process


def keeper_looks(world, name):
    """Rings the keeper and waits until it has heard."""
    fd = os.open(world.path(f"bell-{name}"), os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"!")

    def heard():
        return struct.unpack("i", fcntl.ioctl(fd, 0x541B, b"\0" * 4))[0] == 0
    eventually(heard, "the keeper's attention")
    # It has read the ring, and looks only then: a second ring is read after that look.
    os.write(fd, b"!")
    eventually(heard, "the keeper's attention")
    os.close(fd)


@pytest.mark.each_harbour
@pytest.mark.parametrize("how", ["marked copy", "left behind"])
def test_a_forged_end_ends_nothing(world, how):
    """A lease is ended by the sticky bit of its record. Another file with that bit says nothing, whatever its name."""
    lease, _ = acquire(world, ALICE)
    if how == "marked copy":
        world.do(MALLORY, put, world.path(f"end-{lease}"), record(lease, ALICE))
        world.do(MALLORY, os.chmod, world.path(f"end-{lease}"), 0o1644)
    else:  # a file that Alice once left in a folder of Mallory's
        left = world.server.folder / "left"
        left.touch()
        os.chown(left, ALICE, ALICE)
        left.chmod(0o1644)
        os.rename(left, world.path(f"end-{lease}"))
    keeper_looks(world, lease)
    assert world.leases() == {lease: str(ALICE)}
    assert world.try_now(BOB).returncode == 75


@pytest.mark.each_harbour
def test_its_owner_ends_a_shells_lease(world):
    lease, _ = acquire(world, ALICE)
    world.do(ALICE, os.chmod, world.path(f"lease-{lease}"), 0o1644)
    for uid in (BOB, 0):
        assert world.try_now(uid).returncode == 0
    with contextlib.suppress(OSError):  # it may have noticed by itself
        fd = os.open(world.path(f"bell-{lease}"), os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, b"!")
        os.close(fd)
    eventually(lambda: world.names(lease) == [], "the keeper's end")


@pytest.mark.each_harbour
def test_the_commands_refuse_what_is_anothers(world):
    lease, _ = acquire(world, ALICE)
    bob = world.wait(BOB)
    for arguments in (["release", lease], ["release", "0"], ["cancel", bob.lease], ["drain", "0", "--reason", "x"]):
        result = world.berth(MALLORY, *arguments)
        assert result.returncode == 77, (arguments, result)
        assert result.stderr.count("\n") == 1
    world.berth(MALLORY, "release", "--all")
    assert world.leases() == {lease: str(ALICE)} and world.queue() == [bob.lease]
    assert world.berth(0, "release", lease).returncode == 0
    bob.started()


def lost_lines(world, lease):
    """The lines of any user's history which say that this lease was lost."""
    lines = []
    for path in pathlib.Path(world.harbour).glob("archive/*/history-*.jsonl"):
        lines += [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if (line["id"], line["ending"]) == (lease, "lost")]


@pytest.mark.each_harbour
@pytest.mark.parametrize("words", [["cancel", "ID"], ["release", "ID"], ["release", "1"], ["release", "--all"]],
                         ids=["cancel", "release", "release-gpu", "release-all"])
@pytest.mark.parametrize("caller", [0, BOB], ids=["root", "bob"])
def test_cancel_and_release_leave_the_lost_line_of_a_killed_job_to_be_written(world, words, caller):
    """They do not know the GPUs of this host, so they cannot tell another user's dead lease from a planted one."""
    world.server.use("2x24GiB")
    alice = world.hold(ALICE, "--gpu", "0")
    if words[0] == "release":
        ended, _ = acquire(world, caller)
    else:
        world.hold(ALICE)
        ended = world.wait(caller, "-n", "2").lease
    alice.kill()
    words = [ended if word == "ID" else word for word in words]
    assert world.berth(caller, *words).returncode == 0
    assert world.berth(0, "run", "--", "true").returncode == 0  # the two GPUs are known to this command
    [line] = lost_lines(world, alice.lease)
    assert line["uid"] == ALICE and [gpu["index"] for gpu in line["gpus"]] == [alice.gpus]


# Whatever is planted is in nobody's way.

def plant_things(harbour, uuid):
    """Every kind of file at every kind of name."""
    names = ["lease-{}", "ticket-000000000000000-{}", "ticket-999999999999999-{}", "bell-{}", "end-{}"]
    numbers = iter(ids("p", 10_000))
    deep = "[" * 60_000
    good = record("x", MALLORY, [uuid])
    contents = [b"", b"\0" * 100, b"\xff\xfe", deep, '{"a":' * 10_000, deep + "]" * 5_000, "null", "[]", "1e999", '"x"',
                json.dumps(good)[:-5], json.dumps(good) + "\0", json.dumps(good) * 2, b"\xef\xbb\xbf{}"]
    count = 0
    for name in names:
        for content in contents:
            put(f"{harbour}/{name.format(next(numbers))}", content)
        os.symlink("/etc/passwd", f"{harbour}/{name.format(next(numbers))}")
        os.symlink("/nonexistent", f"{harbour}/{name.format(next(numbers))}")
        own = name.format(next(numbers))
        os.symlink(own, f"{harbour}/{own}")
        os.mkdir(f"{harbour}/{name.format(next(numbers))}")
        os.mkfifo(f"{harbour}/{name.format(next(numbers))}")
        with socket.socket(socket.AF_UNIX) as one:
            os.chdir(harbour)
            one.bind(name.format(next(numbers)))
        large = f"{harbour}/{name.format(next(numbers))}"
        put(large, "{")
        os.truncate(large, 100 << 20)
        closed = f"{harbour}/{name.format(next(numbers))}"
        put(closed, "{}")
        os.chmod(closed, 0)
        count += 1
    for name in ["lease-", "lease-UPPERCAS", "ticket-1-aaaaaaaa", "bell-aaaaaaaaa", "\x1b[31mred", "a\nb", "drain-", "drain-..",
                 "end-", "x" * 255, "ticket-99999999999999a-aaaaaaaa", "ticket--00000000000001-aaaaaaaa", ".hidden"]:
        put(f"{harbour}/{name}", "{}")
    return count


def test_planted_files_are_ignored(world):
    world.do(MALLORY, plant_things, world.harbour, world.uuid())
    for number, (name, device) in enumerate([("lease", os.makedev(1, 5)), ("bell", os.makedev(5, 1)), ("end", os.makedev(1, 8))]):
        os.mknod(world.path(f"{name}-zzzzzzz{LETTERS[number]}"), stat.S_IFCHR | 0o666, device)
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    assert world.leases() == {alice.lease: str(ALICE)} and world.queue() == [bob.lease]
    for text in (world.berth(BOB, "status").stdout, world.berth(0, "status").stdout):
        assert_fit_for_terminal(text)
    alice.end()
    bob.started()
    bob.end()
    assert world.try_now(0).returncode == 0


def keep_from_opening(harbour, uuid):
    """A lease in the kernel's sense on the own record: whoever opens it without waiting gets EAGAIN."""
    fds = []
    for file in ("lease-mmmmmmmm", "ticket-000000000000001-nnnnnnnn", "request-nnnnnnnn", f"drain-{uuid}"):
        fds.append(bell(harbour, file[-8:]) if file.startswith(("lease", "ticket")) else None)
        put(f"{harbour}/{file}", "{}")
        fd = os.open(f"{harbour}/{file}", os.O_RDWR)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fds.append(fd)
    return fds


def test_a_live_lease_that_cannot_be_opened_may_hold_every_gpu(world):
    mallory = world.start_process(MALLORY, keep_from_opening, world.harbour, world.uuid())
    for _ in range(2):
        result = world.try_now(ALICE)
        assert (result.returncode, result.stderr.count("\n")) == (75, 1) and str(MALLORY) in result.stderr, result
        assert world.leases() == {"mmmmmmmm": str(MALLORY)}
    mallory.stop()
    assert world.try_now(ALICE).returncode == 0


def stopped_at(world, uid, call, *flags):
    """A `berth run` that stops behind its first system call of that kind, and the PID to continue."""
    trace = world.server.folder / "trace"
    job = world.run(uid, prefix=["strace", "-o", trace, *flags, "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGSTOP:when=1"])
    eventually(lambda: trace.exists() and "stopped by SIGSTOP" in trace.read_text(), "the stop")
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
        [pid] = file.read().split()
    return job, int(pid)


def test_what_was_put_in_the_place_of_a_bell_stays_closed(world):
    """Who owns the directory can move a file of Alice's there before she has opened her bell, which all may write to."""
    private = world.server.folder / "private"
    private.write_text("mine")
    private.chmod(0o600)
    os.chown(private, ALICE, ALICE)
    alice, pid = stopped_at(world, ALICE, "mknodat")
    [bell_of_alice] = world.names("bell-")
    os.rename(private, world.path(bell_of_alice))
    os.kill(pid, signal.SIGCONT)
    assert alice.process.wait(LIMIT) == 74
    assert " bell " in alice.err.read_text()
    assert stat.S_IMODE(os.stat(world.path(bell_of_alice)).st_mode) == 0o600


@pytest.mark.parametrize("kind, what", [("bell", "link"), ("bell", "directory"), ("bell", "running program")])
def test_what_is_replaced_while_it_is_looked_at_is_in_nobodys_way(world, kind, what):
    """A file was what it should be, and is something else when it is opened."""
    world.start_process(MALLORY, create_client, world.harbour, "lease-mmmmmmmm", record("mmmmmmmm", MALLORY, [world.uuid()]))
    path = world.path(f"{kind}-mmmmmmmm")
    alice, pid = stopped_at(world, ALICE, "statx", "-P", os.path.basename(path))
    os.unlink(path)
    if what == "link":
        os.symlink("/dev/null", path)
    elif what == "directory":
        os.mkdir(path)
    elif what == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o666)
    else:
        shutil.copy("/bin/sleep", path)
        world.server.start(path, "1h")
        os.chmod(path, 0o777)
    os.kill(pid, signal.SIGCONT)
    assert alice.started().gpus == "0"
    assert alice.err.read_text() == "berth: granted GPU 0\n"


NUMBERS = [-1, 1.5, 1e308, -1e308, 2**53, 2**63, 2**64, 10**30, "1", True, [], {}]


def absurd(harbour, uuid):
    """Live leases and tickets with values that no client would write."""
    files = []
    numbers = iter(ids("q", 10_000))
    for key in ["version", "id", "state", "uid", "pid", "pid_namespace", "holder", "command", "label", "since_ms", "request",
                "gpus", "granted_ms", "within", "adopted_start"]:
        for value in [*NUMBERS, "\u202e\x1b[31m", "x" * 5000, ...]:
            lease, ticket = next(numbers), next(numbers)
            if key != "gpus":
                # Of a GPU that is not here: a live lease counts as holding what it names, whatever else it says.
                files.append((f"lease-{lease}", changed(record(lease, MALLORY, ["GPU-elsewhere"]), key, value)))
            files.append((f"ticket-000000000000000-{ticket}",
                          changed(record(ticket, MALLORY, request={"count": 9999}), key, value)))
    for key in ["count", "memory_bytes", "policy", "time_ms", "gpus", "name", "min_memory_bytes", "max_utilization_pct",
                "max_processes"]:
        for value in NUMBERS:
            lease = next(numbers)
            files.append((f"lease-{lease}", record(lease, MALLORY, ["GPU-elsewhere"], request={"count": 1, key: value})))
    return [(file, content) for file, content in files
            if not (isinstance(content, dict) and content.get("version") in (2**53, 2**20))]


@pytest.mark.each_harbour
def test_absurd_records_of_live_clients_are_in_nobodys_way(world):
    files = absurd(world.in_memory().harbour, world.uuid())
    world.start_process(MALLORY, create_clients, world.harbour, files)
    result = world.try_now(ALICE)
    assert (result.returncode, result.stderr) == (0, "")
    status = world.status()
    assert [gpu["state"] for gpu in status["gpus"]] == ["free"]
    for uid in (BOB, 0):
        assert_fit_for_terminal(world.berth(uid, "status").stdout)
    alice = world.hold(ALICE)
    assert alice.lease in world.leases()
    assert world.try_now(BOB).returncode == 75


@pytest.mark.parametrize("value", [*NUMBERS, "x", ...], ids=repr)
def test_a_live_lease_whose_gpus_make_no_sense_may_hold_every_gpu(world, value):
    mallory = world.start_process(MALLORY, create_client, world.harbour, "lease-qqqqqqqq",
                           changed(record("qqqqqqqq", MALLORY, ["GPU-elsewhere"]), "gpus", value))
    assert world.try_now(ALICE).returncode == 75
    mallory.stop()
    assert world.try_now(ALICE).returncode == 0


def test_a_record_belongs_to_the_owner_of_its_file(world):
    """Whatever uid and id it names."""
    uuid = world.uuid()
    processes = [world.start_process(MALLORY, create_client, world.harbour, "lease-aaaaaaaa", record("aaaaaaaa", ALICE, [uuid])),
               world.start_process(MALLORY, create_client, world.harbour, "lease-bbbbbbbb", record("aaaaaaaa", MALLORY, [uuid]))]
    waiting = world.start_process(MALLORY, create_client, world.harbour, "ticket-000000000000000-cccccccc", record("cccccccc", 0))
    assert world.leases() == {"aaaaaaaa": str(MALLORY), "bbbbbbbb": str(MALLORY)}
    assert [ticket["user"] for ticket in world.status()["queue"]] == [str(MALLORY)]
    waiting.stop()
    for process in processes:
        assert world.try_now(BOB).returncode == 75
        process.stop()
    assert world.try_now(BOB).returncode == 0


@pytest.mark.each_harbour
def test_reservations_do_not_add_up_to_nothing(world):
    """2,048 times 2**53 is 2**64: a sum that wraps around would hide what Alice has reserved."""
    alice = world.in_memory().hold(ALICE, "--mem", "20GiB")
    reserved = 20 << 30
    names, uuid = ids("s", 2048), world.uuid()
    huge = [(f"lease-{name}", record(name, MALLORY, [uuid], request={"count": 1, "memory_bytes": size}))
            for name, size in zip(names, [2**53] * 2047 + [2**53 - reserved])]
    world.start_process(MALLORY, create_clients, world.harbour, huge)
    result = world.try_now(BOB, "--mem", "20GiB")
    assert result.returncode == 75, result
    alice.end()


# Words that others wrote.

NASTY = ["\x1b[31mred\x1b]0;title\x07", "two\nberth: all is well", "\u202egnp.exe", "a\x00b", "\x9b31m", "<script>alert(1)</script>",
         "\ud800", "\u200b\u2066x\u2069", "\\x1b[31m", "tab\tand\rreturn", "x" * 700]


def nasty_records(uuid):
    leases, tickets = [], []
    for number, (text, lease, ticket) in enumerate(zip(NASTY, ids("v", 20), ids("w", 20))):
        words = {"command": text, "label": "" if number % 2 else text}
        leases.append((f"lease-{lease}", json.dumps(record(lease, MALLORY, [uuid], request={"count": 1, "memory_bytes": 1}, **words))))
        tickets.append((f"ticket-{number:015}-{ticket}",
                        json.dumps(record(ticket, MALLORY, request={"count": 1, "name": text}, **words))))
    raw = json.dumps(record("vzzzzzzz", MALLORY, [uuid], command="RAW")).encode().replace(b"RAW", b"\xff\x80\x1b")
    return leases + tickets + [("lease-vzzzzzzz", raw)]


@pytest.mark.parametrize("language", ["C.UTF-8", "C"])
def test_others_words_never_reach_the_terminal_raw(world, language):
    world.start_process(MALLORY, create_clients, world.harbour, nasty_records(world.uuid()))
    env = {"LANG": language, "COLUMNS": "200"}
    shown = world.berth(BOB, "status", env=env)
    assert shown.returncode == 0 and "\\x1b[31mred" in shown.stdout and "two\\n" in shown.stdout
    assert_fit_for_terminal(shown.stdout)
    plain = world.berth(BOB, "status", "--json", env=env).stdout
    assert plain.isascii()
    assert_fit_for_terminal(plain)
    assert len([lease for lease in json.loads(plain)["gpus"][0]["leases"]]) >= len(NASTY) - 1
    refused = world.try_now(BOB, env=env)
    assert refused.returncode == 75 and "leased" in refused.stderr and "\\x1b[31mred" in refused.stderr
    assert_fit_for_terminal(refused.stderr)
    assert refused.stderr.count("\n") == 1
    waiting = world.run(BOB, env=env)
    assert_fit_for_terminal(waiting.said("position "))


@pytest.mark.each_harbour
def test_words_of_honest_users_arrive_escaped_and_count(world):
    """Whatever a command holds, its record must be one that others can read."""
    words = ["a\nb\x1b[31m", "\udcff\udcfe" * 3000, "\u202e" * 3000, "<script>"]
    for word in words:
        alice = world.hold(ALICE, command=[*SAY_AND_STAY, word])
        assert world.leases() == {alice.lease: str(ALICE)}
        refused = world.try_now(BOB)
        assert refused.returncode == 75
        assert_fit_for_terminal(refused.stderr)
        alice.end()
    for flag in (["--label", "\U0001f600" * 64], ["--label", "\x1b" * 256], ["--time", "3650d"], ["--mem", "24GiB"],
                 ["--max-util", "100"], ["--min-mem", "1KiB"]):
        alice = world.hold(ALICE, *flag)
        assert world.leases() == {alice.lease: str(ALICE)}, flag
        assert world.try_now(BOB).returncode == 75, flag
        alice.end()


# Noise at the bell.

def shout(path, ready):
    """Writes as fast as it can."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, 1031, 1 << 20)  # F_SETPIPE_SZ
    noise = b"!" * (1 << 20)
    os.close(ready)
    while True:
        try:
            os.write(fd, noise)
        except BlockingIOError:
            pass
        except BrokenPipeError:
            return


@contextlib.contextmanager
def shouting(world, uid, path, count=2, how=shout):
    pids = []
    for _ in range(count):
        heard, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                become(uid, ready)
                how(path, ready)
            finally:
                os._exit(0)
        os.close(ready)
        os.read(heard, 1)
        os.close(heard)
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.release_only
def test_noise_at_the_bell_of_a_waiter_neither_stops_it_nor_blocks_others(world):
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    later = world.wait(ALICE)
    with shouting(world, MALLORY, world.path(f"bell-{bob.lease}")):
        assert world.queue() == [bob.lease, later.lease]
        for _ in range(3):
            assert world.try_now(MALLORY).returncode == 75
        alice.end()
        bob.started()
        assert later.out.read_text() == ""
        # And at the bell of a lease, where nobody listens.
        with shouting(world, MALLORY, world.path(f"bell-{bob.lease}"), 1):
            assert world.leases() == {bob.lease: str(BOB)}
            assert world.try_now(MALLORY).returncode == 75
            bob.end()
            later.started()


def full(path):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"!" * 4096)
    return fd


def test_a_full_bell_loses_no_ring(world):
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    os.kill(bob.pid, signal.SIGSTOP)
    world.start_process(MALLORY, full, world.path(f"bell-{bob.lease}"))
    alice.end()
    os.kill(bob.pid, signal.SIGCONT)
    bob.started()


def seconds_for(world, pid, call, count):
    """How long a process takes for so many system calls of that kind."""
    trace = world.server.folder / f"trace-{pid}"

    def calls():
        assert tracer.poll() is None, tracer.stderr.read()
        return trace.read_text().count(call) if trace.exists() else 0
    with subprocess.Popen(["strace", "-e", f"trace={call.split('(')[0]}", "-o", trace, "-p", str(pid)], stderr=subprocess.PIPE,
                          text=True) as tracer:
        eventually(calls, f"the first {call}")
        begin = time.monotonic()
        eventually(lambda: calls() > count, f"{count} times {call}")
        seconds = time.monotonic() - begin
        tracer.terminate()
    return seconds


def ring_without_end(path, ready):
    """One ring after the other, so that who hears them has little to read."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.close(ready)
    while True:
        with contextlib.suppress(BlockingIOError):
            os.write(fd, b"!")


@pytest.mark.release_only
def test_noise_does_not_make_a_waiter_decide_all_the_time(world):
    """Decisions take the lock, and ask the driver: somebody who shouts must not make the others do that without end.
    A hundred: at 20 a second, of which 20 may come at once."""
    world.hold(ALICE)
    bob = world.wait(BOB)
    with shouting(world, MALLORY, world.path(f"bell-{bob.lease}"), 1, ring_without_end):
        assert seconds_for(world, bob.pid, "flock(", 200) > 3  # each takes the lock, and gives it back
    lines = bob.err.read_text().splitlines()
    assert len(lines) == len(set(lines)), "a line that says nothing new"


@pytest.mark.release_only
def test_noise_does_not_keep_a_keeper_busy(world):
    lease, _ = acquire(world, ALICE)
    keeper, = eventually(lambda: len(found := keepers(world)) == 1 and found,
                         "the keeper, without a child of its name that has yet to exec")
    with shouting(world, MALLORY, world.path(f"bell-{lease}"), 1, ring_without_end):
        assert seconds_for(world, keeper, "ioctl(", 100) > 3  # how much there is to read
    assert world.leases() == {lease: str(ALICE)}


# Many.

@pytest.mark.release_only
@pytest.mark.each_harbour
def test_a_hundred_users(world):
    world.server.use("64x24GiB")
    users = range(3000, 3100)
    jobs = [world.run(uid) for uid in users]
    begin = time.monotonic()

    def settled():
        status = world.status()
        leases = [lease["user"] for gpu in status["gpus"] for lease in gpu["leases"]]
        return (leases, [ticket["user"] for ticket in status["queue"]]) if len(leases) == 64 and len(status["queue"]) == 36 else None
    leases, waiting = eventually(settled, "a hundred clients")
    assert len(leases) == len(set(leases)) == 64 and len(waiting) == 36
    assert {str(uid) for uid in users} == {*leases, *waiting}
    for job in jobs:
        job.process.stdin.close()
    for job in jobs:
        assert job.process.wait(LIMIT) == 0, job.err.read_text()
    print(f"100 users: {time.monotonic() - begin:.1f} s")
    assert world.leases() == {}
    assert world.names("lease-") == []


def plant_many(harbour, count):
    os.chdir(harbour)
    for number, name in enumerate(ids("t", count)):
        kind = number % 4
        file = [f"lease-{name}", f"ticket-000000000000000-{name}", f"ticket-999999999999998-{name}", f"x{name}"][kind]
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o644))
        if kind < 3:
            os.mkfifo(f"bell-{name}", 0o622)


def assert_all_goes_on(world):
    """Who asks is granted, who comes second waits, and starts when the first has ended."""
    assert world.try_now(ALICE).returncode == 0
    alice = world.hold(ALICE)
    bob = world.wait(BOB)
    alice.end()
    bob.started()


def test_ten_thousand_planted_files(world):
    world.in_memory()
    world.do(MALLORY, plant_many, world.harbour, 10_000)
    assert_all_goes_on(world)


@pytest.mark.release_only
def test_more_live_leases_than_descriptors_stop_nobody(world):
    """Who may open few files can still decide: it need not watch all bells at once."""
    world.server.use("2x24GiB")
    world.in_memory()
    names, uuid = ids("u", 300), world.uuid(0)
    world.start_process(MALLORY, create_clients, world.harbour,
                 [(f"lease-{name}", record(name, MALLORY, [uuid], request={"count": 1, "memory_bytes": 1 << 20}))
                  for name in names])
    few = ["prlimit", "--nofile=128:128"]
    result = world.try_now(ALICE, prefix=few)
    assert (result.returncode, result.stderr) == (0, "")
    bob = world.hold(BOB, prefix=few)
    assert bob.gpus == "1"
    alice = world.wait(ALICE, prefix=few)
    assert world.berth(ALICE, "status", prefix=few).returncode == 0
    bob.end()
    alice.started()


@pytest.mark.each_harbour
@pytest.mark.parametrize("kind", ["impossible", "later version"])
def test_tickets_that_want_nothing_keep_nobody_out(world, kind):
    changes = {"impossible": {"request": {"count": 100}}, "later version": {"version": 7}}[kind]
    world.in_memory()
    world.start_process(MALLORY, create_clients, world.harbour,
                 [(f"ticket-000000000000000-{name}", record(name, MALLORY, **changes)) for name in ids("y", 200)])
    assert_all_goes_on(world)


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_a_long_queue_for_one_gpu_keeps_no_other_idle(world):
    """However long it is, and with few descriptors."""
    world.server.use("2x24GiB")
    world.in_memory()
    wanted = {"count": 1, "gpus": [world.uuid(0)]}
    world.hold(BOB, "--gpu", "0")
    world.start_process(MALLORY, create_clients, world.harbour,
                 [(f"ticket-000000000000000-{name}", record(name, MALLORY, request=wanted)) for name in ids("y", 300)])
    for prefix in ([], ["prlimit", "--nofile=128:128"]):
        result = world.try_now(ALICE, "--gpu", "1", prefix=prefix)
        assert (result.returncode, result.stderr) == (0, "")
    alice = world.hold(ALICE, "--gpu", "1")
    bob = world.wait(BOB, "--gpu", "1")
    alice.end()
    bob.started()


@pytest.mark.release_only
@pytest.mark.each_harbour
@pytest.mark.parametrize("count", [2, 100])
def test_tickets_that_watch_nothing_do_not_let_the_queue_sleep(world, count):
    """The first two of the queue notice every death. If they are files of Mallory's, somebody else must."""
    world.server.use("2x24GiB")
    mallory = world.hold(MALLORY, "--gpu", "0")
    alice = world.hold(ALICE, "--gpu", "1")
    wanted = {"count": 1, "gpus": [world.uuid(0)]}
    world.start_process(MALLORY, create_clients, world.harbour, [(f"ticket-000000000000000-{name}", record(name, MALLORY, request=wanted))
                                                     for name in ids("a", count)])
    bob = world.wait(BOB, "--gpu", "1")
    alice.end()
    bob.started()
    mallory.end()


@pytest.mark.release_only
@pytest.mark.each_harbour
@pytest.mark.parametrize("count", [2, 100])
def test_who_watches_beside_tickets_of_one_user_learns_of_new_leases(world, count):
    """The first are files of Mallory's. Alice takes a GPU that Bob, behind them, has not seen her take; her next job
    leaves it to him to notice the end."""
    world.server.use("3x24GiB")
    mallory = world.hold(MALLORY, "--gpu", "0")
    world.hold(ALICE, "--gpu", "1")
    wanted = {"count": 1, "gpus": [world.uuid(0)]}
    world.start_process(MALLORY, create_clients, world.harbour, [(f"ticket-000000000000000-{name}", record(name, MALLORY, request=wanted))
                                                     for name in ids("a", count)])
    world.wait(BOB, "--gpu", "1")
    alice = world.hold(ALICE, "--gpu", "2")
    later = world.wait(ALICE, "--gpu", "2")
    alice.end()
    later.started()
    mallory.end()


# What cannot be prevented is explained.

def lock(harbour, how=fcntl.LOCK_EX):
    LIBC.prctl(15, b"\x1b[31mevil", 0, 0, 0)  # PR_SET_NAME
    fd = os.open(harbour, os.O_RDONLY)
    fcntl.flock(fd, how)
    return fd


@pytest.mark.release_only
def test_who_keeps_the_lock_is_named(world):
    mallory = world.start_process(MALLORY, lock, world.harbour)
    named = f"evil (pid {mallory.pid}, user {MALLORY})"
    # Who may not see others' processes (hidepid) is told the number at least.
    hidden = world.server.run(*world.prefix(ALICE), "test", "-e", "/proc/1/comm").returncode != 0
    alice = world.run(ALICE)
    status = world.run(0, command=None, subcommand="status")
    no_wait = world.run(0, "--no-wait", command=["true"])
    assert_fit_for_terminal(alice.said(f"pid {mallory.pid}" if hidden else named))
    assert status.process.wait(LIMIT) == 74
    assert no_wait.process.wait(LIMIT) == 74
    for one in (status, no_wait):
        words = one.err.read_text()
        assert named in words
        assert_fit_for_terminal(words)
    mallory.stop()
    alice.started()


def lock_and_hand_on(harbour, go):
    """The kernel goes on to name the process that took the lock, when only its child has it."""
    fd = lock(harbour)
    if os.fork() == 0:
        os.set_inheritable(fd, True)
        os.dup2(go, 0)
        os.execvp("cat", ["cat"])
    return fd


@pytest.mark.release_only
def test_a_lock_that_was_handed_on_is_not_blamed_on_the_dead(world):
    leash, hold = os.pipe()
    mallory = UserProcess(MALLORY, lock_and_hand_on, (world.harbour, leash), [leash])
    mallory.stop()
    try:
        alice = world.run(ALICE)
        words = alice.said("lock")
        assert f"pid {mallory.pid}" not in words, words
    finally:
        os.close(hold)
        os.close(leash)
    alice.started()


@pytest.mark.each_harbour
def test_who_leases_everything_is_named(world):
    world.hold(MALLORY, "--label", "mine, all mine")
    refused = world.try_now(ALICE)
    assert refused.returncode == 75 and f"{MALLORY} (mine, all mine)" in refused.stderr
    [lease] = world.status()["gpus"][0]["leases"]
    assert lease["user"] == str(MALLORY)


# Numbers of processes are used again.

def test_the_number_of_anothers_process_neither_protects_nor_blocks(world):
    """Alice's ticket names a process that is, by now, one of Bob's, and stopped. Root sees that, even where /proc is
    hidden from others."""
    other = world.start_process(BOB, os.getpid)
    os.kill(other.pid, signal.SIGSTOP)
    world.hold(BOB)
    world.start_process(ALICE, create_client, world.harbour, "ticket-000000000000001-aaaaaaaa", record("aaaaaaaa", ALICE, pid=other.pid))
    late = world.wait(0)
    world.jobs[0].end()
    # Not passed over as stopped: it could start, and the one behind gives it time to claim.
    eventually(lambda: "claimed" in world.status(0)["queue"][0]["reason"], "its turn")
    late.started()  # it never claims, so it is passed over after some seconds


def test_a_process_is_a_leases_only_by_its_users_word(world):
    """A stranger cannot hide behind another's lease by naming it, nor a lease claim another's process."""
    server = world.server
    alice = world.hold(ALICE, "--mem", "10GiB")
    job = [str(world.berth_path.parent / "berth-sim-job"), "--mem", "8GiB"]
    stranger = server.start_job(*job[1:], gpu=0, program=job[0], prefix=world.prefix(MALLORY), env={"BERTH_LEASE": alice.lease})

    def assert_seen():
        for uid in (0, ALICE, BOB, MALLORY):
            [process] = world.status(uid)["gpus"][0]["processes"]
            assert process["lease"] is None, uid
            if process["user"]:  # not hidden from this user (hidepid): then nobody can tell whose it is
                assert world.try_now(uid, "--mem", "8GiB", "--max-processes", "9").returncode == 75, uid
    assert_seen()
    name = "aaaaaaaa"
    world.start_process(BOB, create_client, world.harbour, f"lease-{name}",
                 record(name, BOB, [world.uuid()], pid=stranger.pid, request={"count": 1, "memory_bytes": 1 << 30}))
    assert_seen()


# The default directory.

def default(world):
    """Where the harbour is if nobody chose: beside the simulated server's state."""
    return world.server.folder / "sim.state.harbour"


def test_the_default_is_everybodys_whoever_made_it(world):
    env = {"BERTH_DIR": None}
    result = world.server.run("sh", "-c", 'umask 077; exec "$@"', "sh", *world.prefix(ALICE), world.berth_path, "run", "--", "true", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    about = default(world).stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o1777, ALICE)
    assert world.try_now(BOB, env=env).returncode == 0


@pytest.mark.parametrize("what", ["symlink", "dangling", "file", "fifo", "socket"])
def test_something_else_at_the_default_is_refused(world, what):
    path = default(world)
    (world.server.folder / "elsewhere").mkdir()
    (world.server.folder / "elsewhere").chmod(0o1777)

    def plant():
        if what in ("symlink", "dangling"):
            os.symlink("elsewhere" if what == "symlink" else "nowhere", path)
        elif what == "file":
            put(path, "x")
        elif what == "fifo":
            os.mkfifo(path)
        else:
            os.mknod(path, stat.S_IFSOCK | 0o666)
    world.do(MALLORY, plant)
    for arguments in (["run", "--", "true"], ["status"]):
        result = world.berth(ALICE, *arguments, env={"BERTH_DIR": None})
        assert result.returncode == 74, result
        assert "directory" in result.stderr and str(MALLORY) in result.stderr
        assert result.stderr.count("\n") == 1
    assert os.listdir(world.server.folder / "elsewhere") == []


def test_a_directory_where_anybody_could_delete_is_refused(world):
    os.chmod(world.harbour, 0o777)
    for arguments in (["run", "--", "true"], ["status"]):
        result = world.berth(ALICE, *arguments)
        assert result.returncode == 74 and "sticky" in result.stderr and "chmod 1777" in result.stderr


@pytest.mark.each_harbour
def test_what_the_owner_of_the_directory_deletes_is_put_back_and_said(world):
    os.chown(world.harbour, MALLORY, MALLORY)
    alice = world.hold(ALICE)
    eventually(lambda: watches_files(alice.pid), "the watch")
    world.do(MALLORY, os.unlink, world.path(f"lease-{alice.lease}"))
    world.do(MALLORY, os.unlink, world.path(f"bell-{alice.lease}"))
    alice.said(alice.lease)
    eventually(lambda: world.leases() == {alice.lease: str(ALICE)}, "the lease")
    assert world.try_now(BOB).returncode == 75


@pytest.mark.parametrize("alive", [False, True])
def test_a_taken_id_is_no_end_of_the_job(world, alive):
    """Bob's ticket is known by its id. Mallory has a lease of this name when it is granted, so that it gets another one."""
    home = world.server.folder / "bob"
    home.mkdir()
    os.chown(home, BOB, BOB)
    env = {"HOME": str(home)}
    held = world.hold(ALICE)
    job = world.wait(BOB, command=["sh", "-c", "read -r line; exit 7"])
    ticket = job.lease
    after = world.berth(BOB, "run", "-d", "--after-any", ticket, "--", "true", env=env).stdout.strip()
    world.do(MALLORY, put, world.path(f"lease-{ticket}"), record(ticket, MALLORY, ["GPU-x"]))
    held.end()
    [lease] = eventually(lambda: [one for one, user in world.leases().items() if user == str(BOB)], "the grant")
    assert lease != ticket
    if alive:
        world.start_process(MALLORY, bell, world.harbour, ticket)
    shown = {one["id"]: one["state"] for one in json.loads(world.berth(BOB, "jobs", "--json", env=env).stdout)["jobs"]}
    assert shown == {ticket: "running", after: "held"}
    wait = subprocess.Popen([*world.prefix(BOB), world.berth_path, "wait", ticket], env=world.server.env)
    assert world.berth(BOB, "wait", "--timeout", "1ms", ticket).returncode == 75
    job.process.stdin.close()
    assert wait.wait(LIMIT) == 7
    assert world.berth(BOB, "wait", after, env=env).returncode == 0
