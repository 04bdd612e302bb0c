"""``x[mask]`` for a mask that is not known while tracing.

How many elements it has depends on data, so it is made when the program has ended. What
is computed of them one by one can also be written back under the same mask:
``x[mask] *= 2``, ``y[mask] = np.log(x[mask])``. Sums, means and their like are those of
the array where the mask is true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.at_end import (
    COMPARISONS,
    REDUCED_BESIDE,
    SYMBOLS,
    UNARY,
    AtEnd,
    EndStep,
)
from eqsat.numpy_api.operands import name_of
from eqsat.ops import rank
from eqsat.support import DTypeError, at, caller_line
from eqsat.terms import Traced


def where_under(mask: Any, new: Any, x: Any) -> Any:
    """``new`` where the mask of the first axes of ``x`` is true, else ``x``."""
    rest = len(x.shape) - len(mask.shape)
    return ops.where(ops.reshape(mask, (*mask.shape, *(1,) * rest)), new, x)


class Selected(AtEnd):
    """The elements of an array under a traced mask of its first axes."""

    __slots__ = ("mask", "values")

    def __init__(self, values: Any, mask: Any) -> None:
        super().__init__(EndStep("x[mask]", operator.getitem, (values, mask)))
        self.values = values
        """Computed for all elements, those that are not selected too."""
        self.mask = mask

    def written(self, x: Any, mask: Any) -> Any:
        """``x`` once ``x[mask]`` is these elements."""
        same = isinstance(mask, Traced) and self._is_under(mask)
        if not same or x.shape != self.values.shape:
            self.refuse("a write to other places")
        return where_under(mask, ops.cast(self.values, x.dtype), x)

    def _is_under(self, mask: Any) -> bool:
        return mask.term is self.mask.term  # equal terms are the same

    def _with(self, how: str, function: Callable[..., Any], *values: Any) -> Any:
        """A function of elements, of these and of others."""
        mine = [self._beside(how, v) for v in values]
        if any(v is NotImplemented for v in mine):
            return NotImplemented
        found = function(*mine)
        if isinstance(found, tuple):
            return tuple(Selected(f, self.mask) for f in found)
        return Selected(found, self.mask)

    def _beside(self, how: str, value: Any) -> Any:
        if isinstance(value, Selected):
            if not self._is_under(value.mask):
                self.refuse(f"{how} beside another mask")
            return value.values
        rest = len(self.values.shape) - len(self.mask.shape)
        if not isinstance(value, (Traced, np.ndarray, np.generic, int, float)):
            return NotImplemented
        axes = value.ndim if isinstance(value, np.ndarray) else rank(value) or 0
        return value if axes <= rest else self.refuse(f"{how} beside an array")

    def _reduced(self, name: str, axis: Any = None, *more: Any, **named: Any) -> Any:
        """A reduction of the elements, of all of them or along their axis: one of the
        array where the mask is true."""
        function, masked = getattr(np, name), len(self.mask.shape)
        rest = len(self.values.shape) - masked
        first = axis is None or (type(axis) is int and axis in (0, -1 - rest))
        if not first or named.get("out") is not None or named.get("keepdims"):
            self.refuse(f".{name} along other axes or into an array")
        where = ops.reshape(self.mask, (*self.mask.shape, *(1,) * rest))
        axes = None if axis is None else tuple(range(masked))
        return function(self.values, axes, *more, where=where, **named)

    def given_to(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        name = name_of(function).removeprefix("np.")
        mine = bool(args) and args[0] is self and "where" not in kwargs
        if name in REDUCED_BESIDE and mine:
            return self._reduced(name, *args[1:], **kwargs)
        return super().given_to(function, args, kwargs)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        name = name_of(ufunc)
        if method != "__call__" or ufunc.signature is not None or kwargs.get("out"):
            self.refuse(name if method == "__call__" else f"{name}.{method}")
        return self._with(name, lambda *values: ufunc(*values, **kwargs), *inputs)


def _reduction(name: str) -> Callable[..., Any]:
    def reduction(self: Selected, *args: Any, **kwargs: Any) -> Any:
        return self._reduced(name, *args, **kwargs)

    return reduction


for _name in REDUCED_BESIDE:
    setattr(Selected, _name, _reduction(_name))


def _in_place(name: str, symbol: str) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")

    def changed(self: Selected, other: Any) -> Any:
        found = self._with(f"{symbol}=", function, self, other)
        if not isinstance(found, Selected):
            return found
        mine, new = self.values.dtype, found.values.dtype
        if not np.can_cast(new, mine, "same_kind"):
            raise DTypeError(
                f"x[mask] {symbol}= y: cannot write dtype {new} to an array of {mine}\n"
                f"  write y.astype({mine.name!r}){at(caller_line())}"
            )
        Selected.__init__(self, ops.cast(found.values, mine), self.mask)
        return self  # another name of the elements sees it

    return changed


def _named(name: str, symbol: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = getattr(operator, f"__{name}__")

    def forward(self: Selected, *others: Any) -> Any:
        return self._with(symbol, function, self, *others)

    def reflected(self: Selected, other: Any) -> Any:
        return self._with(symbol, function, other, self)

    return forward, reflected


for _name, _symbol in SYMBOLS.items():
    _forward, _reflected = _named(_name, _symbol)
    setattr(Selected, f"__{_name}__", _forward)
    setattr(Selected, f"__r{_name}__", _reflected)
    setattr(Selected, f"__i{_name}__", _in_place(_name, _symbol))
for _name, _symbol in {**COMPARISONS, **UNARY}.items():
    setattr(Selected, f"__{_name}__", _named(_name, _symbol)[0])
