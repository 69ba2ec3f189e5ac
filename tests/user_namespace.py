"""Becomes a user in a user namespace of its own, and then another program: the PID stays the same.

    user_namespace.py KIND UID COMMAND...

Run by root, which writes the kernel's maps of uids as newuidmap(1) would. KIND is one of:

    root      the user is root inside, and no other user is mapped (unshare -r, apptainer --fakeroot)
    podman    the user is root inside, and a range of subordinate uids follows (rootless Podman and Docker)
    keep-id   the user has the same number inside, with subordinate uids around it (podman --userns=keep-id)
    partial   the user has another number inside, and no other user is mapped
    unmapped  no user is mapped at all (unshare -U)
"""

import ctypes
import os
import sys

CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
SUBORDINATE = 1_000_000  # of every user in the tests: it matters only that they are others

MAPS = {
    "root": lambda uid: f"0 {uid} 1\n",
    "podman": lambda uid: f"0 {uid} 1\n1 {SUBORDINATE} 65536\n",
    "keep-id": lambda uid: f"0 {SUBORDINATE} {uid}\n{uid} {uid} 1\n{uid + 1} {SUBORDINATE + uid + 1} 65536\n",
    "partial": lambda uid: f"1000 {uid} 1\n",
}
KINDS = [*MAPS, "unmapped"]


def prefix(kind, uid):
    """What to put before a command, to run it so."""
    return [sys.executable, __file__, kind, str(uid)]


def main(kind, uid, *command):
    uid = int(uid)
    ready, say_ready = os.pipe()
    mapped, say_mapped = os.pipe()
    target = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.close(say_ready)
        os.close(mapped)
        if os.read(ready, 1) and kind in MAPS:
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{target}/{name}", "w") as file:
                    file.write(MAPS[kind](uid))
        os.write(say_mapped, b"!")
        os._exit(0)
    os.close(ready)
    os.close(say_mapped)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(say_ready, b"!")
    assert os.read(mapped, 1)
    os.waitpid(helper, 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
