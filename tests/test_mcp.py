"""berth mcp, used by the public client of the Model Context Protocol, and by clients that are wrong."""

import asyncio
import contextlib
import json
import subprocess

import pytest
from conftest import BERTH
from leasing import eventually, jobs  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.release_only  # the client is Python; the commands have tests of their own

READ_ONLY = ["status", "queue", "jobs", "explain", "logs", "wait", "report"]


def with_client(server, use, *flags):
    """Runs use(session) with a client of the package mcp."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def run():
        parameters = StdioServerParameters(command=str(BERTH), args=["mcp", *flags], env=server.env)
        async with stdio_client(parameters) as (reading, writing), ClientSession(reading, writing) as session:
            await session.initialize()
            return await use(session)
    return asyncio.run(asyncio.wait_for(run(), LIMIT))


def text_of(result):
    [content] = result.content
    return content.text


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    dump = result.model_dump(by_alias=True)
    return dump["isError"], text_of(result), dump.get("structuredContent")


def test_it_is_read_only_unless_changes_are_allowed(server):
    async def use(session):
        tools = (await session.list_tools()).tools
        return [tool.name for tool in tools], await call(session, "submit", command=["true"]), await call(session, "status")
    names, (failed, text, _), (status_failed, _, status) = with_client(server, use)
    assert names == READ_ONLY
    assert failed and "read-only" in text and "--allow-changes" in text
    assert not status_failed and len(status["gpus"]) == 4
    assert not (server.folder / ".local").exists(), "nothing was submitted"


def test_a_job_from_its_preview_to_its_end(server):
    async def use(session):
        names = [tool.name for tool in (await session.list_tools()).tools]
        preview = await call(session, "submit", command=["sh", "-c", "echo hello; exit 3"], count=2, label="from an agent", preview=True)
        before = await call(session, "jobs")
        submitted = await call(session, "submit", command=["sh", "-c", "echo hello; exit 3"], count=2, label="from an agent")
        job = submitted[2]["id"]
        return names, preview, before, submitted, await call(session, "wait", id=job), await call(session, "logs", id=job), \
            await call(session, "explain", id=job)
    names, preview, before, submitted, waited, logs, explained = with_client(server, use, "--allow-changes")
    assert names == [*READ_ONLY, "submit", "cancel"]
    assert preview[0] is False and "berth run --detach" in preview[1] and "sh -c 'echo hello; exit 3'" in preview[1]
    assert before[2]["jobs"] == [], "a preview changes nothing"
    assert submitted[0] is False
    assert waited == (False, "the job has ended with exit code 3", {"exit_code": 3})
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
    assert waited[2] == {"exit_code": 143}


@pytest.mark.parametrize("tool, arguments, words", [
    ("submit", {"command": "python train.py"}, "list of texts"),
    ("submit", {"command": []}, "list of texts"),
    ("submit", {"command": ["no-such-program"]}, "not found"),
    ("submit", {"command": ["true"], "count": 99}, "99 GPUs"),
    ("submit", {"command": ["true"], "nonsense": 1}, "nonsense"),
    ("submit", {"command": ["true"], "label": {}}, "label"),
    ("submit", {"command": ["true"], "preview": "true"}, "preview"),
    ("submit", {"command": ["true", "a\0b"]}, "NUL"),
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

    def __init__(self, server, *flags):
        self.process = subprocess.Popen([BERTH, "mcp", *flags], env=server.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

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
])
def test_wrong_messages_are_refused_and_the_next_one_works(raw, line, code):
    assert raw.ask(line)["error"]["code"] == code
    assert raw.ask({"jsonrpc": "2.0", "id": "x", "method": "ping"}) == {"jsonrpc": "2.0", "id": "x", "result": {}}


def test_a_message_without_end_is_refused(raw):
    with contextlib.suppress(BrokenPipeError):
        raw.send(b"x" * (3 << 20))
    assert raw.reply()["error"]["code"] == -32700
    assert raw.process.wait(LIMIT) == 0


def test_versions(raw):
    for asked, given in (("2024-11-05", "2024-11-05"), ("2999-01-01", "2025-06-18"), (None, "2025-06-18")):
        answer = raw.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": asked}})
        assert answer["result"]["protocolVersion"] == given


def test_a_cancelled_call_ends_and_gets_no_reply(raw, server, jobs):  # noqa: F811
    job = jobs.hold()
    lease = next(lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"])
    raw.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "wait", "arguments": {"id": lease}}})
    assert raw.ask({"jsonrpc": "2.0", "id": 8, "method": "ping"})["id"] == 8
    raw.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert raw.ask({"jsonrpc": "2.0", "id": 9, "method": "ping"})["id"] == 9
    assert job.runs, "only the call has ended"


def test_it_ends_with_its_stdin_and_leaves_no_process(raw, server, jobs):  # noqa: F811
    jobs.hold()
    lease = next(lease["id"] for gpu in server.status()["gpus"] for lease in gpu["leases"])
    raw.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "wait", "arguments": {"id": lease}}})
    raw.process.stdin.close()
    assert raw.process.wait(LIMIT) == 0
    eventually(lambda: subprocess.run(["pgrep", "-f", f"wait {lease}"], capture_output=True).returncode == 1, "no berth wait is left")
