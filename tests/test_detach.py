"""berth run -d and berth batch -d: jobs that the user's terminal does not affect."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import time

import pytest
from conftest import BERTH, assert_one_line_error
from leasing import eventually, jobs  # noqa: F401
from processes import state_of
from waiting import LIMIT

STAYS = ["sh", "-c", 'echo started; exec sleep 1000']


def folder_of(server, job):
    return server.folder / ".local" / "state" / "berth" / "jobs" / job


def output_of(server, job):
    return (folder_of(server, job) / "output").read_text()


def events_of(server, job):
    return [json.loads(line) for line in (folder_of(server, job) / "events").read_text().splitlines()]


def finish_of(server, job):
    """The exit code that the job's berth process has recorded; None before that."""
    return next((event["code"] for event in events_of(server, job) if event["event"] == "finished"), None)


def process_of(server, job):
    [pid] = [event["pid"] for event in events_of(server, job) if event["event"] == "started"]
    return pid


def detach(server, *words, **options):
    result = server.berth(*words, **options)
    assert result.returncode == 0, result
    assert re.fullmatch("[a-z0-9]{8}\n", result.stdout), result.stdout
    return result.stdout.strip()


def wait_for_end(server, job):
    eventually(lambda: finish_of(server, job) is not None, f"job {job} ends")
    return finish_of(server, job)


def lease_ids(server):
    return [lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"]]


@pytest.mark.each_harbour
def test_it_returns_at_once_and_the_job_runs_on_its_gpus(server):
    result = server.berth("run", "-d", "-n", "2", "--", "sh", "-c", 'echo "gpus $BERTH_GPUS job $BERTH_JOB"; echo error >&2; exit 3')
    job = result.stdout.strip()
    assert f"berth logs -f {job}" in result.stderr and result.stderr.count("\n") == 1
    assert wait_for_end(server, job) == 3
    assert output_of(server, job) == f"berth: granted GPUs 0,1\ngpus 0,1 job {job}\nerror\n"


@pytest.mark.each_harbour
def test_its_ticket_and_lease_have_its_id_and_jobs_queue_in_their_order(server):
    server.use("1x24GiB")
    first = detach(server, "run", "-d", "--", *STAYS)
    waiting = [detach(server, "run", "-d", "--", "true") for _ in range(5)]
    assert lease_ids(server) == [first]
    assert [ticket["ticket"] for ticket in server.status()["queue"]] == waiting
    assert server.berth("cancel", first).returncode == 0
    for job in waiting:
        assert wait_for_end(server, job) == 0


def test_folder_and_output_are_the_users_alone(server):
    umask = os.umask(0)
    try:
        job = detach(server, "run", "-d", "--", "true")
    finally:
        os.umask(umask)
    wait_for_end(server, job)
    folder = folder_of(server, job)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}
    assert modes.pop(job) == 0o700
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize("arguments, code", [
    (["-n", "99", "--", "true"], 69), (["--", "no-such-program"], 127), (["--", ""], 127), ([], 64), (["--mem", "x", "--", "true"], 64),
    (["--no-wait", "-n", "4", "--", "true"], 75), (["--after", "abcdefgh", "--", "true"], 64), (["--after", "../x", "--", "true"], 64),
    (["--begin", "yesterday", "--", "true"], 64), (["--begin", "2001-01-01", "--", "true"], 64),
])
def test_what_cannot_run_is_refused_at_once_and_leaves_nothing(server, jobs, arguments, code):  # noqa: F811
    jobs.hold("-n", "1")
    assert_one_line_error(server.berth("run", "-d", *arguments), code)
    folder = folder_of(server, "")
    assert not folder.exists() or os.listdir(folder) == []


