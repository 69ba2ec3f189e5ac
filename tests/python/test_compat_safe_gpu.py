"""`from safe_gpu import safe_gpu` on berth's leases: the examples of its document, and what they promise."""

import re
import signal
import sys

import pytest
from conftest import SERVERS
from leasing import eventually, gpu, jobs, state_of  # noqa: F401
from compat_scripts import assert_nothing_twice, contend, lines, scripts, states  # noqa: F401

pytestmark = pytest.mark.release_only

LOG = "import logging\nlogging.basicConfig(level=logging.INFO, format='%(name)s [%(levelname)s] %(message)s')\n"
# A placeholder that needs no toolkit, for tests of other things.
NOTHING = "from safe_gpu import safe_gpu\ndef nothing(device_no): return f'on {device_no}'\n"
SAY_ENVIRONMENT = "import os\nprint(os.environ.get('CUDA_VISIBLE_DEVICES'))\n"


def assert_used(server, index, job):
    """The script's process uses memory on the GPU, which is leased to it."""
    one = gpu(server.status(), index)
    [lease] = one["leases"]
    [process] = one["processes"]
    assert (one["state"], lease["pid"], process["pid"], process["lease"]) == ("leased", job.pid, job.pid, lease["id"])


# The document's examples.

def test_one_gpu(server, scripts):
    job = scripts.hold("""
from safe_gpu import safe_gpu

gpu_owner = safe_gpu.GPUOwner()
""" + SAY_ENVIRONMENT + "print(gpu_owner.devices_taken)")
    assert lines(job) == ["0", "[0]"]
    assert_used(server, 0, job)
    assert states(server)[1:] == ["free"] * 3
    assert job.end() == 0
    eventually(lambda: state_of(server, 0) == "free", "the end of the lease")


def test_several_gpus(server, scripts):
    job = scripts.hold("""
from safe_gpu import safe_gpu
nb_gpus = 3
gpu_owner = safe_gpu.GPUOwner(nb_gpus)
""" + SAY_ENVIRONMENT + "print(gpu_owner.devices_taken)")
    assert lines(job) == ["0,1,2", "[0, 1, 2]"]
    for index in range(3):
        assert_used(server, index, job)
    assert state_of(server, 3) == "free"


# As gpu-acquisitor.py of safe-gpu's repository, which its package does not have: it takes GPUs, computes on them
# with the toolkit, and releases those of PyCUDA.
ACQUISITOR = LOG + """
import argparse, sys, time
from safe_gpu import safe_gpu

def compute_with_pytorch(count):
    import torch
    return [torch.zeros((2, 2), device=f"cuda:{number}") for number in range(count)]

def compute_with_tf(count):
    import tensorflow as tf
    results = []
    for number in range(count):
        with tf.device(f"GPU:{number}"):
            results.append(tf.constant([1.0]))
    return results

def compute_with_pycuda(count):
    import pycuda.driver as cuda
    results = []
    for number in range(count):
        safe_gpu.gpu_owner.placeholders[number].push()
        results.append(cuda.mem_alloc(32))
        cuda.Context.pop()
    return results

parser = argparse.ArgumentParser()
parser.add_argument("--backend", choices=["pytorch", "tf", "pycuda"])
parser.add_argument("--id")
parser.add_argument("--nb-gpus", type=int)
parser.add_argument("--explicit-owner-object", action="store_true")
arguments = parser.parse_args()
logger = logging.getLogger(f"GPUOwner{arguments.id}")
logger.setLevel(logging.INFO)
placeholders = {"pytorch": safe_gpu.PytorchPlaceholder(logger), "tf": safe_gpu.TensorflowPlaceholder(logger),
                "pycuda": safe_gpu.PyCudaPlaceholder(logger)}
take = safe_gpu.GPUOwner if arguments.explicit_owner_object else safe_gpu.claim_gpus
owner = take(nb_gpus=arguments.nb_gpus, placeholder_fn=placeholders[arguments.backend], logger=logger, debug_sleep=0.01)
logger.info(f"Allocated devices: {(owner or safe_gpu.gpu_owner).devices_taken}")
sys.stdin.read()
results = globals()["compute_with_" + arguments.backend](arguments.nb_gpus)
print(len(results))
if arguments.backend == "pycuda":
    safe_gpu.release_gpus()
logger.info("Finished")
"""


