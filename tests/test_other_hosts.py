"""`berth run --host`: jobs that run wherever GPUs are free first, through real ssh between hosts of the test's own."""

import json
import os
import signal
import subprocess

import pytest
from conftest import BERTH, SIM_JOB, assert_one_line_error, wait_until
from ssh_lab import lab  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.needs_root


@pytest.fixture
def harbour():
    return "redis"


def run(lab, *words, **options):
    return lab.head.run(BERTH, "run", *words, **options)


def hold(lab, host, count):
    """A job that keeps GPUs of a host; gives how to end it."""
    job = lab.hosts[host].start(BERTH, "run", "-n", count, "--", "sh", "-c", "echo ready; read x", stdin=subprocess.PIPE)
    assert job.stdout.readline() == "ready\n"
    return job


def end_job(job):
    job.stdin.close()
    job.wait()


def leases(lab, host):
    status = json.loads(lab.hosts[host].run(BERTH, "status", "--json").stdout)
    return [lease for gpu in status["gpus"] for lease in gpu["leases"]]


def queue(lab):
    hosts = json.loads(lab.head.run(BERTH, "queue", "--all", "--json").stdout)["hosts"]
    return {one["host"]: one["queue"] for one in hosts}


def test_a_job_runs_where_it_fits(lab):
    result = run(lab, "--host", "any", "-n", "2", "--", "sh", "-c", "hostname; echo $CUDA_VISIBLE_DEVICES; pwd; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, f"gpu-b\n0,1\n{lab.folder}\n", "")
    assert not any(queue(lab).values())
    # The connection ends with the job.
    wait_until(lambda: not any(name_of(pid).startswith("ssh") for pid in lab.head.processes_inside()), "ssh has ended")


def test_a_host_by_its_name(lab):
    for host in ("gpu-a", "gpu-b"):
        assert run(lab, "--host", host, "--", "hostname").stdout == f"{host}\n"
    assert run(lab, "--host", "gpu-a,gpu-b", "--mem", "60GiB", "--", "hostname").stdout == "gpu-b\n"


def test_the_job_starts_where_a_gpu_comes_free_first(lab):
    held = {host: hold(lab, host, count) for host, count in (("gpu-a", 1), ("gpu-b", 2))}
    waiting = lab.head.start(BERTH, "run", "--host", "any", "--", "hostname")
    wait_until(lambda: all(len(one) == 1 for one in queue(lab).values()), "it waits in both queues")
    assert queue(lab)["gpu-a"][0]["ticket"] == queue(lab)["gpu-b"][0]["ticket"]
    end_job(held["gpu-b"])
    out, _ = waiting.communicate(timeout=LIMIT)
    assert out.splitlines()[-1] == "gpu-b" and waiting.returncode == 0
    wait_until(lambda: not any(queue(lab).values()), "it has left both")


def test_first_come_first_served_over_all_hosts(lab):
    """Who waits for any host stands before who came later on one."""
    held = hold(lab, "gpu-a", 1)
    roaming = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "sh", "-c", "echo first >> order")
    wait_until(lambda: len(queue(lab)["gpu-a"]) == 1, "it waits")
    local = lab.hosts["gpu-a"].start(BERTH, "run", "--", "sh", "-c", "echo second >> order")
    wait_until(lambda: len(queue(lab)["gpu-a"]) == 2, "so does the other")
    end_job(held)
    assert roaming.wait(LIMIT) == 0 and local.wait(LIMIT) == 0
    assert (lab.folder / "order").read_text() == "first\nsecond\n"


def test_a_grant_whose_answer_was_lost_leads_nobody_astray(lab, server):
    """A host that was granted the ticket did not learn that: its claim is still there when hosts are tried again."""
    host = lab.hosts["gpu-a"]
    held = hold(lab, "gpu-a", 1)
    waiting = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "hostname")
    [ticket] = wait_until(lambda: queue(lab)["gpu-a"], "it waits")
    with server.redis.client() as client:
        client.set(f"{server.prefix}:claim:{ticket['ticket']}", "gpu-a 0123456789abcdef")
    stranger = host.start(SIM_JOB, "--mem", "1GiB")
    assert stranger.stdout.readline().startswith("berth-sim-job: pid")
    before = visits(host)
    end_job(held)

    def was_tried_twice():
        assert waiting.poll() is None, waiting.stdout.read()
        return visits(host) >= before + 2
    wait_until(was_tried_twice, "it was tried, and again", 60)
    stranger.kill()
    out, _ = waiting.communicate(timeout=LIMIT)
    assert out.splitlines()[-1] == "gpu-a" and waiting.returncode == 0, out


def name_of(pid):
    try:
        return open(f"/proc/{pid}/comm").read()
    except OSError:
        return ""


def visits(host):
    return (host.folder / "sshd.log").read_text().count("Accepted")


