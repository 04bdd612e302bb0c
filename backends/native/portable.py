"""Programs as machine code that another process loads, without LLVM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from eqsat.kernels import Program, packed
from eqsat.saved import (
    LEVELS,
    NATIVE,
    PROGRAM,
    PortableProgram,
    UnlinkedLibrary,
    feature,
    features,
    is_sort,
)
from eqsat.support import BackendError, Deadline, Options, cached_once

from ..loop_ir import (
    Layout,
)
from .code_pieces import CodePieces
from .function_library import code_of
from .lower import planned, threads_of
from .machine import Host, blas, compile_ir, compiled, host
from .plan import Places
from .products import deferred
from .runtime import IF_AWAKE, TEAM_FUNCTIONS, asked, team_object
from .shared_library import plain_host, unlinked

if TYPE_CHECKING:
    from .plan import Group
    from .program_writer import CodeEntry

_NAMED = 6
"""Kernels that an error names."""


def portable(
    program: Program, options: Options, cpu: str, alone: bool = False
) -> PortableProgram:
    """A program for ``cpu``: ``native``, ``generic``, or ``x86-64-v2`` to ``v4``.
    ``alone``: without products by a BLAS.

    Raises :class:`BackendError` where NumPy has a part in it, and where there is no
    linker; :class:`OptionError` for another ``cpu``.
    """
    from .program_writer import write_program

    machine = host(cpu, "own" if alone else None)
    least = program.least_memory
    machine = replace(machine, saves_memory=least, is_elsewhere=True)
    threads = threads_of(program, machine, options.threads)
    layouts = [Layout(packed(t.shape)) for t in program.inputs]
    places = Places(program, layouts, deferred(program, machine))
    is_exact = options.numerics == "exact"
    layered = planned(program, places, machine, threads, is_exact)
    if layered.reasons:
        said = [f"{k.name}: {why}" for k, why in layered.reasons.items()]
        more = f"\n  and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
        raise BackendError(
            "a saved program is machine code, but NumPy runs a part of this one:\n  "
            + "\n  ".join(said[:_NAMED])
            + more
        )
    pieces = CodePieces(machine, Deadline(math.inf), compile_ir)
    groups = cast("Sequence[Group]", layered.parts)
    written = write_program(groups, layered.owners, layered, PROGRAM, pieces)
    (entry,) = cast("Sequence[CodeEntry]", written.parts)
    places.forget(layered.unread)
    own = [n for n in written.functions if not is_sort(n)]
    codes = [*written.codes, *(code_of(name, machine) for name in own)]
    library = unlinked(codes, [PROGRAM])
    called = asked(entry.most_threads, entry.seconds)
    shared = []
    if called != 1 or {*library.imports} & {*TEAM_FUNCTIONS}:
        shared.append(_team())
    if blas.HELD in library.imports:
        shared.append(_holder())
    return PortableProgram(
        tuple(sorted(_needs(cpu, machine))),
        library,
        tuple(shared),
        places.constants,
        max(written.arena_bytes, places.scratch_bytes),
        -1 if places.fault is None else places.fault.byte,
        called & (IF_AWAKE - 1),
        called >= IF_AWAKE,
        blas.library().convention if written.calls_blas else 0,
    )


def _needs(cpu: str, machine: Host) -> frozenset[str]:
    """The features that a processor must have, as far as they are known here."""
    if cpu == NATIVE:
        return features() & {*map(feature, machine.flags)}
    return LEVELS[cpu]


@cached_once
def _team() -> UnlinkedLibrary:
    return unlinked([team_object(plain_host())], TEAM_FUNCTIONS)


@cached_once
def _holder() -> UnlinkedLibrary:
    return unlinked([compiled(blas.HOLD_IR, plain_host())], [blas.HELD])
