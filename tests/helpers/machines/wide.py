"""Kernels for Hopper's tensor cores in tests: on the model of a GPU, which is where
there is no such device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from metal import model
from mlx_checking import ON_GPU
from natives import Array

from eqsat.backends.gpu.hopper import products, tensor_cores
from eqsat.backends.mlx import hopper_calls

modelled = pytest.mark.skipif(
    ON_GPU or model.COMPILER is None, reason="on the device, or no C++ compiler"
)
HERE = ON_GPU and hopper_calls.are_ours("cuda")
on_device = pytest.mark.skipif(not HERE, reason="no tensor cores of Hopper")


def drawn(rng: Any, shape: tuple[int, ...], kind: str = "C") -> Array:
    """Numbers of several sizes, in NumPy's order C or, of the last two axes, F."""
    x = rng.standard_normal(shape, dtype=np.float32)
    x *= np.float32(2.0) ** rng.integers(-3, 4, x.shape).astype(np.float32)
    if kind == "F":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    return x


def lying(x: Array) -> tuple[Array, tuple[int, ...]]:
    """An array without gaps that holds all of ``x``, and the strides of ``x`` in it, in
    elements."""
    order = sorted(range(x.ndim), key=lambda a: -x.strides[a])
    once = x[tuple(slice(None) if s else slice(1) for s in x.strides)]
    packed = np.ascontiguousarray(once.transpose(order))
    steps = dict(zip(order, packed.strides, strict=True))
    return packed, tuple(
        steps[a] // x.itemsize if x.strides[a] else 0 for a in range(x.ndim)
    )


def ran(
    kernel: tensor_cores.HopperKernel, arrays: list[Array], dtype: str, seed: int
) -> Array:
    """The result of a kernel on the model of a GPU; bfloat16 as uint16."""
    few = len(kernel.parts)
    held = [lying(x) for x in arrays]
    lies = [(x.shape, steps, 0) for x, (_, steps) in zip(arrays, held, strict=True)]
    told = np.array(tensor_cores.told(lies[few:]))
    given = [*(x for x, _ in held), told]
    stored = np.empty(kernel.shape, np.uint16 if dtype == "bfloat16" else np.float32)
    names = {"uint16": "bfloat16"}
    inputs = tuple(
        (n, names.get(str(x.dtype), str(x.dtype)), x.size)
        for n, x in zip(kernel.inputs, given, strict=True)
    )
    output = (("y" if dtype == "bfloat16" else "result", dtype, stored.size),)
    unit = model.Unit(
        "cuda", kernel.header, kernel.body, inputs, output, kernel.shared_bytes
    )
    model.launched(
        model.one(unit), given, [stored], kernel.groups, products.GROUP, seed
    )
    return stored
