"""Compares the speed of berth with familiar commands and tools: prints a table, writes build/bench.json.

Most figures are ratios of two times that are measured alternately on the same machine, because absolute
times on a shared machine mean little. Each ratio is measured in several rounds; the table shows the median
of the rounds and their spread. A figure above its limit is marked. The exit code is then 1 only with
--check, because a busy machine can cause it.

With --against, each round measures this tree and the other revision, and a second table compares the two. The code here
measures both; only the folder with the programs differs.
"""

import contextlib
import functools
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

import bench_options
import detached_bench
import make_history
import packing_bench
import python_bench
import queue_bench
import redis_bench
import serve_bench
import simulation_bench
import untrusted_files_bench
from bench_figures import Build, Fact, Measurement, Results, Sample, comparison_table, figure_table, is_exceeded, unavailable_lines

ROOT = pathlib.Path(__file__).resolve().parents[1]
MEMORY = pathlib.Path("/dev/shm")
DRIVER_START_MS = 300


class Bench:
    """What all parts share: the options, the builds, a temporary folder, and an environment for each build."""

    def __init__(self, options, builds, folder):
        self.options = options
        self.this_tree = builds[0]
        self.folder = folder
        # Each build has its own harbour and simulated driver: the formats of their files may differ.
        self.environments = {build.label: queue_bench.env_in_folder({**os.environ, "BERTH_SIM": "8x80GiB"}, self.new_folder())
                             for build in builds}

    def env(self, build, **variables):
        return {**self.environments[build.label], **variables}

    def new_folder(self, base=None):
        return pathlib.Path(tempfile.mkdtemp(dir=base or self.folder))

    @contextlib.contextmanager
    def new_harbour(self, build, base, **variables):
        """The environment of a new harbour and a new simulated driver in `base`."""
        with tempfile.TemporaryDirectory(dir=base) as own:
            yield queue_bench.env_in_folder(self.env(build, **variables), pathlib.Path(own))

    def flock(self):
        return command("flock", self.folder / "lock", "true")


def command(*words):
    return shlex.join(map(str, words))


def time_commands(commands, runs, env, warmup=20, prepare=None):
    """Median wall time in milliseconds of each command, by hyperfine, without a shell. `prepare` runs before each run."""
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["hyperfine", "--shell=none", "--style=none", f"--warmup={warmup}",
                        f"--runs={runs}", f"--export-json={file.name}", *([f"--prepare={prepare}"] if prepare else []), *commands],
                       env=env, check=True, capture_output=True)
        return [1000 * result["median"] for result in json.load(file)["results"]]


def commands(bench):
    """Short commands, compared with commands of the system."""
    flock = bench.flock()
    for name, arguments, yardstick, about, limit in (
            ("berth --version", ["--version"], "true", "true", 1.4),
            ("berth status", ["status", "--json"], flock, "flock FILE true", 2.0),
            ("berth run", ["run", "--", "true"], flock, "flock FILE true", 1.35)):
        def measure(build):
            times = time_commands([command(build.berth, *arguments), yardstick], bench.options.runs, bench.env(build))
            return [Sample(name, *times, limit, (command("berth", *arguments), about))]
        yield Measurement(bench.options.rounds, measure)


