"""Which GPUs a request gets, which it may have, and who is next: flags, the caller's environment, the queue."""

import re

import pytest
from conftest import SERVERS, assert_one_line_error
from leasing import eventually, gpus_of, jobs, uuids, variables_of  # noqa: F401

MIXED = {"gpus": [{"name": "NVIDIA GeForce RTX 3090", "memory": "24GiB"},
                  {"name": "NVIDIA RTX A6000", "memory": "48GiB"},
                  {"name": "NVIDIA GeForce RTX 3090", "memory": "24GiB"},
                  {"name": "Tesla T4", "memory": "16GiB"}]}


# By name, size and number.

@pytest.mark.parametrize("flags, got", [
    (["--name", "A6000"], "1"),
    (["--name", "a6000"], "1"),
    (["--name", "rtx a6"], "1"),
    (["--name", "tesla"], "3"),
    (["--name", "3090", "-n", "2"], "0,2"),
    (["--min-mem", "25GiB"], "1"),
    (["--min-mem", "48GiB"], "1"),
    (["--min-mem", "24GiB", "-n", "3"], "0,1,2"),
    (["--min-mem", "24GiB", "--name", "3090", "-n", "2"], "0,2"),
    (["--gpu", "2"], "2"),
    (["--gpu", "0,2"], "0,2"),
    (["--gpu", "2,0"], "0,2"),
    (["--gpu", " 0 , 3 "], "0,3"),
    (["--gpu", "3,1,0", "-n", "3"], "0,1,3"),
    (["--gpu", "0,3", "--name", "tesla", "-n", "1"], "3"),
    (["--gpu=1"], "1"),
    (["-n2", "--name=3090"], "0,2"),
])
def test_only_what_was_asked_for(server, flags, got):
    assert gpus_of(server.use(MIXED), *flags) == got


@pytest.mark.parametrize("limit", ["--max-util", "--max-mem-util"])
def test_a_limit_of_load_leaves_out_mig_instances(server, limit):
    """The driver never tells theirs: who waited for it would wait for ever."""
    server.use(SERVERS / "mig.json")
    assert gpus_of(server, limit, "100", "--gpu", "0:0,3", "-n", "1") == "3"
    for flags in (["--gpu", "0:0"], ["--gpu", "0:0,0:2"]):
        assert_one_line_error(server.berth("run", limit, "100", *flags, "--", "true"), 69, "MIG", "--max-util")


def test_by_uuid_and_by_its_start(server):
    ids = uuids(server.use(MIXED))
    start = next(ids["2"][:n] for n in range(5, 40) if not any(
        uuid.startswith(ids["2"][:n]) for index, uuid in ids.items() if index != "2"))
    assert gpus_of(server, "--gpu", ids["2"]) == "2"
    assert gpus_of(server, "--gpu", start) == "2"
    assert gpus_of(server, "--gpu", ids["2"].upper()) == "2"
    assert gpus_of(server, "--gpu", f"{ids['3']},{start},0") == "0,2,3"


def test_a_start_that_two_uuids_have_is_refused(server):
    server.use({"gpus": [{"memory": "8GiB", "uuid": f"GPU-aaaaaaaa-0000-0000-0000-00000000000{i}"} for i in (1, 2)]})
    assert_one_line_error(server.berth("run", "--gpu", "GPU-aaaa", "--", "true"), 64, "'GPU-aaaa'", "0,1")


def test_a_number_with_several_names_means_so_many_of_them(server, jobs):
    jobs.hold("--gpu", "1")
    assert gpus_of(server, "--gpu", "1,2", "-n", "1") == "2"


