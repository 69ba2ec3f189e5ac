"""Notifications: what each target gets and when, that no job waits for them, and that no secret is seen."""

import datetime
import email
import email.policy
import http.server
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import threading

import pytest
from conftest import BERTH, SIM_JOB, assert_one_line_error
from leasing import jobs  # noqa: F401
from leftovers import processes_of
from test_commands import users  # noqa: F401
from waiting import LIMIT, wait_until

SECRET = "Xq7Z"


class Receiver:
    """An HTTP(S) server that keeps what it was sent. `answers` are the statuses of the first requests; then 200."""

    def __init__(self, answers=(), certificate=None):
        self.requests = []
        self.answers = list(answers)
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                status = receiver.answers.pop(0) if receiver.answers else 200
                receiver.may_answer.wait(LIMIT)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # curl has given up

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that does not trust the certificate
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}/{SECRET}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def bodies(self):
        return [json.loads(body) for _, _, body in self.requests]

    def close(self):
        self.may_answer.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    one = Receiver()
    yield one
    one.close()


class Setup:
    """A user with a configuration, a `sendmail` that keeps its mails, and a command that keeps what it gets."""

    def __init__(self, server):
        self.server = server
        self.folder = server.folder
        self.config = server.folder / ".config" / "berth.toml"
        self.config.parent.mkdir()
        self.site = server.folder / "site.toml"
        self.kept = server.folder / "kept"
        self.kept.mkdir()
        programs = server.folder / "programs"
        programs.mkdir()
        sendmail = programs / "sendmail"
        sendmail.write_text(f'#!/bin/sh\necho "$@" >{self.kept}/flags\ncat >{self.kept}/new.$$\n'
                            f'mv {self.kept}/new.$$ {self.kept}/mail.$$\n')
        sendmail.chmod(0o755)
        server.env |= {"PATH": f"{programs}:{server.env['PATH']}", "BERTH_SITE_FILE": str(self.site),
                       "XDG_STATE_HOME": str(server.folder / "state")}
        self.secret_file = server.folder / "webhook"

    def configure(self, *lines, mode=0o600):
        self.config.write_text("[notify]\n" + "".join(f"{line}\n" for line in lines))
        self.config.chmod(mode)

    def keep_command(self, *lines):
        """Configures a command that keeps the JSON and the environment of each event."""
        kept = self.kept
        self.configure(f'''command = "env -0 >{kept}/env.$$; pwd >{kept}/cwd.$$; cat >{kept}/new.$$; '''
                       f'''mv {kept}/new.$$ {kept}/event.$BERTH_EVENT.$$"''', *lines)

    def use_webhook(self, url, *headers, settings=()):
        self.secret_file.write_text("\n".join([url, *headers]) + "\n")
        self.secret_file.chmod(0o600)
        self.configure('webhook = "file:~/webhook"', *settings)

    def run(self, *flags, command=("true",), **options):
        return self.server.berth("run", *flags, "--", *command, **options)

    def detach(self, *flags, command=("true",), **options):
        """Starts a detached job, and returns its folder when its process has ended."""
        result = self.run("-d", *flags, command=command, **options)
        assert result.returncode == 0, result
        folder = self.folder / "state" / "berth" / "jobs" / result.stdout.strip()
        wait_until(lambda: '"finished"' in (folder / "events").read_text(), "the end of the job")
        return folder

    def senders(self):
        found = []
        for pid in processes_of(self.server.harbour):
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "berth-notify\n":
                    found.append(pid)
            except OSError:
                continue
        return found

    def wait_until_sent(self):
        """Nothing is being sent any more."""
        wait_until(lambda: not processes_of(self.server.harbour), "all notifications are sent")

    def events(self):
        """What the command of keep_command() got: (JSON, environment, folder), in no order."""
        self.wait_until_sent()
        found = []
        for path in self.kept.glob("event.*"):
            number = path.suffix
            pairs = (self.kept / f"env{number}").read_text().split("\0")
            found.append((json.loads(path.read_text()), dict(pair.split("=", 1) for pair in pairs if pair),
                          (self.kept / f"cwd{number}").read_text().strip()))
        return found

    def names(self):
        return sorted(event["event"] for event, _, _ in self.events())

    def mails(self):
        self.wait_until_sent()
        return [email.message_from_bytes(path.read_bytes(), policy=email.policy.default) for path in self.kept.glob("mail.*")]


@pytest.fixture
def user(server):
    one = Setup(server)
    yield one
    one.wait_until_sent()


# What is sent, and when.

def test_a_command_gets_the_event(server, user):
    user.keep_command()
    server.env["BERTH_LEASE"] = "abcd1234"  # of a lease that has ended
    result = user.run("--notify", "command", "--label", "thesis", "--gpu", "1,2", command=["sh", "-c", "exit 0"])
    assert (result.returncode, result.stdout) == (0, "") and result.stderr.count("\n") == 1 and "BERTH_LEASE" in result.stderr
    [(event, environment, folder)] = user.events()
    assert (event["version"], event["event"], event["kind"], event["exit_code"], event["signal"], event["gpus"], event["label"]) == \
        (1, "ended", "run", 0, None, [1, 2], "thesis")
    assert event["batch"] is None and event["interrupted"] is False and event["run_s"] == 0 and event["job"] == event["lease"]
    assert re.fullmatch(r"ended after <1s: thesis \(job [a-z0-9]{8} on .*\)", event["text"])
    assert (environment["BERTH_EVENT"], environment["BERTH_EXIT_CODE"], environment["BERTH_GPUS"]) == ("ended", "0", "1,2")
    assert environment["BERTH_JOB"] == environment["BERTH_LEASE_ID"] == event["lease"] and environment["BERTH_LABEL"] == "thesis"
    assert "BERTH_LEASE" not in environment and "BERTH_NOTIFY_COMMAND" not in environment
    assert "CUDA_VISIBLE_DEVICES" not in environment and environment["PATH"] == server.env["PATH"]
    assert folder == str(server.folder), "the user's home"


