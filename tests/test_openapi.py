"""web/openapi.json says what `berth serve` answers: the document is valid, and real answers are as it says."""

import copy
import json
import re

import jsonschema
import openapi_spec_validator
import pytest
from conftest import BERTH, ROOT, SERVERS
from leasing import eventually, jobs  # noqa: F401
from serving import serve  # noqa: F401
from test_detach import detach, finish_of
from test_serve_jobs import submit
from waiting import LIMIT

DOCUMENT = json.loads((ROOT / "web" / "openapi.json").read_text())
PATHS = DOCUMENT["paths"]
HOSTILE = "<script>alert('x')</script>\"&\x1b[31m\u202e"
TOKEN = "0123456789abcdef0123456789abcdef"


def strict(schema):
    """As it is, but nothing may be there that it does not name. (Clients must bear new keys; we must not forget them.)"""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: strict(value) for name, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        result["unevaluatedProperties"] = False
    return result


COMPONENTS = strict(DOCUMENT["components"])
# Part of others, which say what else there is.
COMPONENTS["schemas"]["Figures"].pop("unevaluatedProperties")


def check(value, schema):
    whole = {"components": COMPONENTS, **strict(schema)}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(whole, format_checker=checker).validate(value)


def resolved(part):
    if "$ref" not in part:
        return part
    value = DOCUMENT
    for step in part["$ref"].removeprefix("#/").split("/"):
        value = value[step]
    return value


def check_answer(answer, path, method="get"):
    """It has a status that the document knows for this path, and the form that it says; the answer, parsed."""
    known = PATHS[path][method]["responses"]
    assert str(answer.status) in known, (answer.status, answer.body)
    [(kind, content)] = resolved(known[str(answer.status)])["content"].items()
    assert answer.headers["Content-Type"].split(";")[0] == kind
    if kind != "application/json":
        return answer.body.decode()
    check(answer.json, content["schema"])
    return answer.json


def ask(serving, path, query="", **options):
    answer = serving.get(path + query, **options)
    assert answer.status == 200, (path, answer.body)
    return check_answer(answer, path)


# Those that another test asks: the stream, and the output of a job, which needs a job.
GETS = [path for path, item in PATHS.items() if "get" in item and path not in ("/api/v1/events", "/api/v1/jobs/{id}/output")]


# The document itself.

@pytest.mark.release_only
def test_the_document_is_valid():
    openapi_spec_validator.validate(DOCUMENT)


@pytest.mark.release_only
def test_an_invalid_document_would_be_noticed():
    broken = copy.deepcopy(DOCUMENT)
    broken["paths"]["/metrics"]["get"].pop("responses")
    broken["paths"]["/healthz"]["get"]["operationId"] = "metrics"
    with pytest.raises(Exception, match="responses|operationId|Operation ID|valid"):
        openapi_spec_validator.validate(broken)


