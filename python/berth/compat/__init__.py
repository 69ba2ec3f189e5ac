"""The interfaces of older tools, on berth's leases: scripts that were written for them run unchanged.

    python -m berth.compat SCRIPT [ARGS…]     the script's imports of these modules come from here
    berth compat NAME [ARGS…]                 the tools' commands

| tool     | module                        | commands                |
|----------|-------------------------------|-------------------------|
| safe-gpu | `safe_gpu.safe_gpu`           |                         |
| gpu_lock | `gpu_lock`                    |                         |
| gpuselect| `gpuselect`                   | `gpuselect`             |
| GPUGET   |                               | `GPU.py` (or `gpuget`)  |
| GRN      | `grn`                         | `grn-start`, `grn-run`  |

Each module can also be imported by its whole name, as `berth.compat.grn`.
"""

from __future__ import annotations

import os
from typing import Dict

__all__ = ["environment"]

_SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_shim")


def environment() -> Dict[str, str]:
    """This process's environment variables, such that a Python started with them has the tools' modules from here.

    By PYTHONPATH, since that is what every Python below it inherits too, whoever starts it: multiprocessing (spawn,
    forkserver), a shell script, another program. See `_shim/sitecustomize.py` for what happens then.
    """
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder != _SHIM]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([_SHIM, *folders])}
