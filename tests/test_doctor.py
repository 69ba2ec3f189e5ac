"""berth doctor: each finding is made true, and then found, with its remedy; nothing is made or changed."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import (BERTH, BUILD, ROOT, SERVERS, assert_fit_for_terminal, assert_one_line_error,
                      wait_until)
from leasing import written_on
from waiting import LIMIT

DAEMON = 1  # a user whom every Debian has
ID = "abcdefgh"
AS_DAEMON = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups"]


def end_all(server):
    """Kills every process of this server: a job outlives a berth that was killed."""
    mark = f"BERTH_SIM_STATE={server.env['BERTH_SIM_STATE']}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


@pytest.fixture(autouse=True)
def no_job_is_left(server):
    yield
    end_all(server)


def doctor(server, *prefix, program=BERTH, **options):
    """What `berth doctor --json` finds, and its exit code must fit."""
    result = server.run(*prefix, program, "doctor", "--json", **options)
    assert result.stderr == "", result.stderr
    findings = json.loads(result.stdout)["findings"]
    assert all(list(one) == ["check", "level", "text", "remedy"] for one in findings)
    assert all(one["level"] in ("ok", "note", "problem") for one in findings)
    assert all(one["remedy"] for one in findings if one["level"] == "problem"), "a problem without a remedy"
    assert result.returncode == (1 if any(one["level"] == "problem" for one in findings) else 0)
    return findings


def the(findings, check):
    """The only finding of a check."""
    found = [one for one in findings if one["check"] == check]
    assert len(found) == 1, (check, found)
    return found[0]


def problems(findings):
    return {one["check"] for one in findings if one["level"] == "problem"}


def waiting(server, count):
    wait_until(lambda: len(server.status()["queue"]) == count)


@pytest.fixture
def bells():
    """Bells that live until the test ends."""
    held = []
    yield held
    for bell in held:
        os.close(bell)


def put_client(server, bells, name="lease", uid=0, alive=True, id=ID, **fields):
    """A client's bell and record, as it would write them."""
    bell = server.harbour / f"bell-{id}"
    os.mkfifo(bell)
    bell.chmod(0o622)
    os.chown(bell, uid, uid)
    if alive:
        bells.append(os.open(bell, os.O_RDWR | os.O_NONBLOCK))
    now = int(time.time() * 1000)
    record = {"version": 1, "id": id, "uid": uid, "pid": os.getpid(), "state": "waiting", "since_ms": now,
              "request": {"count": 1}}
    if name == "lease":
        record |= {"state": "holding", "gpus": ["GPU-0"], "granted_ms": now}
    path = server.harbour / f"{name}-{id}"
    path.write_text(json.dumps(record | fields))
    os.chown(path, uid, uid)
    return path


def test_a_good_installation(server):
    findings = doctor(server)
    assert problems(findings) == set()
    assert "570.86.15" in the(findings, "driver")["text"] and "4 GPUs" in the(findings, "driver")["text"]
    assert the(findings, "harbour")["text"].startswith(f"'{server.harbour}'") and "BERTH_DIR" in the(findings, "harbour")["text"]
    assert "root" in the(findings, "owner")["text"]
    for check in ("gpu", "stranger", "mode", "file_system", "writable", "space", "lock", "planted", "leftovers",
                  "queue_order", "stopped", "version", "clock", "harbours", "drain"):
        assert the(findings, check)["level"] == "ok", check
    assert os.listdir(server.harbour) == []


def test_every_check_is_documented(server):
    text = (ROOT / "docs" / "json.md").read_text()
    checks = {one["check"] for one in doctor(server)} | {"private"}
    assert {check for check in checks if f"| `{check}` |" not in text} == set()


