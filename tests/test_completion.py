"""Completion: what `berth complete` offers, and that bash, zsh and fish complete with it at a prompt."""

import contextlib
import getpass
import re
import shlex
import subprocess

import pytest
from conftest import BERTH
from leasing import jobs  # noqa: F401
from waiting import wait_until

pytestmark = pytest.mark.release_only
USER = getpass.getuser()


def offers(server, *words, env=None):
    """The first line of the answer, and the words; the last of `words` is the one to complete."""
    result = server.berth("complete", "--", "berth", *words, env=env)
    assert (result.returncode, result.stderr) == (0, "")
    kind, *lines = result.stdout.splitlines()
    return kind, [line.split("\t")[0] for line in lines]


@pytest.mark.parametrize("words, expected", [
    (["run", "--policy", ""], ["spread", "pack", "random"]),
    (["run", "--policy=p"], ["--policy=spread", "--policy=pack", "--policy=random"]),
    (["run", "-n", "1", "--gpu", ""], ["0", "1", "2", "3"]),
    (["run", "--gpu", "2,"], ["2,0", "2,1", "2,3"]),
    (["log", "--gpu=0,3,"], ["--gpu=0,3,1", "--gpu=0,3,2"]),
    (["drain", "1", ""], ["0", "1", "2", "3"]),
    (["run", "--mem", ""], ["auto", "all"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
    (["profile", ""], ["list", "show", "set", "forget", "of"]),
    (["--"], ["--help", "--version"]),
    (["compat", ""], ["gpuselect", "gpuget", "GPU.py", "grn-start", "grn-run"]),
    (["run", "--label", ""], []),
    (["no-such-command", ""], []),
], ids=repr)
def test_values(server, words, expected):
    assert offers(server, *words) == ("words", expected)


@pytest.mark.parametrize("words, first", [
    (["run", ""], 2), (["run", "--", ""], 3), (["run", "-n", "2", "--mem", "8GiB", "pyth"], 6), (["run", "python", "--"], 2),
    (["run", "--label", "x", "--", "python", "train.py", "--"], 5), (["batch", "--", "a", "b"], 4), (["compat", "gpuselect", "--"], 2),
    (["profile", "of", "--", "python", "t"], 4),
], ids=repr)
def test_the_command_of_a_line_is_completed_as_a_command(server, words, first):
    assert offers(server, *words) == (f"command {first}", [])


@pytest.mark.parametrize("words", [["batch", ""], ["batch", "-k", "job"], ["serve", "--token-file", ""], ["batch", "--joblog="]],
                         ids=repr)
def test_files(server, words):
    assert offers(server, *words) == ("files", [])


def test_commands_and_flags(server):
    kind, commands = offers(server, "")
    assert kind == "words" and {"run", "status", "config"} <= set(commands) and "complete" not in commands
    assert offers(server, "help", "")[1] == commands
    flags = offers(server, "run", "--time", "2h", "-")[1]
    assert {"--gpu", "--policy", "--help"} <= set(flags)
    assert "--time" not in flags, "it can be given once"
    assert not {"--event-fd", "--job-spec"} & set(flags), "they are not in the help"
    assert "spread" not in flags
    assert "--watch" in offers(server, "status", "")[1], "a command without arguments has only flags"


def test_what_is_in_the_harbour(server, jobs):  # noqa: F811
    jobs.hold("-n", "4", "--job", "train", "--mem", "1GiB", "--time", "1h", command=["sh", "-c", "echo 0; read -r line; sleep 1.1"])
    first = jobs.wait("-n", "4", "--label", "colour \x1b[31m\tred")
    [ticket] = [one["ticket"] for one in server.status()["queue"]]
    [lease] = {lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"]}
    offered = server.berth("complete", "--", "berth", "cancel", "").stdout.splitlines()
    assert offered == ["words", f"{lease}\trunning, sh -c echo 0; read -r line; sleep 1.1",
                       f"{ticket}\twaiting, colour \\x1b[31m\\tred"]
    assert set(offers(server, "run", "--after", "")[1]) == {lease, ticket}
    assert offers(server, "release", "") == ("words", []), "a job's lease is not released"
    assert USER in offers(server, "log", "--user", "")[1]
    first.process.kill()
    jobs.all[0].end()
    assert offers(server, "profile", "show", "") == ("words", ["train on 4 GPUs"])
    assert offers(server, "run", "--job", "") == ("words", ["train"])
    assert offers(server, "cancel", "") == ("words", [])


def test_shells_leases_and_drains(server, jobs):  # noqa: F811
    shell = jobs.start("bash", "-c", f'eval "$({BERTH} acquire)"; echo $BERTH_LEASE; read -r line')
    lease = shell.gpus()
    assert offers(server, "release", "") == ("words", [lease])
    assert offers(server, "undrain", "") == ("words", [])
    server.berth("drain", "2")
    assert offers(server, "undrain", "") == ("words", ["2"])


@pytest.mark.each_harbour
def test_hosts_are_those_of_the_configuration(server):
    config = server.folder / ".config"
    config.mkdir()
    (config / "berth.toml").write_text('hosts = ["gpu07", "gpu08"]\n')
    assert offers(server, "run", "--host", "gpu07,") == ("words", ["gpu07,any", "gpu07,gpu08"])
    for command in ("log", "report"):
        assert offers(server, command, "--host", "", env={"BERTH_HOST": "gpu01"}) == ("words", ["gpu01", "gpu07", "gpu08"])


def test_nothing_is_offered_without_a_harbour_or_driver(server):
    env = {"BERTH_SIM": None, "BERTH_DIR": str(server.folder / "none"), "LD_LIBRARY_PATH": "/nowhere"}
    for words in (["run", "--gpu", ""], ["cancel", ""], ["release", ""], ["log", "--user", ""], ["profile", "show", ""]):
        assert offers(server, *words, env=env) == ("words", [])
    assert not (server.folder / "none").exists()


# ---- In the real shells, at a prompt.

SHELLS = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(berth completion bash)"'),
    "bash with bash-completion": (["bash", "--norc", "-i"],
                                  'source /usr/share/bash-completion/bash_completion; eval "$(berth completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(berth completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "berth completion fish | source"),
}

# What is typed before Tab, and the words that the shell then has.
LINES = [
    ("berth sta", "berth status"),
    ("berth status --js", "berth status --json"),
    ("berth run --polic", "berth run --policy"),
    ("berth run --policy pa", "berth run --policy pack"),
    ("berth run --policy=pa", "berth run --policy=pack"),
    ("berth run --gpu 0,1,2,", "berth run --gpu 0,1,2,3"),
    ("berth run --gpu=0,1,2,", "berth run --gpu=0,1,2,3"),
    ("berth run -- unusual-pro", "berth run -- unusual-program"),
    ("berth run unusual-pro", "berth run unusual-program"),
    ("berth run -n 2 unusual-program pretr", "berth run -n 2 unusual-program pretrain.py"),
    ("berth run --label=x -- unusual-program pretr", "berth run --label=x -- unusual-program pretrain.py"),
    ("berth run -- unusual-program --polic", "berth run -- unusual-program --polic"),
    ("berth run unusual-program p", "berth run unusual-program pretrain.py"),
    ("berth batch swe", "berth batch sweep.txt"),
    ("berth serve --token-file tok", "berth serve --token-file token"),
    ("berth serve --token-file=tok", "berth serve --token-file=token"),
    ("berth completion fi", "berth completion fish"),
    ("berth help stat", "berth help status"),
    ("true; berth help stat", "berth help status"),
    (f"berth log --user {USER[:2]}", f"berth log --user {USER}"),
]


class Prompt:
    """A shell at a prompt, in tmux."""

    def __init__(self, server, command, setup):
        self.env = server.env
        self.tmux = ["tmux", "-S", str(server.folder / "tmux"), "-f", "/dev/null"]
        self.call("new-session", "-d", "-x", "200", "-y", "50", "-c", str(server.folder), shlex.join(command))
        self.enter(f"{setup}; echo rea''dy")
        wait_until(lambda: re.search("^ready", self.screen(), re.MULTILINE), self.screen)

    def call(self, *words):
        return subprocess.run([*self.tmux, *words], env=self.env, capture_output=True, text=True, check=True).stdout

    def screen(self):
        return self.call("capture-pane", "-p", "-S", "-")

    def enter(self, line):
        self.call("send-keys", "-l", line)
        self.call("send-keys", "Enter")

    def completed(self, number, line):
        """The words of the line after Tab, which the shell prints in the place of running them."""
        *before, last = line.split("; ")
        self.call("send-keys", "-l", "".join(f"{one}; " for one in before) + last)
        self.call("send-keys", "Tab")
        self.call("send-keys", "C-a")
        if before:  # the cursor is in front of the first command
            self.call("send-keys", "-l", f"printf '({number})'; ")
            for _ in range(len("".join(f"{one}; " for one in before))):
                self.call("send-keys", "Right")
            self.call("send-keys", "-l", "printf '[%s]' ")
        else:
            self.call("send-keys", "-l", f"printf '({number})'; printf '[%s]' ")
        self.enter("")
        return wait_until(lambda: re.search(rf"\({number}\)((\[.*?\])+)", self.screen()), self.screen)[1]

    def close(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.call("kill-server")


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_at_a_prompt(server, shell):
    for name in ("pretrain.py", "sweep.txt", "token"):
        (server.folder / name).touch()
    programs = server.folder / "bin"
    programs.mkdir()
    (programs / "unusual-program").write_text("#!/bin/sh\n")
    (programs / "unusual-program").chmod(0o755)
    server.env["PATH"] = f"{programs}:{server.env['PATH']}"
    server.berth("run", "--", "true")  # a user with a history
    prompt = Prompt(server, *SHELLS[shell])
    try:
        found = {line: prompt.completed(number, line) for number, (line, _) in enumerate(LINES)}
    finally:
        prompt.close()
    assert found == {line: "".join(f"[{word}]" for word in words.split()) for line, words in LINES}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_word_with_special_characters_is_one_word_at_a_prompt(server, shell):
    """A shell must not run what it offers."""
    assert server.berth("run", "--job", "xyz $(touch ran)", "--", "true").returncode == 0
    prompt = Prompt(server, *SHELLS[shell])
    try:
        assert prompt.completed(0, "berth profile show xy") == "[berth][profile][show][xyz $(touch ran)]"
    finally:
        prompt.close()
    assert not (server.folder / "ran").exists()


def test_zsh_completion_from_fpath(server):
    (server.folder / "_berth").write_text(server.berth("completion", "zsh").stdout)
    script = (f"fpath=({server.folder} $fpath); autoload -U compinit; compinit -u -d {server.folder}/dump; "
              "_describe() { print -l ${(P)2} }; words=(berth st); CURRENT=2; PREFIX=st; _berth")
    result = server.run("zsh", "-f", "-c", script)
    assert re.search(r"^status:\S", result.stdout, re.MULTILINE), result


def test_the_scripts_of_the_shells_run_only_the_berth_of_the_path(server):
    """Tab must not run a file of the current folder, whatever its name is."""
    (server.folder / "berth").write_text("#!/bin/sh\ntouch ran\n")
    (server.folder / "berth").chmod(0o755)
    prompt = Prompt(server, *SHELLS["bash"])
    try:
        prompt.completed(0, "./berth sta")
    finally:
        prompt.close()
    assert not (server.folder / "ran").exists()


