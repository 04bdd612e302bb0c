"""Nests that read the same elements of an array become one, which reads each once.

Maps that write parts of one result: the halves of a rotary embedding read both halves
of what they turn. As two nests of one kernel they read it twice from memory, since the
groups of the second start when those of the first have ended.

A kernel that reduces rows, and a map of what lies in them: a map of parts of rows, as
a rotary embedding after a norm, is no kernel of whole rows, so that the search has two.
On a GPU the thread group that has reduced a row computes what the map makes of it: what
it reads again is in the first cache then. A norm with its rotary embedding (8×1024×4096
float32) takes an H100 95 µs so, a copy of as many bytes 91, and both kernels took 177.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from eqsat.terms import HALF

from ..loop_ir import (
    Accumulate,
    Affine,
    Compute,
    Const,
    Keep,
    Load,
    LoopVar,
    Nest,
    Pass,
    Position,
    Statement,
    Store,
    operands,
    over,
    variables,
)

LEAST_ROWS = 256
"""Rows from which a thread group for each keeps a GPU busy."""
MOST_BYTES = 1 << 15
"""Of a row that several thread groups find in the first cache of a processor again."""

Value = Const | Load | Compute | Position
"""What makes a value of an element."""


def with_shared_reads(nests: Sequence[Nest]) -> list[Nest]:
    """``nests``, which have the same buffers and write different elements of them; of
    those that run over the same points, those together that read the same of them."""
    found: list[Nest] = []
    for nest in nests:
        for i, other in enumerate(found):
            both = _maps_together(other, nest)
            if both is not None:
                found[i] = both
                break
        else:
            found.append(nest)
    return found


def _maps_together(a: Nest, b: Nest) -> Nest | None:
    """One nest that does what both do; None where they run over different points, or
    read nothing of each point that is the same."""
    if not (_is_map(a) and _is_map(b)):
        return None
    (first,), (second,) = a.passes, b.passes
    mine, others = (*a.grid, *first.loops), (*b.grid, *second.loops)
    if len(a.grid) != len(b.grid) or [v.size for v in mine] != [v.size for v in others]:
        return None
    known = {v: Affine.of(w) for v, w in zip(others, mine, strict=True)}
    beside = _Beside((*first.before, *first.body), known)
    before, body = beside.of(second.before), beside.of(second.body)
    along = {v for v in mine if v.size > 1}
    if not any(along <= {*s.at.variables} for s in beside.shared):
        return None
    both = Pass((*first.before, *before), first.loops, (*first.body, *body))
    return replace(a, passes=(both,))


def _is_map(nest: Nest) -> bool:
    plain = all(isinstance(s, Value) or type(s) is Store for s in nest.statements())
    return plain and len(nest.passes) == 1 and not nest.keeps


def rows_then_map(rows: Nest, then: Nest, exact: bool = False) -> Nest | None:
    """One nest for two over the same buffers, of which the second reads what the first
    writes, and nothing else does; None where a thread group for each row of the first
    does not compute the second well. What one kernel computes of halves it does not
    round on the way, unless it is to be ``exact``."""
    made = {s.buffer: s for s in rows.statements() if isinstance(s, Store)}
    reads = [s for s in then.statements() if isinstance(s, Load) and s.buffer in made]
    places = {s.at for s in reads}
    if not _are_rows(rows, made, exact) or not _is_map(then) or len(places) != 1:
        return None
    names = {v: LoopVar(f"of_{v}", v.size) for v in (*then.grid, *then.passes[0].loops)}
    at = places.pop().substituted({v: Affine.of(w) for v, w in names.items()})
    known = _rows_at(rows.grid, at, next(iter(made.values())).at)
    rest = tuple(v for v in names.values() if v.size > 1 and v not in at.variables)
    stores = [s for s in then.statements() if isinstance(s, Store)]
    if known is None or not rest or not _is_read_again(rows, then):
        return None
    inner = next(v for v, w in names.items() if w == rest[-1])
    if any(s.at.coefficient(inner) != 1 for s in stores):
        return None
    passes = [_moved(p, known) for p in rows.passes]
    beside = _Beside(
        [s for p in passes for s in p.before],
        {v: Affine.of(w) for v, w in names.items()},
        1 + max(variables(rows)),
    )
    beside.number |= {s.target: made[s.buffer].value for s in reads}
    statements = beside.of([s for s in then.statements() if s not in reads])
    body = _of_elements(statements, rest)
    before = tuple(s for s in statements if s not in body)
    grid = tuple(v for v, _ in sorted(at.terms, key=lambda t: -t[1]))
    passes.append(Pass(before, rest, tuple(body)))
    return replace(rows, grid=grid, passes=tuple(passes))


def _are_rows(nest: Nest, made: Mapping[int, Store], exact: bool) -> bool:
    """Whether a nest reduces rows, one by one, and writes what becomes of each to one
    place, in the dtype that it has or may have."""
    dtypes = {
        s.target: s.dtype for s in nest.statements() if not isinstance(s, Keep | Store)
    }
    stores = [s for s in nest.statements() if isinstance(s, Store)]
    plain = not (nest.vertical or nest.keeps or nest.chunk is not None)
    halves = () if exact else HALF
    kinds = ((dtypes[s.value], nest.buffers[s.buffer].dtype) for s in stores)
    same = all(a == b or b in halves for a, b in kinds)
    of_rows = all(not isinstance(s, Store) for p in nest.passes for s in p.body)
    one = len(made) == len(stores) and len({s.at for s in stores}) == 1
    many = nest.rows >= LEAST_ROWS
    sums = any(isinstance(s, Accumulate) for s in nest.statements())
    return plain and same and of_rows and one and many and sums


def _is_read_again(rows: Nest, then: Nest) -> bool:
    """Whether both read an array whose rows a cache keeps."""
    one, two = (
        {s.buffer for s in nest.statements() if isinstance(s, Load)}
        for nest in (rows, then)
    )
    length = max(prod(v.size for v in p.loops) for p in rows.passes)
    width = max((rows.buffers[b].dtype.itemsize for b in one), default=1)
    return bool(one & two) and length * width <= MOST_BYTES


def _rows_at(
    grid: Sequence[LoopVar], at: Affine, stored: Affine
) -> dict[LoopVar, Affine] | None:
    """The variables of rows, which are ``stored`` at a place each, as those of a map
    that reads them ``at`` one; None where no sum of these is one of them."""
    found: dict[LoopVar, Affine] = {}
    left = {*at.terms}
    for v in (v for v in grid if v.size > 1):
        unit = step = stored.coefficient(v)
        own = sorted(
            ((w, c) for w, c in left if step <= c < step * v.size), key=lambda t: t[1]
        )
        for w, c in own:
            if c != unit:
                return None
            unit *= w.size
        if step < 1 or unit != step * v.size:
            return None
        left -= {*own}
        found[v] = Affine(0, tuple(sorted((w, c // step) for w, c in own)))
    return None if left or at.offset != stored.offset else found


def _moved(p: Pass, known: Mapping[LoopVar, Affine]) -> Pass:
    """A pass without what it stores, over other variables of rows."""
    before, body = (
        tuple(over(s, known) for s in part if not isinstance(s, Store))
        for part in (p.before, p.body)
    )
    return Pass(before, p.loops, body)


def _of_elements(
    statements: Iterable[Statement], loops: Collection[LoopVar]
) -> list[Statement]:
    """Those of ``statements`` that differ from one element of a row to the next."""
    found: list[Statement] = []
    values: set[int] = set()
    for s in statements:
        at = s.at.variables if isinstance(s, Load | Position | Store) else ()
        if values.intersection(operands(s)) or not {*loops}.isdisjoint(at):
            found.append(s)
            if isinstance(s, Value):
                values.add(s.target)
    return found


class _Beside:
    """Statements beside ``first`` ones, whose values they use where they are the
    same."""

    def __init__(
        self,
        first: Sequence[Statement],
        variables: Mapping[LoopVar, Affine],
        free: int = 0,
    ) -> None:
        """``variables``: what becomes of those of the new statements. Numbers from
        ``free`` on are no value's."""
        self.variables = variables
        self.number: dict[int, int] = {}
        """What the values of the new statements are numbered with."""
        self.made = {_same(s): s.target for s in first if isinstance(s, Value)}
        self.free = max([free, *(n + 1 for n in self.made.values())])
        self.shared: list[Load] = []
        """Reads of both."""

    def of(self, statements: Iterable[Statement]) -> list[Statement]:
        """What is new of ``statements``."""
        new: list[Statement] = []
        for s in statements:
            s = over(s, self.variables)
            if isinstance(s, Store):
                new.append(replace(s, value=self.number[s.value]))
                continue
            assert isinstance(s, Value)
            if isinstance(s, Compute):
                s = replace(s, args=tuple(self.number[a] for a in s.args))
            known = self.made.get(_same(s))
            if known is None:
                known = self.made[_same(s)] = self.free
                new.append(replace(s, target=known))
                self.free += 1
            elif isinstance(s, Load):
                self.shared.append(s)
            self.number[s.target] = known
        return new


def _same(s: Value) -> tuple[Value, str]:
    """What is equal for statements that make the same value. 0.0 and -0.0 are not."""
    return replace(s, target=0), repr(s.value) if isinstance(s, Const) else ""