def test_text_for_people(server):
    result = server.berth("doctor", "-v")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert any(re.match("ok       driver         .*570.86.15", line) for line in lines)
    assert re.match(r"No problem.* \d+ checks are ok\.$", lines[-1])
    (server.harbour / "drain-GPU-1").mkdir()
    result = server.berth("doctor", env={"COLUMNS": "70"})
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    line = next(i for i, line in enumerate(lines) if re.match("problem  planted        'drain-GPU-1'.* root", line))
    remedy = next(line for line in lines[line:] if f"{server.harbour}/drain-GPU-1" in line)
    assert remedy.startswith(" " * 26)
    assert max(len(line) for line in lines if str(server.folder) not in line) <= 70
    assert lines[-1].startswith("1 problem")
    assert lines[0].startswith("problem  planted"), "problems come first"
    levels = [line.split()[0] for line in server.berth("doctor", "-v").stdout.splitlines()
              if re.match("(ok|note|problem) ", line)]
    assert levels == sorted(levels, key=["problem", "note", "ok"].index)
    assert {"ok", "problem"} <= set(levels)


def test_checks_that_are_ok_are_only_counted(server):
    text = server.berth("doctor").stdout
    assert not re.search("^ok ", text, re.MULTILINE)
    passed = sum(one["level"] == "ok" for one in doctor(server))
    assert f" {passed} checks are ok (-v " in text.splitlines()[-1]


def test_colours_on_a_terminal_only(server):
    (server.harbour / "drain-GPU-1").mkdir()
    master, slave = pty.openpty()
    subprocess.run([BERTH, "doctor", "-v"], env=server.env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    screen = b"".join(written_on(master))
    os.close(master)
    assert b"\x1b[32mok       \x1b[0m" in screen and b"\x1b[1;31mproblem  \x1b[0m" in screen
    assert_fit_for_terminal(server.berth("doctor").stdout)


def test_usage(server):
    assert_one_line_error(server.berth("doctor", "--nope"), 64, "'--nope'")
    assert_one_line_error(server.berth("doctor", "GPU"), 64, "'GPU'")
    for command in ("doctor", "setup"):
        help = server.berth(command, "--help")
        assert help.returncode == 0 and "Exit codes: 0 " in help.stdout
        assert max(map(len, help.stdout.splitlines())) <= 92
    assert "--tmpfiles-dir" not in server.berth("complete", "--", "berth", "setup", "-").stdout


# The driver.

def test_no_driver_and_the_rest_is_still_checked(server):
    findings = doctor(server, env={"BERTH_SIM": None})
    assert problems(findings) == {"driver"}
    assert "libnvidia-ml.so.1" in the(findings, "driver")["text"]
    assert "install" in the(findings, "driver")["remedy"]
    assert the(findings, "lock")["level"] == "ok"


def test_a_driver_that_hangs_and_a_limit_that_makes_no_sense(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB"}], "faults": [{"call": "nvmlInit", "hang": True}]})
    findings = doctor(server, env={"BERTH_DRIVER_TIMEOUT": "300ms"}, timeout=LIMIT)
    assert "300ms" in the(findings, "driver")["text"]
    assert the(findings, "harbour")["level"] == "ok"
    assert the(doctor(server, env={"BERTH_DRIVER_TIMEOUT": "soon"}), "driver")["level"] == "problem"


def test_gpus_that_cannot_be_used(server):
    findings = [one for one in doctor(server.use(SERVERS / "sick.json")) if one["check"] in ("gpu", "stranger")]
    assert [one["level"] for one in findings] == ["problem"] * 4
    texts = [one["text"] for one in findings]
    assert re.match(r"GPU 0\b.*\blost\b", texts[0]) and re.match(r"GPU 1\b.*python \(pid ", texts[1])
    assert re.match(r"GPU 4\b.* 31 GiB ", texts[2])
    assert "fuser" in findings[2]["remedy"]
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "compute_mode": "prohibited"},
                         {"name": "B", "memory": "8GiB", "mig": []}]})
    states = [one for one in doctor(server) if one["check"] == "gpu"]
    assert [one["level"] for one in states] == ["note", "note"]
    assert "prohibited" in states[0]["text"] and "instance" in states[1]["text"]


def test_a_stranger_is_named_with_what_to_do(server, open_build):
    job = server.start_job("--mem", "9GiB", gpu=2, prefix=AS_DAEMON, program=open_build / "bin" / "berth-sim-job")
    stranger = the(doctor(server), "stranger")
    assert stranger["level"] == "problem"
    for word in ("GPU 2", f"berth-sim-job (pid {job.pid}, user daemon)", "9 GiB"):
        assert word in stranger["text"]
    for word in ("daemon", "'berth run'", f"kill {job.pid}", "--max-processes 1"):
        assert word in stranger["remedy"]


