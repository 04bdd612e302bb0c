"""A program as a file: :meth:`eqsat.Lowered.save`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import numpy as np

from eqsat.kernels import Program, backend_named
from eqsat.saved import (
    LEVELS,
    NATIVE,
    ArrayType,
    Description,
    NamedTree,
    PortableProgram,
    SavedArgument,
    SavedCalls,
    SavedCode,
    SavedLibrary,
    SavedResult,
    UnlinkedLibrary,
    digest_of,
    seal_of_code,
    seal_of_library,
    section_of,
    system,
    tree_of,
    write,
)
from eqsat.support import OptionError, Options, SavedProgramError, nearest
from eqsat.terms import Term
from eqsat.trace import Trace

_BEST = [NATIVE, *reversed(LEVELS)]
"""Processors that code can be for, the one with the most features first."""


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
    wanted = _checked(cpus)
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
        _made_by(),
        system(),
        calls,
        tuple(codes),
        tuple(libraries),
        tuple(sections.known),
    )
    write(path, description.to_json(), sections.data)


def _checked(cpus: Iterable[str]) -> list[str]:
    """Processors, the best one first. Raises :class:`OptionError`."""
    named = [cpus] if isinstance(cpus, str) else [*cpus]
    for cpu in named:
        if cpu not in _BEST:
            known = ", ".join(map(repr, _BEST))
            raise OptionError(f"cpu={cpu!r}: expected {known}{nearest(cpu, _BEST)}")
    if not named:
        raise OptionError("cpu=(): expected one or more processors, such as 'native'")
    return sorted(set(named), key=_BEST.index)


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


def _made_by() -> str:
    try:
        return f"eqsat {version('eqsat')}"
    except PackageNotFoundError:  # it runs from a source tree
        return "eqsat"


# -- calls -----------------------------------------------------------------------------


def calls_of(trace: Trace, name: str) -> SavedCalls:
    """How the function of a trace is called. Raises :class:`SavedProgramError` for what
    a file cannot hold."""
    if trace.ends:
        raise SavedProgramError(
            f"{name!r} cannot be saved: NumPy makes a result when the program has "
            "ended, since its shape depends on values"
        )
    if not trace.is_current():
        raise SavedProgramError(
            f"{name!r} cannot be saved: what it reads outside of its arguments has "
            "changed since it was lowered; lower it again"
        )
    if trace.strides:
        raise SavedProgramError(
            f"{name!r} cannot be saved: how its arguments lie in memory decides what "
            "it computes, since it writes to views of them"
        )
    call = trace.call
    given = tuple(
        NamedTree(n, tree_of(part, f"argument {n}"))
        for n, part in zip(call.names, call.parts, strict=True)
    )
    fixed = iter(trace.constants)
    arguments = tuple(
        SavedArgument(
            leaf.path,
            ArrayType(leaf.dtype.name, leaf.shape),
            digest_of(np.asarray(next(fixed))) if leaf.constant else "",
        )
        for leaf in call.leaves
    )
    numbers = (*trace.numbers, *(False for _ in trace.writes.places))
    results = tuple(
        SavedResult(_type(t), is_number)
        for t, is_number in zip(trace.outputs, numbers, strict=True)
    )
    return SavedCalls(
        name,
        given[: call.by_position],
        given[call.by_position :],
        arguments,
        tree_of(trace.out_tree, "the result"),
        results,
        tuple(trace.writes.places),
        tuple(trace.writes.returned.items()),
    )


def _type(term: Term) -> ArrayType:
    return ArrayType(cast("np.dtype[Any]", term.dtype).name, term.shape)
