"""Errors of traced values, of the kinds that NumPy raises of the same calls.

A function may catch an error and go on otherwise, so ``except`` clauses must catch what
they catch with NumPy. Where a call fails, NumPy is asked about stand-ins of the same
shapes and dtypes. An error of what NumPy takes is ``noted``: it ends the trace.
"""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from numpy.exceptions import AxisError, DTypePromotionError
from numpy.linalg import LinAlgError

from eqsat.numpy_api import AtEnd, name_of
from eqsat.support import (
    AxisBoundsError,
    BoundsError,
    DTypeError,
    EqsatError,
    MatrixError,
    NoElementsError,
    PromotionError,
    RangeError,
    ReadOnlyError,
    ShapeError,
    TraceError,
    TraceIndexError,
    TraceValueError,
    at,
    caller_line,
    is_noted,
    noted,
)
from eqsat.terms import Traced

C = TypeVar("C", bound=type)
_ROOT = str(Path(__file__).parents[1])
_WATCHING = str(Path(_ROOT) / "support" / "watching.py")
_NUMPY = str(Path(np.__file__).parent)
_MOST_ELEMENTS = 1 << 20
"""Of all arrays of a call: of more, NumPy is asked about smaller ones."""
_FEW = 8
"""Longest axis that stands for itself then."""
_OURS = (
    *(AxisBoundsError, BoundsError, DTypeError, MatrixError, NoElementsError),
    *(RangeError, ShapeError, TraceError, TraceIndexError, TraceValueError),
)
_LOOKED_AT = (*_OURS, TypeError, ValueError, LookupError, ArithmeticError)
"""What may be of another kind than NumPy's error."""
_KINDS = (
    *(ValueError, TypeError, IndexError, KeyError, OverflowError, ZeroDivisionError),
    *(MemoryError, NotImplementedError, RuntimeError, AttributeError, AxisError),
    *(LinAlgError, DTypePromotionError),
)
"""What users may catch."""
_SPECIAL = frozenset(
    "add and bool complex contains divmod eq float floordiv ge getitem gt iadd iand "
    "ifloordiv ilshift imatmul imod imul index int invert ior ipow irshift isub iter "
    "itruediv ixor le len lshift lt matmul mod mul ne neg or pos pow radd rand rdivmod "
    "rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv rxor "
    "setitem sub truediv xor".split()
)
"""Special methods, without their underscores, whose errors are NumPy's."""
_BUILTIN: dict[str, Callable[..., Any]] = {
    **{"bool": bool, "complex": complex, "divmod": divmod, "float": float},
    **{"int": int, "iter": iter, "len": len},
}


_NEVER_READ = frozenset({"__init__", "__new__", "__repr__", "__del__"})
"""Special methods of an argument that NumPy does not call."""


class _NotAskedError(Exception):
    """NumPy cannot be asked about a call."""


class _TooLargeError(_NotAskedError):
    """The arrays of a call are too large."""


def of_numpys_kinds(cls: C) -> C:
    """``cls`` with methods of NumPy's array whose errors are of NumPy's kinds, where
    others than eqsat call them."""
    special = {f"__{n}__" for n in (*_SPECIAL, "array_function", "array_ufunc")}
    for name in dir(np.ndarray):
        method = getattr(cls, name, None)
        if name.startswith("_") and name not in special:
            continue
        if isinstance(method, FunctionType) and not _asks(method):
            setattr(cls, name, _asking(method, name))
    return cls


def calls_of_numpys_kinds(cls: C) -> C:
    """``cls``, whose objects are called in the place of the function of NumPy that is
    ``__wrapped__``, with errors of NumPy's kinds."""
    made: Any = cls
    made.__call__ = _asking(made.__call__, "__call__")
    return cls


def _asks(method: Any) -> bool:
    """Whether a method, or what it wraps, is of :func:`_asking`."""
    while method is not None and method.__code__ is not _CODE:
        method = getattr(method, "__wrapped__", None)
    return method is not None