# The harbour's directory.

def test_no_harbour_is_made(server):
    missing = server.folder / "none"
    harbour = the(doctor(server, env={"BERTH_DIR": str(missing)}), "harbour")
    assert harbour["level"] == "note" and f"'{missing}'" in harbour["text"]
    assert f"sudo BERTH_DIR={missing} berth setup" in harbour["remedy"]
    assert not missing.exists()
    harbour = the(doctor(server, env={"BERTH_DIR": str(missing / "deeper")}), "harbour")
    assert harbour["level"] == "problem" and "mkdir -p" in harbour["remedy"]
    assert not missing.exists()


def test_something_else_stands_where_the_harbour_belongs(server):
    (server.folder / "file").touch()
    os.chown(server.folder / "file", DAEMON, DAEMON)
    harbour = the(doctor(server, env={"BERTH_DIR": str(server.folder / "file")}), "harbour")
    assert harbour["level"] == "problem" and "directory" in harbour["text"] and "daemon" in harbour["text"]
    # Nobody chose the default, so it may not lead elsewhere.
    default = server.folder / "sim.state.harbour"
    default.symlink_to(server.harbour)
    harbour = the(doctor(server, env={"BERTH_DIR": None}), "harbour")
    assert harbour["level"] == "problem" and harbour["text"].startswith(f"'{default}'") and "directory" in harbour["text"]
    assert the(doctor(server, env={"BERTH_DIR": "harbour"}, cwd=server.folder), "harbour")["level"] == "problem"


def test_whose_it_is(server):
    os.chown(server.harbour, DAEMON, DAEMON)
    owner = the(doctor(server), "owner")
    assert owner["level"] == "note" and "daemon" in owner["text"]
    assert f"sudo BERTH_DIR={server.harbour} berth setup" in owner["remedy"]
    os.chown(server.harbour, 0, 0)
    os.chown(server.folder, DAEMON, DAEMON)
    owner = the(doctor(server), "owner")
    assert owner["level"] == "note" and "daemon" in owner["text"]


@pytest.mark.parametrize("mode, level, words", [(0o777, "problem", "delete"),
                                                (0o755, "note", "every"), (0o3777, "ok", "")])
def test_its_mode(server, mode, level, words):
    server.harbour.chmod(mode)
    (server.harbour / "junk").touch()
    findings = doctor(server)
    finding = the(findings, "mode")
    assert finding["level"] == level and words in finding["text"] and f"{mode:04o}" in finding["text"]
    assert level == "ok" or "chmod 1777" in finding["remedy"]
    assert the(findings, "planted")["level"] == "note", "what is in it is looked at all the same"


def test_it_cannot_be_written_to_or_opened(server, open_build):
    program = open_build / "bin" / "berth"
    assert the(doctor(server, *AS_DAEMON, program=program), "writable")["level"] == "ok"
    server.harbour.chmod(0o755)
    assert the(doctor(server, *AS_DAEMON, program=program), "writable")["level"] == "problem"
    server.harbour.chmod(0o700)
    harbour = the(doctor(server, *AS_DAEMON, program=program), "harbour")
    assert "Permission denied" in harbour["text"] and "berth setup" in harbour["remedy"]


@pytest.mark.parametrize("options, level", [("size=512k", "problem"), ("size=32m", "note"),
                                            ("size=1g,nr_inodes=50", "problem"), ("size=1g", "ok")])
def test_space(server, options, level):
    script = f'mount -t tmpfs -o mode=1777,{options} none "$BERTH_DIR" && exec {BERTH} doctor --json'
    findings = json.loads(server.run("unshare", "--mount", "sh", "-c", script).stdout)["findings"]
    assert the(findings, "space")["level"] == level
    script = f'mount -t tmpfs -o mode=1777,ro none "$BERTH_DIR" && exec {BERTH} doctor --json'
    findings = json.loads(server.run("unshare", "--mount", "sh", "-c", script).stdout)["findings"]
    assert the(findings, "writable")["level"] == "problem"


