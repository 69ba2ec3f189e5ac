"""Who keeps a lease alive, who is passed over, and that berth is not in the way of signals, terminals and pipes."""

import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import Server
from processes import ALICE, BOB, CAROL, DAVE, Host, state_of, wait_for, wait_until_stopped
from waiting import LIMIT, SHORT_AUDIT_S

NOT_GRANTED, HARBOUR_FAILS = 75, 74
PYTHON = "/usr/bin/python3"  # that every user can reach


@pytest.fixture
def host(server, open_build):
    one = Host(server.use("1x24GiB"), open_build)
    yield one
    one.stop()


def assert_taken(host):
    code, errors = host.run("--no-wait", uid=DAVE)
    assert code == NOT_GRANTED, errors


def assert_free(host):
    assert host.run("--timeout", f"{LIMIT}s", uid=DAVE)[0] == 0


# Who holds the lease


LEAVING_BEHIND = {
    "in the background": "{job} & exit 0",
    "nohup": "nohup {job} >/dev/null 2>&1 & exit 0",
    "setsid": "setsid {job} & exit 0",
    "double fork": "( ( {job} & ) & ) ; exit 0",
    "setsid and double fork": "( setsid sh -c '{job} </dev/null >/dev/null 2>&1 &' & ) ; exit 0",
}


@pytest.mark.each_harbour
@pytest.mark.parametrize("way", LEAVING_BEHIND)
def test_what_outlives_the_job_keeps_the_lease(host, way):
    gate = host.gate()
    script = host.folder / "job.sh"
    script.write_text('\n'.join(gate.command()[2:]) + "\n")
    command = LEAVING_BEHIND[way].format(job=f"sh {script}")
    client = host.start(host.berth, "run", "--", "sh", "-c", command, uid=ALICE)
    assert client.wait() == 0
    gate.wait_until_started(who=client)
    assert "lease " in client.errors()
    assert_taken(host)
    waiter, waiter_gate = host.queue(uid=BOB)
    gate.open()
    waiter_gate.wait_until_started(LIMIT, waiter)
    waiter_gate.open()
    assert waiter.wait() == 0


@pytest.mark.each_harbour
def test_berth_killed_leaves_job_and_lease(host):
    client, gate = host.hold(uid=ALICE)
    waiter, waiter_gate = host.queue(uid=BOB)
    client.send(signal.SIGKILL)
    assert client.wait() == -signal.SIGKILL
    assert state_of(gate.pid()) == "S"
    assert_taken(host)
    assert not waiter_gate.pid()
    gate.open()
    waiter_gate.wait_until_started(LIMIT, waiter)


@pytest.mark.each_harbour
def test_the_job_killed_frees_at_once(host):
    client, gate = host.hold(uid=ALICE)
    waiter, waiter_gate = host.queue(uid=BOB)
    os.kill(gate.pid(), signal.SIGKILL)
    assert client.wait() == 128 + signal.SIGKILL
    waiter_gate.wait_until_started(LIMIT, waiter)


@pytest.mark.each_harbour
def test_a_stopped_job_keeps_its_lease(host):
    client, gate = host.hold(uid=ALICE)
    for pid in (client.pid, gate.pid()):
        os.kill(pid, signal.SIGSTOP)
        wait_until_stopped(pid)
    assert_taken(host)
    os.kill(gate.pid(), signal.SIGKILL)
    # berth, which is stopped, still holds it.
    assert_taken(host)
    client.send(signal.SIGCONT)
    assert client.wait() == 128 + signal.SIGKILL
    assert_free(host)


