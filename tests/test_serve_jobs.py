"""`berth serve` and jobs that run on their own: their list, their output, their end, and who may see and end them."""

import json
import os
import signal
import threading

import pytest
from leasing import NOBODY, eventually, jobs  # noqa: F401
from processes import ALICE, state_of
from serving import TOKEN, serve, token_file  # noqa: F401
from test_commands import users  # noqa: F401
from test_detach import detach, finish_of, folder_of, lease_ids, process_of

HOSTILE = "<img src=x onerror=window.hacked=1>'\"&amp;\u202e"
JOBS = "/api/v1/jobs"


def submit(server, *flags, command=("sleep", "1000"), **options):
    return detach(server, "run", "-d", *flags, "--", *command, **options)


def trapped(server, name, on_term):
    """A job that notes each SIGTERM in a file, and goes on until `on_term` ends it."""
    file = server.folder / f"{name}.signals"
    script = f"trap 'echo term >>{file}; {on_term}' TERM; echo started; while :; do sleep 0.05; done"
    job = submit(server, "--label", name, command=["sh", "-c", script])
    eventually(lambda: (folder_of(server, job) / "output").read_text().endswith("started\n"), "the job's trap")
    return job, file


def signals_in(file):
    return file.read_text().split() if file.exists() else []


def list_of(serving, token=None):
    answer = serving.get(JOBS, token=token or serving.token)
    assert answer.status == 200, answer.body
    return {job["id"]: job for job in answer.json["jobs"]}


def states(serving, token=None):
    return {job["id"]: job["state"] for job in list_of(serving, token).values()}


def end(serving, job, **options):
    return serving.post(f"{JOBS}/{job}/cancel", {}, **{"token": serving.token, **options})


def submit_of_each_state(server):
    server.use("1x24GiB")
    failed = submit(server, command=["sh", "-c", "exit 3"])
    eventually(lambda: finish_of(server, failed) is not None, "the first job ends")
    running = submit(server, "--time", "2h", "--label", "night run")
    eventually(lambda: running in lease_ids(server), "the second runs")
    waiting = submit(server, "--label", HOSTILE)
    eventually(lambda: server.status()["queue"], "the third waits")
    held = submit(server, "--after", running)
    return {failed: "ended", running: "running", waiting: "waiting", held: "held"}


# The list.


def test_the_list_has_what_berth_jobs_prints(server, serve):
    expected = submit_of_each_state(server)
    one = serve("--allow-changes")
    viewer = one.view(headers={"Authorization": f"Bearer {one.token}"})
    eventually(lambda: states(one) == expected, lambda: f"{expected}, but {list_of(one)}")
    printed = {job["id"]: job for job in json.loads(server.berth("jobs", "--json").stdout)["jobs"]}
    for job, shown in list_of(one).items():
        changing = ("starts",)  # an estimate
        assert {**shown, **dict.fromkeys(changing)} == {**printed[job], **dict.fromkeys(changing)}
    # First what is active, in the order of submission; and the stream has the same.
    order = [job["id"] for job in one.get(JOBS, token=one.token).json["jobs"]]
    assert order == [*list(expected)[1:], list(expected)[0]]
    found = viewer.until("jobs", lambda data: {job["id"]: job["state"] for job in data["jobs"]} == expected)
    assert found["jobs_length"] == 4 and found["jobs"][1]["label"] == HOSTILE
    assert found["jobs"][3]["exit_code"] == 3


def test_the_list_follows_the_jobs_without_a_question(server, serve):
    server.use("2x24GiB")
    one = serve("--allow-changes")
    viewer = one.view(headers={"Authorization": f"Bearer {one.token}"})
    assert viewer.until("jobs") == {"jobs": [], "jobs_length": 0}
    go = server.folder / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done"
    detach(server, "batch", "-d", "-k", "--logs", server.folder / "logs", "--", "true", "false", waits, waits)
    counts = {"total": 4, "succeeded": 1, "failed": 1, "running": 2}
    viewer.until("jobs", lambda data: [job["batch"] for job in data["jobs"]] == [counts])
    go.touch()
    [found] = viewer.until("jobs", lambda data: [job["state"] for job in data["jobs"]] == ["ended"])["jobs"]
    assert (found["kind"], found["exit_code"], found["batch"]["succeeded"]) == ("batch", 1, 3)


