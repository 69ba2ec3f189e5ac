"""What `from gpu_lock import lock_gpu` gives: locks on GPUs, as leases of berth. `python -m` shows all locks as JSON.

gpu_lock keeps a file for each lock, and asks whether the process that it names lives. A lease needs neither: it ends
with its process, and `berth status` shows it. Unlike there, a lock of one's own is as good as anybody's: a second one
on the same GPU is refused, since two jobs of one user disturb each other as well.
"""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Callable, Union

import berth
from berth import _environment

__all__ = ["GpuLock", "lock_gpu", "locks"]

Index = Union[int, str]  # text for a MIG instance

_active_leases: list[berth.Lease] = []  # of the `with` blocks that run, the outermost first


class GpuLock:
    """GPUs that nobody else has, for `with`: made by lock_gpu(), which takes them.

    `uid` is the index of the GPU; a list of them if several were asked for. After its `with` block, it can be entered
    again, and takes the same GPUs again.
    """

    def __init__(self, lease: berth.Lease) -> None:
        self._lease = lease
        self.uid: Index | list[Index] = lease.indices if len(lease.indices) > 1 else lease.indices[0]

    def __enter__(self) -> GpuLock:
        if self._lease.released:
            self._lease = _acquire_lease(len(self._lease.uuids), self._lease.indices)
        _active_leases.append(self._lease)
        _environment.pop(self._lease.id)  # there may be newer ones, which have not been entered
        _environment.push(self._lease.id, {**self._lease.environment, "CUDA_VISIBLE_DEVICES": _visible_devices()})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _active_leases.remove(self._lease)
        self._lease.release()  # and os.environ is what it was


def _visible_devices() -> str:
    """In a lock within a lock, the GPUs of both; once, where both come out of the same lease around this program."""
    names = [name for lease in _active_leases for name in lease.environment["CUDA_VISIBLE_DEVICES"].split(",")]
    return ",".join(dict.fromkeys(names))


def _acquire_lease(
    count: int, gpu: list[Index] | None, selector: Callable[[berth.Gpu], bool] | None = None
) -> berth.Lease:
    try:
        return berth.acquire(count, gpu=gpu, selector=selector, no_wait=True)
    except (berth.NotGranted, berth.Impossible) as error:
        raise RuntimeError(f"Could not acquire the lock: {error}") from error


def lock_gpu(uid: Index | None = None, n: int = 1, n_system_gpus: int | None = None) -> GpuLock:
    """Takes the GPU `uid`, or `n` GPUs of any, until the end of the `with` block or of the process.

    Does not wait: RuntimeError if they are not free now, all of them. `n_system_gpus` leaves out the GPUs of this
    index and above.

        with lock_gpu(n=2) as lock:
            print(lock.uid)
    """
    if uid is None:
        return GpuLock(_acquire_lease(n, None, None if n_system_gpus is None else _is_below(n_system_gpus)))
    if n != 1:
        raise berth.UsageError(f"uid={uid} names one GPU, and n={n} asks for {n}; leave one of them out")
    return GpuLock(_acquire_lease(1, [uid]))


def _is_below(end: int) -> Callable[[berth.Gpu], bool]:
    return lambda gpu: int(str(gpu.index).partition(":")[0]) < end


def locks() -> list[dict[str, int | str]]:
    """Every lock of everybody, as gpu_lock's files describe theirs: one for each GPU."""
    return [{"user": lease.user, "time": int(lease.since.timestamp()), "id": gpu.index, "owner": lease.pid}
            for gpu in berth.status() for lease in gpu.leases]


def main() -> int:
    """Prints locks() as JSON."""
    print(json.dumps(locks(), indent=4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
