"""Ops that MLX lacks or gives another meaning, in ops that it has: lazy, and with the
results of NumPy. Generated programs call them by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import mlx.core as mx

from ..gpu import compact
from ..native.math import ERF32
from .arrays import Array, both, is_float, is_unsigned
from .cuda_compiler import CudaKernel
from .integers import bitwise_count, gcd, lcm, left_shift, right_shift, whole, width

__all__ = [
    "accumulate",
    "add_at",
    "attention",
    "bitwise_count",
    "cbrt",
    "conv2d",
    "copysign",
    "erf",
    "exp2",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "hypot",
    "kernel",
    "lcm",
    "left_shift",
    "logaddexp2",
    "matmul",
    "nextafter",
    "power",
    "reciprocal",
    "remainder",
    "right_shift",
    "set_at",
    "sign",
    "signbit",
    "take",
]


class GeneratedKernel:
    """A generated kernel: the outputs, not evaluated, of a list of inputs that have
    axes."""

    def __init__(
        self, made: Callable[[], Callable[..., Any]], text: CudaKernel | None
    ) -> None:
        self.text = text
        """What can be compiled before MLX does it."""
        self._made = made
        self._run: Callable[..., Any] | None = None

    def compiled(self, run: Callable[..., Any]) -> None:
        """Take ``run``, which has the machine code, for MLX's compilation."""
        self._run = run

    def __call__(self, given: Sequence[Array]) -> list[Array]:
        if self._run is None:  # not before it is called: the source is for any machine
            self._run = self._made()
        found: list[Array] = self._run(inputs=given)
        return found


def kernel(
    language: str,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    threads: int,
    group: int,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[Any],
    header: str,
    body: str,
    takes: Sequence[Any],
    shared_bytes: int = 0,
) -> GeneratedKernel:
    """A generated kernel, given the body of its function.

    ``takes``: the dtypes of its inputs, which are packed. ``shared_bytes``, of CUDA:
    how much memory a group is given when it starts.

    MLX keeps compiled kernels by ``name``, which must be of this text alone, and is
    handed the text as :func:`compact` shortens it.
    """
    settings = {
        "output_shapes": [*shapes],
        "output_dtypes": [*dtypes],
        "grid": (threads, 1, 1),
        "threadgroup": (group, 1, 1),
    }
    more = {"shared_memory": shared_bytes} if shared_bytes else {}

    def made() -> Callable[..., Any]:
        before, inside = compact(header, body)
        run = getattr(mx.fast, f"{language}_kernel")(
            name=name,
            input_names=[*inputs],
            output_names=[*outputs],
            source=inside,
            header=before,
            **more,
        )
        return partial(run, **settings)

    text = None
    if language == "cuda":
        given, found = (
            zip(inputs, takes, strict=True),
            zip(outputs, dtypes, strict=True),
        )
        text = CudaKernel(
            name, header, body, tuple(given), tuple(found), settings | more
        )
    return GeneratedKernel(made, text)


_BITS: dict[Any, Any] = {
    mx.float16: mx.int16,
    mx.bfloat16: mx.int16,
    mx.float32: mx.int32,
    mx.float64: mx.int64,
}


# -- arithmetic ------------------------------------------------------------------------


def remainder(x: Any, y: Any) -> Array:
    """x - y ⌊x / y⌋, of the sign of y."""
    x, y = both(x, y)
    if not is_float(x):
        return whole(x, y)[1]
    rest = mx.remainder(x, y)
    return mx.where(rest == 0, copysign(rest, y), rest)


def fmod(x: Any, y: Any) -> Array:
    """x - y trunc(x / y), of the sign of x."""
    x, y = both(x, y)
    if is_float(x):
        return copysign(mx.remainder(mx.abs(x), mx.abs(y)), x)
    rest = whole(x, y)[1]
    if is_unsigned(x):
        return rest
    other = mx.logical_and(rest != 0, (rest < 0) != (x < 0))
    return mx.where(other, rest - y, rest)


