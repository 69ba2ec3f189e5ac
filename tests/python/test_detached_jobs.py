"""berth.submit, berth.jobs and berth.DetachedJob: the jobs of `berth run -d` from Python."""

import json
import os
import shutil
import signal
import sys
import textwrap

import pytest
from conftest import BERTH, wait_until
from leasing import NOBODY
from pythons import PACKAGE, SPEAKS, all_free, first_line, leased, python  # noqa: F401
from ssh_lab import Lab
from waiting import LIMIT

pytestmark = pytest.mark.release_only


def events_of(server, job):
    path = server.folder / ".local/state/berth/jobs" / job / "events"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.each_harbour
def test_a_job_runs_and_its_result_and_output_are_found(python):
    assert python.says("""
        job = berth.submit(["sh", "-c", 'echo "GPUs $BERTH_GPUS"; echo error >&2; exit 3'], 2, label="a try")
        say(job.label, job.command == job.status().command)
        say(job.wait(), job.wait(), job.state(), job.status().result, job.status().gpus)
        print(job.logs(), job.logs(lines=1), sep="", end="")
    """) == ("a try True\n3 3 ended failed (0, 1)\nberth: granted GPUs 0,1\nGPUs 0,1\nerror\nerror")


def test_it_goes_on_when_the_program_has_ended_and_another_program_finds_it(python):
    job = python.says("say(berth.submit(['sh', '-c', 'echo started; exec sleep 1000']).id)")
    assert leased(python.server) == [0]
    assert python.says(f"""
        job = berth.find_job({job!r})
        say(job == berth.DetachedJob({job!r}), [one == job for one in berth.jobs()], repr(job.state()))
        [seen] = berth.jobs()
        say(seen.last_status.state, seen.last_status.gpus, seen.command)
        say(job.cancel(), job.cancel(), job.wait(), len(berth.jobs(all=True)))
    """) == "True [True] 'running'\nrunning (0,) sh -c echo started; exec sleep 1000\nTrue False 143 1"
    assert all_free(python.server)


def test_equality_pickles_and_text(python):
    assert python.says("""
        import pickle
        one, other = berth.submit("true"), berth.submit(["echo", "\\x1b[31mred"])
        copy = pickle.loads(pickle.dumps(one))
        say(copy == one, hash(copy) == hash(one), one != other, one != one.id, len({one, other, copy}))
        say(repr(one) == f"<berth.DetachedJob {one.id}: true>", "\\x1b" in repr(other), repr(berth.DetachedJob(one.id)) == f"<berth.DetachedJob {one.id}>")
        say(other.wait(), other.command == "echo \\x1b[31mred")
    """) == ("True True True True 2\nTrue False True\n0 True")


REFUSALS = {
    "impossible": ("['true'], 99", "Impossible"),
    "value": ("['true'], mem='x'", "UsageError"),
    "size": ("['true'], mem=8", "UsageError"),
    "contradiction": ("['true'], no_wait=True, timeout=1", "UsageError"),
    "busy": ("['true'], 4, no_wait=True", "NotGranted"),
    "after": ("['true'], after='abcdefgh'", "UsageError"),
    "after type": ("['true'], after=[1]", "UsageError"),
    "begin": ("['true'], begin='yesterday'", "UsageError"),
    "past": ("['true'], begin=datetime.datetime(2001, 1, 1)", "UsageError"),
    "no command": ("[]", "UsageError"),
    "no program": ("['no-such-program']", "FileNotFoundError"),
    "no folder": ("['true'], cwd='/no/such/folder'", "FileNotFoundError"),
    "selector": ("['true'], selector=len", "TypeError"),
    "placeholder": ("['true'], placeholder=len", "UsageError"),
    "notify": ("['true'], notify='x'", "UsageError"),
    "notify type": ("['true'], notify=[1]", "UsageError"),
    "host type": ("['true'], host=1", "TypeError"),
    "host name": ("['true'], host='a;b'", "UsageError"),
    "host": ("['true'], host='gpu07'", "UsageError"),
    "typing error": ("['true'], memory='8GiB'", "TypeError"),
}


