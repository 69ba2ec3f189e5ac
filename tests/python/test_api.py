"""berth in Python: what its functions do and refuse, on one simulated server."""

import json
import os
import re
import shutil
import sys

import pytest
from conftest import BUILD, SIM_JOB, wait_until
from pythons import all_free, first_line, leased, python  # noqa: F401

pytestmark = pytest.mark.release_only  # the package is built once, as it is shipped


def test_import_loads_nothing_and_asks_no_driver(python):
    said = python.says("""
        say(sorted(name for name in sys.modules if name.startswith("berth")))
        say(sorted({"json", "logging", "dataclasses", "typing", "asyncio"} & set(sys.modules)))
    """, env={"BERTH_SIM": "no such file", "BERTH_DIR": "/nowhere"})
    assert said == "['berth']\n[]"


# Each takes longer to import than all that a lease needs, or imports a module that does.
SLOW_IMPORTS = {"asyncio", "collections", "contextlib", "dataclasses", "datetime", "enum", "functools", "importlib", "inspect", "json",
                "logging", "re", "subprocess", "threading", "types", "typing", "warnings"}
SHORT_SCRIPTS = {
    "acquire": "berth.acquire().release()",
    "gpus": "with berth.gpus(2, gpu=[0, 2], mem='8GiB', timeout='1m') as lease: lease.environment",
    "safe_gpu": "from berth.compat.safe_gpu import safe_gpu; safe_gpu.GPUOwner(2, print).release_gpus()",
    "gpu_lock": "from berth.compat.gpu_lock import lock_gpu\nwith lock_gpu(n=2): pass",
}


@pytest.mark.parametrize("code", SHORT_SCRIPTS.values(), ids=SHORT_SCRIPTS)
def test_a_script_that_leases_gpus_imports_no_slow_module(python, code):
    code = f"import sys, berth\n{code}\nprint(*sys.modules, file=sys.stderr)"
    # -S: the modules that site-packages imports when Python starts would hide those of berth.
    result = python.server.run(sys.executable, "-S", "-c", code, env=python.env, cwd=python.server.folder)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stderr.split())
    assert "berth._lease" in loaded
    assert not loaded & SLOW_IMPORTS


def test_the_keywords_of_the_types_are_those_that_are_accepted(python):
    """The types are in a module of their own, because `typing` is slow to import."""
    assert python.says("""
        from berth import _request, _request_keywords as types
        say(set(types.Choice.__annotations__) == _request.CHOICE_KEYWORDS,
            {"count", *types.Request.__annotations__} == _request.KEYWORDS)
    """) == "True True"


def test_a_program_may_import_logging_at_any_time(python):
    """Berth does not import it before a message can be seen."""
    result = python.run("""
        lease = berth.acquire()
        say("logging" in sys.modules)
        import logging
        logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(funcName)s %(message)s")
        lease.release()
        berth.acquire(gpu=0, mem="8GB").release()
    """)
    assert (result.returncode, result.stdout.strip()) == (0, "False")
    released, explained, granted, _ = result.stderr.splitlines()
    assert released.startswith("berth INFO _release released lease ")
    assert explained.startswith("berth WARNING _explain_decimal_size ") and "8GB is 7.5 GiB" in explained
    assert granted.startswith("berth INFO adopt_lease lease ")


def test_a_handler_may_release_a_lease_during_the_import_of_logging(python):
    result = python.run("""
        import builtins, os, signal
        lease = berth.acquire(mem="1GiB")
        pid = os.fork()              # holds the lease, so that its release warns
        if pid == 0:
            signal.pause()
        signal.signal(signal.SIGUSR1, lambda *_: say(lease.release()))
        original = builtins.__import__
        def send_signal_during_import(name, *rest):
            if name == "weakref" and "logging" in sys.modules:
                builtins.__import__ = original
                signal.raise_signal(signal.SIGUSR1)
            return original(name, *rest)
        builtins.__import__ = send_signal_during_import
        try:
            import logging
        finally:
            os.kill(pid, signal.SIGKILL)
        say(builtins.__import__ is original)
    """)
    assert (result.returncode, result.stdout.split()) == (0, ["False", "True"]), result.stderr
    assert re.fullmatch(r"berth: lease \S+ lasts until these processes end: .*\n", result.stderr), result.stderr


def test_a_warning_needs_no_logging_of_the_program(python):
    result = python.run("""
        for _ in range(2):
            berth.acquire(mem="8GB").release()
    """)
    assert result.returncode == 0
    [line] = result.stderr.splitlines()
    assert line.startswith("berth: ") and "8GB is 7.5 GiB" in line


