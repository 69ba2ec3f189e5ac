"""Acquires, holds and releases leases in a Python program."""

from __future__ import annotations

import contextvars
import os
import sys
from _thread import get_ident  # `threading` imports much more

from . import _cuda, _environment, _log, _native, _request
from ._errors import Impossible, NotGranted, UsageError
from ._program import program
from ._wait_reporter import WaitReporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from types import TracebackType
    from typing import Callable, Optional, Union

    from typing_extensions import Unpack

    from ._gpu import Gpu
    from ._request_keywords import Choice, Request

    # The object that keeps a lease alive in this process.
    LeaseHandle = Union[_native.Lease, "_AttachedHandle"]

_MAX_ERROR_TEXT = 4096  # characters


def _gpus_text(gpus: str) -> str:
    """"GPU 0" or "GPUs 0,1", from a list that is separated by commas."""
    return f"{'GPUs' if ',' in gpus else 'GPU'} {gpus}"


class Lease(_native.Releasable):
    """GPUs that are leased until `release()`, or until the last process that holds the lease has ended.

    These processes hold it: this one, its forked children, programs that it starts with the descriptor `fileno()` open,
    and Python programs started inside the lease that import berth. A lease can be sent to a child of multiprocessing,
    which then also holds it.

    `release()` releases the GPUs and restores os.environ; a second call has no effect. It returns False if other
    processes hold the lease: the lease then lasts until they have ended, and the log names them.

    >>> import berth
    >>> with berth.acquire(mem="8GiB") as lease:
    ...     lease.indices, lease.environment["CUDA_VISIBLE_DEVICES"]
    ([0], '0')
    >>> lease.released
    True
    """

    def __init__(self, handle: LeaseHandle, lease_id: str, indices: list[Union[int, str]], uuids: list[str],
                 environment: dict[str, str]) -> None:
        super().__init__()
        self._handle = handle
        self._gpus: Optional[list[Gpu]] = None
        self._pid = os.getpid()
        self.id = lease_id
        """The id that `berth status` and BERTH_LEASE show."""
        self.indices = indices
        """The indices of the GPUs: numbers, or "card:instance" for MIG instances."""
        self.uuids = uuids
        self.environment = environment
        """The environment variables for a program on these GPUs: CUDA_VISIBLE_DEVICES and others."""
        self.placeholders: list[object] = []
        """The results of the placeholder function, one for each device."""
        self.released = False

    @property
    def gpus(self) -> list[Gpu]:
        """The state of the GPUs when they were granted; `berth.status()` shows their current state."""
        from ._gpu import gpus_from_json

        if self._gpus is None:
            self._gpus = [gpu for gpu in gpus_from_json(self._handle.gpus_json()) if gpu.uuid in self.uuids]
        return self._gpus

    def fileno(self) -> int:
        """The bell: a program started with `subprocess.Popen(..., pass_fds=[lease.fileno()])` holds the lease."""
        return self._handle.fileno()

    def _release(self) -> bool:
        """Called by release(). If a signal handler raises in the middle, a second call completes it."""
        if self.released:
            return True
        _environment.pop(self.id)
        while self.placeholders:
            release = getattr(self.placeholders.pop(), "release", None)
            if callable(release):
                release()
        for notice in self._handle.notices():
            _log.warning("%s", notice)
        self._record_failure_of(sys.exc_info()[1])
        ended = self._handle.release()
        _held_leases.pop(self.id, None)
        self.released = True
        if ended:
            _log.info("released lease %s", self.id)
        elif self._pid == os.getpid():
            _log.warning("lease %s lasts until these processes end: %s", self.id,
                         self._handle.holders() or "processes that are not visible from here")
        return ended

    @property
    def measures(self) -> bool:
        """Whether this is the first run of its job type with mem="auto": it has whole GPUs, and other jobs of its type
        wait until it is released."""
        return self._handle.is_profiling_run()

    def _record_failure_of(self, error: Optional[BaseException]) -> None:
        """Reports the exception because of which the lease is released, if there is one. Berth then learns nothing from
        this run, unless the exception says that the memory was not sufficient."""
        ended_well = isinstance(error, SystemExit) and error.code in (None, 0)
        if error is not None and not ended_well:
            self.failed(f"{type(error).__name__}: {error}")

    def failed(self, words: str = "") -> None:
        """Reports that the job on these GPUs has failed: Berth then learns nothing from this run. If `words` (such as
        the error message) say that the memory was not sufficient, the next run reserves more. A lease that is released
        while an exception is handled counts as failed without this call."""
        self._handle.record_failure(_request.clean(words)[-_MAX_ERROR_TEXT:])

    def _current_entry(self) -> Lease:
        """Called by __exit__()."""
        return self

    def _exit_entry(self, entry: Lease) -> None:
        """Called by __exit__()."""
        entry._release()

    def __enter__(self) -> Lease:
        return self

    def __repr__(self) -> str:
        state = "released" if self.released else _gpus_text(",".join(map(str, self.indices)))
        return f"<berth.Lease {self.id}: {state}>"

    def __reduce__(self) -> tuple[Callable[..., Lease], tuple[object, ...]]:
        return _unpickle_lease, (self.id, self.indices, self.uuids, self.environment)


