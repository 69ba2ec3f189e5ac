"""GRN on berth: what its document shows, with a stand-in for torch, and what it could not promise."""

import json
import os
import re
import signal

import pytest
from conftest import assert_one_line_error
from leasing import eventually, jobs, state_of  # noqa: F401
from compat_tools import PYTHON, compat, good, python_in_path, script, tools  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

# Stands for torch: notes who has called it, on which GPU, and whether that GPU is leased.
TORCH = """\
import json, os, subprocess, sys

def randn(count, device):
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    status = json.loads(subprocess.run(["berth", "status", "--json"], stdout=subprocess.PIPE).stdout)
    [state] = [one["state"] for one in status["gpus"] if str(one["index"]) == gpu]
    note = {"by": sys._getframe(1).f_code.co_name, "gpu": gpu, "state": state, "args": (count, device)}
    with open(os.environ["TORCH_NOTES"], "a") as file:
        file.write(json.dumps(note) + "\\n")
"""

JOB = """\
import grn

@grn.job()
def job():
    import torch
    x = torch.randn(1000, device='cuda:0')

if __name__ == '__main__':
    job()
"""

LONG_JOB = """\
import grn

@grn.job()
def long_job(sleep: int):
    import torch
    import time
    x = torch.randn(1000, device='cuda:0')
    time.sleep(sleep)

@long_job.profile
def short_job(*args):
    import torch
    import time
    x = torch.randn(1000, device='cuda:0')

if __name__ == '__main__':
    # short_job will run first to gather the resource profile.
    # Then long_job will run automatically.
    # The arguments passed to long_job here will also be passed to short_job.
    long_job(10)
"""

# Runs a script whose sleep is a line of output, and no sleep.
AWAKE = "import runpy, sys, time; time.sleep = lambda seconds: print('slept', seconds); " \
        "runpy.run_path(sys.argv[1], run_name='__main__')"


@pytest.fixture
def grn(tools):
    """A server with torch, and the document's scripts in server.folder / "scripts"."""
    (tools.folder / "modules" / "torch.py").write_text(TORCH)
    tools.env["TORCH_NOTES"] = str(tools.folder / "notes")
    script(tools, "job.py", JOB)
    script(tools, "long_job.py", LONG_JOB)
    return tools


def notes(server):
    path = server.folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def all_free(server):
    return all(one["state"] == "free" for one in server.status()["gpus"])


def code(server, text, **options):
    """Runs a script that begins with the imports that all of these need."""
    return compat(server, script(server, "code.py", f"import grn, os, sys, berth\n{text}"), **options)


def in_scripts(server):
    return {"cwd": server.folder / "scripts"}


# The document, as it is written.

def test_a_job(grn):
    assert good(compat(grn, "job.py", **in_scripts(grn))) == ""
    assert notes(grn) == [{"by": "job", "gpu": "0", "state": "leased", "args": [1000, "cuda:0"]}]
    assert all_free(grn)


def test_a_job_with_a_profile(grn):
    assert good(compat(grn, "-c", AWAKE, "long_job.py", **in_scripts(grn))) == "slept 10\n"
    assert [(note["by"], note["state"]) for note in notes(grn)] == [("short_job", "leased"), ("long_job", "leased")]
    assert all_free(grn)


@pytest.mark.parametrize("commands", [["python job.py"], ["python job.py", "python job.py"]])
def test_run(grn, commands):
    """The second of two commands may have to wait until the first, which is measured, has ended."""
    result = grn.run("grn-run", *commands, **in_scripts(grn))
    assert (result.returncode, result.stdout) == (0, ""), result
    said = result.stderr.splitlines()
    assert len(commands) > 1 or not said, said
    assert all(line.startswith(("berth: waiting, ", "berth: granted ")) for line in said), said
    assert [(note["by"], note["state"]) for note in notes(grn)] == [("job", "leased")] * len(commands)
    assert all_free(grn)


