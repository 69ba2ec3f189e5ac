"""Measures the decision alone, on a simulated server with many GPUs and a long queue; see simulate.cpp."""

import concurrent.futures
import json
import os
import subprocess

# Policy, and which part of the users say how long their jobs run.
SCENARIOS = (("spread", 0.5), ("pack", 0.5), ("random", 0.5), ("spread", 0), ("spread", 1))
GPUS, JOBS = 1000, 100_000


def simulate(program, *arguments):
    output = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def growth(program, rounds):
    """Milliseconds of decisions with the short queue and with the long one, by turns, for each case."""
    return simulate(program, "growth", "--gpus", GPUS, "--rounds", rounds)


def waits(program, jobs, policy, declared):
    return simulate(program, "waits", "--gpus", GPUS, "--jobs", jobs, "--policy", policy, "--declared", declared)


def all_waits(program, jobs=JOBS):
    """Every scenario. Some minutes at full size, so as many at a time as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda scenario: waits(program, jobs, *scenario), SCENARIOS))


def fact(run):
    """One line about a run, for people."""
    hours = ", ".join(f"{kind} {wait['percentiles_s'][50] / 3600:.1f} h" for kind, wait in run["waits"].items())
    return (f"simulation, {run['gpus']:,} GPUs, {run['jobs']:,} jobs, {run['policy']}, {run['declared']:.0%} declared",
            f"{run['decisions_per_s']:.0f} decisions per second, {run['gpus_used']:.0%} used; median wait: {hours}")
