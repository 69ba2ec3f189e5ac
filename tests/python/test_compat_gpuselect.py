"""gpuselect on berth's leases, as a module and as a command: the examples of its document, and what they promise."""

import ast
import json
import os
import signal
import sys

import pytest
from conftest import SERVERS
from leasing import eventually, gpu, is_alive, jobs, state_of, uuids  # noqa: F401
from compat_scripts import assert_nothing_twice, contend, lines, ready, scripts, states  # noqa: F401
from public_packages import GPUSELECT, public_package
from waiting import LIMIT

pytestmark = pytest.mark.release_only

LAB = {"gpus": [{"name": "NVIDIA GeForce RTX 3090", "memory": "24GiB", "count": 2},
                {"name": "NVIDIA RTX A6000", "memory": "48GiB", "count": 2}]}
FIELDS = ["device", "name", "util", "mem_util", "mem_free", "mem_used", "mem_total", "processes", "fan_speed",
          "effective_power_limt", "performance_state", "power_usage", "temperature", "is_throttling"]
NOT_KNOWN = ["fan_speed", "effective_power_limt", "is_throttling"]
SELECT = "from gpuselect import gpuselect\n"
SAY = ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"']


@pytest.fixture
def command(server, scripts):
    """The command gpuselect, in the PATH of the server; and `python`, which its document's examples call."""
    scripts.install_command("gpuselect", "berth compat gpuselect")
    scripts.install_command("python", sys.executable)
    return lambda *words, **options: server.run("gpuselect", *words, **options)


# The document's examples of the module.

def test_any_single_gpu(server, scripts):
    job = scripts.hold("""
from gpuselect import gpuselect
gpuselect()
# CUDA_VISIBLE_DEVICES is now updated

import torch
import os
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
""")
    [said] = lines(job)
    index, order = said.split()
    assert order == "PCI_BUS_ID"
    assert states(server) == ["leased" if str(one) == index else "free" for one in range(4)]
    assert gpu(server.status(), index)["leases"][0]["pid"] == job.pid
    assert job.end() == 0
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lease")


def test_by_name(server, scripts):
    server.use(LAB)
    job = scripts.hold("""
from gpuselect import gpuselect
# select an idle GPU with "A6000" in the name, e.g. "NVIDIA RTX 6000 Ada Generation"
gpuselect(name="A6000")
import os
print(os.environ["CUDA_VISIBLE_DEVICES"])

# Or to do the same thing with multiple GPUs:
gpuselect(count=2, name="A6000")
print(os.environ["CUDA_VISIBLE_DEVICES"])
""")
    first, both = lines(job)
    assert first in ("2", "3")
    assert sorted(both.split(",")) == ["2", "3"]
    assert states(server) == ["free", "free", "leased", "leased"]


@pytest.mark.parametrize("strangers, got", [(1, "0"), (2, "")])
def test_thresholds(server, scripts, strangers, got):
    """Up to 10 % utilization and one other process, as asked; not two of them."""
    server.use("1x24GiB")
    for _ in range(strangers):
        server.start_job("--mem", "1GiB", "--util", "5", gpu=0)
    assert scripts.output("""
from gpuselect import gpuselect
# allow selection of GPUs with up to 10% device utilization and up to 1
# other active process
print(gpuselect(util=10, processes=1, mem_util=100, silent=True))
print(gpuselect(util=4, processes=1, mem_util=100, silent=True, set_cvd=False))
""") == [got, ""]


@pytest.fixture
def memory_load(server):
    """That of the only GPU, in percent."""
    server.use({"gpus": [{"memory": "24GiB"}],
                "strangers": [{"gpu": 0, "type": "graphics", "memory": "1GiB", "utilization": 90}]})
    load = gpu(server.status(), 0)["memory_utilization_pct"]
    assert load > 0
    return load


def test_the_threshold_of_memory_load(server, scripts, command, memory_load):
    call = "print(repr(gpuselect(util=90, mem_util={}, silent=True)))\n"
    assert scripts.output(SELECT + call.format(memory_load - 1) + call.format(memory_load)) == ["''", "'0'"]
    assert command("-u90", "--mem_util", memory_load - 1, "--", *SAY).returncode == 75
    assert command("-u90", "--mem_util", memory_load, "--", *SAY).stdout == "0\n"


