"""What the tests of `berth serve` share: a server on a free port, requests to it, and its live stream."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import BERTH
from waiting import LIMIT, wait_until

TOKEN = "0123456789abcdef-for-tests"


class Answer:
    """A whole answer, read to its end."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """What an error says: every one has this form."""
        said = self.json
        assert list(said) == ["error"] and "\n" not in said["error"], said
        return said["error"]


class Serving:
    """A `berth serve` of the test's own."""

    def __init__(self, server, *flags, env=None, prefix=(), program=BERTH, port=0):
        whole = {name: value for name, value in {**server.env, **(env or {})}.items() if value is not None}
        self.err_path = server.folder / f"serve-{time.monotonic_ns()}.err"
        with open(self.err_path, "w") as err:
            self.process = subprocess.Popen([str(word) for word in (*prefix, program, "serve", "--port", port, *flags)],
                                            env=whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                                            text=True)
        self.line = self.process.stdout.readline()
        found = re.fullmatch(r"http://([^/]+):(\d+)/(?:#token=([0-9a-f]{32}))?\n", self.line)
        assert found, (self.line, self.err)
        self.host, self.port, self.token = found[1], int(found[2]), found[3]

    @property
    def err(self):
        return self.err_path.read_text()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def ask(self, method, path, body=None, headers=None, token=None):
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        headers = dict(headers or {})
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.ask("POST", path, body=None if body is None else json.dumps(body), **options)

    def api(self, path, **options):
        """What GET /api/v1/PATH gives, parsed."""
        answer = self.get(f"/api/v1/{path}", **options)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json

    def raw(self, data, half=False):
        """Sends bytes as they are, and gives all that comes back until the other side closes."""
        with self.connect() as one:
            try:
                one.sendall(data)
                if half:
                    one.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it has answered before it had read all
            return read_all(one)

    def view(self, **options):
        return Viewer(self, **options)

    def end(self, how=signal.SIGTERM):
        """Tells it to end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(LIMIT)
        self.process.stdout.close()
        return code


def read_all(one):
    data = b""
    try:
        while piece := one.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return data


def status_of(data):
    """The status of an answer as it came."""
    assert data.startswith(b"HTTP/1.1 "), data[:200]
    return int(data.split()[1])


class Viewer:
    """Somebody who watches the live stream: collects its events in a thread of its own."""

    def __init__(self, serving, headers=None):
        self.socket = serving.connect()
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self.socket.sendall(f"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        self.socket.settimeout(None)
        self.events = []  # (name, data)
        self.ended = False
        self.head = b""
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        data = b""
        try:
            while piece := self.socket.recv(1 << 16):
                data += piece
                if not self.head:
                    if b"\r\n\r\n" not in data:
                        continue
                    self.head, data = data.split(b"\r\n\r\n", 1)
                *whole, data = data.split(b"\n\n")
                self.events += [parse_event(one) for one in whole]
        except OSError:
            pass
        self.ended = True

    def all(self, name):
        return [data for event, data in list(self.events) if event == name]

    def until(self, name, condition=lambda data: True):
        """The first event of this name, of those that came and come, for which the condition holds."""
        return wait_until(lambda: next(([data] for data in self.all(name) if condition(data)), None),
                          lambda: f"{name}, but {[event for event, _ in self.events]}")[0]

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.socket.close()


def parse_event(text):
    lines = text.decode().split("\n")
    if lines[0].startswith(":"):
        return "comment", lines[0]
    assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), lines
    return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))


def gpu_states(status):
    """The states of the GPUs of the only host."""
    return [gpu["state"] for gpu in status["hosts"][0]["gpus"]]


def leases_in(status):
    return {lease["id"] for host in status["hosts"] for gpu in host["gpus"] for lease in gpu["leases"]}


@pytest.fixture
def token_file(server):
    path = server.folder / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def serve(server):
    """Starts `berth serve FLAGS`, which ends with the test."""
    some = []

    def start(*flags, **options):
        some.append(Serving(server, *flags, **options))
        return some[-1]
    yield start
    for one in some:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        one.process.stdout.close()
