"""Whose is the lease of GPU.py --get, if the script calls it through other programs: no number without a lease that lasts."""

import os
import re
import socket
import subprocess

import pytest
from leasing import eventually, gpu, is_alive, jobs, ready, state_of  # noqa: F401
from compat_tools import PYTHON, good, python_in_path, tools  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

# A session of its own, as a login has: what other tests leave behind at the same time does not count here.
SESSION = {"start_new_session": True}


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
    job = jobs.start("bash", "--norc", "-c", f"{script}\necho ready\nread -r line\nexit 0", cwd=managed.folder, **SESSION)
    return job, ready(job)


def python(managed, jobs, code):
    """The same in Python."""
    path = managed.folder / "driver.py"
    path.write_text(f"import os, subprocess, sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n")
    job = jobs.start(PYTHON, path, cwd=managed.folder, **SESSION)
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


# Each writes "ok" to the FIFO "got" when the job has its number, so that the launcher ends after that.
LAUNCHERS = {
    "process substitution": ["bash", "--norc", "-c", "read G < <(GPU.py --get); job.sh $G &"],
    "timeout": ["bash", "--norc", "-c", "read G < <(timeout 60 GPU.py --get); job.sh $G &"],
    "pipe": ["bash", "--norc", "-c", "GPU.py --get | (read G; job.sh $G) & read -r line < got"],
    "pipe of a subshell": ["bash", "--norc", "-c", "(timeout 60 GPU.py --get | xargs -n1 job.sh) & read -r line < got"],
    "job control": ["bash", "--norc", "-c", "set -m; G=$(GPU.py --get); job.sh $G & read -r line < got"],
    "group": [PYTHON, "-c", "import os\nnumber = os.popen('GPU.py --get').read().strip()\nif os.fork() == 0:\n    os.setpgid(0, 0)\n"
              "    os.execlp('job.sh', 'job.sh', number)\nopen('got').readline()"],
}


@pytest.mark.each_harbour
@pytest.mark.parametrize("login", ["none", "shell"])
@pytest.mark.parametrize("way", LAUNCHERS)
def test_a_launcher_that_ends(managed, jobs, way, login):
    """The job that it has left behind has the GPU, and releases it."""
    for name in ("go", "got"):
        os.mkfifo(managed.folder / name)
    job = managed.folder / "tools" / "job.sh"
    job.write_text("#!/bin/bash\necho $1\n(echo ok > got) &\nread -r line < go\nGPU.py --release $1\n")
    job.chmod(0o755)
    command = ["sh", "-c", '"$@"; exit $?', "login", *LAUNCHERS[way]]
    launcher = jobs.start(*(LAUNCHERS[way] if login == "none" else command), cwd=managed.folder, **SESSION)
    if "got" not in LAUNCHERS[way][-1]:
        (managed.folder / "got").read_text()
    assert launcher.process.wait() == 0
    with open(managed.folder / "go", "w"):  # opens once the job waits for it
        assert launcher.out == "0\n"
        assert state_of(managed, 0) == "leased"
        _, lines = shell(managed, jobs, "G=$(GPU.py --get); echo $G; GPU.py --release $G")
        assert lines == ["1", "GPU 1 released."]
    eventually(lambda: "GPU 0 released.\n" in launcher.out, "the release")
    assert state_of(managed, 0) == "free"


def test_a_job_that_waits_itself_is_not_what_another_one_left_behind(managed, jobs):
    """The jobs of a launcher that has ended, on one GPU: each gets it when the one before ends, without a release."""
    managed.use("1x24GiB")
    assert good(managed.run("GPU.py", "--redis-manage-all", "--force")) == "1\n"
    job = "(echo >> started; G=$(GPU.py --get); echo $G; until [ -e go ]; do sleep 0.05; done) &"
    launcher = jobs.start("bash", "--norc", "-c", f"{job}\nuntil [ -e next ]; do sleep 0.05; done\n{job}\n{job}", cwd=managed.folder,
                          **SESSION)
    eventually(lambda: launcher.out == "0\n", "the first job")
    (managed.folder / "next").touch()
    assert launcher.process.wait() == 0
    eventually(lambda: len(managed.status()["queue"]) == 2, "the other jobs in the queue")
    (managed.folder / "go").touch()
    eventually(lambda: launcher.out == "0\n" * 3, "all jobs")
    eventually(lambda: state_of(managed, 0) == "free", "the end of the last lease")


def calls_after_the_keeper_started(trace):
    """Each system call of a trace behind the last fork, as (name, which of that name)."""
    names = re.findall(r"^(\w+)\(", trace, re.MULTILINE)
    start = max(i for i, name in enumerate(names) if name in ("clone", "clone3", "fork", "vfork"))
    return [(name, names[:i + 1].count(name)) for i, name in enumerate(names) if i > start]


@pytest.mark.parametrize("flags", ["--compat gpuget", "--for $$"])
def test_berth_is_killed_while_it_prints(managed, jobs, flags):
    """Before each system call: no script has a number without a lease."""
    command = f"berth acquire --no-wait --print ids {flags}"
    trace = managed.folder / "trace"
    job, _ = shell(managed, jobs, f"G=$(strace -o {trace} {command})")
    calls = calls_after_the_keeper_started(trace.read_text())
    assert "write" in dict(calls) and len(calls) >= 4, calls
    ends_with(managed, job)
    printed = 0
    for name, number in calls:
        inject = f"strace -o /dev/null -e trace={name} -e inject={name}:signal=SIGKILL:when={number}"
        job, lines = shell(managed, jobs, f'G=$({inject} {command})\necho "<$G>"')
        assert lines in (["<>"], ["<0>"])
        if lines == ["<0>"]:
            printed += 1
            assert state_of(managed, 0) == "leased", (name, number)
        assert job.end() == 0
        eventually(lambda: state_of(managed, 0) == "free", "the end of the shell's lease")
    assert printed > 0


def test_a_job_that_was_left_behind_and_killed(managed, jobs):
    os.mkfifo(managed.folder / "go")
    script = "read G < <(GPU.py --get); (echo $BASHPID; read -r line < go) &"
    launcher = jobs.start("bash", "--norc", "-c", script, cwd=managed.folder, **SESSION)
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


def test_a_script_on_a_terminal(managed):
    """The output is that of the original: nothing about a lease."""
    script = "G=$(GPU.py --get); echo $G; GPU.py --release $G; GPU.py --get --pid $$ >number; grn-run 'echo hi'"
    path = managed.folder / "script"
    path.write_text(script)
    assert run_on_terminal(managed, f"cd {managed.folder} && bash --norc {path}", "") == "0\nGPU 0 released.\nhi\n"
