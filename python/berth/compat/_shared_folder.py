"""The folder in which the commands of older tools keep their state, readable by all users of a harbour.

The folder is beside the harbour, not in it, because every name in a harbour has a meaning. It has mode 1777, like a
harbour: the first user creates it, and only the owner of a file can change or remove it (sticky bit). Files are small,
and are replaced by rename, so that a reader never sees a part of one. Entries that a hostile user may have put there (a
link, a directory, a FIFO, a huge file) are ignored.
"""

from __future__ import annotations

import os
import pwd
import stat
from typing import List, Optional

import berth
from berth import _native

MAX_BYTES = 256 * 1024


class UntrustedFile(Exception):
    """A file that must be ignored; the text says why."""


def folder_path() -> str:
    """The path of the folder. The default harbour in /tmp is lost when the host restarts. The original tools keep their
    state then, so the default folder is in /var/tmp."""
    chosen = os.environ.get("BERTH_DIR")
    if chosen:
        return os.path.abspath(chosen) + ".compat"
    simulated = _native.simulated_state_path()
    return f"{simulated}.compat" if simulated else "/var/tmp/berth.compat"


def harbour_path() -> str:
    """The directory that contains the bells of this host."""
    return _native.harbour_path()


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


class Folder:
    """The open folder, and operations on its files."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def quoted_path(self, name: str) -> str:
        """The path of a file, quoted for messages."""
        return repr(os.path.join(self.path, name))

    def names(self) -> List[str]:
        return sorted(os.listdir(self._descriptor))

    def open(self, name: str, flags: int) -> int:
        """Opens a regular file, never through a link; a new file has mode 0644. A file that is opened for writing must
        belong to this user and have only one name: another user can make a hard link here to any file of this user.
        Raises UntrustedFile otherwise."""
        try:
            # Non-blocking: opening a FIFO would wait for a writer.
            file = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise UntrustedFile(f"it cannot be opened ({problem.strerror})") from problem
        file_status = os.fstat(file)
        is_writing = flags & os.O_ACCMODE != os.O_RDONLY
        if not stat.S_ISREG(file_status.st_mode):
            problem_text = "it is not a regular file"
        elif is_writing and file_status.st_uid != os.geteuid():
            problem_text = f"it belongs to {user_name(file_status.st_uid)}"
        elif is_writing and file_status.st_nlink != 1:
            problem_text = "it has several names (hard links)"
        else:
            return file
        os.close(file)
        raise UntrustedFile(problem_text)

    def read(self, name: str, owner: Optional[int] = None) -> bytes:
        """Reads a whole file. Raises FileNotFoundError, or UntrustedFile if it must be ignored, for example because it
        does not belong to the user `owner`."""
        file = self.open(name, os.O_RDONLY)
        with os.fdopen(file, "rb") as stream:
            file_status = os.fstat(file)
            if owner is not None and file_status.st_uid != owner:
                raise UntrustedFile(f"it belongs to {user_name(file_status.st_uid)}")
            if file_status.st_size > MAX_BYTES:
                raise UntrustedFile(f"it has {file_status.st_size} bytes; the limit is {MAX_BYTES}")
            return stream.read(MAX_BYTES)

    def write(self, name: str, content: bytes, replace: bool) -> None:
        """Writes a whole file. Raises FileExistsError if the file exists and `replace` is False, and NotYours if it
        belongs to another user."""
        new = f"new-{os.urandom(8).hex()}-{name}"  # another user cannot guess this name and occupy it
        try:
            self._write_new(new, content)
            if replace:
                os.rename(new, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            else:
                os.link(new, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except FileExistsError:
            raise
        except OSError as problem:
            raise self._file_error("write", name, problem) from problem
        finally:
            self._discard(new)

    def remove(self, name: str) -> None:
        """Removes a file, if it exists. Raises NotYours if it belongs to another user."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise self._file_error("remove", name, problem) from problem

    def _write_new(self, name: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._descriptor), "wb") as stream:
            os.fchmod(stream.fileno(), 0o644)  # whatever the umask
            stream.write(content)

    def _discard(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except OSError:
            pass  # it was renamed, or never created

    def _file_error(self, action: str, name: str, problem: OSError) -> berth.Error:
        try:
            owner = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_uid
        except OSError:
            owner = os.getuid()
        if owner != os.getuid():
            user = user_name(owner)
            able = user if owner == 0 else f"{user} and root"
            return berth.NotYours(f"{self.quoted_path(name)} belongs to {user}; only {able} can {action} it")
        return berth.HarbourError(f"cannot {action} {self.quoted_path(name)}: {problem.strerror}")


def open_folder() -> Optional[Folder]:
    """Opens the folder; None if it does not exist. Raises HarbourError if it cannot be used."""
    path = folder_path()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise berth.HarbourError(f"cannot use {path!r}: {problem.strerror}; check it with ls -ld") from problem
    mode = os.fstat(descriptor).st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        os.close(descriptor)
        raise berth.HarbourError(f"users could delete files of other users in {path!r}; its owner should run: "
                                 f"chmod 1777 {path!r}")
    return Folder(path, descriptor)


def open_or_create_folder() -> Folder:
    """Opens the folder, or creates it. Raises HarbourError if it cannot be used."""
    path = folder_path()
    before = os.umask(0)
    try:
        os.mkdir(path, 0o1777)  # with the sticky bit from the start, which mkdir() of Linux accepts
    except FileExistsError:
        pass
    except OSError as problem:
        raise berth.HarbourError(f"cannot create the folder {path!r}: {problem.strerror}") from problem
    finally:
        os.umask(before)
    folder = open_folder()
    if folder is None:
        raise berth.HarbourError(f"the folder {path!r} was removed just now; try again")
    return folder
