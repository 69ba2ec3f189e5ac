"""Compares the speed of berth with familiar commands and tools: prints a table, writes build/bench.json.

Most figures are ratios of two times that are measured alternately on the same machine, because absolute
times on a shared machine mean little. Each ratio is measured in several rounds; the table shows the median
of the rounds and their spread. A figure above its limit is marked. The exit code is then 1 only with
--check, because a busy machine can cause it.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import make_history
import packing_bench
import python_bench
import queue_bench
import redis_bench
import serve_bench
import simulation_bench
import untrusted_files_bench

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build" / "bin"
BENCH = ROOT / "build" / "bench"
MEMORY = pathlib.Path("/dev/shm")
PARTS = ("commands", "lease", "redis", "queue", "load", "python", "simulation", "report", "serve", "packing", "planted",
         "micro")


def time_commands(commands, runs, env, warmup=20):
    """Median wall time in seconds of each command, by hyperfine, without a shell."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["hyperfine", "--shell=none", "--style=none", f"--warmup={warmup}",
                        f"--runs={runs}", f"--export-json={file.name}", *commands],
                       env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [result["median"] for result in json.load(file)["results"]]


def compare(name, subject, yardstick, limit, rounds, runs, env):
    """One line of the table: `subject` against `yardstick`, both commands."""
    pairs = [time_commands([subject, yardstick], runs, env) for _ in range(rounds)]
    return figure(name, subject.replace(f"{BIN}/", ""), yardstick.replace(env["FLOCK_FILE"], "FILE"),
                  [1000 * a for a, _ in pairs], [1000 * b for _, b in pairs], limit)


def micro_benchmarks(env):
    """The library's own figures, in microseconds, from Google Benchmark: for orientation, without a yardstick."""
    output = subprocess.run([BENCH / "berth_bench", "--benchmark_format=json",
                             "--benchmark_repetitions=5", "--benchmark_report_aggregates_only=true"],
                            env=env, check=True, capture_output=True, text=True).stdout
    return {entry["run_name"]: {"median_us": entry["real_time"]}
            for entry in json.loads(output)["benchmarks"] if entry["aggregate_name"] == "median"}


def lease_pairs(rounds, env, base, port):
    """Milliseconds of acquire + release in one process, and of BRPOP + LPUSH on that Redis, by turns."""
    with tempfile.TemporaryDirectory(dir=base) as own:
        output = subprocess.run([BENCH / "lease_bench", "pairs", str(rounds), str(port)], check=True,
                                env=queue_bench.env_in_folder(env, pathlib.Path(own)), capture_output=True, text=True).stdout
    pairs = json.loads(output)
    return [pair["berth_us"] / 1000 for pair in pairs], [pair["redis_us"] / 1000 for pair in pairs]


def against_redis(rounds, env, folder):
    """acquire + release in one process against BRPOP + LPUSH on a Redis of its own, by turns.

    Redis keeps nothing on a disk here, so the limit is for a harbour in memory (a tmpfs, as /tmp is on
    many systems). The figure for the file system of /tmp is measured, too."""
    with redis_bench.own_server() as server:
        return [figure(f"acquire + release, in {name}", "in one process", "BRPOP + LPUSH, local Redis",
                       *lease_pairs(rounds, env, base, server.port), 0.5)
                for name, base in (("memory", MEMORY), ("/tmp", folder))]


