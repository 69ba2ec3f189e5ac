"""Detached jobs of several users that are killed, cancelled, extended and awaited at random; detached_checks.py checks what became of them.

Built on chaos.py: each job of `berth run -d`, and each line of `berth batch -d`, is a unit with a life of its own, whose GPUs are
checked there. A job says itself what became of it, in files that Berth does not know: how much of its output it has written, and its exit code.
"""

import dataclasses
import heapq
import json
import os
import pathlib
import random
import select
import signal
from typing import Optional

from chaos import IN_CREATE, IN_MODIFY, Chaos, Handle, Life, Plan, now_ns, random_shape

IN_MOVED_TO = 0x80
UNITS = 10  # the numbers of a job's units: NUMBER * 10, and those of its lines after it

# Each line of output has a word that is in no command line, and is noted after it was written.
SCRIPT = """#!/bin/sh
unit=$1 records=$2 job=$3; shift 3
say() { echo "$(cat $records/$unit.secret) $1"; echo "$1" >>$records/$unit.written; }
say begin
"$job" "$@"
code=$?
say end
echo $code >$records/$unit.code
exit $code
"""


@dataclasses.dataclass(frozen=True)
class Act:
    """Something that is done to a job, some time after it was submitted, has got its id, or has started."""

    what: str  # "kill" with `target`, or a command: "cancel", "extend", "wait"
    after: str  # "submit", "known", "start"
    delay_s: float
    target: str = ""  # "submitter", "berth" (the detached process), "line" (of a batch), "shell", "job", "all"
    killed_after_s: Optional[float] = None  # the command is killed so much later


@dataclasses.dataclass(frozen=True)
class DetachedPlan:
    number: int
    arrives_s: float
    uid: int
    units: tuple  # Plan of each; one: `berth run -d`, several: `berth batch -d`
    acts: tuple = ()
    after: Optional[int] = None  # the number of another plan
    after_any: bool = False
    begins_s: int = 0

    @property
    def is_batch(self):
        return len(self.units) > 1

    @property
    def label(self):
        return f"job {self.number * UNITS}"


