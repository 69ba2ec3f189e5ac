"""Who may see and change what `berth serve` shows: Host, Origin, tokens, hidden commands."""

import json
import os
import socket

import pytest
from conftest import assert_one_line_error
from leasing import NOBODY, eventually, jobs  # noqa: F401
from serving import TOKEN, gpu_states, serve, token_file  # noqa: F401
from waiting import LIMIT


def status_for(one, host):
    return one.get("/api/v1/status", headers={"Host": host}).status


def test_it_answers_to_its_own_names_only(server, serve):
    """A name that somebody else has pointed at our address (DNS rebinding) is none of ours."""
    one = serve()
    for host in ("localhost", f"localhost:{one.port}", "LOCALHOST", "localhost.", "127.0.0.1", "127.0.0.1:1", "[::1]",
                 f"[::1]:{one.port}", socket.gethostname()):
        assert status_for(one, host) == 200, host
    for host in ("evil.example", "localhost.evil.example", "evil.example:8417", "127.0.0.1.evil.example", "10.0.0.1",
                 "2130706433", "127.1", "localhost@evil.example", "a.localhost", "[::2]"):
        assert status_for(one, host) in (400, 403), host
    for host in ("", ":80", "[::1", "localhost:x", "localhost:123456", "a" * 400, "localhost:80:80"):
        assert status_for(one, host) in (400, 403), host
    assert one.get("/", headers={"Host": "evil.example"}).status == 403
    assert one.get("/healthz", headers={"Host": "evil.example"}).status == 403
    assert "evil.example" in one.get("/", headers={"Host": "evil.example"}).error


def test_behind_a_proxy_it_also_answers_to_its_name(server, serve):
    one = serve("--behind-proxy", "gpus.lab.example")
    assert status_for(one, "gpus.lab.example") == 200
    assert status_for(one, "GPUS.lab.example:443") == 200
    assert status_for(one, "evil.example") == 403


