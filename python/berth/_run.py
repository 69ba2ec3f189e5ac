"""Runs commands on leased GPUs."""

from __future__ import annotations

import os
import subprocess

from . import _native, _request
from ._errors import UsageError
from ._lease import acquire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence, Union

    Argument = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def _subprocess_keywords() -> frozenset[str]:
    import inspect  # imports much more, and most calls have only keywords of a request

    popen = inspect.signature(subprocess.Popen.__init__).parameters
    return frozenset({*popen, "input", "capture_output", "check"}) - {"self", "args", "timeout"}


def _to_text(word: object) -> str:
    return os.fsdecode(word) if isinstance(word, (str, bytes, os.PathLike)) else str(word)


def run(args: Union[Argument, Sequence[Argument]], count: Optional[int] = None, *,
        run_timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None, pass_fds: Sequence[int] = (),
        **keywords: Any) -> subprocess.CompletedProcess[Any]:
    """Waits for GPUs, runs a command on them, and releases them when its last process has ended.

    Takes the keywords of `acquire` and those of subprocess.run: check, capture_output, text, cwd, env, and so on.
    `timeout` limits the wait for the GPUs, as everywhere in Berth; `run_timeout` limits the run time of the command.

    >>> import berth
    >>> berth.run("echo GPU $CUDA_VISIBLE_DEVICES", shell=True, capture_output=True, text=True).stdout
    'GPU 0\\n'
    """
    if not args:
        raise UsageError("run: no command; say what to run, such as ['python', 'train.py']")
    request = {name: value for name, value in keywords.items() if name in _request.KEYWORDS}
    options = {name: value for name, value in keywords.items() if name not in _request.KEYWORDS}
    if options:
        _request.check_keywords(options, _request.KEYWORDS | _subprocess_keywords(), "run")
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    shell = bool(options.get("shell"))
    command = _request.command_text([_to_text(word) for word in words], shell)
    request = {"command": command, **request, "set_environment": False}
    if request.get("mem") == "auto" and request.get("job") is None:
        request["job"] = _native.job_type([_request.clean(_to_text(word)) for word in words], shell)
    with acquire(count, **request) as lease:
        variables = {**(os.environ if env is None else env), **lease.environment}
        completed = subprocess.run(args, env=variables, pass_fds=(*pass_fds, lease.fileno()), timeout=run_timeout,
                                   **options)
        if completed.returncode != 0:
            lease.failed(_to_text(completed.stderr or ""))
        return completed
