"""How a Python program waits: signals, threads, asyncio, callbacks; in turn with everybody else, and for nothing."""

import os
import re
import signal
import textwrap

import pytest
from conftest import wait_until
from leasing import eventually
from pythons import all_free, cpu_ticks, first_line, leased, python  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only


@pytest.fixture
def holder(python):
    """Has all four GPUs until end() is called."""
    job = python.start("say(berth.acquire(4).indices); stay()")
    first_line(job)
    return job


def helpers(job):
    """The processes that ask the driver for it."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as file:
                comm, fields = file.read().split("(", 1)[1].rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = fields.split()[:2]
        if comm == "berth-probe" and int(parent) == job.pid and state != "Z":
            found.append(name)
    return found


@pytest.mark.each_harbour
def test_ctrl_c_ends_the_waiting_and_leaves_the_queue(python, holder):
    waiter = python.start("""
        try:
            berth.acquire(progress=True)
        except KeyboardInterrupt:
            say("left", len(berth.queue()))
            lease = berth.acquire(timeout=None, progress=True)
            say(lease.indices)
    """)
    waiter.waits()
    waiter.process.send_signal(signal.SIGINT)
    assert first_line(waiter) == "left 0"
    holder.end()
    eventually(lambda: "[0]" in waiter.out)


def test_ctrl_c_in_a_terminal_gives_the_usual_end(python, holder):
    waiter = python.start("berth.acquire(progress=True)")
    waiter.waits()
    waiter.process.send_signal(signal.SIGINT)
    assert waiter.process.wait(LIMIT) == -signal.SIGINT
    assert "KeyboardInterrupt" in waiter.err
    assert not python.server.status()["queue"]


@pytest.mark.each_harbour
def test_a_handler_that_returns_keeps_the_place(python, holder):
    """Runs while it waits, as often as the signal comes, and the ticket stays the same."""
    waiter = python.start("""
        import signal
        signal.signal(signal.SIGUSR1, lambda *_: say("handled", berth.queue()[0].ticket))
        say(berth.acquire(progress=True).id)
    """)
    waiter.waits()
    [ticket] = [one["ticket"] for one in python.server.status()["queue"]]
    for count in (1, 2, 3):
        waiter.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: waiter.out.count("handled") == count, lambda: waiter.err)
    holder.end()
    assert waiter.process.wait(LIMIT) == 0
    assert waiter.out.splitlines() == [f"handled {ticket}"] * 3 + [ticket]


def test_a_signal_while_the_driver_is_asked_does_no_harm(python):
    """The question is asked again: nothing is granted, or refused, for a signal."""
    python.server.use({"gpus": [{"memory": "8GiB"}], "faults": [{"call": "nvmlInit", "delay": "700ms"}]})
    waiter = python.start("""
        import signal
        signal.signal(signal.SIGUSR1, lambda *_: say("handled"))
        say("begin")
        say(berth.acquire().indices)
    """)
    wait_until(lambda: helpers(waiter))
    waiter.process.send_signal(signal.SIGUSR1)
    assert waiter.process.wait(LIMIT) == 0
    assert waiter.out.splitlines() == ["begin", "handled", "[0]"], waiter.err


def test_a_fork_hears_its_own_signals(python, holder):
    waiter = python.start("""
        import os, signal
        try:
            berth.acquire(no_wait=True)
        except berth.NotGranted:
            pass
        pid = os.fork()
        if pid:
            say(pid)
        try:
            berth.acquire(progress=True)
        except KeyboardInterrupt:
            say("the child" if pid == 0 else "the parent")
    """)
    pid = int(first_line(waiter))
    wait_until(lambda: len(python.server.status()["queue"]) == 2)
    os.kill(pid, signal.SIGINT)
    wait_until(lambda: "the child" in waiter.out, lambda: waiter.err)
    assert "the parent" not in waiter.out and len(python.server.status()["queue"]) == 1


def test_signals_that_come_faster_than_the_driver_answers(python):
    """They neither end the question nor begin it anew; nor inside a lease."""
    python.server.use({"gpus": [{"memory": "8GiB"}], "faults": [{"call": "nvmlInit", "delay": "300ms"}]})
    assert python.says("""
        import signal
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with berth.gpus() as lease:
            say(lease.indices)
            import os
            os.environ["LD_LIBRARY_PATH"] = "/another"   # so that the next question needs another helper
            with berth.gpus() as inner:
                say(inner.indices)
        signal.setitimer(signal.ITIMER_REAL, 0)
    """) == "[0]\n[0]"


@pytest.mark.each_harbour
def test_no_interrupt_loses_a_lease(python):
    """Ctrl-C at any step of Python's: in the end nothing is leased but what the program still has in hand."""
    said = python.says("""
        import os, random, signal, threading
        logging = __import__("logging")
        logging.disable()
        random.seed(7)
        interrupted = done = 0
        finished = False
        def interrupt():
            while not finished:
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(random.random() / 100)
        berth.acquire().release()
        quiet = signal.signal(signal.SIGINT, signal.SIG_IGN)
        thread = threading.Thread(target=interrupt)
        thread.start()
        for _ in range(300):
            try:
                signal.signal(signal.SIGINT, quiet)
                with berth.gpus():
                    pass
                done += 1
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                while True:
                    try:
                        signal.signal(signal.SIGINT, signal.SIG_IGN)
                        break
                    except KeyboardInterrupt:
                        pass
        finished = True
        thread.join()
        import gc
        gc.collect()
        say(interrupted > 0 and done > 0, [gpu.state for gpu in berth.status()])
    """)
    assert said == "True ['free', 'free', 'free', 'free']"


