"""os.environ while leases are held: that of the newest one, and what was there before once all are gone."""

from __future__ import annotations

import os
import threading
from typing import Optional

from . import _native

VISIBLE = "CUDA_VISIBLE_DEVICES"
LEASE = "BERTH_LEASE"

_lock = threading.RLock()  # a signal's handler may release a lease in the middle of this
_before: dict[str, Optional[str]] = {}  # the values that were there before the first lease
_leases: dict[str, dict[str, str]] = {}  # by id, the oldest first


def _newest() -> dict[str, str]:
    held = list(_leases.values())
    return held[-1] if held else {}


def _set(name: str, value: str) -> None:
    os.environb[name.encode()] = value.encode()  # os.environ is the same, and slower


def push(lease: str, variables: dict[str, str]) -> None:
    """Sets what a program sees of this lease."""
    with _lock:
        if not _leases:
            _before.clear()
            _before.update(zip(variables, _native.getenv(list(variables))))
        _leases[lease] = variables
        for name, value in variables.items():
            _set(name, value)


def pop(lease: str) -> None:
    """Takes it back, also if it is not the newest: to what the newest has then, or to what was there before. What
    somebody else has changed meanwhile is his."""
    with _lock:
        if lease not in _leases:
            return
        old = _leases[lease]
        others = [held for other, held in list(_leases.items()) if other != lease]
        new = others[-1] if others else {}
        for name, value in old.items():
            wanted = new[name] if name in new else _before[name]
            if os.environb.get(name.encode()) != value.encode():
                continue  # or it is not the newest
            if wanted is not None:
                _set(name, wanted)
            else:
                os.environb.pop(name.encode(), None)
        _leases.pop(lease, None)  # at last: who was interrupted before calls again


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
    _lock = threading.RLock()
    _leases.clear()
    _before.clear()


os.register_at_fork(after_in_child=_in_fork)
