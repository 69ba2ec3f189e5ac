"""berth mcp, used by the public client of the Model Context Protocol, and by clients that are wrong."""

import asyncio
import json
import signal
import subprocess

import pytest
from conftest import BERTH
from leasing import eventually, jobs  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only  # the client is Python; the commands have tests of their own

READ_ONLY = ["status", "queue", "jobs", "explain", "logs", "wait", "report"]


# With the revision of the protocol without a session; with those before it; and asking the server first.
MODES = ["2026-07-28", "legacy", "auto"]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def with_client(server, use, *flags, mode="auto"):
    """Runs use(client) with a client of the package mcp."""
    from mcp import Client, StdioServerParameters

    async def run():
        parameters = StdioServerParameters(command=str(BERTH), args=["mcp", *flags], env=server.env)
        async with Client(parameters, mode=mode) as client:
            return await use(client)
    return asyncio.run(asyncio.wait_for(run(), LIMIT))


def text_of(result):
    return "\n".join(content.text for content in result.content)


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    dump = result.model_dump(by_alias=True)
    return dump["isError"], text_of(result), dump.get("structuredContent")


def test_it_is_read_only_unless_changes_are_allowed(server, jobs):  # noqa: F811
    job = jobs.hold()
    lease = next(lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"])

    async def use(session):
        tools = (await session.list_tools()).tools
        refused = [await call(session, "submit", command=["true"], **more) for more in ({}, {"preview": True}, {"nonsense": 1})]
        refused += [await call(session, "cancel", id=lease, **more) for more in ({}, {"preview": True})]
        return [tool.name for tool in tools], refused, await call(session, "status")
    names, refused, (status_failed, _, status) = with_client(server, use)
    assert names == READ_ONLY
    for failed, text, _ in refused:
        assert failed and "read-only" in text and "--allow-changes" in text
    assert not status_failed and len(status["gpus"]) == 4
    assert job.runs and not (server.folder / ".local").exists(), "nothing was cancelled or submitted"


def test_the_descriptions_of_the_tools(server):
    import jsonschema
    tools = with_client(server, lambda session: session.list_tools(), "--allow-changes").tools
    for tool in tools:
        schema = tool.model_dump(by_alias=True)["inputSchema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert set(schema["required"]) <= set(schema["properties"]) and schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint is (tool.name in READ_ONLY)
        assert tool.annotations.destructive_hint is (tool.name not in READ_ONLY)


@pytest.mark.parametrize("mode", MODES)
def test_a_job_from_its_preview_to_its_end(server, mode):
    async def use(session):
        names = [tool.name for tool in (await session.list_tools()).tools]
        preview = await call(session, "submit", command=["sh", "-c", "echo hello; exit 3"], count=2, label="from an agent", preview=True)
        before = await call(session, "jobs")
        submitted = await call(session, "submit", command=["sh", "-c", "echo hello; exit 3"], count=2, label="from an agent")
        job = submitted[2]["id"]
        return names, preview, before, submitted, await call(session, "wait", id=job), await call(session, "logs", id=job), \
            await call(session, "explain", id=job)
    names, preview, before, submitted, waited, logs, explained = with_client(server, use, "--allow-changes", mode=mode)
    assert names == [*READ_ONLY, "submit", "cancel"]
    assert preview[0] is False and "berth run --detach" in preview[1] and "sh -c 'echo hello; exit 3'" in preview[1]
    assert before[2]["jobs"] == [], "a preview changes nothing"
    assert submitted[0] is False and "berth logs" in submitted[1]
    [waited_for] = waited[2]["jobs"]
    assert (waited[0], waited_for) == (False, {"id": submitted[2]["id"], "result": "failed", "exit_code": 3, "reason": None})
    assert logs[1].endswith("hello\n")
    [job] = explained[2]["jobs"]
    assert (job["exit_code"], job["label"], len(job["gpus"])) == (3, "from an agent", 2)


def test_cancel_and_several_calls_at_once(server):
    async def use(session):
        job = (await call(session, "submit", command=["sleep", "1000"]))[2]["id"]
        waiting = asyncio.create_task(call(session, "wait", id=job))
        status = await call(session, "status")  # while the other call waits
        preview = await call(session, "cancel", id=job, preview=True)
        assert not waiting.done()
        return status, preview, await call(session, "cancel", id=job), await waiting
    status, preview, cancelled, waited = with_client(server, use, "--allow-changes")
    assert status[0] is False
    assert preview[0] is False and "berth cancel" in preview[1]
    assert cancelled[0] is False and "has ended" in cancelled[1]
    assert [job["exit_code"] for job in waited[2]["jobs"]] == [143]


def test_the_folder_of_a_job(server):
    (server.folder / "a folder").mkdir()

    async def use(session):
        preview = await call(session, "submit", command=["pwd"], cwd="a folder", preview=True)
        job = (await call(session, "submit", command=["pwd"], cwd=str(server.folder / "a folder")))[2]["id"]
        await call(session, "wait", id=job)
        return preview, await call(session, "logs", id=job)
    preview, logs = with_client(server, use, "--allow-changes")
    assert "cd 'a folder' && berth run" in preview[1]
    assert logs[1].endswith(f"{server.folder}/a folder\n")


def test_output_of_any_kind(server):
    """Bytes that are not UTF-8, control characters, and more than a megabyte."""
    async def use(session):
        texts = []
        for command in (["printf", r"\377\33[31m\0end\n"], ["sh", "-c", "yes 0123456789abcdef | head -c 3000000"]):
            job = (await call(session, "submit", command=command, label="\x1b]0;title\x07"))[2]["id"]
            await call(session, "wait", id=job)
            texts.append(await call(session, "logs", id=job, lines=1_000_000))
        return texts, await call(session, "jobs")
    (strange, long), listed = with_client(server, use, "--allow-changes")
    assert (strange[0], strange[1].partition("GPU 0\n")[2]) == (False, "\ufffd\x1b[31m\0end\n")
    assert (long[0], long[1].startswith("[the beginning")) == (False, True) and long[1].endswith("cdef\n0123456789") and len(long[1]) < 1_100_000
    assert {job["label"] for job in listed[2]["jobs"]} <= {"\x1b]0;title\x07", "?]0;title?"}


@pytest.mark.parametrize("tool, arguments, words", [
    ("submit", {"command": "python train.py"}, "list of texts"),
    ("submit", {"command": []}, "list of texts"),
    ("submit", {"command": ["no-such-program"]}, "not found"),
    ("submit", {"command": ["true"], "count": 99}, "99 GPUs"),
    ("submit", {"command": ["true"], "nonsense": 1}, "nonsense"),
    ("submit", {"command": ["true"], "label": {}}, "label"),
    ("submit", {"command": ["true"], "preview": "true"}, "preview"),
    ("submit", {"command": ["true", "a\0b"]}, "NUL"),
    ("submit", {"command": ["true"], "cwd": 5}, "cwd"),
    ("submit", {"command": ["true"], "cwd": "/no/such/folder"}, "/no/such/folder"),
    ("submit", {"command": ["true"], "cwd": "/dev/null"}, "/dev/null"),
    ("submit", {"command": ["true"], "cwd": "a\0b"}, "NUL"),
    ("logs", {"id": "--help"}, "id of a job"),
    ("logs", {"id": "abcdefgh"}, "abcdefgh"),
    ("logs", {"id": "abcdefgh", "lines": "1 --follow"}, "1 --follow"),
    ("wait", {"id": "abcdefgh"}, "abcdefgh"),
    ("wait", {}, "id of a job"),
    ("cancel", {"id": "abcdefgh"}, "abcdefgh"),
])
def test_wrong_arguments_are_errors_of_the_tool(server, tool, arguments, words):
    failed, text, _ = with_client(server, lambda session: call(session, tool, **arguments), "--allow-changes")
    assert failed and words in text, text


class Raw:
    """A client that writes lines by itself."""

    def __init__(self, server, *flags, **options):
        self.process = subprocess.Popen([BERTH, "mcp", *flags], env=server.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)

    def call(self, number, tool, **arguments):
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

    def send(self, line):
        self.process.stdin.write(line if isinstance(line, bytes) else (json.dumps(line) + "\n").encode())
        self.process.stdin.flush()

    def reply(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, line):
        self.send(line)
        return self.reply()


@pytest.fixture
def raw(server):
    client = Raw(server)
    yield client
    client.process.kill()
    client.process.wait()


@pytest.mark.parametrize("line, code", [
    (b"garbage\n", -32700), (b"{\n", -32700), (b"\xff\xfe\n", -32700), (b"[]\n", -32600), (b"1\n", -32600), (b"{}\n", -32600),
    (b'{"jsonrpc":"2.0","id":1}\n', -32600), ({"jsonrpc": "2.0", "id": 1, "method": "no/such"}, -32601),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no-such"}}, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, -32602),
    ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, -32602),
    ({"jsonrpc": "2.0", "id": None, "method": "ping"}, -32600), ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, -32600),
    ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, -32600), ({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}, -32601),
    ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], -32600), (b"[" * 500_000 + b"\n", -32700), (b"x" * (3 << 20) + b"\n", -32700),
], ids=lambda value: str(value)[:40])
def test_wrong_messages_are_refused_and_the_next_one_works(raw, line, code):
    assert raw.ask(line)["error"]["code"] == code
    assert raw.ask({"jsonrpc": "2.0", "id": "x", "method": "ping"}) == {"jsonrpc": "2.0", "id": "x", "result": {}}