def driver(bench):
    """A driver that starts slowly, as a real one without persistence mode: how much longer `berth run -- true` takes than the
    shortest possible program that starts a session of the same driver, and how often it starts one."""
    description = bench.folder / "slow_driver.json"
    description.write_text(json.dumps({"gpus": [{"memory": "80GiB", "count": 8}],
                                       "faults": [{"call": "nvmlInit", "delay": f"{DRIVER_START_MS}ms"}]}))
    runs = max(3, bench.options.runs // 20)
    session = bench.this_tree.bench / "driver_session"

    def library(build):
        return build.driver / "libnvidia-ml.so.1"

    def added_time(build):
        env = bench.env(build, BERTH_SIM=str(description))
        ours, shortest = time_commands([command(build.berth, "run", "--", "true"), command(session, library(build))], runs, env,
                                       warmup=1)
        return [Sample(f"berth run, driver start of {DRIVER_START_MS} ms: added time (ms)", ours - shortest, limit=5.0)]

    def sessions(build):
        with bench.new_harbour(build, bench.folder, BERTH_SIM=str(description)) as env:
            for _ in range(runs):
                subprocess.run([build.berth, "run", "--", "true"], env=env, check=True, capture_output=True)
            count = subprocess.run([session, library(build), "count"], env=env, check=True, capture_output=True, text=True).stdout
        return [Sample("driver sessions that a berth run starts", int(count) / runs, limit=1.0)]

    yield Measurement(bench.options.rounds, added_time)
    yield Measurement(1, sessions)


def lease_pair(build, env, server):
    """Milliseconds of acquire + release in one process, and of BRPOP + LPUSH on that Redis, by turns.

    The server runs on the second processor, and the client on the first (see measure_pairs() in lease_bench.cpp)."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        os.sched_setaffinity(server.process.pid, {processors[1]})
    output = subprocess.run([build.bench / "lease_bench", "pairs", "1", str(server.port)], check=True, env=env, capture_output=True,
                            text=True).stdout
    (pair,) = json.loads(output)
    return pair["berth_us"] / 1000, pair["redis_us"] / 1000


def lease(bench):
    """acquire + release in one process against BRPOP + LPUSH on a Redis of its own, by turns.

    Redis keeps nothing on a disk here, so the harbour in memory (a tmpfs, as /tmp is on many systems) is the fair comparison.
    The file system of /tmp has its own limit."""
    with redis_bench.own_server() as server:
        for name, base, limit in (("memory", MEMORY, 0.45), ("/tmp", bench.folder, 0.6)):
            def measure(build):
                with bench.new_harbour(build, base) as env:
                    return [Sample(f"acquire + release, in {name}", *lease_pair(build, env, server), limit,
                                   ("in one process", "BRPOP + LPUSH, local Redis"))]
            yield Measurement(bench.options.rounds, measure)


def redis(bench):
    """The harbour in Redis: leases, hand-overs that go only through Redis, and the load of many hosts."""
    options = bench.options
    with redis_bench.own_server() as server:
        def leases(build):
            with bench.new_harbour(build, MEMORY, BERTH_URL=server.tcp_url()) as env:
                return [Sample("acquire + release, harbour in Redis", *lease_pair(build, env, server), 4.0,
                               ("in one process", "BRPOP + LPUSH, the same Redis"))]
        yield Measurement(options.rounds, leases)

    def handovers(build):
        near, far = (redis_bench.handovers(build, options.rounds, options.handovers // 4 + 1, delay, bench.env(build), MEMORY)
                     for delay in (0, redis_bench.DELAY))
        # A round trip on one machine is so short that the client's own work takes as long as many of them. So the number of
        # round trips is computed from the time that they add with a slower connection.
        overhead = redis_bench.berth_overhead_us
        found = [Sample("hand-over through Redis, beyond LPUSH to BRPOP (round trips)",
                        (overhead(b) - overhead(a)) / (b["ping_us"] - a["ping_us"]), limit=3.0) for a, b in zip(near, far)]
        found += [Sample("the same with Redis 1 ms away, as time (PINGs)", overhead(one) / one["ping_us"]) for one in far]
        return found + [Fact(*redis_bench.handover_fact(name, rounds)) for name, rounds in (("on this host", near),
                                                                                            ("1 ms away", far))]
    yield Measurement(options.slow_rounds, handovers)

    def load_of_hosts(build):
        found = []
        for hold_ms in (redis_bench.HOLD_MS, 0):
            loads = [redis_bench.load(build, hosts, hold_ms, options.seconds, bench.env(build), MEMORY)
                     for hosts in redis_bench.HOSTS]
            found += [Fact(*redis_bench.fact(load, hold_ms)) for load in loads]
            if hold_ms:
                share = loads[-1].grants / loads[-1].hosts / loads[0].grants
                found.append(Sample(f"grants per host: {loads[0].hosts} host / {loads[-1].hosts} hosts (ratio)", 1 / share,
                                    limit=1.5))
        return found
    yield Measurement(options.slow_rounds, load_of_hosts)


def queue(bench):
    """Hand-over with 10 and 1,000 waiters, wake-ups, what idle waiters cost, and a request that need not wait."""
    options = bench.options
    short_queue, longest = bench_options.SHORT_QUEUE, options.waiters

    def job(build):
        return build.bench / "handover_job"

    def handovers(build):
        measured = queue_bench.handovers(build.berth, job(build), bench.env(build, BERTH_SIM="1x24GiB"), bench.folder,
                                         (short_queue, longest), options.handovers)
        found = []
        for name, limit, summary in (("hand-over", 3.0, statistics.median),
                                     ("hand-over p99", 2.5, lambda times: queue_bench.percentile(times, 0.99))):
            short, long = (summary(gaps) / 1000 for gaps, _ in measured.values())
            found.append(Sample(f"{name}, {longest} waiting", long, short, limit, (f"{longest} waiting", f"{short_queue} waiting")))
        _, woken = measured[longest]
        return [*found, Sample(f"waiters woken per release, {longest} waiting", woken, limit=2.0)]
    # Slow, but a single 99th percentile says little.
    yield Measurement(min(3, options.rounds), handovers)

    def idle(build):
        cpu, memory = queue_bench.idle(build.berth, job(build), bench.env(build, BERTH_SIM="1x24GiB"), bench.folder, longest)
        return [Sample(f"CPU time of {longest} idle waiters in {queue_bench.IDLE_SECONDS} s (s)", cpu, limit=0.1),
                Sample("resident memory of a waiter (MiB)", memory, limit=3.0)]
    yield Measurement(1, idle)  # each takes 45 s and more

    with contextlib.ExitStack() as stack:
        @functools.cache
        def harbours(build):
            """The environments of a harbour with many waiting tickets, and of one without."""
            env = bench.env(build, BERTH_SIM="2x24GiB")
            many = stack.enter_context(queue_bench.waiting_for_gpu_0(build.berth, job(build), env, bench.folder, longest))
            return many, stack.enter_context(bench.new_harbour(build, bench.folder, BERTH_SIM="2x24GiB"))

        def no_wait(build):
            run = command(build.berth, "run", "--no-wait", "--gpu", "1", "--", "true")
            (many,), (none,) = (time_commands([run], options.runs // 4 + 1, env, warmup=5) for env in harbours(build))
            return [Sample(f"berth run --no-wait beside {longest} waiting", many, none, 2.0,
                           (f"{longest} tickets wait for another GPU", "an empty queue"))]
        yield Measurement(options.rounds, no_wait)


def detached(bench):
    """`berth run -d` compared with a short job, and what detached jobs cost that wait."""
    def start(build):
        arguments = ["run", "-d", "--", "true"], ["run", "--no-wait", "--", "true"]
        # In memory: how long a disk takes for the folder of a job depends on what else is written to it.
        with tempfile.TemporaryDirectory(dir=MEMORY) as state:
            # The jobs of earlier runs have ended.
            times = time_commands([command(build.berth, *words) for words in arguments], bench.options.runs,
                                  bench.env(build, XDG_STATE_HOME=state), prepare=command(build.berth, "run", "--count", "8", "--", "true"))
        return [Sample("berth run -d", *times, 2.0, tuple(command("berth", *words) for words in arguments))]
    yield Measurement(bench.options.rounds, start)

    def idle(build):
        count = bench.options.waiters
        cpu, memory = detached_bench.idle(build.berth, bench.env(build, BERTH_SIM="1x24GiB"), bench.folder, count)
        return [Sample(f"CPU time of {count} detached jobs that wait, in {queue_bench.IDLE_SECONDS} s (s)", cpu, limit=0.1),
                Sample("resident memory of a detached job that waits (MiB)", memory, limit=3.0)]
    yield Measurement(1, idle)  # each takes a minute and more


def load(bench):
    """Many jobs by many workers: grants per second, and whether grants become slower."""
    def measure(build):
        with bench.new_harbour(build, bench.folder) as env:
            output = subprocess.run([build.bench / "lease_bench", "load", "64", str(bench.options.jobs), build.berth, "run", "--",
                                     "/bin/true"], env=env, check=True, capture_output=True, text=True).stdout
        done = json.loads(output)
        part = len(done) // 10
        first, last = done[part] - done[0], done[-1] - done[-1 - part]
        return [Sample("time per grant, last tenth of the jobs", last / part, first / part, 1.5,
                       ("the last tenth of the jobs", "the first tenth")),
                Fact(f"{bench.options.jobs} jobs, 8 GPUs, 64 workers", f"{1000 * len(done) / done[-1]:.0f} grants per second")]
    yield Measurement(bench.options.slow_rounds, measure)


def python(bench):
    """The Python package: its import, and leases in a warm process against the same in C++."""
    options = bench.options

    def import_time(build):
        ours, bare = time_commands([command(sys.executable, "-c", "import berth"), command(sys.executable, "-c", "pass")],
                                   max(2, options.runs // 10), python_bench.with_package(bench.env(build), build), warmup=2)
        return [Sample("time of 'import berth' (ms)", ours - bare, limit=15.0)]
    yield Measurement(options.rounds, import_time)

    for name, base in (("memory", MEMORY), ("/tmp", bench.folder)):
        with contextlib.ExitStack() as stack:
            @functools.cache
            def workers(build):
                env = stack.enter_context(bench.new_harbour(build, base))
                return stack.enter_context(python_bench.lease_workers(env, build))

            def leases(build):
                ours, theirs = (worker.measure_round() / 1000 for worker in workers(build))
                return [Sample(f"acquire + release in Python, in {name}", ours, theirs, 2.0,
                               ("in one Python process", "in one C++ process"))]
            # More rounds: the time of a lease depends on whether the helper process of the driver is still awake.
            yield Measurement(3 * options.rounds, leases)


def peers(bench):
    """Tools of other authors with a similar purpose."""
    missing = {"GPUGET": "GPUGET is not on PyPI, and needs pycuda, which needs CUDA's headers"}
    for package, (make, limit) in python_bench.PEER_TOOLS.items():
        if not python_bench.is_installed(package):
            missing[package] = "the package could not be installed"
            continue

        @functools.cache
        def peer(build):
            return make(bench.env(build), bench.new_folder(), build)

        def measure(build):
            tool = peer(build)
            # Python starts many times slower than berth.
            times = time_commands([tool.ours, tool.theirs], max(2, bench.options.runs // 20 // tool.jobs), tool.env, warmup=1)
            return [Sample(tool.name, *(time / tool.jobs for time in times), limit, tool.about)]
        yield Measurement(bench.options.rounds, measure)
    yield Measurement(1, lambda build: [Fact(name, f"not measured: {why}") for name, why in missing.items()])


def simulation(bench):
    """Decisions about many GPUs: how many per second, and how much longer they take with a long queue."""
    def measure(build):
        found = []
        for case, (short, long) in simulation_bench.growth(build.bench / "simulate", bench.options.rounds).items():
            name = f"decision, {long['queued']:,} queued, {simulation_bench.CASES[case]}"
            found += [Sample(name, many, few, 10.0, (f"{long['queued']:,} queued", f"{short['queued']:,} queued"))
                      for many, few in zip(long["ms"], short["ms"])]
        return found
    yield Measurement(bench.options.slow_rounds, measure)

    def waits(build):
        program = build.bench / "simulate"
        if build is not bench.this_tree:
            return []  # these are only facts
        if bench.options.full:
            runs = simulation_bench.all_waits(program)
            (ROOT / "build" / "simulation.json").write_text(json.dumps(runs) + "\n")
        else:
            runs = [simulation_bench.waits(program, simulation_bench.JOBS // 10, *simulation_bench.SCENARIOS[0])]
        return [Fact(*simulation_bench.fact(run)) for run in runs]
    yield Measurement(1, waits)


def packing(bench):
    """A batch of 200 jobs after learning, against a lower bound, and against one job per GPU."""
    def measure(build):
        own = bench.new_folder()
        makespans, failed, bound_s = packing_bench.measure(build.bin, queue_bench.env_in_folder(bench.env(build), own), own,
                                                           passes=bench.options.passes)
        return [Sample("makespan of 200 jobs / lower bound (ratio)", makespans[-1] / bound_s, limit=1.15),
                Sample("makespan of 200 jobs / with one job per GPU (ratio)", makespans[-1] / makespans[0], limit=0.5),
                Sample("failed jobs, such as out of memory", failed, limit=0, summary=max),
                Fact(f"makespan of 200 jobs / lower bound ({bound_s:.0f} s), after 0 to {len(makespans) - 1} earlier runs",
                     ", ".join(f"{makespan / bound_s:.2f}" for makespan in makespans))]
    yield Measurement(bench.options.slow_rounds, measure)


def report(bench):
    """`berth report` over a million lines of history; without a yardstick, since no comparable tool exists."""
    harbour = bench.folder / "history"
    harbour.mkdir(mode=0o1777)
    size = make_history.write(harbour / "archive", bench.options.entries)
    name = f"berth report, {bench.options.entries} entries"

    def measure(build):
        (time,) = time_commands([command(build.berth, "report", "--since", "400d")], 1, bench.env(build, BERTH_DIR=str(harbour)),
                                warmup=1)
        return [Sample(f"{name} (s)", time / 1000, limit=2.0), Fact(name, f"{size / 1e6:.0f} MB of history")]
    yield Measurement(bench.options.rounds, measure)


def serve(bench):
    """`berth serve`: the load of 20 viewers, the time until a job is shown, and the size of the page."""
    def measure(build):
        measured = serve_bench.measure(build, bench.env(build), MEMORY, bench.options.rounds, 2 * bench.options.seconds)
        return [*(Sample(f"berth serve, 8 GPUs, {serve_bench.VIEWERS} viewers (% of a core)", share, limit=3.0)
                  for share in measured["shares"]),
                *(Sample("start of a job until Chromium shows it, slowest (s)", time, limit=1.0, summary=max)
                  for time in measured["shown"]),
                *(Sample("page load in Chromium on this host (ms)", time) for time in measured["loads"]),
                *(Sample("page load until 8 GPUs are shown (ms)", time) for time in measured["cards"]),
                Sample("size of the page with all files (KB)", measured["bytes"] / 1000, limit=150.0)]
    yield Measurement(bench.options.slow_rounds, measure)


def untrusted(bench):
    """A decision with 60,000 untrusted files of another user in the harbour, against 6,000."""
    few, many = untrusted_files_bench.FEW, untrusted_files_bench.MANY
    with contextlib.ExitStack() as stack:
        @functools.cache
        def harbours(build):
            made = untrusted_files_bench.HarboursWithUntrustedFiles(bench.env(build), build, MEMORY)
            stack.callback(made.remove)
            return made

        def measure(build):
            both = harbours(build)
            (slow,), (fast,) = (time_commands([both.command()], 3, both.environments[count], warmup=1) for count in (many, few))
            return [Sample(f"berth run, {many:,} untrusted files in the harbour", slow, fast, 12.0,
                           (f"{many:,} files", f"{few:,} files"))]
        yield Measurement(bench.options.rounds, measure)


def micro(bench):
    """The library's own figures, from Google Benchmark: for orientation, without a yardstick."""
    def measure(build):
        output = subprocess.run([build.bench / "berth_bench", "--benchmark_format=json"], env=bench.env(build), check=True,
                                capture_output=True, text=True).stdout
        return [Sample(f"{entry['run_name'].removesuffix('/real_time')} (us)", entry["real_time"])
                for entry in json.loads(output)["benchmarks"]]
    yield Measurement(bench.options.rounds, measure)


# The functions that measure the parts of bench_options.PARTS.
PARTS = {part.__name__: part for part in (commands, driver, lease, redis, queue, detached, load, python, peers, simulation, packing, report,
                                          serve, untrusted, micro)}


def install(build, folder):
    """Copies a build, because users run installed programs, too. One that the linker has just written is slower than its copy
    (docs/testing.md)."""
    for part in ("bin", "bench", "lib", "python"):
        shutil.copytree(build.folder / part, folder / part)
    return Build(build.label, folder)


def print_results(options, results):
    figures = results.figures()
    print("\n".join(figure_table(figures)))
    print()
    for row in figures:
        if "subject" in row:
            print(f"{row['name']}: {row['subject']}  compared with  {row['yardstick']}")
    print()
    for name, text in results.facts.items():
        print(f"{name}: {text}")
    if options.commit:
        comparisons = results.comparisons()
        revision = options.against if len(options.against) <= 16 else options.commit[:12]
        print(f"\nThis tree compared with {revision} (commit {options.commit[:12]}), measured by turns:")
        for line in [*comparison_table(comparisons, revision), *unavailable_lines(comparisons, revision)]:
            print(line)


def as_json(options, results):
    against = {"revision": options.against, "commit": options.commit, "figures": results.comparisons()} if options.commit else None
    return json.dumps({"figures": results.figures(), "facts": results.facts, "against": against}, indent=2) + "\n"


def main():
    options = bench_options.parse(sys.argv[1:])
    builds = [Build("this tree", ROOT / "build")]
    if options.commit:
        builds.append(Build(options.commit, ROOT / "build" / "against" / options.commit / "build"))
    busy = os.getloadavg()[0]
    if busy > os.cpu_count() / 2:
        print(f"./dev bench: other programs use this machine (load average {busy:.1f}), which makes times longer and less equal",
              file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        builds = [install(build, folder / f"installed-{number}") for number, build in enumerate(builds)]
        os.sync()  # while the copies are written to the disk, each new file takes many times as long
        results = Results(builds)
        bench = Bench(options, builds, folder)
        for part in options.parts:
            print(f"== measuring {part}: {bench_options.PARTS[part]}", file=sys.stderr)
            for measurement in PARTS[part](bench):
                results.measure(measurement)
    print_results(options, results)
    path = ROOT / "build" / "bench.json"
    path.write_text(as_json(options, results))
    print(f"\nwritten to {path.relative_to(ROOT)}")
    return 1 if options.check and any(map(is_exceeded, results.figures())) else 0


if __name__ == "__main__":
    sys.exit(main())