def test_gpus_sets_the_environment_and_restores_it(python):
    said = python.says("""
        import os, json
        names = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "BERTH_GPUS", "BERTH_LEASE"]
        if "BERTH_URL" in os.environ:
            names.append("BERTH_EPOCH")
        before = dict(os.environ)
        with berth.gpus(2, name="sim", timeout="10m") as lease:
            inside = {name: os.environ[name] for name in names}
            assert inside == lease.environment
            say(json.dumps([inside, lease.id, lease.indices, lease.uuids, [gpu.uuid for gpu in lease.gpus],
                            lease.gpus[0].state, lease.gpus[0].memory_total_mib]))
        assert dict(os.environ) == before
        assert lease.released
    """, env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    inside, lease_id, indices, uuids, of_gpus, state, memory = json.loads(said)
    assert ("BERTH_URL" in python.server.env) == (int(inside.pop("BERTH_EPOCH", 0)) > 0)
    assert inside == {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "BERTH_GPUS": "0,1",
                      "NVIDIA_VISIBLE_DEVICES": ",".join(uuids), "BERTH_LEASE": lease_id}
    assert (indices, of_gpus, state, memory) == ([0, 1], uuids, "leased", 24576)
    assert all_free(python.server)


@pytest.mark.each_harbour
def test_a_lease_is_seen_by_all_and_ends_with_its_program(python):
    job = python.start("""
        lease = berth.acquire(mem="8GiB", label="from Python", command="my training")
        say(lease.id)
        stay()
    """)
    lease_id = first_line(job)
    [seen] = python.server.status()["gpus"][0]["leases"]
    assert (seen["id"], seen["pid"], seen["label"], seen["command"], seen["memory_mib"], seen["exclusive"]) == (
        lease_id, job.pid, "from Python", "my training", 8192, False)
    assert job.end() == 0
    wait_until(lambda: all_free(python.server))


def test_the_end_of_a_lease(python):
    assert python.says("""
        with berth.gpus(time="1h"):
            [announced] = berth.status()[0].leases
        with berth.gpus():
            [unknown] = berth.status()[0].leases
        seconds = (announced.ends - announced.since).total_seconds()
        say(3599 <= seconds <= 3601, announced.overdue, unknown.ends, unknown.overdue)
    """) == "True False None False"


def test_an_environment_that_is_not_utf8(python):
    assert python.says("""
        try:
            berth.acquire(command="\\udcff")
        except berth.Impossible as problem:
            say(problem)
    """, env={"CUDA_VISIBLE_DEVICES": b"\xff"}).startswith("CUDA_VISIBLE_DEVICES")


def test_others_see_the_command_line_and_not_a_whole_program(python):
    seen = python.says("lease = berth.acquire()\nsay(berth.status()[0].leases[0].command)\n" + "#" * 9999)
    assert seen.startswith("python -c import sys, berth\n") and len(seen) == 256 and seen.endswith("…")
    script = python.script("train.py", "lease = berth.acquire()\nsay(berth.status()[0].leases[0].command)\n")
    result = python.server.run(sys.executable, script, "--lr", "0.1", env=python.env)
    assert result.stdout.strip() == f"python {script} --lr 0.1"


@pytest.mark.each_harbour
def test_a_lease_is_kept_though_nobody_keeps_its_object(python):
    assert python.says("""
        import gc
        berth.acquire()
        gc.collect()
        say([gpu.state for gpu in berth.status()])
    """) == "['leased', 'free', 'free', 'free']"


@pytest.mark.each_harbour
def test_two_leases_of_one_program_are_two_requests(python):
    """The environment is the newest one's, in whatever order they are released, and at the end what it was."""
    assert python.says("""
        import os
        def visible(): return os.environ.get("CUDA_VISIBLE_DEVICES")
        a, b, c = berth.acquire(), berth.acquire(), berth.acquire()
        seen = [visible()]
        for lease in (b, c, a):
            lease.release()
            seen.append(visible())
        say(a.indices, b.indices, c.indices, seen)
    """, env={"CUDA_VISIBLE_DEVICES": "0,1,2"}) == "[0] [1] [2] ['2', '2', '0', '0,1,2']"


def test_what_somebody_else_sets_meanwhile_is_left_alone(python):
    assert python.says("""
        import os
        with berth.gpus():
            os.environ["CUDA_VISIBLE_DEVICES"] = "mine"
        say(os.environ["CUDA_VISIBLE_DEVICES"], "BERTH_LEASE" in os.environ)
    """) == "mine False"


def test_the_environment_can_be_left_alone(python):
    assert python.says("""
        import os
        lease = berth.acquire(set_environment=False)
        say("CUDA_VISIBLE_DEVICES" in os.environ, lease.environment["CUDA_VISIBLE_DEVICES"])
    """) == "False 0"


def test_uuids_for_who_wants_them(python):
    assert python.says("""
        import os
        with berth.gpus(ids="uuid") as lease:
            say(os.environ["CUDA_VISIBLE_DEVICES"] == lease.uuids[0])
    """) == "True"


def test_the_callers_visible_devices_restrict_the_choice(python):
    assert python.says("say(berth.acquire().indices, berth.acquire().indices)",
                       env={"CUDA_VISIBLE_DEVICES": "2,3"}) == "[2] [3]"


@pytest.mark.each_harbour
def test_a_request_inside_a_lease_comes_out_of_it(python):
    assert python.says("""
        import subprocess, threading
        with berth.gpus(4) as four:
            with berth.gpus(2) as two:
                say(two.indices)
                with berth.gpus() as one:
                    say(one.indices)
            say(subprocess.run(["berth", "run", "-n", "3", "--", "sh", "-c", "echo $BERTH_GPUS"],
                               capture_output=True, text=True).stdout.strip())
            try:
                berth.acquire(5)
            except berth.Impossible as problem:
                say(four.id in str(problem))
    """) == "[0, 1]\n[0]\n0,1,2\nTrue"


@pytest.mark.each_harbour
def test_another_thread_asks_the_queue_unless_it_is_told_otherwise(python):
    assert python.says("""
        from concurrent.futures import ThreadPoolExecutor
        with berth.gpus(2) as lease, ThreadPoolExecutor() as pool:
            say(pool.submit(lambda: berth.acquire(set_environment=False).indices).result(),
                pool.submit(lambda: berth.acquire(within=lease, set_environment=False).indices).result())
    """) == "[2] [0]"


@pytest.mark.each_harbour
def test_inside_berth_run_the_lease_is_the_outer_one(python):
    said = python.says("say(berth.acquire().indices)", prefix=["berth", "run", "--gpu", "2,3", "--"])
    assert said == "[2]"


@pytest.mark.parametrize("request_, error, message", [
    ("count=5", "Impossible", "5 GPUs"),
    ("name='A6000'", "Impossible", "A6000"),
    ("mem='25GiB'", "Impossible", "25 GiB"),
    ("gpu=7", "Impossible", "GPU 7"),
    ("gpu=[0, 'GPU-zz']", "Impossible", "GPU-zz"),
    ("count=0", "UsageError", "count: '0'"),
    ("count=1.5", "UsageError", "count: 1.5"),
    ("count=True", "UsageError", "count: True"),
    ("count=2, gpu=1", "UsageError", "gpu="),
    ("gpu=[]", "UsageError", "gpu: "),
    ("gpu='x'", "UsageError", "gpu: 'x'"),
    ("gpu=3.5", "UsageError", "gpu: 3.5"),
    ("mem='much'", "UsageError", "'much'"),
    ("mem=0", "UsageError", "mem: 0 is a number of bytes"),
    ("mem=[1]", "UsageError", "mem: [1]"),
    ("util=101", "UsageError", "util: '101'"),
    ("policy='best'", "UsageError", "policy: 'best'"),
    ("timeout=-1", "UsageError", "'-1s'"),
    ("timeout='soon'", "UsageError", "'soon'"),
    ("timeout=[]", "UsageError", "timeout: []"),
    ("timeout=float('nan')", "UsageError", "'nans'"),
    ("no_wait=True, timeout=1", "UsageError", "timeout="),
    ("label='x' * 300", "UsageError", "label: "),
    ("label='\\udcff'", "UsageError", "label: '\\udcff'"),
    ("mem='\\udcff'", "UsageError", "mem: '\\udcff'"),
    ("ids='name'", "UsageError", "ids: 'name'"),
    ("selector='3090'", "UsageError", "selector: '3090'"),
    ("gpus=2", "TypeError", "'gpus'"),
])
def test_what_cannot_be_is_refused_with_a_reason(python, request_, error, message):
    said = python.says(f"""
        try:
            berth.acquire({request_})
        except Exception as problem:
            say(type(problem).__name__)
            say(str(problem))
    """)
    name, _, text = said.partition("\n")
    assert name == error
    assert text.startswith(message) or message in text, text
    assert "\n" not in text and "--" not in text, text
    assert all_free(python.server)


def test_the_exceptions_are_all_errors_of_berth(python):
    assert python.says("""
        kinds = [berth.NotGranted, berth.Impossible, berth.NoDriver, berth.HarbourError, berth.NotYours,
                 berth.UsageError]
        say(all(issubclass(kind, berth.Error) for kind in kinds), issubclass(berth.UsageError, ValueError))
        say(berth.NotGranted("x").__class__.__module__)
    """) == "True True\nberth"


@pytest.mark.each_harbour
def test_not_granted(python):
    python.server.start("berth", "run", "-n", "4", "--label", "all", "--", "sleep", "1h")
    wait_until(lambda: leased(python.server) == [0, 1, 2, 3])
    said = python.says("""
        for keywords in ({"no_wait": True}, {"timeout": 0}, {"timeout": 0.01}):
            try:
                berth.acquire(progress=False, on_wait=lambda waiting: None, **keywords)
            except berth.NotGranted as problem:
                say(problem)
    """).splitlines()
    assert len(said) == 3 and all(" 0,1,2,3 leased " in one for one in said)
    assert said[0].startswith("not free now: ")
    assert "10ms" in said[2] and "timeout=" in said[2]


@pytest.mark.each_harbour
def test_no_driver_and_no_harbour(python):
    code = """
        try:
            berth.acquire()
        except berth.Error as problem:
            say(type(problem).__name__, problem)
    """
    said = python.says(code, env={"BERTH_SIM": None})
    assert said.startswith("NoDriver ") and "libnvidia-ml.so.1" in said
    (python.server.folder / "file").write_text("")
    said = python.says(code, env={"BERTH_DIR": str(python.server.folder / "file")})
    assert said.startswith("HarbourError ")


def test_what_the_driver_said_for_a_request_that_failed_is_not_believed_later(python):
    """The driver is asked first; a harbour that cannot be used leaves its answer unread."""
    (python.server.folder / "file").write_text("")
    job = python.start("""
        import os, time
        harbour = os.environ["BERTH_DIR"]
        os.environ["BERTH_DIR"] = sys.argv[1]
        try:
            berth.acquire()
        except berth.HarbourError:
            say("refused")
        os.environ["BERTH_DIR"] = harbour
        sys.stdin.readline()
        time.sleep(1.1)  # what is a second old counts as new
        say(berth.acquire().indices)
    """, python.server.folder / "file")
    assert first_line(job) == "refused"
    python.server.start_job("--mem", "2GiB", "--time", "1h", gpu=0)
    job.process.stdin.write(b"go\n")
    job.process.stdin.flush()
    wait_until(lambda: job.out.splitlines()[1:] == ["[1]"])


@pytest.mark.needs_root
@pytest.mark.each_harbour
def test_somebody_elses_lease_is_not_yours(python, open_build):
    shutil.copytree(BUILD / "python", open_build / "python")
    job = python.start("say(berth.acquire().id); stay()")
    said = python.says("""
        try:
            berth.acquire()
        except berth.NotYours as problem:
            say(problem)
    """, env={"BERTH_LEASE": first_line(job), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(open_build / "python")},
        prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], program="/usr/bin/python3")
    assert " root" in said and "unset BERTH_LEASE" in said


