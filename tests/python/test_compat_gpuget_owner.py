"""Whose is the lease of GPU.py --get, if the script calls it through other programs: no number without a lease that lasts."""

import os
import socket
import subprocess

import pytest
from leasing import eventually, gpu, is_alive, jobs, ready, state_of  # noqa: F401
from compat_tools import PYTHON, good, python_in_path, tools  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only


@pytest.fixture
def managed(tools):
    """All four GPUs are managed, and these scripts are in the PATH."""
    assert good(tools.run("GPU.py", "--redis-manage-all")) == "4\n"
    for name, text in {"get.sh": "GPU.py --get", "pass.sh": "G=$(GPU.py --get)\necho $G"}.items():
        path = tools.folder / "tools" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    return tools


def shell(managed, jobs, script):
    """A shell that runs the script, says "ready", and stays until its stdin ends."""
    job = jobs.start("bash", "--norc", "-c", f"{script}\necho ready\nread -r line\nexit 0", cwd=managed.folder)
    return job, ready(job)


def python(managed, jobs, code):
    """The same in Python."""
    path = managed.folder / "driver.py"
    path.write_text(f"import os, subprocess, sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n")
    job = jobs.start(PYTHON, path, cwd=managed.folder)
    return job, ready(job)


def ends_with(managed, job):
    """The GPU stays leased as long as the job runs."""
    assert state_of(managed, 0) == "leased"
    assert job.end() == 0
    eventually(lambda: state_of(managed, 0) == "free", "the end of the lease")


# What the shell that reads the number calls.
THROUGH = {
    "timeout": "timeout 60 GPU.py --get",
    "nice, env": "nice env A=1 GPU.py --get",
    "setsid": "setsid -w GPU.py --get",
    "flock": "flock lock GPU.py --get",
    "xargs": "echo --get | xargs GPU.py",
    "sh -c": "sh -c 'GPU.py --get'",
    "sh -c, not at the end": "sh -c 'GPU.py --get; true'",
    "bash -c, not at the end": "bash -c 'GPU.py --get; true'",
    "several of them": "timeout 60 sh -c 'nice timeout 50 GPU.py --get; true'",
    "script": "get.sh",
    "perl": "perl -e 'print `GPU.py --get`'",
    "filter": "sh -c 'GPU.py --get | tail -1; true'",
    "script that reads it": "pass.sh",
    "both": "timeout 60 pass.sh",
}


@pytest.mark.each_harbour
@pytest.mark.parametrize("way", THROUGH)
def test_the_shell_that_reads_the_number_has_the_lease(managed, jobs, way):
    job, lines = shell(managed, jobs, f"G=$({THROUGH[way]})\necho $G\nGPU.py --redis-purge\nGPU.py --idle")
    assert lines == ["0", "There is 3 IDDLE GPUs, IDs: 1,2,3"]
    ends_with(managed, job)


@pytest.mark.parametrize("way", ["timeout", "sh -c, not at the end", "script"])
def test_the_lease_names_that_shell(managed, jobs, way):
    job, _ = shell(managed, jobs, f"G=$({THROUGH[way]})")
    assert [lease["pid"] for lease in gpu(managed.status(), 0)["leases"]] == [job.pid]


@pytest.mark.parametrize("call", [
    "number = os.popen('GPU.py --get').read()",
    "number = os.popen('timeout 60 GPU.py --get; true').read()",
    "number = subprocess.check_output('GPU.py --get; true', shell=True, text=True)",
    "number = subprocess.check_output('GPU.py --get; true', shell=True, text=True, start_new_session=True)",
    "number = subprocess.check_output(['GPU.py', '--get'], text=True)",
    "number = subprocess.check_output('pass.sh', text=True)"])
def test_drivers_in_python(managed, jobs, call):
    job, lines = python(managed, jobs, f"{call}\nprint(number.strip())")
    assert lines == ["0"]
    ends_with(managed, job)


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("call", ["GPU.py --get", "timeout 60 GPU.py --get", "GPU.py --get | tail -1"])
def test_a_number_in_a_file(managed, jobs, shell, call):
    """Any process can read it there: the program that had it written has the GPU."""
    code = f"subprocess.run(['{shell}', '-c', '{call} > id; true'])\nprint(open('id').read().strip())"
    job, lines = python(managed, jobs, code)
    assert lines == ["0"]
    assert good(managed.run("GPU.py", "--idle")) == "There is 3 IDDLE GPUs, IDs: 1,2,3\n"
    assert good(managed.run("GPU.py", "--release", "0")) == "GPU 0 released.\n"
    assert job.runs


def test_two_shells_have_different_gpus(managed, jobs):
    first, one = shell(managed, jobs, "G=$(timeout 60 GPU.py --get); echo $G")
    second, other = shell(managed, jobs, "G=$(timeout 60 GPU.py --get); echo $G; GPU.py --release $G")
    assert one == ["0"] and other == ["1", "GPU 1 released."]
    ends_with(managed, first)


