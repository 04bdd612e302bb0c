"""Programs with all that they read but their inputs, from disk: no terms and no plan
are made anew, and no constants are brought into panels again.

A whole program is kept under a name that others choose, who know what it computes; here
that gets what the code depends on besides. Its constants are memory that is mapped: 0.5
GB are there in 0.05 s, where memory that no process has touched before may come at 0.25
GB/s. It lies in small pages: one row by 200 MB of weights takes 1.06 of the time.
"""

from __future__ import annotations

import ctypes
import functools
import marshal
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.saved import memory_address
from eqsat.support import BackendError, cached_property, device_file, disk_cache

from . import program_record
from .function_library import address_of
from .machine import Host, LoadedObject, blas, host, load
from .runtime import (
    arena_maker,
    asked,
    maker,
    program_imports,
    runtime,
    thread_limit,
)

if TYPE_CHECKING:
    from .program_record import Record
    from .runtime import ProgramCode

PROGRAM = "program"
"""What the native function is called."""
KIND, ARRAYS = "whole", "arrays"
"""Kinds of entries: programs, and their constants."""
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
MOST_AT_ONCE = 1 << 24
"""Constants (bytes) that are written before a call returns. It may take 0.01 s, and as
many seconds as GB where memory has not been touched yet."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WholeProgram:
    """A native function over arrays in C order, of the types it was kept for."""

    library: LoadedObject
    inputs: int
    outputs: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]
    """Types and shapes."""
    arena_bytes: int
    fault: int
    """As :attr:`.runtime.entry.ProgramCode.fault`."""
    asked: int
    """The threads that the team is asked for."""
    constants: Sequence[Array]
    """Bytes."""

    def __call__(self, *arrays: Array) -> list[Array] | None:
        """The results, in fresh arrays; None for arguments that have none, such as an
        index out of bounds."""
        outputs = [make() for make in self._makers]
        arena, known = self._arena(), self._pointers
        pointers = type(known).from_buffer_copy(known)
        for i, a in enumerate((*arrays, *outputs)):
            pointers[i] = memory_address(a)
        pointers[-1] = memory_address(arena)
        team_run()(self._address, ctypes.addressof(pointers), self.asked)
        return None if self.fault >= 0 and arena[self.fault] else outputs

    @cached_property
    def _makers(self) -> list[Callable[[], Array]]:
        return [maker(shape, dtype) for dtype, shape in self.outputs]

    @cached_property
    def _arena(self) -> Callable[[], Array]:
        return arena_maker(self.arena_bytes)

    @cached_property
    def _pointers(self) -> ctypes.Array[ctypes.c_size_t]:
        """Those of a call, of which the constants' are known."""
        own = [0] * (self.inputs + len(self.outputs))
        every = *own, *map(memory_address, self.constants), 0
        return (ctypes.c_size_t * len(every))(*every)

    @cached_property
    def _address(self) -> int:
        return self.library.address(PROGRAM)


@functools.cache
def team_run() -> Callable[[int, int, int], None]:
    """What runs a native function on the team's threads: address, pointers, and what
    :func:`.runtime.asked` says."""
    return _RUN(runtime().address("team_run"))


def loaded(
    codes: Sequence[bytes],
    names: Sequence[str],
    uses_blas: bool,
    functions: Sequence[str],
    host: Host,
) -> LoadedObject:
    """Object code in memory, with all that it calls. Raises :class:`BackendError`."""
    imports = dict(program_imports())
    if uses_blas:
        imports |= blas.imports()
    imports |= {name: address_of(name, host) for name in functions}
    return load(codes, names, imports)


def library_of(record: Record, host: Host) -> LoadedObject | None:
    """The code of a record in memory; None where this process lacks what it calls."""
    uses_blas, names = bool(record.blas_bits), [PROGRAM]
    try:
        return loaded(record.codes, names, uses_blas, record.functions, host)
    except BackendError:
        return None


def whole_name(said: Iterable[bytes], threads: int) -> str:
    """Where a program is kept that follows from ``said``, for so many ``threads`` (of
    the options). It follows from the machine, too, and from what was measured there."""
    here = f"{host().key} {thread_limit(threads)}"
    return disk_cache.key(KIND, *said, here, _measured())


def _measured() -> bytes:
    try:
        return device_file().read_bytes()
    except (OSError, RuntimeError):
        return b""


def keep_whole(
    name: str,
    record: tuple[str, bytes],
    code: ProgramCode,
    other: tuple[str, bytes],
) -> None:
    """Keep ``code``, whose object code is on disk as ``record``, for inputs in C order;
    a thread of its own writes large ones. :func:`recall_whole` has it as long as the
    entry ``other`` of the disk cache has that digest."""
    if any(np.dtype(dtype.str) != dtype for dtype, _ in code.outputs):
        return  # types that NumPy alone does not know
    outputs = [(dtype.str, shape) for dtype, shape in code.outputs]
    constants = [c.reshape(-1).view(np.uint8) for c in code.constants]

    def write() -> None:
        arrays = disk_cache.put_arrays(ARRAYS, constants, asked=True)
        sizes = [c.nbytes for c in constants]
        lies = len(code.strided), outputs, arrays, sizes
        said = record, lies, other
        disk_cache.put(name, marshal.dumps(said, 2), asked=True)

    if sum(c.nbytes for c in constants) <= MOST_AT_ONCE:
        write()
        return
    with suppress(RuntimeError):  # no thread is begun any more where Python ends
        threading.Thread(target=write, name="eqsat keeps a program").start()


def recall_whole(name: str) -> WholeProgram | None:
    """The program of that name; None where there is none."""
    data = disk_cache.get(name, asked=True)
    if data is None:
        return None
    (record, digest), lies, (other, state) = marshal.loads(data)
    inputs, outputs, arrays, sizes = lies
    if disk_cache.digest(disk_cache.get(other, asked=True)) != state:
        return None
    found = program_record.recall(record)
    if found is None or found.digest != digest:
        return None
    blocks = disk_cache.mapped(arrays, sizes, asked=True)
    library = None if blocks is None else library_of(found, host())
    if blocks is None or library is None:
        return None
    return WholeProgram(
        library,
        inputs,
        [(np.dtype(dtype), shape) for dtype, shape in outputs],
        found.arena_bytes,
        found.fault,
        asked(found.threads, found.seconds),
        [np.frombuffer(b, np.uint8) for b in blocks],
    )
