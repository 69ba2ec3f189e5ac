"""os.environ while leases are held: that of the newest one, and what was there before once all are gone."""

from __future__ import annotations

import os
import threading
from typing import Optional

from . import _native

VISIBLE = "CUDA_VISIBLE_DEVICES"
LEASE = "BERTH_LEASE"

_lock = threading.Lock()
_before: dict[str, Optional[str]] = {}  # the values that were there before the first lease
_leases: dict[str, dict[str, str]] = {}  # by id, the oldest first


def _newest() -> dict[str, str]:
    return next(reversed(_leases.values())) if _leases else {}


def _apply(old: dict[str, str], new: dict[str, str]) -> None:
    """From one lease's values to another's, or to what was there before. What somebody else has changed meanwhile is
    his."""
    names = [*new, *(name for name in old if name not in new)]
    for name, value in zip(names, _native.getenv(names)):
        if name in old and value != old[name]:
            continue
        wanted = new[name] if name in new else _before[name]
        if wanted is not None:
            os.environb[name.encode()] = wanted.encode()  # of os.environ the quicker half
        elif value is not None:
            del os.environb[name.encode()]


def push(lease: str, variables: dict[str, str]) -> None:
    """Sets what a program sees of this lease."""
    with _lock:
        if not _leases:
            _before.clear()
            _before.update(zip(variables, _native.getenv(list(variables))))
        old = _newest()
        _leases[lease] = variables
        _apply(old, variables)


def pop(lease: str) -> None:
    """Takes it back, also if it is not the newest."""
    with _lock:
        if lease not in _leases:
            return
        old = _newest()
        del _leases[lease]
        _apply(old, _newest())


def surroundings() -> tuple[Optional[str], str]:
    """What restricts the choice from outside, and inside which lease this process was started. What berth itself has
    set in this process does not count: a second lease is a second request."""
    names = [VISIBLE, LEASE]
    with _lock:
        visible, lease = [
            _before.get(name) if value is not None and value == _newest().get(name) else value
            for name, value in zip(names, _native.getenv(names))
        ]
        return visible, lease or ""


def _in_fork() -> None:
    """A child stands inside the leases of its parent."""
    global _lock
    _lock = threading.Lock()
    _leases.clear()
    _before.clear()


os.register_at_fork(after_in_child=_in_fork)