def test_a_killed_job_is_not_shown_as_running(server, serve):
    one = serve("--allow-changes")
    job = submit(server)
    eventually(lambda: states(one) == {job: "running"})
    os.killpg(process_of(server, job), signal.SIGKILL)
    eventually(lambda: states(one) == {job: "ended"})
    assert list_of(one)[job]["result"] == "unknown"


def test_a_killed_job_whose_processes_hold_gpus_of_another_harbour_runs(server, serve):
    job = submit(server)
    eventually(lambda: job in lease_ids(server), "the job runs")
    other = server.folder / "other-harbour"
    other.mkdir()
    other.chmod(0o1777)
    one = serve("--allow-changes", env={"BERTH_DIR": str(other)})
    eventually(lambda: states(one) == {job: "running"})
    group = process_of(server, job)
    os.kill(group, signal.SIGKILL)
    eventually(lambda: list_of(one)[job]["reason"] is not None, "the page says that the exit code will be unknown")
    assert states(one) == {job: "running"}
    os.killpg(group, signal.SIGKILL)
    eventually(lambda: states(one) == {job: "ended"})


def test_the_list_is_bounded_and_tells_how_many_there_are(server, serve):
    folder = folder_of(server, submit(server)).parent
    eventually(lambda: lease_ids(server), "the job runs")
    spec = {"version": 1, "kind": "run", "command": ["true"], "label": "", "directory": "/", "host": "", "harbour": ""}
    now = int(server.run("date", "+%s").stdout) * 1000
    for number in range(250):
        name = "aaaa" + "".join("abcdefghijk"[int(digit)] for digit in f"{number:04}")
        (folder / name).mkdir(mode=0o700)
        (folder / name / "alive").touch()
        (folder / name / "events").write_text(json.dumps({"event": "finished", "code": 0, "at_ms": now - 1000 - number}) + "\n")
        (folder / name / "spec.json").write_text(json.dumps({**spec, "id": name, "submitted_ms": now - 5000}))
    one = serve("--allow-changes")
    found = one.get(JOBS, token=one.token).json
    assert (len(found["jobs"]), found["jobs_length"]) == (200, 251)
    assert found["jobs"][0]["state"] == "running" and found["jobs"][1]["id"] == "aaaaaaaa", "the last that ended"


def test_commands_that_the_host_hides_are_hidden_here_too(server, serve):
    job = submit(server, command=["sleep", "1000", "secret-argument"], env={"BERTH_COMMANDS": "hidden"})
    one = serve("--allow-changes", env={"BERTH_COMMANDS": "hidden"})
    assert list_of(one)[job]["command"] == "sleep"
    assert b"secret-argument" not in one.get(JOBS, token=one.token).body
    long = submit(server, command=["sh", "-c", "sleep 1000 # " + "x" * 2000])
    shown = serve("--allow-changes")
    assert "secret-argument" in list_of(shown)[job]["command"]
    assert len(list_of(shown)[long]["command"]) < 600


# Who may see it.


def test_only_holders_of_the_token_see_the_list(server, serve, token_file):
    job = submit(server, "--label", "mine")
    plain = serve()
    answer = plain.get(JOBS, token="x")
    assert answer.status == 403 and "--allow-changes" in answer.error
    one = serve("--allow-changes")
    viewers = [plain.view(), one.view(), one.view(headers={"Authorization": "Bearer wrong"}),
               one.view(headers={"Authorization": f"Bearer {one.token}"})]
    viewers[3].until("jobs", lambda data: job in json.dumps(data))
    for viewer in viewers[:3]:
        viewer.until("sample")
        assert viewer.all("jobs") == [] and "output" not in json.dumps(viewer.events)
    assert one.get(JOBS).status == 401 and one.get(JOBS, token=one.token + "x").status == 401
    assert one.get(JOBS, token=one.token, headers={"Host": "evil.example"}).status == 403
    reader = serve("--token-file", token_file)
    assert reader.get(JOBS).status == 401
    assert list(list_of(reader, TOKEN)) == [job]


@pytest.mark.needs_root
def test_the_list_has_nothing_of_other_users(server, serve, users, open_build):  # noqa: F811
    """A server of root, too, knows only the folder of root's own jobs."""
    server.env["HOME"] = str(server.folder / "root")
    os.mkdir(server.env["HOME"])
    users.start(ALICE, "run", "--label", "hers", "--", "sleep", "1000")
    eventually(lambda: lease_ids(server), "her job runs")
    own = submit(server)
    one = serve("--allow-changes")
    eventually(lambda: list(list_of(one)) == [own])
    theirs = serve("--allow-changes", prefix=NOBODY, program=open_build / "bin" / "berth")
    assert list_of(theirs) == {}


