"""The code that every program shares, compiled once: the entry, the team of threads,
scratch memory."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping

import numpy as np

from eqsat.errors import BackendError

from . import entry_code
from .arena import ARENA_IR
from .layout import is_as_expected
from .machine import Library, compile_ir, host, load
from .team_code import team_ir

_EXPORTS = (
    *("entry", "arena_release"),
    *("team_run", "team_forget", "team_workers", "barrier_wait"),
)
_NEW_FROM_DESCR, _ARRAY_TYPE = 94, 2
"""Places in NumPy's table of C functions, which never move."""


@functools.cache
def runtime() -> Library:
    """The functions ``entry``, ``team_run``, ``barrier_wait`` and their like.

    Raises :class:`BackendError` where Python or NumPy is not laid out as expected.
    """
    if not is_available():
        raise BackendError(
            "native: the objects of this Python or NumPy are not laid out as expected: "
            f"Python {sys.version.split()[0]}, NumPy {np.__version__}"
        )
    machine = host()
    parts = entry_code.ENTRY_IR, ARENA_IR, team_ir(machine.is_arm, machine.is_mac)
    code = compile_ir("\n".join(parts), machine)
    library = load(code, _EXPORTS, _imports())
    # Workers sleep in this code until the process ends, and a child has none of them.
    os.register_at_fork(after_in_child=_function(library, "team_forget"))
    return library


@functools.cache
def is_available() -> bool:
    """Whether native code can look into the objects of this Python and NumPy."""
    return is_as_expected() and _numpy_table()[_ARRAY_TYPE] == id(np.ndarray)


def program_imports() -> Mapping[str, int]:
    """What programs may call, as :func:`.machine.load` takes it."""
    return {"barrier_wait": runtime().address("barrier_wait")}


def release_scratch() -> None:
    """Give the scratch memory that is kept between calls back."""
    _function(runtime(), "arena_release")()


def workers() -> int:
    """Threads that were started besides those of Python."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(runtime().address("team_workers"))())


def _function(library: Library, name: str) -> Callable[[], None]:
    """A function without arguments; called with Python's lock held."""
    made: Callable[[], None] = ctypes.PYFUNCTYPE(None)(library.address(name))
    return made


def _imports() -> dict[str, int]:
    found = {name: _address(name) for name in entry_code.PYTHON}
    found |= {name: id(kind) for name, kind in entry_code.TYPES.items()}
    found["PyArray_Type"] = id(np.ndarray)
    found["PyArray_NewFromDescr"] = _numpy_table()[_NEW_FROM_DESCR]
    return found


def _address(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _numpy_table() -> ctypes.Array[ctypes.c_size_t]:
    capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = get(capsule, None)
    return (ctypes.c_size_t * 306).from_address(table)