def test_hostile_names_reach_no_terminal_unescaped(python):
    python.server.start("berth", "run", "-n", "4", "--label", "\x1b[2J\nevil", "--", "sleep", "1h")
    wait_until(lambda: len(leased(python.server)) == 4)
    said = python.run("berth.acquire(timeout=0.01, progress=True)")
    assert "\\x1b[2J\\nevil" in said.stderr and "\x1b" not in said.stderr


@pytest.mark.each_harbour
def test_status_and_queue(python):
    holder = python.start("say(berth.acquire(4, label='all').id); stay()")
    lease_id = first_line(holder)
    python.start("berth.acquire(2, label='me too', progress=True)").waits()
    said = json.loads(python.says("""
        import json
        from datetime import datetime, timezone
        [ticket] = berth.queue()
        gpus = berth.status()
        assert gpus[0].leases[0].since <= ticket.since <= datetime.now(timezone.utc)
        say(json.dumps([[gpu.state for gpu in gpus], gpus[0].leases[0].id, gpus[0].leases[0].label,
                        ticket.position, ticket.count, ticket.label, ticket.reason, ticket.starts]))
    """))
    assert said[:6] == [["leased"] * 4, lease_id, "all", 1, 2, "me too"][:6]
    assert " 0,1,2,3 leased " in said[6] and said[7] is None


