"""The attacker wants every command that reads the archive to wait for as long as they like.

They mount a file system of their own (FUSE) over their folder of the archive, or over a file in it, and never answer.
Readers take only what is on the archive's own file system.
"""

import contextlib
import ctypes
import os

import pytest
from conftest import BERTH
from test_exhaust_memory import ALICE, MALLORY, line, write_history
from waiting import LIMIT

LIBC = ctypes.CDLL(None, use_errno=True)
pytestmark = pytest.mark.needs_root


@contextlib.contextmanager
def silent_file_system(path, mode):
    """A FUSE mount whose server never answers anything. Whatever reads there waits until it is unmounted."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode={mode:o},user_id={MALLORY},group_id={MALLORY},allow_other"
    mounted = LIBC.mount(b"silent", os.fsencode(path), b"fuse", 0, options.encode())
    problem = os.strerror(ctypes.get_errno())
    try:
        if mounted != 0:
            pytest.fail(f"cannot mount FUSE here: {problem}")
        yield
    finally:
        os.close(device)  # ends all that waits
        LIBC.umount2(os.fsencode(path), 2)


COMMANDS = [["log", "--json"], ["report", "--json"], ["profile", "--all", "--json"]]


@pytest.fixture(params=["openat2", "no-openat2"])
def command(request, server):
    """The words that call berth: as it is, or on a kernel without openat2(), which some containers forbid."""
    if request.param == "openat2":
        yield [BERTH]
        return
    trace = server.folder / "openat2.trace"
    yield ["strace", "-f", "-o", trace, "-e", "trace=openat2", "-e", "inject=openat2:error=ENOSYS", "-e", "signal=none",
           BERTH]
    assert "(INJECTED)" in trace.read_text(), "the fallback was not tried"


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_file_system_that_never_answers(server, command, what):
    write_history(server, ALICE, [line(1, ALICE, command="honest", job="honest")])
    path = write_history(server, MALLORY, [line(2, MALLORY, command="hostile")])
    target, mode = (path.parent, 0o40000) if what == "folder" else (path, 0o100000)
    with silent_file_system(target, mode):
        for words in COMMANDS:
            result = server.run(*command, *words, timeout=LIMIT)
            assert result.returncode == 0, result
            assert "hostile" not in result.stdout
        assert '"honest"' in server.run(*command, "log", "--json").stdout
        assert server.run(*command, "run", "--mem", "auto", "--", "true", timeout=LIMIT).returncode == 0


def test_another_file_system_is_not_read(server, command):
    """In a namespace of its own: a tmpfs over the folder, with a history that would be fine otherwise."""
    path = write_history(server, MALLORY, [line(2, MALLORY, command="on-the-same")])
    script = ('history=$1 folder=$2; shift 2; cp "$history" "$BERTH_DIR/copy" && '
              'mount -t tmpfs -o mode=755,uid=2003 none "$folder" && cp "$BERTH_DIR/copy" "$history" && '
              'exec "$@" log --json')
    outside = server.run(*command, "log", "--json").stdout
    assert "on-the-same" in outside
    inside = server.run("unshare", "--mount", "sh", "-c", script, "sh", path, path.parent, *command)
    assert inside.returncode == 0, inside.stderr
    assert "on-the-same" not in inside.stdout


def test_a_file_system_over_the_folder_of_a_user_who_runs_a_job(server, command):
    """Another user may have made the folder before the victim's first job. The victim gets a folder of another name."""
    archive = server.harbour / "archive"
    archive.mkdir()
    archive.chmod(0o1777)
    folder = archive / "0"
    folder.mkdir()
    os.chown(folder, MALLORY, MALLORY)
    with silent_file_system(folder, 0o40000):
        result = server.run(*command, "run", "--job", "train", "--", "sleep", "1.2", timeout=LIMIT)
        assert (result.returncode, result.stderr) == (0, "")
        assert '"sleep 1.2"' in server.run(*command, "log", "--json").stdout
    assert sorted(path.name for path in archive.iterdir()) == ["0", "0-1"]
