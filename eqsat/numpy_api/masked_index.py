"""``x[mask]`` for a mask that is not known while tracing.

How many elements it has depends on data. What is computed of them one by one can be
written back under the same mask: ``x[mask] *= 2``, ``y[mask] = np.log(x[mask])``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from eqsat import ops
from eqsat.ops import rank
from eqsat.support import TraceError, at, caller_line
from eqsat.terms import Traced


def where_under(mask: Any, new: Any, x: Any) -> Any:
    """``new`` where the mask of the first axes of ``x`` is true, else ``x``."""
    rest = len(x.shape) - len(mask.shape)
    return ops.where(ops.reshape(mask, (*mask.shape, *(1,) * rest)), new, x)


class Selected:
    """The elements of an array under a traced mask of its first axes."""

    __slots__ = ("line", "mask", "values")

    def __init__(self, values: Any, mask: Any, line: str | None = None) -> None:
        self.values = values
        """Computed for all elements, those that are not selected too."""
        self.mask = mask
        self.line = at(caller_line()) if line is None else line
        """Where they were selected."""

    def written(self, x: Any, mask: Any) -> Any:
        """``x`` once ``x[mask]`` is these elements."""
        same = isinstance(mask, Traced) and self._is_under(mask)
        if not same or x.shape != self.values.shape:
            self._refuse()
        return where_under(mask, ops.cast(self.values, x.dtype), x)

    def _is_under(self, mask: Any) -> bool:
        return mask.term is self.mask.term  # equal terms are the same

    def _with(self, function: Callable[..., Any], *values: Any) -> Any:
        """A function of elements, of these and of others."""
        mine = [self._beside(v) for v in values]
        if any(v is NotImplemented for v in mine):
            return NotImplemented
        return Selected(function(*mine), self.mask, self.line)

    def _beside(self, value: Any) -> Any:
        if isinstance(value, Selected):
            if not self._is_under(value.mask):
                self._refuse()
            return value.values
        rest = len(self.values.shape) - len(self.mask.shape)
        if not isinstance(value, (Traced, np.ndarray, np.generic, int, float)):
            return NotImplemented
        axes = value.ndim if isinstance(value, np.ndarray) else rank(value) or 0
        return value if axes <= rest else self._refuse()

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if method != "__call__" or ufunc.signature is not None or kwargs.get("out"):
            self._refuse()
        return self._with(lambda *values: ufunc(*values, **kwargs), *inputs)

    def __array_function__(self, *args: Any) -> NoReturn:
        self._refuse()

    def _refuse(self, *args: Any) -> NoReturn:
        raise TraceError(
            "x[mask] cannot be traced: the shape of its result depends on data\n"
            "  use np.where(mask, x, 0), which keeps the shape, or index outside the "
            "traced function; x[mask] = y[mask] + 1 can be traced for one mask"
            f"{self.line}"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()

    def __iter__(self) -> Iterator[Any]:
        self._refuse()

    __len__ = __bool__ = __float__ = __int__ = __index__ = __array__ = _refuse
    __getitem__ = __setitem__ = __contains__ = __hash__ = _refuse


def _named(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = getattr(operator, name)

    def forward(self: Selected, *others: Any) -> Any:
        return self._with(function, self, *others)

    def reflected(self: Selected, other: Any) -> Any:
        return self._with(function, other, self)

    return forward, reflected


for _name in "add sub mul truediv floordiv mod pow and_ or_ xor".split():
    _short = _name.rstrip("_")
    _forward, _reflected = _named(_name)
    setattr(Selected, f"__{_short}__", _forward)
    setattr(Selected, f"__r{_short}__", _reflected)
for _name in "neg pos abs invert lt le gt ge eq ne".split():
    setattr(Selected, f"__{_name}__", _named(_name)[0])
