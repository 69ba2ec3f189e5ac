"""`berth run`: what the job sees, what is said while it waits, whom it shares with, and how it ends."""

import csv
import fcntl
import io
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from conftest import BERTH, SERVERS, SIM_JOB, assert_fit_for_terminal, assert_one_line_error
from leasing import (NOBODY, SAY_AND_STAY, eventually, events, gpu, gpus_of, is_alive, jobs,  # noqa: F401
                     state_of, uuids, variables_of)
from waiting import LIMIT

ESCAPES = "\x1b[31m\x1b]0;owned\x07\x9b2J\r\n\t\u202etxt\u2066\u200b\u2028\ufeff"


# What the job sees.

@pytest.mark.each_harbour
def test_the_variables(server):
    variables = variables_of(server.use("4x24GiB"), "-n", "2")
    ids = uuids(server)
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables["CUDA_VISIBLE_DEVICES"] == variables["BERTH_GPUS"] == "0,1"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == f"{ids['0']},{ids['1']}"
    assert re.fullmatch("[a-z0-9]{8}", variables["BERTH_LEASE"])
    ours = {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "BERTH_GPUS", "BERTH_LEASE"}
    if "BERTH_URL" in server.env:
        assert int(variables["BERTH_EPOCH"]) < int(variables_of(server)["BERTH_EPOCH"])
        ours.add("BERTH_EPOCH")
    assert {name: value for name, value in variables.items() if name not in ours} == server.env


def test_uuids_on_request(server):
    variables = variables_of(server.use("4x24GiB"), "--ids", "uuid", "-n", "2")
    ids = uuids(server)
    assert variables["CUDA_VISIBLE_DEVICES"] == variables["NVIDIA_VISIBLE_DEVICES"] == f"{ids['0']},{ids['1']}"
    assert variables["BERTH_GPUS"] == "0,1"


@pytest.mark.parametrize("ids", ["index", "uuid"])
def test_mig_instances_are_always_named_by_uuid(server, ids):
    server.use(SERVERS / "mig.json")
    variables = variables_of(server, "--gpu", "0:2", "--ids", ids)
    assert variables["BERTH_GPUS"] == "0:2"
    assert variables["CUDA_VISIBLE_DEVICES"] == variables["NVIDIA_VISIBLE_DEVICES"] == uuids(server)["0:2"]
    assert variables["CUDA_VISIBLE_DEVICES"].startswith("MIG-")
    # A whole card beside instances: CUDA would count it otherwise than the driver.
    assert variables_of(server, "--gpu", "3", "--ids", ids)["CUDA_VISIBLE_DEVICES"] == uuids(server)["3"]


def test_beside_a_lost_card_uuids_are_used(server):
    variables = variables_of(server.use(SERVERS / "sick.json"), "--gpu", "2,3")
    ids = uuids(server)
    assert variables["BERTH_GPUS"] == "2,3"
    assert variables["CUDA_VISIBLE_DEVICES"] == f"{ids['2']},{ids['3']}"


@pytest.mark.parametrize("description, flags, indices", [
    ("4x24GiB", ["--gpu", "1,3"], ["1", "3"]),
    (SERVERS / "lab.json", ["--gpu", "1"], ["1"]),  # cards of several speeds: CUDA's own order is another
    (SERVERS / "lab.json", ["--name", "titan", "--max-processes", "1"], ["3"]),
    (SERVERS / "mig.json", ["--gpu", "0:3"], ["0:3"]),
    (SERVERS / "mig.json", ["--gpu", "3"], ["3"]),
    (SERVERS / "sick.json", ["--gpu", "2"], ["2"]),  # in CUDA the lost card has no number
    ("4x24GiB", ["--gpu", "2", "--ids", "uuid"], ["2"]),
])
def test_the_job_computes_where_its_lease_is(server, description, flags, indices):
    log = server.folder / "log"
    result = server.use(description).berth("run", *flags, "--", SIM_JOB, "--mem", "1GiB", "--time", "1ms",
                                           "--log", log)
    assert (result.returncode, result.stderr) == (0, "")
    [start] = [event for event in events(log) if event["event"] == "start"]
    assert start["uuids"] == [uuids(server)[index] for index in indices]


@pytest.mark.each_harbour
def test_status_shows_the_lease_and_its_processes(server, jobs):
    job = jobs.hold("--gpu", "2", "--label", "my label", command=["sh", "-c", f"{SIM_JOB} --mem 3GiB --time 2m & read -r l; kill $!"])
    status = server.status()
    [lease] = gpu(status, 2)["leases"]
    [process] = gpu(status, 2)["processes"]
    assert gpu(status, 2)["state"] == "leased"
    assert lease["exclusive"] is True and lease["memory_mib"] is None
    assert (lease["label"], lease["pid"]) == ("my label", job.pid)
    assert lease["command"].startswith("sh -c ")
    assert process["lease"] == lease["id"] and process["memory_mib"] == 3072
    assert "my label" in server.berth("status").stdout
    assert job.end() == 143 or job.process.returncode == 0
    eventually(lambda: state_of(server, 2) == "free", "the end of the lease")


@pytest.mark.each_harbour
def test_exclusive_is_the_default(server, jobs):
    server.use("2x24GiB")
    assert {jobs.hold().gpus(), jobs.hold().gpus()} == {"0", "1"}
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, " 0,1 leased ")


# The command.

def test_the_arguments_arrive_as_they_were_given(server):
    words = ["", " ", "a b", "--", "-n", "--count=9", "-h", "--help", "--version", "status", "run", "@", "[1,2]", "[]",
             "{}", "%%", "++", "a=b", '"', "'", "$HOME", "*", "\\", "\n", "\t", "é", "--no-wait", "-", "-I", "[a"]
    print_words = "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    result = server.berth("run", "--", "python3", "-c", print_words, *words)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split("\0") == words


def test_bytes_that_are_not_utf8_arrive(server):
    result = subprocess.run([BERTH, "run", "--", "printf", "%s", b"a\xff\xfeb"], env=server.env, capture_output=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"a\xff\xfeb", b"")


