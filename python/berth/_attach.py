"""Holding the lease inside which this program was started, so that it lasts as long as this program, too.

A child that was made by fork has the bell. One that was started anew does not where the starter closes descriptors, as
subprocess and multiprocessing do; it has BERTH_LEASE in its environment, and opens the bell by that name. This is
imported by `import berth` if that variable is set.
"""

from __future__ import annotations

import os
import sys
from typing import Optional

from . import _native

_bell_fd: Optional[int] = None


def attach_to_lease() -> None:
    """Holds the lease until this process ends; does nothing if there is none to hold."""
    global _bell_fd
    try:
        _bell_fd = _native.attach(os.environ.get("BERTH_LEASE", ""))
    except Exception:  # a harbour that cannot be used: to import a module is not the time to fail for it
        _bell_fd = None


def _is_forkserver() -> bool:
    """Is this the server of multiprocessing's forkserver? It stays until its owner ends, and uses nothing itself."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is None or getattr(server, "_forkserver_alive_fd", None) is not None:
        return False  # a child of the server has the descriptor by which it knows whether its server lives
    with open("/proc/self/cmdline", "rb") as file:
        return b"multiprocessing.forkserver" in file.read()


if _is_forkserver():
    os.register_at_fork(after_in_child=attach_to_lease)
else:
    attach_to_lease()