def test_a_handler_may_release_a_lease_at_any_step(python):
    assert python.says("""
        import random, signal
        random.seed(3)
        given = []
        signal.signal(signal.SIGALRM, lambda *_: given and given.pop().release())
        for _ in range(300):
            given.append(berth.acquire(mem="1GiB"))
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.002))
            with berth.gpus(mem="1GiB"):
                pass
            while given: pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        say([gpu.state for gpu in berth.status()])
    """, env={"PYTHONWARNINGS": "ignore"}) == "['free', 'free', 'free', 'free']"


def test_what_arrives_while_it_waits_reaches_an_event_loop(python, holder):
    """A blocking acquire inside asyncio takes the loop's wakeup descriptor, and passes on what came."""
    waiter = python.start("""
        import asyncio, signal
        async def main():
            got = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
            lease = berth.acquire(progress=True)
            await got.wait()
            say("the loop has it")
        asyncio.run(main())
    """)
    waiter.waits()
    waiter.process.send_signal(signal.SIGUSR1)
    holder.end()
    assert first_line(waiter) == "the loop has it"


@pytest.mark.each_harbour
def test_other_threads_go_on_and_a_thread_can_wait(python, holder):
    waiter = python.start("""
        import threading
        ready = []
        def wait(number): ready.append((number, berth.acquire(progress=True, set_environment=False).indices))
        threads = [threading.Thread(target=wait, args=[number]) for number in range(3)]
        for thread in threads: thread.start()
        say(sys.stdin.readline().strip())          # the main thread runs meanwhile
        for thread in threads: thread.join()
        gpus = [indices for _, indices in ready]
        say("one GPU each", len(gpus), len({index for [index] in gpus}))
    """)
    wait_until(lambda: len(python.server.status()["queue"]) == 3)
    waiter.process.stdin.write(b"here\n")
    waiter.process.stdin.flush()
    assert first_line(waiter) == "here"
    holder.end()
    eventually(lambda: "one GPU each 3 3" in waiter.out, lambda: waiter.out + waiter.err)


def test_ctrl_c_is_the_main_threads_while_another_waits(python, holder):
    waiter = python.start("""
        import threading, time
        threading.Thread(target=lambda: berth.acquire(progress=True), daemon=True).start()
        try:
            time.sleep(3600)
        except KeyboardInterrupt:
            say("main has it", len(berth.queue()))
    """)
    waiter.waits()
    waiter.process.send_signal(signal.SIGINT)
    assert first_line(waiter) == "main has it 1"
    assert waiter.process.wait(LIMIT) == 0
    wait_until(lambda: not python.server.status()["queue"])


