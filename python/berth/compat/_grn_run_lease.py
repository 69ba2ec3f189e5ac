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

_VARIABLE = "BERTH_GRN_RUN"  # as JSON: the lease, and the variables that it has changed as they were before

_lock = threading.Lock()


def command_variables(lease_variables: Mapping[str, str]) -> Dict[str, str]:
    """The variables for a command that runs under the lease with these variables."""
    before = {name: os.environ.get(name) for name in lease_variables}
    return {**lease_variables, _VARIABLE: json.dumps({"lease": lease_variables["BERTH_LEASE"], "before": before})}


def _read_variable() -> Optional[Tuple[str, Dict[str, Optional[str]]]]:
    try:
        fields = json.loads(os.environ[_VARIABLE])
        return str(fields["lease"]), {str(name): value for name, value in fields["before"].items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def release_run_lease(lease: str) -> None:
    """Releases the lease of a command of grn-run. Has no effect if it has ended already."""
    subprocess.run([berth.program(), "release", lease], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def leave_run_lease() -> None:
    """Called before a job asks for its own GPU: gives up the lease of the grn-run above, and sets this process's
    environment to what it was outside of that lease. Does nothing if the process runs inside another lease."""
    with _lock:
        found = _read_variable()
        if found is None or os.environ.get("BERTH_LEASE") != found[0]:
            return
        lease, before = found
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        os.environ.pop(_VARIABLE)
        release_run_lease(lease)
