"""What all generated kernels share: addresses, statements, accumulators."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from eqsat.terms import HALF, Op

from ...loop_ir import (
    Accumulate,
    Affine,
    Compute,
    Const,
    DType,
    Keep,
    Kept,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Statement,
    Store,
    Unsupported,
)
from ..c_code import NEAR, Dialect, expression, fuse_erf, header_of, number, value_type
from .offset_arrays import for_slices
from .online_softmax import POWERS

SMALL = 8
"""Elements below which MLX passes an array in Metal's constant memory."""
VECTOR = 16
"""Bytes of the widest access to memory."""


@dataclass(frozen=True)
class Source:
    """A kernel as text, and how to start it."""

    name: str
    """Of this text and no other: compiled kernels are kept by it."""
    header: str
    body: str
    inputs: tuple[int, ...]
    """Buffers of the nest that are read."""
    outputs: tuple[int, ...]
    group: int
    """Threads of a group."""
    groups: int
    joined: tuple[Source, ...] = ()
    """The kernels whose groups this one has, one after another."""

    @property
    def threads(self) -> int:
        """Threads of the grid."""
        return self.group * self.groups


JOINS = {
    "sum": "EqSum",
    "prod": "EqProd",
    "max": "EqMax",
    "min": "EqMin",
    "any": "EqAny",
    "all": "EqAll",
    "argmax": "EqArgmax",
    "argmin": "EqArgmin",
    POWERS: "EqPowers",
}


def _neutral(op: str, dtype: DType) -> str:
    """What changes no result, as text."""
    known = Op.registry[op]
    if known.identity is None:
        raise Unsupported(f"reduction {op!r} on a GPU")
    return number(known.neutral(dtype), dtype)


@dataclass
class Lines:
    """Text under construction."""

    text: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, *lines: str) -> None:
        self.text += ["  " * self.depth + line for line in lines]

    def open(self, line: str) -> None:
        self.add(f"{line} {{")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.add("}")


def of_pack(pack: str, dtype: DType, wanted: DType) -> str:
    """Element ``j`` of neighbours of ``dtype`` in registers."""
    if dtype == wanted:
        return f"{pack}.v[j]"
    half = dtype in HALF and wanted == np.dtype(np.float32)
    kind = value_type(wanted)
    return f"eq_float({pack}, j)" if half else f"{kind}({pack}.v[j])"


def accesses(statements: Iterable[Statement]) -> Iterator[tuple[int, Affine]]:
    """Buffers and places that are read or written."""
    for s in statements:
        if isinstance(s, (Load, Store)):
            yield s.buffer, s.at


