"""The lease under which `grn-run` runs a command, and how a `@grn.job` below the command gives it up.

A command may compute itself, or it may call jobs, which lease their GPUs themselves. grn-run cannot know which (the
command may be a shell script or a build tool), so it leases a GPU for each command. The first job that is called below
gives that lease up: otherwise the job would run inside that one lease, without waiting and without being measured. The
lease stays while another program below the command computes on its GPU.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from typing import Dict, List, Mapping, Optional, Tuple

import berth

_VARIABLE = "BERTH_GRN_RUN"  # JSON: each variable of the lease, with its value and the one that it had before

_lock = threading.Lock()


def command_variables(lease_variables: Mapping[str, str]) -> Dict[str, str]:
    """The variables for a command that runs under the lease with these variables."""
    values = {name: [value, os.environ.get(name)] for name, value in lease_variables.items()}
    values[_VARIABLE] = ["", os.environ.get(_VARIABLE)]  # a grn-run further up
    return {**lease_variables, _VARIABLE: json.dumps(values)}


def _read_variable() -> Dict[str, Tuple[str, Optional[str]]]:
    try:
        values = json.loads(os.environ[_VARIABLE])
        return {str(name): (leased, before) for name, (leased, before) in values.items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def release_run_lease(lease: str) -> None:
    """Releases the lease of a command of grn-run. Has no effect if it has ended already."""
    import subprocess

    subprocess.run([berth.program(), "release", lease], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def _find_users(lease: str) -> List[int]:
    """The other processes that compute under the lease."""
    return [process.pid for gpu in berth.status() for process in gpu.processes
            if process.lease == lease and process.pid != os.getpid()]


def _wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        time.sleep(1)  # it has ended, and the driver has not noticed yet
        return
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)


def _release_when_unused(lease: str) -> None:
    for pid in iter(lambda: next(iter(_find_users(lease)), None), None):
        _wait_for_end(pid)
    release_run_lease(lease)


def leave_run_lease() -> None:
    """Called before a job asks for its own GPU: gives up the lease of the grn-run above, and sets this process's
    environment to what it was outside of that lease. Does nothing if the process runs inside another lease."""
    with _lock:
        left = set()
        while True:
            values = _read_variable()
            lease = os.environ.get("BERTH_LEASE")
            if lease is None or lease != values.get("BERTH_LEASE", ("", None))[0]:
                return
            for name, (leased, before) in values.items():
                if name != _VARIABLE and os.environ.get(name) != leased:
                    continue  # the program has set it since
                if before is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = before
            if lease in left:
                return  # the variable was inherited twice
            left.add(lease)
            if _find_users(lease):
                threading.Thread(target=_release_when_unused, args=(lease,), daemon=True).start()
            else:
                release_run_lease(lease)
