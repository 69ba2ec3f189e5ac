"""queue, cancel, release, drain and undrain: who may, what they change, whom they wake."""

import datetime
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time

import harbour_client
import pytest
from conftest import BERTH, assert_fit_for_terminal, assert_one_line_error, wait_until
from waiting import LIMIT

ALICE, BOB = 64001, 64002
ISO_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def as_user(uid):
    return ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"]


@pytest.fixture
def users(server, open_build):
    """Commands as other users, who run a copy of the programs."""
    class Users:
        berth = open_build / "bin" / "berth"

        def run(self, uid, *arguments, **options):
            return server.run(*as_user(uid), self.berth, *arguments, **options)

        def start(self, uid, *arguments, **options):
            return server.start(*as_user(uid), self.berth, *arguments, **options)
    return Users()


def queue(server):
    result = server.berth("queue", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)["queue"]


def uuid(server, index):
    return server.status()["gpus"][index]["uuid"]


def leases(server):
    return [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]


def start_job(server, *flags):
    """A job that holds its GPUs until the test ends; returns once it has its lease."""
    before = {lease["id"] for lease in leases(server)}
    job = server.start(BERTH, "run", *flags, "--", "sleep", "1000")
    job.lease = wait_until(lambda: {lease["id"] for lease in leases(server)} - before).pop()
    return job


def start_waiter(server, *flags, command=("true",), start=None):
    """A request that must wait; returns once it stands in the queue."""
    before = {ticket["ticket"] for ticket in queue(server)}
    waiter = (start or (lambda *words: server.start(BERTH, *words)))("run", *flags, "--", *command)
    waiter.ticket = wait_until(lambda: {t["ticket"] for t in queue(server)} - before).pop()
    return waiter


def shell_lease(server, *indices, uid=None, **options):
    """A lease as `berth acquire` makes it: of this process, or of a process of another user."""
    uuids = [uuid(server, index) for index in indices]
    if uid is None:
        return harbour_client.Lease(server.harbour, uuids, **options)
    # By its text: another user may not reach this folder.
    source = pathlib.Path(harbour_client.__file__).read_text()
    process = server.start(*as_user(uid), "/usr/bin/python3", "-c", source, server.harbour, *uuids, stdin=subprocess.PIPE)
    process.id = process.stdout.readline().strip()
    return process


def stop(process):
    """Ends a process as a user would, and gives what it said."""
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=LIMIT)[0]


def read_until(process, text, seconds=LIMIT):
    """Reads what the process writes until `text` is in it, and returns it."""
    said = b""
    deadline = time.monotonic() + seconds
    while text.encode() not in said:
        left = deadline - time.monotonic()
        assert select.select([process.stdout], [], [], max(left, 0))[0], f"no {text!r} in {said!r}"
        chunk = os.read(process.stdout.fileno(), 4096)
        assert chunk, f"it ended without {text!r}: {said!r}"
        said += chunk
    return said.decode()


def assert_lines(text, *subjects):
    """One line for each subject, such as "GPU 0", which names it."""
    lines = text.splitlines()
    assert len(lines) == len(subjects), text
    for line, subject in zip(lines, subjects, strict=True):
        assert re.search(rf"\b{re.escape(subject)}\b", line), text


# The queue