class GpuKernelWriter:
    """What all kinds of kernels share."""

    def __init__(self, nest: Nest, sizes: Sequence[int], dialect: Dialect) -> None:
        self.sizes, self.dialect = sizes, dialect
        self.take(fuse_erf(nest))
        nest = self.nest
        self.out = Lines()
        self.index: dict[LoopVar, str] = {}
        """Expressions of the variables in scope."""
        self.row: dict[int, str] = {}
        """Texts of values of the row."""
        self.held: dict[int, str] = {}
        """Texts of values that registers hold for later passes."""
        self.raw: set[int] = set()
        """Those that are held as they lie in memory."""
        self.packed: set[int] = set()
        """Those of them that are held as neighbours."""
        turns = max((prod(v.size for v in p.loops) for p in nest.passes), default=1)
        chunks = nest.chunk.size if nest.chunk is not None else 1
        most = max([*sizes, nest.rows // chunks * turns, 1])
        self.int = "int" if most < 1 << 31 else "int64_t"
        self.unsigned = "uint" if self.int == "int" else self.int
        """Of what is split into the values of several variables: no negative number is,
        and compilers that know so divide by powers of two in one instruction."""
        self.group = self.groups = 1

    def take(self, nest: Nest) -> None:
        """Have ``nest`` written."""
        self.nest = nest
        self.dtypes: dict[int, DType] = {
            s.target: s.dtype
            for s in nest.statements()
            if not isinstance(s, (Keep, Store))
        }

    def source(self) -> Source:
        """The kernel."""
        self.write()
        return self.finished(self.out.text)

    def finished(self, lines: Sequence[str]) -> Source:
        """The kernel whose body these lines are."""
        body = "\n".join([*self.dialect.ids, *lines]) + "\n"
        if all(b.dtype in HALF for b in self.nest.buffers if b.written):
            body = re.sub(rf"\b({'|'.join(NEAR)})\(", r"\1_near(", body)
        if self.dialect.name == "cuda":
            body = for_slices(body)
        header = header_of(self.dialect, body)
        buffers = self.nest.buffers
        inputs = tuple(i for i, b in enumerate(buffers) if not b.written)
        outputs = tuple(i for i, b in enumerate(buffers) if b.written)
        kinds = [
            (b.dtype.name, b.written, s)
            for b, s in zip(buffers, self.sizes, strict=True)
        ]
        made = repr((self.dialect.name, header, body, kinds))
        digest = hashlib.sha256(made.encode()).hexdigest()[:16]
        if self.group * self.groups >= 1 << 31:
            raise Unsupported("a grid of 2³¹ threads")
        name = f"eqsat_{digest}"
        return Source(name, header, body, inputs, outputs, self.group, self.groups)

    def write(self) -> None:
        raise NotImplementedError

    # -- addresses ---------------------------------------------------------------------

    def at(self, e: Affine, index: Mapping[LoopVar, str] | None = None) -> str:
        """The text of an index expression."""
        known = self.index if index is None else index
        parts = []
        for v, c in sorted(e.terms, key=lambda t: -abs(t[1])):
            text = known[v]
            text = text if text.isidentifier() or text.isdigit() else f"({text})"
            parts.append(text if c == 1 else f"{text} * {c}")
        if e.offset or not parts:
            parts.append(str(e.offset))
        return " + ".join(parts)

    def place(
        self, buffer: str, e: Affine, index: Mapping[LoopVar, str] | None = None
    ) -> str:
        """The address of an element; sums of indices come before those of addresses,
        which are longer."""
        text = self.at(e, index)
        return f"{buffer} + ({text})" if " + " in text else f"{buffer} + {text}"

    def split(self, whole: str, variables: Sequence[LoopVar], unit: int = 1) -> None:
        """Name the variables of which ``whole`` counts the values, the last one in
        steps of ``unit``."""
        rest = whole
        steps = 1
        for i, v in enumerate(reversed(variables)):
            size = v.size // unit if i == 0 else v.size
            text = rest if steps == 1 else f"{rest} / {steps}"
            last = i == len(variables) - 1
            if not last:
                text = f"{text} % {size}" if size > 1 else "0"
            if i == 0 and unit > 1:
                text = f"({text}) * {unit}" if " " in text else f"{text} * {unit}"
            name = f"i_{v}"
            self.out.add(f"const {self.int} {name} = {text};")
            self.index[v] = name
            steps *= size

    def width(self, statements: Iterable[Statement], inner: LoopVar, size: int) -> int:
        """Neighbours along ``inner`` that a thread takes at once: as many as make the
        smallest element 16 bytes, where ``size`` has whole numbers of them."""
        along = [
            self.nest.buffers[b].dtype.itemsize
            for b, at in accesses(statements)
            if at.coefficient(inner) == 1 and self.sizes[b] >= SMALL
        ]
        n = min(8, VECTOR // min(along)) if along else 1
        while n > 1 and size % n:
            n //= 2
        return n

    def is_packed(self, buffer: int, at: Affine, inner: LoopVar, n: int) -> bool:
        """Whether ``n`` neighbours along ``inner`` are one aligned access."""
        whole = all(c % n == 0 for v, c in at.terms if v != inner)
        whole = whole and at.coefficient(inner) == 1 and at.offset % n == 0
        return n > 1 and whole and self.sizes[buffer] >= SMALL

    def is_read_packed(self, s: Load, inner: LoopVar, n: int) -> bool:
        """Whether ``n`` neighbours are one load, of memory that no thread writes."""
        own = self.nest.buffers[s.buffer].written
        return not own and self.is_packed(s.buffer, s.at, inner, n)

    def loads(self, s: Load) -> str:
        """The function that reads neighbours."""
        return "eq_load"

    # -- statements --------------------------------------------------------------------

    def value(self, i: int, local: Mapping[int, str]) -> str:
        """The text of a value."""
        for known in (local, self.row, self.held):
            if i in known:
                return known[i]
        raise AssertionError(f"value {i} is not known here")

    def define(
        self,
        s: Statement,
        local: dict[int, str],
        index: Mapping[LoopVar, str],
        stem: str = "v",
    ) -> None:
        """A statement that makes a value."""
        if isinstance(s, (Keep, Store, Accumulate, Kept)):
            return
        name = f"{stem}{s.target}"
        kind = value_type(s.dtype)
        if isinstance(s, Const):
            local[s.target] = number(s.value, s.dtype)
            return
        if isinstance(s, Load):
            buffer = self.nest.buffers[s.buffer]
            self.dialect.memory_type(buffer.dtype)
            text = f"{buffer.name}[{self.at(s.at, index)}]"
            if buffer.dtype.name in self.dialect.constant_loads and not buffer.written:
                text = f"eq_read({self.place(buffer.name, s.at, index)})"
            text = text if buffer.dtype == s.dtype else f"{kind}({text})"
        elif isinstance(s, Position):
            text = f"{kind}({self.at(s.at, index)})"
        elif not isinstance(s, Compute):
            raise Unsupported(f"{type(s).__name__.lower()} on a GPU")
        else:
            of = self.dtypes[s.args[-1]]
            args = [self.value(a, local) for a in s.args]
            text = expression(s.op, args, of, s.dtype, self.dialect)
        self.out.add(f"const {kind} {name} = {text};")
        local[s.target] = name

    def narrowed(self, text: str, i: int, buffer: int) -> str:
        """A value as an element of a buffer."""
        dtype = self.nest.buffers[buffer].dtype
        kind = self.dialect.memory_type(dtype)
        return text if self.dtypes[i] == dtype else f"{kind}({text})"

    def block(
        self,
        statements: Sequence[Statement],
        inner: LoopVar,
        n: int,
        hold: Mapping[int, str] | None = None,
        sums: Mapping[int, str] | None = None,
    ) -> None:
        """The statements of ``n`` neighbours along ``inner``, whose first is in scope.

        ``hold``: values to write to registers. ``sums``: texts of accumulators; ``j``
        numbers the neighbours in both.
        """
        out, packs = self.out, {}
        for s in statements:
            if isinstance(s, Load) and self.is_read_packed(s, inner, n):
                buffer = self.nest.buffers[s.buffer]
                packs[s.target] = f"p{s.target}"
                out.add(
                    f"const EqPack<{self.dialect.memory_type(buffer.dtype)}, {n}> "
                    f"p{s.target} = {self.loads(s)}<{n}>"
                    f"({self.place(buffer.name, s.at)});"
                )
                if s.target in self.packed and hold and s.target in hold:
                    out.add(f"{hold[s.target]} = p{s.target};")
        stores = [s for s in statements if isinstance(s, Store)]
        wide = {
            k: f"q{k}"
            for k, s in enumerate(stores)
            if self.is_packed(s.buffer, s.at, inner, n)
        }
        for k, name in wide.items():
            kind = self.dialect.memory_type(self.nest.buffers[stores[k].buffer].dtype)
            out.add(f"EqPack<{kind}, {n}> {name};")
        if n > 1:
            out.add("#pragma unroll")
            out.open(f"for (int j = 0; j < {n}; ++j)")
        index = dict(self.index)
        if n > 1:
            index[inner] = f"{self.index[inner]} + j"
        self._neighbour(statements, packs, index, stores, wide, hold or {}, sums or {})
        if n > 1:
            out.close()
        for k, name in wide.items():
            s = stores[k]
            target = self.place(self.nest.buffers[s.buffer].name, s.at)
            out.add(f"eq_store<{n}>({target}, {name});")

    def _neighbour(
        self,
        statements: Sequence[Statement],
        packs: Mapping[int, str],
        index: Mapping[LoopVar, str],
        stores: Sequence[Store],
        wide: Mapping[int, str],
        hold: Mapping[int, str],
        sums: Mapping[int, str],
    ) -> None:
        local: dict[int, str] = {}
        for s in statements:
            if isinstance(s, Load) and s.target in packs:
                kind = value_type(s.dtype)
                dtype = self.nest.buffers[s.buffer].dtype
                text = of_pack(packs[s.target], dtype, s.dtype)
                self.out.add(f"const {kind} v{s.target} = {text};")
                local[s.target] = f"v{s.target}"
            elif isinstance(s, Store):
                k = stores.index(s)
                text = self.narrowed(self.value(s.value, local), s.value, s.buffer)
                name = self.nest.buffers[s.buffer].name
                place = (
                    f"{wide[k]}.v[j]"
                    if k in wide
                    else f"{name}[{self.at(s.at, index)}]"
                )
                self.out.add(f"{place} = {text};")
            elif isinstance(s, Accumulate):
                self._join(s, sums[s.target], local)
            else:
                self.define(s, local, index)
            target = getattr(s, "target", None)
            if target in hold and target in local and target not in self.packed:
                text = local[target]
                if isinstance(s, Load) and target in self.raw:
                    name = self.nest.buffers[s.buffer].name
                    text = f"{name}[{self.at(s.at, index)}]"
                self.out.add(f"{hold[target]} = {text};")

    def _join(self, s: Accumulate, place: str, local: Mapping[int, str]) -> None:
        text = self.value(s.value, local)
        join = JOINS[s.op]
        if s.op == POWERS:
            weight = self.value(s.position, local) if s.position >= 0 else "1.0f"
            self.out.add(f"{place} = eq_powers({place}, EqPower{{{text}, {weight}}});")
            return
        if s.position >= 0:
            kind = value_type(self.dtypes[s.value])
            text = f"EqAt<{kind}>{{{text}, int({self.value(s.position, local)})}}"
        self.out.add(f"{place} = {join}::join({place}, {text});")

    # -- accumulators ------------------------------------------------------------------

    def state(self, s: Accumulate) -> tuple[str, str]:
        """The type of an accumulator, and its neutral element."""
        dtype = self.dtypes[s.value]
        if s.op not in JOINS:
            raise Unsupported(f"reduction {s.op!r} on a GPU")
        if s.op in ("sum", "prod") and dtype == np.dtype(bool):
            raise Unsupported(f"{s.op} of bools on a GPU")
        if s.op == POWERS:
            return "EqPower", "EqPower{-EQ_INF, 0.0f}"
        kind, none = value_type(dtype), _neutral(s.op, dtype)
        if s.position >= 0:
            return f"EqAt<{kind}>", f"EqAt<{kind}>{{{none}, 2147483647}}"
        return kind, none

    def result(self, s: Accumulate, text: str) -> str:
        """What becomes of a joined accumulator."""
        if s.op == POWERS:
            return f"{text}.sum"
        return f"{value_type(s.dtype)}({text}.place)" if s.position >= 0 else text


class Reducing(GpuKernelWriter):
    """Kernels with accumulators."""

    def slots(self, s: Accumulate, count: int) -> str:
        """Memory of the group for one accumulator."""
        kind, _ = self.state(s)
        name = f"slots{s.target}"
        self.out.add(f"EQ_SHARED {kind} {name}[{count}];")
        return name

    def accumulators(self) -> list[Accumulate]:
        return [s for s in self.nest.statements() if isinstance(s, Accumulate)]

    def turns(self, p: Pass) -> tuple[str, str, int]:
        """First element of the row, the first after it, and most elements."""
        whole = prod(v.size for v in p.loops)
        chunk = self.nest.chunk
        sums = any(isinstance(s, Accumulate) for s in p.body)
        if chunk is None or not sums or not p.loops:
            return "0", str(whole), whole
        first = p.loops[0]
        inner = whole // first.size
        each = -(-first.size // chunk.size) * inner
        c = self.index[chunk]
        low, high = f"{c} * {each}", f"({c} + 1) * {each}"
        return low, f"eq_min({high}, {self.int}({whole}))", each
