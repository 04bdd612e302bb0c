"""A program as a file: :meth:`eqsat.Lowered.save`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.kernels import Program, backend_named
from eqsat.saved import (
    Description,
    PortableProgram,
    SavedCode,
    SavedLibrary,
    UnlinkedLibrary,
    seal_of_code,
    seal_of_library,
    section_of,
    system,
    write,
)
from eqsat.saving.calls import best_first, calls_of, made_by
from eqsat.support import Options
from eqsat.trace import Trace


def save(
    path: str | os.PathLike[str],
    trace: Trace,
    program: Program,
    name: str,
    cpus: Iterable[str],
    options: Options,
) -> None:
    """Write the program of a trace as machine code, as :meth:`eqsat.Lowered.save`
    says."""
    wanted = best_first(cpus)
    calls = calls_of(trace, name)
    backend: Any = backend_named("native")
    sections = _Sections()
    made = [(cpu, backend.portable(program, options, cpu)) for cpu in wanted]
    constants = [[*map(sections.add, map(_bytes, p.constants))] for _, p in made]
    shared: dict[tuple[str, ...], int] = {}
    libraries: list[SavedLibrary] = []

    def kept(one: UnlinkedLibrary, seal: bytes) -> int:
        section = sections.add(memoryview(one.link(seal)))
        libraries.append(SavedLibrary(section, one.imports, one.exports))
        return len(libraries) - 1

    for _, p in made:
        for one in p.shared:
            if one.exports not in shared:
                shared[one.exports] = kept(one, seal_of_library(one.imports))
    codes = []
    for (cpu, p), own in zip(made, constants, strict=True):
        code = _code(cpu, p)
        sizes = (sections.known[c] for c in own)
        seal = seal_of_library(p.library.imports, seal_of_code(calls, code, sizes))
        library = kept(p.library, seal)
        codes.append(replace(code, library=library, constants=tuple(own)))
    description = Description(
        made_by(),
        system(),
        calls,
        tuple(codes),
        tuple(libraries),
        tuple(sections.known),
    )
    write(path, description.to_json(), sections.data)


def _code(cpu: str, p: PortableProgram) -> SavedCode:
    """The code without its places in the file."""
    return SavedCode(
        cpu, p.needs, 0, (), p.arena_bytes, p.fault, p.threads, p.if_awake, p.blas
    )


class _Sections:
    """The sections of a file; equal ones are one."""

    def __init__(self) -> None:
        self.known: list[tuple[int, str]] = []
        self.data: list[memoryview] = []
        self._places: dict[tuple[int, str], int] = {}

    def add(self, data: memoryview) -> int:
        """The number of a section."""
        key = section_of(data)
        if key not in self._places:
            self._places[key] = len(self.known)
            self.known.append(key)
            self.data.append(data)
        return self._places[key]


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