def test_certain_gpus(server, scripts):
    """The second call of the example has what the first one took, and takes the other."""
    result = scripts.run("""
from gpuselect import gpuselect
# select device 0, if possible (this still applies the usual utilization filters)
print(gpuselect(devices=0))

# select devices 0,1 if possible (this still applies the usual utilization filters)
print(gpuselect(devices=[0, 1]))
print(gpuselect(3, devices=[3, 0, 1]))
""")
    assert (result.returncode, result.stdout) == (0, "0\n0,1\n0,1,3\n"), result
    assert result.stderr == "count=1 but 2 device IDs were specified, setting count=2\n"


CUSTOM = """
from gpuselect import gpuselect, GpuInfo

def custom_select(gpu: GpuInfo) -> bool:
    # match any device with "3090" in the name and <= 5% utilization
    return "3090" in gpu.name and gpu.util <= 5

# note that this effectively overrides all other filtering parameters except for `count`
print(gpuselect(selector=custom_select))
"""


def test_custom_selection(server, scripts):
    server.use(LAB)
    server.start_job("--mem", "1GiB", "--util", "80", gpu=0)
    assert scripts.output(CUSTOM) == ["1"]


def test_custom_selection_overrides_the_other_parameters(server, scripts):
    """Also the limit of processes: but a GPU without any is preferred."""
    server.use("2x24GiB")
    server.start_job("--mem", "1GiB", "--util", "5", gpu=0)
    assert scripts.output(SELECT + "print(gpuselect(selector=lambda gpu: gpu.util < 50, name='none'))\n"
                          "print(gpuselect(selector=lambda gpu: gpu.device == 0 and gpu.processes == 1))\n"
                          "print(gpuselect(2, devices=0, selector=lambda gpu: True))") == ["1", "0", "0,1"]


def test_the_selector_is_not_asked_about_what_nobody_can_have(server, scripts):
    """Of such a GPU there may be nothing to compare with 5."""
    server.use({"gpus": [{"name": "NVIDIA GeForce RTX 3090", "memory": "24GiB", "count": 2}],
                "faults": [{"gpu": 0, "call": "nvmlDeviceGetComputeRunningProcesses", "answer": "unknown"},
                           {"gpu": 0, "call": "nvmlDeviceGetUtilizationRates", "answer": "unknown"}]})
    assert states(server) == ["lost", "free"]
    [said] = scripts.output(CUSTOM)
    assert said in ("1", uuids(server)["1"])  # CUDA may number the others differently


ERRORS = """
from gpuselect import gpuselect
# by default, this will throw an exception if the requested number of GPUs can't be found
try:
    gpuselect(count=4)
except Exception as e:
    print(f"Failed to select GPUs: {e}")

# if you want to suppress this, you can pass silent=True. in this case you can
# check if it failed to find devices by checking if the return value is empty
if gpuselect(count=4, silent=True) == "":
    print(f"Failed to select GPUs")
"""


def test_errors(server, scripts, jobs):
    jobs.hold("--gpu", "2")
    first, second = scripts.output(ERRORS)
    assert first.startswith("Failed to select GPUs: Requested 4 GPUs, but 3 matched filters: ")
    assert "GPU 2" in first
    assert second == "Failed to select GPUs"


def test_no_errors(server, scripts):
    """What the first call took is the second one's too."""
    assert scripts.output(ERRORS) == []


def test_debug_logging(server, scripts):
    result = scripts.run("""
import logging
from gpuselect import gpuselect
logging.getLogger("gpuselect").setLevel(logging.DEBUG)
gpuselect()
""", env={"CUDA_VISIBLE_DEVICES": "3"})
    assert result.returncode == 0
    assert "CUDA_VISIBLE_DEVICES=3\n" in result.stderr
    for part in ("GPU count: 4\n", "Device 3: GpuInfo(device=3,", "util <= 0 matched 4 / 4 GPUs\n",
                 "GPUs left after filtering (1 requested): 4\n"):
        assert part in result.stderr


