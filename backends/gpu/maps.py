"""Maps: elements that depend on no others."""

from __future__ import annotations

from math import prod

from ..kernels.affine import Var
from ..kernels.language import (
    Store,
)
from .dialect import SIMD
from .writer import Writer

MAP_GROUP = 256
"""Threads of a group of a map."""


class Map(Writer):
    """Elements that depend on no others."""

    def write(self) -> None:
        (only,) = self.nest.passes
        statements = [*only.before, *only.body]
        store = next(s for s in statements if isinstance(s, Store))
        variables = [*self.nest.grid, *only.loops]
        variables.sort(key=lambda v: -abs(store.at.coefficient(v)))
        if not variables:
            variables = [Var("one", 1)]
        inner = variables[-1]
        lone = len(variables) == 1
        n = self.width(statements, inner, 1 << 30 if lone else inner.size)
        if store.at.coefficient(inner) != 1:
            n = 1
        parts = -(-inner.size // n)
        total = prod(v.size for v in variables[:-1]) * parts
        self.group = min(MAP_GROUP, -(-total // SIMD) * SIMD)
        self.groups = -(-total // self.group)
        out = self.out
        kind = self.unsigned
        out.add(f"const {kind} thread_ = {kind}(group) * {self.group} + lane;")
        out.add(f"if (thread_ >= {total}) return;")
        if not (lone and inner.size % n):
            self.split("thread_", variables, n)
            self.block(statements, inner, n)
            return
        self.split("thread_", [Var(inner.name, parts * n)], n)
        self.index[inner] = self.index.pop(Var(inner.name, parts * n))
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
