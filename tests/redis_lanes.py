"""Simulated hosts with a Redis harbour, for tests that do harm to it: a proxy to the server, jobs that notice when they
are not alone, and a view of what is in Redis that does not go through berth."""

import os

from conftest import Server
from leasing import Jobs, eventually
from leftovers import kill_all_of, processes_of
from redis_proxy import Proxy

# Each GPU is a directory while a job uses it: who finds it there is not alone.
USE = r'''
for gpu in $(echo "$BERTH_GPUS" | tr , " "); do mkdir "$USED/$gpu" || echo "$gpu" >>"$USED/twice"; done
echo "$BERTH_GPUS"
%s
for gpu in $(echo "$BERTH_GPUS" | tr , " "); do rmdir "$USED/$gpu"; done
'''


def using(during="sleep 0.05"):
    """A command that uses its GPUs for as long as the shell commands `during` take."""
    return ["sh", "-c", USE % during]


# Until nobody holds its stdin any more.
USE_AND_STAY = using("read -r line")


class Lane:
    """One host. Its environment leads straight to the server; `faulty` is what leads through the proxy."""

    def __init__(self, folder, redis_server, gpus=1, ttl="1s", name="lane"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        self.server = Server(folder).use(f"{gpus}x24GiB")
        self.gpus = gpus
        self.redis = redis_server
        self.prefix = f"{folder.parent.name}.{folder.name}"
        self.host = name
        self.proxy = Proxy(str(redis_server.socket))
        self.query = f"prefix={self.prefix}&ttl={ttl}"
        self.used = folder / "used"
        self.used.mkdir()
        self.used.chmod(0o777)
        self.server.env |= {"BERTH_URL": redis_server.url(self.query), "BERTH_HOST": name, "USED": str(self.used)}
        self.faulty = {"BERTH_URL": self.proxy.url(self.query)}
        self.jobs = Jobs(self.server)
        redis_server.skip_recovery_wait(self.prefix)

    def berth(self, *words, env=None, **options):
        return self.server.berth(*words, env=env, **options)

    def run(self, *flags, command=None, env=None):
        """Starts `berth run`, with a job that uses its GPUs until it is told to end."""
        return self.jobs.run(*flags, command=command or USE_AND_STAY, env=env)

    def hold(self, *flags, **options):
        job = self.run(*flags, **options)
        job.gpus()
        return job

    def wait(self, *flags, **options):
        """Has a place in the queue by the time it returns."""
        before = len(self.tickets())
        job = self.run(*flags, **options)
        eventually(lambda: len(self.tickets()) > before, lambda: f"it takes its place: {job.err}")
        job.waits()
        return job

    # Redis, seen directly

    def key(self, name):
        return f"{self.prefix}:{self.host}:{name}"

    def ask(self, *words):
        with self.redis.client() as client:
            return client.execute_command(*words)

    def leases(self):
        with self.redis.client() as client:
            return client.hgetall(self.key("leases"))

    def tickets(self):
        """Ids in the queue's order."""
        with self.redis.client() as client:
            return client.zrange(self.key("queue"), 0, -1)

    def left(self):
        """What is there, of tickets and leases, and of who was heard of or rung."""
        with self.redis.client() as client:
            return {**client.hgetall(self.key("rung")), **client.hgetall(self.key("beats")),
                    **client.hgetall(self.key("leases")), **client.hgetall(self.key("tickets")),
                    **dict(client.zrange(self.key("queue"), 0, -1, withscores=True))}

    def status(self):
        return self.server.status()

    def leased(self):
        """The ids of the leases that `berth status` shows."""
        return sorted({lease["id"] for gpu in self.status()["gpus"] for lease in gpu["leases"]})

    # Afterwards

    def assert_never_twice(self):
        twice = self.used / "twice"
        assert not twice.exists(), f"two jobs at a time had GPU {twice.read_text()}"

    def assert_all_free(self):
        """All can be had at once, and then nothing is left."""
        self.assert_never_twice()

        def nothing_is_left():
            """What a dead client of another directory has left is taken away by who comes after its time."""
            result = self.berth("run", "-n", self.gpus, "--timeout", "25s", "--", "true")
            assert result.returncode == 0, (result, self.left(), sorted(os.listdir(self.server.harbour)))
            return not self.left()
        eventually(nothing_is_left, lambda: f"still there: {self.left()}")
        assert not list(self.used.iterdir())
        assert {gpu["state"] for gpu in self.status()["gpus"]} == {"free"}

    def processes(self):
        return processes_of(self.server.harbour)

    def stop(self):
        self.jobs.stop()
        self.server.stop()
        kill_all_of(self.server.harbour)
        self.proxy.close()


def assert_lines(errors):
    """Each line is berth's own, and fit for a terminal."""
    for line in errors.splitlines():
        assert line.startswith("berth: ") and line.isprintable(), errors


def same_host_elsewhere(lane, name="elsewhere"):
    """The environment of a client of the same host that has a directory of its own, as in a container: it cannot hear
    the bells of the others."""
    harbour = lane.server.folder / name
    harbour.mkdir()
    harbour.chmod(0o1777)
    return {"BERTH_DIR": str(harbour)}
