"""The interfaces of older tools, implemented with Berth's leases: scripts that were written for them run unchanged.

    python -m berth.compat SCRIPT [ARGS…]     runs a script that imports one of these modules
    berth compat NAME [ARGS…]                 runs a command of these tools

| tool     | module                        | commands                |
|----------|-------------------------------|-------------------------|
| safe-gpu | `safe_gpu.safe_gpu`           |                         |
| gpu_lock | `gpu_lock`                    |                         |
| gpuselect| `gpuselect`                   | `gpuselect`             |
| GPUGET   |                               | `GPU.py` (or `gpuget`)  |
| GRN      | `grn`                         | `grn-start`, `grn-run`  |

Each module can also be imported by its full name, such as `berth.compat.grn`.
"""

from __future__ import annotations

import os

__all__ = ["environment"]

_SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_shim")


def environment() -> dict[str, str]:
    """The environment variables of this process, changed so that a Python started with them imports the tools' modules
    from this package.

    It uses PYTHONPATH, because every Python process below inherits it, however it is started: by multiprocessing
    (spawn, forkserver), by a shell script or by another program. `_shim/sitecustomize.py` does the rest.
    """
    path = os.environ.get("PYTHONPATH", "")
    # An empty entry is the current folder, so all entries stay.
    folders = [folder for folder in path.split(os.pathsep) if folder != _SHIM] if path else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([_SHIM, *folders])}
