"""The logger of Berth. Imported by _log.py with the first message that can be seen."""

from __future__ import annotations

import logging

from . import _log

logger = logging.getLogger("berth")


class _LastResort(logging.Handler):
    """Prints warnings of Berth if the program has not configured logging. Python would print them without a name."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None and not logging.root.handlers and logger.handlers == [self]:
            _log.print_to_stderr(f"berth: {record.getMessage()}")


logger.addHandler(_LastResort(logging.WARNING))
