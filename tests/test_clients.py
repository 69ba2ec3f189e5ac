"""Programs that nobody here wrote list the simulated cards, memory and processes: nvidia-ml-py, gpustat,
nvitop and nvtop. Where they and `berth status` speak of the same thing, they say the same.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
from conftest import BUILD, ROOT, SERVERS, SIM_LIBRARIES

pytestmark = pytest.mark.release_only

MIB = 1024**2
GIB = 1024**3
NO_INSTANCE = 0xFFFFFFFF
NAME = "Simulated 24 GiB GPU"  # of the cards of 4x24GiB
PROGRAMS = pathlib.Path(sys.executable).parent
REPORT = ROOT / "tests" / "tools" / "pynvml_report.py"
OLD_LIBRARIES = SIM_LIBRARIES.with_name("sim-r418")  # without the symbols that came after branch 418

every_server = pytest.mark.parametrize("path", sorted(SERVERS.glob("*.json")), ids=lambda path: path.stem)


def run_client(server, *command, libraries=SIM_LIBRARIES, env=None):
    return server.run(*command, env={"LD_LIBRARY_PATH": str(libraries), **(env or {})})


def output_of(server, *command, **options):
    """What a client prints; it must succeed, and complain of nothing."""
    result = run_client(server, *command, **options)
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


def pynvml_report(server, **options):
    return json.loads(output_of(server, sys.executable, REPORT, **options))


def nvitop_one_shot(server, **options):
    """`nvitop -1`, without colours: its panel of cards, and its panel of processes."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output_of(server, PROGRAMS / "nvitop", "-1", **options))
    assert "Traceback" not in text and "FunctionNotFound" not in text
    cards, processes = text.split("Processes:")
    return cards, processes


def whole_cards(status):
    """The cards in `berth status --json`; in place of a card cut into MIG instances, None."""
    by_index = {gpu["index"]: gpu for gpu in status["gpus"]}
    last = max(int(str(index).split(":")[0]) for index in by_index)
    return [by_index.get(index) for index in range(last + 1)]


def process(pid, memory, instances=(NO_INSTANCE, NO_INSTANCE)):
    """An entry of nvidia-ml-py's process lists."""
    return {"pid": pid, "usedGpuMemory": memory, "gpuInstanceId": instances[0],
            "computeInstanceId": instances[1]}


# nvidia-ml-py


def test_pynvml_and_berth_say_the_same(server):
    job = server.use("4x24GiB").start_job("--mem", "3GiB", "--util", "60", gpu=1)
    report = pynvml_report(server)
    status = server.status()
    assert report["driver"] == status["driver"] == "570.86.15"
    assert report["cuda"] == 12080
    assert len(report["cards"]) == 4
    for card, gpu in zip(report["cards"], status["gpus"], strict=True):
        assert (card["index"], card["uuid"], card["name"]) == (gpu["index"], gpu["uuid"], gpu["name"])
        assert card["memory"]["total"] == card["memory_v2"]["total"] == gpu["memory_total_mib"] * MIB
        assert card["memory_v2"]["used"] == gpu["memory_used_mib"] * MIB
        assert card["utilization"] == {"gpu": gpu["utilization_pct"], "memory": gpu["memory_utilization_pct"]}
        assert card["temperature"] == card["temperature_v"] == gpu["temperature_c"]
        assert card["power_mw"] == gpu["power_w"] * 1000 <= card["power_limit_mw"]
        assert card["performance_state"] == gpu["performance_state"]
        assert [entry["pid"] for entry in card["compute"]] == [entry["pid"] for entry in gpu["processes"]]
    idle, busy = report["cards"][:2]
    assert (idle["name"], idle["compute"], idle["utilization"]["gpu"]) == (NAME, [], 0)
    assert idle["memory"] == {"total": 24 * GIB, "free": 24 * GIB, "used": 0}
    assert busy["memory"] == {"total": 24 * GIB, "free": 21 * GIB, "used": 3 * GIB}
    assert busy["utilization"]["gpu"] == 60
    assert busy["compute"] == busy["compute_v2"] == [process(job.pid, 3 * GIB)]
    assert busy["details"] == [{**process(job.pid, 3 * GIB), "usedGpuCcProtectedMemory": 0}]
    assert (busy["graphics"], busy["mps"]) == ([], [])


