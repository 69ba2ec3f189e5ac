"""os.environ while leases are held: that of the newest one, and what was there before once all are gone."""

from __future__ import annotations

import os
import threading
from typing import Optional

from . import _native

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
LEASE_ID = "BERTH_LEASE"

_lock = threading.RLock()  # a signal's handler may release a lease in the middle of this
_original_values: dict[str, Optional[str]] = {}  # the values that were there before the first lease
_lease_variables: dict[str, dict[str, str]] = {}  # by id, the oldest first
_set_values: dict[str, str] = {}  # what stands there by berth's doing


def _newest() -> Optional[dict[str, str]]:
    held = list(_lease_variables.values())  # in one step
    return held[-1] if held else None


def _apply_newest() -> None:
    """Shows the newest lease, or what was there before. What somebody else has changed meanwhile is his."""
    while True:
        target = _newest()
        names = list(_set_values)
        for name, value in zip(names, _native.getenv(names)):
            new_value = (target or _original_values).get(name)
            if value == _set_values.get(name):
                if new_value is not None:
                    os.environb[name.encode()] = new_value.encode()
                else:
                    os.environb.pop(name.encode(), None)
            if target is None:
                _set_values.pop(name, None)
            else:
                _set_values[name] = target[name]
        if _newest() is target:
            return


# In these two, each step can be repeated, and a handler may come between any two of them, raise, or call them itself.
# (os.environb is os.environ, and quicker.)


def push(lease: str, variables: dict[str, str]) -> None:
    """Sets what a program sees of this lease."""
    with _lock:
        if not _lease_variables:
            _original_values.update(zip(variables, _native.getenv(list(variables))))
        _lease_variables[lease] = variables
        _set_values.update(variables)
        for name, value in variables.items():
            os.environb[name.encode()] = value.encode()
        if _newest() is not variables:
            _set_values.update(variables)
            _apply_newest()


def pop(lease: str) -> None:
    """Takes it back, also if it is not the newest."""
    with _lock:
        _lease_variables.pop(lease, None)
        if _set_values:
            _apply_newest()


def outer_restrictions() -> tuple[Optional[str], str]:
    """What restricts the choice from outside, and inside which lease this process was started. What berth itself has
    set in this process does not count: a second lease is a second request."""
    names = [VISIBLE_DEVICES, LEASE_ID]
    with _lock:
        while True:
            set_values = dict(_set_values)
            # in the middle of push(), what is there may be an older one's
            own_values = [set_values, *_lease_variables.values()]
            values = _native.getenv(names)
            if set_values == _set_values:  # no handler came in between
                break
        visible, lease = [
            _original_values.get(name)
            if value is not None and any(value == own.get(name) for own in own_values) else value
            for name, value in zip(names, values)
        ]
        return visible, lease or ""


def _reset_after_fork() -> None:
    """A child stands inside the leases of its parent."""
    global _lock
    _lock = threading.RLock()
    _lease_variables.clear()
    _original_values.clear()
    _set_values.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
