"""Other namespaces, a full or read-only disk, a harbour that is deleted, a wrong clock: still no GPU twice."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading

import pytest
from conftest import SANITIZED
from leasing import watches_files
from processes import ALICE, BOB, CAROL, DAVE, Host, wait_for, wait_until_stopped
from waiting import LIMIT

NOT_GRANTED, HARBOUR_FAILS = 75, 74


@pytest.fixture
def host(server, open_build):
    one = Host(server.use("1x24GiB"), open_build)
    yield one
    one.stop()


@pytest.fixture
def disk(host):
    """The harbour as a small file system of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=1777,nr_inodes=64", "tmpfs", host.harbour], check=True)
    yield host.harbour
    host.stop()
    subprocess.run(["umount", "--lazy", host.harbour], check=True)


def become(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


# Commands that run the rest in a namespace of its own, as a user. They need root, so they are started as root.
NAMESPACES = {
    "no": lambda uid: become(uid),
    "pid": lambda uid: ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *become(uid)],
    "mount": lambda uid: ["unshare", "--mount", *become(uid)],
}


def inner(host, client):
    """The processes of a client that was started through a namespace: berth and its job, by the outer PIDs."""
    return [pid for pid in host.processes() if pid != client.pid and parent_chain(pid, client.pid)]


