"""Checks that each folder includes only what lies below it, and that every mutex is one that clang can check."""

import pathlib
import re
import subprocess
import sys

# The folders in the order data travels: each may include from those before it. Folders of one row do not include from
# each other.
ORDER = [
    ["src/base"],
    ["src/devices", "src/schedule", "src/cluster/redis"],
    ["src/harbour"],
    ["src/archive"],
    ["src/status"],
    ["src/cluster/store"],
    ["src/profile"],
    ["src/lease"],
    ["src/run"],
    ["src/cluster/remote"],
    ["src/batch", "src/top", "src/serve", "src/doctor", "src/mcp", "python"],
    ["src/cli"],
]
# The simulated driver may know the binary interface of the drivers and nothing else of them.
OUTSIDE = {
    "sim": ["src/base", "src/devices"],
    "fuzz": [folder for row in ORDER for folder in row] + ["sim"],
    "bench": [folder for row in ORDER for folder in row],
}
ONLY_FILES = {("sim", "src/devices"): {"src/devices/nvml_abi.h", "src/devices/cuda_abi.h"}}

# Files that choose between this host's directory and Redis: they include the form in Redis, which builds on them.
MAY_INCLUDE_STORE = {
    "src/archive/follow_history.h",
    "src/archive/history.cpp",
    "src/archive/compact_history.cpp",
    "src/harbour/harbour.cpp",
    "src/harbour/harbour.h",
    "src/status/status.cpp",
    "src/status/status_watcher.cpp",
}

MAY_INCLUDE = {folder: [lower for earlier in ORDER[:row] for lower in earlier]
               for row, folders in enumerate(ORDER) for folder in folders} | OUTSIDE

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
            if other == "src/cluster/store" and name in MAY_INCLUDE_STORE:
                continue
            if other not in MAY_INCLUDE[layer]:
                yield f'{name}: {layer} must not include from {other} ("{target}")'
            elif path not in ONLY_FILES.get((layer, other), {path}):
                yield f'{name}: {layer} must not include "{target}"'


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.cpp", "*.h"],
                            cwd=root, check=True, capture_output=True, text=True).stdout
    found = list(violations(root, [name for name in listed.split() if (root / name).exists()]))
    print("\n".join(found) or "layers: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
