"""The attacker wants other users' commands, root's history, or `berth serve` to take memory without a bound.

They write what they like into the files that are theirs (history, profiles) and plant files in the harbour: long lines,
many lines, many GPUs in a line, many files, long commands. Every reader bounds what it keeps while it reads, and the
users with the most lose their oldest data first, so an honest user's lines stay.
"""

import json
import os
import pathlib
import sys
import time

import pytest
from conftest import BERTH
from hostile import ALICE, MALLORY, prefix_of
from leasing import jobs, uuids  # noqa: F401
from serving import serve  # noqa: F401
from waiting import LIMIT

pytestmark = pytest.mark.needs_root

MIB = 1 << 20


def line(number, uid, **changes):
    """A line of the history as short as a reader accepts it."""
    now = int(time.time() * 1000)
    return {"id": f"{number:08d}", "uid": uid, "command": "", "label": "", "within": "",
            "gpus": [{"uuid": "GPU-0", "index": "0", "name": ""}], "asked_ms": now, "granted_ms": now, "ended_ms": now,
            "ending": "exited", "code": 0, **changes}


def folder_of(server, uid, name=None):
    archive = server.harbour / "archive"
    archive.mkdir(exist_ok=True)
    archive.chmod(0o1777)
    folder = archive / (name or str(uid))
    folder.mkdir(exist_ok=True)
    os.chown(folder, uid, uid)
    return folder


def write_history(server, uid, lines, **options):
    """Writes the lines, dicts or texts, into the current month of a user."""
    path = folder_of(server, uid, **options) / time.strftime("history-%Y-%m.jsonl", time.gmtime())
    with open(path, "w") as file:
        for one in lines:
            file.write(one if isinstance(one, str) else json.dumps(one, separators=(",", ":")) + "\n")
    os.chown(path, uid, uid)
    return path


def peak_mib(server, *command):
    """Runs a command; what it printed, and the most memory that it had."""
    result = server.run("/usr/bin/env", "python3", "-c", "import resource,subprocess,sys; "
                        "code = subprocess.run(sys.argv[1:]).returncode; "
                        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr); "
                        "sys.exit(code)", *command, timeout=LIMIT)
    assert result.returncode == 0, result.stderr
    said, _, peak = result.stderr.rstrip("\n").rpartition("\n")
    return result.stdout, said, int(peak)


# The history: F18, F23.

def test_a_history_that_needs_much_memory(server):
    """Each byte of such a line took nine bytes of memory."""
    write_history(server, ALICE, [line(1, ALICE, command="honest")])
    gpus = '"gpus":[' + ",".join('{"uuid":"%02d"}' % (i % 100) for i in range(512)) + "]"
    shape = json.dumps(line(0, MALLORY, gpus=[]), separators=(",", ":")).replace('"gpus":[]', gpus) + "\n"
    write_history(server, MALLORY, (shape.replace("00000000", f"{i:08d}") for i in range(10_000)))
    out, said, peak = peak_mib(server, BERTH, "log", "--json")
    assert peak < 450, "MiB"
    assert "large" in said
    assert sum('"honest"' in one for one in out.splitlines()) == 1, "only the user with the most loses lines"
    _, _, peak = peak_mib(server, BERTH, "report", "--json")
    assert peak < 150, "MiB"


def test_a_history_of_many_gpus_and_jobs(server):
    """Each line names GPUs and a job that no other line names."""
    def lines():
        for i in range(2000):
            gpus = [{"uuid": f"{i}-{j}"} for j in range(500)]
            yield line(i, MALLORY, gpus=gpus, job=f"job {i}")
    write_history(server, MALLORY, lines())
    write_history(server, ALICE, [line(1, ALICE, job="honest")])
    out, _, peak = peak_mib(server, BERTH, "report", "--json")
    assert peak < 150, "MiB"
    report = json.loads(out)
    assert len(report["gpus"]) < 3000
    assert any(one["job"] == "honest" for one in report["jobs"])


def test_long_texts_are_cut_when_they_are_read(server):
    texts = {key: "x" * 20_000 for key in ("id", "command", "label", "job", "within")}
    gpus = [{"uuid": f"{i}" + "u" * 300, "index": "i" * 300, "name": "n" * 300} for i in range(200)]
    write_history(server, MALLORY, [line(1, MALLORY, **texts), line(2, MALLORY, gpus=gpus), "y" * (2 * MIB) + "\n",
                                    line(3, MALLORY)])
    result = server.berth("log", "--json")
    assert result.returncode == 0 and "1 line " in result.stderr
    entries = [json.loads(one) for one in result.stdout.splitlines()]
    assert len(entries) == 3
    for entry in entries:
        assert len(entry["command"]) <= 4096
        assert all(len(entry[key] or "") <= 1024 for key in ("lease", "label", "job"))
        assert all(len(gpu[key] or "") <= 128 for gpu in entry["gpus"] for key in ("uuid", "index", "name"))


def test_a_long_command_is_cut_when_it_is_written(server):
    """1.8 MB of arguments were a line of 1.8 MB, which no reader takes; and a profile that cannot be read."""
    words = ["x" * 100_000] * 15
    result = server.berth("run", "--mem", "auto", "--", "true", *words)
    assert result.returncode == 0, result.stderr
    [path] = (server.harbour / "archive").glob("*/history-*.jsonl")
    assert path.stat().st_size < 16_384
    [entry] = [json.loads(one) for one in server.berth("log", "--json").stdout.splitlines()]
    assert entry["command"].startswith("true xxx") and len(entry["command"]) == 4096
    [profile] = (server.harbour / "archive").glob("*/profile-*.json")
    assert profile.stat().st_size < 16_384


