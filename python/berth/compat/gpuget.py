"""GPUGET's command GPU.py, implemented with Berth's leases: `GPUID=$(GPU.py --get)` leases a GPU for the calling shell.

The output is that of GPUGET. There are three differences. A lease ends with its shell, even if it was acquired in a
subshell, and however the shell ends. A GPU that another program uses is not idle. A GPU that is in use is never handed
out again, even with --force or --redis-purge. No Redis server is needed.

With --keys gpuget the command uses GPUGET's own lists in Redis, together with users of the original GPU.py, and also
leases each GPU.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
from typing import Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

import berth

from . import _command, _gpuget_monitor, _shared_folder
from ._gpuget_file_lists import FileLists, format_time, is_id
from ._gpuget_redis_lists import RedisLists

PROG = "GPU.py"
EXIT_TOO_MANY = 255  # the exit code of GPUGET
KEYS = ("berth", "gpuget")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,100}")

ABOUT = """\
Lease GPUs of this host, one for each call. This is GPUGET's command,
implemented with berth.

The process that reads the number has the GPU until --release or until it ends:
  GPUID=$(GPU.py --get); program --device $GPUID; GPU.py --release $GPUID
"""
NOTES = """\
By default no Redis server is used. --redis-server, --redis-port, --redis-db and
--redis-prefix then only select one of several lists of managed GPUs. Only the
user who created a list and root can change it. A GPU that is leased through
another list, or by another berth command, is not idle.

