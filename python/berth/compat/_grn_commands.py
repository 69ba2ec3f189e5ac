"""GRN's commands: `grn-start`, which starts no server, and `grn-run`, which runs commands on leased GPUs."""

from __future__ import annotations

import datetime
import os
import shlex
import signal
import subprocess
from types import FrameType
from typing import List, Optional, Sequence

import berth

from . import _command, environment
from ._grn_server_file import publish_server_gpus, read_server_gpus


def _entry_matches(entry: str, gpu: berth.Gpu) -> bool:
    """Whether an entry of CUDA_VISIBLE_DEVICES names this GPU. The number of a MIG card names all of its instances."""
    if entry.isdecimal():
        return str(gpu.index).partition(":")[0] == str(int(entry))
    return len(entry) > len("GPU-") and (gpu.uuid or "").lower().startswith(entry.lower())


def _managed_gpus() -> List[berth.Gpu]:
    """The GPUs that jobs may use: those of CUDA_VISIBLE_DEVICES, interpreted as CUDA does."""
    gpus = [gpu for gpu in berth.status() if gpu.uuid and gpu.state != "lost"]
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return gpus
    chosen: List[berth.Gpu] = []
    for entry in value.split(","):
        found = [gpu for gpu in gpus if _entry_matches(entry.strip(), gpu)]
        if not found:
            break  # an invalid entry ends the list, as in CUDA
        chosen += found
    if not chosen:
        raise berth.Impossible(f"CUDA_VISIBLE_DEVICES={value!r} matches no usable GPU of this host; change or unset "
                               "the variable")
    return [gpu for gpu in gpus if gpu in chosen]


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
        gpus = _managed_gpus()
        restricted = "CUDA_VISIBLE_DEVICES" in os.environ
        with publish_server_gpus([gpu.uuid for gpu in gpus if gpu.uuid] if restricted else None):
            _print_gpus(gpus, restricted)
            signal.sigwait(end_signals)
        return 0

    return _command.run_command(parser.prog, serve)


class _Runner:
    """Runs commands one after another, each on its own GPU, until all have run or a signal stops it."""

    def __init__(self) -> None:
        self._stop_signal = 0  # the signal that stops it; 0: none so far
        self._process: Optional[subprocess.Popen[bytes]] = None

    def run(self, commands: List[List[str]]) -> int:
        """Runs all commands, also after a failure. Returns the exit code of the first failure, or 0."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        failure = 0
        for words in commands:
            code = self._run_one(words)
            if self._stop_signal:
                return 128 + self._stop_signal
            failure = failure or code
        return failure

    def _stop(self, number: int, _: Optional[FrameType]) -> None:
        """Passes the signal on, except SIGINT: the terminal sends Ctrl-C to the command itself."""
        self._stop_signal = number
        if self._process is not None and number != signal.SIGINT:
            self._process.send_signal(number)

    def _run_one(self, words: List[str]) -> int:
        gpus = read_server_gpus()
        choice = ["--count", "1", "--gpu", ",".join(gpus)] if gpus else []
        self._process = subprocess.Popen([berth.program(), "run", *choice, "--", *words], env=environment())
        if self._stop_signal:  # the signal came before the process was started
            self._process.send_signal(self._stop_signal)
        return self._process.wait()


def _split_command(command: str) -> List[str]:
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise berth.UsageError(f"cannot parse the command {command!r}: {problem}") from problem
    if not words:
        raise berth.UsageError("a command is empty; write a command, such as: grn-run \"python job.py\"")
    return words


def run(argv: Optional[Sequence[str]] = None) -> int:
    """grn-run: runs commands in sequence, each on a leased GPU, with Berth's version of the module grn."""
    parser = _command.Parser("grn-run", description="Run commands in sequence, each on its own GPU. If a command "
                             "fails, the others still run, and the exit code is that of the first failure.")
    parser.add_argument("-d", "--debug", action="store_true", help="accepted for compatibility; has no effect")
    parser.add_argument("cmds", nargs="+", metavar="CMD", help="command line in quotes, such as \"python job.py\"")
    flags = parser.parse_args(argv)
    return _command.run_command(parser.prog, lambda: _Runner().run([_split_command(command) for command in flags.cmds]))
