"""`berth acquire`: a lease for the calling shell, for as long as that lives and not a moment longer."""

import json
import os
import pathlib
import pty
import re
import shlex
import signal
import subprocess
import time

import pytest
from conftest import BERTH, SERVERS, SIM_JOB, assert_fit_for_terminal, assert_one_line_error
from leasing import NOBODY, eventually, gpu, is_alive, jobs, keepers, only_keeper, read_to_end, ready, state_of, uuids  # noqa: F401
from waiting import LIMIT

SHELLS = {"bash": ["bash", "--norc"], "dash": ["dash"], "zsh": ["zsh", "-f"]}


def leases(server):
    """Every lease, by id."""
    return {lease["id"]: lease for one in server.status()["gpus"] for lease in one["leases"]}


def start_shell(jobs, script, shell="bash", **options):
    """A shell that runs the script, says "ready", and stays until its stdin ends."""
    return jobs.start(*SHELLS[shell], "-c", f"{script}\necho ready\nread -r line\nexit 0", **options)


def all_free(server):
    return all(one["state"] == "free" for one in server.status()["gpus"])


def eventually_free(server):
    eventually(lambda: all_free(server), "the end of the lease")
    eventually(lambda: keepers(server) == [], "the end of the keeper")
    eventually(lambda: not any(path.name.startswith(("lease-", "bell-")) for path in server.harbour.iterdir()),
               "the end of its files")


def assert_refused(result, code, *words):
    """One clear line for people, and for eval the code."""
    assert result.stdout == f"(exit {code})\n"
    result.stdout = ""
    assert_one_line_error(result, code, *words)


# The shell has it, and it ends with the shell.