With --keys gpuget (or BERTH_GPUGET_KEYS=gpuget) the lists are GPUGET's own
lists in that Redis server, shared with users of the original GPU.py.
"""


def _id(text: str) -> str:
    if not is_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a GPU; write its index, such as 2")
    return ":".join(str(int(part)) for part in text.split(":"))


def _id_or_uuid(text: str) -> str:
    """An ID as --get prints it. It is a UUID if CUDA numbers the GPUs differently, for example if a card is lost."""
    return text if _UUID.fullmatch(text) else _id(text)


def _ids(text: str) -> List[str]:
    return [_id(part.strip()) for part in text.split(",")]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _command.Parser(PROG, usage=f"{PROG} --get | --release ID | --ACTION [OPTIONS]", description=ABOUT, epilog=NOTES,
                             formatter_class=argparse.RawDescriptionHelpFormatter)

    def flag(name: str, *others: str, text: str) -> None:
        parser.add_argument(name, *others, action="store_true", help=text)

    flag("--get", text="lease an idle GPU and print its ID; wait if no GPU is idle")
    parser.add_argument("--release", type=_id_or_uuid, metavar="ID", help="release a GPU")
    parser.add_argument("--pid", type=_count, help="with --get: lease for this process")
    manage = parser.add_mutually_exclusive_group()
    manage.add_argument("--redis-manage-all", action="store_true", help="manage all GPUs of this host")
    manage.add_argument("--redis-manage", type=_ids, metavar="LIST", help="manage these GPUs, such as 0,2")
    manage.add_argument("--redis-manage-count", type=_count, metavar="N", help="manage the last N GPUs")
    flag("--force", text="replace an existing list of managed GPUs; leases are not changed")
    flag("--redis-delete", text="delete the list of managed GPUs; leases are not changed")
    flag("--redis-purge", "---redis-purge",
         text="with --keys gpuget: put back GPUs of ended processes; else no effect")
    flag("--info", text="print the number of GPUs: total, managed and idle")
    flag("--idle", text="print the GPUs that --get can lease now")
    flag("--managed", text="print the managed GPUs")
    flag("--active", text="print the managed GPUs that are not idle, and their holders")
    flag("--log", text="print the log of leased and released GPUs")
    flag("--gpu-count", text="print the number of GPUs of this host")
    flag("--managed-gpu-count", text="print the number of managed GPUs")
    parser.add_argument("--keys", choices=KEYS, default=os.environ.get("BERTH_GPUGET_KEYS") or KEYS[0],
                        help="lists to use: berth's (default), or GPUGET's own in Redis")
    parser.add_argument("--redis-server", default="localhost", metavar="NAME", help="see below (default: localhost)")
    parser.add_argument("--redis-port", type=int, default=6379, metavar="N", help="see below (default: 6379)")
    parser.add_argument("--redis-db", type=int, default=0, metavar="N", help="see below (default: 0)")
    parser.add_argument("--redis-prefix", default="GPU", metavar="TEXT", help="see below (default: GPU)")
    return parser


class GpuGet:
    """One call of the command."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self._flags = flags
        names = (flags.redis_server, flags.redis_port, flags.redis_db, flags.redis_prefix)
        self._file_lists = FileLists(names, lambda text: _command.print_message(PROG, text))

    def run(self) -> int:
        """Runs the first action of the flags, in GPUGET's order, and returns the exit code. Without any it does nothing,
        as GPUGET."""
        actions: Tuple[Tuple[str, Callable[[], int]], ...] = (
            ("gpu_count", self.gpu_count),
            ("managed_gpu_count", self.managed_gpu_count),
            ("redis_manage_all", self.manage),
            ("redis_manage", self.manage),
            ("redis_manage_count", self.manage),
            ("get", self.get),
            ("release", self.release),
            ("log", self.log),
            ("idle", self.idle),
            ("managed", self.managed),
            ("info", self.info),
            ("redis_delete", self.delete),
            ("redis_purge", self.purge),
            ("active", self.active),
        )
        for name, action in actions:
            if getattr(self._flags, name) not in (None, False):
                return action()
        return 0

    def gpu_count(self) -> int:
        print(len(berth.status()))
        return 0

    def managed_gpu_count(self) -> int:
        print(len(self._managed()))
        return 0

    def manage(self) -> int:
        present = [str(gpu.index) for gpu in berth.status()]
        return self._manage(present, lambda gpus: self._file_lists.manage(gpus, self._flags.force))

    def _manage(self, present: List[str], make: Callable[[List[str]], bool]) -> int:
        gpus = self._gpus_to_manage(present)
        if gpus is None:
            print(f"Can not manage more GPUs than available but you requested {self._flags.redis_manage_count} out of "
                  f"{len(present)} possible!")
            return EXIT_TOO_MANY
        if not gpus:
            raise berth.Impossible("none of these GPUs exists; 'berth status' lists the GPUs of this host")
        if make(gpus):
            print(len(gpus))
        else:
            print("Objects already initialized, add force to proceed.")
        return 0

    def get(self) -> NoReturn:
        """Executes `berth acquire`, which prints the ID. It must be the same process, because `berth acquire` leases
        for a process above it, the one that gets the ID."""
        managed = self._managed()
        if not managed:
            raise berth.Impossible(f"no GPU is managed; run: berth compat {PROG} --redis-manage-all")
        usable = [str(gpu.index) for gpu in berth.status() if gpu.state != "lost" and gpu.uuid]
        ids = [one for one in managed if one in usable]
        if not ids:
            raise berth.Impossible(f"none of the managed GPUs ({','.join(managed)}) can be used; see: berth status")
        self._exec_acquire(ids)

    def _exec_acquire(self, ids: List[str], *flags: str) -> NoReturn:
        # --mem all: with a default of the configuration, the lease would share its GPU.
        words = [berth.program(), "acquire", "--compat", "gpuget", "--print", "ids", "--count", "1", "--mem", "all",
                 "--gpu", ",".join(ids), *flags]
        words += [] if self._flags.pid is None else ["--for", str(self._flags.pid)]
        # Only the list of managed GPUs restricts the choice: a script may have set the variable to an ID of --get.
        variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        os.execve(words[0], words, variables)

    def release(self) -> int:
        gpu_id: str = self._flags.release
        gpu = next((gpu for gpu in self._gpus().values() if gpu_id in (str(gpu.index), gpu.uuid)), None)
        if gpu is None:
            print(f"GPU {gpu_id} is not managed.")
            return 0
        if gpu.state == "free":
            print(f"GPU {gpu_id} is already idle.")
            return 0
        code = _release_leases(gpu, gpu_id)
        if code != 0:
            return code
        released = f"GPU {gpu.index} released by PID {self._flags.pid or os.getppid()}."
        self._file_lists.add_events([*_acquire_events(gpu), f"{format_time(datetime.datetime.now())}: {released}"])
        print(f"GPU {gpu_id} released.")
        return 0

    def log(self) -> int:
        """Prints the log. It lacks the end of a lease that ended with its shell: no process wrote a line then."""
        managed = self._file_lists.managed()
        if managed is None:
            return 0
        print(f"{format_time(managed.since)}: Redis initialized, {len(managed.gpus)} managed GPUs.")
        held = [line for gpu in self._gpus().values() for line in _acquire_events(gpu)]
        for line in sorted(self._file_lists.events(managed.since) + held, key=lambda line: line[:19]):
            print(line)
        return 0

    def idle(self) -> int:
        ids = self._idle()
        print(f"There is {len(ids)} IDDLE GPUs, IDs: {','.join(ids)}")
        return 0

    def managed(self) -> int:
        ids = self._managed()
        print(f"There is {len(ids)} MANAGED GPUs, IDs: {','.join(ids)}")
        return 0

    def info(self) -> int:
        total = len(berth.status())
        managed = self._managed()
        if managed:
            print(f"GPU total:{total} managed:{len(managed)} idle:{len(self._idle())}")
        else:
            print(f"GPU total:{total} no managed")
        return 0

    def delete(self) -> int:
        self._file_lists.delete()
        print("All Redis objects related to GPU management were deleted.")
        return 0

    def purge(self) -> int:
        """Does nothing: a lease ends with its last process, so there are no GPUs of processes that have ended."""
        return 0

    def active(self) -> int:
        gpus = {gpu_id: gpu for gpu_id, gpu in self._gpus().items() if gpu.state != "free"}
        if gpus:
            print(f"There is {len(gpus)} ACTIVE GPUs, IDs: {','.join(gpus)}")
        else:
            print("There are no active GPUs.")
        for gpu_id, gpu in gpus.items():
            lines = [_holder_line(gpu_id, lease.pid, format_time(lease.since))
                     for lease in gpu.leases if lease.pid is not None and lease.since is not None]
            for line in lines:
                print(line)
            if not lines:
                print(f"GPU {gpu_id} acquired by unknown process.")
        return 0

    def _managed(self) -> List[str]:
        managed = self._file_lists.managed()
        return managed.gpus if managed else []

    def _gpus(self) -> Dict[str, berth.Gpu]:
        """The managed GPUs that exist, by ID."""
        managed = self._managed()
        return {str(gpu.index): gpu for gpu in berth.status() if str(gpu.index) in managed}

    def _idle(self) -> List[str]:
        return [gpu_id for gpu_id, gpu in self._gpus().items() if gpu.state == "free"]

    def _gpus_to_manage(self, present: List[str]) -> Optional[List[str]]:
        """The GPUs to manage, a subset of `present`; None if there are too few."""
        if self._flags.redis_manage_all:
            return present
        if self._flags.redis_manage is not None:
            return [one for one in present if one in self._flags.redis_manage]
        count: int = self._flags.redis_manage_count
        return present[-count:] if count <= len(present) else None