def redis_figures(options, env):
    """The harbour in Redis: leases, hand-overs that go only through Redis, and the load of many hosts."""
    with redis_bench.own_server() as server:
        shared = {**env, "BERTH_URL": server.tcp_url()}
        results = [figure("acquire + release, harbour in Redis", "in one process", "BRPOP + LPUSH, the same Redis",
                          *lease_pairs(options.rounds, shared, MEMORY, server.port), 4.0)]
    near, far = (redis_bench.handovers(options.rounds, options.handovers // 2, delay, env, MEMORY)
                 for delay in (0, redis_bench.DELAY))
    # A round trip on one machine is so short that the client's own work takes as long as many of them. So the number of
    # round trips is computed from the time that they add with a slower connection.
    counted = [(redis_bench.berth_overhead_us(b) - redis_bench.berth_overhead_us(a)) / (b["ping_us"] - a["ping_us"])
               for a, b in zip(near, far)]
    in_pings = [redis_bench.berth_overhead_us(one) / one["ping_us"] for one in far]
    results += [bound("hand-over through Redis, beyond LPUSH to BRPOP (round trips)", statistics.median(counted), 3.0, counted),
                bound("the same with Redis 1 ms away, as time (PINGs)", statistics.median(in_pings), None, in_pings)]
    facts = [redis_bench.handover_fact(name, rounds) for name, rounds in (("on this host", near), ("1 ms away", far))]
    for hold_ms in (redis_bench.HOLD_MS, 0):
        loads = [redis_bench.load(hosts, hold_ms, options.seconds, env, MEMORY) for hosts in redis_bench.HOSTS]
        facts += [redis_bench.fact(load, hold_ms) for load in loads]
        if hold_ms:
            share = loads[-1].grants / loads[-1].hosts / loads[0].grants
            name = f"grants per host: {loads[0].hosts} host / {loads[-1].hosts} hosts (ratio)"
            results.append(bound(name, 1 / share, 1.5))
    return results, facts


def figure(name, subject, yardstick, subject_ms, yardstick_ms, limit):
    """One line of the table, from times taken by turns."""
    ratios = [a / b for a, b in zip(subject_ms, yardstick_ms)]
    return {"name": name, "subject": subject, "yardstick": yardstick,
            "subject_ms": statistics.median(subject_ms), "yardstick_ms": statistics.median(yardstick_ms),
            "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios),
            "limit": limit}


def queue_figures(options, env, folder):
    """Hand-over with 1, 10, 100 and 1,000 waiters, wake-ups, and what idle waiters cost."""
    berth, job = BIN / "berth", BENCH / "handover_job"
    results, facts = [], []
    medians = {}
    wakes = {}
    for waiting in (1, 10, 100, options.waiters):
        gaps, wakes[waiting] = queue_bench.handover(berth, job, env, folder, waiting, options.handovers)
        medians[waiting] = statistics.median(gaps)
        facts.append((f"hand-over, {waiting} waiting", f"median {medians[waiting] / 1000:.2f} ms, "
                      f"p99 {queue_bench.percentile(gaps, 0.99) / 1000:.2f} ms, "
                      f"{wakes[waiting]:.2f} waiters woken per release"))
    results.append(figure(f"hand-over, {options.waiters} waiting", f"{options.waiters} waiting", "10 waiting",
                          [medians[options.waiters] / 1000], [medians[10] / 1000], 3.0))
    results.append(bound(f"waiters woken per release, {options.waiters} waiting", wakes[options.waiters], 2.0))
    cpu, memory = queue_bench.idle(berth, job, env, folder, options.waiters)
    results.append(bound(f"CPU time of {options.waiters} idle waiters in {queue_bench.IDLE_SECONDS} s (s)", cpu, 0.1))
    results.append(bound("resident memory of a waiter (MiB)", memory, 6.0))
    return results, facts


def bound(name, value, most, spread=()):
    """A figure that is not a ratio of times, with its limit, and the spread of the values behind it."""
    return {"name": name, "value": value, "ratio": value, "limit": most,
            **({"value_low": min(spread), "value_high": max(spread)} if spread else {})}


def load_figures(options, env):
    """Many jobs by many workers: grants per second, and whether grants become slower."""
    output = subprocess.run([BENCH / "lease_bench", "load", "64", str(options.jobs), BIN / "berth", "run", "--",
                             "/bin/true"], env=env, check=True, capture_output=True, text=True,
                            ).stdout
    done = json.loads(output)
    part = len(done) // 10
    first, last = done[part] - done[0], done[-1] - done[-1 - part]
    facts = [(f"{options.jobs} jobs, 8 GPUs, 64 workers", f"{1000 * len(done) / done[-1]:.0f} grants per second")]
    return [figure("time per grant, last tenth of the jobs", "the last tenth of the jobs", "the first tenth", [last / part],
                   [first / part], 1.5)], facts


def simulation_figures(options):
    """Decisions about many GPUs: how many per second, and how much longer they take with a long queue."""
    program = BENCH / "simulate"
    results = []
    for case, (short, long) in simulation_bench.growth(program, options.rounds).items():
        name = f"decision, {long['queued']:,} queued, {simulation_bench.CASES[case]}"
        results.append(figure(name, f"{long['queued']:,} queued", f"{short['queued']:,} queued", long["ms"], short["ms"],
                              10.0))
    if options.full:
        runs = simulation_bench.all_waits(program)
        (ROOT / "build" / "simulation.json").write_text(json.dumps(runs) + "\n")
    else:
        runs = [simulation_bench.waits(program, simulation_bench.JOBS // 10, *simulation_bench.SCENARIOS[0])]
    return results, [simulation_bench.fact(run) for run in runs]


def packing_figures(options, env, folder):
    """A batch of 200 jobs after learning, against a lower bound, and against one job per GPU."""
    own = folder / "packing"
    own.mkdir()
    makespans, failed, bound_s = packing_bench.measure(BIN, queue_bench.env_in_folder(env, own), own, passes=options.passes)
    passes = ", ".join(f"{makespan / bound_s:.2f}" for makespan in makespans)
    facts = [(f"makespan of 200 jobs / lower bound ({bound_s:.0f} s), after 0 to {len(makespans) - 1} earlier runs", passes)]
    return [bound("makespan of 200 jobs / lower bound (ratio)", makespans[-1] / bound_s, 1.15),
            bound("makespan of 200 jobs / with one job per GPU (ratio)", makespans[-1] / makespans[0], 0.5),
            bound("failed jobs, such as out of memory", failed, 0)], facts


def import_cost(rounds, runs, env):
    """Milliseconds that `import berth` adds to the start of Python."""
    pairs = [time_commands([f"{sys.executable} -c 'import berth'", f"{sys.executable} -c pass"], runs,
                           python_bench.with_package(env), warmup=2) for _ in range(rounds)]
    added = [1000 * (a - b) for a, b in pairs]
    return bound("time of 'import berth' (ms)", statistics.median(added), 15.0, added)


def python_against_cpp(rounds, env, folder):
    """berth.acquire() + release() against the same in C++, both in a warm process."""
    results = []
    for name, base in (("memory", MEMORY), ("/tmp", folder)):
        with tempfile.TemporaryDirectory(dir=base) as own:
            pairs = python_bench.lease_rounds(rounds, queue_bench.env_in_folder(env, pathlib.Path(own)))
        results.append(figure(f"acquire + release in Python, in {name}", "in one Python process", "in one C++ process",
                              [ours / 1000 for ours, _ in pairs], [theirs / 1000 for _, theirs in pairs], 2.0))
    return results


def compare_with_peer(peer, rounds, runs):
    """A tool of other authors; without a limit, since it does something else."""
    runs = max(2, runs // peer.jobs)
    pairs = [time_commands([peer.ours, peer.theirs], runs, peer.env, warmup=1) for _ in range(rounds)]
    return figure(peer.name, *peer.about, [1000 * a / peer.jobs for a, _ in pairs],
                  [1000 * b / peer.jobs for _, b in pairs], None)


def python_figures(options, env, folder):
    """The Python package, and other tools with a similar purpose."""
    runs = max(1, options.runs // 20)  # Python starts many times slower than berth
    # More rounds for leases: their time depends on whether the helper process of the driver is still awake.
    results = [import_cost(options.rounds, 2 * runs, env), *python_against_cpp(3 * options.rounds, env, folder)]
    peers, missing = python_bench.peers(env, folder)
    return results + [compare_with_peer(peer, options.rounds, runs) for peer in peers], missing


def report_figures(options, env, folder):
    """`berth report` over a million lines of history; without a yardstick, since no comparable tool exists."""
    harbour = folder / "history"
    harbour.mkdir(mode=0o1777)
    size = make_history.write(harbour / "archive", options.entries)
    command = f"{BIN}/berth report --since 400d"
    times = [time_commands([command], 1, {**env, "BERTH_DIR": str(harbour)}, warmup=1)[0]
             for _ in range(options.rounds)]
    return [bound(f"berth report, {options.entries} entries (s)", statistics.median(times), 2.0, times)], [
        (f"berth report, {options.entries} entries", f"{size / 1e6:.0f} MB of history")]


def serve_figures(options, env):
    """`berth serve`: the load of 20 viewers, the time until a job is shown, and the size of the page."""
    measured = serve_bench.measure(env, MEMORY, options.rounds, 2 * options.seconds)
    shares, shown, loads, cards = (measured[key] for key in ("shares", "shown", "loads", "cards"))
    return [bound(f"berth serve, 8 GPUs, {serve_bench.VIEWERS} viewers (% of a core)", statistics.median(shares), 3.0, shares),
            bound("start of a job until Chromium shows it, slowest (s)", max(shown), 1.0, shown),
            bound("page load in Chromium on this host (ms)", statistics.median(loads), None, loads),
            bound("page load until 8 GPUs are shown (ms)", statistics.median(cards), None, cards),
            bound("size of the page with all files (KB)", measured["bytes"] / 1000, 150.0)]


def untrusted_files_figures(options, env):
    """A decision with 60,000 untrusted files of another user in the harbour, against 6,000."""
    harbours = untrusted_files_bench.HarboursWithUntrustedFiles(env, BIN, MEMORY)
    few, many = untrusted_files_bench.FEW, untrusted_files_bench.MANY
    try:
        times = {count: [1000 * time_commands([harbours.command()], 3, harbours.environments[count], warmup=1)[0]
                         for _ in range(options.rounds)] for count in (many, few)}
    finally:
        harbours.remove()
    return [figure(f"berth run, {many:,} untrusted files in the harbour", f"{many:,} files", f"{few:,} files",
                   times[many], times[few], 12.0)]


def is_exceeded(result):
    return result["limit"] is not None and result["ratio"] > result["limit"]


def print_results(results, facts, micro):
    heading = ("figure", "berth", "yardstick", "ratio", "spread", "limit")
    rows = []
    for r in results:
        limit_text = "" if r["limit"] is None else f"{r['limit']:.2f} {'EXCEEDED' if is_exceeded(r) else 'ok'}"
        if "value" in r:
            spread = f"{r['value_low']:.2f}-{r['value_high']:.2f}" if "value_low" in r else ""
            rows.append((r["name"], f"{r['value']:.3f}", "", "", spread, limit_text))
        else:
            rows.append((r["name"], f"{r['subject_ms']:.2f} ms", f"{r['yardstick_ms']:.2f} ms",
                         f"{r['ratio']:.2f}", f"{r['ratio_low']:.2f}-{r['ratio_high']:.2f}", limit_text))
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    for row in [heading, *rows]:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    print()
    for r in results:
        if "subject" in r:
            print(f"{r['name']}: {r['subject']}  compared with  {r['yardstick']}")
    print()
    for name, text in facts:
        print(f"{name}: {text}")
    if micro:
        print("\nFunctions inside one process, median time:")
    for name, entry in micro.items():
        print(f"  {name:<40} {entry['median_us']:>9.1f} us")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each comparison (default 7)")
    parser.add_argument("--runs", type=int, default=200, help="runs of each command in a round (default 200)")
    parser.add_argument("--waiters", type=int, default=1000, help="waiters in the longest queue (default 1000)")
    parser.add_argument("--handovers", type=int, default=100, help="hand-overs to measure for each queue length (default 100)")
    parser.add_argument("--jobs", type=int, default=10000, help="jobs that 64 workers run on 8 GPUs (default 10000)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds for each number of hosts with one Redis (default 5)")
    parser.add_argument("--full", action="store_true", help="simulate all jobs and policies (takes minutes), and write "
                        "build/simulation.json")
    parser.add_argument("--passes", type=int, default=6, help="runs of the batch; each learns from earlier ones (default 6)")
    parser.add_argument("--entries", type=int, default=1_000_000, help="lines of history (default 1000000)")
    parser.add_argument("--only", choices=PARTS, help="measure only this part of the table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        flock = f"flock {folder}/lock true"
        env = queue_bench.env_in_folder({**os.environ, "BERTH_SIM": "8x80GiB", "FLOCK_FILE": f"{folder}/lock"}, folder)
        results, facts, micro = [], [], {}

        def is_selected(part):
            return options.only in (None, part)

        if is_selected("commands"):
            results += [
                compare("berth status", f"{BIN}/berth status --json", flock, 2.0, options.rounds, options.runs, env),
                compare("berth run", f"{BIN}/berth run -- true", flock, 1.5, options.rounds, options.runs, env)]
        if is_selected("lease"):
            results += against_redis(options.rounds, env, folder)
        if is_selected("redis"):
            redis, more = redis_figures(options, env)
            results += redis
            facts += more
        if is_selected("queue"):
            queue, more = queue_figures(options, {**env, "BERTH_SIM": "1x24GiB"}, folder)
            results += queue
            facts += more
        if is_selected("load"):
            load, more = load_figures(options, env)
            results += load
            facts += more
        if is_selected("python"):
            python, more = python_figures(options, env, folder)
            results += python
            facts += more
        if is_selected("simulation"):
            simulation, more = simulation_figures(options)
            results += simulation
            facts += more
        if is_selected("packing"):
            packing, more = packing_figures(options, env, folder)
            results += packing
            facts += more
        if is_selected("report"):
            report, more = report_figures(options, env, folder)
            results += report
            facts += more
        if is_selected("serve"):
            results += serve_figures(options, env)
        if is_selected("planted"):
            results += untrusted_files_figures(options, env)
        if is_selected("micro"):
            micro = micro_benchmarks(env)
    print_results(results, facts, micro)
    path = ROOT / "build" / "bench.json"
    path.write_text(json.dumps({"ratios": results, "facts": facts, "micro": micro}, indent=2) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)}")
    return 1 if options.check and any(map(is_exceeded, results)) else 0


if __name__ == "__main__":
    sys.exit(main())
