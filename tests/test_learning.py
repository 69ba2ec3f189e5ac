"""`--mem auto`: what is measured, what is learned from it, and what is reserved then."""

import json
import os
import re
import signal
import time

import pytest
from conftest import SIM_JOB, assert_fit_for_terminal, assert_one_line_error
from leasing import NOBODY, eventually, gpu, jobs  # noqa: F401
from waiting import LIMIT

MIB_5G = 5 * 1024


def sim_job(*flags):
    """A job that prints its GPUs, and uses memory until its stdin is closed."""
    words = " ".join(flags)
    return ["sh", "-c", f'{SIM_JOB} --quiet {words} & echo "$BERTH_GPUS"; read -r line; kill $!; exit 0']


def measured_job(*flags):
    """A job that prints its GPUs, waits until its stdin is closed, and then uses memory until it was measured."""
    return ["sh", "-c", f'echo "$BERTH_GPUS"; read -r line; exec {SIM_JOB} --quiet --samples 5 {" ".join(flags)}']


def hold_memory(server, jobs, gib):
    """Somebody else on the first GPU, who has his memory already."""
    jobs.hold("--mem", f"{gib}GiB", command=sim_job("--mem", f"{gib}GiB"))
    eventually(lambda: server.status()["gpus"][0]["memory_used_mib"] >= gib * 1024, "the neighbour's memory")


def learn(server, *flags, times=1, job="train", env=None):
    """Has a type run to its end, so that it is known."""
    for _ in range(times):
        result = server.berth("run", "--mem", "auto", "--job", job, "--", SIM_JOB, "--quiet", "--samples", "5",
                              *(flags or ("--mem", "5GiB")), env=env)
        assert (result.returncode, result.stderr) == (0, "")


def profiles(server, *words, **options):
    result = server.berth("profile", *words, "--json", **options)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.isascii()
    return [json.loads(line) for line in result.stdout.splitlines()]


def rewrite(server, change):
    """Puts another text in the place of the one profile that there is."""
    if server.redis:
        with server.redis.client() as client:
            [key] = client.keys(f"{server.prefix}:profiles:*")
            [(kind, text)] = client.hgetall(key).items()
            client.hset(key, kind, change(text))
    else:
        [file] = (server.harbour / "archive").glob("*/profile-*.json")
        file.write_text(change(file.read_text()))


def history(server):
    return [json.loads(line) for line in server.berth("log", "--json").stdout.splitlines()]


def queue(server):
    return json.loads(server.berth("queue", "--json").stdout)["queue"]


def leases(server):
    return {lease["id"]: lease for one in server.status()["gpus"] for lease in one["leases"]}


# What is measured.

@pytest.mark.release_only
def test_every_job_is_measured(server):
    server.berth("run", "-n", "2", "--", SIM_JOB, "--quiet", "--curve", "0s:1GiB,200ms:3GiB,600ms:2GiB", "--util", "60",
                 "--time", "1s")
    [entry] = history(server)
    assert [one["peak_mib"] for one in entry["gpus"]] == [3072, 3072]
    # The first samples may be earlier than the job's load.
    assert [one["utilization_pct"] for one in entry["gpus"]] == [pytest.approx(60, abs=30)] * 2
    assert 0 <= entry["idle_s"] < entry["lasted_s"] / 2


@pytest.mark.release_only
def test_the_whole_process_tree_counts_and_no_other_lease(server, jobs):
    """Two jobs of the same user on one GPU, one of them with a grandchild there as well."""
    server.use("1x24GiB")
    other = jobs.hold("--mem", "8GiB", command=sim_job("--mem", "7GiB"))
    two = f"{SIM_JOB} --quiet --mem 2GiB --time 600ms --samples 5 & {SIM_JOB} --quiet --mem 1GiB --samples 5; wait"
    server.berth("run", "--mem", "4GiB", "--", "sh", "-c", two)
    assert history(server)[-1]["gpus"][0]["peak_mib"] == 3072
    assert other.end() == 0


def test_a_job_that_does_not_use_its_gpu_is_idle(server):
    server.berth("run", "--", "sleep", "2")
    [entry] = history(server)
    assert entry["gpus"][0]["peak_mib"] is None and entry["gpus"][0]["utilization_pct"] == 0
    assert entry["idle_s"] > 0


