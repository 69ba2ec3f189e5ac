"""A proxy between berth and a Redis server that counts commands, and does harm at a chosen one.

It understands as much of Redis's protocol as it takes to know where a command ends and where a reply does. Each
connection has a thread of its own, so that one which is held up holds nobody else up.

| fault   | what becomes of the command |
|---------|-----------------------------|
| drop    | never arrives; its connection is closed |
| lose    | is done, but its reply never arrives; its connection is closed |
| late    | its connection is closed at once, and it is done some time later |
| delay   | is done some time later |
| cut     | never arrives, and all connections are closed |
| refuse  | the same, and for some time nobody can connect |
| swallow | nothing of anybody arrives for some time, and no connection is closed until it is over |
| garble  | is done, but its reply is no Redis's; its connection is closed |
"""

import contextlib
import dataclasses
import select
import socket
import threading
import time

from redis_server import free_port

KINDS = ("drop", "lose", "late", "delay", "cut", "refuse", "swallow", "garble")


@dataclasses.dataclass(frozen=True)
class Fault:
    number: int  # the command, counted from 1 over all connections since the last reset()
    kind: str
    seconds: float = 0.0  # how long, or how much later
    command: str = ""  # of this name only, and then counted among those


def end_of_reply(data, begin=0):
    """Where the reply that begins there ends, or nothing if it is not whole. RESP2, and so requests too."""
    line = data.find(b"\r\n", begin)
    if line < 0:
        return None
    kind, rest = data[begin:begin + 1], data[begin + 1:line]
    if kind == b"$":
        end = line + 2 + (int(rest) + 2 if int(rest) >= 0 else 0)
        return end if end <= len(data) else None
    end = line + 2
    for _ in range(max(int(rest), 0) if kind == b"*" else 0):
        end = end_of_reply(data, end)
        if end is None:
            return None
    return end


class Stream:
    """What has arrived from one side, whole messages first."""

    def __init__(self, side):
        self.side = side
        self.data = b""

    def read(self):
        """False at the end."""
        try:
            chunk = self.side.recv(1 << 16)
        except OSError:
            return False
        self.data += chunk
        return bool(chunk)

    def messages(self):
        while (end := end_of_reply(self.data)) is not None:
            message, self.data = self.data[:end], self.data[end:]
            yield message


def name_of(request):
    """EVALSHA, say; for a script with the first letters of its digest."""
    words = request.split(b"\r\n")
    name = words[2].decode(errors="replace").upper() if len(words) > 2 else ""
    return f"{name} {words[4].decode()[:6]}" if name == "EVALSHA" else name


class Proxy:
    """Listens on a free port, or at a path, as soon as it is made. `target` is an address of socket.connect(): a path,
    or a host and a port."""

    def __init__(self, target, path=None):
        self.target = target
        self.path = path
        self.port = None if path else free_port()
        self.lock = threading.RLock()
        self.faults = []
        self.names = []  # of the commands since the last reset(), in the order of their arrival
        self.hit = []  # the faults that happened
        self.late_done = threading.Event()  # a command that was late has been done by now
        self.swallows_until = 0.0
        self.connections = set()
        self.closed = False
        self.listener = None
        self.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def url(self, query=""):
        where = f"redis+unix://{self.path}" if self.path else f"redis://127.0.0.1:{self.port}"
        return where + (f"?{query}" if query else "")

    @property
    def count(self):
        return len(self.names)

    def reset(self, *faults):
        """Counts from 1 again, and does these."""
        with self.lock:
            self.faults = list(faults)
            self.names = []
            self.hit = []
            self.late_done.clear()
            self.swallows_until = 0.0
            if not self.listener and not self.closed:
                self.listen()

    def cut(self):
        with self.lock:
            for connection in list(self.connections):
                connection.close()

    def refuse(self):
        """Until reset() or allow()."""
        with self.lock:
            listener, self.listener = self.listener, None
        if listener:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
            listener.close()

    def allow(self):
        with self.lock:
            if not self.listener and not self.closed:
                self.listen()

    def swallow(self, seconds):
        with self.lock:
            self.swallows_until = max(self.swallows_until, time.monotonic() + seconds)

    def close(self):
        self.closed = True
        self.refuse()
        self.cut()

    # Inside

    def listen(self):
        listener = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        if self.path:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(str(self.path) if self.path else ("127.0.0.1", self.port))
        listener.listen(128)
        self.listener = listener

    def accept(self):
        while not self.closed:
            listener = self.listener
            if listener is None:
                time.sleep(0.005)
                continue
            try:
                client, _ = listener.accept()
            except OSError:
                continue
            connection = Connection(self, client)
            with self.lock:
                self.connections.add(connection)
            threading.Thread(target=connection.run, daemon=True).start()

    def fault_at(self, request):
        """Counts the command; what is to happen to it."""
        with self.lock:
            name = name_of(request)
            self.names.append(name)
            for fault in self.faults:
                counted = [one for one in self.names if one.startswith(fault.command)]
                if fault.number == len(counted) and name.startswith(fault.command):
                    self.hit.append(fault)
                    return fault
        return None

    def swallows(self):
        return time.monotonic() < self.swallows_until

    def allow_later(self, seconds):
        timer = threading.Timer(seconds, self.allow)
        timer.daemon = True
        timer.start()


