"""berth.Executor: tasks on leases of their own, in processes of their own."""

import os
import signal
import sys

import pytest
from compat_scripts import SIMULATED_CUDA
from conftest import wait_until
from leasing import eventually, is_alive
from pythons import all_free, first_line, leased, python  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only

# The tasks. FIRST is what the environment says when the module is imported in the task's process.
TASKS = """
    import concurrent.futures, contextlib, multiprocessing, os, pickle, signal, subprocess, threading, time
    from concurrent.futures import as_completed

    FIRST = os.environ.get("CUDA_VISIBLE_DEVICES")

    def where():
        return FIRST, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["BERTH_LEASE"]

    def pid():
        return os.getpid()

    def block(name):
        '''Says that it runs, and ends when the test opens the gate.'''
        with open(name + ".new", "w") as file:
            file.write(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}")
        os.rename(name + ".new", name)
        with open("gate") as file:
            file.read()
        return name

    def fail(error=KeyError("nothing here")):
        raise error

    def kill(number):
        os.kill(os.getpid(), number)

    class NoPickle(Exception):
        def __reduce__(self):
            raise TypeError("this is never pickled")

    class NoUnpickle(Exception):
        def __init__(self, one, two):
            super().__init__("one text")

    class NoText(NoPickle):
        def __str__(self):
            raise ValueError("no text")

    class BecomesText(Exception):
        def __reduce__(self):
            return str, ("a text",)

    class EndsProgram(Exception):
        def __reduce__(self):
            return sys.exit, (4,)

    def raise_named(name):
        raise NoUnpickle(1, 2) if name == "NoUnpickle" else globals()[name]("words")

    def use_alone(number):
        path = f"gpu{os.environ['CUDA_VISIBLE_DEVICES']}"
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))   # fails if another task has this GPU
        sum(range(200_000))
        os.unlink(path)
        return number

    def fork_and_block():
        child = os.fork()
        if child == 0:
            signal.pause()
        with open("fork.new", "w") as file:
            file.write(f"{child} {os.getpid()}")
        os.rename("fork.new", "fork")
        signal.pause()

    def lease_inside():
        with berth.gpus() as lease:
            return lease.id

    def run_tasks():
        with berth.Executor() as executor:
            return sorted(future.result()[1] for future in [executor.submit(where) for _ in range(2)])

    def leave_thread():
        threading.Thread(target=block, args=["thread"]).start()
        return "result"

    def lambda_free(_):
        return where()

    def children():
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
                if int(parent) == os.getpid() and state != "Z":
                    found.append(name)
        return found

    def flags():
        return f"{sys.flags.optimize} {bool(sys.flags.dont_write_bytecode)}"
"""


class Script:
    def __init__(self, python):
        self.python = python
        self.server = python.server
        self.gate = python.server.folder / "gate"
        os.mkfifo(self.gate)

    def write(self, main, name="tasks.py"):
        body = "\n".join("    " + line for line in main.splitlines())
        return self.python.script(name, TASKS + "\n    if __name__ == '__main__':\n" + body)

    def says(self, main, *flags, env=None, is_freed=True):
        result = self.server.run(sys.executable, *flags, self.write(main), env={**self.python.env, **(env or {})},
                                 cwd=self.server.folder)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        wait_until(lambda: not is_freed or all_free(self.server), "its leases have ended")
        return result.stdout.strip()

    def start(self, main, **options):
        return self.python.jobs.start(sys.executable, self.write(main), env=self.python.env, cwd=self.server.folder, **options)

    def task(self, name):
        """The PID of the task that has called block(name)."""
        path = self.server.folder / name
        eventually(path.exists, f"task {name} runs")
        return int(path.read_text().split()[0])

    def open(self):
        """Lets all tasks end that wait at the gate, now and later."""
        fd = os.open(self.gate, os.O_RDWR)
        os.close(os.open(self.gate, os.O_WRONLY))
        os.close(fd)

    def queue(self):
        return self.server.status()["queue"]


@pytest.fixture
def script(python):  # noqa: F811
    return Script(python)


@pytest.mark.each_harbour
def test_tasks_have_leases_and_their_environment_before_their_modules(script):
    script.server.use("2x24GiB")
    assert script.says("""
        with berth.Executor() as executor:
            results = [executor.submit(where) for _ in range(5)]
            results = [future.result() for future in as_completed(results)]
        say(all(first == now for first, now, _ in results), {now for _, now, _ in results} <= {"0", "1"},
            len({lease for *_, lease in results}), "CUDA_VISIBLE_DEVICES" in os.environ, threading.active_count())
    """) == "True True 5 False 1"