def test_an_empty_queue_says_so_and_makes_no_harbour(server):
    server.env["BERTH_DIR"] = str(server.folder / "nowhere")
    empty = server.berth("queue")
    assert (empty.returncode, empty.stdout.count("\n"), empty.stderr) == (0, 1, "")
    assert json.loads(server.berth("queue", "--json").stdout)["queue"] == []
    for arguments in (["cancel", "--all"], ["release", "--all"], ["undrain", "--all"]):
        result = server.berth(*arguments)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (0, "", 1)
    assert_one_line_error(server.berth("cancel", "k3f9a2mx"), 64, "ticket", "'k3f9a2mx'")
    assert_one_line_error(server.berth("release", "k3f9a2mx"), 64, "lease", "'k3f9a2mx'")
    assert_one_line_error(server.berth("release"), 64)
    assert not (server.folder / "nowhere").exists()


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_the_queue_says_who_waits_why_and_for_how_long(server):
    server.use("2x24GiB")
    job = start_job(server, "-n", "2", "--time", "2h", "--label", "folding")
    first = start_waiter(server, "-n", "2", "--time", "10m", command=["true", "\x1b[31m"])
    second = start_waiter(server, "--mem", "8GiB", "--gpu", "1", "--label", "größe")
    both = queue(server)
    assert list(both[0]) == ["ticket", "position", "user", "pid", "command", "label", "since", "request", "count",
                             "memory_mib", "time_s", "gpu_name", "gpus", "reason", "starts", "start_unknown_reason"]
    assert [(t["request"], t["time_s"], t["gpu_name"], t["gpus"]) for t in both] == [
        ("2 GPUs, 10m", 600, None, None), ("GPU 1, 8 GiB each", None, None, [1])]
    assert [(t["ticket"], t["position"], t["count"], t["memory_mib"]) for t in both] == [
        (first.ticket, 1, 2, None), (second.ticket, 2, 1, 8192)]
    assert both == server.status()["queue"]
    assert re.fullmatch(ISO_TIME, both[0]["since"]) and re.fullmatch(ISO_TIME, both[0]["starts"])
    assert both[0]["starts"] > both[0]["since"]
    assert "leased" in both[0]["reason"] and "root (folding)" in both[0]["reason"] and both[1]["label"] == "größe"
    text = server.berth("queue").stdout
    assert_fit_for_terminal(text)
    assert re.match(r"Queue: 2 waiting, .*\bGPUs 0,1\b.* 2h\n", text)
    mine = r"\*root"
    assert re.search(rf"1\. {first.ticket}  \w+ in about 2h  \w+ \d+s  {mine}  2 GPUs, 10m  true \\x1b\[31m  pid {first.pid}\n", text)
    assert re.search(rf"2\. {second.ticket}  \w+ in about 2h 10m  .*{mine}  GPU 1, 8 GiB each  größe: true  pid \d+\n", text)
    assert re.search(r" 0,1 leased .*root \(folding\)\n", text)
    brief = server.berth("status").stdout
    assert_fit_for_terminal(brief)
    assert re.search(rf"\n  1  in ~2h +{mine} +\d+s  2 GPUs, 10m        true \\x1b\[31m\n", brief)
    assert re.search(rf"\n  2  in ~2h 10m +{mine} +\d+s  GPU 1, 8 GiB each  größe: true\n", brief)
    for columns in (40, 60, 80):
        shown = server.berth("queue", env={"COLUMNS": str(columns)}).stdout
        assert max(map(len, shown.splitlines())) <= columns
        assert "in about 2h" in shown and "in about 2h 10m" in shown
        assert "2 GPUs, 10m" in shown and "GPU 1, 8 GiB each" in shown, "the request is not cut"
        brief = server.berth("status", env={"COLUMNS": str(columns)}).stdout
        assert max(map(len, brief.splitlines())) <= columns
    stop(job)


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_status_says_a_lease_of_several_gpus_once(server):
    job = start_job(server, "-n", "3", "--label", "folding")
    shown = server.berth("status", "-v").stdout
    assert shown.count("folding") == 1
    assert [bool(re.search(r"\bGPU \d", line)) for line in shown.splitlines() if job.lease in line] == [False, True, True]
    [first, *_] = [gpu for gpu in server.status()["gpus"] if gpu["leases"]]
    [lease] = first["leases"]
    assert list(lease) == ["id", "user", "pid", "holder", "adopted", "command", "label", "since", "ends", "ends_source", "overdue",
                           "exclusive", "memory_mib", "job", "idle_s", "problem"]
    assert (lease["ends"], lease["ends_source"], lease["overdue"]) == (None, None, False)
    assert (lease["user"], lease["pid"], lease["exclusive"], lease["memory_mib"]) == ("root", job.pid, True, None)
    assert re.fullmatch(ISO_TIME, lease["since"])


# The end of a lease


def parse_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def only_lease(server, gpu=0):
    [lease] = server.status()["gpus"][gpu]["leases"]
    return lease


@pytest.mark.each_harbour
def test_an_announced_end_is_told_and_when_it_has_passed(server):
    server.use("2x24GiB")
    start_job(server, "--gpu", "0", "--time", "2h")
    assert server.status()["next_free"] is None  # GPU 1 is free
    late = start_job(server, "--gpu", "1", "--time", "100ms", "--label", "folding")
    lease = only_lease(server)
    assert parse_time(lease["ends"]) - parse_time(lease["since"]) == datetime.timedelta(hours=2)
    assert (lease["ends_source"], lease["overdue"]) == ("announced", False)
    wait_until(lambda: only_lease(server, 1)["overdue"], "the end of 100 ms")
    expected = {"gpus": [0], "at": lease["ends"], "source": "announced"}  # GPU 1 should be free, and is not
    assert server.status()["next_free"] == expected
    assert json.loads(server.berth("queue", "--json").stdout)["next_free"] == expected
    start_waiter(server, "--gpu", "1")
    [ticket] = queue(server)
    assert ticket["starts"] is None and re.fullmatch(r"root \(folding\) is \d+s late", ticket["start_unknown_reason"])
    assert re.search(r" start unknown  .*\n.*\n +start unknown, because root \(folding\) is \d+s late\n", server.berth("queue").stdout)
    stop(late)


