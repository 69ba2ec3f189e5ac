"""Detects whether CUDA was started in this process: after that, CUDA_VISIBLE_DEVICES has no effect, and the process can
only use the GPUs that were visible then."""

from __future__ import annotations

import os
import sys

from . import _native
from ._errors import Impossible, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Container, Mapping, Optional

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


def _processes_between_leases(gpu: Gpu, user: Optional[str]) -> int:
    """How many processes of the user are on the GPU without a lease, this one included."""
    return sum(process.pid == os.getpid() or (process.lease is None and process.user == user) for process in gpu.processes)


class OwnGpus:
    """A request for the GPUs on which this process computes already."""

    def __init__(self, values: dict[str, str], mib_in_use: int, leased: bool) -> None:
        self.values = values
        self.mib_in_use = mib_in_use  # what this process uses on each of them, at least
        self.leased = leased  # another process has an exclusive lease on one of them


def request_own_gpus(values: dict[str, str], held_leases: Container[str]) -> Optional[OwnGpus]:
    """The same request for the GPUs on which this process computes without a lease, because it has released one.

    The process does not count as a stranger to itself, nor do the user's other processes that stay there between two
    leases: they would wait for each other. None if CUDA was not started, or if the request names other GPUs or another
    number of them.
    """
    if started_by() is None:
        return None
    from ._gpu import status

    try:
        named_uuids = _native.select_named_gpus(values["gpu"]) if "gpu" in values else None
    except (Impossible, UsageError):
        return None  # the request itself reports it
    # If another process of the user has a lease there, status() counts this process to that lease.
    own = [(gpu, process) for gpu in status() for process in gpu.processes
           if process.pid == os.getpid() and process.lease not in held_leases]
    if not own or any(named_uuids is not None and gpu.uuid not in named_uuids for gpu, _ in own):
        return None
    if int(values.get("count", 1 if named_uuids is None else len(named_uuids))) != len(own):
        return None
    accepted = max(_processes_between_leases(gpu, process.user) for gpu, process in own)
    changed = {"gpu": ",".join(str(gpu.uuid) for gpu, _ in own), "count": str(len(own)),
               "processes": str(max(accepted, int(values.get("processes", 0))))}
    return OwnGpus({**values, **changed}, min(process.memory_mib or 0 for _, process in own),
                   any(lease.exclusive for gpu, _ in own for lease in gpu.leases))