def test_thirty_tasks_never_share_a_gpu(script):
    script.server.use("2x24GiB")
    assert script.says("""
        with berth.Executor() as executor:
            say(list(executor.map(use_alone, range(30))) == list(range(30)))
    """) == "True"


def test_the_queue_has_few_tickets_at_a_time(script):
    """A thousand tasks: a few tickets, no process, a few threads."""
    holder = script.python.jobs.hold("-n", "4")
    program = script.start("""
        executor = berth.Executor()
        futures = [executor.submit(pid) for _ in range(1000)]
        while len(berth.queue()) < 4: pass
        say(len(berth.queue()), threading.active_count(), [ticket.label for ticket in berth.queue()][0])
        stay()
        executor.shutdown(cancel_futures=True)
        say(all(future.cancelled() for future in futures), len(berth.queue()), threading.active_count())
    """)
    assert first_line(program) == "4 5 __main__.pid"
    assert "waiting" in program.err and program.err.count("\n") == 1, "the first wait is reported"
    program.process.stdin.write(b"\n")
    assert program.end() == 0, program.err
    assert program.out.splitlines()[1] == "True 0 1"
    assert holder.end() == 0


def test_tasks_enter_the_queue_in_their_order(script):
    holder = script.python.jobs.hold("-n", "4")
    program = script.start("""
        names = [pid, where, flags, run_tasks, children, pid, where]
        with berth.Executor(count=2, on_wait=lambda waiting: None) as executor:
            futures = [executor.submit(function) for function in names]
            stay()
        say(len([future.result() for future in futures]))
    """)
    eventually(lambda: len(script.queue()) == 4)
    assert [ticket["label"] for ticket in script.queue()] == ["__main__.pid", "__main__.where", "__main__.flags", "__main__.run_tasks"]
    assert holder.end() == 0
    assert program.end() == 0, program.err
    assert program.out == "7\n"


def test_max_workers(script):
    program = script.start("""
        executor = berth.Executor(mem="1GiB", max_workers=2)
        futures = [executor.submit(block, f"task{number}") for number in range(4)]
        say("ready")
        executor.shutdown()
        say([future.result() for future in futures])
    """)
    first_line(program)
    script.task("task0")
    script.task("task1")
    assert not (script.server.folder / "task2").exists()
    assert len([lease for gpu in script.server.status()["gpus"] for lease in gpu["leases"]]) == 2
    script.open()
    for name in ("task2", "task3"):
        script.task(name)
    script.open()
    assert program.end() == 0, program.err


def test_results_arguments_and_keywords(script):
    assert script.says("""
        with berth.Executor(2, mem="1GiB") as executor:
            large = executor.submit(bytes.__add__, b"x" * 20_000_000, b"y" * 20_000_000)
            say(executor.submit(dict, [("a", 1)], b=2).result(), len(large.result()), executor.submit(where).result()[:2])
            say(list(executor.map(pow, [2, 3], [3, 2])), executor.submit(print, "from the task", flush=True).result())
    """) == "{'a': 1, 'b': 2} 40000000 ('0,1', '0,1')\nfrom the task\n[8, 9] None"


def test_exceptions_have_the_traceback_of_the_task(script):
    assert script.says("""
        import traceback
        with berth.Executor() as executor:
            error = executor.submit(fail).exception()
            say(repr(error), type(error.__cause__).__name__)
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            say("in fail" in text, "raise error" in text, "tasks.py" in text)
            for error in (SystemExit(3), KeyboardInterrupt()):
                say(repr(executor.submit(fail, error).exception()))
    """) == "KeyError('nothing here') _RemoteTraceback\nTrue True True\nSystemExit(3)\nKeyboardInterrupt()"


def test_the_gpus_are_free_when_a_future_is_done(script):
    assert script.says("""
        with berth.Executor(4) as executor:
            for _ in range(5):
                executor.submit(pid).result()
                berth.acquire(4, no_wait=True).release()
    """) == ""


