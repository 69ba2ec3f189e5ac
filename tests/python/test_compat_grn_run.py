"""grn-run: its commands, and the jobs below them."""

import json
import signal

import pytest
from conftest import assert_one_line_error
from leasing import eventually, jobs, state_of  # noqa: F401
from compat_tools import compat, good, python_in_path, script, tools  # noqa: F401
from test_compat_grn import all_free, code, grn, in_scripts, notes, start_server  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

# grn-run and @grn.job: each call is placed and measured on its own.

# Two of these do not fit on one GPU. Those with a number wait for the others, so that they surely run at the same time.
BIG = """\
import grn, os, pathlib, subprocess, sys, time

@grn.job()
def big(number):
    subprocess.run(["berth-sim-job", "--quiet", "--mem", "13GiB", "--samples", "4"], check=True)
    here = pathlib.Path(sys.argv[0]).parent
    if number:
        (here / f"inside{number}").touch()
        end = time.monotonic() + 60
        while len(list(here.glob("inside*"))) < 3 and time.monotonic() < end:
            time.sleep(0.02)
    print(number, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)

if __name__ == "__main__":
    big(int(sys.argv[1]))
"""


@pytest.mark.parametrize("commands", [
    ["bash three.sh"],
    ["python big.py 1", "python big.py 2", "python big.py 3"],
])
def test_jobs_below_run_use_all_gpus(grn, commands):
    script(grn, "big.py", BIG)
    script(grn, "three.sh", "for i in 1 2 3; do python big.py $i & done; wait\n")
    assert good(grn.run("grn-run", "python big.py 0", **in_scripts(grn))) == "0 0\n"
    result = grn.run("grn-run", *commands, **in_scripts(grn))
    assert result.returncode == 0, result
    said = [line.split() for line in result.stdout.splitlines()]
    assert sorted(number for number, _ in said) == ["1", "2", "3"]
    assert len({gpu for _, gpu in said}) == 3
    history = [json.loads(line) for line in grn.berth("log", "--json").stdout.splitlines()]
    measured = [entry for entry in history if entry["label"].endswith("big.py::big")]
    assert [entry["memory_mib"] is None for entry in measured] == [True, False, False, False], history
    assert all_free(grn)


def test_a_job_below_run_on_the_only_gpu(grn, jobs):
    """The lease of grn-run itself is given up; a command without a job keeps it."""
    grn.use("1x24GiB")
    script(grn, "job.sh", "echo $CUDA_VISIBLE_DEVICES; python job.py; echo over; read -r line; exit 0\n")
    job = jobs.start("grn-run", "bash job.sh", **in_scripts(grn))
    eventually(lambda: job.out == "0\nover\n", "the end of the job")
    assert [note["state"] for note in notes(grn)] == ["leased"]
    assert all_free(grn), "the command still runs, but its lease was given up"
    assert job.end() == 0


@pytest.mark.parametrize("gpus", ["1x24GiB", "4x24GiB"])
def test_a_job_below_run_leaves_the_lease_to_a_program_that_computes(grn, jobs, gpus):
    """The program keeps its GPU until it ends; on the only GPU the job waits for it."""
    grn.use(gpus)
    script(grn, "both.sh", """berth-sim-job --quiet --mem 1GiB --samples 3 --time 1h & tool=$!
until berth status --json | grep -q berth-sim-job; do sleep 0.05; done
python job.py & job=$!
echo started; read -r line; kill $tool; wait $job; echo over
""")
    job = jobs.start("grn-run", "bash both.sh", **in_scripts(grn))
    eventually(lambda: job.out == "started\n", "the start of both")
    if gpus == "1x24GiB":
        eventually(lambda: grn.status()["queue"], "the job waits")
    else:
        eventually(lambda: len(notes(grn)) == 1, "the job runs on another GPU")
    assert state_of(grn, 0) == "leased"
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    eventually(lambda: job.out == "started\nover\n", "the end of the job")
    assert [note["gpu"] for note in notes(grn)] == ["0" if gpus == "1x24GiB" else "1"]