def test_flags_of_the_command_need_no_dashes_before_it_but_dashes_help(server):
    assert server.berth("run", "-n", "2", "--", "sh", "-c", 'echo "$BERTH_GPUS"').stdout == "0,1\n"
    assert server.berth("run", "echo", "word").stdout == "word\n"


def test_replacing_a_text(server):
    result = server.berth("run", "-I", "@", "--gpu", "1,3", "--", "echo", "@", "--device=@", "x@y@", "none")
    assert result.stdout == "1,3 --device=1,3 x1,3y1,3 none\n"
    assert server.berth("run", "-I", "GPU", "--", "echo", "GPUGPU", "gpu").stdout == "00 gpu\n"


def test_nothing_cannot_be_replaced(server):
    assert_one_line_error(server.berth("run", "-I", "", "--", "true"), 64, "-I: ")


def test_the_program_itself_is_not_replaced(server):
    program = server.folder / "say@"
    program.write_text("#!/bin/sh\necho \"$0 $*\"\n")
    program.chmod(0o755)
    assert server.berth("run", "-I", "@", "--", program, "@").stdout == f"{program} 0\n"


def test_mig_instances_in_the_arguments(server):
    assert server.use(SERVERS / "mig.json").berth("run", "-I", "@", "--gpu", "0:2", "--", "echo", "@").stdout == "0:2\n"


def test_the_job_has_the_callers_stdin_folder_and_group(server, tmp_path):
    result = subprocess.run([BERTH, "run", "--", "sh", "-c", "cat; pwd; echo err >&2"], env=server.env, text=True,
                            input="from stdin\n", capture_output=True, cwd=tmp_path)
    assert (result.stdout, result.stderr) == (f"from stdin\n{tmp_path}\n", "err\n")


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_trouble(server, streams):
    """What berth opens must not take their place: its lines would go into the harbour's files."""
    marker = server.folder / "ran"
    script = f'echo "$BERTH_GPUS" > {marker}; echo text; echo text >&2; exit 0'
    result = server.run("sh", "-c", f"berth run -- sh -c '{script}' {streams}")
    assert result.returncode == 0, result
    assert marker.read_text() == "0\n"
    assert state_of(server, 0) == "free"
    assert "not a file of berth" not in server.berth("status").stdout


# How it ends.

@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("exit 75", 75),
                                          ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("kill -INT $$", 130)])
def test_the_jobs_own_exit_code(server, script, code):
    result = server.berth("run", "--", "sh", "-c", script)
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "")
    assert state_of(server, 0) == "free"


def test_who_has_started_it_may_ignore_the_ends_of_children(server):
    result = server.run("env", "--ignore-signal=CHLD", BERTH, "run", "--", "sh", "-c", "grep SigIgn /proc/self/status; exit 7",
                        timeout=LIMIT)
    assert (result.returncode, result.stderr) == (7, "")
    assert int(result.stdout.split()[1], 16) & 1 << signal.SIGCHLD - 1 == 0, "the job does not"


def test_an_end_that_somebody_else_has_learned_is_a_failure(server):
    """waitpid() knows nothing of it, and what it knows will not become more."""
    result = server.run("strace", "-o", "/dev/null", "-e", "trace=wait4", "-e", "inject=wait4:error=ECHILD", BERTH, "run", "--",
                        "true", timeout=LIMIT)
    assert result.returncode == 1, result


def test_a_program_that_cannot_be_run(server, jobs):
    """Said at once, and not after hours in the queue."""
    server.use("1x24GiB")
    jobs.hold()
    text = server.folder / "text"
    text.write_text("no program")
    assert_one_line_error(server.berth("run", "--", "no-such-program"), 127, "'no-such-program'", "PATH")
    assert_one_line_error(server.berth("run", "--", "./no/such"), 127, "'./no/such'")
    assert_one_line_error(server.berth("run", "--", ""), 127, "''")
    assert_one_line_error(server.berth("run", "--", text), 126, str(text), "chmod +x")
    assert_one_line_error(server.berth("run", "--", server.folder), 126, str(server.folder))
    assert_one_line_error(server.berth("run", "--", f"no\x1b[31m\nsuch"), 127, "\\x1b[31m\\nsuch")


def test_a_program_that_goes_away_while_it_waits(server, jobs):
    server.use("1x24GiB")
    program = server.folder / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    holder = jobs.hold()
    waiter = jobs.wait(command=[program])
    program.unlink()
    holder.end()
    assert waiter.process.wait(LIMIT) == 127
    assert str(program) in waiter.err
    assert state_of(server, 0) == "free"


def test_a_script_without_an_interpreter_line(server):
    program = server.folder / "program"
    program.write_text('echo "$1 $BERTH_GPUS"\n')
    program.chmod(0o755)
    assert server.berth("run", "--", program, "word").stdout == "word 0\n"


@pytest.mark.parametrize("folder", ["programs", ""])
def test_a_script_without_an_interpreter_line_in_the_path(server, folder):
    """As `env` runs it: the shell gets the path of the script, wherever the script was found."""
    (server.folder / folder).mkdir(exist_ok=True)
    program = server.folder / folder / "a-script"
    program.write_text('echo "$1 $BERTH_GPUS $0"\n')
    program.chmod(0o755)
    path = f"/nowhere:{folder}:{server.env['PATH']}"  # relative: to the current folder
    result = server.berth("run", "--", "a-script", "word", env={"PATH": path}, cwd=server.folder)
    assert (result.stdout, result.stderr) == (f"word 0 {folder or '.'}/a-script\n", "")
    assert server.run("env", "a-script", "word", env={"PATH": path}, cwd=server.folder).stdout.startswith("word ")


@pytest.mark.parametrize("script, code", [("exit 7", 7), ("head -c 1M /dev/zero >big; exit 9", 9),
                                          ("head -c 1M /dev/zero >big; exec head -c 1M /dev/zero >big", 128 + 25)])
