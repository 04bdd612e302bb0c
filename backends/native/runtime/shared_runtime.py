"""The code that every program shares, compiled once: the team of threads; the entry and
the pool of memory, which look into objects of Python."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from eqsat.saved import has_numpy_table, numpy_table
from eqsat.support import BackendError, cached_once, clock_address

from ..machine import (
    Host,
    LoadedObject,
    compiled,
    host,
    is_as_expected,
    load,
)
from . import entry_code
from .pool_code import pool_ir
from .team_code import team_ir
from .work_sharing_code import SHARING_FUNCTIONS

Array = np.ndarray[Any, Any]
TEAM_FUNCTIONS = (
    *("team_run", "team_alone_while", "team_forget", "team_workers"),
    *SHARING_FUNCTIONS,
)
_HANDLER = ("handler_malloc", "handler_calloc", "handler_realloc", "handler_free")
_OBJECTS = (
    "entry",
    "checksum",
    "new_array",
    "pool_release",
    "pool_kept",
    "pool_limit",
    *_HANDLER,
)
_NEW_FROM_DESCR, _RETURN = 94, 76
"""Places in NumPy's table of C functions, which never move."""


@cached_once
def runtime() -> LoadedObject:
    """The functions ``team_run``, ``part_claim`` and their like. Made once: each thread
    that links would have a team of workers and a pool of its own."""
    if is_available():
        return objects()
    library = load(team_object(host()), TEAM_FUNCTIONS)
    _forget_after_fork(library)
    return library


@cached_once
def objects() -> LoadedObject:
    """The functions ``entry``, ``new_array`` and their like, and with them those of
    :func:`runtime`: to link them apart takes 0.7 ms longer.

    Raises :class:`BackendError` where Python or NumPy is not laid out as expected.
    """
    if not is_available():
        raise BackendError(
            "native: the objects of this Python or NumPy are not laid out as expected: "
            f"Python {sys.version.split()[0]}, NumPy {np.__version__}"
        )
    handler = _Handler(b"eqsat", 1)
    capsule = _capsule(handler)
    text = entry_code.ENTRY_IR + pool_ir(sys.platform == "linux")
    imports = _imports() | {"pool_handler": id(capsule)}
    parts = team_object(host()), compiled(text, host())
    library = load(parts, (*TEAM_FUNCTIONS, *_OBJECTS), imports)
    for name in _HANDLER:
        setattr(handler, name.removeprefix("handler_"), library.address(name))
    # Arrays give their memory back while the interpreter goes down, too.
    held = handler, capsule, library, _HANDLER_NAME
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
    _forget_after_fork(library)
    return library


def _forget_after_fork(library: LoadedObject) -> None:
    """Workers sleep in this code until the process ends, and a child has none."""
    forget: Callable[[], None] = ctypes.PYFUNCTYPE(None)(library.address("team_forget"))
    os.register_at_fork(after_in_child=forget)


def team_object(machine: Host) -> bytes:
    """Object code of the team, with :data:`TEAM_FUNCTIONS`."""
    return compiled(team_ir(machine.is_arm, machine.is_mac), machine)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of NEP 49."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def _capsule(handler: _Handler) -> Any:
    new = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    )(("PyCapsule_New", ctypes.pythonapi))
    return new(ctypes.addressof(handler), _HANDLER_NAME, None)


_HANDLER_NAME = b"mem_handler"
"""What NumPy wants such a capsule to be called; the capsule points to these bytes."""


@functools.cache
def is_available() -> bool:
    """Whether native code can look into the objects of this Python and NumPy."""
    return is_as_expected() and has_numpy_table()


def program_imports() -> Mapping[str, int]:
    """What programs may call, as :func:`..machine.load` takes it."""
    return {name: runtime().address(name) for name in SHARING_FUNCTIONS}


def workers() -> int:
    """Threads that were started besides those of Python."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(runtime().address("team_workers"))())


def run_alone(change: int) -> None:
    """Have each program run on the thread of its caller while the sum of all ``change``
    is not 0."""
    address = runtime().address("team_alone_while")
    ctypes.PYFUNCTYPE(None, ctypes.c_int64)(address)(change)


def _imports() -> dict[str, int]:
    found = python_imports(entry_code.PYTHON, entry_code.TYPES)
    found["PyArray_Type"] = id(np.ndarray)
    found["MemoryMap_Type"] = id(np.memmap)
    found["MemoryError"] = id(MemoryError)
    found["PyArray_NewFromDescr"] = numpy_table()[_NEW_FROM_DESCR]
    found["PyArray_Return"] = numpy_table()[_RETURN]
    return found


def python_imports(
    functions: Iterable[str], types: Mapping[str, type]
) -> dict[str, int]:
    """Functions and types of Python and the clock of last calls, as
    :func:`..machine.load` takes them."""
    found = {name: _address(name) for name in functions}
    found["clock"] = clock_address()
    return found | {name: id(kind) for name, kind in types.items()}


def _address(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address