@pytest.mark.parametrize("flags, code, words", [
    (["--gpu", "4"], 69, ["GPU 4", "0 to 3"]),
    (["--gpu", "GPU-00000000"], 69, ["'GPU-00000000'"]),
    (["--gpu", "99999999999999999999"], 69, ["GPU 999999"]),
    (["--gpu", "0,0"], 64, ["twice"]),
    (["--gpu", "0,"], 64, ["empty"]),
    (["--gpu", ""], 64, ["empty"]),
    (["--gpu", "-1"], 64, []),
    (["--gpu", "one"], 64, ["'one'"]),
    (["--gpu", "GPU-"], 64, ["'GPU-'"]),
    (["--gpu", "0,1", "-n", "3"], 64, ["--count", "3 GPUs", "--gpu", " 2"]),
    (["--name", "H100"], 69, ["'H100'", "NVIDIA RTX A6000 (48 GiB)"]),
    (["--name", "3090", "-n", "3"], 69, ["'3090'", "3 GPUs", " 2"]),
    (["--min-mem", "80GiB"], 69, ["80 GiB"]),
    (["--mem", "49GiB"], 69, ["49 GiB", "48 GiB"]),
    (["--name", "3090", "--mem", "25GiB"], 69, ["25 GiB", "24 GiB"]),
    (["-n", "5"], 69, ["5 GPUs", " 4"]),
    (["--gpu", "0,2", "--name", "tesla"], 69, ["'tesla'"]),
])
def test_what_cannot_be_had_is_refused_at_once(server, jobs, flags, code, words):
    server.use(MIXED)
    jobs.hold("-n", "4")  # refused, and not kept waiting
    assert_one_line_error(server.berth("run", *flags, "--", "true"), code, *words)
    assert server.status()["queue"] == []


# By what a GPU is doing.

def test_max_util(server):
    server.use({"gpus": [{"memory": "24GiB", "count": 2}],
                "strangers": [{"gpu": 0, "type": "graphics", "memory": "1GiB", "utilization": 60}]})
    assert gpus_of(server, "--max-util", "60", "--gpu", "0") == "0"
    assert gpus_of(server, "--max-util", "59") == "1"
    result = server.berth("run", "--max-util", "59", "--gpu", "0", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "GPU 0", "busy", " 60")


def test_max_mem_util(server):
    server.use({"gpus": [{"memory": "24GiB", "count": 2}],
                "strangers": [{"gpu": 1, "type": "graphics", "memory": "1GiB", "utilization": 90}]})
    limit = server.status()["gpus"][1]["memory_utilization_pct"]
    assert limit > 0
    assert gpus_of(server, "--max-mem-util", str(limit), "--gpu", "1") == "1"
    result = server.berth("run", "--max-mem-util", str(limit - 1), "--gpu", "1", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "GPU 1", "busy", f" {limit}")


def test_a_load_that_the_driver_does_not_tell_is_above_every_limit(server):
    server.use({"gpus": [{"memory": "24GiB"}], "faults": [{"call": "nvmlDeviceGetUtilizationRates", "answer": 3}]})
    assert gpus_of(server) == "0"
    result = server.berth("run", "--max-util", "100", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "unknown")


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_a_waiter_starts_when_the_load_falls(server, jobs):
    server.use({"gpus": [{"memory": "24GiB"}], "strangers": [
        {"gpu": 0, "type": "graphics", "memory": "1GiB", "utilization": 60, "until": "3s"}]})
    waiter = jobs.run("--max-util", "20")
    assert waiter.gpus() == "0"


def test_max_processes(server):
    server.use({"gpus": [{"memory": "24GiB", "count": 2}],
                "strangers": [{"gpu": 0, "pid": 5000001, "name": "one", "memory": "1GiB"},
                              {"gpu": 1, "pid": 5000002, "name": "two", "memory": "1GiB"},
                              {"gpu": 1, "pid": 5000003, "name": "three", "memory": "1GiB"}]})
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, "one", "two", "three")
    assert gpus_of(server, "--max-processes", "1") == "0"
    assert gpus_of(server, "--max-processes", "2", "-n", "2") == "0,1"
    assert gpus_of(server, "--max-processes", "2", "--mem", "21GiB", "-n", "2") == "0,1"
    result = server.berth("run", "--max-processes", "2", "--mem", "22GiB", "-n", "2", "--no-wait", "--", "true")
    assert_one_line_error(result, 75, "memory")  # 2 GiB and the margin are taken on GPU 1


# Several GPUs, and which of those that would do.

def test_several_gpus_are_the_best_connected(server, jobs):
    server.use(SERVERS / "nvlink8.json")  # links between all; the NUMA nodes are 0 to 3 and 4 to 7
    first = jobs.hold("--gpu", "1")
    assert gpus_of(server, "-n", "2") in ("0,2", "0,3", "2,3", "4,5", "4,6", "4,7", "5,6", "5,7", "6,7")
    assert gpus_of(server, "-n", "4") == "4,5,6,7"
    first.end()
    eventually(lambda: gpus_of(server, "-n", "4") == "0,1,2,3", "the first of equal sets")