@pytest.mark.release_only
def test_nothing_in_it_is_vague():
    """Each object names its keys, each list its items, each key says what it means, and no schema is there for nothing."""
    text = json.dumps(DOCUMENT)
    for name in DOCUMENT["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text, name

    def look(schema, where):
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        assert kinds or "$ref" in schema or "const" in schema, where
        if "object" in kinds:
            assert "properties" in schema and schema["description"], where
            for key, one in schema["properties"].items():
                look(one, f"{where}.{key}")
        if "array" in kinds:
            assert schema["description"], where
            look(schema["items"], f"{where}[]")
    for name, schema in DOCUMENT["components"]["schemas"].items():
        look(schema, name)


@pytest.mark.release_only
def test_every_route_of_the_server_is_in_it():
    source = (ROOT / "src" / "serve" / "routes.cpp").read_text()
    routes = re.findall(r'Route\{"(\w+)", "([^"]+)", "([^"]*)"', source)
    assert len(routes) >= 15
    word = {"/api/v1/gpus/": "{uuid}"}
    known = {(method.lower(), before + (word.get(before, "{id}") + after if after else ""))
             for method, before, after in routes}
    assert known == {(method, path) for path, item in PATHS.items() for method in item}


def test_the_server_has_it(serve):
    assert ask(serve(), "/api/v1/openapi.json") == DOCUMENT


# Real answers.

@pytest.mark.parametrize("name", sorted(path.stem for path in SERVERS.glob("*.json")))
def test_every_server_answers_as_described(server, jobs, serve, name):
    server.use(SERVERS / f"{name}.json")
    # What can be had here: alone, in part, inside of another, and not at all for now.
    jobs.hold("--mem", "1GiB", "--label", HOSTILE, "--job", "trained")
    holding = jobs.run("--label", HOSTILE)
    eventually(lambda: holding.out or "waiting" in holding.err, "a lease or a ticket")
    jobs.run("--time", "2h", command=["sh", "-c", "berth run -- cat; read -r line"])
    count = sum(gpu["state"] in ("free", "leased", "shared", "stranger") for gpu in server.status()["gpus"])
    jobs.wait("-n", str(count))
    shares = jobs.run("--mem", "2GiB", "--time", "2h")
    eventually(lambda: shares.out or "waiting" in shares.err, "a lease or a ticket")
    server.berth("run", "--no-wait", "--mem", "100MiB", "--", "false")
    serving = serve()
    status = ask(serving, "/api/v1/status")
    [host] = status["hosts"]
    assert len(host["gpus"]) == len(server.status()["gpus"])
    assert any(gpu["leases"] for gpu in host["gpus"]) and host["queue"]
    assert ask(serving, "/api/v1/queue") == {"hosts": [{key: host[key] for key in ("host", "next_free", "queue")}]}
    assert ask(serving, "/api/v1/log")["leases"]
    assert ask(serving, "/api/v1/report")["total"]["running"] >= 1
    timeline = ask(serving, "/api/v1/timeline", "?since=7d")
    assert any(gpu["spans"] for gpu in timeline["gpus"])
    assert {gpu["uuid"] for gpu in host["gpus"] if gpu["uuid"]} == {gpu["uuid"] for gpu in timeline["gpus"]}
    assert ask(serving, "/api/v1/samples")["hosts"]
    assert ask(serving, "/healthz") == {"status": "ok"}
    assert "berth_gpu_state" in ask(serving, "/metrics")


@pytest.mark.release_only
def test_the_stream_is_as_described(server, jobs, serve):
    server.use(SERVERS / "lab.json")
    serving = serve("--allow-changes")
    viewer = serving.view()
    viewer.until("status")
    job = jobs.hold("--label", HOSTILE)
    waits = jobs.wait("-n", "4")
    viewer.until("status", lambda data: data["hosts"][0]["queue_length"] == 1)
    waits.process.terminate()
    job.end()
    viewer.until("history")
    viewer.until("sample")
    known = PATHS["/api/v1/events"]["get"]["responses"]["200"]["x-events"]
    names = [name for name, _ in viewer.events if name != "comment"]
    assert names[:3] == ["hello", "samples", "status"]
    for name, data in viewer.events:
        if name != "comment":
            check(data, known[name])
    viewer.close()


def test_a_stream_that_sees_nothing_says_so_as_described(server, serve):
    serving = serve()
    viewer = serving.view()
    viewer.until("status")
    server.harbour.rename(server.folder / "aside")
    server.harbour.write_text("no directory")
    check(viewer.until("problem"), PATHS["/api/v1/events"]["get"]["responses"]["200"]["x-events"]["problem"])
    answer = serving.get("/healthz")
    assert answer.status == 503 and check_answer(answer, "/healthz")["status"] == "problem"
    server.harbour.unlink()
    (server.folder / "aside").rename(server.harbour)
    seen = len(viewer.all("status"))
    eventually(lambda: len(viewer.all("status")) > seen, "the next status")
    viewer.close()


def test_jobs_and_their_output_are_as_described(server, serve):
    server.use("1x24GiB")
    failed = submit(server, command=["false"])
    eventually(lambda: finish_of(server, failed) is not None, "a job ends")
    running = submit(server, "--time", "2h", "--label", HOSTILE)
    submit(server, "--after", submit(server))
    detach(server, "batch", "-d", "--logs", server.folder / "logs", "--", "true", "true")
    eventually(lambda: len(server.status()["queue"]) == 3, "a job and two lines of the batch wait")
    serving = serve("--allow-changes")
    viewer = serving.view(headers={"Authorization": f"Bearer {serving.token}"})

    def all_states():
        found = ask(serving, "/api/v1/jobs", token=serving.token)["jobs"]
        return {job["state"] for job in found} == {"ended", "running", "waiting", "held"} and any(job["batch"] for job in found)
    eventually(all_states)
    check(viewer.until("jobs", lambda data: data["jobs_length"] == 5), PATHS["/api/v1/events"]["get"]["responses"]["200"]["x-events"]["jobs"])
    path = "/api/v1/jobs/{id}/output"
    for job, token, status in ((running, serving.token, 200), ("aaaaaaaa", serving.token, 404), ("%2e%2e", serving.token, 400),
                               (running, None, 401)):
        answer = serving.get(path.replace("{id}", job), token=token)
        assert answer.status == status
        check_answer(answer, path)
    assert change(serving, "/api/v1/jobs/{id}/cancel", running, 200)["message"]
    change(serving, "/api/v1/jobs/{id}/cancel", failed, 409)


# Errors.

@pytest.mark.parametrize("path", GETS)
def test_other_methods_and_names_are_refused_as_described(serve, path):
    serving = serve()
    answer = serving.ask("DELETE", path)
    assert answer.status == 405 and "GET" in answer.headers["Allow"]
    check_answer(answer, path)
    answer = serving.get(path, headers={"Host": "evil.example"})
    assert answer.status == 403
    check_answer(answer, path)


@pytest.mark.parametrize("query", ["?since=someday", "?since=-1h", "?since", "?colour=red", "?user=nobody-here", "?gpu=,,",
                                   "?since=%zz", "?host=a/b"])
@pytest.mark.parametrize("path", ["/api/v1/log", "/api/v1/report", "/api/v1/timeline"])
def test_wrong_questions_are_refused_as_described(serve, path, query):
    answer = serve().get(path + query)
    assert answer.status == 400, answer.body
    check_answer(answer, path)


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "many"])
def test_a_wrong_limit_is_refused_as_described(serve, limit):
    answer = serve().get(f"/api/v1/log?limit={limit}")
    assert answer.status == 400
    check_answer(answer, "/api/v1/log")


