"""`berth serve`: what it shows, over HTTP and live, is what the commands show."""

import json
import signal
import socket

import pytest
from conftest import assert_one_line_error
from leasing import eventually, jobs  # noqa: F401
from serving import gpu_states, leases_in, read_all, serve, status_of  # noqa: F401

# The page makes no request to anywhere else, and nothing else may put it in a frame.
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def without_what_moves(status):
    """A status without what differs from one look to the next."""
    for host in status["hosts"]:
        for gpu in host["gpus"]:
            for key in ("utilization_pct", "memory_utilization_pct", "temperature_c", "power_w", "performance_state"):
                del gpu[key]
    return status


def test_status_and_queue_are_those_of_the_commands(server, serve, jobs):
    jobs.hold("-n", "3", "--label", "<b>é\x07")
    jobs.wait("-n", "2")
    one = serve()
    ours = json.loads(server.berth("status", "--all", "--json").stdout)
    eventually(lambda: leases_in(one.api("status")) == leases_in(ours))
    assert without_what_moves(one.api("status")) == without_what_moves(ours)
    assert one.api("queue") == json.loads(server.berth("queue", "--all", "--json").stdout)
    assert one.api("queue")["hosts"][0]["queue"][0]["count"] == 2


def test_health(server, serve):
    one = serve()
    answer = one.get("/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_every_answer_has_the_headers_that_keep_browsers_in(server, serve):
    one = serve()
    for path in ("/", "/api/v1/status", "/healthz", "/nothing", "/api/v1/log"):
        headers = one.get(path).headers
        assert headers["Content-Security-Policy"] == POLICY, path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == ("no-cache" if path == "/" else "no-store")
        assert not [name for name in headers if name.lower().startswith("access-control")]


def test_the_page_and_its_parts(server, serve):
    one = serve()
    page = one.get("/")
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"<html" in page.body.lower()
    # Whoever has it already is told so.
    again = one.get("/", headers={"If-None-Match": page.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


def test_head_is_the_same_without_a_body(server, serve):
    one = serve()
    for path in ("/", "/healthz", "/api/v1/log"):
        whole, head = one.get(path), one.ask("HEAD", path)
        assert head.status == 200 and head.body == b""
        assert head.headers["Content-Length"] == str(len(whole.body)), path


def test_paths_and_methods_that_are_not_there(server, serve):
    one = serve()
    for path in ("/nothing", "/api/v1", "/api/v2/status", "/api/v1/status/", "//", "/etc/passwd", "/index.html/.."):
        assert one.get(path).status == 404, path
        assert one.get(path).error
    answer = one.post("/api/v1/status", {})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert one.ask("DELETE", "/").status == 405
    assert one.ask("OPTIONS", "/api/v1/status").status == 405
    assert one.ask("HEAD", "/api/v1/events").status == 405


def test_several_requests_on_one_connection(server, serve):
    """One behind the other, and all at once: each has its answer, in order."""
    one = serve()
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /api/v1/queue HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    data = one.raw(50 * request + last)
    assert data.count(b"HTTP/1.1 200 OK") == 51
    assert data.count(b'{"status": "ok"}') == 50
    assert data.rstrip().endswith(b"}]}") or b'"queue"' in data[-200:]


def test_a_request_in_pieces(server, serve):
    one = serve()
    with one.connect() as socket_:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            socket_.sendall(bytes([byte]))
        assert status_of(read_all(socket_)) == 200


def test_who_asks_and_then_says_nothing_more_is_answered(server, serve):
    """As `printf … | nc` does."""
    one = serve()
    assert status_of(one.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", half=True)) == 200
    assert status_of(one.raw(b"GET /api/v1/report HTTP/1.1\r\nHost: localhost\r\n\r\n", half=True)) == 200


@pytest.mark.needs_root
def test_the_stream_begins_with_all_there_is(server, serve):
    one = serve()
    viewer = one.view()
    viewer.until("status")
    names = [name for name, _ in viewer.events]
    assert names[:3] == ["hello", "samples", "status"]
    hello = viewer.all("hello")[0]
    assert sorted(hello) == ["changes", "host", "user", "version"]
    assert (hello["changes"], hello["user"]) == (False, "root")
    assert b"Content-Type: text/event-stream" in viewer.head
    status = viewer.all("status")[0]
    assert status["hosts"][0]["queue_length"] == 0
    assert gpu_states(status) == ["free"] * 4


def test_the_stream_shows_jobs_that_start_wait_and_end(server, serve, jobs):
    one = serve()
    viewer = one.view()
    viewer.until("status")
    job = jobs.hold("-n", "2")
    viewer.until("status", lambda status: gpu_states(status).count("leased") == 2)
    waiter = jobs.wait("-n", "3")
    status = viewer.until("status", lambda status: status["hosts"][0]["queue_length"] == 1)
    assert status["hosts"][0]["queue"][0]["position"] == 1
    assert job.end() == 0
    viewer.until("status", lambda status: gpu_states(status).count("leased") == 3)
    # By the time that viewers are told, it is written.
    viewer.until("history")
    ended = [lease for lease in one.api("log")["leases"] if lease["ending"] == "exited"]
    assert len(ended) == 1
    waiter.process.kill()
    viewer.until("status", lambda status: gpu_states(status).count("leased") == 3)
    viewer.close()


def test_the_stream_shows_who_is_killed(server, serve, jobs):
    """Nobody tells of that: it is seen by looking."""
    one = serve()
    job = jobs.hold()
    viewer = one.view()
    viewer.until("status", lambda status: "leased" in gpu_states(status))
    seen = len(viewer.events)
    job.process.kill()
    job.process.stdin.close()
    eventually(lambda: any(name == "status" and gpu_states(data) == ["free"] * 4
                           for name, data in viewer.events[seen:]))


def test_every_viewer_is_told(server, serve, jobs):
    one = serve()
    viewers = [one.view() for _ in range(20)]
    for viewer in viewers:
        viewer.until("status")
    jobs.hold()
    for viewer in viewers:
        viewer.until("status", lambda status: "leased" in gpu_states(status))


def test_samples_are_those_of_the_cards(server, serve):
    server.start_job("--mem", "3GiB", gpu=1)
    one = serve()
    samples = one.api("samples")
    assert samples["interval_s"] == 10 and samples["until"].endswith("Z")
    gpus = samples["hosts"][0]["gpus"]
    used = {gpu["uuid"]: gpu["memory_used_mib"] for gpu in gpus}
    assert sorted(len(points) for points in used.values()) == [1] * 4
    status = one.api("status")
    for gpu in status["hosts"][0]["gpus"]:
        assert used[gpu["uuid"]] == [gpu["memory_used_mib"]]


def test_the_load_of_the_last_hour_survives_a_restart(server, serve):
    busy = server.start_job("--mem", "3GiB", gpu=1)
    used = next(gpu["memory_used_mib"] for gpu in server.status()["gpus"] if gpu["index"] == 1)
    assert used >= 3072
    one = serve()
    assert used in points(one, server)
    assert one.end() == 0
    busy.kill()
    eventually(lambda: server.status()["gpus"][1]["memory_used_mib"] < used)
    other = serve()
    assert used in points(other, server)


def points(serving, server):
    """The memory of GPU 1 in the last hour."""
    uuid = server.status()["gpus"][1]["uuid"]
    [gpu] = [gpu for gpu in serving.api("samples")["hosts"][0]["gpus"] if gpu["uuid"] == uuid]
    return gpu["memory_used_mib"]


def test_log_and_report_are_those_of_the_commands(server, serve, jobs):
    for _ in range(3):
        assert jobs.hold("--label", "x").end() == 0
    jobs.hold("-n", "2")
    one = serve()
    log = one.api("log")
    ours = [json.loads(line) for line in server.berth("log", "--json").stdout.splitlines()]
    assert [lease["lease"] for lease in log["leases"]] == [lease["lease"] for lease in ours]
    ended = [lease for lease in log["leases"] if lease["ending"] == "exited"]
    assert ended == [lease for lease in ours if lease["ending"] == "exited"] and len(ended) == 3
    assert log["truncated"] is False
    report = one.api("report?since=7d")
    ours = json.loads(server.berth("report", "--json", "--since", "7d").stdout)
    assert sorted(report) == sorted(ours)
    assert (report["total"]["leases"], report["total"]["running"]) == (4, 1)


@pytest.mark.needs_root
def test_the_log_is_cut_at_its_old_end(server, serve, jobs):
    ids = []
    for _ in range(3):
        jobs.hold().end()
    ids = [json.loads(line)["lease"] for line in server.berth("log", "--json").stdout.splitlines()]
    one = serve()
    cut = one.api("log?limit=2")
    assert [lease["lease"] for lease in cut["leases"]] == ids[1:] and cut["truncated"] is True
    assert one.api("log?user=nobody")["leases"] == []
    assert len(one.api("log?since=1h&user=root&gpu=0,1,2,3&host=")["leases"]) == 3


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=x", "since=someday", "since=400d", "user=no%20body",
                                   "gpu=..", "host=a/b", "what=1", "since", "since=%zz", "=1", "limit=1&limit=-1"])
def test_bad_queries_are_refused_in_words(server, serve, query):
    one = serve()
    answer = one.get(f"/api/v1/log?{query}")
    assert answer.status == 400, answer.body
    assert answer.error


@pytest.mark.parametrize("how, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_end_it_at_once(server, serve, how, code):
    one = serve()
    viewers = [one.view() for _ in range(50)]
    for viewer in viewers:
        viewer.until("hello")
    assert one.end(how) == code
    eventually(lambda: all(viewer.ended for viewer in viewers))
    assert one.err == ""


def test_a_port_that_is_taken(server, serve):
    one = serve()
    result = server.berth("serve", "--port", one.port)
    assert_one_line_error(result, 74, str(one.port), "in use", "--port 0")


@pytest.mark.parametrize("flags, words", [
    (["--port", "65536"], ["65535"]),
    (["--port", "x"], ["65535"]),
    (["--listen", "localhost"], ["'localhost'"]),
    (["--listen", "0.0.0.0"], ["--token-file", "--behind-proxy"]),
    (["--listen", "::"], ["--token-file", "--behind-proxy"]),
    (["--behind-proxy", "a b"], ["'a b'"]),
    (["--token-file", "/nonexistent"], ["--token-file"]),
    (["--token-file", "/dev/null"], ["/dev/null"]),
    (["extra"], ["'extra'"]),
])
def test_bad_flags(server, flags, words):
    port = [] if "--port" in flags else ["--port", "0"]
    assert_one_line_error(server.berth("serve", *port, *flags), 64, *words)


def test_it_serves_without_a_driver_and_says_why(server, serve):
    """A server that starts with its host may be earlier than the driver."""
    one = serve(env={"BERTH_SIM": None, "LD_LIBRARY_PATH": "/nonexistent"})
    answer = one.get("/healthz")
    assert (answer.status, answer.json["status"]) == (503, "problem")
    assert "driver" in answer.json["problem"]
    assert "driver" in one.get("/api/v1/status").error
    assert "driver" in one.view().until("problem")["text"]


def test_help_tells_of_it(server):
    result = server.berth("serve", "--help")
    assert result.returncode == 0
    for word in ("--listen", "--allow-changes", "--token-file", "--behind-proxy", "Examples:", "8417"):
        assert word in result.stdout


def test_ipv6(server, serve):
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    one = serve("--listen", "::1")
    assert one.host == "[::1]"
    with socket.create_connection(("::1", one.port)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: [::1]\r\n\r\n")
        assert status_of(read_all(connection)) == 200


def test_memory_of_a_stranger_is_seen(server, serve):
    one = serve()
    viewer = one.view()
    viewer.until("status", lambda status: gpu_states(status) == ["free"] * 4)
    server.start_job("--mem", "2GiB", gpu=2)
    viewer.until("status", lambda status: gpu_states(status)[2] == "stranger")