def floor_divide(x: Any, y: Any) -> Array:
    """⌊x / y⌋."""
    x, y = both(x, y)
    if not is_float(x):
        return whole(x, y)[0]
    rest = fmod(x, y)
    q = (x - rest) / y
    down = mx.logical_and(rest != 0, (rest < 0) != (y < 0))
    q = mx.where(down, q - 1, q)
    low = mx.floor(q)
    low = mx.where(q - low > 0.5, low + 1, low)
    low = mx.where(q == 0, copysign(mx.zeros_like(low), x / y), low)
    return mx.where(y == 0, x / y, low)


def power(x: Any, y: Any) -> Array:
    """xʸ. Of integers y is not negative: MLX would not come back from one."""
    if is_float(x) or is_float(y):
        return mx.power(x, y)
    x, y = both(x, y)
    return mx.power(x, mx.maximum(y, 0))


def reciprocal(x: Array) -> Array:
    """1 / x, of integers towards 0; of 0 what converting ∞ gives NumPy."""
    if is_float(x):
        return mx.reciprocal(x)
    wide = width(x) >= 32 and not is_unsigned(x)
    of_none = mx.array(-(1 << (width(x) - 1)) if wide else 0, dtype=x.dtype)
    small = mx.where(mx.abs(x) == 1, x, mx.zeros_like(x))
    return mx.where(x == 0, of_none, small)


def sign(x: Array) -> Array:
    """-1, 0 or 1 as x is; NaN for NaN."""
    return mx.where(mx.isnan(x), x, mx.sign(x)) if is_float(x) else mx.sign(x)


def signbit(x: Array) -> Array:
    """Whether x is negative, or -0.0."""
    return x.view(_BITS[x.dtype]) < 0


def copysign(x: Any, y: Any) -> Array:
    """\\|x\\| with the sign of y."""
    x, y = both(x, y)
    x, y = mx.broadcast_arrays(x, y)
    x, y = mx.contiguous(x), mx.contiguous(y)
    return mx.where(signbit(x) == signbit(y), x, mx.negative(x))


def fmax(x: Any, y: Any) -> Array:
    """The larger; not NaN if one is not."""
    return _not_nan(mx.maximum, x, y)


def fmin(x: Any, y: Any) -> Array:
    """The smaller; not NaN if one is not."""
    return _not_nan(mx.minimum, x, y)


def _not_nan(choose: Callable[..., Array], x: Any, y: Any) -> Array:
    x, y = both(x, y)
    if not is_float(x):
        return choose(x, y)
    return mx.where(mx.isnan(x), y, mx.where(mx.isnan(y), x, choose(x, y)))


def heaviside(x: Any, y: Any) -> Array:
    """0 for x < 0, y for x = 0, 1 for x > 0."""
    x, y = both(x, y)
    beside = mx.where(mx.isnan(x), x, (x > 0).astype(x.dtype))
    return mx.where(x == 0, y, beside)


def nextafter(x: Any, y: Any) -> Array:
    """The number next to x in the direction of y."""
    x, y = mx.broadcast_arrays(*both(x, y))
    kind = _BITS[x.dtype]
    bits = mx.contiguous(x).view(kind)
    away = (y > x) == (x > 0)
    near = mx.where(away, bits + 1, bits - 1)
    first = copysign(mx.ones_like(bits).view(x.dtype), y).view(kind)
    moved = mx.where(x == 0, first, near).view(x.dtype)
    same = mx.where(x == y, y, moved)
    return mx.where(mx.logical_or(mx.isnan(x), mx.isnan(y)), x + y, same)


def hypot(x: Any, y: Any) -> Array:
    """√(x² + y²), without overflow."""
    x, y = both(x, y)
    a, b = mx.abs(x), mx.abs(y)
    high, low = mx.maximum(a, b), mx.minimum(a, b)
    ratio = low / mx.where(high == 0, mx.ones_like(high), high)
    far = mx.logical_or(mx.isinf(a), mx.isinf(b))
    length = high * mx.sqrt(1 + ratio * ratio)
    return mx.where(far, mx.full(far.shape, mx.inf, dtype=length.dtype), length)