@pytest.mark.release_only
def test_where_the_driver_does_not_tell_whose_memory_it_is_the_cards_counts_and_is_doubted(server):
    server.use({"gpus": [{"memory": "24GiB", "process_memory": False}]})
    learn(server)
    [profile] = profiles(server)
    [run] = profile["runs"]
    assert run["peak_mib"] == MIB_5G and run["doubtful"]
    assert "driver" in server.berth("profile", "show", "train").stdout


# What is reserved.

@pytest.mark.each_harbour
def test_the_first_run_has_a_gpu_alone_and_the_next_reserve_what_it_needed(server):
    learn(server, times=6)
    reserved = [entry["memory_mib"] for entry in history(server)]
    assert reserved[0] is None
    assert reserved[1] == pytest.approx(MIB_5G * 1.10, abs=2)
    assert reserved[2] == pytest.approx(MIB_5G * 1.05, abs=2)
    assert reserved[5] == pytest.approx(MIB_5G * 1.02, abs=2)
    [profile] = profiles(server)
    assert profile["type"] == "train" and len(profile["runs"]) == 6
    assert profile["quantile_mib"] == MIB_5G and profile["reserves_mib"] == pytest.approx(MIB_5G * 1.02, abs=2)


def test_a_log_tells_what_auto_reserves_and_why(server):
    command = ["berth", "run", "--mem", "auto", "--job", "train", "--", SIM_JOB, "--quiet", "--mem", "5GiB", "--samples", "5"]
    for expected in (r"berth: granted GPU \d, exclusive: .*\bfirst run\b.*\n",
                     r"berth: granted GPU \d, 5\.\d+ GiB reserved: up to 5\S* GiB in 1 earlier run, plus 10%\n"):
        path, process = start_into(server, "auto.log", *command)
        assert process.wait(LIMIT) == 0
        assert re.match(expected, path.read_text()), path.read_text()
        path.unlink()


@pytest.mark.release_only
def test_jobs_of_unknown_type_are_known_by_their_script(server):
    for folder in ("one", "two"):
        (server.folder / folder).mkdir()
        (server.folder / folder / "train.sh").write_text(f"exec {SIM_JOB} --quiet --mem $1 --samples 5\n")
        assert server.berth("run", "--mem", "auto", "--", "sh", "train.sh", "2GiB", cwd=server.folder / folder
                            ).returncode == 0
    types = [profile["type"] for profile in profiles(server)]
    assert types == [f"sh {server.folder}/{folder}/train.sh" for folder in ("one", "two")]
    shown = server.berth("profile", "of", "--", "sh", "train.sh", "3GiB", cwd=server.folder / "one").stdout
    assert "script" in shown and " 2.2 GiB" in shown


@pytest.mark.release_only
def test_the_largest_of_a_few_runs_counts(server):
    learn(server, "--mem", "2GiB")
    learn(server, "--mem", "6GiB")
    learn(server, "--mem", "2GiB")
    [profile] = profiles(server)
    assert profile["quantile_mib"] == 6 * 1024 and profile["margin_pct"] > 10


@pytest.mark.release_only
def test_who_needs_nearly_all_of_a_card_has_it_alone(server):
    learn(server, "--mem", "23GiB", times=2)
    assert [entry["exclusive"] for entry in history(server)] == [True, True]


@pytest.mark.release_only
def test_two_jobs_that_have_not_allocated_yet_do_not_count_on_the_same_memory(server, jobs):
    server.use("1x24GiB")
    learn(server, "--mem", "13GiB", times=5)
    flags = ["--mem", "auto", "--job", "train"]
    first = jobs.hold(*flags)  # allocates nothing
    second = jobs.wait(*flags)
    assert "memory" in second.err
    assert first.end() == 0
    second.gpus()
    assert second.end() == 0


# Waiting for the profile.

@pytest.mark.each_harbour
def test_others_of_the_type_wait_for_the_profile_and_other_types_go_on(server, jobs):
    flags = ["--mem", "auto", "--job", "train"]
    first = jobs.hold(*flags, command=measured_job("--mem", "5GiB"))
    others = [jobs.wait(*flags) for _ in range(5)]
    assert all("'train'" in other.err for other in others)
    another = jobs.hold("--mem", "auto", "--job", "another")
    assert gpu(server.status(), another.gpus())["state"] == "leased"
    assert first.end() == 0
    for other in others:  # all at once
        other.gpus()
    reserved = [lease["memory_mib"] for lease in leases(server).values() if lease["job"] == "train"]
    assert reserved == [pytest.approx(MIB_5G * 1.1, abs=2)] * 5


