"""Operators and methods of an array, for values that record what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.numpy_api.functions import call_function
from eqsat.numpy_api.operands import operand
from eqsat.numpy_api.ufuncs import call_ufunc, power
from eqsat.ops import dtype_of
from eqsat.support import DTypeError, TraceError, an, at, caller_line
from eqsat.terms import AttrVar, Traced, dtype_code

Method = Callable[..., Any]


def _forward(op: Callable[[Any, Any], Any]) -> Method:
    """``x + y``."""

    def forward(self: Any, other: Any) -> Any:
        other = operand(other)
        return other if other is NotImplemented else op(self, other)

    return forward


def _reflected(op: Callable[[Any, Any], Any]) -> Method:
    """``y + x``, asked of ``x``."""

    def reflected(self: Any, other: Any) -> Any:
        other = operand(other)
        return other if other is NotImplemented else op(other, self)

    return reflected


def _in_place(symbol: str, plain: Method) -> Method:
    """``x += y``, by what ``x + y`` is."""

    def change(self: Any, other: Any) -> Any:
        value = plain(self, other)
        return value if value is NotImplemented else self.changed(symbol, value)

    return change


def _binary(
    symbol: str, op: Callable[[Any, Any], Any]
) -> tuple[Method, Method, Method]:
    """``x + y``, the reflected ``y + x``, and ``x += y``."""
    forward = _forward(op)
    return forward, _reflected(op), _in_place(symbol, forward)


def _comparison(symbol: str, op: Callable[[Any, Any], Any]) -> Method:
    """``x == y``, element by element, also where Python would fall back on identity."""

    def compare(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, (str, bytes)):
            advice = "use `is`" if other is None else "only numbers can be equal to it"
            raise TraceError(
                f"`{symbol}` of a traced array and {an(repr(type(other).__name__))}; "
                f"{advice}{at(caller_line())}"
            )
        other = operand(other)
        return other if other is NotImplemented else op(self, other)

    return compare


def _method(function: Callable[..., Any]) -> Method:
    """The method that is ``function`` with the array as its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call_function(function, (), (self, *args), kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"As ``np.{function.__name__}``."
    return method


def _compress(self: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
    """As ``np.compress``."""
    return call_function(np.compress, (), (condition, self, axis, out), {})


class Operators(Traced):
    """Python's operators, and NumPy's methods, ufuncs and functions, recorded.

    Needs no shape: values of unknown rank inherit it too.
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    __pandas_priority__ = 5000  # Series + x asks x
    __hash__ = None  # type: ignore[assignment]

    __add__, __radd__, __iadd__ = _binary("+", ops.add)
    __sub__, __rsub__, __isub__ = _binary("-", ops.subtract)
    __mul__, __rmul__, __imul__ = _binary("*", ops.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _binary("/", ops.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary("//", ops.floor_divide)
    __mod__, __rmod__, __imod__ = _binary("%", ops.remainder)
    __matmul__, __rmatmul__, __imatmul__ = _binary("@", ops.matmul)
    __and__, __rand__, __iand__ = _binary("&", ops.bitwise_and)
    __or__, __ror__, __ior__ = _binary("|", ops.bitwise_or)
    __xor__, __rxor__, __ixor__ = _binary("^", ops.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _binary("<<", ops.left_shift)
    __rshift__, __rrshift__, __irshift__ = _binary(">>", ops.right_shift)
    __lt__, __gt__ = _forward(ops.less), _forward(ops.greater)
    __le__, __ge__ = _forward(ops.less_equal), _forward(ops.greater_equal)
    __eq__ = _comparison("==", ops.equal)
    __ne__ = _comparison("!=", ops.not_equal)
    _power, __rpow__ = _forward(power), _reflected(power)

    def __pow__(self, exponent: Any) -> Any:
        """xʸ; as in NumPy, 2, 0.5 and -1 mean square, sqrt and reciprocal."""
        if type(exponent) is int and exponent == 2:
            return ops.square(self)
        if type(exponent) in (int, float) and self._is_float():
            if exponent == 2:
                return ops.square(self)
            if exponent == 0.5:
                return ops.sqrt(self)
            if exponent == -1:
                return ops.reciprocal(self)
        return self._power(exponent)

    __ipow__ = _in_place("**", __pow__)

    def changed(self, symbol: str, value: Any) -> Any:
        """What ``x += y`` makes of this array, where ``value`` is x + y."""
        raise TraceError(
            f"x {symbol}= y changes an array in place, which cannot be traced\n"
            f"  write x = x {symbol} y{at(caller_line())}"
        )

    def __neg__(self) -> Any:
        return ops.negative(self)

    def __pos__(self) -> Any:
        found = call_ufunc(np.positive, "__call__", (self,), {})
        return self.result_of(np.positive, (self,), {}, found)

    def __divmod__(self, other: Any) -> Any:
        return call_ufunc(np.divmod, "__call__", (self, other), {})

    def __rdivmod__(self, other: Any) -> Any:
        return call_ufunc(np.divmod, "__call__", (other, self), {})

    def __abs__(self) -> Any:
        return ops.absolute(self)

    def __invert__(self) -> Any:
        return ops.invert(self)

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
    def T(self) -> Any:
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> Any:
        """The last two axes exchanged."""
        found = ops.matrix_transpose(self)
        return self.result_of(np.matrix_transpose, (self,), {}, found)

    @property
    def imag(self) -> Any:
        """0 everywhere: no traced array is complex."""
        return self.result_of(np.imag, (self,), {}, ops.zeros_like(self))

    @property
    def real(self) -> Any:
        """The array itself: none is complex."""
        return self

    def conjugate(self) -> Any:
        """The array itself: none is complex."""
        return self

    conj = conjugate

    all = _method(np.all)
    any = _method(np.any)
    argmax = _method(np.argmax)
    argmin = _method(np.argmin)
    choose = _method(np.choose)
    compress = _compress
    nonzero = _method(np.nonzero)
    clip = _method(np.clip)
    argsort = _method(np.argsort)
    copy = _method(np.copy)
    cumprod = _method(np.cumprod)
    cumsum = _method(np.cumsum)
    diagonal = _method(np.diagonal)
    dot = _method(np.dot)
    max = _method(np.max)
    mean = _method(np.mean)
    min = _method(np.min)
    prod = _method(np.prod)
    ravel = _method(np.ravel)
    repeat = _method(np.repeat)
    round = _method(np.round)
    squeeze = _method(np.squeeze)
    std = _method(np.std)
    sum = _method(np.sum)
    swapaxes = _method(np.swapaxes)
    take = _method(np.take)
    trace = _method(np.trace)
    var = _method(np.var)

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """The values rounded to ``dtype``, which ``casting`` must allow."""
        own = None if isinstance(dtype, AttrVar) else dtype_of(self)
        if not isinstance(dtype, AttrVar):
            dtype_code(np.dtype(dtype))
        if own is not None and not np.can_cast(own, dtype, casting):  # type: ignore[arg-type]
            raise DTypeError(
                f"astype: {own} to {np.dtype(dtype)} is not casting={casting!r}"
                f"{at(caller_line())}"
            )
        found = ops.cast(self, dtype)
        return self.result_of(np.copy, (found,), {}, found) if copy else found

    def flatten(self, order: str = "C") -> Any:
        """A copy with one axis."""
        found = call_function(np.ravel, (), (self, order), {})
        return self.result_of(np.copy, (found,), {}, found)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """The elements in another shape, given as ints or as a tuple."""
        sizes = shape[0] if len(shape) == 1 else shape
        return call_function(np.reshape, (), (self, sizes), kwargs)

    def transpose(self, *axes: Any) -> Any:
        """The axes in another order, ints or a tuple; reversed by default."""
        order: Any = axes or None
        if len(axes) == 1 and not isinstance(axes[0], int):
            (order,) = axes
        return call_function(np.transpose, (), (self, order), {})