@pytest.mark.parametrize("backend, owner", [("pytorch", False), ("pytorch", True), ("tf", False), ("pycuda", False)])
def test_the_repositorys_acquisitor(server, scripts, backend, owner):
    result = scripts.run(ACQUISITOR, "--backend", backend, "--id", "7", "--nb-gpus", "2",
                         *["--explicit-owner-object"] * owner)
    assert (result.returncode, result.stdout) == (0, "2\n"), result
    said = [line for line in result.stderr.splitlines() if line.startswith("GPUOwner7 ")]
    released = [text for device in (0, 1) for text in (f"Releasing placeholder on CUDA device: {device}",
                                                       "Released a CUDA context")]
    assert said == ["GPUOwner7 [INFO] " + text for text in (
        "acquiring lock", "lock acquired", "Set CUDA_VISIBLE_DEVICES=0,1", "lock released",
        "Allocated devices: [0, 1]", *(released if backend == "pycuda" else []), "Finished")]


def test_the_documents_check_that_it_works(server, scripts):
    """Two scripts at once, in a shell: both log what the document shows, and neither gets a GPU of the other's."""
    server.use("3x24GiB")
    scripts.install_command("python3", f"{sys.executable} -m berth.compat")
    (server.folder / "gpu-acquisitor.py").write_text(ACQUISITOR)
    # The shell gives its stdin to both, which end when it is closed.
    shell = scripts.jobs.start("sh", "-c", """exec 3<&0
python3 gpu-acquisitor.py --backend pytorch --id 1 --nb-gpus 1 <&3 & """
"""python3 gpu-acquisitor.py --backend pytorch --id 2 --nb-gpus 2""", cwd=server.folder)
    eventually(lambda: shell.err.count("lock released") == 2, lambda: shell.err)
    taken = []
    for number, count in ((1, 1), (2, 2)):
        name = f"GPUOwner{number} [INFO] "
        said = [line[len(name):] for line in shell.err.splitlines() if line.startswith(name)]
        assert said[:2] + said[3:4] == ["acquiring lock", "lock acquired", "lock released"]
        start, devices = said[2].split("=")
        assert start == "Set CUDA_VISIBLE_DEVICES"
        assert len(devices.split(",")) == count
        taken += devices.split(",")
    assert sorted(taken) == ["0", "1", "2"]


# Placeholders.

@pytest.mark.parametrize("placeholder", [
    "PytorchPlaceholder()", "TensorflowPlaceholder()", "PyCudaPlaceholder()",
    "pytorch_placeholder", "tensorflow_placeholder", "pycuda_placeholder"])
def test_a_toolkits_placeholder(server, scripts, placeholder):
    job = scripts.hold("from safe_gpu import safe_gpu\n"
                       f"gpu_owner = safe_gpu.GPUOwner(2, placeholder_fn=safe_gpu.{placeholder})\n"
                       "print([type(one).__name__ for one in gpu_owner.placeholders])")
    assert lines(job) == ["['Context', 'Context']"]
    for index in (0, 1):
        assert_used(server, index, job)


def test_a_plain_function(server, scripts):
    assert scripts.output(NOTHING + """
owner = safe_gpu.GPUOwner(2, placeholder_fn=nothing)
print(owner.placeholders)
owner.release_gpus()
print(owner.placeholders, owner.devices_taken)
""") == ["['on 0', 'on 1']", "[] []"]


def test_no_toolkit_is_imported_before_it_is_needed(server, scripts):
    assert scripts.output("import sys\nfrom safe_gpu import safe_gpu\n"
                          "print({'torch', 'tensorflow', 'pycuda'}.intersection(sys.modules))") == ["set()"]


def test_a_placeholder_that_fails_costs_nothing(server, scripts):
    """The error is the script's to handle; by then the GPU is nobody's again."""
    job = scripts.hold(LOG + """
from safe_gpu import safe_gpu
def fails(device_no): raise RuntimeError("out of memory")
try:
    safe_gpu.GPUOwner(placeholder_fn=fails)
except RuntimeError as error:
    print(error)
""" + SAY_ENVIRONMENT)
    assert lines(job) == ["out of memory", "None"]
    assert "root [ERROR] Failed to acquire placeholder" in job.err
    assert states(server) == ["free"] * 4


# Giving back.

