"""Operators and methods of an array, for values that record what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast, overload

import numpy as np

from eqsat import complex_numbers, ops
from eqsat.numpy_api.functions import call_function
from eqsat.numpy_api.operands import judged, operand
from eqsat.numpy_api.ufuncs import call_ufunc, power
from eqsat.ops import dtype_of
from eqsat.support import DTypeError, TraceError, an, at, caller_line, untraceable
from eqsat.terms import AttrVar, Traced, dtype_code

if TYPE_CHECKING:
    S = TypeVar("S")

    class ArrayMethod(Protocol):
        """A function that is a method of ``S`` and gives an ``S``."""

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
        @overload
        def __get__(self, of: None, owner: Any = None, /) -> Callable[..., Any]: ...
        @overload
        def __get__(self, of: S, owner: Any = None, /) -> Callable[..., S]: ...


def _forward(op: Callable[[Any, Any], Any]) -> ArrayMethod:
    """``x + y``."""

    def forward(self: Any, other: Any) -> Any:
        other = operand(other)
        return other if other is NotImplemented else op(self, other)

    return cast("ArrayMethod", forward)


def _reflected(op: Callable[[Any, Any], Any]) -> ArrayMethod:
    """``y + x``, asked of ``x``."""

    def reflected(self: Any, other: Any) -> Any:
        other = operand(other)
        return other if other is NotImplemented else op(other, self)

    return cast("ArrayMethod", reflected)


def _in_place(symbol: str, plain: Callable[..., Any]) -> ArrayMethod:
    """``x += y``, by what ``x + y`` is."""

    def change(self: Any, other: Any) -> Any:
        value = plain(self, other)
        return value if value is NotImplemented else self.changed(symbol, value)

    return cast("ArrayMethod", change)


def _comparison(symbol: str, op: Callable[[Any, Any], Any]) -> ArrayMethod:
    """``x == y``, element by element, also where Python would fall back on identity."""

    def compare(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, (str, bytes)):
            advice = "use `is`" if other is None else "only numbers can be equal to it"
            raise untraceable(
                f"`{symbol}` of a traced array and {an(repr(type(other).__name__))}; "
                f"{advice}{at(caller_line())}"
            )
        other = operand(other)
        return other if other is NotImplemented else op(self, other)

    return cast("ArrayMethod", compare)


def _method(function: Callable[..., Any]) -> ArrayMethod:
    """The method that is ``function`` with the array as its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call_function(function, (), (self, *args), kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"As ``np.{function.__name__}``."
    return cast("ArrayMethod", method)


def _compress(self: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
    """As ``np.compress``."""
    return call_function(np.compress, (), (condition, self, axis, out), {})


def _clip(
    self: Any, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any
) -> Any:
    """As ``np.clip``; a bound that is not given is none."""
    return call_function(np.clip, (), (self, min, max, out), kwargs)


_POWERS = {2: ops.square, 0.5: ops.sqrt, -1: ops.reciprocal}
"""Exponents that mean another function, as in NumPy."""
_FLOATS_ARE_POWERS = np.lib.NumpyVersion(np.__version__) >= "2.3.0"
"""Whether 2.0 and -1.0 mean a power of NumPy. It differs from the square and the
reciprocal for complex numbers, where squares of their parts are out of range."""


class Operators(Traced):
    """Python's operators, and NumPy's methods, ufuncs and functions, recorded.

    Needs no shape: values of unknown rank inherit it too.
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    __pandas_priority__ = 5000  # Series + x asks x
    __hash__ = None  # type: ignore[assignment]

    __add__: ArrayMethod = _forward(ops.add)
    __radd__: ArrayMethod = _reflected(ops.add)
    __iadd__: ArrayMethod = _in_place("+", _forward(ops.add))
    __sub__: ArrayMethod = _forward(ops.subtract)
    __rsub__: ArrayMethod = _reflected(ops.subtract)
    __isub__: ArrayMethod = _in_place("-", _forward(ops.subtract))
    __mul__: ArrayMethod = _forward(ops.multiply)
    __rmul__: ArrayMethod = _reflected(ops.multiply)
    __imul__: ArrayMethod = _in_place("*", _forward(ops.multiply))
    __truediv__: ArrayMethod = _forward(ops.divide)
    __rtruediv__: ArrayMethod = _reflected(ops.divide)
    __itruediv__: ArrayMethod = _in_place("/", _forward(ops.divide))
    __floordiv__: ArrayMethod = _forward(ops.floor_divide)
    __rfloordiv__: ArrayMethod = _reflected(ops.floor_divide)
    __ifloordiv__: ArrayMethod = _in_place("//", _forward(ops.floor_divide))
    __mod__: ArrayMethod = _forward(ops.remainder)
    __rmod__: ArrayMethod = _reflected(ops.remainder)
    __imod__: ArrayMethod = _in_place("%", _forward(ops.remainder))
    __matmul__: ArrayMethod = _forward(ops.matmul)
    __rmatmul__: ArrayMethod = _reflected(ops.matmul)
    __imatmul__: ArrayMethod = _in_place("@", _forward(ops.matmul))
    __and__: ArrayMethod = _forward(ops.bitwise_and)
    __rand__: ArrayMethod = _reflected(ops.bitwise_and)
    __iand__: ArrayMethod = _in_place("&", _forward(ops.bitwise_and))
    __or__: ArrayMethod = _forward(ops.bitwise_or)
    __ror__: ArrayMethod = _reflected(ops.bitwise_or)
    __ior__: ArrayMethod = _in_place("|", _forward(ops.bitwise_or))
    __xor__: ArrayMethod = _forward(ops.bitwise_xor)
    __rxor__: ArrayMethod = _reflected(ops.bitwise_xor)
    __ixor__: ArrayMethod = _in_place("^", _forward(ops.bitwise_xor))
    __lshift__: ArrayMethod = _forward(ops.left_shift)
    __rlshift__: ArrayMethod = _reflected(ops.left_shift)
    __ilshift__: ArrayMethod = _in_place("<<", _forward(ops.left_shift))
    __rshift__: ArrayMethod = _forward(ops.right_shift)
    __rrshift__: ArrayMethod = _reflected(ops.right_shift)
    __irshift__: ArrayMethod = _in_place(">>", _forward(ops.right_shift))
    __lt__: ArrayMethod = _forward(ops.less)
    __gt__: ArrayMethod = _forward(ops.greater)
    __le__: ArrayMethod = _forward(ops.less_equal)
    __ge__: ArrayMethod = _forward(ops.greater_equal)
    __eq__: ArrayMethod = _comparison("==", ops.equal)  # type: ignore[assignment]
    __ne__: ArrayMethod = _comparison("!=", ops.not_equal)  # type: ignore[assignment]
    _power: ArrayMethod = _forward(power)
    __rpow__: ArrayMethod = _reflected(power)

    def __pow__(self, exponent: Any) -> Self:
        """xʸ; as in NumPy, 2, 0.5 and -1 mean square, sqrt and reciprocal."""
        op: Callable[[Self], Self] | None = None
        if type(exponent) is int and exponent == 2:
            op = ops.square
        elif type(exponent) in (int, float) and self._is_float():
            op = _POWERS.get(exponent)
            is_float = isinstance(exponent, float) and exponent != 0.5
            if is_float and complex_numbers.holds_complex(self):
                op = None if _FLOATS_ARE_POWERS else op
        return self._power(exponent) if op is None else op(self)

    __ipow__: ArrayMethod = _in_place("**", __pow__)

    def changed(self, symbol: str, value: Any) -> Any:
        """What ``x += y`` makes of this array, where ``value`` is x + y."""
        raise TraceError(
            f"x {symbol}= y changes an array in place, which cannot be traced\n"
            f"  write x = x {symbol} y{at(caller_line())}"
        )

    def __neg__(self) -> Self:
        made: Self = ops.negative(self)
        return made

    def __pos__(self) -> Self:
        found = call_ufunc(np.positive, "__call__", (self,), {})
        made: Self = self.result_of(np.positive, (self,), {}, found)
        return made

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        made: tuple[Self, Self] = call_ufunc(np.divmod, "__call__", (self, other), {})
        return made

    def __rdivmod__(self, other: Any) -> tuple[Self, Self]:
        made: tuple[Self, Self] = call_ufunc(np.divmod, "__call__", (other, self), {})
        return made

    def __abs__(self) -> Self:
        made: Self = ops.absolute(self)
        return made

    def __invert__(self) -> Self:
        made: Self = ops.invert(self)
        return made

    def _is_float(self) -> bool:
        return True

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        return call_function(function, types, args, kwargs)

    @property
    def T(self) -> Self:
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Self:
        """The last two axes exchanged."""
        found = ops.matrix_transpose(self)
        made: Self = self.result_of(np.matrix_transpose, (self,), {}, found)
        return made

    @property
    def imag(self) -> Self:
        """The imaginary parts, 0 everywhere where no number is complex."""
        made: Self = self.result_of(np.imag, (self,), {}, complex_numbers.imag(self))
        return made

    @property
    def real(self) -> Self:
        """The real parts: the array itself where no number is complex."""
        made: Self = complex_numbers.real(self)
        return made

    def conjugate(self) -> Self:
        """The conjugates: the array itself where no number is complex."""
        made: Self = complex_numbers.conjugate(self)
        return made

    conj = conjugate

    all: ArrayMethod = _method(np.all)
    any: ArrayMethod = _method(np.any)
    argmax: ArrayMethod = _method(np.argmax)
    argmin: ArrayMethod = _method(np.argmin)
    choose: ArrayMethod = _method(np.choose)
    compress: ArrayMethod = _compress
    nonzero: Callable[..., tuple[Self, ...]] = _method(np.nonzero)
    clip: ArrayMethod = _clip
    argsort: ArrayMethod = _method(np.argsort)
    copy: ArrayMethod = _method(np.copy)
    cumprod: ArrayMethod = _method(np.cumprod)
    cumsum: ArrayMethod = _method(np.cumsum)
    diagonal: ArrayMethod = _method(np.diagonal)
    dot: ArrayMethod = _method(np.dot)
    max: ArrayMethod = _method(np.max)
    mean: ArrayMethod = _method(np.mean)
    min: ArrayMethod = _method(np.min)
    prod: ArrayMethod = _method(np.prod)
    ravel: ArrayMethod = _method(np.ravel)
    repeat: ArrayMethod = _method(np.repeat)
    round: ArrayMethod = _method(np.round)
    squeeze: ArrayMethod = _method(np.squeeze)
    std: ArrayMethod = _method(np.std)
    sum: ArrayMethod = _method(np.sum)
    swapaxes: ArrayMethod = _method(np.swapaxes)
    take: ArrayMethod = _method(np.take)
    trace: ArrayMethod = _method(np.trace)
    var: ArrayMethod = _method(np.var)

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Self:
        """The values rounded to ``dtype``, which ``casting`` must allow."""
        judged("x.astype", "order", order)
        own = None if isinstance(dtype, AttrVar) else dtype_of(self)
        if not isinstance(dtype, AttrVar):
            dtype_code(np.dtype(dtype))
        if own is not None and not np.can_cast(own, dtype, casting):  # type: ignore[arg-type]
            raise DTypeError(
                f"astype: {own} to {np.dtype(dtype)} is not casting={casting!r}"
                f"{at(caller_line())}"
            )
        found = ops.cast(self, dtype)
        made: Self = self.result_of(np.copy, (found,), {}, found) if copy else found
        return made

    def flatten(self, order: str = "C") -> Self:
        """A copy with one axis."""
        found = call_function(np.ravel, (), (self, order), {})
        made: Self = self.result_of(np.copy, (found,), {}, found)
        return made

    def reshape(self, *shape: Any, **kwargs: Any) -> Self:
        """The elements in another shape, given as ints or as a tuple."""
        sizes = shape[0] if len(shape) == 1 else shape
        made: Self = call_function(np.reshape, (), (self, sizes), kwargs)
        return made

    def transpose(self, *axes: Any) -> Self:
        """The axes in another order, ints or a tuple; reversed by default."""
        order: Any = axes or None
        if len(axes) == 1 and not isinstance(axes[0], int):
            (order,) = axes
        made: Self = call_function(np.transpose, (), (self, order), {})
        return made