@pytest.mark.each_harbour
def test_each_ticket_has_an_expected_start(server):
    """Not only the first: those behind it start when the tickets before them end."""
    server.use("1x24GiB")
    start_job(server, "--time", "2h")
    start_waiter(server, "--time", "1h")
    start_waiter(server, "--time", "1h")
    third = start_waiter(server, "--label", "third")
    starts = [parse_time(ticket["starts"]) for ticket in queue(server)]
    assert [one - starts[0] for one in starts] == [datetime.timedelta(hours=hours) for hours in (0, 1, 2)]
    assert re.search(r"starts in about (4h|3h 5\dm), position 3 of 3", read_until(third, "position 3 of 3"))
    start_waiter(server)
    *known, last = queue(server)
    assert last["starts"] is None and last["start_unknown_reason"] == "the run time of root (third) is unknown"
    assert [ticket["start_unknown_reason"] for ticket in known] == [None] * 3


# Cancel


@pytest.mark.each_harbour
def test_a_cancelled_waiter_ends_and_the_next_one_moves_up(server):
    server.use("1x24GiB")
    job = start_job(server)
    first = start_waiter(server, command=["echo", "never"])
    second = start_waiter(server, command=["echo", "second"])
    result = server.berth("cancel", first.ticket)
    assert (result.returncode, result.stderr) == (0, "")
    assert_lines(result.stdout, f"ticket {first.ticket}")
    assert [(t["ticket"], t["position"]) for t in queue(server)] == [(second.ticket, 1)]
    said = first.communicate(timeout=LIMIT)[0]
    assert first.returncode == 75
    assert said.splitlines()[-1].startswith("berth: ") and "berth cancel" in said.splitlines()[-1]
    assert "never" not in said
    stop(job)
    assert second.communicate(timeout=LIMIT)[0].endswith("second\n")
    assert second.returncode == 0
    wait_until(lambda: set(os.listdir(server.harbour)) <= {"archive"}, "nothing stays behind")


@pytest.mark.each_harbour
def test_cancel_wakes_whom_the_ticket_kept_back(server):
    """The wide ticket reserves both GPUs; without it the narrow one can run at once."""
    server.use("2x24GiB")
    start_job(server)
    wide = start_waiter(server, "-n", "2")
    narrow = start_waiter(server, command=["echo", "runs"])
    os.kill(wide.pid, signal.SIGSTOP)  # it cannot hear: the others must be told by who cancels
    try:
        assert server.berth("cancel", wide.ticket).returncode == 0
        assert narrow.communicate(timeout=LIMIT)[0].endswith("runs\n")
    finally:
        os.kill(wide.pid, signal.SIGCONT)
    assert wide.wait(LIMIT) == 75


@pytest.mark.each_harbour
def test_cancel_all_and_several(server):
    server.use("1x24GiB")
    start_job(server)
    waiters = [start_waiter(server) for _ in range(4)]
    two = [waiters[0].ticket, waiters[2].ticket]
    result = server.berth("cancel", *two, two[0])
    assert (result.returncode, result.stdout.count("\n")) == (0, 2)
    assert [t["ticket"] for t in queue(server)] == [waiters[1].ticket, waiters[3].ticket]
    assert server.berth("cancel", "--all").returncode == 0
    assert queue(server) == []
    assert {waiter.wait(LIMIT) for waiter in waiters} == {75}
    result = server.berth("cancel", "--all")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (0, "", 1) and "ticket" in result.stderr


@pytest.mark.parametrize("arguments", [
    [], [""], ["nonsense"], ["k3f9a2mx"], ["\x1b[31m"], ["a\nb"], ["../lease-x"], ["--all", "k3f9a2mx"], ["--all=3"],
    ["x" * 100_000], ["--unknown"], ["\u202ek3f9a2mx"],
], ids=lambda value: repr(value)[:30])
def test_cancel_of_what_is_no_ticket(server, arguments):
    assert_one_line_error(server.berth("cancel", *arguments), 64)