def test_what_the_driver_does_not_tell_is_none(python):
    python.server.use(BUILD.parent / "sim" / "servers" / "mig.json")
    said = python.says("""
        mig = [gpu for gpu in berth.status() if isinstance(gpu.index, str)][0]
        say(mig.index, mig.utilization_pct, mig.memory_total_mib is not None)
        with berth.gpus(gpu=mig.index) as lease:
            say(lease.indices, lease.environment["CUDA_VISIBLE_DEVICES"] == mig.uuid)
    """)
    index = said.split()[0]
    assert said == f"{index} None True\n['{index}'] True"


def test_strangers_are_seen(python):
    job = python.server.start_job("--mem", "2GiB", "--time", "1h", gpu=1)
    said = python.says("""
        gpu = berth.status()[1]
        [process] = gpu.processes
        say(gpu.state, process.pid, process.memory_mib >= 2048, process.lease)
        say(berth.acquire(gpu=1, processes=1).indices)
    """)
    assert said == f"stranger {job.pid} True None\n[1]"


def test_select_chooses_without_leasing(python):
    python.server.start_job("--mem", "2GiB", "--time", "1h", gpu=0)
    said = python.says("""
        import os
        say([gpu.index for gpu in berth.select(count=2, util=10)], "CUDA_VISIBLE_DEVICES" in os.environ)
        say([gpu.state for gpu in berth.status()])
        berth.select(selector=lambda gpu: gpu.index == 3, set_environment=True)
        say(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
        del os.environ["CUDA_VISIBLE_DEVICES"]
        try:
            berth.select(4)
        except berth.NotGranted as problem:
            say(problem)
    """).splitlines()
    assert said[:3] == ["[1, 2] False", "['stranger', 'free', 'free', 'free']", "3 PCI_BUS_ID"]
    assert "berth-sim-job" in said[3]