class _AttachedHandle:
    """The handle of a lease that was sent to this process by pickle."""

    def __init__(self, bell: Optional[int]) -> None:
        self._bell = bell

    def gpus_json(self) -> str:
        return _native.status()

    def fileno(self) -> int:
        return -1 if self._bell is None else self._bell

    def record_failure(self, error_text: str) -> None:
        """Does nothing: the process that acquired the lease reports failures."""

    def is_profiling_run(self) -> bool:
        return False

    def release(self) -> bool:
        if self._bell is not None:
            os.close(self._bell)
        self._bell = None
        return True

    def notices(self) -> list[str]:
        return []

    def holders(self) -> str:
        return ""


def _unpickle_lease(lease_id: str, indices: list[Union[int, str]], uuids: list[str],
                    environment: dict[str, str]) -> Lease:
    """Unpickles a lease: this process then also holds it, and gets its environment variables."""
    if lease_id in _held_leases:
        return _held_leases[lease_id]
    program()
    bell = _native.attach(lease_id)
    lease = Lease(_AttachedHandle(bell), lease_id, indices, uuids, environment)
    if bell is None:
        _log.warning("lease %s was sent to this process, but has already ended", lease_id)
        lease.released = True
        return lease
    _held_leases[lease_id] = lease
    os.environ.update(environment)  # permanently: this process runs inside the lease, like a forked child
    return lease


# All leases that are not released: a lease must not end because the program has dropped its object.
_held_leases: dict[str, Lease] = {}
# In a forked child: the leases of its parent. The child holds them by their bells until it ends.
_inherited: list[Lease] = []
# The lease of the innermost `with berth.gpus()` block of this thread or task.
_enclosing_lease: contextvars.ContextVar[Optional[Lease]] = contextvars.ContextVar("berth_lease", default=None)


def enclosing_lease() -> Optional[Lease]:
    """The lease of the innermost `with berth.gpus()` block of this thread or task, unless it has ended."""
    lease = _enclosing_lease.get()
    return None if lease is None or lease.released else lease


def _restrictions(parsed: _request.ParsedRequest) -> tuple[Optional[str], str]:
    """The value of CUDA_VISIBLE_DEVICES that restricts the request, and the id of the lease that provides the GPUs
    ("": the queue)."""
    if parsed.within is not None and parsed.within.released:
        raise UsageError(f"within: lease {parsed.within.id} has ended; omit within= to wait in the queue")
    outer = parsed.within or enclosing_lease()
    if outer is None:
        return _environment.outer_restrictions()
    return None, outer.id


def _make_selector(parsed: _request.ParsedRequest) -> Optional[Callable[[], list[str]]]:
    matches = parsed.selector
    if matches is None:
        return None
    from ._gpu import status

    return lambda: [gpu.uuid for gpu in status() if gpu.uuid is not None and matches(gpu)]


