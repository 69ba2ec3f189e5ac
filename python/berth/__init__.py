"""Berth: share the GPUs of a server safely.

>>> import berth
>>> with berth.gpus(2) as lease:        # waits its turn; sets CUDA_VISIBLE_DEVICES, and restores it
...     print(lease.indices)
[0, 1]

A lease lasts until it is released, or until this process and those of its children that hold the lease have ended,
even by SIGKILL. `acquire` leases GPUs until `release()`, `gpus` for a block, `job` for each call of a function, and
`run` for a command. `Executor` runs each task of a concurrent.futures.Executor on a lease of its own. `submit` starts a
command that goes on without this program, and `jobs` lists such jobs. `status` and `queue` show all leases and tickets.
`select` chooses GPUs without leasing them.

`import berth` is fast: modules are loaded when they are first used, and the driver is not used before a function is
called.
"""

from __future__ import annotations

import os as _os
import sys as _sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._detached import BatchProgress, DetachedJob, JobStatus, find_job, jobs, submit
    from ._errors import Error, HarbourError, Impossible, NoDriver, NotGranted, NotYours, UnknownExitCode, UsageError
    from ._executor import BrokenTask, Executor
    from ._gpu import Gpu, LeaseInfo, Process, Ticket, queue, status
    from ._job import Job, job
    from ._lease import Lease, acquire, acquire_async, gpus, select
    from ._native import __version__
    from ._program import program
    from ._run import run
    from ._waiting import Waiting

__all__ = [
    "BatchProgress", "BrokenTask", "DetachedJob", "Error", "Executor", "Gpu", "HarbourError", "Impossible", "Job",
    "JobStatus", "Lease", "LeaseInfo", "NoDriver", "NotGranted", "NotYours", "Process", "Ticket", "UnknownExitCode",
    "UsageError", "Waiting", "acquire", "acquire_async", "find_job", "gpus", "job", "jobs", "program", "queue", "run",
    "select", "status", "submit",
]

_MODULES = {
    "_detached": ("BatchProgress", "DetachedJob", "JobStatus", "find_job", "jobs", "submit"),
    "_errors": ("Error", "HarbourError", "Impossible", "NoDriver", "NotGranted", "NotYours", "UnknownExitCode", "UsageError"),
    "_executor": ("BrokenTask", "Executor"),
    "_gpu": ("Gpu", "LeaseInfo", "Process", "Ticket", "queue", "status"),
    "_job": ("Job", "job"),
    "_lease": ("Lease", "acquire", "acquire_async", "gpus", "select"),
    "_native": ("__version__",),
    "_program": ("program",),
    "_run": ("run",),
    "_waiting": ("Waiting",),
}


def __getattr__(name: str) -> object:
    """Imports the module of a public name when the name is first used."""
    for module, names in _MODULES.items():
        if name in names:
            # importlib.import_module() would do the same, but importlib itself takes time to import.
            value: object = getattr(__import__(f"berth.{module}", fromlist=[name]), name)
            globals()[name] = value
            return value
    error = AttributeError(f"module 'berth' has no attribute {name!r}")
    setattr(error, "name", name)  # with these, Python from 3.10 on suggests a similar name
    setattr(error, "obj", _sys.modules[__name__])
    raise error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


# A child of multiprocessing that was not forked from this process (spawn, forkserver), and every Python program that is
# started inside a lease, also holds that lease: see _attach.py.
if _os.environ.get("BERTH_LEASE"):
    from . import _attach as _attach
