"""Several leases in one process, one after the other, after CUDA was started: it stays on its GPU."""

import pytest
from compat_scripts import SIMULATED_CUDA
from leasing import jobs  # noqa: F401
from compat_tools import PYTHON, compat, good, python_in_path, script, tools  # noqa: F401
from test_compat_grn import code, grn  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

LOOP = """\
import simulated_cuda, sys
contexts = []
@grn.job()
def train(number):
    contexts.append(simulated_cuda.Context(0))  # it stays, as that of PyTorch does
    subprocess.run(["berth-sim-job", "--quiet", "--mem", "1GiB", "--samples", "4"], check=True)
    mine = [gpu for gpu in berth.status() for lease in gpu.leases if lease.id == os.environ["BERTH_LEASE"]]
    [used] = [process.memory_mib for process in mine[0].processes if process.pid == os.getpid()]
    [exclusive] = [lease.exclusive for lease in mine[0].leases if lease.id == os.environ["BERTH_LEASE"]]
    print(number, mine[0].index, exclusive, used, flush=True)
for number in range(3): train(number)
"""


@pytest.fixture
def with_cuda(grn):
    (grn.folder / "modules" / "simulated_cuda.py").write_text(SIMULATED_CUDA)
    return grn


@pytest.mark.parametrize("gpus", ["1x24GiB", "4x24GiB"])
def test_later_calls_stay_on_the_gpu_of_the_first(with_cuda, gpus):
    """CUDA cannot leave it. And with one GPU only, the process would wait for itself."""
    with_cuda.use(gpus)
    result = code(with_cuda, "import subprocess\n" + LOOP)
    assert (result.returncode, result.stderr) == (0, ""), result
    assert result.stdout.splitlines() == ["0 0 True 64", "1 0 False 128", "2 0 False 192"]


def test_what_the_process_uses_already_is_not_reserved_again(with_cuda):
    """The lease reserves all, also if that is all that the GPU has; the process is a part of it."""
    result = code(with_cuda, """\
import simulated_cuda
context = simulated_cuda.Context(0)
for size in ("8GiB", "24GiB"):
    with berth.gpus(mem=size) as lease: print(lease.indices, [lease.memory_mib for lease in berth.status()[0].leases])
""")
    assert good(result).splitlines() == ["[0] [8192]", "[0] [24576]"]


def test_memory_that_the_process_uses_already_is_not_promised_to_others(with_cuda):
    """10 GiB are in use when 20 of 24 GiB are leased: another job can have 4 GiB, less a context, and not 14."""
    with_cuda.use("1x24GiB")
    result = code(with_cuda, """\
import simulated_cuda, subprocess
context = simulated_cuda.Context(0, 10 << 30)
with berth.gpus(mem="20GiB"):
    outside = {name: value for name, value in os.environ.items() if name not in ("BERTH_LEASE", "CUDA_VISIBLE_DEVICES")}
    for size in ("13GiB", "3GiB"):
        print(subprocess.run(["berth", "run", "--mem", size, "--no-wait", "--", "true"], env=outside).returncode)
""")
    assert result.stdout.splitlines() == ["75", "0"], result


@pytest.mark.parametrize("named", ["'0'", "'0-0'", "'all'", "berth.status()[0].uuid.lower()[:12]"])
def test_the_own_gpu_may_be_named(with_cuda, named):
    """As a range, as all GPUs, or by the beginning of its UUID: the process does not wait for itself."""
    with_cuda.use("1x24GiB")
    text = "import simulated_cuda\ncontext = simulated_cuda.Context(0)\n"
    result = code(with_cuda, f"{text}with berth.gpus(gpu={named}, no_wait=True) as lease: print(lease.indices)")
    assert good(result) == "[0]\n"


def test_a_process_whose_gpu_is_leased_waits_for_the_lease_and_not_for_itself(with_cuda):
    with_cuda.use("1x24GiB")
    result = code(with_cuda, """\
import simulated_cuda, subprocess
context = simulated_cuda.Context(0)
holder = subprocess.Popen(["berth", "run", "--max-processes", "1", "--", "sh", "-c", "echo; read -r line"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdout.readline()
def end(waiting):
    if holder.poll() is None: holder.communicate()
with berth.gpus(on_wait=end) as lease: print(lease.indices)
""")
    assert good(result) == "[0]\n"


TWO = """\
import berth, pathlib, simulated_cuda, sys, time
name, here = sys.argv[1], pathlib.Path(sys.argv[0]).parent

def meet(place):
    (here / f"{place}-{name}").touch()
    while len(list(here.glob(f"{place}-*"))) < 2: time.sleep(0.02)

with berth.gpus(mem="4GiB"):
    context = simulated_cuda.Context(0)
    meet("inside")
meet("outside")
with berth.gpus(mem="4GiB") as lease: print(name, lease.indices)
"""


def test_two_processes_that_stay_do_not_wait_for_each_other(with_cuda, jobs):
    """Both are on the only GPU between their leases."""
    with_cuda.use("1x24GiB")
    path = script(with_cuda, "two.py", TWO)
    both = [jobs.start(PYTHON, path, name) for name in ("one", "two")]
    assert [job.process.wait(LIMIT) for job in both] == [0, 0]
    assert [job.out for job in both] == ["one [0]\n", "two [0]\n"]


def test_a_request_that_excludes_the_own_gpu_gets_another(with_cuda):
    """With a warning, since CUDA stays where it is."""
    with_cuda.use({"gpus": [{"count": 1, "name": "Small", "memory": "8GiB"}, {"count": 1, "name": "Big", "memory": "24GiB"}]})
    text = "import simulated_cuda\ncontext = simulated_cuda.Context(0)\n"
    for request in ("name='Big'", "min_mem='16GiB'", "gpu=1"):
        result = code(with_cuda, f"{text}with berth.gpus({request}) as lease: print(lease.indices)")
        assert (result.returncode, result.stdout) == (0, "[1]\n"), result
        assert "RuntimeWarning: CUDA was already started" in result.stderr


def test_a_gpu_of_another_user_is_not_waited_for(with_cuda):
    """The process computed there without a lease: the next lease is on a free GPU, and it is warned."""
    text = """\
import simulated_cuda
context = simulated_cuda.Context(0)
holder = subprocess.Popen(["berth", "run", "--gpu", "0", "--max-processes", "1", "--", "sh", "-c", "echo; read -r line"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdout.readline()
with berth.gpus() as lease: print(lease.indices)
holder.communicate()
"""
    result = code(with_cuda, "import subprocess\n" + text)
    assert (result.returncode, result.stdout) == (0, "[1]\n"), result
    assert "RuntimeWarning: CUDA was already started" in result.stderr
