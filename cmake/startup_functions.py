"""Writes cmake/startup_functions.txt: the functions that short commands of berth execute, in the order of their first call.

The linker places these functions beside each other (cmake/startup_order.cmake), so that a start touches few pages. A function
that is missing in the list, or no longer exists, costs a page fault and nothing else; so the list needs no care, and a new one
from time to time: ./dev order.

The commands run in single steps (ptrace), which finds the functions of the libraries that are linked into berth, too.
"""

import bisect
import collections
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "cmake" / "startup_functions.txt"
PROGRAM = ROOT / "build" / "bin" / "berth"
LIBRARY = ROOT / "build" / "lib" / "sim" / "libnvidia-ml.so.1"
# The first is the one that matters most: its functions come first.
COMMANDS = (["run", "--", "/bin/true"], ["--version"], ["status"], ["run", "--mem", "2GiB", "--", "/bin/true"], ["queue"])

PTRACE_TRACEME, PTRACE_PEEKUSER, PTRACE_CONT, PTRACE_SINGLESTEP, PTRACE_SETOPTIONS = 0, 3, 7, 9, 0x4200
FOLLOW_CHILDREN_AND_EXEC = 0x2 | 0x4 | 0x8 | 0x10  # PTRACE_O_TRACEFORK, VFORK, CLONE, EXEC
EVENT_EXEC = 4
WAIT_FOR_ALL = 0x40000000  # __WALL
INSTRUCTION_POINTER = 16 * 8  # offset of rip in struct user

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long] * 4


def executable_mappings(pid):
    """(begin, end, what to add to an address for its offset in the file, file) of each executable mapping."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and "x" in words[1]:
            begin, end = (int(word, 16) for word in words[0].split("-"))
            found.append((begin, end, int(words[2], 16) - begin, words[5]))
    return found


def locate(address, mappings):
    return next(((file, address + shift) for begin, end, shift, file in mappings if begin <= address < end), None)


def execute_in_steps(arguments, env, executed):
    """Adds (file, offset) of each instruction that the command and its helper execute, but not its job."""
    first = os.fork()
    if first == 0:
        libc.ptrace(PTRACE_TRACEME, 0, 0, 0)
        os.execve(PROGRAM, [str(PROGRAM), *arguments], env)
    os.waitpid(first, 0)
    libc.ptrace(PTRACE_SETOPTIONS, first, 0, FOLLOW_CHILDREN_AND_EXEC)
    libc.ptrace(PTRACE_SINGLESTEP, first, 0, 0)
    alive, jobs, mappings, known = {first}, set(), {}, set()
    while alive:
        pid, status = os.waitpid(-1, WAIT_FOR_ALL)
        if not os.WIFSTOPPED(status):
            alive.discard(pid)
            continue
        alive.add(pid)
        number = os.WSTOPSIG(status)
        if status >> 16 == EVENT_EXEC:
            jobs.add(pid)
        elif pid not in jobs:
            address = libc.ptrace(PTRACE_PEEKUSER, pid, INSTRUCTION_POINTER, 0)
            if (pid, address) not in known:
                known.add((pid, address))
                place = locate(address, mappings.get(pid, []))
                if place is None:
                    mappings[pid] = executable_mappings(pid)
                    place = locate(address, mappings[pid])
                executed.setdefault(place)
        signal_to_deliver = 0 if number in (signal.SIGTRAP, signal.SIGSTOP) else number
        libc.ptrace(PTRACE_CONT if pid in jobs else PTRACE_SINGLESTEP, pid, 0, signal_to_deliver)


def read_functions(file):
    """The addresses of the file's functions in order, and the names of each address."""
    names = collections.defaultdict(list)
    for line in subprocess.run(["nm", "--defined-only", file], check=True, capture_output=True, text=True).stdout.splitlines():
        address, kind, name = line.split(None, 2)
        if kind in "tTwWi":
            names[int(address, 16)].append(name)
    return sorted(names), names


def main():
    executed = {}
    for arguments in COMMANDS:
        print(f"berth {' '.join(arguments)}, in single steps (a minute)", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            env = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "BERTH_DIR": f"{folder}/harbour",
                   "BERTH_SIM": "8x80GiB", "BERTH_DRIVER_TIMEOUT": "10m"}
            execute_in_steps(arguments, env, executed)
    listed = {}
    functions = {str(file): read_functions(file) for file in (PROGRAM, LIBRARY)}
    for file, offset in filter(None, executed):
        # In both files the executable segment has the same addresses as offsets.
        if file in functions:
            addresses, names = functions[file]
            place = bisect.bisect_right(addresses, offset) - 1
            listed.update(dict.fromkeys(names[addresses[place]]) if place >= 0 else {})
    lines = [name for name in listed if name.startswith("_Z")]
    LIST.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} functions written to {LIST.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
