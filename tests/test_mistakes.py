"""What users mistype or know from other tools: Berth understands it, or says what they may have meant."""

import json
import os
import pty
import subprocess

import pytest
from conftest import BERTH, SIM_JOB, assert_one_line_error
from leasing import jobs, written_on  # noqa: F401

pytestmark = pytest.mark.release_only


@pytest.mark.parametrize("word, command", [
    ("ls", "status"), ("ps", "status"), ("list", "status"), ("sinfo", "status"), ("kill", "cancel"), ("scancel", "cancel"),
    ("squeue", "queue"), ("sbatch", "run -d"), ("submit", "run -d"), ("settings", "config"), ("version", "--version"), ("sttaus", "status"), ("Status", "status"),
])
def test_commands_of_other_tools(server, word, command):
    assert_one_line_error(server.berth(word), 64, f"did you mean 'berth {command}'?")


@pytest.mark.parametrize("word", ["foo", "st", "xyzzy"])
def test_no_guess_for_other_words(server, word):
    result = server.berth(word)
    assert_one_line_error(result, 64, "berth --help")
    assert "did you mean" not in result.stderr


@pytest.mark.parametrize("command, flag, guess", [
    ("run", "--gpus", "-n (how many) or --gpu (which)?"), ("run", "--memory", "--mem?"), ("run", "--nowait", "--no-wait?"),
    ("run", "--no_wait", "--no-wait?"), ("run", "--Mem", "--mem?"), ("batch", "--parallel", "--jobs?"),
    ("run", "--gpu-mem", "--mem?"), ("run", "--gpus=2", "-n (how many) or --gpu (which)?"), ("status", "--jsno", "--json?"),
])
def test_flags_of_other_tools(server, command, flag, guess):
    assert_one_line_error(server.berth(command, flag, "2", "--", "true"), 64, f"did you mean {guess}")


def test_a_guess_is_a_flag_of_the_command(server):
    """`berth log` has no -n, but it has --gpu."""
    assert_one_line_error(server.berth("log", "--gpus", "2"), 64, "did you mean --gpu?")


@pytest.mark.parametrize("words, guess", [(["-v"], "--version?"), (["status", "-j"], "--json?"), (["run", "-m", "8GiB"], "--mem?"),
                                          (["report", "-u", "ann"], "--user?")],
                         ids=repr)
def test_short_flags_of_other_tools(server, words, guess):
    assert_one_line_error(server.berth(*words), 64, f"did you mean {guess}")


@pytest.mark.parametrize("flag", ["-x", "-Q"])
def test_no_guess_for_a_short_flag(server, flag):
    """Every short flag differs from -I in one letter."""
    assert_one_line_error(server.berth("run", flag, "--", "true"), 64, f"unknown option '{flag}'", "'berth run --help'")


@pytest.mark.parametrize("words, remedy", [
    (["--json", "status"], "berth status --json"), (["-n", "2", "run", "--", "true"], "berth run -n"), (["--jsno", "x"], "berth --help"),
    (["acquire", "2"], "-n 2"), (["acquire", "--", "python", "train.py"], "berth run -- COMMAND"),
    (["config", "set", "mem", "auto"], "~/.config/berth.toml"), (["serve", "--host", "0.0.0.0"], "did you mean --listen?"),
    (["run", "2", "true"], "-n 2"),
], ids=repr)
def test_words_in_the_wrong_place(server, words, remedy):
    result = server.berth(*words)
    if words[0] == "acquire":  # its output is for eval, which fails then
        result.stdout = result.stdout.replace("(exit 64)\n", "")
    assert_one_line_error(result, 127 if words[0] == "run" else 64, remedy)


def test_a_flag_without_its_value(server):
    assert_one_line_error(server.berth("run", "--timeout", "--", "true"), 64, "--timeout needs a value\n")


