"""What people see while a request waits: a callback, a line on the terminal, the log."""

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


class Waiting(NamedTuple):
    """Where a request stands, for `on_wait`."""

    position: int
    """In the queue, from 1; 0 while the selector takes too few GPUs to stand there."""
    length: int
    reason: str
    """Who or what is in the way, in words."""
    starts: Optional[datetime]
    """An estimate, if those in the way have said how long they run."""

    def __str__(self) -> str:
        text = f"position {self.position} of {self.length}: {self.reason}" if self.position else self.reason
        if self.starts is not None:
            seconds = int(self.starts.timestamp() - time.time())
            if seconds > 0:
                text += f"; expected in about {_format_duration(seconds)}"
        return text


def _format_duration(seconds: int) -> str:
    if seconds < 90:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 5400 else f"{seconds // 3600}h {seconds % 3600 // 60}m"


class WaitReporter:
    """Tells whoever wants to know how the waiting goes: a callback, a line on the terminal, the log."""

    def __init__(self, on_wait: Optional[Callable[[Waiting], None]], progress: Optional[bool],
                 held_leases: Sized = ()) -> None:
        self._held_leases = held_leases
        self._on_wait = on_wait
        self._progress = progress
        self._line_shown = False
        self._reported = False

    def report_wait(self, position: int, length: int, reason: str, starts: Optional[float]) -> None:
        """For the native module: it waits, and why."""
        from datetime import datetime, timezone  # who does not wait does not need it

        when = None if starts is None else datetime.fromtimestamp(starts, timezone.utc)
        if self._held_leases:  # a loop that forgets to release waits for itself
            leases = "a lease" if len(self._held_leases) == 1 else f"{len(self._held_leases)} leases"
            reason += f"; this program holds {leases} itself: release() what it no longer needs"
        waiting = Waiting(position, length, reason, when)
        # Who shows nothing and hears nothing must not wonder for hours: the first time, the log warns.
        show_line = sys.stderr is not None and sys.stderr.isatty() if self._progress is None else self._progress
        silent = self._on_wait is None and not show_line and not self._reported
        logger.log(logging.WARNING if silent else logging.INFO, "waiting, %s", waiting)
        self._reported = True
        if show_line:
            self._show(f"berth: waiting, {waiting}")
        if self._on_wait is not None:
            self._on_wait(waiting)

    def report_notice(self, text: str) -> None:
        """For the native module: something that the user should know."""
        self.clear_line()
        logger.warning("%s", text)

    def clear_line(self) -> None:
        """Takes the line away."""
        if self._line_shown:
            self._print("\r\033[K", end="")
        self._line_shown = False

    def _show(self, text: str) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            self._print(text)
            return
        with contextlib.suppress(OSError):  # a terminal that is gone
            room = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
            self._print(f"\r{text[:room]}\033[K", end="")
            self._line_shown = True

    @staticmethod
    def _print(text: str, end: str = "\n") -> None:
        """Who cannot be told waits all the same."""
        if sys.stderr is not None:  # print() would take stdout for it
            with contextlib.suppress(OSError, ValueError):
                print(text, end=end, file=sys.stderr, flush=True)