class RedisGpuGet(GpuGet):
    """The same with GPUGET's own lists. A GPU that Berth has leased for it is not in the list of idle GPUs."""

    def __init__(self, flags: argparse.Namespace) -> None:
        super().__init__(flags)
        self._redis_lists = RedisLists(flags.redis_server, flags.redis_port, flags.redis_db, flags.redis_prefix)

    def run(self) -> int:
        _gpuget_monitor.recover_lost_gpus(self._redis_lists)
        return super().run()

    def manage(self) -> int:
        present = [str(gpu.index) for gpu in berth.status() if str(gpu.index).isdecimal()]  # GPUGET has only numbers
        return self._manage(present, lambda gpus: self._redis_lists.manage(gpus, len(present), self._flags.force))

    def _exec_acquire(self, ids: List[str], *flags: str) -> NoReturn:
        gpu, label = _gpuget_monitor.take_gpu(self._redis_lists, ids, self._flags.pid or os.getppid())
        super()._exec_acquire([gpu], "--label", label, *flags)

    def release(self) -> int:
        given: str = self._flags.release
        gpus = berth.status()
        gpu_id = next((str(gpu.index) for gpu in gpus if gpu.uuid == given), given)
        if gpu_id in self._redis_lists.idle():
            print(f"GPU {given} is already idle.")
            return 0
        if gpu_id not in self._redis_lists.managed():
            print(f"GPU {given} is not managed.")
            return 0
        mark = self._redis_lists.read_holder(gpu_id).mark
        for gpu in gpus:
            if any(lease.label == _gpuget_monitor.lease_label(mark) for lease in gpu.leases if mark):
                code = _release_leases(gpu, gpu_id)
                if code != 0:
                    return code
        self._redis_lists.put_back(gpu_id, mark, f"released by PID {self._flags.pid or os.getppid()}.")
        print(f"GPU {given} released.")
        return 0

    def log(self) -> int:
        for line in self._redis_lists.events():
            print(_command.printable_line(line))
        return 0

    def delete(self) -> int:
        self._redis_lists.delete()
        print("All Redis objects related to GPU management were deleted.")
        return 0

    def purge(self) -> int:
        """Puts back GPUs of processes that have ended. It handles only GPUs that the original GPU.py has taken; the
        monitor puts back the others."""
        for gpu_id in self._active():
            holder = self._redis_lists.read_holder(gpu_id)
            if holder.pid is not None and not holder.mark and not _is_running(holder.pid):
                why = (f"acquired by process with PID {holder.pid}, was released by redis purge as "
                       "the process with given PID does no longer exist.")
                self._redis_lists.put_back(gpu_id, "", why, holder.pid)
        return 0

    def active(self) -> int:
        ids = self._active()
        print(f"There is {len(ids)} ACTIVE GPUs, IDs: {','.join(ids)}" if ids else "There are no active GPUs.")
        for gpu_id in ids:
            holder = self._redis_lists.read_holder(gpu_id)
            if holder.pid is None:
                print(f"GPU {gpu_id} acquired by unknown process.")
            else:
                print(_holder_line(gpu_id, holder.pid, _command.printable_line(holder.since)))
        return 0

    def _managed(self) -> List[str]:
        return self._redis_lists.managed()

    def _idle(self) -> List[str]:
        return self._redis_lists.idle()

    def _active(self) -> List[str]:
        idle = self._redis_lists.idle()
        return [gpu_id for gpu_id in self._redis_lists.managed() if gpu_id not in idle]