def make_detached_plans(seed, jobs, users, cards, memory_mib, pace_s=0.06):
    """The same for the same arguments."""
    chance = random.Random(seed)
    plans = []
    now = 0.0
    for number in range(jobs):
        now += chance.expovariate(1 / pace_s) * (0.2 if number // 20 % 2 else 1.8)
        uid = chance.choice(users)
        asked = random_shape(chance, cards)
        batch = chance.random() < 0.1
        if batch:
            asked = dataclasses.replace(asked, timeout_s=None, no_wait=False)
        lines = chance.randint(2, 4) if batch else 0
        numbers = range(number * UNITS + 1, number * UNITS + 1 + lines) if batch else [number * UNITS]
        uses = asked.memory_mib or memory_mib * 3 // 4
        units = tuple(Plan(one, now, uid, asked, chance.choice([0.05, 0.1, 0.2, 0.4, 0.8]), uses, code=chance.choice([0, 0, 0, 7]))
                      for one in numbers)
        earlier = [plan.number for plan in plans[-12:] if plan.uid == uid]
        after = chance.choice(earlier) if earlier and chance.random() < 0.15 else None
        plans.append(DetachedPlan(number, now, uid, units, random_acts(chance, batch), after, chance.random() < 0.5,
                                  chance.choice([1, 2]) if after is None and chance.random() < 0.05 else 0))
    return plans


def random_acts(chance, batch):
    if chance.random() < 0.2:
        return ()
    acts = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        delay = chance.choice([0.0, 0.005, 0.02, 0.1, 0.3, 1.0])
        kind = chance.choice(["kill", "kill", "kill", "cancel", "extend", "wait", "wait"])
        if kind == "kill":
            after = chance.choice(["submit", "known", "start", "start"])
            if after == "submit":  # it returns soon
                delay = chance.choice([0.0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03])
            target = {"submit": ["submitter"], "known": ["berth"],
                      "start": ["berth", "job", "shell", "all"] + ["line"] * batch}[after]
            acts.append(Act(kind, after, delay, chance.choice(target)))
        else:
            after = "start" if kind == "extend" else chance.choice(["known", "start"])
            killed = chance.choice([0.0, 0.003, 0.01, 0.03, 0.3]) if chance.random() < 0.3 else None
            acts.append(Act(kind, after, delay, killed_after_s=killed))
    return tuple(acts)


@dataclasses.dataclass
class Command:
    """`berth cancel`, `extend` or `wait` for a job."""

    act: Act
    client: object  # processes.Client
    handle: Handle
    began: int
    ended: Optional[int] = None
    killed: bool = False
    code: Optional[int] = None
    left: tuple = ()  # processes of the job that lived when the command had ended


@dataclasses.dataclass
class Submission:
    """What is known of a job that was submitted."""

    plan: DetachedPlan
    began: int
    client: object
    code: Optional[int] = None  # of the submitting process
    printed: str = ""
    id: Optional[str] = None  # from its folder
    path: Optional[pathlib.Path] = None
    depends_on: Optional[int] = None
    commands: list = dataclasses.field(default_factory=list)
    submitter_killed: bool = False
    berth_killed: Optional[int] = None  # before this time
    listed: Optional[dict] = None  # by `berth jobs --json` of its user, at the end
    output: str = ""

    def is_asked_to_end(self, before=None):
        return any(one.act.what == "cancel" and (before is None or one.began < before) for one in self.commands)


class DetachedChaos(Chaos):
    """Carries plans out. `submissions` and `lives` have what happened."""

    def __init__(self, host, plans):
        super().__init__(host, [])
        self.records = host.folder / "records"
        self.records.mkdir()
        self.records.chmod(0o1777)
        self.script = self.records / "job"
        self.script.write_text(SCRIPT)
        self.submissions = {}
        self.handles = {}  # (number, part) -> Handle; the parts of a job: "submitter", "berth"; of a unit: "line", "shell", "job"
        self.ends = {}  # the same -> when it was seen to have ended
        self.folders = {}  # watch -> path of a job's folder
        self.job_watches = {self.watch_jobs(uid): uid for uid in {plan.uid for plan in plans}}
        begin = now_ns()
        for plan in plans:
            self.at(begin + int(plan.arrives_s * 1e9), lambda plan=plan: self.submit_job(plan))

    def home(self, uid):
        return self.host.folder / f"home-{uid}"

    def jobs_folder(self, uid):
        return self.home(uid) / ".local" / "state" / "berth" / "jobs"

    def watch_jobs(self, uid):
        folder = self.jobs_folder(uid)
        folder.mkdir(parents=True)
        for path in [folder, *folder.parents]:
            os.chown(path, uid, uid)
            if path == self.home(uid):
                break
        return self.inotify.watch(folder, IN_CREATE)

    def start(self, uid, *arguments, **options):
        return self.host.start(self.host.berth, *arguments, uid=uid, env={"HOME": str(self.home(uid))}, **options)

    def run(self, deadline_s):
        deadline = now_ns() + int(deadline_s * 1e9)
        while True:
            assert now_ns() < deadline, f"not over after {deadline_s} s: {self.unfinished()}"
            while self.agenda and self.agenda[0][0] <= now_ns():
                heapq.heappop(self.agenda)[2]()
            self.look()
            if not self.agenda and not self.unended() and not self.host.processes():
                break
        self.look()
        self.inotify.close()
        for submission in self.submissions.values():
            self.complete_job(submission)
        return list(self.lives.values())

    def unended(self):
        return {key: handle for key, handle in self.handles.items() if key not in self.ends}

    def unfinished(self):
        return [*self.unended(), *(f"{pid}: {pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()}" for pid in self.host.processes())]

    def command_of(self, unit):
        flags = ["--mem", f"{unit.uses_mib}MiB", "--time", f"{int(unit.runs_s * 1000)}ms", "--fail", unit.code, "--quiet",
                 "--log", self.logs / str(unit.number)]
        return [str(word) for word in ("sh", self.script, unit.number, self.records, self.host.job, *flags)]

    def submit_job(self, plan):
        for unit in plan.units:
            log = self.logs / str(unit.number)
            log.touch()
            log.chmod(0o666)
            secret = self.records / f"{unit.number}.secret"
            secret.write_text(f"secret-{unit.number}-{random.getrandbits(64):x}")
            os.chown(secret, plan.uid, plan.uid)
            secret.chmod(0o600)
            self.lives[unit.number] = Life(unit, now_ns())
        submission = self.submissions[plan.number] = Submission(plan, now_ns(), None)
        flags = ["-d", "--label", plan.label, *plan.units[0].shape.flags()]
        other = self.submissions.get(plan.after)
        if other and other.id:
            submission.depends_on = plan.after
            flags += ["--after-any" if plan.after_any else "--after", other.id]
        if plan.begins_s:
            flags += ["--begin", f"{plan.begins_s}s"]
        if plan.is_batch:
            words = ["batch", *flags, "-k", "--logs", self.home(plan.uid) / f"batch{plan.number}", "--",
                     *(" ".join(self.command_of(unit)) for unit in plan.units)]
        else:
            words = ["run", *flags, "--", *self.command_of(plan.units[0])]
        out = self.host.folder / f"out{plan.number}"
        with out.open("w") as file:
            submission.client = self.start(plan.uid, *words, stdout=file)
        self.add_handle((plan.number, "submitter"), submission.client.pid)
        self.schedule_acts(submission, "submit", plan.units[0].number)

    def add_handle(self, key, pid):
        try:
            handle = Handle(pid)
        except ProcessLookupError:
            return None
        self.handles[key] = handle
        return handle

    # Acts

    def schedule_acts(self, submission, after, unit):
        for act in submission.plan.acts:
            if act.after == after:
                self.at(now_ns() + int(act.delay_s * 1e9), lambda act=act: self.act(submission, act, unit))

    def act(self, submission, act, unit):
        if act.what != "kill":
            if submission.id:
                self.start_command(submission, act)
            return
        number = submission.plan.number
        keys = {"submitter": [(number, "submitter")], "berth": [(number, "berth")], "line": [(unit, "line")], "shell": [(unit, "shell")],
                "job": [(unit, "job")], "all": [(number, "berth"), (unit, "line"), (unit, "shell"), (unit, "job")]}[act.target]
        before = now_ns()
        life = self.lives[unit]
        for key in keys:
            if key not in self.handles or key in self.ends:
                continue
            if key[1] == "submitter":
                submission.submitter_killed = True
            if key[1] == "berth":
                submission.berth_killed = submission.berth_killed or before
                for one in submission.plan.units:
                    # The lines of a killed batch get SIGTERM.
                    self.strike_life(self.lives[one.number], before, lethal=submission.plan.is_batch)
            self.strike_life(life, before, lethal=key[1] in ("job", "line"))
            self.handles[key].send(signal.SIGKILL)

    @staticmethod
    def strike_life(life, when, lethal):
        life.struck = life.struck or when
        if lethal:
            life.lethal = life.lethal or when

    def start_command(self, submission, act):
        words = {"cancel": ["cancel", "--grace", "500ms", submission.id], "extend": ["extend", submission.id, "1h"],
                 "wait": ["wait", submission.id]}[act.what]
        before = now_ns()
        for unit in submission.plan.units:
            life = self.lives[unit.number]
            if act.what == "cancel":
                self.strike_life(life, before, lethal=True)
            if act.what == "extend":
                # From here on it has an announced end, which decides who may start before whom.
                life.plan = dataclasses.replace(life.plan, shape=dataclasses.replace(life.plan.shape, time_s=3600))
        client = self.start(submission.plan.uid, *words)
        key = (submission.plan.number, f"{act.what} {len(submission.commands)}")
        handle = self.add_handle(key, client.pid)
        command = Command(act, client, handle, before)
        submission.commands.append(command)
        if act.killed_after_s is not None:
            self.at(before + int(act.killed_after_s * 1e9), lambda: self.kill_command(command, key))

    def kill_command(self, command, key):
        if key not in self.ends:
            command.killed = True
            command.handle.send(signal.SIGKILL)

    # Observation

    def look(self):
        unended = self.unended()
        poll = select.poll()
        poll.register(self.inotify.fd, select.POLLIN)
        by_fd = {handle.fd: key for key, handle in unended.items()}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        next_action = self.agenda[0][0] if self.agenda else now_ns() + 100_000_000
        ready = poll.poll(max(0, min(1000, (next_action - now_ns()) // 1_000_000 + 1)))
        self.read_events()
        for fd, _ in ready:
            if fd in by_fd:
                self.note_part(by_fd[fd])

    def note_part(self, key):
        number, part = key
        self.ends[key] = now_ns()
        if part in ("line", "shell", "job", "berth"):
            for unit in self.submissions[number if part == "berth" else number // UNITS].plan.units:
                self.read_log(unit.number)
            return
        submission = self.submissions[number]
        if part == "submitter":
            submission.code = submission.client.process.wait()
            submission.printed = (self.host.folder / f"out{number}").read_text()
            return
        command = submission.commands[int(part.split()[1])]
        command.code = command.client.process.wait()
        command.ended = self.ends[key]
        numbers = {unit.number for unit in submission.plan.units}
        command.left = tuple(other for other, handle in self.unended().items()
                             if other[0] in numbers and other[1] in ("shell", "job") and not handle.ended())

    def read_other_file(self, watch):
        if watch in self.job_watches:
            self.find_folders(self.job_watches[watch])
        elif watch in self.folders:
            self.read_folder(self.folders[watch])

    def find_folders(self, uid):
        for path in self.jobs_folder(uid).iterdir():
            if path in self.folders.values():
                continue
            try:
                self.folders[self.inotify.watch(path, IN_CREATE | IN_MODIFY | IN_MOVED_TO)] = path
            except AssertionError:
                continue  # it was removed
            self.read_folder(path)

    def read_folder(self, path):
        """Which job the folder is, and which process."""
        try:
            label = json.loads((path / "spec.json").read_text())["label"]
            lines = (path / "events").read_text().splitlines()
        except (FileNotFoundError, ValueError):
            return
        submission = self.submissions[int(label.removeprefix("job ")) // UNITS]
        key = (submission.plan.number, "berth")
        submission.id, submission.path = path.name, path
        started = [event for event in map(json.loads, lines) if event["event"] == "started"]
        if not started or key in self.handles:
            return
        if self.add_handle(key, started[0]["pid"]):
            self.schedule_acts(submission, "known", submission.plan.units[0].number)

    def schedule_strikes(self, life, after):
        """chaos.py calls this when a job has logged its start."""
        submission = self.submissions[life.plan.number // UNITS]
        started = [self.lives[unit.number] for unit in submission.plan.units if self.lives[unit.number].start]
        if len(started) == 1:
            self.schedule_acts(submission, after, life.plan.number)

    def follow(self, number, pid):
        """Keeps handles of the job, of its shell, and of the berth process of a line."""
        super().follow(number, pid)
        handle = self.jobs.pop(number, None)
        if not handle:
            return
        self.handles[number, "job"] = handle
        shell = parent_of(pid)
        if shell and str(self.script).encode() in read_proc(shell, "cmdline") and not handle.ended():
            self.add_handle((number, "shell"), shell)
            line = parent_of(shell)
            if self.submissions[number // UNITS].plan.is_batch and line and b"--event-fd" in read_proc(line, "cmdline"):
                self.add_handle((number, "line"), line)

    def complete_job(self, submission):
        plan = submission.plan
        for unit in plan.units:
            life = self.lives[unit.number]
            keys = [(plan.number, "submitter"), (plan.number, "berth"), *((unit.number, part) for part in ("line", "shell", "job"))]
            life.gone = max(self.ends[key] for key in keys if key in self.ends)
            if not plan.is_batch:
                life.lease = life.lease or submission.id
                label = plan.label
            else:
                label = None  # the tickets of all lines have the same label
            client = self.files.get(life.lease) or next((one for one in self.files.values() if label and one.get("job") == label), {})
            self.note_files(life, client)
            if plan.is_batch and not client:
                leases = {one.lease for one in self.lives.values()}
                life.possible_tickets = tuple((one["ticket"], one.get("left")) for name, one in self.files.items()
                                              if "ticket" in one and one.get("job") in (plan.label, None) and name not in leases)


def read_proc(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def parent_of(pid):
    stat = read_proc(pid, "stat")
    return int(stat.rpartition(b")")[2].split()[1]) if stat else None
