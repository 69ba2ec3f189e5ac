"""Reports the progress of a request that waits: to a callback, on the terminal and in the log."""

from __future__ import annotations

import os
import sys

from . import _log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Sized

    from ._waiting import Waiting


class WaitReporter:
    """Reports the wait of one request to the callback, the terminal and the log."""

    def __init__(self, on_wait: Optional[Callable[[Waiting], None]], progress: Optional[bool],
                 held_leases: Sized = (), quiet: bool = False) -> None:
        """Without a line and a callback the log has a warning; not if `quiet`."""
        self._held_leases = held_leases
        self._on_wait = on_wait
        self._progress = progress
        self._quiet = quiet
        self._line_shown = False
        self.has_waited = False
        self._silent = False
        self._note = ""

    def report_wait(self, position: int, length: int, reason: str, starts: Optional[float],
                    next_free: Optional[tuple[str, float]], text: str) -> None:
        """Called by the native module when the request begins to wait, and when its position or reason changes."""
        from datetime import datetime, timezone  # imported only here, because most programs never wait

        from ._waiting import Waiting

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
            self._silent = self._on_wait is None and not show_line and not self._quiet
        (_log.warning if is_first and self._silent else _log.info)("%s", waiting)
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
        _log.warning("%s", text)

    def report_grant(self, text: str) -> None:
        """Called with what was granted, when a request that has waited was granted."""
        (_log.warning if self._silent else _log.info)("%s", text)
        if self._shows_line():
            _log.print_to_stderr(f"berth: {text}")

    def _shows_line(self) -> bool:
        return sys.stderr is not None and sys.stderr.isatty() if self._progress is None else self._progress

    def clear_line(self) -> None:
        """Removes the line from the terminal."""
        if self._line_shown:
            _log.print_to_stderr("\r\033[K", end="")
        self._line_shown = False

    def _show(self, text: str) -> None:
        if sys.stderr is None or not sys.stderr.isatty():
            _log.print_to_stderr(text)
            return
        try:
            room = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
        except OSError:  # the terminal was closed
            return
        _log.print_to_stderr(f"\r{text[:room]}\033[K", end="")
        self._line_shown = True