def test_pynvml_finds_a_card_in_each_way(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "pci": "0000:3B:00.0"},
                         {"name": "B", "memory": "8GiB", "pci": "0001:AF:00.0"}]})
    report = pynvml_report(server)
    for index, card in enumerate(report["cards"]):
        assert card["index"] == card["index_by_uuid"] == card["minor"] == index
        assert card["uuid_by_pci"] == card["uuid"]
    pci = report["cards"][1]["pci"]
    assert (pci["busId"], pci["busIdLegacy"]) == ("00000001:AF:00.0", "0001:AF:00.0")
    assert (pci["domain"], pci["bus"], pci["device"]) == (1, 0xAF, 0)
    assert pci["pciDeviceId"] & 0xFFFF == 0x10DE, "NVIDIA's vendor number"
    assert report["after_the_last"] == "NVMLError_InvalidArgument"
    assert report["after_shutdown"] == "NVMLError_Uninitialized"


def test_pynvml_memory_with_and_without_what_the_driver_keeps(server):
    """v1 counts the driver's own memory as used, v2 does not; a bare version number is refused."""
    server.use({"gpus": [{"name": "A", "memory": "24GiB", "reserved_memory": "1GiB"}],
                "strangers": [{"gpu": 0, "name": "job", "memory": "5GiB"}]})
    [card] = pynvml_report(server)["cards"]
    assert card["memory"] == {"total": 24 * GIB, "free": 18 * GIB, "used": 6 * GIB}
    assert card["memory_v2"] == {"version": 0x02000028, "total": 24 * GIB, "reserved": GIB, "free": 18 * GIB,
                                 "used": 5 * GIB}
    assert card["memory_version_2"] == "NVMLError_FunctionNotFound"


def test_pynvml_tells_the_three_lists_apart(server):
    server.use({"gpus": [{"name": "A", "memory": "24GiB"}],
                "strangers": [{"gpu": 0, "pid": 5000001, "name": "one", "memory": "1GiB", "type": "compute"},
                              {"gpu": 0, "pid": 5000002, "name": "two", "memory": "2GiB", "type": "graphics"},
                              {"gpu": 0, "pid": 5000003, "name": "three", "memory": None, "type": "mps"},
                              {"gpu": 0, "pid": 5000004, "name": "four", "memory": "4GiB", "hidden": True}]})
    [card] = pynvml_report(server)["cards"]
    assert card["compute"] == [process(5000001, GIB)]
    assert card["graphics"] == [process(5000002, 2 * GIB)]
    assert card["mps"] == [process(5000003, None)]
    assert card["memory"]["used"] == 7 * GIB


def test_pynvml_sees_links_through_switches(server):
    cards = pynvml_report(server.use(SERVERS / "nvlink8.json"))["cards"]
    own = {card["pci"]["busId"] for card in cards}
    assert [len(card["links"]) for card in cards] == [18] * 8
    assert all(not own & set(card["links"]) for card in cards), "the far ends are switches"
    assert len({end for card in cards for end in card["links"]}) == 4
    same_node, other_node = 40, 50  # NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM
    for index, card in enumerate(cards):
        levels = [same_node if index // 4 == other // 4 else other_node for other in range(8)]
        assert card["topology"] == [0 if other == index else level for other, level in enumerate(levels)]


def test_pynvml_sees_links_between_cards(server):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 3}],
                "nvlink": [{"gpus": [0, 2], "links": 4}]})
    cards = pynvml_report(server)["cards"]
    bus = [card["pci"]["busId"] for card in cards]
    assert [card["links"] for card in cards] == [[bus[2]] * 4, [], [bus[0]] * 4]


