"""kill -9 before every system call, and every system call that can fail failing: nothing is lost.

strace makes the faults. It follows berth itself, not the child that asks the driver, nor the job.
"""

import itertools
import re
import signal

import pytest
from conftest import SANITIZED, Server, assert_fit_for_terminal
from processes import ALICE, BOB, CAROL, Host, in_lanes, state_of, wait_for
from waiting import LIMIT

# Under AddressSanitizer a few of each suffice: the order of the calls is the same.
STEP = 9 if SANITIZED else 1
LANES = 3  # so many harbours at a time

FAULTY_CALLS = ("openat", "openat2", "statx", "mknodat", "write", "flock", "getdents64", "renameat", "unlinkat", "poll",
                "fchmod", "fcntl", "newfstatat", "pread64", "fstatfs", "read")
if SANITIZED:  # UndefinedBehaviorSanitizer writes to find out what is readable
    FAULTY_CALLS = tuple(name for name in FAULTY_CALLS if name != "write")
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EINTR")
HARBOUR_FAILS, NO_DRIVER, NOT_GRANTED = 74, 69, 75


@pytest.fixture
def hosts(open_folder, open_build):
    """Several servers of one GPU each, to use at the same time."""
    found = []
    for i in range(LANES):
        folder = open_folder / f"lane{i}"
        folder.mkdir()
        folder.chmod(0o1777)
        found.append(Host(Server(folder).use("1x24GiB"), open_build))
    yield found
    for host in found:
        host.stop()


def traced(*flags, output="/dev/null"):
    return ["strace", "-o", output, *itertools.chain.from_iterable(("-e", flag) for flag in flags)]


def calls_of(text, harbour):
    """Each system call of a trace from where the harbour is first named, as (name, which of that name)."""
    counts, found, reached = {}, [], False
    for line in text.splitlines():
        name = re.match(r"(\w+)\(", line)
        if not name:
            continue
        counts[name[1]] = counts.get(name[1], 0) + 1
        reached = reached or str(harbour) in line
        if reached:
            found.append((name[1], counts[name[1]]))
    return found


def record(host, waits):
    """The system calls of a `berth run` from its first look at the harbour to its end."""
    output = host.folder / "trace"
    prefix = traced("trace=%file,%desc,%process,%signal", output=str(output))
    if waits:
        holder, gate = host.hold(uid=CAROL)
        client, own_gate = host.queue(uid=ALICE, prefix=prefix)
        gate.open()
        own_gate.wait_until_started(LIMIT, client)
    else:
        client, own_gate = host.hold(uid=ALICE, prefix=prefix)
    own_gate.open()
    assert client.wait() == 0
    return calls_of(output.read_text(), host.harbour)


# kill -9


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after waiting"])
def test_killed_before_any_system_call_the_next_user_gets_the_gpu(hosts, waits):
    calls = record(hosts[0], waits)
    assert len(calls) > (80 if waits else 50), calls
    in_lanes(hosts, kill_after_waiting if waits else kill_at_once, calls[::STEP])


def kill_before(host, call, **options):
    name, number = call
    gate = host.gate()
    prefix = traced(f"trace={name}", f"inject={name}:signal=SIGKILL:when={number}")
    return host.start(*prefix, host.berth, "run", "--", *gate.command(), uid=ALICE, **options), gate


def owners(records):
    return [record["uid"] for record in records]


def settle(host, victim, gate):
    """After the victim's death: if its job lives, then so does its lease; if not, nothing is left.

    True if there is a job.
    """
    wait_for(lambda: gate.pid() or ALICE not in owners(host.leases()), "the job starts, or the lease has ended")
    if gate.pid() and state_of(gate.pid()) not in (None, "Z"):
        assert ALICE in owners(host.leases()), "the job runs without a lease"
        return True
    wait_for(lambda: ALICE not in owners(host.leases() + host.tickets()), "nothing of a dead client counts")
    return False


def kill_at_once(host, call):
    victim, gate = kill_before(host, call)
    wait_for(lambda: victim.process.poll() is not None or gate.pid(), victim.errors)
    if victim.process.poll() is None:
        # It will be killed later: after its job has ended.
        gate.open()
        assert victim.wait() in (0, -signal.SIGKILL), victim.errors()
    elif settle(host, victim, gate):
        code, errors = host.run("--no-wait", uid=BOB)
        assert code == NOT_GRANTED, (code, errors)
        gate.open()
    assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0
    host.wait_until_free()


def kill_after_waiting(host, call):
    """A third user stands behind the victim, and must be woken by whatever happens to it."""
    holder, holder_gate = host.hold(uid=CAROL)
    victim, gate = kill_before(host, call)
    wait_for(lambda: victim.process.poll() is not None or ALICE in owners(host.tickets()), victim.errors)
    behind, behind_gate = host.queue(uid=BOB)
    holder_gate.open()
    wait_for(lambda: victim.process.poll() is not None or gate.pid() or behind_gate.pid(), victim.errors, LIMIT)
    if behind_gate.pid() and victim.process.poll() is None:
        # strace was so slow that the victim did not claim in time, and was passed over as silent.
        assert owners(host.leases()) == [BOB] and not gate.pid(), "two have the GPU"
        behind_gate.open()
        assert behind.wait() == 0
        wait_for(lambda: victim.process.poll() is not None or gate.pid(), victim.errors, LIMIT)
        if victim.process.poll() is None or settle(host, victim, gate):
            gate.open()
        assert victim.wait() in (0, -signal.SIGKILL), victim.errors()
        return host.wait_until_free()
    if victim.process.poll() is None:
        assert not behind_gate.pid()
        gate.open()
        assert victim.wait() in (0, -signal.SIGKILL), victim.errors()
    elif settle(host, victim, gate):
        assert not behind_gate.pid(), "two have the GPU"
        assert BOB not in owners(host.leases())
        gate.open()
    behind_gate.wait_until_started(LIMIT, behind)
    assert owners(host.leases()) == [BOB]
    behind_gate.open()
    assert behind.wait() == 0
    host.wait_until_free()