@pytest.mark.parametrize("flag, command, expected", [
    ("command", ["true"], ["ended"]), ("command", ["false"], ["failed"]), ("command", ["sh", "-c", "kill -9 $$"], ["failed"]),
    ("command:granted", ["true"], ["granted"]), ("command:granted,failed", ["false"], ["failed", "granted"]),
    ("command:failed", ["true"], []), ("command:all", ["true"], ["ended", "granted"]), ("none", ["false"], []),
], ids=repr)
def test_events(user, flag, command, expected):
    user.keep_command()
    user.run("--notify", flag, command=command)
    assert user.names() == expected


def test_the_end_of_a_job(user):
    user.keep_command()
    assert user.run("--notify", "command", command=["sh", "-c", "kill -9 $$"]).returncode == 137
    [(event, environment, _)] = user.events()
    assert (event["exit_code"], event["signal"], environment["BERTH_SIGNAL"]) == (137, 9, "9")
    assert "signal 9" in event["text"]


def test_out_of_memory(user, jobs):  # noqa: F811
    """Once, for the last try, and not as a failure."""
    user.keep_command('events = ["all"]')
    job = jobs.run("--mem", "1GiB", "--retry-oom", "2", "--notify", "command", command=["sh", "-c", "echo CUDA out of memory >&2; exit 1"])
    assert job.process.wait(LIMIT) == 1
    assert user.names() == ["granted", "out_of_memory"]


def test_refused(server, user, jobs):  # noqa: F811
    user.keep_command()
    assert user.run("--notify", "command", "-n", "9").returncode == 69
    [(event, _, _)] = user.events()
    assert (event["event"], event["lease"], event["gpus"], event["exit_code"]) == ("refused", None, [], 69)
    assert "9 GPUs" in event["message"] and event["message"] in event["text"]


def test_a_job_after_a_failed_one_is_refused(server, user, jobs):  # noqa: F811
    user.keep_command()
    gate = jobs.start("cat")  # ends with its input
    first = server.berth("run", "-d", "--", "sh", "-c", f"while kill -0 {gate.pid}; do read -r line </proc/uptime; done 2>/dev/null; exit 3")
    second = server.berth("run", "-d", "--notify", "command", "--after", first.stdout.strip(), "--", "true")
    assert (first.returncode, second.returncode) == (0, 0), second
    gate.process.stdin.close()
    gate.process.wait()  # a zombie counts as a process
    wait_until(lambda: list(user.kept.glob("event.*")), "the notification")
    [(event, _, _)] = user.events()
    assert event["event"] == "refused" and first.stdout.strip() in event["message"] and event["job"] == second.stdout.strip()


def test_the_configuration_notifies_without_a_flag(user):
    user.keep_command('always = ["command:failed"]', 'events = ["granted"]')
    user.run(command=["false"])
    assert user.names() == ["failed"]
    user.run("--notify", "command", command=["false"])
    assert user.names() == ["failed", "granted"], "a flag replaces `always`, and `events` counts"
    user.run("--notify", "none", command=["false"])
    assert user.names() == ["failed", "granted"]


def test_a_batch_notifies_once_with_its_counts(server, user):
    user.keep_command('always = ["command"]')
    (server.folder / "jobs.txt").write_text("true\nexit 3\ntrue\n")
    result = server.berth("batch", "-k", "--notify", "command:granted,ended,failed", "jobs.txt", cwd=server.folder)
    assert (result.returncode, result.stderr) == (1, result.stderr)
    assert user.names() == ["failed", "granted"]
    [event] = [event for event, _, _ in user.events() if event["event"] == "failed"]
    assert event["kind"] == "batch" and event["label"] == "jobs.txt" and event["exit_code"] == 1
    assert event["batch"] == {"total": 3, "succeeded": 2, "failed": 1, "interrupted": 0, "not_started": 0}
    assert "1 of 3 lines failed" in event["text"]


def test_a_batch_that_succeeds_detached(server, user):
    user.keep_command()
    (server.folder / "jobs.txt").write_text("true\ntrue\n")
    result = server.berth("batch", "-d", "--notify", "command", "jobs.txt", cwd=server.folder)
    assert result.returncode == 0, result
    wait_until(lambda: list(user.kept.glob("event.*")), "the notification")
    [(event, _, _)] = user.events()
    assert (event["event"], event["job"], event["batch"]["succeeded"]) == ("ended", result.stdout.strip(), 2)


def test_each_line_of_a_batch_if_the_user_wants_it(server, user):
    user.keep_command()
    (server.folder / "jobs.txt").write_text("true\nexit 3\n")
    server.berth("batch", "-k", "--notify", "command", "--notify-lines", "jobs.txt", cwd=server.folder)
    assert user.names() == ["ended", "failed", "failed"]
    assert_one_line_error(server.berth("batch", "--notify-lines", "jobs.txt", cwd=server.folder), 64, "--notify")


