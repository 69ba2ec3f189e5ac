"""Detects whether CUDA was started in this process: after that, CUDA_VISIBLE_DEVICES has no effect, and the process can
only use the GPUs that were visible then."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from . import _native

if TYPE_CHECKING:
    from ._gpu import Gpu


def _torch_started(torch: Any) -> bool:
    return bool(torch.cuda.is_initialized())


def _tensorflow_started(_: Any) -> bool:
    context = sys.modules["tensorflow.python.eager.context"].context_safe()
    return context is not None and bool(context._initialized)


def _jax_started(_: Any) -> bool:
    backends = sys.modules["jax._src.xla_bridge"]._backends
    return any(name in ("cuda", "gpu") for name in backends)


# Checks with the frameworks' own functions. Those of TensorFlow and JAX use private names; if a version does not have
# them, started_by() relies on the driver.
_FRAMEWORK_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "torch": _torch_started, "tensorflow": _tensorflow_started, "jax": _jax_started,
}
_FRAMEWORKS = (*_FRAMEWORK_CHECKS, "cupy", "pycuda", "numba")


def _framework_started(name: str) -> bool:
    try:
        return name in _FRAMEWORK_CHECKS and _FRAMEWORK_CHECKS[name](sys.modules[name])
    except (AttributeError, KeyError):
        return False


def started_by() -> Optional[str]:
    """What has started CUDA: the name of a framework, or "this process"; None if CUDA was not started."""
    loaded = [name for name in _FRAMEWORKS if name in sys.modules]
    for name in loaded:
        if _framework_started(name):
            return name
    if not _native.cuda_is_started():
        return None
    return " or ".join(loaded) or "this process"


def _strangers(gpu: Gpu, user: Optional[str]) -> int:
    return sum(process.lease is None and process.user == user for process in gpu.processes)


def stay_on_own_gpus(values: dict[str, str]) -> tuple[dict[str, str], int]:
    """The values of a request, and how many MiB of its memory this process uses already.

    A process that computes without a lease, because it has released one, asks for its present GPUs again. It does not
    count as a stranger to itself, nor do the user's other processes that stay there between two leases: they would wait
    for each other. If the request names other GPUs, or another number of them, its values are returned unchanged.
    """
    if started_by() is None:
        return values, 0
    from ._gpu import status

    own = [(gpu, process) for gpu in status() for process in gpu.processes
           if process.pid == os.getpid() and process.lease is None]
    named = values["gpu"].split(",") if "gpu" in values else []
    may_stay = all((not named or str(gpu.index) in named or gpu.uuid in named)
                   and not any(lease.exclusive for lease in gpu.leases) for gpu, _ in own)
    if not may_stay or int(values.get("count", len(named) or 1)) != len(own):
        return values, 0
    accepted = max(_strangers(gpu, process.user) for gpu, process in own)
    changed = {"gpu": ",".join(str(gpu.uuid) for gpu, _ in own), "count": str(len(own)),
               "processes": str(max(accepted, int(values.get("processes", 0))))}
    return {**values, **changed}, min(process.memory_mib or 0 for _, process in own)
