"""What the commands of older tools have in common: their flags, their errors as one line, their exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Callable, NoReturn

import berth
from berth import _native, _request

EXIT_USAGE = 64
EXIT_OUTPUT = 74
# The same numbers as those of the berth program.
_EXIT_CODES = (
    (berth.UsageError, EXIT_USAGE),
    (berth.NoDriver, 69),
    (berth.Impossible, 69),
    (berth.HarbourError, 74),
    (berth.NotGranted, 75),
    (berth.NotYours, 77),
)


def printable_line(text: str) -> str:
    """`text` as one line that a terminal shows and does not obey."""
    return _native.printable(_request.clean(text))


def print_message(prog: str, text: str) -> None:
    """A line of berth's own, which the original command does not print."""
    print(f"berth: {prog}: {printable_line(text)}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as the berth program does."""

    def error(self, message: str) -> NoReturn:
        print_message(self.prog, f"{message}; see {self.prog} --help")
        sys.exit(EXIT_USAGE)


def _flush_output(prog: str, code: int) -> int:
    """Output that did not arrive (a full disk) must not look like success."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python tries once more when it ends
        print_message(prog, f"the output cannot be written: {problem.strerror}")
        return code or EXIT_OUTPUT
    return code


def run_command(prog: str, body: Callable[[], int]) -> int:
    """Runs a command to its exit code; what berth refuses becomes one line and the right code."""
    try:
        code = body()
    except berth.Error as error:
        print_message(prog, str(error))
        code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 70)
    except KeyboardInterrupt:
        code = 130
    return _flush_output(prog, code)