def test_a_process_that_does_not_exit_does_not_keep_its_result(script):
    """A thread of the task goes on: the result is there, and the lease lasts."""
    program = script.start("""
        from berth import _executor
        _executor._EXIT_PATIENCE_S = 0.01
        with berth.Executor() as executor:
            say(executor.submit(leave_thread).result())
        say("shut down")
    """)
    assert first_line(program) == "result"
    script.task("thread")
    assert leased(script.server) == [0] and "shut down" not in program.out
    script.open()
    assert program.end() == 0, program.err
    wait_until(lambda: all_free(script.server))


def test_what_cannot_be_pickled_fails_alone(script):
    assert script.says("""
        with berth.Executor() as executor:
            futures = [executor.submit(threading.Lock), executor.submit(lambda: 1), executor.submit(id, threading.Lock()),
                       executor.submit(pow, 2, 3)]
            for future in futures:
                error = future.exception()
                say(type(error).__name__, error and "pickle" in str(error) + str(error.__cause__) + type(error).__name__)
    """) == ("TypeError True\nPicklingError True\nTypeError True\nNoneType None")


@pytest.mark.parametrize("name", ["NoPickle", "NoUnpickle", "NoText", "BecomesText", "EndsProgram"])
def test_an_exception_that_cannot_be_sent_is_named_and_keeps_its_traceback(script, name):
    assert script.says(f"""
        with berth.Executor() as executor:
            error = executor.submit(raise_named, {name!r}).exception()
            say(type(error).__name__, {name!r} in str(error), "in raise_named" in str(error.__cause__), executor.submit(abs, -1).result())
    """) == "RuntimeError True True 1"


@pytest.mark.parametrize("arguments", [["-c"], ["-"]], ids=["-c", "stdin"])
def test_a_main_program_that_is_not_a_file(script, arguments):
    """As in a notebook: what is imported works, and what is defined there is refused before it waits for a GPU."""
    holder = script.python.jobs.hold("-n", "4")
    code = "import berth\ndef own(): pass\nwith berth.Executor() as executor:\n    print(repr(executor.submit(own).exception()), flush=True)\n"
    code += "    print(executor.submit(abs, -1).result())\n"
    program = script.python.jobs.start(sys.executable, *arguments, *([code] if arguments == ["-c"] else []), env=script.python.env,
                                       cwd=script.server.folder)
    if arguments == ["-"]:
        program.process.stdin.write(code.encode())
        program.process.stdin.close()
    assert "PicklingError" in first_line(program) and "notebook" in program.out
    eventually(lambda: len(script.queue()) == 1)
    assert holder.end() == 0
    assert program.process.wait(LIMIT) == 0, program.err
    assert program.out.splitlines()[1] == "1"


@pytest.mark.parametrize("how, code, words", [
    ("kill, signal.SIGKILL", -9, "SIGKILL"), ("kill, signal.SIGSEGV", -11, "SIGSEGV"), ("os._exit, 3", 3, "exit code 3"), ("os._exit, 0", 0, "exit code 0"),
])
def test_a_task_whose_process_ends_is_broken_and_the_others_are_not(script, how, code, words):
    assert script.says(f"""
        with berth.Executor() as executor:
            before, broken, after = executor.submit(pid), executor.submit({how}), executor.submit(pid)
            error = broken.exception()
            say(type(error).__name__, isinstance(error, concurrent.futures.BrokenExecutor), error.exit_code, {words!r} in str(error))
            say(pickle.loads(pickle.dumps(error)).exit_code, before.result() > 0, after.result() > 0, executor.submit(abs, -1).result())
    """) == f"BrokenTask True {code} True\n{code} True True 1"


def test_kill_9_of_a_task_from_outside_while_a_process_of_it_goes_on(script):
    """The child has the pipe of the result, too, and keeps the lease."""
    program = script.start("""
        executor = berth.Executor()
        future = executor.submit(fork_and_block)
        say(future.exception())
        say(executor.submit(where).result()[1])
        executor.shutdown()
    """)
    child, task = map(int, _read_when_there(script.server.folder / "fork").split())
    os.kill(task, signal.SIGKILL)
    assert "SIGKILL" in first_line(program)
    assert program.end() == 0, program.err
    assert program.out.splitlines()[1] == "1"
    assert leased(script.server) == [0] and is_alive(child)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: all_free(script.server))


def _read_when_there(path):
    eventually(path.exists, f"{path.name} is there")
    return path.read_text()


