"""Matrix products by the BLAS that NumPy brings, called from native code.

Each thread of a program multiplies rows of its own. OpenBLAS, which would start threads
for each of these, is held to one while programs with products run.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...loop_ir import (
    Layout,
)

_ROOT = Path(np.__file__).parent
LETTERS = {"float32": "s", "float64": "d"}
FUNCTIONS = ("sgemm", "dgemm", "sgemv", "dgemv", "strsm", "dtrsm", "strsv", "dtrsv")
FACTORISATIONS = (
    *("sgetrf", "dgetrf", "spotrf", "dpotrf"),
    *("dsyevd", "dgesdd", "dgeqrf", "dorgqr"),
)
"""Of LAPACK, which the library holds too."""


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


@dataclass(frozen=True)
class BlasLibrary:
    """Functions of a BLAS, as Fortran calls them."""

    addresses: Mapping[str, int]
    """Those of :data:`FUNCTIONS` and :data:`FACTORISATIONS`; where it can be held to
    one thread, ``blas_get_threads`` and ``blas_set_threads``."""
    integer_bits: int
    core: str = ""
    """The processor whose kernels it takes, as OpenBLAS names it: ``Haswell``."""

    @property
    def is_held(self) -> bool:
        """Whether it can be kept from starting threads of its own."""
        return "blas_set_threads" in self.addresses


@functools.cache
def library() -> BlasLibrary:
    """The OpenBLAS that NumPy has loaded, or what SciPy calls where that is another.

    NumPy's costs nothing to find; importing SciPy's takes a tenth of a second.
    """
    for folder in (_ROOT.parent / "numpy.libs", _ROOT / ".dylibs"):
        for path in sorted(folder.glob("libscipy_openblas*")):
            found = _openblas(ctypes.CDLL(str(path)))
            if found is not None:
                return found
    return _scipy()


def _openblas(loaded: ctypes.CDLL) -> BlasLibrary | None:
    for suffix, bits in (("64_", 64), ("", 32)):
        names = {
            **{
                name: f"scipy_{name}_{suffix}" for name in (*FUNCTIONS, *FACTORISATIONS)
            },
            "blas_get_threads": f"scipy_openblas_get_num_threads{suffix}",
            "blas_set_threads": f"scipy_openblas_set_num_threads{suffix}",
        }
        if all(hasattr(loaded, n) for n in names.values()):
            at = {
                ours: ctypes.cast(getattr(loaded, n), ctypes.c_void_p).value or 0
                for ours, n in names.items()
            }
            core = getattr(loaded, f"scipy_openblas_get_corename{suffix}", None)
            if core is None:
                return BlasLibrary(at, bits)
            core.restype = ctypes.c_char_p
            return BlasLibrary(at, bits, core().decode())
    return None


def _scipy() -> BlasLibrary:
    from scipy.linalg import cython_blas, cython_lapack

    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsules = {n: cython_blas.__pyx_capi__[n] for n in FUNCTIONS}
    capsules |= {n: cython_lapack.__pyx_capi__[n] for n in FACTORISATIONS}
    at = {n: get(c, name_of(c)) for n, c in capsules.items()}
    return BlasLibrary(at, 32)


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


_STATE = (ctypes.c_int64 * 3)()
"""A lock, how many programs hold BLAS to one thread, and the threads it had before."""
HOLD_IR = """
@blas_state = external global [3 x i64]
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

define internal void @blas_count(i64 %by) {
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
the last gives it back what it had."""


def imports() -> Mapping[str, int]:
    """Addresses of what a program with products names."""
    return {**library().addresses, "blas_state": ctypes.addressof(_STATE)}
