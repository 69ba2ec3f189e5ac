"""The process of one task of `berth.Executor`. It is started as a script, with the environment of the task's lease.

It reads the task from one pipe and writes the result to another. The environment is there before this process imports
the modules of the task, which may start CUDA.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

# Python has put the folder of this script first, where modules of the package could hide others.
if __name__ == "__main__" and sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

import pickle  # noqa: E402

LENGTH_BYTES = 8  # of the numbers in front of the outcome, and of its description


def _run_task(task_fd: int) -> object:
    """The result of the task."""
    with os.fdopen(task_fd, "rb") as pipe:
        setup: dict[str, Any] = pickle.load(pipe)
        call: bytes = pickle.load(pipe)  # bytes: the modules of the task are imported later, from the parent's sys.path
    sys.path[:] = setup["sys_path"]
    if "orig_argv" in setup:
        setattr(sys, "orig_argv", setup["orig_argv"])
    from berth import _native

    if not _native.end_with_parent(setup["parent"]):
        os._exit(1)
    from multiprocessing import process, spawn

    # As in multiprocessing: a main module that starts tasks while it is imported here is refused.
    setattr(process.current_process(), "_inheriting", True)
    try:
        spawn.prepare(setup)
        function, arguments, keywords = pickle.loads(call)
    finally:
        delattr(process.current_process(), "_inheriting")
    return function(*arguments, **keywords)


def _describe(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _describe_briefly(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its text cannot be made
        return type(error).__name__


def _join(error_text: Optional[str], traceback_text: str, pickled: bytes) -> list[bytes]:
    """The outcome as it is sent. Its description comes first, so that it can be read if `pickled` cannot."""
    description = pickle.dumps((error_text, traceback_text))
    return [len(description).to_bytes(LENGTH_BYTES, "little"), description, pickled]


def _pickle_error(error: BaseException) -> list[bytes]:
    text, brief = _describe(error), _describe_briefly(error)
    try:
        return _join(brief, text, pickle.dumps(error.with_traceback(None), pickle.HIGHEST_PROTOCOL))
    except Exception:
        replacement = RuntimeError(f"the task raised an exception that cannot be pickled: {brief}")
        return _join(brief, text, pickle.dumps(replacement, pickle.HIGHEST_PROTOCOL))


def _pickle_outcome(task_fd: int) -> list[bytes]:
    try:
        return _join(None, "", pickle.dumps(_run_task(task_fd), pickle.HIGHEST_PROTOCOL))
    except BaseException as error:  # also SystemExit and KeyboardInterrupt
        return _pickle_error(error)


def main(task_fd: int, result_fd: int) -> None:
    for fd in (task_fd, result_fd):
        os.set_inheritable(fd, False)
    outcome = _pickle_outcome(task_fd)
    for stream in (sys.stdout, sys.stderr):  # what the task has printed comes before its result
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed, or None
    try:
        for part in (sum(map(len, outcome)).to_bytes(LENGTH_BYTES, "little"), *outcome):
            left = memoryview(part)
            while left:
                left = left[os.write(result_fd, left):]
    except BrokenPipeError:
        pass  # the parent has ended
    os.close(result_fd)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
