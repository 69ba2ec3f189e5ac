"""Who holds a lease: the program, its forks, what it starts; and that nobody else does."""

import os
import signal
import sys

import pytest
from conftest import BERTH, wait_until
from leasing import eventually, watches_files
from pythons import all_free, first_line, leased, python  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only


def kill(pid):
    os.kill(int(pid), signal.SIGKILL)


@pytest.mark.each_harbour
def test_kill_9_frees(python):
    job = python.start("say(berth.acquire(4).indices); stay()")
    first_line(job)
    waiter = python.jobs.wait()
    job.process.kill()
    assert waiter.gpus() == "0"


@pytest.mark.each_harbour
@pytest.mark.parametrize("take", ["lease = berth.acquire()", "berth.acquire()"])
def test_a_fork_holds_the_lease_until_it_ends(python, take):
    """Also where nobody has kept its object."""
    job = python.start(f"""
        import os, time
        {take}
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        say(pid)
        stay()
    """)
    pid = first_line(job)
    job.process.kill()
    job.process.wait()
    assert leased(python.server) == [0]
    kill(pid)
    wait_until(lambda: all_free(python.server))


@pytest.mark.each_harbour
def test_a_fork_while_another_thread_makes_the_harbour_does_not_keep_it_locked(python):
    """Who makes it keeps it locked for a moment, for those who have a lease to put back."""
    python.server.harbour.rmdir()
    job = python.start("""
        import os, threading, time
        from berth import _lease                     # so that the fork meets no import that another thread has begun
        maker = threading.Thread(target=berth.acquire)
        maker.start()
        while not os.path.isdir(os.environ["BERTH_DIR"]): pass
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        maker.join()
        say(pid)
        stay()
    """)
    pid = first_line(job)
    assert leased(python.server) == [0]              # says so at once: nobody has the lock
    assert python.server.berth("run", "--no-wait", "--", "true").returncode == 0
    kill(pid)


@pytest.mark.each_harbour
def test_a_fork_that_releases_only_lets_go_itself(python):
    assert python.says("""
        import os
        with berth.gpus() as lease:
            pid = os.fork()
            if pid == 0:
                code = 0 if lease.release() is False else 1
                os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            say([gpu.state for gpu in berth.status()])
        say([gpu.state for gpu in berth.status()])
    """) == "['leased', 'free', 'free', 'free']\n['free', 'free', 'free', 'free']"


@pytest.mark.each_harbour
def test_a_fork_stands_inside_the_lease_and_can_ask_itself(python):
    """Its helper is its own, and its parent's goes on."""
    assert python.says("""
        import os
        lease = berth.acquire(2)
        pid = os.fork()
        if pid == 0:
            say(berth.acquire().indices, len(berth.status()))
            sys.exit(0)
        os.waitpid(pid, 0)
        say(berth.acquire().indices, len(berth.status()))
    """) == "[0] 4\n[2] 4"


CHILDREN = """
    import multiprocessing, os, time

    def work(pipe):
        pipe.send(os.getpid())
        time.sleep(3600)

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        if sys.argv[1] == "forkserver":
            context.set_forkserver_preload(["berth"])  # as its __main__ is in later versions of Python
        with berth.gpus() as lease:
            here, there = context.Pipe()
            child = context.Process(target=work, args=[there])
            child.start()
            say(here.recv())
            stay()
        say("released")
        stay()
        os._exit(0)
"""
METHODS = ["fork", "spawn", "forkserver"]


@pytest.mark.parametrize("method", METHODS)
def test_a_child_of_multiprocessing_holds_the_lease(python, method):
    job = python.start_script(python.script("children.py", CHILDREN), method)
    pid = first_line(job)
    job.process.kill()
    job.process.wait()
    assert leased(python.server) == [0]
    kill(pid)
    wait_until(lambda: all_free(python.server))


@pytest.mark.parametrize("method", METHODS)
def test_a_lease_that_was_released_ends_with_its_last_child(python, method):
    """Nothing else holds it: not the server of forkserver, not the tracker of resources."""
    job = python.start_script(python.script("children.py", CHILDREN), method)
    pid = first_line(job)
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    eventually(lambda: "released" in job.out)
    assert f"(pid {pid})" in job.err
    assert leased(python.server) == [0]
    kill(pid)
    wait_until(lambda: all_free(python.server))
    assert job.runs


