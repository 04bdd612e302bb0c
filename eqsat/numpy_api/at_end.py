"""Results whose shape depends on data: NumPy makes them when a program has ended.

``x[mask]``, ``np.nonzero(x)`` and their like have no place in a program, whose shapes
are fixed. They can be returned: the program computes what they are made of.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from eqsat import ops
from eqsat.numpy_api.operands import holds_traced, name_of, stacked
from eqsat.numpy_api.table import FUNCTIONS
from eqsat.ops import dtype_of, is_traced
from eqsat.support import (
    BoundsError,
    DTypeError,
    ShapeError,
    at,
    caller_line,
    untraceable,
)
from eqsat.terms import Traced, is_float

_OF_MASKS = "argwhere compress extract flatnonzero nonzero".split()
"""Functions whose first argument is true or false."""
_OF_VALUES = (
    "intersect1d setdiff1d setxor1d trim_zeros union1d unique unique_all unique_counts "
    "unique_inverse unique_values"
).split()
"""Functions that ask which elements are equal."""
REDUCED_BESIDE = frozenset("all any mean prod std sum var".split())
"""Reductions that take a mask as ``where``."""


@dataclass(frozen=True, eq=False)
class EndStep:
    """A call of NumPy when the program has ended. Its arguments may be nested in lists,
    tuples and dicts, and may be other steps."""

    name: str
    """How users write it."""
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    decisions: tuple[Any, ...] = ()
    """What the program computes too, so that it keeps the values that were written."""

    def of(self, change: Callable[[Any], Any]) -> EndStep:
        """The same step of other operands."""
        parts = (self.args, dict(self.kwargs), self.decisions)
        args, kwargs, decisions = replaced_in(parts, change)
        return EndStep(self.name, self.function, args, kwargs, decisions)


def replaced_in(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value``, nested as it may be in lists, tuples and dicts, with ``change`` done
    to what lies in it."""
    if type(value) in (list, tuple):
        return type(value)(replaced_in(v, change) for v in value)
    if type(value) is dict:
        return {k: replaced_in(v, change) for k, v in value.items()}
    return change(value)


class AtEnd:
    """A value that is made when the program has ended. It can be returned, indexed and
    returned, and nothing else."""

    __slots__ = ("step",)

    def __init__(self, step: EndStep) -> None:
        self.step = step

    def __getitem__(self, key: Any) -> AtEnd:
        if holds_traced(key) or isinstance(key, (AtEnd, np.ndarray)):
            self.refuse("a traced index")
        return AtEnd(EndStep(self.step.name, operator.getitem, (self.step, key)))

    def refuse(self, what: str) -> NoReturn:
        """Raise :class:`TraceError` for what a function asks of the value: an
        operation, or words with a place for the name of the value."""
        name = self.step.name
        said = what.format(name) if "{}" in what else f"{what} of {name}"
        raise untraceable(
            f"{said} cannot be traced: its shape depends on data\n"
            f"  return it and go on outside of the function{_advice(name, what)}"
            f"{at(caller_line())}"
        )

    def __repr__(self) -> str:
        return f"AtEnd({self.step.name})"

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        self.refuse(name_of(ufunc))

    def given_to(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """The result of a function of NumPy, of which this value is an argument."""
        self.refuse(name_of(function))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, *given: Any
    ) -> Any:
        return self.given_to(function, *given)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no {name!r}")
        self.refuse(f".{name}")

    def __iter__(self) -> Iterator[Any]:
        self.refuse("iteration")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.refuse("a write to a part")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self.refuse("the data")

    def __hash__(self) -> int:
        self.refuse("{} as an argument of a jitted function or a key")


def _refusing(what: str) -> Callable[..., Any]:
    def refuse(self: AtEnd, *others: Any) -> NoReturn:
        self.refuse(what)

    return refuse


SYMBOLS = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//"},
    **{"mod": "%", "pow": "**", "and": "&", "or": "|", "xor": "^"},
}
"""Operators that have a reflected form, by their names."""
_MORE = {"matmul": "@", "lshift": "<<", "rshift": ">>", "divmod": "divmod()"}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
UNARY = {"neg": "-", "pos": "+", "abs": "abs()", "invert": "~"}
_ASKING = {
    **{"len": "len()", "bool": "the truth value", "float": "float()", "int": "int()"},
    **{"index": "the index value", "contains": "`in`", "complex": "complex()"},
}
for _name, _symbol in {**SYMBOLS, **_MORE, **COMPARISONS, **UNARY, **_ASKING}.items():
    setattr(AtEnd, f"__{_name}__", _refusing(_symbol))
    if _name in SYMBOLS or _name in _MORE:
        setattr(AtEnd, f"__r{_name}__", _refusing(_symbol))


