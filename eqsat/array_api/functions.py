"""The functions of the standard that NumPy has: a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.array_api.delegates import by_values, of_numpy

# -- element by element ----------------------------------------------------------------
abs = of_numpy(np.abs)
acos = of_numpy(np.acos)
acosh = of_numpy(np.acosh)
add = of_numpy(np.add)
asin = of_numpy(np.asin)
asinh = of_numpy(np.asinh)
atan = of_numpy(np.atan)
atan2 = of_numpy(np.atan2)
atanh = of_numpy(np.atanh)
bitwise_and = of_numpy(np.bitwise_and)
bitwise_invert = of_numpy(np.bitwise_invert)
bitwise_left_shift = of_numpy(np.bitwise_left_shift)
bitwise_or = of_numpy(np.bitwise_or)
bitwise_right_shift = of_numpy(np.bitwise_right_shift)
bitwise_xor = of_numpy(np.bitwise_xor)
ceil = of_numpy(np.ceil)
conj = of_numpy(np.conj)
copysign = of_numpy(np.copysign)
cos = of_numpy(np.cos)
cosh = of_numpy(np.cosh)
divide = of_numpy(np.divide)
equal = of_numpy(np.equal)
exp = of_numpy(np.exp)
expm1 = of_numpy(np.expm1)
floor = of_numpy(np.floor)
floor_divide = of_numpy(np.floor_divide)
greater = of_numpy(np.greater)
greater_equal = of_numpy(np.greater_equal)
hypot = of_numpy(np.hypot)
imag = of_numpy(np.imag)
isfinite = of_numpy(np.isfinite)
isinf = of_numpy(np.isinf)
isnan = of_numpy(np.isnan)
less = of_numpy(np.less)
less_equal = of_numpy(np.less_equal)
log = of_numpy(np.log)
log10 = of_numpy(np.log10)
log1p = of_numpy(np.log1p)
log2 = of_numpy(np.log2)
logaddexp = of_numpy(np.logaddexp)
logical_and = of_numpy(np.logical_and)
logical_not = of_numpy(np.logical_not)
logical_or = of_numpy(np.logical_or)
logical_xor = of_numpy(np.logical_xor)
maximum = of_numpy(np.maximum)
minimum = of_numpy(np.minimum)
multiply = of_numpy(np.multiply)
negative = of_numpy(np.negative)
nextafter = of_numpy(np.nextafter)
not_equal = of_numpy(np.not_equal)
positive = of_numpy(np.positive)
pow = of_numpy(np.pow)
real = of_numpy(np.real)
reciprocal = of_numpy(np.reciprocal)
remainder = of_numpy(np.remainder)
round = of_numpy(np.round)
sign = of_numpy(np.sign)
signbit = of_numpy(np.signbit)
sin = of_numpy(np.sin)
sinh = of_numpy(np.sinh)
sqrt = of_numpy(np.sqrt)
square = of_numpy(np.square)
subtract = of_numpy(np.subtract)
tan = of_numpy(np.tan)
tanh = of_numpy(np.tanh)
trunc = of_numpy(np.trunc)

# -- reductions and prefix sums --------------------------------------------------------
all = of_numpy(np.all)
any = of_numpy(np.any)
count_nonzero = of_numpy(np.count_nonzero)
cumulative_prod = of_numpy(np.cumulative_prod)
cumulative_sum = of_numpy(np.cumulative_sum)
diff = of_numpy(np.diff)
max = of_numpy(np.max)
mean = of_numpy(np.mean)
min = of_numpy(np.min)
prod = of_numpy(np.prod)
std = of_numpy(np.std)
sum = of_numpy(np.sum)
var = of_numpy(np.var)

# -- manipulation ----------------------------------------------------------------------
concat = of_numpy(np.concat)
expand_dims = of_numpy(np.expand_dims)
flip = of_numpy(np.flip)
moveaxis = of_numpy(np.moveaxis)
permute_dims = of_numpy(np.permute_dims)
repeat = of_numpy(np.repeat)
reshape = of_numpy(np.reshape)
roll = of_numpy(np.roll)
squeeze = of_numpy(np.squeeze)
stack = of_numpy(np.stack)
tile = of_numpy(np.tile)
unstack = of_numpy(np.unstack)

# -- indexing, searching, sets ---------------------------------------------------------
argmax = of_numpy(np.argmax)
argmin = of_numpy(np.argmin)
nonzero = by_values(np.nonzero)
searchsorted = of_numpy(np.searchsorted)
take = of_numpy(np.take)
take_along_axis = of_numpy(np.take_along_axis)
unique_all = by_values(np.unique_all)
unique_counts = by_values(np.unique_counts)
unique_inverse = by_values(np.unique_inverse)
where = of_numpy(np.where)

# -- products --------------------------------------------------------------------------
matmul = of_numpy(np.matmul)
matrix_transpose = of_numpy(np.matrix_transpose)
tensordot = of_numpy(np.tensordot)
vecdot = of_numpy(np.linalg.vecdot)


def unique_values(x: Any, /) -> Any:
    """The values in ``x``, in order; each NaN is a value of its own."""
    return _unique(x, equal_nan=False)


_unique = by_values(np.unique)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """``x`` within bounds, which may be arrays, numbers or None."""
    return _clipped(x, min, max)


_clipped = of_numpy(np.clip)


def sort(
    x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Any:
    """``x`` sorted along an axis, ascending or descending."""
    found = _sorted(x, axis=axis, stable=stable)
    return flip(found, axis=axis) if descending else found


def argsort(
    x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Any:
    """Indices that sort ``x`` along an axis, ascending or descending; equal elements
    stay in their order."""
    if not descending:
        return _sorting(x, axis=axis, stable=stable)
    last = x.shape[axis] - 1 if x.ndim else 0
    return last - flip(_sorting(flip(x, axis=axis), axis=axis, stable=True), axis=axis)


_sorted = of_numpy(np.sort)
_sorting = of_numpy(np.argsort)
