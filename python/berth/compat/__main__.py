"""python -m berth.compat SCRIPT [ARGS…]: runs a script with the modules of older tools provided by Berth.

This process executes a new Python interpreter for the script (same PID). So the script runs exactly as with
`python SCRIPT ARGS…`: its `__main__`, sys.path and tracebacks are right, also in processes that multiprocessing starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List

from berth.compat import environment

USAGE = """\
usage: python -m berth.compat SCRIPT [ARGS…]
       python -m berth.compat -m MODULE [ARGS…]
       python -m berth.compat -c CODE [ARGS…]

Runs a script as Python does, but with berth's versions of the modules safe_gpu, gpu_lock, gpuselect and grn: the GPUs
that the script takes with these modules are leased. Write Python's own flags before -m berth.compat.
"""
EXIT_USAGE = 64


def print_usage_error(what: str) -> int:
    print(f"berth: compat: {what}; see python -m berth.compat --help", file=sys.stderr)
    return EXIT_USAGE


def interpreter_flags() -> List[str]:
    """The flags that this Python was started with, as multiprocessing passes them to its children, and -u."""
    flags: List[str] = getattr(subprocess, "_args_from_interpreter_flags")()
    return [*flags, "-u"] if getattr(sys.stdout, "write_through", False) else flags


def main() -> int:
    """Executes the script's Python. Returns only if there is nothing to run."""
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if not words:
        return print_usage_error("no script given")
    if words[0].startswith("-") and words[0][:2] not in ("-", "-m", "-c"):
        return print_usage_error(f"{ascii(words[0])} is not expected; write Python's own flags before -m berth.compat")
    if sys.flags.ignore_environment or sys.flags.no_site:
        return print_usage_error("with Python's flags -I, -E and -S the script cannot import berth; omit these flags")
    os.execve(sys.executable, [sys.executable, *interpreter_flags(), *words], environment())


if __name__ == "__main__":
    sys.exit(main())
