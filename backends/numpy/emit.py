"""Python lines for the body of a kernel under a schedule."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.kernels import show_bytes
from eqsat.terms import BF16

from .block_slices import Spot, level_of, wanted_spots
from .blocks import Schedule
from .kernel_nodes import BodyNode, NodeBody
from .registers import OUT, BlockLoop, Place, Register
from .spell import NumpyCall, dims, number, statements, transposed, view

INDENT = "    "
_LETTERS = "ijklmnpqr"


@dataclass
class Names:
    """Identifiers in one function: each is given once."""

    taken: set[str]
    outer: Sequence[Container[str]] = ()
    """Those of the text around it, which are not copied: each kernel of a long program
    has all that came before."""

    def fresh(self, stem: str) -> str:
        """``stem``, or ``stem`` with a number when it is taken."""
        name, n = stem, 1
        while name in self.taken or any(name in names for names in self.outer):
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name


@dataclass(frozen=True)
class BodyText:
    """What was written for a body."""

    lines: list[str]
    is_simple: bool
    """Whether it needs no variables of its own: only calls."""


def write(
    body: NodeBody,
    plan: Schedule,
    called: Mapping[BodyNode, str],
    outs: Sequence[str],
    names: Names,
    namespace: dict[str, Any],
) -> BodyText:
    """Lines that compute ``body`` into the arrays ``outs`` from ``called`` leaves.

    Objects beyond NumPy that the lines name go into ``namespace``.
    """
    out, *more = outs
    return _Writer(body, plan, dict(called), out, more, names, namespace).text()


def new_array(
    shape: tuple[int, ...], dtype: np.dtype[Any], namespace: dict[str, Any]
) -> str:
    """The expression of a fresh array."""
    name = f"np.{dtype.name}"
    if dtype == BF16:
        name = "bfloat16"
        namespace[name] = dtype.type
    return f"np.empty({shape}, {name})"


@dataclass(frozen=True)
class _Turn:
    """A loop with the names of the first index of a turn and of the first after it."""

    loop: BlockLoop
    first: str
    end: str

    def lines(self) -> list[str]:
        loop = self.loop
        every = f"0, {loop.size}, {loop.rows}" if loop.rows > 1 else f"{loop.size}"
        stop = f"{self.first} + {loop.rows}"
        stop = stop if loop.is_even else f"min({stop}, {loop.size})"
        return [
            f"for {self.first} in range({every}):",
            f"{INDENT}{self.end} = {stop}",
        ]

    @property
    def rows(self) -> str:
        loop = self.loop
        return str(loop.rows) if loop.is_even else f"({self.end} - {self.first})"


@dataclass
class _Writer:
    body: NodeBody
    plan: Schedule
    value: dict[BodyNode, str]
    out: str
    more: list[str]
    names: Names
    namespace: dict[str, Any]
    start: list[str] = field(default_factory=list)
    simple: bool = True

    def __post_init__(self) -> None:
        self.spots = self.plan.layout.spots
        self.users = self.body.users()
        self.slices: dict[tuple[str, Spot], str] = {}
        self.turns = [
            _Turn(loop, self.names.fresh(f"{a}0"), self.names.fresh(f"{a}1"))
            for a, loop in zip(_LETTERS, self.plan.loops, strict=False)
        ]
        self.heads: list[list[str]] = [[] for _ in self.plan.levels]
        """The slices that each loop starts with."""
        self.mains: list[list[str]] = [[] for _ in self.plan.levels]
        self.main = self.mains[0]

    def text(self) -> BodyText:
        self._show_out()
        self.arrays = {r: self._allocate(r) for r in self.plan.registers}
        for level, nodes in enumerate(self.plan.levels):
            self.main = self.mains[level]
            for n in nodes:
                self.main += self._node(n)
        lines = list(self.start)
        for level, main in enumerate(self.mains):
            if level:
                lines += _indented(level - 1, self.turns[level - 1].lines())
            lines += _indented(level, self.heads[level] + main)
        return BodyText(lines, self.simple and not self.plan.loops)

    # -- arrays ------------------------------------------------------------------------

    def _show_out(self) -> None:
        """The result under the views that the body ends with, undone."""
        self.packed = not any(v.name == "transpose" for v in self.body.shown)
        for v in self.body.shown:
            if v.name == "reshape":
                shape = dims([str(d) for d in v.nodes[0].shape])
                self.out = f"{self.out}.reshape({shape})"
            else:
                perm = v.attrs["perm"]
                back = [perm.index(i) - len(perm) for i in range(-len(perm), 0)]
                self.out = transposed(self.out, len(v.shape), back)
        for i, n in enumerate(self.body.more):
            if n.shape != self.body.shapes[i]:
                name = self.names.fresh(f"result{i + 1}")
                shape = dims([str(d) for d in n.shape])
                self.start.append(f"{name} = {self.more[i]}.reshape({shape})")
                self.more[i], self.simple = name, False
        if self.body.shown and len(self.body.nodes) > 1:
            name = self.names.fresh("result")
            self.start.append(f"{name} = {self.out}")
            self.out, self.simple = name, False

    def _allocate(self, register: Register) -> str:
        """Allocate an array; its name in the loops, whose last turn may use a part."""
        self.simple = False
        form = register.form
        name = self.names.fresh(f"t{len(self.start)}")
        new = new_array(form.shape, form.dtype, self.namespace)
        self.start.append(f"{name} = {new}  # {show_bytes(form.nbytes)}")
        axis = form.spot[-1] if form.spot else None
        if axis is None or self.turns[-1].loop.is_even:
            return name
        turn = self.turns[-1]
        part = self.names.fresh(f"{name}_{turn.first[0]}")
        index = ", ".join([":"] * axis + [f": {turn.end} - {turn.first}"])
        self.heads[form.level].append(f"{part} = {name}[{index}]")
        return part

    def _place(self, node: BodyNode) -> Place | BodyNode:
        """Where a value is; a leaf, unless overwritten, is a place of its own."""
        over = OUT if node is self.plan.layout.over else node
        return self.plan.store.get(node, over)

    # -- nodes -------------------------------------------------------------------------

    def _node(self, node: BodyNode) -> list[str]:
        spot = self.spots[node]
        wanted = wanted_spots(node, spot)
        if node.is_view:
            return self._view(node, spot, self._argument(node.nodes[0], wanted[0]))
        place = self.plan.store[node]
        whole: Spot = (None,) * len(spot)
        if isinstance(place, Register):
            out = self.arrays[place]
        else:
            kept = self.out if place is OUT else self.more[place.index]
            out = self._sliced(kept, whole, spot)
        self.value[node] = out
        operand = next((a.dtype for a in node.nodes), node.dtype)
        args = tuple(
            (
                self._argument(a, w)
                if isinstance(a, BodyNode)
                else number(a, operand, self.namespace)
            )
            for a, w in zip(node.args, wanted, strict=True)
        )
        over = tuple(
            isinstance(a, BodyNode) and not a.is_view and self._place(a) is place
            for a in node.args
        )
        call = NumpyCall(node, args, out, over, self._flat(node, spot))
        return statements(call, self.namespace)

    def _view(self, node: BodyNode, spot: Spot, base: str) -> list[str]:
        text = view(node, base, self._shape(node, spot))
        users = self.users[node]
        if len(users) == 1 and users[0].nodes.count(node) == 1:
            if self.spots[users[0]] == spot:
                self.value[node] = text
                return []
        name = self.names.fresh(f"{base}_view" if base.isidentifier() else "view")
        self.value[node], self.simple = name, False
        return [f"{name} = {text}"]

    def _argument(self, node: BodyNode, wanted: Spot) -> str:
        return self._sliced(self.value[node], self.spots[node], wanted)

    def _sliced(self, base: str, spot: Spot, wanted: Spot) -> str:
        """``base``, a slice along ``spot``, further cut to ``wanted``."""
        more = tuple(
            w if s is None else None for s, w in zip(spot, wanted, strict=True)
        )
        axes = [a for a in more if a is not None]
        if not axes:
            return base
        if (base, more) not in self.slices:
            index = [":"] * (max(axes) + 1)
            letters = ""
            for turn, axis in zip(self.turns, more, strict=True):
                if axis is not None:
                    index[axis] = f"{turn.first}:{turn.end}"
                    letters += turn.first[0]
            name = self.names.fresh(f"{base}_{letters}")
            level = level_of(more)
            lines = self.heads[level] if level > level_of(spot) else self.main
            lines.append(f"{name} = {base}[{', '.join(index)}]")
            self.slices[base, more] = name
        return self.slices[base, more]

    # -- extents -----------------------------------------------------------------------

    def _shape(self, node: BodyNode, spot: Spot) -> list[str]:
        """The shape of a block of ``node`` as expressions."""
        shape = [str(d) for d in node.shape]
        for turn, axis in zip(self.turns, spot, strict=True):
            if axis is not None:
                shape[axis] = turn.rows
        return shape

    def _flat(self, node: BodyNode, spot: Spot) -> tuple[str, str] | None:
        """The shape of a product by one matrix as a matrix itself.

        None where there is no need, or where the leading axes do not merge in memory.
        """
        if node.name != "matmul" or len(node.shape) < 3:
            return None
        if len(node.nodes[1].shape) > 2:
            return None
        if self.plan.store[node] is OUT and not self.packed:
            return None
        *lead, columns = self._shape(node, spot)
        cut = [a for a in spot if a is not None and a < len(lead)]
        if cut and any(d != "1" for d in lead[: max(cut)]):
            return None
        return " * ".join(d for d in lead if d != "1") or "1", columns


def _indented(level: int, lines: list[str]) -> list[str]:
    return [INDENT * level + line for line in lines]
