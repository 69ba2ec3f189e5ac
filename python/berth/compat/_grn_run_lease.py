"""The lease under which `grn-run` runs a command, and how a `@grn.job` below the command gives it up.

A command may compute itself, or it may call jobs, which lease their GPUs themselves. grn-run cannot know which (the
command may be a shell script or a build tool), so it leases a GPU for each command. The first job that is called below
gives that lease up: otherwise the job would run inside that one lease, without waiting and without being measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Dict, Mapping, Optional, Tuple

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
    subprocess.run([berth.program(), "release", lease], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def leave_run_lease() -> None:
    """Called before a job asks for its own GPU: gives up the lease of the grn-run above, and sets this process's
    environment to what it was outside of that lease. Does nothing if the process runs inside another lease."""
    with _lock:
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
            release_run_lease(lease)
