"""The attacker wants root: a line of their own in a configuration file of root's, or a directory of root's that they can
write to. Both through `sudo berth setup`, or through a harbour that root is about to make.

Tried: a squatted harbour that is renamed to a path with a line break, or swapped for a symbolic link, after each system
call of setup; the same by inotify, in real time; a link at a harbour that is being made, in a folder where the attacker
can rename; links and directories in the way to the harbour; a default access control list.
"""

import ctypes
import os
import select
import signal
import subprocess

import pytest
from conftest import BERTH, assert_one_line_error
from hostile import ALICE, MALLORY, as_user, calls_from, owner_and_mode, prefix_of, run_with_pause

pytestmark = pytest.mark.needs_root

EVIL = "x\nz /usr/bin/bash 4755 root root\n#"
TRACED = "trace=%file,%desc"


@pytest.fixture
def tmpfiles(server):
    return server.folder / "tmpfiles.d"


@pytest.fixture
def lair(server):
    """A folder of the attacker's, on the same file system, with room for a directory of an evil name."""
    folder = server.folder / "lair"
    (folder / EVIL).parent.mkdir(parents=True)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, MALLORY, MALLORY)
    return folder


@pytest.fixture
def precious(server):
    """An empty directory of root's, which nobody else may write to."""
    folder = server.folder / "precious"
    folder.mkdir(mode=0o700)
    return folder


def squat(harbour, files=3):
    """The attacker comes before everybody else, and makes the harbour."""
    harbour.mkdir(exist_ok=True)
    for number in range(files):
        (harbour / f"bell-{number:08}".translate({48: "a", 49: "b"})).touch()  # 0 and 1 are not in IDs
    os.chown(harbour, MALLORY, MALLORY)
    harbour.chmod(0o755)


def expected_lines(harbour):
    return [f"d {harbour} 1777 root root -", f"x {harbour}", f"d {harbour}/archive 1777 root root -"]


def assert_configuration_is_ours(tmpfiles, harbour):
    """Whatever else happened. True if there is one."""
    if not (tmpfiles / "berth.conf").exists():
        return False
    text = (tmpfiles / "berth.conf").read_text()
    assert [line for line in text.splitlines() if not line.startswith("#")] == expected_lines(harbour), text
    return True


def swap(server, lair, link=None):
    """What the attacker does as soon as setup has looked at the harbour: it gets another name. Then a link takes its
    place, where one is given."""
    server.harbour.rename(lair / EVIL)
    if link is not None:
        server.harbour.symlink_to(link)


@pytest.mark.parametrize("way", ["moved", "replaced by a link"])
def test_a_harbour_that_is_moved_after_any_system_call_of_setup(server, tmpfiles, lair, precious, way):
    command = [BERTH, "setup", "--tmpfiles-dir", tmpfiles]
    squat(server.harbour)
    trace = server.folder / "trace"
    assert server.run("strace", "-o", trace, "-e", TRACED, *command).returncode == 0
    calls = calls_from(trace, server.harbour.name)
    assert len(calls) > 10, calls
    moved = set()
    for call in calls:
        subprocess.run(["rm", "-rf", tmpfiles, server.harbour, lair / EVIL], check=True)
        squat(server.harbour)

        def attack(call=call):
            if as_user(MALLORY, lambda: swap(server, lair, None if way == "moved" else precious)):
                moved.add(call)
        result = run_with_pause(server, call, attack, *command)
        done = assert_configuration_is_ours(tmpfiles, server.harbour)
        assert owner_and_mode(precious) == (0, 0o700), call
        if result.returncode == 0:
            assert done and owner_and_mode(server.harbour) == (0, 0o1777), call
        else:
            assert (result.returncode, result.stderr.count("\n")) == (74, 1), (call, result)
    assert moved, "the attack was possible at times"
    assert len(moved) < len(calls), "not any more when the harbour is root's"


def wait_and_swap(server, lair, ready):
    """By inotify: at the first read of the directory, which setup's check of its names is."""
    libc, access = ctypes.CDLL(None, use_errno=True), 0x1
    watch = libc.inotify_init()
    assert libc.inotify_add_watch(watch, os.fsencode(server.harbour), access) >= 0
    os.write(ready, b"!")
    select.select([watch], [], [], 30)
    swap(server, lair)


def test_a_harbour_that_is_moved_while_it_is_listed(server, tmpfiles, lair):
    """The exploit as it was found."""
    squat(server.harbour, files=5000)
    for _ in range(5):
        heard, ready = os.pipe()
        attacker = os.fork()
        if attacker == 0:
            try:
                os.setresgid(MALLORY, MALLORY, MALLORY)
                os.setresuid(MALLORY, MALLORY, MALLORY)
                wait_and_swap(server, lair, ready)
            finally:
                os._exit(0)
        assert os.read(heard, 1) == b"!"
        os.close(heard)
        os.close(ready)
        server.berth("setup", "--tmpfiles-dir", tmpfiles)
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
        assert_configuration_is_ours(tmpfiles, server.harbour)
        if (lair / EVIL).exists():
            subprocess.run(["rm", "-rf", server.harbour], check=True)
            (lair / EVIL).rename(server.harbour)
        os.chown(server.harbour, MALLORY, MALLORY)
        server.harbour.chmod(0o755)


