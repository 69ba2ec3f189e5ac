"""The processes of a test, by the harbour that they were started with: whoever is their parent by now."""

import contextlib
import os
import pathlib
import signal


def processes_of(harbour):
    """Every process that was started with this harbour, however far it has wandered."""
    mark = f"BERTH_DIR={harbour}\0".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_all_of(harbour):
    for pid in processes_of(harbour):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
