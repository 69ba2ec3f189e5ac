"""The keywords of a request and their types, for type checkers.

No module of this package imports it when a program runs: `typing` takes longer to import than the path of `acquire`.
_request.py has the names of the keywords and checks their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterable, Optional, TypedDict, Union

if TYPE_CHECKING:
    from datetime import timedelta

    from ._gpu import Gpu
    from ._lease import Lease
    from ._waiting import Waiting

Size = Union[str, int]
Duration = Union[str, float, "timedelta"]


class Filters(TypedDict, total=False):
    """The keywords that choose GPUs by their properties."""

    gpu: Union[int, str, Iterable[Union[int, str]], None]
    """All of these GPUs, by index or UUID; with `count`, that many of them."""
    name: Optional[str]
    """Only GPUs with this text in their name, such as "3090"."""
    min_mem: Optional[Size]
    """Only GPUs with at least this much memory in total."""
    util: Optional[int]
    """Only GPUs with at most this utilization, in percent."""
    mem_util: Optional[int]
    """Only GPUs with at most this memory utilization, in percent."""
    processes: Optional[int]
    """Accept GPUs with up to this many processes of strangers (default: 0)."""
    policy: Optional[str]
    """"spread" (the emptiest; default), "pack" (the fullest) or "random"."""


class Choice(Filters, total=False):
    """The keywords of `select`."""

    selector: Optional[Callable[[Gpu], bool]]
    """Only GPUs for which this function returns True. It is called again while too few GPUs match."""


class Conditions(TypedDict, total=False):
    """The keywords of every request for a lease that do not choose GPUs."""

    mem: Optional[Size]
    """Share GPUs: memory to reserve on each, such as "8GiB" (a number is bytes). Default: whole GPUs. "auto": as much
    as earlier runs of this job needed; the first run gets whole GPUs and is measured."""
    job: Optional[str]
    """The job type under which memory and run time are learned. Default with mem="auto": the program's script."""
    time: Optional[Duration]
    """The expected run time, such as "2h" (a number is seconds). Short jobs can fill gaps in the schedule."""
    label: Optional[str]
    """Text shown next to the job."""
    no_wait: bool
    """Raise NotGranted at once if the GPUs are not free."""
    timeout: Optional[Duration]
    """Raise NotGranted if the GPUs are not granted in this time."""
    ids: str
    """The form of the GPUs in CUDA_VISIBLE_DEVICES: "index" or "uuid"."""


class DetachedRequest(Filters, Conditions, total=False):
    """The keywords of `submit`."""

    placeholder: bool
    """Use a little memory on the GPUs until the job does, so that nvidia-smi shows that they are in use."""
    retry_oom: Optional[int]
    """If the job runs out of GPU memory, run it again with more, up to this many times, the last time with whole GPUs."""


class TaskRequest(Choice, Conditions, total=False):
    """The keywords of `Executor`."""

    placeholder: bool
    """Use a little memory on the GPUs until the task does, so that nvidia-smi shows that they are in use."""
    on_wait: Optional[Callable[[Waiting], None]]
    """Called, in a thread of the executor, when a task begins to wait, and when its position or the reason changes."""
    progress: Optional[bool]
    """Whether to show a line on stderr while the first task waits. Default: only on a terminal."""
    command: Optional[str]
    """The command that `berth status` shows. Default: the program's command line."""
    within: Optional[Lease]
    """Use GPUs of this lease of the same process. Default: the lease of the enclosing `with berth.gpus()` block."""


class Request(Choice, Conditions, total=False):
    """The keywords of `acquire`, `gpus`, `job` and `run`."""

    set_environment: bool
    """Whether to set os.environ (default: True). All threads share os.environ: if threads have leases at the same time,
    use False and pass each thread its `lease.indices`."""
    placeholder: Union[bool, Callable[[int], object]]
    """Use a little memory on the GPUs, so that users who only look at nvidia-smi see that the GPUs are in use. True: a
    process of Berth, which exits when the program itself uses the GPU. A function: called for each of the program's
    devices (0, 1, ...)."""
    on_wait: Optional[Callable[[Waiting], None]]
    """Called when the request begins to wait, and when its position or the reason changes."""
    progress: Optional[bool]
    """Whether to show a line on stderr while the request waits. Default: only on a terminal."""
    command: Optional[str]
    """The command that `berth status` shows. Default: the program's command line."""
    within: Optional[Lease]
    """Use GPUs of this lease of the same process. Default: the lease of the enclosing `with berth.gpus()` block."""
