"""GPUGET's GPU.py on GPUGET's own lists in Redis, beside those who use the original: what it reads and writes there is done
here by hand, command by command."""

import json
import os
import re
import signal

import pytest
import redis_server
from conftest import assert_fit_for_terminal, assert_one_line_error
from leasing import eventually, is_alive, jobs, ready, state_of  # noqa: F401
from compat_tools import good, python_in_path, tools  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
ALL = ["0", "1", "2", "3"]


class Original:
    """What the original does, and what it would find."""

    def __init__(self, server, prefix):
        self.redis = server.client()
        self.prefix = prefix

    def key(self, name):
        return f"{self.prefix}_{name}"

    def idle(self):
        return sorted(self.redis.lrange(self.key("IDLE"), 0, -1))

    def get(self, pid):
        """As `GPU.py --get` does, one command after the other."""
        _, gpu = self.redis.brpop(self.key("IDLE"), 30)
        self.redis.lpush(self.key("EVENTS"), f"2026-01-01 00:00:00: GPU {gpu} acquired by PID {pid}.")
        self.redis.hset(self.key(f"GPU{gpu}"), "PID", pid)
        self.redis.hset(self.key(f"GPU{gpu}"), "TIME", "2026-01-01 00:00:00")
        return gpu

    def release(self, gpu):
        self.redis.delete(self.key(f"GPU{gpu}"))
        self.redis.lpush(self.key("IDLE"), gpu)


@pytest.fixture
def original(tools):
    server = redis_server.shared_server()
    one = Original(server, f"{tools.folder.name}-GPU")
    tools.env["BERTH_GPUGET_KEYS"] = "gpuget"
    tools.env["GPUGET"] = f"--redis-port {server.port} --redis-prefix {one.prefix}"
    yield one
    one.redis.close()


def gpu_py(server, *words, **options):
    return server.run("sh", "-c", f'GPU.py $GPUGET {" ".join(words)}', **options)


def says(server, *words):
    return good(gpu_py(server, *words))


@pytest.fixture
def managed(tools, original):
    assert says(tools, "--redis-manage-all") == "4\n"
    return tools


def shell(jobs, script="GPUID=$(GPU.py $GPUGET --get); echo $GPUID"):
    """Has run the script; stays until its stdin ends."""
    return jobs.start("bash", "--norc", "-c", f"{script}\necho ready\nread -r line\nexit 0", start_new_session=True)


def test_the_lists_are_the_originals(managed, original):
    read = original.redis
    assert read.lrange(original.key("IDLE"), 0, -1) == read.lrange(original.key("MANAGED"), 0, -1) == ALL[::-1]
    about = read.hgetall(original.key("INIT"))
    assert re.fullmatch(STAMP, about.pop("TIME")) and about == {"GPUMANAGED": "0,1,2,3", "GPUCOUNT": "4"}
    [event] = read.lrange(original.key("EVENTS"), 0, -1)
    assert re.fullmatch(f"{STAMP}: Redis initialized, 4 managed GPUs\\.", event)
    assert "already initialized" in says(managed, "--redis-manage-all")


def test_who_has_a_gpu_has_it_in_both(managed, original, jobs):
    job = shell(jobs)
    assert ready(job) == ["0"]
    assert original.idle() == ALL[1:] and state_of(managed, 0) == "leased"
    assert managed.berth("run", "--no-wait", "--gpu", "0", "--", "true").returncode == 75
    eventually(lambda: original.redis.hget(original.key("GPU0"), "PID") == str(job.pid), "it names the shell")
    assert re.fullmatch(STAMP, original.redis.hget(original.key("GPU0"), "TIME"))
    assert says(managed, "--idle") == "There is 3 IDDLE GPUs, IDs: 1,2,3\n"
    assert says(managed, "--info") == "GPU total:4 managed:4 idle:3\n"
    first, second = says(managed, "--active").splitlines()
    assert first == "There is 1 ACTIVE GPUs, IDs: 0"
    assert re.fullmatch(f"GPU 0 acquired by PID {job.pid} at {STAMP}", second)
    assert says(managed, "--release", "0") == "GPU 0 released.\n"
    assert original.idle() == ALL and state_of(managed, 0) == "free"
    assert not original.redis.exists(original.key("GPU0"))
    assert says(managed, "--release", "0") == "GPU 0 is already idle.\n"
    assert says(managed, "--release", "7") == "GPU 7 is not managed.\n"
    log = says(managed, "--log").splitlines()
    assert [re.sub(f"^{STAMP}: |\\d+\\.$", "", line) for line in log] == [
        "Redis initialized, 4 managed GPUs.", "GPU 0 acquired by PID ", "GPU 0 released by PID "]


@pytest.mark.parametrize("how", ["ends", "killed", "released by berth"])
def test_it_goes_back_however_the_lease_ends(managed, original, jobs, how):
    job = shell(jobs)
    assert ready(job) == ["0"]
    if how == "ends":
        job.end()
    elif how == "killed":
        job.process.kill()
    else:
        assert managed.berth("release", "0").returncode == 0
    eventually(lambda: original.idle() == ALL, original.idle)
    assert original.redis.keys(original.key("GPU*")) == []


def test_the_original_and_berth_take_turns(managed, original, jobs):
    theirs = [original.get(os.getpid()) for _ in range(4)]
    job = shell(jobs)
    eventually(lambda: original.redis.info("clients")["blocked_clients"] > 0, "it waits in Redis")
    original.release(theirs[2])
    assert ready(job) == [theirs[2]]
    assert original.idle() == [] and state_of(managed, theirs[2]) == "leased"
    job.end()
    assert original.get(os.getpid()) == theirs[2]


