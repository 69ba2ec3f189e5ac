"""The module grn (gpu-resource-negotiator), implemented with Berth's leases: `@grn.job()` gives each call a GPU.

There is no server to start. The first call of a job, or its profile function, gets a whole GPU and is measured. Later
calls share GPUs and reserve the measured memory; the measurement is kept. Exceptions of the job are raised to its
caller.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any, Callable, Dict, Optional, Protocol, Tuple, TypeVar, cast

import berth
from berth import _log
from berth._job import has_profile

from ._grn_run_lease import leave_run_lease
from ._grn_server_file import allowed_gpus

__all__ = ["job"]

_POLICIES = {"spread": "spread", "spreading": "spread", "pack": "pack", "packing": "pack"}
_MAX_LABEL = 256  # bytes: Berth's limit

_Result = TypeVar("_Result", covariant=True)
_Function = TypeVar("_Function", bound=Callable[..., object])


class Job(Protocol[_Result]):
    """A function whose calls wait for a GPU, run on it, and release it."""

    def __call__(self, *args: Any, **kwargs: Any) -> _Result: ...

    def profile(self, function: _Function) -> _Function:
        """Registers a shorter function that runs before the first call, with the same arguments, and is measured."""


def job(
    jobstr: Optional[str] = None,
    resource_policy: str = "spread",
    continue_on_server_unavailable: bool = False,
) -> Callable[[Callable[..., _Result]], Job[_Result]]:
    """Gives each call of the decorated function a GPU: CUDA_VISIBLE_DEVICES is set while it runs.

    `jobstr` is the name of the job type (default: FILE::FUNCTION), which `berth status` shows to all users.
    `resource_policy` is "spread" or "pack". If Berth cannot be used (no driver, no harbour), the call raises
    ConnectionError; with `continue_on_server_unavailable` it runs without a lease.
    """
    if resource_policy not in _POLICIES:
        raise ValueError(f"Got resource_policy={resource_policy}, but options are {('spread', 'pack')}.")

    def decorate(function: Callable[..., _Result]) -> Job[_Result]:
        calls = _JobCalls(function, jobstr or _job_type(function), _POLICIES[resource_policy])

        # A function, not a callable object: pickle and methods of classes need a function.
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> _Result:
            leave_run_lease()
            problem = _availability_error()
            if problem is None:
                return cast(_Result, calls.run(*args, **kwargs))
            if not continue_on_server_unavailable:
                raise ConnectionError(str(problem)) from problem
            _log.warning("%s runs without a lease: %s", calls.job_type, problem)
            return function(*args, **kwargs)

        setattr(call, "profile", calls.set_profile)
        return cast("Job[_Result]", call)

    return decorate


class _JobCalls:
    """The calls of one job in this process."""

    def __init__(self, function: Callable[..., Any], job_type: str, policy: str) -> None:
        self.job_type = job_type
        self._function = function
        self._policy = policy
        self._profile: Optional[Callable[..., object]] = None
        self._profiled = False
        # Calls of the same job wait for its profile; calls of other jobs do not.
        self._profiling = threading.RLock()

    def set_profile(self, function: _Function) -> _Function:
        if self._profile is not None:
            raise AttributeError(f"{self.job_type} has a profile function already ({_job_type(self._profile)}), and "
                                 f"cannot have {_job_type(function)} too")
        self._profile = function
        return function

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with self._profiling:
            if self._profile is not None and not self._profiled and not has_profile(self.job_type):
                if _takes(self._profile, args, kwargs):
                    self._run_profile(self._profile, *args, **kwargs)
                else:
                    self._profiled = True
                    _log.warning("the profile function %s does not take the arguments of the call of %s, so the call "
                                 "itself is measured", _job_type(self._profile), self.job_type)
        return self._with_lease(self._function)(*args, **kwargs)

    def _run_profile(self, profile: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Runs the profile function. If it fails, the job does not run, and the next call runs the profile again."""
        self._profiled = True  # set before the call, because the profile function may call its own job
        try:
            self._with_lease(profile)(*args, **kwargs)
        except BaseException:
            self._profiled = False
            raise

    def _with_lease(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the function for one call: the GPUs of grn-start may have changed since the last call."""
        return berth.job(1, gpu=allowed_gpus(), policy=self._policy, mem="auto", job=self.job_type,
                         label=label_text(self.job_type))(function)


def _availability_error() -> Optional[berth.Error]:
    """The reason why Berth cannot be used, or None. It is checked before the call, because a job may itself raise
    Berth's exceptions."""
    try:
        berth.status()
    except (berth.NoDriver, berth.HarbourError) as problem:
        return problem
    return None


def _takes(function: Callable[..., object], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether the function can be called with these arguments, as far as its signature tells."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in function may have none
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _job_type(function: Callable[..., object]) -> str:
    """FILE::FUNCTION, as in GRN."""
    try:
        file = inspect.getfile(function)
    except TypeError:  # a built-in function, or a callable object
        file = getattr(function, "__module__", None) or "?"
    return f"{file}::{getattr(function, '__name__', type(function).__name__)}"


def label_text(job_type: str) -> str:
    """A label for `berth status`. Keeps only the end of a long job type: it says more than the start."""
    encoded = job_type.encode("utf-8", "replace")
    return encoded[-_MAX_LABEL:].decode("utf-8", "ignore")
