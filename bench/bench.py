"""Measures berth against familiar yardsticks, in one run: a table of ratios, and build/bench.json.

Every figure is a ratio of two things measured by turns on the same machine, because absolute times
on a shared machine mean little. Each is taken in several rounds; the table shows the median of the
rounds' ratios and their spread. A ratio above its limit is marked; it makes the exit code 1 only with
--check, since a busy machine is no fault of the code.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build" / "bin"


def time_commands(commands, runs, env):
    """Median wall time in seconds of each command, by hyperfine, without a shell."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["hyperfine", "--shell=none", "--style=none", "--warmup=20", f"--runs={runs}",
                        f"--export-json={file.name}", *commands],
                       env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [result["median"] for result in json.load(file)["results"]]


def compare(name, subject, yardstick, limit, rounds, runs, env):
    """One line of the table: `subject` against `yardstick`, both commands."""
    pairs = [time_commands([subject, yardstick], runs, env) for _ in range(rounds)]
    ratios = [a / b for a, b in pairs]
    return {
        "name": name,
        "subject": subject.replace(f"{BIN}/", ""),
        "yardstick": yardstick.replace(env["FLOCK_FILE"], "FILE"),
        "subject_ms": 1000 * statistics.median(a for a, _ in pairs),
        "yardstick_ms": 1000 * statistics.median(b for _, b in pairs),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "limit": limit,
    }


def micro_benchmarks(env):
    """The library's own figures, in microseconds, from Google Benchmark: for orientation, no ratios."""
    output = subprocess.run([ROOT / "build" / "release" / "bench" / "berth_bench", "--benchmark_format=json",
                             "--benchmark_repetitions=5", "--benchmark_report_aggregates_only=true"],
                            env=env, check=True, capture_output=True, text=True).stdout
    return {entry["run_name"]: {"median_us": entry["real_time"]}
            for entry in json.loads(output)["benchmarks"] if entry["aggregate_name"] == "median"}


def show(results, micro):
    heading = ("figure", "berth", "yardstick", "ratio", "spread", "limit")
    rows = [(r["name"], f"{r['subject_ms']:.2f} ms", f"{r['yardstick_ms']:.2f} ms", f"{r['ratio']:.2f}",
             f"{r['ratio_low']:.2f}-{r['ratio_high']:.2f}",
             f"{r['limit']:.2f} {'ok' if r['ratio'] <= r['limit'] else 'EXCEEDED'}") for r in results]
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    for row in [heading, *rows]:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    for r in results:
        print(f"\n{r['name']}: {r['subject']}  against  {r['yardstick']}")
    print("\nInside one process, median:")
    for name, entry in micro.items():
        print(f"  {name:<40} {entry['median_us']:>9.1f} us")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each comparison is repeated (default 7)")
    parser.add_argument("--runs", type=int, default=200, help="runs of each command in a round (default 200)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "BERTH_SIM": "8x80GiB", "BERTH_SIM_STATE": f"{folder}/sim.state",
               "FLOCK_FILE": f"{folder}/lock"}
        results = [compare("status", f"{BIN}/berth status --json", f"flock {env['FLOCK_FILE']} true", 2.0,
                           options.rounds, options.runs, env)]
        micro = micro_benchmarks(env)
    show(results, micro)
    path = ROOT / "build" / "bench.json"
    path.write_text(json.dumps({"ratios": results, "micro": micro}, indent=2) + "\n")
    print(f"\nWritten to {path.relative_to(ROOT)}")
    return 1 if options.check and any(r["ratio"] > r["limit"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
