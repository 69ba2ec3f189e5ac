"""The GPUs that CUDA_VISIBLE_DEVICES names, read as CUDA reads it."""

from __future__ import annotations

import berth

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def _entry_matches(entry: str, gpu: berth.Gpu) -> bool:
    """Whether an entry of CUDA_VISIBLE_DEVICES names this GPU. The number of a MIG card names all of its instances."""
    if entry.isdecimal():
        return str(gpu.index).partition(":")[0] == str(int(entry))
    return len(entry) > len("GPU-") and (gpu.uuid or "").lower().startswith(entry.lower())


def visible_gpus(value: Optional[str]) -> list[berth.Gpu]:
    """The usable GPUs of this host that `value` of CUDA_VISIBLE_DEVICES names; all of them if it is None. Raises
    Impossible if it names none."""
    gpus = [gpu for gpu in berth.status() if gpu.uuid and gpu.state != "lost"]
    if value is None:
        return gpus
    chosen: list[berth.Gpu] = []
    for entry in value.split(","):
        found = [gpu for gpu in gpus if _entry_matches(entry.strip(), gpu)]
        if not found:
            break  # an invalid entry ends the list, as in CUDA
        chosen += found
    if not chosen:
        raise berth.Impossible(f"CUDA_VISIBLE_DEVICES={value!r} matches no usable GPU of this host; change or unset "
                               "the variable")
    return [gpu for gpu in gpus if gpu in chosen]
