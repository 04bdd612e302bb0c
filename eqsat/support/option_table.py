"""The table of all options: name, type, default, environment variable, one sentence.

An option of one function is a field of :class:`eqsat.support.options.Options`; the
others are of the whole process and are set by their variable alone.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.support.errors import OptionError, OptionWarning, nearest, warn

NUMERICS = ("exact", "reassociate", "approximate", "fast")
"""Numerics classes, from the strictest: an option admits its class and those before it.
"""
KINDS = ("map", "row", "contract", "attention")
"""Kinds of kernels of several ops."""
PREFIX = "EQSAT_"


class _Wrong(ValueError):
    """A value that an option cannot take, and what is expected instead."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(expected)
        self.value, self.expected = value, expected


@dataclass(frozen=True)
class Kind:
    """A type of options. ``read`` makes a value of the text of a variable, ``check``
    gives a value as it is kept; both raise for one that is wrong."""

    name: str
    read: Callable[[str], Any]
    check: Callable[[Any], Any]
    empty: bool = False
    """Whether an empty text is read; if not, it counts as not given."""


@dataclass(frozen=True)
class Option:
    """One option."""

    name: str
    kind: Kind
    default: Any
    about: str
    """One sentence."""

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def is_given(self) -> bool:
        """Whether the environment gives it."""
        text = os.environ.get(self.variable)
        return text is not None and bool(text or self.kind.empty)

    def from_environment(self) -> Any:
        """Its value by the environment, else its default. Raises
        :class:`OptionError`."""
        text = os.environ.get(self.variable)
        if text is None or not (text or self.kind.empty):
            return self.default
        try:
            return self.kind.check(self.kind.read(text))
        except _Wrong as wrong:
            message = f"{self.variable}={text!r}: expected {wrong.expected}"
            raise OptionError(message) from None

    def checked(self, value: Any) -> Any:
        """``value`` as it is kept. Raises :class:`OptionError`."""
        try:
            return self.kind.check(value)
        except _Wrong as wrong:
            message = f"{self.name}={wrong.value!r}: expected {wrong.expected}"
            raise OptionError(message) from None