def parent_chain(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return False
    return False


def berth_of(host, client):
    """The PID, as seen from here, of the `berth run` that a client started."""
    def find():
        for pid in [client.pid, *inner(host, client)]:
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_bytes() == b"berth\n":
                    return pid
            except (FileNotFoundError, ProcessLookupError):
                continue
        return None
    return wait_for(find, "berth runs in there")


@pytest.mark.each_harbour
@pytest.mark.release_only
@pytest.mark.parametrize("holder_in, waiter_in", [("pid", "no"), ("no", "pid"), ("pid", "pid"), ("mount", "pid"), ("pid", "mount")])
def test_exclusive_and_woken_across_namespaces(host, holder_in, waiter_in):
    holder, gate = host.hold(uid=0, prefix=NAMESPACES[holder_in](ALICE))
    code, errors = host.run("--no-wait", uid=BOB)
    assert code == NOT_GRANTED, errors
    waiter, waiter_gate = host.queue(uid=0, prefix=NAMESPACES[waiter_in](BOB))
    assert not waiter_gate.pid()
    gate.open()
    assert holder.wait() == 0
    waiter_gate.wait_until_started(LIMIT, waiter)
    assert [lease["uid"] for lease in host.leases()] == [BOB]
    waiter_gate.open()
    assert waiter.wait() == 0


@pytest.mark.release_only
@pytest.mark.parametrize("holder_in, waiter_in", [("pid", "no"), ("no", "pid"), ("pid", "pid")])
def test_a_holder_killed_in_another_namespace_wakes_the_waiter(host, holder_in, waiter_in):
    holder, _ = host.hold(uid=0, prefix=NAMESPACES[holder_in](ALICE))
    waiter, gate = host.queue(uid=0, prefix=NAMESPACES[waiter_in](BOB))
    for pid in inner(host, holder) + [holder.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    gate.wait_until_started(LIMIT, waiter)
    gate.open()
    assert waiter.wait() == 0


@pytest.mark.each_harbour
@pytest.mark.release_only
@pytest.mark.parametrize("stopped_in, next_in", [("pid", "no"), ("no", "pid"), ("pid", "pid")])
def test_a_stopped_waiter_in_another_namespace_is_passed_over(host, stopped_in, next_in):
    holder, gate = host.hold(uid=CAROL)
    first, first_gate = host.queue(uid=0, prefix=NAMESPACES[stopped_in](ALICE))
    second, second_gate = host.queue(uid=0, prefix=NAMESPACES[next_in](BOB))
    stopped = berth_of(host, first)
    os.kill(stopped, signal.SIGSTOP)
    wait_until_stopped(stopped)
    gate.open()
    second_gate.wait_until_started(LIMIT, second)
    assert not first_gate.pid()
    os.kill(stopped, signal.SIGCONT)
    second_gate.open()
    first_gate.wait_until_started(LIMIT, first)
    first_gate.open()
    assert first.wait() == 0


# Disks


def fill(disk):
    """Until nothing fits: neither bytes nor files."""
    with pytest.raises(OSError, match="No space left"):
        with open(disk / "filler", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
    with pytest.raises(OSError, match="No space left"):
        for number in range(1000):
            (disk / f"filler{number}").touch()


def unfill(disk):
    for path in disk.glob("filler*"):
        path.unlink(missing_ok=True)


@pytest.mark.each_harbour
def test_a_full_disk_refuses_the_new_and_loses_nothing(host, disk):
    holder, gate = host.hold(uid=ALICE)
    waiter, waiter_gate = host.queue(uid=BOB)
    fill(disk)
    code, errors = host.run(uid=CAROL)
    assert code == HARBOUR_FAILS
    assert "No space left" in errors and errors.count("\n") == 1, errors
    assert host.server.status()["gpus"][0]["state"] == "leased"
    gate.open()
    assert holder.wait() == 0, holder.errors()
    # The release needed no space, and left some behind: what the waiter does with it is its own affair.
    wait_for(lambda: waiter_gate.pid() or waiter.process.poll() is not None, waiter.errors, LIMIT)
    if waiter_gate.pid():
        code, _ = host.run("--no-wait", uid=CAROL)
        assert code in (NOT_GRANTED, HARBOUR_FAILS)
        waiter_gate.open()
        assert waiter.wait() == 0
    else:
        assert waiter.wait() == HARBOUR_FAILS and "No space left" in waiter.errors()
    unfill(disk)
    assert host.run("--timeout", f"{LIMIT}s", uid=CAROL)[0] == 0


@pytest.mark.each_harbour
def test_a_claim_that_finds_no_space_leaves_the_gpu_to_the_next(host, disk):
    """Only the bytes are gone: the ticket is there, its lease cannot be written."""
    holder, gate = host.hold(uid=ALICE)
    waiter, waiter_gate = host.queue(uid=BOB)
    with pytest.raises(OSError, match="No space left"), open(disk / "filler", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    gate.open()
    assert holder.wait() == 0
    wait_for(lambda: waiter_gate.pid() or waiter.process.poll() is not None, waiter.errors, LIMIT)
    if not waiter_gate.pid():
        assert waiter.wait() == HARBOUR_FAILS and "No space left" in waiter.errors(), waiter.errors()
    unfill(disk)
    if waiter_gate.pid():
        waiter_gate.open()
    assert host.run("--timeout", f"{LIMIT}s", uid=CAROL)[0] == 0


@pytest.mark.each_harbour
def test_a_read_only_disk_refuses_the_new_and_releases_the_old(host, disk):
    holder, gate = host.hold(uid=ALICE)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    code, errors = host.run(uid=BOB)
    assert code == HARBOUR_FAILS and "Read-only" in errors and errors.count("\n") == 1, errors
    gate.open()
    assert holder.wait() == 0
    assert host.leases() == []
    assert host.server.status()["gpus"][0]["state"] == "free"
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0


def test_a_strict_umask_hides_nothing_from_the_others(host):
    strict = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    holder, gate = host.hold(uid=ALICE, prefix=strict)
    code, errors = host.run("--no-wait", uid=BOB)
    assert code == NOT_GRANTED and str(ALICE) in errors
    waiter, waiter_gate = host.queue(uid=BOB, prefix=strict)
    second, second_gate = host.queue(uid=CAROL, prefix=strict)
    gate.open()
    waiter_gate.wait_until_started(LIMIT, waiter)
    assert not second_gate.pid()
    waiter_gate.open()
    second_gate.wait_until_started(LIMIT, second)
    second_gate.open()
    assert second.wait() == 0


# Deletion


def put_back(holder, times=1):
    wait_for(lambda: holder.errors().count("deleted") >= times, lambda: f"it notices: {holder.errors()}", LIMIT)


def assert_held(host, uid):
    assert host.run("--no-wait", uid=DAVE)[0] == NOT_GRANTED
    assert [lease["uid"] for lease in host.leases()] == [uid]


@pytest.mark.each_harbour
@pytest.mark.parametrize("deleted", ["bell-*", "lease-*", "*"])
def test_deleted_files_of_a_lease_come_back(host, deleted):
    holder, gate = host.hold(uid=ALICE)
    for times in (1, 2):
        for path in set(host.harbour.glob(deleted)) - {host.harbour / "archive"}:
            path.unlink(missing_ok=True)
        put_back(holder, times)
        assert_held(host, ALICE)
    gate.open()
    assert holder.wait() == 0
    assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0


@pytest.mark.each_harbour
def test_a_deleted_directory_comes_back_with_its_lease(host):
    holder, gate = host.hold(uid=ALICE)
    waiter, waiter_gate = host.queue(uid=BOB)
    shutil.rmtree(host.harbour)
    put_back(holder)
    assert_held(host, ALICE)
    gate.open()
    assert holder.wait() == 0
    waiter_gate.wait_until_started(LIMIT, waiter)
    waiter_gate.open()
    assert waiter.wait() == 0


@pytest.mark.each_harbour
def test_a_replaced_directory_gets_the_lease(host):
    holder, gate = host.hold(uid=ALICE)
    host.harbour.rename(host.folder / "old")
    host.harbour.mkdir()
    host.harbour.chmod(0o1777)
    put_back(holder)
    assert_held(host, ALICE)
    gate.open()
    assert holder.wait() == 0
    assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0


@pytest.mark.each_harbour
def test_nobody_is_faster_than_the_holder_who_makes_the_directory_anew(host):
    """Whoever waits for the new directory's lock finds the lease when it gets it."""
    holder, gate = host.hold(uid=ALICE)
    wait_for(lambda: watches_files(holder.pid), "berth watches its files")
    codes = []

    def arrive():
        wait_for(host.harbour.exists, "the holder makes it")
        codes.append(host.run("--no-wait", uid=BOB)[0])
    for times in range(1, 2 if SANITIZED else 4):
        # Renamed, so that it is gone at one blow; berth makes a new one.
        host.harbour.rename(host.folder / f"old{times}")
        threads = [threading.Thread(target=arrive) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        put_back(holder, times)
        assert set(codes) == {NOT_GRANTED}, (codes, holder.errors())
        wait_for(lambda: watches_files(holder.pid), "berth watches its files again")
    gate.open()
    assert holder.wait() == 0


# Clocks


@pytest.mark.each_harbour
def test_records_from_the_future_free_nothing(host):
    """As after a clock that was set back an hour. The host's own clock is left alone: the record is edited instead."""
    holder, gate = host.hold("--time", "1m", uid=ALICE)
    waiter, waiter_gate = host.queue("--time", "1m", uid=BOB)
    for path in [*host.harbour.glob("lease-*"), *host.harbour.glob("ticket-*")]:
        record = json.loads(path.read_text())
        for key in ("since_ms", "granted_ms"):
            if key in record:
                record[key] += 3_600_000
        path.write_text(json.dumps(record))
    assert host.run("--no-wait", "--time", "1s", uid=CAROL)[0] == NOT_GRANTED
    assert host.server.status()["gpus"][0]["state"] == "leased"
    gate.open()
    assert holder.wait() == 0
    waiter_gate.wait_until_started(LIMIT, waiter)
    waiter_gate.open()
    assert waiter.wait() == 0


@pytest.mark.each_harbour
def test_records_from_the_past_free_nothing(host):
    """A lease that has run far longer than it said is still a lease."""
    holder, gate = host.hold("--time", "1s", uid=ALICE)
    path = next(host.harbour.glob("lease-*"))
    record = json.loads(path.read_text())
    record["granted_ms"] -= 3_600_000
    path.write_text(json.dumps(record))
    assert host.run("--no-wait", uid=BOB)[0] == NOT_GRANTED
    gate.open()
    assert holder.wait() == 0
