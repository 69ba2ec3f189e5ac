"""Measures the decision alone, on a simulated server with many GPUs and a long queue; see simulate.cpp."""

import concurrent.futures
import json
import os
import subprocess

# Policy, and the fraction of the users who declare run times.
SCENARIOS = (("spread", 0.5), ("pack", 0.5), ("random", 0.5), ("spread", 0), ("spread", 1))
GPUS, JOBS = 1000, 100_000
# The states of the server for which `simulate growth` measures decisions, and their names in the table.
CASES = {"full": "all GPUs in use", "gaps": "some memory free"}


def simulate(program, *arguments):
    output = subprocess.run([program, *map(str, arguments)], check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def growth(program, rounds):
    """Milliseconds of decisions with a short and with a long queue, by turns, for each state of the server."""
    return simulate(program, "growth", "--gpus", GPUS, "--rounds", rounds)


def waits(program, jobs, policy, declared):
    return simulate(program, "waits", "--gpus", GPUS, "--jobs", jobs, "--policy", policy, "--declared", declared)


def all_waits(program, jobs=JOBS):
    """Runs every scenario. They take some minutes at full size, so they run in parallel, one for each processor."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda scenario: waits(program, jobs, *scenario), SCENARIOS))


def fact(run):
    """One line of the output about a run."""
    hours = ", ".join(f"{kind} {wait['percentiles_s'][50] / 3600:.1f} h" for kind, wait in run["waits"].items())
    name = (f"simulation, {run['gpus']:,} GPUs, {run['jobs']:,} jobs, policy {run['policy']}, "
            f"{run['declared']:.0%} of the users declare run times")
    return name, (f"{run['decisions_per_s']:.0f} decisions per second, {run['gpus_used']:.0%} of the GPUs used; "
                  f"median wait: {hours}")