@pytest.mark.each_harbour
def test_cancel_checks_all_before_it_ends_one(server):
    server.use("1x24GiB")
    job = start_job(server)
    waiter = start_waiter(server)
    assert_one_line_error(server.berth("cancel", waiter.ticket, job.lease, "k3f9a2mx"), 64, "'k3f9a2mx'", "berth jobs")
    assert [t["ticket"] for t in queue(server)] == [waiter.ticket]
    assert job.poll() is None


@pytest.mark.each_harbour
def test_nobody_cancels_anothers_ticket_but_root(server, users):
    server.use("1x24GiB")
    start_job(server)
    alices = start_waiter(server, start=lambda *words: users.start(ALICE, *words))
    bobs = start_waiter(server, start=lambda *words: users.start(BOB, *words))
    assert_one_line_error(users.run(BOB, "cancel", bobs.ticket, alices.ticket), 77, alices.ticket, str(ALICE))
    assert [t["ticket"] for t in queue(server)] == [alices.ticket, bobs.ticket]
    assert_lines(users.run(BOB, "cancel", "--all").stdout, f"ticket {bobs.ticket}")
    assert [t["ticket"] for t in queue(server)] == [alices.ticket]
    assert server.berth("cancel", alices.ticket).returncode == 0
    assert (alices.wait(LIMIT), bobs.wait(LIMIT)) == (75, 75)


# Release


@pytest.mark.each_harbour
def test_a_shells_lease_is_given_back_and_the_next_one_runs(server):
    server.use("1x24GiB")
    lease = shell_lease(server, 0)
    waiter = start_waiter(server, command=["echo", "runs"])
    result = server.berth("release", lease.id)
    assert (result.returncode, result.stdout) == (0, "")
    assert_lines(result.stderr, f"lease {lease.id}")
    assert waiter.communicate(timeout=LIMIT)[0].endswith("runs\n")
    assert lease.ended and lease.wait_rung(0)
    assert_one_line_error(server.berth("release", lease.id), 64, lease.id, "berth status")
    lease.close()


@pytest.mark.each_harbour
def test_release_ends_what_acquire_began(server):
    script = ('eval "$(berth acquire -n 2)"; berth release >/dev/null || exit 1; berth release >/dev/null; echo "again $?"; '
              'berth status --json')
    result = server.run("bash", "-c", script)
    again, *status = result.stdout.splitlines()
    lease = re.search(r"\blease (\w{8})\b", result.stderr)[1]
    assert_lines(result.stderr, f"lease {lease}", f"lease {lease}")  # the second time it has ended already
    assert again == "again 0"
    assert {gpu["state"] for gpu in json.loads("\n".join(status))["gpus"]} == {"free"}
    wait_until(lambda: set(os.listdir(server.harbour)) <= {"archive"}, "the keeper left, and took its files along")


@pytest.mark.parametrize("words", ["", "--all", '"$BERTH_LEASE"'])
def test_eval_of_release_removes_the_variables(server, words):
    names = "CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|BERTH_GPUS|BERTH_LEASE|BERTH_EPOCH"
    script = (f'eval "$(berth acquire)"; env | grep -cE "^({names})="; eval "$(berth release {words})"; echo "code $?"; '
              f'env | grep -E "^({names})="')
    result = server.run("bash", "-c", script)
    assert re.fullmatch(r"[45]\ncode 0\n", result.stdout), result
    assert_lines(result.stderr, "lease")


def test_release_prints_for_eval_only_what_the_shell_has(server):
    shell = 'eval "$(berth acquire)"; export -n BERTH_GPUS; berth release; berth release'
    result = server.run("bash", "-c", shell)
    unset = "unset CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES BERTH_LEASE"
    assert result.stdout == f"{unset}\n{unset}\n", "the second time the lease has ended, but the variables are there"
    lease = shell_lease(server, 0)
    assert server.berth("release", lease.id).stdout == "", "another shell's"
    lease.close()


def test_release_on_a_terminal_says_which_variables_to_unset(server):
    result = server.run("script", "--quiet", "--return", "--command",
                        'bash --norc -c \'eval "$(berth acquire)"; berth release; exit\'', "/dev/null")
    assert "run: unset CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES BERTH_GPUS BERTH_LEASE" in result.stdout, result