def test_a_limit_leaves_out_the_oldest(server, serve):
    for label in ("first", "second", "third"):
        assert server.berth("run", "--label", label, "--", "true").returncode == 0
    serving = serve()
    log = ask(serving, "/api/v1/log", "?limit=2")
    assert ([lease["label"] for lease in log["leases"]], log["truncated"]) == (["second", "third"], True)
    log = ask(serving, "/api/v1/log", "?limit=3")
    assert (len(log["leases"]), log["truncated"]) == (3, False)


def test_a_token_is_asked_for_as_described(server, serve):
    file = server.folder / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    serving = serve("--token-file", file)
    for path in GETS:
        operation = PATHS[path]["get"]
        answer = serving.get(path)
        open_to_all = operation["security"] == [{}]
        assert (answer.status == 200) == open_to_all, (path, answer.status)
        assert open_to_all or answer.status == 401
        check_answer(answer, path)
        assert serving.get(path, token=TOKEN).status == 200
    path = "/api/v1/session"
    for body, status in (({"token": TOKEN}, 200), ({"token": "wrong"}, 401), ({}, 400), ([], 400)):
        answer = serving.post(path, body)
        assert answer.status == status
        check_answer(answer, path, "post")
    assert "Set-Cookie" not in serving.post(path, {"token": TOKEN}).headers


# Changes.

def change(serving, path, word, status, body=None, token=True):
    answer = serving.post(re.sub(r"\{\w+\}", word, path), body, token=serving.token if token is True else token)
    assert answer.status == status, answer.body
    return check_answer(answer, path, "post")


def test_changes_are_made_as_described(server, jobs, serve):
    serving = serve("--allow-changes")
    uuid = server.status()["gpus"][0]["uuid"]
    change(serving, "/api/v1/gpus/{uuid}/drain", uuid, 200, {"reason": HOSTILE})
    change(serving, "/api/v1/gpus/{uuid}/drain", uuid, 200)
    assert server.status()["gpus"][0]["state"] == "drained"
    change(serving, "/api/v1/gpus/{uuid}/undrain", uuid, 200)
    job = jobs.hold("-n", "4")
    waits = jobs.wait()
    ticket = server.status()["queue"][0]["ticket"]
    lease = server.status()["gpus"][0]["leases"][0]["id"]
    change(serving, "/api/v1/tickets/{id}/cancel", ticket, 200)
    assert waits.process.wait(LIMIT) == 75
    # A job's lease ends with the job.
    eventually(lambda: serving.post(f"/api/v1/leases/{lease}/release", token=serving.token).status == 409, "a conflict")
    change(serving, "/api/v1/leases/{id}/release", lease, 409)
    job.end()
    shell = jobs.start("bash", "--norc", "-c", f'eval "$({BERTH} acquire)"; echo "$BERTH_LEASE"; read -r line')
    eventually(lambda: shell.out.endswith("\n"), "the shell's lease")
    change(serving, "/api/v1/leases/{id}/release", shell.out.strip(), 200)


def test_changes_are_refused_as_described(server, serve):
    serving = serve("--allow-changes")
    changes = {"/api/v1/tickets/{id}/cancel": "aaaa2222", "/api/v1/leases/{id}/release": "aaaa2222",
               "/api/v1/gpus/{uuid}/drain": "GPU-none", "/api/v1/gpus/{uuid}/undrain": "GPU-none", "/api/v1/jobs/{id}/cancel": "aaaa2222"}
    assert {path for path, item in PATHS.items() if "post" in item} == {*changes, "/api/v1/session"}
    silent = serve()
    for path, unknown in changes.items():
        change(serving, path, unknown, 401, token=None)
        change(serving, path, unknown, 401, token="0" * 32)
        change(serving, path, unknown, 404)
        change(serving, path, "%2e%2e", 400)
        change(silent, path, unknown, 403, token="0" * 32)
        answer = serving.get(re.sub(r"\{\w+\}", unknown, path))
        assert answer.status == 405 and answer.headers["Allow"] == "POST"
        check_answer(answer, path, "post")
        large = serving.post(re.sub(r"\{\w+\}", unknown, path), {"reason": "x" * 70_000}, token=serving.token)
        assert large.status == 413
        check_answer(large, path, "post")
    uuid = server.status()["gpus"][0]["uuid"]
    for body in ([], {"reason": 1}, "text"):
        change(serving, "/api/v1/gpus/{uuid}/drain", uuid, 400, body)
