"""The lists that GPUGET kept in Redis: which GPUs are managed, and what happened to them.

Which of them are idle is in no list: the harbour and the driver know, and cannot be wrong about it.

A list belongs to whoever made it; only its owner and root change it. (In a shared Redis anybody could. Berth lets
nobody alter what is another's; who wants a list of his own takes another prefix.) What happened is told from the leases
that there are now, and from a file of each user to which `--release` adds: no file that all may write to.
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
    """2, or 2:1 for a MIG instance."""
    return _ID.fullmatch(text) is not None


@dataclasses.dataclass(frozen=True)
class ManagedGpus:
    """The GPUs that GPUGET hands out, by index, and since when they are these."""

    gpus: List[str]
    since: datetime.datetime

    def to_json(self) -> bytes:
        since_ms = int(self.since.timestamp() * 1000)
        return json.dumps({"version": 1, "gpus": self.gpus, "since_ms": since_ms}).encode()

    @staticmethod
    def from_json(content: bytes) -> ManagedGpus:
        """Planted, if it is anything but what to_json() writes."""
        try:
            fields = json.loads(content)
            gpus, since_ms = fields["gpus"], fields["since_ms"]
            since = datetime.datetime.fromtimestamp(since_ms / 1000, datetime.timezone.utc)
            valid = fields["version"] == 1 and isinstance(gpus, list) and all(map(is_id, gpus))
        except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
            valid = False
        if not valid:
            raise _shared_folder.UntrustedFile("it is no list of GPUs")
        return ManagedGpus(gpus, since)


class FileLists:
    """The lists of one Redis database and prefix, as the flags name them; they are kept apart and have no other
    effect. `report_problem` is told of each file that does not count."""

    def __init__(self, names: Sequence[object], report_problem: Callable[[str], None]) -> None:
        key = hashlib.sha256(json.dumps([str(name) for name in names]).encode()).hexdigest()[:32]
        self._managed = f"gpuget-managed-{key}"
        self._events = f"gpuget-events-{key}-"
        self._report_problem = report_problem

    def managed(self) -> Optional[ManagedGpus]:
        """None if nobody has said which GPUs to manage."""
        folder = _shared_folder.open_folder()
        if folder is None:
            return None
        with folder:
            return self._read_managed(folder)

    def manage(self, gpus: List[str], force: bool) -> bool:
        """Makes this the list; False if there is one and no `force`. NotYours if there is another user's."""
        new = ManagedGpus(gpus, datetime.datetime.now(datetime.timezone.utc))
        with _shared_folder.open_or_create_folder() as folder:
            try:
                folder.write(self._managed, new.to_json(), replace=force)
            except FileExistsError:
                if self._read_managed(folder) is not None:
                    return False
                folder.write(self._managed, new.to_json(), replace=True)  # whatever it is, it is no list
            except berth.NotYours:
                current = self._read_managed(folder)
                if current is None or current.gpus != gpus:
                    raise
        return True

    def delete(self) -> None:
        """No matter if there is none. NotYours if it is another user's."""
        folder = _shared_folder.open_folder()
        if folder is None:
            return
        with folder:
            folder.remove(self._managed)
            folder.remove(self._own_events())

    def add_events(self, lines: Sequence[str]) -> None:
        """For events() to give. What happened has happened: where it cannot be written, that is only said."""
        try:
            with _shared_folder.open_or_create_folder() as folder:
                self._append(folder, "".join(f"{line}\n" for line in lines).encode())
        except (OSError, berth.Error, _shared_folder.UntrustedFile) as problem:
            self._report_problem(f"the log has no line of this: {problem}")

    def events(self, since: datetime.datetime) -> List[str]:
        """What all users have added since then, oldest first."""
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
                os.ftruncate(file, 0)  # it begins anew, before it is too large to be read
            os.write(file, content)
        finally:
            os.close(file)

    def _read_events(self, folder: _shared_folder.Folder, name: str) -> List[str]:
        """The lines of a user's file; what is no such line is left out."""
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
            self._report_problem(f"{folder.quoted_path(name)} has lines that are no events; they are left out")
        return valid
