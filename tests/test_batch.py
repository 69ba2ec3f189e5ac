"""berth batch: many commands over the GPUs of a simulated server, by real processes."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import pytest
from batches import Batch, counts
from conftest import BERTH, assert_fit_for_terminal, assert_one_line_error
from leasing import NOBODY, eventually, is_alive, jobs, kill_session, processes, written_on  # noqa: F401: a fixture
from waiting import LIMIT

MOST_TICKETS = 8  # of one batch, at any time


@pytest.fixture
def batch(server):
    with Batch(server.use("2x24GiB")) as one:
        yield one


def leases(server):
    return [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]


def without_times(text):
    """The output without the time in front of each line."""
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", "", text, flags=re.MULTILINE)


# What is run


@pytest.mark.each_harbour
def test_every_line_runs_on_a_gpu_of_its_own(batch):
    batch.write("# how it begins", "echo one on $CUDA_VISIBLE_DEVICES", "", "  echo two >&2; echo three",
                "printf '%s\\n' \"it's\" '#4' # a comment\r")
    result = batch.run("jobs.txt")
    assert result.returncode == 0, result
    assert re.fullmatch(r"one on [01]\n", batch.logs()["001"])
    assert batch.logs()["002"] == "two\nthree\n"
    assert batch.logs()["003"] == "it's\n#4\n"
    assert counts(result.stdout) == [3, 0] and "jobs.logs" in result.stdout and result.stdout.count("\n") == 1
    lines = without_times(result.stderr).splitlines()
    assert len(lines) == 6
    started, ended = [line for line in lines if line.startswith("[1/3] ")]
    assert started.endswith(": echo one on $CUDA_VISIBLE_DEVICES") and re.search(r"GPU [01]\b", started)
    assert ended.endswith(": echo one on $CUDA_VISIBLE_DEVICES") and re.search(r"\bok\b.* \d+m?s\b", ended)


def test_from_stdin_and_from_the_command_line(batch):
    piped = subprocess.run([BERTH, "batch", "-", "--logs", "in"], input="echo a\necho b", cwd=batch.folder, text=True,
                           env=batch.server.env, capture_output=True, timeout=LIMIT)
    assert piped.returncode == 0, piped
    assert list(batch.logs("in").values()) == ["a\n", "b\n"]
    given = batch.run("--logs", "given", "--", "echo [1,2]", "read line; echo $?")
    assert given.returncode == 0, given
    # Nobody can type there.
    assert list(batch.logs("given").values()) == ["[1,2]\n", "1\n"]
    assert batch.run("--", "true").returncode == 0
    assert batch.run("--", "true").returncode == 0
    assert len(list(batch.folder.glob("batch-*.logs"))) == 1, "named by the commands"


def test_the_request_is_passed_on_as_it_was_written(batch):
    batch.write("echo $BERTH_GPUS; berth status --json")
    result = batch.run("jobs.txt", "--count=2", "--label", "it's \"mine\"; -x", "--mem", "1.5 GiB", "--time", "2h",
                       "-I", "status", "--ids", "uuid")
    assert result.returncode != 0, "the word status was replaced"
    batch.write("berth status --json", name="again.txt")
    result = batch.run("again.txt", "-n", "2", "--label", "it's \"mine\"; -x", "--mem", "1.5 GiB", "--time", "2h")
    assert result.returncode == 0, result
    gpus = json.loads(batch.logs("again.logs")["001"])["gpus"]
    for gpu in gpus:
        [lease] = gpu["leases"]
        assert (lease["label"], lease["memory_mib"]) == ("it's \"mine\"; -x", 1536)


def test_others_see_which_line_it_is(batch):
    batch.write("true", "berth status --json")
    assert batch.run("-j", "1", "jobs.txt").returncode == 0
    [lease] = [lease for gpu in json.loads(batch.logs()["002"])["gpus"] for lease in gpu["leases"]]
    assert lease["label"] == "jobs.txt 2/2"
    assert "berth status --json" in lease["command"]


def test_the_indices_take_the_place_of_a_text(batch):
    batch.write("echo device={} '{}'")
    assert batch.run("-n", "2", "-I", "{}", "jobs.txt").returncode == 0
    assert batch.logs()["001"] == "device=0,1 0,1\n"


@pytest.mark.each_harbour
def test_several_share_a_gpu(batch):
    batch.server.use("1x24GiB")
    go = batch.folder / "go"
    batch.write(*[f"echo {number} >>ran; while ! [ -e go ]; do sleep 0.05; done" for number in range(5)])
    process = batch.start("--per-gpu", 3, "jobs.txt")
    eventually(lambda: len(batch.ran()) == 3 and len(batch.queue()) == 2, "three of them run, and two wait")
    assert len(leases(batch.server)) == 3
    go.touch()
    assert process.wait(LIMIT) == 0, process.errors()
    assert len(batch.ran()) == 5
    assert_one_line_error(batch.run("--per-gpu", "2", "--mem", "1GiB", "jobs.txt"), 64, "contradict")


def test_at_most_so_many_at_once(batch):
    batch.server.use("4x24GiB")
    (batch.folder / "marks").mkdir()
    batch.write(*["touch marks/$$; ls marks | wc -l >>ran; rm marks/$$"] * 12)
    assert batch.run("-j", "2", "jobs.txt").returncode == 0
    assert {int(count) for count in batch.ran()} <= {1, 2}


@pytest.mark.each_harbour
def test_inside_a_lease_its_gpus_are_enough(batch):
    """There nobody waits, so that the batch must not start all lines at once."""
    (batch.folder / "marks").mkdir()
    # The first waits for the second; a third beside them would count itself.
    together = "until test $(wc -l <ran) -ge 2; do sleep 0.01; done"
    batch.write(*[f"touch marks/$$; ls marks | wc -l >>ran; {together}; sleep 0.1; rm marks/$$"] * 8)
    result = batch.server.berth("run", "-n", "2", "--", BERTH, "batch", "jobs.txt", cwd=batch.folder)
    assert result.returncode == 0, result
    assert max(int(count) for count in batch.ran()) == 2


def test_an_outer_lease_that_has_ended_limits_nothing(batch):
    """The variables of a lease remain set in a shell after its end."""
    ended = batch.server.berth("run", "--", "sh", "-c", "printf $BERTH_LEASE").stdout
    batch.write("touch a; until [ -e b ]; do sleep 0.05; done", "touch b; until [ -e a ]; do sleep 0.05; done")
    result = batch.run("--limit", "1m", "jobs.txt", env={"BERTH_LEASE": ended, "BERTH_GPUS": "0"})
    assert (result.returncode, counts(result.stdout)) == (0, [2, 0]), result


def test_a_dry_run_shows_the_lines_and_leaves_nothing(batch):
    result = batch.run("--dry-run", "--", "echo {} >>ran", ":::", "a", "\x1b[31m")
    assert result.returncode == 0
    assert result.stdout == "[1/2] echo a >>ran\n[2/2] echo '\\x1b[31m' >>ran\n"
    assert "2 of 2" in result.stderr
    assert list(batch.folder.iterdir()) == []
    batch.write("echo a >>ran", "echo b >>ran; exit 1")
    assert batch.run("-k", "jobs.txt").returncode == 1
    before = (batch.folder / "jobs.logs/joblog.jsonl").read_text()
    assert_one_line_error(batch.run("--dry-run", "jobs.txt"), 64, "--resume")
    assert batch.run("--dry-run", "--resume", "jobs.txt").stdout == "[2/2] echo b >>ran; exit 1\n"
    assert batch.run("--dry-run", "--restart", "jobs.txt").stdout.count("\n") == 2
    assert batch.ran() == ["a", "b"] and (batch.folder / "jobs.logs/joblog.jsonl").read_text() == before


# What fails


def test_nothing_more_is_started_after_a_failure(batch):
    batch.server.use("1x24GiB")
    batch.write("true", "echo reason; exit 3", *["echo later >>ran"] * 20)
    result = batch.run("jobs.txt")
    assert result.returncode == 1
    # Those that stood in the queue may have had the GPU before the batch knew of the failure.
    assert len(batch.ran()) <= 4
    assert counts(result.stdout.splitlines()[-2])[2] >= 16 and "--resume" in result.stdout
    assert "--keep-going" in result.stderr
    ended = {one["number"]: (one["exit_code"], one["succeeded"]) for one in batch.joblog()}
    assert ended.pop(2) == (3, False)
    assert set(ended.values()) <= {(0, True)} and len(ended) <= 5
    assert leases(batch.server) == [] and batch.queue() == []


def test_what_runs_is_left_to_end_after_a_failure(batch):
    until_go = "while ! [ -e go ]; do sleep 0.05; done"
    # What it leaves behind keeps the lease, so that the one that waits cannot be faster than the batch.
    batch.write(f"{until_go}; echo end >>ran", f"({until_go}) & while ! [ -e fail ]; do sleep 0.05; done; false",
                "echo later >>ran")
    process = batch.start("jobs.txt")
    eventually(lambda: len(leases(batch.server)) == 2 and batch.queue(), "two run and one waits")
    (batch.folder / "fail").touch()
    eventually(lambda: not batch.queue(), "it leaves the queue")
    (batch.folder / "go").touch()
    assert process.wait(LIMIT) == 1
    assert batch.ran() == ["end"]
    assert counts(process.stdout.read().splitlines()[-2]) == [1, 1, 1]


def test_what_runs_by_the_time_of_a_failure_is_left_to_end(batch):
    """Also if the batch has not yet heard that it runs."""
    batch.server.use("1x24GiB")
    batch.write("while ! [ -e fail ]; do sleep 0.05; done; false",
                *[f"echo begin{n} >>ran; while ! [ -e go ]; do sleep 0.05; done; echo end{n} >>ran" for n in (2, 3)])
    process = batch.start("jobs.txt")
    eventually(lambda: len(leases(batch.server)) == 1 and len(batch.queue()) == 2, process.errors)
    process.send_signal(signal.SIGSTOP)
    (batch.folder / "fail").touch()
    eventually(lambda: batch.ran() == ["begin2"], "the next one has the GPU")
    process.send_signal(signal.SIGCONT)
    eventually(lambda: "--keep-going" in process.errors() and not batch.queue(), process.errors)
    (batch.folder / "go").touch()
    assert process.wait(LIMIT) == 1
    assert batch.ran() == ["begin2", "end2"]
    assert counts(process.stdout.read().splitlines()[-2]) == [1, 1, 1]


def test_the_summary_has_failures_first_with_their_last_words(batch):
    batch.write("true", "seq 9; printf '\\033[31mred\\033]0;title\\007\\n'; printf '10%%\\r20%%\\n'; kill -9 $$", "exit 7")
    result = batch.run("-k", "jobs.txt")
    assert result.returncode == 1
    text = result.stdout
    assert_fit_for_terminal(text)
    assert text.index("(signal 9)") < text.index("1 succeeded")
    assert "    | 8\n    | 9\n    | \\x1b[31mred\\x1b]0;title\\x07\n    | 20%\n" in text
    assert "    | 6\n" not in text, "five lines at most"
    assert "(exit 7)" in text
    log = re.search(r"line 2, log: (\S+)", text)[1]
    assert (batch.folder / log).read_text().startswith("1\n2\n")


def test_a_line_is_tried_again(batch):
    batch.write("echo try >>ran; [ $(wc -l <ran) -ge 3 ]", "exit 5")
    result = batch.run("-k", "-j", "1", "--retries", "2", "jobs.txt")
    assert result.returncode == 1
    assert len(batch.ran()) == 3
    first, second = batch.joblog()
    assert (first["succeeded"], first["attempts"]) == (True, 3)
    assert (second["succeeded"], second["attempts"], second["exit_code"]) == (False, 3, 5)
    assert len(re.findall(r"\battempt [23]\b", result.stderr)) == 4
    assert "3 attempts" in result.stdout


@pytest.mark.release_only
def test_a_line_has_so_much_time(batch):
    """Waiting does not count: two of them need the same GPU."""
    batch.server.use("1x24GiB")
    batch.write("trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done", "sleep 1000 | cat", "echo short")
    result = batch.run("-k", "--limit", "1s", "jobs.txt")
    assert result.returncode == 1
    first, second, third = sorted(batch.joblog(), key=lambda one: one["number"])
    assert (first["timed_out"], first["succeeded"]) == (True, False), "also if it ends well when it is told to"
    assert (second["timed_out"], second["signal"]) == (True, signal.SIGTERM)
    assert third["succeeded"]
    assert all(word in batch.logs()["001"].splitlines()[0] for word in ("--- berth: ", "1s", "--limit"))
    assert "\nbye\n" in batch.logs()["001"]  # its sleep may outlive it for a moment, and berth says so
    assert "exit 0)" in result.stderr
    # The whole line: also what the shell waits for.
    eventually(lambda: leases(batch.server) == [], "the lease")


def test_more_memory_is_asked_for_after_running_out_of_it(batch):
    batch.write("berth-sim-job --mem 4GiB --time 10ms || { echo CUDA out of memory; exit 1; }",
                "[ $(berth status --json | grep -c '\"exclusive\": true') = 1 ] || { echo CUDA out of memory; exit 1; }")
    result = batch.run("-j", "1", "--mem", "2GiB", "--retry-oom", "2", "jobs.txt")
    assert result.returncode == 0, (result, batch.logs())
    assert "3 GiB" in "".join(batch.logs().values())


def test_a_time_limit_is_no_want_of_memory(batch):
    batch.write("echo try >>ran; echo CUDA out of memory; while :; do sleep 0.05; done")
    assert batch.run("--mem", "2GiB", "--retry-oom", "2", "--limit", "1s", "jobs.txt").returncode == 1
    [line] = batch.joblog()
    assert (line["timed_out"], line["out_of_memory"]) == (True, False)
    assert batch.ran() == ["try"]


@pytest.mark.release_only
@pytest.mark.parametrize("flags, code, words", [
    (["-n", "9"], 69, "9 GPUs"), (["--name", "H100"], 69, ""), (["--gpu", "7"], 69, "GPU 7"),
])
def test_a_request_that_no_line_can_have_met_is_said_once(batch, flags, code, words):
    batch.write(*["echo >>ran"] * 50)
    result = batch.run("-k", *flags, "jobs.txt")
    assert_one_line_error(result, code, words)
    assert batch.ran() == []
    # Nothing has been done, so that nothing is in the way of another try.
    assert batch.run("jobs.txt").returncode == 0


@pytest.mark.parametrize("arguments, words", [
    ([], "stdin"), (["nothing.txt"], "No such file"), (["/"], "Is a directory"), (["jobs.txt", "--", "true"], " --"),
    (["--no-wait", "jobs.txt"], "--no-wait"), (["-j", "0", "jobs.txt"], "-j"), (["--limit", "0s", "jobs.txt"], "0s"),
    (["--logs", "", "jobs.txt"], "--logs"),
    (["--joblog", "jobs.txt", "jobs.txt"], "joblog"), (["--resume", "--", "true"], "--logs"),
    (["--resume", "--restart", "jobs.txt"], "--restart"), (["--limit", "1s", "--timeout", "1s", "jobs.txt"], "--limit"),
    (["--csv", "nothing.csv", "--", "true {a}"], "No such file"), (["-I", "{}", "--", "true {}", ":::", "1"], "-I"),
    (["nul.txt"], "NUL"), (["--ids", "name", "jobs.txt"], "uuid"), (["jobs.txt", "more.txt"], "more.txt"),
    (["--mem", "lots", "jobs.txt"], "--mem"), (["\x1b[31m"], "\\x1b"),
], ids=repr)
def test_wrong_usage(batch, arguments, words):
    batch.write("echo >>ran")
    (batch.folder / "nul.txt").write_bytes(b"true\nfa\0lse\n")
    assert_one_line_error(batch.run(*arguments), 64, words)
    assert batch.ran() == []


@pytest.mark.parametrize("arguments, words", [
    (["--logs", "jobs.txt"], ["'jobs.txt'", "--logs"]), (["--logs", "/proc/x"], ["'/proc/x'", "No such file", "--logs"]),
    (["--joblog", "/nosuch/j"], ["'/nosuch/j'", "No such file", "--joblog"]),
    (["--joblog", "/"], ["'/'", "Is a directory", "--joblog"]),
], ids=repr)
def test_logs_that_cannot_be_used(batch, arguments, words):
    batch.write("echo >>ran")
    assert_one_line_error(batch.run(*arguments, "jobs.txt"), 74, *words)
    assert batch.ran() == []


def test_no_commands_are_no_failure(batch):
    batch.write("# all done")
    result = batch.run("jobs.txt")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith("berth: batch: ") and "commands" in result.stderr and result.stderr.count("\n") == 1


def test_the_old_name_of_the_time_limit(batch):
    """Until its next release --timeout limits how long a line runs, and says what it is called now."""
    batch.write("while :; do sleep 0.05; done")
    result = batch.run("--timeout", "100ms", "jobs.txt")
    assert result.returncode == 1
    assert "time limit" in result.stdout and "--limit" in result.stderr.splitlines()[0]
    assert "--timeout" not in batch.server.berth("help", "batch").stdout


def test_lines_without_a_terminal_have_the_time(batch):
    batch.write("true", "false")
    result = batch.run("-k", "jobs.txt")
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \[[12]/2\] ", line), line


# Going on


def test_resume_runs_what_has_not_succeeded(batch):
    batch.write("echo a >>ran", "echo b >>ran; echo said; [ -e mended ]", "echo c >>ran", "echo a >>ran")
    assert batch.run("-k", "-j", "1", "jobs.txt").returncode == 1
    assert batch.ran() == ["a", "b", "c", "a"]
    refused = batch.run("jobs.txt")
    assert_one_line_error(refused, 64, "3 of 4", "--resume", "--restart")
    (batch.folder / "mended").touch()
    result = batch.run("--resume", "jobs.txt")
    assert result.returncode == 0, result
    assert batch.ran() == ["a", "b", "c", "a", "b"]
    assert counts(result.stdout) == [1, 3, 0]
    assert re.fullmatch(r"said\n--- berth: .*\b1\nsaid\n", batch.logs()["002"]), "what was there before is kept"
    assert batch.run("--resume", "jobs.txt").returncode == 0
    assert len(batch.ran()) == 5
    # What has ended well is begun anew.
    assert batch.run("jobs.txt").returncode == 0
    assert len(batch.ran()) == 9


def test_restart_runs_everything(batch):
    batch.write("echo a >>ran; echo said", "echo b >>ran; [ -e mended ]")
    assert batch.run("-k", "-j", "1", "jobs.txt").returncode == 1
    (batch.folder / "mended").touch()
    assert batch.run("-j", "1", "--restart", "jobs.txt").returncode == 0
    assert batch.ran() == ["a", "b", "a", "b"]
    assert batch.logs()["001"] == "said\n", "the old log is replaced"
    assert len(batch.joblog()) == 2


def test_a_batch_of_other_commands_is_not_continued(batch):
    batch.write("true", "false")
    assert batch.run("-k", "jobs.txt").returncode == 1
    batch.write("echo other")
    assert_one_line_error(batch.run("jobs.txt"), 64, "other commands", "--logs")


def test_a_batch_from_stdin_is_continued(batch):
    def run(*arguments):
        return subprocess.run([BERTH, "batch", "-k", *arguments, "-"], input="echo a >>ran\n[ -e mended ] && echo b >>ran\n",
                              cwd=batch.folder, text=True, env=batch.server.env, capture_output=True, timeout=LIMIT)
    assert run().returncode == 1
    assert run().returncode == 64, "it is unfinished"
    (batch.folder / "mended").touch()
    assert run("--resume").returncode == 0
    assert batch.ran() == ["a", "b"]
    assert len(list(batch.folder.glob("*.logs"))) == 1


def test_resume_goes_by_the_commands_not_by_their_places(batch):
    batch.write("echo a >>ran", "echo b >>ran", "echo a >>ran", "false")
    assert batch.run("-k", "jobs.txt").returncode == 1
    (batch.folder / "ran").unlink()
    batch.write("# new", "echo b >>ran", "echo c >>ran", "echo a >>ran", "echo b2 >>ran", "echo a >>ran", "echo a >>ran")
    assert batch.run("--resume", "-j", "1", "jobs.txt").returncode == 0
    assert batch.ran() == ["c", "b2", "a"], "of three a, two were done"


def test_a_torn_joblog_loses_only_its_last_line(batch):
    batch.write("echo a >>ran", "echo b >>ran")
    assert batch.run("-j", "1", "jobs.txt").returncode == 0
    path = batch.folder / "jobs.logs" / "joblog.jsonl"
    whole = path.read_text().splitlines()
    path.write_text("\n".join(whole[:2]) + "\n" + whole[2][:40])
    assert batch.run("--resume", "jobs.txt").returncode == 0
    assert batch.ran() == ["a", "b", "b"]
    assert batch.run("--resume", "jobs.txt").returncode == 0
    assert batch.ran() == ["a", "b", "b"]


def test_two_batches_do_not_share_a_joblog(batch):
    batch.write("while ! [ -e go ]; do sleep 0.05; done")
    first = batch.start("jobs.txt")
    eventually(lambda: leases(batch.server), "it runs")
    assert_one_line_error(batch.run("--resume", "jobs.txt"), 64, "joblog.jsonl")
    (batch.folder / "go").touch()
    assert first.wait(LIMIT) == 0


@pytest.mark.each_harbour
def test_a_batch_that_was_killed_leaves_nothing_and_goes_on(batch):
    """Its jobs are asked to end, its tickets leave, and what was done is known."""
    batch.write("echo a >>ran", "echo b >>ran",
                *[f"echo $$ >pid{n}.new; mv pid{n}.new pid{n}; cat gate | cat; echo {n} >>ran" for n in (1, 2, 3, 4)])
    os.mkfifo(batch.folder / "gate")
    process = batch.start("jobs.txt")
    eventually(lambda: len(list(batch.folder.glob("pid?"))) == 2 and len(batch.queue()) == 2, process.errors)
    pids = [int(path.read_text()) for path in batch.folder.glob("pid?")]
    process.kill()
    process.wait()
    eventually(lambda: not any(is_alive(pid) for pid in pids), "its jobs end")
    eventually(lambda: not batch.queue() and not leases(batch.server), "nothing is left")
    assert sorted(batch.ran()) == ["a", "b"]
    refused = batch.run("jobs.txt")
    assert_one_line_error(refused, 64, "2 of 6")
    (batch.folder / "gate").unlink()
    (batch.folder / "gate").write_text("")
    second = batch.start("--resume", "jobs.txt")
    assert second.wait(LIMIT) == 0, second.errors()
    assert sorted(batch.ran()) == ["1", "2", "3", "4", "a", "b"]


# Signals


def stay(batch, how=""):
    """Lines that say that they run, and stay until they are told to end."""
    return [f"{how} echo {n} >>ran; while :; do sleep 0.05; done" for n in range(4)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(batch, number):
    batch.write("true", *stay(batch, "trap 'echo saved >>saved; exit 1' TERM;"))
    process = batch.start("jobs.txt")
    eventually(lambda: len(batch.ran()) == 2 and len(batch.queue()) == 2, process.errors)
    process.send_signal(number)
    assert process.wait(LIMIT) == 128 + number
    assert batch.ran("saved") == ["saved"] * 2
    assert leases(batch.server) == [] and batch.queue() == []
    assert "2 running" in process.errors()
    summary = process.stdout.read().splitlines()[-2]
    assert counts(summary) == [1, 0, 2, 2]
    assert "2 interrupted, 2 not started" in summary
    assert [one["command"] for one in batch.joblog()] == ["true"]
    end = json.loads((batch.folder / "jobs.logs/joblog.jsonl").read_text().splitlines()[-1])
    assert (end["not_run"], end["interrupted"]) == (4, 2)


def test_what_was_interrupted_counts_as_not_run_however_it_ends(batch):
    batch.write(*stay(batch, "trap 'exit 0' TERM;"))
    process = batch.start("jobs.txt")
    eventually(lambda: len(batch.ran()) == 2 and len(batch.queue()) == 2, process.errors)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143
    assert counts(process.stdout.read().splitlines()[-2]) == [0, 0, 2, 2]
    assert batch.joblog() == []


def save_when_told(batch):
    """Lines that stay, and when they are told to end do so once the test lets them."""
    return stay(batch, "trap 'while ! [ -e go ]; do sleep 0.05; done; echo saved >>saved; exit 1' TERM;")


def ends_without_a_kill(batch, process, code):
    eventually(lambda: "stopping" in process.errors() and not batch.queue(), process.errors)
    (batch.folder / "go").touch()
    assert process.wait(LIMIT) == code
    assert batch.ran("saved") == ["saved"] * 2
    assert "killing" not in process.errors()


def test_several_signals_at_once_are_one(batch):
    batch.write(*save_when_told(batch))
    process = batch.start("jobs.txt")
    eventually(lambda: len(batch.ran()) == 2 and len(batch.queue()) == 2, process.errors)
    # While it is stopped, so that it finds them together.
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        process.send_signal(number)
    ends_without_a_kill(batch, process, 130)


def test_timeout_signals_it_twice(batch):
    """timeout(1) passes on what it gets: to its child, and to the group that both are in."""
    batch.write(*save_when_told(batch))
    process = batch.start("jobs.txt", prefix=["timeout", "1h"])
    eventually(lambda: len(batch.ran()) == 2 and len(batch.queue()) == 2, process.errors)
    process.send_signal(signal.SIGTERM)
    ends_without_a_kill(batch, process, 143)


def test_no_hangup_kills_however_often_it_comes(batch):
    batch.write(*save_when_told(batch))
    process = batch.start("jobs.txt")
    eventually(lambda: len(batch.ran()) == 2 and len(batch.queue()) == 2, process.errors)
    process.send_signal(signal.SIGHUP)
    eventually(lambda: "stopping" in process.errors(), process.errors)
    process.send_signal(signal.SIGHUP)
    ends_without_a_kill(batch, process, 129)


def test_the_second_signal_kills(batch):
    batch.write(*stay(batch, "trap '' TERM;"))
    process = batch.start("jobs.txt")
    eventually(lambda: len(batch.ran()) == 2 and len(batch.queue()) == 2, process.errors)
    process.send_signal(signal.SIGINT)
    eventually(lambda: "stopping" in process.errors() and not batch.queue(), "those that wait leave")
    assert len(leases(batch.server)) == 2

    def ended():
        process.send_signal(signal.SIGINT)  # at first it takes them for the same one
        return process.poll() is not None
    eventually(ended, process.errors)
    assert process.returncode in (130, -signal.SIGINT)  # the last of them may come while it exits
    eventually(lambda: leases(batch.server) == [], "the leases")
    assert counts(process.stdout.read().splitlines()[-2]) == [0, 0, 2, 2]
    assert batch.joblog() == []


def test_who_has_started_it_may_ignore_the_ends_of_children(batch):
    """By env --ignore-signal=CHLD, or as a careless daemon does."""
    batch.write("echo done >>ran", "grep SigIgn /proc/self/status")
    result = batch.server.run("env", "--ignore-signal=CHLD", BERTH, "batch", "jobs.txt", cwd=batch.folder, timeout=LIMIT)
    assert result.returncode == 0, result
    assert int(batch.logs()["002"].split()[1], 16) & 1 << signal.SIGCHLD - 1 == 0, "the jobs do not"


def test_who_ignores_a_signal_is_not_ended_by_it(batch):
    batch.write("kill -HUP $(cat batch.pid); echo done >>ran", "echo done >>ran")
    process = batch.server.run("sh", "-c", 'echo $$ >batch.pid; exec nohup "$0" batch -j 1 jobs.txt', BERTH, cwd=batch.folder)
    assert process.returncode == 0, process
    assert batch.ran() == ["done"] * 2


def test_who_reads_its_output_may_leave(batch):
    batch.write(*["echo done >>ran"] * 5)
    result = batch.server.run("bash", "-o", "pipefail", "-c", '"$0" batch jobs.txt 2>&1 | true; exit ${PIPESTATUS[0]}', BERTH,
                              cwd=batch.folder)
    assert len(batch.ran()) == 5, result


# Others


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_few_lines_wait_at_any_time(batch, jobs):  # noqa: F811
    """A batch of 2,000 lines does not put 2,000 tickets in front of others."""
    holder = jobs.hold("-n", "2")
    batch.write(*["true"] * 2000)
    process = batch.start("jobs.txt")
    eventually(lambda: len(batch.queue()) == 2, "two of them wait")
    other = jobs.wait()
    assert len(batch.queue()) == 3
    other.process.terminate()
    most = 2

    def seen():
        nonlocal most
        most = max(most, len(batch.queue()))
        return len(batch.joblog()) > 50
    holder.end()
    eventually(seen, "it goes on", seconds=LIMIT)
    assert most <= MOST_TICKETS
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_lines_take_their_places_in_the_queue_in_their_order(batch, jobs):  # noqa: F811
    jobs.hold("-n", "2")
    for turn in range(3):  # who is faster by chance is not so each time
        batch.write(*[f"true {number}" for number in range(20)], name=f"jobs{turn}.txt")
        process = batch.start(f"jobs{turn}.txt", "--mem", "auto", "--job", "known", "--in-order")
        eventually(lambda: len(batch.queue()) == MOST_TICKETS, process.errors)
        assert [one["label"] for one in batch.queue()] == \
            [f"jobs{turn}.txt {number}/20" for number in range(1, MOST_TICKETS + 1)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 143


def test_a_signal_is_obeyed_while_the_driver_hangs(batch):
    """With --mem auto the batch itself asks the driver what would fit."""
    assert batch.run("--", "true").returncode == 0
    assert batch.server.berth("profile", "set", "true", "--mem", "1GiB").returncode == 0
    batch.server.use({"gpus": [{"name": "A", "memory": "8GiB"}], "faults": [{"call": "nvmlInit", "hang": True}]})
    batch.server.env["BERTH_DRIVER_TIMEOUT"] = "600s"
    batch.write("true")
    process = batch.start("jobs.txt", "--mem", "auto", "--job", "true")
    eventually(lambda: "driver" in process.errors(), process.errors)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT) == 130


@pytest.mark.release_only
@pytest.mark.each_harbour
def test_few_wait_though_many_seemed_to_fit(batch):
    """What was learned is far too little: when the first have taken what they need, nothing is left for the others."""
    assert batch.server.berth("profile", "set", "small", "--mem", "512MiB").returncode == 0
    batch.write(*["berth-sim-job --mem 11GiB & echo $$ >>ran; while ! [ -e go ]; do sleep 0.05; done; kill $!; wait"] * 60)
    process = batch.start("-k", "--mem", "auto", "--job", "small", "jobs.txt")

    def started():
        """Its lines; it has another child, which asks the driver."""
        children = [pid for pid, fields in processes() if int(fields[1]) == process.pid and fields[0] not in "ZX"]
        return sum("--event-fd" in pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in children)

    def settled():
        most.append(len(batch.queue()))
        return most[-1] > 0 and most[-1] + len(batch.ran()) == started()
    most = []
    eventually(settled, lambda: (most[-1], len(batch.ran()), started()))
    assert max(most) <= MOST_TICKETS
    (batch.folder / "go").touch()
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143


@pytest.mark.each_harbour
@pytest.mark.release_only
@pytest.mark.parametrize("terminal", [False, True])
def test_what_was_learned_is_not_read_again_and_again(batch, terminal):
    """60 types, none of them known: as many files would be looked for at every event."""
    batch.write(*[f": >type{n}" for n in range(60)])
    trace = batch.folder / "trace"
    command = f"strace -o {trace} -e trace=openat {BERTH} batch -j 1 jobs.txt"
    result = batch.server.run(*(["script", "-qec", command, "/dev/null"] if terminal else command.split()), cwd=batch.folder)
    assert result.returncode == 0, result
    looked = sum("profile" in line for line in trace.read_text().splitlines())
    assert looked <= (60 * 2 if terminal else 0)


@pytest.mark.release_only
@pytest.mark.parametrize("flags, ends", [(["-j", "1"], "sleep 1"), ([], "sleep 1"), ([], "exit 3")], ids=["limit", "all", "failure"])
def test_it_sleeps_while_nothing_can_be_started(batch, flags, ends):
    """More lines are left, and nothing is to be done before one that is there tells something."""
    batch.write(ends, *["until [ -e go ]; do sleep 0.05; done"] * 4)
    assert batch.server.berth("profile", "set", "known", "--mem", "12GiB").returncode == 0
    trace = batch.folder / "trace"
    process = batch.start("--mem", "auto", "--job", "known", *flags, "jobs.txt",
                          prefix=["strace", "-o", trace, "-e", "trace=poll", "-e", "signal=none"])
    eventually(lambda: batch.joblog() if (batch.folder / "jobs.logs/joblog.jsonl").exists() else None, process.errors)
    batch.queue()  # which takes its time
    (batch.folder / "go").touch()
    assert process.wait(LIMIT) == (1 if ends == "exit 3" else 0)
    # What is due is due once; a batch that does not sleep makes thousands. Who asks the driver, by another descriptor, stays
    # awake for a moment.
    waits = [line for line in trace.read_text().splitlines() if line.startswith("poll(")]
    polls = [line for line in waits if ", 0) = " in line and line.split(",")[0] == waits[-1].split(",")[0]]
    assert len(polls) < 5, polls[:40]


@pytest.mark.release_only
@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_others_have_their_turn_between_the_lines(batch, open_build, jobs):  # noqa: F811
    """Who comes while a batch runs waits for the lines that wait already, and for no more."""
    batch.server.use("1x24GiB")
    berth = open_build / "bin" / "berth"
    batch.write(*[f"echo {n} >>ran; while ! [ -e go{n} ]; do sleep 0.02; done" for n in range(20)])
    process = batch.start("jobs.txt", program=berth, prefix=NOBODY)
    eventually(lambda: len(batch.queue()) == 2 and len(batch.ran()) == 1, process.errors)
    other = jobs.run(program=berth)
    other.waits()
    for n in range(3):
        (batch.folder / f"go{n}").touch()
    assert other.gpus() == "0"
    assert len(batch.ran()) == 3, "two tickets stood before it"
    assert process.poll() is None
    other.end()
    eventually(lambda: len(batch.ran()) == 4, "the batch goes on")
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 143


@pytest.mark.each_harbour
def test_a_ticket_that_was_cancelled_is_a_line_that_failed(batch, jobs):  # noqa: F811
    jobs.hold("-n", "2", "--time", "2h")
    batch.write("true")
    process = batch.start("jobs.txt")
    ticket = eventually(lambda: batch.queue(), "it waits")[0]["ticket"]
    assert batch.server.berth("cancel", ticket).returncode == 0
    assert process.wait(LIMIT) == 1
    [line] = batch.joblog()
    assert (line["exit_code"], line["lease"], line["gpus"]) == (75, None, None)
    assert re.search(r"^berth: waiting, starts in about 2h: GPUs 0,1 leased ", without_times(process.errors()), re.M)


# Learning


@pytest.mark.release_only
def test_what_takes_longest_comes_first_once_it_is_known(batch):
    batch.server.use("1x24GiB")
    for name, seconds in (("short", "600ms"), ("long", "2500ms")):
        script = batch.folder / name
        script.write_text(f"#!/bin/sh\necho {name} >>{batch.folder}/ran\nexec berth-sim-job --mem 1GiB --time {seconds}\n")
        script.chmod(0o755)
    batch.write("./short", "./long")
    assert batch.run("--mem", "auto", "jobs.txt").returncode == 0
    (batch.folder / "ran").unlink()
    batch.write("./short", "./short", "./long", "./long")
    result = batch.run("--mem", "auto", "-j", "1", "jobs.txt")
    assert result.returncode == 0
    assert re.search(r" \[3/4\] started on GPU 0 \(\S+ GiB reserved: up to \S+ GiB in 1 earlier run, plus 10%\): ./long$",
                     result.stderr, re.M)
    assert batch.ran() == ["long", "long", "short", "short"]
    (batch.folder / "ran").unlink()
    assert batch.run("--mem", "auto", "-j", "1", "--in-order", "jobs.txt").returncode == 0
    assert batch.ran() == ["short", "short", "long", "long"]


# A terminal


@pytest.mark.release_only
@pytest.mark.parametrize("columns, rows", [(80, 24), (40, 10)])
def test_a_live_block_on_a_terminal_that_goes_away(batch, tmp_path, columns, rows):
    batch.server.use("4x24GiB")
    batch.write("exit 3", *[f"while ! [ -e go ]; do sleep 0.05; done; echo {'long ' * 30} {n} >>ran" for n in range(30)])
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    env = {**batch.server.env, "PS1": "ready> ", "HISTFILE": ""}

    def screen():
        return subprocess.run([*tmux, "capture-pane", "-p"], env=env, capture_output=True, text=True).stdout

    def shows(*texts):
        return eventually(lambda: all(text in screen() for text in texts) and screen(), lambda: screen())
    try:
        subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), "bash", "--norc", "-i"], env=env,
                       cwd=batch.folder, check=True)
        shows("ready>")
        subprocess.run([*tmux, "send-keys", "berth batch -k jobs.txt; echo code=$?", "Enter"], env=env, check=True)
        text = shows("1/31 (3%)", "4 running", "1 failed", "26 waiting", "GPU 0", "GPU 3")
        assert re.search(r"GPU 0 .* \[[2-5]\]  … [0-3] …\n", text), "the number, and the word that differs"
        assert re.search(r"\[ 1/31\] .*\(exit 3\)", text)
        assert text.count("1/31 (3%)") == 1, "drawn over, not again"
        subprocess.run([*tmux, "send-keys", "C-c"], env=env, check=True)
        text = shows("code=130")
        assert "stopping" in text or columns < 80
        assert "1/31 (3%)" not in text and "GPU 3" not in text
        assert text.rstrip().endswith("ready>")
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, check=False)
    assert leases(batch.server) == []


@pytest.mark.release_only
def test_its_terminal_is_closed(batch, tmp_path):
    """Then the shell and the kernel send SIGHUP, each of them."""
    batch.write(*save_when_told(batch))
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    env = {**batch.server.env, "PS1": "ready> ", "HISTFILE": ""}

    def screen():
        return subprocess.run([*tmux, "capture-pane", "-p"], env=env, capture_output=True, text=True).stdout
    shell = int(subprocess.run([*tmux, "new-session", "-d", "-P", "-F", "#{pane_pid}", "bash", "--norc", "-i"], env=env,
                               cwd=batch.folder, check=True, capture_output=True, text=True).stdout)
    try:
        eventually(lambda: "ready>" in screen(), screen)
        subprocess.run([*tmux, "send-keys", "berth batch jobs.txt", "Enter"], env=env, check=True)
        eventually(lambda: len(batch.ran()) == 2 and "2 running" in screen(), screen)
        subprocess.run([*tmux, "kill-server"], env=env, check=True)
        eventually(lambda: not is_alive(shell) and not batch.queue(), "nothing waits any more")
        (batch.folder / "go").touch()
        eventually(lambda: batch.ran("saved") == ["saved"] * 2, lambda: batch.ran("saved"))
        eventually(lambda: leases(batch.server) == [], "the leases")
        assert batch.joblog() == []
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, check=False, capture_output=True)
        kill_session(shell)


@pytest.mark.release_only
def test_the_block_is_not_written_again_where_it_is_the_same(batch):
    batch.write("echo >>ran; until [ -e go ]; do sleep 0.05; done")
    master, slave = pty.openpty()
    process = subprocess.Popen([BERTH, "batch", "jobs.txt"], env={**batch.server.env, "NO_COLOR": "1"}, cwd=batch.folder,
                               stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    text = b""
    try:
        for chunk in written_on(master):
            text += chunk
            # It shows tenths of a second at first, and is woken all the time.
            if re.search(rb"[3-9]s", text):
                (batch.folder / "go").touch()
            elif b"1 running" in text:
                for _ in range(20):
                    process.send_signal(signal.SIGCHLD)
                    batch.ran()
    finally:
        os.close(master)
        (batch.folder / "go").touch()
    assert process.wait(LIMIT) == 0
    blocks = [block for block in re.split(r"\r\x1b\[\d+A|\x1b\[J", text.decode()) if block]
    assert all(one != other for one, other in zip(blocks, blocks[1:], strict=False)), blocks


def test_nothing_of_a_users_reaches_the_terminal_as_it_is(batch):
    batch.write("printf '\\033]0;x\\007' # \x1b]0;evil\x07 \u202e", "exit 2 # \x1b[2J")
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen([BERTH, "batch", "-k", "jobs.txt"], env={**batch.server.env, "NO_COLOR": "1"}, cwd=batch.folder,
                                   stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
        os.close(slave)
        text = b"".join(written_on(master))
        assert process.wait(LIMIT) == 1
    finally:
        os.close(master)
    left = re.sub(r"\x1b\[\d*[AKJ]", "", text.decode().replace("\r", ""))
    assert_fit_for_terminal(left)
    assert "\\x1b[2J" in left