def waits(server):
    """Whether a request is in Berth's queue."""
    return json.loads(server.berth("queue", "--json").stdout)["queue"] != []


def test_a_gpu_that_berth_has_given_to_others_comes_last(managed, original, jobs):
    holder = jobs.hold("--gpu", "0")
    others = [shell(jobs) for _ in range(3)]
    assert sorted(line for job in others for line in ready(job)) == ALL[1:]
    late = shell(jobs)
    eventually(lambda: original.idle() == [] and waits(managed), lambda: late.err)
    assert holder.end() == 0
    assert ready(late) == ["0"]


def test_who_leaves_the_queue_of_berth_takes_nothing(managed, original, jobs):
    jobs.hold("-n", "4")
    late = shell(jobs, "GPU.py $GPUGET --get")
    eventually(lambda: original.idle() == ALL[1:] and waits(managed), lambda: (original.idle(), late.err))
    [ticket] = [one["ticket"] for one in managed.status()["queue"]]
    assert managed.berth("cancel", ticket).returncode == 0
    eventually(lambda: original.idle() == ALL, original.idle)


def monitor_pid(original, gpu):
    return int(original.redis.hget(original.key(f"GPU{gpu}"), "BERTH").split(" ")[1])


def test_what_a_killed_monitor_left_is_put_back_by_the_next(managed, original, jobs):
    job = shell(jobs)
    assert ready(job) == ["0"]
    killed = monitor_pid(original, 0)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: not is_alive(killed), "it is gone")
    assert says(managed, "--idle") == "There is 3 IDDLE GPUs, IDs: 1,2,3\n"  # its lease lives
    job.end()
    eventually(lambda: state_of(managed, 0) == "free", "its lease has ended")
    assert says(managed, "--idle") == "There is 4 IDDLE GPUs, IDs: 0,1,2,3\n"


def test_what_somebody_else_put_back_is_not_put_back_twice(managed, original, jobs):
    job = shell(jobs)
    assert ready(job) == ["0"]
    own = monitor_pid(original, 0)
    original.release("0")
    job.end()
    eventually(lambda: not is_alive(own), "the monitor has ended")
    assert original.idle() == ALL


def test_purge_frees_what_the_original_left_and_nothing_else(managed, original, jobs):
    job = shell(jobs)
    assert ready(job) == ["0"]
    gone = original.get(2**22 + 1)  # above every PID
    stays = original.get(os.getpid())
    assert says(managed, "--redis-purge") == ""
    assert original.idle() == sorted(set(ALL) - {"0", stays})
    assert f"GPU {gone} acquired by process with PID {2**22 + 1}, was released by redis purge" in says(managed, "--log")


def test_force_does_not_hand_out_what_is_leased(managed, original, jobs):
    assert ready(shell(jobs)) == ["0"]
    assert says(managed, "--redis-manage-all", "--force") == "4\n"
    assert original.idle() == ALL[1:]


def test_many_at_once_never_have_the_same(managed, original, jobs):
    use = "GPUID=$(GPU.py $GPUGET --get); mkdir used$GPUID || touch twice; rmdir used$GPUID; GPU.py $GPUGET --release $GPUID"
    crowd = [jobs.start("bash", "--norc", "-c", f"cd $HOME; {use} >/dev/null", start_new_session=True) for _ in range(12)]
    for job in crowd:
        assert job.process.wait(LIMIT) == 0, job.err
    assert not (managed.folder / "twice").exists()
    eventually(lambda: original.idle() == ALL, original.idle)


def test_delete_forgets_all(managed, original, jobs):
    assert ready(shell(jobs)) == ["0"]
    assert says(managed, "--redis-delete") == "All Redis objects related to GPU management were deleted.\n"
    assert original.redis.keys(original.key("*")) == []
    assert_one_line_error(gpu_py(managed, "--get"), 69, "--redis-manage-all")


# What cannot be, and what others have put there


def test_no_server(tools, original):
    result = tools.run("GPU.py", "--redis-port", redis_server.free_port(), "--idle")
    assert_one_line_error(result, 74, "Redis")


def test_wrong_keys(tools, original):
    assert_one_line_error(tools.run("GPU.py", "--idle", env={"BERTH_GPUGET_KEYS": "\x1b[31m"}), 64, "BERTH_GPUGET_KEYS")
    assert_one_line_error(tools.run("GPU.py", "--idle", "--keys", "x"), 64, "--keys")


def test_garbage_in_the_lists(managed, original):
    for name in ("IDLE", "MANAGED", "EVENTS"):
        original.redis.lpush(original.key(name), "\x1b[31m", "-1", "x", "")
    original.redis.rpop(original.key("IDLE"))
    original.redis.hset(original.key("GPU0"), mapping={"PID": "1", "TIME": "\x1b[31m", "BERTH": "\x1b[31m"})
    for flag in ("--idle", "--managed", "--active", "--log", "--info"):
        assert_fit_for_terminal(says(managed, flag))
    assert says(managed, "--idle") == "There is 3 IDDLE GPUs, IDs: 1,2,3\n"


@pytest.mark.parametrize("flag", ["--idle", "--get", "--release 0", "--log"])
def test_keys_of_another_program(managed, original, flag):
    for name in ("IDLE", "EVENTS"):
        original.redis.set(original.key(name), "x")
    assert_one_line_error(gpu_py(managed, flag), 74, "Redis")
