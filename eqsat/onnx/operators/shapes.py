"""Operators that make arrays, or change shapes and types."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from eqsat.onnx.operators.table import (
    axes_of,
    axis_of,
    expect_shape,
    host_array,
    ints,
    kind_of,
    number,
    operator,
    sized,
)
from eqsat.onnx.operators.tensors import dtype_of
from eqsat.support import ShapeError, counted


@operator("Shape")
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    """Sizes of axes, or of some."""
    return np.array(x.shape[start:end], np.int64)


@operator("Size")
def size(x: Any) -> Any:
    """How many elements there are."""
    return np.array(x.size, np.int64)


@operator("Reshape")
def reshape(x: Any, sizes: Any, *, allowzero: int = 0) -> Any:
    """The same elements by other axes: 0 stands for the size that was there."""
    wanted = ints(sizes) or []
    behind = not allowzero and 0 in wanted[x.ndim :]
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1 or behind:
        raise ShapeError(
            f"input 'shape' is {wanted}, for an input of shape {tuple(x.shape)}: "
            "expected sizes, one -1 at most, and 0 where there is an axis"
        )
    if not allowzero:
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return np.reshape(x, wanted)


@operator("Flatten")
def flatten(x: Any, *, axis: int) -> Any:
    """Two axes: those before ``axis``, and the others."""
    a = axis_of(axis, x.ndim, more=1)
    first = int(np.prod(x.shape[:a], dtype=np.int64))
    return np.reshape(x, (first, int(np.prod(x.shape[a:], dtype=np.int64))))


def _squeezed(x: Any, axes: list[int] | None) -> Any:
    return np.squeeze(x) if axes is None else np.squeeze(x, _single(x, axes))


def _single(x: Any, axes: list[int]) -> tuple[int, ...]:
    """Axes from 0. Raises :class:`ShapeError` for one that is not of size 1."""
    found = axes_of(axes, x.ndim)
    if any(x.shape[a] != 1 for a in found):
        raise ShapeError(f"axes {axes} of shape {tuple(x.shape)} are not all of size 1")
    return tuple(found)


@operator("Squeeze", until=12)
def squeeze_fixed(x: Any, *, axes: Any = None) -> Any:
    """Without axes of size 1."""
    return _squeezed(x, axes)


@operator("Squeeze", since=13)
def squeeze(x: Any, axes: Any = None) -> Any:
    """Without axes of size 1."""
    return _squeezed(x, ints(axes))


@operator("Unsqueeze", until=12)
def unsqueeze_fixed(x: Any, *, axes: Any) -> Any:
    """With axes of size 1."""
    return np.expand_dims(x, tuple(axes_of(axes, x.ndim + len(axes))))


@operator("Unsqueeze", since=13)
def unsqueeze(x: Any, axes: Any) -> Any:
    """With axes of size 1."""
    return unsqueeze_fixed(x, axes=ints(axes) or [])


@operator("Transpose")
def transpose(x: Any, *, perm: Any = None) -> Any:
    """Axes in another order, by default reversed."""
    if perm is not None and sorted(perm) != [*range(x.ndim)]:
        raise ShapeError(f"attribute 'perm' is {perm}, for an input of rank {x.ndim}")
    return np.transpose(x, perm)


@operator("Concat")
def concat(*xs: Any, axis: int) -> Any:
    """Arrays behind each other along an axis."""
    return np.concatenate(xs, axis=axis_of(axis, xs[0].ndim))


@operator("Split", until=12)
def split_fixed(x: Any, *, axis: int, split: Any = None, call: Any) -> Any:
    """Parts along an axis, of equal or given sizes."""
    return _parts(x, axis, split, call.outputs)


@operator("Split", since=13)
def split(
    x: Any, sizes: Any = None, *, axis: int, num_outputs: int | None = None, call: Any
) -> Any:
    """Parts along an axis, of equal or given sizes."""
    if num_outputs not in (None, call.outputs):
        raise ValueError(
            f"attribute 'num_outputs' is {num_outputs}, expected {call.outputs}, which "
            "the node has"
        )
    return _parts(x, axis, ints(sizes), call.outputs)


def _parts(x: Any, axis: int, sizes: list[int] | None, count: int) -> Any:
    a = axis_of(axis, x.ndim)
    n = x.shape[a]
    if sizes is None:
        each = -(-n // count)
        sizes = [max(0, min(each, n - i * each)) for i in range(count)]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise ValueError(f"sizes {sizes} do not add to {n}, those of axis {axis}")
    if len(sizes) != count:
        raise ValueError(f"sizes {sizes} are given for {counted(count, 'output')}")
    before = (slice(None),) * a
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(x[(*before, slice(a, b))] for a, b in itertools.pairwise(ends))


@operator("Expand")
def expand(x: Any, sizes: Any) -> Any:
    """Broadcast with a shape."""
    wanted = np.broadcast_shapes(x.shape, tuple(ints(sizes) or ()))
    return np.broadcast_to(x, sized(wanted, x.dtype))


@operator("Tile")
def tile(x: Any, repeats: Any) -> Any:
    """Copies of x beside each other."""
    counts = ints(repeats) or []
    sized((n * r for n, r in zip(x.shape, counts, strict=True)), x.dtype)
    return np.tile(x, counts)


_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def padded(x: Any, widths: list[int], mode: str, value: Any, axes: Any = None) -> Any:
    """x with elements before and behind; negative widths cut."""
    axes = range(x.ndim) if axes is None else axes_of(axes, x.ndim)
    each = [(0, 0)] * x.ndim
    half = len(axes)
    if len(widths) != 2 * half:
        raise ShapeError(f"pads {widths} are {len(widths)}, expected {2 * half}")
    for a, before, behind in zip(axes, widths[:half], widths[half:], strict=True):
        each[a] = before, behind
    for n, (b, e) in zip(x.shape, each, strict=True):
        if max(0, -b) + max(0, -e) > n:
            raise ShapeError(f"pads {widths} cut more than shape {tuple(x.shape)} has")
    cut = tuple(
        slice(max(0, -b), n - max(0, -e))
        for n, (b, e) in zip(x.shape, each, strict=True)
    )
    x = x[cut] if any(min(w) < 0 for w in each) else x
    more = [(max(0, b), max(0, e)) for b, e in each]
    sized((n + b + e for n, (b, e) in zip(x.shape, more, strict=True)), x.dtype)
    if mode == "constant":
        return np.pad(x, more, constant_values=value)
    return np.pad(x, more, mode=_MODES[mode])  # type: ignore[call-overload]


@operator("Pad", until=10)
def pad_fixed(x: Any, *, mode: str, pads: Any, value: float) -> Any:
    """Elements before and behind along each axis."""
    return padded(x, pads, mode, value)


@operator("Pad", since=11)
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str) -> Any:
    """Elements before and behind along each axis, or some."""
    widths = ints(pads) or []
    fill = 0 if value is None or mode != "constant" else number(value)
    return padded(x, widths, mode, fill, ints(axes))


@operator("ConstantOfShape")
def constant_of_shape(sizes: Any, *, value: Any = None) -> Any:
    """One number, as often as a shape says."""
    one = np.zeros(1, np.float32) if value is None else value
    shape = sized(ints(sizes) or (), one.dtype)
    if not math.prod(shape):
        return np.empty(shape, one.dtype)
    # in bytes, which nobody can write to: a program need not keep a copy
    first = np.frombuffer(one.reshape(-1)[:1].tobytes(), one.dtype)
    return np.broadcast_to(first.reshape(()), shape)


@operator("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int) -> Any:
    """Ones on a diagonal."""
    kind = x.dtype if dtype is None else dtype_of(dtype, "dtype")
    rows, columns = sized(x.shape, kind)
    return np.eye(rows, columns, k).astype(kind)


@operator("Range")
def range_(start: Any, limit: Any, delta: Any) -> Any:
    """start, start + delta, … before limit."""
    dtype = start.dtype
    a, b, d = (number(v) for v in (start, limit, delta))
    if not d:
        raise ValueError("input 'delta' is 0")
    count = max(int(np.ceil((b - a) / d)), 0)
    sized([count], dtype)
    return (np.arange(count) * d + a).astype(dtype)


@operator("Trilu")
def trilu(x: Any, k: Any = None, *, upper: int) -> Any:
    """What is above or below a diagonal; 0 elsewhere."""
    if x.ndim < 2:
        raise ShapeError(f"an input has shape {tuple(x.shape)}, expected two axes")
    diagonal = 0 if k is None else number(k)
    return np.triu(x, diagonal) if upper else np.tril(x, diagonal)


@operator("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int) -> Any:
    """The second value where an index is, the first elsewhere."""
    n = int(number(depth))
    a = axis_of(axis, indices.ndim + 1)
    expect_shape("values", values, 2)
    sized((*indices.shape, n), values.dtype)
    places = np.expand_dims(indices.astype(np.int64), a)
    places = np.where(places < 0, places + n, places)
    each = np.arange(n).reshape((-1, *(1,) * (indices.ndim - a)))
    return np.where(places == each, values[1], values[0])


@operator("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """Channels as blocks of an image."""
    n, c, *image = x.shape
    d, b = len(image), blocksize
    each = c // b**d
    if mode == "DCR":
        y = x.reshape(n, *(b,) * d, each, *image)
        first, blocks = d + 1, range(1, d + 1)
    else:
        y = x.reshape(n, each, *(b,) * d, *image)
        first, blocks = 1, range(2, d + 2)
    places = [
        p for i, j in zip(range(d + 2, 2 * d + 2), blocks, strict=True) for p in (i, j)
    ]
    return y.transpose(0, first, *places).reshape(n, each, *(m * b for m in image))


@operator("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """Blocks of an image as channels."""
    n, c, *image = x.shape
    d, b = len(image), blocksize
    y = x.reshape(n, c, *(v for m in image for v in (m // b, b)))
    blocks, whole = range(3, 2 * d + 2, 2), range(2, 2 * d + 2, 2)
    order = (*blocks, 1) if mode == "DCR" else (1, *blocks)
    y = y.transpose(0, *order, *whole)
    return y.reshape(n, c * b**d, *(m // b for m in image))


# -- constants and types ---------------------------------------------------------------


@operator("Constant")
def constant(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
) -> Any:
    """The attribute that is given."""
    given: list[tuple[Any, Any]] = [
        *((v, None) for v in (value, sparse_value)),
        *((v, np.float32) for v in (value_float, value_floats)),
        *((v, np.int64) for v in (value_int, value_ints)),
        *((v, object) for v in (value_string, value_strings)),
    ]
    there = [(v, d) for v, d in given if v is not None]
    if len(there) != 1:
        raise ValueError(f"{counted(len(there), 'value')}, expected one")
    return np.asarray(there[0][0], there[0][1])


def cast(x: Any, dtype: np.dtype[Any], saturate: int = 1, mode: str = "up") -> Any:
    """x as another dtype, strings among them."""
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "O":
        texts = [str(v) for v in host_array(x).reshape(-1)]
        if dtype.kind in "iu":
            held = 2 ** (8 * dtype.itemsize)
            numbers = np.array([_integer(t) % held for t in texts], np.uint64)
        else:
            numbers = np.array([float(t) for t in texts], np.float64)
        return numbers.astype(dtype).reshape(x.shape)
    if dtype.kind == "O":
        made = np.empty(x.size, object)
        made[:] = [_text(v) for v in host_array(x).reshape(-1)]
        return made.reshape(x.shape)
    if dtype.name.startswith("float8") or dtype.name.startswith("float4"):
        return _to_tiny(host_array(x), dtype, saturate, mode)
    if dtype.kind == "V" and kind_of(np.empty(0, dtype)) != "f" == kind_of(x):
        return np.trunc(host_array(x).astype(np.float32)).astype(np.int32).astype(dtype)
    if np.dtype(x.dtype).kind == "V" and dtype.kind == "b":
        return host_array(x).astype(np.float32) != 0
    return x.astype(dtype)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # such as 1e3
        return int(float(text))


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return str(value)
    f = float(value)
    if np.isnan(f):
        return "NaN"
    if np.isinf(f):
        return "INF" if f > 0 else "-INF"
    return str(value)


def _to_tiny(x: Any, dtype: np.dtype[Any], saturate: int, mode: str) -> Any:
    """x in 8 bits or fewer: too large numbers become the largest if ``saturate``."""
    wide = x.astype(np.float32)
    if dtype.name == "float8_e8m0fnu":
        return _power_of_two(wide, dtype, saturate, mode)
    top = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    if saturate or dtype.name.startswith("float4"):
        return np.clip(wide, -top, top).astype(dtype)
    return wide.astype(dtype)


def _power_of_two(x: Any, dtype: np.dtype[Any], saturate: int, mode: str) -> Any:
    """x as a power of two, rounded up, down or to the nearest."""
    low, high = 2.0**-127, 2.0**127
    positive = np.abs(x)
    exponent = np.log2(np.where(positive > 0, positive, low))
    whole = np.floor(exponent)
    if mode == "up":
        whole = np.where(np.exp2(whole) < positive, whole + 1, whole)
    elif mode == "nearest":
        whole = np.where(positive >= 1.5 * np.exp2(whole), whole + 1, whole)
    made = np.exp2(whole.astype(np.float64))
    beyond = (made > high) | (made < low)
    made = np.clip(made, low, high) if saturate else np.where(beyond, np.nan, made)
    made = np.where(
        np.isfinite(x), made, np.where(np.isnan(x) | (not saturate), np.nan, high)
    )
    return made.astype(np.float32).astype(dtype)


@operator("Cast")
def cast_to(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """x as another type of elements."""
    return cast(x, dtype_of(to, "to"), saturate, round_mode)


@operator("BitCast")
def bit_cast(x: Any, *, to: int) -> Any:
    """The bits of x as another type of the same size."""
    return np.ascontiguousarray(host_array(x)).reshape(x.shape).view(dtype_of(to, "to"))


# -- drawn at random -------------------------------------------------------------------


def _drawn(shape: Any, dtype: Any, seed: float | None) -> Any:
    sized(shape, dtype)
    return np.random.default_rng(None if seed is None else int(seed))


@operator("RandomNormal", "RandomUniform", drawn=True)
def random(
    *,
    shape: Any,
    dtype: int,
    seed: float | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    low: float = 0.0,
    high: float = 1.0,
    call: Any,
) -> Any:
    """Numbers of the normal or the uniform distribution, others in each call unless
    there is a seed."""
    kind = dtype_of(dtype, "dtype")
    rng = _drawn(shape, kind, seed)
    if call.node.op.startswith("RandomNormal"):
        return rng.normal(mean, scale, shape).astype(kind)
    return rng.uniform(low, high, shape).astype(kind)


@operator("RandomNormalLike", "RandomUniformLike", drawn=True)
def random_like(
    x: Any,
    *,
    dtype: int | None = None,
    seed: float | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    low: float = 0.0,
    high: float = 1.0,
    call: Any,
) -> Any:
    """As :func:`random`, with the shape of x."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype) if dtype is None else dtype
    return random(
        shape=x.shape,
        dtype=kind,
        seed=seed,
        mean=mean,
        scale=scale,
        low=low,
        high=high,
        call=call,
    )


@operator("Bernoulli", drawn=True)
def bernoulli(x: Any, *, dtype: int | None = None, seed: float | None = None) -> Any:
    """1 with the probability that x says."""
    kind = x.dtype if dtype is None else dtype_of(dtype, "dtype")
    return (_drawn(x.shape, kind, seed).uniform(size=x.shape) < x).astype(kind)


@operator("Multinomial", drawn=True)
def multinomial(
    x: Any, *, dtype: int, sample_size: int, seed: float | None = None
) -> Any:
    """Classes drawn by their unnormalised log probabilities."""
    kind = dtype_of(dtype, "dtype")
    rng = _drawn((len(x), sample_size), kind, seed)
    p = np.exp(x.astype(np.float64) - np.max(x, -1, keepdims=True))
    ends = np.cumsum(p / p.sum(-1, keepdims=True), -1)
    drawn = rng.uniform(size=(len(x), sample_size))
    return (
        (drawn[:, :, None] >= ends[:, None, :])
        .sum(-1)
        .clip(0, x.shape[1] - 1)
        .astype(kind)
    )