def test_a_message_without_end_is_refused_before_its_end(raw):
    raw.send(b"x" * (3 << 20))
    assert raw.reply()["error"]["code"] == -32700
    raw.send(b"the end\n")
    assert raw.ask({"jsonrpc": "2.0", "id": 2, "method": "ping"})["id"] == 2


def test_what_needs_no_reply(raw):
    for message in ({"method": "notifications/initialized"}, {"method": "no/such"}, {"id": 5, "result": {}}, {"id": 6, "error": {}},
                    {"method": "notifications/cancelled"}, {"method": "notifications/cancelled", "params": {"requestId": "x"}},
                    {"method": "notifications/cancelled", "params": 7}):
        raw.send({"jsonrpc": "2.0", **message})
    assert raw.ask({"jsonrpc": "2.0", "id": 2, "method": "ping"})["id"] == 2


def test_versions_of_the_session(raw):
    for asked, given in (("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("2026-07-28", "2025-11-25"),
                         ("2999-01-01", "2025-11-25"), (None, "2025-11-25")):
        answer = raw.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": asked}})
        assert answer["result"]["protocolVersion"] == given


def test_requests_without_a_session(raw):
    """Each names its version."""
    def ask(method, version="2026-07-28", capabilities=None, **more):
        meta = {VERSION: version, CAPABILITIES: {} if capabilities is None else capabilities}
        return raw.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **more}})
    discovered = ask("server/discover")["result"]
    assert discovered["supportedVersions"][0] == "2026-07-28" and discovered["capabilities"] == {"tools": {}}
    listed = ask("tools/list")["result"]
    called = ask("tools/call", name="queue")["result"]
    for result in (discovered, listed, called):
        assert result["resultType"] == "complete"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "berth"
    for result in (discovered, listed):
        assert result["ttlMs"] > 0 and result["cacheScope"] == "private"
    refused = ask("tools/list", version="1900-01-01")["error"]
    assert (refused["code"], refused["data"]["requested"], refused["data"]["supported"]) == (-32022, "1900-01-01", discovered["supportedVersions"])
    assert ask("tools/list", version=None)["error"]["code"] == -32602
    assert ask("tools/list", capabilities=[])["error"]["code"] == -32602
    assert [ask(method)["error"]["code"] for method in ("ping", "initialize", "no/such")] == [-32601] * 3


