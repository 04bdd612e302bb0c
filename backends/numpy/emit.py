"""Python lines for the body of a kernel under a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.program import show_bytes

from .body import Body, Node
from .schedule import OUT, Register, Schedule, Spot, level_of, wanted_spots
from .spell import Call, dims, number, statements, transposed, view

INDENT = "    "
_LETTERS = "ijklmnpqr"


@dataclass
class Names:
    """Identifiers in one function: each is given once."""

    taken: set[str]

    def fresh(self, stem: str) -> str:
        """``stem``, or ``stem`` with a number when it is taken."""
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name


@dataclass
class Text:
    """What was written for a body."""

    lines: list[str]
    is_simple: bool
    """Whether it needs no variables of its own: only calls."""


def write(
    body: Body,
    plan: Schedule,
    called: Mapping[Node, str],
    out: str,
    names: Names,
    namespace: dict[str, Any],
    over: Node | None = None,
) -> Text:
    """Lines that compute ``body`` into the array ``out`` from leaves ``called`` by name.

    ``over`` is the leaf whose memory ``out`` is. Objects beyond NumPy that the lines name
    go into ``namespace``.
    """
    return _Writer(body, plan, dict(called), out, names, namespace, over).text()


def dtype_text(node: Node) -> str:
    """The dtype of ``node`` as an argument of ``np.empty``."""
    name = node.dtype.name
    return name if name == "bfloat16" else f"np.{name}"


@dataclass
class _Writer:
    body: Body
    plan: Schedule
    value: dict[Node, str]
    out: str
    names: Names
    namespace: dict[str, Any]
    over: Node | None
    start: list[str] = field(default_factory=list)
    simple: bool = True

    def text(self) -> Text:
        self.loops = [
            (self.names.fresh(f"{a}0"), self.names.fresh(f"{a}1"))
            for a, _ in zip(_LETTERS, self.plan.loops, strict=False)
        ]
        self.heads: list[list[str]] = [[] for _ in self.plan.levels]
        self.slices: dict[tuple[str, Spot], str] = {}
        self.users = self.body.users()
        self._show_out()
        self.places = {r: self._allocate(r) for r in self.plan.registers}
        mains: list[list[str]] = []
        for nodes in self.plan.levels:
            self.main: list[str] = []
            mains.append(self.main)
            for n in nodes:
                self.main += self._node(n)
        return Text(self.start + self._nest(mains), self.simple and not self.plan.loops)

    def _nest(self, mains: list[list[str]]) -> list[str]:
        lines: list[str] = []
        for level, main in enumerate(mains):
            pad = INDENT * level
            if level:
                loop, (first, end) = self.plan.loops[level - 1], self.loops[level - 1]
                step = f"{first} + {loop.rows}"
                stop = step if loop.is_even else f"min({step}, {loop.size})"
                every = f"0, {loop.size}, {loop.rows}" if loop.rows > 1 else f"{loop.size}"
                lines.append(f"{INDENT * (level - 1)}for {first} in range({every}):")
                lines.append(f"{pad}{end} = {stop}")
            lines += [pad + line for line in self.heads[level] + main]
        return lines

    # -- arrays --------------------------------------------------------------------------

    def _show_out(self) -> None:
        """The result under the views that the body ends with, undone."""
        self.packed = True
        for v in self.body.shown:
            (arg,) = v.nodes
            if v.name == "reshape":
                text = f"{self.out}.reshape({dims([str(d) for d in arg.shape])})"
            else:
                perm = v.attrs["perm"]
                back = [perm.index(i) - len(perm) for i in range(-len(perm), 0)]
                text = transposed(self.out, len(v.shape), back)
                self.packed = False
            self.out = text
        if self.body.shown:
            name = self.names.fresh("result")
            self.start.append(f"{name} = {self.out}")
            self.out, self.simple = name, False

    def _allocate(self, register: Register) -> str:
        """Allocate an array; its name in the loops, where the last turn may use a part."""
        self.simple = False
        name = self.names.fresh(f"t{len(self.start)}")
        shape = dims([str(d) for d in register.shape])
        node = Node(None, (), {}, register.shape, register.dtype)
        size = show_bytes(register.nbytes)
        self.start.append(f"{name} = np.empty({shape}, {self._dtype(node)})  # {size}")
        spot = register.spot
        if not spot or spot[-1] is None or self.plan.loops[-1].is_even:
            return name
        first, end = self.loops[-1]
        part = self.names.fresh(f"{name}_{first[0]}")
        index = [":"] * spot[-1] + [f": {end} - {first}"]
        self.heads[register.level].append(f"{part} = {name}[{', '.join(index)}]")
        return part

    def _dtype(self, node: Node) -> str:
        text = dtype_text(node)
        if text == "bfloat16":
            self.namespace[text] = node.dtype.type
        return text

    def _place(self, node: Node) -> Register | None | object:
        if node is self.over:
            return OUT
        return self.plan.store.get(node, node)

    # -- nodes ---------------------------------------------------------------------------

    def _node(self, node: Node) -> list[str]:
        spot = self.plan.spots[node]
        wanted = wanted_spots(node, spot)
        if node.is_view:
            return self._view(node, spot, wanted[0])
        place = self.plan.store[node]
        if place is not OUT:
            out = self.places[place]
        else:
            out = self._sliced(self.out, (None,) * len(spot), spot)
        self.value[node] = self.out if node is self.plan.whole else out
        operand = next((a.dtype for a in node.nodes), node.dtype)
        args = tuple(
            self._argument(a, w) if isinstance(a, Node) else number(a, operand, self.namespace)
            for a, w in zip(node.args, wanted, strict=True)
        )
        over = tuple(
            isinstance(a, Node) and not a.is_view and self._place(a) is place
            for a in node.args
        )
        call = Call(node, args, out, over, self._rows(node, spot))
        return statements(call, self.namespace)

    def _view(self, node: Node, spot: Spot, wanted: Spot) -> list[str]:
        (arg,) = node.nodes
        base = self._argument(arg, wanted)
        text = view(node, base, self._shape(node, spot))
        users = self.users[node]
        if len(users) == 1 and users[0].nodes.count(node) == 1:
            if self.plan.spots[users[0]] == spot or not self.plan.loops:
                self.value[node] = text
                return []
        name = self.names.fresh(f"{base}_view" if base.isidentifier() else "view")
        self.value[node], self.simple = name, False
        return [f"{name} = {text}"]

    def _argument(self, node: Node, wanted: Spot) -> str:
        return self._sliced(self.value[node], self.plan.spots[node], wanted)

    def _sliced(self, base: str, spot: Spot, wanted: Spot) -> str:
        """``base``, a slice along ``spot``, further cut to ``wanted``."""
        more = tuple(
            w if s is None else None for s, w in zip(spot, wanted, strict=True)
        )
        if set(more) <= {None}:
            return base
        key = (base, more)
        if key not in self.slices:
            index: list[str] = [":"] * (max(a for a in more if a is not None) + 1)
            for (first, end), axis in zip(self.loops, more, strict=True):
                if axis is not None:
                    index[axis] = f"{first}:{end}"
            letters = "".join(
                first[0]
                for (first, _), a in zip(self.loops, more, strict=True)
                if a is not None
            )
            stem = base if base.isidentifier() else "view"
            name = self.slices[key] = self.names.fresh(f"{stem}_{letters}")
            level = level_of(more)
            lines = self.heads[level] if level > level_of(spot) else self.main
            lines.append(f"{name} = {base}[{', '.join(index)}]")
        return self.slices[key]

    # -- extents -------------------------------------------------------------------------

    def _shape(self, node: Node, spot: Spot) -> list[str]:
        """The shape of a block of ``node`` as expressions."""
        shape = [str(d) for d in node.shape]
        for loop, axis, (first, end) in zip(
            self.plan.loops, spot, self.loops, strict=True
        ):
            if axis is not None:
                shape[axis] = str(loop.rows) if loop.is_even else f"({end} - {first})"
        return shape

    def _rows(self, node: Node, spot: Spot) -> str | None:
        """Rows of a product with its leading axes as one; None where they do not merge."""
        if node.name != "matmul" or len(node.shape) < 3 or len(node.nodes[1].shape) != 2:
            return None
        if self.plan.store[node] is OUT and not self.packed:
            return None
        lead = self._shape(node, spot)[:-1]
        cut = [a for a in spot if a is not None and a < len(lead)]
        if cut and any(d != "1" for d in lead[: max(cut)]):
            return None
        many = [d for d in lead if d != "1"] or ["1"]
        return " * ".join(many)
