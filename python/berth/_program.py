"""Finds the `berth` command of the same installation as this package, which runs as the driver's helper process."""

from __future__ import annotations

import atexit
import os

from . import _native
from ._errors import NoDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

# The real folder of this package, and the folder from which it was imported. They differ if the folder or its files are
# symbolic links (uv --link-mode=symlink, GNU Stow). The command is then beside the links or beside the files.
_PACKAGES = list(dict.fromkeys(os.path.dirname(path) for path in (os.path.realpath(__file__), os.path.abspath(__file__))))


def _candidates(package: str) -> Iterator[str]:
    """The possible paths of the command, one for each way in which this package can be installed."""
    parent = os.path.dirname(package)
    packages, version, library = (os.path.basename(name) for name in (
        parent, os.path.dirname(parent), os.path.dirname(os.path.dirname(parent))))
    # A virtual environment or a prefix: PREFIX/lib/python3.11/site-packages/berth and PREFIX/bin/berth.
    if packages in ("site-packages", "dist-packages") and "py" in version and library.startswith("lib"):
        yield os.path.normpath(os.path.join(parent, "../../../bin/berth"))
    # pip install --target FOLDER: FOLDER/berth and FOLDER/bin/berth.
    yield os.path.join(parent, "bin", "berth")
    # A build tree: build/python/berth and build/bin/berth.
    if packages == "python":
        yield os.path.normpath(os.path.join(parent, "../bin/berth"))


def _find_program() -> str:
    """The path of the command. Refuses a file that another user could have put there."""
    refusal = None
    for package in _PACKAGES:
        for path in _candidates(package):
            if os.access(path, os.X_OK):
                reason = _native.describe_trust_problem(package, path)
                if reason is None:
                    return path
                refusal = refusal or f"the berth command {path!r} cannot be trusted: {reason}"
    raise NoDriver(f"{refusal or 'the berth command is missing from the installation of this package'}; reinstall "
                   "berth in a folder that only its owner can change")


def program() -> str:
    """The path of the `berth` command that belongs to this package.

    >>> import subprocess
    >>> subprocess.run([program(), "--version"], capture_output=True, text=True).stdout.split()[0]
    'berth'
    """
    global _path
    if _path is None:
        _path = _find_program()
        _native.set_helper_program(_path)
        atexit.register(_native.archive_all)
        # Daemon threads may still run when the interpreter shuts down; Python does not wait for them.
        atexit.register(_native.block_interpreter_reentry)
    return _path


_path: str | None = None