# Calls that fail


def faults(calls):
    known = [call for call in calls if call[0] in FAULTY_CALLS]
    return [(*call, error) for call in known for error in ERRORS][::STEP]


def failing(host, fault, *arguments):
    name, number, error = fault
    marker = host.folder / f"marker{len(host.clients)}"
    prefix = traced(f"trace={name}", f"inject={name}:error={error}:when={number}")
    client = host.start(*prefix, host.berth, "run", *arguments, "--", "touch", marker, uid=ALICE)
    return client.wait(), client.errors(), marker.exists()


def assert_clear(fault, code, errors):
    said = errors or fault[0] != "write"  # unless it is the line itself that could not be written
    if said and code in (HARBOUR_FAILS, NO_DRIVER, NOT_GRANTED):
        assert_fit_for_terminal(errors)
        assert errors.startswith("berth: ") and errors.count("\n") == 1, errors


@pytest.mark.release_only  # the sanitizers make calls of their own, which fail too
def test_whatever_call_fails_the_gpu_can_be_had_by_the_next(hosts):
    def fail_once(host, fault):
        code, errors, ran = failing(host, fault)
        assert code in (0, HARBOUR_FAILS, NO_DRIVER, 126), (code, errors)
        assert ran == (code == 0), (code, errors)
        assert_clear(fault, code, errors)
        assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0
        host.wait_until_free()
    in_lanes(hosts, fail_once, faults(record(hosts[0], waits=False)))


def test_whatever_call_fails_a_gpu_that_is_held_is_not_granted(hosts):
    calls = record(hosts[0], waits=True)
    held = {host: host.hold(uid=CAROL) for host in hosts}

    def fail_once(host, fault):
        code, errors, ran = failing(host, fault, "--no-wait")
        assert code in (HARBOUR_FAILS, NO_DRIVER, NOT_GRANTED) and not ran, (code, errors)
        assert_clear(fault, code, errors)
    in_lanes(hosts, fail_once, faults(calls[:len(calls) * 2 // 3]))
    for host, (holder, gate) in held.items():
        assert owners(host.leases()) == [CAROL]
        gate.open()
        assert holder.wait() == 0
        assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0


def test_a_waiter_whose_poll_fails_still_gets_its_turn_or_says_why(hosts):
    def fail_once(host, fault):
        holder, holder_gate = host.hold(uid=CAROL)
        name, number, error = fault
        victim, gate = host.queue(uid=ALICE, prefix=traced(f"trace={name}", f"inject={name}:error={error}:when={number}"))
        holder_gate.open()
        wait_for(lambda: victim.process.poll() is not None or gate.pid(), victim.errors, LIMIT)
        if gate.pid():
            gate.open()
            assert victim.wait() == 0
        else:
            assert victim.wait() in (HARBOUR_FAILS, NO_DRIVER), victim.errors()
        assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0
    calls = [(*call, error) for call in record(hosts[0], waits=True) if call[0] == "poll" for error in ("EINTR", "EIO")]
    in_lanes(hosts, fail_once, calls[::3 * STEP])


def test_a_claim_that_fails_on_the_way_leaves_no_lease(hosts):
    """The one behind, whom the claimer must ring, cannot be looked at: it has no lease then, and tries again later."""
    host = hosts[0]
    holder, gate = host.hold(uid=CAROL)
    victim, victim_gate = host.queue(uid=ALICE)
    behind, behind_gate = host.queue(uid=BOB)
    [bell] = [f"bell-{ticket['id']}" for ticket in host.tickets() if ticket["uid"] == BOB]
    tracer = host.start(*traced("trace=openat2", "inject=openat2:error=EIO:when=1"), "-P", bell, "-p", victim.pid, uid=0)
    wait_for(lambda: "attached" in tracer.errors(), tracer.errors)
    gate.open()
    wait_for(lambda: "again" in victim.errors(), victim.errors)
    # The one behind may pass meanwhile.
    first, last = victim_gate, behind_gate
    wait_for(lambda: first.pid() or last.pid(), victim.errors, LIMIT)
    if last.pid():
        first, last = last, first
    assert len(host.leases()) == 1 and not last.pid()
    first.open()
    last.wait_until_started(LIMIT)
    last.open()
    assert (victim.wait(), behind.wait()) == (0, 0)
    host.wait_until_free()


@pytest.mark.release_only  # the sanitizers need descriptors of their own
@pytest.mark.parametrize("limit", [4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32, 64])
def test_few_descriptors_are_enough_or_an_error(hosts, limit):
    """Never a GPU that somebody else holds, never a hang."""
    host = hosts[0]
    holder, gate = host.hold(uid=CAROL)
    marker = host.folder / "marker"
    few = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh"]
    client = host.start(*few, host.berth, "run", "--no-wait", "--", "touch", marker)
    assert client.wait() in (NOT_GRANTED, HARBOUR_FAILS, NO_DRIVER, 127), client.errors()
    assert not marker.exists()
    gate.open()
    holder.wait()
    client = host.start(*few, host.berth, "run", "--timeout", f"{LIMIT}s", "--", "touch", marker)
    code = client.wait()
    assert code in (0, HARBOUR_FAILS, NO_DRIVER, 126, 127), client.errors()
    assert marker.exists() == (code == 0)
    if limit >= 16:
        assert code == 0, client.errors()
    assert host.run("--timeout", f"{LIMIT}s", uid=BOB)[0] == 0