def _request_own_gpus(own: _cuda.OwnGpus, parsed: _request.ParsedRequest,
                      request: Callable[[dict[str, str], int, bool], Optional[_native.Lease]]) -> Optional[_native.Lease]:
    """Waits for the GPUs on which this process computes already, unless others are free now and its own are leased."""
    if own.leased:
        try:
            return request(parsed.values, 0, True)
        except (NotGranted, Impossible):
            pass  # no other GPU is free: a wait for any GPU would be a wait for this process itself, among others
    try:
        return request(own.values, own.mib_in_use, parsed.no_wait)
    except Impossible:
        # The request excludes the process's own GPUs, by their name for example.
        return request(parsed.values, 0, parsed.no_wait)


def wait_for_lease(parsed: _request.ParsedRequest, interrupt: Optional[_native.Interrupt],
                   reporter: Optional[WaitReporter] = None) -> Optional[_native.Lease]:
    """Waits for a lease; None if `interrupt` was cancelled."""
    program()
    _native.prefetch_snapshot()
    visible, within = _restrictions(parsed)
    if reporter is None:
        reporter = WaitReporter(parsed.on_wait, parsed.progress, _held_leases)

    def request(values: dict[str, str], mib_in_use: int, no_wait: bool) -> Optional[_native.Lease]:
        return _native.acquire(values, no_wait, visible, within, mib_in_use, parsed.command, interrupt,
                               reporter.report_wait, reporter.report_time, reporter.report_notice, _make_selector(parsed))

    own = None
    if parsed.set_environment and parsed.selector is None and not within:
        own = _cuda.request_own_gpus(parsed.values, _held_leases)
    try:
        if own is None:
            native = request(parsed.values, 0, parsed.no_wait)
        else:
            native = _request_own_gpus(own, parsed, request)
    finally:
        reporter.clear_line()
    if native is not None and reporter.has_waited:
        reporter.report_grant(native.describe_grant())
    return native


def adopt_lease(native: _native.Lease, parsed: _request.ParsedRequest) -> Lease:
    """Makes a Lease of a native lease that was just granted, and sets up environment and placeholders."""
    lease = Lease(native, *native.describe(parsed.ids))
    try:
        _held_leases[lease.id] = lease
        _log.info("lease %s: %s", lease.id, _gpus_text(lease.environment["BERTH_GPUS"]))
        if parsed.set_environment:
            _warn_if_cuda_started(lease)
            _environment.push(lease.id, lease.environment)
        _start_placeholders(lease, parsed.placeholder)
    except BaseException:
        lease.release()
        raise
    return lease


def _warn_if_cuda_started(lease: Lease) -> None:
    if _native.getenv([_environment.VISIBLE_DEVICES]) == [lease.environment[_environment.VISIBLE_DEVICES]]:
        return
    started_by = _cuda.started_by()
    pid = os.getpid()
    if started_by is not None and not all(any(process.pid == pid for process in gpu.processes) for gpu in lease.gpus):
        import warnings

        warnings.warn(
            f"CUDA was already started ({started_by}), so this process keeps the GPUs that were visible then, not "
            f"those of lease {lease.id}; acquire the lease before any code uses a GPU", RuntimeWarning, stacklevel=5)


def _start_placeholders(lease: Lease, placeholder: Union[bool, Callable[[int], object]]) -> None:
    if callable(placeholder):
        for device in range(len(lease.uuids)):
            lease.placeholders.append(placeholder(device))
    elif placeholder:
        try:
            lease.placeholders.append(_native.start_placeholders(lease.uuids))
        except Exception as problem:  # the program continues without placeholders, as `berth run` does
            _log.warning("%s", problem)


