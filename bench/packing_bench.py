"""Measures how well jobs with learned memory fill the cards: a batch of 200 types on 8 cards of 24 GiB, with real processes.

Each job has a type of its own. In the first pass nothing is known, so each job has a GPU alone: that is the yardstick
"one job per GPU", and berth learns from it. Each further pass knows one run more of each type. The last pass is the
result, against a lower bound that no schedule can reach: all memory in use all the time, or the longest job.
"""

import json
import math
import random
import subprocess
import time

CARDS = 8
CARD_GIB = 24
MEDIAN_GIB = 6
LARGEST_GIB = 22  # with its context, a larger job would fill the card


def make_jobs(count, bound_s, seed):
    """(memory in MiB, seconds): both lognormal, the times scaled so that the lower bound is `bound_s`."""
    chance = random.Random(seed)
    jobs = [(min(MEDIAN_GIB * math.exp(chance.gauss(0, 0.5)), LARGEST_GIB), math.exp(chance.gauss(0, 0.5)))
            for _ in range(count)]
    scale = bound_s / lower_bound(jobs)
    return [(int(memory * 1024), seconds * scale) for memory, seconds in jobs]


def lower_bound(jobs, unit=1):
    """The lower bound in seconds for jobs (memory, seconds); `unit` is the number of memory units in a GiB."""
    area = sum(memory / unit * seconds for memory, seconds in jobs)
    return max(area / (CARDS * CARD_GIB), max(seconds for _, seconds in jobs))


def one_pass(berth, env, folder, number):
    """Runs the batch once: its makespan in seconds, and the number of failed lines."""
    begin = time.monotonic()
    done = subprocess.run([berth, "batch", "--mem", "auto", "--keep-going", "--logs", folder / f"logs{number}",
                           folder / "jobs.txt"], env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    makespan = time.monotonic() - begin
    joblog = (folder / f"logs{number}" / "joblog.jsonl").read_text().splitlines()
    ends = [entry for entry in map(json.loads, joblog) if entry["event"] == "line"]
    failed = sum(not entry["succeeded"] for entry in ends)
    assert done.returncode in (0, 1) and len(ends) > 0, done
    return makespan, failed


def measure(bin_folder, env, folder, count=200, bound_s=15.0, passes=6, seed=5):
    """Makespans and failures by pass, and the lower bound."""
    env = {**env, "BERTH_SIM": f"{CARDS}x{CARD_GIB}GiB", "PATH": f"{bin_folder}:{env['PATH']}"}
    jobs = make_jobs(count, bound_s, seed)
    lines = []
    for number, (memory_mib, seconds) in enumerate(jobs):
        script = folder / f"job{number}.sh"
        script.write_text(f"exec berth-sim-job --quiet --mem {memory_mib}MiB --time {seconds * 1000:.0f}ms\n")
        lines.append(f"sh {script}")
    (folder / "jobs.txt").write_text("\n".join(lines) + "\n")
    results = [one_pass(bin_folder / "berth", env, folder, number) for number in range(passes)]
    return [makespan for makespan, _ in results], sum(failed for _, failed in results), lower_bound(jobs, 1024)
