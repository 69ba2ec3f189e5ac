"""Reports the progress of a request that waits: to a callback, on the terminal and in the log."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Sized

if TYPE_CHECKING:
    from datetime import datetime

logger = logging.getLogger("berth")


class _LastResort(logging.Handler):
    """Prints warnings of Berth if the program has not configured logging. Python would print them without a name."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None and not logging.root.handlers and logger.handlers == [self]:
            _print(f"berth: {record.getMessage()}")


logger.addHandler(_LastResort(logging.WARNING))


def _print(text: str, end: str = "\n") -> None:
    """Prints to stderr. A failure is ignored: the request waits all the same."""
    if sys.stderr is not None:  # print() would use stdout instead
        with contextlib.suppress(OSError, ValueError):
            print(text, end=end, file=sys.stderr, flush=True)


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

    def __str__(self) -> str:
        parts = []
        if self.starts is not None and (seconds := int(self.starts.timestamp() - time.time())) > 0:
            parts.append(f"starts in about {_format_duration(seconds)}")
        if self.next_free is not None and (seconds := int(self.next_free[1].timestamp() - time.time())) > 0:
            parts.append(f"next free: {self.next_free[0]} in about {_format_duration(seconds)}")
        if self.position:
            parts.append(f"position {self.position} of {self.length}")
        return f"{', '.join(parts)}: {self.reason}" if parts else self.reason


def _format_duration(seconds: int) -> str:
    if seconds < 90:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 5400 else f"{seconds // 3600}h {seconds % 3600 // 60}m"


class WaitReporter:
    """Reports the wait of one request to the callback, the terminal and the log."""

    def __init__(self, on_wait: Optional[Callable[[Waiting], None]], progress: Optional[bool],
                 held_leases: Sized = ()) -> None:
        self._held_leases = held_leases
        self._on_wait = on_wait
        self._progress = progress
        self._line_shown = False
        self.has_waited = False
        self._silent = False

    def report_wait(self, position: int, length: int, reason: str, starts: Optional[float],
                    next_free: Optional[tuple[str, float]] = None) -> None:
        """Called by the native module when the request begins to wait, and when its position or reason changes."""
        from datetime import datetime, timezone  # imported only here, because most programs never wait

        when = None if starts is None else datetime.fromtimestamp(starts, timezone.utc)
        if self._held_leases:  # a loop that does not release its leases waits for itself
            leases = "a lease" if len(self._held_leases) == 1 else f"{len(self._held_leases)} leases"
            reason += f"; this program itself holds {leases}: call release() on leases that it no longer needs"
        free = None if next_free is None else (next_free[0], datetime.fromtimestamp(next_free[1], timezone.utc))
        waiting = Waiting(position, length, reason, when, free)
        # Without a line and a callback the user would not know why the program hangs: the first log entry is a warning.
        show_line = self._shows_line()
        is_first = not self.has_waited
        self.has_waited = True
        if is_first:
            self._silent = self._on_wait is None and not show_line
        logger.log(logging.WARNING if is_first and self._silent else logging.INFO, "waiting, %s", waiting)
        if show_line:
            self._show(f"berth: waiting, {waiting}")
        if self._on_wait is not None:
            self._on_wait(waiting)

    def report_notice(self, text: str) -> None:
        """Called by the native module with a message for the user."""
        self.clear_line()
        logger.warning("%s", text)

    def report_grant(self, text: str) -> None:
        """Called with what was granted, when a request that has waited was granted."""
        logger.log(logging.WARNING if self._silent else logging.INFO, "%s", text)
        if self._shows_line():
            _print(f"berth: {text}")

    def _shows_line(self) -> bool:
        return sys.stderr is not None and sys.stderr.isatty() if self._progress is None else self._progress

    def clear_line(self) -> None:
        """Removes the line from the terminal."""
        if self._line_shown:
            _print("\r\033[K", end="")
        self._line_shown = False

    def _show(self, text: str) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            _print(text)
            return
        with contextlib.suppress(OSError):  # the terminal was closed
            room = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
            _print(f"\r{text[:room]}\033[K", end="")
            self._line_shown = True
