"""Maps: elements that depend on no others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...loop_ir import (
    Gather,
    LoopVar,
    Statement,
    Store,
)
from ..c_code import SIMD
from .kernel_writer import VECTOR, GpuKernelWriter, accesses

MAP_GROUP = 256
"""Threads of a group of a map."""
LARGE, LARGE_GROUP = 1 << 22, 128
"""Threads of a map from which a group has fewer, where each reads and writes vectors
of elements of 4 bytes or more: an H200 takes 129.6 µs for scale, shift and gelu of
16,384×4,096 float32; with groups of 256, 512 and 1,024 it takes 131.3, 135 and 141.
Two or four vectors a thread, or a loop over fewer threads, are slower, too (131 to
139)."""


class Map(GpuKernelWriter):
    """Elements that depend on no others."""

    threads = 0
    """Of a group; 0 for what is best."""

    def write(self) -> None:
        (only,) = self.nest.passes
        statements = [*only.before, *only.body]
        store = next(s for s in statements if isinstance(s, Store))
        variables = [*self.nest.grid, *only.loops]
        variables.sort(key=lambda v: -abs(store.at.coefficient(v)))
        if not variables:
            variables = [LoopVar("one", 1)]
        inner = variables[-1]
        lone = len(variables) == 1
        n = self.width(statements, inner, 1 << 30 if lone else inner.size)
        if store.at.coefficient(inner) != 1:
            n = 1
        parts = -(-inner.size // n)
        total = prod(v.size for v in variables[:-1]) * parts
        large = total >= LARGE and self._is_even(statements, inner, n)
        most = LARGE_GROUP if large else MAP_GROUP
        self.group = self.threads or min(most, -(-total // SIMD) * SIMD)
        self.groups = -(-total // self.group)
        out = self.out
        kind = self.unsigned
        out.add(f"const {kind} thread_ = {kind}(group) * {self.group} + lane;")
        out.add(f"if (thread_ >= {total}) return;")
        if not (lone and inner.size % n):
            self.split("thread_", variables, n)
            self.block(statements, inner, n)
            return
        self.split("thread_", [LoopVar(inner.name, parts * n)], n)
        self.index[inner] = self.index.pop(LoopVar(inner.name, parts * n))
        first = self.index[inner]
        out.open(f"if ({first} + {n} <= {inner.size})")
        self.block(statements, inner, n)
        out.depth -= 1
        out.open("} else")
        out.open(f"for ({self.int} i = {first}; i < {inner.size}; ++i)")
        self.index[inner] = "i"
        self.block(statements, inner, 1)
        out.close()
        out.close()

    def _is_even(self, statements: Sequence[Statement], inner: LoopVar, n: int) -> bool:
        """Whether a thread reads neighbours alone and writes vectors of large ones."""
        if any(isinstance(s, Gather) for s in statements):
            return False
        stores = [s for s in statements if isinstance(s, Store)]
        smallest = min(self.nest.buffers[s.buffer].dtype.itemsize for s in stores)
        steps = [abs(at.coefficient(inner)) for _, at in accesses(statements)]
        return smallest >= 4 and n * smallest == VECTOR and max(steps) < 2
