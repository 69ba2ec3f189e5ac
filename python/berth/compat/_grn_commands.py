"""GRN's commands: `grn-start`, which starts no server, and `grn-run`, which runs commands on leased GPUs."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from types import FrameType
from typing import Dict, List, NoReturn, Optional, Sequence

import berth
from berth import _request

from . import _command, environment
from ._grn_run_lease import command_variables, release_run_lease
from ._grn_server_file import allowed_gpus, publish_server_gpus
from ._visible_gpus import visible_gpus
from .grn import label_text

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+grn\b|import[ \t]+(?:[\w. \t]+,)*[ \t]*grn\b)", re.MULTILINE)
_MAX_SCRIPT_BYTES = 1 << 20


def _print_gpus(gpus: List[berth.Gpu], restricted: bool) -> None:
    print("No server is needed: with berth each job leases its own GPU, and waits until a GPU is free.")
    print(f"While grn-start runs, your jobs {'use only these GPUs' if restricted else 'may use any GPU'}.\n")
    for gpu in gpus:
        print(f"  GPU {gpu.index}  {gpu.name or '?'}  {gpu.state}")
    indices = ", ".join(str(gpu.index) for gpu in gpus)
    now = datetime.datetime.now().strftime("%m/%d/%y %H:%M:%S")
    print(f"\n[{now}] INFO     Managing GPUs {{{indices}}}", flush=True)


def start(argv: Optional[Sequence[str]] = None) -> int:
    """grn-start: shows the GPUs and runs until Ctrl-C. Meanwhile CUDA_VISIBLE_DEVICES restricts the user's jobs."""
    parser = _command.Parser("grn-start", description="Show the GPUs and run until Ctrl-C. Jobs do not need a "
                             "server. If CUDA_VISIBLE_DEVICES is set, your jobs use only its GPUs while grn-start runs.")
    parser.add_argument("--debug", action="store_true", help="accepted for compatibility; has no effect")
    parser.parse_args(argv)
    end_signals = {signal.SIGINT, signal.SIGTERM}

    def serve() -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, end_signals)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible_gpus(visible)
        restricted = visible is not None
        with publish_server_gpus([gpu.uuid for gpu in gpus if gpu.uuid] if restricted else None):
            _print_gpus(gpus, restricted)
            signal.sigwait(end_signals)
        return 0

    return _command.run_command(parser.prog, serve)


def _imports_grn(words: List[str]) -> bool:
    """Whether a word of the command is a Python script that imports grn. Its jobs lease their GPUs themselves."""
    for word in words:
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISREG(os.stat(word).st_mode):
                with open(word, "rb") as file:
                    if _IMPORT.search(file.read(_MAX_SCRIPT_BYTES)):
                        return True
    return False


def _lease_gpu(words: List[str]) -> Dict[str, str]:
    """Leases a GPU for this process, and returns the variables of the lease. Ends the process if there is none."""
    gpus = allowed_gpus()
    choice = ["--gpu", ",".join(gpus)] if gpus else []
    acquire = [berth.program(), "acquire", "--compat", "grn-run", "--count", "1", "--mem", "all", *choice,
               "--for", str(os.getpid()), "--label", label_text(_request.command_text(words))]
    acquired = subprocess.run(acquire, stdout=subprocess.PIPE, text=True)
    if acquired.returncode != 0:
        os._exit(acquired.returncode if acquired.returncode > 0 else 128 - acquired.returncode)
    lines = [line.partition(" ")[2].partition("=") for line in acquired.stdout.splitlines()]
    return {name: value for name, _, value in lines}


def _become_command(words: List[str], lease_pipe: int) -> NoReturn:
    """Runs in a child process: leases a GPU and executes the command. Writes the id of the lease to `lease_pipe`, which
    closes when the command starts."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    variables = environment()
    if shutil.which(words[0]) is None:
        words = [berth.program(), "run", "--", *words]  # prints why it cannot be run, before it asks for a GPU
    elif not _imports_grn(words):
        leased = _lease_gpu(words)
        os.write(lease_pipe, leased["BERTH_LEASE"].encode())
        variables.update(command_variables(leased))
    os.execvpe(words[0], words, variables)


def _execute(words: List[str], lease_pipe: int) -> int:
    """Becomes the command. Returns an exit code if that fails."""
    try:
        _become_command(words, lease_pipe)
    except OSError as problem:
        _command.print_message("grn-run", f"{words[0]!r} cannot be run: {problem.strerror}")
        return 126


class _Command:
    """A command of grn-run: a child process that becomes the command once it has a GPU."""

    def __init__(self, words: List[str]) -> None:
        self._lease_pipe, lease_pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 70  # an error in this program
            try:
                code = _command.run_command("grn-run", lambda: _execute(words, lease_pipe))
            finally:
                os._exit(code)
        os.close(lease_pipe)
        self._process = os.pidfd_open(self._pid)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)

    def wait(self) -> int:
        """Waits until the command has ended and its lease is released. Returns the exit code, as a shell has it."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        lease = os.read(self._lease_pipe, 100).decode()
        if lease:  # its keeper releases it, too, but a little later
            release_run_lease(lease)
        return code if code >= 0 else 128 - code


class _Runner:
    """Runs commands at the same time, until all have ended."""

    def __init__(self) -> None:
        self._stop_signal = 0  # the signal that stops it; 0: none so far
        self._commands: List[_Command] = []

    def run(self, commands: List[List[str]]) -> int:
        """Runs all commands. Returns the exit code of the first that failed, or 0."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until all commands are there to get the signal
        self._commands = [_Command(words) for words in commands]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        codes = [command.wait() for command in self._commands]
        return 128 + self._stop_signal if self._stop_signal else next((code for code in codes if code != 0), 0)

    def _stop(self, number: int, _: Optional[FrameType]) -> None:
        """Passes the signal on, except SIGINT: the terminal sends Ctrl-C to the commands itself."""
        self._stop_signal = number
        if number != signal.SIGINT:
            for command in self._commands:
                command.send_signal(number)


def _split_command(command: str) -> List[str]:
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise berth.UsageError(f"cannot parse the command {command!r}: {problem}") from problem
    if not words:
        raise berth.UsageError("a command is empty; write a command, such as: grn-run \"python job.py\"")
    return words


def run(argv: Optional[Sequence[str]] = None) -> int:
    """grn-run: runs commands at the same time, with Berth's version of the module grn."""
    parser = _command.Parser("grn-run", description="Run commands at the same time, each on its own GPU. A command "
                             "that calls functions with @grn.job has no GPU itself: each call leases one. If a command "
                             "fails, the others still run, and the exit code is that of the first failure.")
    parser.add_argument("-d", "--debug", action="store_true", help="accepted for compatibility; has no effect")
    parser.add_argument("cmds", nargs="+", metavar="CMD", help="command line in quotes, such as \"python job.py\"")
    flags = parser.parse_args(argv)
    return _command.run_command(parser.prog, lambda: _Runner().run([_split_command(command) for command in flags.cmds]))
