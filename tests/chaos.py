"""Random jobs that are killed at random, and a checker of what really happened to them.

Three parts. `make_plans` decides everything that is random, from a seed: who arrives when, with what
request, and who is struck by which signal. `Chaos` carries the plans out with real processes and notes
what it sees. `check` replays the notes and says which invariants of the design (I1 to I10) were broken.

The checker must never accuse the innocent, so it works with what is certain. All times are of the
monotonic clock, which berth-sim-job uses too. A job *surely* ran from the line that it logged at its start
until the line at its end or, if it was killed, until just before the signal was sent. It *possibly* held
its GPUs from its submission until it and its parent were seen dead. The order in which tickets and leases
were made is the order in which the kernel reported their files (inotify), and that is exact.
"""

import ctypes
import dataclasses
import heapq
import itertools
import json
import os
import random
import re
import select
import signal
import struct
import subprocess
import time
from typing import Optional

import user_namespace
from processes import ended

MIB = 1
GIB = 1024 * MIB
MARGIN_MIB = 256  # what must remain on a GPU that several share


# What shall happen


@dataclasses.dataclass(frozen=True)
class Shape:
    """A request."""

    count: int = 1
    memory_mib: Optional[int] = None  # none: exclusive
    time_s: Optional[int] = None
    gpus: Optional[tuple] = None  # indices
    name: Optional[str] = None
    policy: Optional[str] = None
    timeout_s: Optional[float] = None
    no_wait: bool = False

    def flags(self):
        flags = ["--count", str(self.count)]
        for name, value in [("--mem", self.memory_mib and f"{self.memory_mib}MiB"),
                            ("--time", self.time_s and f"{self.time_s}s"),
                            ("--gpu", self.gpus and ",".join(map(str, self.gpus))), ("--name", self.name),
                            ("--policy", self.policy),
                            ("--timeout", self.timeout_s and f"{int(self.timeout_s * 1000)}ms")]:
            if value:
                flags += [name, value]
        return flags + ["--no-wait"] * self.no_wait

    def wants(self):
        """Equal for requests between which only the order of arrival decides."""
        return self.count, self.memory_mib, self.time_s, self.gpus, self.name

    def may_fail(self):
        return self.no_wait or self.timeout_s is not None


@dataclasses.dataclass(frozen=True)
class Strike:
    """A signal, some time after a job was submitted or has started."""

    after: str  # "submit" or "start"
    delay_s: float
    target: str  # "parent" (berth run), "job" or "both"
    number: int
    continue_s: float = 0  # SIGCONT so much later


@dataclasses.dataclass(frozen=True)
class Plan:
    number: int
    arrives_s: float
    uid: int
    shape: Shape
    runs_s: float
    uses_mib: int
    strikes: tuple = ()
    code: int = 0  # with which the job ends
    namespace: Optional[str] = None  # the kind of user namespace in which it runs


