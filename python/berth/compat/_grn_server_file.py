"""The file in which a running `grn-start` lists its GPUs, for jobs of the same user.

The file belongs to that user, and is valid only while grn-start holds a lock on it. The kernel releases the lock when
the process ends. Jobs of other users ignore it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Iterator, List, Optional

import berth
from berth import _environment, _lease

from . import _shared_folder
from ._visible_gpus import visible_gpus


def _file_name() -> str:
    return f"grn-{os.getuid()}"


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock(file: int) -> bool:
    """Locks the file, with retries: jobs that check the lock hold it for a moment."""
    for _ in range(100):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
    return False


@contextlib.contextmanager
def publish_server_gpus(uuids: Optional[List[str]]) -> Iterator[None]:
    """During the `with` block, read_server_gpus() returns these GPUs to the user's jobs. Raises UsageError if another
    grn-start of the user runs."""
    with _shared_folder.open_or_create_folder() as folder:
        try:
            file = folder.open(_file_name(), os.O_RDWR | os.O_CREAT)
        except _shared_folder.UntrustedFile as problem:
            raise berth.HarbourError(f"cannot use {folder.quoted_path(_file_name())}: {problem}") from problem
    with os.fdopen(file, "wb") as stream:
        if not _lock(file):
            raise berth.UsageError("another grn-start of yours is running; stop it first")
        os.ftruncate(file, 0)
        stream.write(json.dumps({"version": 1, "gpus": uuids}).encode())
        stream.flush()
        yield


def allowed_gpus() -> Optional[List[str]]:
    """The UUIDs of the GPUs to which a running grn-start restricts this process; None if there is no restriction.

    Inside a lease there is no restriction, because the lease is a later and more specific choice. Raises Impossible if
    CUDA_VISIBLE_DEVICES leaves none of these GPUs.
    """
    visible, outer_lease = _environment.outer_restrictions()
    if outer_lease or _lease.enclosing_lease() is not None:
        return None
    uuids = _read_server_gpus()
    if uuids is None or visible is None or any(gpu.uuid in uuids for gpu in visible_gpus(visible)):
        return uuids
    managed = ", ".join(str(gpu.index) for gpu in berth.status() if gpu.uuid in uuids)
    raise berth.Impossible(f"CUDA_VISIBLE_DEVICES={visible!r} leaves none of the GPUs of your running grn-start "
                           f"({managed}); unset the variable, or stop grn-start")


def _read_server_gpus() -> Optional[List[str]]:
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
    """Reads the file. It must belong to this user: otherwise another user could block this user's jobs."""
    try:
        uuids = json.loads(folder.read(_file_name(), os.getuid()))["gpus"]
    except (_shared_folder.UntrustedFile, FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    return [str(uuid) for uuid in uuids] if isinstance(uuids, list) else None
