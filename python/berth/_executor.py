"""`berth.Executor`: a concurrent.futures.Executor that runs each task on a lease of its own, in a process of its own.

A few threads wait in Berth's queue, each with the ticket of one task, in the order of the tasks. When a task has its
lease, a thread of its own starts the task's process, sends it the task, and receives the result (_executor_process.py).
"""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import sys
import threading
import weakref
from collections import deque

from . import _environment, _native, _request
from ._errors import UsageError
from ._executor_process import MAIN_SOURCES, BrokenTask as BrokenTask, Outcome, TaskProcess, describe_main
from ._lease import Lease, adopt_lease, wait_for_lease, enclosing_lease
from ._wait_reporter import WaitReporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Any, Callable, Optional, TypeVar

    from typing_extensions import ParamSpec, Unpack

    from ._request_keywords import TaskRequest

    T = TypeVar("T")
    P = ParamSpec("P")

KEYWORDS = _request.KEYWORDS - {"set_environment"}
_MAX_WAITING = 4  # tickets at once: others have their turn between the tasks, and a thousand tasks do not make a thousand threads
_EXIT_PATIENCE_S = 5.0  # how long a result waits for the end of the process, so that the GPUs are free when the future is done


class _Task:
    def __init__(self, future: Future[Any], call: tuple[Any, ...], parsed: _request.ParsedRequest, is_first: bool) -> None:
        self.future = future
        self.setup = describe_main()
        self.call: Optional[tuple[Any, ...]] = call
        self.parsed = parsed
        parsed.set_environment = False  # of this process; nor does it matter which GPUs this process uses
        self.is_first = is_first
        self.is_claimed = False  # runs, or was cancelled
        self.interrupt: Optional[_native.Interrupt] = None  # of the wait in the queue

    def pickle_call(self) -> bytes:
        """The function and its arguments, for the process of the task. A second call is an error."""
        assert self.call is not None
        function = self.call[0]
        if not MAIN_SOURCES & self.setup.keys() and getattr(function, "__module__", None) == "__main__":
            raise pickle.PicklingError(f"{function!r} is defined in a main program that is not a file, such as a notebook or 'python -c', "
                                       "so the process of a task cannot import it; define it in a module")
        pickled = pickle.dumps(self.call, pickle.HIGHEST_PROTOCOL)
        self.call = None
        return pickled


class _TaskWaitReporter(WaitReporter):
    """Reports the wait of the executor's first task as usual, and that of others only to the callback and the log's
    level INFO: that tasks wait for each other is normal."""

    def __init__(self, task: _Task, on_ticket: Callable[[], None]) -> None:
        parsed = task.parsed
        super().__init__(parsed.on_wait, parsed.progress if task.is_first else False, quiet=not task.is_first)
        self._on_ticket = on_ticket

    def report_wait(self, *state: Any) -> None:
        try:
            super().report_wait(*state)
        finally:
            self._on_ticket()


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


