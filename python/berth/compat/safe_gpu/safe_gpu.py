"""The module safe_gpu.safe_gpu: takes GPUs until the process ends, or raises RuntimeError at once.

The original holds a lock while it chooses a GPU, and then occupies the GPU with a little memory (the placeholder). Here
a lease replaces both, so no GPU is handed out twice, whatever tool other users use. The placeholder is still created,
for users who only look at nvidia-smi.
"""

from __future__ import annotations

import os
import time

import berth
from berth import _environment
from berth._log import is_logging_imported

from .._visible_gpus import visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Protocol

    class Logger(Protocol):
        """The module `logging`, one of its loggers, or any object with these methods."""

        def info(self, msg: str) -> None: ...

        def error(self, msg: str) -> None: ...

__all__ = ["GPUOwner", "NvidiasmiError", "PyCudaPlaceholder", "PytorchPlaceholder", "TensorflowPlaceholder",
           "claim_gpus", "get_free_gpus", "gpu_owner", "pycuda_placeholder", "pytorch_placeholder", "release_gpus",
           "tensorflow_placeholder"]

# The original raises it if nvidia-smi fails.
NvidiasmiError = berth.NoDriver


class OneGpuError(RuntimeError, ValueError):
    """Several GPUs were requested on a host with one GPU. The original raises ValueError if that GPU drives a display,
    and otherwise RuntimeError, so a script may expect either."""


class _WithLogger:
    """Has the attribute `logger`: the given one, or the module `logging`, which is imported only when it is used."""

    def __init__(self, logger: Logger | None) -> None:
        self._given_logger = logger

    @property
    def logger(self) -> Logger:
        import logging

        return self._given_logger or logging

    @logger.setter
    def logger(self, logger: Logger) -> None:
        self._given_logger = logger

    def _log_info(self, text: str) -> None:
        """Without `logging`, the script has not configured it, so the message would not be shown."""
        if self._given_logger or is_logging_imported():
            self.logger.info(text)


def _import_toolkit(name: str) -> Any:
    from importlib import import_module

    return import_module(name)


class _ToolkitPlaceholder(_WithLogger):
    """A placeholder of a toolkit that keeps its memory on the GPU until the process ends."""

    toolkit = ""

    def __init__(self, logger: Logger | None = None) -> None:
        super().__init__(logger)

    def release(self, placeholder: Any) -> None:
        self._log_info(f"Did nothing, {self.toolkit} doesn't expose interface for releasing GPUs")


class PytorchPlaceholder(_ToolkitPlaceholder):
    """Occupies a little memory with PyTorch."""

    toolkit = "PyTorch"

    def __call__(self, device_no: int) -> Any:
        torch = _import_toolkit("torch")
        return torch.zeros(1, device=f"cuda:{device_no}")


class TensorflowPlaceholder(_ToolkitPlaceholder):
    """Occupies a little memory with TensorFlow 2."""

    toolkit = "TensorFlow"

    def __call__(self, device_no: int) -> Any:
        tensorflow = _import_toolkit("tensorflow")
        with tensorflow.device(f"GPU:{device_no}"):
            return tensorflow.constant([0.0])


class PyCudaPlaceholder(_ToolkitPlaceholder):
    """Creates a CUDA context with PyCUDA. Only this placeholder can be released; until then the script may use it."""

    toolkit = "PyCUDA"

    def __call__(self, device_no: int) -> Any:
        driver = _import_toolkit("pycuda.driver")
        driver.init()
        return driver.Device(device_no).make_context()

    def release(self, placeholder: Any) -> None:
        placeholder.detach()
        self._log_info("Released a CUDA context")


# Older scripts use these names as functions. Instances work as well: they are called with the number of a device.
pytorch_placeholder = PytorchPlaceholder()
tensorflow_placeholder = TensorflowPlaceholder()
pycuda_placeholder = PyCudaPlaceholder()


def get_free_gpus() -> list[str]:
    """The indices of the GPUs that are free now. That may change at any time."""
    return _free_gpus(None)


