"""Adds up the JUnit files of a test run and closes it with one line: N passed, N failed.

Usage: summary.py RUNNER_FAILED FILE...
A file that is missing or empty, a runner that failed, or a test that did not run without leave makes
the exit code non-zero. NAME-second-run.xml beside NAME.xml has the second run of the tests that failed
in it: a test that passed there counts as passed, and is listed as unstable.
"""

import os
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

# Tests that may be skipped, and why. Anything else that did not run is a failure.
MAY_SKIP = {
    "test_nvtop": "needs Debian's contrib section",
    "test_abi": "needs NVIDIA's headers from the Python registry",
}


def results(path):
    """(name, outcome, message) of each test in a JUnit file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        problem = next((c for c in case if c.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if problem is not None or case.get("status") == "fail":
            yield name, "failed", ""
        elif skipped is not None or case.get("status") in ("notrun", "disabled"):
            yield name, "skipped", "" if skipped is None else skipped.get("message", "")
        else:
            yield name, "passed", ""


def with_second_run(path):
    """results(path), in which "unstable" is a test that failed and then passed."""
    again = path.with_name(f"{path.stem}-second-run.xml")
    passed_again = set()
    if again.exists():
        passed_again = {name for name, outcome, _ in results(again) if outcome == "passed"}
    for name, outcome, message in results(path):
        yield name, "unstable" if outcome == "failed" and name in passed_again else outcome, message


def main(runner_failed, paths):
    passed, failed, problems = 0, 0, []
    for path in map(pathlib.Path, paths):
        try:
            found = list(with_second_run(path))
        except (OSError, ElementTree.ParseError) as error:
            problems.append(f"{path}: cannot be read: {error}")
            continue
        if not found:
            problems.append(f"{path}: no test ran")
        for name, outcome, message in found:
            if outcome in ("passed", "unstable"):
                passed += 1
                if outcome == "unstable":
                    print(f"unstable: {name} failed, and passed when it was run again ({path})")
            # An ordinary user runs ./dev test --quick, where unit tests that need root skip themselves.
            elif outcome == "skipped" and (os.getuid() != 0 or any(allowed in name for allowed in MAY_SKIP)):
                print(f"skipped: {name}: {message}")
            else:
                failed += 1
                problems.append(f"{outcome}: {name} ({path})")
    if runner_failed != "0" and not problems:
        problems.append("a test runner failed, see above")
    for problem in problems:
        print(problem)
    if problems and not failed:
        failed = len(problems)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
