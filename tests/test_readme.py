"""Every command in README.md is run, and what it prints is what README.md shows."""

import os
import re
import subprocess

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text()
pytestmark = pytest.mark.release_only


def console_blocks():
    """The examples, each as a list of (command, expected lines)."""
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        steps = []
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
        yield steps


def general(text):
    """Without what differs from host to host and run to run: names, PIDs, UUIDs, alignment."""
    text = re.sub(r"GPU-[0-9a-f-]{36}", "UUID", text)
    text = re.sub(r"^\S+ - simulated", "HOST - simulated", text, flags=re.MULTILINE)
    text = re.sub(r"\bpid \d+", "pid N", text)
    text = re.sub(r"^ +! +\d+  \S+ +", "     ! PID USER ", text, flags=re.MULTILINE)
    return text.strip()


def run_as_one_session(steps, env):
    """What each command of a session prints. A job in the background is given time to say its line."""
    script = ["set -m"]
    for command, expected in steps:
        if command.endswith("&"):
            # Its line comes when it comes: wait for it in a file.
            script += [f"{command[:-1].rstrip()} > said & last=$!",
                       "while ! [ -s said ]; do :; done; cat said"]
        else:
            script.append(command.replace("$!", "$last"))
        script.append("echo --end-of-step--")
    result = subprocess.run(["bash", "--norc", "-c", "\n".join(script)], env=env, cwd=env["TREE"], timeout=120,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert result.returncode == 0, result
    return result.stdout.split("--end-of-step--\n")[:-1]


def test_the_example_prints_what_readme_shows(server):
    (server.folder / "build").symlink_to(ROOT / "build")
    env = {**server.env, "TREE": str(server.folder), "LANG": "C.UTF-8"}
    [session] = [steps for steps in console_blocks() if len(steps) > 1]
    printed = run_as_one_session(session, env)
    for (command, expected), output in zip(session, printed, strict=True):
        assert general(output) == general("\n".join(expected)), command


def test_dev_run_shows_a_simulated_server_and_says_so(server):
    env = {**os.environ, "LANG": "C.UTF-8", "BERTH_SIM_STATE": server.env["BERTH_SIM_STATE"]}
    env.pop("BERTH_SIM", None)
    result = subprocess.run(["./dev", "run"], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=600)
    assert result.returncode == 0, result
    assert "no NVIDIA driver" in result.stdout and "simulated server" in result.stdout
    assert "5 GPUs: 2 free, 2 stranger, 1 drained" in result.stdout


def test_every_command_of_the_tables_works(server):
    commands = re.findall(r"^\| `(berth [^`]+)`", README, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        watching = "--watch" in command  # goes on until it is stopped: timeout's 124
        result = server.run("bash", "--norc", "-c", ("timeout 1 " if watching else "") + command.replace("COMMAND", "status"))
        assert (result.returncode, result.stderr) == (124 if watching else 0, ""), command
        assert result.stdout


def test_every_link_leads_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
