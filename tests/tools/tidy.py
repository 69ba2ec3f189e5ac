"""Runs clang-tidy on source files, except those that were clean and are the same since, headers included.

Usage: tidy.py BUILD_FOLDER SOURCE...
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys


def fingerprint(source, command):
    """Of all that clang-tidy would read: the source with its headers, and its own settings for that folder."""
    words = shlex.split(command["command"])
    output = words.index("-o")
    words[output:output + 2] = []
    preprocessed = subprocess.run([*words, "-E"], cwd=command["directory"], capture_output=True, check=True)
    settings = subprocess.run(["clang-tidy", "--dump-config", source], capture_output=True, check=True)
    text = pathlib.Path(source).read_bytes()  # its comments, too: NOLINT is one
    return hashlib.sha256(b"\0".join([text, preprocessed.stdout, settings.stdout])).hexdigest()


def check(build, source, command):
    """What clang-tidy says, or nothing."""
    stamp = build / "tidy" / fingerprint(source, command)
    if stamp.exists():
        return ""
    result = subprocess.run(["clang-tidy", "-p", build, "--quiet", source], capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        return result.stdout or result.stderr
    stamp.touch()
    return ""


def main(build, *sources):
    build = pathlib.Path(build)
    (build / "tidy").mkdir(exist_ok=True)
    commands = {os.path.relpath(one["file"]): one
                for one in json.loads((build / "compile_commands.json").read_text())}
    clean = True
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for findings in pool.map(lambda source: check(build, source, commands[source]), sources):
            clean = clean and not findings
            print(findings, end="", flush=True)
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
