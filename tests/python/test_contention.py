"""Fifty programs at once, through every interface that berth has: no GPU is ever given twice."""

import os
import random
import signal

import pytest
from compat_scripts import Scripts
from conftest import BERTH, wait_until
from pythons import PACKAGE, all_free
from waiting import LIMIT

pytestmark = pytest.mark.release_only

# Each takes GPUs, holds them in `held` (a file per GPU that nobody else may make), and gives them back; again and
# again where it was refused, as people do with tools that do not wait.
HOLD = """
import os, random, sys, time
def hold(gpus):
    files = [os.open(f"held-{gpu}", os.O_CREAT | os.O_EXCL) for gpu in gpus]   # fails if somebody has it
    time.sleep(random.random() / 50)
    for gpu, file in zip(gpus, files):
        os.unlink(f"held-{gpu}")
        os.close(file)
    print("held", gpus, flush=True)
def until_granted(take):
    while True:
        try:
            return take()
        except RuntimeError:
            time.sleep(random.random() / 20)
def visible(): return os.environ["CUDA_VISIBLE_DEVICES"].split(",")
"""
WAYS = {
    "berth.gpus": "import berth\nwith berth.gpus(progress=False, on_wait=lambda _: None):\n    hold(visible())\n",
    "berth.acquire": "import berth\nlease = berth.acquire(2, on_wait=lambda _: None)\nhold(visible())\n",
    "berth.job": "import berth\n@berth.job(on_wait=lambda _: None)\ndef work(): hold(visible())\nwork()\n",
    "safe_gpu": "from safe_gpu import safe_gpu\n"
                "owner = until_granted(lambda: safe_gpu.GPUOwner(placeholder_fn=lambda device: None))\nhold(visible())\n",
    "gpu_lock": "from gpu_lock import lock_gpu\n"
                "with until_granted(lambda: lock_gpu()) as lock:\n    hold(visible())\n",
    "gpuselect": "from gpuselect import gpuselect\n"
                 "while gpuselect(util=100, mem_util=100, silent=True) == '':\n    time.sleep(random.random() / 20)\n"
                 "hold(visible())\n",
    "grn": "import grn\n@grn.job()\ndef work(): hold(visible())\nwork()\n",
    "berth run": None,
}


@pytest.mark.each_harbour
def test_fifty_programs_and_no_gpu_twice(server):
    scripts = Scripts(server)
    programs = server.folder / "holder.py"
    programs.write_text(HOLD + "hold(visible())\n")
    server.env["PYTHONPATH"] = f"{PACKAGE}:{scripts.modules}"
    some = []
    try:
        for number in range(50):
            way, code = list(WAYS.items())[number % len(WAYS)]
            if code is None:
                command = [BERTH, "run", "--", "python3", programs]
            else:
                command = scripts.command(HOLD + code)
            some.append((way, scripts.jobs.start(*command, cwd=server.folder)))
        for way, job in some:
            assert job.process.wait(LIMIT) == 0, (way, job.out, job.err)
            assert job.out.count("held") == 1, (way, job.out, job.err)
        wait_until(lambda: all_free(server))
    finally:
        scripts.jobs.stop()


@pytest.mark.each_harbour
def test_fifty_programs_of_which_some_are_killed(server):
    """Whoever is killed takes its GPU's file with it, so what is asserted here is that all others come through."""
    scripts = Scripts(server)
    stays = "import berth, time\nberth.acquire(on_wait=lambda _: None)\nprint('has it', flush=True)\ntime.sleep(3600)\n"
    passes = "import berth\nwith berth.gpus(on_wait=lambda _: None) as lease: print('has had it', flush=True)\n"
    chance = random.Random(4)
    some = [(text, scripts.start(text)) for text in [stays, passes] * 25]
    try:
        while any(job.runs for text, job in some):
            for text, job in some:
                if text == stays and "has it" in job.out and job.runs and chance.random() < 0.5:
                    os.kill(job.pid, signal.SIGKILL)
                    job.process.wait()
        assert all("has had it" in job.out for text, job in some if text == passes), [job.err for _, job in some]
        wait_until(lambda: all_free(server))
    finally:
        scripts.jobs.stop()
