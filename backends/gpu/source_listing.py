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
    texts: list[str] = []
    bodies = ""
    layouts = {t: layout for t, (_, layout) in views.items()}
    pairs, both = maps_of_rows(program), {}
    for kernel in program.kernels:
        texts.append("\n".join(f"// {line}" for line in _title(kernel)))
        try:
            exact = kernel.term in written
            parts = parts_of(kernel, dialect, layouts, exact=exact)
        except Unsupported as reason:
            texts[-1] += f"\n// by MLX: {reason}"
            continue
        then = pairs.get(kernel)
        if then is not None:
            strict = exact or then.term in written
            made = one_kernel(parts, then, dialect, layouts, strict)
            if made is not None:
                both[then] = [made]
                texts[-1] += f"\n// in the kernel of {then.name}"
                continue
        for part in both.get(kernel, parts):
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
