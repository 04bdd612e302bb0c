"""The table of operators: which function computes which one, in which versions.

A function takes the inputs in order, None for one that is left out, and attributes by
their names. It computes with NumPy's functions, on arrays and on traced values, and
returns the output, or a tuple of several.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from eqsat.support import EqsatError
from eqsat.terms import Traced

Handler = Callable[..., Any]
LATEST = 28
"""The opset of the domain ``ai.onnx`` up to which the table was written."""
EARLIEST = 7
MOST_BYTES = 2**31
"""Of an array that an operator makes of sizes alone."""


class Implementation(NamedTuple):
    """A function for the versions of an operator from ``since`` to ``until``."""

    function: Handler
    since: int
    until: int
    on_host: bool
    drawn: bool
    parameters: frozenset[str]
    """Attributes that it takes, and what it asks for by name: ``call``."""


OPERATORS: dict[tuple[str, str], list[Implementation]] = {}
"""By domain and name."""


def operator(
    *names: str,
    since: int = 1,
    until: int = 10**6,
    domain: str = "",
    on_host: bool = False,
    drawn: bool = False,
) -> Callable[[Handler], Handler]:
    """Enter a function under ``names``. ``on_host``: NumPy runs it, since its results
    depend on values in a way that no program has; ``drawn``: on chance."""

    def enter(function: Handler) -> Handler:
        kinds = inspect.signature(function).parameters.values()
        asked = frozenset(p.name for p in kinds if p.kind is p.KEYWORD_ONLY)
        for name in names:
            row = Implementation(function, since, until, on_host or drawn, drawn, asked)
            OPERATORS.setdefault((domain, name), []).append(row)
        return function

    return enter


def enter_all(table: dict[str, Handler], **versions: Any) -> None:
    """Enter each function of ``table`` under its name."""
    for name, function in table.items():
        operator(name, **versions)(function)


def entry_for(domain: str, name: str, version: int) -> Implementation | None:
    """The function for the version of an operator that began with opset ``version``."""
    for row in OPERATORS.get((domain, name), ()):
        if row.since <= version <= row.until:
            return row
    return None


class UnknownValueError(EqsatError):
    """An operator needs the value of an input, which is not known while tracing."""

    def __init__(self, value: Any) -> None:
        super().__init__("the value of an input is not known while tracing")
        self.value = value
        self.node = ""
        """The node, as messages name it."""


def known(value: Any) -> Any:
    """``value``, an array of NumPy; raises :class:`UnknownValueError` for a traced
    one."""
    if isinstance(value, Traced):
        raise UnknownValueError(value)
    return value


def host_array(value: Any) -> Any:
    """``value``, an array of NumPy; raises :class:`EqsatError` for a traced one, so
    that the node runs on the host."""
    if isinstance(value, Traced):
        raise EqsatError("NumPy computes it")
    return value


def ints(value: Any) -> list[int] | None:
    """Integers that must be known while tracing; None for an input that is left out."""
    if value is None:
        return None
    return [int(v) for v in np.asarray(known(value)).reshape(-1)]


def number(value: Any) -> Any:
    """One number that must be known while tracing; None for an input left out."""
    return None if value is None else np.asarray(known(value)).reshape(-1)[0].item()


def is_known(*values: Any) -> bool:
    """Whether none of the values is traced, nested in lists as they may be."""
    return not any(
        isinstance(v, Traced) or (isinstance(v, (list, tuple)) and not is_known(*v))
        for v in values
    )


def sized(shape: Iterable[int], dtype: Any) -> tuple[int, ...]:
    """``shape``, of an array that an operator may make. Raises :class:`EqsatError` for
    sizes below 0 and arrays of more than ``MOST_BYTES``."""
    sizes = tuple(int(n) for n in shape)
    size = np.dtype(dtype).itemsize
    for n in sizes:
        size *= n
    if min(sizes, default=0) < 0 or size > MOST_BYTES or len(sizes) > 64:
        raise EqsatError(
            f"an array of shape {sizes} and {np.dtype(dtype)} is not made: the most is "
            f"{MOST_BYTES} bytes"
        )
    return sizes


def kind_of(x: Any) -> str:
    """``b``, ``i``, ``u``, ``f``, ``c`` or ``O``: what kind of numbers an array
    holds."""
    kind = str(np.dtype(x.dtype).kind)
    if kind == "V":  # of ml_dtypes
        name = np.dtype(x.dtype).name
        return "u" if name.startswith("uint") else "i" if "int" in name else "f"
    return kind