@pytest.mark.each_harbour
def test_select_knows_the_leases_and_the_visible_devices(python):
    assert python.says("""
        lease = berth.acquire(gpu=[0, 2])
        say([gpu.index for gpu in berth.select(2)])
    """) == "[1, 3]"
    assert python.says("""
        with berth.gpus(gpu=[1, 2]):
            say([gpu.index for gpu in berth.select()])
    """) == "[1]"
    assert python.says("say([gpu.index for gpu in berth.select(policy='pack')])",
                       env={"CUDA_VISIBLE_DEVICES": "3"}) == "[3]"


def test_a_selector_chooses(python):
    assert python.says("""
        with berth.gpus(2, selector=lambda gpu: gpu.index in (1, 3)) as lease:
            say(lease.indices)
            with berth.gpus(selector=lambda gpu: gpu.index == 3) as inner:
                say(inner.indices)
        try:
            berth.acquire(2, selector=lambda gpu: gpu.index == 1, no_wait=True)
        except berth.NotGranted as problem:
            say([word in str(problem) for word in ("not free now: ", "selector", "1 of 4")])
        try:
            berth.acquire(5, selector=lambda gpu: True)
        except berth.Impossible as problem:
            say("5 GPUs" in str(problem))
    """) == "[1, 3]\n[3]\n[True, True, True]\nTrue"


def test_a_selector_is_asked_again_while_it_takes_too_few(python):
    waiter = python.start("""
        import os
        lease = berth.acquire(selector=lambda gpu: gpu.index == 2 and os.path.exists("ready"), progress=True)
        say(lease.indices)
    """)
    assert re.search(r"\bselector\b.*\b0 of 4\b", waiter.waits())
    (python.server.folder / "ready").write_text("")
    assert first_line(waiter) == "[2]"


@pytest.mark.each_harbour
def test_who_waits_with_a_selector_keeps_to_what_it_takes_now(python):
    """The ticket says what the selector takes: others know for what it waits, and pass where it does not."""
    holder = python.start("say(berth.acquire(4).indices); stay()")
    first_line(holder)
    waiter = python.start("""
        lease = berth.acquire(selector=lambda gpu: gpu.index == 3, progress=True)
        say(lease.indices)
        stay()
    """)
    waiter.waits()
    behind = python.start("say(berth.acquire(progress=True).indices); stay()")
    behind.waits()
    holder.end()
    assert (first_line(waiter), first_line(behind)) == ("[3]", "[0]")


def test_what_a_selector_raises_reaches_the_caller(python):
    assert python.says("""
        try:
            berth.acquire(selector=lambda gpu: gpu.nonsense)
        except AttributeError as problem:
            say("nonsense" in str(problem))
    """) == "True"
    assert all_free(python.server)


def test_a_selector_may_change_the_environment_and_ask_berth(python):
    """What it asks must not take the driver away from the request that it is a part of."""
    assert python.says("""
        import os
        count = 0
        def selector(gpu):
            global count
            count += 1
            os.environ["LD_LIBRARY_PATH"] = f"/other/{count}"
            with berth.gpus(gpu=3, within=None):
                return len(berth.status()) == 4
        say(berth.acquire(selector=selector).indices)
    """) == "[0]"