def test_kill_9_of_the_program_ends_its_tasks_and_their_leases(script):
    program = script.start("""
        executor = berth.Executor()
        futures = [executor.submit(block, f"task{number}") for number in range(8)]
        stay()
    """)
    tasks = [script.task(f"task{number}") for number in range(4)]
    eventually(lambda: len(script.queue()) == 4, "the others wait")
    program.process.kill()
    for task in tasks:
        eventually(lambda task=task: not is_alive(task), "the task is killed")
    wait_until(lambda: all_free(script.server) and script.queue() == [])


def test_a_task_that_waits_can_be_cancelled_and_leaves_the_queue(script):
    holder = script.python.jobs.hold("-n", "4")
    program = script.start("""
        executor = berth.Executor(on_wait=lambda waiting: None)
        first, second, third = [executor.submit(pid) for _ in range(3)]
        while len(berth.queue()) < 3: pass
        tickets = [ticket.ticket for ticket in berth.queue()]
        say(second.cancel(), second.cancel(), second.cancelled(), second.done())
        while len(berth.queue()) > 2: pass
        say([ticket.ticket for ticket in berth.queue()] == [tickets[0], tickets[2]])
        say([future is second for future in as_completed([second])], concurrent.futures.wait([second]).done == {second})
        stay()
        say(first.result() > 0, third.result() > 0, first.cancel(), threading.active_count() >= 1)
        executor.shutdown()
    """)
    eventually(lambda: program.out.count("\n") == 3, "the task is cancelled")
    assert program.out.splitlines() == ["True True True True", "True", "[True] True"]
    assert holder.end() == 0
    program.process.stdin.write(b"\n")
    assert program.end() == 0, program.err
    assert program.out.splitlines()[3] == "True True False True"


def test_tasks_that_are_cancelled_at_the_moment_of_their_grant_keep_nothing(script):
    assert script.says("""
        with berth.Executor(max_workers=2) as executor:
            futures = []
            for number in range(40):
                futures.append(executor.submit(abs, number))
                if number % 4:
                    futures[-number % 3 - 1].cancel()
        done = [future for future in futures if not future.cancelled()]
        say(len(done) < 40, all(future.done() for future in futures), all(future.result() >= 0 for future in done))
    """) == "True True True"


def test_a_ticket_that_is_cancelled_by_the_command(script):
    holder = script.python.jobs.hold("-n", "4")
    program = script.start("""
        with berth.Executor() as executor:
            futures = [executor.submit(pid) for _ in range(2)]
            say(type(futures[0].exception()).__name__)
    """)
    eventually(lambda: len(script.queue()) == 2)
    assert script.server.berth("cancel", script.queue()[0]["ticket"]).returncode == 0
    assert first_line(program) == "NotGranted"
    assert holder.end() == 0
    assert program.end() == 0, program.err


def test_a_program_that_computes_itself_does_not_decide_where_its_tasks_run(script):
    """A request of this process itself would be for the GPU on which it has CUDA."""
    (script.server.folder / "simulated_cuda.py").write_text(SIMULATED_CUDA)
    assert script.says("""
        import simulated_cuda
        with berth.gpus(gpu=3):
            context = simulated_cuda.Context(0)
        with berth.gpus() as lease:
            say(lease.indices)
        with berth.Executor() as executor:
            say(executor.submit(where).result()[1])
    """, is_freed=False) == "[3]\n0"


def test_tasks_that_share_by_what_earlier_ones_needed(script):
    """The first task of a function is measured, and others of the function wait for it."""
    assert script.says("""
        with berth.Executor(mem="auto") as executor:
            say(len({lease for *_, lease in executor.map(lambda_free, range(6))}))
    """) == "6"


def test_a_task_that_runs_cannot_be_cancelled(script):
    program = script.start("""
        with berth.Executor(max_workers=1) as executor:
            runs, waits = executor.submit(block, "runs"), executor.submit(block, "waits")
            while not runs.running(): pass
            stay()
            say(runs.cancel(), waits.running())
            executor.shutdown(wait=False, cancel_futures=True)
            say(waits.cancelled(), runs.cancelled())
            stay()
        say(runs.result(), threading.active_count())
    """)
    script.task("runs")
    program.process.stdin.write(b"\n")
    program.process.stdin.flush()
    eventually(lambda: program.out.count("\n") == 2)
    script.open()
    assert program.end() == 0, program.err
    assert program.out.splitlines() == ["False False", "True False", "runs 1"]