def start_server(jobs, **options):
    job = jobs.start("grn-start", **options)

    def said():
        assert job.runs, (job.process.returncode, job.err)
        return "Managing GPUs" in job.out and job.out.endswith("\n")
    eventually(said, "the start of grn-start")
    return job


@pytest.mark.each_harbour
def test_start(grn, jobs):
    server = start_server(jobs)
    assert re.search(r"^\[\d\d/\d\d/\d\d \d\d:\d\d:\d\d\] INFO +Managing GPUs \{0, 1, 2, 3\}$", server.out, re.M)
    assert "server" in server.out
    assert len(re.findall(r"^  GPU \d  Simulated 24 GiB GPU  free$", server.out, re.M)) == 4
    assert good(compat(grn, "job.py", **in_scripts(grn))) == ""
    assert [note["state"] for note in notes(grn)] == ["leased"]
    assert server.runs
    server.process.send_signal(signal.SIGINT)
    assert (server.process.wait(LIMIT), server.err) == (0, "")


def test_start_with_some_gpus_restricts_the_jobs(grn, jobs):
    """In another terminal, without CUDA_VISIBLE_DEVICES."""
    server = start_server(jobs, env={"CUDA_VISIBLE_DEVICES": "2,1"})
    assert "Managing GPUs {1, 2}\n" in server.out
    holder = jobs.hold("--gpu", "1")
    for _ in range(2):
        good(compat(grn, "job.py", **in_scripts(grn)))
    good(grn.run("grn-run", "python job.py", **in_scripts(grn)))
    assert [note["gpu"] for note in notes(grn)] == ["2"] * 3
    other = jobs.hold("--gpu", "2")
    waiting = jobs.start(PYTHON, "-m", "berth.compat", "job.py", **in_scripts(grn))
    eventually(lambda: len(grn.status()["queue"]) == 1, "a job that waits, though GPUs 0 and 3 are free")
    holder.end()
    assert waiting.process.wait(LIMIT) == 0
    assert notes(grn)[-1]["gpu"] == "1"
    # Without it, or when it was killed, nothing is restricted.
    server.process.kill()
    server.process.wait()
    busy = jobs.hold("--gpu", "0,1")
    good(compat(grn, "job.py", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "3"
    assert other.runs and busy.runs


def test_inside_a_lease_the_lease_counts(grn, jobs):
    """And not what grn-start was told, which may be other GPUs."""
    start_server(jobs, env={"CUDA_VISIBLE_DEVICES": "0,1"})
    good(grn.berth("run", "--gpu", "3", "--", PYTHON, "-m", "berth.compat", "job.py", **in_scripts(grn)))
    good(grn.berth("run", "--gpu", "3", "--", "grn-run", "python job.py", **in_scripts(grn)))
    assert [note["gpu"] for note in notes(grn)] == ["3", "3"]


# Which GPUs.

def test_start_and_the_callers_variable_with_no_gpu_in_common(grn, jobs):
    start_server(jobs, env={"CUDA_VISIBLE_DEVICES": "2,3"})
    variable = {"CUDA_VISIBLE_DEVICES": "0"}
    result = compat(grn, "job.py", env=variable, **in_scripts(grn))
    [said] = [line for line in result.stderr.splitlines() if line.startswith("berth.Impossible")]
    assert "CUDA_VISIBLE_DEVICES" in said and "grn-start" in said and "2, 3" in said
    assert_one_line_error(grn.run("grn-run", "true", env=variable), 69, "grn-start")


@pytest.mark.parametrize("value, shown", [("0,1", "{0, 1}"), ("3", "{3}"), ("1, 0", "{0, 1}"),
                                          ("0,2,-1,1", "{0, 2}"), ("00", "{0}")])
def test_start_reads_the_variable_as_cuda_does(grn, jobs, value, shown):
    server = start_server(jobs, env={"CUDA_VISIBLE_DEVICES": value})
    assert f"Managing GPUs {shown}\n" in server.out


def test_start_with_uuids(grn, jobs):
    uuid = grn.status()["gpus"][2]["uuid"]
    assert "Managing GPUs {2}\n" in start_server(jobs, env={"CUDA_VISIBLE_DEVICES": uuid.lower()[:20]}).out


@pytest.mark.parametrize("value", ["", "-1", "9", "GPU-", "x\033"])
def test_start_with_no_gpu(grn, value):
    assert_one_line_error(grn.run("grn-start", env={"CUDA_VISIBLE_DEVICES": value}), 69, "CUDA_VISIBLE_DEVICES")


def test_start_twice(grn, jobs):
    server = start_server(jobs)
    assert_one_line_error(grn.run("grn-start"), 64, "grn-start")
    server.process.terminate()
    assert server.process.wait(LIMIT) == 0
    start_server(jobs)


def test_the_callers_variable_restricts(grn, jobs):
    for value, gpu in (("2", "2"), ("3,1", "1")):
        good(compat(grn, "job.py", env={"CUDA_VISIBLE_DEVICES": value}, **in_scripts(grn)))
        assert notes(grn)[-1]["gpu"] == gpu
        good(grn.run("grn-run", "python job.py", env={"CUDA_VISIBLE_DEVICES": value}, **in_scripts(grn)))
        assert notes(grn)[-1]["gpu"] == gpu
    result = compat(grn, "job.py", env={"CUDA_VISIBLE_DEVICES": ""}, **in_scripts(grn))
    assert result.returncode == 1 and "berth.Impossible" in result.stderr.splitlines()[-1]


@pytest.mark.needs_root
def test_another_users_server_restricts_nobody(grn, jobs):
    folder = grn.folder / "harbour.compat"
    start_server(jobs, env={"CUDA_VISIBLE_DEVICES": "3"})
    [own] = folder.glob("grn-*")
    theirs = folder / "grn-65534"
    own.rename(theirs)
    os.chown(theirs, 65534, -1)
    good(compat(grn, "job.py", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "0"
    theirs.rename(own)  # ours by its name, and not by its owner
    good(compat(grn, "job.py", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "0"
    os.chown(own, os.getuid(), -1)
    good(compat(grn, "job.py", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "3", "the test can tell"


@pytest.mark.parametrize("policy", ["spread", "spreading", "pack", "packing"])
def test_policies(grn, policy):
    result = code(grn, f"@grn.job(resource_policy={policy!r})\n"
                  "def f(): return os.environ['CUDA_VISIBLE_DEVICES']\nprint(f())")
    assert good(result) == "0\n"


@pytest.mark.parametrize("policy", ["'random'", "''", "None", "'SPREAD'"])
def test_policies_that_there_are_not(grn, policy):
    result = code(grn, f"try:\n    grn.job(resource_policy={policy})\nexcept ValueError as error:\n    print(error)")
    assert good(result) == f"Got resource_policy={policy.strip(chr(39))}, but options are ('spread', 'pack').\n"


def test_policy_counts(grn, jobs):
    """Only with leases that share could `pack` be told from `spread`, so it is looked at in the request."""
    result = code(grn, "asked = []\nimport berth\nreal = berth.job\n"
                  "berth.job = lambda *a, **k: (asked.append(k['policy']), real(*a, **k))[1]\n"
                  "for name in ('spreading', 'packing'): grn.job(resource_policy=name)(lambda: None)()\nprint(asked)")
    assert good(result) == "['spread', 'pack']\n"


# The job.

def test_what_it_takes_and_gives(grn):
    text = """\
@grn.job()
def f(a, *more, b=2, **others):
    "What it does."
    return a, more, b, others

class Model:
    @grn.job()
    def train(self, rate):
        return type(self).__name__, rate

print(f(1, 2, b=3, c=4), f.__name__, f.__doc__, Model().train(0.5))
"""
    assert good(code(grn, text)) == "(1, (2,), 3, {'c': 4}) f What it does. ('Model', 0.5)\n"


def test_the_type_of_a_job(grn):
    text = """\
@grn.job()
def gpu_job(): return [lease.label for gpu in berth.status() for lease in gpu.leases]
@grn.job(jobstr="mine")
def named(): return [lease.label for gpu in berth.status() for lease in gpu.leases]
@grn.job(jobstr="x" * 1000 + "the end")
def long(): return [lease.label[-7:] for gpu in berth.status() for lease in gpu.leases]
print(gpu_job(), named(), long())
"""
    assert good(code(grn, text)) == f"['{grn.folder}/scripts/code.py::gpu_job'] ['mine'] ['the end']\n"


def test_after_the_call_all_is_as_before(grn):
    text = """\
before = dict(os.environ)
@grn.job()
def f(fail):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    if fail: raise fail
f(None)
for fail in (RuntimeError("CUDA out of memory"), KeyError("x"), SystemExit(3), KeyboardInterrupt()):
    try:
        f(fail)
    except BaseException as error:
        assert error is fail
    else:
        print("no error")
    assert dict(os.environ) == before
    assert all(gpu.state == "free" for gpu in berth.status()), fail
"""
    assert good(code(grn, text)) == ""


def test_a_job_that_calls_a_job(grn):
    """It runs on the GPU that the caller has, and does not wait for it."""
    grn.use("1x24GiB")
    text = """\
@grn.job()
def inner(): return os.environ["CUDA_VISIBLE_DEVICES"]
@grn.job()
def outer(): return inner()
print(outer())
"""
    assert good(code(grn, text)) == "0\n"


GUARDED = """\
import multiprocessing, subprocess
@grn.job()
def work(number):
    gpu = f"gpu{os.environ['CUDA_VISIBLE_DEVICES']}"
    os.mkdir(gpu)  # fails if somebody has it
    # More than half of it, so that whoever learns how much keeps others away.
    subprocess.run(["berth-sim-job", "--quiet", "--mem", "13GiB", "--time", "100ms"], check=True)
    for _ in range(10):
        assert sum(len(one.leases) for one in berth.status() if f"gpu{one.index}" == gpu) == 1
    os.rmdir(gpu)
    return number
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(6) as pool:
        print(sum(pool.imap_unordered(work, range(24))))
"""


@pytest.mark.each_harbour
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_no_gpu_is_given_twice(grn, method):
    grn.use("2x24GiB")
    path = script(grn, "code.py", f"import grn, os, sys, berth\n{GUARDED}")
    result = compat(grn, path, method, cwd=grn.folder)  # on stderr it tells who waits, and for what
    assert (result.returncode, result.stdout) == (0, f"{sum(range(24))}\n"), result.stderr
    assert all_free(grn)


@pytest.mark.each_harbour
def test_a_killed_job(grn, jobs):
    path = script(grn, "code.py", "import grn, sys\n@grn.job()\n"
                  "def f(): print('runs', flush=True); sys.stdin.read()\nf()")
    job = jobs.start(PYTHON, "-m", "berth.compat", path)
    job.gpus()
    assert state_of(grn, 0) == "leased"
    job.process.kill()
    eventually(lambda: all_free(grn), "the end of the lease")


# The profile.

def test_the_profile_runs_once(grn):
    text = """\
calls = []
@grn.job()
def f(a, b=1): calls.append(("f", a, b, os.environ["CUDA_VISIBLE_DEVICES"])); return "of f"
@f.profile
def quick(a, b=1): calls.append(("quick", a, b, os.environ["CUDA_VISIBLE_DEVICES"])); return "of quick"
assert f(7, b=8) == "of f" and f(9) == "of f"
assert quick.__name__ == "quick"
print(calls)
"""
    assert good(code(grn, text)) == "[('quick', 7, 8, '0'), ('f', 7, 8, '0'), ('f', 9, 1, '0')]\n"


def test_a_profile_that_does_not_take_the_arguments(grn):
    """As in GRN's JAX example: it is not called, and the job is measured itself."""
    text = """\
calls = []
@grn.job()
def train_job(epochs, batch_size): calls.append((epochs, batch_size)); return "trained"
@train_job.profile
def _(): calls.append("profile")
print(train_job(epochs=1, batch_size=128), train_job(epochs=2, batch_size=128), calls)
"""
    result = code(grn, text)
    assert (result.returncode, result.stdout) == (0, "trained trained [(1, 128), (2, 128)]\n"), result
    [warning] = result.stderr.splitlines()
    assert "profile" in warning and "::_ " in warning and "::train_job" in warning


@pytest.mark.parametrize("error", ["RuntimeError", "MemoryError", "SystemExit", "KeyboardInterrupt"])
def test_a_profile_that_fails(grn, error):
    """The GPU is free again, the job does not run, and the next call tries the profile again."""
    text = f"""\
calls = []
@grn.job()
def f(): calls.append("f")
@f.profile
def quick():
    calls.append("quick")
    if len(calls) < 3: raise {error}("no")
for _ in range(2):
    try:
        f()
    except {error}:
        assert all(gpu.state == "free" for gpu in berth.status())
f()
f()
print(calls)
"""
    assert good(code(grn, text)) == "['quick', 'quick', 'quick', 'f', 'f']\n"
    assert all_free(grn)


def test_two_profiles(grn):
    text = """\
@grn.job(jobstr="mine")
def f(): pass
@f.profile
def one(): pass
try:
    @f.profile
    def two(): pass
except AttributeError as error:
    print(error)
"""
    said = good(code(grn, text))
    assert "mine" in said and "::one" in said and "::two" in said


def test_a_profile_that_calls_its_job(grn):
    text = """\
calls = []
@grn.job()
def f(n): calls.append(n)
@f.profile
def quick(n): f(1)
f(10)
print(calls)
"""
    assert good(code(grn, text)) == "[1, 10]\n"


def test_calls_in_other_threads_wait_for_the_profile(grn):
    """Those of the same job; those of another do not."""
    text = """\
import threading
calls, may_end, in_profile = [], threading.Event(), threading.Event()
@grn.job()
def f(n): calls.append("f")
@f.profile
def quick(n): in_profile.set(); assert may_end.wait(60); calls.append("quick")
@grn.job()
def other(): calls.append("other")
threads = [threading.Thread(target=f, args=(n,)) for n in range(3)]
for thread in threads: thread.start()
assert in_profile.wait(60)
other()
may_end.set()
for thread in threads: thread.join()
print(calls)
"""
    result = code(grn, text)  # on stderr it tells who waits, and for what
    assert (result.returncode, result.stdout) == (0, "['other', 'quick', 'f', 'f', 'f']\n"), result.stderr


# Where berth cannot be used.

UNAVAILABLE = """\
@grn.job(continue_on_server_unavailable=%s)
def f(): return "ran"
@f.profile
def quick(): print("the profile")
try:
    print(f())
except ConnectionError as error:
    print("ConnectionError", type(error.__cause__).__name__)
"""


@pytest.mark.parametrize("on, said", [(False, "ConnectionError HarbourError\n"), (True, "ran\n")])
def test_no_harbour(grn, on, said):
    (grn.folder / "file").touch()
    result = code(grn, UNAVAILABLE % on, env={"BERTH_DIR": str(grn.folder / "file")})
    assert (result.returncode, result.stdout) == (0, said)
    assert ("lease" in result.stderr) == on


@pytest.mark.parametrize("on, said", [(False, "ConnectionError NoDriver\n"), (True, "ran\n")])
def test_no_driver(grn, on, said):
    grn.use({"gpus": [{"count": 1, "memory": "24GiB"}], "faults": [{"call": "nvmlInit_v2", "answer": 9}]})
    result = code(grn, UNAVAILABLE % on)
    assert (result.returncode, result.stdout) == (0, said)


def test_what_a_job_raises_is_not_taken_for_that(grn):
    text = """\
@grn.job(continue_on_server_unavailable=True)
def f():
    print("runs")
    raise berth.NoDriver("mine")
try:
    f()
except berth.NoDriver as error:
    print(error)
"""
    assert good(code(grn, text)) == "runs\nmine\n"