def test_pynvml_sees_mig_instances(server):
    server.use(SERVERS / "mig.json")
    cards = pynvml_report(server)["cards"]
    assert [card["mig_mode"] for card in cards[:3]] == [[1, 1]] * 3
    assert cards[3]["mig_mode"] in ([0, 0], "NVMLError_NotSupported")
    assert cards[3]["instances"] == []
    by_berth = {gpu["index"]: gpu for gpu in server.status()["gpus"]}
    found = {f"{card['index']}:{place}": instance for card in cards
             for place, instance in enumerate(card["instances"]) if instance != "NVMLError_NotFound"}
    assert list(found) == [index for index in by_berth if isinstance(index, str)] == [
        "0:0", "0:2", "0:3", "0:4", "1:0", "1:1"], "an index without an instance is passed over"
    for index, instance in found.items():
        gpu = by_berth[index]
        assert (instance["uuid"], instance["name"]) == (gpu["uuid"], gpu["name"])
        assert instance["memory"]["total"] == gpu["memory_total_mib"] * MIB
        assert instance["parent"] == cards[int(index[0])]["uuid"]
        assert instance["is_instance"] == 1
        assert instance["utilization"] == "NVMLError_NotSupported"
    stranger = process(5000001, 12 * GIB, (found["1:0"]["gpu_instance"], 0))
    assert found["1:0"]["compute"] == cards[1]["compute"] == [stranger]
    assert found["1:1"]["compute"] == cards[0]["compute"] == []
    assert found["1:0"]["memory"]["used"] == 12 * GIB
    assert found["1:0"]["gpu_instance"] != found["1:1"]["gpu_instance"]


def test_pynvml_on_a_sick_server(server):
    lost, mute, hot, unified, zombie, mps = pynvml_report(server.use(SERVERS / "sick.json"))["cards"]
    assert lost == "NVMLError_GpuIsLost"
    assert mute["utilization"] == mute["power_mw"] == "NVMLError_NotSupported"
    assert mute["compute"] == [process(5000001, None)]
    assert hot["temperature"] == "NVMLError_Unknown"
    assert unified["memory"] == unified["memory_v2"] == "NVMLError_NotSupported"
    assert (zombie["compute"], zombie["memory_v2"]["used"]) == ([], 31 * GIB)
    assert mps["mps"] == [process(5000003, 30 * MIB)]


def test_pynvml_sees_a_card_get_lost(server):
    """A handle that was good answers "lost" from then on."""
    server.use({"gpus": [{"name": "A", "memory": "8GiB", "count": 2}],
                "faults": [{"gpu": 1, "lost": True, "after": "1s"}]})
    watch = ("import pynvml as nvml\n"
             "nvml.nvmlInit()\n"
             "devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]\n"
             "print(len(devices), flush=True)\n"
             "try:\n"
             "    while True: nvml.nvmlDeviceGetMemoryInfo(devices[1])\n"
             "except nvml.NVMLError_GpuIsLost as error: print(error)\n"
             "print(nvml.nvmlDeviceGetName(devices[0]))\n")
    assert output_of(server, sys.executable, "-c", watch).splitlines() == ["2", "GPU is lost", "A"]


def test_pynvml_without_a_driver(server):
    server.env.pop("BERTH_SIM")
    assert pynvml_report(server) == {"error": "NVMLError_DriverNotLoaded", "words": "Driver Not Loaded"}


# What nvidia-ml-py can get from drivers of each age: (its plain list, the list of the second version,
# memory of the second version). It knows no list older than the second version.
AGES = {
    "418.87.01": ("NVMLLibraryMismatchError", "NVMLError_FunctionNotFound", "NVMLError_FunctionNotFound"),
    "470.82.01": ("NVMLLibraryMismatchError", "right", "NVMLError_FunctionNotFound"),
    "525.60.13": ("right", "right", "right"),
    "535.54.03": ("misread", "right", "right"),
    "535.98": ("NVMLLibraryMismatchError", "right", "right"),
    "535.104.05": ("right", "right", "right"),
    "570.86.15": ("right", "right", "right"),
}


def in_words(processes, expected):
    """What became of a process list: right, misread, or the exception."""
    if isinstance(processes, str):
        return processes
    assert (len(processes), processes[0]) == (len(expected), expected[0])
    return "right" if processes == expected else "misread"


# The other clients choose by the symbols that a library has, not by what calls answer; so the stand-in,
# which has them all, can show them only the ages that had them all.
COMPLETE_AGES = [version for version, (plain, _, _) in AGES.items() if plain in ("right", "misread")]


