"""Drivers that are missing, refuse, differ from their library, hang or crash: one line, exit 69."""

import json
import os
import re
import shutil
import signal
import sys
import time

import pytest
from conftest import BERTH, PRESET, ROOT, SIM_JOB, SIM_LIBRARIES, assert_one_line_error
from leasing import jobs  # noqa: F401
from waiting import LIMIT


def faulty(answer=None, **fault):
    effect = {"answer": answer} if answer is not None else {}
    return {"gpus": [{"name": "A", "memory": "8GiB"}], "faults": [{"call": "nvmlInit", **effect, **fault}]}


def processes_of(server):
    """The PIDs of all live processes that belong to this test's server."""
    mark = f"BERTH_SIM_STATE={server.env['BERTH_SIM_STATE']}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def hangs(pid):
    """Is it inside the simulated hang, which blocks every signal?"""
    with open(f"/proc/{pid}/status") as file:
        return re.search(r"^SigBlk:\t(\w+)", file.read(), re.MULTILINE).group(1).startswith("fffffffe")


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline


def test_no_driver(server):
    result = server.berth("status", env={"BERTH_SIM": None})
    assert_one_line_error(result, 69, "libnvidia-ml.so.1", "BERTH_SIM=4x24GiB")


@pytest.mark.parametrize("code, words", [
    (9, "modprobe"), (18, "versions"), (4, "/dev/nvidiactl"), (17, "container"), (15, "lost"),
    (12, "NVML error 12"), (999, "NVML error 999"),
])
def test_a_driver_that_refuses(server, code, words):
    assert_one_line_error(server.use(faulty(code)).berth("status"), 69, words)


def test_a_driver_that_hangs_is_given_up_even_through_a_pipe(server):
    server.use(faulty(hang=True))
    # The pipe ends only when nobody holds it any more: a child left behind must not.
    result = server.run("bash", "-c", "berth status | cat; echo ${PIPESTATUS[0]}",
                        env={"BERTH_DRIVER_TIMEOUT": "1s"}, timeout=LIMIT)
    assert result.stdout == "69\n"
    assert re.match(r"berth: .*\b1s\b", result.stderr)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("call", ["nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"])
def test_a_driver_may_hang_at_any_call(server, call):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 2}], "faults": [{"call": call, "hang": True}]})
    assert_one_line_error(server.berth("status", env={"BERTH_DRIVER_TIMEOUT": "500ms"}), 69, "within 500ms")


def test_a_slow_driver_is_waited_for(server):
    started = time.monotonic()
    assert len(server.use(faulty(delay="3s")).status()["gpus"]) == 1
    assert time.monotonic() - started >= 3


@pytest.mark.release_only  # Python cannot load a library of the sanitizer build
@pytest.mark.parametrize("command", [["status"], ["run", "--", "true"]])
def test_a_driver_that_starts_slowly_is_started_once(server, command):
    server.use(faulty(delay="300ms"))
    assert server.berth(*command).returncode == 0
    count = f"import ctypes; print(ctypes.CDLL('{SIM_LIBRARIES}/libnvidia-ml.so.1').berth_sim_init_calls())"
    assert server.run(sys.executable, "-c", count).stdout == "1\n"


def test_no_child_stays_behind(server):
    """Neither after success nor after a hang is a process of berth's left."""
    server.status()
    server.use(faulty(hang=True)).berth("status", env={"BERTH_DRIVER_TIMEOUT": "200ms"})
    wait_until(lambda: processes_of(server) == [])


def test_a_killed_berth_leaves_no_hung_child(server):
    server.use(faulty(hang=True))
    berth = server.start(BERTH, "status")
    wait_until(lambda: any(hangs(pid) for pid in processes_of(server)))
    berth.kill()
    berth.wait()
    wait_until(lambda: processes_of(server) == [])


def test_an_answer_in_time_counts_even_if_berth_was_stopped_meanwhile(server):
    server.use(faulty(delay="1s"))
    berth = server.start(BERTH, "status", "--json", env={"BERTH_DRIVER_TIMEOUT": "2s"})
    wait_until(lambda: len(processes_of(server)) == 2)
    berth.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: time.monotonic() - stopped > 3)
    berth.send_signal(signal.SIGCONT)
    assert berth.wait() == 0


