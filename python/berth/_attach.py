"""Makes this process a holder of the lease inside which it was started, so that the lease lasts as long as the process.

A forked child has the bell open already. A program that was started by exec may not have it: subprocess and
multiprocessing close descriptors. Such a program finds the id of the lease in BERTH_LEASE, and opens the bell by its
name. `import berth` imports this module if that variable is set.
"""

from __future__ import annotations

import os
import sys

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_bell_fd: Optional[int] = None


def attach_to_lease() -> None:
    """Holds the lease until this process ends. Does nothing if the lease has ended."""
    global _bell_fd
    try:
        _bell_fd = _native.attach(os.environ.get("BERTH_LEASE", ""))
    except Exception:  # the harbour cannot be used: an import must not fail because of that
        _bell_fd = None


def _is_forkserver() -> bool:
    """Whether this is the server process of multiprocessing's forkserver. It must not hold the lease: it does not use
    GPUs itself, and runs until its owner ends."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is None or getattr(server, "_forkserver_alive_fd", None) is not None:
        return False  # a child of the server: only children have this descriptor, which detects the server's end
    with open("/proc/self/cmdline", "rb") as file:
        return b"multiprocessing.forkserver" in file.read()


if _is_forkserver():
    os.register_at_fork(after_in_child=attach_to_lease)
else:
    attach_to_lease()
