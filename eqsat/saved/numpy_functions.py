"""C functions that NumPy brings: BLAS, LAPACK, and the sorts of its dtypes.

The BLAS is the OpenBLAS that NumPy has loaded, or what SciPy calls where that is
another one. The sorts are those of ``PyArray_ArrFuncs``, which NumPy's C API gives out.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_ROOT = Path(np.__file__).parent
FUNCTIONS = ("sgemm", "dgemm", "sgemv", "dgemv", "strsm", "dtrsm", "strsv", "dtrsv")
FACTORISATIONS = (
    *("sgetrf", "dgetrf", "spotrf", "dpotrf"),
    *("dsyevd", "dgesdd", "dgeqrf", "dorgqr"),
)
"""Of LAPACK, which the library holds too."""
_HOLDING = ("blas_get_threads", "blas_set_threads")
OF_BLAS = frozenset((*FUNCTIONS, *FACTORISATIONS, *_HOLDING))
"""All names of :attr:`BlasLibrary.addresses`."""
_ARRAY_TYPE, _GET_FUNCTIONS = 2, 365
"""Places in NumPy's table of C functions, which never move: the type of arrays, and
``_PyDataType_GetArrFuncs``."""
_SORTS = 33
"""Place of the first sort in ``PyArray_ArrFuncs``: three of elements follow, and three
of positions."""
SORT_KINDS = {"quicksort": 0, "heapsort": 1, "stable": 2, "mergesort": 2}
SORTED_DTYPES = ("bool", "float16", "float32", "float64", *(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
))  # fmt: skip


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

    @property
    def convention(self) -> int:
        """What code that calls it was written for: bits of an integer, negative where
        the library cannot be held to one thread."""
        return self.integer_bits if self.is_held else -self.integer_bits


@functools.cache
def blas_library() -> BlasLibrary:
    """The OpenBLAS that NumPy has loaded, or what SciPy calls where that is another.

    NumPy's costs nothing to find; importing SciPy's takes a tenth of a second. Raises
    :class:`ImportError` where there is neither.
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


@functools.cache
def numpy_table() -> ctypes.Array[ctypes.c_size_t]:
    """NumPy's table of C functions."""
    capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = get(capsule, None)
    return (ctypes.c_size_t * 366).from_address(table)


def has_numpy_table() -> bool:
    """Whether :func:`numpy_table` is what it is taken for."""
    return numpy_table()[_ARRAY_TYPE] == id(np.ndarray)


def is_sort(name: str) -> bool:
    """Whether a function is one of :func:`sorts`, where they are there."""
    return name.startswith(("numpy_sort_", "numpy_argsort_"))


@functools.cache
def sorts() -> Mapping[str, int]:
    """Addresses of the functions ``numpy_sort_stable_float32`` and their like; none
    where NumPy has no such table."""
    if not has_numpy_table() or np.lib.NumpyVersion(np.__version__).major != 2:
        return {}
    made = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.py_object)
    get = made(numpy_table()[_GET_FUNCTIONS])
    found = {}
    for name in SORTED_DTYPES:
        table = (ctypes.c_size_t * (_SORTS + 6)).from_address(get(np.dtype(name)))
        for kind, number in SORT_KINDS.items():
            found[f"numpy_sort_{kind}_{name}"] = table[_SORTS + number]
            found[f"numpy_argsort_{kind}_{name}"] = table[_SORTS + 3 + number]
    return found