def in_private_mounts(server, script, **variables):
    """Runs a script in a mount namespace of its own, with the build at /mnt, wherever it lies."""
    env = {"BERTH_DIR": None, **variables}
    result = server.run("unshare", "--mount", "sh", "-ec", f"mount --bind {BUILD} /mnt\n{script}", env=env)
    assert result.stderr == "", result.stderr
    return json.loads(result.stdout)["findings"]


def test_a_tmp_that_is_private(server):
    """As a service with PrivateTmp sees it. /tmp/berth is a folder of this test there."""
    private = server.folder / "systemd-private-0123-job.service-x" / "tmp"
    (private / "berth").mkdir(parents=True)
    (private / "berth").chmod(0o1777)
    private.chmod(0o1777)
    findings = in_private_mounts(server, f"mount --bind {private} /tmp\nexec /mnt/bin/berth doctor --json || true",
                                 BERTH_SIM=None)
    assert the(findings, "harbour")["text"].startswith("'/tmp/berth'") and "BERTH_DIR" not in the(findings, "harbour")["text"]
    assert the(findings, "private")["level"] == "problem"
    assert "/tmp/berth" in the(findings, "private")["text"]
    assert "PrivateTmp" in the(findings, "private")["remedy"]


def test_cleaning_by_age(server):
    """With systemd-tmpfiles and its configuration as this test says."""
    (server.folder / "conf").mkdir()
    script = (f"mount --bind {server.folder}/conf /etc/tmpfiles.d\ntouch {server.folder}/tool\n"
              f"chmod +x {server.folder}/tool\n[ ! -e /usr/bin/systemd-tmpfiles ] || "
              f"mount --bind {server.folder}/tool /usr/bin/systemd-tmpfiles\nexec {BERTH} doctor --json")
    finding = the(in_private_mounts(server, script, BERTH_DIR=str(server.harbour)), "cleaning")
    assert finding["level"] == "note" and f"sudo BERTH_DIR={server.harbour} berth setup" in finding["remedy"]
    (server.folder / "conf" / "other.conf").write_text(f"x {server.harbour}\n")
    finding = the(in_private_mounts(server, script, BERTH_DIR=str(server.harbour)), "cleaning")
    assert finding["level"] == "ok" and "systemd-tmpfiles" in finding["text"]


# What is in the harbour.

def plant_fifo(path):
    os.mkfifo(path)


def plant_device(path):
    os.mknod(path, 0o20644, os.makedev(1, 5))


def plant_nothing_much(path):
    path.write_text("nonsense")


@pytest.mark.parametrize("name", [f"lease-{ID}", f"ticket-000000000000001-{ID}", "drain-GPU-1"])
@pytest.mark.parametrize("plant, words", [
    (lambda path: path.symlink_to("/etc/passwd"), "symbolic link"),
    (plant_fifo, "FIFO"),
    (lambda path: path.mkdir(), "directory"),
    (plant_device, "device"),
    (lambda path: path.write_bytes(b"x" * (1 << 20)), "large"),
], ids=["symlink", "fifo", "directory", "device", "huge"])
def test_planted_files(server, name, plant, words):
    plant(server.harbour / name)
    os.chown(server.harbour / name, DAEMON, DAEMON, follow_symlinks=False)
    planted = the(doctor(server), "planted")
    assert planted["level"] == "problem" and planted["text"].startswith(f"'{name}' ") and "daemon" in planted["text"]
    assert words in planted["text"]
    # It names the path; without that file all is well.
    path = server.harbour / name
    assert str(path) in planted["remedy"]
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert the(doctor(server), "planted")["level"] == "ok"


def test_records_that_do_not_count(server, bells):
    path = put_client(server, bells)
    assert the(doctor(server), "planted")["level"] == "ok"
    os.chown(path, DAEMON, DAEMON)
    assert "bell" in the(doctor(server), "planted")["text"]
    os.chown(path, 0, 0)
    path.write_text(json.dumps({"version": 1, "id": ID, "uid": DAEMON, "pid": 1, "since_ms": 1, "state": "holding",
                                "gpus": ["GPU-0"], "request": {"count": 1}}))
    assert the(doctor(server), "planted")["level"] == "ok", "its owner is the file's"


