"""What a backend makes of a program so that it can be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CONSTANTS = "eqsat_constants"
"""Data of a C library: the constants of the program."""


@dataclass(frozen=True)
class UnlinkedLibrary:
    """Functions that are to be a shared library."""

    objects: tuple[bytes, ...]
    """Object code."""
    imports: tuple[str, ...]
    """Functions that it calls, in the order of its table of them."""
    exports: tuple[str, ...]
    link: Callable[[bytes], bytes]
    """The library with a seal, as bytes. It calls others through its table."""


@dataclass(frozen=True)
class PortableProgram:
    """A program as machine code for a processor that may be another one."""

    needs: tuple[str, ...]
    library: UnlinkedLibrary
    """With the function :data:`.description.PROGRAM`."""
    shared: tuple[UnlinkedLibrary, ...]
    """Others that it calls, or runs on, of which a process has one each."""
    constants: Sequence[np.ndarray[Any, Any]]
    arena_bytes: int
    fault: int
    threads: int
    if_awake: bool
    blas: int