def test_release_without_arguments_prefers_the_lease_of_the_shell(server):
    other = shell_lease(server, 3)
    result = server.run("bash", "-c", "read GPU < <(berth acquire --print ids); berth release; exit")
    assert (result.returncode, result.stdout) == (0, ""), result
    assert [lease["id"] for lease in leases(server)] == [other.id]
    other.close()


@pytest.mark.each_harbour
def test_release_by_gpu_means_ones_own_shells(server, users):
    on_both, shared = shell_lease(server, 0, 1), shell_lease(server, 2, memory_mib=1024)
    other = shell_lease(server, 2, uid=BOB)  # pretends: nobody checks what a client writes about itself
    first_half_of_uuid = uuid(server, 2)[:12]
    result = server.berth("release", "1,0", first_half_of_uuid)
    assert_lines(result.stderr, f"lease {on_both.id}", f"lease {shared.id}")
    assert [lease["id"] for lease in leases(server)] == [other.id]
    assert_one_line_error(server.berth("release", "0"), 64, "GPU 0")
    assert_one_line_error(server.berth("release", "2"), 64, f"berth release {other.id}", str(BOB))
    assert_one_line_error(users.run(ALICE, "release", "2"), 77, other.id, str(BOB))
    for lease in (on_both, shared):
        lease.close()


def test_release_without_arguments(server):
    assert_one_line_error(server.berth("release"), 64, "shell", "berth status")
    one, two = shell_lease(server, 0), shell_lease(server, 1)
    assert_one_line_error(server.berth("release"), 64, one.id, two.id, "--all")
    assert_lines(server.berth("release", env={"BERTH_LEASE": two.id}).stderr, f"lease {two.id}")
    ended = server.berth("release", env={"BERTH_LEASE": two.id})
    assert (ended.returncode, ended.stdout) == (0, "unset BERTH_LEASE\n")
    assert two.id in ended.stderr
    assert not one.ended, "the lease that was not named stays"
    assert_lines(server.berth("release").stderr, f"lease {one.id}")
    for lease in (one, two):
        lease.close()


@pytest.mark.each_harbour
def test_release_all_leaves_jobs_alone(server):
    none = server.berth("release", "--all")
    assert (none.returncode, none.stdout, none.stderr.count("\n")) == (0, "", 1) and "shell" in none.stderr
    job, one, two = start_job(server), shell_lease(server, 2), shell_lease(server, 3)
    result = server.berth("release", "--all")
    assert result.returncode == 0 and result.stderr.count("\n") == 2
    assert set(re.findall(r"\blease (\w{8})\b", result.stderr)) == {one.id, two.id}
    assert [lease["id"] for lease in leases(server)] == [job.lease]
    for lease in (one, two):
        lease.close()


@pytest.mark.each_harbour
def test_a_jobs_lease_is_refused_and_names_what_to_stop(server):
    job, shell = start_job(server), shell_lease(server, 3)
    index = next(gpu["index"] for gpu in server.status()["gpus"] if gpu["state"] == "leased")
    for words in ([job.lease], [shell.id, job.lease], [str(index)]):
        assert_one_line_error(server.berth("release", *words), 64, f"lease {job.lease}", f"berth cancel {job.lease}")
    assert_one_line_error(server.berth("release", env={"BERTH_LEASE": job.lease}), 64, f"berth cancel {job.lease}")
    assert not shell.ended and len(leases(server)) == 2
    job.kill()
    job.wait()
    result = server.berth("release", job.lease)
    assert_one_line_error(result, 64, "sleep (pid ")
    os.kill(int(re.search(r"sleep \(pid (\d+)\)", result.stderr).group(1)), signal.SIGKILL)
    wait_until(lambda: len(leases(server)) == 1)
    shell.close()


@pytest.mark.each_harbour
def test_nobody_releases_anothers_lease_but_root(server, users):
    alices, own = shell_lease(server, 0, uid=ALICE), shell_lease(server, 1, uid=BOB)
    assert_one_line_error(users.run(BOB, "release", own.id, alices.id), 77, alices.id, str(ALICE))
    assert_one_line_error(users.run(BOB, "release", env={"BERTH_LEASE": alices.id}), 77, alices.id)
    assert len(leases(server)) == 2
    assert_lines(users.run(BOB, "release").stderr, f"lease {own.id}")
    assert server.berth("release", "--all").stdout == "", "root's own alone"
    assert_lines(server.berth("release", alices.id).stderr, f"lease {alices.id}")
    for process in (alices, own):
        assert process.communicate(timeout=LIMIT)[0] == "released\n"