def test_status(server, scripts):
    assert scripts.output("""
from gpuselect import gpustatus
# respect CUDA_VISIBLE_DEVICES
gpu_info = gpustatus()

# use all GPUs accessible to the NVML API
all_gpu_info = gpustatus(only_cvd=False)
print([gpu.device for gpu in gpu_info], [gpu.device for gpu in all_gpu_info])
""", env={"CUDA_VISIBLE_DEVICES": "1,3"}) == ["[1, 3] [0, 1, 2, 3]"]


# What gpuselect's own tests call, with their values.

TESTS_CALLS = """
from gpuselect import GpuInfo, __filter_gpus

def info(device, name="NVIDIA GeForce RTX 3090", util=0, mem_util=0, processes=0):
    return GpuInfo(device=device, name=name, util=util, mem_util=mem_util, processes=processes)

def left(gpus, count=1, devices=(), name=None, selector=None):
    return __filter_gpus(gpus, count=count, devices=devices, name=name, util=0, mem_util=0, processes=0, selector=selector)

idle = [info(device) for device in range(5)]
for name in ("3090", "NVIDIA GeForce RTX 3090"):
    [one] = left(idle, name=name)
    assert name in one.name
assert left(idle, name="A6000") == []
assert sorted(one.device for one in left(idle, 2, [1, 3])) == [1, 3]
for busy in ({"util": 5}, {"mem_util": 50}, {"processes": 10}):
    assert left([info(device, **busy) for device in range(5)]) == []

def select(gpu):
    return "3090" in gpu.name and gpu.util == 0 and gpu.processes <= 1

[one] = left([info(0, processes=1), *(info(device, util=10, processes=device) for device in range(1, 6))], selector=select)
assert one.device == 0
print("passed")
"""


def test_the_calls_of_its_own_tests(server, scripts):
    assert scripts.output(TESTS_CALLS) == ["passed"]


def test_the_published_package(server, scripts):
    """What it exports is here, too, with the same parameters and fields."""
    module = public_package(GPUSELECT) / "gpuselect" / "nvmlgpuselect.py"
    nodes = ast.parse(module.read_text()).body
    wanted = {node.name: [one.arg for one in node.args.args] for node in nodes if isinstance(node, ast.FunctionDef)}
    [info] = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "GpuInfo"]
    exported = ["gpuselect", "gpustatus", "__filter_gpus"]
    code = "import inspect, json, gpuselect\nprint(json.dumps([[*inspect.signature(getattr(gpuselect, name)).parameters] for " \
           f"name in {exported}]))\nprint(json.dumps(gpuselect.GpuInfo._fields))"
    said, fields = map(json.loads, scripts.output(code))
    assert said == [wanted[name] for name in exported]
    assert fields == [node.target.id for node in info.body if isinstance(node, ast.AnnAssign)] == FIELDS


def test_info_reads_as_a_dict(server, scripts):
    assert scripts.output("""
from gpuselect import gpustatus, GpuInfo
gpu = gpustatus()[2]
print(gpu.get("device"), gpu.get("nonesuch", 7), "utilization" in gpu, "nonesuch" in gpu, 2 in gpu)
print(dict(gpu.items()) == dict(gpu) == {**gpu}, gpu.values() == list(dict(gpu).values()), gpu[0], len(gpu))
print(GpuInfo(device=0, name="x"))
""") == ["2 7 True False True", "True True 2 14",
         "GpuInfo(device=0, name='x', " + ", ".join(f"{name}=None" for name in FIELDS[2:]) + ")"]


# What a GPU is doing.

INFO = "import json\nfrom gpuselect import gpustatus\nprint(json.dumps([gpu._asdict() for gpu in gpustatus()]))"