@pytest.mark.release_only
def test_a_failed_profile_run_blocks_nobody(server, jobs):
    flags = ["--mem", "auto", "--job", "train"]
    fails = ["sh", "-c", 'echo "$BERTH_GPUS"; read -r line; exit 3']
    first = jobs.hold(*flags, command=fails)
    others = [jobs.wait(*flags) for _ in range(3)]
    assert first.end() == 3
    assert len({other.gpus() for other in others}) == 3
    assert all(lease["exclusive"] for lease in leases(server).values())
    [profile] = profiles(server)
    assert profile["failures"] == 1 and profile["runs"] == []


@pytest.mark.release_only
def test_a_type_too_short_to_be_seen_does_not_run_one_at_a_time(server, jobs):
    flags = ["--mem", "auto", "--job", "short"]
    assert server.berth("run", *flags, "--", "true").returncode == 0
    held = [jobs.hold(*flags) for _ in range(3)]  # all at once, each with a GPU of its own
    assert len({job.gpus() for job in held}) == 3
    [profile] = profiles(server)
    assert profile["runs"] and all(run["peak_mib"] is None for run in profile["runs"])


@pytest.mark.each_harbour
@pytest.mark.parametrize("killed", ["the holder", "the parent alone"])
def test_a_profile_run_that_is_killed_is_done_again_by_the_next(server, jobs, killed):
    flags = ["--mem", "auto", "--job", "train"]
    first = jobs.hold(*flags)
    others = [jobs.wait(*flags) for _ in range(2)]
    if killed == "the holder":
        os.kill(int(first.pid), signal.SIGKILL)
        first.process.stdin.close()
    else:
        os.kill(first.pid, signal.SIGKILL)
        eventually(lambda: len(queue(server)) == 2)
        assert all(other.runs and not other.out for other in others)  # the job lives, and is measured by nobody
        first.process.stdin.close()
    eventually(lambda: any(other.out for other in others), "the next profile run")
    eventually(lambda: len(queue(server)) == 1)
    next_one = next(other for other in others if other.out)
    assert next_one.end() == 0
    [last] = [other for other in others if other is not next_one]
    last.gpus()


def test_a_ticket_that_needs_more_becomes_the_last_and_one_that_needs_less_keeps_its_place(server, jobs):
    server.use("1x24GiB")
    holder = jobs.hold()
    for profile, memory in (("less", "8GiB"), ("more", "4GiB")):
        assert server.berth("profile", "set", profile, "--mem", memory).returncode == 0
    less, more = (jobs.wait("--mem", "auto", "--job", name, "--label", name) for name in ("less", "more"))
    jobs.wait("--label", "whole")
    assert [one["label"] for one in queue(server)] == ["less", "more", "whole"]
    for profile in ("less", "more"):
        assert server.berth("profile", "set", profile, "--mem", "6GiB").returncode == 0
    for one in queue(server):
        with open(server.harbour / f"bell-{one['ticket']}", "wb") as bell:
            bell.write(b"!")
    wanted = [("less", 6 * 1024), ("whole", None), ("more", 6 * 1024)]
    eventually(lambda: [(one["label"], one["memory_mib"]) for one in queue(server)] == wanted, lambda: str(queue(server)))
    eventually(lambda: "6 GiB on each GPU now" in more.err and "last in the queue" in more.err, lambda: more.err)
    assert "last in the queue" not in less.err
    holder.end()
    less.gpus()


@pytest.mark.each_harbour
def test_setting_a_profile_ends_the_wait_for_it(server, jobs):
    flags = ["--mem", "auto", "--job", "train"]
    jobs.hold(*flags)
    waits = jobs.wait(*flags)
    assert re.fullmatch(r"train .*\b3 GiB\n", server.berth("profile", "set", "train", "--mem", "3GiB").stdout)
    waits.gpus()
    assert 3072 in [lease["memory_mib"] for lease in leases(server).values()]


