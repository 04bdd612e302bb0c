"""Matrix products by the BLAS that NumPy brings, called from native code.

Each thread of a program multiplies rows of its own. OpenBLAS, which would start threads
for each of these, is held to one while programs with products run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat.saved import BlasLibrary
from eqsat.saved import blas_library as library
from eqsat.support import cached_once

from .objects import compiled
from .processor import LoadedObject, host, load

if TYPE_CHECKING:
    from ...loop_ir import Layout

__all__ = ["BITS", "HELD", "HOLD_IR", "LETTERS", "BlasLibrary", "Matrix", "library"]

LETTERS = {"float32": "s", "float64": "d"}


@dataclass(frozen=True)
class Matrix:
    """A matrix as BLAS wants it: whether to transpose it, and its leading dimension."""

    is_transposed: bool
    leading: int


def matrix(layout: Layout, rows: int, columns: int) -> Matrix:
    """A row-major view of ``layout``; BLAS itself counts by columns."""
    along_rows, along_columns = layout.strides[-2:]
    if (along_columns == 1 or columns == 1) and (along_rows >= columns or rows == 1):
        return Matrix(False, max(along_rows, columns, 1))
    return Matrix(True, max(along_columns, rows, 1))


BITS = {
    **dict.fromkeys(("SkylakeX", "Cooperlake", "Sapphirerapids"), 512),
    **dict.fromkeys(("Haswell", "Zen", "Excavator", "Sandybridge"), 256),
    **dict.fromkeys(("Steamroller", "Piledriver", "Bulldozer"), 256),
    **dict.fromkeys(("Prescott", "Core2", "Penryn", "Dunnington", "Nehalem"), 128),
    **dict.fromkeys(("Athlon", "Opteron", "Barcelona", "Bobcat", "Atom"), 128),
}
"""Bits of the vectors of kernels of OpenBLAS, by the names of processors."""


def vector_bits() -> int:
    """Bits of the vectors that BLAS computes with; of one that is not known, many."""
    return BITS.get(library().core, 1 << 16)


HELD = "blas_count"
HOLD_IR = """
; A lock, how many programs hold BLAS to one thread, and the threads it had before.
@blas_state = internal global [3 x i64] zeroinitializer
declare i32 @blas_get_threads()
declare void @blas_set_threads(i32)

define internal void @blas_lock() {
  br label %try
try:
  %pair = cmpxchg ptr @blas_state, i64 0, i64 1 seq_cst seq_cst
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %end, label %try
end:
  ret void
}

define void @blas_count(i64 %by) {
  call void @blas_lock()
  %place = getelementptr i64, ptr @blas_state, i64 1
  %had = getelementptr i64, ptr @blas_state, i64 2
  %before = load i64, ptr %place
  %now = add i64 %before, %by
  store i64 %now, ptr %place
  %total = add i64 %before, %now
  %edge = icmp eq i64 %total, 1
  br i1 %edge, label %change, label %end
change:
  %enters = icmp eq i64 %now, 1
  br i1 %enters, label %hold, label %free
hold:
  %threads = call i32 @blas_get_threads()
  %wide = sext i32 %threads to i64
  store i64 %wide, ptr %had
  call void @blas_set_threads(i32 1)
  br label %end
free:
  %old = load i64, ptr %had
  %small = trunc i64 %old to i32
  call void @blas_set_threads(i32 %small)
  br label %end
end:
  store atomic i64 0, ptr @blas_state seq_cst, align 8
  ret void
}
"""
"""``blas_count``: 1 before products run, -1 after; the first holds BLAS to one thread,
the last gives it back what it had. All programs of a process call one."""


@cached_once
def _holder() -> LoadedObject:
    return load(compiled(HOLD_IR, host()), [HELD], library().addresses)


def imports() -> Mapping[str, int]:
    """Addresses of what a program with products names."""
    found = library()
    held = {HELD: _holder().address(HELD)} if found.is_held else {}
    return {**found.addresses, **held}