def make_plans(seed, jobs, users, cards, memory_mib, pace_s=0.08, shapes=None):
    """The same for the same arguments. Each asks for one of `shapes`, or for anything."""
    chance = random.Random(seed)
    plans = []
    now = 0.0
    for number in range(jobs):
        # In bursts: a queue builds up, and empties.
        now += chance.expovariate(1 / pace_s) * (0.2 if number // 20 % 2 else 1.8)
        asked = chance.choice(shapes) if shapes else random_shape(chance, cards)
        uses = asked.memory_mib or memory_mib * 3 // 4
        plans.append(Plan(number, now, chance.choice(users), asked, chance.choice([0.05, 0.1, 0.2, 0.4, 0.8]), uses,
                          random_strikes(chance), chance.choice([0, 0, 0, 7]),
                          chance.choice(list(user_namespace.MAPS)) if number % 3 == 0 else None))
    return plans


def random_shape(chance, cards):
    timeout = chance.choice([None] * 8 + [0.5, 2.0])
    common = {"policy": chance.choice([None, "spread", "pack", "random"]), "timeout_s": timeout,
              "time_s": chance.choice([None, None, 1, 5]),
              "no_wait": timeout is None and chance.random() < 0.08}
    match chance.choice(["one", "one", "several", "wide", "shared", "shared", "shared", "several shared", "named", "listed"]):
        case "one":
            return Shape(**common)
        case "several":
            return Shape(count=chance.randint(2, 4), **common)
        case "wide":
            return Shape(count=chance.randint(5, cards), **common)
        case "shared":
            return Shape(memory_mib=chance.choice([512, 4 * GIB, 8 * GIB, 11 * GIB, 24 * GIB]), **common)
        case "several shared":
            return Shape(count=chance.randint(2, 3), memory_mib=chance.choice([2 * GIB, 10 * GIB]), **common)
        case "named":
            return Shape(count=chance.randint(1, 2), name=chance.choice(["Kaede", "momiji"]), **common)
        case "listed":
            some = tuple(sorted(chance.sample(range(cards), 3)))
            return Shape(count=chance.randint(1, 2), gpus=some, **common)


def random_strikes(chance):
    if chance.random() < 0.5:
        return ()
    after = chance.choice(["submit", "start"])
    target = "parent" if after == "submit" else chance.choice(["parent", "job", "both"])
    delay = chance.choice([0.0, 0.005, 0.02, 0.1, 0.3, 1.0])
    kind = chance.choice(["kill", "kill", "kill", "term", "stop", "stop and kill"])
    if kind == "kill":
        return (Strike(after, delay, target, signal.SIGKILL),)
    if kind == "term":
        return (Strike(after, delay, target, signal.SIGTERM),)
    pause = chance.choice([0.1, 0.5, 2.0])
    stop = Strike(after, delay, target, signal.SIGSTOP, continue_s=pause)
    if kind == "stop":
        return (stop,)
    return (stop, Strike(after, delay + pause / 2, target, signal.SIGKILL))


# What happened


@dataclasses.dataclass
class Life:
    """What is known of one job. Times in nanoseconds of the monotonic clock."""

    plan: Plan
    submitted: int
    lease: Optional[str] = None  # its id, from the job's own log
    uuids: tuple = ()
    arrived: Optional[int] = None  # the place of its bell in the order of all files of the harbour
    queued: Optional[int] = None  # of its ticket
    queued_by: Optional[int] = None  # when the ticket was seen
    claimed: Optional[int] = None  # of its lease
    possible_tickets: tuple = ()  # if no file of it is known: `queued` and `left` of the tickets that were not read and may be its
    left: Optional[int] = None  # the place at which its bell was removed, which is the first thing that a client does that leaves
    granted: Optional[int] = None  # not before this time
    start: Optional[int] = None
    logged_end: Optional[int] = None
    struck: Optional[int] = None  # the first signal of any kind
    lethal: Optional[int] = None  # the first signal that may end the job
    gone: Optional[int] = None  # it and its parent were seen dead
    lease_deleted_by: Optional[int] = None  # when its record was seen to be removed
    lease_owner: Optional[int] = None
    code: Optional[int] = None  # of the parent
    errors: str = ""  # what it and the job said

    def surely_ran(self):
        """From when to when it certainly had its GPUs."""
        end = self.logged_end if self.logged_end is not None else self.lethal
        return None if self.start is None or end is None or end <= self.start else (self.start, end)


@dataclasses.dataclass
class Server:
    uuids: list  # by index
    names: list
    memory_mib: int
    unknown: tuple = ()  # UUIDs of GPUs of which nobody can say who uses them

    def matching(self, shape):
        return [uuid for i, (uuid, name) in enumerate(zip(self.uuids, self.names))
                if uuid not in self.unknown
                and (shape.gpus is None or i in shape.gpus)
                and (shape.name is None or shape.name.lower() in name.lower())]


def check(server, lives, stuck_s=15):
    """What was violated, in words; nothing if all is well."""
    return [*check_visibility(server, lives), *check_exclusion(lives), *check_memory(server, lives),
            *check_order(server, lives), *check_reservation(server, lives), *check_progress(server, lives, stuck_s), *check_ownership(lives),
            *check_ends(lives)]


def name_of(life):
    return f"job {life.plan.number} (lease {life.lease})"


def history_around(server, lives, violations):
    """What is known of the jobs that the violations name, and of all that waited or ran meanwhile: for the reader of a failed test.

    Times in seconds since the first submission; Q, L: the places of ticket and lease in the order of all files."""
    named = {int(number) for line in violations for number in re.findall(r"job (\d+) \(", line)}
    accused = [life for life in lives if life.plan.number in named]
    if not accused:
        return []
    zero = min(life.submitted for life in lives)
    never = max(life.gone or life.submitted for life in lives)
    begin, end = min(life.submitted for life in accused), max(life.start or life.gone or never for life in accused)
    indices = {uuid: str(i) for i, uuid in enumerate(server.uuids)}

    def line(life):
        times = {"submitted": life.submitted, "ticket": life.queued_by, "granted": life.granted, "start": life.start,
                 "end": life.logged_end, "struck": life.struck, "lethal": life.lethal, "gone": life.gone}
        asked = {name: value for name, value in dataclasses.asdict(life.plan.shape).items() if value}
        return " ".join([f"job {life.plan.number}{'*' * (life in accused)}", f"uid {life.plan.uid} {life.plan.namespace or ''}", f"{asked}",
                         f"Q {life.queued} L {life.claimed}", f"GPUs {','.join(indices[uuid] for uuid in life.uuids)}",
                         *(f"{name} {(value - zero) / 1e9:.3f}" for name, value in times.items() if value is not None),
                         f"strikes {[(strike.number, strike.target) for strike in life.plan.strikes]}" if life.plan.strikes else ""])
    there = [life for life in lives if life.submitted <= end and (life.gone or never) >= begin]
    return [line(life) for life in sorted(there, key=lambda life: life.submitted)]


def check_visibility(server, lives):
    for life in lives:
        if life.start is None:
            continue
        shape = life.plan.shape
        if len(set(life.uuids)) != shape.count or len(life.uuids) != shape.count:
            yield f"I8: {name_of(life)} asked for {shape.count} GPUs and sees {life.uuids}"
        for uuid in life.uuids:
            if uuid in server.unknown:
                yield f"I9: {name_of(life)} got {uuid}, which is not known to be free"
            elif uuid not in server.matching(shape):
                yield f"I8: {name_of(life)} got {uuid}, which it did not ask for"


def by_gpu(lives):
    """For each GPU, who surely ran on it: (from, to, life)."""
    found = {}
    for life in lives:
        if life.surely_ran():
            for uuid in life.uuids:
                found.setdefault(uuid, []).append((*life.surely_ran(), life))
    return {uuid: sorted(runs, key=lambda run: run[:2]) for uuid, runs in found.items()}


def check_exclusion(lives):
    for uuid, runs in by_gpu(lives).items():
        for (_, end, one), (start, _, other) in itertools.combinations(runs, 2):
            alone = one.plan.shape.memory_mib is None or other.plan.shape.memory_mib is None
            if start < end and alone:
                yield f"I1: {name_of(one)} and {name_of(other)} had {uuid} at once"


def check_memory(server, lives):
    for uuid, runs in by_gpu(lives).items():
        for start, _, _ in runs:
            there = [life for begin, end, life in runs if begin <= start < end]
            reserved = sum(life.plan.shape.memory_mib or server.memory_mib for life in there)
            margin = MARGIN_MIB if len(there) > 1 else 0
            shared = all(life.plan.shape.memory_mib for life in there)
            if shared and reserved + margin > server.memory_mib:
                yield f"I2: {uuid} has {server.memory_mib} MiB, and {reserved} MiB are reserved by " + ", ".join(
                    map(name_of, there))


def room_for(server, shape, held):
    """On how many GPUs the request surely has no place, given (uuid, shape) that are surely held; the rest may do."""
    possible = 0
    for uuid in server.matching(shape):
        shapes = [other for where, other in held if where == uuid]
        if shape.memory_mib is None:
            possible += not shapes
        elif all(other.memory_mib for other in shapes):
            margin = MARGIN_MIB if shapes else 0
            possible += sum(other.memory_mib for other in shapes) + margin + shape.memory_mib <= server.memory_mib
    return possible


def check_order(server, lives):
    """Of two equal requests the first is served first. Both may be granted in one decision and claim in any
    order, so the second is an offender only if it left no room for the first."""
    started = [life for life in lives if life.start is not None and life.claimed is not None]
    for second in started:
        before = second.granted or second.submitted
        # Who surely had GPUs during the whole decision, and the second itself.
        held = [(uuid, life.plan.shape) for life in lives for uuid in life.uuids
                if life is second or (life.surely_ran() and life.surely_ran()[0] <= before
                                      and second.start <= life.surely_ran()[1])]
        for first in started:
            if first is second or first.queued is None or second.arrived is None:
                continue
            overtaken = first.queued < (second.queued or second.arrived) and second.claimed < first.claimed
            undisturbed = first.struck is None or first.struck > second.start
            equal = first.plan.shape.wants() == second.plan.shape.wants()
            if overtaken and equal and undisturbed and room_for(server, first.plan.shape, held) < first.plan.shape.count:
                yield f"I4: {name_of(second)} was served before {name_of(first)}, which wants the same and came first"


def check_reservation(server, lives):
    """Nobody who came later takes a GPU with which the first ticket could have started earlier. Looked at where it is
    certain who was first, that it wants whole GPUs, who had them, and that none of these said for how long."""
    never = max((life.gone or life.submitted for life in lives), default=0)
    for second in lives:
        if second.start is None or second.claimed is None or second.arrived is None or second.plan.shape.time_s:
            continue
        before, after = second.granted or second.submitted, second.start
        others = [life for life in lives if life is not second]
        surely = [life for life in others if life.surely_ran() and life.surely_ran()[0] <= before
                  and after <= life.surely_ran()[1]]
        possibly = [life for life in others if (life.start or life.claimed is not None)
                    and (life.claimed is None or life.claimed < second.claimed)
                    and (life.granted or life.submitted) < after and (life.gone or never) > before]
        for first in others:
            shape = first.plan.shape
            waited = (first.queued is not None and first.queued < (second.queued or second.arrived)
                      and (first.claimed is None or first.claimed > second.claimed)
                      and (first.left is None or first.left > second.claimed)
                      and min(first.struck or never, first.gone or never) > after)
            if not waited or shape.memory_mib or not was_first(first, second, others, before):
                continue
            wanted = set(server.matching(shape))
            holders = [life for life in surely if wanted & set(life.uuids)]
            uncertain = [life for life in possibly if wanted & set(life.uuids or server.uuids) and life not in holders]
            held = [(uuid, life.plan.shape) for life in (*holders, second) for uuid in life.uuids]
            if (uncertain or any(life.plan.shape.time_s for life in holders)
                    or room_for(server, shape, held) >= shape.count):  # then both may have been granted at once
                continue
            if could_gain(shape.count, wanted, set(second.uuids), [set(life.uuids) for life in holders]):
                yield f"I5: {name_of(second)} took GPUs for which {name_of(first)} waited, which came first"


def was_first(first, second, others, before):
    """Whether all jobs that stood before it were served or gone when `second` was served."""
    return all((life.claimed is not None and life.claimed < second.claimed) or (life.gone or before) < before
               for life in others if life is not first
               and (life.queued < first.queued if life.queued is not None else
                    any(queued < first.queued and (left or second.claimed) >= second.claimed for queued, left in life.possible_tickets)))


def could_gain(count, wanted, taken, held):
    """Whether some of the holders may end first, so that the GPUs that were taken are what is missing."""
    for stay in itertools.product((True, False), repeat=len(held)):
        free = wanted.difference(*itertools.compress(held, stay))
        if len(free - taken) < count <= len(free):
            return True
    return False


def check_progress(server, lives, stuck_s):
    """Nobody waits long at the head of the queue while the GPUs are there."""
    never = max((life.gone or life.start or life.submitted for life in lives), default=0)
    for waiter in lives:
        if waiter.queued is None or waiter.queued_by is None:
            continue
        until = min(time for time in (waiter.start, waiter.struck, waiter.gone, never) if time is not None)
        begin = waiter.queued_by
        shape = waiter.plan.shape
        if until - begin < stuck_s * 1e9:
            continue
        # Times at which something else may be the reason: others before it, or GPUs that may be held.
        ahead = [(life.submitted, life.start or life.gone or never) for life in lives
                 if life is not waiter and (life.arrived is None or life.arrived < waiter.queued)
                 and (life.claimed is None or life.claimed > waiter.queued)]
        holders = [life for life in lives if life is not waiter and (life.start or life.claimed is not None)]
        edges = sorted({begin, until, *(time for span in ahead for time in span if begin < time < until),
                        *(time for life in holders for time in (life.granted or life.submitted, life.gone or never)
                          if begin < time < until)})
        idle = 0
        for left, right in itertools.pairwise(edges):
            held = {uuid for life in holders if (life.granted or life.submitted) < right
                    and (life.gone or never) > left for uuid in life.uuids or server.uuids}
            free = sum(uuid not in held for uuid in server.matching(shape))
            blocked = free < shape.count or any(a < right and b > left for a, b in ahead)
            idle = 0 if blocked else idle + right - left
            if idle > stuck_s * 1e9:
                yield f"I6: {name_of(waiter)} waited {idle / 1e9:.1f} s for GPUs that nobody had"
                break


def check_ownership(lives):
    for life in lives:
        if life.lease_owner is not None and life.lease_owner != life.plan.uid:
            yield f"I10: the record of {name_of(life)} belongs to uid {life.lease_owner}"
        runs = life.surely_ran()
        if runs and life.lease_deleted_by is not None and life.lease_deleted_by < runs[1]:
            yield f"I10: the record of {name_of(life)} was removed while it ran"


def check_ends(lives):
    """Every request came to an end that was to be expected: no job lost, none out of memory."""
    for life in lives:
        plan = life.plan
        numbers = {strike.number for strike in plan.strikes}
        fine = {plan.code}
        if plan.shape.may_fail():
            fine.add(75)
        if signal.SIGTERM in numbers:
            fine |= {128 + signal.SIGTERM, -signal.SIGTERM}
        if signal.SIGKILL in numbers:
            fine |= {128 + signal.SIGKILL, -signal.SIGKILL}
        if life.struck is None:
            fine = {plan.code, 75} if plan.shape.may_fail() else {plan.code}
        if life.code not in fine:
            yield f"I3: {name_of(life)} ended with {life.code} instead of one of {sorted(fine)}: {life.errors}"
        if life.code == plan.code and life.struck is None and life.start is None and not plan.shape.may_fail():
            yield f"I3: {name_of(life)} ended well and never ran"


# Making it happen

IN_CREATE, IN_DELETE, IN_MODIFY, IN_Q_OVERFLOW = 0x100, 0x200, 0x2, 0x4000


class Inotify:
    """The kernel's report of what happens in folders, in the order in which it happened."""

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert self.fd >= 0, os.strerror(ctypes.get_errno())

    def watch(self, path, mask):
        number = self.libc.inotify_add_watch(self.fd, os.fsencode(path), mask)
        assert number >= 0, os.strerror(ctypes.get_errno())
        return number

    def events(self):
        while True:
            try:
                block = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(block):
                watch, mask, _, length = struct.unpack_from("iIII", block, offset)
                assert not mask & IN_Q_OVERFLOW, "the kernel lost events"
                name = block[offset + 16:offset + 16 + length].rstrip(b"\0").decode()
                offset += 16 + length
                yield watch, mask, name

    def close(self):
        os.close(self.fd)


class Handle:
    """A process, by a descriptor that cannot come to mean another one."""

    def __init__(self, pid):
        self.fd = os.pidfd_open(pid)

    def __del__(self):
        if hasattr(self, "fd"):  # it may have ended before it was opened
            os.close(self.fd)

    def send(self, number):
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            pass

    def ended(self):
        return bool(ended([self.fd], 0))


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Chaos:
    """Carries plans out on a host (see processes.Host) and gives the lives of its jobs back."""

    def __init__(self, host, plans):
        self.host = host
        self.plans = plans
        self.released = 0  # until when all GPUs were in use by a process that is not among the jobs
        self.logs = host.folder / "logs"
        self.logs.mkdir()
        self.logs.chmod(0o1777)
        self.agenda = []  # (time, tie breaker, what to do)
        self.tie = itertools.count()
        self.order = itertools.count()
        self.lives = {}
        self.parents = {}  # number -> (Popen, Handle)
        self.jobs = {}  # number -> Handle
        self.gone = {}  # number -> {"parent" or "job": time}
        self.read_so_far = {}
        self.unread_tickets = {}  # name -> the entry of `files`
        self.files = {}  # id -> {"bell": place, "ticket": place, "lease": place, ...}
        self.inotify = Inotify()
        self.harbour_watch = self.inotify.watch(host.harbour, IN_CREATE | IN_DELETE)
        self.log_watch = self.inotify.watch(self.logs, IN_MODIFY)
        self.wall_offset = time.time_ns() - now_ns()
        begin = now_ns()
        for plan in plans:
            self.at(begin + int(plan.arrives_s * 1e9), lambda plan=plan: self.submit(plan))
        self.blocked = None  # see block_until_queued()

    def block_until_queued(self, count, release):
        """All GPUs are in use. Calls `release`, which ends that, once `count` jobs wait that no signal keeps from starting."""
        doomed = {signal.SIGKILL, signal.SIGTERM}
        sure = {f"job {plan.number}" for plan in self.plans
                if not any(strike.after == "submit" and strike.number in doomed for strike in plan.strikes)}
        assert len(sure) >= count

        def try_release():
            if len(sure & {ticket["label"] for ticket in self.host.tickets()}) < count:
                return False
            release()
            self.released = now_ns()
            return True
        self.blocked = try_release

    def at(self, when, action):
        heapq.heappush(self.agenda, (when, next(self.tie), action))

    def run(self, deadline_s):
        deadline = now_ns() + int(deadline_s * 1e9)
        while self.agenda or len(self.gone) < len(self.lives) or not all(self.is_over(n) for n in self.lives):
            assert now_ns() < deadline, f"not over after {deadline_s} s: {self.unfinished()}"
            while self.agenda and self.agenda[0][0] <= now_ns():
                heapq.heappop(self.agenda)[2]()
            self.look()
            if self.blocked and self.blocked():
                self.blocked = None
        self.look()
        self.inotify.close()
        for life in self.lives.values():
            self.complete(life)
        return list(self.lives.values())

    def is_over(self, number):
        parts = self.gone.get(number, {})
        return "parent" in parts and (number not in self.jobs or "job" in parts)

    def unfinished(self):
        return [f"{life.plan}: {self.gone.get(number)} {self.parents[number][0].errors()}"
                for number, life in self.lives.items() if not self.is_over(number)]

    def submit(self, plan):
        log = self.logs / str(plan.number)
        log.touch()
        log.chmod(0o666)
        life = self.lives[plan.number] = Life(plan, now_ns())
        prefix = user_namespace.prefix(plan.namespace, plan.uid) if plan.namespace else []
        client = self.host.start(*prefix, self.host.berth, "run", "--label", f"job {plan.number}", *plan.shape.flags(), "--",
                                 self.host.job, "--mem", f"{plan.uses_mib}MiB", "--time", f"{int(plan.runs_s * 1000)}ms",
                                 "--fail", plan.code, "--quiet", "--log", log,
                                 uid=0 if plan.namespace else plan.uid)
        self.parents[plan.number] = (client, Handle(client.pid))
        self.schedule_strikes(life, "submit")

    def schedule_strikes(self, life, after):
        for strike in life.plan.strikes:
            if strike.after == after:
                self.at(now_ns() + int(strike.delay_s * 1e9), lambda strike=strike: self.strike(life, strike))

    def strike(self, life, strike):
        number = life.plan.number
        targets = []
        if strike.target in ("job", "both") and number in self.jobs:
            targets.append(self.jobs[number])
        if strike.target in ("parent", "both"):
            targets.append(self.parents[number][1])
        before = now_ns()
        life.struck = life.struck or before
        reaches_job = strike.number == signal.SIGTERM or (strike.number == signal.SIGKILL and strike.target != "parent")
        if reaches_job:
            life.lethal = life.lethal or before
        for target in targets:
            target.send(strike.number)
        if strike.number == signal.SIGSTOP:
            self.at(now_ns() + int(strike.continue_s * 1e9),
                    lambda: [target.send(signal.SIGCONT) for target in targets])

    # Observation

    def look(self):
        waiting = {self.inotify.fd: None}
        for number, (_, handle) in self.parents.items():
            if "parent" not in self.gone.get(number, {}):
                waiting[handle.fd] = (number, "parent")
        for number, handle in self.jobs.items():
            if "job" not in self.gone.get(number, {}):
                waiting[handle.fd] = (number, "job")
        poll = select.poll()
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        next_action = self.agenda[0][0] if self.agenda else now_ns() + 1_000_000_000
        ready = poll.poll(max(0, min(1000, (next_action - now_ns()) // 1_000_000 + 1)))
        # Files first: a job that has ended has logged before.
        self.read_events()
        for fd, _ in ready:
            if waiting[fd]:
                self.note_end(*waiting[fd])

    def note_end(self, number, part):
        if part == "parent":
            self.lives[number].code = self.parents[number][0].process.wait()
            self.read_log(number)
        self.gone.setdefault(number, {})[part] = now_ns()

    def read_events(self):
        for watch, mask, name in self.inotify.events():
            if watch == self.log_watch:
                self.read_log(int(name))
                continue
            if watch != self.harbour_watch:
                self.read_other_file(watch)
                continue
            kind, _, rest = name.partition("-")
            client = self.files.setdefault(rest.rsplit("-", 1)[-1], {})
            if mask & IN_CREATE:
                client.setdefault(kind, next(self.order))
                client.setdefault(f"{kind} seen", now_ns())
                if kind == "ticket":
                    self.unread_tickets[name] = client
                if kind == "lease":
                    # With Redis, who was outrun takes its record away, and tries again.
                    client["lease"] = next(self.order)
                    client.pop("removed", None)
                    self.read_lease(name, client)
            elif kind == "bell":
                client["left"] = next(self.order)
            elif kind == "lease":
                client["removed"] = now_ns()
        for name, client in list(self.unread_tickets.items()):
            self.read_ticket(name, client)

    def read_other_file(self, watch):
        raise AssertionError(f"only two folders are watched, and not {watch}")

    def read_ticket(self, name, client):
        """Which job the ticket belongs to. A job that never starts says nothing itself, and stands in the queue all the same."""
        try:
            client["job"] = json.loads((self.host.harbour / name).read_text())["label"]
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            return  # it is being written
        del self.unread_tickets[name]

    def read_lease(self, name, client):
        try:
            with open(self.host.harbour / name) as file:
                client["owner"] = os.fstat(file.fileno()).st_uid
                client["granted"] = json.load(file)["granted_ms"] * 1_000_000 - self.wall_offset
        except (OSError, ValueError):
            pass  # it is gone, or not written yet

    def read_log(self, number):
        with open(self.logs / str(number)) as file:
            file.seek(self.read_so_far.get(number, 0))
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        self.read_so_far[number] = self.read_so_far.get(number, 0) + len(whole)
        life = self.lives[number]
        for line in map(json.loads, whole.splitlines()):
            if line["event"] == "end":
                life.logged_end = line["time_ns"]
                continue
            life.start, life.lease, life.uuids = line["time_ns"], line["lease"], tuple(line["uuids"])
            self.follow(number, line["pid"])
            self.schedule_strikes(life, "start")

    def follow(self, number, pid):
        """Keeps a handle of the job, if it still is the process that logged."""
        try:
            handle = Handle(pid)
            with open(f"/proc/{pid}/environ", "rb") as file:
                mine = f"BERTH_LEASE={self.lives[number].lease}\0".encode() in file.read()
        except (ProcessLookupError, FileNotFoundError):
            return
        if mine and not handle.ended():
            self.jobs[number] = handle

    def complete(self, life):
        life.gone = max(self.gone[life.plan.number].values())
        life.errors = self.parents[life.plan.number][0].errors()
        label = f"job {life.plan.number}"
        client = self.files.get(life.lease) or next((one for one in self.files.values() if one.get("job") == label), {})
        self.note_files(life, client)

    def note_files(self, life, client):
        leases = {one.lease for one in self.lives.values()}
        life.possible_tickets = () if client else tuple(
            (one["ticket"], one.get("left")) for name, one in self.files.items()
            if "ticket" in one and "job" not in one and name not in leases and life.submitted < one["ticket seen"] < life.gone)
        life.arrived, life.queued, life.queued_by = client.get("bell"), client.get("ticket"), client.get("ticket seen")
        if life.queued_by is not None:
            life.queued_by = max(life.queued_by, self.released)
        life.claimed, life.granted, life.lease_owner = client.get("lease"), client.get("granted"), client.get("owner")
        life.left = client.get("left")
        life.lease_deleted_by = client.get("removed")