@pytest.mark.each_harbour
def test_a_nested_lease_that_outlives_the_outer_one_is_respected(host):
    """Python closes the outer bell in its children."""
    gate = host.gate()
    script = host.folder / "outer.py"
    script.write_text(f"import os, subprocess, time\nsubprocess.Popen([{host.berth!r}, 'run', '--', *{gate.command()!r}])\n"
                      f"while not os.path.exists({str(gate.started)!r}): time.sleep(0.01)\n")
    outer = host.start(host.berth, "run", "--", PYTHON, script, uid=ALICE)
    gate.wait_until_started(who=outer)
    assert outer.wait() == 0
    wait_for(lambda: len(host.leases()) == 1, host.leases)
    assert_taken(host)
    waiter, waiter_gate = host.queue(uid=BOB)
    gate.open()
    waiter_gate.wait_until_started(LIMIT, waiter)


# Who wakes whom. No audit helps: Server.env makes its interval longer than any test.


def use(host, description):
    host.server.use(description)
    host.env["BERTH_SIM"] = host.server.env["BERTH_SIM"]


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_one_release_wakes_all_who_can_start(host):
    """Only the first two in the queue watch the lease; they ring the others."""
    use(host, "5x24GiB")
    holder, gate = host.hold("-n", 5, uid=ALICE)
    waiters = [host.queue(uid=uid) for uid in (BOB, CAROL, BOB, CAROL, BOB)]
    gate.open()
    for waiter, waiter_gate in waiters:
        waiter_gate.wait_until_started(LIMIT, waiter)
    assert len({uuid for lease in host.leases() for uuid in lease["gpus"]}) == 5


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_who_becomes_first_watches_every_lease(host):
    use(host, "2x24GiB")
    holders = [host.hold(uid=ALICE), host.hold(uid=ALICE)]
    first, second, third, fourth = [host.queue(uid=uid) for uid in (BOB, CAROL, BOB, CAROL)]
    for (_, gate), (waiter, waiter_gate) in zip(holders, (first, second)):
        gate.open()
        waiter_gate.wait_until_started(LIMIT, waiter)
    # The third stood behind the second, and only watched that.
    first[1].open()
    third[1].wait_until_started(LIMIT, third[0])
    assert not fourth[1].pid()


@pytest.mark.each_harbour
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_third_notices_that_both_before_it_are_gone(host, end):
    holder, gate = host.hold(uid=ALICE)
    first, second, third = [host.queue(uid=uid) for uid in (BOB, CAROL, DAVE)]
    for waiter, _ in (first, second):
        waiter.send(end)
        waiter.wait()
    gate.open()
    third[1].wait_until_started(LIMIT, third[0])


# Waiters that are stopped