def _advice(name: str, what: str) -> str:
    last = name.rpartition(".")[2]
    if last in _OF_VALUES:
        return ""
    asked = what.removeprefix("np.").removeprefix(".")
    if asked in REDUCED_BESIDE:
        return f", or write np.{asked}(x, where=mask)"
    if asked in ("max", "min"):
        return f", or write np.{asked}(x, where=mask, initial=...)"
    if asked in ("len()", "shape", "size"):
        return ", or count by mask.sum()"
    return ", or keep the shape: np.where(mask, x, 0)"


def as_mask(key: Any, shape: Sequence[int]) -> Any:
    """``key``, or the mask of the first axes of ``shape`` whose places it is: what
    ``np.nonzero`` and its like have found."""
    parts = key if isinstance(key, tuple) else (key,)
    if not parts or any(type(p) is not AtEnd for p in parts):
        return key
    steps = [p.step for p in parts]
    first = steps[0]
    if first.function is operator.getitem:
        first = first.args[0]
        if any(s.args != (first, i) for i, s in enumerate(steps)):
            return key
    if first.function not in (np.nonzero, np.where, np.flatnonzero):
        return key
    mask = first.args[0]
    fits = len(parts) == len(mask.shape) and mask.shape == shape[: len(parts)]
    return mask if fits else key


# -- the functions ---------------------------------------------------------------------


def at_end(
    name: str, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """``function(*args, **kwargs)``, made when the program has ended; now where all
    values are known.

    Raises :class:`ShapeError`, :class:`BoundsError` and :class:`DTypeError` for what
    NumPy refuses whatever the values are.
    """
    step = EndStep(name, function, tuple(args), kwargs)
    traced = operands(step)
    unknown = (v for v in traced if not getattr(v, "has_value", False))
    return next(unknown, traced[0]).made_at_end(step)


def _gathered(value: Any) -> Any:
    lists = isinstance(value, (list, tuple)) and holds_traced(value)
    return stacked(value) if lists else value


def operands(step: EndStep) -> list[Any]:
    """The traced values that a step is made of."""
    found: list[Any] = []

    def note(value: Any) -> Any:
        if isinstance(value, Traced):
            found.append(value)
        elif isinstance(value, EndStep):
            found.extend(operands(value))

    step.of(note)
    return found


def announced(step: EndStep) -> Any:
    """What stands for the result of a step: one value, or a tuple of them as NumPy
    gives."""
    step = decided(step)
    found = None if step.function is operator.getitem else _tried(step)
    if not isinstance(found, tuple):
        return AtEnd(step)
    parts = [
        AtEnd(EndStep(step.name, operator.getitem, (step, i)))
        for i in range(len(found))
    ]
    kind: Any = type(found)
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def _tried(step: EndStep) -> Any:
    """The result for zeros."""
    tried = step.of(_zeros)
    line = at(caller_line())
    try:
        return tried.function(*tried.args, **tried.kwargs)
    except IndexError as error:
        raise BoundsError(f"{step.name}: {error}{line}") from error
    except ValueError as error:
        raise ShapeError(f"{step.name}: {error}{line}") from error
    except TypeError as error:
        raise DTypeError(f"{step.name}: {error}{line}") from error


def _zeros(value: Any) -> Any:
    if not isinstance(value, Traced):
        return value
    x: Any = value
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def _decision(x: Any) -> Any:
    """A decision upon none of the elements of ``x``, so that its values are those that
    were written; None where they are."""
    if not is_float(x.dtype):
        return None
    return ops.less(ops.ravel(x)[:0], 0)


def _of_mask(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def handler(condition: Any, *args: Any, **kwargs: Any) -> Any:
        args = (truth(condition), *map(_gathered, args))
        return at_end(f"np.{name}", function, args, kwargs)

    return handler


def truth(condition: Any) -> Any:
    """Where a traced condition is not 0."""
    condition = _gathered(condition)
    if is_traced(condition) and dtype_of(condition) != np.dtype(bool):
        return ops.not_equal(condition, 0)
    return condition


def _of_values(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def handler(*args: Any, **kwargs: Any) -> Any:
        named = {k: _gathered(v) for k, v in kwargs.items()}
        return at_end(f"np.{name}", function, map(_gathered, args), named)

    return handler


FUNCTIONS.update({getattr(np, n): _of_mask(n) for n in _OF_MASKS})
FUNCTIONS.update({getattr(np, n): _of_values(n) for n in _OF_VALUES if hasattr(np, n)})


def decided(step: EndStep) -> EndStep:
    """The step, with decisions upon what it compares."""
    if step.name.rpartition(".")[2] not in _OF_VALUES:
        return step
    found = (_decision(v) for v in operands(step))
    kept = tuple(d for d in found if d is not None)
    return EndStep(step.name, step.function, step.args, step.kwargs, kept)