def test_jobs_below_run_keep_its_restrictions(grn, jobs):
    script(grn, "job.sh", "$SETTING python job.py\n")
    good(grn.run("grn-run", "bash job.sh", env={"CUDA_VISIBLE_DEVICES": "3,2"}, **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "2"
    good(grn.run("grn-run", "bash job.sh", env={"SETTING": "env CUDA_VISIBLE_DEVICES=3"}, **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "3"
    start_server(jobs, env={"CUDA_VISIBLE_DEVICES": "1"})
    good(grn.run("grn-run", "bash job.sh", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "1"
    good(grn.berth("run", "--gpu", "3", "--", "grn-run", "bash job.sh", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "3"


def test_a_job_below_two_runs(grn):
    """Both give up their leases."""
    grn.use("1x24GiB")
    script(grn, "job.sh", "python job.py; berth status --json\n")
    result = good(grn.run("grn-run", "grn-run 'bash job.sh'", **in_scripts(grn)))
    assert [note["state"] for note in notes(grn)] == ["leased"]
    assert [gpu["state"] for gpu in json.loads(result)["gpus"]] == ["free"]


def test_a_lease_below_run_counts_for_the_jobs_in_it(grn):
    good(grn.run("grn-run", "berth run --gpu 0 -- python -m berth.compat job.py", **in_scripts(grn)))
    assert notes(grn)[-1]["gpu"] == "0"


@pytest.mark.parametrize("text", ["import grn", "  import os, grn", "from grn import job", "import os.path, grn as g"])
def test_a_script_that_imports_grn_needs_no_gpu_itself(grn, jobs, text):
    grn.use("1x24GiB")
    holder = jobs.hold()
    script(grn, "free.py", f"print('runs')\nif 1:\n  pass\n{text.strip()}\nprint('end')\n")
    assert good(grn.run("grn-run", "python free.py", **in_scripts(grn))) == "runs\nend\n"
    assert holder.runs


# grn-run

def test_run_passes_the_first_failure_on(grn):
    """A failure does not keep the others from running."""
    commands = ["sh -c 'echo one; exit 3'", "no-such-program", "sh -c 'echo \"two  words\"; exit 4'"]
    result = grn.run("grn-run", "-d", *commands)
    assert (result.returncode, sorted(result.stdout.splitlines())) == (3, ["one", "two  words"])
    assert "'no-such-program'" in result.stderr
    assert grn.run("grn-run", "true", "no-such-program").returncode == 127
    assert grn.run("grn-run", "sh -c 'kill -9 $$'").returncode == 137
    assert all_free(grn)


def test_run_starts_all_at_once(grn, jobs):
    """Each on its own GPU."""
    command = "sh -c 'echo $CUDA_VISIBLE_DEVICES; read -r line; exit 0'"
    job = jobs.start("grn-run", command, command, command)
    eventually(lambda: sorted(job.out.splitlines()) == ["0", "1", "2"], "three commands that run")
    labels = [lease["label"] for gpu in grn.status()["gpus"] for lease in gpu["leases"]]
    assert labels == [command.replace("'", "")] * 3
    hidden = jobs.start("grn-run", command, env={"BERTH_COMMANDS": "hidden"})
    eventually(lambda: hidden.out == "3\n", "the fourth command")
    assert [lease["label"] for lease in grn.status()["gpus"][3]["leases"]] == ["sh"]
    assert (job.end(), hidden.end()) == (0, 0)
    assert all_free(grn)


def test_run_leaves_the_lease_to_the_command(grn, jobs):
    """When grn-run itself is killed."""
    job = jobs.start("grn-run", "sh -c 'echo here; read -r line; echo over'")
    eventually(lambda: job.out == "here\n", "the command")
    job.process.kill()
    job.process.wait()
    assert state_of(grn, 0) == "leased"
    job.process.stdin.close()
    eventually(lambda: all_free(grn), "the end of the lease")
    assert job.out == "here\nover\n"


@pytest.mark.each_harbour
def test_run_waits_for_a_gpu(grn, jobs):
    grn.use("1x24GiB")
    holder = jobs.hold()
    job = jobs.start("grn-run", "sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    job.waits()
    holder.end()
    assert job.process.wait(LIMIT) == 0 and job.out == "0\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_run_passes_signals_on_and_ends(grn, jobs, number):
    trap = f"trap 'echo got it; exit 5' {number.value}; echo ready; while :; do read -r line; done"
    job = jobs.start("grn-run", f"bash -c \"{trap}\"", "sh -c 'read -r line'")
    eventually(lambda: job.out == "ready\n", "the command")
    job.process.send_signal(number)
    assert job.process.wait(LIMIT) == 128 + number
    assert job.out == "ready\ngot it\n"
    assert all_free(grn)


def test_run_that_waits_is_stopped(grn, jobs):
    grn.use("1x24GiB")
    holder = jobs.hold()
    job = jobs.start("grn-run", "echo one", "echo two")
    eventually(lambda: len(grn.status()["queue"]) == 2, "both commands in the queue")
    job.process.terminate()
    assert (job.process.wait(LIMIT), job.out) == (128 + signal.SIGTERM, "")
    eventually(lambda: grn.status()["queue"] == [], "the end of the tickets")
    assert "Traceback" not in job.err and holder.runs


@pytest.mark.parametrize("words", [[], [""], ["  "], ["echo 'x"], ["true", "echo 'x"], ["--frob"]])
def test_run_wrong_words(grn, words):
    assert_one_line_error(grn.run("grn-run", *words), 64, "grn-run")


def test_start_wrong_words(grn):
    assert_one_line_error(grn.run("grn-start", "word"), 64, "grn-start")
    good(grn.run("grn-start", "--help"))
