"""The command line of ./dev bench.

./dev runs this file as a program before it builds anything: the program reports wrong arguments, and prints the commit that
--against names.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHORT_QUEUE = 10  # waiters, as the yardstick for a long queue

# The parts of the table, in the order in which they are measured.
PARTS = {
    "commands": "berth --version, status and run, compared with true and flock",
    "driver": "what berth run adds to a driver that takes 300 ms to start",
    "lease": "acquire + release in one process, compared with Redis",
    "redis": "the harbour in Redis: leases, hand-overs, many hosts",
    "queue": "hand-overs, long queues, and what waiting costs",
    "detached": "berth run -d, and what waiting detached jobs cost",
    "load": "10,000 jobs by 64 workers",
    "python": "import berth, and leases in Python",
    "peers": "other tools with a similar purpose",
    "simulation": "decisions about 1,000 GPUs and 100,000 tickets",
    "packing": "a batch with learned memory",
    "report": "berth report over a million leases",
    "serve": "berth serve with 20 viewers, and its page in Chromium",
    "untrusted": "many files of another user in the harbour",
    "micro": "functions of the library, without a yardstick",
}


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line."""

    def error(self, message):
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)


def count(text):
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def make_parser():
    width = max(map(len, PARTS))
    listed = "\n".join(f"  {name:<{width}}  {text}" for name, text in PARTS.items())
    parser = Parser(
        prog="./dev bench", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares the speed of berth with familiar commands and tools: prints a table, writes build/bench.json.",
        epilog=f"parts:\n{listed}\n\nexit codes: 0 done; 1 a limit is exceeded (with --check), or a measurement failed; "
               "2 wrong arguments")
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts to measure, listed below (default: all)")
    parser.add_argument("--against", metavar="REV", help="build this revision in build/against, measure both by turns, and print "
                        "a second table that compares them")
    parser.add_argument("--check", action="store_true", help="exit with 1 if this tree exceeds a limit")
    for name, default, text in (
            ("rounds", 7, "rounds of each comparison; slow parts have one, or three with --against"),
            ("runs", 200, "runs of each command in a round"),
            ("waiters", 1000, "waiters in the longest queue"),
            ("handovers", 200, "hand-overs to measure for each queue length"),
            ("jobs", 10_000, "jobs that 64 workers run on 8 GPUs"),
            ("seconds", 5, "seconds for each number of hosts with one Redis"),
            ("passes", 6, "runs of the batch; each learns from earlier ones"),
            ("entries", 1_000_000, "lines of history")):
        parser.add_argument(f"--{name}", type=count, default=default, metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--full", action="store_true", help="simulate all jobs and policies (takes minutes), and write "
                        "build/simulation.json")
    return parser


def find_commit(revision, root=ROOT):
    """The full hash of the commit that `revision` names; raises ValueError."""
    try:
        found = subprocess.run(["git", "-C", root, "rev-parse", "--verify", "--quiet", "--end-of-options",
                                f"{revision}^{{commit}}"], capture_output=True, text=True)
    except FileNotFoundError:
        raise ValueError("--against needs git, which is not installed") from None
    if found.returncode != 0:
        raise ValueError(f"--against: there is no revision '{revision}' in this repository")
    return found.stdout.strip()


def parse(arguments, root=ROOT):
    """The options, with the commit of --against (or None) and the selected parts in their order."""
    parser = make_parser()
    options = parser.parse_intermixed_args(arguments)
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"there is no part '{name}'; choose from: {', '.join(PARTS)}")
    if options.waiters <= SHORT_QUEUE:
        parser.error(f"argument --waiters: must be above {SHORT_QUEUE}, with which the longest queue is compared")
    options.parts = [name for name in PARTS if name in options.parts or not options.parts]
    try:
        options.commit = find_commit(options.against, root) if options.against is not None else None
    except ValueError as problem:
        parser.error(str(problem))
    # The parts that take long: few rounds, but enough to see whether all of them agree.
    options.slow_rounds = min(3, options.rounds) if options.commit else 1
    return options


if __name__ == "__main__":
    print(parse(sys.argv[1:]).commit or "")