def test_a_lost_gpu_is_reported_once(server, user):
    server.use({"gpus": [{"name": "A", "memory": "24GiB"}], "faults": [{"gpu": 0, "lost": True, "after": "2s"}]})
    user.keep_command()
    gate = server.folder / "gate"
    os.mkfifo(gate)
    job = server.start(BERTH, "run", "--notify", "command:gpu_lost", "--", "cat", gate)
    wait_until(lambda: list(user.kept.glob("event.*")), "the notification")
    gate.write_text("")
    job.wait(LIMIT)
    [(event, _, _)] = user.events()
    assert event["event"] == "gpu_lost" and "has lost GPU 0" in event["text"]


def test_a_stranger_is_reported_once(server, user, open_build):
    user.keep_command()
    gate = server.folder / "gate"
    os.mkfifo(gate)
    job = server.start(BERTH, "run", "--gpu", "1", "--notify", "command:stranger", "--", "cat", gate)
    wait_until(lambda: [one for one in server.status()["gpus"] if one["state"] == "leased"], "the lease")
    state = pathlib.Path(server.env["BERTH_SIM_STATE"])
    wait_until(state.exists, "the simulated server")
    state.chmod(0o666)
    stranger = server.start_job("--mem", "1GiB", gpu=1, prefix=["setpriv", "--reuid=20001", "--regid=20001", "--clear-groups"],
                                program=open_build / "bin" / "berth-sim-job")
    wait_until(lambda: list(user.kept.glob("event.*")), "the notification")
    stranger.kill()
    stranger.wait()
    gate.write_text("")
    job.wait(LIMIT)
    [(event, _, _)] = user.events()
    assert "without a lease on GPU 1" in event["text"] and str(20001) in event["text"]


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.each_harbour
def test_an_announced_end_is_told_once_for_each_end(server, user, jobs):  # noqa: F811
    user.keep_command('about_to_end = "1h"')  # at once for ends that are near, and so in the middle between
    job = jobs.hold("--notify", "command:about_to_end", "--time", "4s", "--label", "thesis")
    wait_until(lambda: list(user.kept.glob("event.*")), "the first notification")
    [lease] = [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]
    assert server.berth("extend", lease["id"], "4s").returncode == 0
    wait_until(lambda: len(list(user.kept.glob("event.*"))) == 2, "the second notification")
    [moved] = [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]
    job.end()
    events = sorted((event for event, _, _ in user.events()), key=lambda event: event["id"])
    assert [event["id"] for event in events] == [f"{events[0]['id']}", f"{events[0]['id']}-2"]
    assert [event["event"] for event in events] == ["about_to_end"] * 2 and events[0]["lease"] == lease["id"]
    assert [event["ends"] for event in events] == [lease["ends"], moved["ends"]]
    assert all(when(event["time"]) <= when(event["ends"]) for event in events)
    assert re.fullmatch(rf"announced to end in [1-4]s; 'berth extend {lease['id']} 1h' tells the other users that it takes longer: "
                        rf"thesis \(job {lease['id']} on .*\)", events[0]["text"])


def test_an_end_that_is_announced_while_the_job_runs_is_told(server, user, jobs):  # noqa: F811
    user.keep_command('about_to_end = "1h"')
    job = jobs.hold("--notify", "command:all")
    wait_until(lambda: list(user.kept.glob("event.granted.*")), "the start")
    [lease] = [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]
    assert server.berth("extend", lease["id"], "2s").returncode == 0
    wait_until(lambda: list(user.kept.glob("event.about_to_end.*")), "the notification")
    job.end()
    assert user.names() == ["about_to_end", "ended", "granted"]


def test_an_end_that_is_moved_before_it_is_told_is_told_for_the_new_end_only(server, user, jobs):  # noqa: F811
    user.keep_command('about_to_end = "1s"')
    job = jobs.hold("--notify", "command:about_to_end", "--time", "1h")
    [lease] = [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]
    assert server.berth("extend", lease["id"], "1h").returncode == 0
    job.end()
    assert user.names() == []


def test_what_earlier_runs_suggest_is_not_announced(server, user, jobs):  # noqa: F811
    user.keep_command('about_to_end = "1h"')
    assert server.berth("profile", "set", "train", "--time", "2s").returncode == 0
    job = jobs.hold("--job", "train", "--notify", "command:about_to_end")
    [lease] = [lease for gpu in server.status()["gpus"] for lease in gpu["leases"]]
    assert lease["ends"], "an estimate"
    wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) > when(lease["ends"]), "the estimated end")
    job.end()
    assert user.names() == []


def idle_job(server, user, jobs, *flags):  # noqa: F811
    """Ends when its two gates have been opened: idle, then in use, then idle again."""
    script = f"read -r line; {SIM_JOB} --mem 1GiB --samples 3 --quiet; read -r line"
    return jobs.start(BERTH, "run", "--gpu", "1,2", "--notify", "command:idle", *flags, "--", "sh", "-c", script)