SENT = """
    import multiprocessing, os, time

    def work(lease, pipe):
        pipe.send([os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"], lease.id, lease.indices, lease.released,
                   lease.gpus[0].uuid == lease.uuids[0], berth.acquire().indices])
        time.sleep(3600)

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        # The server of forkserver is there before the lease, and does not know it.
        first = context.Process(target=print)
        first.start()
        first.join()
        lease = berth.acquire(2, gpu="1,2")
        here, there = context.Pipe()
        child = context.Process(target=work, args=[lease, there])
        child.start()
        pid, *rest = here.recv()
        assert rest[1] == lease.id
        say(pid, rest[0], rest[2:])
        stay()
"""


@pytest.mark.each_harbour
@pytest.mark.parametrize("method", METHODS)
def test_a_lease_that_is_sent_to_a_child_is_held_and_seen_there(python, method):
    job = python.start_script(python.script("sent.py", SENT), method)
    eventually(lambda: "1,2" in job.out, lambda: job.out + job.err)
    pid, rest = job.out.strip().splitlines()[-1].split(" ", 1)
    assert rest == "1,2 [[1, 2], False, True, [1]]"
    job.process.kill()
    job.process.wait()
    assert leased(python.server) == [1, 2]
    kill(pid)
    wait_until(lambda: all_free(python.server))


