"""Integers that stand for floats by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.onnx.operators.shapes import cast
from eqsat.onnx.operators.table import (
    axis_of,
    expect_broadcast,
    expect_shape,
    kind_of,
    operator,
)
from eqsat.onnx.operators.tensors import dtype_of
from eqsat.onnx.operators.windows import convolved, pads_of
from eqsat.support import ShapeError


def _beside(x: Any, scale: Any, zero: Any, axis: int, block: int) -> tuple[Any, Any]:
    """A scale and a zero point of x, one for all, for each index of an axis, or for
    each block of indices."""
    given = ("scale", scale), ("zero_point", zero)
    return tuple(  # type: ignore[return-value]
        None if v is None else _beside_axis(x, name, v, axis, block)
        for name, v in given
    )


def _beside_axis(x: Any, name: str, v: Any, axis: int, block: int) -> Any:
    if block < 0:
        raise ValueError(f"attribute 'block_size' is {block}, expected 0 or more")
    if v.size == 1 and v.ndim < 2 and not block:
        return v.reshape(())
    a = axis_of(axis, x.ndim)
    if block:
        sizes = [-(-n // block) if i == a else n for i, n in enumerate(x.shape)]
        expect_shape(name, v, *sizes)
        y = np.repeat(v, block, axis=a)
        return y[(slice(None),) * a + (slice(0, x.shape[a]),)]
    expect_shape(name, v, x.shape[a])
    return v.reshape((-1,) + (1,) * (x.ndim - 1 - a))


def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    name = dtype.name
    bits = int(name.lstrip("uint"))
    if name.startswith("u"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def quantized(
    x: Any, scale: Any, zero: Any, dtype: np.dtype[Any], saturate: int = 1
) -> Any:
    """x / scale, rounded, plus the zero point, within the dtype."""
    if kind_of(np.empty(0, dtype)) == "f":
        y = x / scale
        return cast(y if zero is None else y + zero.astype(y.dtype), dtype, saturate)
    low, high = _bounds(dtype)
    y = np.rint(x / scale)
    if y.dtype.itemsize < 4:  # which does not hold the bounds of 16 bits
        y = y.astype(np.float32)
    if zero is not None:
        y = y + zero.astype(np.float32)
    y = np.minimum(np.maximum(y, low), high)
    return y.astype(np.int32).astype(dtype) if dtype.kind == "V" else y.astype(dtype)


@operator("QuantizeLinear")
def quantize_linear(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    """x / scale, rounded, plus the zero point."""
    if zero is not None:
        dtype = np.dtype(zero.dtype)
    else:
        dtype = (
            dtype_of(output_dtype, "output_dtype") if output_dtype else np.dtype("u1")
        )
    s, z = _beside(x, scale, zero, axis, block_size)
    if precision:
        x, s = (v.astype(dtype_of(precision, "precision")) for v in (x, s))
    elif s.dtype != x.dtype:
        s = s.astype(x.dtype) if kind_of(x) == "f" and s.dtype.itemsize == 2 else s
    return quantized(
        x if kind_of(x) == "f" else x.astype(s.dtype), s, z, dtype, saturate
    )


@operator("DequantizeLinear")
def dequantize_linear(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """(x - zero point) scale."""
    s, z = _beside(x, scale, zero, axis, block_size)
    dtype = dtype_of(output_dtype, "output_dtype") if output_dtype else scale.dtype
    wide = np.int32 if kind_of(x) != "f" else np.float32
    y = x.astype(wide)
    if z is not None:
        y = y - z.astype(wide)
    return (y.astype(np.float32) * s.astype(np.float32)).astype(dtype)


@operator("QLinearMatMul")
def qlinear_matmul(
    a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any, zy: Any
) -> Any:
    """A product of quantised matrices."""

    def rows(v: Any, x: Any, axis: int) -> Any:
        if v.size == 1:
            return v.reshape(())
        if v.ndim == 1:
            v = v.reshape((-1, 1) if axis else (1, -1))
        expect_broadcast("scale or zero point", v, x.shape)
        return v

    x = a.astype(np.int32) - rows(za, a, 1).astype(np.int32)
    y = b.astype(np.int32) - rows(zb, b, 0).astype(np.int32)
    product = np.matmul(x, y).astype(np.float32)
    factor = rows(sa, a, 1).astype(np.float32) * rows(sb, b, 0).astype(np.float32)
    one = rows(sy, product, 1).astype(np.float32)
    return quantized(product * factor, one, rows(zy, product, 1), np.dtype(zy.dtype))


@operator("QLinearConv")
def qlinear_conv(
    x: Any,
    sx: Any,
    zx: Any,
    w: Any,
    sw: Any,
    zw: Any,
    sy: Any,
    zy: Any,
    b: Any = None,
    *,
    auto_pad: str,
    dilations: Any = None,
    group: int,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A convolution of quantised images."""

    def first(v: Any, name: str = "w_zero_point", more: int = 1) -> Any:
        if v.size == 1:
            return v.reshape(())
        expect_shape(name, v, w.shape[0])
        return v.reshape((-1,) + (1,) * (w.ndim - 2 + more))

    d = x.ndim - 2
    if kernel_shape not in (None, [*w.shape[2:]]):
        raise ShapeError(
            f"attribute 'kernel_shape' is {kernel_shape}, and input 'w' has shape "
            f"{tuple(w.shape)}"
        )
    expect_shape("B", b, w.shape[0])
    steps, gaps = strides or [1] * d, dilations or [1] * d
    around = pads_of(x.shape[2:], w.shape[2:], steps, gaps, pads, auto_pad)
    image = x.astype(np.int32) - zx.astype(np.int32).reshape(())
    kernel = w.astype(np.int32) - first(zw).astype(np.int32)
    y = convolved(image, kernel, steps, gaps, around, group)
    if b is not None:
        y = y + b.reshape((-1,) + (1,) * d)
    factor = sx.reshape(()) * first(sw, "w_scale", 0)
    return quantized(
        y.astype(np.float32) * factor,
        sy.reshape(()),
        zy.reshape(()),
        np.dtype(zy.dtype),
    )
