"""Prepares and reports the coverage of lines and branches; see `./dev coverage`.

Usage: coverage.py prepare | report
prepare: makes the files into which the processes of the preset `coverage` write their counters.
report: prints the coverage of each folder and of all shipped code, and writes build/coverage/html.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "coverage"
PROFILES = BUILD / "profiles"
SHIPPED = ("src", "python/src")
SIMULATION = "sim"
TEST_CODE = r"(_test\.cpp|/testing/)"  # as a regular expression of llvm-cov
OTHER_USER = 65534


def programs():
    return [path for folder in ("bin", "unit") for path in sorted((BUILD / folder).iterdir())
            if path.is_file() and os.access(path, os.X_OK)]


def libraries():
    return [*sorted(BUILD.glob("lib/sim*/*.so.1")), *sorted(BUILD.glob("python/berth/_native*.so"))]


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, **options).stdout


def prepare():
    """A process creates the file of its counters if there is none, and other users could not write to that file. So each
    program and library is loaded once, without a umask."""
    run("rm", "-rf", PROFILES)
    os.umask(0)
    PROFILES.mkdir()
    for program in programs():
        run(program, "--gtest_list_tests" if program.parent.name == "unit" else "--help")
    for library in libraries():
        run(ROOT / "build/venv/bin/python", "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library)
    try:
        run("sh", "-c", 'for file in "$0"/*; do : >>"$file" || exit; done', PROFILES, user=OTHER_USER, group=OTHER_USER, extra_groups=[])
    except subprocess.CalledProcessError:
        sys.exit(f"other users, as whom some tests run, cannot write to {PROFILES}; move the repository where they can enter all folders")


def share(summary):
    return f"{summary['covered']:7} of {summary['count']:6} {100 * summary['covered'] / max(summary['count'], 1):5.1f} %"


def add_up(files):
    """The sums of each folder, and the total of what is shipped."""
    totals = {}
    for file in files:
        parts = pathlib.Path(file["filename"]).relative_to(ROOT).parts
        folder = parts[0] if parts[0] == SIMULATION else "/".join(parts[:2])
        for key in {folder, folder if folder == SIMULATION else "total"}:
            total = totals.setdefault(key, {kind: {"count": 0, "covered": 0} for kind in ("lines", "branches")})
            for kind, sums in total.items():
                for field in sums:
                    sums[field] += file["summary"][kind][field]
    return totals


def report():
    profile = BUILD / "all.profdata"
    run("llvm-profdata", "merge", "-sparse", *sorted(PROFILES.glob("*.profraw")), "-o", profile)
    first, *others = [*programs(), *libraries()]
    options = [first, *(word for path in others for word in ("-object", path)), f"-instr-profile={profile}",
               f"-ignore-filename-regex={TEST_CODE}"]
    folders = [ROOT / folder for folder in (*SHIPPED, SIMULATION)]
    totals = add_up(json.loads(run("llvm-cov", "export", "-summary-only", *options, *folders))["data"][0]["files"])
    print(f"{'':14}{'lines':>25}{'branches':>27}")
    for folder in sorted(totals, key=lambda name: (name == SIMULATION, name == "total", name)):
        print(f"{folder:14}{share(totals[folder]['lines'])}  {share(totals[folder]['branches'])}")
    run("llvm-cov", "show", *options, "-format=html", f"-output-dir={BUILD / 'html'}", "-show-branches=count", *folders)
    print(f"report: {(BUILD / 'html' / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    steps = {"prepare": prepare, "report": report}
    if len(sys.argv) != 2 or sys.argv[1] not in steps:
        sys.exit(__doc__)
    steps[sys.argv[1]]()
