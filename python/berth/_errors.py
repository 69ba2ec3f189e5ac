"""The exceptions: one for each kind of error for which the command line has an exit code."""

from __future__ import annotations


class Error(Exception):
    """The base of all exceptions of Berth. The message says what is wrong, why, and what to do."""


class UsageError(Error, ValueError):
    """An argument or an environment variable is invalid."""


class NotGranted(Error):
    """The request was not granted in time (`timeout`, `no_wait`), or was cancelled by `berth cancel`."""


class Impossible(Error):
    """This host can never meet the request."""


class NoDriver(Error):
    """The NVIDIA driver is missing, fails, or does not answer."""


class HarbourError(Error):
    """The harbour (the directory or server that keeps tickets and leases) cannot be used."""


class NotYours(Error):
    """The lease or file belongs to another user."""


class UnknownExitCode(Error):
    """A detached job has ended, and its exit code is unknown."""


for _class in (Error, UsageError, NotGranted, Impossible, NoDriver, HarbourError, NotYours, UnknownExitCode):
    _class.__module__ = "berth"  # tracebacks then show the public name, such as berth.NotGranted
