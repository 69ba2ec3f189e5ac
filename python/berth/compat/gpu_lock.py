"""The module gpu_lock, implemented with Berth's leases. `python -m` prints all locks as JSON.

The original keeps a file for each lock, and checks whether the process named there is alive. A lease needs neither: it
ends with its process, and `berth status` shows it. One difference: a user cannot lock a GPU that the same user has
locked already, because two jobs of one user disturb each other as well.
"""

from __future__ import annotations

import sys

import berth
from berth import _environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Callable, Union

    Index = Union[int, str]  # text for a MIG instance

__all__ = ["GpuLock", "lock_gpu", "locks"]

_active_leases: list[berth.Lease] = []  # of the current `with` blocks, the outermost first


class GpuLock:
    """A lock on GPUs, for `with`. lock_gpu() creates it and takes the GPUs.

    `uid` is the index of the GPU, or a list of indices if several were requested. After its `with` block the lock can
    be entered again, and then takes the same GPUs.
    """

    def __init__(self, lease: berth.Lease) -> None:
        self._lease = lease
        self.uid: Index | list[Index] = lease.indices if len(lease.indices) > 1 else lease.indices[0]

    def __enter__(self) -> GpuLock:
        if self._lease.released:
            self._lease = _acquire_lease(len(self._lease.uuids), self._lease.indices)
        _active_leases.append(self._lease)
        _environment.pop(self._lease.id)  # makes it the newest: later locks may not have been entered yet
        _environment.push(self._lease.id, {**self._lease.environment, "CUDA_VISIBLE_DEVICES": _visible_devices()})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _active_leases.remove(self._lease)
        self._lease.release()  # also restores os.environ


def _visible_devices() -> str:
    """The GPUs of all nested locks. Each is listed once: inside a lease around this program, nested locks may have the
    same GPUs."""
    names = [name for lease in _active_leases for name in lease.environment["CUDA_VISIBLE_DEVICES"].split(",")]
    return ",".join(dict.fromkeys(names))


def _acquire_lease(
    count: int, gpu: list[Index] | None, selector: Callable[[berth.Gpu], bool] | None = None
) -> berth.Lease:
    try:
        return berth.acquire(count, gpu=gpu, selector=selector, no_wait=True)
    except (berth.NotGranted, berth.Impossible) as error:
        raise RuntimeError(f"Could not acquire the lock: {error}") from error


def lock_gpu(*values: Any, uid: Index | None = None, n: int = 1, n_system_gpus: int | None = None) -> GpuLock:
    """Takes the GPU `uid`, or any `n` GPUs, until the end of the `with` block or of the process.

    Does not wait: raises RuntimeError if not all of them are free now. `n_system_gpus` excludes GPUs with this index
    and above. The versions of gpu_lock have different first arguments: one value without a name is `uid`, with a warning;
    two are `n` and `n_system_gpus`.

        with lock_gpu(n=2) as lock:
            print(lock.uid)
    """
    if values and (uid is not None or n != 1 or n_system_gpus is not None or len(values) > 2):
        raise berth.UsageError("lock_gpu takes a GPU or a count, not both; name the arguments: uid=, n=, n_system_gpus=")
    if len(values) == 1:
        import warnings

        uid = values[0]
        warnings.warn(f"lock_gpu({uid!r}) locks GPU {uid}; write lock_gpu(uid={uid!r}), or lock_gpu(n={uid!r}) for a "
                      "number of GPUs", stacklevel=2)
    elif values:
        n, n_system_gpus = values
    if uid is None:
        return GpuLock(_acquire_lease(n, None, None if n_system_gpus is None else _is_below(n_system_gpus)))
    if n != 1:
        raise berth.UsageError(f"uid={uid} names one GPU, but n={n} requests {n}; omit one of them")
    return GpuLock(_acquire_lease(1, [uid]))


def _is_below(end: int) -> Callable[[berth.Gpu], bool]:
    return lambda gpu: int(str(gpu.index).partition(":")[0]) < end


def locks() -> list[dict[str, int | str]]:
    """The locks of all users, one entry for each GPU, in the format of gpu_lock's files."""
    return [{"user": lease.user, "time": int(lease.since.timestamp()) if lease.since else 0, "id": gpu.index, "owner": lease.pid or 0}
            for gpu in berth.status() for lease in gpu.leases]


def main() -> int:
    """Prints locks() as JSON."""
    import json

    print(json.dumps(locks(), indent=4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