def test_the_exit_code_under_a_limit_of_file_sizes(server, script, code):
    """The history is longer than a file may be: writing it fails, and SIGXFSZ is for the job alone."""
    assert server.berth("run", "--", "true").returncode == 0
    [history] = (server.harbour / "archive").glob("*/history-*.jsonl")
    limit = 64 << 10
    history.write_bytes(history.read_bytes() + b"\n" * limit)
    for one in (script, "exec grep SigIgn /proc/self/status"):
        result = server.berth("run", "--", "sh", "-c", one, cwd=server.folder,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert result.returncode == (code if one == script else 0), result
    ignored = int(result.stdout.split()[1], 16)
    assert not ignored >> (signal.SIGXFSZ - 1) & 1, "the job's own signals are as they were"
    assert state_of(server, 0) == "free"


def test_an_interpreter_that_is_missing(server):
    program = server.folder / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    result = server.berth("run", "--", program)
    assert_one_line_error(result, 127, "program", "'/no/such/interpreter' was not found")
    assert state_of(server, 0) == "free"
    program.write_text("#!/bin/sh\r\necho ran\r\n")
    assert_one_line_error(server.berth("run", "--", program), 127, "'/bin/sh\\r'", "Windows")


def test_a_script_of_the_path_whose_interpreter_is_missing(server, jobs):
    """As execvp() does: the same name in a later folder of the PATH counts. Without one, the error comes before the wait."""
    for name, line in (("first", "#!/no/such/interpreter -u"), ("second", "#! /bin/sh")):
        folder = server.folder / name
        folder.mkdir()
        (folder / "tool").write_text(f"{line}\necho ran\n")
        (folder / "tool").chmod(0o755)
    first, both = (f"{paths}:{server.env['PATH']}" for paths in (server.folder / "first", f"{server.folder}/first:{server.folder}/second"))
    assert server.berth("run", "--", "tool", env={"PATH": both}).stdout == "ran\n"
    assert server.run("env", "tool", env={"PATH": both}).stdout == "ran\n"
    jobs.hold("-n", "4")
    assert_one_line_error(server.berth("run", "--", "tool", env={"PATH": first}), 127, "'tool'", "'/no/such/interpreter'")


def test_a_program_whose_loader_is_missing(server):
    program = server.folder / "program"
    content = pathlib.Path(SIM_JOB).read_bytes()
    program.write_bytes(content.replace(b"/lib64/ld-linux-x86-64.so.2", b"/lib64/no-such-loader-64.so"))
    program.chmod(0o755)
    assert_one_line_error(server.berth("run", "--", program), 127, "loader")
    assert state_of(server, 0) == "free"


@pytest.mark.parametrize("flags, words", [
    ([], ["berth run -- "]),
    (["--"], ["berth run -- "]),
    (["--count", "0", "--", "true"], ["--count", "'0'", "1 to 4096"]),
    (["--count", "-1", "--", "true"], ["--count"]),
    (["--count", "1.5", "--", "true"], ["'1.5'"]),
    (["--count", "", "--", "true"], ["''"]),
    (["--count", "99999999999", "--", "true"], ["'99999999999'"]),
    (["-n", "1", "-n", "2", "--", "true"], ["--count"]),
    (["--mem", "8", "--", "true"], ["--mem", "'8'", "unit"]),
    (["--mem", "8XB", "--", "true"], ["--mem", "'8XB'"]),
    (["--mem", "0GiB", "--", "true"], ["--mem", "'0GiB'"]),
    (["--mem", "-1GiB", "--", "true"], ["--mem"]),
    (["--mem", "nan", "--", "true"], ["--mem"]),
    (["--mem", "auto", "--job", "", "--", "true"], ["--job: "]),
    (["--retry-oom", "0", "--", "true"], ["--retry-oom: '0'"]),
    (["--min-mem", "much", "--", "true"], ["--min-mem"]),
    (["--max-util", "101", "--", "true"], ["--max-util", "0 to 100"]),
    (["--max-mem-util", "many", "--", "true"], ["--max-mem-util"]),
    (["--max-processes", "-1", "--", "true"], ["--max-processes"]),
    (["--policy", "best", "--", "true"], ["spread", "pack", "random"]),
    (["--time", "2", "--", "true"], ["--time", "'2'", "unit"]),
    (["--time", "0s", "--", "true"], ["--time", "'0s'"]),
    (["--timeout", "soon", "--", "true"], ["--timeout"]),
    (["--no-wait", "--timeout", "1s", "--", "true"], ["--no-wait", "--timeout"]),
    (["--no-wait=false", "--", "true"], ["--no-wait"]),
    (["--ids", "name", "--", "true"], ["--ids"]),
    (["--name", "", "--", "true"], ["--name", "empty"]),
    (["--label", "x" * 257, "--", "true"], ["257 bytes"]),
    (["--label"], ["--label"]),
    (["--nonsense", "--", "true"], ["--nonsense"]),
    (["--nonsense=\x1b[31m\n", "--", "true"], ["--nonsense"]),
    (["--policy", ESCAPES, "--", "true"], ["--policy"]),
])
def test_wrong_flags(server, flags, words):
    assert_one_line_error(server.berth("run", *flags), 64, *words)
    assert list(server.harbour.iterdir()) == []  # nothing was touched


def test_a_label_that_is_not_utf8(server):
    result = subprocess.run([BERTH, "run", "--label", b"a\xff", "--", "true"], env=server.env, capture_output=True)
    assert result.returncode == 64 and b"UTF-8" in result.stderr and b"\xff" not in result.stderr


@pytest.mark.each_harbour
@pytest.mark.parametrize("time", ["100d", "3650d", "30000d", "106000d"])
def test_however_long_it_says_it_runs_the_lease_counts(server, jobs, time):
    """A time that others cannot read must be refused: a lease that they ignore would be granted twice."""
    server.use("1x24GiB")
    result = server.berth("run", "--time", time, "--", "berth", "status", "--json")
    if result.returncode == 64:
        assert_one_line_error(result, 64, "--time")
    else:
        assert json.loads(result.stdout)["gpus"][0]["state"] == "leased"


@pytest.mark.parametrize("timeout", ["0", "0s", "30000d", "106000d"])
def test_extreme_timeouts(server, timeout):
    assert server.berth("run", "--timeout", timeout, "--", "true").returncode in (0, 64)


# Not granted.

@pytest.mark.each_harbour
def test_no_wait(server, jobs):
    server.use("1x24GiB")
    jobs.hold("--label", "the thesis")
    result = server.berth("run", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "--no-wait", "GPU 0 leased", "(the thesis)")
    assert server.status()["queue"] == []


@pytest.mark.each_harbour
def test_timeout(server, jobs):
    server.use("1x24GiB")
    jobs.hold(command=["sh", "-c", 'echo "$BERTH_GPUS"; read -r l', "a command"])
    begin = time.monotonic()
    result = server.berth("run", "--timeout", "300ms", "--", "true")
    assert time.monotonic() - begin >= 0.3
    assert (result.returncode, result.stdout) == (75, "")
    waiting, error = result.stderr.splitlines()
    assert re.match(r"berth: waiting.* 1 of 1: GPU 0 leased ", waiting)
    assert re.match(r"berth: .*\b300ms: GPU 0 leased ", error) and "--timeout" in error
    assert server.status()["queue"] == []
    assert_one_line_error(server.berth("run", "--timeout", "0", "--", "true"), 75, "leased")


@pytest.mark.each_harbour
def test_a_harbour_in_a_folder_that_there_is_not(server):
    result = server.berth("run", "--", "true", env={"BERTH_DIR": "/nosuch/dir"})
    assert_one_line_error(result, 74, "'/nosuch/dir'", "'/nosuch'", "BERTH_DIR")
    assert "deleted" not in result.stderr


# What is said while it waits.

@pytest.mark.each_harbour
def test_one_line_per_change_on_a_pipe(server, jobs):
    server.use("2x24GiB")
    first = jobs.hold("--gpu", "0", "--label", "first")
    second = jobs.hold("--gpu", "1", "--label", "second")
    ahead = jobs.wait("-n", "2", "--label", "ahead")
    waiter = jobs.wait("-n", "2")
    [line] = waiter.err.splitlines()
    assert re.match(r"berth: waiting.* 2 of 2: .*\b2 GPUs, 0 ", line)
    first.end()
    eventually(lambda: "(first)" not in ahead.err.splitlines()[-1], "the news for the first")
    second.end()
    assert ahead.gpus() == "0,1"
    eventually(lambda: "position 1 of 1" in waiter.err, "the new position")
    assert ahead.end() == 0
    assert waiter.gpus() == "0,1"
    *lines, granted = waiter.err.splitlines()
    assert re.fullmatch(r"berth: granted GPUs 0,1 after \d+s", granted)
    assert len(lines) == len(set(lines)), "a line that says nothing new"
    assert all(re.match(r"berth: waiting.* position \d", line) for line in lines)
    assert "(ahead)" in lines[-1]
    for job in (ahead, waiter):
        assert "\r" not in job.err
        assert_fit_for_terminal(job.err)


@pytest.mark.each_harbour
def test_the_estimate(server, jobs):
    server.use("1x24GiB")
    holder = jobs.hold("--time", "2h")
    waiter = jobs.wait()
    assert waiter.err.startswith("berth: waiting, starts in about 2h, position 1 of 1: ")
    [ticket] = server.status()["queue"]
    assert ticket["position"] == 1 and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ticket["starts"])
    assert re.search(r"\bin 2h\b.*\n(.*\n)*.*\bin ~2h\b", server.berth("status").stdout)
    holder.end()
    waiter.gpus()


