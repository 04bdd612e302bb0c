"""Programs of machine code on disk: object code, and the little that running it takes.

What the code does follows from the program, the layouts of its inputs, the machine, and
the number of threads; the values of its constants do not count, but that some are
finite: of others, the program is made anew.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eqsat.support import disk_cache

from .machine import Host, blas

if TYPE_CHECKING:
    from eqsat.kernels import Program

    from ..loop_ir import Layout
    from .products import Panels

MOST_TABLE_BYTES = 1 << 20
"""Programs with larger tables are not kept."""


@dataclass(frozen=True)
class Record:
    """A program that is one native function."""

    codes: tuple[bytes, ...]
    threads: int
    seconds: float
    arena_bytes: int
    fault: int
    """As :attr:`.runtime.entry.ProgramCode.fault`."""
    blas_bits: int
    """:attr:`.BlasLibrary.convention`; 0 for a program without products."""
    tables: tuple[tuple[str, tuple[int, ...], bytes], ...]
    """Arrays that code generation made, which come after the program's constants."""
    packed: tuple[tuple[Any, ...], ...] = ()
    """Constants in panels, which come last: their pointers, and how they lie."""
    functions: tuple[str, ...] = ()
    """What the code calls of :mod:`.products.function_names`."""
    unread: tuple[int, ...] = ()
    """Pointers of constants that are read in panels only."""
    deferred: tuple[int, ...] = ()
    """Folded terms that products compute, by their positions."""
    finite: tuple[int, ...] = ()
    """Pointers of constants that the code takes to be finite."""

    @property
    def digest(self) -> bytes:
        """What tells it from all others: one for other values of constants may come in
        its place on disk."""
        return hashlib.sha256(repr(astuple(self)).encode()).digest()

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The tables."""
        return [
            np.frombuffer(data, np.dtype(dtype)).reshape(shape)
            for dtype, shape, data in self.tables
        ]


def table_of(array: np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...], bytes]:
    """An array as :attr:`Record.tables` holds it."""
    return array.dtype.name, array.shape, array.tobytes()


def of_panels(
    packed: Sequence[tuple[int, Panels]],
) -> tuple[tuple[Any, ...], ...]:
    """Constants in panels as :attr:`Record.packed` holds them."""
    return tuple((number, *astuple(panels)) for number, panels in packed)


def panels_of(packed: Sequence[tuple[Any, ...]]) -> list[tuple[int, Panels]]:
    """What :func:`of_panels` has made of them."""
    from ..loop_ir import Layout  # whole programs need neither
    from .products import Panels

    return [
        (number, Panels(kept, sizes, Layout(*layout), *tile))
        for number, kept, sizes, layout, *tile in packed
    ]


def blas_bits() -> int:
    """What :attr:`Record.blas_bits` must be here."""
    return blas.library().convention


def name_of(
    program: Program,
    layouts: Sequence[Layout],
    host: Host,
    threads: int,
    exact: bool,
    cache: bool | None = None,
) -> str | None:
    """What the record of a program is called; None when it cannot be kept, or is not to
    be: ``cache`` is an option of the function, None for what ``EQSAT_CACHE`` says."""
    if not (disk_cache.is_on() if cache is None else cache):
        return None
    from eqsat.serialise import NotPortableError, check_lowerings, encode_terms
    from eqsat.terms import CONSTANT, postorder

    roots = program.roots
    arrays = [cast(int, t.attrs[0]) for t in postorder(roots) if t.op is CONSTANT]
    numbers = {a: i for i, a in enumerate(arrays)}
    lie = [(tuple(a.strides), a.offset) for a in layouts]
    types = [(str(t.dtype), t.shape) for t in program.inputs]
    try:
        check_lowerings()
        terms = encode_terms(roots, numbers)
    except NotPortableError:
        return None
    rest = marshal.dumps((lie, types, threads, exact, program.least_memory), 2)
    return disk_cache.key("code", terms, rest, host.key)


def recall(name: str) -> Record | None:
    """The record of that name; None when there is none that fits this machine."""
    data = disk_cache.get(name, asked=True)
    if data is None:
        return None
    try:
        found = Record(*marshal.loads(data))
    except (ValueError, TypeError, EOFError):
        disk_cache.drop(name, asked=True)
        return None
    if found.blas_bits and found.blas_bits != blas_bits():
        return None
    return found


def keep(name: str, record: Record) -> bool:
    """Keep a record, unless its tables are large; whether it was kept."""
    is_small = sum(len(data) for *_, data in record.tables) <= MOST_TABLE_BYTES
    if is_small:
        disk_cache.put(name, marshal.dumps(astuple(record), 2), asked=True)
    return is_small
