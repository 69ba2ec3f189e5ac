"""Reports the progress of a request that waits: to a callback, on the terminal and in the log."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
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

    text: str = ""
    """All of this in one line, with the time waited."""

    def __str__(self) -> str:
        return self.text


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
        self._note = ""

    def report_wait(self, position: int, length: int, reason: str, starts: Optional[float],
                    next_free: Optional[tuple[str, float]], text: str) -> None:
        """Called by the native module when the request begins to wait, and when its position or reason changes."""
        from datetime import datetime, timezone  # imported only here, because most programs never wait

        when = None if starts is None else datetime.fromtimestamp(starts, timezone.utc)
        if self._held_leases:  # a loop that does not release its leases waits for itself
            leases = "a lease" if len(self._held_leases) == 1 else f"{len(self._held_leases)} leases"
            self._note = f"; this program itself holds {leases}: call release() on leases that it no longer needs"
        free = None if next_free is None else (next_free[0], datetime.fromtimestamp(next_free[1], timezone.utc))
        waiting = Waiting(position, length, reason + self._note, when, free, text + self._note)
        # Without a line and a callback the user would not know why the program hangs: the first log entry is a warning.
        show_line = self._shows_line()
        is_first = not self.has_waited
        self.has_waited = True
        if is_first:
            self._silent = self._on_wait is None and not show_line
        logger.log(logging.WARNING if is_first and self._silent else logging.INFO, "%s", waiting)
        if show_line:
            self._show(f"berth: {waiting}")
        if self._on_wait is not None:
            self._on_wait(waiting)

    def report_time(self, text: str) -> None:
        """Called by the native module now and then while nothing changes, with the present text of the wait."""
        if self._line_shown:
            self._show(f"berth: {text}{self._note}")

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
