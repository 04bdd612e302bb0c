"""Generated kernels on the model of a GPU: compiled by the system's C++ compiler, run
by :mod:`ctypes`."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from made import Compiler, CompilerError

from eqsat.backends.gpu.minify import compact

HERE = Path(__file__).resolve().parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
SMALL = 8
"""Elements below which Metal's inputs are in constant memory."""
TYPES = {
    "metal": {"float16": "half", "bfloat16": "bfloat16_t", "float32": "float"},
    "cuda": {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float"},
}
ATTRIBUTES = {
    "threadgroup_position_in_grid": "uint3{model::launch->group, 0, 0}",
    "thread_position_in_threadgroup": "uint3{model::launch->now->number, 0, 0}",
}
"""What Metal passes to a function that names it."""


class ModelError(AssertionError):
    """A kernel that breaks the rules of a launch."""


@dataclass(frozen=True)
class Unit:
    """A kernel and the types of its arguments: what one function is compiled of."""

    language: str
    header: str
    body: str
    inputs: tuple[tuple[str, str, int], ...]
    """Name, dtype and number of elements."""
    outputs: tuple[tuple[str, str, int], ...]
    shared_bytes: int = 0
    """Of the memory that a group is given when it starts."""

    def text(self, name: str) -> str:
        """The function as MLX is handed it, with the signature that MLX gives it."""
        header = self.header.replace("EQ_SHARED threadgroup", "EQ_SHARED EQM_SHARED")
        header = header.replace("EQ_LOCAL threadgroup", "EQ_LOCAL")
        header, body = compact(header, self.body)
        args, n = [], 0
        for stem, dtype, size in self.inputs:
            kind = TYPES[self.language].get(dtype) or f"{dtype}_t"
            kind = "bool" if dtype == "bool" else kind
            small = self.language == "metal" and size < SMALL
            shown = f"model::Constant<{kind}>" if small else f"const {kind}*"
            args.append(f"const auto {stem} = {shown}{{(const {kind}*)buffers[{n}]}};")
            if not small:
                args[-1] = f"const {kind}* {stem} = (const {kind}*)buffers[{n}];"
            n += 1
        for stem, dtype, _ in self.outputs:
            kind = TYPES[self.language].get(dtype) or f"{dtype}_t"
            kind = "bool" if dtype == "bool" else kind
            args.append(f"{kind}* {stem} = ({kind}*)buffers[{n}];")
            n += 1
        if self.language == "metal":
            args += [
                f"const uint3 {a} = {text};"
                for a, text in ATTRIBUTES.items()
                if a in self.body
            ]
        room = rf"__shared__ unsigned char \1[{self.shared_bytes}];"
        body = re.sub(r"extern __shared__ unsigned char (\w+)\[\];", room, body)
        macros = re.findall(r"^#define (\w+)", header, re.MULTILINE)
        lines = [
            f"namespace {name} {{",
            header,
            "void kernel(void** buffers) {",
            *args,
            body,
            "}",
            "}",
            *(f"#undef {m}" for m in macros),
            f'extern "C" const char* run_{name}(void** arrays, const int64_t* sizes, '
            "const int64_t* items, int count, int outputs, uint groups, uint group, "
            "uint seed) {",
            f"  return model::run({name}::kernel, arrays, sizes, items, count, "
            "outputs, groups, group, seed, EQM_START, EQM_SIZE);",
            "}",
        ]
        return "\n".join(lines)


_ENDS = """
extern "C" char __start_group_memory[], __stop_group_memory[];
static __attribute__((section("group_memory"), used)) char at_least_one[16];
#define EQM_START __start_group_memory
#define EQM_SIZE size_t(__stop_group_memory - __start_group_memory)
"""
FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=off"),
    *("-U_FORTIFY_SOURCE", "-fsanitize=alignment"),
    "-fsanitize-undefined-trap-on-error",
)


@functools.cache
def _compiler() -> Compiler:
    paths = [HERE / name for name in ("model.h", "tensor_cores.h")]
    header = "\n".join(p.read_text(encoding="utf-8") for p in paths)
    return Compiler(str(COMPILER), FLAGS, header)


def compiled(units: Sequence[Unit]) -> dict[Unit, Any]:
    """A function for each kernel. Raises :class:`ModelError` for one that is no C++."""
    text = "\n".join([_ENDS, *(u.text(f"k{i}") for i, u in enumerate(units))])
    try:
        loaded = ctypes.CDLL(str(_compiler().library(text)))
    except CompilerError as error:
        raise ModelError(str(error)) from None
    functions = {}
    for i, u in enumerate(units):
        function = getattr(loaded, f"run_k{i}")
        function.restype = ctypes.c_char_p
        functions[u] = function
    return functions


@functools.cache
def one(unit: Unit) -> Any:
    """The function of one kernel."""
    return compiled([unit])[unit]


def launched(
    function: Any,
    inputs: Sequence[np.ndarray[Any, Any]],
    outputs: Sequence[np.ndarray[Any, Any]],
    groups: int,
    group: int,
    seed: int,
) -> None:
    """Fill ``outputs``. Raises :class:`ModelError` that says what is wrong."""
    arrays = [np.ascontiguousarray(x) for x in inputs] + list(outputs)
    pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    sizes = (ctypes.c_int64 * len(arrays))(*(a.nbytes for a in arrays))
    items = (ctypes.c_int64 * len(arrays))(*(a.itemsize for a in arrays))
    counts = len(arrays), len(inputs)
    wrong = function(pointers, sizes, items, *counts, groups, group, seed)
    if wrong:
        raise ModelError(wrong.decode())
