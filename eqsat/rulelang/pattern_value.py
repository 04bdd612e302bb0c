"""Values that build patterns: what a rule's function is called with.

They carry the operators, methods and functions of a traced array. Where the signature
fixes the number of axes, their shape is a tuple of sizes, which may be expressions over
named axes; then they take what a traced array takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api import Operators, extent_of, getitem
from eqsat.rulelang.expression import Expr
from eqsat.rulelang.fact import asked, expression_of
from eqsat.rulelang.pattern import Num, Pattern, PatternNode, show
from eqsat.rulelang.pattern_shape import dtype_of_pattern, is_fixed, shape_of, tail_of
from eqsat.support import RuleError
from eqsat.terms import Op

_FILLED: dict[Any, float | None] = {np.zeros: 0.0, np.ones: 1.0, np.empty: 0.0}
"""What makes arrays of one value, asked for by ``like=``."""
NAME_AXES = "name all axes in the signature in place of '...'"


class PatternValue(Operators):
    """A pattern under construction, with the operators and methods of an array."""

    __slots__ = ("pattern",)

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def lift(
        self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]
    ) -> PatternValue:
        parts = tuple(as_pattern(a) for a in args)
        first = shape_of(parts[0]) if parts else ()
        settled = op.settle(attrs, len(first) if is_fixed(first) else None)
        return PatternValue(PatternNode(op, parts, tuple(settled.values())))

    # -- what is known -----------------------------------------------------------------

    @property
    def shape(self) -> Any:
        """Sizes of the axes: a tuple where all are known, else what names those that
        are."""
        sizes = shape_of(self.pattern)
        return sizes if is_fixed(sizes) and None not in sizes else _Sizes(self)

    @property
    def ndim(self) -> int:
        """Number of axes. Raises :class:`RuleError` where it is not fixed."""
        sizes = shape_of(self.pattern)
        if not is_fixed(sizes):
            raise RuleError(
                f"the number of axes of {self} is not fixed: {NAME_AXES}, or write "
                f"negative axes and keepdims=True"
            )
        return len(sizes)

    @property
    def size(self) -> Any:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        """The dtype: one of NumPy's, or an expression that stands for it. Raises
        :class:`RuleError` where nothing is known."""
        found = dtype_of_pattern(self.pattern)
        if found is None:
            raise RuleError(f"the dtype of {self} is not known when the rule is built")
        return found

    def __len__(self) -> int:
        size = length_of(self)
        if isinstance(size, int):
            return size
        raise RuleError(
            f"len() of a pattern gives numbers alone; write {self}.shape[0]"
        )

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(length_of(self), int):
            raise RuleError(
                f"{self}: a rule cannot iterate over {length_of(self)} rows"
            )
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise RuleError(
            f"{self}: a rule cannot branch on the value of an array; write np.where, "
            f"or & and | for `and` and `or`"
        )

    def __repr__(self) -> str:
        return show(self.pattern)

    # -- parts and arrays of one value -------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if is_fixed(shape_of(self.pattern)):
            return getitem(self, key)
        first, *rest = key if isinstance(key, tuple) else (key,)
        tail = tail_of(shape_of(self.pattern))
        known = tail[len(tail) - len(rest) :] if len(rest) <= len(tail) else (None,)
        plain = first is Ellipsis and all(isinstance(k, slice) for k in rest)
        if not plain or None in known:
            raise RuleError(
                f"an index of {self}, whose number of axes is not fixed, is `...` and "
                f"then slices of axes that are named; or {NAME_AXES}"
            )
        rows = [extent_of(k, n, 0) for k, n in zip(rest, known, strict=True)]
        while rows and rows[0] == (0, known[-len(rows)], 1):
            del rows[0]
        return ops.window(self, *zip(*rows, strict=True)) if rows else self

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if function in _FILLED:
            return self._filled(_FILLED[function], *args, **kwargs)
        if function is np.full:
            return self._full(*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)

    def _filled(self, value: Any, shape: Any, dtype: Any = float) -> Any:
        return self._full(shape, value, dtype)

    def _full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
        dtype = np.asarray(fill_value).dtype if dtype is None else dtype
        return ops.full_like(self, fill_value, dtype, shape)


class AskedArray(PatternValue):
    """An array in ``where=``: comparisons of its sizes are conditions."""

    __slots__ = ()

    @property
    def shape(self) -> Any:
        """Sizes, to be compared."""
        return _AskedSizes(PatternValue(self.pattern).shape)

    @property
    def known_shape(self) -> Any:
        return PatternValue(self.pattern).shape

    @property
    def size(self) -> Any:
        return asked(PatternValue(self.pattern).size)

    def __getitem__(self, key: Any) -> Any:
        return PatternValue(self.pattern)[key]


class _AskedSizes:
    def __init__(self, sizes: Any) -> None:
        self.sizes = sizes

    def __getitem__(self, i: Any) -> Any:
        found = self.sizes[i]
        return tuple(map(asked, found)) if isinstance(i, slice) else asked(found)

    def __iter__(self) -> Iterator[Any]:
        return map(asked, self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)


class _Sizes:
    """The sizes of a pattern of which some are not known."""

    def __init__(self, value: PatternValue) -> None:
        self.value = value

    def __getitem__(self, i: Any) -> Any:
        sizes = shape_of(self.value.pattern)
        tail = tail_of(sizes)
        if isinstance(i, slice):
            counted = range(-len(tail), 0)[i] if (i.start or 0) < 0 else ()
            if is_fixed(sizes):
                counted = range(-len(tail), 0)[i]
            if counted == () or None in (tail[a] for a in counted):
                raise self._unknown(i.start)
            return tuple(tail[a] for a in counted)
        inside = -len(tail) <= i < (len(tail) if is_fixed(sizes) else 0)
        if not inside or tail[i] is None:
            raise self._unknown(i)
        return tail[i]

    def __iter__(self) -> Iterator[Any]:
        self.value.ndim  # noqa: B018  (raises where it is not fixed)
        return iter([self[i] for i in range(self.value.ndim)])

    def __len__(self) -> int:
        return self.value.ndim

    def _unknown(self, i: Any) -> RuleError:
        sizes = shape_of(self.value.pattern)
        spelt = " ".join("?" if s is None else str(s) for s in sizes)
        return RuleError(
            f"axis {i} of {self.value}, whose axes are {spelt or '(scalar)'}, has no "
            f"known size; name the axis in the signature, and axes that meet alike"
        )


def length_of(value: Any) -> Any:
    """``len`` that also gives the size of a pattern's first axis."""
    return value.shape[0] if isinstance(value, PatternValue) else len(value)


def with_lengths(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` whose ``len`` is :func:`length_of`; Python's gives ints alone."""
    if (
        not isinstance(function, FunctionType)
        or "len" not in function.__code__.co_names
    ):
        return function
    known = {"len": length_of, **function.__globals__}
    code, closure = function.__code__, function.__closure__
    made = FunctionType(code, known, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def as_pattern(value: Any) -> Pattern:
    """A pattern from what a rule's function handles: pattern values, numbers, bools,
    expressions."""
    if isinstance(value, PatternValue):
        return value.pattern
    value = expression_of(value)
    if isinstance(value, Expr) and value.kind in ("int", "float"):
        return Num(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, np.bool_)):
        return PatternNode(ops.cast_op, (Num(float(value)),), ("bool",))
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise RuleError(
            f"a rule may use its parameters and numbers, not {type(value).__name__!r} "
            f"{value!r:.60}"
        )
    if math.isnan(value):
        raise RuleError("a rule may not use NaN, which equals nothing")
    return Num(float(value))
