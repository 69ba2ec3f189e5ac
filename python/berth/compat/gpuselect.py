"""The module and the command gpuselect, which choose idle GPUs by simple rules, implemented with Berth's leases.

The original only looks and chooses, so two users may choose the same GPU. Here the chosen GPUs are leased: the function
leases them for the process, the command for the program that it runs or for the calling shell. With set_cvd=False, or
with -q and without a command to run, no GPU stays leased.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import random
import signal
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, NoReturn, SupportsIndex

import berth
from berth import _environment

__all__ = ["GpuInfo", "gpuselect", "gpustatus"]

_MIB = 1 << 20
_MAX_PROCESSES = 4096  # the largest limit that Berth accepts

_log = logging.getLogger("gpuselect")
if not _log.handlers:  # the module may be imported under two names
    _log.setLevel(logging.INFO)
    _log.addHandler(logging.StreamHandler())


class GpuInfo(NamedTuple):
    """A GPU and its current values. A value that the driver or Berth does not report is None, never 0.

    It is a tuple, as in gpuselect's code. It can also be read as a dict, as in gpuselect's documentation; the keys are the
    names of the fields, `utilization` and `mem_utilization`. (json.dumps() writes a list: use dict(info).)
    """

    device: int | str  # str for a MIG instance
    name: str | None = None
    util: int | None = None  # percent
    mem_util: int | None = None  # percent
    mem_free: int | None = None  # bytes
    mem_used: int | None = None
    mem_total: int | None = None
    processes: int | None = None
    fan_speed: int | None = None  # like effective_power_limt and is_throttling not set: Berth does not query them
    effective_power_limt: int | None = None
    performance_state: int | None = None  # 0 (fastest) to 15
    power_usage: int | None = None  # milliwatts
    temperature: int | None = None  # degrees Celsius
    is_throttling: int | None = None

    def keys(self) -> list[str]:
        return [*self._fields, *_OTHER_KEYS]

    def values(self) -> list[Any]:
        return [self[key] for key in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        return [(key, self[key]) for key in self.keys()]

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self.keys() else default

    def __contains__(self, key: object) -> bool:
        return key in self.keys() or tuple.__contains__(self, key)

    def __getitem__(self, key: str | SupportsIndex | slice) -> Any:
        if isinstance(key, str):
            return self._asdict()[_OTHER_KEYS.get(key, key)]
        return tuple.__getitem__(self, key)


_OTHER_KEYS = {"utilization": "util", "mem_utilization": "mem_util"}


def _gpu_info(gpu: berth.Gpu) -> GpuInfo:
    total, used = gpu.memory_total_mib, gpu.memory_used_mib
    return GpuInfo(
        device=gpu.index,
        name=gpu.name,
        util=gpu.utilization_pct,
        mem_util=gpu.memory_utilization_pct,
        mem_free=None if total is None or used is None else (total - used) * _MIB,
        mem_used=None if used is None else used * _MIB,
        mem_total=None if total is None else total * _MIB,
        # The processes of a free GPU are displays, which do not count.
        processes=0 if gpu.state == "free" else len(gpu.processes),
        fan_speed=None,
        effective_power_limt=None,
        performance_state=gpu.performance_state,
        power_usage=None if gpu.power_w is None else round(gpu.power_w * 1000),
        temperature=gpu.temperature_c,
        is_throttling=None,
    )


def __filter_gpus(
    gpu_info: Sequence[GpuInfo],
    count: int,
    devices: Sequence[int],
    name: str | None,
    util: int,
    mem_util: int,
    processes: int,
    selector: Callable[[GpuInfo], bool] | None,
) -> list[GpuInfo]:
    """The GPUs of `gpu_info` that match: `count` of them at random, or all if they are fewer. Logs each step.

    gpuselect exports it under this name. Here it only explains a choice in the debug log: Berth makes the choice.
    """
    if selector is not None:
        left = [gpu for gpu in gpu_info if selector(gpu)]
        _log.debug("Selector matched %d / %d GPUs", len(left), len(gpu_info))
    else:
        left = [gpu for gpu in gpu_info if not devices or gpu.device in devices]
        left = [gpu for gpu in left if name is None or name.lower() in (gpu.name or "").lower()]
        _log.debug("Device and name filters matched %d / %d GPUs", len(left), len(gpu_info))
        for what, limit in (("util", util), ("mem_util", mem_util), ("processes", processes)):
            before = len(left)
            left = [gpu for gpu in left if _is_within(getattr(gpu, what), limit)]
            _log.debug("%s <= %d matched %d / %d GPUs", what, limit, len(left), before)
    _log.debug("GPUs left after filtering (%d requested): %d", count, len(left))
    return left if len(left) <= count else random.sample(left, count)


def _is_within(value: int | None, limit: int) -> bool:
    return limit >= 100 if value is None else value <= limit


@dataclasses.dataclass(frozen=True)
class _Request:
    """The request of a caller."""

    count: int
    devices: tuple[int, ...]
    name: str | None
    util: int
    mem_util: int
    processes: int
    selector: Callable[[GpuInfo], bool] | None = None
    already_held: tuple[str | None, ...] = ()  # UUIDs of GPUs that the caller already has

    def accepts(self, gpu: berth.Gpu) -> bool:
        """Whether the GPU matches by index, name or selector, regardless of its load."""
        if self.selector is not None:
            return bool(self.selector(_gpu_info(gpu)))
        if self.devices:
            return gpu.index in self.devices
        return self.name is None or self.name.lower() in (gpu.name or "").lower()

    def keywords(self) -> dict[str, Any]:
        """The keywords for berth.acquire() and berth.select()."""
        if self.selector is not None:
            # Only the selector decides, also about GPUs with strangers; but the emptiest GPUs come first.
            return {"count": self.count, "policy": "spread", "processes": _MAX_PROCESSES,
                    "selector": self._is_selectable}
        return {"count": self.count, "policy": "random", "gpu": list(self.devices) or None, "name": self.name,
                "util": _percent_limit(self.util), "mem_util": _percent_limit(self.mem_util),
                "processes": min(self.processes, _MAX_PROCESSES),
                "selector": self._is_selectable if self.already_held else None}

    def _is_selectable(self, gpu: berth.Gpu) -> bool:
        """Whether the GPU can be chosen. Lost and unknown GPUs cannot, so the selector is not called for them."""
        return gpu.uuid not in self.already_held and gpu.state not in ("lost", "unknown") and self.accepts(gpu)

    def flags(self) -> list[str]:
        """The same as flags of the berth command."""
        values = {**self.keywords(), "gpu": ",".join(map(str, self.devices)) or None}
        words = {"count": "--count", "policy": "--policy", "gpu": "--gpu", "name": "--name", "util": "--max-util",
                 "mem_util": "--max-mem-util", "processes": "--max-processes"}
        # --mem all: with a default of the configuration, the lease would share its GPUs.
        return ["--no-wait", "--mem=all", *(f"{word}={values[key]}" for key, word in words.items() if values[key] is not None)]

    def remaining_after(self, gpus: Sequence[berth.Gpu]) -> _Request:
        """The rest of the request for a caller that already has `gpus`."""
        indices = [gpu.index for gpu in gpus]
        return dataclasses.replace(self, count=self.count - len(gpus), already_held=tuple(gpu.uuid for gpu in gpus),
                                   devices=tuple(device for device in self.devices if device not in indices))


def _log_filters(request: _Request) -> None:
    """Logs the GPUs and how many of them match, for debugging."""
    if not _log.isEnabledFor(logging.DEBUG):
        return
    gpus = [_gpu_info(gpu) for gpu in berth.status() if gpu.state not in ("lost", "unknown")]
    _log.debug("GPU count: %d", len(gpus))
    for gpu in gpus:
        _log.debug("Device %s: %s", gpu.device, gpu)
    __filter_gpus(gpus, request.count, request.devices, request.name, request.util, request.mem_util, request.processes,
                  request.selector)


def _percent_limit(percent: int) -> int | None:
    """The limit for Berth; None for 100 percent. With a limit, Berth would exclude GPUs whose load is unknown."""
    return percent if percent < 100 else None


def _make_request(
    count: int,
    devices: int | Sequence[int] | None,
    name: str | None,
    util: int,
    mem_util: int,
    processes: int,
    selector: Callable[[GpuInfo], bool] | None = None,
) -> _Request:
    """Checks the arguments, without using the driver. Raises berth.UsageError if they are invalid."""
    if count < 1:
        raise berth.UsageError("GPU count must be >= 1")
    device_ids = (devices,) if isinstance(devices, int) else tuple(dict.fromkeys(devices or ()))
    if device_ids and name is not None:
        raise berth.UsageError("Use only one of 'devices' and 'name' parameters")
    if min(util, mem_util, processes) < 0:
        raise berth.UsageError("Utilization/process count thresholds must be >= 0")
    if selector is not None:
        return _Request(count, (), None, util, mem_util, processes, selector)
    if len(device_ids) > count:
        _log.warning("count=%d but %d device IDs were specified, setting count=%d", count, len(device_ids),
                     len(device_ids))
        count = len(device_ids)
    return _Request(count, device_ids, name, util, mem_util, processes)


def _check_devices(devices: Sequence[int]) -> None:
    cards = {str(gpu.index).partition(":")[0] for gpu in berth.status()} if devices else set()
    for device in devices:
        if str(device) not in cards:
            raise berth.UsageError(f"Invalid device ID {device}")


_leases: list[berth.Lease] = []  # of earlier calls, not yet released


def _lease_gpus(request: _Request) -> str:
    """Leases the GPUs that the process does not already have from earlier calls, and releases leases that it no longer
    needs."""
    already_held = [gpu for lease in _leases for gpu in lease.gpus if request.accepts(gpu)][:request.count]
    remaining = request.remaining_after(already_held)
    if remaining.count > 0:
        _leases.append(berth.acquire(no_wait=True, **remaining.keywords()))
        already_held += _leases[-1].gpus
    chosen = [gpu.uuid for gpu in already_held]
    for lease in [lease for lease in _leases if not set(lease.uuids).intersection(chosen)]:
        _leases.remove(lease)
        lease.release()
    return _set_environment(chosen)


def _set_environment(chosen: Sequence[str | None]) -> str:
    """Sets the environment to these GPUs. They may belong to several leases, and may be only some GPUs of a lease."""
    names = {uuid: name for lease in _leases
             for uuid, name in zip(lease.uuids, lease.environment["CUDA_VISIBLE_DEVICES"].split(","))}
    value = ",".join(names[uuid] for uuid in names if uuid in chosen)
    _environment.pop(__name__)  # makes the next push() the newest
    _environment.push(__name__, {**_leases[-1].environment, "CUDA_VISIBLE_DEVICES": value})
    return value


def _select(request: _Request) -> str:
    chosen = berth.select(**request.keywords())
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # CUDA then uses the same indices
    return ",".join(str(gpu.index) for gpu in chosen)


def _count_matches(request: _Request) -> int:
    """The number of GPUs that match, if there are too few for the request."""
    for count in range(min(request.count - 1, len(berth.status())), 0, -1):
        try:
            berth.select(**dataclasses.replace(request, count=count).keywords())
        except (berth.NotGranted, berth.Impossible):
            continue
        return count
    return 0


def gpuselect(
    count: int = 1,
    devices: int | Sequence[int] | None = None,
    name: str | None = None,
    util: int = 0,
    mem_util: int = 0,
    processes: int = 0,
    selector: Callable[[GpuInfo], bool] | None = None,
    silent: bool = False,
    set_cvd: bool = True,
) -> str:
    """Leases idle GPUs until the process ends, sets CUDA_VISIBLE_DEVICES, and returns its new value.

    Does not wait: if there are too few GPUs now, it raises an exception, or returns "" with `silent`. A later call
    releases the GPUs of earlier calls, except those that match it as well.

    count: the number of GPUs. devices: an index or a list of indices; all of them are requested. name: a part of the
    name. util, mem_util, processes: the maximum utilization (percent), memory utilization (percent) and number of
    processes. selector: a function that decides instead of these. set_cvd: False chooses GPUs without leasing them and
    without setting the variable, so another job may be granted the same GPUs.

        gpuselect(count=2, name="A6000")
    """
    request = _make_request(count, devices, name, util, mem_util, processes, selector)
    _check_devices(request.devices)
    _log_filters(request)
    try:
        if 0 < len(request.devices) < request.count:
            raise berth.Impossible(f"{request.count} GPUs requested, but only {len(request.devices)} named")
        value = _lease_gpus(request) if set_cvd else _select(request)
    except (berth.NotGranted, berth.Impossible) as error:
        message = f"Requested {request.count} GPUs, but {_count_matches(request)} matched filters: {error}"
        _log.debug("%s", message)
        if silent:
            return ""
        raise type(error)(message) from error
    _log.debug("CUDA_VISIBLE_DEVICES=%s", value)
    return value


def gpustatus(only_cvd: bool = True) -> list[GpuInfo]:
    """All GPUs and their current values; by default only those of CUDA_VISIBLE_DEVICES, if it is set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip() if only_cvd else ""
    if visible in ("", "all"):
        return [_gpu_info(gpu) for gpu in berth.status()]
    names = [name.strip() for name in visible.split(",")]
    return [_gpu_info(gpu) for gpu in berth.status() if str(gpu.index) in names or gpu.uuid in names]