def test_the_fields(server, scripts):
    server.start_job("--mem", "2GiB", "--util", "70", gpu=1)
    [said] = scripts.output(INFO)
    of_berth = server.status()["gpus"]
    for one, known in zip(json.loads(said), of_berth):
        assert list(one) == FIELDS
        assert [one[name] for name in NOT_KNOWN] == [None] * 3
        assert one["mem_total"] == one["mem_free"] + one["mem_used"] == known["memory_total_mib"] << 20
        assert (one["device"], one["name"], one["util"], one["mem_util"], one["mem_used"] >> 20, one["processes"],
                one["performance_state"], one["temperature"], one["power_usage"]) == (
            known["index"], known["name"], known["utilization_pct"], known["memory_utilization_pct"],
            known["memory_used_mib"], len(known["processes"]), known["performance_state"], known["temperature_c"],
            round(known["power_w"] * 1000))
    assert [one["processes"] for one in json.loads(said)] == [0, 1, 0, 0]
    assert json.loads(said)[1]["util"] == 70


def test_what_the_driver_does_not_tell_is_none(server, scripts):
    # Two cards: the memory of a single one that says nothing of it is the host's.
    server.use({"gpus": [{"memory": "24GiB", "count": 2}], "faults": [
        {"call": call, "answer": "not_supported"} for call in (
            "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetPerformanceState", "nvmlDeviceGetMemoryInfo")]})
    one, _ = json.loads(scripts.output(INFO)[0])
    assert {name for name in FIELDS if one[name] is None} == {
        "util", "mem_util", "mem_free", "mem_used", "mem_total", "performance_state", "power_usage", "temperature",
        *NOT_KNOWN}


def test_displays_do_not_count_as_processes(server, scripts):
    server.use(SERVERS / "workstation.json")
    [one] = json.loads(scripts.output(INFO)[0])
    assert one["processes"] == 0


def test_the_keys_of_the_document(server, scripts):
    server.start_job("--mem", "2GiB", "--util", "70", gpu=0)
    assert scripts.output("""
from gpuselect import gpustatus
gpu = gpustatus()[0]
print(gpu["device"], gpu["name"] == gpu.name, gpu["utilization"], gpu["mem_utilization"] == gpu.mem_util,
      gpu["processes"], gpu["power_usage"] == gpu.power_usage, gpu[0], gpu[1:3] == (gpu.name, 70),
      dict(gpu)["utilization"])
try:
    gpu["count"]
except KeyError as error:
    print(error)
""") == ["0 True 70 True 1 True 0 True 70", "'count'"]


@pytest.mark.parametrize("visible, seen", [("", [0, 1, 2, 3]), ("all", [0, 1, 2, 3]), (" 2 , 0 ", [0, 2]), ("-1", []),
                                           (None, [0, 1, 2, 3]), ("UUID", [1])])
def test_status_of_the_visible(server, scripts, visible, seen):
    if visible == "UUID":
        visible = uuids(server)["1"]
    assert scripts.output("from gpuselect import gpustatus\nprint([gpu.device for gpu in gpustatus()])",
                          env={"CUDA_VISIBLE_DEVICES": visible}) == [str(seen)]


# Parameters that make no sense.

@pytest.mark.parametrize("call, message", [
    ("count=0", "GPU count must be >= 1"),
    ("-1", "GPU count must be >= 1"),
    ("devices=0, name='A6000'", "Use only one of 'devices' and 'name' parameters"),
    ("devices=[0, 1], name='A6000'", "Use only one of 'devices' and 'name' parameters"),
    ("util=-1", "Utilization/process count thresholds must be >= 0"),
    ("mem_util=-1", "Utilization/process count thresholds must be >= 0"),
    ("processes=-1", "Utilization/process count thresholds must be >= 0"),
    ("devices=4", "Invalid device ID 4"),
    ("devices=[0, -1]", "Invalid device ID -1"),
    ("devices=9, silent=True", "Invalid device ID 9"),
])
def test_bad_parameters(server, scripts, call, message):
    assert scripts.output(SELECT + f"import logging; logging.getLogger('gpuselect').setLevel(logging.ERROR)\n"
                          f"try:\n    gpuselect({call})\nexcept Exception as error:\n    print(error)") == [message]


