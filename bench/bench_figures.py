"""Figures of ./dev bench: the samples behind them, the rounds that take samples by turns, and the tables."""

import pathlib
import statistics
import subprocess
from collections.abc import Callable
from typing import NamedTuple

# A change is marked if the median differs by this factor and the rounds agree: all of them, or nine of ten. Fewer rounds than
# MIN_ROUNDS often agree by chance.
NOTABLE_CHANGE = 1.05
MIN_ROUNDS = 7


class Build(NamedTuple):
    """A revision that was built, in the folder with its bin, bench, lib/sim and python."""

    label: str
    folder: pathlib.Path

    @property
    def bin(self):
        return self.folder / "bin"

    @property
    def berth(self):
        return self.folder / "bin" / "berth"

    @property
    def bench(self):
        return self.folder / "bench"

    @property
    def driver(self):
        """The folder of the simulated driver."""
        return self.folder / "lib" / "sim"


class Sample(NamedTuple):
    """One value of a figure. With a yardstick both are times in ms, and the figure is their ratio."""

    name: str
    value: float
    yardstick: float | None = None
    limit: float | None = None
    about: tuple = ()  # descriptions of the subject and of the yardstick
    summary: Callable = statistics.median  # makes one value of several


class Fact(NamedTuple):
    """A line of text below the table."""

    name: str
    text: str


class Measurement(NamedTuple):
    """Something that can be measured with any build. measure(build) returns samples and facts."""

    rounds: int
    measure: Callable


class Results:
    """The samples of each build by figure, and the facts about this tree, which is the first build."""

    def __init__(self, builds):
        self.builds = builds
        self.samples = {build.label: {} for build in builds}
        self.facts = {}
        self.reasons = {}  # of each figure that another build lacks

    def add(self, build, found):
        for one in found:
            if isinstance(one, Sample):
                self.samples[build.label].setdefault(one.name, []).append(one)
            elif build is self.builds[0]:
                self.facts[one.name] = one.text

    def measure(self, measurement):
        """Measures all builds in each round, in alternating order. A build other than this tree may fail: an older
        revision may lack something."""
        able = list(self.builds)
        reason = None
        known = set(self.samples[self.builds[0].label])
        for number in range(measurement.rounds):
            for build in able[::1 if number % 2 == 0 else -1]:
                try:
                    self.add(build, measurement.measure(build))
                except Exception as problem:
                    if build is self.builds[0]:
                        raise
                    able.remove(build)
                    reason = describe_failure(problem)
        if reason is not None:
            for name in set(self.samples[self.builds[0].label]) - known:
                self.reasons[name] = reason

    def figures(self):
        """The rows of the table."""
        return [summarise(samples) for samples in self.samples[self.builds[0].label].values()]

    def comparisons(self):
        """The rows of the second table: this tree compared with the second build."""
        here, other = (self.samples[build.label] for build in self.builds)
        return [compare(samples, other.get(name, []), self.reasons.get(name, "")) for name, samples in here.items()]


def describe_failure(problem):
    """One line."""
    if isinstance(problem, subprocess.CalledProcessError):
        words = problem.cmd if isinstance(problem.cmd, list) else [problem.cmd]
        output = problem.stderr.decode(errors="replace") if isinstance(problem.stderr, bytes) else problem.stderr or ""
        last_line = (output.strip().splitlines() or ["no message"])[-1]
        return f"{pathlib.Path(str(words[0])).name} exited with {problem.returncode}: {last_line}"
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def summarise(samples):
    """One row of the table, from the samples of a figure."""
    first = samples[0]
    values = [sample.value for sample in samples]
    row = {"name": first.name, "limit": first.limit}
    if first.yardstick is None:
        spread = {"value_low": min(values), "value_high": max(values)} if len(values) > 1 else {}
        value = first.summary(values)
        return {**row, "value": value, "ratio": value, **spread}
    ratios = [sample.value / sample.yardstick for sample in samples]
    return {**row, "subject": first.about[0], "yardstick": first.about[1], "subject_ms": first.summary(values),
            "yardstick_ms": first.summary([sample.yardstick for sample in samples]), "ratio": first.summary(ratios),
            "ratio_low": min(ratios), "ratio_high": max(ratios)}


def is_exceeded(row):
    return row["limit"] is not None and row["ratio"] > row["limit"]


def compare(here, other, reason=""):
    """One row of the second table: the samples of this tree, and those of the other revision, taken by turns."""
    row = {"name": here[0].name, "unit": "" if here[0].yardstick is None else " ms",
           "here": here[0].summary([sample.value for sample in here])}
    if not other:
        return {**row, "unavailable": reason or "the figure is missing"}
    row["other"] = other[0].summary([sample.value for sample in other])
    ratios = [ours.value / theirs.value for ours, theirs in zip(here, other) if theirs.value != 0]
    if not ratios:
        return row
    ratio = statistics.median(ratios)
    return {**row, "ratio": ratio, "ratio_low": min(ratios), "ratio_high": max(ratios), "change": describe_change(ratios)}


def describe_change(ratios):
    """A mark for the table, if this tree is clearly slower or faster."""
    needed = len(ratios) - len(ratios) // 10
    ratio = statistics.median(ratios)
    if len(ratios) < MIN_ROUNDS:
        return ""
    if ratio >= NOTABLE_CHANGE and sum(one > 1 for one in ratios) >= needed:
        return "SLOWER"
    if ratio <= 1 / NOTABLE_CHANGE and sum(one < 1 for one in ratios) >= needed:
        return "faster"
    return ""


def spread_text(low, high):
    return f"{low:.2f}-{high:.2f}"


def align(rows):
    """The rows as lines, with columns of equal width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def figure_table(figures):
    """The lines of the table."""
    rows = [("figure", "berth", "yardstick", "ratio", "spread", "limit")]
    for row in figures:
        limit = "" if row["limit"] is None else f"{row['limit']:.2f} {'EXCEEDED' if is_exceeded(row) else 'ok'}"
        if "value" in row:
            spread = spread_text(row["value_low"], row["value_high"]) if "value_low" in row else ""
            rows.append((row["name"], f"{row['value']:.3f}", "", "", spread, limit))
        else:
            rows.append((row["name"], f"{row['subject_ms']:.2f} ms", f"{row['yardstick_ms']:.2f} ms", f"{row['ratio']:.2f}",
                         spread_text(row["ratio_low"], row["ratio_high"]), limit))
    return align(rows)


def comparison_table(comparisons, revision):
    """The lines of the second table."""
    rows = [("figure", "this tree", revision, "ratio", "spread", "")]
    for row in comparisons:
        here = f"{row['here']:.3f}{row['unit']}"
        if "unavailable" in row:
            rows.append((row["name"], here, "not available", "", "", ""))
            continue
        other = f"{row['other']:.3f}{row['unit']}"
        if "ratio" in row:
            spread = spread_text(row["ratio_low"], row["ratio_high"])
            rows.append((row["name"], here, other, f"{row['ratio']:.2f}", spread, row["change"]))
        else:
            rows.append((row["name"], here, other, "", "", ""))
    return align(rows)


def unavailable_lines(comparisons, revision):
    """Why figures are not available at the other revision, one line for each reason."""
    reasons = {}
    for row in comparisons:
        if "unavailable" in row:
            reasons.setdefault(row["unavailable"], []).append(row["name"])
    return [f"not available at {revision}: {', '.join(names)} ({reason})" for reason, names in reasons.items()]
