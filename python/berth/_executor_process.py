"""The process of one task of `berth.Executor`, as its program sees it: started, sent the task, awaited, and read.

_executor_worker.py is what runs in that process.
"""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import select
import signal
import subprocess
import sys

from . import _environment, _executor_worker, _native
from ._errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any, Optional

    from ._lease import Lease

_READ_SIZE = 1 << 20


class BrokenTask(Error, concurrent.futures.BrokenExecutor):
    """The process of a task ended before the task returned: it was killed, crashed, or called os._exit(). Other tasks are
    not affected."""

    def __init__(self, message: str, exit_code: Optional[int] = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """As in subprocess: -N if signal N has killed the process."""

    def __reduce__(self) -> tuple[type[BrokenTask], tuple[str, Optional[int]]]:
        return BrokenTask, (str(self), self.exit_code)


BrokenTask.__module__ = "berth"


class _RemoteTraceback(Exception):
    """The cause of an exception that a task has raised. Its text is the traceback in the process of the task."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


MAIN_SOURCES = {"init_main_from_name", "init_main_from_path"}


def describe_main() -> dict[str, Any]:
    """What the process of a task needs to import the main module. The main thread must not have ended: the main module has
    no __file__ then."""
    from multiprocessing import spawn

    setup: dict[str, Any] = spawn.get_preparation_data("berth task")
    if not os.path.exists(setup.get("init_main_from_path", os.sep)):
        del setup["init_main_from_path"]  # such as "<stdin>"
    if hasattr(sys, "orig_argv"):
        setup["orig_argv"] = sys.orig_argv  # the command that `berth status` shows for leases of the task itself
    return setup


class Outcome:
    """What has become of a task: the result or the exception."""

    def __init__(self, value: object = None, error: Optional[BaseException] = None) -> None:
        self.value = value
        self.error = error

    def was_interrupted(self) -> bool:
        """Whether Ctrl-C has ended the task. This process may handle its own SIGINT later."""
        if isinstance(self.error, BrokenTask):
            return self.error.exit_code == -signal.SIGINT
        return isinstance(self.error, KeyboardInterrupt)

    def deliver(self, future: Future[Any]) -> None:
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.value)


class TaskProcess:
    """The process of a task."""

    def __init__(self, lease: Lease, setup: dict[str, Any], call: bytes) -> None:
        from multiprocessing import spawn, util

        self._lease = lease
        setup = {**setup, "parent": os.getpid(), "authkey": bytes(setup["authkey"])}
        self._message = pickle.dumps(setup) + pickle.dumps(call)
        flags: list[str] = getattr(util, "_args_from_interpreter_flags", list)()
        task_read, self._task_write = os.pipe()
        self._result_read, result_write = os.pipe()
        try:
            command = [os.fsdecode(spawn.get_executable()), *flags, _executor_worker.__file__, str(task_read), str(result_write)]
            environment = {**_environment.environment_without_leases(), **lease.environment}
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                             pass_fds=(task_read, result_write, lease.fileno()))
        except BaseException:
            os.close(self._task_write)
            os.close(self._result_read)
            raise
        finally:
            os.close(task_read)
            os.close(result_write)
        self._handle = _native.open_process(self._process.pid)

    def __enter__(self) -> TaskProcess:
        return self

    def run(self) -> Outcome:
        """Sends the task, and waits until the process has sent the outcome, or has ended."""
        self._send()
        received = self._receive()
        if received is None:
            return Outcome(error=self._describe_end())
        size = _executor_worker.LENGTH_BYTES
        split = size + int.from_bytes(received[:size], "little")
        error_text, remote_traceback = pickle.loads(memoryview(received)[size:split])
        try:
            value = pickle.loads(memoryview(received)[split:])
        except BaseException as problem:
            if error_text is None:
                problem.__cause__ = _RemoteTraceback("the result of the task cannot be unpickled")
                return Outcome(error=problem)
            value = None
        if error_text is None:
            return Outcome(value)
        if not isinstance(value, BaseException):
            value = RuntimeError(f"the task raised an exception that cannot be unpickled: {error_text}")
        value.__cause__ = _RemoteTraceback(remote_traceback)
        return Outcome(error=value)

    def has_exited(self, patience_s: float) -> bool:
        """Whether the process exits in this time. It may go on for long: threads, atexit."""
        try:
            if self._handle is None:
                self._process.wait(patience_s)
                return True
        except subprocess.TimeoutExpired:
            return False
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(patience_s * 1000))

    def _send(self) -> None:
        left = memoryview(self._message)
        self._message = b""
        try:
            while left:
                left = left[os.write(self._task_write, left):]
        except BrokenPipeError:
            pass  # the process has ended

    def _receive(self) -> Optional[bytearray]:
        """What the process has sent; None if it ended before it had sent all."""
        os.set_blocking(self._result_read, False)
        poll = select.poll()
        for fd in (self._result_read, self._handle):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        received = bytearray()
        length = None
        has_ended = False  # a fork of the process may keep the pipe open
        while True:
            try:
                chunk = os.read(self._result_read, _READ_SIZE)
            except BlockingIOError:
                if has_ended:
                    return None
                has_ended = any(fd == self._handle for fd, _ in poll.poll())
                continue
            if not chunk:
                return None
            received += chunk
            if length is None and len(received) >= _executor_worker.LENGTH_BYTES:
                length = int.from_bytes(received[:_executor_worker.LENGTH_BYTES], "little")
                del received[:_executor_worker.LENGTH_BYTES]
            if length is not None and len(received) == length:
                return received

    def _describe_end(self) -> BrokenTask:
        code = self._process.wait()
        if code >= 0:
            return BrokenTask(f"the process of the task ended with exit code {code} before the task returned", code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return BrokenTask(f"the process of the task was killed by {name}", code)

    def __exit__(self, *_: object) -> None:
        """Waits for the end of the process: the lease lasts as long."""
        for fd in (self._task_write, self._result_read):
            os.close(fd)
        self._process.wait()
        if self._handle is not None:
            os.close(self._handle)
