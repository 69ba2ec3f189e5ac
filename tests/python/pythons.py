"""What the tests of the Python package share: Python programs on a simulated server."""

import sys
import textwrap

import pytest
from conftest import BUILD
from leasing import Jobs

PACKAGE = BUILD / "python"
SPEAKS = "import sys, berth\ndef say(*words): print(*words, flush=True)\ndef stay(): sys.stdin.readline()\n"


class Python:
    """Runs programs with `berth` at hand; `say` and `stay` (until the test ends it) are defined in them."""

    def __init__(self, server, jobs):
        self.server = server
        self.jobs = jobs
        self.env = {"PYTHONPATH": f"{PACKAGE}:{server.folder}"}

    def run(self, code, *arguments, env=None, prefix=(), program=sys.executable, **options):
        """To its end; its output is captured."""
        return self.server.run(*prefix, program, "-c", SPEAKS + textwrap.dedent(code), *arguments,
                               env={**self.env, **(env or {})}, cwd=self.server.folder, **options)

    def says(self, code, *arguments, **options):
        """What it prints; it must succeed and complain of nothing."""
        result = self.run(code, *arguments, **options)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        return result.stdout.strip()

    def start(self, code, *arguments, env=None, prefix=()):
        """Beside the test."""
        return self.jobs.start(*prefix, sys.executable, "-c", SPEAKS + textwrap.dedent(code), *arguments,
                               env={**self.env, **(env or {})}, cwd=self.server.folder)

    def script(self, name, code):
        """A file for programs that must be one, as multiprocessing's children want it."""
        path = self.server.folder / name
        path.write_text(SPEAKS + textwrap.dedent(code))
        return path

    def start_script(self, path, *arguments):
        return self.jobs.start(sys.executable, path, *arguments, env=self.env, cwd=self.server.folder)


@pytest.fixture
def python(server):
    jobs = Jobs(server)
    yield Python(server, jobs)
    jobs.stop()


def first_line(job):
    """What a program has said first; waits for it."""
    return job.gpus()


def all_free(server):
    return all(gpu["state"] == "free" for gpu in server.status()["gpus"])


def leased(server):
    """The indices of the GPUs that are not free."""
    return [gpu["index"] for gpu in server.status()["gpus"] if gpu["state"] != "free"]


def cpu_ticks(pid):
    """What the process has used, with all its threads: user and system."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