@pytest.mark.parametrize("shell", SHELLS)
def test_eval(server, jobs, shell):
    server.use("4x24GiB")
    job = start_shell(jobs, 'set -eu; eval "$(berth acquire --gpu 1,3)"; env | grep -E "^(CUDA|NVIDIA|BERTH_[GL])" | sort; set +e',
                      shell)
    variables = dict(line.split("=", 1) for line in ready(job))
    ids = uuids(server)
    assert list(variables) == ["BERTH_GPUS", "BERTH_LEASE", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
                               "NVIDIA_VISIBLE_DEVICES"]
    assert variables["BERTH_GPUS"] == variables["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == f"{ids['1']},{ids['3']}"
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    [lease] = leases(server).values()
    assert (lease["id"], lease["pid"], lease["command"]) == (variables["BERTH_LEASE"], job.pid, shell)
    assert [one["state"] for one in server.status()["gpus"]] == ["free", "leased", "free", "leased"]
    assert job.err == ""
    assert job.end() == 0
    eventually_free(server)


WAYS = {
    "substitution": "x=$(berth acquire --print ids)",
    "backquotes": "x=`berth acquire --print ids`",
    "file": "berth acquire --print ids > out",
    "pipe": "berth acquire --print ids | cat > out",
    "long pipe": "true | berth acquire --print ids | cat | cat > out",
    "subshell": "(berth acquire --print ids > out)",
    "subshell that goes on": "(berth acquire --print ids > out; true)",
    "subshells": "( ( (berth acquire --print ids > out; true); true); true)",
    "substitution in a substitution": "x=$(echo $(berth acquire --print ids))",
    "pipe in a substitution": "x=$(berth acquire --print ids | cat)",
    "function": "f() { berth acquire --print ids; }; x=$(f)",
    "braces": "{ berth acquire --print ids; } > out",
    "background": "berth acquire --print ids > out & wait",
    "condition": "if x=$(berth acquire --print ids); then :; fi",
}
BASH_WAYS = {
    "process substitution": "read -r x < <(berth acquire --print ids)",
    "process substitution with a pipe": "read -r x < <(berth acquire --print ids | cat)",
    "mapfile": "mapfile -t x < <(berth acquire --print ids)",
    "here string": 'cat <<< "$(berth acquire --print ids)" > out',
}
ZSH_WAYS = {
    "process substitution": "read -r x < <(berth acquire --print ids)",
    "file substitution": "cat =(berth acquire --print ids) > out",
}


@pytest.mark.release_only
@pytest.mark.parametrize("shell, way", [
    *[(shell, way) for shell in SHELLS for way in WAYS],
    *[("bash", way) for way in BASH_WAYS], *[("zsh", way) for way in ZSH_WAYS]])
def test_however_it_is_called_the_lease_is_the_shells(server, jobs, shell, way):
    script = {**WAYS, **(BASH_WAYS if shell == "bash" else ZSH_WAYS if shell == "zsh" else {})}[way]
    job = start_shell(jobs, f'{script}; [ -e out ] && x=$(cat out); echo "got $x"', shell, cwd=server.folder)
    assert ready(job) == ["got 0"]
    assert job.err == ""
    [lease] = leases(server).values()
    assert lease["pid"] == job.pid
    assert state_of(server, 0) == "leased"
    assert job.end() == 0
    eventually_free(server)


def test_a_script_of_its_own_is_a_shell_of_its_own(server, jobs):
    """What a script acquired ends with the script, and not with the shell that called it."""
    script = server.folder / "script"
    script.write_text('#!/bin/bash\nx=$(berth acquire --print ids)\necho "got $x"\nberth status --json > during\n')
    script.chmod(0o755)
    job = start_shell(jobs, "./script", cwd=server.folder)
    assert ready(job) == ["got 0"]
    [lease] = json.loads((server.folder / "during").read_text())["gpus"][0]["leases"]
    assert lease["pid"] != job.pid
    eventually_free(server)
    assert job.runs


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_program_that_reads_from_acquire_has_the_lease(server, jobs, shell):
    """Of `program < <(berth acquire)` berth is the program's child: at least as long as that runs."""
    os.mkfifo(server.folder / "fifo")
    job = jobs.start(*SHELLS[shell], "-c", "cat - fifo < <(berth acquire --print ids); true", cwd=server.folder)
    with open(server.folder / "fifo", "w") as fifo:
        eventually(lambda: job.out == "0\n", "the GPU's number")
        assert state_of(server, 0) == "leased"
        fifo.write("more\n")
    job.process.wait(LIMIT)
    assert job.out == "0\nmore\n"
    eventually_free(server)


@pytest.mark.each_harbour
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_shell(server, jobs, shell, number):
    job = start_shell(jobs, 'eval "$(berth acquire)"', shell)
    ready(job)
    assert state_of(server, 0) == "leased"
    job.process.send_signal(number)
    job.process.wait(LIMIT)
    eventually_free(server)


@pytest.mark.each_harbour
def test_a_waiter_starts_when_the_shell_ends(server, jobs):
    server.use("1x24GiB")
    shell = start_shell(jobs, 'eval "$(berth acquire --label interactive)"')
    ready(shell)
    waiter = jobs.wait()
    assert "(interactive)" in waiter.err
    shell.process.kill()
    assert waiter.gpus() == "0"


@pytest.mark.each_harbour
def test_a_shell_that_becomes_another_program_keeps_it(server, jobs):
    job = jobs.start("bash", "-c", 'eval "$(berth acquire)"; exec sh -c "echo ready; read -r line"')
    ready(job)
    [lease] = leases(server).values()
    assert lease["pid"] == job.pid
    job.end()
    eventually_free(server)


@pytest.mark.each_harbour
def test_what_the_shell_starts_runs_under_its_lease(server, jobs):
    server.use("2x24GiB")
    job = start_shell(jobs, f'eval "$(berth acquire --gpu 1)"; {SIM_JOB} --mem 2GiB --time 2m < /dev/null & sleep 0; '
                            "until berth status --json | grep -q berth-sim-job; do :; done; trap 'kill %1' EXIT")
    assert ready(job)[0].startswith("berth-sim-job")
    one = gpu(server.status(), 1)
    [lease], [process] = one["leases"], one["processes"]
    assert process["lease"] == lease["id"] and one["state"] == "leased"
    job.end()
    eventually_free(server)


@pytest.mark.each_harbour
def test_a_program_may_acquire_for_itself(server, jobs):
    code = ("import subprocess, sys; print(subprocess.run(['berth', 'acquire', '--print', 'ids'], text=True, "
            "stdout=subprocess.PIPE).stdout, end=''); print('ready', flush=True); sys.stdin.read()")
    job = jobs.start("python3", "-c", code)
    assert ready(job) == ["0"]
    [lease] = leases(server).values()
    assert lease["pid"] == job.pid and lease["command"].startswith("python3")
    job.end()
    eventually_free(server)


# For a process that is named.

@pytest.mark.each_harbour
def test_for_another_process(server, jobs):
    other = jobs.start("cat")
    result = server.berth("acquire", "--for", other.pid, "--print", "ids")
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")
    [lease] = leases(server).values()
    assert (lease["pid"], lease["command"]) == (other.pid, "cat")
    other.end()
    eventually_free(server)


def test_for_a_process_that_is_not_there(server, jobs):
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert_refused(server.berth("acquire", "--for", gone.pid), 64, f"--for {gone.pid}")
    zombie = subprocess.Popen(["true"])
    eventually(lambda: not is_alive(zombie.pid), "the end of a child")
    assert_refused(server.berth("acquire", "--for", zombie.pid), 64, f"--for {zombie.pid}")
    zombie.wait()
    assert all_free(server)


@pytest.mark.parametrize("pid", ["0", "-1", "x", "", "1.5", "99999999999", "4194305"])
def test_for_what_is_no_process(server, pid):
    assert_refused(server.berth("acquire", "--for", pid), 64, "--for")


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_for_another_users_process(server, jobs, open_build):
    ours = jobs.start("cat")
    result = server.run(*NOBODY, open_build / "bin" / "berth", "acquire", "--for", ours.pid)
    assert_refused(result, 77, f"--for {ours.pid}")
    assert all_free(server)


# What is printed.

def test_print_ids(server, jobs):
    server.use("4x24GiB")
    other = jobs.start("cat")
    mine = ["--for", other.pid]
    assert server.berth("acquire", *mine, "--print", "ids", "--gpu", "0,2").stdout == "0,2\n"
    assert server.berth("acquire", *mine, "--print", "ids", "--ids", "uuid").stdout == f"{uuids(server)['1']}\n"


def test_print_json(server, jobs):
    server.use(SERVERS / "mig.json")
    other = jobs.start("cat")
    result = server.berth("acquire", "--for", other.pid, "--print", "json", "--gpu", "0:2,3")
    answer = json.loads(result.stdout)
    ids = uuids(server)
    assert list(answer) == ["lease", "gpus", "indices"]
    assert answer["gpus"] == [ids["0:2"], ids["3"]]
    assert answer["indices"] == ["0:2", 3]
    assert answer["lease"] in leases(server)


def test_print_docker(server, jobs):
    server.use("4x24GiB")
    other = jobs.start("cat")
    result = server.berth("acquire", "--for", other.pid, "--print", "docker", "-n", "2")
    ids = uuids(server)
    assert result.stdout == f'"device={ids["0"]},{ids["1"]}"\n'


def test_print_shell_with_uuids(server, jobs):
    server.use("4x24GiB")
    other = jobs.start("cat")
    lines = server.berth("acquire", "--for", other.pid, "--print", "shell", "--ids", "uuid").stdout.splitlines()
    assert f"export CUDA_VISIBLE_DEVICES={uuids(server)['0']}" in lines
    assert all(re.fullmatch(r"export [A-Z_]+=[A-Za-z0-9:,_-]+", line) for line in lines), "nothing for a shell to expand"


@pytest.mark.parametrize("flags, words", [(["--ids", "x"], ["--ids"]),
                                          (["--count", "0"], ["--count"]), (["word"], ["'word'"]),
                                          (["--", "word"], ["'word'"]), (["--placeholder"], ["--placeholder"])])
def test_wrong_flags(server, flags, words):
    assert_refused(server.berth("acquire", *flags), 64, *words)


def test_a_form_that_there_is_not(server):
    assert_one_line_error(server.berth("acquire", "--print", "yaml"), 64, "--print")


# Several leases.

@pytest.mark.each_harbour
def test_two_leases_in_one_shell(server, jobs):
    server.use("3x24GiB")
    job = start_shell(jobs, "a=$(berth acquire --print ids); b=$(berth acquire --print ids -n 2); echo $a; echo $b")
    assert ready(job) == ["0", "1,2"]
    assert {lease["pid"] for lease in leases(server).values()} == {job.pid}
    assert len(leases(server)) == 2
    job.end()
    eventually_free(server)


@pytest.mark.each_harbour
def test_a_second_eval_is_a_part_of_the_first(server, jobs):
    """BERTH_LEASE is set by then; and nothing can wait for itself."""
    server.use("3x24GiB")
    job = start_shell(jobs, 'eval "$(berth acquire -n 2)"; first=$BERTH_LEASE; eval "$(berth acquire)"; '
                            'echo "$BERTH_GPUS"; [ "$first" != "$BERTH_LEASE" ] && echo another; '
                            "berth acquire -n 2 > out; echo $?", cwd=server.folder)
    assert ready(job) == ["0", "another", "69"]
    assert re.search(r"\blease \w{8}\b", job.err)
    assert [one["state"] for one in server.status()["gpus"]] == ["leased", "leased", "free"]
    job.end()
    eventually_free(server)


@pytest.mark.each_harbour
def test_acquire_inside_run(server):
    server.use("2x24GiB")
    script = 'echo "$BERTH_GPUS"; eval "$(berth acquire)"; echo "$BERTH_GPUS"; berth acquire -n 2; echo $?'
    result = server.berth("run", "--gpu", "1", "--", "bash", "-c", script)
    assert result.stdout.splitlines() == ["1", "1", "(exit 69)", "69"]
    eventually_free(server)


# Not granted.

@pytest.mark.each_harbour
@pytest.mark.parametrize("flags", [["--no-wait"], ["--timeout", "200ms"], ["--timeout", "0"]])
def test_not_granted(server, jobs, flags):
    server.use("1x24GiB")
    jobs.hold("--label", "the thesis")
    result = server.berth("acquire", *flags)
    assert (result.returncode, result.stdout) == (75, "(exit 75)\n")
    assert "(the thesis)" in result.stderr.splitlines()[-1]
    assert server.status()["queue"] == []


@pytest.mark.parametrize("flags, code", [("--no-wait", 75), ("-n 2", 69), ("--no-such-flag", 64), ("--print=shell --no-wait", 75)])
@pytest.mark.parametrize("shell", SHELLS)
def test_eval_fails_where_there_is_no_lease(server, jobs, shell, flags, code):
    """So that what is to run on the GPU does not run without."""
    server.use("1x24GiB")
    jobs.hold()
    script = f'eval "$(berth acquire {flags})" && echo trains; echo $?; set -e; eval "$(berth acquire {flags})"; echo trains'
    result = server.run(shell, "-c", script)
    assert (result.returncode, result.stdout) == (code, f"{code}\n")


@pytest.mark.parametrize("form", ["ids", "json", "docker"])
def test_who_reads_something_else_reads_nothing_where_there_is_no_lease(server, form):
    for words in (["--print", form], [f"--print={form}"]):
        result = server.use("1x24GiB").berth("acquire", "-n", "2", *words)
        assert (result.returncode, result.stdout) == (69, "")


def test_impossible(server):
    assert_refused(server.use("1x24GiB").berth("acquire", "-n", "2"), 69, "2 GPUs", " 1")


def test_a_wait_in_a_substitution_is_shown(server, jobs):
    server.use("1x24GiB")
    holder = jobs.hold()
    shell = start_shell(jobs, 'x=$(berth acquire --print ids); echo "got $x"')
    shell.waits()
    [ticket] = server.status()["queue"]
    assert (ticket["pid"], ticket["command"]) == (shell.pid, "bash")
    holder.end()
    assert ready(shell) == ["got 0"]


@pytest.mark.each_harbour
def test_a_shell_that_dies_while_it_waits_leaves_the_queue(server, jobs):
    """Nobody wants the GPUs any more: a wide ticket of a dead shell would keep the others out."""
    server.use("2x24GiB")
    jobs.hold("--gpu", "0")
    shell = start_shell(jobs, "x=$(berth acquire -n 2 --print ids)")
    shell.waits()
    narrow = jobs.wait()
    shell.process.kill()
    assert narrow.gpus() == "1"
    assert server.status()["queue"] == []


@pytest.mark.each_harbour
def test_a_named_process_that_dies_while_berth_waits(server, jobs):
    server.use("1x24GiB")
    jobs.hold()
    other = jobs.start("cat")
    waiting = jobs.start(BERTH, "acquire", "--for", other.pid)
    waiting.waits()
    other.end()
    assert waiting.process.wait(LIMIT) == 64
    assert waiting.out == "(exit 64)\n" and f"pid {other.pid}" in waiting.err.splitlines()[-1]
    assert server.status()["queue"] == []


# Granted and not delivered.

def full_pipe():
    """A pipe that takes no byte more: who writes to it blocks."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        pass
    try:
        while True:
            os.write(writing, b"x")
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    return reading, writing


@pytest.mark.parametrize("ignored, code", [(False, -signal.SIGPIPE), (True, 74)])
def test_nobody_reads_the_output(server, ignored, code):
    reading, writing = os.pipe()
    os.close(reading)
    prefix = ["env", "--ignore-signal=PIPE"] if ignored else []
    result = subprocess.run([*prefix, BERTH, "acquire"], env=server.env, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert result.returncode == code
    if ignored:
        assert result.stderr.startswith("berth: ") and "Broken pipe" in result.stderr and result.stderr.count("\n") == 1
    eventually_free(server)


@pytest.mark.parametrize("target", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written(server, jobs, target):
    job = start_shell(jobs, f"berth acquire {target}; echo $?")
    assert ready(job) == ["74"]
    assert ("No space left" if "full" in target else "Bad file descriptor") in job.err
    eventually_free(server)  # though the shell lives


@pytest.mark.each_harbour
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_berth_ends_between_the_grant_and_the_output(server, jobs, end):
    reading, writing = full_pipe()
    shell = jobs.start("cat")
    process = subprocess.Popen([BERTH, "acquire", "--for", str(shell.pid)], env=server.env, stdout=writing,
                               stderr=subprocess.DEVNULL)
    os.close(writing)
    eventually(lambda: keepers(server), "the keeper")
    assert state_of(server, 0) == "leased"
    assert process.poll() is None  # it cannot write
    if end == "killed":
        process.kill()
    else:
        os.close(reading)
    assert process.wait(LIMIT) != 0
    eventually_free(server)
    assert shell.runs
    if end == "killed":
        os.close(reading)


@pytest.mark.each_harbour
def test_delivered_late_is_delivered(server, jobs):
    reading, writing = full_pipe()
    shell = jobs.start("cat")
    process = subprocess.Popen([BERTH, "acquire", "--for", str(shell.pid), "--print", "ids"], env=server.env,
                               stdout=writing)
    os.close(writing)
    eventually(lambda: keepers(server), "the keeper")
    assert read_to_end(reading).lstrip(b"x") == b"0\n"  # to its end: the keeper does not hold the pipe
    assert process.wait(LIMIT) == 0
    assert state_of(server, 0) == "leased"
    shell.end()
    eventually_free(server)


# The keeper.

@pytest.mark.each_harbour
def test_the_keeper_holds_nothing_of_the_shells(server, jobs):
    """A pipe of the shell's ends when the shell closes it, whatever numbers its descriptors have."""
    pipes = [os.pipe() for _ in range(3)]
    numbers = [writing for _, writing in pipes]
    script = ('eval "$(berth acquire)"; echo ready; '
              + " ".join(f"exec {number}>&-;" for number in numbers) + " read -r line")
    job = jobs.start("bash", "--norc", "-c", script, pass_fds=numbers, cwd=server.folder)
    ready(job)
    for reading, writing in pipes:
        os.close(writing)
        assert read_to_end(reading) == b""
    keeper = only_keeper(server)
    assert os.readlink(f"/proc/{keeper}/cwd") == "/"
    targets = [os.readlink(f"/proc/{keeper}/fd/{name}") for name in os.listdir(f"/proc/{keeper}/fd")]
    strange = [target for target in targets if not re.match(
        rf"/dev/null$|anon_inode:|pipe:|socket:|{re.escape(str(server.harbour))}", target)]
    assert strange == []
    assert os.getsid(keeper) == keeper
    with open(f"/proc/{keeper}/stat") as file:
        assert int(file.read().rpartition(")")[2].split()[4]) == 0, "it has a terminal"
    job.end()
    eventually_free(server)


def test_the_keeper_ignores_what_a_terminal_sends(server, jobs):
    job = start_shell(jobs, 'eval "$(berth acquire)"')
    ready(job)
    keeper = only_keeper(server)
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(keeper, number)
    status = pathlib.Path(f"/proc/{keeper}/status")
    eventually(lambda: re.search(r"^ShdPnd:\s0+$", status.read_text(), re.MULTILINE), "the signals to be taken")
    assert is_alive(keeper) and state_of(server, 0) == "leased"
    os.kill(keeper, signal.SIGTERM)
    eventually_free(server)
    assert job.runs


def on_terminal(server, *command):
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, server.env)
    return pid, master