def test_a_live_lease_that_cannot_be_read(server, bells):
    path = put_client(server, bells)
    assert the(doctor(server), "unreadable")["level"] == "ok"
    path.write_text("nonsense")
    finding = the(doctor(server), "unreadable")
    assert finding["level"] == "problem" and ID in finding["text"]
    assert "rm " not in finding["remedy"]


def test_planted_bells_drains_and_strange_names(server):
    (server.harbour / f"bell-{ID}").mkdir()
    assert "directory" in the(doctor(server), "planted")["text"]
    (server.harbour / f"bell-{ID}").rmdir()
    (server.harbour / f"bell-{ID}").write_text("x")
    assert "FIFO" in the(doctor(server), "planted")["text"]
    (server.harbour / f"bell-{ID}").unlink()
    (server.harbour / "drain-GPU-1").write_text('{"gpu": "GPU-1"}')
    os.chown(server.harbour / "drain-GPU-1", DAEMON, DAEMON)
    assert "root" in the(doctor(server), "planted")["text"]
    (server.harbour / "drain-GPU-1").unlink()
    (server.harbour / "\x1b[2J\n\u202e; rm -rf \xff").mkdir()
    planted = the(doctor(server), "planted")
    [(strange, inode)] = [(entry.path, entry.inode()) for entry in os.scandir(server.harbour)]
    assert "directory" in planted["text"] and str(inode) in planted["remedy"]  # the name is not for a shell
    result = server.berth("doctor")
    assert_fit_for_terminal(result.stdout)
    assert "\\x1b[2J\\n" in result.stdout
    os.rmdir(strange)
    assert the(doctor(server), "planted")["level"] == "ok"


def test_twenty_planted_files_are_listed(server):
    for i in range(30):
        (server.harbour / f"drain-GPU-{i}").mkdir()
    planted = [one for one in doctor(server) if one["check"] == "planted"]
    assert len(planted) == 21 and planted[-1]["text"].startswith("10 ")
    text = server.berth("doctor").stdout
    assert len(re.findall("^problem  planted", text, re.MULTILINE)) == 6 and " 25 more like these" in text


def test_a_directory_with_another_purpose(server):
    """BERTH_DIR=/usr: no advice to move away what is in it."""
    for name in ("bin", "lib", "share", "src", "local", "etc"):
        (server.harbour / name).mkdir()
    result = server.berth("doctor")
    assert result.returncode == 0
    [line] = re.findall("^note     planted .*", result.stdout, re.MULTILINE)
    assert " and 3 more are ignored" in line
    assert "directory of its own" in result.stdout and "move it away" not in result.stdout


def test_leftovers_of_dead_clients(server, bells):
    put_client(server, bells, uid=DAEMON, alive=False)
    put_client(server, bells, uid=0, alive=False, name="ticket-000000000000001", id="bcdefghi")
    lone = server.harbour / "bell-cdefghij"
    os.mkfifo(lone)
    leftovers = the(doctor(server), "leftovers")
    assert all(words in leftovers["text"] for words in ("2 files", "1 of daemon", "1 of root")), "a bell may be new"
    os.utime(lone, (1, 1))
    leftovers = the(doctor(server), "leftovers")
    assert leftovers["level"] == "note"
    assert all(words in leftovers["text"] for words in ("3 files", "1 of daemon", "2 of root"))
    assert len(os.listdir(server.harbour)) == 5, "doctor removes nothing"
    assert server.berth("run", "--", "true").returncode == 0
    assert the(doctor(server), "leftovers")["level"] == "ok", "the next 'berth run' of root has removed them"


def test_a_later_version(server, bells):
    put_client(server, bells, version=2)
    finding = the(doctor(server), "version")
    assert finding["level"] == "note" and re.search(r"\b2\b.*\b1\b", finding["text"])
    (server.harbour / f"lease-{ID}").write_text(json.dumps({"version": 2, "id": ID, "uid": 0, "gpus": {"new": 1}}))
    finding = the(doctor(server), "version")
    assert finding["level"] == "problem" and ID in finding["text"]


