"""A Redis server of the tests' own: a real one, on a Unix socket and a free port, stopped by its PID."""

import atexit
import functools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.parse

import redis
from waiting import wait_until


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RedisServer:
    """Started at once. `folder` holds its socket, data and log."""

    def __init__(self, folder, *flags, port=None):
        self.folder = pathlib.Path(folder)
        self.socket = self.folder / "redis.sock"
        self.port = port or free_port()
        self.flags = flags
        self.process = None
        self.start()

    def start(self):
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.socket,
                   "--unixsocketperm", "777", "--dir", self.folder, "--save", "", "--logfile", self.folder / "redis.log",
                   *self.flags]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL)
        wait_until(self.answers, "redis-server answers")

    def answers(self):
        assert self.process.poll() is None, (self.folder / "redis.log").read_text()
        return self.cli("ping", check=False).stdout.strip().endswith("PONG")

    def cli(self, *words, check=True):
        return subprocess.run(["redis-cli", "-s", str(self.socket), *map(str, words)], text=True, capture_output=True,
                              check=check, env={"PATH": os.environ["PATH"], **self.secret()})

    def secret(self):
        return {}

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def client(self, **options):
        return redis.Redis(unix_socket_path=str(self.socket), decode_responses=True, **options)

    def skip_recovery_wait(self, prefix="berth"):
        """As if berth had known this server for long: else nobody is granted anything for some seconds."""
        with self.client() as client:
            client.set(f"{prefix}:born", f"{client.info('server')['run_id']} 1")

    def url(self, query=""):
        return f"redis+unix://{self.socket}" + (f"?{query}" if query else "")

    def tcp_url(self, query=""):
        return f"redis://127.0.0.1:{self.port}" + (f"?{query}" if query else "")


def client_of(url):
    """A connection to the server of that URL, and the prefix of its keys."""
    parts = urllib.parse.urlsplit(url)
    prefix = urllib.parse.parse_qs(parts.query).get("prefix", ["berth"])[0]
    return redis.Redis(unix_socket_path=parts.path, decode_responses=True), prefix


def history_length(url):
    """How many lines of history were sent to that URL."""
    client, prefix = client_of(url)
    with client:
        return client.xlen(f"{prefix}:history")


def tickets_of(url, host=None):
    """The records of the tickets that wait under that URL, in the queue's order."""
    client, prefix = client_of(url)
    part = f"{prefix}:{host or socket.gethostname()}"
    with client:
        ids = client.zrange(f"{part}:queue", 0, -1)
        return [text for text in client.hmget(f"{part}:tickets", ids) if text] if ids else []


@functools.cache
def shared_server():
    """One for all tests of this process, each with a prefix of its own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="berth-redis-"))
    folder.chmod(0o755)
    server = RedisServer(folder)

    def stop():
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    atexit.register(stop)
    return server