def test_only_an_error_without_a_remedy_refers_to_the_help(server):
    for words in (["run", "-n", "x"], ["run", "--policy", "best"], ["completion", "tcsh"], ["run", "--no-wait=1"]):
        assert "--help" not in server.berth(*words).stderr, words
    for words in (["run", "--xyzzyx"], ["status", "extra"], ["completion"]):
        assert_one_line_error(server.berth(*words), 64, f"'berth {words[0]} --help'")


@pytest.mark.parametrize("flags, words", [(["--mem", "8GB"], ["--mem 8GB is 7.5 GiB", "write 8GiB"]), (["--min-mem=500mb"], ["477 MiB", "write 500MiB"])],
                         ids=repr)
def test_decimal_sizes_are_explained(server, flags, words):
    """To a user who has typed them on a terminal: the log of a nightly job does not repeat it each day."""
    shown = on_terminal(server, "run", *flags, "--", "true")
    assert all(word in shown for word in words), shown
    assert server.berth("run", *flags, "--", "true").stderr == ""
    assert "if you mean" not in on_terminal(server, "run", "--mem", "8GiB", "--", "true")


def test_the_decimal_size_of_a_default_is_not_explained(server):
    (server.folder / ".config").mkdir()
    (server.folder / ".config" / "berth.toml").write_text('[defaults]\nmem = "8GB"\n')
    assert "if you mean" not in on_terminal(server, "run", "--", "true")