@pytest.mark.parametrize("libraries, version", [*[(SIM_LIBRARIES, version) for version in AGES],
                                                (OLD_LIBRARIES, "418.87.01")],
                         ids=lambda value: value if isinstance(value, str) else value.name)
def test_pynvml_on_drivers_of_every_age(server, libraries, version):
    """A call that a driver does not have is missed alike if its symbol is there and if it is not."""
    server.use({"driver_version": version, "gpus": [{"name": "A", "memory": "24GiB", "count": 2}],
                "strangers": [{"gpu": 1, "pid": 5000001 + i, "name": "job", "memory": f"{i + 1}GiB"}
                              for i in range(3)]})
    report = pynvml_report(server, libraries=libraries)
    idle, busy = report["cards"]
    plain, second, memory = AGES[version]
    expected = [process(5000001 + i, (i + 1) * GIB) for i in range(3)]
    assert report["driver"] == version
    assert in_words(busy["compute"], expected) == plain
    assert in_words(busy["compute_v2"], expected) == second
    assert busy["memory"]["used"] == 6 * GIB
    assert (busy["memory_v2"] if isinstance(busy["memory_v2"], str) else "right") == memory
    assert idle["compute"] == ([] if plain in ("right", "misread") else plain)
    assert busy["temperature"] == 35


# gpustat


def test_gpustat_as_json(server):
    job = server.use("4x24GiB").start_job("--mem", "3GiB", "--util", "60", gpu=1)
    stat = json.loads(output_of(server, PROGRAMS / "gpustat", "--json"))
    status = server.status()
    assert stat["driver_version"] == status["driver"]
    for card, gpu in zip(stat["gpus"], status["gpus"], strict=True):
        assert (card["index"], card["uuid"], card["name"]) == (gpu["index"], gpu["uuid"], gpu["name"])
        assert (card["memory.total"], card["memory.used"]) == (gpu["memory_total_mib"], gpu["memory_used_mib"])
        assert card["utilization.gpu"] == gpu["utilization_pct"]
        assert card["temperature.gpu"] == gpu["temperature_c"]
        assert card["power.draw"] == gpu["power_w"] <= card["enforced.power.limit"]
        assert [(p["pid"], p["username"], p["gpu_memory_usage"]) for p in card["processes"]] == [
            (p["pid"], p["user"], p["memory_mib"]) for p in gpu["processes"]]
    [entry] = stat["gpus"][1]["processes"]
    assert (entry["pid"], entry["command"], entry["gpu_memory_usage"]) == (job.pid, "berth-sim-job", 3072)


def test_gpustat_as_text(server):
    job = server.use("4x24GiB").start_job("--mem", "3GiB", gpu=1)
    lines = output_of(server, PROGRAMS / "gpustat", "--no-color", "--show-pid", "--show-cmd").splitlines()
    assert len(lines) == 5
    assert re.search(rf"^\[0\] {NAME} .* 0 / 24576 MB \|$", lines[1].rstrip())
    assert re.search(rf"^\[1\] {NAME} .* 3072 / 24576 MB \|.*berth-sim-job/{job.pid}\(3072M\)", lines[2])


@every_server
def test_gpustat_lists_every_server(server, path):
    server.use(path)
    stat = json.loads(output_of(server, PROGRAMS / "gpustat", "--json"))
    for card, gpu in zip(stat["gpus"], whole_cards(server.status()), strict=True):
        if gpu is None:
            assert card["uuid"].startswith("GPU-") and card["utilization.gpu"] is None
        elif gpu["state"] == "lost":
            assert card["name"] == "((GPU is lost))"
        else:
            assert (card["uuid"], card["name"]) == (gpu["uuid"], gpu["name"])
            # The driver has no memory to show of a GPU that uses the host's; berth shows the host's.
            assert card["memory.used"] == (None if path.stem == "spark" else gpu["memory_used_mib"])
            assert card["utilization.gpu"] == gpu["utilization_pct"]


@pytest.mark.parametrize("version", COMPLETE_AGES)
def test_gpustat_on_drivers_of_every_age(server, version):
    server.use({"driver_version": version, "gpus": [{"name": "A", "memory": "24GiB", "count": 2}]})
    server.start_job("--mem", "3GiB", gpu=1)
    stat = json.loads(output_of(server, PROGRAMS / "gpustat", "--json"))
    assert [card["memory.used"] for card in stat["gpus"]] == [0, 3072]


