"""Bad input: one clear line on stderr, the right exit code, no crash, nothing raw on the terminal."""

import json
import os
import random
import subprocess

import pytest
from conftest import BERTH, SERVERS, SIM_JOB, assert_fit_for_terminal, assert_one_line_error
from waiting import LIMIT

GOOD = {"gpus": [{"name": "A", "memory": "8GiB"}]}


@pytest.mark.parametrize("arguments", [
    ["status", "--unknown"], ["status", "extra"], ["status", "--watch", "soon"], ["status", "--watch", "0"],
    ["status", "--watch", "-1"], ["status", "--watch", "nan"], ["status", "--json=3"], ["--unknown"], ["statsu"],
    ["completion"], ["completion", "tcsh"], ["help", "nothing"], ["help", "status", "more"],
    ["\x1b[31mred"], ["status", "\x1b]0;title\x07"], ["status", "--\n"], ["sta\u202etus"], [""],
], ids=repr)
def test_wrong_flags(server, arguments):
    assert_one_line_error(server.berth(*arguments), 64)


def test_an_unknown_command_comes_with_a_guess(server):
    assert "'berth status'" in server.berth("staus").stderr


def test_no_command_shows_the_help(server):
    result = server.berth()
    assert result.returncode == 64
    assert "Jobs:" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("value", [
    "nonsense", "x", "4x", "x24GiB", "4x24", "4x-24GiB", "-4x24GiB", "0x24GiB", "10000x24GiB", "4x0GiB",
    "4x99999TiB", "4x24GiBx", "4 x 24GiB", "99999999999999999999x1GiB", "/nonexistent/file.json", "/dev/null",
    "/dev/zero", "/", "\x1b[31m", "4x24\u202eGiB", "x" * 100_000,
], ids=lambda value: repr(value)[:30])
def test_a_wrong_berth_sim(server, value):
    assert_one_line_error(server.use(value).berth("status", "--json"), 64, "BERTH_SIM")


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", "{}", '"text"', '{"gpus": []}', '{"gpus": 4}', '{"gpus": [{}]}', "\x00\x01\x02",
    json.dumps(GOOD)[:-3], json.dumps(GOOD) + "}", "{" * 100_000, json.dumps(GOOD) + "\0{", "[" * 1_000_000,
    json.dumps({**GOOD, "surprise": 1}), json.dumps({"gpus": GOOD["gpus"] * 65}),
], ids=lambda text: repr(text)[:30])
def test_a_malformed_file(server, tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert_one_line_error(server.use(path).berth("status"), 64, "BERTH_SIM")


@pytest.mark.parametrize("change", [
    {"memory": "-8GiB"}, {"memory": "0GiB"}, {"memory": "8"}, {"memory": 8}, {"memory": None}, {"memory": "9999TiB"},
    {"count": 0}, {"count": 10_000}, {"count": -1}, {"count": 1.5}, {"name": 7}, {"name": "a\x1b[31mb"},
    {"name": "a\nb"}, {"name": "a\u202eb"}, {"name": "x" * 1000}, {"uuid": "not a uuid\n"}, {"pci": "zz"}, {"compute_mode": "fast"},
    {"reserved_memory": "16GiB"}, {"mig": [{"memory": "9GiB", "name": "too large"}]}, {"mig": "yes"}, {"unknown_key": 1},
], ids=repr)
def test_a_card_that_cannot_be(server, change):
    server.use({"gpus": [{"name": "A", "memory": "8GiB", **change}]})
    assert_one_line_error(server.berth("status"), 64, "BERTH_SIM")


@pytest.mark.parametrize("part", [
    {"strangers": [{"gpu": 9, "memory": "1GiB"}]}, {"strangers": [{"gpu": 0, "memory": "-1GiB"}]}, {"strangers": [{}]},
    {"strangers": {"gpu": 0}}, {"strangers": [{"gpu": 0, "memory": "1GiB", "pid": -1}]},
    {"strangers": [{"gpu": 0, "memory": "1GiB", "type": "other"}]}, {"faults": [{}]}, {"faults": [{"hang": True}]},
    {"faults": [{"gpu": 5, "lost": True}]}, {"faults": [{"call": "nvmlInit", "answer": 1, "hang": True}]},
    {"faults": [{"call": "nvmlInit", "answer": "no such name"}]}, {"faults": [{"call": "nvmlInit", "delay": "-1s"}]},
    {"faults": [{"call": "\x1b[0m", "answer": 3}]}, {"nvlink": [{"gpus": [0, 0], "links": 1}]},
    {"nvlink": [{"gpus": [0, 7], "links": 1}]}, {"nvlink": [{"gpus": [0], "links": 100}]}, {"driver_version": 7},
], ids=lambda part: json.dumps(part)[:50])
def test_a_server_that_cannot_be(server, part):
    assert_one_line_error(server.use({**GOOD, **part}).berth("status"), 64, "BERTH_SIM")


def test_a_file_that_may_not_be_read(server, open_build):
    path = server.folder / "secret.json"
    path.write_text(json.dumps(GOOD))
    path.chmod(0)
    server.use(path)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    result = server.run(*as_nobody, open_build / "bin" / "berth", "status")
    assert_one_line_error(result, 64, "BERTH_SIM", "ermission")


def test_a_fifo_does_not_block(server, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert_one_line_error(server.use(tmp_path / "fifo").berth("status", timeout=LIMIT), 64, "BERTH_SIM")


def test_a_state_file_that_is_something_else(server):
    state = server.folder / "sim.state"
    state.write_text("this is my diary")
    assert_one_line_error(server.berth("status"), 69, "sim.state")
    assert state.read_text() == "this is my diary"


@pytest.mark.parametrize("value", ["soon", "0s", "-1s", "5", "\x1b"], ids=repr)
def test_a_wrong_time_limit(server, value):
    assert_one_line_error(server.berth("status", env={"BERTH_DRIVER_TIMEOUT": value}), 64, "BERTH_DRIVER_TIMEOUT")


def test_output_that_cannot_be_written_is_not_success(server):
    with open("/dev/full", "w") as full:
            result = subprocess.run([BERTH, "status"], env=server.env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 74
    assert result.stderr.startswith("berth: ") and result.stderr.endswith("No space left on device\n"), result


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", ["status", "status --json --watch 0.1", "--help", "completion bash"])
def test_a_closed_stdout_is_not_success_and_harms_nothing(server, arguments, closed):
    result = server.run("bash", "-c", f"berth {arguments} {closed}")
    assert result.returncode == 74, result
    if "2>" not in closed:
        assert result.stderr.startswith("berth: ") and result.stderr.endswith("Bad file descriptor\n"), result
    assert len(server.status()["gpus"]) == 4


def test_a_job_without_a_stdout_does_not_print_into_the_servers_state(server):
    server.status()
    for redirection in (">&-", "2>&-", "<&- >&- 2>&-"):
        for flags, code in (("--mem 1GiB --time 10ms", 0), ("--mem 99GiB", 1), ("--unknown", 64)):
            assert server.run("bash", "-c", f"berth-sim-job {flags} {redirection}").returncode == code
    assert len(server.status()["gpus"]) == 4


@pytest.mark.parametrize("flags", [["--mem", ""], ["--time", ""], ["--curve", ""], ["--mem", "1GiB", "--curve", "0s:1GiB"],
                                   ["--util", "101"], ["--gpus", "0"], ["--fail", "256"], ["--mem", "-1GiB"], ["more"]], ids=repr)
def test_wrong_flags_of_the_job(server, flags):
    result = server.run(SIM_JOB, *flags)
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr.startswith("berth-sim-job: ") and result.stderr.count("\n") == 1


@pytest.mark.release_only  # the sanitizer itself needs descriptors, to look at a virtual class
def test_few_descriptors_are_enough(server):
    assert server.run("bash", "-c", "ulimit -n 8; berth status").returncode == 0


@pytest.mark.needs_root
def test_a_full_disk_is_no_crash(server):
    if os.getuid() != 0:
        pytest.fail("this test must run as root: it makes a small file system")
    script = ("mount -t tmpfs -o size=16k none \"$HOME\" && berth status >/dev/null && "
              "head -c 1M /dev/zero >\"$HOME/rest\" 2>/dev/null; berth-sim-job --mem 1GiB --time 10ms; echo $?")
    result = server.run("unshare", "--mount", "bash", "-c", script)
    assert result.stdout == "1\n", result


def test_a_reader_that_leaves_early_is_no_error_message(server):
    result = server.run("bash", "-c", "berth status --json --watch 0.1 | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}")
    assert result.stderr == ""
    assert result.stdout == "141\n"


def test_mutated_files_never_crash_berth(server, tmp_path):
    seed = int(os.environ.get("BERTH_TEST_SEED", "20261115"))
    rng = random.Random(seed)
    path = tmp_path / "mutated.json"
    good = [file.read_bytes() for file in sorted(SERVERS.glob("*.json"))]
    for round_number in range(60):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(data))
            what = rng.randrange(3)
            if what == 0:
                data[place] = rng.randrange(256)
            elif what == 1:
                del data[place:place + rng.randint(1, 20)]
            else:
                data[place:place] = rng.choice([b'"', b"}", b"-", b"9" * 30, b"\x1b[0m", b"null", b"\xff"])
        path.write_bytes(data)
        # A mutation may well ask for a hang or a delay: those are bounded by the limit.
        result = server.use(path).berth("status", env={"BERTH_DRIVER_TIMEOUT": "2s"})
        assert result.returncode in (0, 64, 69), (seed, round_number, result)
        assert_fit_for_terminal(result.stderr + result.stdout)
        assert result.stderr.count("\n") <= 1
        (server.folder / "sim.state").unlink(missing_ok=True)
