"""Terms: frozen, hash-consed expressions over arrays.

A term is an op applied to terms, with static attributes. Within one :class:`TermGraph`
equal terms are the same object, so identity is equality. Shapes are concrete and dtypes
are known when a term is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol, Self

import numpy as np

from eqsat.support import EqsatError, SourceLine, at, caller_line

Shape = tuple[int, ...]


class Weak(Enum):
    """The dtype of a bare Python number: it takes on the dtype of what it meets (NEP
    50)."""

    FLOAT = float
    INT = int
    COMPLEX = complex

    __hash__ = object.__hash__  # Enum's is code of Python; types are hashed often

    def __str__(self) -> str:
        return f"python {self.value.__name__}"


DType = np.dtype[Any] | Weak
Type = tuple[DType, Shape]


class Operator(Protocol):
    """What a term needs to know of its op."""

    @property
    def name(self) -> str: ...


class Term:
    """``op(*args, **attrs)`` with its ``shape`` and ``dtype``; made by a
    :class:`TermGraph` only."""

    __slots__ = ("args", "attrs", "dtype", "graph", "id", "op", "shape", "source")

    op: Operator
    args: tuple[Term, ...]
    attrs: tuple[Hashable, ...]
    shape: Shape
    dtype: DType
    graph: TermGraph
    id: int
    source: SourceLine | None

    def __init__(self) -> None:
        raise EqsatError("terms are made by calling ops, not directly")

    @classmethod
    def new(
        cls,
        graph: TermGraph,
        number: int,
        op: Operator,
        args: Sequence[Term],
        attrs: tuple[Hashable, ...],
        type_: Type,
        source: SourceLine | None,
    ) -> Self:
        """A term, as a graph makes it."""
        made = object.__new__(cls)
        put = object.__setattr__
        put(made, "op", op)
        put(made, "args", tuple(args))
        put(made, "attrs", attrs)
        put(made, "dtype", type_[0])
        put(made, "shape", type_[1])
        put(made, "graph", graph)
        put(made, "id", number)
        put(made, "source", source)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Term is frozen; cannot set {name!r}")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of the value, packed; 0 for a bare Python number."""
        return 0 if isinstance(self.dtype, Weak) else self.size * self.dtype.itemsize

    @property
    def type(self) -> Type:
        return self.dtype, self.shape

    def __repr__(self) -> str:
        dims = "×".join(map(str, self.shape)) or "scalar"
        return f"<{self.op.name} #{self.id}: {dims} {self.dtype}>"


class TermGraph:
    """The terms of one trace. Hash-consing is by graph, so nothing is shared between
    traces."""

    def __init__(self, sources: bool = True) -> None:
        self.sources = sources
        """Whether terms remember the line of the user's code that made them."""
        self.line: SourceLine | None = None
        """The line that new terms are made for, where it is not the caller's."""
        self.terms: list[Term] = []
        self._table: dict[tuple[Any, ...], Term] = {}
        self._ops: dict[str, Operator] = {}
        """Ops by their names."""
        self.arrays: dict[int, np.ndarray[Any, Any]] = {}
        """Arrays by ``id``, kept alive for as long as the terms that name them."""
        self.float_errors: dict[str, object] | None = None
        """What NumPy did on floating-point errors where a function is traced; None
        elsewhere."""
        self.left_to_numpy: list[str] = []
        """For which values the program raises an IndexError where NumPy does otherwise,
        such as a longer result."""

    def node(
        self,
        op: Operator,
        args: Sequence[Term],
        attrs: tuple[Hashable, ...],
        type_: Type,
    ) -> Term:
        """The term ``op(*args, **attrs)``, interned. Raises when an argument is of
        another graph."""
        self._check_own(op, args)
        if self._ops.setdefault(op.name, op) is not op:
            raise EqsatError(
                f"op {op.name!r} was defined twice, and both are in one program; give "
                f"each a name of its own{at(caller_line())}"
            )
        key = (op.name, tuple(a.id for a in args), attrs_key(attrs))
        found = self._table.get(key)
        if found is None:
            number = len(self.terms)
            found = Term.new(self, number, op, args, attrs, type_, self._line())
            self._table[key] = found
            self.terms.append(found)
        return found

    def known(self, op: Operator, array: np.ndarray[Any, Any]) -> Term:
        """The leaf ``op`` of an array that is known, held by identity."""
        self.arrays[id(array)] = array
        return self.node(op, (), (id(array),), (array.dtype, array.shape))

    def _check_own(self, op: Operator, args: Sequence[Term]) -> None:
        for i, a in enumerate(args):
            if a.graph is not self:
                raise EqsatError(
                    f"{op.name}: argument {i} belongs to another trace; an array made "
                    f"while tracing "
                    f"one function cannot be used in another{at(caller_line())}"
                )

    def _line(self) -> SourceLine | None:
        return (self.line or caller_line()) if self.sources else None

    @contextmanager
    def lines(self) -> Iterator[Callable[[Term], None]]:
        """A function after whose call new terms are on the line of a given one, until
        the end of the block."""
        before = self.line

        def now(term: Term) -> None:
            self.line = term.source or before

        try:
            yield now
        finally:
            self.line = before


def attrs_key(attrs: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    """Attributes as a key: 1, 1.0 and True, or 0.0 and -0.0, are different
    attributes."""
    return tuple((a.__class__, str(a) if isinstance(a, float) else a) for a in attrs)


def postorder(roots: Iterable[Term]) -> Iterator[Term]:
    """Every term below ``roots`` once, arguments before their users, in a deterministic
    order."""
    seen: set[int] = set()
    for root in roots:
        stack = [root]
        while stack:
            term = stack[-1]
            if id(term) in seen:
                stack.pop()
                continue
            missing = [a for a in term.args if id(a) not in seen]
            if missing:
                missing.reverse()
                stack += missing
                continue
            stack.pop()
            seen.add(id(term))
            yield term