def test_batches(raw):
    """Of the one version that has them."""
    raw.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}})
    request = {"jsonrpc": "2.0", "method": "ping"}
    replies = raw.ask([{**request, "id": 1}, request, 5, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "queue"}}])
    assert {reply["id"] for reply in replies} == {1, 2, None}
    assert raw.ask([])["error"]["code"] == -32600
    raw.send([request])  # nothing to reply to
    assert raw.ask({**request, "id": 3})["id"] == 3


def test_an_id_is_not_used_twice_at_once(raw, server, jobs):  # noqa: F811
    jobs.hold()
    lease = next(lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"])
    raw.call(7, "wait", id=lease)
    raw.call(7, "status")
    reply = raw.reply()
    assert (reply["id"], reply["error"]["code"]) == (7, -32600)


def test_a_cancelled_call_ends_and_gets_no_reply(raw, server, jobs):  # noqa: F811
    job = jobs.hold()
    lease = next(lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"])
    raw.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "wait", "arguments": {"id": lease}}})
    assert raw.ask({"jsonrpc": "2.0", "id": 8, "method": "ping"})["id"] == 8
    raw.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert raw.ask({"jsonrpc": "2.0", "id": 9, "method": "ping"})["id"] == 9
    assert job.runs, "only the call has ended"


def test_a_failure_is_one_although_the_client_ignores_sigchld(server):
    """The kernel then discards the exit status of each command."""
    client = Raw(server, "--allow-changes", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    client.call(1, "cancel", id="abcdefgh")
    result = client.reply()["result"]
    assert result["isError"] and result["_meta"] == {"exit_code": 64}
    client.process.stdin.close()
    assert client.process.wait(LIMIT) == 0


@pytest.mark.parametrize("how", ["stdin", "SIGTERM", "SIGKILL"])
def test_it_leaves_no_process(raw, server, jobs, how):  # noqa: F811
    jobs.hold()
    lease = next(lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"])
    raw.call(7, "wait", id=lease)
    eventually(lambda: subprocess.run(["pgrep", "-f", f"wait.* {lease}"], capture_output=True).returncode == 0, "berth wait runs")
    if how == "stdin":
        raw.process.stdin.close()
    else:
        raw.process.send_signal(getattr(signal, how))
    assert raw.process.wait(LIMIT) == (0 if how == "stdin" else -getattr(signal, how))
    eventually(lambda: subprocess.run(["pgrep", "-f", f"wait.* {lease}"], capture_output=True).returncode == 1, "no berth wait is left")