@pytest.mark.each_harbour
def test_many_tasks_can_wait(python, holder):
    """More than any pool of threads has."""
    waiter = python.start("""
        import asyncio
        async def one(number):
            lease = await berth.acquire_async(set_environment=False, progress=False, on_wait=lambda _: None)
            index = lease.indices[0]
            lease.release()
            return index
        async def main():
            tasks = [asyncio.ensure_future(one(number)) for number in range(40)]
            while len(berth.queue()) < 40:
                await asyncio.sleep(0)
            say("waiting")
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            say(len(await asyncio.gather(*tasks)), "granted")
        asyncio.run(main())
    """)
    assert first_line(waiter) == "waiting"
    waiter.process.stdin.close()
    holder.end()
    assert waiter.process.wait(LIMIT) == 0, waiter.err
    assert waiter.out.splitlines()[1] == "40 granted"
    assert all_free(python.server)


@pytest.mark.each_harbour
def test_a_cancelled_task_leaves_the_queue(python, holder):
    waiter = python.start("""
        import asyncio
        async def main():
            task = asyncio.ensure_future(berth.acquire_async(progress=False))
            while not berth.queue():
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                say("cancelled")
            while berth.queue():
                await asyncio.sleep(0)
            say("gone")
            try:
                await asyncio.wait_for(berth.acquire_async(progress=False), 0.01)
            except asyncio.TimeoutError:
                say("late")
            while berth.queue():
                await asyncio.sleep(0)
            try:
                await berth.acquire_async(no_wait=True)
            except berth.NotGranted:
                say("refused")
        asyncio.run(main())
    """)
    assert waiter.process.wait(LIMIT) == 0, waiter.err
    assert waiter.out.splitlines() == ["cancelled", "gone", "late", "refused"]


@pytest.mark.each_harbour
@pytest.mark.parametrize("when", ["task.cancel()", "loop.call_soon(task.cancel)"])
def test_a_task_that_is_cancelled_at_the_moment_of_its_grant_keeps_nothing(python, when):
    """Before the loop has heard of the grant, or between that and the task."""
    assert python.says(f"""
        import asyncio, threading
        async def main():
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(berth.acquire_async())
            await asyncio.sleep(0)
            while any(thread.name == "berth.acquire_async" for thread in threading.enumerate()): pass
            say(berth.status()[0].state)
            {when}
            try:
                await task
            except asyncio.CancelledError:
                say("cancelled")
            say(berth.status()[0].state)
            return task     # keeps what it holds
        asyncio.run(main())
    """) == "leased\ncancelled\nfree"


def test_async_with(python):
    assert python.says("""
        import asyncio, os
        async def main():
            async with berth.gpus(2) as lease:
                say(lease.indices, os.environ["CUDA_VISIBLE_DEVICES"])
                async with berth.gpus() as inner:
                    say(inner.indices)
            say("CUDA_VISIBLE_DEVICES" in os.environ, [gpu.state for gpu in berth.status()])
        asyncio.run(main())
    """) == "[0, 1] 0,1\n[0]\nFalse ['free', 'free', 'free', 'free']"


def test_a_loop_that_forgets_to_release_hears_that_it_waits_for_itself(python):
    said = python.says("""
        def heard(waiting):
            say(waiting.reason)
            leases[0].release()
        leases = [berth.acquire() for _ in range(4)]
        say(berth.acquire(on_wait=heard).indices)
    """).splitlines()
    assert "4 leases" in said[0] and "release()" in said[0]
    assert said[1:] == ["[0]"]