def test_nvlink_comes_before_the_numa_node(server):
    server.use({"gpus": [{"memory": "24GiB", "count": 2, "numa_node": 0},
                         {"memory": "24GiB", "count": 2, "numa_node": 1}],
                "nvlink": [{"gpus": [1, 2], "links": 4}]})
    assert gpus_of(server, "-n", "2") == "1,2"


def test_the_same_switch_comes_before_the_same_node(server):
    server.use({"gpus": [{"memory": "24GiB", "host_bridge": 0, "pci_switch": 0},
                         {"memory": "24GiB", "host_bridge": 0, "pci_switch": 1},
                         {"memory": "24GiB", "host_bridge": 0, "pci_switch": 2},
                         {"memory": "24GiB", "host_bridge": 0, "pci_switch": 1}]})
    assert gpus_of(server, "-n", "2") == "1,3"


def test_spread_takes_the_emptiest(server, jobs):
    server.use("3x24GiB")
    jobs.hold("--mem", "8GiB", "--gpu", "0")
    jobs.hold("--mem", "2GiB", "--gpu", "1")
    assert gpus_of(server, "--mem", "1GiB") == "2"
    jobs.hold("--mem", "4GiB", "--gpu", "2")
    assert gpus_of(server, "--mem", "1GiB", "--policy", "spread") == "1"


def test_pack_takes_the_fullest_that_fits(server, jobs):
    server.use("3x24GiB")
    jobs.hold("--mem", "20GiB", "--gpu", "1")
    jobs.hold("--mem", "2GiB", "--gpu", "2")
    assert gpus_of(server, "--mem", "3GiB", "--policy", "pack") == "1"
    assert gpus_of(server, "--mem", "4GiB", "--policy", "pack") == "2"  # 20 + 4 leaves no margin
    assert gpus_of(server, "--mem", "23GiB", "--policy", "pack") == "0"


def test_random_takes_any(server):
    server.use("4x24GiB")
    seen = set()
    for _ in range(64):  # all on one GPU: once in 4^63
        seen.add(gpus_of(server, "--policy", "random"))
        if len(seen) > 1:
            break
    assert len(seen) > 1
    assert seen <= {"0", "1", "2", "3"}


def test_the_card_with_the_display_is_taken_last(server, jobs):
    server.use({"gpus": [{"memory": "24GiB", "display": True}, {"memory": "24GiB"}]})
    assert jobs.hold().gpus() == "1"
    assert jobs.hold().gpus() == "0"


# The caller's own CUDA_VISIBLE_DEVICES.

@pytest.mark.parametrize("value, flags, got", [
    ("2", [], "2"),
    ("3,1", ["-n", "2"], "1,3"),
    ("2,3", ["--gpu", "3"], "3"),
    ("1,-1,0", [], "1"),
    ("3,nonsense,0", [], "3"),
])
def test_the_callers_variable_restricts(server, value, flags, got):
    assert gpus_of(server.use("4x24GiB"), *flags, env={"CUDA_VISIBLE_DEVICES": value}) == got


def test_the_callers_variable_may_name_uuids(server):
    ids = uuids(server.use("4x24GiB"))
    assert gpus_of(server, env={"CUDA_VISIBLE_DEVICES": ids["3"]}) == "3"
    assert gpus_of(server, "-n", "2", env={"CUDA_VISIBLE_DEVICES": f"{ids['3']},{ids['1']}"}) == "1,3"


def test_the_callers_variable_is_replaced_in_the_job(server):
    variables = variables_of(server.use("4x24GiB"), env={"CUDA_VISIBLE_DEVICES": "3,2",
                                                         "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
                                                         "NVIDIA_VISIBLE_DEVICES": "all"})
    assert variables["CUDA_VISIBLE_DEVICES"] == variables["BERTH_GPUS"] == "2"
    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == uuids(server)["2"]


