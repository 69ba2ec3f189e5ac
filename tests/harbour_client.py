"""A client of the harbour in Python, written from its protocol: it makes leases without berth.

As a program (also for other users): harbour_client.py DIRECTORY GPU-UUID... [--job] [--mem MIB]
prints the lease's id and holds the lease until it is given back or stdin ends; then it prints
"released" or nothing.
"""

import contextlib
import fcntl
import json
import os
import random
import select
import stat
import sys
import time

LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


@contextlib.contextmanager
def locked(directory):
    """The harbour's lock, as whoever writes takes it."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(lock)


class Lease:
    """A lease of this process's user, kept until close()."""

    def __init__(self, directory, uuids, holder="shell", memory_mib=None, command="python", label="", **changes):
        self.directory = str(directory)
        self.id = "".join(random.choices(LETTERS, k=8))
        self.bell_path = f"{self.directory}/bell-{self.id}"
        os.mkfifo(self.bell_path)
        os.chmod(self.bell_path, 0o622)
        self.bell = os.open(self.bell_path, os.O_RDWR | os.O_NONBLOCK)
        now = time.time_ns() // 1_000_000
        request = {"count": len(uuids), "policy": "spread"}
        if memory_mib is not None:
            request["memory_bytes"] = memory_mib << 20
        record = {"version": 1, "id": self.id, "state": "holding", "uid": os.geteuid(), "pid": os.getpid(),
                  "pid_namespace": os.stat("/proc/self/ns/pid").st_ino, "holder": holder, "command": command,
                  "label": label, "since_ms": now, "request": request, "gpus": list(uuids), "granted_ms": now,
                  **changes}
        self.path = f"{self.directory}/lease-{self.id}"
        with locked(self.directory), open(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
            os.chmod(self.path, 0o644)
            json.dump(record, file)

    @property
    def ended(self):
        """Told to end by its owner or root: its record has the sticky bit."""
        return bool(os.stat(self.path).st_mode & stat.S_ISVTX)

    def wait_rung(self, seconds, also=()):
        """True once the bell was rung; False if not in time, or if `also` became readable."""
        ready, _, _ = select.select([self.bell, *also], [], [], seconds)
        return self.bell in ready

    def close(self):
        os.close(self.bell)
        for path in (self.path, self.bell_path):
            with contextlib.suppress(FileNotFoundError):  # another client may have removed it
                os.unlink(path)


def main(directory, *words):
    uuids = [word for word in words if word.startswith(("GPU-", "MIG-"))]
    memory = int(words[words.index("--mem") + 1]) if "--mem" in words else None
    lease = Lease(directory, uuids, "job" if "--job" in words else "shell", memory)
    print(lease.id, flush=True)
    if lease.wait_rung(600, also=[sys.stdin]) and lease.ended:
        print("released", flush=True)
    lease.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
