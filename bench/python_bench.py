"""Prepares the measurements of Python: the import, leases in a warm process, and tools of other authors."""

import contextlib
import pathlib
import shlex
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers"
LEASES = 300  # in each round
GPUS = 8
JOBS = 64  # for tools that run many jobs at once

# As `lease_bench leases`, in Python.
LEASE_BENCH_PY = """
import statistics, sys, time
import berth

def lease_once():
    begin = time.perf_counter_ns()
    berth.acquire().release()
    return (time.perf_counter_ns() - begin) / 1000

lease_once()
for line in sys.stdin:
    print(statistics.median(lease_once() for _ in range(int(sys.argv[1]))), flush=True)
"""

# The command of gpuselect. It also queries why a GPU is throttled, which the simulated driver does not support: a
# stand-in returns "idle" at once.
GPUSELECT = """
import sys
import pynvml
pynvml.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: pynvml.nvmlClocksEventReasonGpuIdle
from gpuselect.nvmlgpuselect import main
sys.exit(main())
"""

# A script for safe-gpu. Its lock has a fixed name in /tmp, where other users could hold it.
SAFE_GPU = """
import sys
from {package} import safe_gpu

class Nothing:
    def __call__(self, device_no): pass
    def release(self, placeholder): pass

safe_gpu.LOCK_FILENAME = sys.argv[1]
safe_gpu.GPUOwner(placeholder_fn=Nothing()).release_gpus()
"""

LIST_GPUS = """
import pynvml
pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    print(index, pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).busId, sep=", ")
"""

# A stand-in for nvidia-smi. It answers the queries of safe-gpu with what the driver reported when the benchmark began.
# It does not call the driver, so safe-gpu waits less than for the real nvidia-smi.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*--query-gpu=*) echo '{gpus}' ;;
*--query-compute-apps=*) ;;
-q) echo 'Attached GPUs : {count}' ;;
*) exit 2 ;;
esac
"""


class Worker:
    """A process that measures the microseconds of a lease for each line of its input."""

    def __init__(self, command, env):
        self.process = subprocess.Popen([*command, str(LEASES)], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.process.communicate()

    def measure_round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


class Peer(NamedTuple):
    """A tool to measure beside berth."""

    name: str
    ours: str
    theirs: str
    about: tuple  # descriptions of the two commands
    env: dict
    jobs: int = 1  # number of jobs that each command runs


def with_package(env, build):
    """The environment in which Python finds the package of a build, and keeps its bytecode, as for a package that pip installed."""
    other_variables = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**other_variables, "PYTHONPATH": str(build.folder / "python")}


def with_driver(env, build):
    """The environment in which programs other than berth find the simulated driver."""
    return {**env, "LD_LIBRARY_PATH": str(build.driver)}


@contextlib.contextmanager
def lease_workers(env, build):
    """Two warm processes that measure acquire + release: in Python, and in C++."""
    python = [sys.executable, "-c", LEASE_BENCH_PY]
    with Worker(python, with_package(env, build)) as ours, Worker([build.bench / "lease_bench", "leases"], env) as theirs:
        yield ours, theirs


def is_installed(package):
    return any(PEERS.glob(f"lib/python3*/site-packages/{package}"))


def write_file(path, text):
    path.write_text(text)
    return path


def command(*words):
    return shlex.join(map(str, words))


def gpuselect(env, folder, build):
    script = write_file(folder / "run_gpuselect.py", GPUSELECT)
    return Peer("one job, compared with gpuselect", command(build.berth, "run", "--", "true"),
                command(PEERS / "bin" / "python", script, "--", "true"),
                ("berth run -- true", "gpuselect -- true, which leases nothing; its query of throttling is simulated"),
                with_driver(env, build))


def nvidia_smi(env, folder, build):
    """A folder with a stand-in for nvidia-smi."""
    gpus = subprocess.run([sys.executable, "-c", LIST_GPUS], env=with_driver(env, build), check=True,
                          capture_output=True, text=True).stdout.strip()
    folder.mkdir()
    write_file(folder / "nvidia-smi", NVIDIA_SMI.format(gpus=gpus, count=len(gpus.splitlines()))).chmod(0o755)
    return folder


def safe_gpu(env, folder, build):
    """Measures a whole script, since a process can claim GPUs with safe-gpu only once."""
    tools = nvidia_smi(env, folder / "tools", build)
    python = PEERS / "bin" / "python"
    lock = folder / "locks" / "safe_gpu"
    ours = write_file(folder / "safe_gpu_ours.py", SAFE_GPU.format(package="berth.compat.safe_gpu"))
    theirs = write_file(folder / "safe_gpu_theirs.py", SAFE_GPU.format(package="safe_gpu"))
    return Peer("one script, compared with safe-gpu", command(python, ours, lock), command(python, theirs, lock),
                ("a script that claims a GPU with berth.compat.safe_gpu",
                 "the same with safe-gpu, and a fake nvidia-smi that replies at once"),
                {**with_package(env, build), "PATH": f"{tools}:{env['PATH']}"})


def simple_gpu_scheduler(env, folder, build):
    jobs = write_file(folder / "jobs", "true\n" * JOBS)
    ours = f"exec xargs -P {GPUS} -I @ {shlex.quote(str(build.berth))} run -- sh -c @ < {shlex.quote(str(jobs))}"
    theirs = (f"exec {shlex.quote(str(PEERS / 'bin' / 'simple_gpu_scheduler'))} --gpus "
              f"{','.join(map(str, range(GPUS)))} < {shlex.quote(str(jobs))}")
    return Peer("time per job of many, compared with simple_gpu_scheduler",
                command("sh", "-c", ours), command("sh", "-c", theirs),
                (f"{JOBS} lines with xargs -P {GPUS} -I @ berth run -- sh -c @",
                 "the same with simple_gpu_scheduler, which checks neither the driver nor other users"), env, JOBS)


# The peers, by the name of their Python package, with the limit of each.
PEER_TOOLS = {"gpuselect": (gpuselect, None), "safe_gpu": (safe_gpu, 1.1), "simple_gpu_scheduler": (simple_gpu_scheduler, 1.0)}
