"""Generated CUDA kernels compiled by NVIDIA's own compiler library, NVRTC.

MLX compiles a kernel when a process first runs it, one after another, with headers of
its own that ours do not need: 1.5 s of a processor for each on an H100's host. Here
many are compiled at once, without those headers, and kept on disk.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from eqsat.support import BackendError, disk_cache, log_fallback

from ..gpu import compact

TYPES: dict[Any, str] = {
    mx.bool_: "bool",
    mx.int8: "int8_t",
    mx.int16: "int16_t",
    mx.int32: "int32_t",
    mx.int64: "int64_t",
    mx.uint8: "uint8_t",
    mx.uint16: "uint16_t",
    mx.uint32: "uint32_t",
    mx.uint64: "uint64_t",
    mx.float16: "__half",
    mx.bfloat16: "__nv_bfloat16",
    mx.float32: "float",
}
_INTEGERS = """typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
"""
"""There are no headers of C's."""
_HALVES = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
MOST_THREADS = 16
"""Kernels that are compiled at once."""


def runs(kernels: Iterable[CudaKernel]) -> list[Callable[..., Any] | None]:
    """What records a call of each kernel, compiled for MLX's device; None for what
    NVRTC refuses, which is logged, and where there is no NVRTC."""
    kernels = [*kernels]
    compiler = _compiler()
    if compiler is None:
        return [None] * len(kernels)
    with ThreadPoolExecutor(MOST_THREADS) as pool:
        codes = [*pool.map(compiler.kept, kernels)]
    return [
        (
            None
            if code is None
            else partial(
                mx.fast.precompiled_cuda_kernel,
                name=k.name,
                compiled_source=code,
                scalars=[],
                ensure_row_contiguous=True,
                **k.settings,
            )
        )
        for k, code in zip(kernels, codes, strict=True)
    ]


@dataclass(frozen=True)
class CudaKernel:
    """The text of a kernel, and the types of what it reads and writes."""

    name: str
    header: str
    body: str
    inputs: tuple[tuple[str, Any], ...]
    """Names and dtypes of MLX."""
    outputs: tuple[tuple[str, Any], ...]
    settings: Mapping[str, Any]
    """Of the call: the grid, and what the outputs are."""

    @property
    def text(self) -> str:
        """All that is compiled."""
        given = [f"const {TYPES[dtype]}* {name}" for name, dtype in self.inputs]
        given += [f"{TYPES[dtype]}* {name}" for name, dtype in self.outputs]
        before, inside = compact(self.header, self.body)
        function = f'extern "C" __global__ void {self.name}({", ".join(given)}) {{\n'
        text = f"{before}{function}{inside}}}\n"
        headers = (h for kind, h in _HALVES.items() if re.search(rf"\b{kind}\b", text))
        return "".join(f"#include <{h}>\n" for h in headers) + _INTEGERS + text


class Nvrtc:
    """The library, for MLX's device."""

    def __init__(self, library: ctypes.CDLL, folder: str, arch: str) -> None:
        self.library, self.arch = library, arch
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"
        self.flags = [f"--gpu-architecture={arch}", "--std=c++17", "-w"]
        self.flags.append("--device-as-default-execution-space")  # of lambdas
        self.flags += [f"--include-path={folder}"] if folder else []

    def kept(self, kernel: CudaKernel) -> bytes | None:
        """A kernel's machine code, from the disk if it is there; None where it is
        refused."""
        text = kernel.text
        key = disk_cache.key("cuda", text, self.arch, self.version)
        code = disk_cache.get(key)
        if code is None:
            try:
                code = self.compiled(kernel.name, text)
            except BackendError as error:
                log_fallback("mlx", kernel.name, "a compilation by MLX", str(error))
                return None
            disk_cache.put(key, code)
        return code

    def compiled(self, name: str, text: str) -> bytes:
        """Raises :class:`BackendError` with what the compiler says."""
        program = ctypes.c_void_p()
        given = text.encode(), f"{name}.cu".encode(), 0, None, None
        self._call("nvrtcCreateProgram", ctypes.byref(program), *given)
        try:
            flags = [f.encode() for f in self.flags]
            listed = (ctypes.c_char_p * len(flags))(*flags)
            if self.library.nvrtcCompileProgram(program, len(flags), listed):
                said = (
                    self._bytes("ProgramLog", program)
                    .decode(errors="replace")
                    .strip("\0\n")
                )
                raise BackendError(f"mlx: NVRTC refuses {name}: {said[:2000]}")
            return self._bytes("CUBIN", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        memory = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, memory)
        return memory.raw

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self.library, name)(*args)
        if status:
            raise BackendError(f"mlx: {name} returned {status}, expected 0")


@functools.cache
def _compiler() -> Nvrtc | None:
    """NVRTC as MLX has loaded it; None where MLX runs on no NVIDIA GPU."""
    if mx.default_device().type != mx.gpu or not mx.cuda.is_available():
        return None
    path = _loaded("nvrtc")
    if path is None:
        log_fallback("mlx", "kernels", "compilations by MLX", "NVRTC is not loaded")
        return None
    info = mx.device_info()
    major, minor = (info[f"compute_capability_{w}"] for w in ("major", "minor"))
    arch = f"sm_{major}{minor}{'a' * (int(major) >= 9)}"
    return Nvrtc(ctypes.CDLL(path), headers_of(path), arch)


def _loaded(stem: str) -> str | None:
    """The path of a library of this process, on Linux."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            lines = maps.read().splitlines()
    except OSError:
        return None
    paths = (line.partition("/")[2] for line in lines)
    named = re.compile(rf"(?:^|/)lib{stem}\.so[.\d]*$")
    return next((f"/{p}" for p in paths if named.search(p)), None)


def headers_of(path: str) -> str:
    """The folder of CUDA's headers: that of the library at ``path``, or an installed
    one; empty where there is none."""
    homes = [str(Path(path).parents[1]), "/usr/local/cuda"]
    homes[1:1] = [os.environ[n] for n in ("CUDA_HOME", "CUDA_PATH") if n in os.environ]
    folders = (Path(home) / "include" for home in homes)
    return next((str(f) for f in folders if (f / "cuda_fp16.h").exists()), "")