def test_gpustat_without_a_driver(server):
    server.env.pop("BERTH_SIM")
    result = run_client(server, PROGRAMS / "gpustat")
    assert result.returncode == 1
    assert "Driver Not Loaded" in result.stderr


# nvitop

NVITOP = """
import json, nvitop
def card(device):
    return {"index": device.index, "uuid": device.uuid(), "name": device.name(), "bus_id": device.bus_id(),
            "memory_total": device.memory_total(), "memory_used": device.memory_used(),
            "utilization": device.gpu_utilization(), "temperature": device.temperature(),
            "power_mw": device.power_usage(), "performance_state": device.performance_state(),
            "instances": [card(instance) for instance in device.mig_devices()]
                         if isinstance(device, nvitop.PhysicalDevice) else None,
            "processes": {pid: {"memory": process.gpu_memory(), "type": process.type,
                                "utilization": process.gpu_sm_utilization(), "command": process.command()}
                          for pid, process in device.processes().items()}}
with nvitop.GpuProcess.failsafe():  # strangers have no real process
    print(json.dumps({"driver": nvitop.Device.driver_version(), "cuda": nvitop.Device.cuda_driver_version(),
                      "cards": [card(device) for device in nvitop.Device.all()]}))
"""


def test_nvitop_in_python(server):
    job = server.use("4x24GiB").start_job("--mem", "3GiB", "--util", "60", gpu=1)
    report = json.loads(output_of(server, sys.executable, "-c", NVITOP))
    status = server.status()
    assert (report["driver"], report["cuda"]) == (status["driver"], "12.8")
    for card, gpu in zip(report["cards"], status["gpus"], strict=True):
        assert (card["index"], card["uuid"], card["name"]) == (gpu["index"], gpu["uuid"], gpu["name"])
        assert card["memory_total"] == gpu["memory_total_mib"] * MIB
        assert card["memory_used"] == gpu["memory_used_mib"] * MIB
        assert (card["utilization"], card["temperature"]) == (gpu["utilization_pct"], gpu["temperature_c"])
        assert card["performance_state"] == f"P{gpu['performance_state']}"
        assert list(card["processes"]) == [str(entry["pid"]) for entry in gpu["processes"]]
    entry = report["cards"][1]["processes"][str(job.pid)]
    assert entry["command"].endswith("berth-sim-job --mem 3GiB --util 60")
    assert (entry["memory"], entry["type"], entry["utilization"]) == (3 * GIB, "C", 60)


def test_nvitop_in_python_on_mig_instances(server):
    """Of each card, those before the first index without an instance: there nvitop stops looking."""
    server.use(SERVERS / "mig.json")
    cards = json.loads(output_of(server, sys.executable, "-c", NVITOP))["cards"]
    found = {":".join(map(str, instance["index"])): instance for card in cards for instance in card["instances"]}
    gpus = {gpu["index"]: gpu for gpu in server.status()["gpus"]}
    assert list(found) == ["0:0", "1:0", "1:1"]
    for index, instance in found.items():
        assert (instance["uuid"], instance["name"]) == (gpus[index]["uuid"], gpus[index]["name"])
        assert instance["memory_total"] == gpus[index]["memory_total_mib"] * MIB
        assert instance["memory_used"] == gpus[index]["memory_used_mib"] * MIB
    assert found["1:0"]["processes"]["5000001"]["memory"] == 12 * GIB


