"""`berth status`: what it says of each kind of GPU, in JSON and as a table."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest
from conftest import BERTH, ROOT, SANITIZED, SERVERS, SIM_LIBRARIES, assert_fit_for_terminal
from leasing import jobs  # noqa: F401
from waiting import wait_until

AS_DAEMON = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups"]
GPU_KEYS = ["index", "uuid", "name", "state", "memory_total_mib", "memory_used_mib", "utilization_pct",
            "memory_utilization_pct", "temperature_c", "power_w", "performance_state", "reason",
            "processes", "leases"]


def states(status):
    return {gpu["index"]: gpu["state"] for gpu in status["gpus"]}


@pytest.mark.each_harbour
def test_json_has_the_keys_of_the_design(server):
    status = server.use("4x24GiB").status()
    assert list(status) == ["host", "driver", "next_free", "gpus", "queue"]
    assert status["host"] == os.uname().nodename
    assert status["queue"] == []
    assert [gpu["index"] for gpu in status["gpus"]] == [0, 1, 2, 3]
    for gpu in status["gpus"]:
        assert list(gpu) == GPU_KEYS
        assert gpu["uuid"].startswith("GPU-")
        assert (gpu["state"], gpu["memory_total_mib"], gpu["memory_used_mib"]) == ("free", 24576, 0)
        assert (gpu["processes"], gpu["leases"], gpu["reason"]) == ([], [], "")
    assert len({gpu["uuid"] for gpu in status["gpus"]}) == 4


@pytest.mark.each_harbour
def test_a_process_without_a_lease_is_a_stranger_until_it_dies(server):
    server.use("4x24GiB")
    job = server.start_job("--mem", "9GiB", "--util", "70", gpu=2)
    status = server.status()
    assert states(status) == {0: "free", 1: "free", 2: "stranger", 3: "free"}
    gpu = status["gpus"][2]
    assert gpu["memory_used_mib"] == 9216
    assert gpu["utilization_pct"] == 70
    [process] = gpu["processes"]
    assert list(process) == ["pid", "user", "name", "memory_mib", "lease"]
    assert process == {"pid": job.pid, "user": "root" if os.getuid() == 0 else process["user"],
                       "name": "berth-sim-job", "memory_mib": 9216, "lease": None}
    job.send_signal(signal.SIGKILL)
    job.wait()
    after = server.status()
    assert states(after) == {0: "free", 1: "free", 2: "free", 3: "free"}
    assert after["gpus"][2]["memory_used_mib"] == 0


@pytest.mark.needs_root
def test_users_are_told_apart(server, open_build):
    server.use("2x24GiB")
    job = server.start_job("--mem", "1GiB", gpu=1, program=open_build / "bin" / "berth-sim-job",
                           prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    [process] = server.status()["gpus"][1]["processes"]
    assert process["pid"] == job.pid
    assert process["user"] == "nobody"


def test_what_the_driver_does_not_give_is_absent(server):
    server.use({"gpus": [{"name": "GB10", "memory": "119GiB", "unified_memory": True, "count": 2}],
                "faults": [{"call": "nvmlDeviceGetUtilizationRates", "answer": 3},
                           {"call": "nvmlDeviceGetTemperature", "answer": 3},
                           {"call": "nvmlDeviceGetPowerUsage", "answer": 3},
                           {"call": "nvmlDeviceGetPerformanceState", "answer": 3}]})
    gpu = server.status()["gpus"][0]  # alone, its memory would be the host's
    for key in GPU_KEYS[4:11]:
        assert gpu[key] is None, key
    assert gpu["state"] == "free"
    row = next(line for line in server.berth("status", "-v").stdout.splitlines() if "GB10" in line)
    assert row.split()[-4:] == ["-", "-", "-", "-"]


def test_a_lost_gpu_hides_nothing_else(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 3}],
                "faults": [{"gpu": 1, "lost": True}]})
    status = server.status()
    assert states(status) == {0: "free", 1: "lost", 2: "free"}
    assert status["gpus"][1]["memory_used_mib"] is None
    assert "Xid" in server.berth("status").stdout


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID",
                                  "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTemperature",
                                  "nvmlDeviceGetComputeRunningProcesses",
                                  "nvmlDeviceGetGraphicsRunningProcesses"])
def test_a_gpu_may_be_lost_at_any_call(server, call):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 2}],
                "faults": [{"call": call, "gpu": 0, "answer": 15}]})
    assert states(server.status()) == {0: "lost", 1: "free"}


@pytest.mark.parametrize("code, state", [(999, "lost"), (4, "unknown"), (3, "free")])
def test_memory_that_cannot_be_read_is_a_fault_unless_it_is_unified(server, code, state):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 2}],
                "faults": [{"call": "nvmlDeviceGetMemoryInfo", "gpu": 0, "answer": code}]})
    assert states(server.status()) == {0: state, 1: "free"}


def test_a_display_of_unknown_memory_does_not_hide_a_stranger(server):
    server.use({"gpus": [{"name": "A", "memory": "48GiB"}],
                "strangers": [{"gpu": 0, "memory": None, "type": "graphics"},
                              {"gpu": 0, "memory": "30GiB", "hidden": True}]})
    assert states(server.status()) == {0: "stranger"}


@pytest.mark.parametrize("code, state", [(15, "lost"), (999, "lost"), (4, "unknown")])
@pytest.mark.parametrize("call", ["nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount",
                                  "nvmlDeviceGetMigDeviceHandleByIndex"])
def test_a_mig_card_that_cannot_be_read_is_one_row_and_not_free(server, call, code, state):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "mig": [{"memory": "4GiB", "name": "one"}]},
                         {"name": "B", "memory": "8GiB"}],
                "faults": [{"call": call, "gpu": 0, "answer": code}]})
    assert states(server.status()) == {0: state, 1: "free"}


def test_a_list_that_fails_does_not_hide_the_processes_of_another(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB"}], "strangers": [{"gpu": 0, "memory": "1GiB"}],
                "faults": [{"call": "nvmlDeviceGetGraphicsRunningProcesses", "answer": 999}]})
    [gpu] = server.status()["gpus"]
    assert (gpu["state"], len(gpu["processes"])) == ("unknown", 1)


def test_an_absent_driver_version_is_null(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB"}],
                "faults": [{"call": "nvmlSystemGetDriverVersion", "answer": 999}]})
    assert server.status()["driver"] is None
    assert "driver -\n" in server.berth("status").stdout


def test_unknown_is_not_free(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 3}],
                "faults": [{"call": "nvmlDeviceGetComputeRunningProcesses", "gpu": 0, "answer": 3},
                           {"call": "nvmlDeviceGetHandleByIndex", "gpu": 1, "answer": 4}]})
    assert states(server.status()) == {0: "unknown", 1: "unknown", 2: "free"}
    assert "access" in server.berth("status").stdout


def test_memory_that_no_process_accounts_for_is_a_stranger(server):
    server.use({"gpus": [{"name": "A", "memory": "24GiB", "reserved_memory": "300MiB", "count": 2}],
                "strangers": [{"gpu": 1, "name": "zombie", "memory": "5GiB", "hidden": True}]})
    status = server.status()
    assert states(status) == {0: "free", 1: "stranger"}
    assert status["gpus"][1]["processes"] == []
    assert "5 GiB" in status["gpus"][1]["reason"]
    assert status["gpus"][1]["reason"] in server.berth("status").stdout


def test_all_three_lists_are_merged(server):
    server.use({"gpus": [{"name": "A", "memory": "24GiB"}],
                "strangers": [{"gpu": 0, "pid": 5000001, "name": "one", "memory": "1GiB", "type": "compute"},
                              {"gpu": 0, "pid": 5000002, "name": "two", "memory": "2GiB", "type": "graphics"},
                              {"gpu": 0, "pid": 5000003, "name": "three", "memory": None, "type": "mps"}]})
    [gpu] = server.status()["gpus"]
    assert [(p["pid"], p["name"], p["memory_mib"], p["user"]) for p in gpu["processes"]] == [
        (5000001, "one", 1024, None), (5000002, "two", 2048, None), (5000003, "three", None, None)]


@pytest.mark.parametrize("version", ["418.87.01", "470.82.01", "535.54.03", "535.98", "535.104.05",
                                     "570.86.15"])
def test_drivers_of_every_age_say_the_same(server, version):
    server.use({"driver_version": version,
                "gpus": [{"name": "A", "memory": "24GiB", "count": 2}],
                "strangers": [{"gpu": 1, "pid": 5000001 + i, "name": f"job{i}", "memory": "1GiB"}
                              for i in range(20)]})
    status = server.status()
    assert status["driver"] == version
    assert states(status) == {0: "free", 1: "stranger"}
    assert [(p["pid"], p["memory_mib"]) for p in status["gpus"][1]["processes"]] == [
        (5000001 + i, 1024) for i in range(20)]


def test_mig_instances_are_gpus(server):
    status = server.use(SERVERS / "mig.json").status()
    instances = [gpu for gpu in status["gpus"] if isinstance(gpu["index"], str)]
    assert instances and all(re.fullmatch(r"\d+:\d+", gpu["index"]) for gpu in instances)
    for gpu in instances:
        assert gpu["uuid"].startswith("MIG-")
        assert gpu["utilization_pct"] is None, "MIG has no utilization: unknown, not idle"
    cards = {gpu["index"].split(":")[0] for gpu in instances}
    assert not cards & {str(gpu["index"]) for gpu in status["gpus"]}, "a card with MIG is no GPU itself"


def test_a_card_that_drives_the_display_is_free(server):
    status = server.use(SERVERS / "workstation.json").status()
    [gpu] = status["gpus"]
    assert gpu["state"] == "free"
    assert len(gpu["processes"]) >= 1


def test_a_card_that_may_not_compute_is_drained(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "compute_mode": "prohibited"},
                         {"name": "B", "memory": "8GiB", "mig": []}]})
    assert states(server.status()) == {0: "drained", 1: "drained"}


@pytest.mark.parametrize("path", sorted(SERVERS.glob("*.json")), ids=lambda path: path.stem)
def test_every_ready_server_can_be_shown(server, path):
    server.use(path)
    status = server.status()
    assert status["gpus"]
    shown = server.berth("status", env={"COLUMNS": "80"})
    assert (shown.returncode, shown.stderr) == (0, "")
    assert max(len(line) for line in shown.stdout.splitlines()) <= 80


@pytest.mark.parametrize("columns", [36, 40, 60, 80, 120])
def test_the_table_fits(server, columns):
    server.use(SERVERS / "lab.json")
    shown = server.berth("status", env={"COLUMNS": str(columns)}).stdout
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert "stranger" in shown
    shown = server.berth("status", "-v", env={"COLUMNS": str(columns)}).stdout
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert columns < 60 or re.search(r"! +\d+  .*iB  +\S", shown)


def test_without_a_terminal_nothing_is_cut_and_nothing_coloured(server):
    name = "A card with a very long name, longer than any table would like"
    shown = server.use({"gpus": [{"name": name, "memory": "8GiB"}]}).berth("status").stdout
    assert name in shown and name in server.berth("status", "-v").stdout
    assert_fit_for_terminal(shown)


def test_a_locale_without_utf8_gets_ascii(server):
    server.use({"gpus": [{"name": "Grün", "memory": "8GiB"}]})
    assert "Grün" in server.berth("status").stdout
    shown = server.berth("status", env={"LANG": "C"}).stdout
    assert shown.isascii()
    assert "Gr\\u00fcn" in shown
    assert json.loads(server.berth("status", "--json", env={"LANG": "C"}).stdout)["gpus"][0]["name"] == "Grün"


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_eight_gpus_and_the_queue_fit_a_small_terminal(server, jobs):
    server.use(SERVERS / "nvlink8.json")
    jobs.hold("--gpu", "0,1", "--time", "40m", "--label", "llama")
    jobs.hold("--gpu", "2", "--time", "1ms", "--label", "late")
    jobs.hold("--gpu", "3", "--mem", "20GiB", "--label", "part")
    for index in range(4, 7):
        jobs.hold("--gpu", str(index))
    for number in range(5):
        jobs.wait("-n", "3", "--time", "30m", "--label", f"waiting {number}")
    text = server.berth("status", env={"COLUMNS": "80"}).stdout
    lines = text.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    rows = {line[:3].strip(): line for line in lines[4:12]}
    assert sorted(rows) == [str(index) for index in range(8)]
    for index in "01":
        assert re.search(r"^  \d  leased  .* \*root +\d+s  in 40m +llama: sh -c.*…$", rows[index])
    assert re.search(r" \d+s late +late: sh -c", rows["2"])
    assert re.search(r"^  3  shared .*\*root .* - +20 GiB, part: sh", rows["3"])
    assert re.fullmatch(r"  7  free +\d+/80 GiB +0%", rows["7"])
    assert [line.split()[0] for line in lines[-5:]] == ["1", "2", "3", "4", "5"]
    assert re.search(r"^  1  in ~40m +\*root +\d+s  3 GPUs, 30m  waiting 0: ", lines[-5])
    assert re.search(r"^  5  in ~2h 40m +\*root .*  waiting 4: ", lines[-1])
    assert text.startswith(f"{server.status()['host']} - 8 GPUs: 1 free, 6 leased, 1 shared\n")


def test_the_end_that_comes_first_stands_first(server, jobs):
    server.use("2x24GiB")
    jobs.hold("--gpu", "0", "--time", "2h")
    jobs.hold("--gpu", "1", "--time", "40m")
    first = server.berth("status", env={"COLUMNS": "80"}).stdout.splitlines()[0]
    assert " - next free: GPU 1 in about 40m - " in first


def test_a_shared_gpu_says_who_has_how_much(server, open_build, jobs):
    server.use("1x24GiB")
    jobs.hold("--mem", "4GiB", "--time", "1h")
    jobs.hold("--mem", "2GiB", "--time", "2h")
    other = server.start(*AS_DAEMON, open_build / "bin/berth", "run", "--mem", "8GiB", "--time", "3h", "--", "sleep", "1000")
    wait_until(lambda: len(server.status()["gpus"][0]["leases"]) == 3, "three leases")
    text = server.berth("status", env={"COLUMNS": "160"}).stdout
    assert re.search(r"  0  shared .*  \*root \+1 +\d+s  in 3h +3 jobs, 14 GiB reserved: ", text)
    for share in ("*root 4 GiB", "*root 2 GiB", "daemon 8 GiB"):
        assert share in text
    other.kill()


@pytest.mark.each_harbour
def test_a_lease_that_cannot_be_read_has_no_times(server, jobs):
    server.use("1x24GiB")
    jobs.hold("--time", "1h")
    [record] = server.harbour.glob("lease-*")
    record.write_text("nonsense")
    [lease] = server.status()["gpus"][0]["leases"]
    unknown = ("pid", "holder", "adopted", "command", "label", "since", "ends", "memory_mib", "job", "idle_s")
    assert {key: lease[key] for key in unknown} == dict.fromkeys(unknown)
    assert lease["problem"] and lease["exclusive"]
    for flags in ((), ("-v",)):
        text = server.berth("status", *flags).stdout
        assert "unreadable record (berth doctor)" in text
        assert not re.search(r"\d{4,}d|pid 0|1970", text)


def test_watch_counts_the_lines_that_do_not_fit(server, jobs):
    server.use(SERVERS / "nvlink8.json")
    output, _ = on_terminal(server, "status", "--watch", "0.1", until=b"LOAD", rows=8)
    assert re.search(r"\.\.\. and \d more lines", output)


def on_terminal(server, *arguments, env=None, columns=80, rows=24, until=None):
    """What berth writes to a real terminal; with `until`, it is interrupted once that has appeared."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen([BERTH, *arguments], env={**server.env, **(env or {})}, stdin=slave,
                               stdout=slave, stderr=slave)
    os.close(slave)
    output = b""
    while select.select([master], [], [], 60)[0]:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
        if until and output.count(until) >= 2:
            process.send_signal(signal.SIGINT)
    os.close(master)
    process.wait()
    return output.decode(), process.returncode