@pytest.mark.each_harbour
def test_release_gives_the_gpus_back_while_the_script_runs(server, scripts):
    job = scripts.hold(NOTHING + SAY_ENVIRONMENT + """
owner = safe_gpu.GPUOwner(placeholder_fn=nothing)
print(os.environ["CUDA_VISIBLE_DEVICES"])
owner.release_gpus()
owner.release_gpus()
""" + SAY_ENVIRONMENT)
    assert lines(job) == ["None", "0", "None"]
    assert states(server) == ["free"] * 4


def test_release_ends_a_pycuda_context(server, scripts):
    job = scripts.hold(LOG + "from safe_gpu import safe_gpu\n"
                       "owner = safe_gpu.GPUOwner(placeholder_fn=safe_gpu.PyCudaPlaceholder())\nowner.release_gpus()")
    assert "root [INFO] Releasing placeholder on CUDA device: 0\nroot [INFO] Released a CUDA context\n" in job.err
    assert states(server) == ["free"] * 4


@pytest.mark.parametrize("toolkit", ["PyTorch", "TensorFlow"])
def test_release_logs_what_the_original_logs(server, scripts, toolkit):
    """The first placeholder first."""
    job = scripts.hold(LOG + "from safe_gpu import safe_gpu\n"
                       f"safe_gpu.claim_gpus(2, safe_gpu.{toolkit.capitalize()}Placeholder())\nsafe_gpu.release_gpus()")
    said = job.err.splitlines()
    start = said.index("root [INFO] Releasing placeholder on CUDA device: 0")
    nothing = f"root [INFO] Did nothing, {toolkit} doesn't expose interface for releasing GPUs"
    assert said[start + 1:start + 4] == [nothing, "root [INFO] Releasing placeholder on CUDA device: 1", nothing]


def test_what_is_released_can_be_claimed_again(server, scripts):
    """The context of PyTorch stays; for the script itself, it is not in the way."""
    job = scripts.hold("from safe_gpu import safe_gpu\nfor _ in range(2):\n    safe_gpu.claim_gpus()\n"
                       "    print(safe_gpu.gpu_owner.devices_taken)\n    safe_gpu.release_gpus()")
    assert (lines(job), job.err) == (["[0]", "[0]"], "")


def test_what_a_script_goes_on_using_is_given_to_nobody(server, scripts):
    """PyTorch keeps its context: a lease that is over does not make the GPU free."""
    job = scripts.hold(LOG + "from safe_gpu import safe_gpu\nowner = safe_gpu.GPUOwner()\nowner.release_gpus()")
    assert "PyTorch" in job.err
    assert states(server) == ["stranger", "free", "free", "free"]


CLAIM = "def nothing(device_no): pass\nfrom safe_gpu import claim_gpus, release_gpus, safe_gpu\n"


def test_claim_keeps_the_owner(server, scripts):
    job = scripts.hold(CLAIM + "print(safe_gpu.gpu_owner)\nclaim_gpus(2, nothing)\n"
                               "print(safe_gpu.gpu_owner.devices_taken)")
    assert lines(job) == ["None", "[0, 1]"]
    assert states(server) == ["leased", "leased", "free", "free"]


def test_release_of_what_was_claimed(server, scripts):
    job = scripts.hold(CLAIM + "release_gpus()\nclaim_gpus(2, nothing)\nrelease_gpus()\n"
                               "print(safe_gpu.gpu_owner.devices_taken)")
    assert lines(job) == ["[]"]
    assert states(server) == ["free"] * 4


def test_a_second_claim_is_another_lease(server, scripts):
    job = scripts.hold(CLAIM + "claim_gpus(1, nothing)\nclaim_gpus(2, nothing)\n"
                               "print(safe_gpu.gpu_owner.devices_taken)" + "\n" + SAY_ENVIRONMENT)
    assert lines(job) == ["[1, 2]", "1,2"]
    assert states(server) == ["leased"] * 3 + ["free"]


# The log.

@pytest.mark.parametrize("logger, name", [("None", "root"), ("logging", "root"),
                                          ("logging.getLogger('mine')", "mine")])
def test_log_lines(server, scripts, logger, name):
    result = scripts.run(LOG + NOTHING + f"safe_gpu.GPUOwner(2, placeholder_fn=nothing, logger={logger})")
    assert result.returncode == 0
    # Between them stand berth's own.
    assert [line for line in result.stderr.splitlines() if not line.startswith("berth ")] == [
        f"{name} [INFO] {text}" for text in (
            "acquiring lock", "lock acquired", "Set CUDA_VISIBLE_DEVICES=0,1", "lock released")]


