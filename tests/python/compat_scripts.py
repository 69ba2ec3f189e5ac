"""What the tests of older tools' interfaces share: scripts that run on berth's modules, and toolkits.

The toolkits are stubs of a few lines; but they use memory of the simulated driver, as real ones use a real one's.
"""

import os
import sys

import pytest
from conftest import SIM_LIBRARIES
from leasing import Jobs, eventually
from pythons import PACKAGE

# Ends when nobody holds its stdin any more: no test can leave it behind.
STAY = "\nprint('ready', flush=True)\nimport sys\nsys.stdin.read()\n"

SIMULATED_CUDA = f"""
import ctypes
CUDA = ctypes.CDLL({str(SIM_LIBRARIES / "libcuda.so.1")!r})

class Context:
    def __init__(self, number, size=64 << 20):
        self.handle = ctypes.c_void_p()
        self.check(CUDA.cuInit(0))
        self.check(CUDA.cuCtxCreate_v2(ctypes.byref(self.handle), 0, number))
        self.check(CUDA.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size)))

    def check(self, result):
        if result != 0:
            raise RuntimeError(f"CUDA error {{result}}")

    def push(self):
        self.check(CUDA.cuCtxPushCurrent_v2(self.handle))

    @staticmethod
    def pop():
        Context.check(None, CUDA.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))

    def detach(self):
        self.check(CUDA.cuCtxDestroy_v2(self.handle))
"""

TOOLKITS = {
    "simulated_cuda": SIMULATED_CUDA,
    "torch": """
import simulated_cuda

def zeros(size, device):
    kind, number = device.split(":")
    assert kind == "cuda"
    return simulated_cuda.Context(int(number))
""",
    "tensorflow": """
import contextlib
import simulated_cuda

@contextlib.contextmanager
def device(name):
    global number
    kind, number = name.split(":")
    assert kind == "GPU"
    yield

def constant(value):
    return simulated_cuda.Context(int(number))
""",
    "pycuda/__init__": "",
    "pycuda/driver": """
import simulated_cuda

def init():
    global started
    started = True

class Device:
    def __init__(self, number):
        assert started
        self.number = number

    def make_context(self):
        return simulated_cuda.Context(self.number)

Context = simulated_cuda.Context

def mem_alloc(size):
    pointer = simulated_cuda.ctypes.c_uint64()
    Context.check(None, simulated_cuda.CUDA.cuMemAlloc_v2(simulated_cuda.ctypes.byref(pointer), size))
    return pointer
""",
}


class Scripts:
    """Runs scripts that were written for another tool, by `python -m berth.compat`."""

    def __init__(self, server):
        self.server = server
        self.jobs = Jobs(server)
        self.number = 0
        self.modules = server.folder / "modules"
        for name, text in TOOLKITS.items():
            path = self.modules / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        server.env["PYTHONPATH"] = f"{PACKAGE}:{self.modules}"

    def command(self, text, *arguments):
        self.number += 1
        path = self.server.folder / f"script{self.number}.py"
        path.write_text(text)
        return [sys.executable, "-m", "berth.compat", path, *arguments]

    def run(self, text, *arguments, **options):
        """Runs a script to its end."""
        return self.server.run(*self.command(text, *arguments), **options)

    def output(self, text, *arguments, **options):
        """What a script prints that must succeed and say nothing on stderr; its lines."""
        result = self.run(text, *arguments, **options)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout.splitlines()

    def start(self, text, *arguments, **options):
        """Starts a script."""
        return self.jobs.start(*self.command(text, *arguments), **options)

    def hold(self, text, *arguments, **options):
        """Starts a script, which stays until the test ends or ends it, and waits until it has done what it says."""
        return ready(self.start(text + STAY, *arguments, **options))

    def install_command(self, name, words):
        """A command of this name in the server's PATH, which runs `words` and what it is given."""
        programs = self.server.folder / "programs"
        programs.mkdir(exist_ok=True)
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
        python = os.path.dirname(sys.executable)  # the one that the package was built for
        self.server.env["PATH"] = f"{programs}:{python}:{self.server.env['PATH']}"


def ready(job):
    def said():
        assert job.runs or "ready\n" in job.out, (job.process.returncode, job.out, job.err)
        return "ready\n" in job.out
    eventually(said, "the script's work")
    return job


def lines(job):
    """What a script that holds something printed before."""
    return job.out.split("ready\n")[0].splitlines()


def states(server):
    return [one["state"] for one in server.status()["gpus"]]


def contend(scripts, texts):
    """Runs these scripts at once: each waits for a line before it begins, and stays after it has printed its GPU or
    "refused". Returns what each printed."""
    begin = "import sys\nprint('waits', flush=True)\nsys.stdin.readline()\n"
    some = [scripts.start(begin + text + STAY) for text in texts]
    for job in some:
        eventually(lambda job=job: "waits\n" in job.out, "the start of a script")
    for job in some:
        job.process.stdin.write(b"go\n")
        job.process.stdin.flush()
    return [lines(ready(job))[1] for job in some]


def assert_nothing_twice(said, gpus):
    """As many were served as there are GPUs, each with one of its own; the others were refused."""
    got = sorted(line for line in said if line != "refused")
    assert got == [str(index) for index in range(gpus)], said


@pytest.fixture
def scripts(server):
    some = Scripts(server)
    yield some
    some.jobs.stop()