@pytest.mark.release_only
@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_types_of_other_users_do_not_wait_for_mine(server, jobs, open_build):
    flags = ["--mem", "auto", "--job", "train"]
    jobs.hold(*flags)
    jobs.hold(*flags, prefix=NOBODY, program=open_build / "bin" / "berth")


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_others_can_read_a_profile_and_reserve_nothing_by_it(server, jobs, open_build):
    before = os.umask(0o077)  # which hides nothing from them
    try:
        learn(server)
    finally:
        os.umask(before)
    jobs.hold("--mem", "auto", "--job", "train", prefix=NOBODY, program=open_build / "bin" / "berth")
    [lease] = leases(server).values()
    assert lease["memory_mib"] is None, "the first run of each user is measured"
    assert profiles(server) != [] and profiles(server, "--all") != []


@pytest.mark.release_only
@pytest.mark.needs_root
def test_who_locks_anothers_folder_keeps_no_job_from_ending(server):
    """Whoever can read a file can lock it."""
    learn(server)
    [folder] = (server.harbour / "archive").glob("*/")
    locker = server.start(*NOBODY, "flock", "-x", folder, "sh", "-c", f"echo locked > {server.folder}/locked; exec sleep 60")
    eventually(lambda: locker.poll() is not None or (server.folder / "locked").exists(), "the lock")
    assert locker.poll() is None
    learn(server, job="other")
    [lock] = folder.glob(".lock")
    assert lock.stat().st_mode & 0o077 == 0, "which nobody else can open"
    locker.kill()


# Running out of memory.

def start_into(server, name, *words):
    """Starts it with its output in a file, as in a batch."""
    path = server.folder / name
    path.touch()
    return path, server.start("sh", "-c", 'exec "$@" > "$0" 2>&1', path, *words)


def test_out_of_memory_is_tried_again_with_more_and_at_last_alone(server, jobs):
    server.use("1x24GiB")
    hold_memory(server, jobs, 8)
    command = ["berth", "run", "--mem", "4GiB", "--retry-oom", "3", "--job", "big", "--", SIM_JOB, "--mem", "17GiB",
               "--time", "100ms"]
    path, process = start_into(server, "oom.log", *command)
    eventually(lambda: path.read_text().count(" again ") == 3, "the last attempt")
    assert re.search(r"\b4 GiB\b.*\b6 GiB\b", path.read_text())
    assert process.poll() is None  # it waits for the other to end
    jobs.all[0].end()
    assert process.wait(LIMIT) == 0
    reserved = [entry["memory_mib"] for entry in history(server) if entry["job"] == "big"]
    assert reserved == [4096, 6144, 9216, None]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_told_to_end_did_not_run_out_of_memory(server, number):
    path, process = start_into(server, "oom.log", "berth", "run", "--mem", "4GiB", "--retry-oom", "3", "--job", "big", "--", "sh",
                               "-c", "trap 'exit 3' INT TERM; echo CUDA out of memory; while :; do sleep 0.05; done")
    eventually(lambda: "out of memory" in path.read_text(), "it runs")
    process.send_signal(number)
    assert process.wait(LIMIT) == 3
    assert path.read_text() == "berth: granted GPU 0\nCUDA out of memory\n"
    [profile] = profiles(server)
    assert (profile["runs"], profile["failures"]) == ([], 1)


def test_more_than_any_gpu_has_means_one_of_its_own(server, jobs):
    server.use("1x24GiB")
    hold_memory(server, jobs, 6)
    path, process = start_into(server, "oom.log", "berth", "run", "--mem", "16GiB", "--retry-oom", "2", "--job", "big",
                               "--", SIM_JOB, "--mem", "20GiB", "--time", "100ms")
    eventually(lambda: " again " in path.read_text(), "the second attempt")
    assert process.poll() is None  # it waits for the other to end
    jobs.all[0].end()
    assert process.wait(LIMIT) == 0
    reserved = [entry["memory_mib"] for entry in history(server) if entry["job"] == "big"]
    assert reserved == [16 * 1024, None]


@pytest.mark.release_only
def test_without_retries_its_exit_code_stands_and_the_estimate_is_raised(server, jobs):
    server.use("1x24GiB")
    learn(server, times=5)
    hold_memory(server, jobs, 14)
    path, process = start_into(server, "oom.log", "berth", "run", "--mem", "auto", "--job", "train", "--", SIM_JOB,
                               "--mem", "11GiB", "--time", "100ms")
    assert process.wait(LIMIT) == 1 and "out of memory" in path.read_text()
    [profile] = profiles(server)
    assert profile["runs"][-1]["out_of_memory"]
    assert profile["reserves_mib"] > 7 * 1024
    assert "out of memory" in server.berth("profile", "show", "train").stdout


