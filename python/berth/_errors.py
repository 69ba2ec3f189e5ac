"""What can go wrong: one exception for each kind of error that the command line has an exit code for."""

from __future__ import annotations


class Error(Exception):
    """What berth refuses or cannot do. The message says what, why, and what to do."""


class UsageError(Error, ValueError):
    """Arguments, or variables of the environment, that make no sense."""


class NotGranted(Error):
    """Not granted in time (`timeout`, `no_wait`), or taken out of the queue by `berth cancel`."""


class Impossible(Error):
    """A request that this host can never meet."""


class NoDriver(Error):
    """The NVIDIA driver is missing, refuses, or does not answer."""


class HarbourError(Error):
    """The harbour, the directory where all users of a host meet, cannot be used."""


class NotYours(Error):
    """Somebody else's lease."""


for _class in (Error, UsageError, NotGranted, Impossible, NoDriver, HarbourError, NotYours):
    _class.__module__ = "berth"  # as people write it, and as tracebacks should