@pytest.mark.each_harbour
def test_a_stopped_first_waiter_is_passed_over_and_keeps_its_place(host):
    holder, gate = host.hold(uid=ALICE)
    first, first_gate = host.queue(uid=BOB)
    second, second_gate = host.queue(uid=CAROL)
    third, third_gate = host.queue(uid=DAVE)
    first.send(signal.SIGSTOP)
    wait_until_stopped(first.pid)
    gate.open()
    second_gate.wait_until_started(LIMIT, second)
    first.send(signal.SIGCONT)
    wait_for(lambda: f" {CAROL}" in first.errors(), first.errors)  # it is awake
    second_gate.open()
    first_gate.wait_until_started(LIMIT, first)
    assert not third_gate.pid()
    first_gate.open()
    third_gate.wait_until_started(LIMIT, third)


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_a_waiter_that_is_stuck_at_its_terminal_is_passed_over(host):
    """As after Ctrl-S: nobody reads what it writes."""
    holder, gate = host.hold(uid=ALICE)
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writing, b"x")
        os.set_blocking(writing, True)
        stuck = subprocess.Popen([host.berth, "run", "--", "true"], env=host.env, stderr=writing, user=0)
        wait_for(host.tickets, "it takes its place")
        second, second_gate = host.queue(uid=0)
        gate.open()
        second_gate.wait_until_started(LIMIT, second)
        assert stuck.poll() is None
        stuck.kill()
        stuck.wait()
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.each_harbour
@pytest.mark.release_only  # counts the system calls of the plain build
@pytest.mark.parametrize("uid", [CAROL, 0], ids=["who does not see its process", "who does"])
def test_a_waiter_that_cannot_claim_does_not_block_the_queue(host, uid):
    """Its user is over the quota: the ticket could be written, the lease cannot."""
    holder, gate = host.hold(uid=ALICE)
    stuck, stuck_gate = host.queue(uid=BOB, prefix=["strace", "-o", "/dev/null", "-e", "trace=write",
                                                    "-e", "inject=write:error=EDQUOT:when=2+"])
    second, second_gate = host.queue(uid=uid)
    gate.open()
    second_gate.wait_until_started(30, second)
    assert stuck.process.poll() is None and not stuck_gate.pid(), "it keeps its place"


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_a_stopped_acquire_is_passed_over_though_its_shell_is_awake(host):
    """Its record names the shell, for which it waits."""
    holder, gate = host.hold(uid=ALICE)
    shell = host.start("sh", "-c", f"{host.berth} acquire & echo $! >{host.folder}/acquire; wait", uid=BOB)
    wait_for(host.tickets, shell.errors)
    stopped = int((host.folder / "acquire").read_text())
    second, second_gate = host.queue(uid=0)
    os.kill(stopped, signal.SIGSTOP)
    wait_until_stopped(stopped)
    gate.open()
    second_gate.wait_until_started(LIMIT, second)
    assert state_of(shell.pid) == "S"


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_many_stopped_waiters_do_not_hide_the_one_behind(host):
    holder, gate = host.hold(uid=ALICE)
    stopped = [host.start(host.berth, "run", "--", "true", uid=BOB) for _ in range(66)]
    wait_for(lambda: len(host.tickets()) == len(stopped), lambda: len(host.tickets()))
    for client in stopped:
        client.send(signal.SIGSTOP)
        wait_until_stopped(client.pid)
    # Root sees who is stopped, even where /proc is hidden from others.
    last, last_gate = host.queue(uid=0)
    gate.open()
    last_gate.wait_until_started(LIMIT, last)
    last_gate.open()
    assert last.wait() == 0
    for client in stopped:
        client.send(signal.SIGCONT)
    assert {client.wait() for client in stopped} == {0}


@pytest.mark.each_harbour
@pytest.mark.release_only
def test_if_both_watchers_are_stopped_somebody_notices_all_the_same(host, open_folder, open_build):
    """That takes an audit. On one server both watchers of the leases are stopped, on the other the first is killed and
    the second stopped."""
    (open_folder / "other").mkdir()
    (open_folder / "other").chmod(0o1777)
    other = Host(Server(open_folder / "other").use("1x24GiB"), open_build)
    try:
        lasts = []
        for one in (host, other):
            one.env["BERTH_SIM_AUDIT"] = str(SHORT_AUDIT_S)
            holder, gate = one.hold(uid=ALICE)
            first, _ = one.queue(uid=BOB)
            second, _ = one.queue(uid=BOB)
            lasts.append(one.queue(uid=CAROL))
            second.send(signal.SIGSTOP)
            wait_until_stopped(second.pid)
            first.send(signal.SIGSTOP if one is host else signal.SIGKILL)
            if one is host:
                wait_until_stopped(first.pid)
            else:
                first.wait()
            gate.open()
            assert holder.wait() == 0
        for last, gate in lasts:
            gate.wait_until_started(LIMIT, last)
    finally:
        other.stop()


# Somebody is stopped with the lock