def test_it_survives_the_terminal_and_the_shell(server):
    """A shell on a terminal starts it, and the terminal is closed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve("/bin/sh", ["sh", "-c", f"{BERTH} run -d -- sh -c 'echo started; exec sleep 1000' >{server.folder}/id; kill -HUP 0; read x"],
                  server.env)
    with contextlib.suppress(OSError):
        while os.read(terminal, 1000):
            pass
    os.close(terminal)
    os.waitpid(pid, 0)
    job = (server.folder / "id").read_text().strip()
    eventually(lambda: "started" in output_of(server, job), "the job runs")
    assert lease_ids(server) == [job]
    berth = process_of(server, job)
    assert os.getsid(berth) == berth, "it has a session of its own"
    os.kill(berth, signal.SIGTERM)
    assert wait_for_end(server, job) == 128 + signal.SIGTERM


def test_no_pipe_of_the_shell_stays_open(server):
    """Command substitution and a reader of another descriptor see the end at once."""
    script = f'exec 3>&1; id=$({BERTH} run -d -- sleep 1000); echo "$id"'
    result = server.run("bash", "-c", script)
    assert len(result.stdout.split()) == 1 and lease_ids(server) == result.stdout.split()


def test_without_a_home_folder_the_state_folder_counts(server):
    folder = server.folder / "state"
    job = detach(server, "run", "-d", "--", "true", env={"HOME": None, "XDG_STATE_HOME": str(folder)})
    eventually(lambda: "finished" in (folder / "berth" / "jobs" / job / "events").read_text())
    assert_one_line_error(server.berth("run", "-d", "--", "true", env={"HOME": "/no/such/home"}), 74, "no home folder")
    assert not os.path.exists("/no")
    assert server.berth("jobs", env={"HOME": "/no/such/home"}).returncode == 0
    readonly = server.folder / "file"
    readonly.write_text("")
    assert_one_line_error(server.berth("run", "-d", "--", "true", env={"XDG_STATE_HOME": str(readonly / "x")}), 74, "cannot make the folder")


def test_a_large_output_has_a_hole_in_the_middle(server):
    folder = server.folder / ".config"
    folder.mkdir()
    (folder / "berth.toml").write_text('[jobs]\noutput = "2MiB"\n')
    job = detach(server, "run", "-d", "--", "sh", "-c", "echo first; head -c 40000000 /dev/zero | tr '\\0' x; echo last; exec sleep 1000")
    path = folder_of(server, job) / "output"
    eventually(lambda: path.stat().st_size > 40_000_000, "the output is written")
    eventually(lambda: path.stat().st_blocks * 512 < 6_000_000, "the middle is given back")
    content = path.read_bytes()
    assert content.startswith(b"berth: granted") and b"first" in content[:1000] and content.endswith(b"last\n")


def test_a_short_job_with_a_large_output_is_bounded_too(server):
    folder = server.folder / ".config"
    folder.mkdir()
    (folder / "berth.toml").write_text('[jobs]\noutput = "2MiB"\n')
    job = detach(server, "run", "-d", "--", "head", "-c", "30000000", "/dev/zero")
    wait_for_end(server, job)
    assert (folder_of(server, job) / "output").stat().st_blocks * 512 < 6_000_000


def test_it_starts_late_and_nobody_waits_for_that(server):
    """Another user can lock the harbour for a while: the process on the terminal returns, the job starts later."""
    lock = os.open(server.harbour, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    job = detach(server, "run", "-d", "--", "echo", "done")
    assert finish_of(server, job) is None
    os.close(lock)
    assert wait_for_end(server, job) == 0
    assert output_of(server, job).endswith("done\n")


@pytest.mark.needs_root
def test_root_does_not_trust_the_job_folders_of_a_user(server):
    """With sudo -E, HOME is that of the user: forged events, FIFOs, and links to other folders."""
    own = detach(server, "run", "-d", "--", "true")
    wait_for_end(server, own)
    victim = server.start("sleep", "1000")
    jobs_folder = folder_of(server, "")
    for forged in ("forgedaa", "fifofifo"):
        folder = jobs_folder / forged
        folder.mkdir()
        (folder / "spec.json").write_text(json.dumps({"version": 1, "id": forged, "kind": "run", "command": ["x"]}))
        (folder / "alive").write_text("")
        if forged == "fifofifo":
            os.mkfifo(folder / "events")
        else:
            ticks = pathlib.Path(f"/proc/{victim.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
            (folder / "events").write_text(json.dumps({"event": "started", "pid": victim.pid, "start_ticks": int(ticks),
                                                       "pid_namespace": os.stat("/proc/self/ns/pid").st_ino}) + "\n")
        for path in [folder, *folder.iterdir()]:
            os.chown(path, 20001, 20001)
    precious = server.folder / "precious"
    (precious / "datasets").mkdir(parents=True)
    os.utime(precious / "datasets", (1, 1))
    lock = os.open(jobs_folder / "forgedaa" / "alive", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    listed = server.berth("jobs")
    assert listed.returncode == 0 and own in listed.stdout and "forgedaa" not in listed.stdout
    assert server.berth("cancel", "--all", "--grace", "0s").returncode == 0
    assert victim.poll() is None
    state = server.folder / "state"
    (state / "berth").mkdir(parents=True)
    (state / "berth" / "jobs").symlink_to(precious)
    assert server.berth("jobs", env={"XDG_STATE_HOME": str(state)}).returncode == 0
    assert (precious / "datasets").exists()
    assert_one_line_error(server.berth("run", "-d", "--", "true", env={"XDG_STATE_HOME": str(state)}), 77, "link")
    os.close(lock)


@pytest.mark.needs_root
@pytest.mark.parametrize("part", ["the folder", "a folder above it", "a link to it"])
def test_roots_jobs_are_not_in_folders_that_a_user_can_replace(server, part):
    """A user who puts a link in the place of such a folder would choose what root writes and removes."""
    state = server.folder / "users" / "state"
    (state / "berth").mkdir(parents=True)
    if part == "a link to it":
        (server.folder / "link").symlink_to(state)
    os.chown(state.parent if part == "a folder above it" else state, 20001, 20001)
    env = {"XDG_STATE_HOME": str(server.folder / "link" if part == "a link to it" else state)}
    job = detach(server, "run", "-d", "--", "true", env=env)
    assert wait_for_end(server, job) == 0
    assert list((state / "berth").iterdir()) == []
    assert folder_of(server, job).is_dir(), "in the home folder"


@pytest.mark.needs_root
@pytest.mark.parametrize("owner, kept", [(0, False), (20001, True)])
def test_a_user_does_not_decide_how_long_roots_jobs_are_kept(server, owner, kept):
    job = detach(server, "run", "-d", "--", "true")
    wait_for_end(server, job)
    eventually(lambda: server.berth("wait", job).returncode == 0)
    folder = server.folder / "config"
    folder.mkdir()
    (folder / "berth.toml").write_text('[jobs]\nkeep = "1m"\n')
    for path in (folder, folder / "berth.toml"):
        os.chown(path, owner, owner)
    old, hour_ago = folder_of(server, job), int(time.time()) - 3600
    (old / "events").write_text(re.sub('"at_ms":[0-9]+', f'"at_ms":{hour_ago}000', (old / "events").read_text()))
    for path in (old, old / "output"):
        os.utime(path, (hour_ago, hour_ago))
    assert server.berth("jobs", env={"XDG_CONFIG_HOME": str(folder)}).returncode == 0
    assert folder_of(server, job).exists() == kept


def test_an_id_that_cannot_be_written_is_not_lost(server):
    """The job runs: the exit code says that a script has no id, and stderr has it."""
    result = server.run("sh", "-c", f"{BERTH} run -d -- sleep 1000 >/dev/full")
    [job] = lease_ids(server)
    assert result.returncode == 74
    assert "No space left" in result.stderr and result.stderr.count(f"berth cancel {job}") == 1 and result.stderr.count("\n") == 2


@pytest.mark.release_only
def test_a_file_system_without_locks_is_refused(server):
    """As NFS without a lock daemon."""
    result = server.run("strace", "-f", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK:when=1", BERTH, "run", "-d", "--",
                        "true")
    assert_one_line_error(result, 74, "No locks available")
    assert os.listdir(folder_of(server, "")) == [] and lease_ids(server) == []


# Other jobs and times


@pytest.mark.each_harbour
def test_after_a_success(server):
    gate = server.folder / "gate"
    os.mkfifo(gate)
    first = detach(server, "run", "-d", "--", "cat", gate)
    second = detach(server, "run", "-d", "--after", first, "--", "echo", "second")
    assert server.status()["queue"] == [], "it has no ticket before"
    assert events_of(server, second)[-1]["reason"] == f"waits for job {first} to succeed"
    gate.write_text("done\n")
    assert wait_for_end(server, second) == 0
    assert output_of(server, second).endswith("second\n")


def test_after_a_failure(server):
    failed = detach(server, "run", "-d", "--", "false")
    wait_for_end(server, failed)
    assert_one_line_error(server.berth("run", "--after", failed, "--", "true"), 69, failed, "--after-any")
    assert server.berth("run", "--after-any", failed, "--", "echo", "yes").stdout == "yes\n"


def test_the_first_failure_of_several_ends_the_wait(server):
    stays = detach(server, "run", "-d", "--", *STAYS)
    gate = server.folder / "gate"
    os.mkfifo(gate)
    fails = detach(server, "run", "-d", "--", "sh", "-c", f"cat {gate}; exit 7")
    waits = detach(server, "run", "-d", "--after", f"{stays},{fails}", "--", "echo", "never")
    gate.write_text("")
    assert wait_for_end(server, waits) == 69
    assert "never" not in output_of(server, waits)


def test_a_job_that_waits_for_others_can_be_interrupted(server, jobs):  # noqa: F811
    first = detach(server, "run", "-d", "--", *STAYS)
    job = jobs.run("--after", first)
    eventually(lambda: first in job.err, "it says why it waits")
    job.process.send_signal(signal.SIGINT)
    assert job.process.wait(LIMIT) == 128 + signal.SIGINT


def test_it_begins_at_a_time(server):
    before = time.time()
    job = detach(server, "run", "-d", "--begin", "3s", "--", "true")
    assert events_of(server, job)[-1]["event"] == "held"
    assert wait_for_end(server, job) == 0
    [granted] = [event["at_ms"] for event in events_of(server, job) if event["event"] == "granted"]
    assert granted / 1000 >= before + 3


# kill -9


def test_kill_9_of_its_berth_process_leaves_the_job_its_lease_and_its_output(server):
    gate = server.folder / "gate"
    os.mkfifo(gate)
    job = detach(server, "run", "-d", "--", "sh", "-c", f"echo before; cat {gate}; echo after")
    eventually(lambda: "before" in output_of(server, job), "the job runs")
    berth = process_of(server, job)
    os.kill(berth, signal.SIGKILL)
    eventually(lambda: state_of(berth) in (None, "Z"), "it is killed")
    assert lease_ids(server) == [job], "the job lives"
    gate.write_text("more\n")
    eventually(lambda: lease_ids(server) == [], "the job has ended")
    assert output_of(server, job).endswith("before\nmore\nafter\n")


def test_a_batch_goes_on_and_tells_its_progress(server):
    server.use("2x24GiB")
    gate = server.folder / "gate"
    os.mkfifo(gate)
    job = detach(server, "batch", "-d", "-k", "--logs", server.folder / "logs", "--", "true", "false", f"cat {gate}")
    progress = folder_of(server, job) / "progress.json"

    def counts():
        return json.loads(progress.read_text()) if progress.exists() else {}
    eventually(lambda: counts() == {"total": 3, "succeeded": 1, "failed": 1, "running": 1}, "two lines have ended")
    gate.write_text("")
    assert wait_for_end(server, job) == 1
    assert counts() == {"total": 3, "succeeded": 2, "failed": 1, "running": 0}
    assert "2 succeeded, 1 failed" in output_of(server, job)


def test_a_wrong_batch_is_refused_at_once(server):
    assert_one_line_error(server.berth("batch", "-d", "no-such-file"), 64, "no-such-file")
    (server.folder / "jobs.txt").write_text("true\n")
    assert_one_line_error(server.berth("batch", "-d", "--resume", "--restart", server.folder / "jobs.txt"), 64)