def _indices(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError("Parameter must be a single int or 'int1,int2,...'") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuselect", usage="%(prog)s [OPTIONS] [-- CMD...]",
        description="Lease idle GPUs without waiting, and run CMD on them. Without CMD, lease them for the calling "
                    "shell and print their indices.",
        epilog="The GPUs of a shell are released when the shell ends, or by 'berth release'.")
    parser.add_argument("-d", "--devices", metavar="LIST", type=_indices, help="GPUs by index, such as 0 or 0,2")
    parser.add_argument("-n", "--name", metavar="TEXT", help="only GPUs with TEXT in their name")
    parser.add_argument("-u", "--util", metavar="PCT", type=int, default=0, help="maximum utilization (default 0)")
    parser.add_argument("-m", "--mem_util", metavar="PCT", type=int, default=0,
                        help="maximum memory utilization (default 0)")
    parser.add_argument("-c", "--count", metavar="N", type=int, default=1, help="number of GPUs (default 1)")
    parser.add_argument("-p", "--processes", metavar="K", type=int, default=0,
                        help="maximum number of processes on a GPU (default 0)")
    parser.add_argument("-q", "--quiet", action="store_true",
                        help="print nothing; without CMD, the exit code is 0 if such GPUs are free")
    parser.add_argument("-D", "--debug", action="store_true", help="print debug messages to stderr")
    parser.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER, help="command to run on the GPUs")
    return parser


def _exec_berth(arguments: list[str]) -> NoReturn:
    """Executes the berth command in this process, so that the parent, signals and exit code stay the same."""
    _log.debug("berth %s", arguments)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(berth.program(), ["berth", *arguments])


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The command gpuselect. Does not return: it executes the berth command, whose exit code is that of CMD."""
    parser = _parser()
    options = parser.parse_args(argv)
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.debug:
        _log.setLevel(logging.DEBUG)
    try:
        request = _make_request(options.count, options.devices, options.name, options.util, options.mem_util,
                           options.processes)
    except berth.UsageError as error:
        parser.error(str(error))
    if options.debug:
        with contextlib.suppress(berth.Error):  # the berth command reports it
            _log_filters(request)
    if command:
        os.environ["PYTHONUNBUFFERED"] = "1"  # as the original does, so that the output of a script appears at once
        _exec_berth(["run", *request.flags(), "--", *command])
    if options.quiet:
        _exec_berth(["run", *request.flags(), "--", "true"])
    _exec_berth(["acquire", "--compat", "gpuselect", "--label", "gpuselect", "--print", "ids", *request.flags()])


if __name__ == "__main__":
    main()