@pytest.mark.parametrize("arguments, code", [
    ([""], 64), (["nonsense"], 64), (["k3f9a2mx"], 64), (["\x1b[31m"], 64), (["0,,1"], 64), (["0\n"], 64),
    (["--all", "0"], 64), (["--all=3"], 64), (["0", "0"], 64), (["99"], 69), (["GPU-ffffffffffff"], 69), (["-1"], 64),
    (["GPU-"], 64), (["0"], 64), (["x" * 100_000], 64), (["9" * 1000], 69),
], ids=lambda value: repr(value)[:30])
def test_release_of_what_is_no_lease(server, arguments, code):
    assert_one_line_error(server.berth("release", *arguments), code)


@pytest.mark.each_harbour
def test_a_ticket_is_not_released_but_cancelled(server):
    server.use("1x24GiB")
    start_job(server)
    waiter = start_waiter(server)
    assert_one_line_error(server.berth("release", waiter.ticket), 64, f"berth cancel {waiter.ticket}")


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_a_job_inside_a_released_lease_keeps_its_gpu(server):
    """It was carved out of the shell's lease, and takes up the GPU itself once that has ended."""
    server.use("1x24GiB")
    shell = shell_lease(server, 0)
    inner = server.start(BERTH, "run", "--", "sleep", "1000", env={"BERTH_LEASE": shell.id})
    wait_until(lambda: len([name for name in os.listdir(server.harbour) if name.startswith("lease-")]) == 2)
    assert [lease["id"] for lease in leases(server)] == [shell.id]
    waiter = start_waiter(server, command=["echo", "runs"])
    assert server.berth("release", shell.id).returncode == 0
    shell.close()
    [left] = leases(server)
    assert left["pid"] == inner.pid
    refused = server.berth("run", "--no-wait", "--", "true")
    assert_one_line_error(refused, 75, "GPU 0 leased", "root (sleep 1000)")
    assert waiter.poll() is None
    stop(inner)
    assert waiter.communicate(timeout=LIMIT)[0].endswith("runs\n")


# Drain


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_a_drained_gpu_is_not_handed_out_and_undrain_wakes_at_once(server):
    server.use("2x24GiB")
    result = server.berth("drain", "0", "1", "--reason", "fan is broken")
    assert (result.returncode, result.stderr) == (0, "")
    assert_lines(result.stdout, "GPU 0", "GPU 1")
    for gpu in server.status()["gpus"]:
        assert gpu["state"] == "drained" and re.search("root: fan is broken$", gpu["reason"])
    assert len(re.findall("  drained  .* drained by root: fan is broken\n", server.berth("status").stdout)) == 2
    assert re.search("! drained .*root: fan is broken\n", server.berth("status", "-v").stdout)
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, " 0,1 drained", "root: fan is broken")
    waiter = start_waiter(server, command=["echo", "runs"])
    assert re.search(" 0,1 drained .*root: fan is broken$", queue(server)[0]["reason"])
    result = server.berth("undrain", "1")
    assert result.returncode == 0
    assert_lines(result.stdout, "GPU 1")
    # Nothing but the ring wakes it so soon: it looks by itself only after half a minute.
    assert waiter.communicate(timeout=LIMIT)[0].endswith("runs\n")
    assert [gpu["state"] for gpu in server.status()["gpus"]] == ["drained", "free"]


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_who_waits_says_why_when_a_gpu_is_drained_meanwhile(server):
    server.use("1x24GiB")
    job = start_job(server)
    waiter = start_waiter(server)
    result = server.berth("drain", "0", "--reason", "new driver")
    assert_lines(result.stdout, "GPU 0")
    assert f"lease {job.lease}" in result.stdout and "root" in result.stdout and "job" in result.stdout
    read_until(waiter, "root: new driver")
    assert [lease["id"] for lease in leases(server)] == [job.lease]
    stop(job)
    wait_until(lambda: not leases(server))
    assert waiter.poll() is None and len(queue(server)) == 1


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_draining_again_replaces_the_reason(server):
    lease = shell_lease(server, 2)
    said = server.berth("drain", "2", "--reason", "one").stdout
    assert f"lease {lease.id}" in said and "shell" in said
    server.berth("drain", "2", "--reason", "two \x1b[31m")
    [reason] = [gpu["reason"] for gpu in server.status()["gpus"] if gpu["state"] == "drained"]
    assert reason.endswith("root: two \x1b[31m")
    shown = server.berth("status").stdout
    assert_fit_for_terminal(shown)
    assert "root: two \\x1b[31m" in shown
    server.berth("drain", "2")
    assert server.status()["gpus"][2]["reason"].endswith("root")
    lease.close()