def test_dates_in_the_future(server, bells):
    ahead = int(time.time() * 1000) + 7_230_000
    put_client(server, bells, granted_ms=ahead)
    clock = the(doctor(server), "clock")
    assert clock["level"] == "note" and f"lease {ID}" in clock["text"]
    assert " 2h " in clock["text"]


def test_the_archive(server):
    """Where history and profiles are kept: what is wrong there keeps nobody from a GPU."""
    archive = server.harbour / "archive"
    assert (the(doctor(server), "archive")["level"], archive.exists()) == ("ok", False)
    assert server.berth("run", "--", "true").returncode == 0
    assert the(doctor(server), "archive")["level"] == "ok"
    archive.chmod(0o777)
    assert "0777" in noted(server)
    archive.chmod(0o1777)
    own = archive / str(os.geteuid())
    own.rename(archive / f"{own.name}-1")
    own.mkdir()
    os.chown(own, DAEMON, DAEMON)
    assert "daemon" in noted(server)
    archive.rename(server.harbour / "new-archive")
    archive.symlink_to("/etc")
    assert "directory" in noted(server)


def noted(server):
    finding = the(doctor(server), "archive")
    assert finding["level"] == "note" and finding["remedy"]
    return finding["text"]


def test_drains(server):
    uuid = server.status()["gpus"][1]["uuid"]
    (server.harbour / f"drain-{uuid}").write_text(json.dumps(
        {"version": 1, "gpu": uuid, "reason": "fan \x1b[31mbroken", "since_ms": int(time.time() * 1000) - 7_200_500}))
    drain = the(doctor(server), "drain")
    assert drain["level"] == "note" and re.match(r"GPU 1\b.*\broot\b.* 2h .*: fan \x1b\[31mbroken$", drain["text"])
    assert "berth undrain 1" in drain["remedy"]
    assert_fit_for_terminal(server.berth("doctor").stdout)
    # Without a driver nobody knows its index.
    assert f"GPU {uuid} " in the(doctor(server, env={"BERTH_SIM": None}), "drain")["text"]


# The lock and the queue.

