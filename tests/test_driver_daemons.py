"""Daemons of the driver (MPS, monitoring) are not strangers; a user's process that has their name is one."""

import re
import shutil
import subprocess

import pytest
from conftest import wait_until

pytestmark = pytest.mark.needs_root

ANN = 2001
AS_ANN = ["setpriv", f"--reuid={ANN}", f"--regid={ANN}", "--clear-groups"]


class Daemons:
    """Processes that have the names of the driver's daemons, and that the simulated driver lists on GPU 0."""

    def __init__(self, server):
        self.server = server
        self.processes = []

    def program(self, name):
        """A program of that name, which sleeps."""
        path = self.server.folder / name
        if not path.exists():
            shutil.copy("/usr/bin/sleep", path)
        return path

    def start(self, name, prefix=()):
        """A program of that name; its PID."""
        process = subprocess.Popen([*prefix, self.program(name), "1000"])
        self.processes.append(process)
        self.wait_for_name(process.pid, name)
        return process.pid

    def start_server_of_control(self, control_prefix=(), server_prefix=AS_ANN):
        """An MPS server that a control daemon has started; the server's PID."""
        control = self.server.folder / "nvidia-cuda-mps-control"
        pid_file = self.server.folder / "server.pid"
        control.write_text("#!/bin/sh\n"
                           f"{' '.join(server_prefix)} {self.program('nvidia-cuda-mps-server')} 1000 &\n"
                           f"echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait\n")
        control.chmod(0o755)
        self.processes.append(subprocess.Popen([*control_prefix, control]))
        wait_until(pid_file.exists, "the server's PID")
        pid = int(pid_file.read_text())
        self.wait_for_name(pid, "nvidia-cuda-mps-server")
        return pid

    def wait_for_name(self, pid, name):
        def has_name():
            with open(f"/proc/{pid}/comm") as file:
                return file.read() == f"{name[:15]}\n"
        wait_until(has_name, f"{pid} is {name}")

    def state(self, pid, memory="30MiB", kind="mps"):
        """The state of the GPU with that process on it."""
        self.server.use({"gpus": [{"name": "A", "memory": "8GiB"}],
                         "strangers": [{"gpu": 0, "pid": pid, "name": "x", "memory": memory, "type": kind}]})
        [gpu] = self.server.status()["gpus"]
        return gpu["state"]

    def stop(self):
        for process in self.processes:
            subprocess.run(["kill", "-9", *self.family(process.pid)], check=False)
            process.wait()

    @staticmethod
    def family(pid):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
        return [str(pid), *children.stdout.split()]


@pytest.fixture
def daemons(server):
    found = Daemons(server)
    yield found
    found.stop()


@pytest.mark.parametrize("name", ["nvidia-cuda-mps-server", "nv-hostengine", "nvidia-persistenced", "dcgm-exporter"])
def test_roots_daemon_leaves_the_gpu_free(server, daemons, name):
    assert daemons.state(daemons.start(name)) == "free"
    assert server.berth("run", "--no-wait", "--", "true").returncode == 0
    text = server.berth("status", "-v").stdout
    assert not re.search(r"! +\d", text) and " driver" in text


def test_its_memory_is_not_there_to_share(server, daemons):
    daemons.state(daemons.start("nvidia-cuda-mps-server"), memory="1GiB")
    assert server.berth("run", "--no-wait", "--mem", "6GiB", "--", "true").returncode == 0
    assert server.berth("run", "--no-wait", "--mem", "7500MiB", "--", "true").returncode == 75


def test_a_users_process_of_that_name_is_a_stranger(daemons):
    for name in ("nvidia-cuda-mps-server", "nv-hostengine"):
        assert daemons.state(daemons.start(name, AS_ANN)) == "stranger"


def test_another_program_of_roots_is_a_stranger(daemons):
    assert daemons.state(daemons.start("python")) == "stranger"


def test_an_mps_server_that_roots_control_daemon_started_for_a_user(daemons):
    assert daemons.state(daemons.start_server_of_control()) == "free"


def test_an_mps_server_that_a_users_own_control_daemon_started(daemons):
    pid = daemons.start_server_of_control(control_prefix=AS_ANN, server_prefix=())
    assert daemons.state(pid) == "stranger"


def test_the_memory_of_clients_in_a_server_is_a_strangers(daemons):
    assert daemons.state(daemons.start("nvidia-cuda-mps-server"), memory="4GiB") == "stranger"