def test_jobs_in_other_pid_namespaces_stay_apart(server):
    """Both are PID 1 where they live. A reader that sees neither must still count two."""
    if os.getuid() != 0:
        pytest.fail("this test must run as root: it makes PID namespaces")
    server.use("1x8GiB")
    for memory in ("512MiB", "256MiB"):
        server.start_job("--mem", memory, prefix=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
    here = server.status()["gpus"][0]["processes"]
    assert sorted(p["memory_mib"] for p in here) == [256, 512]
    elsewhere = server.run("unshare", "--pid", "--fork", "--mount-proc", BERTH, "status", "--json")
    seen = json.loads(elsewhere.stdout)["gpus"][0]["processes"]
    assert sorted(p["memory_mib"] for p in seen) == [256, 512]
    assert all(p["name"] is None and p["user"] is None for p in seen)


@pytest.fixture
def hostile_driver(server, tmp_path):
    """Runs berth on the driver library of tests/tools/hostile_driver.cc, with a time limit of 3 s."""
    built = server.run("g++", "-std=c++20", "-shared", "-fPIC", ROOT / "tests" / "tools" / "hostile_driver.cc",
                       "-o", tmp_path / "libnvidia-ml.so.1")
    assert built.returncode == 0, built.stderr

    def run(mode, *arguments):
        # The timeout of the command only ends a test that would otherwise hang.
        return server.berth(*arguments, timeout=LIMIT, env={
            "BERTH_SIM": None, "LD_LIBRARY_PATH": str(tmp_path), "BERTH_DRIVER_TIMEOUT": "3s", "BERTH_TEST_DRIVER": mode})
    return run


@pytest.mark.parametrize("mode, words", [
    ("sleep", " 3s"),
    ("close-and-sleep", "closed"),
    ("ignore-signals", "closed"),
    ("dribble", " 3s"),
    # Either: the kernel may still be writing a core file when berth stops waiting for the exit.
    ("close-and-crash", "signal 6|closed"),
    ("crash-at-exit", "signal 6"),
    ("exit", "unexpectedly"),
])
@pytest.mark.parametrize("command", [("status",), ("run", "--", "true")])
def test_a_hostile_driver_library_never_hangs_berth(hostile_driver, mode, words, command):
    result = hostile_driver(mode, *command)
    lines = result.stderr.splitlines()
    # After 2 s berth says that it waits.
    assert [line for line in lines if "waiting" not in line] == lines[-1:], result.stderr
    assert result.returncode == 69 and lines[-1].startswith("berth: "), result
    assert any(one in lines[-1] for one in words.split("|")), result


@pytest.mark.release_only
@pytest.mark.parametrize("command", [("status", "--json"), ("run", "--", "true"), ("run", "--mem", "1GiB", "--", "true")])
def test_a_process_that_cannot_be_read_costs_nothing_but_its_attribution(server, jobs, tmp_path, command):
    """Reading its environment waits for its memory lock, which a driver that hangs may hold."""
    library = tmp_path / "stuck_memory.so"
    built = server.run("g++", "-std=c++20", "-shared", "-fPIC", ROOT / "tests" / "tools" / "stuck_memory.cc", "-o", library)
    assert built.returncode == 0, built.stderr
    for _ in range(2):
        jobs.run("--mem", "2GiB", "--gpu", "0", command=[SIM_JOB, "--mem", "1GiB"])
    wait_until(lambda: len(server.status()["gpus"][0]["processes"]) == 2)
    server.start_job("--mem", "1GiB", gpu=0)  # of which lease it is, only its environment could tell
    result = server.berth(*command, env={"LD_PRELOAD": str(library)}, timeout=LIMIT)
    assert result.returncode == 0, result
    if command[0] == "status":
        processes = json.loads(result.stdout)["gpus"][0]["processes"]
        assert all(one["lease"] for one in processes), processes  # by descent and by user


def test_a_missing_simulated_driver_is_said_to_be_missing(server):
    (server.folder / "bin").mkdir()
    shutil.copy(BERTH, server.folder / "bin")
    assert_one_line_error(server.run(server.folder / "bin" / "berth", "status"), 69, "BERTH_SIM")


def test_a_library_that_is_not_a_driver(server, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("nonsense")
    result = server.berth("status", env={"BERTH_SIM": None, "LD_LIBRARY_PATH": str(tmp_path)})
    assert_one_line_error(result, 69, str(tmp_path / "libnvidia-ml.so.1"))


def test_in_another_pid_namespace_a_pid_is_not_mistaken_for_a_local_one(server):
    """A container sees the host's PIDs: their number says nothing about processes in the container."""
    if os.getuid() != 0:
        pytest.fail("this test must run as root: it makes a PID namespace")
    server.use({"gpus": [{"name": "A", "memory": "8GiB"}],
                "strangers": [{"gpu": 0, "pid": 1, "name": "/usr/bin/python train.py", "memory": "1GiB"}]})
    assert server.status()["gpus"][0]["processes"][0]["user"] == "root"
    inside = server.run("unshare", "--pid", "--fork", "--mount-proc", BERTH, "status", "--json")
    [process] = json.loads(inside.stdout)["gpus"][0]["processes"]
    assert process == {"pid": 1, "user": None, "name": "python", "memory_mib": 1024, "lease": None}


@pytest.mark.release_only
def test_an_installation_works_wherever_it_lies(server):
    """Only the place relative to the program counts, for berth and for berth-sim-job."""
    prefix = server.folder / "some where"
    server.run("cmake", "--install", ROOT / "build" / PRESET, "--prefix", prefix, check=True)
    job = server.start(prefix / "bin" / "berth-sim-job", "--mem", "2GiB")
    assert job.stdout.readline().startswith("berth-sim-job: pid")
    result = server.run(prefix / "bin" / "berth", "status", "--json")
    assert result.returncode == 0, result.stderr
    assert sum(gpu["state"] == "stranger" for gpu in json.loads(result.stdout)["gpus"]) == 4
