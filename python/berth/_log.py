"""Writes to the log of Berth, `logging.getLogger("berth")`, and imports `logging` only where a message can be seen.

Most programs never see one, and `logging` takes longer to import than the path of `acquire`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from typing import Optional


def is_logging_imported() -> bool:
    """Whether the program has imported `logging`. False also inside a signal handler that runs during that import."""
    return hasattr(sys.modules.get("logging"), "shutdown")


def _get_logger() -> Optional[logging.Logger]:
    """None inside a signal handler that runs while `logging` or `_logger` is imported."""
    try:
        from ._logger import logger
    except (AttributeError, ImportError):
        return None
    return logger


def info(message: str, *values: object) -> None:
    """Without `logging`, the program has not configured it, so the message would not be shown."""
    logger = _get_logger() if is_logging_imported() else None
    if logger is not None:
        logger.info(message, *values, stacklevel=2)


def warning(message: str, *values: object) -> None:
    logger = _get_logger()
    if logger is not None:
        logger.warning(message, *values, stacklevel=2)
    else:
        print_to_stderr(f"berth: {message % values}")


def print_to_stderr(text: str, end: str = "\n") -> None:
    """Ignores a failure: the program continues all the same."""
    if sys.stderr is None:  # print() would use stdout instead
        return
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