# The output.


def test_the_end_of_the_output(server, serve):
    one = serve("--allow-changes")
    job = submit(server, command=["sh", "-c", r"printf 'one\n\033[31mtwo\377\n'; exec sleep 1000"])
    path = f"{JOBS}/{job}/output"

    def output():
        answer = one.get(path, token=one.token)
        assert answer.status == 200, answer.body
        return answer.json

    eventually(lambda: "two" in output()["text"])
    found = output()
    assert found["id"] == job and not found["truncated"]
    assert found["text"].endswith("one\n\x1b[31mtwo\ufffd\n")
    with (folder_of(server, job) / "output").open("a") as file:
        file.write("".join(f"line {number}\n" for number in range(100_000)))
    eventually(lambda: output()["truncated"])
    lines = output()["text"].splitlines()
    assert lines[-1] == "line 99999" and lines[0].startswith("line ") and len(output()["text"]) <= 32 << 10
    with (folder_of(server, job) / "output").open("w") as file:
        file.write("x" * 100_000)
    eventually(lambda: set(output()["text"]) == {"x"})
    assert len(output()["text"]) <= 32 << 10


def test_the_output_needs_a_token_that_may_change_things(server, serve, token_file):
    """Such a token lets its holder act as the user; one that is only for viewing may have been given to other people."""
    job = submit(server, command=["sh", "-c", "printf secret-%s output; exec sleep 1000"])
    path = f"{JOBS}/{job}/output"
    for serving, token, status in ((serve(), None, 403), (serve("--token-file", token_file), TOKEN, 403),
                                   (one := serve("--allow-changes"), None, 401), (one, "x", 401)):
        answer = serving.get(path, token=token)
        assert answer.status == status and answer.error, (status, answer.body)
    both = serve("--allow-changes", "--token-file", token_file)
    eventually(lambda: b"secret-output" in both.get(path, token=TOKEN).body)
    assert one.get(f"{JOBS}/aaaaaaaa/output", token=one.token).status == 404
    for wrong in ("..", "%2e%2e", "a%2fb", "%00", "x" * 300):
        assert one.get(f"{JOBS}/{wrong}/output", token=one.token).status in (400, 404), wrong
    viewer = one.view()
    viewer.until("sample")
    assert "secret-output" not in json.dumps(viewer.events)


def test_an_output_that_is_a_link_or_a_fifo_is_not_read(server, serve):
    one = serve("--allow-changes")
    for number, replace in enumerate((lambda path: path.symlink_to("/etc/passwd"), os.mkfifo, os.mkdir)):
        job = submit(server, "--gpu", str(number))
        path = folder_of(server, job) / "output"
        path.unlink()
        replace(path)
        answer = one.get(f"{JOBS}/{job}/output", token=one.token)
        assert answer.status == 503 and "cannot read" in answer.error or "not a regular file" in answer.error


# The end.


def test_jobs_of_each_state_are_ended(server, serve):
    expected = submit_of_each_state(server)
    failed, running, waiting, held = expected
    one = serve("--allow-changes")
    for job, words in ((held, "is cancelled"), (waiting, "is cancelled"), (running, "has ended")):
        answer = end(one, job)
        assert answer.status == 200 and answer.json["done"] is True, answer.body
        assert job in answer.json["message"] and words in answer.json["message"]
    eventually(lambda: set(states(one).values()) == {"ended"})
    assert list_of(one)[running]["exit_code"] == 128 + signal.SIGTERM
    assert lease_ids(server) == [] and server.status()["queue"] == []
    for job in expected:
        answer = end(one, job)
        assert answer.status == 409 and "ended already" in answer.error, "it has ended before"
    assert end(one, "aaaaaaaa").status == 404
    for wrong in ("aaaa", "%2e%2e", "AAAAAAAA", "%00"):
        assert end(one, wrong).status == 400, wrong


def test_a_job_without_d_a_batch_and_one_of_its_lines_are_ended(server, serve, jobs):
    server.use("3x24GiB")
    job = jobs.hold()
    [lease] = lease_ids(server)
    batch = detach(server, "batch", "-d", "-k", "--logs", server.folder / "logs", "--", "sleep 1000", "sleep 1000", "sleep 1000")
    eventually(lambda: len(lease_ids(server)) == 3, "two lines run")
    one = serve("--allow-changes")
    assert end(one, lease).status == 200
    assert job.process.wait() == 128 + signal.SIGTERM
    line = next(other for other in lease_ids(server))
    assert end(one, line).status == 200
    eventually(lambda: (list_of(one)[batch]["batch"] or {}).get("failed") == 1)
    assert end(one, batch).status == 200
    assert lease_ids(server) == []