def test_logging_that_is_imported_later(server, scripts):
    result = scripts.run(NOTHING + """
import sys
owner = safe_gpu.GPUOwner(placeholder_fn=nothing)
print("logging" in sys.modules)
""" + LOG + """
owner.release_gpus()
print(owner.logger is logging, safe_gpu.pytorch_placeholder.logger is logging)
owner.logger = logging.getLogger("mine")
print(owner.logger.name)
""")
    assert (result.returncode, result.stdout.splitlines()) == (0, ["False", "True True", "mine"])
    assert result.stderr.splitlines()[0] == "root [INFO] Releasing placeholder on CUDA device: 0"


# Not enough.

REFUSED = """
try:
    safe_gpu.GPUOwner(int(sys.argv[1]), placeholder_fn=nothing)
except RuntimeError as error:
    print(isinstance(error, ValueError), error)
"""


def test_too_few_are_free(server, jobs, scripts):
    """At once, and it says who is in the way."""
    jobs.hold("--gpu", "0,2,3")
    [said] = scripts.output("import sys\n" + NOTHING + REFUSED, 2)
    assert said.startswith("False Required 2 GPUs, only found these free: ['1']: ")
    assert " 0,2,3 leased " in said
    assert states(server) == ["leased", "free", "leased", "leased"]


def test_more_than_there_are(server, scripts):
    [said] = scripts.output("import sys\n" + NOTHING + REFUSED, 5)
    assert said.startswith("False Required 5 GPUs, only found these free: ['0', '1', '2', '3']: ")


@pytest.mark.parametrize("value, free", [("2", "['2']"), ("2,0", "['0', '2']"), ("9", "[]")])
def test_the_callers_variable_restricts_and_is_named(server, scripts, value, free):
    [said] = scripts.output("import sys\n" + NOTHING + REFUSED, 3, env={"CUDA_VISIBLE_DEVICES": value})
    assert said.startswith(f"False Required 3 GPUs, only found these free: {free}: ")
    assert f"CUDA_VISIBLE_DEVICES={value!r}" in said


def test_no_gpu_at_all(server, scripts):
    """A script that was told to use none sees none."""
    assert scripts.output(NOTHING + "owner = safe_gpu.GPUOwner(0, nothing)\n"
                          "print(owner.devices_taken, owner.placeholders)\n" + SAY_ENVIRONMENT) == ["[] []", ""]


def test_no_driver(server, scripts):
    server.use("")
    [said] = scripts.output(NOTHING + "try:\n    safe_gpu.GPUOwner(placeholder_fn=nothing)\n"
                            "except safe_gpu.NvidiasmiError as error:\n    print('no driver')")
    assert said == "no driver"


# One card that also drives the display.

def test_the_card_with_the_display(server, scripts):
    server.use(SERVERS / "workstation.json")
    job = scripts.hold("from safe_gpu import safe_gpu\ngpu_owner = safe_gpu.GPUOwner()\n" + SAY_ENVIRONMENT)
    assert lines(job) == ["0"]
    one = gpu(server.status(), 0)
    assert one["state"] == "leased"
    assert job.pid in [process["pid"] for process in one["processes"]]
    [said] = scripts.output("import sys\n" + NOTHING + REFUSED, 1)
    assert said.startswith("False Required 1 GPUs, only found these free: []")


def test_more_than_the_card_with_the_display(server, scripts):
    """There a script may expect ValueError, as of safe-gpu."""
    server.use(SERVERS / "workstation.json")
    assert scripts.output("import sys\n" + NOTHING + REFUSED, 2) == [
        "True Requested 2 GPUs on a machine with single one."]


# Nobody else gets it.

@pytest.mark.each_harbour
def test_many_at_once(server, scripts):
    said = contend(scripts, [NOTHING + """
try:
    safe_gpu.claim_gpus(placeholder_fn=nothing)
    print(safe_gpu.gpu_owner.devices_taken[0])
except RuntimeError:
    print("refused")
"""] * 8)
    assert_nothing_twice(said, 4)
    assert states(server) == ["leased"] * 4


@pytest.mark.each_harbour
def test_a_killed_script_leaves_nothing(server, scripts):
    job = scripts.hold("from safe_gpu import safe_gpu\ngpu_owner = safe_gpu.GPUOwner(4)\n")
    assert states(server) == ["leased"] * 4
    job.process.send_signal(signal.SIGKILL)
    eventually(lambda: states(server) == ["free"] * 4, "the end of the lease")