def test_only_folders_of_berths_own_names_are_opened(server):
    """A user could have every reader run out of descriptors by folders 2003-1, 2003-2, and so on."""
    write_history(server, ALICE, [line(1, ALICE, command="honest")])
    for i in range(1, 200):
        write_history(server, MALLORY, [line(i, MALLORY, command="planted")], name=f"{MALLORY}-{i}")
    result = server.run("sh", "-c", 'ulimit -n 64; exec "$0" log --json', BERTH)
    assert result.returncode == 0
    assert '"honest"' in result.stdout and result.stdout.count("planted") == 15


# Root's housekeeping: F14.

def ids(count):
    letters = "abcdefghijkmnpqrstuvwxyz23456789"
    for i in range(count):
        yield "".join(letters[(i >> shift) & 31] for shift in (35, 30, 25, 20, 15, 10, 5, 0))


def record(name, **changes):
    now = int(time.time() * 1000)
    return json.dumps({"version": 1, "id": name, "state": "holding", "uid": MALLORY, "pid": 1, "pid_namespace": 1,
                       "holder": "job", "command": "x", "label": "", "since_ms": now, "granted_ms": now,
                       "request": {"count": 1, "policy": "spread"}, **changes})


def plant_dead_leases(server, count, gpus, bell_of=MALLORY, **changes):
    """Leases of Mallory's with bells that no process holds, as if their holders had been killed. `bell_of`: the owner of
    the bells; None: there are no bells."""
    for name in ids(count):
        bell, lease = server.harbour / f"bell-{name}", server.harbour / f"lease-{name}"
        lease.write_text(record(name, gpus=gpus, command="planted" + "x" * 4000, job="j" * 4000, **changes))
        os.chown(lease, MALLORY, MALLORY)
        if bell_of is not None:
            os.mkfifo(bell, 0o622)
            os.chown(bell, bell_of, bell_of)


def roots_history(server):
    files = (server.harbour / "archive" / "0").glob("history-*.jsonl")
    return "".join(path.read_text() for path in files)


def assert_root_writes_nothing(server, count):
    assert server.berth("run", "--", "true").returncode == 0
    text = roots_history(server)
    assert text.count("\n") == 1 and not any(name in text for name in ids(count)), text


@pytest.mark.parametrize("gpus", [["GPU-that-does-not-exist"] * 200, ["twice"], []], ids=["unknown", "twice", "none"])
def test_root_writes_nothing_about_implausible_leases(server, gpus):
    if gpus == ["twice"]:
        gpus = [uuids(server)["0"]] * 2
    plant_dead_leases(server, 50, gpus)
    assert_root_writes_nothing(server, 50)


def test_root_writes_nothing_about_a_lease_of_a_later_version_without_gpus(server):
    """Of a later version nothing but the GPUs is read, and those may be absent."""
    plant_dead_leases(server, 10, [], version=2)
    assert_root_writes_nothing(server, 10)


@pytest.mark.parametrize("bell_of", [None, ALICE], ids=["missing", "foreign"])
def test_root_writes_nothing_about_a_lease_without_a_bell_of_its_owner(server, bell_of):
    """Everything else about these leases is plausible."""
    plant_dead_leases(server, 10, [uuids(server)["0"]], bell_of=bell_of)
    assert_root_writes_nothing(server, 10)


def test_root_writes_a_bounded_number_of_lines_about_another_user(server):
    plant_dead_leases(server, 200, [uuids(server)["0"]])
    assert server.berth("run", "--", "true").returncode == 0
    text = roots_history(server)
    assert text.count("planted") <= 16
    assert len(text) < 16 * 8192


# Long commands in lists: F19.

PLANT_TICKETS = """
import json, os, resource, sys
_, harbour, hard, *names = sys.argv
resource.setrlimit(resource.RLIMIT_NOFILE, (int(hard), int(hard)))
for number, name in enumerate(names):
    path = f"{harbour}/bell-{name}"
    os.mkfifo(path, 0o622)
    os.chmod(path, 0o622)
    os.open(path, os.O_RDWR | os.O_NONBLOCK)
    text = sys.stdin.readline().replace("NAME", name)
    with open(f"{harbour}/ticket-{number + 1:015d}-{name}", "w") as file:
        file.write(text)
print("ready", flush=True)
sys.stdin.read()
"""


def plant_tickets(server, jobs, count):  # noqa: F811
    """Live tickets of Mallory's with the longest texts that a record may have."""
    text = record("NAME", state="waiting", command="c" * 12_000, job="j" * 12_000, label="l" * 700)
    process = jobs.start(*prefix_of(MALLORY), sys.executable, "-c", PLANT_TICKETS, server.harbour, 2 * count, *ids(count))
    process.process.stdin.write((text + "\n").encode() * count)
    process.process.stdin.flush()
    process.gpus()  # waits for its first line
    return process


def memory_mib(pid):
    fields = pathlib.Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()
    return int(fields[0]) // 1024


def test_long_commands_of_many_tickets(server, serve, jobs):  # noqa: F811
    jobs.hold("-n", "4")
    plant_tickets(server, jobs, 1000)
    status = server.status()
    size = next(server.harbour.glob("ticket-*")).stat().st_size
    assert len(status["queue"]) == (4 << 20) // size, "4 MiB of one user's tickets count"
    assert all(len(ticket["command"]) <= 513 for ticket in status["queue"])
    assert len(server.berth("queue", "--json").stdout) < 1000 * 2500
    page = serve()
    assert page.get("/api/v1/queue").status == 200
    assert memory_mib(page.process.pid) < 200