@pytest.mark.parametrize("call, message", [
    ("count=5", "Requested 5 GPUs, but 4 matched filters"),
    ("name='H100'", "Requested 1 GPUs, but 0 matched filters"),
    ("count=3, name='A6000'", "Requested 3 GPUs, but 2 matched filters"),
    ("count=3, devices=[0, 1]", "Requested 3 GPUs, but 2 matched filters"),
    ("count=2, selector=lambda gpu: gpu.device == 3", "Requested 2 GPUs, but 1 matched filters"),
    ("count=5, set_cvd=False", "Requested 5 GPUs, but 4 matched filters"),
])
def test_too_few(server, scripts, call, message):
    server.use(LAB)
    [said, silent] = scripts.output(SELECT + f"try:\n    gpuselect({call})\nexcept Exception as error:\n"
                                    f"    print(error)\nprint(repr(gpuselect({call}, silent=True)))")
    assert said.startswith(message + ": ")
    assert silent == "''"


# Leases.

def test_two_scripts_never_get_the_same(server, scripts):
    said = contend(scripts, [SELECT + "print(gpuselect(silent=True) or 'refused')\n"] * 8)
    assert_nothing_twice(said, 4)


def test_nor_scripts_of_different_tools(server, scripts):
    server.use("5x24GiB")
    said = contend(scripts, [SELECT + "print(gpuselect(silent=True) or 'refused')\n", """
from safe_gpu import safe_gpu
try:
    print(safe_gpu.GPUOwner(placeholder_fn=str).devices_taken[0])
except RuntimeError:
    print("refused")
""", """
from gpu_lock import lock_gpu
try:
    lock = lock_gpu().__enter__()
    print(lock.uid)
except RuntimeError:
    print("refused")
"""] * 4)
    assert_nothing_twice(said, 5)


def test_who_only_selects_leases_nothing(server, scripts):
    job = scripts.hold(SELECT + "import os\nprint(gpuselect(devices=1, set_cvd=False))\n"
                                "print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['CUDA_DEVICE_ORDER'])")
    assert lines(job) == ["1", "None PCI_BUS_ID"]
    assert states(server) == ["free"] * 4


def test_a_later_call_gives_back_what_it_does_not_need(server, scripts):
    server.use(LAB)
    job = scripts.hold(SELECT + "import os\nprint(gpuselect(count=2, name='3090'))\nprint(gpuselect(name='A6000'))\n"
                                "print(os.environ['CUDA_VISIBLE_DEVICES'])")
    first, second, visible = lines(job)
    assert sorted(first.split(",")) == ["0", "1"]
    assert second == visible and second in ("2", "3")
    assert states(server)[:2] == ["free", "free"]
    assert sorted(states(server)[2:]) == ["free", "leased"]


