"""The keywords of a request, and the check of their types. C++ checks their values, as for the command line."""

from __future__ import annotations

import os
import sys

from . import _log, _native
from ._errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

    from ._gpu import Gpu
    from ._lease import Lease
    from ._waiting import Waiting


class ParsedRequest:
    """A request whose keywords were checked. `values` are the arguments for C++, as text."""

    def __init__(self, values: dict[str, str], *, selector: Optional[Callable[[Gpu], bool]] = None, no_wait: bool = False,
                 ids: str = "index", set_environment: bool = True,
                 placeholder: Union[bool, Callable[[int], object]] = False,
                 on_wait: Optional[Callable[[Waiting], None]] = None, progress: Optional[bool] = None, command: str = "",
                 within: Optional[Lease] = None) -> None:
        self.values = values
        self.selector = selector
        self.no_wait = no_wait
        self.ids = ids
        self.set_environment = set_environment
        self.placeholder = placeholder
        self.on_wait = on_wait
        self.progress = progress
        self.command = command
        self.within = within


def number_text(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}: {value!r} is not a whole number")
    return str(value)


def checked_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name}: {value!r} is not a string")
    if value != clean(value):
        raise UsageError(f"{name}: {value!r} is not UTF-8")
    return value


def clean(text: str) -> str:
    """Makes text from outside, such as a file name, valid UTF-8 for C++: other bytes become question marks."""
    return text.encode("utf-8", "replace").decode()


def _job_text(name: str, value: object) -> str:
    """Keeps only the end of a long job type: it says more than the start."""
    return checked_text(name, value).encode()[-_MAX_JOB_BYTES:].decode(errors="ignore")


def _size_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return checked_text(name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}: {value!r} is neither a text such as '8GiB' nor a whole number of bytes")
    return f"{value}B"


_explained_sizes: set[tuple[str, str]] = set()


def _explain_decimal_size(name: str, size: str) -> None:
    """Says once what a size in decimal units is: users who write 8GB may mean 8GiB."""
    if (name, size) in _explained_sizes:
        return
    _explained_sizes.add((name, size))
    if text := _native.explain_decimal_size(f"{name}:", size):
        _log.warning("%s", text)


def duration_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return checked_text(name, value)
    value = value.total_seconds() if hasattr(value, "total_seconds") else value  # a timedelta
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{name}: {value!r} is not a duration; write '10m', a number of seconds, or a timedelta")
    return f"{value:.9f}".rstrip("0").rstrip(".") + "s"


def _gpu_list_text(name: str, value: Any) -> str:
    if isinstance(value, (int, str)):
        value = [value]
    if not hasattr(type(value), "__iter__"):
        raise UsageError(f"{name}: {value!r} is neither an index, a UUID, nor a list of them")
    words = [checked_text(name, one) if isinstance(one, str) else number_text(name, one) for one in value]
    if not words:
        raise UsageError(f"{name}: the list is empty; omit {name}= to accept any GPU")
    return ",".join(words)


_CONVERTERS: Mapping[str, Callable[[str, object], str]] = {
    "count": number_text, "gpu": _gpu_list_text, "name": checked_text, "mem": _size_text, "min_mem": _size_text,
    "util": number_text, "mem_util": number_text, "processes": number_text, "policy": checked_text,
    "time": duration_text, "label": checked_text, "timeout": duration_text, "job": _job_text,
}  # fmt: skip
_OPTIONS = frozenset({
    "selector", "no_wait", "ids", "set_environment", "placeholder", "on_wait", "progress", "command", "within",
})  # fmt: skip
KEYWORDS = _OPTIONS.union(_CONVERTERS)
CHOICE_KEYWORDS = frozenset({"gpu", "name", "min_mem", "util", "mem_util", "processes", "policy", "selector"})
_CALLABLES = ("selector", "on_wait")
_FLAGS = ("no_wait", "set_environment", "progress")


_MAX_JOB_BYTES = 256
_MAX_COMMAND = 256  # characters: `berth status` shows the command, and that of `python -c` is a whole program