@pytest.mark.parametrize("kind", ["LOCK_EX", "LOCK_SH"])
def test_who_keeps_the_lock(server, bells, kind):
    put_client(server, bells, alive=False)
    code = (f"import fcntl, os, signal\nfd = os.open({str(server.harbour)!r}, os.O_RDONLY)\n"
            f"fcntl.flock(fd, fcntl.{kind})\nprint('locked', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)")
    holder = server.start(sys.executable, "-c", code)
    assert holder.stdout.readline() == "locked\n"
    wait_until(lambda: open(f"/proc/{holder.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    started = time.monotonic()
    findings = doctor(server)
    assert time.monotonic() - started < 10
    lock = the(findings, "lock")
    assert lock["level"] == "problem" and f"(pid {holder.pid}, user root)" in lock["text"]
    assert "kill -CONT" in lock["remedy"]
    assert the(findings, "leftovers")["level"] == "note", "what can be seen without the lock is seen"


def test_doctor_leaves_the_lock(server):
    doctor(server)
    fd = os.open(server.harbour, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


def queue_of_two(server):
    """A lease on everything, and two tickets behind it: their processes, in the queue's order."""
    server.start(BERTH, "run", "-n", "4", "--", "sleep", "1000")
    wait_until(lambda: server.status()["gpus"][0]["leases"])
    waiters = []
    for i in (1, 2):
        waiters.append(server.start(BERTH, "run", "--label", f"waiter {i}", "--", "true"))
        waiting(server, i)
        # Their files must differ by more than the clock's ticks.
        born = max(path.stat().st_ctime for path in server.harbour.glob("ticket-*"))
        wait_until(lambda: time.time() > born + 0.2)
    return waiters


def test_an_honest_queue(server):
    queue_of_two(server)
    findings = doctor(server)
    order = the(findings, "queue_order")
    assert (order["level"], order["remedy"]) == ("ok", None) and order["text"].startswith("2 ")
    assert the(findings, "stopped")["level"] == "ok" and the(findings, "harbours")["level"] == "ok"


def test_the_queue_is_in_the_order_in_which_tickets_came(server):
    """A new name, or another number in the record, moves no ticket before one that came earlier."""
    first, second = queue_of_two(server)
    ticket = sorted(server.harbour.glob("ticket-*"))[1]
    id = ticket.name.rsplit("-", 1)[1]
    ticket.rename(server.harbour / f"ticket-000000000000000-{id}")
    assert id in the(doctor(server), "planted")["text"]
    record = server.harbour / f"ticket-000000000000000-{id}"
    record.write_text(json.dumps({**json.loads(record.read_text()), "order": 0}))
    assert the(doctor(server), "queue_order")["level"] == "ok"
    assert [ticket["pid"] for ticket in server.status()["queue"]] == [first.pid, second.pid]


def test_a_stopped_waiter(server):
    first, _ = queue_of_two(server)
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: the(doctor(server), "stopped")["level"] == "note")
    stopped = the(doctor(server), "stopped")
    assert f"(pid {first.pid})" in stopped["text"]
    assert f"kill -CONT {first.pid}" in stopped["remedy"]


def test_leases_in_two_harbours(server):
    other = server.folder / "sim.state.harbour"  # the default of this simulated server
    job = server.start(BERTH, "run", "--", "sh", "-c", "echo started; exec sleep 1000", env={"BERTH_DIR": ""})
    assert job.stdout.readline() == "started\n"
    finding = the(doctor(server), "harbours")
    assert finding["level"] == "problem" and f"'{other}'" in finding["text"]
    assert the(doctor(server, env={"BERTH_DIR": None}), "harbours")["level"] == "ok"
    # The other way round: here the default, there BERTH_DIR.
    end_all(server)
    wait_until(lambda: the(doctor(server), "harbours")["level"] == "ok")
    job = server.start(BERTH, "run", "--", "sh", "-c", "echo started; exec sleep 1000")
    assert job.stdout.readline() == "started\n"
    wait_until(lambda: "sleep (pid " in the(doctor(server, env={"BERTH_DIR": None}), "harbours")["text"])
    finding = [one for one in doctor(server, env={"BERTH_DIR": None}) if str(server.harbour) in one["text"]]
    assert [one["check"] for one in finding] == ["harbours"]
    assert finding[0]["level"] == "problem"
    # Another name of the same directory is not another harbour.
    (server.folder / "alias").symlink_to(server.harbour)
    assert the(doctor(server, env={"BERTH_DIR": str(server.folder / "alias")}), "harbours")["level"] == "ok"


# The surroundings.

def test_limits(server, open_build):
    program = open_build / "bin" / "berth"
    assert the(doctor(server, "prlimit", "--nofile=100:100"), "descriptors")["level"] == "problem"
    finding = the(doctor(server, "prlimit", "--nproc=20", "setpriv", "--reuid=61234", "--regid=61234",
                         "--clear-groups", program=program), "processes")
    assert finding["level"] == "problem" and "20 processes" in finding["text"]
    (server.folder / "few").write_text("8\n")
    script = f"mount --bind {server.folder}/few /proc/sys/fs/inotify/max_user_instances\nexec {BERTH} doctor --json || true"
    finding = the(in_private_mounts(server, script, BERTH_DIR=str(server.harbour)), "inotify")
    assert finding["level"] == "problem" and "8 inotify" in finding["text"]


@pytest.mark.parametrize("option, prefix, level, words", [
    ("hidepid=2", " ".join(AS_DAEMON), "note", "strangers"),
    ("hidepid=1", " ".join(AS_DAEMON), "note", "strangers"),
    ("hidepid=2", "", "note", "ordinary"),
    ("hidepid=0", " ".join(AS_DAEMON), "ok", "/proc"),
])
def test_processes_that_are_hidden(server, open_build, option, prefix, level, words):
    script = f"mount -t proc -o {option} proc /proc\nexec {prefix} {open_build}/bin/berth doctor --json"
    proc = the(in_private_mounts(server, script, BERTH_DIR=str(server.harbour)), "proc")
    assert proc["level"] == level and words in proc["text"]


def test_another_pid_namespace(server):
    assert the(doctor(server), "pid_namespace")["level"] == "ok"
    finding = the(doctor(server, "unshare", "--pid", "--fork", "--mount-proc"), "pid_namespace")
    assert finding["level"] == "note" and "--pid=host" in finding["remedy"]