def test_idle_gpus_are_told_once_until_they_were_in_use(server, user, jobs):  # noqa: F811
    user.keep_command('idle = "1s"')
    job = idle_job(server, user, jobs)
    wait_until(lambda: list(user.kept.glob("event.*")), "the first notification")
    job.process.stdin.write(b"\n")
    job.process.stdin.flush()
    wait_until(lambda: len(list(user.kept.glob("event.*"))) == 2, "the second one, after a GPU was in use")
    job.end()
    events = sorted((event for event, _, _ in user.events()), key=lambda event: event["id"])
    assert [event["event"] for event in events] == ["idle"] * 2 and events[1]["id"] == events[0]["id"] + "-2"
    assert all(event["idle_s"] >= 1 for event in events)
    assert re.match(r"GPUs 1,2 have been idle for \d+s: sh ", events[0]["text"])


def test_gpus_in_use_are_not_idle(server, user, jobs):  # noqa: F811
    user.keep_command('idle = "1ms"')
    server.use({"gpus": [{"memory": "24GiB"}], "strangers": [{"gpu": 0, "memory": "1GiB", "utilization": 5}]})
    assert user.run("--max-processes", "1", "--notify", "command:all",
                    command=[SIM_JOB, "--mem", "1MiB", "--util", "0", "--samples", "20", "--quiet"]).returncode == 0
    assert user.names() == ["ended", "granted"]


def test_an_unknown_utilization_is_not_idle(server, user, jobs):  # noqa: F811
    user.keep_command('idle = "1ms"')
    server.use({"gpus": [{"memory": "24GiB"}], "faults": [{"call": "nvmlDeviceGetUtilizationRates", "answer": "not_supported"}]})
    assert user.run("--notify", "command:all", command=[SIM_JOB, "--mem", "1MiB", "--util", "0", "--samples", "20", "--quiet"]).returncode == 0
    assert user.names() == ["ended", "granted"]


def test_idle_gpus_are_told_if_the_time_is_short(server, user, jobs):  # noqa: F811
    """The counterpart of the tests above: the same job, with a known utilization of 0."""
    user.keep_command('idle = "1ms"')
    assert user.run("--notify", "command:all", command=[SIM_JOB, "--mem", "1MiB", "--util", "0", "--samples", "20", "--quiet"]).returncode == 0
    assert user.names() == ["ended", "granted", "idle"]


@pytest.mark.parametrize("flag", ["command:idle", "mail:about_to_end,stranger"])
def test_a_batch_has_no_events_of_single_jobs(server, user, flag):
    user.keep_command()
    assert_one_line_error(server.berth("batch", "--notify", flag, "--", "true", cwd=server.folder), 64, "--notify-lines", flag)
    assert server.berth("batch", "--notify", flag, "--notify-lines", "--", "true", cwd=server.folder).returncode == 0


# Webhooks.

def test_a_webhook_gets_json_and_headers(user, receiver):
    user.use_webhook(receiver.url, "Authorization: Bearer tk_1", "X-Two: a \"b\" \\c")
    result = user.run("--notify", "webhook", "--label", 'a "b" \\ \n c')
    assert (result.returncode, result.stderr) == (0, "")
    user.wait_until_sent()
    [(path, headers, body)] = receiver.requests
    assert path == f"/{SECRET}" and headers["Content-Type"] == "application/json"
    assert (headers["Authorization"], headers["X-Two"]) == ("Bearer tk_1", 'a "b" \\c')
    event = json.loads(body)
    assert (event["event"], event["label"]) == ("ended", 'a "b" \\ \n c')


def test_ntfy(user, receiver):
    user.use_webhook(receiver.url, settings=['webhook_format = "ntfy"'])
    user.run("--notify", "webhook", "--label", "@/etc/passwd\nTitle: x", command=["false"])
    user.wait_until_sent()
    [(_, headers, body)] = receiver.requests
    assert headers["Title"] == "berth: failed" and headers["Priority"] == "4" and headers["Tags"]
    assert re.fullmatch(r"failed with exit code 1 after <1s: @/etc/passwd\\nTitle: x \(job .*\)", body.decode())


def test_slack(user, receiver):
    user.use_webhook(receiver.url, settings=['webhook_format = "slack"'])
    user.run("--notify", "webhook", "--label", "<!channel> & co @channel")
    user.wait_until_sent()
    [body] = receiver.bodies()
    assert list(body) == ["text"] and "&lt;!channel&gt; &amp; co" in body["text"]
    assert "@channel" not in body["text"] and "@\u200bchannel" in body["text"], "Mattermost"


@pytest.fixture
def certificate(server):
    key, file = server.folder / "key.pem", server.folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", file, "-days", "2", "-subj",
                    "/CN=berth-test", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return file, key


def test_the_name_in_the_certificate_is_verified(server, user, certificate):
    one = Receiver(certificate=certificate)
    try:
        user.use_webhook(one.url.replace("127.0.0.1", "localhost"))
        folder = user.detach("--notify", "webhook", env={"CURL_CA_BUNDLE": str(certificate[0])})
        user.wait_until_sent()
        assert one.requests == [] and "is not trusted" in (folder / "output").read_text()
    finally:
        one.close()