LOCKER = """
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def locker(host):
    process = subprocess.Popen([PYTHON, "-c", LOCKER, host.harbour], stdout=subprocess.PIPE, text=True,
                               user=CAROL, group=CAROL, extra_groups=[])
    assert process.stdout.readline() == "locked\n"
    wait_until_stopped(process.pid)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.release_only
def test_who_is_stopped_with_the_lock_is_named_and_waited_for(host, locker):
    gate = host.gate()
    client = host.start(host.berth, "run", "--", *gate.command(), uid=0)
    wait_for(lambda: f"pid {locker.pid}" in client.errors(), client.errors)
    assert "lock" in client.errors() and not gate.pid()
    locker.send_signal(signal.SIGCONT)
    gate.wait_until_started(LIMIT, client)
    gate.open()
    assert client.wait() == 0


@pytest.mark.release_only
def test_who_waits_for_the_lock_can_leave(host, locker):
    client = host.start(host.berth, "run", "--", "true", uid=BOB)
    wait_for(lambda: list(host.harbour.glob("bell-*")), "it is there")
    client.send(signal.SIGTERM)
    assert client.wait() == 128 + signal.SIGTERM
    late = host.start(host.berth, "run", "--timeout", "1s", "--", "true", uid=BOB)
    hasty = host.start(host.berth, "run", "--no-wait", "--", "true", uid=BOB)
    for client, code in ((late, NOT_GRANTED), (hasty, HARBOUR_FAILS)):
        assert client.wait() == code
        assert "lock" in client.errors().splitlines()[-1], client.errors()


@pytest.mark.release_only
def test_a_stranger_who_came_while_the_lock_was_held_is_seen(host, locker):
    gate = host.gate()
    client = host.start(host.berth, "run", "--", *gate.command(), uid=BOB)
    wait_for(lambda: "lock" in client.errors(), client.errors)
    job = host.server.start_job("--mem", "1GiB", gpu=0)
    locker.send_signal(signal.SIGCONT)
    wait_for(lambda: gate.pid() or "position" in client.errors(), client.errors)
    assert not gate.pid(), "granted beside a stranger"
    job.kill()
    gate.wait_until_started(LIMIT, client)


def test_a_stranger_that_is_a_zombie_costs_nothing(host):
    zombie = subprocess.Popen(["true"])
    wait_for(lambda: state_of(zombie.pid) == "Z", "it ends")
    use(host, {"gpus": [{"memory": "24GiB"}], "strangers": [{"gpu": 0, "memory": "1GiB", "pid": zombie.pid}]})
    waiter, gate = host.queue(uid=0)
    wait_for(lambda: "position" in waiter.errors(), waiter.errors)
    begin = switches(waiter.pid)
    deadline = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > deadline, "a while")
    assert switches(waiter.pid) - begin < 50, "it spins"
    assert not gate.pid()
    zombie.wait()


def switches(pid):
    """How often it went to sleep."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


# Other users


@pytest.mark.parametrize("kind", ["an empty file", "a directory", "a link"])
def test_nobody_ends_a_ticket_by_planting_a_lease_of_its_name(host, kind):
    holder, gate = host.hold(uid=ALICE)
    first, first_gate = host.queue(uid=BOB)
    second, second_gate = host.queue(uid=CAROL)
    name = min(host.tickets(), key=lambda ticket: ticket["since_ms"])["id"]
    plant = {"an empty file": ["touch"], "a directory": ["mkdir"], "a link": ["ln", "-s", "/dev/null"]}[kind]
    subprocess.run([*plant, host.harbour / f"lease-{name}"], user=DAVE, group=DAVE, extra_groups=[], check=True)
    gate.open()
    first_gate.wait_until_started(LIMIT, first)
    assert not second_gate.pid()
    assert [lease["uid"] for lease in host.leases()] == [BOB]
    first_gate.open()
    assert first.wait() == 0
    second_gate.wait_until_started(LIMIT, second)