def test_input_output_and_what_a_shell_would_take_apart(lab):
    words = ["a b", "'", '"', "$HOME", "\\", "é", "*", "", "\n"]
    result = run(lab, "--host", "any", "--", "sh", "-c", 'cat; for w in "$@"; do echo "<$w>"; done; echo oh >&2', "sh", *words,
                 stdin=None, input="in put\n")
    assert result.stdout == "in put\n" + "".join(f"<{word}>\n" for word in words)
    assert result.stderr == "oh\n"


def test_the_environment_is_chosen(lab):
    show = ["--", "sh", "-c", 'echo "$KEY1,$KEY2,$GIVEN,$OTHER"']
    env = {"KEY1": "one", "KEY2": "tw'o", "OTHER": "not asked for"}
    result = run(lab, "--host", "any", "--env", "KEY*", "--env", "GIVEN=a=b", *show, env=env)
    assert result.stdout == "one,tw'o,a=b,\n", result
    assert_one_line_error(run(lab, "--host", "any", "--env", "NOBODY", *show), 64, "--env", "NOBODY")
    assert_one_line_error(run(lab, "--host", "any", "--env", "=x", *show), 64, "--env")
    assert_one_line_error(lab.hosts["gpu-a"].run(BERTH, "run", "--env", "KEY1=x", *show), 64, "--host")


def test_nothing_of_it_stands_in_a_command_line(lab):
    """The environment and the URL may hold passwords."""
    job = lab.head.start(BERTH, "run", "--host", "gpu-a", "--env", "TOKEN", "--", "sh", "-c", "echo ready; read x",
                         env={"TOKEN": "s3cr3t"}, stdin=subprocess.PIPE)
    assert job.stdout.readline() == "ready\n"
    lines = subprocess.run(["ps", "-eww", "-o", "args"], text=True, capture_output=True, check=True).stdout
    assert "s3cr3t" not in lines and lab.common["BERTH_URL"] not in lines
    end_job(job)
    assert job.returncode in (0, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_passed_on(lab, number):
    name = signal.Signals(number).name[3:]
    script = f"trap 'echo got {name}; kill $!; wait; exit 9' {name}; sleep 1000 & echo ready; wait"
    job = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "bash", "-c", script)
    assert job.stdout.readline() == "ready\n"
    os.kill(child_of(job.pid), number)
    out, _ = job.communicate(timeout=LIMIT)
    assert (out, job.returncode) == (f"got {name}\n", 9)
    wait_until(lambda: leases(lab, "gpu-a") == [], "the lease has ended")


def test_what_a_keyboard_sends_reaches_all_of_the_job(lab):
    """A shell that waits for its child passes nothing on to it."""
    job = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "sh", "-c", "echo ready; sleep 1000; true")
    assert job.stdout.readline() == "ready\n"
    os.kill(child_of(job.pid), signal.SIGINT)
    assert job.wait(LIMIT) == 130
    wait_until(lambda: leases(lab, "gpu-a") == [], "the lease has ended")


def child_of(pid):
    """nsenter runs berth in its own place or as its child."""
    children = subprocess.run(["pgrep", "-P", str(pid), "-x", "berth"], text=True, capture_output=True).stdout.split()
    return int(children[0]) if children else pid


def test_who_waits_can_leave(lab):
    held = hold(lab, "gpu-a", 1)
    waiting = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "true")
    wait_until(lambda: len(queue(lab)["gpu-a"]) == 1, "it waits")
    os.kill(child_of(waiting.pid), signal.SIGINT)
    assert waiting.wait(LIMIT) == 130
    assert queue(lab)["gpu-a"] == []
    assert_one_line_error(run(lab, "--host", "gpu-a", "--no-wait", "--", "true"), 75, "gpu-a")
    end_job(held)


def test_a_host_that_hangs_does_not_keep_its_user(lab):
    """It has accepted the connection, and then does nothing."""
    folder = lab.folder / "hangs"
    folder.mkdir()
    (folder / "ssh").write_text(f"#!/bin/sh\necho $$ > {folder}/new && mv {folder}/new {folder}/pid\nexec sleep 1000\n")
    (folder / "ssh").chmod(0o755)
    waiting = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "true", env={"PATH": f"{folder}:{lab.head.env['PATH']}"})
    wait_until((folder / "pid").exists, "ssh runs")
    os.kill(child_of(waiting.pid), signal.SIGINT)
    assert waiting.wait(LIMIT) == 130
    pid = (folder / "pid").read_text().strip()
    assert name_of(pid) == "", "ssh has ended with it"
    assert queue(lab)["gpu-a"] == []


def test_a_ticket_of_several_hosts_can_be_cancelled(lab):
    held = [hold(lab, "gpu-a", 1), hold(lab, "gpu-b", 2)]
    waiting = lab.head.start(BERTH, "run", "--host", "any", "--", "true")
    wait_until(lambda: all(len(one) == 1 for one in queue(lab).values()), "it waits in both queues")
    ticket = queue(lab)["gpu-a"][0]["ticket"]
    assert lab.hosts["gpu-a"].run(BERTH, "cancel", ticket).returncode == 0
    assert waiting.wait(LIMIT) == 75
    assert not any(queue(lab).values())
    for job in held:
        end_job(job)