def test_the_address_at_which_it_was_reached_is_its_name(server, serve, token_file):
    one = serve("--listen", "0.0.0.0", "--token-file", token_file)
    with socket.create_connection(("127.0.0.2", one.port)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.2\r\nConnection: close\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 200")
    assert status_for(one, "127.0.0.2") == 403


def test_nothing_can_be_changed_without_the_flag(server, serve, jobs):
    jobs.hold("-n", "4")
    waiter = jobs.wait()
    one = serve()
    ticket = one.api("queue")["hosts"][0]["queue"][0]["ticket"]
    answer = one.post(f"/api/v1/tickets/{ticket}/cancel", {}, token="x")
    assert answer.status == 403 and "--allow-changes" in answer.error
    assert one.api("queue")["hosts"][0]["queue"][0]["ticket"] == ticket and waiter.runs


def test_changes_need_the_token_and_our_own_page(server, serve, jobs):
    jobs.hold("-n", "4")
    waiter = jobs.wait()
    one = serve("--allow-changes")
    assert len(one.token) == 32
    path = f"/api/v1/tickets/{one.api('queue')['hosts'][0]['queue'][0]['ticket']}/cancel"
    own = f"http://127.0.0.1:{one.port}"
    assert one.post(path, {}).status == 401
    for wrong in ("", "x", one.token[:-1], one.token + "0", one.token.upper() + "x", one.token[::-1] + "1"):
        assert one.post(path, {}, headers={"Authorization": f"Bearer {wrong}"}).status == 401, wrong
    assert one.post(path, {}, headers={"Authorization": f"Basic {one.token}"}).status == 401
    assert one.post(path + f"?token={one.token}", {}).status == 401
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{one.port + 1}", f"http://localhost:{one.port}",
                   f"{own}.evil.example", f"{own}@evil.example", f"ftp://127.0.0.1:{one.port}", ""):
        answer = one.post(path, {}, token=one.token, headers={"Origin": origin})
        assert answer.status == 403 and "Origin" in answer.error, origin
    assert one.post(path, {}, token=one.token, headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    assert waiter.runs
    assert one.post(path, {}, token=one.token, headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status == 200
    assert waiter.process.wait(LIMIT) == 75
    assert one.post(path, {}, token=one.token).status == 404


def test_the_token_is_another_each_time_and_in_no_answer(server, serve):
    one, other = serve("--allow-changes"), serve("--allow-changes")
    assert one.token != other.token
    viewer = one.view()
    viewer.until("status")
    assert viewer.all("hello")[0]["changes"] is True
    for path in ("/", "/api/v1/status", "/healthz", "/metrics", "/api/v1/session"):
        assert one.token.encode() not in one.get(path).body
    assert one.err == "" and one.token not in str(viewer.events)


def test_a_shells_lease_can_be_given_back_and_a_jobs_cannot(server, serve, jobs):
    job = jobs.hold()
    shell = server.berth("acquire", "--print", "json")
    assert shell.returncode == 0
    one = serve("--allow-changes")
    ids = {lease["id"]: lease for host in one.api("status")["hosts"] for gpu in host["gpus"] for lease in gpu["leases"]}
    given = json.loads(shell.stdout)
    shells = next(key for key in ids if key in json.dumps(given))
    jobs_ = next(key for key in ids if key != shells)
    answer = one.post(f"/api/v1/leases/{jobs_}/release", {}, token=one.token)
    assert answer.status == 409 and answer.error
    assert one.post("/api/v1/leases/aaaaaaaa/release", {}, token=one.token).status == 404
    assert one.post(f"/api/v1/leases/{shells}/release", {}, token=one.token).json == {"done": True}
    eventually(lambda: gpu_states(one.api("status")).count("leased") == 1)
    assert job.runs


def test_drain_and_undrain(server, serve):
    one = serve("--allow-changes")
    uuid = one.api("status")["hosts"][0]["gpus"][1]["uuid"]
    viewer = one.view()
    answer = one.post(f"/api/v1/gpus/{uuid}/drain", {"reason": "<script>fan</script>"}, token=one.token)
    assert answer.json == {"done": True}
    status = viewer.until("status", lambda status: gpu_states(status)[1] == "drained")
    assert "<script>fan</script>" in status["hosts"][0]["gpus"][1]["reason"]
    assert one.post(f"/api/v1/gpus/{uuid}/undrain", {}, token=one.token).json == {"done": True}
    eventually(lambda: gpu_states(one.api("status"))[1] == "free")
    for body in ("[]", "{", '{"reason": 1}', "x" * 1000):
        answer = one.ask("POST", f"/api/v1/gpus/{uuid}/drain", body=body, token=one.token)
        assert answer.status == 400 and answer.error, body
    assert one.post("/api/v1/gpus/GPU-none/drain", {}, token=one.token).status == 404
    assert one.post("/api/v1/gpus/GPU-none/undrain", {}, token=one.token).status == 404
    assert one.post("/api/v1/gpus/0/drain", {}, token=one.token).status == 400
    assert one.post("/api/v1/gpus/..%2f..%2fx/drain", {}, token=one.token).status == 400
    assert one.post("/api/v1/tickets/%00/cancel", {}, token=one.token).status == 400


def test_what_is_anothers_stays(server, serve, jobs, open_build):
    """The page acts as the user who serves, and as nobody else."""
    jobs.hold("-n", "4")
    waiter = jobs.wait()
    one = serve("--allow-changes", prefix=NOBODY, program=open_build / "bin" / "berth")
    ticket = one.api("queue")["hosts"][0]["queue"][0]["ticket"]
    uuid = one.api("status")["hosts"][0]["gpus"][0]["uuid"]
    assert one.post(f"/api/v1/tickets/{ticket}/cancel", {}, token=one.token).status == 403
    assert one.post(f"/api/v1/gpus/{uuid}/drain", {}, token=one.token).status == 403
    assert waiter.runs


def test_beyond_this_host_viewers_need_the_token(server, serve, token_file):
    one = serve("--listen", "0.0.0.0", "--token-file", token_file)
    assert one.token is None and TOKEN not in one.line
    assert one.get("/").status == 200  # the page asks for the token
    for path in ("status", "queue", "samples", "log", "report", "timeline", "events"):
        assert one.get(f"/api/v1/{path}").status == 401, path
    assert one.get("/metrics").status == 401
    assert one.get("/healthz").status == 200
    assert one.get("/api/v1/status", token=TOKEN).status == 200
    assert one.get("/api/v1/status", token=TOKEN + "x").status == 401
    assert one.post("/api/v1/tickets/aaaaaaaa/cancel", {}, token=TOKEN).status == 403


def test_the_token_is_shown_with_each_request_and_no_cookie_is_set(server, serve, token_file):
    """A browser sends a cookie to every port of the host: other users' servers would be given it."""
    one = serve("--token-file", token_file, "--allow-changes")
    assert one.post("/api/v1/session", {"token": "wrong"}).status == 401
    for body in (None, "", "[]", '{"token": 1}', "{"):
        assert one.ask("POST", "/api/v1/session", body=body).status == 400, body
    assert one.post("/api/v1/session", {"token": TOKEN}, headers={"Origin": "http://evil.example"}).status == 403
    answer = one.post("/api/v1/session", {"token": TOKEN})
    assert answer.json == {"done": True} and "Set-Cookie" not in answer.headers
    for cookie in (f"berth-{one.port}={TOKEN}", f"token={TOKEN}", TOKEN):
        assert one.get("/api/v1/status", headers={"Cookie": cookie}).status == 401
    viewer = one.view(headers={"Authorization": f"Bearer {TOKEN}"})
    viewer.until("status")
    assert one.post("/api/v1/tickets/aaaaaaaa/cancel", {}, token=TOKEN).status == 404


@pytest.mark.parametrize("mode, text, words", [(0o644, TOKEN, "chmod 600"), (0o640, TOKEN, "chmod 600"),
                                               (0o600, "short", "16"), (0o600, "", "16"),
                                               (0o600, "with blanks in the token", "16"), (0o600, "x" * 300, "256")])
def test_a_token_file_that_others_can_read_or_guess(server, mode, text, words):
    path = server.folder / "token"
    path.write_text(text)
    path.chmod(mode)
    result = server.berth("serve", "--port", "0", "--token-file", path)
    assert_one_line_error(result, 64, words)
    assert not text or text not in result.stderr


def test_commands_of_others_are_hidden_where_ps_hides_them(server, serve, jobs, open_build):
    """In a mount namespace with a /proc of hidepid=2, root's server shows only root's commands.

    The job types have the text of the commands: clients that see all processes do not hide it."""
    program = open_build / "bin" / "berth"
    jobs.hold(command=["sh", "-c", "echo x; read -r line; : secret-of-root"])
    jobs.hold(command=["sh", "-c", "echo x; read -r line; : secret-of-nobody"], prefix=NOBODY, program=program)
    jobs.hold("-n", "2", prefix=NOBODY, program=program)
    jobs.wait(prefix=NOBODY, program=program)
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
    one = serve(prefix=hidden)
    texts = {path: one.get(f"/api/v1/{path}").body.decode() for path in ("status", "queue", "log", "report")}
    viewer = one.view()
    texts["stream"] = json.dumps(viewer.until("status"))
    for path, text in texts.items():
        assert "secret-of-nobody" not in text, path
    for path in ("status", "log", "stream"):
        assert "secret-of-root" in texts[path], path
    assert json.loads(texts["queue"])["hosts"][0]["queue"][0]["command"] is None
    plain = serve()
    assert "secret-of-nobody" in plain.get("/api/v1/status").body.decode()
    assert os.geteuid() == 0
