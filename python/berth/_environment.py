"""Sets os.environ to the variables of the newest lease, and restores the original values after the last one."""

from __future__ import annotations

import os
from _thread import RLock  # `threading` imports much more

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
LEASE_ID = "BERTH_LEASE"

_lock = RLock()  # reentrant: a signal handler may release a lease while this thread has the lock
_original_values: dict[str, Optional[str]] = {}  # the values before the first lease
_lease_variables: dict[str, dict[str, str]] = {}  # variables by lease id, the oldest lease first
_set_values: dict[str, str] = {}  # the values that Berth has set


def _newest() -> Optional[dict[str, str]]:
    held = list(_lease_variables.values())  # one step: no signal handler can run in between
    return held[-1] if held else None


def _apply_newest() -> None:
    """Sets the variables of the newest lease, or the original values. A variable that the program has changed meanwhile
    keeps the program's value."""
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


# A signal handler may run between any two steps of push() and pop(). It may raise, or call these functions itself. So
# each step can be repeated. (os.environb is the same as os.environ, but faster.)


def push(lease: str, variables: dict[str, str]) -> None:
    """Sets the variables of a new lease."""
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
    """Removes the variables of a lease, which need not be the newest."""
    with _lock:
        _lease_variables.pop(lease, None)
        if _set_values:
            _apply_newest()


def outer_restrictions() -> tuple[Optional[str], str]:
    """CUDA_VISIBLE_DEVICES and BERTH_LEASE as this process has got them from outside. Values that Berth has set in this
    process do not count: a second lease is a new request, not a part of the first one."""
    names = [VISIBLE_DEVICES, LEASE_ID]
    with _lock:
        while True:
            set_values = dict(_set_values)
            # If a handler has interrupted push(), the environment may still have the values of an older lease.
            own_values = [set_values, *_lease_variables.values()]
            values = _native.getenv(names)
            if set_values == _set_values:  # no handler has run in between
                break
        visible, lease = [
            _original_values.get(name)
            if value is not None and any(value == own.get(name) for own in own_values) else value
            for name, value in zip(names, values)
        ]
        return visible, lease or ""


def environment_without_leases() -> dict[str, str]:
    """A copy of os.environ as it would be if this process had no lease."""
    with _lock:
        variables = dict(os.environ)
        for name, value in _set_values.items():
            if variables.get(name) == value:
                original = _original_values.get(name)
                if original is None:
                    del variables[name]
                else:
                    variables[name] = original
        return variables


def _reset_after_fork() -> None:
    """In a forked child the leases of its parent count as set from outside."""
    global _lock
    _lock = RLock()
    _lease_variables.clear()
    _original_values.clear()
    _set_values.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