def cbrt(x: Array) -> Array:
    """∛x: a power, and a step of Newton."""
    a = mx.abs(x)
    inside = mx.logical_and(a > 0, a < mx.inf)
    safe = mx.where(inside, a, mx.ones_like(a))
    r = mx.power(safe, 1 / 3)
    r = r - (r - safe / (r * r)) / 3
    return mx.where(inside, copysign(r, x), x)


def erf(x: Array) -> Array:
    """2/√π ∫₀ˣ exp(-t²) dt; MLX's own loses digits near 0."""
    wide = x.astype(mx.float32)
    s, p = wide * wide, mx.array(ERF32[-1], dtype=mx.float32)
    for c in ERF32[-2::-1]:
        p = p * s + c
    near = wide + wide * p
    return mx.where(mx.abs(wide) <= 1, near, mx.erf(wide)).astype(x.dtype)


def exp2(x: Array) -> Array:
    """2ˣ."""
    return mx.power(2.0, x)


def logaddexp2(x: Any, y: Any) -> Array:
    """log₂(2ˣ + 2ʸ)."""
    x, y = both(x, y)
    gap = mx.abs(x - y)
    apart = mx.maximum(x, y) + mx.log1p(exp2(mx.negative(gap))) * (1 / math.log(2))
    return mx.where(x == y, x + 1, apart)


# -- along axes ------------------------------------------------------------------------