@pytest.mark.parametrize("block", ["with berth.Executor() as executor:", "executor = berth.Executor()\n        if True:"], ids=["with", "without"])
def test_ctrl_c_ends_what_waits(script, block):
    """Also where the script has no `with` block: its end does not wait for a thousand tasks."""
    holder = script.python.jobs.hold("-n", "4")
    program = script.start(f"""
        {block}
            futures = [executor.submit(pid) for _ in range(1000)]
            say("ready")
            futures[0].result()
    """)
    first_line(program)
    eventually(lambda: len(script.queue()) == 4)
    program.process.send_signal(signal.SIGINT)
    assert program.process.wait(LIMIT) == -signal.SIGINT
    assert script.queue() == []
    assert holder.end() == 0


def test_ctrl_c_reaches_the_tasks_as_on_a_terminal(script):
    program = script.start("""
        with berth.Executor() as executor:
            futures = [executor.submit(block, f"task{number}") for number in range(8)]
            say("ready")
            stay()
    """, start_new_session=True)
    tasks = [script.task(f"task{number}") for number in range(4)]
    os.killpg(program.pid, signal.SIGINT)
    assert program.process.wait(LIMIT) == -signal.SIGINT
    assert not any(is_alive(task) for task in tasks)
    assert all_free(script.server)
    assert not (script.server.folder / "task4").exists()


def test_a_task_that_ctrl_c_ends_cancels_what_waits(script):
    """Before its GPUs are free: the program may handle its own SIGINT later than its tasks theirs."""
    program = script.start("""
        with berth.Executor(max_workers=1) as executor:
            futures = [executor.submit(block, f"task{number}") for number in range(8)]
            say(repr(futures[0].exception()), [future.cancelled() for future in futures[1:]])
    """)
    os.kill(script.task("task0"), signal.SIGINT)
    assert first_line(program) == f"KeyboardInterrupt() {[True] * 7}"
    assert program.end() == 0, program.err


def test_shutdown_without_waiting(script):
    program = script.start("""
        executor = berth.Executor(max_workers=1)
        futures = [executor.submit(block, f"task{number}") for number in range(2)]
        executor.shutdown(wait=False)
        try:
            executor.submit(pid)
        except RuntimeError as problem:
            say(problem)
        futures[1].add_done_callback(lambda future: say(future.result()))
    """)
    assert "after shutdown" in first_line(program)
    script.task("task0")
    script.open()
    script.task("task1")
    assert program.runs, "the end of the program waits for its tasks"
    script.open()
    assert program.end() == 0, program.err
    assert program.out.splitlines()[1] == "task1"


def test_a_program_that_does_not_shut_down(script):
    """Its end waits for its tasks, as with the other executors, and nothing is left behind."""
    assert script.says("""
        executor = berth.Executor(max_workers=1)
        for _ in range(3):
            executor.submit(pid).add_done_callback(lambda future: say(future.result() > 0))
    """) == "True\nTrue\nTrue"


def test_requests_that_cannot_be_granted(script):
    assert script.says("""
        for wrong in (dict(mem="x"), dict(max_workers=0), dict(max_workers=True), dict(memory="8GiB"), dict(set_environment=False),
                      dict(placeholder=len), dict(no_wait=True, timeout=1)):
            try:
                berth.Executor(**wrong)
            except (TypeError, berth.UsageError) as problem:
                say(type(problem).__name__)
        with berth.Executor(99) as executor:
            say(type(executor.submit(pid).exception()).__name__)
        lease = berth.acquire(4)
        with berth.Executor(no_wait=True) as executor:
            say([type(executor.submit(pid).exception()).__name__ for _ in range(2)])
        with berth.Executor(timeout="10ms", on_wait=lambda waiting: None) as executor:
            say(type(executor.submit(pid).exception()).__name__)
    """) == "\n".join(["UsageError"] * 3 + ["TypeError"] * 2 + ["UsageError"] * 2 + ["Impossible", "['NotGranted', 'NotGranted']", "NotGranted"])


def test_inside_a_lease_tasks_share_its_gpus(script):
    """As many at once as it has GPUs for: requests inside a lease do not wait."""
    code = """
        with berth.Executor() as executor:
            say(executor._max_active, list(executor.map(use_alone, range(10))) == list(range(10)), {future.result()[1] for future in
                concurrent.futures.wait([executor.submit(where) for _ in range(4)]).done} <= {"0", "1"})
    """
    assert script.says("        with berth.gpus(2):\n" + "\n".join("    " + line for line in code.splitlines())) == "2 True True"
    result = script.server.berth("run", "-n", "2", "--", sys.executable, script.write(code), env=script.python.env, cwd=script.server.folder)
    assert (result.returncode, result.stdout) == (0, "2 True True\n"), result.stderr