def _free_gpus(visible_devices: str | None) -> list[str]:
    try:
        return [str(gpu.index) for gpu in visible_gpus(visible_devices) if gpu.state == "free"]
    except berth.Impossible:  # CUDA_VISIBLE_DEVICES names none
        return []


def _too_few_gpus_error(nb_gpus: int, reason: berth.Error) -> RuntimeError:
    if nb_gpus > len(berth.status()) == 1:
        return OneGpuError(f"Requested {nb_gpus} GPUs on a machine with single one.")
    visible = _environment.outer_restrictions()[0]
    restriction = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r} restricts the choice)"
    return RuntimeError(f"Required {nb_gpus} GPUs, only found these free: {_free_gpus(visible)}: {reason}{restriction}")


class GPUOwner(_WithLogger):
    """Leases `nb_gpus` whole GPUs until release_gpus() or until the process ends, even by SIGKILL.

    Does not wait: raises RuntimeError if there are too few GPUs now. After CUDA_VISIBLE_DEVICES is set, it calls
    `placeholder_fn` for each GPU, with its number in the process (from 0). So CUDA must not have been started before.
    `debug_sleep` is a pause before those calls, in seconds.
    """

    def __init__(
        self,
        nb_gpus: int = 1,
        placeholder_fn: Callable[[int], Any] = pytorch_placeholder,
        logger: Logger | None = None,
        debug_sleep: float = 0.0,
    ) -> None:
        super().__init__(logger)
        self.placeholder_fn = placeholder_fn
        self.devices_taken: list[int | str] = []
        self.placeholders: list[Any] = []
        self._lease: berth.Lease | None = None
        if nb_gpus == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
            self._log_visible_devices()
        else:
            self._acquire_gpus(nb_gpus, debug_sleep)

    def _acquire_gpus(self, nb_gpus: int, pause: float) -> None:
        self._log_info("acquiring lock")
        try:
            lease = berth.acquire(nb_gpus, no_wait=True)
        except (berth.NotGranted, berth.Impossible) as error:
            raise _too_few_gpus_error(nb_gpus, error) from error
        self._log_info("lock acquired")
        try:
            self._log_visible_devices()
            time.sleep(pause)
            self._make_placeholders(len(lease.indices))
        except BaseException:
            lease.release()
            raise
        finally:
            self._log_info("lock released")
        self._lease = lease
        self.devices_taken.extend(lease.indices)

    def _log_visible_devices(self) -> None:
        self._log_info("Set CUDA_VISIBLE_DEVICES=" + os.environ["CUDA_VISIBLE_DEVICES"])

    def _make_placeholders(self, count: int) -> None:
        try:
            self.placeholders.extend(self.placeholder_fn(device_no) for device_no in range(count))
        except RuntimeError:
            self.logger.error("Failed to acquire placeholder; claim the GPUs before any code starts CUDA")
            raise

    def release_gpus(self) -> None:
        """Releases the placeholders and the GPUs, and restores CUDA_VISIBLE_DEVICES.

        If the process keeps using a GPU, it is a stranger there, and the GPU is not granted to other jobs before the
        process ends.
        """
        release = getattr(self.placeholder_fn, "release", None)  # a plain function does not have it
        while self.placeholders:
            self._log_info(f"Releasing placeholder on CUDA device: {self.devices_taken.pop(0)}")
            placeholder = self.placeholders.pop(0)
            if release is not None:
                release(placeholder)
        self.devices_taken.clear()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


gpu_owner: GPUOwner | None = None


def claim_gpus(
    nb_gpus: int = 1,
    placeholder_fn: Callable[[int], Any] = pytorch_placeholder,
    logger: Logger | None = None,
    debug_sleep: float = 0.0,
) -> None:
    """Takes GPUs by a new GPUOwner, and stores that in `gpu_owner`."""
    global gpu_owner
    gpu_owner = GPUOwner(nb_gpus=nb_gpus, placeholder_fn=placeholder_fn, logger=logger, debug_sleep=debug_sleep)


def release_gpus() -> None:
    """Releases the GPUs of claim_gpus(). Does nothing if claim_gpus() was not called."""
    if gpu_owner is not None:
        gpu_owner.release_gpus()
