"""Integers that stand for floats by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.onnx.shapes import cast
from eqsat.onnx.table import kind_of, operator
from eqsat.onnx.tensors import dtype_of
from eqsat.onnx.windows import convolved, pads_of


def _beside(v: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or a zero point of x, one for all, for each index of an axis, or for
    each block of indices."""
    if v is None or (v.size == 1 and v.ndim < 2 and not block):
        return None if v is None else v.reshape(())
    if block:
        y = np.repeat(v, block, axis=axis)
        return y[(slice(None),) * (axis % x.ndim) + (slice(0, x.shape[axis]),)]
    if v.ndim > 1:
        return v
    return v.reshape((-1,) + (1,) * (x.ndim - 1 - axis % x.ndim))


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
    s, z = (_beside(v, x, axis, block_size) for v in (scale, zero))
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
    s, z = (_beside(v, x, axis, block_size) for v in (scale, zero))
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
        if v.ndim == 1 and v.shape[0] > 1:
            return v.reshape((-1, 1) if axis else (1, -1))
        return v.reshape(()) if v.size == 1 else v

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

    def first(v: Any) -> Any:
        return v.reshape(()) if v.size == 1 else v.reshape((-1,) + (1,) * (w.ndim - 1))

    d = x.ndim - 2
    steps, gaps = strides or [1] * d, dilations or [1] * d
    around = pads_of(x.shape[2:], w.shape[2:], steps, gaps, pads, auto_pad)
    image = x.astype(np.int32) - zx.astype(np.int32).reshape(())
    kernel = w.astype(np.int32) - first(zw).astype(np.int32)
    y = convolved(image, kernel, steps, gaps, around, group)
    if b is not None:
        y = y + b.reshape((-1,) + (1,) * d)
    factor = sx.reshape(()) * (
        sw.reshape(()) if sw.size == 1 else sw.reshape((-1,) + (1,) * d)
    )
    return quantized(
        y.astype(np.float32) * factor,
        sy.reshape(()),
        zy.reshape(()),
        np.dtype(zy.dtype),
    )