@pytest.mark.each_harbour
def test_without_an_estimate_the_next_free_gpu_is_named(server, jobs):
    """No end of GPU 0 is known, so no start of a request for both; but GPU 1 gets free."""
    server.use("2x24GiB")
    jobs.hold("--gpu", "1", "--time", "3h")
    jobs.hold("--gpu", "0")
    waiter = jobs.wait("-n", "2")
    assert re.match(r"berth: waiting, next free: GPU 1 in about 3h, position 1 of 1: ", waiter.err)
    other = jobs.wait("--gpu", "0")
    assert "next free" not in other.err, "GPU 1 is of no use for it"


@pytest.mark.each_harbour
def test_a_log_tells_what_was_granted(server, jobs):
    server.use("2x24GiB")
    at_once = jobs.run("--gpu", "1")
    at_once.gpus()
    assert at_once.err == "berth: granted GPU 1\n"
    holder = jobs.hold("--gpu", "0")
    waiter = jobs.wait("--gpu", "0")
    holder.end()
    waiter.gpus()
    assert re.search(r"\nberth: granted GPU 0 after \d+s\n$", waiter.err)
    waiter.end()
    assert server.berth("run", "--", "true").stderr == "", "a program that reads the pipe may expect only what the job writes"


def test_no_estimate_where_nobody_said_how_long(server, jobs):
    server.use("1x24GiB")
    jobs.hold()
    assert "starts" not in jobs.wait().err
    assert server.status()["queue"][0]["starts"] is None


def test_a_holder_that_overran_gives_no_estimate(server, jobs):
    server.use("1x24GiB")
    jobs.hold("--time", "1ms")
    err = jobs.wait().err
    assert "starts" not in err and "next free" not in err
    assert re.search(r"\d+s late\b", server.berth("status").stdout)


class Terminal:
    """A program on a terminal of its own, and everything that it wrote there."""

    def __init__(self, command, env, columns=80):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execvpe(command[0], command, env)
        self.written = b""
        self.code = None

    def read_until(self, text, times=1, limit=LIMIT):
        deadline = time.monotonic() + limit
        while self.written.count(text) < times:
            assert time.monotonic() < deadline, self.written
            if not self.read():
                break
        assert self.written.count(text) >= times, self.written

    def read(self):
        if not select.select([self.master], [], [], 0.1)[0]:
            return True
        try:
            chunk = os.read(self.master, 4096)
        except OSError:
            return False
        self.written += chunk
        return bool(chunk)

    def type(self, text):
        os.write(self.master, text)

    def wait(self):
        while self.read():
            pass
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


@pytest.fixture
def terminal(server):
    some = []

    def start(*command, **options):
        env = {name: value for name, value in {**server.env, **options.pop("env", {})}.items() if value is not None}
        some.append(Terminal([str(word) for word in command], env, **options))
        return some[-1]

    yield start
    for one in some:
        one.close()


