"""GRN's own examples and tests on Berth: scripts that call grn as those of its repository do.

Its package on the registry has neither. The toolkits are stand-ins that use memory of the simulated driver.
"""

import json

import pytest
from compat_scripts import SIMULATED_CUDA
from compat_tools import compat, good, python_in_path, script, tools  # noqa: F401

pytestmark = pytest.mark.release_only

# Keeps its memory until Berth has seen it, as a training of minutes does.
TOOLKIT = SIMULATED_CUDA + """
import json, os, subprocess
def train(mib=64):
    context = Context(0)
    if mib > 64:
        context.check(CUDA.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t((mib - 64) << 20)))
    subprocess.run(["berth-sim-job", "--quiet", "--mem", "64MiB", "--samples", "5"], check=True)
    return context
"""

# examples/mnist: three scripts, which a tool for workflows starts three times each.
MNIST = """\
import argparse, grn
{imports}

@grn.job()
def train_job(epochs: int, batch_size: int) -> dict:
    import {toolkit} as toolkit
    for epoch in range(epochs):
        toolkit.train()
        print("{toolkit}", batch_size, flush=True)
{profile}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    trained = train_job(epochs=args.epochs, batch_size=args.batch_size)
"""
JAX_PROFILE = """
@train_job.profile
def _():
    print("I am a special version of the job used for profiling.")
"""

# tests/gpu_job_test.py and tests/profile/profile.py
GPU_JOB = """\
import argparse, grn

@grn.job()
def gpu_job(mem: int, wait: bool = False) -> None:
    import torch
    torch.train(mem)
    print("job", mem, wait)

@gpu_job.profile
def _(mem: int, wait: bool = False) -> None:
    import torch
    torch.train(mem)
    print("profile", mem, wait)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("gpu_mem", type=int)
    parser.add_argument("--wait", action="store_true")
    args = parser.parse_args()
    gpu_job(args.gpu_mem, args.wait)
"""

# tests/many_small_jobs
SMALL_JOB = """\
import grn, os

@grn.job(resource_policy="{policy}")
def job(mem: int) -> None:
    import torch
    torch.train(mem)
    print("{policy}", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)

if __name__ == "__main__":
    job(100)
"""


@pytest.fixture
def examples(tools):
    for toolkit in ("torch", "tensorflow", "jax"):
        (tools.folder / "modules" / f"{toolkit}.py").write_text(TOOLKIT)
    return tools


def run(server, *words):
    result = server.run(*words, cwd=server.folder / "scripts")
    assert result.returncode == 0, result
    return result


def leases(server, label):
    """The leases in the history whose label ends so, the oldest first."""
    entries = [json.loads(line) for line in server.berth("log", "--json").stdout.splitlines()]
    return [entry for entry in entries if entry["label"].endswith(label)]


def test_mnist_by_its_quick_start(examples):
    """All nine tasks below one grn-run: each has a lease of its own, in its turn."""
    for toolkit, profile in (("torch", ""), ("tensorflow", ""), ("jax", JAX_PROFILE)):
        script(examples, f"{toolkit}_mnist_train.py", MNIST.format(toolkit=toolkit, imports="import os", profile=profile))
    script(examples, "workflow.sh", 'started=""\nfor toolkit in tensorflow torch jax; do for task in 1 2 3; do\n'
           'python ${toolkit}_mnist_train.py & started="$started $!"\ndone; done\n'
           'for task in $started; do wait $task || exit 1; done\n')
    result = run(examples, "grn-run", "bash workflow.sh")
    assert sorted(result.stdout.splitlines()) == sorted(["tensorflow 128", "torch 128", "jax 128"] * 3)
    for toolkit in ("torch", "tensorflow", "jax"):
        assert [lease["within"] for lease in leases(examples, f"{toolkit}_mnist_train.py::train_job")] == [None] * 3


def test_jax_trains_without_grn_run(examples):
    script(examples, "jax_mnist_train.py", MNIST.format(toolkit="jax", imports="", profile=JAX_PROFILE))
    for _ in range(2):
        result = compat(examples, "jax_mnist_train.py", "--epochs", "2", cwd=examples.folder / "scripts")
        assert (result.returncode, result.stdout) == (0, "jax 128\n" * 2), result


def test_a_profile_with_the_arguments_of_the_job(examples):
    script(examples, "gpu_job_test.py", GPU_JOB)
    for said in ("profile 500 True\njob 500 True\n", "job 500 True\n"):
        assert good(compat(examples, "gpu_job_test.py", "500", "--wait", cwd=examples.folder / "scripts")) == said


def test_many_small_jobs(examples):
    for policy in ("pack", "spread"):
        script(examples, f"job_{policy}.py", SMALL_JOB.format(policy=policy))
    script(examples, "run.sh", 'started=""\nfor ((i = 0; i < $1; ++i)); do\n  for policy in pack spread; do\n'
           '    python -m berth.compat job_$policy.py & started="$started $!"\n  done\ndone\n'
           'for job in $started; do wait $job || exit 1; done\n')
    result = run(examples, "bash", "run.sh", "4")
    assert sorted(line.split()[0] for line in result.stdout.splitlines()) == ["pack"] * 4 + ["spread"] * 4
    for policy in ("pack", "spread"):
        assert len(leases(examples, f"job_{policy}.py::job")) == 4


def test_a_command_that_computes_in_a_child(examples):
    """tests/child_processes and tests/cli: a plain program, which grn-run makes a job of."""
    script(examples, "job_child.py", "import os, torch\ntorch.train()\nprint('child', os.environ['CUDA_VISIBLE_DEVICES'])\n")
    script(examples, "job_parent.py", "import os, subprocess, torch\ncontext = torch.train()\n"
           "subprocess.Popen(['python', 'job_child.py']).wait()\nprint('parent', os.environ['CUDA_VISIBLE_DEVICES'])\n")
    assert good(run(examples, "grn-run", "-d", "python job_parent.py")) == "child 0\nparent 0\n"
    [lease] = leases(examples, "python job_parent.py")
    assert lease["gpus"][0]["peak_mib"] is not None