def test_tls_is_verified(server, user, certificate):
    one = Receiver(certificate=certificate)
    try:
        user.use_webhook(one.url)
        (server.folder / ".curlrc").write_text("insecure\n")
        folder = user.detach("--notify", "webhook")
        user.wait_until_sent()
        assert one.requests == []
        assert (folder / "output").read_text().count("the certificate of the server is not trusted") == 1
        user.detach("--notify", "webhook", env={"CURL_CA_BUNDLE": str(certificate[0])})
        user.wait_until_sent()
        assert len(one.requests) == 1
    finally:
        one.close()


def test_a_failure_is_tried_again_and_reported_once(user):
    one = Receiver(answers=[503, 500, 502])
    try:
        user.use_webhook(one.url)
        folder = user.detach("--notify", "webhook")
        user.wait_until_sent()
        assert len(one.requests) == 3 and len({body["id"] for body in one.bodies()}) == 1
        output = (folder / "output").read_text()
        assert output.count("the notification 'ended' was not sent by webhook") == 1 and "502 (3 tries)" in output
        log = folder / "notify.log"
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert [line.split(": ", 1)[1] for line in log.read_text().splitlines()] == [
            f"try {n} failed: the server answered with the HTTP status {status}" for n, status in ((1, 503), (2, 500), (3, 502))]
        assert SECRET not in output + log.read_text()
    finally:
        one.close()


def test_a_later_try_succeeds(user):
    one = Receiver(answers=[503])
    try:
        user.use_webhook(one.url)
        folder = user.detach("--notify", "webhook")
        user.wait_until_sent()
        assert len(one.requests) == 2 and "not sent" not in (folder / "output").read_text()
        assert (folder / "notify.log").read_text().splitlines()[-1].endswith("webhook ended: sent")
    finally:
        one.close()


@pytest.mark.parametrize("status", [302, 404])
def test_an_answer_that_will_not_change_is_not_asked_for_again(user, status):
    one = Receiver(answers=[status])
    try:
        user.use_webhook(one.url)
        folder = user.detach("--notify", "webhook")
        user.wait_until_sent()
        assert len(one.requests) == 1 and f"HTTP status {status}\n" in (folder / "output").read_text()
    finally:
        one.close()


def serve_once(answer):
    """A server on a socket that sends `answer` to each request, and then nothing more; its URL and the requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests = []

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(65536)
            requests.append((request, client))  # it stays open
            client.sendall(answer)
    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/", requests, listener


def test_an_accepted_notification_is_not_sent_again_when_the_answer_does_not_end(user):
    url, requests, listener = serve_once(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\nx")
    user.use_webhook(url)
    folder = user.detach("--notify", "webhook")
    user.wait_until_sent()
    listener.close()
    assert len(requests) == 1 and (folder / "notify.log").read_text().endswith("webhook ended: sent\n")


def test_an_answer_that_never_says_so_is_a_failure(user):
    url, requests, listener = serve_once(b"HTTP/1.1 2")
    user.use_webhook(url)
    folder = user.detach("--notify", "webhook")
    user.wait_until_sent()
    listener.close()
    assert len(requests) == 3 and "no answer within" in (folder / "output").read_text()


# No job waits for a notification, and no process is kept from ending.

def kill_senders(user):
    for pid in processes_of(user.server.harbour):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.each_harbour
def test_a_server_that_does_not_answer_delays_nothing(server, user, receiver, jobs):  # noqa: F811
    server.use("1x24GiB")
    receiver.may_answer.clear()
    user.use_webhook(receiver.url)
    reading, writing = os.pipe()
    job = jobs.start(BERTH, "run", "--notify", "webhook:granted,ended", "--", "cat", pass_fds=[writing])
    os.close(writing)
    wait_until(lambda: len(receiver.requests) == 1, "the first notification")
    waiter = jobs.wait()
    job.process.stdin.close()
    assert job.process.wait(LIMIT) == 0
    assert waiter.gpus() == "0"
    wait_until(lambda: len(receiver.requests) == 2, "the second notification")
    assert len(user.senders()) == 2, "both hang"
    assert os.read(reading, 1) == b"", "they keep no descriptor of the job"
    os.close(reading)
    for pid in user.senders():
        links = {fd.name: os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        assert {name: links[name] for name in "01"} == {"0": "/dev/null", "1": "/dev/null"}
        assert not [link for link in links.values() if str(server.harbour) in link or "pipe:" in link]
        assert os.getsid(pid) not in (os.getsid(0), os.getsid(waiter.pid))
    waiter.end()
    kill_senders(user)


@pytest.mark.needs_root
def test_a_further_notification_is_not_sent_while_many_are(server, user, users):  # noqa: F811
    """A large batch with --notify-lines must not use up the processes of its user. Programs of that name, and a user for this test
    only, so that other tests can send theirs."""
    uid = 20099
    user.keep_command()
    for path in (user.config, user.kept):
        os.chown(path, uid, uid)
    fake = server.folder / "berth-notify"
    fake.symlink_to(shutil.which("cat"))
    as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    fakes = server.start(*as_user, "sh", "-c", f"exec 3<&0; for i in $(seq 200); do {fake} <&3 & done; exec 3<&- <&-; echo; wait",
                         stdin=subprocess.PIPE)
    fakes.stdout.readline()
    wait_until(lambda: len(user.senders()) == 200, "200 senders")
    run = [*as_user, users.berth, "run", "--notify", "command", "--", "true"]
    errors = server.folder / "errors"
    with open(errors, "w") as file:
        assert subprocess.run([str(word) for word in run], env=server.env, stderr=file, timeout=LIMIT).returncode == 0
    wait_until(lambda: "not sent" in errors.read_text(), "the message")
    assert errors.read_text().count("200 other notifications of yours are still being sent\n") == 1
    fakes.stdin.close()
    fakes.wait(LIMIT)
    assert user.names() == []
    assert server.run(*run).returncode == 0
    assert user.names() == ["ended"]


def test_no_secret_is_seen_while_it_is_sent(server, user, receiver):
    receiver.may_answer.clear()
    user.use_webhook(receiver.url, f"X-Token: {SECRET}", settings=[f'command = "sleep 1000 # {SECRET}"'])
    folder = user.detach("--notify", "webhook", "--notify", "command")
    wait_until(lambda: receiver.requests, "the request")
    wait_until(lambda: [pid for pid in processes_of(server.harbour)
                        if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"], "the command")
    seen = b"".join((pathlib.Path("/proc") / entry / "cmdline").read_bytes()
                    for entry in map(str, processes_of(server.harbour)))
    assert b"curl" in seen and b"sleep" in seen and SECRET.encode() not in seen
    kill_senders(user)
    secret_files = {user.secret_file, user.config}
    for path in server.folder.rglob("*"):
        if path.is_file() and path not in secret_files:
            assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in server.berth("config").stdout + server.berth("config", "--json").stdout
    assert folder.exists()


@pytest.mark.release_only
@pytest.mark.parametrize("call", ["clone", "clone3", "wait4", "rt_sigprocmask", "write"])
def test_whenever_berth_is_killed_nothing_is_sent_twice(server, user, call):
    """kill -9 of the job's process before each call of a kind that it makes."""
    user.keep_command('events = ["all"]')
    for number in range(1, 200):
        for path in user.kept.iterdir():
            path.unlink()
        result = server.run("strace", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}",
                            BERTH, "run", "--notify", "command", "--", "true")
        names = user.names()
        assert len(names) == len(set(names)) and set(names) <= {"granted", "ended"}, names
        if result.returncode == 0:
            break
    assert names == ["ended", "granted"] and number > 1
    assert [one["state"] for one in server.status()["gpus"]] == ["free"] * 4


