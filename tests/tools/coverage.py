"""Prepares and reports the coverage of lines and branches; see `./dev coverage`.

Usage: coverage.py prepare | report [FILE...]
prepare: makes the files into which the processes of the preset `coverage` write their counters.
report: prints the coverage of each folder and of all, and writes build/coverage/html. FILE: profiles to use instead of
build/coverage/profiles.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "coverage"
PROFILES = BUILD / "profiles"
FOLDERS = ("src", "python/src", "sim")


def binaries():
    """Everything with counters: programs, unit tests, the simulated drivers and the Python module."""
    found = [*(BUILD / "bin").iterdir(), *(BUILD / "unit").iterdir(), *(BUILD / "lib").glob("sim*/*.so.1"),
             *(BUILD / "python").glob("berth/_native*.so")]
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]


def prepare():
    subprocess.run(["rm", "-rf", PROFILES], check=True)
    PROFILES.mkdir()
    PROFILES.chmod(0o777)
    # Every user must be able to open the counters of a program, whoever runs it first. Their file names are known only once it ran.
    for path in (BUILD / "bin").iterdir():
        subprocess.run([path, "--version"], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    env = {**os.environ, "BERTH_SIM": "1x1GiB", "BERTH_SIM_STATE": str(BUILD / "coverage.state"), "BERTH_DIR": str(BUILD / "coverage.harbour"),
           "PYTHONPATH": str(BUILD / "python")}
    for command in ([BUILD / "bin" / "berth", "status"], [BUILD / "bin" / "berth-sim-job", "--time", "1ms"],
                    [ROOT / "build/venv/bin/python", "-c", "import berth; berth.status()"]):
        subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for path in PROFILES.iterdir():
        path.chmod(0o666)


def share(summary):
    return f"{summary['covered']:7} of {summary['count']:7} {100 * summary['covered'] / max(summary['count'], 1):5.1f} %"


def report(files):
    profile = BUILD / "all.profdata"
    subprocess.run(["llvm-profdata", "merge", "-sparse", *(files or sorted(PROFILES.glob("*.profraw"))), "-o", profile], check=True)
    objects = binaries()
    which = [objects[0], *(word for path in objects[1:] for word in ("-object", path)), f"-instr-profile={profile}",
             "-ignore-filename-regex=(_test\\.cpp|/testing/|/build/|^/usr/|/bench/|/fuzz/)"]
    exported = subprocess.run(["llvm-cov", "export", "-summary-only", *which], check=True, capture_output=True, text=True).stdout
    totals = {}
    for file in json.loads(exported)["data"][0]["files"]:
        name = pathlib.Path(file["filename"])
        if not name.is_relative_to(ROOT):
            continue
        parts = name.relative_to(ROOT).parts
        folder = "/".join(parts[:2]) if parts[0] in ("src", "python") else parts[0]
        for key in (folder, "total" if parts[0] in ("src", "python") else None):
            if key is None:
                continue
            total = totals.setdefault(key, {"lines": {"count": 0, "covered": 0}, "branches": {"count": 0, "covered": 0}})
            for kind, sums in total.items():
                for field in sums:
                    sums[field] += file["summary"][kind][field]
    print(f"{'':16}{'lines':>24}{'branches':>32}")
    for folder in sorted(totals, key=lambda key: (key == "total", key)):
        print(f"{folder:16}{share(totals[folder]['lines'])}  {share(totals[folder]['branches'])}")
    subprocess.run(["llvm-cov", "show", *which, "-format=html", f"-output-dir={BUILD / 'html'}", "-show-branches=count"], check=True,
                   stdout=subprocess.DEVNULL)
    print(f"report: {(BUILD / 'html' / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["prepare"]:
        prepare()
    elif sys.argv[1:2] == ["report"]:
        report(sys.argv[2:])
    else:
        sys.exit(__doc__)
