"""The attacker wants berth to write into a file of the victim's, to read what it writes, or to stop it: by symbolic links,
hard links, FIFOs and files of their own at names that berth is going to use.

Tried: a link at the archive (history and profiles); links, FIFOs and a joblog in the folder for the logs of `berth batch`,
or such a folder of the attacker's; hard links to files of the victim's in the folder of the drop-in replacements
(python/berth/compat).
"""

import json
import os
import shutil
import sys

import pytest
from conftest import BUILD, assert_one_line_error
from hostile import ALICE, MALLORY, calls_from, prefix_of, run_with_pause

pytestmark = pytest.mark.needs_root

# The system calls by which a path is examined or opened.
OPENING = {"openat", "lstat", "newfstatat", "fstat", "stat", "mkdir", "readlinkat"}


def test_history_is_not_written_through_a_link_at_the_archive(server, open_build):
    """To a folder of the victim's own, which has the name that berth looks for."""
    target = server.folder / "target"
    (target / str(ALICE)).mkdir(parents=True)
    os.chown(target / str(ALICE), ALICE, ALICE)
    archive = server.harbour / "archive"
    archive.symlink_to(target)
    os.chown(archive, MALLORY, MALLORY, follow_symlinks=False)
    result = server.run(*prefix_of(ALICE), open_build / "bin" / "berth", "run", "--", "true")
    assert result.returncode == 0
    assert os.listdir(target / str(ALICE)) == []


# berth batch


@pytest.fixture
def desk(server, open_build):
    """A folder that several users may write to, as those of a project often are, with a batch of Alice's."""
    folder = server.folder / "desk"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "jobs.txt").write_text("echo output; echo >>ran\n")

    def batch(*flags):
        program = open_build / "bin" / "berth"
        return server.run(*prefix_of(ALICE), program, "batch", *flags, "jobs.txt", cwd=folder)
    return folder, batch


def logs_of(folder, owner):
    logs = folder / "jobs.logs"
    logs.mkdir()
    logs.chmod(0o777)
    os.chown(logs, owner, owner)
    return logs


def log_name(folder, batch):
    """What berth calls the log of the one line."""
    assert batch("--logs", "first").returncode == 0
    (folder / "ran").unlink()
    return next(name for name in os.listdir(folder / "first") if name.endswith(".log"))


def plant(path, kind, target):
    if kind == "symbolic link":
        path.symlink_to(target)
    elif kind == "hard link":
        os.link(target, path)
    elif kind == "FIFO":
        os.mkfifo(path)
    else:
        path.write_text("")
    if kind != "hard link":
        os.chown(path, MALLORY, MALLORY, follow_symlinks=False)
        if kind in ("FIFO", "file"):
            path.chmod(0o666)


@pytest.mark.parametrize("flags", [[], ["--resume"]], ids=["anew", "resumed"])
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "FIFO", "file"])
def test_a_log_is_a_file_of_the_users_own(desk, kind, flags):
    folder, batch = desk
    name = log_name(folder, batch)
    secret = folder / "profile"
    secret.write_text("precious\n")
    os.chown(secret, ALICE, ALICE)
    logs = logs_of(folder, ALICE)  # writable for others, as under a umask of 000
    plant(logs / name, kind, secret)
    result = batch(*flags)
    assert result.returncode == 0, result
    assert secret.read_text() == "precious\n"
    about = os.lstat(logs / name)
    assert (about.st_uid, about.st_nlink) == (ALICE, 1) and (logs / name).read_text() == "output\n"


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "FIFO", "file"])
def test_a_joblog_of_another_user_is_not_believed(desk, kind):
    """It would say that all has run already."""
    folder, batch = desk
    assert batch().returncode == 0
    (folder / "ran").unlink()
    content = (folder / "jobs.logs" / "joblog.jsonl").read_text()
    assert json.loads(content.splitlines()[-1])["succeeded"] == 1
    logs = folder / "jobs.logs"
    logs.chmod(0o777)
    target = folder / "target"
    target.write_text(content)
    os.chown(target, ALICE, ALICE)
    (logs / "joblog.jsonl").unlink()
    plant(logs / "joblog.jsonl", kind, target)
    if kind == "file":
        (logs / "joblog.jsonl").write_text(content)
    result = batch("--resume")
    assert_one_line_error(result, 74, "joblog.jsonl", "--joblog")
    assert not (folder / "ran").exists() and target.read_text() == content