def test_nvitop_speaks_to_the_cuda_driver(server):
    server.use("4x24GiB")
    script = ("import json; from nvitop import libcuda as cuda\n"
              "cuda.cuInit()\n"
              "devices = [cuda.cuDeviceGet(i) for i in range(cuda.cuDeviceGetCount())]\n"
              "print(json.dumps([cuda.cuDriverGetVersion(), [[cuda.cuDeviceGetName(d), cuda.cuDeviceGetUuid(d),"
              "      cuda.cuDeviceGetPCIBusId(d)] for d in devices]]))\n")
    version, devices = json.loads(output_of(server, sys.executable, "-c", script,
                                            env={"CUDA_VISIBLE_DEVICES": "3,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    assert version == "12.8"
    gpus = server.status()["gpus"]
    assert [name for name, _, _ in devices] == [NAME, NAME]
    assert [uuid.removeprefix("GPU-") for _, uuid, _ in devices] == [
        gpus[index]["uuid"].removeprefix("GPU-") for index in (3, 1)]
    assert [bus for _, _, bus in devices] == ["0000:04:00.0", "0000:02:00.0"]


def test_nvitop_one_shot(server):
    job = server.use("4x24GiB").start_job("--mem", "3GiB", "--util", "60", gpu=1)
    cards, processes = nvitop_one_shot(server)
    assert re.findall(r"(\S+) / 24.00GiB", cards) == ["0B", "3072MiB", "0B", "0B"]
    assert re.findall(r"(\d+)% +Default", cards) == ["0", "60", "0", "0"]
    assert re.findall(r"00000000:0\d:00.0", cards) == [f"00000000:0{n}:00.0" for n in range(1, 5)]
    assert re.search(rf"  1 +{job.pid} C +\S+ +3072MiB +60 ", processes)


@every_server
def test_nvitop_one_shot_lists_every_server(server, path):
    server.use(path)
    cards, processes = nvitop_one_shot(server)
    gpus = whole_cards(server.status())
    rows = re.findall(r"^│ +(\d+)  (\S.*?) +(?:Off|On|N/A) │", cards, re.MULTILINE)
    assert [int(index) for index, _ in rows] == list(range(len(gpus)))
    for (_, name), gpu in zip(rows, gpus, strict=True):
        if gpu is not None:
            assert name == ("ERROR: GPU is Lost" if gpu["state"] == "lost" else gpu["name"].removeprefix("NVIDIA "))
    listed = [str(entry["pid"]) for gpu in server.status()["gpus"] for entry in gpu["processes"]]
    without_mps = [pid for pid in listed if (path.stem, pid) != ("sick", "5000003")]  # it asks two lists only
    assert re.findall(r"\b50000\d\d\b", processes) == without_mps


@pytest.mark.parametrize("libraries, version", [*[(SIM_LIBRARIES, version) for version in COMPLETE_AGES],
                                                (OLD_LIBRARIES, "418.87.01")],
                         ids=lambda value: value if isinstance(value, str) else value.name)
def test_nvitop_one_shot_on_drivers_of_every_age(server, libraries, version):
    server.use({"driver_version": version, "gpus": [{"name": "A", "memory": "24GiB", "count": 2}]})
    job = server.start_job("--mem", "3GiB", gpu=1)
    cards, processes = nvitop_one_shot(server, libraries=libraries)
    assert re.findall(r"(\S+) / 24.00GiB", cards) == ["0B", "3072MiB"]
    assert re.search(rf"  1 +{job.pid} C +\S+ +3072MiB ", processes)


def test_nvitop_without_a_driver(server):
    server.env.pop("BERTH_SIM")
    result = run_client(server, PROGRAMS / "nvitop", "-1")
    assert result.returncode == 1
    assert "Driver Not Loaded" in result.stderr


# nvtop, which is not in the main section of Debian


def debian_source(apt=pathlib.Path("/etc/apt")):
    """This machine's own apt source of its Debian release, as the fields of a .sources file; else None."""
    codename = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)
    if codename is None:
        return None
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            stanza = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE))
            if (codename[1] in fields.get("Suites", "").split() and "main" in fields.get("Components", "").split()
                    and fields.get("Enabled", "yes") != "no"):
                return {**fields, "Types": "deb", "Suites": codename[1]}
    for path in sorted(apt.glob("sources.list")) + sorted(apt.glob("sources.list.d/*.list")):
        for options, uri in re.findall(rf"^deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+{codename[1]}\s+(?=.*\bmain\b)",
                                       path.read_text(), re.MULTILINE):
            signed_by = re.search(r"signed-by=(\S+)", options)
            return {"Types": "deb", "URIs": uri, "Suites": codename[1],
                    **({"Signed-By": signed_by[1]} if signed_by else {})}
    return None