def test_an_end_needs_the_token_and_our_own_page(server, serve, token_file):
    job = submit(server)
    eventually(lambda: job in lease_ids(server), "the job runs")
    one = serve("--allow-changes")
    own = f"http://127.0.0.1:{one.port}"
    assert end(serve(), job, token="x").status == 403
    assert end(serve("--token-file", token_file), job, token=TOKEN).status == 403
    assert end(one, job, token=None).status == 401 and end(one, job, token="wrong").status == 401
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
                    {"Origin": f"http://localhost:{one.port}"}, {"Host": "evil.example"}):
        assert end(one, job, headers=headers).status == 403, headers
    assert one.get(f"{JOBS}/{job}/cancel", token=one.token).status == 405
    assert lease_ids(server) == [job]
    assert end(one, job, headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.needs_root
def test_another_users_job_is_refused(server, serve, jobs, open_build):
    job = jobs.hold()
    [lease] = lease_ids(server)
    one = serve("--allow-changes", prefix=NOBODY, program=open_build / "bin" / "berth")
    answer = end(one, lease)
    assert answer.status == 403 and lease in answer.error and "belongs to" in answer.error
    waiter = jobs.wait("-n", "4")
    ticket = server.status()["queue"][0]["ticket"]
    assert end(one, ticket).status == 403
    assert job.runs and waiter.runs


def test_two_requests_to_end_a_job_send_one_signal(server, serve):
    """A second SIGTERM could disturb a job that saves its state."""
    go = server.folder / "go"
    job, file = trapped(server, "saves", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 7")
    one = serve("--allow-changes")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(end(one, job))) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: signals_in(file), "SIGTERM")
    eventually(lambda: waiting_requests(one) == 3, "all three have asked")
    go.touch()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert signals_in(file) == ["term"] and finish_of(server, job) == 7


def waiting_requests(serving):
    """Connections whose request the server has read, and not answered."""
    with open(f"/proc/{serving.process.pid}/net/tcp") as file:
        local = f":{serving.port:04X}"
        rows = [line.split() for line in file]
    return sum(row[1].endswith(local) and row[3] == "01" and row[4].endswith(":00000000") for row in rows[1:])


def test_a_job_that_does_not_end_delays_nothing_else(server, serve, jobs):
    server.use("4x24GiB")
    slow, file = trapped(server, "slow", ":")
    jobs.hold("-n", "3")
    waiter = jobs.wait()
    one = serve("--allow-changes")
    viewer = one.view(headers={"Authorization": f"Bearer {one.token}"})
    answers = []
    thread = threading.Thread(target=lambda: answers.append(end(one, slow)))
    thread.start()
    eventually(lambda: signals_in(file), "SIGTERM")
    # Meanwhile: other changes, other ends, the stream, the history.
    ticket = server.status()["queue"][0]["ticket"]
    assert one.post(f"/api/v1/tickets/{ticket}/cancel", {}, token=one.token).status == 200
    assert waiter.process.wait() == 75
    other = submit(server, "--begin", "9h")
    viewer.until("jobs", lambda data: other in json.dumps(data))
    assert end(one, other).status == 200
    assert one.get("/api/v1/log").status == 200 and one.get(f"{JOBS}/{slow}/output", token=one.token).status == 200
    assert answers == [], "all of this came first"
    thread.join()
    assert answers[0].status == 200 and "was killed" in answers[0].json["message"]
    assert slow not in lease_ids(server)


def test_a_server_that_is_killed_while_it_ends_a_job_leaves_a_job_that_can_be_ended(server, serve):
    job, file = trapped(server, "stubborn", ":")
    one = serve("--allow-changes")

    def request():
        try:
            end(one, job)
        except OSError:
            pass  # the server was killed
    thread = threading.Thread(target=request)
    thread.start()
    eventually(lambda: signals_in(file), "SIGTERM")
    one.process.kill()
    thread.join()
    assert lease_ids(server) == [job]
    again = serve("--allow-changes")
    assert states(again) == {job: "running"}
    assert server.berth("cancel", "--grace", "0s", job).returncode == 0
    eventually(lambda: states(again) == {job: "ended"})