@pytest.mark.release_only
@pytest.mark.parametrize("call", ["setsid", "clone", "close_range", "execve", "memfd_create", "wait4", "exit_group"])
def test_whichever_process_is_killed_nothing_is_sent_twice(server, user, call):
    """kill -9 of all processes before their first, second or third call of a kind: those that send, too."""
    user.keep_command('events = ["all"]')
    for number in (1, 2, 3):
        for path in user.kept.iterdir():
            path.unlink()
        server.run("strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}",
                   BERTH, "run", "--notify", "command", "--", "true")
        names = user.names()
        assert len(names) == len(set(names)) and set(names) <= {"granted", "ended", "failed"}, names
        assert not {"ended", "failed"} <= set(names)
    assert [one["state"] for one in server.status()["gpus"]] == ["free"] * 4


def test_a_job_whose_process_is_killed_is_not_reported(server, user, jobs):  # noqa: F811
    user.keep_command('events = ["all"]')
    job = jobs.hold("--notify", "command")
    wait_until(lambda: list(user.kept.glob("event.*")), "the notification")
    job.process.kill()
    job.process.wait()
    job.process.stdin.close()
    assert user.names() == ["granted"]


# Mail.

def test_a_mail(user):
    user.configure('mail = "ann@example.org"')
    result = user.run("--notify", "mail", "--label", "Prüfung\nBcc: eve@example.org\n\n.\nx", command=["sh", "-c", "exit 4"])
    assert (result.returncode, result.stderr) == (4, "")
    [mail] = user.mails()
    assert (user.kept / "flags").read_text() == "-oi -t\n"
    assert mail["To"] == "ann@example.org" and mail["Bcc"] is None and mail["Auto-Submitted"] == "auto-generated"
    assert mail["Subject"] == "berth: failed: Prüfung\\nBcc: eve@example.org\\n\\n.\\nx"
    text = mail.get_content()
    assert max(map(len, next(user.kept.glob("mail.*")).read_bytes().split(b"\n"))) < 998
    assert text.startswith("failed with exit code 4") and "Exit code:  4\n" in text and "\n.\n" not in text
    assert mail.defects == []


def test_an_address_of_the_command_line_or_of_the_user(server, user):
    user.run("--notify", "mail=bob@example.org:ended")
    [mail] = user.mails()
    assert mail["To"] == "bob@example.org"
    next(user.kept.glob("mail.*")).unlink()
    user.run("--notify", "mail")
    [mail] = user.mails()
    assert mail["To"] == server.run("id", "-un").stdout.strip()


# The terminal.

