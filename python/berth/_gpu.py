"""The output of `berth status` as Python objects. The names are those of its JSON (docs/json.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
# Also when the program runs: dataclass() looks for typing in sys.modules, and fails if another thread is just importing it.
from typing import Any, Optional, TypeVar, Union

from . import _native
from ._program import program

T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    """A process on a GPU."""

    pid: int
    """The process id on the host, also in a container."""
    user: Optional[str]
    """None if the process is not visible from here, as in a container."""
    name: Optional[str]
    memory_mib: Optional[int]
    lease: Optional[str]
    """The lease under which the process runs. A process that computes without a lease is a stranger."""


@dataclass(frozen=True)
class LeaseInfo:
    """A lease of any user. Every user can see it."""

    id: str
    user: str
    pid: Optional[int]
    """None, like the texts and times, if the record of the lease cannot be read."""
    command: Optional[str]
    label: Optional[str]
    since: Optional[datetime]
    """The time of the grant."""
    ends: Optional[datetime]
    """When it is expected to end, as announced or by earlier runs; None if that is unknown."""
    overdue: bool
    """Whether `ends` has passed. Nothing is stopped then."""
    exclusive: bool
    memory_mib: Optional[int]
    """The memory that is reserved on each of its GPUs; None if the lease is exclusive."""


@dataclass(frozen=True)
class Gpu:
    """A card or a MIG instance. A value that the driver does not report is None, never 0."""

    index: Union[int, str]
    """A number, or "card:instance" for a MIG instance."""
    uuid: Optional[str]
    name: Optional[str]
    state: str
    """free, leased, shared, stranger, drained, lost or unknown."""
    memory_total_mib: Optional[int]
    memory_used_mib: Optional[int]
    utilization_pct: Optional[int]
    memory_utilization_pct: Optional[int]
    temperature_c: Optional[int]
    power_w: Optional[float]
    performance_state: Optional[int]
    reason: str
    """Why the GPU is not free, as text."""
    processes: tuple[Process, ...]
    leases: tuple[LeaseInfo, ...]


@dataclass(frozen=True)
class Ticket:
    """A request that waits in the queue."""

    ticket: str
    position: int
    user: str
    pid: int
    command: str
    label: str
    since: datetime
    count: int
    memory_mib: Optional[int]
    reason: str
    """Why the request waits, as text."""
    starts: Optional[datetime]
    """The estimated start; None if it is unknown."""


def parse_time(text: Optional[str]) -> Optional[datetime]:
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))


def _build(kind: type[T], values: dict[str, Any], **changes: Any) -> T:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: changes.get(name, values.get(name)) for name in names})


def _build_gpu(values: dict[str, Any]) -> Gpu:
    return _build(
        Gpu,
        values,
        processes=tuple(_build(Process, one) for one in values["processes"]),
        leases=tuple(
            _build(LeaseInfo, one, since=parse_time(one["since"]), ends=parse_time(one["ends"])) for one in values["leases"]
        ),
    )


def gpus_from_json(text: str) -> list[Gpu]:
    """The GPUs of the output of `berth status --json`."""
    return [_build_gpu(values) for values in json.loads(text)["gpus"]]


def status() -> list[Gpu]:
    """Every GPU of this host, with its state, its load, its processes and its leases.

    >>> import berth
    >>> [(gpu.index, gpu.state, gpu.memory_total_mib) for gpu in berth.status()]
    [(0, 'free', 24576), (1, 'free', 24576)]
    """
    program()
    return gpus_from_json(_native.status())


def queue() -> list[Ticket]:
    """The requests that wait, in the order of the queue, with their reasons.

    >>> import berth
    >>> berth.queue()
    []
    """
    program()
    return [
        _build(Ticket, one, since=parse_time(one["since"]), starts=parse_time(one["starts"]))
        for one in json.loads(_native.status())["queue"]
    ]