@pytest.mark.each_harbour
def test_nobody_but_the_owner_changes_a_lease(host):
    """I10, by the files: another user can neither remove, rename, write nor forge."""
    holder, gate = host.hold(uid=ALICE)
    for command in ("rm -f lease-* bell-*", "mv lease-* mine", "echo x >>lease-*", "cat bell-* & sleep 0; kill $!",
                    "chmod 777 lease-*", "ln lease-* lease-abcdefgh; cp lease-* lease-ijkmnpqr; mkfifo bell-ijkmnpqr"):
        subprocess.run(["sh", "-c", f"cd {host.harbour} && {command}"], user=BOB, group=BOB, extra_groups=[],
                       capture_output=True, timeout=LIMIT)
        assert [lease["uid"] for lease in host.leases() if lease["id"] != "ijkmnpqr"] == [ALICE]
        assert_taken(host)
    gate.open()
    assert holder.wait() == 0
    assert_free(host)


# Signals, codes, pipes


@pytest.mark.release_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_to_berth_reaches_the_job(host, number):
    client, gate = host.hold(uid=ALICE)
    client.send(number)
    assert client.wait() == 128 + number
    assert state_of(gate.pid()) is None
    assert_free(host)


def test_a_job_that_handles_the_signal_decides_itself(host):
    ready = host.folder / "ready"
    client = host.start(host.berth, "run", "--", "sh", "-c", f"trap 'exit 42' TERM; touch {ready}; while :; do sleep 0.1; done",
                        uid=ALICE)
    wait_for(ready.exists, client.errors)
    client.send(signal.SIGTERM)
    assert client.wait() == 42


@pytest.mark.each_harbour
def test_a_signal_in_the_queue_leaves_it(host):
    holder, gate = host.hold(uid=ALICE)
    first, _ = host.queue(uid=BOB)
    second, second_gate = host.queue(uid=CAROL)
    first.send(signal.SIGINT)
    assert first.wait() == 128 + signal.SIGINT
    assert [ticket["uid"] for ticket in host.tickets()] == [CAROL]
    gate.open()
    second_gate.wait_until_started(LIMIT, second)


def test_who_ignores_a_signal_does_not_leave_the_queue_by_it(host):
    """nohup; without a job that could obey."""
    holder, gate = host.hold(uid=ALICE)
    first, first_gate = host.queue(uid=BOB, prefix=["nohup"])
    first.send(signal.SIGHUP)
    second, _ = host.queue(uid=BOB)  # by then it would have obeyed
    second.send(signal.SIGHUP)
    assert second.wait() == 128 + signal.SIGHUP
    gate.open()
    first_gate.wait_until_started(LIMIT, first)


@pytest.mark.release_only
@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137),
                                          ("kill -TERM $$", 143), ("kill -ABRT $$", 134)])
def test_the_jobs_exit_code_is_passed_on(host, script, code):
    assert host.run(command=["sh", "-c", f"ulimit -c 0; {script}"])[0] == code
    assert_free(host)


def test_what_cannot_be_run(host):
    plain = host.folder / "plain"
    plain.write_text("no program")
    script = host.folder / "script"
    script.write_text("exit 9\n")
    script.chmod(0o755)
    bad = host.folder / "bad"
    bad.write_text("#!/nowhere/at/all\n")
    bad.chmod(0o755)
    for command, code in [("no-such-program", 127), (host.folder / "nothing", 127), (plain, 126), (host.folder, 126),
                          (script, 9), (bad, 127)]:
        got, errors = host.run(command=[command])
        assert got == code, (command, errors)
        assert errors.count("\n") == 1 and ("granted" in errors) == (code == 9), errors
    assert_free(host)


def test_stdin_and_stdout_pass_through(host):
    result = subprocess.run([host.berth, "run", "--", "tr", "a-z", "A-Z"], env=host.env, input="hello\n" * 10000,
                            capture_output=True, text=True, timeout=LIMIT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "HELLO\n" * 10000, "")


