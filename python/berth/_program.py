"""Where the berth command is that came with this package: it asks the driver for us."""

from __future__ import annotations

import atexit
import os

from . import _native
from ._errors import NoDriver

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
# From the package to the folder of commands: of a virtual environment or a prefix, of `pip install --target`, and of
# a build tree.
_FOLDERS = ("../../../../bin", "../bin", "../../bin")


def _find() -> str:
    for folder in _FOLDERS:
        path = os.path.normpath(os.path.join(_PACKAGE, folder, "berth"))
        if os.access(path, os.X_OK):
            return path
    from shutil import which

    found = which("berth")
    if found is None:
        raise NoDriver("the berth command, which asks the driver, is not beside this package; install berth again")
    return found


def program() -> str:
    """The path of the `berth` command that belongs to this package.

    >>> import subprocess
    >>> subprocess.run([program(), "--version"], capture_output=True, text=True).stdout.split()[0]
    'berth'
    """
    global _path
    if _path is None:
        _path = _find()
        _native.belong_to_program(_path)
        atexit.register(_native.archive_all)
        atexit.register(_native.let_nobody_return)  # daemon threads, which Python does not wait for
    return _path


_path: str | None = None