def _asking(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(method)
    def asking(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except _LOOKED_AT as error:
            caller = _caller()
            if caller.startswith(_ROOT):
                raise
            told = _told(error, name, args, kwargs)
            if isinstance(told, EqsatError) and caller.startswith(_NUMPY):
                noted(told)  # NumPy's code may go another way with an array
            if told is error:
                raise
            for note in getattr(error, "__notes__", ()):
                told.add_note(note)
            raise told from error.__cause__

    return asking


_CODE = _asking(print, "").__code__
"""That of all methods that ask."""


def _caller() -> str:
    """The file from which a method is called."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename == _WATCHING and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename


def _told(error: Exception, name: str, args: Any, kwargs: Any) -> Exception:
    """``error``, or one of NumPy's kinds in its place."""
    is_ours = isinstance(error, EqsatError)
    if isinstance(error, ReadOnlyError) or getattr(error, "elsewhere", False):
        return error
    if is_noted(error) or (is_ours and not isinstance(error, _OURS)):
        return error
    try:
        what, theirs, depends = _theirs(name, args, kwargs)
    except _NotAskedError:
        return noted(error) if isinstance(error, TraceError) else error
    if depends and type(theirs) is not TypeError:
        agree = _kinds(type(theirs)) == _kinds(type(error))
        return noted(error) if isinstance(error, TraceError) and not agree else error
    if theirs is None:
        text = f"{name.strip('_')} of a traced array: {error}{at(caller_line())}"
        return noted(error if isinstance(error, EqsatError) else TraceError(text))
    wanted = _kinds(type(theirs))
    if wanted == _kinds(type(error)):
        return error
    usual = (
        DTypeError if isinstance(error, DTypeError) else TraceError,
        ShapeError if isinstance(error, ShapeError) else TraceValueError,
    )
    kinds = (*usual, BoundsError, RangeError, NoElementsError, PromotionError)
    for kind in (*kinds, MatrixError, AxisBoundsError):
        if _kinds(kind) == wanted:
            return kind(
                str(error) if is_ours else f"{what}: {theirs}{at(caller_line())}"
            )
    return noted(error) if isinstance(error, EqsatError) else error


def _theirs(name: str, args: Any, kwargs: Any) -> tuple[str, Exception | None, bool]:
    """A method's name as users write it, NumPy's error, and whether that may depend on
    the lengths of axes, and it was asked about others. Raises
    :class:`_NotAskedError`."""
    stands = _Stands()
    try:
        what, call = _call_of(name, args, kwargs, stands)
    except _TooLargeError:
        stands = _Stands({})
        what, call = _call_of(name, args, kwargs, stands)
    return what, _error_of(call), stands.names_lengths


def _kinds(cls: type) -> list[bool]:
    return [issubclass(cls, kind) for kind in _KINDS]


def _call_of(
    name: str, args: Any, kwargs: Any, stands: _Stands
) -> tuple[str, Callable[[], Any]]:
    """A method's name as users write it, and its call with stand-ins."""
    if name == "__array_function__":
        function, _, args, kwargs = args[1:]
    elif name == "__call__":
        function, args = args[0].__wrapped__, args[1:]
    elif name == "__array_ufunc__":
        function, args = getattr(args[1], args[2]), args[3:]
    else:
        function = None
    given = [stands.of(a) for a in args]
    named = {k: stands.of(v) for k, v in kwargs.items()}
    if function is not None:
        what = name_of(getattr(function, "__self__", function))
        return what, lambda: function(*given, **named)
    self, *others = given
    short = name.strip("_")
    if short in _BUILTIN:
        return f"{short}(x)", lambda: _BUILTIN[short](self, *others)
    if name.startswith("__r") and hasattr(operator, f"__{short[1:]}__"):
        of_two = getattr(operator, f"__{short[1:]}__")
        return f"y.{name}(x)", lambda: of_two(*others, self)
    if name == "__rdivmod__":
        return "divmod(y, x)", lambda: _BUILTIN["divmod"](*others, self)
    if name.startswith("__") and hasattr(operator, name):
        return f"x.{name}(...)", lambda: getattr(operator, name)(self, *others)
    return f"x.{name}", lambda: getattr(self, name)(*others, **named)


class _Stands:
    """Stand-ins of the arguments of a call. ``sizes``: where these are too large, the
    lengths that stand for those of their axes; None for arrays as large as they are."""

    def __init__(self, sizes: dict[int, int] | None = None) -> None:
        self.left, self.sizes = _MOST_ELEMENTS, sizes
        self.names_lengths = False
        """Whether a number beside smaller arrays may stand for a length of theirs."""

    def of(self, value: Any) -> Any:
        """``value`` with arrays of ones for traced arrays, and copies of others; zeros
        for integers, and 1 on the diagonal alone for square matrices."""
        if isinstance(value, (Traced, np.ndarray)):
            return self._array(value)
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)([self.of(v) for v in value])
        if isinstance(value, (int, np.integer)) and self.sizes is not None:
            self.names_lengths |= abs(int(value)) > _FEW
        if type(value) is dict:
            return {k: self.of(v) for k, v in value.items()}
        if type(value) is slice:
            return slice(*self.of((value.start, value.stop, value.step)))
        is_function = callable(value) and not isinstance(value, (type, np.ufunc))
        if isinstance(value, (AtEnd, Iterator)) or is_function or _has_own(type(value)):
            raise _NotAskedError  # what the user's does may not be done twice
        return value

    def _array(self, value: Any) -> Any:
        known = getattr(value, "known", None)
        shape = tuple(map(self._length, value.shape))
        self.left -= math.prod(shape)
        if self.left < 0:
            raise _TooLargeError
        if known is None and isinstance(value, Traced):
            return _ones(shape, value)
        array = value if known is None else known
        return np.array(array[tuple(map(slice, shape))], subok=True)

    def _length(self, n: int) -> int:
        """What stands for the length of an axis: another one for each."""
        if self.sizes is None or n <= _FEW:
            return n
        return self.sizes.setdefault(n, _FEW + 1 + len(self.sizes))


def _has_own(cls: type) -> bool:
    """Whether Python calls a user's special methods where NumPy reads an object."""
    return any(
        isinstance(value, FunctionType)
        and name.startswith("__")
        and name not in _NEVER_READ
        for base in cls.__mro__
        if base.__module__.partition(".")[0] not in ("builtins", "numpy")
        for name, value in vars(base).items()
    )


def _ones(shape: tuple[int, ...], x: Any) -> Any:
    made = np.zeros(shape, x.dtype)
    if made.dtype.kind not in "iu":
        is_square = made.ndim > 1 and made.shape[-1] == made.shape[-2]
        made[...] = np.eye(made.shape[-1]) if is_square else 1
    return made if getattr(x, "is_array", True) else made[()]


def _error_of(call: Callable[[], Any]) -> Exception | None:
    """What NumPy raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return error
    return None