def test_colour_on_a_terminal_only_and_no_color_obeyed(server):
    coloured, _ = on_terminal(server, "status")
    assert "\x1b[32mfree" in coloured
    plain, _ = on_terminal(server, "status", env={"NO_COLOR": "1"})
    assert "\x1b" not in plain and "free" in plain
    dumb, _ = on_terminal(server, "status", env={"TERM": "dumb"})
    assert "\x1b" not in dumb


def test_watch_on_a_terminal_draws_over_itself_and_ends_with_ctrl_c(server):
    output, code = on_terminal(server, "status", "--watch", "0.1", until=b"LOAD")
    assert code == -signal.SIGINT
    assert output.count("\x1b[2J") == 1 and output.count("\x1b[H") >= 2


def test_watch_on_a_dumb_terminal_does_not_draw(server):
    output, _ = on_terminal(server, "status", "--watch", "0.1", env={"TERM": "dumb"}, until=b"LOAD")
    assert "\x1b" not in output


def test_watch_as_json_is_one_document_per_line(server):
    watching = server.start(BERTH, "status", "--json", "--watch", "0.1")
    documents = [json.loads(watching.stdout.readline()) for _ in range(3)]
    assert all(len(document["gpus"]) == 4 for document in documents)


def test_watch_sees_a_gpu_get_lost(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 2}],
                "faults": [{"gpu": 1, "lost": True, "after": "1s"}]})
    watching = server.start(BERTH, "status", "--json", "--watch", "0.1")
    seen = []
    while "lost" not in seen:
        seen.append(states(json.loads(watching.stdout.readline()))[1])
        assert seen[-1] in ("free", "lost")
    assert seen[0] == "free"