def acquire(count: Optional[int] = None, **request: Unpack[Request]) -> Lease:
    """Waits for GPUs and leases them until `release()`, or until this process ends, even by SIGKILL.

    Which GPUs:
        count        number of GPUs, granted together (default: 1)
        gpu          only these: 0, "0,2", "0-3", "all", or a list of indices and UUIDs
        name         only GPUs with this text in their name, such as "3090"
        min_mem      only GPUs with at least this much memory, such as "40GiB"
        util, mem_util   only GPUs with at most this utilization, in percent
        processes    accept GPUs with up to this many processes that have no lease
        policy       "spread" (the emptiest, default), "pack" (the fullest) or "random"
        selector     function that gets a `Gpu` and returns whether it may be used

    How to share, wait and run:
        mem          share the GPUs, and reserve this much memory on each, such as "8GiB"; "auto": what earlier runs
                     needed; "all" (default): whole GPUs
        job          job type under which Berth learns the memory and run time
        time         expected run time, such as "2h", seconds or a timedelta
        timeout      raise NotGranted after waiting this long, such as "10m"
        no_wait      raise NotGranted at once if the GPUs are not free
        label        text that `berth status` shows
        on_wait      function that gets a `Waiting` when the wait begins and at each change
        progress     whether to show a line on stderr during the wait (default: on a terminal)
        command      command that `berth status` shows (default: the command line)
        ids          form of the GPUs in CUDA_VISIBLE_DEVICES: "index" (default) or "uuid"
        set_environment  False leaves os.environ alone (default: True)
        placeholder  True, or a function that gets each device number: use a little memory of the GPUs
        within       lease of this process from which to take the GPUs

    Raises NotGranted, Impossible, NoDriver, HarbourError, NotYours, or UsageError for invalid arguments.

    >>> import berth
    >>> lease = berth.acquire(name="A6000", timeout="10m")
    Traceback (most recent call last):
        ...
    berth.Impossible: no GPU here has 'A6000' in its name...
    >>> lease = berth.acquire(label="exploring")
    >>> lease
    <berth.Lease ...: GPU 0>
    >>> lease.release()
    True
    """
    return _acquire(_request.parse(count, request))


def _acquire(parsed: _request.ParsedRequest) -> Lease:
    # A signal handler may raise between any two steps. Until adopt_lease() has registered the lease, only this frame
    # refers to it, so the lease ends with the frame.
    native = wait_for_lease(parsed, None)
    assert native is not None, "without an interrupt the wait cannot be cancelled"
    return adopt_lease(native, parsed)


class gpus(_native.InterruptSafeContext):
    """GPUs for a block of code: `with berth.gpus(2, name="A6000") as lease:`, or `async with`.

    Takes the arguments of `acquire`. A request inside the block, in the same thread or task, is granted GPUs of this
    lease, without waiting in the queue.

    >>> import berth, os
    >>> with berth.gpus(2):
    ...     print(os.environ["CUDA_VISIBLE_DEVICES"])
    ...     with berth.gpus() as one:
    ...         print(one.indices)
    0,1
    [0]
    """

    def __init__(self, count: Optional[int] = None, **request: Unpack[Request]) -> None:
        super().__init__()
        self._parsed = _request.parse(count, request)
        self._entries: list[_Entry] = []

    def __enter__(self) -> Lease:
        lease = _acquire(self._parsed)
        try:
            self._entries.append(_Entry(lease, _enclosing_lease.set(lease), _current_task_key()))
            return lease
        except BaseException:
            lease.release()
            raise

    def _current_entry(self) -> _Entry:
        """Called by __exit__(). The last entry of this thread or task; if it has none, the last entry of all."""
        own_entries = [entry for entry in self._entries if entry.task_key == _current_task_key()]
        return (own_entries or self._entries)[-1]

    def _exit_entry(self, entry: _Entry) -> None:
        """Called by __exit__(). If a signal handler raises in the middle, a second call completes it."""
        try:
            _enclosing_lease.reset(entry.token)
        except (ValueError, RuntimeError):
            pass  # this context is not the one of __enter__(), as in generators; or this is the second call
        entry.lease.release()
        if entry in self._entries:
            self._entries.remove(entry)

    async def __aenter__(self) -> Lease:
        lease = await _acquire_async(self._parsed)
        self._entries.append(_Entry(lease, _enclosing_lease.set(lease), _current_task_key()))
        return lease

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.__exit__(kind, error, trace)