def test_ctrl_c_at_the_prompt(server):
    pid, master = on_terminal(server, "bash", "--norc", "-i")
    try:
        os.write(master, b'eval "$(berth acquire)"; touch $HOME/done\n')
        eventually((server.folder / "done").exists, "the lease")
        os.write(master, b"\x03")

        def answered():  # Ctrl-C may take what was typed behind it along
            os.write(master, b"touch $HOME/after\n")
            time.sleep(0.1)
            return (server.folder / "after").exists()
        eventually(answered, "the shell's answer")
        assert state_of(server, 0) == "leased"
    finally:
        os.close(master)  # the terminal goes away, and bash with it
        os.waitpid(pid, 0)
    eventually_free(server)


def terminal_output(server, line):
    """What a bash says on its terminal when it runs the line, and the lease of the line."""
    command = ("script", "--quiet", "--return", "--command", f"bash --norc -c {shlex.quote(line + '; exit')}", "/dev/null")
    result = server.run(*command)
    assert result.returncode == 0, result
    return result.stdout.replace("\r", "")


def test_acquire_on_a_terminal_says_how_to_use_and_release_the_lease(server):
    text = terminal_output(server, "berth acquire --gpu 2,3")
    lease = re.search(r"^export BERTH_LEASE=(\w{8})$", text, re.MULTILINE)[1]
    assert re.search(rf"^berth: GPUs 2,3 are leased to bash \(pid \d+\) until it exits, .*berth release {lease}$", text, re.MULTILINE)
    assert re.search(r'^berth: the shell does not use the lease yet: .*eval "\$\(berth acquire\)"$', text, re.MULTILINE)