def test_each_background_job_has_its_own(managed, jobs):
    """A job that gets its GPU itself has it until it ends, and not as long as the shell that started it."""
    job, lines = shell(managed, jobs, """\
mkfifo a b
for end in a b; do (G=$(GPU.py --get); echo $G > got-$end; read -r line < $end; GPU.py --idle > /dev/null) & done
until [ -s got-a ] && [ -s got-b ]; do :; done
sort got-a got-b""")
    assert lines == ["0", "1"]
    ended, stays = ((managed.folder / f"got-{name}").read_text().strip() for name in "ab")
    with open(managed.folder / "a", "w"):
        pass
    # Nothing has used the GPU, so the shell may have it from that job: it has it until it releases it.
    assert [state_of(managed, one) for one in (ended, stays)] == ["leased"] * 2
    assert good(managed.run("GPU.py", "--release", ended)) == f"GPU {ended} released.\n"
    assert state_of(managed, stays) == "leased"
    with open(managed.folder / "b", "w"):
        pass


LAUNCHER = "read G < <({get}); echo $G; (read -r line < go; GPU.py --release $G) &"


@pytest.mark.each_harbour
@pytest.mark.parametrize("get", ["GPU.py --get", "timeout 60 GPU.py --get"])
def test_a_launcher_that_ends(managed, jobs, get):
    """The job that it has left behind has the GPU, and releases it."""
    os.mkfifo(managed.folder / "go")
    launcher = jobs.start("bash", "--norc", "-c", LAUNCHER.format(get=get), cwd=managed.folder)
    assert launcher.process.wait() == 0
    with open(managed.folder / "go", "w"):  # opens once the job waits for it
        assert launcher.out == "0\n"
        assert state_of(managed, 0) == "leased"
        _, lines = shell(managed, jobs, "G=$(GPU.py --get); echo $G; GPU.py --release $G")
        assert lines == ["1", "GPU 1 released."]
    eventually(lambda: state_of(managed, 0) == "free", "the release")
    assert "GPU 0 released.\n" in launcher.out


def test_a_job_that_was_left_behind_and_killed(managed, jobs):
    os.mkfifo(managed.folder / "go")
    script = "read G < <(GPU.py --get); (echo $BASHPID; read -r line < go) &"
    launcher = jobs.start("bash", "--norc", "-c", script, cwd=managed.folder)
    assert launcher.process.wait() == 0
    with open(managed.folder / "go", "w"):
        pid = int(launcher.out)
        assert state_of(managed, 0) == "leased"
        os.kill(pid, 9)
        eventually(lambda: not is_alive(pid), "the end of the job")
        eventually(lambda: state_of(managed, 0) == "free", "the end of the lease")


def test_a_script_that_is_killed(managed, jobs):
    """It read the number itself, and nothing else did: nobody has the GPU any more."""
    job, _ = shell(managed, jobs, "G=$(timeout 60 GPU.py --get)")
    job.process.kill()
    eventually(lambda: state_of(managed, 0) == "free", "the end of the lease")


@pytest.mark.parametrize("command", [["GPU.py", "--get"], ["bash", "-c", "GPU.py --get; exit $?"]])
def test_no_number_without_a_process_that_stays(managed, command):
    """As with ssh HOST GPU.py --get: the session ends with the call, and its output goes through a socket."""
    here, there = socket.socketpair()
    with here, there:
        result = subprocess.run(command, env=managed.env, stdout=there, stderr=subprocess.PIPE, start_new_session=True,
                                text=True)
        there.close()
        assert here.recv(1) == b""
    assert result.returncode == 64
    assert result.stderr.startswith("berth: ") and result.stderr.count("\n") == 1 and "--pid PID" in result.stderr
    assert state_of(managed, 0) == "free"


def run_on_terminal(managed, command, typed):
    """What a command writes on a terminal of its own, where this is typed."""
    return subprocess.run(["script", "-qec", command, "/dev/null"], env=managed.env, input=typed, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT).stdout


def test_a_terminal(managed, jobs):
    """Typed into a shell with job control: that shell has the GPU. Without such a shell, nobody has."""
    words = "timeout 60 GPU.py --get; GPU.py --idle; get.sh; GPU.py --idle; exit\n"
    typed = run_on_terminal(managed, "bash --norc --noprofile -i", words)
    assert "IDs: 1,2,3" in typed and "IDs: 2,3" in typed
    eventually(lambda: state_of(managed, 0) == "free", "the end of the shell's leases")
    assert "--pid PID" in run_on_terminal(managed, "GPU.py --get; exit $?", "")
    assert state_of(managed, 0) == "free"