def test_where_nobody_can_read_what_it_said_that_is_told(server):
    """Out of memory is known by a job's words, and those of a terminal or a pipe nobody reads again."""
    failing = ["berth", "run", "--mem", "4GiB", "--retry-oom", "2", "--", "false"]
    result = server.run(*failing)
    assert result.returncode == 1
    assert "--retry-oom" in result.stderr
    path, process = start_into(server, "failed.log", *failing)
    assert process.wait(LIMIT) == 1 and path.read_text() == "berth: granted GPU 0\n"


@pytest.mark.release_only
def test_other_failures_teach_nothing(server):
    learn(server, times=2)
    for _ in range(3):
        server.berth("run", "--mem", "auto", "--job", "train", "--", SIM_JOB, "--quiet", "--mem", "9GiB", "--time",
                     "100ms", "--fail", "3")
    [profile] = profiles(server)
    assert len(profile["runs"]) == 2 and profile["failures"] == 3 and profile["quantile_mib"] == MIB_5G


# Frameworks that take the whole card.

@pytest.mark.release_only  # Python cannot load a library with sanitizers
def test_jax_is_recognised_and_named(server):
    """A process that has a file of jaxlib mapped, and takes three quarters of the card."""
    folder = server.folder / "jaxlib"
    folder.mkdir()
    (folder / "xla.so").write_bytes(b"x" * 4096)
    script = server.folder / "jax.py"
    script.write_text(
        "import ctypes, mmap, os, time\n"
        f"file = open({str(folder / 'xla.so')!r}, 'rb'); mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        f"cuda = ctypes.CDLL({str(SIM_JOB.parent.parent / 'lib/sim/libcuda.so.1')!r})\n"
        "device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()\n"
        "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0\n"
        "assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0\n"
        "assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(18 << 30)) == 0\n"
        "time.sleep(0.5)\n")
    result = server.berth("run", "--mem", "auto", "--", "python3", script)
    assert result.returncode == 0, result.stderr
    assert "JAX" in result.stderr and "XLA_PYTHON_CLIENT_PREALLOCATE=false" in result.stderr
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in server.berth("profile", "show", "jax.py").stdout


# Run times.

@pytest.mark.release_only
@pytest.mark.each_harbour
def test_learned_run_times_give_estimates(server, jobs):
    server.use("1x24GiB")
    for _ in range(3):
        server.berth("run", "--job", "train", "--", "sleep", "0.2")
    [profile] = profiles(server)
    assert 0.25 <= profile["time_s"] < 25

    def longer(text):
        """As if they had taken an hour."""
        learned = json.loads(text)
        for run in learned["runs"]:
            run["lasted_ms"] = 3600 * 1000
        return json.dumps(learned)
    rewrite(server, longer)
    jobs.hold("--job", "train")
    [lease] = leases(server).values()
    assert lease["ends_source"] == "estimated"
    assert server.status()["next_free"] == {"gpus": [0], "at": lease["ends"], "source": "estimated"}
    assert re.search(r"\b1h 1\d?m\b", jobs.wait().err)
    [ticket] = queue(server)
    assert ticket["starts"] is not None


@pytest.mark.release_only
def test_what_is_said_counts_more_than_what_was_learned(server, jobs):
    server.use("1x24GiB")
    for _ in range(3):
        server.berth("run", "--job", "train", "--", "true")
    jobs.hold("--job", "train", "--time", "1h")
    waits = jobs.wait()
    assert re.search(r"\b(1h|59m)\b", waits.err)


# Idle leases.

@pytest.mark.each_harbour
def test_an_idle_lease_stands_out(server, jobs):
    job = jobs.hold("--label", "forgotten")
    [lease] = leases(server).values()
    assert lease["idle_s"] is None
    record = server.harbour / f"lease-{lease['id']}"
    long_ago = time.time() - 25 * 60
    os.utime(record, (long_ago, long_ago))
    [lease] = leases(server).values()
    assert 25 * 60 <= lease["idle_s"] < 26 * 60
    assert re.search(r"\bidle\b.*\b25m\b", server.berth("status").stdout)
    job.process.kill()  # nobody looks any more
    job.process.wait()
    eventually(lambda: all(lease["idle_s"] is None for lease in leases(server).values()))


# The command.

def test_all_text_of_json_is_ascii(server):
    learn(server, job="größer")
    assert profiles(server)[0]["type"].startswith("größer")


