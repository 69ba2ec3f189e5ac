"""GPUGET's own lists in Redis, in the format of the original GPU.py, so that a site can use both during a migration.

| key | content |
|---|---|
| PREFIX_IDLE, PREFIX_MANAGED | lists of GPUs |
| PREFIX_GPU<N> | hash: PID and TIME of the process that has the GPU; BERTH: the mark of the monitor (Berth only) |
| PREFIX_EVENTS | list of lines, the newest first |
| PREFIX_INIT | hash: TIME, GPUMANAGED, GPUCOUNT |

Every change is one script, so that a process that is killed cannot lose a GPU between two commands, and no GPU is put
back twice. The original ignores the field BERTH, which names the monitor that must put the GPU back. Any user can write
to this Redis, so only numbers are accepted as GPUs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from typing import Any, Iterator, List, Optional, Sequence

import berth

from ._gpuget_file_lists import format_time

_IDLE_WAIT_SECONDS = 2

# ARGV: the mark, the PID, the time; then the GPUs, the preferred ones first. Of several entries of the same GPU, the
# oldest one is taken. Returns the GPU, or false.
_TAKE = """
local idle = redis.call('LRANGE', KEYS[1] .. '_IDLE', 0, -1)
for wanted = 4, #ARGV do
  for i = #idle, 1, -1 do
    if idle[i] == ARGV[wanted] then
      redis.call('LREM', KEYS[1] .. '_IDLE', -1, idle[i])
      redis.call('HSET', KEYS[1] .. '_GPU' .. idle[i], 'PID', ARGV[2], 'TIME', ARGV[3], 'BERTH', ARGV[1])
      redis.call('LPUSH', KEYS[1] .. '_EVENTS', ARGV[3] .. ': GPU ' .. idle[i] .. ' acquired by PID ' .. ARGV[2] .. '.')
      return idle[i]
    end
  end
end
return false
"""

# ARGV: the GPU; the mark that its record must have ("": no mark); the PID that it must have ("": any); the line for the
# log. Returns 1 if the GPU was put back.
_PUT_BACK = """
local record = KEYS[1] .. '_GPU' .. ARGV[1]
if (redis.call('HGET', record, 'BERTH') or '') ~= ARGV[2] then return 0 end
if ARGV[3] ~= '' and redis.call('HGET', record, 'PID') ~= ARGV[3] then return 0 end
local function among(name)
  for _, one in ipairs(redis.call('LRANGE', KEYS[1] .. name, 0, -1)) do
    if one == ARGV[1] then return true end
  end
  return false
