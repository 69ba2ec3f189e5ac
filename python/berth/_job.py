"""The decorator `job`: a lease for each call of a function."""

from __future__ import annotations

import functools
import inspect
from typing import (TYPE_CHECKING, Any, Awaitable, Callable, Generic, Iterable, Iterator, Optional, TypeVar, Union, cast,
                    overload)

from . import _native, _request
from ._errors import UsageError
from ._lease import gpus
from ._program import program

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._request_keywords import Request
R = TypeVar("R")


def has_profile(job: str, count: int = 1) -> bool:
    """Whether there is a profile of this job type, from an earlier run that succeeded."""
    program()
    return _native.has_profile(job, count)


class Job(Generic[R]):
    """A function that gets a lease for each call. `berth.job` creates it."""

    def __init__(self, function: Callable[..., R], count: Optional[int], request: Request) -> None:
        functools.update_wrapper(self, function)
        _request.parse(count, request)  # an invalid request raises here, where it is written
        if not callable(function):
            raise UsageError(f"job: {function!r} is not a function")
        self._function = function
        self._count = count
        name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
        self._name = name
        self._request: Request = {"label": name, **request}
        self._auto_memory = request.get("mem") == "auto"
        if self._auto_memory and request.get("job") is None:
            self._request["job"] = f"{_request.script_type()}: {name}"
        self._profile: Optional[Callable[..., object]] = None
        self._profiled = False
        self._is_async = inspect.iscoroutinefunction(function)
        self._is_generator = inspect.isgeneratorfunction(function)

    def __call__(self, *args: Any, **keywords: Any) -> R:
        if self._is_async:
            return cast(R, self._call_async(args, keywords))
        if self._is_generator:
            return cast(R, self._generate(args, keywords))
        profile = self._pending_profile()
        if profile is not None:
            with gpus(self._count, **self._request):
                if self._pending_profile() is not None:  # otherwise another process has measured it meanwhile
                    profile(*args, **keywords)
            self._profiled = True
        with gpus(self._count, **self._request):
            return self._function(*args, **keywords)

    def _pending_profile(self) -> Optional[Callable[..., object]]:
        """The profile function, if it must be called: as long as there is no profile of this job type."""
        if self._profile is None or self._profiled or not self._auto_memory:
            return None
        return None if has_profile(str(self._request["job"]), self._count or 1) else self._profile

    def _generate(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Iterator[Any]:
        """The lease lasts as long as the generator runs."""
        with gpus(self._count, **self._request):
            yield from cast(Iterable[Any], self._function(*args, **keywords))

    async def _call_async(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        profile = self._pending_profile()
        if profile is not None:
            async with gpus(self._count, **self._request):
                result = profile(*args, **keywords) if self._pending_profile() is not None else None
                if inspect.isawaitable(result):
                    await result
            self._profiled = True
        async with gpus(self._count, **self._request):
            return await cast(Awaitable[Any], self._function(*args, **keywords))

    def __repr__(self) -> str:
        return f"<berth.Job {self._name}>"

    def __reduce__(self) -> str:
        """Pickled by its name, like a function: the workers of a pool import it."""
        return str(getattr(self, "__qualname__"))

    def __get__(self, instance: object, owner: Optional[type] = None) -> Any:
        """Binds methods to their instance, like a function."""
        return self if instance is None else functools.partial(self, instance)

    def profile(self, function: Callable[..., object]) -> Callable[..., object]:
        """Registers a shorter function that needs as much memory, for a job that takes too long to be measured itself.
        With mem="auto" it is called before the first call of the job, with the same arguments, and measured instead."""
        self._profile = function
        return function


@overload
def job(count: Callable[..., R]) -> Job[R]: ...


@overload
def job(count: Optional[int] = None, **request: Unpack[Request]) -> Callable[[Callable[..., R]], Job[R]]: ...


def job(count: Union[Callable[..., R], int, None] = None,
        **request: Unpack[Request]) -> Union[Job[R], Callable[[Callable[..., R]], Job[R]]]:
    """A decorator: each call of the function waits for GPUs, and releases them when it returns.

    Takes the arguments of `acquire`; without any, `@berth.job` needs no parentheses. With `mem="auto"` a call reserves
    as much memory as earlier calls needed. The first call gets a whole GPU and is measured; other calls of the same
    function wait for it. The job type is the script and the function.

    >>> import berth, os
    >>> @berth.job(mem="auto")
    ... def train(lr):
    ...     return lr, os.environ["CUDA_VISIBLE_DEVICES"]
    >>> @train.profile
    ... def quick(lr):
    ...     print("a short run to measure", lr)
    >>> train(0.1)
    a short run to measure 0.1
    (0.1, '0')
    >>> train(0.2)
    (0.2, '0')
    """
    if callable(count):
        return Job(count, None, request)

    def decorate(function: Callable[..., R]) -> Job[R]:
        return Job(function, count, request)
    return decorate
