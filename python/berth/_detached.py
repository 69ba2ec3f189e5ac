"""Detached jobs: commands that run in the background on leased GPUs, and go on when this program has ended.

They are the jobs of `berth run -d`. Everything here starts the `berth` command of this installation, so that Python and
the command line see the same jobs and follow the same rules.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import dataclass, fields
from datetime import datetime, timezone

from . import _environment, _log, _native, _request
from ._errors import Error, HarbourError, Impossible, NoDriver, NotGranted, NotYours, UnknownExitCode, UsageError
from ._gpu import parse_time
from ._program import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any, Iterable, Iterator, Literal, Mapping, NoReturn, Optional, Sequence, Union, overload

    from typing_extensions import Unpack

    from ._request_keywords import DetachedRequest, Duration
    from ._run import Argument

    JobOrId = Union["DetachedJob", str]
    Jobs = Union[JobOrId, Iterable[JobOrId], None]
    Texts = Union[str, Iterable[str], None]

# The exit codes of `berth` (docs/index.md); 69 also stands for a request that can never be met.
_USAGE, _NO_DRIVER, _HARBOUR, _NOT_GRANTED, _NOT_YOURS, _NOT_RUNNABLE, _NOT_FOUND = 64, 69, 74, 75, 77, 126, 127

_FLAGS = {
    "count": "--count", "gpu": "--gpu", "name": "--name", "mem": "--mem", "min_mem": "--min-mem", "util": "--max-util",
    "mem_util": "--max-mem-util", "processes": "--max-processes", "policy": "--policy", "time": "--time",
    "label": "--label", "timeout": "--timeout", "job": "--job",
}  # fmt: skip
KEYWORDS = frozenset({*_FLAGS, "no_wait", "ids", "placeholder", "retry_oom"})
_OWN_KEYWORDS = frozenset({"after", "after_any", "begin", "notify", "host", "cwd", "env", "shell"})


@dataclass(frozen=True)
class BatchProgress:
    """How many lines a batch has, and what became of them."""

    total: int
    succeeded: int
    failed: int
    running: int


@dataclass(frozen=True)
class JobStatus:
    """A job as `berth jobs` shows it. The names are those of its JSON (docs/json.md)."""

    id: str
    user: str
    host: Optional[str]
    """That runs or ran it; None if it is unknown, or not decided yet."""
    queue_hosts: tuple[str, ...]
    """Of a waiting job: the hosts in whose queues it is."""
    kind: str
    """"run", "batch", "shell" (a lease of `berth acquire`) or "adopted" (of `berth adopt`)."""
    detached: bool
    """Whether it was started by `berth.submit` or with `-d`. Always False for jobs of other users."""
    state: str
    """"held" (waits for another job or a time), "waiting" (has a ticket in the queue), "running" or "ended"."""
    reason: Optional[str]
    """Why it is held or waits; why its exit code is unknown; or the error that ended it."""
    position: Optional[int]
    command: str
    label: str
    gpus: tuple[Union[int, str], ...]
    leases: tuple[str, ...]
    submitted: Optional[datetime]
    started: Optional[datetime]
    ended: Optional[datetime]
    starts: Optional[datetime]
    ends: Optional[datetime]
    ends_source: Optional[str]
    result: Optional[str]
    """"succeeded", "failed", "released" (the lease of a shell), "unknown"; None before the end."""
    exit_code: Optional[int]
    """As of a shell: 128+N for signal N."""
    batch: Optional[BatchProgress]
    output: Optional[str]
    """The file with the output; None if the job is not detached."""


_TIMES = ("submitted", "started", "ended", "starts", "ends")


def _build_status(values: dict[str, Any]) -> JobStatus:
    known: dict[str, Any] = {field.name: values.get(field.name) for field in fields(JobStatus)}
    known.update({name: parse_time(values.get(name)) for name in _TIMES})
    known.update(gpus=tuple(values["gpus"]), leases=tuple(values["leases"]),
                 queue_hosts=tuple(values["queue_hosts"]))
    if values.get("batch") is not None:
        known["batch"] = BatchProgress(**{field.name: values["batch"][field.name] for field in fields(BatchProgress)})
    return JobStatus(**known)


def _last_message(stderr: str) -> str:
    """What `berth` has said last, without its name at the beginning of the line."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return last[len("berth: "):] if last.startswith("berth: ") else last


def _is_driver_missing() -> bool:
    try:
        _native.status()
    except NoDriver:
        return True
    except Error:
        pass
    return False