POOL = """
    import multiprocessing, os

    def load(item):
        return item * 2, os.environ["CUDA_VISIBLE_DEVICES"]

    if __name__ == "__main__":
        with berth.gpus() as lease, multiprocessing.get_context(sys.argv[1]).Pool(3) as workers:
            say(list(workers.imap(load, range(4))))
            workers.close()
            workers.join()
        say([gpu.state for gpu in berth.status()])
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_of_workers_works_and_leaves_nothing_behind(python, method):
    result = python.server.run(sys.executable, python.script("pool.py", POOL), method, env=python.env)
    assert result.stdout.splitlines() == ["[(0, '0'), (2, '0'), (4, '0'), (6, '0')]",
                                         "['free', 'free', 'free', 'free']"], result.stderr


@pytest.mark.each_harbour
def test_what_becomes_of_the_program_by_exec_holds_the_lease(python):
    job = python.start("""
        import os
        berth.acquire()
        os.execvp("sh", ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read line"])
    """)
    assert first_line(job) == "0"
    assert leased(python.server) == [0]
    job.end()
    wait_until(lambda: all_free(python.server))


@pytest.mark.parametrize("start", [
    "os.posix_spawn('/bin/sh', ['sh', '-c', command], os.environ)",
    "os.system(f\"sh -c '{command}' &\")",
    "subprocess.Popen(['sh', '-c', command], pass_fds=[lease.fileno()])",
    "subprocess.Popen(['sh', '-c', command], close_fds=False)",
    "subprocess.Popen([sys.executable, '-c', 'import berth, os; os.system(' + repr(command) + ')'])",
])
def test_a_program_that_was_started_holds_the_lease(python, start):
    job = python.start(f"""
        import os, subprocess
        lease = berth.acquire()
        command = "echo $$; exec sleep 1h"
        {start}
        stay()
    """)
    pid = first_line(job)
    job.process.kill()
    job.process.wait()
    assert leased(python.server) == [0]
    kill(pid)
    wait_until(lambda: all_free(python.server))


@pytest.mark.each_harbour
def test_who_waits_in_a_thread_leaves_no_ticket_to_a_fork(python):
    """The fork would keep it in the queue long after the program is gone."""
    holder = python.start("say(berth.acquire(4).indices); stay()")
    first_line(holder)
    job = python.start("""
        import os, threading, time
        threading.Thread(target=lambda: berth.acquire(progress=True), daemon=True).start()
        while not berth.queue(): pass
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        say(pid)
        stay()
    """)
    pid = first_line(job)
    assert len(python.server.status()["queue"]) == 1
    job.process.kill()
    job.process.wait()
    wait_until(lambda: not python.server.status()["queue"])
    kill(pid)


def test_there_is_no_thread_at_a_fork(python):
    """Of which Python 3.12 would warn; and afterwards leases are watched again."""
    assert python.says("""
        import os
        def threads(): return len(os.listdir("/proc/self/task"))
        os.register_at_fork(before=lambda: say(threads()))  # is called after what is registered later
        lease = berth.acquire()
        say(threads())
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        while threads() == 1: pass
        say(threads())
    """).split() == ["2", "1", "2"]


@pytest.mark.each_harbour
def test_the_end_of_a_program_whose_daemon_threads_are_at_work(python):
    """Python ends such threads wherever they ask for the interpreter: not inside of us, which would be an abort."""
    for _ in range(10):
        python.says("""
            import logging, os, threading
            logging.disable()
            begun = threading.Semaphore(0)
            def work():
                while True:
                    berth.status()
                    berth.acquire(set_environment=False).release()
                    begun.release()
            for _ in range(3): threading.Thread(target=work, daemon=True).start()
            for _ in range(9): begun.acquire()
            pid = os.fork()
            if pid == 0: sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        """, env={"PYTHONWARNINGS": "ignore"})  # Python 3.12 says that there are threads


@pytest.mark.each_harbour
def test_forks_while_threads_lease_disturb_nobody(python):
    assert python.says("""
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 says that there are threads
        done = threading.Event()
        counts = []
        def lease():
            count = 0
            while not done.is_set():
                berth.acquire(set_environment=False).release()
                count += 1
            counts.append(count)
        import logging
        logging.getLogger("berth").setLevel(logging.ERROR)  # a fork holds the leases of its moment, until it ends
        berth.acquire().release()
        threads = [threading.Thread(target=lease) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(60):
            pid = os.fork()
            if pid == 0:
                os._exit(len(berth.status()))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
            berth.acquire(set_environment=False).release()
        done.set()
        for thread in threads: thread.join()
        say(min(counts) > 0)
    """, timeout=LIMIT) == "True"
    wait_until(lambda: all_free(python.server))


@pytest.mark.each_harbour
def test_a_lease_that_somebody_deletes_is_put_back(python):
    job = python.start("""
        lease = berth.acquire()
        say(lease.id)
        stay()
        lease.release()
        stay()
    """)
    lease_id = first_line(job)
    wait_until(lambda: watches_files(job.pid))
    for name in ("lease-", "bell-"):
        (python.server.harbour / f"{name}{lease_id}").unlink()
    wait_until(lambda: leased(python.server) == [0])
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    wait_until(lambda: all_free(python.server))
    assert lease_id in job.err


@pytest.mark.each_harbour
def test_leases_are_watched_after_a_fork_in_a_thread(python):
    """Also while the main thread does nothing that could begin it again."""
    job = python.start("""
        import os, threading, time
        lease = berth.acquire()
        def fork():
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            say(lease.id)
            time.sleep(3600)
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    """)
    lease_id = first_line(job)
    wait_until(lambda: watches_files(job.pid))
    for name in ("lease-", "bell-"):
        (python.server.harbour / f"{name}{lease_id}").unlink()
    wait_until(lambda: leased(python.server) == [0])


def test_a_worker_that_gets_the_same_lease_again_and_again_holds_it_once(python):
    script = python.script("again.py", """
        import multiprocessing, os
        def bells(lease): return sum("bell-" + lease.id in os.readlink(f"/proc/self/fd/{fd}")
                                     for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}"))
        def let_go(lease): lease.release(); return bells(lease)
        if __name__ == "__main__":
            lease = berth.acquire()
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                say(len(set(pool.map(bells, [lease] * 5))), pool.apply(let_go, [lease]))
            import copy
            assert copy.copy(lease) is lease
    """)
    result = python.server.run(sys.executable, script, env=python.env)
    # (Importing berth in the worker holds it by one more bell.)
    assert result.stdout.split() == ["1", "1"], result


@pytest.mark.each_harbour
def test_a_program_in_a_lease_that_has_ended_asks_the_queue(python):
    result = python.run("say(berth.acquire().indices)", env={"BERTH_LEASE": "abcd2345", "CUDA_VISIBLE_DEVICES": "3"})
    assert result.stdout == "[0]\n"
    assert "BERTH_LEASE" in result.stderr


@pytest.mark.each_harbour
def test_a_shells_lease_can_be_given_back_while_a_program_of_it_runs(python):
    """It is the shell's: to import berth does not keep it."""
    script = python.script("program.py", "say(berth.status()[0].state)\nstay()\n")
    shell = python.jobs.start("bash", "-c", f'eval "$({BERTH} acquire)"; {sys.executable} {script} <&0 & read line',
                              env=python.env)
    wait_until(lambda: "leased" in shell.out)
    [lease] = python.server.status()["gpus"][0]["leases"]
    assert python.server.berth("release", lease["id"]).returncode == 0
    wait_until(lambda: all_free(python.server))
    assert shell.runs
