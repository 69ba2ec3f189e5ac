"""mem="auto" in Python: what a block, a function or a command needed, the next reserves."""

import json
import sys

import pytest
from conftest import SIM_JOB, SIM_LIBRARIES
from leasing import eventually, jobs  # noqa: F401
from pythons import first_line, python  # noqa: F401

pytestmark = pytest.mark.release_only

# Takes memory on the first GPU of the lease through the stand-in CUDA driver, in this very process.
ALLOCATE = f"""
import ctypes, os, time
class Memory:
    def __init__(self, gib):
        cuda = self.cuda = ctypes.CDLL({str(SIM_LIBRARIES / "libcuda.so.1")!r})
        device, self.context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert cuda.cuCtxCreate_v2(ctypes.byref(self.context), 0, device) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(gib << 30)) == 0
    def free(self):
        assert self.cuda.cuCtxDestroy_v2(self.context) == 0
    def wait_for_samples(self, count=5):
        lists = self.cuda.berth_sim_process_lists
        lists.restype = ctypes.c_ulonglong
        end = lists(0) + count
        while lists(0) < end: time.sleep(0.01)
def use(gib):
    memory = Memory(gib)
    memory.wait_for_samples()
    memory.free()
def use_in_a_child(gib):
    import subprocess
    subprocess.run([{str(SIM_JOB)!r}, "--quiet", "--mem", f"{{gib}}GiB", "--samples", "5"], check=True)
def reserved():
    return [lease.memory_mib for gpu in berth.status() for lease in gpu.leases]
"""


def profiles(server):
    result = server.berth("profile", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.each_harbour
def test_a_block_teaches_the_next(python):
    assert python.says(ALLOCATE + """
for _ in range(2):
    with berth.gpus(mem="auto", job="train") as lease:
        say(reserved(), lease.measures)
        use_in_a_child(4)
""").splitlines() == ["[None] True", "[4506] False"]
    [profile] = profiles(python.server)
    assert (profile["type"], profile["quantile_mib"], len(profile["runs"])) == ("train", 4096, 2)


@pytest.mark.each_harbour
def test_what_fails_teaches_nothing_and_out_of_memory_raises_the_estimate(python):
    python.says(ALLOCATE + """
for error in (ValueError("no"), RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")):
    try:
        with berth.gpus(mem="auto", job="train"):
            use_in_a_child(4)
            raise error
    except (ValueError, RuntimeError): pass
""")
    [profile] = profiles(python.server)
    assert profile["failures"] == 1
    [run] = profile["runs"]
    assert run["out_of_memory"] and run["peak_mib"] == 6 * 1024


def test_a_script_is_the_same_type_as_for_berth_run(python):
    script = python.script("train.py", ALLOCATE + "\nwith berth.gpus(mem='auto'): use(2)\n")
    python.server.run(sys.executable, script, env=python.env)
    shown = python.server.berth("profile", "of", "--", "python3", script).stdout
    assert "reserves 2.2 GiB" in shown


def test_a_lighter_function_is_measured_instead(python):
    script = python.script("heavy.py", ALLOCATE + """
@berth.job(mem="auto")
def heavy():
    say("heavy", reserved())
@heavy.profile
def light():
    say("light", reserved()); use(3)
heavy(); heavy()
""")
    first = python.server.run(sys.executable, script, env=python.env)
    assert first.stdout.splitlines() == ["light [None]", "heavy [3380]", "heavy [3380]"], first
    again = python.server.run(sys.executable, script, env=python.env)
    assert again.stdout.splitlines()[0].startswith("heavy"), again
    [profile] = profiles(python.server)
    assert profile["type"].endswith(f"{script}: __main__.heavy")


@pytest.mark.each_harbour
def test_others_of_the_type_wait_for_the_first(python):
    first = python.start("lease = berth.acquire(mem='auto', job='train'); say('ready'); stay(); lease.release()")
    assert first_line(first) == "ready"
    other = python.start("""
lease = berth.acquire(mem='auto', job='train', on_wait=lambda waiting: say(waiting.reason)); say('granted'); stay()""")
    assert "'train'" in first_line(other)
    first.end()
    eventually(lambda: "granted" in other.out)


def test_a_command_teaches_by_its_exit_code(python):
    python.says("""
import sys
berth.run([sys.executable, "-c", "pass"], mem="auto", job="good")
berth.run([sys.executable, "-c", "raise SystemExit(3)"], mem="auto", job="bad")
berth.run("echo CUDA out of memory >&2; exit 1", shell=True, mem="auto", capture_output=True, text=True)
""")
    learned = {profile["type"]: (len(profile["runs"]), profile["failures"]) for profile in profiles(python.server)}
    assert learned["good"] == (1, 0) and learned["bad"] == (0, 1) and len(learned) == 3


def test_forks_do_not_disturb_the_measuring(python):
    assert python.says(ALLOCATE + """
import os
with berth.gpus(mem="auto", job="train"):
    for _ in range(5):
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        use(1)
""") == ""
    assert profiles(python.server)[0]["quantile_mib"] == 1024


@pytest.mark.each_harbour
def test_it_is_measured_for_the_history_too(python):
    python.says(ALLOCATE + "\nwith berth.gpus(): use(5)\n")
    [entry] = [json.loads(line) for line in python.server.berth("log", "--json").stdout.splitlines()]
    assert entry["gpus"][0]["peak_mib"] == 5 * 1024 and entry["idle_s"] is not None
