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
_shown: dict[str, str] = {}  # what stands there by berth's doing


def _newest() -> Optional[dict[str, str]]:
    held = list(_leases.values())  # in one step
    return held[-1] if held else None


def _show_newest() -> None:
    """Shows the newest lease, or what was there before. What somebody else has changed meanwhile is his."""
    while True:
        target = _newest()
        names = list(_shown)
        for name, value in zip(names, _native.getenv(names)):
            wanted = (target or _before).get(name)
            if value == _shown.get(name):
                if wanted is not None:
                    os.environb[name.encode()] = wanted.encode()
                else:
                    os.environb.pop(name.encode(), None)
            if target is None:
                _shown.pop(name, None)
            else:
                _shown[name] = target[name]
        if _newest() is target:
            return


# In these two, each step can be repeated, and a handler may come between any two of them, raise, or call them itself.
# (os.environb is os.environ, and quicker.)


def push(lease: str, variables: dict[str, str]) -> None:
    """Sets what a program sees of this lease."""
    with _lock:
        if not _leases:
            _before.update(zip(variables, _native.getenv(list(variables))))
        _leases[lease] = variables
        _shown.update(variables)
        for name, value in variables.items():
            os.environb[name.encode()] = value.encode()
        if _newest() is not variables:
            _shown.update(variables)
            _show_newest()


def pop(lease: str) -> None:
    """Takes it back, also if it is not the newest."""
    with _lock:
        _leases.pop(lease, None)
        if _shown:
            _show_newest()


def surroundings() -> tuple[Optional[str], str]:
    """What restricts the choice from outside, and inside which lease this process was started. What berth itself has
    set in this process does not count: a second lease is a second request."""
    names = [VISIBLE, LEASE]
    with _lock:
        while True:
            shown = dict(_shown)
            ours = [shown, *_leases.values()]  # in the middle of push(), what is there may be an older one's
            values = _native.getenv(names)
            if shown == _shown:  # no handler came in between
                break
        visible, lease = [
            _before.get(name) if value is not None and any(value == own.get(name) for own in ours) else value
            for name, value in zip(names, values)
        ]
        return visible, lease or ""


def _in_fork() -> None:
    """A child stands inside the leases of its parent."""
    global _lock
    _lock = threading.RLock()
    _leases.clear()
    _before.clear()
    _shown.clear()


os.register_at_fork(after_in_child=_in_fork)
