#!/usr/bin/env python3
"""Checks the model of the harbour protocol with spin.

Usage: check.py [CLIENTS GPUS]    (default: 3 2), with every fault; prints the steps that lead to an error, if there is one.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "harbour.pml"


@dataclass
class Outcome:
    finished: bool  # spin looked at every state, or found an error
    error: str  # empty if there is none
    steps: str  # what happened before the error, in the words of the model
    states: int
    report: str


def check(folder, *switches, progress=False, optimize="-O1", collapse=False, memory_mb=4000, timeout=3600):
    """Builds a checker in folder, which should be empty, and runs it. A switch is a macro such as "STOPS=0".

    collapse stores the states in less memory, if there are many millions; it makes the checker slower."""
    folder = Path(folder)
    flags = [f"-D{switch}" for switch in (*switches, *(["CHECK_PROGRESS"] if progress else []))]
    run = {"cwd": folder, "check": True, "capture_output": True, "text": True, "errors": "replace"}
    (folder / MODEL.name).write_text(MODEL.read_text())
    subprocess.run(["spin", "-a", *flags, MODEL.name], **run)
    subprocess.run(["gcc", "-w", optimize, "-DNP" if progress else "-DSAFETY", *(["-DCOLLAPSE"] if collapse else []),
                    "-DNOFAIR", f"-DMEMLIM={memory_mb}", "-o", "pan", "pan.c"], **run)
    result = subprocess.run(["./pan", "-m1000000", *(["-l"] if progress else [])], **{**run, "check": False},
                            timeout=timeout)
    lines = result.stdout.splitlines()
    error = next((line for line in lines if line.startswith("pan:1:")), "")
    states = next((int(line.split()[0]) for line in lines if "states, stored" in line), 0)
    complete = result.returncode == 0 and "errors: 0" in result.stdout and "not completed" not in result.stdout
    truncated = "max search depth too small" in result.stdout
    trail = folder / f"{MODEL.name}.trail"
    steps = subprocess.run(["spin", "-t", *flags, MODEL.name], **run | {"check": False}).stdout if trail.exists() else ""
    told = [line.strip() for line in steps.splitlines() if not line.startswith("\t")]
    return Outcome(bool(error) or (complete and not truncated), error, "\n".join(line for line in told if is_step(line)),
                   states, result.stdout + result.stderr)


def is_step(line):
    return line.startswith(("client ", "the lease", "the files", "a hostile", "rings ", "tick", "spin: text"))


def main():
    if len(sys.argv) not in (1, 3) or not all(word.isdigit() for word in sys.argv[1:]):
        sys.exit(__doc__.split("\n\n")[1])
    clients, gpus = sys.argv[1:] or ("3", "2")
    if clients not in ("2", "3", "4") or gpus not in ("1", "2", "3"):
        sys.exit("check.py: the model has 2 to 4 clients and 1 to 3 GPUs")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcome = check(folder, f"CLIENTS={clients}", f"GPUS={gpus}", optimize="-O2", collapse=True, memory_mb=16000,
                        timeout=None)
    print(f"{clients} clients, {gpus} GPUs: {outcome.states} states in {time.monotonic() - began:.0f} s")
    if not outcome.finished:
        sys.exit(f"{outcome.report}\nnot completed")
    if outcome.error:
        sys.exit(f"{outcome.steps}\n{outcome.error}")
    print("no error")


if __name__ == "__main__":
    main()