def command_text(words: Sequence[str], shell: bool = False) -> str:
    """The command line as `berth status` shows it; only the program's name if command lines are hidden from other users
    (hidepid, BERTH_COMMANDS)."""
    name = words[0].rpartition("/")[2]
    if _native.are_commands_hidden():
        return "sh" if shell else clean(name)
    text = clean(" ".join([words[0] if shell else name, *words[1:]]))
    return text if len(text) <= _MAX_COMMAND else f"{text[:_MAX_COMMAND - 1]}…"


_command_line: Optional[str] = None


def command_line() -> str:
    """The command line of this program."""
    global _command_line
    if _command_line is None:
        _command_line = command_text(getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv])
    return _command_line


def script_type() -> str:
    """The job type of this program, as `berth run` derives it: the same script is the same type."""
    script = sys.argv[0] if sys.argv else ""
    if os.path.isfile(script):
        path = clean(os.path.realpath(script))
        return _native.job_type(["python", path], False) if _native.are_commands_hidden() else f"python {path}"
    return "python"


_default_request: Optional[ParsedRequest] = None


def _get_default_request() -> ParsedRequest:
    """The request without any keyword, cached: most programs use it."""
    global _default_request
    if _default_request is None:
        _default_request = ParsedRequest({}, command=command_line())
    return _default_request


# Keywords that users of other tools, and of the command line, try.
_SYNONYMS = {
    "mem": "min_mem", "memory": "mem", "vram": "mem", "gpu_mem": "mem", "n": "count", "num": "count", "gpus": "count", "ngpus": "count",
    "n_gpus": "count", "nb_gpus": "count", "num_gpus": "count", "device": "gpu", "devices": "gpu", "gpu_id": "gpu",
    "gpu_ids": "gpu", "max_util": "util", "max_mem_util": "mem_util", "max_processes": "processes", "nowait": "no_wait",
    "wait": "no_wait", "block": "no_wait", "blocking": "no_wait", "max_wait": "timeout",
    "duration": "time", "walltime": "time", "type": "job", "jobstr": "job",
    "comment": "label", "filter": "selector", "model": "name", "gpu_name": "name",
}  # fmt: skip


def check_keywords(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises TypeError if a keyword is not known, and names the one that was probably meant."""
    valid = sorted(known)
    for name in given:
        if name in valid:
            continue
        plain = name.lower().replace("-", "_")
        similar = plain if plain in valid else _SYNONYMS.get(plain, "")
        if similar not in valid:
            similar = _native.find_similar_word(plain, valid)
        remedy = f"did you mean {similar!r}?" if similar else f"valid keywords: {', '.join(valid)}"
        raise TypeError(f"{name!r} is not a keyword of {what}; {remedy}")


def parse(count: Optional[int], request: Mapping[str, Any]) -> ParsedRequest:
    """Checks the keywords of a call; a keyword that is None counts as omitted."""
    if count is None and not request:
        return _get_default_request()
    given = {name: value for name, value in {"count": count, **request}.items() if value is not None}
    check_keywords(given, KEYWORDS, "a request")
    for name in _CALLABLES:
        if name in given and not callable(given[name]):
            raise UsageError(f"{name}: {given[name]!r} is not a function")
    for name in _FLAGS:
        if not isinstance(given.get(name, False), bool):
            raise UsageError(f"{name}: {given[name]!r} is neither True nor False")
    if not hasattr(given.get("within"), "fileno") and "within" in given:
        raise UsageError(f"within: {given['within']!r} is not a lease")
    if given.get("ids", "index") not in ("index", "uuid"):
        raise UsageError(f"ids: {given['ids']!r} is neither 'index' nor 'uuid'")
    if given.get("mem") == "auto":
        given.setdefault("job", script_type())
    values = {name: convert(name, given[name]) for name, convert in _CONVERTERS.items() if name in given}
    for name in ("mem", "min_mem"):
        if name in values:
            _explain_decimal_size(name, values[name])
    options = {name: given[name] for name in _OPTIONS if name in given}
    options["command"] = clean(str(given["command"])) if "command" in given else command_line()
    return ParsedRequest(values, **options)