@pytest.mark.parametrize("keywords, limit", [("gpu='0-1'", 1), ("gpu='all', count=2", 1), ("gpu=[0, 1]", 1), ("max_workers=9", 2), ("max_workers=1", 1),
                                              ("mem='1GiB'", 2), ("mem='1GiB', max_workers=9", 9), ("mem='all', max_workers=9", 2)])
def test_inside_a_lease_two_tasks_never_have_the_same_whole_gpu(script, keywords, limit):
    assert script.says(f"""
        with berth.gpus(2), berth.Executor({keywords}) as executor:
            say(executor._max_active)
            tasks = [executor.submit(use_alone if "1GiB" not in {keywords!r} else abs, number) for number in range(6)]
            say([task.result() for task in tasks] == list(range(6)))
    """) == f"{limit}\nTrue"


def test_tasks_of_tasks(script):
    assert script.says("""
        with berth.Executor(2) as executor:
            say(executor.submit(run_tasks).result())
    """) == "['0', '1']"


def test_leases_of_a_task_show_the_command_of_the_program(script):
    assert script.says("""
        with berth.Executor() as executor:
            inside = executor.submit(lease_inside).result()
            say([os.path.basename(job.command) for job in berth.jobs() if job.id == inside])
    """, "-B") == "['tasks.py']"


def test_a_script_without_a_guard_is_refused_in_the_task(script):
    path = script.server.folder / "unguarded.py"
    path.write_text("import berth\nwith berth.Executor() as executor:\n    print(repr(executor.submit(abs, -1).exception()))\n")
    result = script.server.run(sys.executable, path, env=script.python.env)
    assert result.returncode == 0 and result.stdout.startswith("RuntimeError(") and "__main__" in result.stdout, result


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_in_children_of_multiprocessing(script, method):
    """A child makes its own executor; one of its parent is refused there."""
    assert script.says(f"""
        with berth.Executor() as executor:
            executor.submit(pid).result()
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                say(pool.apply(run_tasks))
            child = os.fork()
            if child == 0:
                try:
                    executor.submit(pid)
                except RuntimeError as problem:
                    os._exit(7)
            say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """) == "['0', '1']\n7"


def test_flags_of_the_interpreter_and_modules_run_by_name(script):
    assert script.says("""
        with berth.Executor() as executor:
            say(executor.submit(flags).result())
    """, "-O", "-B") == "1 True"
    (script.server.folder / "tasks.py").rename(script.server.folder / "named.py")
    result = script.server.run(sys.executable, "-m", "named", env=script.python.env, cwd=script.server.folder)
    assert (result.returncode, result.stdout) == (0, "0 False\n"), result.stderr


def test_no_descriptor_and_no_process_is_left(script):
    """The package itself may keep one session of the driver, with three descriptors."""
    assert script.says("""
        def open_files():
            return len(os.listdir("/proc/self/fd"))
        def use():
            with berth.Executor() as executor:
                executor.submit(kill, 9).exception()
                executor.submit(fail).exception()
                list(executor.map(abs, range(3)))
        use()
        before = open_files()
        for _ in range(5):
            use()
        say(threading.active_count())
        while len(children()) > 1 or open_files() > before + 3:   # native parts of threads end after Python's
            time.sleep(0.01)
    """) == "1"


def test_many_submit_at_once(script):
    assert script.says("""
        results = []
        with berth.Executor(mem="1GiB", max_workers=8) as executor:
            def submit():
                results.extend(executor.submit(abs, -number).result() for number in range(5))
            threads = [threading.Thread(target=submit) for _ in range(6)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        say(len(results), set(results) == set(range(5)))
    """) == "30 True"


def test_light_imports(python):
    assert python.says("""
        berth.acquire().release()
        say({"concurrent", "concurrent.futures", "multiprocessing", "subprocess", "threading"} & set(sys.modules))
    """) == "set()"


def test_the_keywords_of_the_types_are_those_that_are_accepted(python):
    assert python.says("""
        from berth import _executor, _request_keywords as types
        say({"count", *types.TaskRequest.__annotations__} == _executor.KEYWORDS)
    """) == "True"