def test_the_job_starts_as_if_berth_were_not_there(host):
    """The same signals blocked and ignored, the same limits, no descriptor but the bell."""
    script = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status; ulimit -n; umask; ls /proc/self/fd"
    with_berth = host.server.run(host.berth, "run", "--", "sh", "-c", script)
    without = host.server.run("sh", "-c", script)
    assert with_berth.stderr == ""
    # posix_spawn() leaves the two signals that the C library keeps for itself (32, 33) ignored.
    lines = with_berth.stdout.replace("SigIgn:\t0000000180000000", "SigIgn:\t0000000000000000").splitlines()
    assert set(lines) - set(without.stdout.splitlines()) == {"300"}, with_berth.stdout


# A real terminal


@pytest.fixture
def screen(host, tmp_path):
    one = Screen(host, tmp_path)
    yield one
    one.close()


class Screen:
    """A shell in tmux, in which one can type."""

    def __init__(self, host, folder):
        self.tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.env = {**host.env, "PS1": "ready> ", "HISTFILE": ""}
        subprocess.run([*self.tmux, "new-session", "-d", "-x", "120", "-y", "40", "bash", "--norc", "-i"], env=self.env,
                       cwd=host.folder, check=True)
        self.wait("ready>")

    def text(self):
        return subprocess.run([*self.tmux, "capture-pane", "-p"], env=self.env, capture_output=True, text=True).stdout

    def type(self, *keys):
        subprocess.run([*self.tmux, "send-keys", *keys], env=self.env, check=True)

    def wait(self, text, count=1):
        return wait_for(lambda: self.text().count(text) >= count, lambda: f"{text!r} on the screen:\n{self.text()}")

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], env=self.env, check=False)


@pytest.mark.release_only
def test_ctrl_c_ends_the_job_and_frees(host, screen):
    gate = host.gate()
    screen.type(f"berth run -- sh {write_script(host, gate)}; echo code=$?", "Enter")
    gate.wait_until_started()
    screen.type("C-c")
    screen.wait("code=130")
    assert_free(host)


@pytest.mark.release_only
def test_ctrl_c_leaves_the_queue(host, screen):
    holder, gate = host.hold(uid=ALICE)
    screen.type("berth run -- true; echo code=$?", "Enter")
    screen.wait("position 1")
    screen.type("C-c")
    screen.wait("code=130")
    assert host.tickets() == []


@pytest.mark.release_only
def test_ctrl_z_stops_the_job_and_fg_goes_on(host, screen):
    gate = host.gate()
    screen.type(f"berth run -- sh {write_script(host, gate)}; echo code=$?", "Enter")
    job = gate.wait_until_started()
    for times in (1, 2, 3):
        screen.type("C-z")
        screen.wait("Stopped", times)
        wait_until_stopped(job)
        assert_taken(host)
        screen.type("fg", "Enter")
        wait_for(lambda: state_of(job) == "S", "it goes on")
    screen.type("bg", "Enter")
    gate.open()
    wait_for(lambda: not host.leases(), host.leases)
    assert_free(host)


@pytest.mark.release_only
def test_ctrl_z_in_the_queue_keeps_the_place(host, screen):
    holder, gate = host.hold(uid=ALICE)
    own = host.gate()
    screen.type(f"berth run -- sh {write_script(host, own)}; echo code=$?", "Enter")
    screen.wait("position 1")
    second, second_gate = host.queue(uid=0)
    screen.type("C-z")
    screen.wait("Stopped")
    gate.open()
    second_gate.wait_until_started(LIMIT, second)
    screen.type("fg", "Enter")
    second_gate.open()
    own.wait_until_started(LIMIT)
    own.open()
    screen.wait("ready>", 2)
    assert_free(host)


@pytest.mark.release_only
def test_a_job_that_reads_the_terminal_gets_what_is_typed(host, screen):
    screen.type("berth run -- sh -c 'read line; echo got:$line'; echo code=$?", "Enter")
    wait_for(host.leases, "it runs")
    screen.type("abc", "Enter")
    screen.wait("got:abc")
    screen.wait("code=0")


def write_script(host, gate):
    script = host.folder / f"{gate.path.name}.sh"
    script.write_text(gate.command()[2] + "\n")
    return script
