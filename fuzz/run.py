#!/usr/bin/env python3
"""Runs fuzzers that `./dev` has built: each over its corpus, then with new inputs.

Usage: run.py [--preset PRESET] [--seconds N] [--junit FILE] [NAME]

With --seconds each fuzzer runs for N seconds, two at a time. Without it they run until Ctrl-C or the
first failure: one fuzzer in the foreground, or all in turns of a minute. An input that fails is kept in
build/fuzz/failures. --preset asan runs the fuzzers of that build, which are slower. Without --junit, inputs that reach new code are kept in build/fuzz/inputs/NAME,
where the next run continues.
"""

import argparse
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz/corpus"
KEPT = ROOT / "build/fuzz"  # inputs and failures
FAILURES = KEPT / "failures"
SECONDS_PER_FUZZER = 60  # if all run without a limit
INPUT_TIMEOUT_S = 60  # for one input: parsers are fast, but ./dev test runs fuzzers at the lowest priority
MEMORY_MIB = 1024
MIN_MAX_LENGTH = 4096  # the longest input that is tried, unless the corpus has a longer one
PARALLEL_FUZZERS = 2


def names():
    return sorted(path.name.removesuffix("_fuzz.cpp") for path in (ROOT / "fuzz").glob("*_fuzz.cpp"))


def seeds(name):
    return sorted((CORPUS / name).iterdir())


def program(name, preset):
    return ROOT / "build" / preset / "fuzzers" / f"{name}_fuzz"


def command(name, preset, inputs, seconds):
    """The command line of a fuzzer. New inputs go to the folder `inputs`; 0 seconds: no limit."""
    longest = max([MIN_MAX_LENGTH] + [path.stat().st_size for path in seeds(name)])
    return [
        str(program(name, preset)),
        f"-max_total_time={seconds}",
        f"-max_len={longest}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={FAILURES}/{name}-",
        "-print_final_stats=1",
        str(inputs),
        str(CORPUS / name),
    ]


def describe_failure(name, preset, exit_code, output):
    """What failed in a run, and how to reproduce it; None if the run succeeded."""
    if exit_code != 0:
        kept = re.search(r"Test unit written to (\S+)", output)
        summary = re.search(r"^(SUMMARY: .*|this property does not hold: .*)$", output, re.MULTILINE)
        what = summary.group(1) if summary else f"exit code {exit_code}"
        if not kept:
            return f"{name}: {what}\n{output[-3000:]}"
        file = pathlib.Path(kept.group(1)).relative_to(ROOT)
        return f"{name}: {what}; to reproduce: {program(name, preset).relative_to(ROOT)} {shlex.quote(str(file))}"
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    if not runs or int(runs.group(1)) < len(seeds(name)):
        return f"{name}: the fuzzer did not run its whole corpus\n{output[-3000:]}"
    return None


def fuzz(name, preset, seconds, keep):
    """Runs one fuzzer; returns its name, its failure or None, its run time and the number of inputs tried."""
    FAILURES.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="berth-fuzz-") as scratch:
        inputs = KEPT / "inputs" / name if keep else pathlib.Path(scratch)
        inputs.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command(name, preset, inputs, seconds),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )
    output = done.stdout.decode(errors="replace")
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    problem = describe_failure(name, preset, done.returncode, output)
    return name, problem, time.monotonic() - started, int(runs.group(1)) if runs else 0


def fuzz_all(chosen, preset, seconds, keep):
    """Runs each fuzzer once; returns the results in the order of their names."""
    with ThreadPoolExecutor(PARALLEL_FUZZERS) as pool:
        results = []
        for result in pool.map(lambda name: fuzz(name, preset, seconds, keep), chosen):
            name, problem, lasted, runs = result
            print(problem or f"{name}: {runs} inputs in {lasted:.0f} s", flush=True)
            results.append(result)
    return results


def write_junit(path, results):
    suite = ElementTree.Element("testsuite", name="fuzz", tests=str(len(results)))
    for name, problem, lasted, _ in results:
        case = ElementTree.SubElement(suite, "testcase", classname="fuzz", name=name, time=f"{lasted:.1f}")
        if problem:
            ElementTree.SubElement(case, "failure", message=problem.splitlines()[0])
    ElementTree.ElementTree(suite).write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help="fuzzer to run (default: all)")
    parser.add_argument("--preset", default="fuzz", help="build whose fuzzers run: fuzz (default) or asan")
    parser.add_argument("--seconds", type=int, default=0, metavar="N",
                        help="seconds for each fuzzer (default: until Ctrl-C)")
    parser.add_argument("--junit", metavar="FILE", help="write the results to FILE as JUnit XML")
    given = parser.parse_args()
    chosen = [given.name] if given.name else names()
    if given.seconds == 0 and given.name:
        inputs = KEPT / "inputs" / given.name
        for folder in (inputs, FAILURES):
            folder.mkdir(parents=True, exist_ok=True)
        words = command(given.name, given.preset, inputs, 0)
        os.execv(words[0], words)
    for _ in itertools.count():
        results = fuzz_all(chosen, given.preset, given.seconds or SECONDS_PER_FUZZER, keep=not given.junit)
        if given.junit:
            write_junit(given.junit, results)
        if any(problem for _, problem, _, _ in results):
            return 1
        if given.seconds:
            return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