class Executor(concurrent.futures.Executor):
    """Runs each task on GPUs of its own: a concurrent.futures.Executor that waits in Berth's queue.

    Takes the number of GPUs of each task and the keywords of `acquire`. Each task gets a lease and a new Python process, in
    which CUDA_VISIBLE_DEVICES is set before any module is imported. The lease ends with the process of the task.

        max_workers      tasks that wait or run at the same time (default: as many as get GPUs). Inside a lease, tasks with
                         whole GPUs are never more than it has GPUs for

    Functions, arguments, results and exceptions are sent by pickle, as with ProcessPoolExecutor and the start method
    "spawn": a script needs `if __name__ == "__main__":`. Only a few tasks wait in the queue at a time. `Future.cancel()`
    removes a task that waits; a task that runs cannot be cancelled. If the process of a task is killed, its future raises
    BrokenTask. If this program is killed, its tasks are, too.

    >>> import berth, os
    >>> with berth.Executor(mem="8GiB") as executor:
    ...     future = executor.submit(os.getenv, "CUDA_VISIBLE_DEVICES")
    ...     print(future.result(), list(executor.map(abs, [-1, 2])))
    0 [1, 2]
    """

    def __init__(self, count: Optional[int] = None, *, max_workers: Optional[int] = None, **request: Unpack[TaskRequest]) -> None:
        if max_workers is not None and (isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1):
            raise UsageError(f"max_workers: {max_workers!r} is not a whole number from 1")
        _refuse_import_of_main()
        _request.check_keywords(request, KEYWORDS | {"max_workers"}, "Executor")
        self._count = count
        self._request: dict[str, Any] = {"within": enclosing_lease(), **request}
        parsed = _request.parse(count, self._request)
        if not isinstance(parsed.placeholder, bool):
            raise UsageError("placeholder: a function cannot run in the process of a task; use True")
        _native.check_request(parsed.values, parsed.no_wait)
        self._max_active = _limit_inside_lease(parsed)
        shares_gpus = parsed.values.get("mem", "all") not in ("all", "auto")
        if max_workers is not None and (self._max_active is None or shares_gpus or max_workers < self._max_active):
            self._max_active = max_workers  # tasks with whole GPUs are never more than there are GPUs
        self._pid = os.getpid()
        self._lock = threading.RLock()  # reentrant: a signal handler may call submit()
        self._pending: deque[_Task] = deque()
        self._entering: Optional[_Task] = None  # the task whose request has no ticket yet
        self._waiting: list[_Task] = []  # those for which a thread waits in the queue
        self._active = 0  # tasks that wait or run
        self._queue_threads = 0
        self._threads: list[threading.Thread] = []
        self._submitted = 0
        self._is_shut_down = False
        _executors.add(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedules fn(*args, **kwargs), and returns its future."""
        if self._pid != os.getpid():
            raise RuntimeError("this executor belongs to the parent of this process; make one here")
        name = f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        request = {"label": name, **self._request}
        if request.get("mem") == "auto" and request.get("job") is None:
            request["job"] = f"{_request.script_type()}: {name}"
        parsed = _request.parse(self._count, request)
        future: Future[T] = concurrent.futures.Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            task = _Task(future, (fn, args, kwargs), parsed, self._submitted == 0)
            self._submitted += 1
            reference = weakref.ref(task)  # a task that has ended must not keep its future and its result
            future.add_done_callback(lambda _: self._forget_cancelled(reference()))
            self._pending.append(task)
            if not self._start_queue_thread():
                self._pending.remove(task)
                raise RuntimeError("no thread can be started for the task; check 'ulimit -u'")
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No task can be submitted any more. With `wait`, returns when all tasks and their processes have ended. With
        `cancel_futures`, tasks that have no lease yet are cancelled and leave the queue."""
        with self._lock:
            self._is_shut_down = True
        if cancel_futures:
            self._cancel_waiting()
        while wait:
            with self._lock:
                running = [thread for thread in self._threads if thread.is_alive()]
            running = [thread for thread in running if thread is not threading.current_thread()]
            if not running:
                break
            for thread in running:
                thread.join()

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        """Ctrl-C and SystemExit also cancel what waits."""
        self.shutdown(cancel_futures=kind is not None and not issubclass(kind, Exception))

    def _cancel_waiting(self) -> None:
        with self._lock:
            tasks = [*self._waiting, *self._pending]
        for task in reversed(tasks):  # the last first, so that none of them is granted in between
            task.future.cancel()

    def _forget_cancelled(self, task: Optional[_Task]) -> None:
        """Called when the future of a task is done. If it was cancelled, the request leaves the queue."""
        if task is None or not task.future.cancelled():
            return
        with self._lock:
            if task.is_claimed:
                return
            task.is_claimed = True
            task.call = None
            task.future.set_running_or_notify_cancel()
            if task.interrupt is not None:
                task.interrupt.cancel()

    def _claim(self, task: _Task) -> bool:
        """Whether the caller runs the task, which cannot be cancelled any more then."""
        with self._lock:
            if task.is_claimed:
                return False
            task.is_claimed = True
            return task.future.set_running_or_notify_cancel()

    def _start_thread(self, target: Callable[..., None], *arguments: object) -> bool:
        thread = threading.Thread(target=target, args=arguments, name="berth.Executor")
        try:
            with self._lock:
                self._threads = [one for one in self._threads if one.is_alive() or one.ident is None]
                self._threads.append(thread)
            thread.start()
        except RuntimeError:  # too many threads, or the interpreter is shutting down
            with self._lock:
                self._threads.remove(thread)
            return False
        return True

    def _can_take(self) -> bool:
        return bool(self._pending) and self._entering is None and (self._max_active is None or self._active < self._max_active)

    def _start_queue_thread(self) -> bool:
        """Called, with the lock, when a further task may be able to enter the queue. False: no thread can be started, and
        there is none that will take the task later."""
        if not self._can_take() or self._queue_threads >= _MAX_WAITING:
            return True
        self._queue_threads += 1
        if self._start_thread(self._serve_queue):
            return True
        self._queue_threads -= 1
        return self._active > 0 or self._queue_threads > 0

    def _serve_queue(self) -> None:
        """Waits in the queue with one task after the other."""
        while True:
            with self._lock:
                if not self._can_take():
                    self._queue_threads -= 1
                    return
                task = self._pending.popleft()
                if task.is_claimed:  # cancelled
                    continue
                self._active += 1
                self._entering = task
                self._waiting.append(task)
                task.interrupt = _native.Interrupt()
            lease, call, problem = None, b"", None
            try:
                call = task.pickle_call()
                reporter = _TaskWaitReporter(task, lambda: self._end_entering(task))
                lease = wait_for_lease(task.parsed, task.interrupt, reporter)
            except BaseException as caught:
                problem = caught
            with self._lock:
                self._waiting.remove(task)
                task.interrupt = None  # closes its descriptors
                runs = self._claim(task)
                self._end_entering(task)
            if runs and lease is not None:
                if not self._start_thread(self._run_task, task, lease, call):
                    self._run_task(task, lease, call)
                continue
            if lease is not None:
                lease.release()
            with self._lock:
                self._active -= 1
            if runs:
                task.future.set_exception(problem)
            problem = None  # its traceback refers to this frame

    def _end_entering(self, task: _Task) -> None:
        """The request of the task has its ticket or its lease: the request of the next task may follow."""
        with self._lock:
            if self._entering is task:
                self._entering = None
                self._start_queue_thread()

    def _run_task(self, task: _Task, native: _native.Lease, call: bytes) -> None:
        """Runs a task that has its lease. The thread must last as long as the process: see end_with_parent()."""
        try:
            native.set_other_threads_fork()
            lease = adopt_lease(native, task.parsed)
            outcome: Optional[Outcome] = None
            try:
                with TaskProcess(lease, task.setup, call) as process:
                    outcome = process.run()
                    if outcome.was_interrupted():
                        self._cancel_waiting()  # before the release, which would start a further task
                    if outcome.error is not None:
                        lease.failed(f"{type(outcome.error).__name__}: {outcome.error}")
                    if not process.has_exited(_EXIT_PATIENCE_S):
                        outcome.deliver(task.future)
            finally:
                lease.release()
            # Now the GPUs are free, and a fork of this program does not hold the lease.
            if not task.future.done():
                outcome.deliver(task.future)
        except BaseException as problem:
            if not task.future.done():
                task.future.set_exception(problem)
        with self._lock:
            self._active -= 1
            if self._start_queue_thread():
                return
            self._queue_threads += 1
        self._serve_queue()


def _refuse_import_of_main() -> None:
    """Without this, a script that starts tasks when it is imported would start itself again and again."""
    from multiprocessing import process

    if getattr(process.current_process(), "_inheriting", False):
        raise RuntimeError("a task imports the script that has started it; the script must make its berth.Executor only below "
                           "'if __name__ == \"__main__\":'")


def _limit_inside_lease(parsed: _request.ParsedRequest) -> Optional[int]:
    """How many tasks run at once inside a lease, where requests do not wait; None: no limit, they wait in the queue."""
    if parsed.within is not None:
        available = len(parsed.within.uuids)
    elif _environment.outer_restrictions()[1]:
        available = len([gpu for gpu in os.environ.get("BERTH_GPUS", "").split(",") if gpu])
    else:
        return None
    return max(1, available // _count_gpus(parsed.values, available))


def _count_gpus(values: dict[str, str], available: int) -> int:
    """How many GPUs a task needs; `gpu="all"` means those that are available."""
    if "count" in values:
        return int(values["count"])
    if values.get("gpu", "").strip() == "all":
        return max(1, available)
    count = 0
    for word in values.get("gpu", "").split(","):
        first, _, last = (part.strip() for part in word.partition("-"))
        count += max(1, int(last) - int(first) + 1) if first.isdigit() and last.isdigit() else 1  # a range, or one index or UUID
    return count


def _cancel_after_interrupt() -> None:
    """If Ctrl-C ends the program, its exit does not wait until tasks that wait have run."""
    last = getattr(sys, "last_type", None)
    if last is None or not issubclass(last, KeyboardInterrupt):
        return
    for executor in list(_executors):
        if executor._pid == os.getpid():
            executor.shutdown(wait=False, cancel_futures=True)


# As concurrent.futures does it: called when the main thread has ended, before other threads are awaited.
try:
    getattr(threading, "_register_atexit", lambda function: None)(_cancel_after_interrupt)
except RuntimeError:  # the interpreter is shutting down
    pass