def test_topology(server):
    server.use(SERVERS / "nvlink8.json")
    matrix = server.berth("status", "--topology").stdout
    assert re.search(r"GPU0 +X +NV\d+", matrix)
    connections = json.loads(server.berth("status", "--topology", "--json").stdout)["connections"]
    assert len(connections) == 28
    assert all(connection["nvlinks"] > 0 for connection in connections)
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "numa_node": 0, "host_bridge": "x", "pci_switch": "s"},
                         {"name": "A", "memory": "8GiB", "numa_node": 0, "host_bridge": "x", "pci_switch": "s"},
                         {"name": "A", "memory": "8GiB", "numa_node": 0, "host_bridge": "y"},
                         {"name": "A", "memory": "8GiB", "numa_node": 1, "host_bridge": "z"}],
                "nvlink": [{"gpus": [2, 3], "links": 4}]})
    paths = {(c["a"], c["b"]): (c["nvlinks"], c["path"]) for c in
             json.loads(server.berth("status", "--topology", "--json").stdout)["connections"]}
    assert paths[0, 1] == (0, "pcie_switch")
    assert paths[0, 2] == (0, "numa_node")
    assert paths[0, 3] == (0, "system")
    assert paths[2, 3] == (4, "system")


def test_a_topology_that_the_driver_does_not_give_is_not_invented(server):
    def topology(*faults):
        server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 2}], "nvlink": [{"gpus": [0, 1], "links": 2}],
                    "faults": list(faults)})
        return server.berth("status", "--topology", "--json")
    [pair] = json.loads(topology({"call": "nvmlDeviceGetNvLinkState", "gpu": 0, "answer": 999}).stdout)["connections"]
    assert (pair["nvlinks"], pair["path"]) == (None, "numa_node")
    [pair] = json.loads(topology({"gpu": 1, "lost": True}).stdout)["connections"]
    assert pair == {"a": 0, "b": 1, "nvlinks": None, "path": None}
    assert topology({"call": "nvmlDeviceGetCount", "answer": 999}).returncode == 69


