"""Nests as bodies of GPU kernels.

A map gives each thread a few neighbours of the result. A row is one thread group's, 32
lanes' or one thread's, by its length; what later passes read again stays in registers
where it fits, and is computed again where it does not: then sums of powers are found in
one pass with the greatest. Where neighbouring rows lie side by side, lanes run along
these and thread groups share the elements of a row out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...loop_ir import (
    Accumulate,
    Nest,
    Unsupported,
)
from ..c_code import Dialect
from .contiguous_rows import ContiguousRows
from .kernel_writer import GpuKernelWriter, Lines, Source
from .maps import Map
from .strided_rows import Columns

__all__ = ["Source", "joined_source", "source_of"]


def source_of(nest: Nest, sizes: Sequence[int], dialect: Dialect) -> Source:
    """``nest``, whose buffers have so many elements, in a language.

    Raises :class:`Unsupported` for a statement that it cannot say.
    """
    return _writer(nest, sizes, dialect).source()


def joined_source(
    nests: Sequence[Nest], sizes: Sequence[int], dialect: Dialect
) -> Source:
    """``nests``, which have the same buffers and write different elements of them, as
    one kernel: its groups are those of the first, then those of the next.

    Raises :class:`Unsupported` for rows, too: their groups differ in size.
    """
    maps = [_writer(nest, sizes, dialect) for nest in nests]
    for m in maps:
        if not isinstance(m, Map):
            raise Unsupported("rows in a result of several parts")
        m.write()
    group = max(m.group for m in maps)
    out, start = Lines(), 0
    out.add("const uint all_groups = group;")
    whole: list[Source] = []
    for nest in nests:
        m = Map(nest, sizes, dialect)
        m.threads = group
        whole.append(m.source())
        out.open(f"if (all_groups >= {start} && all_groups < {start + m.groups})")
        out.add(f"const uint group = all_groups - {start};", *m.out.text)
        out.close()
        start += m.groups
    m.groups = start
    return replace(m.finished(out.text), joined=tuple(whole))


def _writer(nest: Nest, sizes: Sequence[int], dialect: Dialect) -> GpuKernelWriter:
    if not any(isinstance(s, Accumulate) for s in nest.statements()):
        return Map(nest, sizes, dialect)
    if nest.vertical:
        return Columns(nest, sizes, dialect)
    return ContiguousRows(nest, sizes, dialect)