@pytest.mark.each_harbour
def test_the_callback_hears_position_and_reason(python, holder):
    first = python.start("berth.acquire(4, progress=True, time='1h'); say('first'); stay()")
    first.waits()
    waiter = python.start("""
        def heard(waiting):
            say(waiting.position, waiting.length, waiting.starts is not None, waiting.reason)
            assert f"{waiting.position} of {waiting.length}: " in str(waiting)
        berth.acquire(on_wait=heard)
    """)
    assert first_line(waiter).startswith("2 2 False ")
    holder.end()
    assert first_line(first) == "first"
    eventually(lambda: re.search(r"\n1 1 True .* 0,1,2,3 leased ", waiter.out), lambda: waiter.out + waiter.err)
    assert waiter.err == ""


@pytest.mark.parametrize("configured", [False, True])
def test_it_says_that_it_waits_and_what_it_was_granted(python, holder, configured):
    """By the log; without a configuration of the log, each line begins with the name."""
    waiter = python.start(("import logging; logging.basicConfig()\n" if configured else "") +
                          "with berth.gpus(gpu=2) as lease: say('runs')")
    wait_until(lambda: "waiting, " in waiter.err)
    holder.end()
    assert waiter.process.wait(LIMIT) == 0
    waits, granted = waiter.err.splitlines()
    prefix = "WARNING:berth:" if configured else "berth: "
    assert waits.startswith(f"{prefix}waiting, position 1 of 1: ")
    assert re.fullmatch(f"{prefix}granted GPU 2 after [0-9]+s", granted), granted


def test_a_line_for_the_grant_after_the_line_of_the_wait(python, holder):
    waiter = python.start("with berth.gpus(2, progress=True) as lease: say('runs')")
    wait_until(lambda: "berth: waiting, " in waiter.err)
    holder.end()
    assert waiter.process.wait(LIMIT) == 0
    assert re.fullmatch("berth: granted GPUs 0,1 after [0-9]+s", waiter.err.splitlines()[-1]), waiter.err


def test_without_a_wait_it_says_nothing(python):
    assert python.says("with berth.gpus(progress=True): say('runs')") == "runs"


def test_what_the_callback_raises_ends_the_waiting(python, holder):
    said = python.says("""
        def heard(waiting): raise LookupError("enough")
        try:
            berth.acquire(on_wait=heard)
        except LookupError as problem:
            say(problem, len(berth.queue()))
    """)
    assert said == "enough 0"


def test_without_a_terminal_the_log_says_that_it_waits(python, holder):
    """On stderr by Python's own last resort, so that nobody wonders; a program's own handlers get all of it."""
    waiter = python.start("say(berth.acquire().indices)")
    wait_until(lambda: re.search(r"^berth: waiting.* 1 of 1: .* 0,1,2,3 leased ", waiter.err))
    holder.end()
    assert first_line(waiter) == "[0]"
    assert re.search(r"\nberth: granted GPU 0 after \d+s\n$", waiter.err)


def test_a_python_that_waits_uses_no_processor(python, holder):
    waiter = python.start("""
        import threading
        threading.Thread(target=lambda: berth.acquire(2, progress=True), daemon=True).start()
        berth.acquire(progress=True)
    """)
    wait_until(lambda: len(python.server.status()["queue"]) == 2)
    wait_until(lambda: waiter.err.count("waiting") >= 2)
    before = [cpu_ticks(waiter.pid)]

    def quiet():
        """Two looks with a while between them, in which it did nothing at all."""
        before.append(cpu_ticks(waiter.pid))
        return len(before) > 40 and before[-1] == before[-40]
    wait_until(quiet, lambda: before)


@pytest.mark.each_harbour
def test_python_and_the_command_line_wait_in_one_queue(python, holder):
    order = []
    for number in range(6):
        if number % 2:
            job = python.jobs.run("-n", "4")
        else:
            job = python.start("say(berth.acquire(4, progress=True).indices); stay()")
        order.append(job)
        wait_until(lambda: len(python.server.status()["queue"]) == number + 1)
    holder.end()
    for number, job in enumerate(order):
        assert first_line(job)
        assert all("\n" not in later.out for later in order[number + 1:])
        assert job.end() == 0