@pytest.mark.parametrize("columns", [40, 100])
def test_one_live_line_on_a_terminal_that_goes_away(server, jobs, terminal, columns):
    server.use("2x24GiB")
    first = jobs.hold("--gpu", "0", "--label", "first " + "x" * 90)
    second = jobs.hold("--gpu", "1")
    screen = terminal(BERTH, "run", "-n", "2", "--", "echo", "the job", columns=columns)
    screen.read_until(b"\x1b[K")
    first.end()
    screen.read_until(b"\x1b[K", times=2)
    second.end()
    assert screen.wait() == 0
    before, after = screen.written.split(b"the job")
    assert after == b"\r\n"
    before, granted, rest = before.partition(b"berth: granted GPUs 0,1 after ")
    assert granted and re.fullmatch(rb"\d+s\r\n", rest)
    assert before.endswith(b"\r\x1b[K"), "the line is taken away before anything else is written"
    assert b"\n" not in before
    drawn = [line for line in before.split(b"\r") if line.startswith(b"berth:")]
    assert len(drawn) >= 2
    for line in drawn:
        text = line.decode()
        assert text.endswith("\x1b[K")
        assert len(text.removesuffix("\x1b[K")) < columns, "a line that wraps cannot be drawn over"


def test_ctrl_c_while_it_waits(server, jobs, terminal):
    server.use("1x24GiB")
    jobs.hold()
    screen = terminal(BERTH, "run", "--", "echo", "the job")
    screen.read_until(b"waiting")
    screen.type(b"\x03")
    assert screen.wait() == 130
    assert b"the job" not in screen.written and screen.written.endswith(b"\r\x1b[K")
    assert server.status()["queue"] == []


def test_a_dumb_terminal_gets_lines(server, jobs, terminal):
    server.use("1x24GiB")
    holder = jobs.hold()
    screen = terminal(BERTH, "run", "--", "echo", "the job", env={"TERM": "dumb"})
    screen.read_until(b"waiting")
    holder.end()
    assert screen.wait() == 0
    assert b"\x1b" not in screen.written
    assert [line[:14] for line in screen.written.splitlines()] == [b"berth: waiting", b"berth: granted", b"the job"]


# Hostile text.

def assert_safe(text):
    assert_fit_for_terminal(text)
    assert "\u202e" not in text and "\u2066" not in text and "\u200b" not in text


@pytest.mark.parametrize("where", ["label", "command", "program"])
def test_hostile_text_reaches_nobody_raw(server, jobs, terminal, where):
    server.use("1x24GiB")
    flags, command = [], list(SAY_AND_STAY)
    if where == "label":
        flags = ["--label", ESCAPES]
    elif where == "command":
        command += [ESCAPES]
    else:
        program = server.folder / ESCAPES
        program.write_text("#!/bin/sh\necho \"$BERTH_GPUS\"; read -r line\n")
        program.chmod(0o755)
        command = [str(program)]
    jobs.hold(*flags, command=command)
    waiter = jobs.wait(*flags)
    assert_safe(waiter.err)
    assert_safe(server.berth("run", "--no-wait", "--", "true").stderr)
    text = server.berth("status").stdout
    assert_safe(text)
    raw = server.berth("status", "--json").stdout
    assert raw.isascii() and all(c == "\n" or c.isprintable() for c in raw)
    status = json.loads(raw)
    assert len(status["queue"]) == 1
    if where == "label":
        assert status["gpus"][0]["leases"][0]["label"] == ESCAPES
    screen = terminal(BERTH, "status", env={"NO_COLOR": "1"})
    assert screen.wait() == 0
    assert b"\x1b" not in screen.written and b"\x07" not in screen.written and b"\xe2\x80\xae" not in screen.written
    live = terminal(BERTH, "run", "--", "true")
    live.read_until(b"waiting")
    assert b"\x1b[31m" not in live.written and b"\x07" not in live.written and b"\xe2\x80\xae" not in live.written
    assert b"\n" not in live.written


@pytest.mark.each_harbour
def test_a_command_that_is_not_utf8(server, jobs):
    server.use("1x24GiB")
    job = jobs.start(BERTH, "run", "--", *SAY_AND_STAY, os.fsdecode(b"a\xff\xc3\x28\xed\xa0\x80b"))
    job.gpus()
    raw = server.berth("status", "--json")
    assert raw.stderr == "" and raw.stdout.isascii()
    [lease] = json.loads(raw.stdout)["gpus"][0]["leases"]
    assert lease["command"].startswith("sh -c ")
    assert_safe(jobs.wait().err)


@pytest.mark.each_harbour
def test_a_very_long_command_is_still_a_lease(server, jobs):
    server.use("1x24GiB")
    for word in ["x" * 100_000, "\x01" * 100_000, os.fsdecode(b"\xff" * 100_000), "é" * 50_000]:
        job = jobs.hold(command=[*SAY_AND_STAY, word])
        assert state_of(server, 0) == "leased"
        assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, "leased")
        assert job.end() in (0, 1)
        eventually(lambda: state_of(server, 0) == "free", "the end of the lease")


def test_a_hostile_name_of_a_process(server, jobs):
    """A stranger's own name, as he may choose it."""
    server.use("1x24GiB")
    copy = server.folder / "\x1b[31m\nx\u202e"
    copy.symlink_to(SIM_JOB)
    server.start_job("--mem", "1GiB", gpu=0, program=copy)
    result = server.berth("run", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "without a lease")
    assert_safe(result.stderr)
    assert_safe(jobs.wait().err)
    assert_safe(server.berth("status").stdout)


# Inside a lease.

def inside(server, script, *flags, **options):
    """Runs a shell script as the job of `berth run`."""
    return server.berth("run", *flags, "--", "sh", "-c", script, **options)


SAY = """sh -c 'echo "$BERTH_GPUS"'"""


@pytest.mark.each_harbour
def test_a_nested_run_uses_the_outer_leases_gpus(server):
    server.use("4x24GiB")
    result = inside(server, f"echo $BERTH_LEASE; berth run -- {SAY}; berth run -n 2 -- {SAY}; "
                            "berth run -- sh -c 'echo $CUDA_VISIBLE_DEVICES $BERTH_LEASE'", "--gpu", "1,3")
    assert (result.returncode, result.stderr) == (0, "")
    outer, one, two, last = result.stdout.splitlines()
    assert (one, two) == ("1", "1,3")
    assert last.split()[0] == "1" and last.split()[1] != outer


