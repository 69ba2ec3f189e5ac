"""`from gpu_lock import lock_gpu` on berth's leases: the examples of its document, and what they promise."""

import datetime
import json
import os
import pwd
import signal
import sys

import pytest
from leasing import eventually, jobs, state_of  # noqa: F401
from compat_scripts import assert_nothing_twice, contend, lines, scripts, states  # noqa: F401

pytestmark = pytest.mark.release_only

SAY = """
import os
from gpu_lock import lock_gpu

def say():
    print(os.environ.get("CUDA_DEVICE_ORDER"), os.environ.get("CUDA_VISIBLE_DEVICES"))
"""
REFUSED = "import sys\nfrom gpu_lock import lock_gpu\ntry:\n    with lock_gpu({}): print('locked')\n" \
          "except RuntimeError as error:\n    print('refused:', error)\n"


# The document's examples, with code in place of the comments that say where it goes.

def test_a_certain_gpu(server, scripts):
    job = scripts.hold("""
from gpu_lock import lock_gpu

if __name__=="__main__":
    with lock_gpu(uid=2):
        import os, subprocess
        print(os.environ["CUDA_VISIBLE_DEVICES"])
        print(subprocess.run(["berth", "status"], stdout=subprocess.PIPE, text=True).stdout.count(" leased "))
""")
    assert lines(job) == ["2", "1"]
    assert states(server) == ["free"] * 4


def test_any_gpu(server, scripts, jobs):
    jobs.hold("--gpu", "0,1")
    assert scripts.output("""
from gpu_lock import lock_gpu

if __name__=="__main__":
    with lock_gpu():
        import os; print(os.environ["CUDA_VISIBLE_DEVICES"])
""") == ["2"]


@pytest.mark.each_harbour
def test_the_lock_lasts_as_long_as_the_block(server, scripts):
    job = scripts.start("""
import sys
from gpu_lock import lock_gpu
with lock_gpu(uid=0):
    print("ready", flush=True)
    sys.stdin.readline()
print("after", flush=True)
sys.stdin.readline()
""")
    eventually(lambda: "ready" in job.out, lambda: job.err)
    assert state_of(server, 0) == "leased"
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    eventually(lambda: "after" in job.out, lambda: job.err)
    assert state_of(server, 0) == "free"


# What it gives.

def test_several_gpus(server, scripts):
    assert scripts.output(SAY + "with lock_gpu(n=2) as lock:\n    print(lock.uid)\n    say()") == [
        "[0, 1]", "PCI_BUS_ID 0,1"]


@pytest.mark.parametrize("call, uid", [("uid=3", "3"), ("", "0"), ("n=1", "0"), ("n=3", "[0, 1, 2]"),
                                       ("n=2, n_system_gpus=2", "[0, 1]")])
def test_uid_is_known_before_and_in_the_block(server, scripts, call, uid):
    assert scripts.output(SAY + f"lock = lock_gpu({call})\nprint(lock.uid)\nwith lock as same:\n    print(same.uid)\n"
                          ) == [uid, uid]


def test_a_first_argument_without_a_name(server, scripts):
    """In the document's version it is the GPU, in 0.2 the number of GPUs: that is said. Two arguments are those of 0.2."""
    result = scripts.run("from gpu_lock import lock_gpu\nwith lock_gpu(3) as lock:\n    print(lock.uid)\n")
    assert (result.returncode, result.stdout) == (0, "3\n")
    assert "lock_gpu(3) locks GPU 3" in result.stderr and "n=3" in result.stderr
    assert scripts.output("from gpu_lock import lock_gpu\nwith lock_gpu(2, 8) as lock:\n    print(lock.uid)\n") == ["[0, 1]"]
    [said] = scripts.output("from gpu_lock import lock_gpu\ntry:\n    lock_gpu(2, n=2)\nexcept ValueError as error:\n"
                            "    print(error)")
    assert "uid=" in said and "n=" in said


def test_the_module_inside_of_the_package(server, scripts):
    assert scripts.output("import gpu_lock\nfrom gpu_lock.gpu_lock import lock_gpu\nassert lock_gpu is gpu_lock.lock_gpu\n"
                          "with lock_gpu(uid=1) as lock: print(lock.uid)") == ["1"]