@pytest.mark.parametrize("value, flags, words", [
    ("", [], ["CUDA_VISIBLE_DEVICES=''", "empty"]),
    ("-1", [], ["'-1'"]),
    ("NoDevFiles", [], ["'NoDevFiles'"]),
    ("7", [], ["'7'"]),
    ("0,0", [], ["GPU 0", "twice"]),
    ("0", ["--gpu", "1"], ["--gpu", "CUDA_VISIBLE_DEVICES"]),
    ("0", ["-n", "2"], ["2 GPUs"]),
    ("0", ["--gpu", "0,1"], ["2 GPUs"]),
    ("\x1b[31m\n", [], ["CUDA_VISIBLE_DEVICES"]),
])
def test_a_variable_that_leaves_too_little_is_refused(server, value, flags, words):
    result = server.use("4x24GiB").berth("run", *flags, "--", "true", env={"CUDA_VISIBLE_DEVICES": value})
    assert_one_line_error(result, 69, *words)


@pytest.mark.each_harbour
def test_a_waiter_within_the_callers_variable(server, jobs):
    """What is free elsewhere is not for it; it waits for its own."""
    server.use("2x24GiB")
    holder = jobs.hold("--gpu", "0")
    waiter = jobs.wait(env={"CUDA_VISIBLE_DEVICES": "0"})
    assert "GPU 0" in waiter.err and "GPU 1" not in waiter.err
    holder.end()
    assert waiter.gpus() == "0"


# The order of the queue.

def starts(path):
    return path.read_text().split() if path.exists() else []


def logging_job(path, name):
    return ["sh", "-c", f"echo {name} >> {path}; read -r line"]


@pytest.mark.each_harbour
def test_first_come_first_served(server, jobs):
    log = server.folder / "starts"
    server.use("1x24GiB")
    holder = jobs.hold()
    waiting = []
    for name in "abc":
        waiting.append(jobs.run("--label", name, command=logging_job(log, name)))
        assert f"position {len(waiting)} of {len(waiting)}" in waiting[-1].waits()
    holder.end()
    for i, job in enumerate(waiting):
        eventually(lambda: len(starts(log)) == i + 1, "the next start")
        assert starts(log) == list("abc"[:i + 1])
        job.end()


@pytest.mark.each_harbour
def test_a_wide_request_is_not_starved_by_narrow_ones(server, jobs):
    server.use("2x24GiB")
    log = server.folder / "starts"
    holder = jobs.hold("--gpu", "0")
    wide = jobs.run("-n", "2", "--label", "wide", command=logging_job(log, "wide"))
    assert re.search(r"2 GPUs, 1 .*; GPU 0 leased ", wide.waits())
    narrow = [jobs.run(command=logging_job(log, f"narrow{i}")) for i in range(3)]
    for job in narrow:
        assert "ticket" in job.waits()
    assert starts(log) == []  # though GPU 1 is free all the time
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, "ticket")
    holder.end()
    eventually(lambda: starts(log), "a start")
    assert starts(log) == ["wide"]
    for job in narrow:
        job.waits()
    wide.end()
    eventually(lambda: len(starts(log)) == 3, "the narrow ones")
    assert len([one for one in narrow if one.runs]) == 3


@pytest.mark.each_harbour
def test_gaps_are_filled_by_who_ends_in_time(server, jobs):
    server.use("2x24GiB")
    jobs.hold("--gpu", "0", "--time", "1h")
    wide = jobs.wait("-n", "2")
    assert re.search(r"\b\d+[hm]\b", wide.err)
    assert_one_line_error(server.berth("run", "--no-wait", "--", "true"), 75, "ticket")
    assert_one_line_error(server.berth("run", "--time", "2h", "--no-wait", "--", "true"), 75, "ticket")
    assert gpus_of(server, "--time", "30m", "--no-wait") == "1"


@pytest.mark.each_harbour
def test_a_gpu_that_the_first_ticket_cannot_use_is_given(server, jobs):
    server.use(MIXED)
    jobs.hold("--name", "a6000")
    jobs.wait("--name", "a6000")
    assert gpus_of(server, "--name", "tesla", "--no-wait") == "3"
    assert gpus_of(server, "--no-wait") == "0"


@pytest.mark.each_harbour
def test_who_leaves_the_queue_lets_the_next_pass(server, jobs):
    server.use("2x24GiB")
    jobs.hold("--gpu", "0")
    wide = jobs.wait("-n", "2")
    narrow = jobs.wait()
    wide.process.kill()
    assert narrow.gpus() == "1"
