"""Detects whether CUDA was started in this process: after that, CUDA_VISIBLE_DEVICES has no effect."""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping, Optional

from . import _native


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
