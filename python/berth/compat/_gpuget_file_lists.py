"""The lists that GPUGET keeps in Redis, as files: the managed GPUs, and the log of events.

There is no list of idle GPUs: the harbour and the driver provide that information, and it is never outdated.

A list belongs to the user who created it; only that user and root can change it. (In a shared Redis every user can
change it. In Berth a user cannot change what belongs to another user; a user who wants another list uses another
prefix.) The log consists of the current leases and of a file for each user, to which `--release` adds lines. No file
can be written by several users.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import re
from typing import Callable, List, Optional, Sequence

import berth

from . import _shared_folder

_ID = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")
_EVENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: GPU [0-9:]+ (acquired|released) by PID [0-9]+\.")


def format_time(time: datetime.datetime) -> str:
    """A time as GPUGET writes it."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def is_id(text: str) -> bool:
    """Whether `text` is the index of a GPU: 2, or 2:1 for a MIG instance."""
    return _ID.fullmatch(text) is not None


@dataclasses.dataclass(frozen=True)
class ManagedGpus:
    """The GPUs that `GPU.py` hands out, by index, and the time when this list was made."""

    gpus: List[str]
    since: datetime.datetime

    def to_json(self) -> bytes:
        since_ms = int(self.since.timestamp() * 1000)
        return json.dumps({"version": 1, "gpus": self.gpus, "since_ms": since_ms}).encode()

    @staticmethod
    def from_json(content: bytes) -> ManagedGpus:
        """Raises UntrustedFile if the content does not have the form of to_json()."""
        try:
            fields = json.loads(content)
            gpus, since_ms = fields["gpus"], fields["since_ms"]
            since = datetime.datetime.fromtimestamp(since_ms / 1000, datetime.timezone.utc)
            valid = fields["version"] == 1 and isinstance(gpus, list) and all(map(is_id, gpus))
        except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
            valid = False
        if not valid:
            raise _shared_folder.UntrustedFile("it is not a valid list of GPUs")
        return ManagedGpus(gpus, since)


class FileLists:
    """The lists of one Redis server, database and prefix. `names` are those flags; they only keep lists apart, and no
    Redis server is used. `report_problem` is called for each file that is ignored."""

    def __init__(self, names: Sequence[object], report_problem: Callable[[str], None]) -> None:
        key = hashlib.sha256(json.dumps([str(name) for name in names]).encode()).hexdigest()[:32]
        self._managed = f"gpuget-managed-{key}"
        self._events = f"gpuget-events-{key}-"
        self._report_problem = report_problem

    def managed(self) -> Optional[ManagedGpus]:
        """The managed GPUs; None if there is no list."""
        folder = _shared_folder.open_folder()
        if folder is None:
            return None
        with folder:
            return self._read_managed(folder)

    def manage(self, gpus: List[str], force: bool) -> bool:
        """Sets the list. Returns False if there is a list and `force` is False. Raises NotYours if the list of another
        user has other GPUs."""
        new = ManagedGpus(gpus, datetime.datetime.now(datetime.timezone.utc))
        with _shared_folder.open_or_create_folder() as folder:
            try:
                folder.write(self._managed, new.to_json(), replace=force)
            except FileExistsError:
                if self._read_managed(folder) is not None:
                    return False
                folder.write(self._managed, new.to_json(), replace=True)  # the file is not a valid list
            except berth.NotYours:
                current = self._read_managed(folder)
                if current is None or current.gpus != gpus:
                    raise
        return True

    def delete(self) -> None:
        """Removes the list and this user's events, if they exist. Raises NotYours if the list is another user's."""
        folder = _shared_folder.open_folder()
        if folder is None:
            return
        with folder:
            folder.remove(self._managed)
            folder.remove(self._own_events())

    def add_events(self, lines: Sequence[str]) -> None:
        """Adds lines for events(). A failure is only reported, because the events themselves have happened."""
        try:
            with _shared_folder.open_or_create_folder() as folder:
                self._append(folder, "".join(f"{line}\n" for line in lines).encode())
        except (OSError, berth.Error, _shared_folder.UntrustedFile) as problem:
            self._report_problem(f"this event was not added to the log: {problem}")

    def events(self, since: datetime.datetime) -> List[str]:
        """The lines that all users have added since then, oldest first."""
        folder = _shared_folder.open_folder()
        if folder is None:
            return []
        with folder:
            names = [name for name in folder.names() if name.startswith(self._events)]
            lines = [line for name in names for line in self._read_events(folder, name)]
        return sorted((line for line in lines if line >= format_time(since)), key=lambda line: line[:19])

    def _own_events(self) -> str:
        return f"{self._events}{os.getuid()}"

    def _read_managed(self, folder: _shared_folder.Folder) -> Optional[ManagedGpus]:
        try:
            return ManagedGpus.from_json(folder.read(self._managed))
        except FileNotFoundError:
            return None
        except _shared_folder.UntrustedFile as problem:
            self._report_problem(f"{folder.quoted_path(self._managed)} is ignored: {problem}")
            return None

    def _append(self, folder: _shared_folder.Folder, content: bytes) -> None:
        try:
            file = folder.open(self._own_events(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except _shared_folder.UntrustedFile as problem:
            raise _shared_folder.UntrustedFile(f"{folder.quoted_path(self._own_events())}: {problem}") from problem
        try:
            os.fchmod(file, 0o644)
            if os.fstat(file).st_size > _shared_folder.MAX_BYTES // 2:
                os.ftruncate(file, 0)  # start again before the file is too large to be read
            os.write(file, content)
        finally:
            os.close(file)

    def _read_events(self, folder: _shared_folder.Folder, name: str) -> List[str]:
        """The lines of a user's file; malformed lines are skipped."""
        try:
            owner = int(name[len(self._events):])
            lines = folder.read(name, owner).decode("ascii", "replace").splitlines()
        except FileNotFoundError:
            return []
        except (_shared_folder.UntrustedFile, ValueError) as problem:
            self._report_problem(f"{folder.quoted_path(name)} is ignored: {problem}")
            return []
        valid = [line for line in lines if _EVENT.fullmatch(line)]
        if len(valid) < len(lines):
            self._report_problem(f"{folder.quoted_path(name)} has malformed lines, which are ignored")
        return valid