end
if among('_IDLE') or not among('_MANAGED') then return 0 end
redis.call('DEL', record)
redis.call('LPUSH', KEYS[1] .. '_IDLE', ARGV[1])
redis.call('LPUSH', KEYS[1] .. '_EVENTS', ARGV[4])
return 1
"""

# ARGV: the GPU, the mark that its record must have, the PID.
_SET_HOLDER = """
local record = KEYS[1] .. '_GPU' .. ARGV[1]
if redis.call('HGET', record, 'BERTH') == ARGV[2] then redis.call('HSET', record, 'PID', ARGV[3]) end
return 1
"""

# ARGV: force, the time, the number of GPUs of the host; then the GPUs to manage. A GPU that is leased through Berth
# does not become idle.
_MANAGE = """
local function key(name) return KEYS[1] .. name end
if ARGV[1] == '0' and redis.call('EXISTS', key('_INIT')) == 1 then return 0 end
redis.call('DEL', key('_IDLE'), key('_MANAGED'), key('_EVENTS'), key('_INIT'))
local gpus = {}
for i = 4, #ARGV do
  gpus[#gpus + 1] = ARGV[i]
  if redis.call('HEXISTS', key('_GPU' .. ARGV[i]), 'BERTH') == 0 then redis.call('LPUSH', key('_IDLE'), ARGV[i]) end
  redis.call('LPUSH', key('_MANAGED'), ARGV[i])
end
redis.call('HSET', key('_INIT'), 'TIME', ARGV[2], 'GPUMANAGED', table.concat(gpus, ','), 'GPUCOUNT', ARGV[3])
redis.call('LPUSH', key('_EVENTS'), ARGV[2] .. ': Redis initialized, ' .. #gpus .. ' managed GPUs.')
return 1
"""


@dataclasses.dataclass(frozen=True)
class Holder:
    """The process that has a GPU, according to its record; fields that the record lacks are None or empty."""

    pid: Optional[int]
    since: str
    mark: str


class RedisLists:
    """The lists of one prefix. Every method raises HarbourError if Redis fails."""

    def __init__(self, server: str, port: int, db: int, prefix: str) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise berth.UsageError("--keys gpuget needs the Python package redis; run: pip install redis") from None
        self._failure = redis.RedisError
        # No command is retried: if a GPU was taken but the reply was lost, a retry would take a second one.
        # recover_lost_gpus() puts the first one back later.
        self._redis: Any = redis.Redis(host=server, port=port, db=db, decode_responses=True, encoding_errors="replace",
                                       retry=Retry(NoBackoff(), 0))
        self._prefix = prefix

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            yield self._redis
        except self._failure as problem:
            raise berth.HarbourError(f"cannot use the Redis server with GPUGET's lists: {problem}") from None

    def _run_script(self, script: str, *arguments: object) -> Any:
        with self._connection() as server:
            return server.eval(script, 1, self._prefix, *arguments)

    def _gpus(self, name: str) -> List[str]:
        with self._connection() as server:
            found = server.lrange(f"{self._prefix}_{name}", 0, -1)
        return [one for one in found if one.isascii() and one.isdecimal()]

    def managed(self) -> List[str]:
        return sorted(self._gpus("MANAGED"))

    def idle(self) -> List[str]:
        return sorted(self._gpus("IDLE"))

    def events(self) -> List[str]:
        """The log, oldest line first. Not escaped for the terminal."""
        with self._connection() as server:
            return list(reversed(server.lrange(f"{self._prefix}_EVENTS", 0, -1)))

    def read_holder(self, gpu: str) -> Holder:
        with self._connection() as server:
            pid, since, mark = server.hmget(f"{self._prefix}_GPU{gpu}", "PID", "TIME", "BERTH")
        is_number = pid is not None and pid.isascii() and pid.isdecimal()
        return Holder(int(pid) if is_number else None, since or "", mark or "")

    def manage(self, gpus: Sequence[str], present: int, force: bool) -> bool:
        """Sets the list of managed GPUs. Returns False if there is a list and `force` is False."""
        return bool(self._run_script(_MANAGE, int(force), _now(), present, *gpus) == 1)

    def delete(self) -> None:
        records = [f"{self._prefix}_GPU{gpu}" for gpu in self.managed()]
        with self._connection() as server:
            server.delete(*(f"{self._prefix}_{name}" for name in ("IDLE", "MANAGED", "EVENTS", "INIT")), *records)

    def wait_for_idle(self) -> None:
        """Waits until a GPU is idle, but at most _IDLE_WAIT_SECONDS, so that the caller can check whether its parent
        still runs. Takes nothing: it moves the last element of the list to its own place."""
        with self._connection() as server:
            server.blmove(f"{self._prefix}_IDLE", f"{self._prefix}_IDLE", _IDLE_WAIT_SECONDS, "RIGHT", "RIGHT")

    def take_gpu(self, mark: str, pid: int, gpus: Sequence[str]) -> Optional[str]:
        """Takes the first of these GPUs that is idle, and marks its record with `mark`; None if none is idle."""
        gpu: Optional[str] = self._run_script(_TAKE, mark, pid, _now(), *gpus)
        return gpu

    def set_holder_pid(self, gpu: str, mark: str, pid: int) -> None:
        """Records the PID of the lease's holder: the calling shell, not a subshell, which may have ended by now."""
        self._run_script(_SET_HOLDER, gpu, mark, pid)

    def put_back(self, gpu: str, mark: str, why: str, pid: Optional[int] = None) -> bool:
        """Puts a GPU back. Returns False if its record no longer has this mark (and this PID, if given)."""
        line = f"{_now()}: GPU {gpu} {why}"
        return bool(self._run_script(_PUT_BACK, gpu, mark, "" if pid is None else pid, line) == 1)


def _now() -> str:
    return format_time(datetime.datetime.now())