@pytest.mark.needs_root
def test_draining_on_a_full_disk_keeps_the_drain_before_it(server):
    """A limit on the size of files stands for the full disk."""
    server.berth("drain", "2", "--reason", "one")
    result = server.run("bash", "-c", f"trap '' XFSZ; ulimit -f 0; exec {BERTH} drain 2 --reason two")
    assert result.returncode == 74, result
    assert server.status()["gpus"][2]["reason"].endswith("root: one")
    assert [name for name in os.listdir(server.harbour) if not name.startswith("drain-")] == []


@pytest.mark.each_harbour
def test_undrain_all_and_what_is_not_drained(server):
    server.berth("drain", "0,3", "--reason", "x")
    not_drained = server.berth("undrain", "1")
    assert (not_drained.returncode, not_drained.stdout) == (0, "")
    assert "GPU 1" in not_drained.stderr
    assert [gpu["state"] for gpu in server.status()["gpus"]].count("drained") == 2
    assert [line.split()[:2] for line in server.berth("undrain", "--all").stdout.splitlines()] == [["GPU", "0"], ["GPU", "3"]]
    assert {gpu["state"] for gpu in server.status()["gpus"]} == {"free"}
    none = server.berth("undrain", "--all")
    assert (none.returncode, none.stdout, none.stderr.count("\n")) == (0, "", 1) and "drained" in none.stderr


@pytest.mark.needs_root
def test_a_gpu_that_is_lost_or_gone(server):
    cards = [{"name": "A", "memory": "8GiB", "uuid": f"GPU-{i}0000000-0000-0000-0000-000000000000"} for i in range(3)]
    server.use({"gpus": cards, "faults": [{"call": "nvmlDeviceGetTemperature", "gpu": 1, "answer": 15}]})
    assert_lines(server.berth("drain", "1", "--reason", "gone").stdout, "GPU 1")
    lost = server.status()["gpus"][1]
    assert (lost["state"], lost["uuid"]) == ("lost", cards[1]["uuid"])
    assert lost["reason"].endswith("root: gone")
    assert_lines(server.berth("undrain", "1").stdout, "GPU 1")
    server.use({"gpus": cards, "faults": [{"gpu": 1, "lost": True}]})
    assert_one_line_error(server.berth("drain", "1"), 69, "GPU 1")  # the driver says no UUID
    assert server.berth("drain", "0", "2").returncode == 0
    server.use({"gpus": cards[1:2]})  # the other two were taken out of the host
    assert_one_line_error(server.berth("undrain", "2"), 69, "GPU 2")
    assert_one_line_error(server.berth("undrain", "GPU-5000"), 69, "'GPU-5000'")
    assert_lines(server.berth("undrain", "gpu-2000").stdout, cards[2]["uuid"])
    assert_lines(server.berth("undrain", "--all").stdout, cards[0]["uuid"])


def test_undrain_needs_no_driver_for_a_uuid_and_no_guess(server):
    cards = [{"name": "A", "memory": "8GiB", "uuid": f"GPU-1000000{i}-0000-0000-0000-000000000000"} for i in range(2)]
    server.use({"gpus": cards}).berth("drain", "0", "1")
    server.use({"gpus": cards, "faults": [{"call": "nvmlInit", "answer": 9}]})
    assert_one_line_error(server.berth("undrain", "GPU-1000"), 64, "'GPU-1000'", "GPU-10000000", "GPU-10000001")
    assert server.berth("undrain", cards[0]["uuid"]).returncode == 0
    assert_one_line_error(server.berth("undrain", "0"), 69)