@pytest.mark.parametrize("arguments, kind", REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_at_once(python, arguments, kind):
    python.jobs.hold()
    assert python.says(f"""
        import datetime
        try:
            berth.submit({arguments})
        except Exception as problem:
            say(type(problem).__name__, "\\n" not in str(problem) and len(str(problem)) > 10, len(berth.jobs()))
    """) == f"{kind} True 1"  # the job that holds a GPU


def test_without_a_driver(python):
    assert python.says("""
        try:
            berth.submit(["true"])
        except berth.NoDriver as problem:
            say(bool(str(problem)))
    """, env={"BERTH_SIM": None}) == "True"


def test_a_job_that_does_not_exist(python):
    """Also for words that a parser of flags would read differently."""
    assert python.says("""
        for id in ("abcdefgh", "--all", "../x", "a b"):
            for call in (berth.find_job, lambda id: berth.DetachedJob(id).wait(), lambda id: berth.DetachedJob(id).logs(),
                         lambda id: berth.DetachedJob(id).cancel(), lambda id: next(berth.DetachedJob(id).logs(follow=True))):
                try:
                    say(call(id))
                except berth.UsageError:
                    pass
    """) == ""


@pytest.mark.needs_root
def test_jobs_of_another_user(python, open_build):
    """They are seen as far as `berth jobs --all` shows them, and nothing more."""
    shutil.copytree(PACKAGE, open_build / "python")
    python.says("berth.submit(['sleep', '1000'], label='of root')")
    home = python.server.folder / "home"
    home.mkdir()
    home.chmod(0o777)
    assert python.says("""
        [job] = berth.jobs(all=True)
        say(berth.jobs(), job.label, job.state(), job.status().detached, berth.find_job(job.id) == job)
        for call in (job.wait, job.logs, job.cancel, lambda: next(job.logs(follow=True)), lambda: berth.submit(["true"], after=job)):
            try:
                say(call())
            except berth.NotYours as problem:
                say("root" in str(problem))
        say(job.state())
    """, env={"PYTHONPATH": str(open_build / "python"), "HOME": str(home)}, prefix=NOBODY, program="/usr/bin/python3") == (
        "[] of root running False True\n" + 5 * "True\n" + "running")


def test_after_other_jobs(python):
    gate = python.server.folder / "gate"
    os.mkfifo(gate)
    assert python.says("""
        first = berth.submit(["sh", "-c", "cat gate; exit 1"])
        both = berth.submit(["true"], after=[first, first.id])
        other = berth.submit(["echo", "other"], after_any=first)
        say([job.state() for job in (both, other)], first.id in both.status().reason)
        open("gate", "w").close()
        say(first.wait(), both.wait(), both.status().result, first.id in both.status().reason, other.wait())
        try:
            berth.submit(["true"], after=first)
        except berth.Impossible as problem:
            say(first.id in str(problem))
    """) == "['held', 'held'] True\n1 69 failed True 0\nTrue"


def test_it_begins_later(python):
    assert python.says("""
        import datetime
        far = [berth.submit(["true"], begin=begin) for begin in (
            "tomorrow 9:00", "2h", 7200, datetime.timedelta(hours=2), datetime.datetime.now() + datetime.timedelta(hours=2),
            datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=2))]
        say({job.state() for job in far}, {job.cancel() for job in far})
        say(berth.submit(["true"], begin=0.01).wait())
    """) == "{'held'} {True}\n0"


def test_the_wait_ends_after_its_time(python):
    assert python.says("""
        import datetime
        job = berth.submit(["sleep", "1000"])
        for timeout in (0, 0.01, "10ms", datetime.timedelta(milliseconds=10)):
            try:
                job.wait(timeout=timeout)
            except TimeoutError as problem:
                say(job.id in str(problem))
        job.cancel()
        say(job.wait(timeout=0))
    """) == "True\nTrue\nTrue\nTrue\n143"


def test_an_unknown_exit_code_is_an_exception(python):
    """The berth process of the job is killed."""
    program = python.start("""
        job = berth.submit(["sleep", "1000"])
        say(job.id)
        stay()
        try:
            job.wait()
        except berth.UnknownExitCode as problem:
            say(job.id in str(problem), job.status().result)
    """)
    job = first_line(program)
    os.kill(events_of(python.server, job)[0]["pid"], signal.SIGKILL)
    wait_until(lambda: python.server.berth("cancel", job).returncode in (0, 64), "the job is ended")
    wait_until(lambda: all_free(python.server))
    assert program.end() == 0, program.err
    assert program.out.splitlines()[1] == "True unknown"


def test_the_end_of_a_shells_lease_is_awaited(python):
    """It has no exit code, and counts as 0, as for `berth wait`."""
    lease = python.server.run("sh", "-c", f'eval "$({BERTH} acquire)"; echo "$BERTH_LEASE"').stdout.strip()
    assert python.says(f"say(berth.DetachedJob({lease!r}).wait())") == "0"


def test_output_can_be_followed(python):
    gate = python.server.folder / "gate"
    os.mkfifo(gate)
    assert python.says("""
        import os
        job = berth.submit("echo one; cat gate; printf 'two\\\\nno end'", shell=True)
        lines = job.logs(follow=True)
        say(next(lines), next(lines))
        open("gate", "w").close()
        say(list(lines), job.wait())
        stays = berth.submit(["sh", "-c", "echo here; exec sleep 1000"])
        for line in stays.logs(follow=True):
            if line == "here":
                break
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            say("children", file.read())
        stays.cancel()
    """) == "berth: granted GPU 0 one\n['two', 'no end'] 0\nchildren"


def test_output_that_is_not_text(python):
    assert python.says("""
        job = berth.submit(["printf", r"\\377\\r\\n\\0x"])
        job.wait()
        say(repr(job.logs().partition("GPU 0\\n")[2]))
    """) == repr("\ufffd\r\n\0x")


def test_folder_and_environment(python):
    """Whatever the environment, the job belongs to the same harbour and the same list."""
    (python.server.folder / "below").mkdir()
    assert python.says("""
        import os
        os.environ["INHERITED"] = "1"
        inherits = berth.submit("pwd; echo $INHERITED $OWN", shell=True, cwd="below")
        own = berth.submit("echo $HOME+$INHERITED+$OWN", shell=True, env={"OWN": "2", "HOME": "/nowhere", "PATH": os.environ["PATH"]})
        for job in (inherits, own):
            job.wait()
            say(job.logs().splitlines()[1:])
        say(own in berth.jobs())
    """) == f"['{python.server.folder}/below', '1']\n['/nowhere++2']\nTrue"


def test_a_job_is_not_inside_a_lease_of_the_program(python):
    python.server.use("2x24GiB")
    assert python.says("""
        with berth.gpus() as lease:
            job = berth.submit(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
            job.wait()
            say(lease.indices, job.logs().splitlines()[-1])
        say(lease.release())
    """) == "[0] 1\nTrue"


def test_the_keywords_of_a_request_reach_the_job(python):
    assert python.says("""
        import datetime
        job = berth.submit(["sleep", "1000"], 1, gpu=[2, 3], name="sim", mem="2GiB", min_mem="1GiB", util=90, mem_util=90,
                           processes=1, policy="pack", job="kind", time=datetime.timedelta(hours=1), timeout="1h",
                           label="text", ids="uuid", placeholder=True, retry_oom=2)
        status = job.status()
        say(status.gpus, status.label, status.ends - status.started, [lease.memory_mib for lease in berth.status()[2].leases])
        job.cancel()
    """) == "(2,) text 1:00:00 [2048]"


def test_notifications(python):
    """A string or a list, as --notify."""
    (python.server.folder / ".config").mkdir()
    (python.server.folder / ".config/berth.toml").write_text(f'[notify]\ncommand = "cat >> {python.server.folder}/events"\n')
    assert python.says("""
        for notify in ("command", ["command:ended", "bell"], None):
            say(berth.submit(["true"], notify=notify).wait())
    """) == "0\n0\n0"
    events = python.server.folder / "events"
    wait_until(lambda: events.exists() and events.read_text().count('"event"') >= 2, "they have arrived")


@pytest.mark.needs_root
@pytest.mark.parametrize("harbour", ["redis"], indirect=True)
def test_a_job_on_another_host(python):
    lab = Lab(python.server, {"gpu-a": "1x24GiB", "gpu-b": "2x80GiB"})
    gate = lab.folder / "gate"
    os.mkfifo(gate)
    try:
        def says(host, code, **env):
            result = host.run(sys.executable, "-c", SPEAKS + textwrap.dedent(code), env={"PYTHONPATH": str(PACKAGE), **env})
            assert (result.returncode, result.stderr) == (0, ""), result
            return result.stdout.strip()

        job = says(lab.head, f"""
            import os
            for host in ("gpu-b", ["gpu-a", "gpu-b"]):
                job = berth.submit("echo $BERTH_HOST_TEXT; hostname; cat {gate}; exit 3", shell=True, mem="60GiB", host=host,
                                   env={{**os.environ, "BERTH_HOST_TEXT": "no", "TEXT": "set"}})
                jobs = berth.jobs()
                if host == "gpu-b":
                    while job.state() != "running":
                        pass
                    say(job.status().host, len(jobs), job.cancel(), job.wait())
            say(job.id)
        """)
        assert job.splitlines()[0] == "gpu-b 1 True 143"
        job = job.splitlines()[1]
        wait_until(lambda: "gpu-b" in says(lab.head, f"say(berth.DetachedJob({job!r}).logs())"), "it runs")
        waiting = lab.hosts["gpu-a"].start(sys.executable, "-c", f"import berth; print(berth.DetachedJob({job!r}).wait())",
                                           env={"PYTHONPATH": str(PACKAGE)})
        assert says(lab.hosts["gpu-a"], f"say([job.status().host for job in berth.jobs() if job.id == {job!r}])") == "['gpu-b']"
        gate.write_text("")
        assert waiting.communicate(timeout=LIMIT)[0] == "3\n"
        assert says(lab.hosts["gpu-a"], f"say(berth.DetachedJob({job!r}).cancel())") == "False"
    finally:
        lab.stop()


def test_the_keywords_of_the_types_are_those_that_are_accepted(python):
    assert python.says("""
        from berth import _detached, _request_keywords as types
        say({"count", *types.DetachedRequest.__annotations__} == _detached.KEYWORDS)
    """) == "True"


def test_many_programs_may_wait_for_one_job(python):
    assert python.says("""
        import concurrent.futures
        job = berth.submit(["sleep", "0.2"])
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            say(list(pool.map(lambda _: job.wait(), range(5))))
    """, timeout=LIMIT) == "[0, 0, 0, 0, 0]"