class Connection:
    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = None
        self.ends = threading.Event()
        self.blocked = False  # it waits in a BLPOP
        self.deaf = False  # replies do not arrive any more

    def close(self):
        self.ends.set()
        for side in (self.client, self.server):
            if side:
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def run(self):
        try:
            self.carry()
        except OSError:
            pass  # either side has gone
        finally:
            with self.proxy.lock:
                self.proxy.connections.discard(self)
            for side in (self.client, self.server):
                if side:
                    side.close()

    def carry(self):
        unix = isinstance(self.proxy.target, str)
        self.server = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.server.connect(self.proxy.target)
        requests, replies = Stream(self.client), Stream(self.server)
        asked = 0  # commands that the server was given, and has not answered
        swallowed = False
        while not self.ends.is_set():
            if swallowed and not self.proxy.swallows():
                return  # what was sent meanwhile is lost
            readable, _, _ = select.select([self.client, self.server], [], [], 0.05 if swallowed else 0.5)
            if self.proxy.swallows():
                if self.client in readable and not self.client.recv(1 << 16):
                    return
                if self.server in readable and not self.server.recv(1 << 16):
                    return
                swallowed = swallowed or bool(readable)
                continue
            if self.server in readable:
                alive = replies.read()
                for reply in replies.messages():
                    asked -= 1
                    if not self.deaf:
                        self.client.sendall(reply)
                if not alive:
                    return
            if self.client in readable:
                alive = requests.read()
                for request in requests.messages():
                    fault = self.proxy.fault_at(request)
                    if fault is None:
                        self.blocked = name_of(request) == "BLPOP"
                        asked += 1
                        self.server.sendall(request)
                        continue
                    swallowed = self.inject_fault(fault, request, replies, asked)
                    if not swallowed and fault.kind != "delay":
                        return
                    asked += fault.kind == "delay"
                if not alive:
                    return

    def inject_fault(self, fault, request, replies, asked):
        """True if from now on nothing arrives."""
        match fault.kind:
            case "drop":
                pass
            case "lose" | "garble":
                self.server.sendall(request)
                self.wait_for(replies, asked + 1)
                if fault.kind == "garble":
                    self.client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            case "late":
                self.client.shutdown(socket.SHUT_RDWR)
                time.sleep(fault.seconds)
                self.server.sendall(request)
                self.wait_for(replies, asked + 1)
                self.proxy.late_done.set()
            case "delay":
                time.sleep(fault.seconds)
                self.server.sendall(request)
            case "cut":
                self.proxy.cut()
            case "refuse":
                self.proxy.refuse()
                self.proxy.cut()
                self.proxy.allow_later(fault.seconds)
            case "swallow":
                self.proxy.swallow(fault.seconds)
                return True
            case _:
                raise AssertionError(fault)
        return False

    @staticmethod
    def wait_for(replies, number):
        """Until the server has answered so many commands more; a blocked one (BLPOP) it may never answer."""
        replies.side.settimeout(2)
        while number > 0:
            number -= sum(1 for _ in replies.messages())
            if number > 0 and not replies.read():
                return