class _Entry:
    """A `with` block that was entered and not yet left."""

    def __init__(self, lease: Lease, token: contextvars.Token[Optional[Lease]], task_key: tuple[int, int]) -> None:
        self.lease = lease
        self.token = token
        self.task_key = task_key


def _current_task_key() -> tuple[int, int]:
    """Identifies this thread and, if there is one, its asyncio task."""
    tasks = sys.modules.get("asyncio.tasks")
    try:
        task = None if tasks is None else tasks.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return get_ident(), id(task)


async def acquire_async(count: Optional[int] = None, **request: Unpack[Request]) -> Lease:
    """Like `acquire`, for asyncio: other tasks run while it waits. Cancelling the task cancels the request.

    >>> import asyncio, berth
    >>> async def main():
    ...     lease = await berth.acquire_async(timeout="1m")
    ...     lease.release()
    >>> asyncio.run(main())
    """
    return await _acquire_async(_request.parse(count, request))


async def _acquire_async(parsed: _request.ParsedRequest) -> Lease:
    import asyncio
    import threading

    # Its own thread, not one of the loop's executor: those are few, and a wait may take hours.
    loop = asyncio.get_running_loop()
    granted: asyncio.Future[Optional[_native.Lease]] = loop.create_future()
    interrupt = _native.Interrupt()
    context = contextvars.copy_context()

    def deliver(native: Optional[_native.Lease], problem: Optional[BaseException]) -> None:
        if granted.cancelled():
            if native is not None:
                native.release()
        elif problem is not None:
            granted.set_exception(problem)
        else:
            granted.set_result(native)

    def wait_in_thread() -> None:
        native, problem = None, None
        try:
            native = context.run(wait_for_lease, parsed, interrupt)
        except BaseException as caught:
            problem = caught
        try:
            loop.call_soon_threadsafe(deliver, native, problem)
        except RuntimeError:  # the loop is closed, so no task waits for the lease any more
            if native is not None:
                native.release()

    threading.Thread(target=wait_in_thread, name="berth.acquire_async", daemon=True).start()
    try:
        native = await granted
    except BaseException:  # cancelled, or closed
        interrupt.cancel()
        if granted.done() and not granted.cancelled():  # the grant came before the cancellation
            unclaimed = None if granted.exception() else granted.result()
            if unclaimed is not None:
                unclaimed.release()
        raise
    assert native is not None, "only a cancelled task gets no lease"
    return adopt_lease(native, parsed)


def select(count: Optional[int] = None, *, set_environment: bool = False,
           **choice: Unpack[Choice]) -> list[Gpu]:
    """Chooses GPUs that are free now, without leasing them: a moment later another job may have them.

    Takes those keywords of `acquire` that choose GPUs: gpu, name, min_mem, util, mem_util, processes, policy, selector.
    With `set_environment`, sets CUDA_VISIBLE_DEVICES permanently. Raises NotGranted if too few GPUs are free. Inside a
    lease, chooses among the GPUs of that lease.

    >>> import berth
    >>> [gpu.index for gpu in berth.select(count=2, util=10)]
    [0, 1]
    """
    from ._gpu import status

    program()
    _request.check_keywords(choice, _request.CHOICE_KEYWORDS, "select")
    parsed = _request.parse(count, choice)
    visible, within = _restrictions(parsed)
    reporter = WaitReporter(None, False)
    uuids = _native.select(parsed.values, visible, within, reporter.report_notice, _make_selector(parsed))
    found = {gpu.uuid: gpu for gpu in status()}
    chosen = [found[uuid] for uuid in uuids if uuid in found]
    if set_environment:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ[_environment.VISIBLE_DEVICES] = ",".join(
            str(gpu.index) if isinstance(gpu.index, int) else str(gpu.uuid) for gpu in chosen)
    return chosen


def _move_leases_to_inherited() -> None:
    _inherited.extend(_held_leases.values())
    _held_leases.clear()


os.register_at_fork(before=_native.pause_watching, after_in_parent=_native.resume_watching,
                    after_in_child=_move_leases_to_inherited)