@pytest.mark.parametrize("line", ['eval "$(berth acquire)"', "read GPU < <(berth acquire --print ids)"])
def test_acquire_for_a_shell_on_a_terminal_says_which_gpu_it_has(server, line):
    text = terminal_output(server, line)
    assert re.fullmatch(r"berth: GPU \d is leased to bash \(pid \d+\) until it exits, or until: berth release \w{8}\n", text)


def test_a_terminal_that_goes_away_under_a_shell_that_does_not(server):
    marker = server.folder / "hup"
    pid, master = on_terminal(server, "bash", "--norc", "-c", f'trap "touch {marker}" HUP; eval "$(berth acquire)"; '
                              "touch $HOME/done; while :; do read -r -t 1 -u 3 line; done 3<> <(:)")
    try:
        eventually((server.folder / "done").exists, "the lease")
        os.close(master)
        eventually(marker.exists, "the hang-up")
        assert state_of(server, 0) == "leased"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    eventually_free(server)


def test_a_hostile_name_of_a_shell(server, jobs):
    server.use("1x24GiB")
    shell = server.folder / "\x1b[31m\n\u202e"
    shell.symlink_to("/bin/dash")
    job = jobs.start(shell, "-c", 'eval "$(berth acquire)"; echo ready; read -r line')
    ready(job)
    assert len(leases(server)) == 1
    for text in (server.berth("status").stdout, server.berth("run", "--no-wait", "--", "true").stderr):
        assert_fit_for_terminal(text)
        assert "\u202e" not in text
