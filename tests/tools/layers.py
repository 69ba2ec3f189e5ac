"""Checks that each folder includes only what lies below it, and that every mutex is one that clang can check."""

import pathlib
import re
import subprocess
import sys

# Each folder, with the folders that it may include from. Its own is always allowed.
MAY_INCLUDE = {
    "src/base": [],
    "src/devices": ["src/base"],
    "src/redis": ["src/base"],
    "src/schedule": ["src/base"],
    "src/harbour": ["src/base", "src/redis", "src/schedule"],
    "src/archive": ["src/base", "src/harbour", "src/redis", "src/schedule"],
    "src/broker": ["src/archive", "src/base", "src/devices", "src/harbour", "src/redis", "src/schedule"],
    "src/cli": ["src/archive", "src/base", "src/devices", "src/harbour", "src/redis", "src/schedule", "src/broker"],
    "python": ["src/archive", "src/base", "src/devices", "src/harbour", "src/redis", "src/schedule", "src/broker",
               "src/cli"],
    "sim": ["src/base", "src/devices"],
    "fuzz": ["src/archive", "src/base", "src/devices", "src/harbour", "src/redis", "src/schedule", "src/broker", "src/cli",
             "sim"],
    "bench": ["src/base", "src/devices", "src/harbour", "src/redis", "src/schedule", "src/broker", "src/cli"],
}
# Of a driver, its simulation may know the binary interface and nothing else.
ONLY_FILES = {("sim", "src/devices"): {"src/devices/nvml_abi.h", "src/devices/cuda_abi.h"}}

# Of these, clang's thread-safety analysis knows nothing.
PLAIN_MUTEX = re.compile(r"#\s*include\s+<(mutex|shared_mutex|condition_variable)>")
MAY_USE_PLAIN_MUTEX = "src/base/mutex.h"

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def folder_of(path):
    """The layer that a file belongs to, or None."""
    return next((layer for layer in MAY_INCLUDE if path.startswith(layer + "/")), None)


def resolve(target, root):
    """The repository's path of an included file: includes are relative to src/ or to the root."""
    return next((p for p in (f"src/{target}", target) if (root / p).exists()), None)


def violations(root, files):
    for name in files:
        layer = folder_of(name)
        if layer is None:
            yield f"{name}: stands in no known folder (see MAY_INCLUDE)"
            continue
        text = (root / name).read_text()
        if name != MAY_USE_PLAIN_MUTEX and PLAIN_MUTEX.search(text):
            yield f"{name}: use base/mutex.h, with GUARDED_BY for what the mutex guards"
        for target in INCLUDE.findall(text):
            path = resolve(target, root)
            if path is None:
                yield f'{name}: includes "{target}", which is not in this repository: use <>'
                continue
            other = folder_of(path)
            if other == layer:
                continue
            if other not in MAY_INCLUDE[layer]:
                yield f'{name}: {layer} must not include from {other} ("{target}")'
            elif path not in ONLY_FILES.get((layer, other), {path}):
                yield f'{name}: {layer} must not include "{target}"'


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.cpp", "*.h"],
                            cwd=root, check=True, capture_output=True, text=True).stdout
    found = list(violations(root, listed.split()))
    print("\n".join(found) or "layers: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