def run_on_terminal(server, *command):
    """What a command writes on a terminal of its own, in whose foreground it runs."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(str(command[0]), [str(word) for word in command], server.env)
    output = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:
            break
        if not part:
            break
        output += part
    os.close(master)
    os.waitpid(pid, 0)
    return output


def test_the_bell_and_the_title(server, user):
    output = run_on_terminal(server, BERTH, "run", "--notify", "bell", "--label", "a\x1b]0;b\nc", "--", "true")
    assert output == b"\x1b]0;berth: ended: a\\x1b]0;b\\nc\x07\x1b]9;berth: ended: a\\x1b]0;b\\nc\x07\x07"
    server.env["TERM"] = "dumb"
    assert run_on_terminal(server, BERTH, "run", "--notify", "bell", "--", "true") == b"\x07"
    assert user.run("--notify", "bell").stderr == "", "this is not a terminal"
    assert b"\x07" not in (user.detach("--notify", "bell") / "output").read_bytes()


def test_a_failure_is_told_on_the_terminal(server, user):
    user.configure('command = "exit 127"')
    script = f"{BERTH} run --notify command -- true; read -r line"  # the terminal stays
    output = b""
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe("sh", ["sh", "-c", script], server.env)
    while b"not sent" not in output or not output.endswith(b"\n"):
        output += os.read(master, 4096)
    os.write(master, b"\n")
    os.waitpid(pid, 0)
    os.close(master)
    assert output.count(b"berth: the notification 'ended' was not sent by command: exit code 127\r\n") == 1


# Mistakes, and the files of others.

@pytest.mark.parametrize("flag, words", [
    ("mial", ["'mial'", "did you mean mail?"]), ("mail:endet", ["'endet'", "did you mean ended?"]), ("pigeon", ["webhook"]),
    ("webhook", ["[notify]", 'webhook = "file:']), ("command", ["[notify]", "command ="]), ("mail=a b", ["'a b'"]), ("mail:", ["granted"]),
], ids=repr)
def test_wrong_flags(server, user, flag, words):
    for command in (["run", "--notify", flag, "--", "true"], ["run", "-d", "--notify", flag, "--", "true"],
                    ["batch", "--notify", flag, "--", "true"]):
        assert_one_line_error(server.berth(*command), 64, "--notify", *words)
    assert not (server.folder / "state").exists()


@pytest.mark.parametrize("text, words", [
    ('maill = "x"', ["'maill' in [notify]", "did you mean mail?"]), ("command = 3", ["command"]), ('events = "granted"', ["events", "list"]),
    ("always = [1]", ["always", "list"]),
], ids=repr)
def test_a_wrong_setting_is_an_error_of_each_command(server, user, text, words):
    user.configure(text)
    for command in (["config"], ["run", "--", "true"]):
        assert_one_line_error(server.berth(*command), 64, f"{user.config}, line 2:", *words)


@pytest.mark.parametrize("text, words", [
    ('events = ["endet"]', ["events", "did you mean ended?"]), ('always = ["mial"]', ["always", "did you mean mail?"]),
    ('webhook_format = "slak"', ["webhook_format", "did you mean slack?"]), ('mail = "a b"', ["mail", "'a b'"]),
    ('idle = "soon"', ["idle", "'soon'"]), ('about_to_end = "0s"', ["about_to_end", "zero"]),
], ids=repr)
def test_a_wrong_value_is_an_error_of_the_commands_that_use_it(server, user, text, words):
    user.configure(text)
    assert_one_line_error(server.berth("config"), 64, f"{user.config}, line 2:", *words)


@pytest.mark.parametrize("text", ['command = "touch /tmp/x"', 'always = ["mail"]', 'mail = "root@example.org"'])
def test_the_site_does_not_choose_a_command_an_address_or_what_is_always_sent(server, user, text):
    user.site.write_text(f"[notify]\n{text}\n")
    assert_one_line_error(server.berth("config"), 64, f"{user.site}, line 2:", "~/.config/berth.toml")


def test_the_webhook_of_the_site(server, user, receiver):
    """Without the format of the user's own, and never in place of the user's own."""
    url = server.folder / "site-webhook"
    url.write_text(receiver.url)
    url.chmod(0o640)
    user.site.write_text(f'[notify]\nwebhook = "file:{url}"\nwebhook_format = "slack"\nevents = ["failed"]\n')
    if os.getuid() == 0:
        user.run("--notify", "webhook", command=["false"])
        user.wait_until_sent()
        assert list(receiver.bodies()[0]) == ["text"]
    user.use_webhook(receiver.url + "/own")
    receiver.requests.clear()
    user.run("--notify", "webhook", command=["false"])
    user.wait_until_sent()
    assert receiver.requests[0][0].endswith("/own") and receiver.bodies()[0]["event"] == "failed"


def test_a_secret_that_others_can_read_is_refused(server, user, receiver):
    user.use_webhook(receiver.url)
    user.secret_file.chmod(0o644)
    refused = user.run("--notify", "webhook")
    assert_one_line_error(refused, 74, "other users", "webhook")
    assert SECRET not in refused.stderr
    user.configure(f'webhook = "{receiver.url}"', mode=0o644)
    refused = user.run("--notify", "webhook")
    assert_one_line_error(refused, 74, "other users", "chmod")
    assert SECRET not in refused.stderr
    user.config.chmod(0o600)
    user.run("--notify", "webhook")
    user.wait_until_sent()
    assert len(receiver.requests) == 1
    user.secret_file.unlink()
    user.configure('webhook = "file:~/webhook"')
    assert_one_line_error(user.run("--notify", "webhook"), 74, "there is no file")


@pytest.mark.parametrize("lines, words", [
    (["ftp://x/" + SECRET], ["https://HOST/PATH"]), ([""], ["https://HOST/PATH"]), (["http://x/ " + SECRET], ["https://HOST/PATH"]),
    (["http://x/", SECRET], ["line 2", "NAME: VALUE"]), (["http://x/", "@" + SECRET + ": x"], ["line 2"]),
], ids=repr)
def test_a_wrong_webhook_is_not_quoted(user, lines, words):
    user.use_webhook(*lines)
    refused = user.run("--notify", "webhook")
    assert_one_line_error(refused, 64, *words)
    assert SECRET not in refused.stderr


def test_the_file_of_another_user_does_not_count(server, user):
    """With sudo, HOME may be the folder of another user: root must not run that user's command."""
    user.keep_command('always = ["command"]')
    user.config.chmod(0o622)
    result = user.run()
    assert result.returncode == 0 and result.stderr.count("\n") == 1 and "chmod go-w" in result.stderr
    assert_one_line_error(user.run("--notify", "command"), 64, "does not count")
    assert user.events() == []