def matmul(x: Array, y: Array) -> Array:
    """The matrix product of integers or bools, which MLX lacks, a few inner indices at
    a time."""
    truth = x.dtype == mx.bool_
    if truth:
        x, y = x.astype(mx.int32), y.astype(mx.int32)
    k = x.shape[-1]
    size = math.prod(x.shape[:-1]) * y.shape[-1]
    each = max(1, (1 << 22) // max(size, 1))
    total: Any = None
    for i in range(0, max(k, 1), each):
        part = x[..., :, i : i + each, None] * y[..., None, i : i + each, :]
        found = mx.sum(part, axis=-2).astype(x.dtype)
        total = found if total is None else total + found
    return total != 0 if truth else total


def conv2d(
    x: Array, w: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Convolution of images n c h w with kernels o c/groups i j; MLX's own has the
    channels last."""
    y = mx.conv2d(
        mx.transpose(x, (0, 2, 3, 1)),
        mx.transpose(w, (0, 2, 3, 1)),
        stride,
        padding,
        dilation,
        groups,
    )
    return mx.transpose(y, (0, 3, 1, 2))


def attention(q: Array, k: Array, v: Array, scale: float, mask: Any) -> Array:
    """softmax(scale q kᵀ + mask) v over ``... m d``, ``... n d`` and ``... n e``.

    k and v have the leading axes of q, or 1 for the last of them. ``mask``: None,
    ``"causal"`` or an array that broadcasts to ``... m n``.
    """
    lead, m = q.shape[:-2], q.shape[-2]
    if isinstance(mask, mx.array) and mask.ndim > 2:
        mask = _with_heads(mx.broadcast_to(mask, (*lead, m, k.shape[-2])))
    shared = k.shape[:-2] != lead
    if shared:
        q = mx.flatten(q, len(lead) - 2, len(lead) - 1)
        k, v = (mx.squeeze(x, len(lead) - 1) for x in (k, v))
        if isinstance(mask, mx.array) and mask.ndim > 2:
            mask = mx.reshape(mask, (-1, q.shape[-3], *mask.shape[-2:]))
    y = mx.fast.scaled_dot_product_attention(
        *map(_with_heads, (q, k, v)), scale=scale, mask=mask
    )
    return mx.reshape(y, (*lead, m, v.shape[-1]))


def _with_heads(x: Array) -> Array:
    """``x`` over two leading axes: batches and heads."""
    lead = x.shape[:-2]
    heads = lead[-1] if lead else 1
    return mx.reshape(x, (math.prod(lead[:-1]), heads, *x.shape[-2:]))


def take(x: Array, indices: Array, axis: int) -> Array:
    """The slices of x at the indices, which may count from the end.

    What an index out of bounds takes is NaN; 0 of integers and bools. Nothing is read
    outside of x.
    """
    near, inside = _checked(indices, x.shape[axis])
    found = mx.take(x, near, axis=axis)
    inside = mx.reshape(inside, (*inside.shape, *(1 for _ in range(-1 - axis))))
    fill = mx.nan if is_float(x) else 0
    return mx.where(inside, found, mx.array(fill, dtype=x.dtype))


def set_at(x: Array, indices: Array, values: Array, axis: int) -> Array:
    """x with values at the indices, which may count from the end; of several for one
    place the last. What an index out of bounds would write is dropped."""
    lead, size = x.ndim + axis, x.shape[axis]
    near, inside = _checked(mx.flatten(indices), size)
    if not near.size:
        return x
    numbers = mx.where(inside, mx.arange(near.size), -1)
    last = mx.full((size,), -1, dtype=numbers.dtype).at[near].maximum(numbers)
    rest = x.shape[lead + 1 :]
    slices = mx.reshape(values, (*x.shape[:lead], near.size, *rest))
    picked = mx.take(slices, mx.maximum(last, 0), axis=lead)
    return mx.where(mx.reshape(last >= 0, (size, *(1 for _ in rest))), picked, x)


def add_at(x: Array, indices: Array, axis: int, size: int) -> Array:
    """Zeros to which the slices of x are added at the indices, which may count from the
    end; what an index out of bounds would add is dropped."""
    near, inside = _checked(indices, size)
    inside = mx.reshape(inside, (*inside.shape, *(1 for _ in range(-1 - axis))))
    parts = mx.where(inside, x, mx.zeros_like(x))
    lead = x.ndim - indices.ndim + axis + 1
    order = [*range(lead, lead + indices.ndim), *range(lead)]
    order += range(lead + indices.ndim, x.ndim)
    parts = mx.transpose(parts.astype(_sum_dtype(x)), order)
    start = mx.zeros((size, *parts.shape[indices.ndim :]), dtype=parts.dtype)
    # MLX adds numbers of 8 bytes at indices on the CPU only.
    with mx.stream(mx.cpu) if parts.itemsize == 8 else nullcontext():
        added = start.at[near].add(parts)
    return mx.moveaxis(added, 0, lead).astype(x.dtype)


def _checked(indices: Array, size: int) -> tuple[Array, Array]:
    """Indices, 0 for those out of bounds, and which are within."""
    wide = indices.astype(mx.int64)
    inside = mx.logical_and(wide >= -size, wide < size)
    return mx.where(inside, wide, mx.zeros_like(wide)), inside


def _sum_dtype(x: Array) -> Any:
    return mx.float32 if x.dtype in (mx.float16, mx.bfloat16) else x.dtype


_RUNNING = {
    "add": mx.cumsum,
    "multiply": mx.cumprod,
    "maximum": mx.cummax,
    "minimum": mx.cummin,
}


def _running_extreme(
    x: Array, running: Callable[..., Array], ufunc: str, axis: int
) -> Array:
    """NaN from the first one on, which MLX forgets in some dtypes on some devices."""
    nan = mx.isnan(x)
    least = mx.array(-mx.inf if ufunc == "maximum" else mx.inf, dtype=x.dtype)
    found = running(mx.where(nan, least, x), axis=axis)
    seen = mx.cumsum(nan.astype(mx.int32), axis=axis) > 0
    return mx.where(seen, mx.array(mx.nan, dtype=x.dtype), found)


def accumulate(x: Array, function: Callable[..., Any], ufunc: str, axis: int) -> Array:
    """y[i] = y[i - 1] ∘ x[i] along one axis, for the op ``function`` that NumPy calls
    ``ufunc``."""
    running = _RUNNING.get(ufunc)
    if running is not None and x.dtype != mx.bool_:
        if ufunc in ("maximum", "minimum") and is_float(x):
            return _running_extreme(x, running, ufunc, axis)
        return running(x, axis=axis).astype(x.dtype)
    count = x.shape[axis]
    parts: list[Array] = list(mx.split(x, count, axis=axis)) if count else []
    for i in range(1, len(parts)):
        parts[i] = function(parts[i - 1], parts[i]).astype(x.dtype)
    return mx.concatenate(parts, axis=axis) if parts else x
