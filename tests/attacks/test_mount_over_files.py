"""The attacker wants every decision on the host to fail or to wait: they mount a file system of their own (FUSE) over a
regular file or a bell of theirs in the harbour.

Without allow_other the kernel refuses every other user, root included, even a look at the file; with it, a look waits
until the attacker's server answers. Berth asks nothing of such a file system.
"""

import contextlib
import ctypes
import json
import os
import subprocess

import pytest
from users import ALICE, BOB, MALLORY, bell, ids, create_client, put, record, world  # noqa: F401
from waiting import LIMIT

LIBC = ctypes.CDLL(None, use_errno=True)
pytestmark = pytest.mark.needs_root
NAME = "mmmmmmmm"


@pytest.fixture
def harbour():
    return "directory"


@pytest.fixture(params=["refuses", "never answers"])
def mounted(request):
    """A function that mounts a silent FUSE file system over a file."""
    with contextlib.ExitStack() as stack:
        def mount(path, mode=0o100000):
            device = os.open("/dev/fuse", os.O_RDWR)
            other = ",allow_other" if request.param == "never answers" else ""
            options = f"fd={device},rootmode={mode:o},user_id={MALLORY},group_id={MALLORY}{other}"
            done = LIBC.mount(b"silent", os.fsencode(path), b"fuse", 0, options.encode())
            problem = os.strerror(ctypes.get_errno())
            stack.callback(LIBC.umount2, os.fsencode(path), 2)
            stack.callback(os.close, device)  # ends all that waits
            assert done == 0, f"cannot mount FUSE here: {problem}"
        mount.refuses = request.param == "refuses"
        yield mount


def doctor(world):  # noqa: F811
    return world.berth(BOB, "doctor", "--json", timeout=LIMIT).stdout


@pytest.mark.parametrize("file", [f"lease-{NAME}", f"ticket-{0:015}-{NAME}", f"request-{NAME}", "drain-GPU-1", "other"])
def test_a_mounted_record_stops_no_other_user(world, mounted, file):  # noqa: F811
    world.do(MALLORY, put, world.path(file), "{}")
    mounted(world.path(file))
    for uid in (BOB, 0):
        assert world.try_now(uid, timeout=LIMIT).returncode == 0
        result = world.berth(uid, "status", "--json", timeout=LIMIT)
        assert result.returncode == 0 and json.loads(result.stdout)["queue"] == []
    holder = world.hold(ALICE)
    bob = world.wait(BOB)
    holder.end()
    bob.started()
    if not file.startswith(("request", "other")):
        assert file in doctor(world)


def test_a_mounted_lease_beside_a_live_bell_holds_everything(world, mounted):  # noqa: F811
    world.start_process(MALLORY, create_client, world.harbour, f"lease-{NAME}", record(NAME, MALLORY, [world.uuid()]))
    mounted(world.path(f"lease-{NAME}"))
    assert world.try_now(BOB, timeout=LIMIT).returncode == 75
    assert world.leases() == {NAME: str(MALLORY)}
    assert NAME in doctor(world)


def test_a_mounted_lease_does_not_make_a_holder_of_a_waiter(world, mounted):  # noqa: F811
    """The attacker cannot have another user's bell prove their file."""
    holder = world.hold(BOB)
    alice = world.wait(ALICE)
    name = f"lease-{alice.lease}"
    world.do(MALLORY, put, world.path(name), "{}")
    mounted(world.path(name))
    assert world.leases() == {holder.lease: str(BOB)} and world.queue() == [alice.lease]
    holder.end()
    alice.started()


@pytest.mark.parametrize("mode", [0o100000, 0o10000], ids=["a file", "a FIFO"])
def test_a_mounted_bell_stops_no_other_user(world, mounted, mode):  # noqa: F811
    lone = ids("n", 1)[0]
    world.start_process(MALLORY, create_client, world.harbour, f"lease-{NAME}", record(NAME, MALLORY, [world.uuid()]))
    world.start_process(MALLORY, bell, world.harbour, lone)
    for name in (NAME, lone):
        mounted(world.path(f"bell-{name}"), mode)
    for uid in (BOB, 0):
        assert world.try_now(uid, timeout=LIMIT).returncode == 0
    assert world.leases() == {}


@pytest.fixture
def untyped(world):  # noqa: F811
    """A harbour on a file system that does not tell the types of files in a listing."""
    image, folder = world.server.folder / "image", world.server.folder / "untyped"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mke2fs", "-q", "-F", "-O", "^filetype", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True).returncode != 0:
        pytest.skip("no loop device here")
    try:
        (folder / "lost+found").rmdir()
        folder.chmod(0o1777)
        world.harbour = world.server.env["BERTH_DIR"] = str(folder)
        yield world
    finally:
        world.close()
        subprocess.run(["umount", "-l", folder], check=True)


def test_directories_on_a_file_system_without_types(untyped, mounted):
    world = untyped  # noqa: F811
    world.do(MALLORY, os.mkdir, world.path("lease-dddddddd"))
    world.do(MALLORY, os.mkdir, world.path(f"lease-{NAME}"))
    world.do(MALLORY, os.mkdir, world.path(f"ticket-{0:015}-{NAME}"))
    mounted(world.path(f"lease-{NAME}"), 0o40000)
    mounted(world.path(f"ticket-{0:015}-{NAME}"), 0o40000)
    for uid in (BOB, 0):
        assert world.try_now(uid, timeout=LIMIT).returncode == 0
    if mounted.refuses:
        findings = json.loads(doctor(world))["findings"]
        planted = [one["text"] for one in findings if one["check"] == "planted" and one["level"] == "problem"]
        for name, reason in (("lease-dddddddd", "directory"), (f"lease-{NAME}", "mounted")):
            assert any(f"'{name}'" in text and reason in text for text in planted), planted
        assert not any("'archive'" in text for text in planted), planted