@pytest.mark.parametrize("before", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, {"CUDA_VISIBLE_DEVICES": "1,3"},
                                    {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": "3"}])
def test_the_environment_is_set_and_restored(server, scripts, before):
    """What the caller made visible restricts the choice, as everywhere in berth."""
    order, visible = before.get("CUDA_DEVICE_ORDER"), before.get("CUDA_VISIBLE_DEVICES")
    assert scripts.output(SAY + "say()\nwith lock_gpu():\n    say()\nsay()", env=before) == [
        f"{order} {visible}", f"PCI_BUS_ID {(visible or '0')[0]}", f"{order} {visible}"]


def test_an_error_in_the_block_ends_the_lock(server, scripts):
    job = scripts.hold(SAY + "try:\n    with lock_gpu(n=4):\n        raise KeyError('mine')\n"
                             "except KeyError as error:\n    print(error)\nsay()")
    assert lines(job) == ["'mine'", "None None"]
    assert states(server) == ["free"] * 4


def test_a_lock_can_be_entered_again(server, scripts):
    assert scripts.output(SAY + "lock = lock_gpu(uid=1)\nfor _ in range(2):\n    with lock:\n        say()\n    say()"
                          ) == ["PCI_BUS_ID 1", "None None"] * 2


def test_locks_that_are_taken_first_and_entered_later(server, scripts):
    assert scripts.output(SAY + "a, b = lock_gpu(uid=0), lock_gpu(uid=1)\nwith a:\n    say()\n    with lock_gpu():\n"
                          "        say()\n    say()\nwith b:\n    say()\nsay()") == [
        "PCI_BUS_ID 0", "PCI_BUS_ID 0,2", "PCI_BUS_ID 0", "PCI_BUS_ID 1", "None None"]


def test_locks_in_locks_show_the_gpus_of_all(server, scripts):
    assert scripts.output(SAY + "with lock_gpu(uid=3):\n    with lock_gpu(uid=1):\n        with lock_gpu() as third:\n"
                          "            say()\n        say()\n    say()\nsay()") == [
        "PCI_BUS_ID 3,1,0", "PCI_BUS_ID 3,1", "PCI_BUS_ID 3", "None None"]


def test_inside_a_lease_the_gpus_come_out_of_that(server, scripts):
    script = scripts.command(SAY + "with lock_gpu() as lock:\n    print(lock.uid)\n    with lock_gpu(): say()\nsay()")
    result = server.berth("run", "--gpu", "2", "--", *script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "2\nPCI_BUS_ID 2\nPCI_BUS_ID 2\n", "")


# Busy.

def test_a_busy_gpu(server, scripts, jobs):
    jobs.hold("--gpu", "1")
    [said] = scripts.output(REFUSED.format("uid=1"))
    assert said.startswith("refused: Could not acquire the lock: ")
    assert "GPU 1" in said and pwd.getpwuid(os.getuid()).pw_name in said


@pytest.mark.parametrize("call", ["", "n=2", "n_system_gpus=3"])
def test_all_busy(server, scripts, jobs, call):
    jobs.hold("--gpu", "0,1,2")
    assert scripts.output(REFUSED.format("uid=3")) == ["locked"]
    if call == "":
        jobs.hold("--gpu", "3")
    [said] = scripts.output(REFUSED.format(call))
    assert said.startswith("refused: Could not acquire the lock: ")


def test_a_gpu_that_somebody_uses_without_a_lock(server, scripts):
    server.start_job("--mem", "2GiB", gpu=0)
    [said] = scripts.output(REFUSED.format("uid=0"))
    assert said.startswith("refused: ") and "berth-sim-job" in said
    assert scripts.output(SAY + "with lock_gpu() as lock: print(lock.uid)") == ["1"]


@pytest.mark.parametrize("call", ["uid=4", "n=5"])
def test_what_the_server_does_not_have(server, scripts, call):
    [said] = scripts.output(REFUSED.format(call))
    assert said.startswith("refused: ")


def test_ones_own_lock_is_as_good_as_anybodys(server, scripts):
    """In gpu_lock's document the second lock of a user replaces the first: two jobs on one GPU."""
    holder = scripts.hold("from gpu_lock import lock_gpu\nlock = lock_gpu(uid=0)\nlock.__enter__()\n")
    [said] = scripts.output(REFUSED.format("uid=0"))
    assert said.startswith("refused: ")
    assert holder.end() == 0
    [said] = scripts.output("from gpu_lock import lock_gpu\nwith lock_gpu(uid=0):\n    try:\n        lock_gpu(uid=0)\n"
                            "    except RuntimeError:\n        print('refused')")
    assert said == "refused"


def test_one_gpu_and_several_contradict_each_other(server, scripts):
    [said] = scripts.output("from gpu_lock import lock_gpu\ntry:\n    lock_gpu(uid=0, n=2)\n"
                            "except ValueError as error:\n    print(error)")
    assert "uid=0" in said and "n=2" in said


@pytest.mark.each_harbour
def test_many_at_once(server, scripts):
    said = contend(scripts, ["""
from gpu_lock import lock_gpu
try:
    lock = lock_gpu()
    lock.__enter__()
    print(lock.uid)
except RuntimeError:
    print("refused")
"""] * 8)
    assert_nothing_twice(said, 4)


@pytest.mark.each_harbour
def test_a_killed_script_leaves_no_lock(server, scripts):
    job = scripts.hold("from gpu_lock import lock_gpu\nlock = lock_gpu(n=4)\nlock.__enter__()\n")
    assert states(server) == ["leased"] * 4
    job.process.send_signal(signal.SIGKILL)
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lock")


# What people see.

@pytest.mark.each_harbour
def test_the_locks_as_json(server, scripts, jobs):
    """As the document's lock files have it: who, since when, which GPU, and for which process."""
    job = scripts.hold("from gpu_lock import lock_gpu\nlock = lock_gpu(n=2)\nlock.__enter__()\n")
    other = jobs.hold("--gpu", "3")
    result = server.run(sys.executable, "-m", "berth.compat.gpu_lock")
    assert (result.returncode, result.stderr) == (0, "")
    locks = json.loads(result.stdout)
    user = pwd.getpwuid(os.getuid()).pw_name
    since = {str(one["index"]): datetime.datetime.fromisoformat(one["leases"][0]["since"].replace("Z", "+00:00"))
             for one in server.status()["gpus"] if one["leases"]}
    assert locks == [{"user": user, "time": int(since[str(index)].timestamp()), "id": index, "owner": pid}
                     for index, pid in ((0, job.pid), (1, job.pid), (3, other.pid))]


def test_no_locks(server, scripts):
    assert json.loads(server.run(sys.executable, "-m", "berth.compat.gpu_lock").stdout) == []