def fetch_nvtop(folder):
    """Unpacks Debian's nvtop from its contrib section into `folder`; the machine itself stays as it is."""
    source = debian_source()
    if source is None:
        pytest.skip("nvtop is not installed, and this machine has no apt source of its Debian release")
    work = folder.with_name("nvtop-download")
    shutil.rmtree(work, ignore_errors=True)
    for part in ["sources", "lists/partial", "cache/archives/partial"]:
        (work / part).mkdir(parents=True)
    source["Components"] = "contrib"
    (work / "sources" / "contrib.sources").write_text("".join(f"{key}: {value}\n" for key, value in source.items()))
    apt = ["apt-get", "-q", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={work / 'sources'}",
           "-o", f"Dir::State::lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}",
           "-o", "APT::Update::Error-Mode=any", "-o", "APT::Sandbox::User=root",
           "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"]
    for arguments in [["update"], ["download", "nvtop"]]:
        result = subprocess.run([*apt, *arguments], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if result.returncode != 0:
            pytest.skip(f"nvtop cannot be had: {' '.join(result.stderr.split())}")
    [package] = work.glob("nvtop_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, work / "root"], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    (work / "root").rename(folder)
    shutil.rmtree(work)


@pytest.fixture(scope="session")
def nvtop():
    """The program, from this machine or from Debian; it is kept for the next run."""
    installed = shutil.which("nvtop")
    if installed:
        return installed
    program = BUILD / "nvtop" / "usr" / "bin" / "nvtop"
    if not program.exists():
        fetch_nvtop(BUILD / "nvtop")
    missing = re.findall(r"(\S+) => not found", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
    if missing:
        pytest.skip(f"nvtop needs libraries that are not installed: {', '.join(missing)}")
    return program


class Screen:
    """A program on a terminal of its own."""

    def __init__(self, server, folder, *command):
        self.tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.env = {**server.env, "LD_LIBRARY_PATH": str(SIM_LIBRARIES)}
        self.command = [str(part) for part in command]

    def __enter__(self):
        # tmux hands its own environment on, but must not itself load the stand-ins: hence env.
        settings = [f"{name}={value}" for name, value in self.env.items() if name != "TERM"]
        subprocess.run([*self.tmux, "new-session", "-d", "-x", "150", "-y", "60", "env", *settings, *self.command],
                       check=True)
        return self

    def __exit__(self, *_):
        subprocess.run([*self.tmux, "kill-server"], check=False, capture_output=True)

    def wait_for(self, *patterns):
        """The screen, once each pattern is on it."""
        deadline = time.monotonic() + 30
        while True:
            screen = subprocess.run([*self.tmux, "capture-pane", "-p"], capture_output=True, text=True).stdout
            missing = [pattern for pattern in patterns if not re.search(pattern, screen, re.MULTILINE)]
            if not missing:
                return screen
            assert time.monotonic() < deadline, f"never seen: {missing}\n{screen}"


def test_nvtop(server, tmp_path, nvtop):
    job = server.use("4x24GiB").start_job("--mem", "3GiB", "--util", "60", gpu=1)
    with Screen(server, tmp_path, nvtop) as screen:
        text = screen.wait_for(rf"^ *{job.pid} +\S+ +1 +Compute +60% +3072MiB .*berth-sim-job")
    assert re.findall(r"Device (\d) \[(.+?)\]", text) == [(str(index), NAME) for index in range(4)]
    assert re.findall(r"MEM\[[| ]*(\S+)\]", text) == [
        "0.000Gi/24.000Gi", "3.000Gi/24.000Gi", "0.000Gi/24.000Gi", "0.000Gi/24.000Gi"]
    assert re.findall(r" GPU\[[| ]*(\d+)%\]", text) == ["0", "60", "0", "0"]


@pytest.mark.parametrize("stem", ["lab", "nvlink8", "workstation", "mig"])
def test_nvtop_lists_every_healthy_server(server, tmp_path, nvtop, stem):
    server.use(SERVERS / f"{stem}.json")
    names = [re.escape(gpu["name"]) if gpu else "" for gpu in whole_cards(server.status())]
    with Screen(server, tmp_path, nvtop) as screen:
        screen.wait_for(*[rf"Device {index} \[{name}" for index, name in enumerate(names)])