@pytest.mark.each_harbour
def test_profiles_are_listed_shown_set_and_forgotten(server):
    empty = server.berth("profile")
    assert empty.stdout == "" and "--mem auto" in empty.stderr and empty.stderr.count("\n") == 1
    learn(server, times=3)
    learn(server, job="train \x1b[31m other")
    table = server.berth("profile").stdout
    assert_fit_for_terminal(table)
    assert table.splitlines()[0].split() == ["USER", "RUNS", "PEAK", "RESERVES", "TIME", "TYPE"]
    assert table.splitlines()[1].split()[:6] == ["root", "3", "5", "GiB", "5.2", "GiB"]
    page = server.berth("profile", "show", "train").stdout
    assert "largest of 3 runs" in page and page.count("5 GiB") >= 4
    assert re.fullmatch(r"train .*\b9 GiB\n", server.berth("profile", "set", "train", "--mem", "9GiB", "--time", "2h").stdout)
    [changed] = profiles(server, "show", "train")
    assert (changed["reserves_mib"], changed["time_s"]) == (9 * 1024, 7200)
    forgotten = server.berth("profile", "forget", "other").stdout
    assert "other" in forgotten and forgotten.count("\n") == 1
    assert [profile["type"] for profile in profiles(server)] == ["train"]
    server.berth("profile", "forget", "--all")
    assert profiles(server) == []


def test_what_is_set_before_the_first_run_is_told(server):
    """The type may be misspelt."""
    result = server.berth("profile", "set", "trian", "--mem", "9GiB")
    assert result.returncode == 0 and re.fullmatch(r"trian .*\b9 GiB\n", result.stdout)
    assert "'trian'" in result.stderr and "berth profile of" in result.stderr and result.stderr.count("\n") == 1
    learn(server, job="train")
    assert server.berth("profile", "set", "train", "--mem", "9GiB").stderr == ""


@pytest.mark.parametrize("words", [[], ["show", "train"], ["forget", "--all"], ["set", "train", "--mem", "1GiB"], ["of", "--", "true"]])
def test_a_harbour_that_cannot_be_used_is_not_an_empty_one(server, words):
    file = server.folder / "file"
    file.touch()
    env = {"BERTH_DIR": str(file)}
    expected = server.berth("report", env=env)
    assert_one_line_error(expected, 74, "directory")
    result = server.berth("profile", *words, env=env)
    assert (result.returncode, result.stdout, result.stderr) == (74, "", expected.stderr)


@pytest.mark.parametrize("words,says", [
    (["show"], "'berth profile'"), (["show", "nothing"], "'nothing'"),
    (["show", "train"], "'train two'"), (["set", "one"], "--mem 8GiB"), (["set", "one", "--mem", "0"], "--mem"),
    (["set", "one", "--time", "soon"], "--time"), (["forget"], "--all"), (["of"], "berth profile of"), (["drop"], "'drop'"),
    (["list", "train"], "'train'"), (["show", "train one", "--mem", "3GiB"], "profile show: --mem"),
    (["show", "train one", "--", "true"], "'berth profile of'"), (["set", "train one", "--mem", "1GiB", "--json"], "--json"),
    (["--time", "1h"], "profile list: --time"), (["forget", "train one", "-n", "2"], "--count"), (["of", "--all", "--", "true"], "--all"),
])
def test_wrong_words(server, words, says):
    learn(server, job="train one")
    learn(server, job="train two")
    assert_one_line_error(server.berth("profile", *words), 64, says)


@pytest.mark.each_harbour
def test_a_damaged_profile_is_learned_anew(server):
    learn(server)
    rewrite(server, lambda text: "{")
    for flags in ([], ["--json"], ["--all"]):
        result = server.berth("profile", *flags)
        assert (result.returncode, result.stdout) == (0, "") and "1 profile" in result.stderr, result
    learn(server)
    assert len(profiles(server)[0]["runs"]) == 1


def test_a_shell_needs_a_name_for_it(server, jobs):
    assert_one_line_error(server.berth("acquire", "--mem", "auto", "--print", "ids"), 64, "--job")
    learn(server)
    shell = jobs.start("bash", "-c", 'eval "$(berth acquire --mem auto --job train)"; echo ready; read -r line')
    eventually(lambda: "ready" in shell.out)
    [lease] = leases(server).values()
    assert lease["memory_mib"] == pytest.approx(MIB_5G * 1.1, abs=2)
