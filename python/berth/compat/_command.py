"""What the commands of older tools have in common: the parser, one-line error messages, and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Callable, NoReturn

import berth
from berth import _native, _request

EXIT_USAGE = 64
EXIT_OUTPUT = 74
# The exit codes of the berth program.
_EXIT_CODES = (
    (berth.UsageError, EXIT_USAGE),
    (berth.NoDriver, 69),
    (berth.Impossible, 69),
    (berth.HarbourError, 74),
    (berth.NotGranted, 75),
    (berth.NotYours, 77),
)


def printable_line(text: str) -> str:
    """`text` as one line without control characters, safe to print on a terminal."""
    return _native.printable(_request.clean(text))


def print_message(prog: str, text: str) -> None:
    """Prints a message of Berth, which the original command does not have."""
    print(f"berth: {prog}: {printable_line(text)}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, as the berth program does."""

    def error(self, message: str) -> NoReturn:
        print_message(self.prog, f"{message}; see {self.prog} --help")
        sys.exit(EXIT_USAGE)


def _flush_output(prog: str, code: int) -> int:
    """Flushes stdout. If that fails (the disk is full, for example), the exit code must not be 0."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again when it exits
        print_message(prog, f"the output cannot be written: {problem.strerror}")
        return code or EXIT_OUTPUT
    return code


def run_command(prog: str, body: Callable[[], int]) -> int:
    """Runs a command and returns its exit code. An exception of Berth becomes a one-line message and its exit code."""
    try:
        code = body()
    except berth.Error as error:
        print_message(prog, str(error))
        code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 70)
    except KeyboardInterrupt:
        code = 130
    return _flush_output(prog, code)