def test_a_block_may_be_left_in_another_context(python):
    """As with generators that another thread goes on with; and one `gpus` may be entered by several threads."""
    assert python.says("""
        import contextvars, threading
        def generator():
            with berth.gpus() as lease:
                yield lease
        made = generator()
        contextvars.Context().run(next, made)
        made.close()
        both = berth.gpus(set_environment=False)
        met = threading.Barrier(2)
        def use():
            with both as lease:
                met.wait()
                seen.append(lease.indices)
                met.wait()
        seen = []
        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        say(sorted(seen), [gpu.state for gpu in berth.status()])
    """) == "[[0], [1]] ['free', 'free', 'free', 'free']"


def test_a_new_lease_sets_the_environment_whatever_was_done_to_it(python):
    assert python.says("""
        import os
        first = berth.acquire()
        del os.environ["CUDA_VISIBLE_DEVICES"]
        second = berth.acquire()
        say(os.environ["CUDA_VISIBLE_DEVICES"])
    """) == "1"


def test_a_fork_leaves_its_parents_placeholder_alone(python):
    assert python.says("""
        import os
        with berth.gpus(placeholder=True) as lease:
            pid = os.fork()
            if pid == 0:
                lease.release()
                os._exit(0)
            os.waitpid(pid, 0)
            say([process.name for process in berth.status()[0].processes])
    """) == "['berth-hold']"


@pytest.mark.parametrize("stderr", ["/dev/full", "&-"])
def test_who_cannot_be_told_waits_all_the_same(python, stderr):
    python.server.start("berth", "run", "-n", "4", "--", "sleep", "1h")
    wait_until(lambda: len(leased(python.server)) == 4)
    script = python.script("wait.py", """
        try:
            berth.acquire(timeout=0.05, progress=True)
        except berth.NotGranted:
            say("waited")
    """)
    result = python.server.run("bash", "-c", f"exec {sys.executable} {script} 2>{stderr}", env=python.env)
    assert result.stdout == "waited\n"


def test_run_is_like_subprocess_run(python):
    said = python.says("""
        import subprocess, os
        done = berth.run(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $BERTH_LEASE; exit 3"], 2, capture_output=True,
                         text=True)
        say(done.returncode, done.stdout.split()[0], "CUDA_VISIBLE_DEVICES" in os.environ)
        try:
            berth.run(["false"], check=True)
        except subprocess.CalledProcessError as problem:
            say(problem.returncode)
        say(berth.run("echo $HERE $BERTH_GPUS", shell=True, env={"HERE": "there"}, capture_output=True).stdout)
        try:
            berth.run(["sleep", "1h"], run_timeout=0.01)
        except subprocess.TimeoutExpired:
            say("too long")
        try:
            berth.run(["no such program"])
        except FileNotFoundError:
            say("not found")
        say([gpu.state for gpu in berth.status()])
    """)
    assert said == "3 0,1 False\n1\nb'there 0\\n'\ntoo long\nnot found\n['free', 'free', 'free', 'free']"


@pytest.mark.each_harbour
def test_what_a_command_leaves_behind_keeps_its_lease(python):
    job = python.start("""
        import logging
        logging.basicConfig(format="%(name)s %(message)s")
        berth.run("sleep 1h & echo $!", shell=True)
        stay()
    """)
    pid = int(first_line(job))
    wait_until(lambda: f"(pid {pid})" in job.err)
    assert leased(python.server) == [0]
    os.kill(pid, 9)
    wait_until(lambda: all_free(python.server))


def test_jobs(python):
    assert python.says("""
        import asyncio, os
        def here(): return os.environ.get("CUDA_VISIBLE_DEVICES")

        @berth.job(2, mem="auto", timeout="1m")
        def train(lr, *, epochs=1):
            "Trains."
            [lease] = berth.status()[0].leases
            return lr, epochs, here(), lease.label

        @train.profile
        def quick(lr, **rest):
            say("quick", lr, rest, here())

        say(train.__name__, train.__doc__)
        say(train(0.1, epochs=3))
        say(train(0.2), here())

        @berth.job()
        async def later():
            await asyncio.sleep(0)
            return here()
        say(asyncio.run(later()))

        class Model:
            @berth.job()
            def fit(self, x):
                return self.y + x
            y = 1
        say(Model().fit(2))
    """).splitlines() == ["train Trains.", "quick 0.1 {'epochs': 3} 0,1", "(0.1, 3, '0,1', '__main__.train')",
                         "(0.2, 1, '0,1', '__main__.train') None", "0", "3"]


