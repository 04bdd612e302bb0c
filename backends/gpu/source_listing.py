"""The kernels of a program as Metal or CUDA, each beside the terms that it computes."""

from __future__ import annotations

from eqsat.kernels import Kernel, Program, decided, inner, show_type
from eqsat.support import counted

from ..loop_ir import (
    Unsupported,
)
from .c_code import DIALECTS, Dialect, header_of
from .few_row_products import with_sums
from .generated import Generated, Part
from .gpu_program import layouts_of, maps_of_rows, one_kernel, parts_of


def metal(program: Program) -> str:
    """The kernels of ``program`` in Metal, on any machine."""
    return listing(program, DIALECTS["metal"])


def cuda(program: Program) -> str:
    """The kernels of ``program`` in CUDA C++, on any machine."""
    return listing(program, DIALECTS["cuda"])


def listing(program: Program, dialect: Dialect) -> str:
    """The functions that bodies call, then each kernel: what it computes, its loops,
    and its body. What a library computes is named."""
    program = with_sums(program)
    views, written = layouts_of(program), decided(program)
    layouts = {t: layout for t, (_, layout) in views.items()}
    made: dict[Kernel, list[Part]] = {}
    said = {k: [f"// {line}" for line in _title(k)] for k in program.kernels}
    for kernel in program.kernels:
        try:
            exact = kernel.term in written
            made[kernel] = parts_of(kernel, dialect, layouts, exact=exact)
        except Unsupported as reason:
            said[kernel].append(f"// by MLX: {reason}")
    for rows, then in maps_of_rows(program).items():
        if rows in made and then in made:
            exact = not written.isdisjoint((rows.term, then.term))
            both = one_kernel(made[rows], made[then], dialect, then, layouts, exact)
            if both is not None:
                made[rows], made[then] = [], [both]
                said[rows].append(f"// in the kernel of {then.name}")
    texts: list[str] = []
    bodies = ""
    for kernel in program.kernels:
        texts.append("\n".join(said[kernel]))
        for part in made.get(kernel, ()):
            texts.append(_part(part))
            bodies += part.source.body if isinstance(part, Generated) else ""
    return "\n\n".join([header_of(dialect, bodies).rstrip(), *texts]) + "\n"


def _title(kernel: Kernel) -> list[str]:
    """What a kernel computes, of what."""
    types = ", ".join(show_type(r) for r in kernel.results)
    given = ", ".join(show_type(t) for t in kernel.inputs)
    nodes = inner(kernel.bodies, kernel.term.args)
    made = " ".join(t.op.name for t in nodes)
    return [f"{kernel.name}: {kernel.kind}, {types} of {given}", made]


def _part(part: Part) -> str:
    if not isinstance(part, Generated):
        return f"// {part.term.op.name} by MLX: {show_type(part.term)}"
    source = part.source
    said = [f"// {line}" for nest in part.nests for line in str(nest).splitlines()]
    said.append(
        f"// {counted(source.groups, 'group')} of {counted(source.group, 'thread')}"
    )
    return "\n".join([*said, f"{source.name} {{", source.body.rstrip(), "}"])
