"""Nests as bodies of GPU kernels.

A map gives each thread a few neighbours of the result. A row is one thread group's, 32
lanes' or one thread's, by its length; what later passes read again stays in registers
where it fits, and is computed again where it does not. Where neighbouring rows lie side
by side, lanes run along these and thread groups share the elements of a row out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from ..kernels.affine import Affine, Unsupported, Var
from ..kernels.language import (
    Accumulate,
    Const,
    DType,
    Keep,
    Kept,
    Load,
    Nest,
    Pass,
    Position,
    Statement,
    Store,
)
from .arithmetic import expression
from .dialect import SIMD, Dialect, header_of, number, value_type

MAP_GROUP = 256
"""Threads of a group of a map."""
WIDE_GROUP = 256
"""Threads of a group that several rows share, or that a long row aims at."""
MOST_GROUP = 1024
SMALL = 8
"""Elements below which MLX passes an array in Metal's constant memory."""
FEW_ROWS = 256
"""Rows below which a row takes as many threads as it can use."""
TINY = 8
"""Elements of a row that one thread reduces."""


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

    @property
    def threads(self) -> int:
        """Threads of the grid."""
        return self.group * self.groups


def source_of(nest: Nest, sizes: Sequence[int], dialect: Dialect) -> Source:
    """``nest``, whose buffers have so many elements, in a language.

    Raises :class:`Unsupported` for a statement that it cannot say.
    """
    return _writer(nest, sizes, dialect).source()


def _writer(nest: Nest, sizes: Sequence[int], dialect: Dialect) -> _Writer:
    if not any(isinstance(s, Accumulate) for s in nest.statements()):
        return _Map(nest, sizes, dialect)
    if nest.vertical:
        return _Columns(nest, sizes, dialect)
    return _Rows(nest, sizes, dialect)


_JOINS = {
    "sum": "EqSum",
    "prod": "EqProd",
    "max": "EqMax",
    "min": "EqMin",
    "any": "EqAny",
    "all": "EqAll",
    "argmax": "EqArgmax",
    "argmin": "EqArgmin",
}


def _neutral(op: str, dtype: DType) -> str:
    """What changes no result, as text."""
    if op in ("sum", "any"):
        return number(0, dtype)
    if op in ("prod", "all"):
        return number(1, dtype)
    low = op in ("max", "argmax")
    if dtype.kind == "f":
        return number(-np.inf if low else np.inf, dtype)
    if dtype == np.dtype(bool):
        return number(not low, dtype)
    held = np.iinfo(dtype)
    return number(held.min if low else held.max, dtype)


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


