"""`berth serve` while the world around it fails: driver, Redis, harbour. It goes on, says so, and heals."""

import os
import shutil
import signal

from leasing import NOBODY, eventually, is_alive, jobs  # noqa: F401
from leftovers import processes_of
from serving import gpu_states, serve  # noqa: F401
from test_redis_away import own_redis  # noqa: F401


def faulty(**fault):
    return {"gpus": [{"name": "A", "memory": "8GiB", "count": 2}], "faults": [fault]}


def helper_of(one):
    """The process that asks the driver for it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:  # other tests' names are not all UTF-8
                name, rest = file.read().rsplit(")", 1)
            if int(rest.split()[1]) == one.process.pid and "berth-probe" in name:
                return int(pid)
        except OSError:
            pass
    return None


def test_a_driver_that_hangs_for_a_while(server, serve):
    """What was seen last stays to be seen, and signals are obeyed."""
    server.use(faulty(call="nvmlDeviceGetMemoryInfo", hang=True, after="4s"))
    one = serve(env={"BERTH_DRIVER_TIMEOUT": "1s"})
    viewer = one.view()
    viewer.until("status")
    assert "within 1s" in viewer.until("problem")["text"]
    health = one.get("/healthz")
    assert (health.status, health.json["status"]) == (503, "problem")
    assert gpu_states(one.api("status")) == ["free"] * 2  # as it was
    late = one.view()
    late.until("problem")
    assert [name for name, _ in late.events if "sample" not in name][:3] == ["hello", "status", "problem"]
    server.use({"gpus": faulty()["gpus"]})  # the next helper reads it
    problem = [name for name, _ in viewer.events].index("problem")
    eventually(lambda: "status" in [name for name, _ in viewer.events[problem:]], "a status that heals")
    eventually(lambda: one.get("/healthz").status == 200)


def test_what_fails_is_told_to_viewers_only(server, serve):
    """Whoever may not see is told that something fails, and not what."""
    path = server.folder / "token"
    path.write_text("0123456789abcdef0123")
    path.chmod(0o600)
    one = serve("--token-file", path, env={"BERTH_SIM": None, "LD_LIBRARY_PATH": "/nonexistent"})
    answer = one.get("/healthz")
    assert (answer.status, answer.json["status"]) == (503, "problem") and "driver" not in answer.json["problem"]
    assert "driver" in one.get("/healthz", token="0123456789abcdef0123").json["problem"]


def test_it_ends_at_once_while_the_driver_hangs(server, serve):
    server.use(faulty(call="nvmlDeviceGetMemoryInfo", hang=True, after="3s"))
    one = serve(env={"BERTH_DRIVER_TIMEOUT": "1h"})
    viewer = one.view()
    viewer.until("status")
    eventually(lambda: blocks_signals(helper_of(one)), "the hang")
    assert one.get("/healthz").status == 200
    helper = helper_of(one)
    assert one.end() == 0
    eventually(lambda: not is_alive(helper))


def blocks_signals(pid):
    with open(f"/proc/{pid}/status") as file:
        return "SigBlk:\tfffffffe" in file.read()


def test_a_driver_that_crashes(server, serve):
    one = serve()
    viewer = one.view()
    viewer.until("status")
    for _ in range(3):
        helper = helper_of(one)
        os.kill(helper, signal.SIGSEGV)
        eventually(lambda: helper_of(one) not in (None, helper), "another helper")
    eventually(lambda: one.get("/healthz").status == 200)


def test_the_helper_is_no_fork_of_a_process_with_threads(server, serve):
    """It is the berth program, started anew: nothing that a thread of ours had locked is in it."""
    one = serve()
    one.view().until("status")
    with open(f"/proc/{helper_of(one)}/cmdline", "rb") as file:
        assert file.read().split(b"\0")[1] == b"--helper"
    assert not [fd for fd in os.listdir(f"/proc/{helper_of(one)}/fd")
                if "socket:" in os.readlink(f"/proc/{helper_of(one)}/fd/{fd}") and int(fd) != 3]


def test_a_lost_gpu_hides_nothing(server, serve):
    server.use({"gpus": [{"memory": "8GiB", "count": 3}], "faults": [{"gpu": 1, "lost": True, "after": "3s"}]})
    one = serve()
    viewer = one.view()
    viewer.until("status", lambda status: gpu_states(status) == ["free", "lost", "free"])


def test_a_harbour_that_is_deleted(server, serve, jobs):
    one = serve()
    viewer = one.view()
    viewer.until("status")
    shutil.rmtree(server.harbour)
    eventually(lambda: one.get("/healthz").status == 200)
    assert gpu_states(one.api("status")) == ["free"] * 4
    server.harbour.mkdir()
    server.harbour.chmod(0o1777)
    seen = len(viewer.events)
    jobs.hold()
    eventually(lambda: any(name == "status" and "leased" in gpu_states(data) for name, data in viewer.events[seen:]))


def test_a_harbour_that_cannot_be_one(server, serve):
    one = serve()
    viewer = one.view()
    viewer.until("status")
    server.harbour.rmdir() if not any(server.harbour.iterdir()) else shutil.rmtree(server.harbour)
    server.harbour.write_text("a file")
    assert "harbour" in viewer.until("problem")["text"]
    server.harbour.unlink()
    server.harbour.mkdir()
    server.harbour.chmod(0o1777)
    seen = len(viewer.events)
    eventually(lambda: "status" in [name for name, _ in viewer.events[seen:]])


def test_a_harbour_full_of_planted_things(server, serve, jobs):
    jobs.hold()
    (server.harbour / "lease-aaaaaaaa").mkdir()
    (server.harbour / "lease-bbbbbbbb").symlink_to("/etc/passwd")
    (server.harbour / "ticket-000000000000001-cccccccc").write_text("{" * 100000)
    one = serve()
    assert gpu_states(one.api("status")).count("leased") == 1
    assert b"root:" not in one.get("/api/v1/status").body


def test_redis_that_goes_and_comes(server, serve, own_redis):
    own_redis.skip_recovery_wait()
    server.env["BERTH_URL"] = own_redis.tcp_url()
    one = serve()
    viewer = one.view()
    viewer.until("status")
    own_redis.kill()
    viewer.until("problem")
    assert one.get("/healthz").status == 503
    assert one.get("/api/v1/log").status == 503
    assert gpu_states(one.api("status")) == ["free"] * 4
    assert one.get("/").status == 200
    seen = len(viewer.events)
    own_redis.start()
    eventually(lambda: "status" in [name for name, _ in viewer.events[seen:]], "it is seen again")
    eventually(lambda: one.get("/healthz").status == 200)


def test_all_hosts_of_a_harbour_in_redis(server, serve, own_redis):
    own_redis.skip_recovery_wait()
    server.env["BERTH_URL"] = own_redis.tcp_url()
    for name in ("gpu-a", "gpu-b"):
        folder = server.folder / name
        folder.mkdir()
        folder.chmod(0o1777)
        env = {"BERTH_HOST": name, "BERTH_DIR": str(folder), "BERTH_SIM_STATE": str(server.folder / f"{name}.state")}
        assert server.berth("status", env=env).returncode == 0
    one = serve(env=env)
    assert [host["host"] for host in one.api("status")["hosts"]] == ["gpu-a", "gpu-b"]
    assert [host["host"] for host in one.api("samples")["hosts"]] == ["gpu-a", "gpu-b"]


def test_nothing_is_left_behind(server, serve):
    one = serve()
    one.view().until("status")
    assert processes_of(server.harbour)
    assert one.end() == 0
    eventually(lambda: not processes_of(server.harbour))


def test_any_user_can_serve(server, serve, open_build):
    one = serve(prefix=NOBODY, program=open_build / "bin" / "berth")
    viewer = one.view()
    viewer.until("status")
    assert viewer.all("hello")[0]["user"] == "nobody"