def test_a_profile_that_fails_keeps_no_gpu_and_is_tried_again(python):
    assert python.says("""
        @berth.job(mem="auto")
        def train(): return "trained"
        tries = []
        @train.profile
        def quick():
            tries.append(1)
            if len(tries) == 1: raise RuntimeError("no luck")
        try:
            train()
        except RuntimeError as problem:
            say(problem, [gpu.state for gpu in berth.status()])
        say(train(), train(), len(tries))
    """) == "no luck ['free', 'free', 'free', 'free']\ntrained trained 2"


def test_jobs_in_a_pool_and_as_generators(python):
    script = python.script("jobs.py", """
        import multiprocessing, os
        @berth.job()
        def train(lr): return lr * 2
        @berth.job()
        def steps(count):
            for step in range(count):
                yield step, os.environ["CUDA_VISIBLE_DEVICES"]
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    say(pool.map(train, [1, 2]))
            say(list(steps(2)), [gpu.state for gpu in berth.status()])
    """)
    result = python.server.run(sys.executable, script, env=python.env)
    assert result.stdout.splitlines() == ["[2, 4]", "[2, 4]", "[(0, '0'), (1, '0')] "
                                         "['free', 'free', 'free', 'free']"], result


@pytest.mark.parametrize("code, message", [
    ("berth.acquire(mem=8)", "mem: 8 is a number of bytes, and less than any job needs; write 8GiB"),
    ("berth.acquire(mem=0)", "mem: 0 "),
    ("berth.acquire(mem=24000)", "write 8GiB"),
    ("berth.acquire(min_mem=8)", "min_mem: 8 "),
    ("berth.acquire(mem=8.5)", "mem: 8.5 is neither"),
    ("berth.acquire(memory='8GiB')", "'memory' is not a keyword of a request; did you mean 'mem'?"),
    ("berth.acquire(gpus=2)", "did you mean 'count'?"),
    ("berth.gpus(nowait=True)", "did you mean 'no_wait'?"),
    ("berth.gpus(wait=False)", "did you mean 'no_wait'?"),
    ("berth.acquire(max_util=10)", "did you mean 'util'?"),
    ("berth.acquire(Label='x')", "did you mean 'label'?"),
    ("berth.acquire(polcy='pack')", "did you mean 'policy'?"),
    ("berth.acquire(xyz=1)", "valid keywords: command, count, "),
    ("berth.run('true', memory='8GiB')", "'memory' is not a keyword of run; did you mean 'mem'?"),
    ("berth.run('true', stdoutt=1)", "did you mean 'stdout'?"),
    ("berth.select(mem='8GiB')", "'mem' is not a keyword of select; did you mean 'min_mem'?"),
    ("berth.run([])", "run: "),
    ("berth.acquire(no_wait='yes')", "no_wait: 'yes'"),
    ("berth.acquire(within='x')", "within: 'x'"),
    ("lease = berth.acquire(); lease.release(); berth.acquire(within=lease)", "within: "),
    ("berth.select(timeout=1)", "'timeout'"),
])
def test_mistakes_are_told_in_a_line(python, code, message):
    result = python.run(code)
    assert result.returncode == 1 and message in result.stderr.splitlines()[-1], result.stderr


def test_a_wrong_request_of_a_job_is_refused_where_it_is_written(python):
    assert python.says("""
        try:
            @berth.job(memory="8GiB")
            def train(): ...
        except TypeError as problem:
            say("'memory'" in str(problem))
    """) == "True"


def test_a_job_without_parentheses(python):
    assert python.says("""
        @berth.job
        def train(lr):
            "Trains."
            return lr, os.environ["CUDA_VISIBLE_DEVICES"], berth.status()[0].leases[0].label
        import os
        assert repr(train) == "<berth.Job __main__.train>"
        say(train(0.1), train.__name__, train.__doc__, [gpu.state for gpu in berth.status()][0])
    """) == "(0.1, '0', '__main__.train') train Trains. free"


def test_a_decimal_size_is_explained_once(python):
    result = python.run("""
        for size in ("8GB", "8GB", "8GiB", "all"):
            with berth.gpus(mem=size) as lease: say(berth.status()[0].leases[0].memory_mib)
    """)
    assert (result.returncode, result.stdout.split()) == (0, ["7629", "7629", "8192", "None"]), result
    [line] = result.stderr.splitlines()
    assert line == "berth: mem: 8GB is 7.5 GiB; if you mean 8 GiB, write 8GiB"


CUDA = """
    import ctypes, os
    cuda = ctypes.CDLL(os.environ["STAND_IN"])
    if start: cuda.cuInit(0)
"""


