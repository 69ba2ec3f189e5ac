"""What a `grn-start` that runs tells the jobs of the same user: which GPUs it was told to manage.

In a file of that user's, which counts while grn-start holds a lock on it: the kernel ends the lock with the process.
Other users' jobs are their own affair.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Iterator, List, Optional

import berth

from . import _shared_folder


def _file_name() -> str:
    return f"grn-{os.getuid()}"


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock(file: int) -> bool:
    """Jobs that look hold it for a moment."""
    for _ in range(100):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
    return False


@contextlib.contextmanager
def publish_server_gpus(uuids: Optional[List[str]]) -> Iterator[None]:
    """Meanwhile read_server_gpus() gives these GPUs to the user's jobs. UsageError if another grn-start runs."""
    with _shared_folder.open_or_create_folder() as folder:
        try:
            file = folder.open(_file_name(), os.O_RDWR | os.O_CREAT)
        except _shared_folder.UntrustedFile as problem:
            raise berth.HarbourError(f"cannot use {folder.quoted_path(_file_name())}: {problem}") from problem
    with os.fdopen(file, "wb") as stream:
        if not _lock(file):
            raise berth.UsageError("a grn-start of yours runs already; end it first")
        os.ftruncate(file, 0)
        stream.write(json.dumps({"version": 1, "gpus": uuids}).encode())
        stream.flush()
        yield


def read_server_gpus() -> Optional[List[str]]:
    """UUIDs of the GPUs that the user's jobs may have; None if all will do.

    Inside a lease all do: that is a choice already, and a later one.
    """
    if os.environ.get("BERTH_LEASE"):
        return None
    folder = _shared_folder.open_folder()
    if folder is None:
        return None
    with folder:
        try:
            file = folder.open(_file_name(), os.O_RDONLY)
        except (FileNotFoundError, _shared_folder.UntrustedFile):
            return None
        try:
            if not _is_locked(file):
                return None
        finally:
            os.close(file)
        return _read_gpus(folder)


def _read_gpus(folder: _shared_folder.Folder) -> Optional[List[str]]:
    """Another user cannot hold back our jobs by a file of this name: it must be ours."""
    try:
        uuids = json.loads(folder.read(_file_name(), os.getuid()))["gpus"]
    except (_shared_folder.UntrustedFile, FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    return [str(uuid) for uuid in uuids] if isinstance(uuids, list) else None
