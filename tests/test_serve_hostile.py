"""What anybody can send to `berth serve`, and what it makes of it: an answer in words, within bounds, and nothing else."""

import contextlib
import socket

import pytest
from leasing import eventually, jobs  # noqa: F401
from serving import gpu_states, read_all, serve, status_of  # noqa: F401

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST


def lives(one):
    return one.get("/healthz").status == 200


@pytest.mark.parametrize("request_, status", [
    (b"GET\r\n\r\n", 400),
    (b"GET /healthz\r\n\r\n", 400),
    (b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /healthz HTTP/1.1 x\r\n" + HOST + b"\r\n", 505),
    (b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    (b"GET /healthz http/1.1\r\n" + HOST + b"\r\n", 505),
    (b"G(T /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET http://localhost/healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /heal\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /heal\x00thz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"\r\n" + GET + b"\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS
    (GET + b"no colon\r\n\r\n", 400),
    (GET + b": empty\r\n\r\n", 400),
    (GET + b"na me: x\r\n\r\n", 400),
    (GET + b"Name : x\r\n\r\n", 400),
    (GET + b" folded: x\r\n\r\n", 400),
    (GET + b"X: a\r\n b\r\n\r\n", 400),
    (GET + b"X: a\x00b\r\n\r\n", 400),
    (GET + b"X: a\rb\r\n\r\n", 400),
    (GET + b"X: a\nY: b\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\nHost: localhost\n\n", 400),
    (GET + HOST + b"\r\n", 400),  # twice
    (GET + b"Authorization: a\r\nAuthorization: b\r\n\r\n", 400),
    # Where does the body end? Who answers that differently can be made to see another request.
    (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    (GET + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
    (GET + b"Content-Length: 5, 5\r\n\r\nhello", 400),
    (GET + b"Content-Length: +5\r\n\r\nhello", 400),
    (GET + b"Content-Length: -1\r\n\r\n", 400),
    (GET + b"Content-Length: 0x5\r\n\r\nhello", 400),
    (GET + b"Content-Length:\r\n\r\n", 400),
    (GET + b"Content-Length: 99999999999999999999999\r\n\r\n", 413),
    (GET + b"Content-Length: 65537\r\n\r\n", 413),
    (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (GET + b"Transfer-Encoding: identity\r\n\r\n", 400),
    (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (GET + b"Transfer-Encoding: xchunked\r\n\r\n", 400),
    (GET + b"X: " + b"a" * 20000 + b"\r\n\r\n", 431),
    (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
    (GET + b"".join(b"X%d: x\r\n" % i for i in range(3000)) + b"\r\n", 431),
])
def test_malformed_requests(server, serve, request_, status):
    """Refused in words; and what stands behind it on the same connection is never taken for a request."""
    one = serve()
    data = one.raw(request_ + b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(data) == status, data[:300]
    assert data.count(b"Content-Length: ") == 1 and b'{"error":' in data and b'"hosts"' not in data
    assert lives(one)


def test_a_request_that_names_no_host(server, serve):
    one = serve()
    for request_ in (b"GET /healthz HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.0\r\n\r\n"):
        data = one.raw(request_, half=True)
        assert status_of(data) == 400 and b"Host" in data


@pytest.mark.parametrize("path", ["/../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/etc/passwd", "/./index.html",
                                  "/index.html%00.js", "/app.js/../../etc/passwd", "/%", "/\\..\\x", "//etc/passwd",
                                  "/api/v1/../../healthz", "/api/v1/%73tatus", "/web/index.html"])
def test_paths_lead_nowhere_but_to_what_is_served(server, serve, path):
    one = serve()
    assert status_of(one.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())) == 404


def test_bodies_beyond_the_bound(server, serve):
    one = serve("--allow-changes")
    big = one.post("/api/v1/session", {"token": "x" * (10 << 20)})
    assert big.status == 413 and "64 KiB" in big.error
    just = one.ask("POST", "/api/v1/session", body=b"[" * (64 << 10))
    assert just.status == 400
    assert lives(one)


@pytest.mark.release_only
def test_headers_without_end_and_slow_requests_are_ended(server, serve):
    """A request must be whole ten seconds after its first byte, whatever its pace."""
    one = serve()
    slow = [one.connect() for _ in range(100)]
    for socket_ in slow:
        socket_.sendall(b"GET /healthz HTTP/1.1\r\n")
    body = one.connect()
    body.sendall(b"POST /api/v1/session HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{")
    silent = one.connect()

    def dribble():
        """A byte now and then keeps nothing alive."""
        for socket_ in slow:
            try:
                socket_.send(b"X")
            except OSError:
                pass
        return not [socket_ for socket_ in slow if not closed(socket_)]
    eventually(dribble, "the end of slow requests")
    assert status_of(read_all(body)) == 408
    assert read_all(silent) == b""
    assert lives(one)


def closed(socket_):
    """Has the other side said that it is over?"""
    socket_.setblocking(False)
    try:
        while socket_.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_more_connections_than_there_may_be(server, serve):
    """The oldest whose requests are not complete give way; the others are answered."""
    one = serve()
    begun = []
    for _ in range(256):
        begun.append(one.connect())
        begun[-1].sendall(b"GET /healthz")
    assert one.get("/healthz").status == 200
    more = []
    for _ in range(44):
        more.append(one.connect())
        more[-1].sendall(b"GET /healthz")
    for socket_ in more:
        socket_.sendall(b" HTTP/1.0\r\n" + HOST + b"\r\n")
        assert status_of(read_all(socket_)) == 200
    statuses = []
    for socket_ in begun:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket_.sendall(b" HTTP/1.0\r\n" + HOST + b"\r\n")
        statuses.append(read_all(socket_)[:12])
    assert set(statuses) == {b"", b"HTTP/1.1 200"}
    assert statuses.count(b"") <= 45, "as many as have come behind them"
    assert lives(one)


def test_two_hundred_viewers(server, serve, jobs):
    one = serve()
    viewers = [one.view() for _ in range(200)]
    for viewer in viewers:
        viewer.until("status")
    jobs.hold("-n", "2")
    for viewer in viewers:
        viewer.until("status", lambda status: gpu_states(status).count("leased") == 2)
    assert lives(one)
    assert one.end() == 0


def test_there_are_connections_left_however_many_watch(server, serve):
    one = serve()
    viewers = [one.view() for _ in range(240)]
    for viewer in viewers:
        viewer.until("hello")
    assert one.get("/api/v1/events").status == 503
    assert lives(one) and one.get("/").status == 200
    viewers[0].close()
    eventually(lambda: one_more(one))


def one_more(one):
    viewer = one.view()
    eventually(lambda: viewer.head or viewer.ended)
    served = b" 200 " in viewer.head
    viewer.close()
    return served


def test_a_viewer_who_never_reads_keeps_nobody_waiting(server, serve, jobs):
    one = serve()
    mute = one.connect()
    mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    mute.sendall(b"GET /api/v1/events HTTP/1.1\r\n" + HOST + b"\r\n")
    hungry = one.connect()
    for _ in range(200):
        hungry.sendall(b"GET /api/v1/samples HTTP/1.1\r\n" + HOST + b"\r\n")
    viewer = one.view()
    viewer.until("status")
    jobs.hold()
    viewer.until("status", lambda status: "leased" in gpu_states(status))
    assert lives(one)
    assert one.end() == 0


def test_a_viewer_who_says_more_is_left(server, serve):
    one = serve()
    viewer = one.view()
    viewer.until("hello")
    viewer.socket.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
    eventually(lambda: viewer.ended)
    assert lives(one)


def test_who_goes_in_the_middle_of_anything(server, serve):
    one = serve()
    for sent in (b"", b"G", GET, GET + b"\r\n", b"GET /api/v1/events HTTP/1.1\r\n" + HOST + b"\r\n",
                 b"GET /api/v1/report HTTP/1.1\r\n" + HOST + b"\r\n"):
        for _ in range(20):
            socket_ = one.connect()
            # Closed with what came unread: the other side is told by a reset.
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            socket_.sendall(sent)
            socket_.close()
    assert lives(one)
    assert one.process.poll() is None


def test_random_bytes(server, serve):
    import random
    random.seed(7)
    one = serve()
    for _ in range(200):
        data = bytes(random.choice(b"GET / HTTP/1.1\r\n\r\n:Host localhost\x00\xff") for _ in range(random.randrange(300)))
        answer = one.raw(data, half=True)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
    assert lives(one)