def test_a_later_call_that_fails_changes_nothing(server, scripts, jobs):
    jobs.hold("--gpu", "1")
    job = scripts.hold(SELECT + "import os\ngpuselect(devices=0)\nprint(repr(gpuselect(count=4, silent=True)))\n"
                                "print(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert lines(job) == ["''", "0"]
    assert states(server) == ["leased", "leased", "free", "free"]


def test_a_child_stands_inside_the_lease_of_its_parent(server, scripts):
    """As any program does that runs inside a lease: what it selects comes out of that, and is no more than that."""
    mine, childs = scripts.output(SELECT + """
import os
print(gpuselect(), flush=True)
child = os.fork()
if child == 0:
    print(repr((gpuselect(), gpuselect(count=2, silent=True))), flush=True)
    os._exit(0)
os.waitpid(child, 0)
""")
    assert childs == repr((mine, ""))


def test_a_killed_script_leaves_nothing(server, scripts):
    job = scripts.hold(SELECT + "gpuselect(count=4)")
    assert states(server) == ["leased"] * 4
    job.process.send_signal(signal.SIGKILL)
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lease")


def test_inside_a_lease_it_chooses_from_that(server, scripts):
    server.use(LAB)
    script = scripts.command(CUSTOM + "print(gpuselect(count=2))\nprint(repr(gpuselect(count=3, silent=True)))")
    result = server.berth("run", "--gpu", "1,2", "--", *script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n1,2\n''\n", "")


# The command, with something to run.

def test_the_documents_commands(server, command):
    server.use(LAB)
    (server.folder / "foo.py").write_text("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    result = server.run("bash", "-ec", """
# Run a command with default gpuselect parameters (i.e. any idle GPU)
gpuselect -- python foo.py

# The same thing but requesting 2 GPUs
gpuselect --count 2 -- python foo.py

# Requesting an A6000
gpuselect --name A6000 -- python foo.py

# Relaxed device and memory utilization percentages
gpuselect --util 5 --mem_util 10 -- python foo.py

# as a subprocess (i.e. in the same environment)
gpuselect -- python3 foo.py arg1 arg2
""", cwd=server.folder)
    assert (result.returncode, result.stderr) == (0, "")
    got = [line.split(",") for line in result.stdout.splitlines()]
    assert [len(devices) for devices in got] == [1, 2, 1, 1, 1]
    assert got[2][0] in ("2", "3")
    assert states(server) == ["free"] * 4


@pytest.mark.parametrize("flags, got", [
    (["-d", "1"], "1"), (["-d", "1,3"], "1,3"), (["--devices=3"], "3"), (["-n", "A6000", "-c", "2"], "2,3"),
    (["-c4"], "0,1,2,3"), (["-d", "2", "-u", "100", "-m", "100", "-p", "3"], "2"), (["-q", "-d", "0"], "0"),
    (["-d", "0", "-u", "1000"], "0"), (["-d", "0", "-p", "1000000"], "0"),
])
def test_flags(server, command, flags, got):
    server.use(LAB)
    result = command(*flags, "--", *SAY)
    assert (result.returncode, result.stdout) == (0, f"{got}\n"), result


def test_a_command_without_dashes_before_it(server, command):
    """And its own flags are its own."""
    result = command("-d", "1", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES" "$@"', "-", "-c", "--", "-d")
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 -c -- -d\n", "")


def test_thresholds_of_the_command(server, command):
    server.use("1x24GiB")
    server.start_job("--mem", "1GiB", "--util", "5", gpu=0)
    assert command("--", *SAY).returncode == 75
    assert command("-u", "10", "-m", "100", "--", *SAY).returncode == 75
    assert command("-u", "10", "-m", "100", "-p", "1", "--", *SAY).stdout == "0\n"
    assert command("-u", "4", "-m", "100", "-p", "1", "--", *SAY).returncode == 75


def test_exit_code_and_signals(server, command, jobs):
    assert command("--", "sh", "-c", "exit 7").returncode == 7
    assert command("--", "no-such-command").returncode == 127
    job = jobs.start("gpuselect", "--", "sh", "-c", "trap 'echo told; exit 3' TERM; echo ready; read -r line")
    ready(job)
    job.process.terminate()
    assert job.process.wait(LIMIT) == 3
    assert "told" in job.out


@pytest.mark.parametrize("name", ["PIPE", "XFSZ", "INT"])
def test_no_signal_is_ignored_that_was_not_before(server, command, name):
    """Python ignores some, and who is started by exec would go on ignoring them."""
    result = command("--", "sh", "-c", f"kill -{name} $$; echo survived")
    assert (result.returncode, result.stdout) == (128 + getattr(signal, f"SIG{name}"), "")


def test_the_lease_is_the_commands(server, command, jobs):
    job = jobs.start("gpuselect", "-d", "2", "--", "sh", "-c", "echo ready; read -r line")
    ready(job)
    assert states(server) == ["free", "free", "leased", "free"]
    result = command("-d", "2", "--", *SAY)
    assert (result.returncode, result.stdout) == (75, "")
    assert "GPU 2" in result.stderr
    assert job.end() == 1
    eventually(lambda: state_of(server, 2) == "free", "the end of the lease")


def test_python_is_not_buffered(server, command):
    result = command("--", "sh", "-c", 'echo "$PYTHONUNBUFFERED"')
    assert result.stdout == "1\n"


def test_many_commands_at_once(server, command, jobs):
    some = [jobs.start("gpuselect", "--", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"; read -r line') for _ in range(8)]
    eventually(lambda: all(job.out or not job.runs for job in some), "an answer for each")
    assert_nothing_twice([job.out.strip() or "refused" for job in some], 4)
    assert [job.process.returncode for job in some if not job.out] == [75] * 4


# The command, with nothing to run: the shell has the GPUs.

def test_in_the_current_shell(server, command, jobs):
    server.use(LAB)
    job = jobs.start("bash", "-c", "gpuselect --count 1 --name 3090\necho ready\nread -r line")
    ready(job)
    [index] = lines(job)
    assert index in ("0", "1")
    assert gpu(server.status(), index)["leases"][0]["pid"] == job.pid
    job.end()
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lease")


def test_embedded_in_a_command(server, command, jobs):
    """The document's script, with a docker that says what it was told and stays."""
    server.use(LAB)
    docker = server.folder / "programs" / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho ready\nread -r line\n')
    docker.chmod(0o755)
    script = server.folder / "launch"
    script.write_text(r"""#!/bin/bash
# launch a Docker container, assigning it a pair of idle 3090s
# (the way Docker parses the --gpus value is a bit weird, which is the reason for the quoting)
docker run --gpus \"device=$(gpuselect --count 2 --name 3090)\" --rm -it gpu_container nvidia-smi
""")
    script.chmod(0o755)
    job = jobs.start(script)
    ready(job)
    assert lines(job) == ["run", "--gpus", '"device=0,1"', "--rm", "-it", "gpu_container", "nvidia-smi"]
    assert states(server) == ["leased", "leased", "free", "free"]
    job.end()
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lease")


def test_a_loop(server, command, jobs):
    """Each call gives back what the one before took in the same shell: the fifth and sixth have a GPU, too."""
    job = jobs.start("bash", "-c", "for i in 1 2 3 4 5 6; do CUDA_VISIBLE_DEVICES=$(gpuselect) "
                                   "sh -c 'echo \"on $CUDA_VISIBLE_DEVICES\"'; done; echo ready; read -r line; exit 0",
                     start_new_session=True)
    said = lines(ready(job))
    assert job.err == ""
    assert len(said) == 6 and {line[3:] for line in said} <= {"0", "1", "2", "3"}
    assert sorted(states(server)) == ["free"] * 3 + ["leased"]
    assert job.end() == 0
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lease")


@pytest.mark.parametrize("words", ["gpuselect", "gpuselect -- sh -c 'echo $CUDA_VISIBLE_DEVICES; echo ready; read -r line'"])
def test_a_default_of_memory_does_not_share_the_gpu(server, command, jobs, words):
    (server.folder / ".config").mkdir()
    (server.folder / ".config" / "berth.toml").write_text('[defaults]\nmem = "8GiB"\n')
    some = [ready(jobs.start("bash", "-c", f"{words}; echo ready; read -r line")) for _ in range(4)]
    assert sorted(lines(job)[0] for job in some) == ["0", "1", "2", "3"]
    assert states(server) == ["leased"] * 4


def test_a_loop_on_the_only_gpu(server, command, jobs):
    server.use("1x24GiB")
    job = jobs.start("bash", "-c", "for i in 1 2 3; do echo \"on $(gpuselect)\"; done; echo ready; read -r line",
                     start_new_session=True)
    assert lines(ready(job)) == ["on 0"] * 3


@pytest.mark.parametrize("start", ["(echo $BASHPID > pid; read -r line < never) &",
                                   "((echo $BASHPID > pid; read -r line < never) &);"])
def test_what_a_job_of_the_shell_uses_is_not_given_back(server, command, jobs, start):
    """Neither while a process that was started since then runs, nor while the GPU computes."""
    os.mkfifo(server.folder / "never")
    job = jobs.start("bash", "-c", f"""a=$(gpuselect -d 0); {start} b=$(gpuselect -d 1); c=$(gpuselect -d 2)
echo $a $b $c; echo ready; read -r line; gpuselect -d 3; echo done; read -r line""", cwd=server.folder, start_new_session=True)
    assert lines(ready(job)) == ["0 1 2"]
    assert states(server) == ["leased"] * 3 + ["free"]
    server.start_job("--mem", "1GiB", gpu=1)
    with open(server.folder / "never", "w"):  # opens once the process waits, which then ends
        pid = int((server.folder / "pid").read_text())
    eventually(lambda: not is_alive(pid), "the end of the process")
    job.process.stdin.write(b"go on\n")
    job.process.stdin.flush()
    eventually(lambda: "done\n" in job.out, "the next call")
    assert states(server) == ["free", "leased", "free", "leased"]


def test_jobs_in_the_background_have_their_own(server, command, jobs):
    """Each has its GPU until it ends, not until the shell does."""
    os.mkfifo(server.folder / "a")
    os.mkfifo(server.folder / "b")
    job = jobs.start("bash", "-c", """for end in a b; do CUDA_VISIBLE_DEVICES=$(gpuselect) sh -c 'echo $CUDA_VISIBLE_DEVICES > got-$0; read -r x < $0' $end & done
until [ -s got-a ] && [ -s got-b ]; do :; done; echo ready; wait""", cwd=server.folder)
    ready(job)
    first, second = ((server.folder / f"got-{name}").read_text().strip() for name in "ab")
    assert first != second and sorted(states(server)) == ["free", "free", "leased", "leased"]
    with open(server.folder / "a", "w"):
        pass
    eventually(lambda: state_of(server, first) == "free", "the end of the first")
    assert state_of(server, second) == "leased"
    with open(server.folder / "b", "w"):
        pass
    assert job.end() == 0


def test_a_job_in_another_session_keeps_its_gpu(server, command, jobs):
    """It has not used the GPU yet; only its environment tells which GPU it will use."""
    os.mkfifo(server.folder / "end")
    job = jobs.start("bash", "-c", """for number in 1 2; do
  CUDA_VISIBLE_DEVICES=$(gpuselect -d 1) setsid -f sh -c 'echo "$CUDA_VISIBLE_DEVICES" > got-$0; read -r x < end' $number
  until [ -s got-$number ]; do sleep 0.02; done
done; cat got-1 got-2; echo ready; read -r line""", cwd=server.folder)
    got = lines(ready(job))
    with open(server.folder / "end", "w"):
        pass
    assert got == ["1", ""], "the second call is granted nothing"
    assert state_of(server, 1) == "leased"


@pytest.mark.parametrize("call", ["timeout 60 gpuselect -d 2", "sh -c 'gpuselect -d 2; true'"])
def test_through_other_programs(server, command, jobs, call):
    job = jobs.start("bash", "-c", f"echo $({call}); echo ready; read -r line")
    assert lines(ready(job)) == ["2"] and state_of(server, 2) == "leased"
    assert gpu(server.status(), 2)["leases"][0]["pid"] == job.pid
    job.end()
    eventually(lambda: state_of(server, 2) == "free", "the end of the lease")


def test_quiet_only_asks(server, command, jobs):
    job = jobs.start("bash", "-c", "gpuselect -q -c 4; echo code $?; echo ready; read -r line")
    assert lines(ready(job)) == ["code 0"]
    assert states(server) == ["free"] * 4
    jobs.hold("--gpu", "0")
    assert command("-q", "-c", "4").returncode == 75
    assert command("-q", "-c", "5").returncode == 69


def test_too_few_for_the_shell(server, command, jobs):
    jobs.hold("-n", "4")
    result = command()
    assert (result.returncode, result.stdout) == (75, "")
    assert " 0,1,2,3 " in result.stderr


@pytest.mark.parametrize("flags, message", [
    (["-c", "0"], "GPU count must be >= 1"),
    (["-d", "0", "-n", "A6000"], "Use only one of 'devices' and 'name' parameters"),
    (["-u", "-1"], "Utilization/process count thresholds must be >= 0"),
    (["-m", "-1"], "Utilization/process count thresholds must be >= 0"),
    (["-p", "-1"], "Utilization/process count thresholds must be >= 0"),
    (["-d", "0,one"], "Parameter must be a single int or 'int1,int2,...'"),
    (["-c", "two"], "invalid int value: 'two'"),
])
@pytest.mark.parametrize("rest", [[], ["--", "echo", "started"]])
def test_bad_flags(server, command, flags, message, rest):
    result = command(*flags, *rest)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith("gpuselect: error: ")
    assert result.stderr.endswith(f"{message}\n")


def test_debug(server, command):
    result = command("-D", "-d", "1", "--", *SAY)
    assert result.stdout == "1\n"
    assert "--gpu=1" in result.stderr
    assert command("-d", "1", "--", *SAY).stderr == ""