def _acquire_events(gpu: berth.Gpu) -> List[str]:
    return [f"{format_time(lease.since)}: GPU {gpu.index} acquired by PID {lease.pid}." for lease in gpu.leases
            if lease.since is not None]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # a process of another user
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def _release_leases(gpu: berth.Gpu, gpu_id: str) -> int:
    """Releases the user's own leases on the GPU. If root has none there, releases those of all users."""
    own = any(lease.user == _shared_folder.user_name(os.getuid()) for lease in gpu.leases)
    others = [] if own or os.getuid() != 0 else [lease.id for lease in gpu.leases]
    result = subprocess.run([berth.program(), "release", *(others or [gpu_id])], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, errors="replace")
    if result.returncode != 0:  # else it names the lease, of which a script of GPUGET knows nothing
        sys.stderr.write(result.stderr)
    return result.returncode


def _holder_line(gpu_id: str, pid: int, since: str) -> str:
    return f"GPU {gpu_id} acquired by PID {pid} at {since}"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command GPU.py. `argv` is without the program's name. Returns the exit code."""
    flags = _parser().parse_args(argv)

    def run() -> int:
        if flags.keys not in KEYS:
            raise berth.UsageError(f"BERTH_GPUGET_KEYS is {flags.keys!r}; it must be {' or '.join(KEYS)}")
        return (GpuGet if flags.keys == KEYS[0] else RedisGpuGet)(flags).run()
    return _command.run_command(PROG, run)
