"""Nests as bodies of GPU kernels.

A map gives each thread a few neighbours of the result. A row is one thread group's, 32
lanes' or one thread's, by its length; what later passes read again stays in registers
where it fits, and is computed again where it does not: then sums of powers are found in
one pass with the greatest. Where neighbouring rows lie side by side, lanes run along
these and thread groups share the elements of a row out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...loop_ir import (
    Accumulate,
    Nest,
)
from ..c_code import Dialect
from .contiguous_rows import ContiguousRows
from .kernel_writer import GpuKernelWriter, Source
from .maps import Map
from .strided_rows import Columns

__all__ = ["Source", "source_of"]


def source_of(nest: Nest, sizes: Sequence[int], dialect: Dialect) -> Source:
    """``nest``, whose buffers have so many elements, in a language.

    Raises :class:`Unsupported` for a statement that it cannot say.
    """
    return _writer(nest, sizes, dialect).source()


def _writer(nest: Nest, sizes: Sequence[int], dialect: Dialect) -> GpuKernelWriter:
    if not any(isinstance(s, Accumulate) for s in nest.statements()):
        return Map(nest, sizes, dialect)
    if nest.vertical:
        return Columns(nest, sizes, dialect)
    return ContiguousRows(nest, sizes, dialect)