class FrozenDict(dict[str, Any]):
    """A dict that does not change, so that it has a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)

    def _refuse(self, *args: Any, **named: Any) -> Any:
        raise TypeError("options do not change; dataclasses.replace makes others")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


# -- types -----------------------------------------------------------------------------


def _one_of(value: Any, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else ""
        raise _Wrong(value, f"one of {', '.join(map(repr, allowed))}{near}")
    return value


def _choice(*allowed: str) -> Kind:
    return Kind(" ".join(allowed), str, lambda value: _one_of(value, allowed))


_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True)
_WORDS |= dict.fromkeys(("0", "false", "no", "off"), False)


def _read_flag(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise _Wrong(text, "1 or 0, true or false, yes or no, on or off")
    return _WORDS[text.lower()]


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(value, "True or False")
    return value


def _whole_from(least: int) -> Kind:
    expected = f"a whole number from {least} on"

    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise _Wrong(text, expected) from None

    def check(value: Any) -> int:
        try:
            found = operator.index(value)
        except TypeError:
            raise _Wrong(value, expected) from None
        if isinstance(value, bool) or found < least:
            raise _Wrong(value, expected)
        return found

    return Kind("int", read, check, empty=True)


def _read_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _Wrong(text, "a number that is not negative") from None


def _check_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise _Wrong(value, "a number that is not negative")
    return value


def _names(what: str, allowed: Collection[str] = ()) -> Kind:
    def read(text: str) -> frozenset[str]:
        return frozenset(w for w in map(str.strip, text.split(",")) if w)

    def check(value: Any) -> frozenset[str]:
        if isinstance(value, str):
            raise _Wrong(value, f"a set of {what}, got a string")
        try:
            found = frozenset(value)
        except TypeError:
            raise _Wrong(value, f"a set of {what}") from None
        for name in sorted(found, key=str):
            if allowed:
                _one_of(name, allowed)
            elif not isinstance(name, str):
                raise _Wrong(name, f"a set of {what}")
        return found

    return Kind("names", read, check, empty=True)


def _check_text(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and value):
        raise _Wrong(value, "a name, or None")
    return value


def _check_path(value: Any) -> str | None:
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if found is not None and not (isinstance(found, str) and found):
        raise _Wrong(value, "the path of a file, or None")
    return found


def _read_backends(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _Wrong(text, 'JSON, such as {"mlx": {"threads": 1}}') from None


def _check_backends(value: Any) -> Mapping[str, Mapping[str, Any]]:
    """Options by the name of a backend; those in them are checked."""
    if not isinstance(value, Mapping):
        raise _Wrong(value, "options by the name of a backend")
    found: dict[Any, Mapping[str, Any]] = {}
    for backend, changes in value.items():
        if not isinstance(changes, Mapping):
            raise _Wrong(value, "options by the name of a backend")
        where = f"backends[{backend!r}]: "
        known = {n: o for n, o in OF_FUNCTION.items() if n not in _OUTERMOST}
        refuse_unknown(changes, known, where)
        try:
            found[backend] = FrozenDict(
                {n: known[n].checked(v) for n, v in changes.items()}
            )
        except OptionError as error:
            raise OptionError(f"{where}{error}") from None
    return FrozenDict(found)


_FLAG = Kind("bool", _read_flag, _check_flag)
_SECONDS = Kind("float", _read_seconds, _check_seconds, empty=True)
_COUNT, _FROM_ONE = _whole_from(0), _whole_from(1)
_TEXT = Kind("text", str, _check_text)
_PATH = Kind("path", str, _check_path)
_BACKENDS = Kind("options", _read_backends, _check_backends)
_OUTERMOST = ("backend", "backends", "lazy_limit")
"""Options that cannot differ for a backend."""


_LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


# -- the table -------------------------------------------------------------------------


def _table(*options: Option) -> dict[str, Option]:
    return {o.name: o for o in options}


OF_FUNCTION = _table(
    Option(
        *("numerics", _choice(*NUMERICS), "reassociate"),
        "The loosest class of rules to use.",
    ),
    Option(
        *("deadline_s", _SECONDS, 8.0),
        "How long a compile may take (s), tracing and machine code included; then the "
        "best program so far is used, and NumPy runs what is not machine code yet.",
    ),
    Option(
        *("max_nodes", _COUNT, 40_000),
        "How large one e-graph may get (e-nodes).",
    ),
    Option(
        *("extract", _choice("greedy", "exact"), "greedy"),
        "How the program is chosen; `exact` solves an integer program and is for small "
        "graphs.",
    ),
    Option(
        *("regions", _FLAG, True),
        "Whether long programs are split, and each distinct piece optimised once.",
    ),
    Option(
        *("fusion", _FLAG, True),
        "Whether a kernel may hold more than one operation.",
    ),
    Option(
        *("disable", _names("rule names"), frozenset()),
        "Names of rules and of rule files, such as `attention.py`, to leave out.",
    ),
    Option(
        *("kinds", _names("kinds of kernels", KINDS), frozenset(KINDS)),
        "Kinds of kernels that may hold several operations.",
    ),
    Option(
        *("least_elements", _COUNT, 0),
        "Size of the domain from which operations are fused.",
    ),
    Option(
        *("threads", _COUNT, 0),
        "Threads of a program of `native`; 0 for as many as the process may use.",
    ),
    Option(
        *("memory_limit", _COUNT, 0),
        "Most memory of a call, workspace and results (bytes); 0 for no limit.",
    ),
    Option(
        *("backend", _TEXT, None),
        "The backend of functions that name none; without it, the arguments choose.",
    ),
    Option(
        *("backends", _BACKENDS, FrozenDict()),
        'Options that differ for a backend: `{"mlx": {"least_elements": 4096}}`; JSON '
        "in the variable.",
    ),
    Option(
        *("cache", _FLAG, True),
        "Whether programs and machine code are kept on disk and found there.",
    ),
    Option(
        *("log", _names("what to log", ("compiles",)), frozenset()),
        "What is printed on stderr: `compiles`, each compile and its cause.",
    ),
    Option(
        *("progress", _FLAG, True),
        "Whether a compile of more than a second shows a line on a terminal.",
    ),
    Option(
        *("lazy_limit", _FROM_ONE, 840),
        "Operations of lazy arrays that become one program; more are computed in "
        "parts.",
    ),
    Option(
        *("stats", _FLAG, False),
        "Whether calls are counted and timed for `eq.stats()` and `fn.stats()`.",
    ),
    Option(
        *("adaptive", _FLAG, False),
        "Whether programs are priced again while they run, by what their kernels take.",
    ),
    Option(
        *("trace", _PATH, None),
        "A file to which calls, kernels and phases of compiling (tracing, the search, "
        "lowering, machine code) are written, for Perfetto.",
    ),
)
"""Options of a function, by name."""

OF_PROCESS = _table(
    Option(
        *("cache_dir", _TEXT, None),
        "The folder of the disk cache; by default the user's.",
    ),
    Option(
        *("cache_bytes", _COUNT, 1 << 32),
        "How large the disk cache may grow (bytes).",
    ),
    Option(
        *("config_dir", _TEXT, None),
        "The folder of what `eqsat calibrate` measured; by default the user's.",
    ),
    Option(
        *("max_programs", _FROM_ONE, 4096),
        "How many programs all functions of the process keep; each takes 100 to 300 "
        "KB.",
    ),
    Option(
        *("verify", _FLAG, False),
        "Whether what one stage hands to the next is verified; read once.",
    ),
    Option(
        *("cpu", _choice("native", "generic", *_LEVELS), "native"),
        "The processor that machine code is for.",
    ),
    Option(
        *("products", _choice("best", "own", "blas"), "best"),
        "Who computes products of matrices: code of eqsat's `own`, `blas`, or the "
        "`best` of both.",
    ),
)
"""Options of the process, by name."""

TABLE: Mapping[str, Option] = OF_FUNCTION | OF_PROCESS
"""Every option, by name."""


def setting(name: str) -> Any:
    """The value of an option of the process. Raises :class:`OptionError`."""
    return OF_PROCESS[name].from_environment()


def refuse_unknown(
    names: Collection[str], known: Collection[str], where: str = "", more: str = ""
) -> None:
    """Raise :class:`OptionError` for the first of ``names`` that is no option, with
    ``more`` at the end of its message."""
    for name in names:
        if name in known:
            continue
        if name in OF_PROCESS:
            raise OptionError(
                f"{where}{name!r} is an option of the whole process; set "
                f"{OF_PROCESS[name].variable}"
            )
        there = f"; there are {', '.join(sorted(known))}"
        if name in OF_FUNCTION and name not in _OUTERMOST:
            there = f"; options=eq.Options({name}=…) has it"
        there = nearest(name, known) or there
        raise OptionError(f"{where}no option {name!r}{there}{more}")


def unknown_variables() -> Iterator[tuple[str, str]]:
    """Variables of the environment that look like options and are none, and what to
    say of the nearest one."""
    known = {o.variable for o in TABLE.values()}
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            yield name, nearest(name, known)


_told: set[str] = set()


def warn_of_unknown_variables() -> None:
    """Warn once of each variable that looks like an option and is none."""
    for name, near in unknown_variables():
        if name not in _told:
            _told.add(name)
            warn(f"eqsat: there is no option {name}{near}", OptionWarning)
