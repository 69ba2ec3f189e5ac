"""berth extend: the announced end of a running job moves, for everybody to see."""

import datetime
import json
import os
import pathlib
import re
import signal

import pytest
from conftest import BERTH, assert_one_line_error
from leasing import jobs  # noqa: F401
from leftovers import processes_of
from processes import ALICE
from test_commands import users  # noqa: F401
from waiting import LIMIT, wait_until


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


def test_a_job_that_does_not_run(server, jobs):  # noqa: F811
    ended = server.berth("run", "-d", "--", "true").stdout.strip()
    assert server.berth("wait", ended).returncode == 0
    for word in (ended, "k3f9a2mx"):
        assert_one_line_error(server.berth("extend", word, "1h"), 64, "no running job", word)


def test_a_batch_has_no_single_end(server, jobs):  # noqa: F811
    """It would move the end of the line that started last, and of no other."""
    server.env["XDG_STATE_HOME"] = str(server.folder / "state")
    gate = server.folder / "gate"
    os.mkfifo(gate)
    (server.folder / "lines").write_text(f"cat {gate}\n")
    batch = server.berth("batch", "-d", "--time", "1h", "lines", cwd=server.folder).stdout.strip()
    wait_until(lambda: [gpu for gpu in server.status()["gpus"] if gpu["leases"]], "the line")
    before = only_lease(server)
    assert_one_line_error(server.berth("extend", batch, "1h"), 64, batch, "batch")
    assert only_lease(server)["ends"] == before["ends"]
    assert server.berth("extend", before["id"], "1h").returncode == 0
    gate.write_text("")
    assert server.berth("wait", batch).returncode == 0


def lease_file(server):
    lease = only_lease(server)["id"]
    [path] = [path for path in server.harbour.iterdir() if path.is_file() and lease in path.name]
    return path


@pytest.mark.each_harbour
def test_several_calls_at_once_all_count(server, jobs):  # noqa: F811
    jobs.hold("--time", "1h")
    lease = only_lease(server)["id"]
    calls = [server.start(BERTH, "extend", lease, "1h") for _ in range(8)]
    assert [call.wait(LIMIT) for call in calls] == [0] * 8
    assert 9 * 3600 - 120 < seconds_left(server) < 9 * 3600 + 5


@pytest.mark.each_harbour
def test_deleted_files_come_back_with_the_new_end(server, jobs):  # noqa: F811
    """The holder learns of the new end, and watches the new file."""
    job = jobs.hold("--time", "1h")

    def watched():
        """The inodes that the holder watches, while it does nothing else."""
        if pathlib.Path(f"/proc/{job.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "S":
            return set()
        infos = [path.read_text() for path in pathlib.Path(f"/proc/{job.pid}/fdinfo").iterdir()]
        return {int(number, 16) for info in infos for number in re.findall(r"^inotify .*?ino:([0-9a-f]+)", info, re.MULTILINE)}
    for _ in range(2):
        assert server.berth("extend", only_lease(server)["id"], "1h").returncode == 0
        wait_until(lambda: lease_file(server).stat().st_ino in watched(), "the holder sees the new record")
    file = lease_file(server)
    number = file.stat().st_ino
    file.unlink()
    wait_until(lambda: file.exists() and file.stat().st_ino != number, "the record comes back")
    assert 3 * 3600 - 120 < seconds_left(server) < 3 * 3600 + 5


def test_it_does_not_make_an_idle_lease_busy(server, jobs):  # noqa: F811
    """The time of the file says when the GPUs were last used."""
    jobs.hold("--time", "1h")
    file = lease_file(server)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert server.berth("extend", only_lease(server)["id"], "1h").returncode == 0
    assert file.stat().st_mtime == 1_700_000_000


def test_a_record_of_a_later_version_is_not_rewritten(server, jobs):  # noqa: F811
    jobs.hold("--time", "1h")
    lease = only_lease(server)["id"]
    file = lease_file(server)
    text = file.read_text().replace('"version":1', '"version":7').replace('"holder"', '"new_key":"x","holder"')
    assert '"version":7' in text
    file.write_text(text)
    assert_one_line_error(server.berth("extend", lease, "1h"), 74, lease)
    assert file.read_text() == text


def test_a_job_that_ends_meanwhile_leaves_nothing(server, jobs):  # noqa: F811
    """`extend` is stopped before it renames the new record to the old name, and continues when the lease has ended."""
    job = jobs.hold("--time", "1h")
    lease = only_lease(server)["id"]
    trace = server.folder / "trace"
    trace.touch()
    extend = server.start("strace", "-f", "-o", trace, "-e", "trace=utimensat,renameat", "-e",
                          "inject=utimensat:signal=SIGSTOP:when=1", BERTH, "extend", lease, "1h")
    wait_until(lambda: "--- stopped by SIGSTOP" in trace.read_text(), "the stop")
    job.process.stdin.close()
    job.process.wait(LIMIT)
    for pid in processes_of(server.harbour):
        os.kill(pid, signal.SIGCONT)
    extend.wait(LIMIT)
    assert "renameat" in trace.read_text().split("stopped by SIGSTOP")[1], "the record came after the end of the lease"
    assert [gpu["state"] for gpu in server.status()["gpus"]] == ["free"] * 4
    assert server.berth("run", "-n", "4", "--", "true").returncode == 0
    assert [path for path in server.harbour.iterdir() if lease in path.name] == []


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