def test_only_root_and_the_harbours_owner_may_drain(server, users):
    server.berth("drain", "0", "--reason", "root's")
    for arguments in (["drain", "1"], ["undrain", "0"], ["undrain", "--all"]):
        assert_one_line_error(users.run(BOB, *arguments), 77, "root")
    os.chown(server.harbour, ALICE, ALICE)
    assert_one_line_error(users.run(BOB, "drain", "1"), 77, "root", str(ALICE))
    assert [gpu["state"] for gpu in server.status()["gpus"]] == ["drained", "free", "free", "free"]
    assert_lines(users.run(ALICE, "drain", "0", "1", "--reason", "mine").stdout, "GPU 0", "GPU 1")
    assert server.status()["gpus"][0]["reason"].endswith(f"{ALICE}: mine")
    assert users.run(ALICE, "undrain", "0").returncode == 0
    assert server.berth("undrain", "--all").returncode == 0


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_a_drain_that_somebody_planted_does_not_count_and_does_not_hinder(server):
    planted = server.harbour / f"drain-{uuid(server, 0)}"
    planted.write_text(json.dumps({"version": 1, "gpu": uuid(server, 0), "uid": 0, "reason": "x", "since_ms": 1}))
    os.chown(planted, BOB, BOB)
    assert server.status()["gpus"][0]["state"] == "free"
    assert server.berth("drain", "0").returncode == 0
    assert server.status()["gpus"][0]["state"] == "drained"


def test_mig_instances_are_drained_by_themselves(server):
    server.use({"gpus": [{"name": "A", "memory": "16GiB", "mig": [{"memory": "4GiB", "name": "a"},
                                                                 {"memory": "4GiB", "name": "b"}]}]})
    assert_one_line_error(server.berth("drain", "0"), 69, "MIG")
    assert server.berth("drain", "0:1").returncode == 0
    assert [gpu["state"] for gpu in server.status()["gpus"]] == ["free", "drained"]
    assert_lines(server.berth("undrain", "0:1").stdout, "GPU 0:1")


@pytest.mark.each_harbour
def test_the_first_drain_makes_the_harbour(server):
    server.env["BERTH_DIR"] = str(server.folder / "new")
    assert server.berth("drain", "0").returncode == 0
    assert (server.folder / "new").stat().st_mode & 0o7777 == 0o1777
    assert server.status()["gpus"][0]["state"] == "drained"


@pytest.mark.parametrize("arguments, code", [
    ([], 64), ([""], 64), (["x"], 64), (["0,"], 64), (["\x1b[31m"], 64), (["0", "0"], 64), (["99"], 69), (["GPU-ffffffffffff"], 69),
    (["0", "--reason"], 64), (["0", "--reason", "x" * 257], 64), (["0", "--reason", b"\xff\xfe"], 64), (["--reason=x"], 64),
    (["0", "--reason", "a", "--reason", "b"], 64), (["-1"], 64),
], ids=lambda value: repr(value)[:30])
def test_wrong_drains(server, arguments, code):
    command = [os.fsencode(BERTH), b"drain", *[os.fsencode(word) for word in arguments]]
    result = subprocess.run(command, env=server.env, capture_output=True, text=True)
    assert_one_line_error(result, code)
    assert {gpu["state"] for gpu in server.status()["gpus"]} == {"free"}


@pytest.mark.parametrize("arguments, code", [
    ([], 64), ([""], 64), (["x"], 64), (["\x1b[31m"], 64), (["99"], 69), (["GPU-ffffffffffff"], 69), (["--all", "0"], 64), (["--all=3"], 64),
    (["0", "--reason", "x"], 64),
], ids=lambda value: repr(value)[:30])
def test_wrong_undrains(server, arguments, code):
    assert_one_line_error(server.berth("undrain", *arguments), code)


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_a_reason_of_256_bytes_is_kept_whole(server):
    reason = "ö" * 128
    assert server.berth("drain", "0", "--reason", reason).returncode == 0
    assert server.status()["gpus"][0]["reason"].endswith(f"root: {reason}")


def test_a_second_name_neither_disables_nor_ends_anything(server):
    """Where the kernel lets others make hard links (fs.protected_hardlinks=0)."""
    start_job(server, "-n", "4")
    waiter = server.start(BERTH, "run", "--", "true")
    wait_until(lambda: queue(server), "the waiter's ticket")
    for record in [*server.harbour.glob("lease-*"), *server.harbour.glob("ticket-*")]:
        identity = record.name.rsplit("-", 1)[1]
        os.link(record, server.harbour / f"end-{identity}")
        os.link(record, server.folder / f"second-{identity}")
        with open(server.harbour / f"bell-{identity}", "wb") as bell:
            bell.write(b"!")
    assert server.berth("run", "--no-wait", "--", "true").returncode == 75
    assert len({lease["id"] for lease in leases(server)}) == 1 and len(queue(server)) == 1
    assert waiter.poll() is None