def test_the_job_ends_when_who_has_started_it_is_killed(lab):
    job = lab.head.start(BERTH, "run", "--host", "gpu-a", "--", "sh", "-c", "echo ready; sleep 1000")
    assert job.stdout.readline() == "ready\n"
    os.kill(child_of(job.pid), signal.SIGKILL)
    wait_until(lambda: leases(lab, "gpu-a") == [], "its lease has ended")


def test_a_host_that_cannot_be_reached_is_left_out(lab):
    lab.hosts["gpu-b"].processes[-1].kill()  # its sshd
    result = run(lab, "--host", "gpu-b,gpu-a", "--min-mem", "1GiB", "--", "hostname")
    assert result.returncode == 0 and result.stdout == "gpu-a\n", result
    result = run(lab, "--host", "gpu-b", "--", "hostname")
    assert result.returncode == 69 and "gpu-b" in result.stderr and "ssh:" in result.stderr, result
    assert not any(queue(lab).values())


@pytest.mark.parametrize("printed", ["welcome", "", "relative/path"])
def test_a_host_that_prints_no_path_of_the_job_spec_is_left_out(lab, printed):
    folder = lab.folder / "prints"
    folder.mkdir()
    (folder / "ssh").write_text(f"#!/bin/sh\ncat > /dev/null\necho '{printed}'\n")
    (folder / "ssh").chmod(0o755)
    result = run(lab, "--host", "gpu-a", "--", "true", env={"PATH": f"{folder}:{lab.head.env['PATH']}"})
    assert result.returncode == 69 and "gpu-a" in result.stderr and f"'{printed}'" in result.stderr, result
    assert not any(queue(lab).values())


def test_a_directory_that_is_not_there(lab):
    (lab.folder / "only-here").mkdir()
    lab.hosts["gpu-a"].inside("mount", "-t", "tmpfs", "tmpfs", str(lab.folder / "gpu-b"))
    result = lab.head.run("env", "--chdir", str(lab.folder / "gpu-b"), BERTH, "run", "--host", "gpu-a", "--", "true")
    assert result.returncode == 0  # a directory of that name is there
    result = lab.head.run("env", "--chdir", str(lab.folder / "gpu-b" / "home"), BERTH, "run", "--host", "gpu-a", "--", "true")
    assert result.returncode == 126 and "directory" in result.stderr, result


def test_at_a_terminal(lab):
    """`script` gives it one: the job has a terminal too, and the keys reach it."""
    # Not a shell that starts `sleep`: it loses a Ctrl-C that comes between its fork() and exec().
    code = 'import os, signal; print("at a terminal" if os.isatty(0) and os.isatty(1) else "", flush=True); signal.pause()'
    command = f"{BERTH} run --host gpu-a -- python3 -c '{code}'"
    job = lab.head.start("script", "-qec", command, "/dev/null", stdin=subprocess.PIPE)
    assert job.stdout.readline().strip() == "at a terminal"
    job.stdin.write("\x03")
    job.stdin.flush()
    assert job.wait(LIMIT) == 130
    assert leases(lab, "gpu-a") == []


def test_bad_hosts(lab):
    (lab.folder / "berth.toml").write_text("hosts = ['gpu-a', 'gpu-b', 'nowhere']\n")
    assert_one_line_error(run(lab, "--host", "nowhere", "--", "true"), 69, "nowhere", "gpu-a, gpu-b")
    assert_one_line_error(run(lab, "--host", "a;b", "--", "true"), 64, "a;b")
    assert_one_line_error(run(lab, "--host", "", "--", "true"), 64, "--host")
    assert_one_line_error(run(lab, "--host", "any", "-n", "3", "--", "true"), 69, "3 GPUs")
    assert_one_line_error(run(lab, "--host", "any", "--", "true", env={"BERTH_URL": ""}), 64, "BERTH_URL")
    assert run(lab, "--host", "any", "--", "no-such-program").returncode == 127


def test_this_host_needs_no_ssh(lab):
    host = lab.hosts["gpu-a"]
    host.processes[-1].kill()
    for words in (["--host", "gpu-a"], ["--host", "any", "--name", "24"]):
        result = host.run(BERTH, "run", *words, "--", "hostname")
        assert (result.returncode, result.stdout) == (0, "gpu-a\n"), result
    assert not any(queue(lab).values())


def test_a_host_that_calls_itself_otherwise(lab):
    """ssh leads to it under another name than it has in the harbour."""
    (lab.folder / "berth.toml").write_text("hosts = ['alias']\n")
    lab.hosts["gpu-a"].env["BERTH_HOST"] = "alias"
    assert lab.hosts["gpu-a"].run(BERTH, "status").returncode == 0
    (lab.head.home / ".ssh" / "config").open("a").write("Host alias\n  HostName gpu-a\n")
    result = run(lab, "--host", "alias", "--", "hostname")
    assert result.returncode == 69 and "gpu-a" in result.stderr and "BERTH_HOST" in result.stderr, result
