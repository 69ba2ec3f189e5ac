"""A folder in which batches are run."""

import json
import pathlib
import re
import subprocess

from conftest import BERTH
from leasing import kill_session


class Batch:
    """A folder with a file of commands, in which batches are run; at the end of its block, those that still run are killed."""

    def __init__(self, server):
        self.server = server
        self.folder = server.folder / "work"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        self.started = []

    def write(self, *lines, name="jobs.txt"):
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))
        return name

    def run(self, *arguments, **options):
        """To its end."""
        return self.server.berth("batch", *arguments, cwd=self.folder, **options)

    def start(self, *arguments, prefix=(), program=BERTH, **options):
        errors = open(self.folder / f"errors{len(self.started)}", "w+")  # noqa: SIM115: read by the test
        process = subprocess.Popen([*prefix, program, "batch", *[str(one) for one in arguments]], cwd=self.folder,
                                   env=self.server.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                   text=True, start_new_session=True, **options)
        process.errors = lambda: pathlib.Path(errors.name).read_text()
        self.started.append((process, errors))
        return process

    def joblog(self, path="jobs.logs/joblog.jsonl"):
        """The lines that have ended, whole ones."""
        whole = (self.folder / path).read_text().rpartition("\n")[0]  # a reader may see half of what is being written
        found = [json.loads(line) for line in whole.splitlines()]
        return [one for one in found if one["event"] == "line"]

    def logs(self, folder="jobs.logs"):
        return {path.name[:3]: path.read_text() for path in sorted((self.folder / folder).glob("*.log"))}

    def ran(self, name="ran"):
        """What the lines have written to a file of that name, one word each."""
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def queue(self):
        result = self.server.berth("queue", "--json")
        assert (result.returncode, result.stderr) == (0, "")
        return json.loads(result.stdout)["queue"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, errors in self.started:
            process.kill()
            kill_session(process.pid)  # each has one of its own, in which its lines are
            process.wait()
            process.stdout.close()
            errors.close()


def counts(summary):
    """The numbers of the summary, such as [3, 1, 2] for "3 succeeded, 1 failed, 2 not started in 5s"."""
    return [int(number) for number in re.findall(r"\b(\d+) [a-z]", summary)]