class _Writer:
    """What all kinds of kernels share."""

    def __init__(self, nest: Nest, sizes: Sequence[int], dialect: Dialect) -> None:
        self.nest, self.sizes, self.dialect = nest, sizes, dialect
        self.out = Lines()
        self.dtypes: dict[int, DType] = {
            s.target: s.dtype
            for s in nest.statements()
            if not isinstance(s, (Keep, Store))
        }
        self.index: dict[Var, str] = {}
        """Expressions of the variables in scope."""
        self.row: dict[int, str] = {}
        """Texts of values of the row."""
        self.held: dict[int, str] = {}
        """Texts of values that registers hold for later passes."""
        self.raw: set[int] = set()
        """Those that are held as they lie in memory."""
        turns = max((prod(v.size for v in p.loops) for p in nest.passes), default=1)
        chunks = nest.chunk.size if nest.chunk is not None else 1
        most = max([*sizes, nest.rows // chunks * turns, 1])
        self.int = "int" if most < 1 << 31 else "int64_t"
        self.group = self.groups = 1

    def source(self) -> Source:
        """The kernel."""
        self.write()
        body = "\n".join([*self.dialect.ids, *self.out.text]) + "\n"
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

    def at(self, e: Affine, index: Mapping[Var, str] | None = None) -> str:
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

    def split(self, whole: str, variables: Sequence[Var], unit: int = 1) -> None:
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

    def accesses(self, statements: Iterable[Statement]) -> Iterator[tuple[int, Affine]]:
        """Buffers and places that are read or written."""
        for s in statements:
            if isinstance(s, (Load, Store)):
                yield s.buffer, s.at

    def width(self, statements: Iterable[Statement], inner: Var, size: int) -> int:
        """Neighbours along ``inner`` that a thread takes at once: as many as make the
        smallest element 16 bytes, where ``size`` has whole numbers of them."""
        along = [
            self.nest.buffers[b].dtype.itemsize
            for b, at in self.accesses(statements)
            if at.coefficient(inner) == 1 and self.sizes[b] >= SMALL
        ]
        n = min(8, 16 // min(along)) if along else 1
        while n > 1 and size % n:
            n //= 2
        return n

    def is_packed(self, buffer: int, at: Affine, inner: Var, n: int) -> bool:
        """Whether ``n`` neighbours along ``inner`` are one aligned access."""
        whole = all(c % n == 0 for v, c in at.terms if v != inner)
        whole = whole and at.coefficient(inner) == 1 and at.offset % n == 0
        return n > 1 and whole and self.sizes[buffer] >= SMALL

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
        index: Mapping[Var, str],
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
            text = text if buffer.dtype == s.dtype else f"{kind}({text})"
        elif isinstance(s, Position):
            text = f"{kind}({self.at(s.at, index)})"
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
        inner: Var,
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
            if isinstance(s, Load) and self.is_packed(s.buffer, s.at, inner, n):
                buffer = self.nest.buffers[s.buffer]
                packs[s.target] = f"p{s.target}"
                out.add(
                    f"const EqPack<{self.dialect.memory_type(buffer.dtype)}, {n}> "
                    f"p{s.target} = eq_load<{n}>({buffer.name} + {self.at(s.at)});"
                )
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
            target = f"{self.nest.buffers[s.buffer].name} + {self.at(s.at)}"
            out.add(f"eq_store<{n}>({target}, {name});")

    def _neighbour(
        self,
        statements: Sequence[Statement],
        packs: Mapping[int, str],
        index: Mapping[Var, str],
        stores: Sequence[Store],
        wide: Mapping[int, str],
        hold: Mapping[int, str],
        sums: Mapping[int, str],
    ) -> None:
        local: dict[int, str] = {}
        for s in statements:
            if isinstance(s, Load) and s.target in packs:
                kind = value_type(s.dtype)
                text = f"{packs[s.target]}.v[j]"
                same = self.nest.buffers[s.buffer].dtype == s.dtype
                text = text if same else f"{kind}({text})"
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
            if target in hold and target in local:
                text = local[target]
                if isinstance(s, Load) and target in self.raw:
                    name = self.nest.buffers[s.buffer].name
                    text = f"{name}[{self.at(s.at, index)}]"
                    text = f"{packs[target]}.v[j]" if target in packs else text
                self.out.add(f"{hold[target]} = {text};")

    def _join(self, s: Accumulate, place: str, local: Mapping[int, str]) -> None:
        text = self.value(s.value, local)
        join = _JOINS[s.op]
        if s.position >= 0:
            kind = value_type(self.dtypes[s.value])
            text = f"EqAt<{kind}>{{{text}, int({self.value(s.position, local)})}}"
        self.out.add(f"{place} = {join}::join({place}, {text});")

    # -- accumulators ------------------------------------------------------------------

    def state(self, s: Accumulate) -> tuple[str, str]:
        """The type of an accumulator, and its neutral element."""
        dtype = self.dtypes[s.value]
        if s.op in ("sum", "prod") and dtype == np.dtype(bool):
            raise Unsupported(f"{s.op} of bools on a GPU")
        kind, none = value_type(dtype), _neutral(s.op, dtype)
        if s.position >= 0:
            return f"EqAt<{kind}>", f"EqAt<{kind}>{{{none}, 2147483647}}"
        return kind, none

    def result(self, s: Accumulate, text: str) -> str:
        """What becomes of a joined accumulator."""
        return f"{value_type(s.dtype)}({text}.place)" if s.position >= 0 else text

    # -- values that are computed again ------------------------------------------------

    def again(self, p: int) -> list[Statement]:
        """The body of pass ``p`` with what earlier ones kept computed anew."""
        made: dict[int, Statement] = {}
        for q in self.nest.passes[: p + 1]:
            for s in q.body:
                if not isinstance(s, (Keep, Store, Accumulate, Kept)):
                    made.setdefault(s.target, s)
        out: list[Statement] = []
        done: set[int] = set()

        def need(i: int) -> None:
            s = made.get(i)
            if i in done or s is None:
                return
            done.add(i)
            for a in getattr(s, "args", ()):
                need(a)
            out.append(s)

        for s in self.nest.passes[p].body:
            if isinstance(s, Keep):
                continue
            if isinstance(s, (Store, Accumulate)):
                need(s.value)
                if isinstance(s, Accumulate) and s.position >= 0:
                    need(s.position)
                out.append(s)
            else:
                need(s.target)
        return out


class _Map(_Writer):
    """Elements that depend on no others."""

    def write(self) -> None:
        (only,) = self.nest.passes
        statements = [*only.before, *only.body]
        store = next(s for s in statements if isinstance(s, Store))
        variables = [*self.nest.grid, *only.loops]
        variables.sort(key=lambda v: -abs(store.at.coefficient(v)))
        if not variables:
            variables = [Var("one", 1)]
        inner = variables[-1]
        lone = len(variables) == 1
        n = self.width(statements, inner, 1 << 30 if lone else inner.size)
        if store.at.coefficient(inner) != 1:
            n = 1
        parts = -(-inner.size // n)
        total = prod(v.size for v in variables[:-1]) * parts
        self.group = min(MAP_GROUP, -(-total // SIMD) * SIMD)
        self.groups = -(-total // self.group)
        out = self.out
        out.add(f"const {self.int} thread_ = {self.int}(group) * {self.group} + lane;")
        out.add(f"if (thread_ >= {total}) return;")
        if not (lone and inner.size % n):
            self.split("thread_", variables, n)
            self.block(statements, inner, n)
            return
        self.split("thread_", [Var(inner.name, parts * n)], n)
        self.index[inner] = self.index.pop(Var(inner.name, parts * n))
        first = self.index[inner]
        out.open(f"if ({first} + {n} <= {inner.size})")
        self.block(statements, inner, n)
        out.depth -= 1
        out.open("} else")
        out.open(f"for ({self.int} i = {first}; i < {inner.size}; ++i)")
        self.index[inner] = "i"
        self.block(statements, inner, 1)
        out.close()
        out.close()


class _Reducing(_Writer):
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


class _Rows(_Reducing):
    """Rows whose elements lie side by side."""

    def write(self) -> None:
        nest, out = self.nest, self.out
        loops = {p.loops for p in nest.passes if p.body}
        self.length = max(prod(v.size for v in p.loops) for p in nest.passes)
        statements = [s for p in nest.passes for s in p.body]
        inner = next(p.loops[-1] for p in nest.passes if p.body)
        chunked = nest.chunk is not None
        self.n = (
            1
            if chunked or len(loops) > 1
            else self.width(statements, inner, inner.size)
        )
        self._share()
        self.registers = len(loops) == 1 and not chunked
        self.registers = self.registers and self.each <= self.dialect.registers
        if self.lanes == self.group:
            row = "group"
        elif self.lanes == 1:
            row = f"{self.int}(group) * {self.group} + lane"
        else:
            row = (
                f"{self.int}(group) * {self.group // self.lanes} + lane / {self.lanes}"
            )
        out.add(f"const {self.int} row = {row};")
        if nest.rows % (self.group // self.lanes):
            out.add(f"if (row >= {nest.rows}) return;")
        own = "0" if self.lanes == 1 else f"lane % {self.lanes}"
        own = "lane" if self.lanes == self.group else own
        out.add(f"const {self.int} own = {own};")
        self.split("row", nest.grid)
        if self.lanes > SIMD:
            self.places = {s.target: self.slots(s, SIMD) for s in self.accumulators()}
        self._registers()
        for i, p in enumerate(nest.passes):
            self._pass(i, p)

    def _share(self) -> None:
        """Lanes of a row, and threads of a group."""
        parts = -(-self.length // self.n)
        rows = self.nest.rows
        if self.length <= TINY and rows >= FEW_ROWS:
            self.lanes, self.group = 1, MAP_GROUP
        elif parts <= SIMD or (parts <= 2 * SIMD and rows >= FEW_ROWS):
            self.lanes = SIMD
            self.group = min(WIDE_GROUP, SIMD * rows)
        else:
            lanes = MOST_GROUP if rows < FEW_ROWS else WIDE_GROUP
            while lanes < MOST_GROUP and -(-parts // lanes) * self.n > 16:
                lanes *= 2
            self.lanes = min(lanes, -(-parts // SIMD) * SIMD)
            self.group = self.lanes
        self.each = -(-parts // self.lanes) * self.n
        self.groups = -(-rows // (self.group // self.lanes))

    def _registers(self) -> None:
        """Declare what several passes read, and is held."""
        self.hold: dict[int, str] = {}
        if not self.registers:
            return
        seen: dict[int, int] = {}
        for i, p in enumerate(self.nest.passes):
            for s in p.body:
                if isinstance(s, Kept):
                    self.hold[s.target] = ""
                elif isinstance(s, Load) and seen.setdefault(s.target, i) != i:
                    if s.at.variables and set(s.at.variables) & set(p.loops):
                        self.hold[s.target] = ""
        loads = {
            s.target: self.nest.buffers[s.buffer].dtype
            for s in self.nest.statements()
            if isinstance(s, Load)
        }
        for i in self.hold:
            kind = value_type(self.dtypes[i])
            if i in loads and loads[i] != self.dtypes[i]:
                kind = self.dialect.memory_type(loads[i])
                self.raw.add(i)
            self.out.add(f"{kind} r{i}[{self.each}];")
            slot = "j" if self.n > 1 else "0"
            if self.each > self.n:
                slot = f"k * {self.n} + j" if self.n > 1 else "k"
            self.hold[i] = f"r{i}[{slot}]"

    def _pass(self, i: int, p: Pass) -> None:
        out = self.out
        stores = [s for s in p.before if isinstance(s, Store)]
        for s in p.before:
            self.define(s, self.row, self.index, "a")
        if stores:
            if self.lanes > 1:
                out.open("if (own == 0)")
            for s in stores:
                name = self.nest.buffers[s.buffer].name
                text = self.narrowed(self.value(s.value, {}), s.value, s.buffer)
                out.add(f"{name}[{self.at(s.at)}] = {text};")
            if self.lanes > 1:
                out.close()
        if p.body:
            self._elements(i, p)

    def _elements(self, i: int, p: Pass) -> None:
        out = self.out
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        for s in sums:
            kind, none = self.state(s)
            out.add(f"{kind} s{s.target} = {none};")
        names = {s.target: f"s{s.target}" for s in sums}
        if self.registers:
            self._held_elements(p, names)
        else:
            self._looped_elements(i, p, names)
        for s in sums:
            kind, none = self.state(s)
            join = _JOINS[s.op]
            text = f"s{s.target}"
            if self.lanes > SIMD:
                count = self.lanes // SIMD
                text = (
                    f"eq_group<{join}>({text}, {none}, slots{s.target}, lane, {count})"
                )
            elif self.lanes == SIMD:
                text = f"eq_simd<{join}>({text})"
            value = value_type(s.dtype)
            out.add(f"const {value} a{s.target} = {self.result(s, text)};")
            self.row[s.target] = f"a{s.target}"

    def _held_elements(self, p: Pass, names: Mapping[int, str]) -> None:
        out, parts = self.out, self.length // self.n
        known = set(self.held)
        body = [s for s in p.body if getattr(s, "target", None) not in known]
        new = {i: t for i, t in self.hold.items() if i not in self.held}
        turns = self.each // self.n
        kept = dict(self.index)
        if turns > 1:
            out.add("#pragma unroll")
            out.open(f"for (int k = 0; k < {turns}; ++k)")
            part = f"k * {self.lanes} + own"
        else:
            part = "own"
        guard = parts != turns * self.lanes
        if guard:
            out.open(f"if ({part} < {parts})")
        elif turns == 1:
            out.add("{")
            out.depth += 1
        self._element_index(part, p.loops)
        self.block(body, p.loops[-1], self.n, new, names)
        if guard or turns == 1:
            out.close()
        if turns > 1:
            out.close()
        self.index = kept
        made = {getattr(s, "target", None) for s in body}
        for i, text in new.items():
            if i in made:
                kind = value_type(self.dtypes[i])
                self.held[i] = f"{kind}({text})" if i in self.raw else text

    def _element_index(self, part: str, loops: Sequence[Var]) -> None:
        if len(loops) == 1:
            text = f"({part})" if " " in part else part
            text = part if self.n == 1 else f"{text} * {self.n}"
            self.out.add(f"const {self.int} e = {text};")
            self.index[loops[0]] = "e"
        else:
            self.out.add(f"const {self.int} e = {part};")
            self.split("e", loops, self.n)

    def _looped_elements(self, i: int, p: Pass, names: Mapping[int, str]) -> None:
        out = self.out
        body = self.again(i)
        kept = dict(self.index)
        _, _, most = self.turns(p)
        n = self.width(body, p.loops[-1], p.loops[-1].size)
        whole = prod(v.size for v in p.loops)
        while most % n or whole % n:
            n //= 2
        self.n, before = n, self.n
        if most == whole:
            first, last = "own", str(whole // n)
        else:
            chunk = self.nest.chunk
            assert chunk is not None
            c, each = self.index[chunk], most // n
            first = f"{c} * {each} + own"
            last = f"eq_min(({c} + 1) * {each}, {self.int}({whole // n}))"
        out.add("#pragma unroll 4")
        step = f"part += {self.lanes}"
        out.open(f"for ({self.int} part = {first}; part < {last}; {step})")
        self._element_index("part", p.loops)
        self.block(body, p.loops[-1], self.n, None, names)
        out.close()
        self.index, self.n = kept, before


class _Columns(_Reducing):
    """Rows that lie side by side: lanes run along these, and the threads of a group
    share the elements of each out."""

    def write(self) -> None:
        nest, out = self.nest, self.out
        *outer, lane = nest.grid
        statements = [s for p in nest.passes for s in (*p.before, *p.body)]
        self.lane = lane
        self.n = min(self.width(statements, lane, lane.size), 4)
        blocks = -(-lane.size // (SIMD * self.n))
        longest = max(self.turns_of(p) for p in nest.passes)
        self.depth = 1
        while self.depth < 16 and self.depth * 8 < longest:
            self.depth *= 2
        self.group = SIMD * self.depth
        self.groups = prod(v.size for v in outer) * blocks
        out.add("const uint x = lane % 32, y = lane / 32;")
        out.add(f"const {self.int} block = group % {blocks};")
        if outer:
            out.add(f"const {self.int} part = group / {blocks};")
            self.split("part", outer)
        out.add(f"const {self.int} c = (block * {SIMD} + x) * {self.n};")
        out.add(f"const bool inside = c < {lane.size};")
        self.index[lane] = "c"
        if self.depth > 1:
            for s in self.accumulators():
                self.slots(s, self.group * self.n)
        for i, p in enumerate(nest.passes):
            self._pass(i, p)

    def turns_of(self, p: Pass) -> int:
        whole = prod(v.size for v in p.loops)
        chunk = self.nest.chunk
        return whole if chunk is None else -(-whole // chunk.size)

    def _pass(self, i: int, p: Pass) -> None:
        self._of_columns(p.before)
        if p.body:
            self._elements(i, p)

    def _of_columns(self, before: Sequence[Statement]) -> None:
        """Values of a column each; the first threads of a column write."""
        out, n = self.out, self.n
        makes = [s for s in before if not isinstance(s, (Store, Const))]
        for s in before:
            if isinstance(s, Const):
                self.row[s.target] = number(s.value, s.dtype)
        for s in makes:
            out.add(f"{value_type(self.dtypes[s.target])} a{s.target}[{n}];")  # type: ignore[union-attr]
        hold = {s.target: f"a{s.target}[{'j' if n > 1 else '0'}]" for s in makes}  # type: ignore[union-attr]
        stores = [s for s in before if isinstance(s, Store)]
        if makes:
            out.open("if (inside)")
            self.block(makes, self.lane, n, hold)
            out.close()
        self.row |= hold
        if stores:
            out.open("if (inside && y == 0)")
            self.block(stores, self.lane, n)
            out.close()

    def _elements(self, i: int, p: Pass) -> None:
        out, n = self.out, self.n
        sums = [s for s in p.body if isinstance(s, Accumulate)]
        slot = "j" if n > 1 else "0"
        for s in sums:
            kind, none = self.state(s)
            out.add(f"{kind} s{s.target}[{n}];")
            out.add(f"for (int j = 0; j < {n}; ++j) s{s.target}[j] = {none};")
        names = {s.target: f"s{s.target}[{slot}]" for s in sums}
        low, high, _ = self.turns(p)
        kept = dict(self.index)
        out.open("if (inside)")
        first = "y" if low == "0" else f"{low} + y"
        out.add("#pragma unroll 4")
        out.open(f"for ({self.int} e = {first}; e < {high}; e += {self.depth})")
        self.split("e", p.loops)
        self.block(self.again(i), self.lane, n, None, names)
        out.close()
        out.close()
        self.index = kept
        for s in sums:
            self._joined(s)

    def _joined(self, s: Accumulate) -> None:
        """The accumulators of all threads of a column as one, in each of them."""
        out, n = self.out, self.n
        kind, none = self.state(s)
        value = value_type(s.dtype)
        out.add(f"{value} a{s.target}[{n}];")
        if self.depth > 1:
            place = f"slots{s.target}[lane * {n} + j]"
            out.add(f"for (int j = 0; j < {n}; ++j) {place} = s{s.target}[j];")
            out.add("EQ_BARRIER();")
        out.open(f"for (int j = 0; j < {n}; ++j)")
        if self.depth > 1:
            out.add(f"{kind} all = {none};")
            other = f"slots{s.target}[(k * {SIMD} + x) * {n} + j]"
            out.add(
                f"for (uint k = 0; k < {self.depth}; ++k) "
                f"all = {_JOINS[s.op]}::join(all, {other});"
            )
            out.add(f"a{s.target}[j] = {self.result(s, 'all')};")
        else:
            out.add(f"a{s.target}[j] = {self.result(s, f's{s.target}[j]')};")
        out.close()
        self.row[s.target] = f"a{s.target}[{'j' if n > 1 else '0'}]"