def on_terminal(server, *words):
    """What berth writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BERTH, *words], env=server.env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b"".join(written_on(ours)).decode()
    assert process.wait() == 0, shown
    os.close(ours)
    return shown


@pytest.mark.parametrize("words, code, remedy", [
    (["train.py"], 127, "python train.py"), (["./train.py"], 126, "chmod +x ./train.py"), (["tool"], 127, "./tool"),
    (["python train.py --lr 1"], 127, "without the quotes"), (["CUDA_VISIBLE_DEVICES=0", "python", "x"], 127, "env NAME=VALUE"), (["/tmp"], 126, "Is a directory"), ([""], 127, "empty"),
    (["--gpu", "0", "1", "--", "true"], 127, "--gpu 0,1"), (["no-such-program"], 127, "PATH"),
], ids=repr)
def test_commands_that_cannot_be_found(server, words, code, remedy):
    for name in ("train.py", "tool"):
        (server.folder / name).write_text("print(1)\n")
    words = words if words[0].startswith("--") else ["--", *words]
    assert_one_line_error(server.berth("run", *words, cwd=server.folder), code, remedy)


def test_a_harbour_that_is_a_file(server):
    """berth did not make it, so no message advises to remove it."""
    result = server.berth("run", "--", "true", env={"BERTH_DIR": "/etc/passwd"})
    assert_one_line_error(result, 74, "'/etc/passwd' is not a directory", "BERTH_DIR")
    assert "remove" not in result.stderr and "moves" not in result.stderr


def gpus(server, *flags):
    result = server.berth("run", *flags, "--", "sh", "-c", 'echo "$BERTH_GPUS"')
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()


def test_ranges_of_gpus_and_all_of_them(server):
    server.use("6x24GiB")
    assert gpus(server, "--gpu", "1-3,5") == "1,2,3,5"
    assert gpus(server, "--gpu", "all") == "0,1,2,3,4,5"
    assert gpus(server, "--gpu", "all", "-n", "1", "--policy", "spread") == "0"
    assert gpus(server, "--gpu", "2-2") == "2"
    assert server.berth("log", "--gpu", "4-5", "--json").stdout.count("\n") == 2
    assert server.berth("log", "--gpu", "all", "--json").stdout.count("\n") == 4


def test_an_id_for_the_history_is_meant_for_the_output(server):
    assert_one_line_error(server.berth("log", "k3f9a2mx"), 64, "k3f9a2mx", "berth logs ID")


@pytest.mark.parametrize("gpu", ["3-1", "0-", "-3", "0-99999", "1-2-3", "0,all", "0-5"])
def test_wrong_ranges(server, gpu):
    server.use("4x24GiB")
    result = server.berth("run", f"--gpu={gpu}", "--", "true")
    assert_one_line_error(result, 69 if gpu == "0-5" else 64)


def test_all_gpus_inside_a_lease_are_those_of_the_lease(server):
    server.use("4x24GiB")
    inner = 'berth run --gpu all -- sh -c \'echo "$BERTH_GPUS"\''
    result = server.berth("run", "--gpu", "1,3", "--", "sh", "-c", inner)
    assert (result.returncode, result.stdout) == (0, "1,3\n"), result.stderr


def test_drains_of_ranges_and_their_names(server):
    server.use("4x24GiB")
    assert server.berth("drain", "1-2").returncode == 0
    states = [one["state"] for one in server.status()["gpus"]]
    assert states == ["free", "drained", "drained", "free"]
    assert server.berth("undrain", "--all").stdout == "GPU 1 is in service again\nGPU 2 is in service again\n"


@pytest.mark.parametrize("time, seconds", [("1h30m", 5400), ("1:30:00", 5400), ("1w", 604800), ("2 hours", 7200), ("1-0:00:00", 86400)])
def test_durations_as_users_write_them(server, jobs, time, seconds):  # noqa: F811
    jobs.hold("--time", time)
    [record] = server.harbour.glob("lease-*")
    assert json.loads(record.read_text())["request"]["time_ms"] == seconds * 1000


@pytest.mark.parametrize("since", ["today", "yesterday", "1w", "1h30m"])
def test_times_of_the_history(server, since):
    server.berth("run", "--", "true")
    assert server.berth("log", "--since", since, "--json").stdout.count("\n") == 1


@pytest.mark.parametrize("size", ["8B", "8192", "8KiB", "1000kB", "63MiB"])
def test_a_reservation_of_next_to_nothing_is_refused(server, size):
    assert_one_line_error(server.berth("run", "--mem", size, "--", "true"), 64, "8GiB")


@pytest.mark.parametrize("name, content, command", [
    ("train.py", "import os\n", "python train.py"), ("tool", "#!/usr/bin/env python3\nprint(1)\n", "./tool"),
    ("tool", "#!/usr/bin/env -S A=1 python3 -u\nprint(1)\n", "./tool"), ("data", "#!/usr/bin/perl -w\n", "perl data"),
    ("job", "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n", "bash job"), ("binary", "\x7fELF\x02", "binary"),
])
def test_a_program_is_not_a_list_of_commands(server, name, content, command):
    (server.folder / name).write_text(content)
    (server.folder / name).chmod(0o755 if name == "tool" else 0o644)
    result = server.berth("batch", name, cwd=server.folder)
    assert_one_line_error(result, 64, f"berth run -- {command} ")
    assert not list(server.folder.glob("*.logs"))


@pytest.mark.parametrize("line", ["#!/bin/sh", "#!/bin/bash -e", "#! /usr/bin/env bash", "#!/usr/bin/env -S A=1 bash -eu", "#!zsh\r", "# jobs"])
def test_a_list_of_commands_may_begin_as_a_shell_script(server, line):
    (server.folder / "jobs").write_text(f"{line}\n{SIM_JOB} --quiet --time 0s\n")
    assert server.berth("batch", "jobs", cwd=server.folder).returncode == 0


def test_the_address_of_serve_may_have_a_port(server):
    unit = server.berth("serve", "--print-unit", "--listen", "127.0.0.1:8080").stdout
    assert "8080" in unit
    assert "8081" in server.berth("serve", "--print-unit", "--listen", "[::1]:8081").stdout
    for wrong in ("127.0.0.1:http", "127.0.0.1:99999", "localhost:8080", ":8080"):
        assert_one_line_error(server.berth("serve", "--print-unit", "--listen", wrong), 64, "--listen")