def test_a_process_name_with_escape_sequences_is_shown_not_obeyed(server, tmp_path):
    hostile = tmp_path / "hostile.py"
    hostile.write_text("import ctypes, signal\n"
                       "name = b'\\x1b[31m\\nevil\\xff'\n"
                       "libc = ctypes.CDLL(None)\n"
                       "cuda = ctypes.CDLL('libcuda.so.1')\n"
                       "assert cuda.cuInit(0) == 0\n"
                       "context = ctypes.c_void_p()\n"
                       "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
                       "libc.prctl(15, name, 0, 0, 0)\n"
                       "print('ready', flush=True)\n"
                       "signal.pause()\n")
    libraries = ROOT / "build" / "lib" / "sim" if SANITIZED else SIM_LIBRARIES
    process = server.start("/usr/bin/python3", hostile, env={"LD_LIBRARY_PATH": str(libraries)})
    assert process.stdout.readline() == "ready\n"
    for shown in (server.berth("status").stdout, server.berth("status", "-v").stdout):
        assert_fit_for_terminal(shown)
        assert "\\x1b[31m\\nevil\\xff" in shown
    as_json = server.berth("status", "--json").stdout
    assert_fit_for_terminal(as_json)
    assert json.loads(as_json)["gpus"][0]["processes"][0]["name"] == "\x1b[31m\nevil\ufffd"