def test_the_way_to_the_harbour_must_be_roots(server, tmpfiles, lair, precious):
    """A folder of the attacker's on the way can be swapped for a link at any moment."""
    inside = lair / "berth"
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": str(inside)})
    assert_one_line_error(result, 74, f"{MALLORY} ", f"'{lair}'")
    link = server.folder / "link"  # in a sticky folder, where only its owner can change it
    link.symlink_to(precious.parent)
    os.chown(link, MALLORY, MALLORY, follow_symlinks=False)
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": str(link / "precious")})
    assert_one_line_error(result, 74, "symbolic link", str(MALLORY))
    loose = server.folder / "loose"
    loose.mkdir()
    loose.chmod(0o775)
    result = server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": str(loose / "berth")})
    assert_one_line_error(result, 74, f"'{loose}'")
    assert owner_and_mode(precious) == (0, 0o700) and not tmpfiles.exists() and not (loose / "berth").exists()
    os.chown(link, 0, 0, follow_symlinks=False)  # a link of root's is as good as what it names
    assert server.berth("setup", "--tmpfiles-dir", tmpfiles, env={"BERTH_DIR": f"{link}/./harbour/"}).returncode == 0
    assert_configuration_is_ours(tmpfiles, server.harbour)


def test_access_control_lists_go_when_setup_comes(server, tmpfiles):
    squat(server.harbour)
    subprocess.run(["setfacl", "-m", f"u:{MALLORY}:rwx", "-m", f"d:u:{MALLORY}:rwx", server.harbour], check=True)
    output = server.berth("setup", "--tmpfiles-dir", tmpfiles).stdout
    assert any("access control" in line and f"'{server.harbour}'" in line for line in output.splitlines()), output
    assert os.listxattr(server.harbour) == [] and owner_and_mode(server.harbour) == (0, 0o1777)
    assert server.berth("setup", "--tmpfiles-dir", tmpfiles).stdout.lower().startswith("nothing")


# The harbour is made, by root


def test_a_harbour_is_not_made_where_others_can_replace_it(server, lair, precious, open_build):
    """The original attack swapped the new directory for a link between mkdir and chmod, which needed some tries."""
    loose = server.folder / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    shared = server.folder / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    for folder in (loose, shared, lair):
        before = os.listdir(folder)
        result = server.berth("run", "--", "true", env={"BERTH_DIR": str(folder / "berth")})
        assert_one_line_error(result, 74, f"'{folder}'", "BERTH_DIR")
        assert os.listdir(folder) == before
    program = open_build / "bin" / "berth"
    own = server.folder / "own"
    own.mkdir()
    os.chown(own, ALICE, ALICE)
    for folder in (own, server.folder):  # in an own folder, or a sticky one of root's
        result = server.run(*prefix_of(ALICE), program, "run", "--", "true", env={"BERTH_DIR": str(folder / "berth")})
        assert result.returncode == 0, result
        assert owner_and_mode(folder / "berth") == (ALICE, 0o1777)


@pytest.mark.parametrize("where", ["beside it", "in its place"])
@pytest.mark.parametrize("target", ["link", "directory"])
def test_only_a_new_directory_gets_the_mode_of_a_harbour(server, precious, where, target):
    """What stands at the name after mkdir, if another could rename there after all, is left as it is. In its place: on a
    file system without RENAME_NOREPLACE."""
    server.harbour.rmdir()
    old = server.folder / "old"
    old.mkdir()
    old.chmod(0o750)

    def swap_new():
        made = [path for path in server.folder.iterdir() if path.name.startswith("harbour")]
        assert len(made) == 1
        made[0].rmdir()
        if target == "link":
            made[0].symlink_to(precious)
        else:
            old.rename(made[0])
    beside = where == "beside it"
    result = run_with_pause(server, ("mkdir,mkdirat", 1 if beside else 2), swap_new, BERTH, "run", "--", "true",
                            inject=() if beside else ["renameat2:error=EINVAL"])
    assert result.returncode == 74, result
    assert owner_and_mode(precious) == (0, 0o700)
    made = [path for path in server.folder.iterdir() if path.name.startswith("harbour")]
    assert target == "link" or owner_and_mode(made[0]) == (0, 0o750)


def test_a_harbour_without_rename_noreplace(server):
    server.harbour.rmdir()
    result = server.run("strace", "-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL", BERTH, "run", "--", "true",
                        preexec_fn=lambda: os.umask(0o077))
    assert result.returncode == 0, result
    assert owner_and_mode(server.harbour) == (0, 0o1777)
    assert [path.name for path in server.folder.iterdir() if ".new-" in path.name] == []


def test_a_default_list_of_the_folder_above_is_not_inherited(server):
    server.harbour.rmdir()
    subprocess.run(["setfacl", "-m", f"d:u:{MALLORY}:rwx", server.folder], check=True)
    assert server.berth("run", "--", "true").returncode == 0
    assert os.listxattr(server.harbour) == [] and owner_and_mode(server.harbour) == (0, 0o1777)
