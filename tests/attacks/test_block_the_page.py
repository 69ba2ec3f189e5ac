"""The attacker wants `berth serve` to answer nobody else.

They open all its connections and send nothing, half a request, a request byte by byte, or ask for much and read nothing;
they take all places for live viewers. A new connection replaces the oldest that does not use its place, so everybody
else is still answered.
"""

import contextlib
import select
import socket
import threading

import pytest
from serving import read_all, serve, status_of  # noqa: F401
from waiting import LIMIT, wait_until

REQUEST = b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"
ATTACKS = {
    "connections without a request": b"",
    "a request line that does not end": b"GET /healthz HT",
    "headers that do not end": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
    "a body that does not come": b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
}
# Their answers are larger than what the kernel keeps for a client that does not read.
MUCH = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300


@contextlib.contextmanager
def connections(one, count, data, address=("127.0.0.1", 0), receives=None):
    """Opens so many connections, each of which has sent this; `receives`: a size for the buffer of answers."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection = socket.socket()
            stack.callback(connection.close)
            connection.settimeout(30)
            if receives:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
            connection.bind(address)
            connection.connect(("127.0.0.1", one.port))
            connection.sendall(data)
            opened.append(connection)
        yield opened


@contextlib.contextmanager
def byte_by_byte(opened):
    """Sends one more byte on each connection, again and again; gives how many rounds there were."""
    rounds, ends = [], threading.Event()

    def send():
        while not ends.is_set():
            for connection in opened:
                with contextlib.suppress(OSError):  # the server has closed it
                    connection.send(b"x")
            rounds.append(1)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield rounds
    finally:
        ends.set()
        thread.join()


def answered(one):
    """The status of a simple question, asked from another address than the attacker's."""
    with socket.create_connection(("127.0.0.1", one.port), timeout=LIMIT, source_address=("127.0.0.9", 0)) as connection:
        connection.sendall(REQUEST)
        return status_of(read_all(connection))


@pytest.mark.parametrize("name", ATTACKS)
def test_300_slow_connections(server, serve, name):  # noqa: F811
    one = serve()
    with connections(one, 300, ATTACKS[name]):
        for _ in range(20):
            assert answered(one) == 200
            assert one.get("/healthz").status == 200, "also from the attacker's own address"


def test_300_requests_byte_by_byte(server, serve):  # noqa: F811
    one = serve()
    with connections(one, 300, ATTACKS["headers that do not end"]) as opened, byte_by_byte(opened) as rounds:
        wait_until(lambda: len(rounds) >= 3, "each connection has sent some bytes")
        for _ in range(20):
            before = len(rounds)
            assert answered(one) == 200
            wait_until(lambda: len(rounds) > before, "the attack goes on")


def test_300_clients_that_ask_for_much_and_read_nothing(server, serve):  # noqa: F811
    """Their answers cannot be sent: an address with most connections loses some, so others are answered at once."""
    one = serve()
    with connections(one, 300, MUCH, receives=1024) as opened:
        def answering():
            """Those that have got the beginning of their answers, as far as the server has not closed them."""
            return sum(bool(select.select([connection], [], [], 0)[0]) for connection in opened)
        wait_until(lambda: answering() >= 256, "the server answers all that it has room for")
        for _ in range(20):
            assert answered(one) == 200


def test_behind_a_proxy_an_address_means_nothing(server, serve):  # noqa: F811
    """All clients have the proxy's: the oldest unfinished request gives way, whatever address has the most."""
    one = serve("--behind-proxy", "proxy.example")
    half = ATTACKS["headers that do not end"]
    with connections(one, 100, half, ("127.0.0.9", 0)) as oldest, connections(one, 200, half):
        def dropped():
            """Whether the server has closed some of the oldest; one that it gives up in time is answered first."""
            for connection in oldest:
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    if connection.recv(1) == b"":
                        return True
            return False
        wait_until(dropped, "the oldest connections give way", 9)
        assert answered(one) == 200


def test_the_attackers_connections_give_way_and_not_others(server, serve):  # noqa: F811
    """The address with the most connections loses one, whoever's is the oldest."""
    one = serve()
    half = ATTACKS["headers that do not end"]
    with connections(one, 5, half, ("127.0.0.9", 0)) as honest, connections(one, 300, half):
        for _ in range(20):
            assert answered(one) == 200
        for connection in honest:
            connection.sendall(b"\r\nConnection: close\r\n\r\n")
            assert status_of(read_all(connection)) == 200


def test_all_places_of_viewers(server, serve):  # noqa: F811
    """A viewer at another address gets a place; one more at the attacker's does not."""
    one = serve()
    events = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def first_line(connection):
        return connection.recv(12)

    with connections(one, 240, events) as taken:
        assert [first_line(connection) for connection in taken] == [b"HTTP/1.1 200"] * 240
        with connections(one, 1, events) as more:
            assert first_line(more[0]) == b"HTTP/1.1 503"
        with connections(one, 10, events, ("127.0.0.9", 0)) as others:
            assert [first_line(connection) for connection in others] == [b"HTTP/1.1 200"] * 10

        closed = set()

        def dropped():
            """Whether the server has closed ten of the attacker's: those that became viewers first."""
            for connection in set(taken) - closed:
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while connection.recv(1 << 16):
                        pass
                    closed.add(connection)
            return len(closed) >= 10
        wait_until(dropped, "ten of the attacker's viewers are disconnected")
        assert len(closed) == 10
        assert answered(one) == 200
