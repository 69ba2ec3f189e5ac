"""Checks what users are told about the detached jobs of detached_chaos.py: `berth jobs`, `berth wait`, `berth cancel`, and the output."""

import json
import signal

from chaos import (check_exclusion, check_memory, check_order, check_ownership, check_progress, check_reservation,
                   check_visibility)
from detached_chaos import UNITS

SHUT_DOWN = {128 + signal.SIGTERM, 128 + signal.SIGKILL}


class Report:
    """What remains of each job when all have ended: read once, then checked."""

    def __init__(self, chaos):
        self.chaos = chaos
        self.submissions = chaos.submissions
        self.lives = chaos.lives
        self.listed = {}  # uid -> id -> entries
        for uid in set(chaos.job_watches.values()):
            for job in json.loads(self.berth(uid, "jobs", "--json")[1])["jobs"]:
                self.listed.setdefault(uid, {}).setdefault(job["id"], []).append(job)

    def berth(self, uid, *arguments):
        out = self.chaos.host.folder / "report"
        with out.open("w") as file:
            client = self.chaos.start(uid, *arguments, stdout=file)
        code = client.wait()
        return code, out.read_text()

    def record(self, unit, name):
        path = self.chaos.records / f"{unit}.{name}"
        return path.read_text().split() if path.exists() else []

    def code_of(self, unit):
        """What the job recorded itself."""
        text = self.record(unit, "code")
        return int(text[0]) if text else None

    def check(self):
        for submission in self.submissions.values():
            yield from self.check_runs(submission)
            yield from self.check_submission(submission)
            if submission.path and submission.path.exists():
                yield from self.check_listed(submission)
                yield from self.check_output(submission)
                yield from self.check_commands(submission)
            yield from self.check_conditions(submission)
        for uid, jobs in self.listed.items():
            known = {submission.id for submission in self.submissions.values() if submission.plan.uid == uid}
            # The lease of a line that was granted when its batch was cancelled or killed (docs/jobs.md).
            of_killed = {one.plan.label for one in self.submissions.values()
                         if one.plan.is_batch and (one.berth_killed or one.is_asked_to_end())}
            for name in jobs.keys() - known:
                if all(job["label"] in of_killed and job["state"] == "ended" and not job["detached"] for job in jobs[name]):
                    continue
                yield f"berth jobs of {uid} lists {name}, which is no job: {jobs[name]}"
        yield from self.check_secrets()

    def check_runs(self, submission):
        for unit in submission.plan.units:
            starts = (self.chaos.logs / str(unit.number)).read_text().count('"event":"start"')
            if max(starts, self.record(unit.number, "written").count("begin")) > 1:
                yield f"job {unit.number} (lease {submission.id}) ran twice"

    def check_submission(self, submission):
        plan, number = submission.plan, submission.plan.number * UNITS
        started = any(self.record(unit.number, "written") for unit in plan.units)
        if submission.code == 0:
            if submission.printed.strip() != submission.id or not submission.path.exists():
                yield f"job {number} (lease {submission.id}): was submitted as {submission.printed!r}, which is not in the folder"
            return
        if submission.submitter_killed and submission.code == -signal.SIGKILL:
            return
        fine = set()
        if plan.units[0].shape.may_fail():
            fine.add(75)
        if submission.depends_on is not None and not plan.after_any:
            fine.add(69)
        if submission.depends_on is not None and self.submissions[submission.depends_on].code != 0:
            fine.add(64)  # of a job that is refused at once, nothing is kept
        if submission.is_asked_to_end():
            fine |= {75, *SHUT_DOWN}
        if submission.berth_killed:
            fine.add(74)
        if submission.code not in fine:
            yield f"job {number} (lease {submission.id}): submitting ended with {submission.code}: {submission.client.errors()}"
        if started:
            yield f"job {number} (lease {submission.id}): submitting failed with {submission.code}, and the job ran: {submission.client.errors()}"

    def check_listed(self, submission):
        plan, number = submission.plan, submission.plan.number * UNITS
        name = f"job {number} (lease {submission.id})"
        entries = self.listed.get(plan.uid, {}).get(submission.id, [])
        if len(entries) != 1:
            yield f"{name} is listed {len(entries)} times by berth jobs"
            return
        [submission.listed] = entries
        entry = submission.listed
        if entry["state"] != "ended":
            yield f"{name} has ended and is listed as {entry['state']}: {entry['reason']}"
        code, fine = entry["exit_code"], self.possible_codes(submission)
        if code not in fine:
            yield f"{name} is listed with exit code {code} instead of one of {fine}: {entry['reason']}; acts {plan.acts}"
        if (entry["result"] == "succeeded") != (code == 0) or (entry["result"] == "unknown") != (code is None):
            yield f"{name} is listed as {entry['result']} with exit code {code}"

    def possible_codes(self, submission):
        plan = submission.plan
        lost = {None} if submission.berth_killed or (submission.submitter_killed and (plan.number, "berth") not in self.chaos.handles) else set()
        ended = {75, *SHUT_DOWN} if submission.is_asked_to_end() else set()
        started = any(self.record(unit.number, "written") for unit in plan.units)
        refused = set()
        if not started and plan.units[0].shape.may_fail():
            refused.add(75)
        if not started and submission.depends_on is not None and not plan.after_any:
            refused.add(69)
        if plan.is_batch:
            codes = [self.code_of(unit.number) for unit in plan.units]
            struck = any(self.lives[unit.number].struck for unit in plan.units)
            own = {0} if all(code == 0 for code in codes) and not struck else {1}
            if struck and all(code == 0 for code in codes):
                own.add(0)
            return own | lost | ended | refused
        [unit] = plan.units
        own = self.code_of(unit.number)
        killed = {128 + signal.SIGKILL} if self.lives[unit.number].struck and started else set()
        if own is not None:
            return {own} | lost | (ended if submission.is_asked_to_end(before=self.ended_at(unit.number)) else set()) | killed
        return lost | ended | refused | killed

    def ended_at(self, unit):
        return self.chaos.ends.get((unit, "shell")) or self.lives[unit].gone

    def check_output(self, submission):
        plan = submission.plan
        if plan.is_batch:
            folder = self.chaos.home(plan.uid) / f"batch{plan.number}"
            paths = [path for path in folder.glob("*") if path.is_file()] if folder.exists() else []
        else:
            paths = [submission.path / "output"]
        text = "\n".join(path.read_text() for path in paths)
        for unit in plan.units:
            secret = (self.chaos.records / f"{unit.number}.secret").read_text()
            for word in self.record(unit.number, "written"):
                if f"{secret} {word}\n" not in text:
                    yield f"job {unit.number} (lease {submission.id}): its output '{word}' is lost"
        for path in [submission.path, *submission.path.iterdir()]:
            info = path.stat()
            if info.st_mode & 0o077 or info.st_uid != plan.uid:
                yield f"job {plan.number * UNITS} (lease {submission.id}): others can open {path.name}: {info.st_mode:o}, uid {info.st_uid}"

    def check_commands(self, submission):
        name = f"job {submission.plan.number * UNITS} (lease {submission.id})"
        for command in submission.commands:
            what = f"{name}: berth {command.act.what}"
            if command.killed:
                continue
            if command.act.what == "wait":
                listed = submission.listed["exit_code"] if submission.listed else None
                if command.code != (70 if listed is None else listed):
                    yield f"{what} says {command.code}, and berth jobs {listed}: {command.client.errors()}"
            elif command.code not in (0, 64):
                yield f"{what} ended with {command.code}: {command.client.errors()}"
            elif command.act.what == "cancel" and command.code == 0:
                if command.left:
                    yield f"{what} has ended well, and there is still {command.left}"
                for unit in submission.plan.units:
                    if (self.lives[unit.number].start or 0) > command.ended:
                        yield f"{what} has ended well, and job {unit.number} has started later"

    def check_conditions(self, submission):
        plan = submission.plan
        name = f"job {plan.number * UNITS} (lease {submission.id})"
        starts = [self.lives[unit.number].start for unit in plan.units if self.lives[unit.number].start]
        if not starts:
            return
        if plan.begins_s and min(starts) < submission.began + plan.begins_s * 1e9:
            yield f"{name} began too early"
        if submission.depends_on is None:
            return
        other = self.submissions[submission.depends_on]
        ends = [self.lives[unit.number].logged_end for unit in other.plan.units]
        if any(end and end > min(starts) for end in ends):
            yield f"{name} began before the end of job {other.plan.number * UNITS}"
        if not plan.after_any and other.listed and other.listed["exit_code"] != 0:
            yield f"{name} began, though job {other.plan.number * UNITS} ended with {other.listed['exit_code']}"

    def check_secrets(self):
        """Nothing of the output is where other users can read it."""
        found = [path for path in self.chaos.host.harbour.rglob("*") if path.is_file() and b"secret-" in path.read_bytes()]
        if found:
            yield f"the harbour has output of jobs: {found}"
        users = list(self.listed)
        for other in users:
            _, text = self.berth(other, "jobs", "--json", "--all")
            if "secret-" in text:
                yield f"berth jobs --all shows output to {other}"
            strangers = [one for one in self.submissions.values() if one.path and one.plan.uid != other and one.path.exists()]
            for submission in strangers[:3]:
                for words in (["logs"], ["wait", "--timeout", "1s"], ["cancel"]):
                    code, text = self.berth(other, *words, submission.id)
                    if code not in (64, 77) or "secret-" in text:
                        yield f"berth {words[0]} of {other} for job {submission.plan.number * UNITS} of another user ends with {code}: {text!r}"


def check_detached(server, chaos, stuck_s=15):
    """What was violated, in words; nothing if all is well."""
    lives = list(chaos.lives.values())
    return [*check_visibility(server, lives), *check_exclusion(lives), *check_memory(server, lives), *check_order(server, lives),
            *check_reservation(server, lives), *check_progress(server, lives, stuck_s), *check_ownership(lives), *Report(chaos).check()]
