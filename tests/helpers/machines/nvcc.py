"""Generated CUDA kernels compiled by NVIDIA's compiler library, which takes no GPU.

It comes with ``pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import mlx.core as mx
from metal.model import Unit

from eqsat.backends.mlx.cuda_compiler import CudaKernel, Nvrtc, headers_of

ARCHITECTURE = "sm_90a"


def _library() -> Path | None:
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    found = (p for f in folders or () for p in Path(f).glob("*/lib/libnvrtc.so.*"))
    return next(found, None)


COMPILER = _library()


def assert_compiles(units: Sequence[Unit]) -> None:
    """Raises :class:`BackendError` with what the compiler says."""
    path = str(COMPILER)
    compiler = Nvrtc(ctypes.CDLL(path), headers_of(path), ARCHITECTURE)
    kernels = [_kernel(f"k{i}", u) for i, u in enumerate(units)]
    with ThreadPoolExecutor() as pool:
        codes = pool.map(lambda k: compiler.compiled(k.name, k.text), kernels)
        assert all(codes)


def _kernel(name: str, unit: Unit) -> CudaKernel:
    given, found = (
        tuple((stem, _dtype(dtype)) for stem, dtype, _ in arrays)
        for arrays in (unit.inputs, unit.outputs)
    )
    return CudaKernel(name, unit.header, unit.body, given, found, {})


def _dtype(name: str) -> mx.Dtype:
    found: mx.Dtype = getattr(mx, "bool_" if name == "bool" else name)
    return found
