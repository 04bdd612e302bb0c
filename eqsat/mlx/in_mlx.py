"""Primitives as calls of MLX, for those that no program has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from eqsat.mlx.indexing import every_place
from eqsat.mlx.primitive_graph import Primitive

_MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
"""Quantisation modes by their number."""


def can_run(node: Primitive) -> bool:
    """Whether there is a call of MLX for a primitive."""
    return node.op in CALLS


def run(node: Primitive, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a primitive for arrays of MLX."""
    found = CALLS[node.op](node, *inputs, *node.arguments)
    return tuple(found) if isinstance(found, (list, tuple)) else (found,)


def _convolution(node: Primitive, x: Any, w: Any, *how: Any) -> Any:
    stride, low, high, dilation, spread, groups, flip = how
    return mx.conv_general(
        x, w, stride, (low, high), dilation, spread, groups=groups, flip=flip
    )


def _fft(node: Primitive, x: Any, axes: Any, inverse: bool, real: bool, *_: Any) -> Any:
    name = f"{'i' if inverse else ''}{'r' if real else ''}fftn"
    like = node.outputs[0] if inverse else node.inputs[0]
    return getattr(mx.fft, name)(x, [like.shape[a] for a in axes], list(axes))


def _quantized_matmul(node: Primitive, x: Any, w: Any, *rest: Any) -> Any:
    *scales, group_size, bits, mode, transpose = rest
    how: dict[str, Any] = {
        "transpose": transpose,
        "group_size": group_size,
        "bits": bits,
        "mode": _MODES[mode],
    }
    return mx.quantized_matmul(x, w, *scales, **how)


def _gather_qmm(node: Primitive, x: Any, w: Any, *rest: Any) -> Any:
    *scales, left, right, group_size, bits, mode, transpose, _, is_sorted = rest
    how: dict[str, Any] = {
        "lhs_indices": left,
        "rhs_indices": right,
        "transpose": transpose,
        "group_size": group_size,
        "bits": bits,
        "mode": _MODES[mode],
        "sorted_indices": is_sorted,
    }
    return mx.gather_qmm(x, w, *scales, **how)


def _quantize(node: Primitive, x: Any, *rest: Any) -> Any:
    *scales, group_size, bits, mode, is_back = rest
    how: dict[str, Any] = {"group_size": group_size, "bits": bits, "mode": _MODES[mode]}
    return mx.dequantize(x, *scales, **how) if is_back else mx.quantize(x, **how)


def _gather_mm(node: Primitive, x: Any, y: Any, left: Any, right: Any, *_: Any) -> Any:
    return mx.gather_mm(x, y, left, right)


def _scatter(node: Primitive, x: Any, *rest: Any) -> Any:
    *indices, values, kind, axes = rest
    sizes = values.shape[indices[0].ndim if indices else 0 :]
    key = every_place(mx, indices, axes, sizes)
    joins = ("maximum", "minimum", "add", "multiply")
    if kind < len(joins):
        return getattr(x.at[key], joins[kind])(values)
    y = mx.array(x)
    y[key] = values
    return y


def _linalg(name: str) -> Callable[..., Any]:
    def call(node: Primitive, x: Any, *arguments: Any) -> Any:
        return getattr(mx.linalg, name)(x, *arguments, stream=mx.cpu)

    return call


def _inverse(node: Primitive, x: Any, is_triangular: bool, upper: bool) -> Any:
    if is_triangular:
        return mx.linalg.tri_inv(x, upper, stream=mx.cpu)
    return mx.linalg.inv(x, stream=mx.cpu)


def _eigh(node: Primitive, x: Any, triangle: str, has_vectors: bool) -> Any:
    find = mx.linalg.eigh if has_vectors else mx.linalg.eigvalsh
    return find(x, triangle, stream=mx.cpu)


def _eig(node: Primitive, x: Any, has_vectors: bool) -> Any:
    find = mx.linalg.eig if has_vectors else mx.linalg.eigvals
    return find(x, stream=mx.cpu)


CALLS: dict[str, Callable[..., Any]] = {
    "Convolution": _convolution,
    "Cholesky": _linalg("cholesky"),
    "Eig": _eig,
    "Eigh": _eigh,
    "FFT": _fft,
    "GatherMM": _gather_mm,
    "GatherQMM": _gather_qmm,
    "Hadamard": lambda node, x, scale: mx.hadamard_transform(x, scale),
    "Inverse": _inverse,
    "Power": lambda node, x, y: mx.power(x, y),
    "QRF": _linalg("qr"),
    "Quantize": _quantize,
    "QuantizedMatmul": _quantized_matmul,
    "Scatter": _scatter,
    "SVD": lambda node, x, has_vectors: mx.linalg.svd(
        x, compute_uv=has_vectors, stream=mx.cpu
    ),
    "SearchSorted": lambda node, x, v, right: mx.searchsorted(
        x, v, side="right" if right else "left"
    ),
    "View": lambda node, x, dtype: mx.view(x, dtype),
}
"""By the name of a primitive: a function of it, its inputs and its arguments."""
