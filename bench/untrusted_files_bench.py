"""Measures how much longer a decision takes with untrusted files of another user in the harbour."""

import os
import pathlib
import shutil
import tempfile

import queue_bench

FEW, MANY = 6_000, 60_000
NOBODY = 65534
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
KINDS = ("ticket-{:015d}-{}", "lease-{1}", "bell-{1}", "other-{1}")


def file_name(number):
    """The name of a file that looks like a ticket, a lease, a bell, or another file."""
    name = "".join(LETTERS[(number >> shift) & 31] for shift in (35, 30, 25, 20, 15, 10, 5, 0))
    return KINDS[number % len(KINDS)].format(number + 1, name)


class HarboursWithUntrustedFiles:
    """Two harbours with few and with many empty files, and the command that decides there.

    If root measures, the files belong to root and the decisions are another user's, since berth would remove leftovers of
    its own user. Without root, the files have names that berth ignores."""

    def __init__(self, env, build, base):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=base))
        self.folder.chmod(0o755)
        self.is_root = os.geteuid() == 0
        shutil.copytree(build.bin, self.folder / "copy" / "bin", symlinks=True)
        shutil.copytree(build.driver, self.folder / "copy" / "lib" / "sim", symlinks=True)
        self.environments = {count: self.create_harbour(env, count) for count in (FEW, MANY)}

    def create_harbour(self, env, count):
        own = self.folder / str(count)
        own.mkdir(mode=0o1777)
        own.chmod(0o1777)
        env = queue_bench.env_in_folder(env, own)
        harbour = pathlib.Path(env["BERTH_DIR"])
        for number in range(count):
            (harbour / (file_name(number) if self.is_root else f"other-{number}")).touch()
        return env

    def command(self):
        run = f"{self.folder}/copy/bin/berth run -- true"
        return f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {run}" if self.is_root else run

    def remove(self):
        shutil.rmtree(self.folder)