@pytest.mark.each_harbour
def test_a_nested_run_does_not_wait_in_the_queue(server, jobs):
    server.use("1x24GiB")
    go = server.folder / "go"
    outer = jobs.hold(command=["sh", "-c", f'echo "$BERTH_GPUS"; read -r line; berth run -- touch {go}'])
    jobs.wait()
    outer.end()
    eventually(go.exists, "the nested job")


@pytest.mark.each_harbour
def test_nested_runs_spread(server):
    server.use("4x24GiB")
    fifo = server.folder / "fifo"
    os.mkfifo(fifo)
    # The first one runs until the second has read what it says.
    result = inside(server, f"berth run -- sh -c 'echo $BERTH_GPUS > {fifo}' & read -r first < {fifo}; "
                            f"berth run -- sh -c 'echo $BERTH_GPUS; cat > {fifo}.held' < {fifo} & "
                            f"exec 3> {fifo}; berth run -- {SAY}; exec 3>&-; wait; echo first $first", "--gpu", "0,2")
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout.splitlines()[-1] == "first 0"


@pytest.mark.each_harbour
def test_two_nested_runs_at_once_get_different_gpus(server, jobs):
    server.use("4x24GiB")
    script = ('echo "$BERTH_GPUS"; '
              f'{BERTH} run -- sh -c \'echo "$BERTH_GPUS" >> said; cat\' < hold & '
              f'{BERTH} run -- sh -c \'echo "$BERTH_GPUS" >> said; cat\' < hold & read -r line; wait')
    os.mkfifo(server.folder / "hold")
    said = server.folder / "said"
    job = jobs.start(BERTH, "run", "-n", "2", "--", "sh", "-c", script, cwd=server.folder)
    job.gpus()
    with open(server.folder / "hold", "w"):
        eventually(lambda: said.exists() and said.read_text().count("\n") == 2, "both nested jobs")
    assert sorted(said.read_text().split()) == ["0", "1"]
    assert job.end() in (0, 1)


def test_a_pipe_of_two_nested_runs_does_not_deadlock(server):
    server.use("1x24GiB")
    result = inside(server, "berth run -- seq 50000 | berth run -- tail -n 1")
    assert (result.returncode, result.stdout, result.stderr) == (0, "50000\n", "")


def test_too_many_inside_a_lease(server):
    server.use("4x24GiB")
    result = inside(server, "berth run -n 3 -- true; echo $?", "-n", "2")
    assert result.stdout == "69\n"
    assert re.search(r"\blease \w{8}\b.*\b2 GPUs\b.*\b3\b", result.stderr)
    assert server.status()["queue"] == []


def test_inside_a_lease_that_shares_its_gpu(server):
    """A part of what that has: the same unless less is asked for, and never more."""
    server.use("1x24GiB")
    show = """sh -c 'cat "$BERTH_DIR/lease-$BERTH_LEASE"; echo'"""
    result = inside(server, f"berth run -- {show}; berth run --mem 4GiB -- {show}; berth run --mem 8GiB -- {show}; "
                            "berth run --mem 9GiB -- true; echo $?", "--mem", "8GiB")
    *records, code = result.stdout.split("\n")[:-1]
    assert [json.loads(record)["request"]["memory_bytes"] >> 30 for record in records if record] == [8, 4, 8]
    assert code == "69"
    assert re.search(r"\blease \w{8}\b.*\b8 GiB\b.*\b9 GiB\b", result.stderr)


def test_filters_hold_inside_a_lease(server):
    server.use(SERVERS / "lab.json")
    result = inside(server, f"berth run --name 4090 -- {SAY}; berth run --name titan -- true; echo $?; "
                            f"berth run --gpu 2 -- {SAY}; echo $?", "--gpu", "0,1")
    assert result.stdout.splitlines() == ["0", "69", "69"]


def test_a_lease_inside_a_lease_inside_a_lease(server):
    server.use("4x24GiB")
    result = inside(server, f"berth run -n 2 -- sh -c 'berth run -- sh -c \"echo \\$BERTH_GPUS\"'", "-n", "3")
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


@pytest.mark.each_harbour
def test_a_nested_job_may_outlive_its_outer_one(server, jobs):
    """The outer lease stays: its GPU is in use."""
    server.use("1x24GiB")
    fifo = server.folder / "fifo"
    os.mkfifo(fifo)
    result = inside(server, f"berth run -- cat {fifo} > /dev/null 2>&1 &")
    assert result.returncode == 0 and re.search(r"\blease \w{8}\b", result.stderr)
    assert state_of(server, 0) == "leased"
    with open(fifo, "w"):
        pass
    eventually(lambda: state_of(server, 0) == "free", "the end of the lease")


@pytest.mark.each_harbour
def test_a_lease_that_has_ended_is_told_and_does_not_count(server, jobs):
    server.use("2x24GiB")
    old = variables_of(server, "--gpu", "0")
    stale = {name: old[name] for name in ("BERTH_LEASE", "CUDA_VISIBLE_DEVICES", "BERTH_GPUS")}
    jobs.hold("--gpu", "0")
    result = server.berth("run", "--", "sh", "-c", 'echo "$BERTH_GPUS"', env=stale)
    assert (result.returncode, result.stdout) == (0, "1\n")
    assert result.stderr.startswith("berth: ") and "BERTH_LEASE" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("value", ["nonsense", "../../etc", "\x1b[31m\n", "a" * 5000])
def test_a_nonsensical_lease_is_like_one_that_has_ended(server, value):
    result = server.berth("run", "--", "true", env={"BERTH_LEASE": value})
    assert result.returncode == 0
    assert result.stderr.startswith("berth: ") and "BERTH_LEASE" in result.stderr and result.stderr.count("\n") == 1


def test_an_empty_variable_is_none(server):
    assert gpus_of(server, env={"BERTH_LEASE": ""}) == "0"


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_another_users_lease_is_refused(server, jobs, open_build):
    theirs = jobs.hold()
    [lease] = server.status()["gpus"][0]["leases"]
    result = server.run(*NOBODY, open_build / "bin" / "berth", "run", "--", "true", env={"BERTH_LEASE": lease["id"]})
    assert_one_line_error(result, 77, lease["id"], "root", "unset BERTH_LEASE")
    assert theirs.runs