def test_a_folder_for_logs_is_the_users_own(desk):
    folder, batch = desk
    logs = logs_of(folder, MALLORY)
    assert_one_line_error(batch(), 74, str(MALLORY), "--logs")
    assert os.listdir(logs) == []
    logs.rmdir()
    own = folder / "own"
    own.mkdir()
    os.chown(own, ALICE, ALICE)
    logs.symlink_to(own)
    os.chown(logs, MALLORY, MALLORY, follow_symlinks=False)
    assert_one_line_error(batch(), 74, str(MALLORY), "--logs")
    assert os.listdir(own) == []
    os.chown(logs, ALICE, ALICE, follow_symlinks=False)
    assert batch().returncode == 0 and os.listdir(own) != []


def test_a_folder_for_logs_that_is_exchanged_while_it_is_opened(desk, server, open_build):
    """Whatever system call comes before: a link takes the folder's place, to another folder of the victim's."""
    folder, batch = desk
    private = folder / "private"
    private.mkdir()
    os.chown(private, ALICE, ALICE)
    logs, away = folder / "jobs.logs", folder / "away"
    command = ["env", f"--chdir={folder}", *prefix_of(ALICE), open_build / "bin" / "berth", "batch", "--logs", logs, "jobs.txt"]

    def exchange():
        logs.rename(away)
        logs.symlink_to(private)
        os.chown(logs, MALLORY, MALLORY, follow_symlinks=False)

    def restore():
        shutil.rmtree(away if away.exists() else logs)
        if logs.is_symlink():
            logs.unlink()
        logs_of(folder, ALICE)

    logs_of(folder, ALICE)
    trace = server.folder / "trace"
    assert server.run("strace", "-o", trace, *command).returncode == 0
    calls = [call for call in calls_from(trace, str(logs)) if call[0] in OPENING][:8]
    assert calls
    for call in calls:
        restore()
        run_with_pause(server, call, exchange, *command)
        assert os.listdir(private) == [], call


# The drop-in replacements


@pytest.mark.parametrize("kind", ["hard link", "file"])
def test_compat_changes_only_files_of_the_users_own(server, open_build, kind):
    """A file with a second name is another one of the same user's, whose name the attacker knows."""
    shutil.copytree(BUILD / "python", open_build / "python")
    folder = server.folder / "state"
    folder.mkdir()
    folder.chmod(0o1777)
    secret = server.folder / "secret"
    secret.write_text("precious\n")
    os.chown(secret, ALICE, ALICE)
    plant(folder / "name", kind, secret)
    script = ("import os, sys\n"
              "from berth.compat import _shared_folder\n"
              f"folder = _shared_folder.Folder({str(folder)!r}, os.open({str(folder)!r}, os.O_RDONLY))\n"
              "for flags in (os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND | os.O_CREAT):\n"
              "    try:\n"
              "        folder.open('name', flags)\n"
              "        sys.exit('it was opened')\n"
              "    except _shared_folder.UntrustedFile as problem:\n"
              "        print(problem)\n"
              "os.write(folder.open('new', os.O_RDWR | os.O_CREAT), b'x')\n")
    result = server.run(*prefix_of(ALICE), sys.executable, "-c", script, env={"PYTHONPATH": str(open_build / "python")})
    assert (result.returncode, result.stderr) == (0, ""), result
    assert ("hard link" if kind == "hard link" else str(MALLORY)) in result.stdout
    assert secret.read_text() == "precious\n"
