"""The state of a request that waits, for `on_wait`. Imported when the first request waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:
    from datetime import datetime


class Waiting(NamedTuple):
    """The state of a request that waits, for `on_wait`."""

    position: int
    """The position in the queue, from 1. 0: the selector matches too few GPUs, so the request is not in the queue."""
    length: int
    reason: str
    """Why the request waits, as text."""
    starts: Optional[datetime]
    """The estimated start, if the run times of the jobs ahead are known; otherwise None."""
    next_free: Optional[tuple[str, datetime]] = None
    """The matching GPUs that are expected to be free first, such as "GPU 3", and when, if no start can be estimated."""

    text: str = ""
    """All of this in one line, with the time waited."""

    def __str__(self) -> str:
        return self.text
