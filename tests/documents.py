"""Runs the console examples of a document: each command must print what the document shows.

A line that begins with `$ ` is a command, `second$ ` is a command in a second shell, and `> ` continues a command. All
other lines are output. A block that begins with output continues the last command of the second shell, which was
waiting. A command that ends with `&` runs in the background; its output is awaited all the same.
"""

import dataclasses
import getpass
import os
import re
import subprocess
import threading

from waiting import LIMIT, wait_until

PROMPT = re.compile(r"(second)?\$ (.*)")
END_OF_STEP = "--end-of-step--"


@dataclasses.dataclass
class Step:
    shell: str
    command: str
    expected: list


def console_blocks(text):
    """The console blocks of a document, each as a list of steps. A leading step may have no command: see above."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        steps = []
        for line in block.splitlines():
            prompt = PROMPT.fullmatch(line)
            if prompt:
                steps.append(Step(prompt[1] or "first", prompt[2], []))
            elif (line + " ").startswith("> ") and steps and not steps[-1].expected:
                steps[-1].command += "\n" + line[2:]
            else:
                if not steps:
                    steps.append(Step("second", "", []))
                steps[-1].expected.append(line)
        yield steps


def general(text):
    """The text without what differs from host to host and from run to run: names, PIDs, ids, times, alignment."""
    text = re.sub(r"^.*\bKilled\b.*\n?", "", text, flags=re.MULTILINE)  # what the shell says about its jobs
    text = re.sub(r"^\[\d+\][-+]? +(Terminated|Exit|Done).*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"GPU-[0-9a-f-]{36}", "UUID", text)
    text = re.sub(r"^\S+ - (?=.*\d GPUs?: )", "HOST - ", text, flags=re.MULTILINE)
    text = re.sub(rf"\*?\b(ann|bob|dan|eve|{re.escape(getpass.getuser())})\b(?: \+\d+)?", "USER", text)
    text = re.sub(r"\bpid \d+", "pid N", text)
    text = re.sub(r"^( +!? *)\d+(  USER )", r"\1PID\2", text, flags=re.MULTILINE)
    text = re.sub(r"\b(lease|\d\.) [a-z0-9]{8}\b", r"\1 ID", text)
    text = re.sub(r"( GiB  )[a-z0-9]{8}$", r"\1ID", text, flags=re.MULTILINE)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    text = re.sub(r"<?\b\d+(\.\d+)?(ms|s|m|h)\b( \d+(s|m)\b)?", "TIME", text)
    # Leases of one GPU are in the order of their ids.
    text = re.sub(r"USER \(\w+\)(?:, USER \(\w+\))+", lambda match: ", ".join(sorted(match[0].split(", "))), text)
    return re.sub(r" +", " ", text).strip()


class Shell:
    """A bash that runs one command after the other, with nothing on stdin."""

    def __init__(self, env, folder):
        script, self.writer = os.pipe()
        os.set_inheritable(script, True)
        self.process = subprocess.Popen(["bash", "--norc", f"/dev/fd/{script}"], env=env, cwd=folder, pass_fds=[script],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)
        os.close(script)
        self.output = []  # of the step that runs
        self.sent = self.ended = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self._write("set -m")

    def _write(self, line):
        os.write(self.writer, (line + "\n").encode())

    def _read(self):
        for line in self.process.stdout:
            if line.strip() == END_OF_STEP:
                self.ended += 1
            else:
                self.output.append(line)

    def idle(self):
        return self.ended == self.sent

    def send(self, command):
        self.output = []
        self.sent += 1
        self._write(command)
        if command.startswith("kill"):  # a person who types the next command is slower than the kernel
            self._write("wait; while kill -0 -- -$! 2>/dev/null; do sleep 0.01; done")
        self._write(f"code=$?; echo {END_OF_STEP}; (exit $code)")  # the next command may use $?

    def close(self):
        os.close(self.writer)
        self.process.kill()
        self.process.wait()


def same(step, output):
    shown, printed = general("\n".join(step.expected)), general("".join(output))
    if re.search(r"berth (batch|status)", step.command):  # jobs end, and leases of one GPU are listed, in any order
        return sorted(shown.splitlines()) == sorted(printed.splitlines())
    return shown == printed


def run_sessions(steps, env, folder):
    """Runs the steps, and asserts that each prints what it should."""
    shells = {}
    running = {}
    try:
        for step in steps:
            if step.shell not in shells:
                shells[step.shell] = Shell(env, folder)
            shell = shells[step.shell]
            if step.command:
                if step.shell in running:
                    _await_end(shell, running[step.shell])
                shell.send(step.command)
                running[step.shell] = step
            else:
                running[step.shell].expected += step.expected
            current = running[step.shell]
            wait_until(lambda: same(current, shell.output), lambda: _difference(current, shell.output), seconds=LIMIT)
        for name, shell in shells.items():
            _await_end(shell, running[name])
    finally:
        for shell in shells.values():
            shell.close()


def _await_end(shell, step):
    wait_until(shell.idle, f"'{step.command}' does not end", seconds=LIMIT)
    assert same(step, shell.output), _difference(step, shell.output)


def _difference(step, output):
    return f"{step.command}\n--- shown ---\n{general(chr(10).join(step.expected))}\n--- printed ---\n{general(''.join(output))}"
