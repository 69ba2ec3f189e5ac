"""The messages that users see, all in one file, messages.txt: each with the command that provokes it.

Read that file to review the language of the program. After a deliberate change of a message:

    BERTH_UPDATE_MESSAGES=1 build/venv/bin/python -m pytest tests/test_messages.py

Other tests assert exit codes and key words, not sentences.
"""

import os
import re
import shlex
import subprocess

import pytest

from conftest import BERTH, ROOT, wait_until

FILE = ROOT / "tests" / "messages.txt"
UPDATE = bool(os.environ.get("BERTH_UPDATE_MESSAGES"))
pytestmark = pytest.mark.release_only


class Case:
    """A section of the file: preparations ("% ..."), and commands ("$ ...") with what they print and their exit code."""

    def __init__(self, title):
        self.title = title
        self.preparations = []
        self.steps = []  # (command, expected lines)

    def text(self):
        lines = [f"== {self.title}"] + [f"% {one}" for one in self.preparations]
        for command, expected in self.steps:
            lines += [f"$ {command}", *expected]
        return "\n".join(lines) + "\n"


def read_cases():
    """What stands before the first section is its introduction."""
    introduction, cases = [], []
    for line in FILE.read_text().splitlines():
        if line.startswith("== "):
            cases.append(Case(line[3:]))
        elif not cases:
            introduction.append(line)
        elif line.startswith("% "):
            cases[-1].preparations.append(line[2:])
        elif line.startswith("$ "):
            cases[-1].steps.append((line[2:], []))
        elif cases[-1].steps:
            cases[-1].steps[-1][1].append(line)
    for case in cases:
        for _, expected in case.steps:
            while expected and not expected[-1].strip():
                expected.pop()
    return introduction, cases


INTRODUCTION, CASES = read_cases()


def leases(server):
    return {lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"]}


def prepare(server, line):
    """Carries out a preparation: sim, hold, wait, use, write or env."""
    word, _, rest = line.partition(" ")
    if word == "sim":
        server.use(ROOT / "sim" / "servers" / rest if rest.endswith(".json") else rest)
    elif word == "hold":
        count = len(leases(server))
        server.start(BERTH, "run", *shlex.split(rest), "--", "sleep", "1h")
        wait_until(lambda: len(leases(server)) > count)
    elif word == "wait":
        count = len(server.status()["queue"])
        server.start(BERTH, "run", *shlex.split(rest), "--", "true")
        wait_until(lambda: len(server.status()["queue"]) > count)
    elif word == "use":
        gpu, _, flags = rest.partition(" ")
        server.start_job(*shlex.split(flags), gpu=gpu)
    elif word == "write":
        name, _, text = rest.partition(" ")
        (server.folder / name).write_text(text.replace("\\n", "\n") + "\n")
    elif word == "env":
        name, _, value = rest.partition("=")
        server.env[name] = value.replace("FOLDER", str(server.folder))
    else:
        raise ValueError(f"unknown preparation: {line}")


def normalize(text, server, clients):
    """Without what differs from host to host and run to run."""
    text = text.replace(str(server.folder), "FOLDER")
    text = re.sub(rf"(?<![\w.-]){re.escape(os.uname().nodename)}(?![\w.-])", "HOST", text)
    text = re.sub(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1-UUID", text)
    for client in clients:
        text = re.sub(rf"\b{client}\b", "ID", text)
    text = re.sub(r"\b(pid|kill) \d+", r"\1 N", text)
    text = re.sub(r"\b(for|waits|after|since) <?\d+(?:\.\d+)?(?:ms|s|m|h|d)(?: \d+(?:s|m|h))?", r"\1 TIME", text)
    text = re.sub(r"\b(in|of) \d+(?:\.\d+)?(?:ms|s)\b", r"\1 TIME", text)
    text = re.sub(r"\d+(?:\.\d+)?(?:ms|s) of GPU time", "TIME of GPU time", text)
    text = re.sub(r"\bby root\b", "by USER", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?", "WHEN", text)
    return text


def client_ids(server):
    """Of all tickets and leases in the harbour."""
    return {path.name.rsplit("-", 1)[-1] for path in server.harbour.glob("*-*") if len(path.name.rsplit("-", 1)[-1]) == 8}


def run_step(command, server):
    """The lines that a command prints, standard error first, and its exit code."""
    clients = client_ids(server)
    result = subprocess.run(["bash", "--norc", "-c", command], env=server.env, cwd=server.folder, timeout=60, text=True,
                            capture_output=True, stdin=subprocess.DEVNULL)
    lines = normalize(result.stderr + result.stdout, server, clients | client_ids(server)).rstrip("\n")
    return (lines.split("\n") if lines else []) + [f"[exit code {result.returncode}]"]


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_each_command_prints_what_the_file_has(server, case):
    for line in case.preparations:
        prepare(server, line)
    for number, (command, expected) in enumerate(case.steps):
        printed = run_step(command, server)
        if UPDATE:
            case.steps[number] = (command, printed)
        else:
            assert printed == expected, f"$ {command}"


def test_titles_are_unique():
    titles = [case.title for case in CASES]
    assert len(titles) == len(set(titles)) > 40


@pytest.fixture(scope="module", autouse=True)
def write_the_file():
    yield
    if UPDATE:
        FILE.write_text("\n".join(INTRODUCTION).rstrip("\n") + "\n\n" + "\n".join(case.text() for case in CASES))