@pytest.mark.parametrize("start", [True, False])
def test_it_warns_if_cuda_was_started_before(python, start):
    result = python.run(f"start = {start}\n" + "import warnings\n" + "\n".join(
        line.strip() for line in CUDA.strip().splitlines()) + "\nberth.acquire()\n",
        env={"STAND_IN": str(BUILD / "lib" / "sim" / "libcuda.so.1")})
    assert result.returncode == 0
    assert ("RuntimeWarning: CUDA " in result.stderr and "(this process)" in result.stderr) == start
    assert not start or "-c:9: RuntimeWarning" in result.stderr or "<string>" in result.stderr


def test_it_names_the_framework_that_started_cuda(python):
    (python.server.folder / "torch.py").write_text("class cuda:\n    is_initialized = staticmethod(lambda: started)\n")
    result = python.run("""
        import torch
        torch.started = False
        berth.acquire().release()
        print("quiet", file=sys.stderr)
        torch.started = True
        with berth.gpus():
            pass
    """)
    before, _, after = result.stderr.partition("quiet")
    assert before == "" and "(torch)" in after


def test_berths_own_placeholder_stays_until_the_program_uses_the_gpu(python):
    job = python.start("""
        import ctypes, os
        lease = berth.acquire(placeholder=True)
        say(lease.indices)
        stay()
        cuda = ctypes.CDLL(os.environ["STAND_IN"])
        context, memory = ctypes.c_void_p(), ctypes.c_uint64()
        assert cuda.cuInit(0) == 0
        assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 30)) == 0
        say("used")
        import time
        time.sleep(3600)
    """, env={"STAND_IN": str(BUILD / "lib" / "sim" / "libcuda.so.1")})
    first_line(job)

    def on_gpu():
        return {process["name"] for process in python.server.status()["gpus"][0]["processes"]}
    assert on_gpu() == {"berth-hold"}
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    wait_until(lambda: "used" in job.out)
    wait_until(lambda: on_gpu() and "berth-hold" not in on_gpu())


def test_berths_own_placeholder_leaves_with_the_lease_and_with_the_program(python):
    job = python.start("""
        berth.acquire(gpu=3, placeholder=True)
        lease = berth.acquire(2, placeholder=True)
        say(sum(len(gpu.processes) for gpu in berth.status()))
        lease.release()
        say(sum(len(gpu.processes) for gpu in berth.status()))
        stay()
    """)
    wait_until(lambda: job.out.splitlines() == ["3", "1"], lambda: job.out)
    job.process.kill()
    wait_until(lambda: not python.server.status()["gpus"][3]["processes"])


def test_any_function_can_be_the_placeholder(python):
    assert python.says("""
        import os
        class Memory:
            def __init__(self, device): self.device = device; say("hold", device, os.environ["CUDA_VISIBLE_DEVICES"])
            def release(self): say("let go", self.device)
        with berth.gpus(2, placeholder=Memory) as lease:
            say([memory.device for memory in lease.placeholders])
        def fails(device): raise MemoryError("full")
        try:
            berth.acquire(placeholder=fails)
        except MemoryError:
            say([gpu.state for gpu in berth.status()], "CUDA_VISIBLE_DEVICES" in os.environ)
    """).splitlines() == ["hold 0 0,1", "hold 1 0,1", "[0, 1]", "let go 1", "let go 0",
                         "['free', 'free', 'free', 'free'] False"]


def test_the_log_tells_what_happens(python):
    result = python.run("""
        import logging
        logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
        with berth.gpus() as lease: say(lease.id)
    """)
    lease_id = result.stdout.strip()
    granted, released = result.stderr.splitlines()
    assert granted == f"berth INFO lease {lease_id}: GPU 0"
    assert released.startswith("berth INFO released ") and released.endswith(lease_id)


def test_the_program_that_belongs_to_the_package(python):
    assert python.says("say(berth.program(), berth.__version__)") == f"{BUILD / 'bin' / 'berth'} 0.1.0"


def test_a_server_that_changes_under_a_program_is_the_one_that_is_asked(python):
    """Its helper was started for the old one."""
    assert python.says("""
        import os
        say(len(berth.status()))
        os.environ["BERTH_SIM"] = "2x8GiB"
        os.environ["BERTH_SIM_STATE"] += "2"
        say(len(berth.status()))
    """) == "4\n2"


def test_the_sim_job_of_a_lease_runs_under_it(python):
    job = python.start(f"""
        import subprocess
        lease = berth.acquire()
        process = subprocess.Popen(["{SIM_JOB}", "--mem", "1GiB", "--time", "1h"], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        say(lease.id)
        stay()
        process.kill()
    """)
    lease_id = first_line(job)
    [process] = python.server.status()["gpus"][0]["processes"]
    assert process["lease"] == lease_id
    job.end()