@pytest.mark.each_harbour
def test_a_cancelled_ticket_is_not_granted(python, holder):
    waiter = python.start("""
        try:
            berth.acquire(progress=True)
        except berth.NotGranted as problem:
            say(problem)
    """)
    waiter.waits()
    [ticket] = python.server.status()["queue"]
    assert python.server.berth("cancel", ticket["ticket"]).returncode == 0
    assert "berth cancel" in first_line(waiter)


def test_the_helper_that_asks_the_driver_leaves_when_nobody_asks(python):
    """A program that has leased once has no session with the driver open for days."""
    job = python.start("""
        import time
        berth.acquire().release()
        say("released")
        sys.stdin.readline()
        say(len(berth.status()))
        stay()
    """)
    first_line(job)
    assert helpers(job)
    wait_until(lambda: not helpers(job))
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    wait_until(lambda: job.out.splitlines()[1:] == ["4"], lambda: job.out + job.err)


# Forks in the middle of a wait.

FORKS = {
    "signal": """
        signal.signal(signal.SIGUSR1, fork)
        wait = dict(on_wait=lambda news: os.kill(os.getpid(), signal.SIGUSR1) if pid is None else None)
    """,
    "on_wait": "wait = dict(on_wait=fork)",
    "selector": "wait = dict(selector=lambda gpu: fork() or True)",
}


@pytest.mark.each_harbour
@pytest.mark.parametrize("way", FORKS)
def test_a_fork_in_a_wait_has_no_part_in_its_parents_ticket(python, holder, way):
    """The child returns into the wait. It gets an error, and can ask for GPUs itself; the parent keeps its place."""
    code = """
        import os, signal
        pid = None
        def fork(*_):
            global pid
            if pid is None:
                pid = os.fork()
        PREPARE
        try:
            lease = berth.acquire(**wait)
            say("the parent" if pid else "the child", "has", lease.indices)
        except berth.HarbourError as problem:
            assert pid == 0, problem
            say("the child:", problem)
            try:
                berth.acquire(no_wait=True)
            except berth.NotGranted:
                say("the child asks itself")
            os._exit(0)
        assert pid and os.waitpid(pid, 0)[1] == 0
    """
    prepare = textwrap.dedent(FORKS[way]).strip().replace("\n", "\n        ")
    waiter = python.start(code.replace("PREPARE", prepare))
    wait_until(lambda: "asks itself" in waiter.out, lambda: waiter.out + waiter.err)
    assert re.search("the child: .*forked", waiter.out)
    # The child may be faster than the parent's ticket.
    wait_until(lambda: [ticket["pid"] for ticket in python.server.status()["queue"]] == [waiter.pid])
    holder.process.kill()
    assert waiter.process.wait(LIMIT) == 0, waiter.err
    assert waiter.out.splitlines()[-1] == "the parent has [0]"


def test_without_an_estimate_the_next_free_gpu_is_named(python):
    """No end of GPU 0 is known, so no start of a request for both; but GPU 1 gets free."""
    python.server.use("2x24GiB")
    for code in ("berth.acquire(gpu=1, time='3h')", "berth.acquire(gpu=0)"):
        first_line(python.start(f"say({code}.indices); stay()"))
    waiter = python.start("""
        import datetime
        def tell(waiting):
            gpus, when = waiting.next_free
            hours = (when - datetime.datetime.now(datetime.timezone.utc)).total_seconds() / 3600
            say(gpus, round(hours), waiting.starts)
        berth.acquire(2, on_wait=tell, progress=True)
    """)
    assert first_line(waiter) == "GPU 1 3 None"
    eventually(lambda: re.match(r"berth: waiting, next free: GPU 1 in about [23]h( \d+m)?, position 1 of 1: ", waiter.err))


def test_the_text_of_a_wait_is_that_of_the_command(python):
    first_line(python.start("berth.acquire(4); say(1); stay()"))
    waiter = python.start("berth.acquire(on_wait=lambda waiting: say(waiting.text == str(waiting), waiting.text), progress=True)")
    text = first_line(waiter)
    assert text.startswith("True waiting, position 1 of 1: GPUs 0,1,2,3 leased by ")
    assert f"berth: {text.removeprefix('True ')}\n" in waiter.err