# Sharing.

@pytest.mark.each_harbour
def test_jobs_share_a_gpu_up_to_its_memory(server, jobs):
    server.use("1x24GiB")  # 24576 MiB, of which 256 must remain beside others
    first = jobs.hold("--mem", "12160MiB")
    assert_one_line_error(server.berth("run", "--mem", "12161MiB", "--no-wait", "--", "true"), 75, "memory")
    second = jobs.hold("--mem", "12160MiB")
    assert state_of(server, 0) == "shared"
    assert [lease["memory_mib"] for lease in server.status()["gpus"][0]["leases"]] == [12160, 12160]
    assert [lease["exclusive"] for lease in server.status()["gpus"][0]["leases"]] == [False, False]
    waiter = jobs.wait("--mem", "64MiB")
    first.end()
    assert waiter.gpus() == "0"
    second.end()


def test_alone_a_job_may_have_all_memory(server):
    assert gpus_of(server.use("1x24GiB"), "--mem", "24GiB") == "0"


@pytest.mark.each_harbour
def test_several_jobs_at_once(server, jobs):
    server.use("2x24GiB")
    some = [jobs.run("--mem", "7GiB", "--policy", "pack") for _ in range(6)]
    assert sorted(job.gpus() for job in some) == ["0", "0", "0", "1", "1", "1"]
    assert_one_line_error(server.berth("run", "--mem", "7GiB", "--no-wait", "--", "true"), 75, " 0,1")
    leases = [sum(lease["memory_mib"] for lease in one["leases"]) for one in server.status()["gpus"]]
    assert leases == [3 * 7168] * 2


@pytest.mark.each_harbour
def test_exclusive_and_shared_are_never_together(server, jobs):
    server.use("1x24GiB")
    shared = jobs.hold("--mem", "1GiB")
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, "leased")
    exclusive = jobs.wait()
    assert_one_line_error(server.berth("run", "--mem", "1GiB", "--no-wait", "--", "true"), 75, "ticket")
    shared.end()
    exclusive.gpus()
    assert_one_line_error(server.berth("run", "--mem", "1GiB", "--no-wait", "--", "true"), 75, "leased")


def test_what_a_job_really_uses_counts(server, jobs):
    """It reserved 2 GiB and uses 14: 10 do not fit beside it, though 22 would remain by its word."""
    server.use("1x24GiB")
    job = jobs.run("--mem", "2GiB", command=[SIM_JOB, "--mem", "14GiB", "--time", "2m"])
    job.gpus()
    assert_one_line_error(server.berth("run", "--mem", "10GiB", "--no-wait", "--", "true"), 75, "memory")
    assert gpus_of(server, "--mem", "9GiB") == "0"
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(LIMIT) == 143
    assert gpus_of(server, "--mem", "10GiB") == "0"


def test_several_gpus_are_shared_too(server, jobs):
    server.use("2x24GiB")
    jobs.hold("--mem", "20GiB", "-n", "2")
    assert gpus_of(server, "--mem", "3GiB", "-n", "2") == "0,1"
    assert_one_line_error(server.berth("run", "--mem", "4GiB", "-n", "2", "--no-wait", "--", "true"), 75,
                          "2 GPUs, 0 ")


# Strangers.

@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_a_stranger_blocks_and_is_named(server, jobs):
    server.use("1x24GiB")
    stranger = server.start_job("--mem", "5GiB", gpu=0)
    waiter = jobs.wait()
    assert f"GPU 0: berth-sim-job (pid {stranger.pid}, user root)" in waiter.err and " 5 GiB" in waiter.err
    assert waiter.runs
    stranger.kill()
    stranger.wait()
    assert waiter.gpus() == "0"


@pytest.mark.needs_root
def test_another_users_process_is_a_stranger_by_his_name(server, open_build):
    server.use("1x24GiB")
    job = server.start_job("--mem", "1GiB", gpu=0, program=open_build / "bin" / "berth-sim-job", prefix=NOBODY)
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, f"(pid {job.pid}, user nobody)")
    assert_one_line_error(server.berth("run", "--mem", "1GiB", "--no-wait", "--", "true"), 75, "user nobody")


def test_a_stranger_beside_other_free_gpus(server):
    server.use("3x24GiB")
    server.start_job("--mem", "1GiB", gpu=0)
    assert gpus_of(server, "-n", "2") == "1,2"
    assert_one_line_error(server.berth("run", "-n", "3", "--no-wait", "--", "true"), 75,
                          "3 GPUs, 2 ", "GPU 0: berth-sim-job")


@pytest.mark.release_only
def test_a_stranger_that_nobody_can_see_is_asked_for(server, jobs):
    """Only the driver knows him (as in a container): it is asked again, and the waiter starts."""
    server.use({"gpus": [{"memory": "24GiB"}], "strangers": [{"gpu": 0, "memory": "1GiB", "until": "3s"}]})
    job = jobs.run()
    assert job.gpus() == "0"


def test_a_display_does_not_block(server):
    assert gpus_of(server.use(SERVERS / "workstation.json")) == "0"
    assert gpus_of(server, "--mem", "9GiB") == "0"
    # But what it uses is not there.
    assert_one_line_error(server.berth("run", "--mem", "10GiB", "--no-wait", "--", "true"), 75, "GPU 0")


def test_memory_without_a_process_blocks(server):
    server.use({"gpus": [{"memory": "24GiB"}], "strangers": [{"gpu": 0, "memory": "5GiB", "hidden": True}]})
    result = server.berth("run", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "GPU 0", " 5 GiB")


def test_memory_without_a_process_is_not_there_to_share(server):
    server.use({"gpus": [{"memory": "24GiB"}], "strangers": [{"gpu": 0, "memory": "5GiB", "hidden": True}]})
    assert gpus_of(server, "--mem", "18GiB", "--max-processes", "1") == "0"
    result = server.berth("run", "--mem", "19GiB", "--max-processes", "1", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "GPU 0: ")