def _raise_refusal(code: int, stderr: str) -> NoReturn:
    """Raises the exception for the exit code of a `berth` command that has failed."""
    message = _last_message(stderr) or f"the berth command ended with exit code {code}"
    if code == _NOT_FOUND:
        raise FileNotFoundError(errno.ENOENT, message)
    if code == _NOT_RUNNABLE:
        raise PermissionError(errno.EACCES, message)
    if code == _NO_DRIVER:
        raise NoDriver(message) if _is_driver_missing() else Impossible(message)
    kinds = {_USAGE: UsageError, _HARBOUR: HarbourError, _NOT_GRANTED: NotGranted, _NOT_YOURS: NotYours}
    raise kinds.get(code, Error)(message)


def _run_berth(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(), *words], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                          errors="replace", **options)


def _list_statuses(*words: str) -> list[JobStatus]:
    completed = _run_berth("jobs", "--json", *words)
    if completed.returncode != 0:
        _raise_refusal(completed.returncode, completed.stderr)
    return [_build_status(one) for one in json.loads(completed.stdout)["jobs"]]


class DetachedJob:
    """A job that does not need this program, such as one of `berth.submit`. Only its id identifies it.

    `berth.submit`, `berth.jobs` and `berth.find_job` return these objects. They can be compared, sent to other processes,
    and made again from the id in another program: `berth.DetachedJob("k3f9a2mx")`.
    """

    def __init__(self, id: str) -> None:
        # A word that is not an id could be taken for a flag.
        if not isinstance(id, str) or not (id.isascii() and id.isalnum()):
            raise UsageError(f"DetachedJob: {id!r} is not the id of a job; berth.jobs() lists them")
        self.id = id
        """The id that the commands `berth jobs`, `logs`, `wait`, `attach` and `cancel` take."""
        self.last_status: Optional[JobStatus] = None
        """What `berth.jobs` or the last call of `status` has found; None if neither has been called."""
        self._command: Optional[str] = None
        self._label: Optional[str] = None

    @property
    def command(self) -> str:
        """The command line, as text."""
        return self._command if self._command is not None else (self.last_status or self.status()).command

    @property
    def label(self) -> str:
        """The text that is shown next to the job; "" if there is none."""
        return self._label if self._label is not None else (self.last_status or self.status()).label

    def status(self) -> JobStatus:
        """The job as it is now: its state, GPUs, times and exit code. UsageError if it does not exist, for example because
        it was removed 14 days after its end."""
        try:
            [found] = _list_statuses("--", self.id)
        except UsageError:  # it may be a job of another user
            [found] = _list_statuses("--all", "--", self.id)
        self.last_status = found
        return found

    def state(self) -> str:
        """"held" (waits for another job or a time), "waiting" (for GPUs), "running" or "ended"."""
        return self.status().state

    def wait(self, timeout: Optional[Duration] = None) -> int:
        """Waits until the job has ended, and returns its exit code: 128+N for signal N, and the exit codes of
        `berth run` if the job was not started (75: not granted in time).

        The end of a shell's lease counts as 0. Raises TimeoutError if the job has not ended after `timeout` ("10m", seconds
        or a timedelta). Raises UnknownExitCode if the job has ended and its exit code is unknown, because its `berth`
        process was killed or the host was restarted: an unknown result must not look like a success.
        """
        limit = [] if timeout is None else [f"--timeout={_request.duration_text('timeout', timeout)}"]
        completed = _run_berth("wait", "--json", *limit, "--", self.id)
        if not completed.stdout:  # the exit code is that of `berth wait`, not of the job
            if completed.returncode == _NOT_GRANTED and limit:
                raise TimeoutError(f"job {self.id} has not ended after {limit[0].partition('=')[2]}")
            _raise_refusal(completed.returncode, completed.stderr)
        [ended] = json.loads(completed.stdout)["jobs"]
        exit_code: Optional[int] = ended["exit_code"]
        if exit_code is None:
            raise UnknownExitCode(f"the exit code of job {self.id} is unknown: {ended['reason']}")
        return exit_code

    if TYPE_CHECKING:

        @overload
        def logs(self, *, follow: Literal[False] = False, lines: Optional[int] = None) -> str: ...

        @overload
        def logs(self, *, follow: Literal[True], lines: Optional[int] = None) -> Iterator[str]: ...

    def logs(self, *, follow: bool = False, lines: Optional[int] = None) -> Union[str, Iterator[str]]:
        """What the job has written to its stdout and stderr; with `lines`, only that many of the last lines.

        With `follow`, an iterator of lines (without their ends) that waits for what the job writes, until the job ends.
        """
        words = ["logs", *([] if lines is None else [f"--lines={lines}"])]
        if follow:
            return _follow([*words, "--follow", "--", self.id])
        completed = subprocess.run([program(), *words, "--", self.id], stdin=subprocess.DEVNULL, capture_output=True)
        if completed.returncode != 0:
            _raise_refusal(completed.returncode, completed.stderr.decode("utf-8", "replace"))
        return completed.stdout.decode("utf-8", "replace")

    def cancel(self, grace: Optional[Duration] = None) -> bool:
        """Removes the job from the queue, or ends it: SIGTERM, and SIGKILL after `grace` (default: 10 s). Returns when the
        job has ended; False if it had ended before. NotYours if it belongs to another user."""
        words = [] if grace is None else [f"--grace={_request.duration_text('grace', grace)}"]
        completed = _run_berth("cancel", *words, "--", self.id)
        if completed.returncode == _USAGE and self.state() == "ended":
            return False
        if completed.returncode != 0:
            _raise_refusal(completed.returncode, completed.stderr)
        return True

    def __repr__(self) -> str:
        command = self._command if self.last_status is None else self.last_status.command
        return f"<berth.DetachedJob {self.id}{'' if command is None else f': {_native.printable(command)}'}>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, DetachedJob) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def _follow(words: list[str]) -> Iterator[str]:
    process = subprocess.Popen([program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    try:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            yield line.rstrip("\n")
        errors = process.stderr.read()
        if process.wait() != 0:
            _raise_refusal(process.returncode, errors)
    finally:
        with process:  # closes the pipes, and waits
            process.kill()


def _job_ids(name: str, value: Jobs) -> list[str]:
    if value is None:
        return []
    if isinstance(value, (str, DetachedJob)):
        value = [value]
    ids = [one.id if isinstance(one, DetachedJob) else one for one in value]
    for one in ids:
        if not isinstance(one, str):
            raise UsageError(f"{name}: {one!r} is neither a job nor the id of a job")
    return [f"--{name.replace('_', '-')}={','.join(ids)}"] if ids else []


def _texts(name: str, value: Texts) -> list[str]:
    texts = [] if value is None else [value] if isinstance(value, str) else list(value)
    for one in texts:
        if not isinstance(one, str):
            raise UsageError(f"{name}: {one!r} is not a text")
    return [_request.checked_text(name, one) for one in texts]


def _host_flags(host: Texts, env: Optional[Mapping[str, str]]) -> list[str]:
    """Where the job runs. What `env` changes is added to the environment that ssh gives the job on another host."""
    hosts = _texts("host", host)
    if host is None:
        return []
    names = [name for name, value in (env or {}).items() if not name.startswith("BERTH_") and os.environ.get(name) != value]
    for name in names:
        if name.endswith("*"):
            raise UsageError(f"env: the variable {name!r} cannot be passed to another host")
    return [f"--host={','.join(hosts)}", *(f"--env={name}" for name in names)]


def _begin_text(begin: object) -> str:
    if isinstance(begin, str):
        return _request.checked_text("begin", begin)
    if isinstance(begin, datetime):
        left = begin.timestamp() - datetime.now(timezone.utc).timestamp()
        if left < 0:
            raise UsageError(f"begin: {begin} is in the past")
        begin = left
    return _request.duration_text("begin", begin)


def _request_flags(request: Mapping[str, Any]) -> list[str]:
    """The flags of `berth run` for the keywords, which are checked."""
    given = {name: value for name, value in request.items() if value is not None}
    retry_oom = given.pop("retry_oom", None)
    parsed = _request.parse(None, given)
    if not isinstance(parsed.placeholder, bool):
        raise UsageError("placeholder: a function cannot run in another program; use True")
    # Without a name, `berth run` derives the job type from the command.
    flags = [f"{_FLAGS[name]}={value}" for name, value in parsed.values.items() if name != "job" or "job" in given]
    if parsed.no_wait:
        flags.append("--no-wait")
    if parsed.ids != "index":
        flags.append(f"--ids={parsed.ids}")
    if parsed.placeholder:
        flags.append("--placeholder")
    if retry_oom is not None:
        flags.append(f"--retry-oom={_request.number_text('retry_oom', retry_oom)}")
    _native.check_request(parsed.values, parsed.no_wait)
    return flags


def _state_folder(environment: Mapping[str, str]) -> str:
    """Where `berth` keeps the folders of jobs, with this environment."""
    state = environment.get("XDG_STATE_HOME", "")
    home = environment.get("HOME") or os.path.expanduser("~")
    return state if os.path.isabs(state) else os.path.join(home, ".local", "state")


def _make_environment(env: Optional[Mapping[str, str]]) -> dict[str, str]:
    """The environment of the job and of its `berth` process. The job is not inside a lease of this program, and with any
    environment it belongs to the same harbour and to the same list of jobs."""
    own = _environment.environment_without_leases()
    if env is None:
        return own
    settings = {name: value for name, value in own.items() if name.startswith("BERTH_")}
    environment = {**settings, **env}
    if _state_folder(environment) != _state_folder(own):
        environment["XDG_STATE_HOME"] = _state_folder(own)
    return environment


def submit(args: Union[Argument, Sequence[Argument]], count: Optional[int] = None, *, after: Jobs = None,
           after_any: Jobs = None, begin: Union[str, float, datetime, timedelta, None] = None,
           notify: Texts = None, host: Texts = None,
           cwd: Optional[Argument] = None, env: Optional[Mapping[str, str]] = None, shell: bool = False,
           **request: Unpack[DetachedRequest]) -> DetachedJob:
    """Starts a command that waits for GPUs and runs on them in the background, also after this program has ended.

    Returns as soon as the job is in the queue. It is a job of `berth run -d`: `berth jobs`, `berth logs` and the other
    commands know it, and its output goes to a file in the user's state folder.

        args         the program and its arguments; with shell=True, a command line for /bin/sh
        after        job, id, or list of them: start after these jobs have succeeded
        after_any    start after these jobs have ended, however
        begin        do not start before this time: "18:00", "2h", seconds or a timedelta from now, or a datetime
        notify       how to tell what becomes of the job, as --notify: "mail", "webhook:granted,failed", or a list
        host         run by ssh on the first of these hosts that grants the GPUs, as --host: "any", a name, or a list
        cwd, env     working directory and environment, as for subprocess.run; with `host`, those variables of
                     `env` are passed on that this program does not have, or has with another value
        retry_oom    if the job runs out of GPU memory, run it again with more, up to this many times

    Takes these keywords of `acquire`: count, gpu, name, min_mem, util, mem_util, processes, policy, mem, job, time,
    timeout, no_wait, label, ids and placeholder. The job is not part of a lease of this program: it waits in the queue.

    Raises what `acquire` raises if the request is refused at once, and FileNotFoundError if there is no such program.

    >>> import berth
    >>> job = berth.submit(["sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES"], label="a try")
    >>> job.wait()
    0
    >>> job.logs().splitlines()[-1]
    'GPU 0'
    >>> later = berth.submit(["echo", "done"], after=job)
    >>> later.wait(), later.status().result
    (0, 'succeeded')
    """
    if not args:
        raise UsageError("submit: no command; say what to run, such as ['python', 'train.py']")
    _request.check_keywords(request, KEYWORDS | _OWN_KEYWORDS, "submit")
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    command = [os.fsdecode(word) for word in words]
    if shell:
        command = ["/bin/sh", "-c", *command]
    starts = [*_job_ids("after", after), *_job_ids("after_any", after_any)]
    if begin is not None:
        starts.append(f"--begin={_begin_text(begin)}")
    starts += [f"--notify={one}" for one in _texts("notify", notify)]
    starts += _host_flags(host, env)
    flags = _request_flags({"count": count, **request})
    completed = subprocess.run([program(), "run", "--detach", *flags, *starts, "--", *command], cwd=cwd,
                               env=_make_environment(env), stdin=subprocess.DEVNULL, capture_output=True)
    errors = completed.stderr.decode("utf-8", "replace")
    if completed.returncode != 0:
        _raise_refusal(completed.returncode, errors)
    for line in errors.splitlines():
        _log.info("%s", _last_message(line))
    job = DetachedJob(completed.stdout.decode().strip())
    job._command = _request.clean(" ".join(command))
    job._label = request.get("label") or ""
    return job


def find_job(id: str) -> DetachedJob:
    """The job with this id, with its `last_status`. UsageError if there is no such job.

    >>> import berth
    >>> berth.find_job("abcdefgh")
    Traceback (most recent call last):
        ...
    berth.UsageError: ...
    """
    job = DetachedJob(id)
    job.status()
    return job


def jobs(all: bool = False, since: Optional[str] = None) -> list[DetachedJob]:
    """The jobs of this user, or with `all` of all users, in the order in which they were submitted: those that have not
    ended, and those that ended lately; or with `since` ("2h", "7d", "2026-11-16") those that ended since then.

    Each has its state at this moment as `last_status`. Jobs of `berth run` and shells' leases are listed, too.

    >>> import berth
    >>> job = berth.submit(["true"])
    >>> [one.last_status.state for one in berth.jobs() if one == job and job.wait() == 0]
    ['...']
    """
    words = ["--all"] if all else []
    if since is not None:
        words.append(f"--since={_request.checked_text('since', since)}")
    found = []
    for status in _list_statuses(*words):
        job = DetachedJob(status.id)
        job.last_status = status
        found.append(job)
    return found