@pytest.mark.needs_root
def test_root_does_not_run_the_command_of_a_user(server, user):
    user.keep_command('always = ["command"]')
    os.chown(user.config, 20001, 20001)
    result = user.run()
    assert result.returncode == 0 and "belongs to" in result.stderr
    assert user.events() == []


@pytest.mark.needs_root
def test_root_does_not_run_what_is_in_the_folder_of_a_user(server, user):
    """The user may have put a link there, or moved a file of root's there."""
    user.keep_command('always = ["command"]')
    os.chown(user.config.parent, 20001, 20001)
    result = user.run()
    assert result.returncode == 0 and result.stderr.count("\n") == 1 and "belongs to" in result.stderr
    assert user.events() == []


@pytest.mark.parametrize("path", ["", ".", "folder"])
def test_no_program_of_the_current_folder_sends(server, user, path):
    """Another user may have put it there, and the user has not typed its name."""
    folder = server.folder / "folder"
    folder.mkdir()
    for place in (folder, server.folder):
        shutil.copy(server.folder / "programs" / "sendmail", place / "sendmail")
    (server.folder / "programs" / "sendmail").unlink()
    user.run("--notify", "mail", env={"PATH": f"{path}:/usr/bin:/bin"}, cwd=server.folder)
    assert user.mails() == []


@pytest.mark.needs_root
@pytest.mark.parametrize("owned", ["sendmail", "."])
def test_root_runs_no_program_of_another_user(server, user, owned):
    """With sudo or su, PATH may be that of another user."""
    os.chown(server.folder / "programs" / owned, 20001, 20001)
    assert user.run("--notify", "mail").returncode == 0
    assert user.mails() == []


@pytest.mark.needs_root
def test_root_runs_no_program_through_a_link_of_another_user(server, user):
    """The link can lead to another folder when the job ends."""
    folder = server.folder / "users"
    folder.mkdir()
    (folder / "link").symlink_to(server.folder / "programs")
    for path in (folder, folder / "link"):
        os.chown(path, 20001, 20001, follow_symlinks=False)
    assert user.run("--notify", "mail", env={"PATH": f"{folder}/link:/usr/bin:/bin"}).returncode == 0
    assert user.mails() == []


@pytest.mark.parametrize("target, program", [("webhook", "curl"), ("mail", "sendmail")])
def test_a_missing_program_is_named_once(server, user, receiver, target, program):
    user.use_webhook(receiver.url)
    programs = server.folder / "few"
    programs.mkdir()
    for name in ("sh", "true"):
        (programs / name).symlink_to(shutil.which(name))
    if target == "mail" and any(os.access(path, os.X_OK) for path in ("/usr/sbin/sendmail", "/usr/lib/sendmail")):
        pytest.skip("this host has a sendmail outside of the PATH")
    result = user.run("--notify", f"{target}:all", env={"PATH": str(programs)})
    assert result.returncode == 0
    assert result.stderr.count("\n") == 1 and program in result.stderr and "install" in result.stderr
    assert receiver.requests == []


def test_config_shows_the_settings(server, user):
    user.configure('mail = "ann@example.org"', 'webhook = "file:~/webhook"', f'command = "echo {SECRET}"', 'always = ["mail", "bell"]')
    result = server.berth("config", "--json")
    found = {one["name"]: one["value"] for one in json.loads(result.stdout)["settings"] if one["name"].startswith("notify.")}
    assert found == {"notify.mail": "ann@example.org", "notify.webhook": "file:~/webhook", "notify.webhook_format": None,
                     "notify.command": "set", "notify.events": None, "notify.always": ["mail", "bell"],
                     "notify.about_to_end": "10m", "notify.idle": "30m"}
    user.configure(f'webhook = "https://x/{SECRET}"')
    assert re.search("^notify.webhook +set ", server.berth("config").stdout, re.MULTILINE)


def test_completion(server, user):
    result = server.berth("complete", "--", "berth", "run", "--notify", "")
    words = [line.split("\t")[0] for line in result.stdout.splitlines()]
    assert {"mail", "webhook", "webhook:granted", "bell:failed", "mail:idle", "command:about_to_end", "none"} <= set(words)


def test_shell_words_of_the_command_stay_in_it(user):
    """The command is one text for the shell, with quotes, dollars and lines of its own."""
    target = user.kept / "text"
    user.configure(f"""command = '''a="x y"\nprintf "%s|%s" "$a" '$a' >{shlex.quote(str(target))}'''""")
    user.run("--notify", "command")
    user.wait_until_sent()
    assert target.read_text() == "x y|$a"