def test_an_unknown_gpu_is_not_given(server):
    server.use({"gpus": [{"memory": "8GiB", "count": 2}],
                "faults": [{"call": "nvmlDeviceGetComputeRunningProcesses", "gpu": 0, "answer": 3}]})
    assert gpus_of(server) == "1"
    result = server.berth("run", "--gpu", "0", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "GPU 0: ")


def test_a_prohibited_card_is_not_given(server):
    server.use(SERVERS / "lab.json")
    assert_one_line_error(server.berth("run", "--gpu", "4", "--no-wait", "--", "true"), 75, "GPU 4: ", "prohibited")


# The placeholder.

def on_gpu(server, index):
    return [process["name"] for process in gpu(server.status(), index)["processes"]]


def test_the_placeholder_shows_until_the_job_uses_the_gpu(server, jobs):
    server.use("4x24GiB")
    fifo = server.folder / "fifo"
    os.mkfifo(fifo)
    job = jobs.hold("--placeholder", "--gpu", "1,2",
                    command=["sh", "-c", f'echo "$BERTH_GPUS"; read -r line < {fifo}; exec {SIM_JOB} --gpus 1 --mem 1GiB --time 2m'])
    status = server.status()
    for index in (1, 2):
        [process] = gpu(status, index)["processes"]
        assert process["name"] == "berth-hold" and process["memory_mib"] >= 16
        assert process["lease"] == gpu(status, index)["leases"][0]["id"]
        assert gpu(status, index)["state"] == "leased"
    fifo.write_text("go\n")
    eventually(lambda: on_gpu(server, 1) == ["berth-sim-job"], "the placeholder's leaving")
    assert on_gpu(server, 2) == ["berth-hold"]  # the job has not come there
    assert job.runs
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(LIMIT) == 143
    assert on_gpu(server, 1) == on_gpu(server, 2) == []
    assert job.err == "berth: granted GPUs 1,2\n"


def test_a_placeholder_leaves_with_a_job_that_never_used_the_gpu(server):
    assert server.berth("run", "--placeholder", "--", "true").returncode == 0
    assert on_gpu(server, 0) == []


def test_a_placeholder_on_a_mig_instance(server, jobs):
    server.use(SERVERS / "mig.json")
    jobs.hold("--placeholder", "--gpu", "0:2")
    assert on_gpu(server, "0:2") == ["berth-hold"]


def test_where_there_can_be_no_placeholder_the_job_runs_without(server):
    server.use({"gpus": [{"memory": "24GiB", "compute_mode": "exclusive-process"}]})
    result = server.berth("run", "--placeholder", "--", SIM_JOB, "--time", "1ms", "--quiet")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.count("\n") == 1 and "placeholder" in result.stderr and "GPU-" in result.stderr
    assert "exclusive-process" in result.stderr


def test_a_card_without_room_for_a_placeholder(server):
    server.use({"gpus": [{"memory": "24GiB"}], "faults": [{"call": "cuMemAlloc", "answer": 2}]})
    result = server.berth("run", "--placeholder", "--", "echo", "the job")
    assert (result.returncode, result.stdout) == (0, "the job\n")
    assert result.stderr.count("\n") == 1 and "placeholder" in result.stderr and "GPU-" in result.stderr


def test_ctrl_c_before_the_job_has_started(server, terminal):
    """While the placeholder is made the job is not there yet: nobody else could obey."""
    server.use({"gpus": [{"memory": "24GiB"}], "faults": [{"call": "cuMemAlloc", "delay": "3s"}]})
    screen = terminal(BERTH, "run", "--placeholder", "--", "echo", "the job")
    eventually(lambda: state_of(server, 0) == "leased", "the lease")
    eventually(lambda: on_gpu(server, 0) == ["berth-hold"], "the placeholder")
    screen.type(b"\x03")
    assert screen.wait() == 130
    assert b"the job" not in screen.written
    assert state_of(server, 0) == "free"


# Containers.

@pytest.fixture
def docker(server):
    """A docker that says what it was given."""
    folder = server.folder / "tools"
    folder.mkdir()
    (folder / "docker").write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done; '
                                   'echo "NVIDIA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES"\n')
    (folder / "docker").chmod(0o755)
    server.env["PATH"] = f"{folder}:{server.env['PATH']}"
    return folder / "docker"


def as_docker_reads(flag):
    """--gpus is one record of CSV, its fields KEY=VALUE (opts/gpus.go)."""
    [fields] = csv.reader(io.StringIO(flag))
    return dict(field.split("=", 1) for field in fields)


@pytest.mark.release_only
def test_docker_by_the_environment_and_by_replacing(server, docker):
    server.use("4x24GiB")
    words = server.berth("run", "--gpu", "1,3", "-I", "@", "--", "docker", "run", "--gpus", '"device=@"', "image").stdout
    lines = words.splitlines()
    assert lines[:2] == ["run", "--gpus"] and lines[3] == "image"
    assert as_docker_reads(lines[2]) == {"device": "1,3"}
    ids = uuids(server)
    assert lines[4] == f"NVIDIA_VISIBLE_DEVICES={ids['1']},{ids['3']}"


@pytest.mark.release_only
@pytest.mark.parametrize("flags, indices", [(["--gpu", "1,3"], ["1", "3"]), (["--gpu", "2"], ["2"])])
def test_docker_by_acquire(server, docker, flags, indices):
    server.use("4x24GiB")
    result = server.run("bash", "-c", f'docker run --gpus "$(berth acquire {" ".join(flags)} --print docker)" image; true')
    assert result.stderr == ""
    ids = uuids(server)
    assert as_docker_reads(result.stdout.splitlines()[2]) == {"device": ",".join(ids[index] for index in indices)}
    eventually(lambda: state_of(server, indices[0]) == "free", "the end of the shell's lease")


@pytest.mark.release_only
def test_docker_with_mig(server, docker):
    server.use(SERVERS / "mig.json")
    result = server.run("bash", "-c", 'docker run --gpus "$(berth acquire --gpu 0:2 --print docker)" image; true')
    assert as_docker_reads(result.stdout.splitlines()[2]) == {"device": uuids(server)["0:2"]}
