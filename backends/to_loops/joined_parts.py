"""Arrays that are joined or padded, part by part: pointwise ops over them, which need
no memory for what is joined then, and no second pass; and parts that others read, which
are computed where they lie in the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod
from typing import Any, cast

from eqsat.ops import ASSEMBLIES, VIEWS, concatenate_op, pad_op, slice_op
from eqsat.terms import HALF, Op, Shape, Term, Weak

from ..loop_ir import Layout, Operand
from .roots import Root
from .values import computed_dtype


def source_of(term: Term) -> Term:
    """What ``term`` is a view of."""
    while term.op in VIEWS:
        term = term.args[0]
    return term


Fill = Callable[[Term, Shape, Term], Term]
"""``fill(value, shape, like)``: one number in a shape, of the dtype of ``like``."""
Part = tuple[Term, Shape]
"""A part of a term, and where along each axis it starts."""
MOST_WORK = 256
"""Operations of all parts together, each of which becomes code of its own."""


MOST_STRETCHED = 16
"""Operations of all stretches of one term together. A window as large as its image has
a stretch for each row."""


LIGHT_FLOPS = 16.0
"""Operations for an element, in all slices that show it, up to which it is made again
for each of them and not kept in memory."""
_AT_PLACES = frozenset([slice_op, pad_op])
"""Besides pointwise ops, what may leave elements where they are along an axis."""


SHORT = 16
"""Elements of a row below which the code of a nest is long: several rows are a
vector."""


def parts_of(term: Term, fill: Fill) -> Iterator[Part]:
    """What joined arrays are joined of, and what padded ones are: slabs of the value,
    two along each axis, as long as the axes before it have inside and as the others
    have in all; and the inside."""
    if term.op is concatenate_op:
        yield from zip(term.args, (at for at, _ in _boxes(term)), strict=True)
        return
    x, value = term.args
    lows, shape, start = cast(Shape, term.attrs[0]), list(term.shape), [0] * term.ndim
    for axis, low in enumerate(lows, term.ndim - len(lows)):
        high = shape[axis] - x.shape[axis] - low
        for at, width in ((0, low), (low + x.shape[axis], high)):
            shape[axis] = width
            if prod(shape):
                own = (*start[:axis], at, *start[axis + 1 :])
                yield fill(value, tuple(shape), term), own
        start[axis], shape[axis] = low, x.shape[axis]
    yield x, tuple(start)


def roots_of_parts(term: Term, root: Root, fill: Fill) -> list[Root]:
    """The parts of ``term``, written where ``root`` is."""
    found = [p for p in parts_of(term, fill) if p[0].size]
    return [_placed(root, part, start) for part, start in found]


def _placed(root: Root, part: Term, start: Shape) -> Root:
    offset = sum(i * s for i, s in zip(start, root.strides, strict=True))
    return replace(root, term=part, offset=root.offset + offset)


Memory = dict[Term, tuple[Operand, Layout]]


@dataclass
class Wholes:
    """Joined arrays of a kernel whose parts others read as well. A part is computed
    where it lies in the whole, and read there: steps of a stencil that keep the border
    took 3.5 times as long with copies between (8 steps of 512×512)."""

    readers: Mapping[Term, Sequence[Term]] = field(default_factory=dict)
    """What reads each term of the kernel."""
    results: Collection[Term] = ()
    users: Counter[Term] = field(default_factory=Counter)
    """How many terms read each."""
    order: Mapping[Term, int] = field(default_factory=dict)
    """The place of each term, arguments first."""
    begun: set[Term] = field(default_factory=set)
    """Those of which parts are being computed."""

    @classmethod
    def of(cls, terms: Sequence[Term], results: Collection[Term]) -> Wholes:
        """Those of the kernel of ``terms``, arguments first."""
        readers: dict[Term, list[Term]] = {}
        for t in terms:
            for a in set(t.args):
                readers.setdefault(a, []).append(t)
        users = Counter({t: len(by) for t, by in readers.items()})
        return cls(readers, results, users, {t: i for i, t in enumerate(terms)})

    def around(self, term: Term, memory: Memory) -> Term | None:
        """A joined array that ``term`` is a part of and that will be in memory."""
        for t in self.readers.get(term, ()) if term.op not in VIEWS else ():
            known = t in memory or t in self.begun or t in self.results
            if t.op in ASSEMBLIES and not known and term in _arrays(t):
                if self._is_read_across(t):
                    return t
        return None

    def above(
        self, joined: Term, demanded: Iterable[Term], known: Memory, fill: Fill
    ) -> Term:
        """What to compute into memory for a nest that meets ``joined`` under terms that
        are ``demanded``, its results first: the first one that is written part by part
        and needs nothing joined then; else ``joined``."""
        if joined.op not in ASSEMBLIES:
            return joined
        for t in demanded:
            if t.shape == joined.shape and cast(Op, t.op).kind == "pointwise":
                out = Operand("temporary", -1, computed_dtype(t))
                if by_parts(Root(t, out, t.shape), known, self.users, fill):
                    return t
        return joined

    def _is_read_across(self, joined: Term) -> bool:
        """Whether something reads several parts of what is joined, as slices do that a
        stencil adds up: so that it has to be in memory."""
        for reader in self.readers.get(joined, ()):
            if reader.op in ASSEMBLIES:
                across = self._is_read_across(reader)
            else:
                kind = cast(Op, reader.op).kind
                across = kind != "pointwise" and not _is_of_one_part(reader, joined)
            if across:
                return True
        return False

    def in_turn(self, roots: Sequence[Root]) -> list[Root]:
        """Parts of a joined array in the order in which they are written: what others
        read as well comes first, arguments before what is computed of them."""
        last = len(self.order)
        return sorted(
            roots,
            key=lambda r: self.order.get(r.term, last) if self._is_kept(r) else last,
        )

    def keep(self, root: Root, memory: Memory) -> None:
        """Note where a part lies that was written, if others read it."""
        if self._is_kept(root) and root.term not in memory:
            memory[root.term] = root.out, Layout(root.strides, root.offset)

    def _is_kept(self, root: Root) -> bool:
        """Whether others read a part, which memory holds as it is computed."""
        term = root.term
        is_shared = self.users[term] > 1 and term.op not in VIEWS
        return is_shared and root.out.dtype == computed_dtype(term)


def _arrays(joined: Term) -> tuple[Term, ...]:
    """The arrays that are parts of what is joined or padded."""
    return joined.args if joined.op is concatenate_op else joined.args[:1]


def _boxes(joined: Term) -> Iterator[tuple[Shape, Shape]]:
    """Where each of its arrays starts in what is joined, and its shape."""
    start = [0] * joined.ndim
    if joined.op is not concatenate_op:
        lows = cast(Shape, joined.attrs[0])
        start[joined.ndim - len(lows) :] = lows
    for a in _arrays(joined):
        yield tuple(start), a.shape
        if joined.op is concatenate_op:
            axis = cast(int, joined.attrs[0]) + joined.ndim
            start[axis] += a.shape[axis]


def _edges(joined: Term) -> list[set[int]]:
    """Where its arrays begin and end along each axis of what is joined."""
    found = [set[int]() for _ in joined.shape]
    for at, shape in _boxes(joined):
        for own, low, n in zip(found, at, shape, strict=True):
            own |= {low, low + n}
    return found


def _is_of_one_part(view: Term, joined: Term) -> bool:
    """Whether a slice shows elements of one of the arrays that are joined."""
    if view.op is not slice_op or not view.size:
        return False
    starts, _, steps = cast("tuple[Shape, Shape, Shape]", view.attrs)
    lead = joined.ndim - len(starts)
    low, high = [0] * joined.ndim, [n - 1 for n in joined.shape]
    for axis, (start, by) in enumerate(zip(starts, steps, strict=True), lead):
        end = start + (view.shape[axis] - 1) * by
        low[axis], high[axis] = min(start, end), max(start, end)
    sizes = tuple(b - a + 1 for a, b in zip(low, high, strict=True))
    return any(
        _holds(shape, [b - a for a, b in zip(at, low, strict=True)], sizes)
        for at, shape in _boxes(joined)
    )


def by_parts(
    root: Root, known: Mapping[Term, Any], users: Counter[Term], fill: Fill
) -> list[Root]:
    """A pointwise term over joined arrays as one for each of their parts; empty where
    it is none, where something else reads what is joined, where each part would compute
    a reduction anew, or where there would be much code. ``known``: what is in
    memory."""
    chain = _chain(root.term, known, users)
    within = Counter(a for t in chain for a in set(t.args))
    for joined in within:
        if joined.op not in ASSEMBLIES or joined in known:
            continue
        shape = joined.shape == root.term.shape
        if not shape or joined.dtype in HALF:  # which are rounded where they are joined
            continue
        others = [t for t in within if t not in chain and t is not joined]
        if users[joined] > within[joined] or _reduce(others, known):
            return []
        parts = [p for p in parts_of(joined, fill) if p[0].size]
        if len(parts) * len(chain) > MOST_WORK:
            continue
        whole = {t for t in within if users[t] > within[t]}
        if _boxes_of(within, joined.shape) * len(chain) > MOST_WORK:
            whole |= set(within)
        cuts = [
            _Cut(chain, known, (at, part.shape), {joined: part}, fill, whole)
            for part, at in parts
        ]
        return _boxed(root, cuts)
    return []


def _boxed(root: Root, cuts: Iterable[_Cut]) -> list[Root]:
    found = [_placed(root, cut.of(root.term), cut.start) for cut in cuts]
    # What large ones need in memory is there for small ones.
    return sorted(found, key=lambda r: -r.term.size)


def by_stretches(
    root: Root, known: Mapping[Term, Any], users: Counter[Term], fill: Fill
) -> list[Root]:
    """A pointwise term over slices of what is joined or padded, as one for each stretch
    of the elements in which every slice shows one part: sums of a padded image and of
    itself a row on. Nothing is copied then. Empty where there is no such array whose
    parts are in memory, whole along the last axis, or something else reads it, where
    there would be much code, and where no stretch has half of the elements."""
    term = root.term
    chain = _chain(term, known, users)
    within = Counter(a for t in chain for a in set(t.args))
    slices: dict[Term, list[Term]] = {}
    for t in within:
        if t.op is slice_op and t not in known and t.shape == term.shape:
            if users[t] == within[t]:
                slices.setdefault(t.args[0], []).append(t)
    shown = {
        joined: by
        for joined, by in slices.items()
        if users[joined] == len(by) and _is_cut(joined, known, len(by))
    }
    if not shown:
        return []
    ends = [{0, n} for n in term.shape]
    for joined, by in shown.items():
        edges = _edges(joined)
        for t in by:
            for own, found in zip(ends, _met(t, edges), strict=True):
                own |= found
    cuts = [[*pairwise(sorted(own))] for own in ends]
    largest = prod(max((b - a for a, b in own), default=0) for own in cuts)
    if prod(map(len, cuts)) * len(chain) > MOST_STRETCHED or 2 * largest < term.size:
        return []
    return _boxed(
        root,
        (
            _Cut(
                chain,
                known,
                (tuple(a for a, _ in box), tuple(b - a for a, b in box)),
                {t: _shown(t, box, fill) for by in shown.values() for t in by},
                fill,
                (),
            )
            for box in product(*cuts)
        ),
    )


def by_axis(
    root: Root,
    known: Mapping[Term, Any],
    users: Counter[Term],
    results: Collection[Term],
) -> list[Root]:
    """A term of slices, along other axes, of arrays that are joined along one, as one
    for each of these: the maxima of windows of images whose channels are joined.
    Nothing is copied then. Empty where there is no such array, something else reads it,
    each part would compute a reduction or much else anew, rows would be short, or there
    would be much code. ``results``: what the kernel computes in any case."""
    chain = _chain(root.term, known, users, _AT_PLACES)
    within = Counter(a for t in chain for a in set(t.args))
    for joined in within:
        if joined.op is not concatenate_op or joined in known or joined in results:
            continue
        if users[joined] > within[joined] or joined.dtype in HALF:
            continue
        axis = cast(int, joined.attrs[0])
        is_short = axis == -1 and any(a.shape[-1] < SHORT for a in joined.args)
        above = _above(joined, chain)
        is_view = any(t.op in _AT_PLACES for t in above)
        others = {a for t in above for a in t.args} - {*above, joined}
        if is_short or not is_view or _reduce([*others], known):
            continue
        times = sum(joined in t.args for t in above)
        if not all(_is_light(a, known, times) for a in joined.args):
            continue
        if len(joined.args) * len(above) > MOST_WORK:
            continue
        if all(_keeps_places(t, joined.shape[axis], axis) for t in above):
            parts = zip(joined.args, _boxes(joined), strict=True)
            cuts = [(joined, a, at[axis]) for a, (at, _) in parts if a.size]
            return [_part_of(root, cut, axis, above) for cut in cuts]
    return []


def _above(joined: Term, chain: Collection[Term]) -> dict[Term, None]:
    """The terms of a chain that read ``joined``, arguments first."""
    found: dict[Term, None] = {}
    for t in sorted(chain, key=lambda t: t.id):
        if any(a is joined or a in found for a in t.args):
            found[t] = None
    return found


def _keeps_places(term: Term, size: int, axis: int) -> bool:
    """Whether a term has its elements where its arguments have, along an axis of so
    many."""
    if term.ndim < -axis or term.shape[axis] != size:
        return False
    if term.op not in _AT_PLACES:
        return True
    is_whole = term.args[0].shape[axis] == size
    return is_whole and (term.op is pad_op or _steps(term)[axis] == (0, 1))


def _part_of(
    root: Root, cut: tuple[Term, Term, int], axis: int, above: Collection[Term]
) -> Root:
    """``root``, which is made of a term by those ``above``, of a part of that term
    which starts there."""
    whole, part, start = cut
    count, made = part.shape[axis], {whole: part}

    def shown(t: Term) -> Term:
        if t in made or isinstance(t.dtype, Weak) or t.ndim < -axis:
            return made.get(t, t)
        if t.shape[axis] == 1:
            return t
        first = _with((0,) * t.ndim, axis, start)
        return _slice(t, first, _with(t.shape, axis, count))

    for t in above:
        attrs = t.attrs
        if t.op is slice_op:
            starts, sizes, steps = cast("tuple[Shape, Shape, Shape]", attrs)
            if len(sizes) >= -axis:
                attrs = starts, _with(sizes, axis, count), steps
        kind = t.dtype, _with(t.shape, axis, count)
        made[t] = t.graph.node(t.op, [shown(a) for a in t.args], attrs, kind)
    return _placed(root, made[root.term], _with((0,) * root.term.ndim, axis, start))


def _with(shape: Shape, axis: int, size: int) -> Shape:
    found = [*shape]
    found[axis] = size
    return tuple(found)


def _is_cut(joined: Term, known: Mapping[Term, Any], slices: int) -> bool:
    """Whether what is joined or padded is of arrays in memory, or of what little makes
    of these for so many slices, whole along the last axis, which is not short, and
    rounded nowhere."""
    if joined.op not in ASSEMBLIES or joined in known or joined.dtype in HALF:
        return False
    if joined.ndim < 2 or joined.shape[-1] < SHORT:
        return False
    arrays = _arrays(joined)
    return all(
        a.shape[-1] == joined.shape[-1] and _is_light(a, known, slices) for a in arrays
    )


def _is_light(term: Term, known: Mapping[Term, Any], times: int) -> bool:
    """Whether ``term`` is in memory, or made of that by few operations, if it is made
    so many times."""
    flops, stack = 0.0, [source_of(term)]
    while stack:
        t = stack.pop()
        if t in known or not t.ndim:
            continue
        op = cast(Op, t.op)
        flops += op.flops_each
        if op.kind != "pointwise" or times * flops > LIGHT_FLOPS:
            return False
        stack += map(source_of, dict.fromkeys(t.args))
    return True


def _met(shown: Term, edges: Sequence[Collection[int]]) -> Iterator[set[int]]:
    """Along each axis, the elements of a slice that are the first behind an edge of
    the array that it shows."""
    for (start, step), own, n in zip(_steps(shown), edges, shown.shape, strict=True):
        behind = {
            -(-(edge - start) // step) if step > 0 else (edge - start) // step + 1
            for edge in own
        }
        yield {i for i in behind if 0 < i < n}


def _steps(shown: Term) -> list[tuple[int, int]]:
    """Where a slice starts along each axis, and its steps."""
    starts, _, steps = cast("tuple[Shape, Shape, Shape]", shown.attrs)
    lead = shown.ndim - len(starts)
    return [(0, 1)] * lead + list(zip(starts, steps, strict=True))


def _shown(shown: Term, box: Sequence[tuple[int, int]], fill: Fill) -> Term:
    """What a slice shows in a box of its elements, which is of one part."""
    joined, steps = shown.args[0], _steps(shown)
    sizes = tuple(b - a for a, b in box)
    first = [s + a * by for (s, by), (a, _) in zip(steps, box, strict=True)]
    last = [s + (b - 1) * by for (s, by), (_, b) in zip(steps, box, strict=True)]
    low = tuple(map(min, first, last))
    spans = tuple(abs(b - a) + 1 for a, b in zip(first, last, strict=True))
    for array, (at, shape) in zip(_arrays(joined), _boxes(joined), strict=True):
        if _holds(shape, [n - a for n, a in zip(low, at, strict=True)], spans):
            starts = tuple(n - a for n, a in zip(first, at, strict=True))
            attrs = starts, sizes, tuple(by for _, by in steps)
            kind = shown.dtype, sizes
            return shown.graph.node(slice_op, [array], attrs, kind)
    return fill(joined.args[1], sizes, shown)


def _boxes_of(terms: Iterable[Term], shape: Shape) -> int:
    """Into how many boxes what is joined to ``shape`` is cut by all of its parts."""
    starts: list[set[int]] = [{0} for _ in shape]
    for t in terms:
        if t.op in ASSEMBLIES and t.shape == shape:
            for own, edges in zip(starts, _edges(t), strict=True):
                own |= edges
    return prod(len(own - {n}) for own, n in zip(starts, shape, strict=True))


def _chain(
    term: Term,
    known: Mapping[Term, Any],
    users: Counter[Term],
    others: Collection[Any] = (),
) -> dict[Term, None]:
    """The pointwise terms, and those of ``others``, that ``term`` is made of and that
    nothing else reads."""

    def is_inside(t: Term) -> bool:
        return cast(Op, t.op).kind == "pointwise" or t.op in others

    found: dict[Term, None] = {}
    read: Counter[Term] = Counter()
    stack = [term] if is_inside(term) else []
    while stack:
        t = stack.pop()
        if t in found or t in known:
            continue
        found[t] = None
        for a in set(t.args):
            read[a] += 1
            if is_inside(a) and read[a] >= users[a]:
                stack.append(a)
    return found


def _reduce(terms: Sequence[Term], known: Mapping[Term, Any]) -> bool:
    """Whether a reduction is below ``terms``, above what is in memory."""
    stack, seen = [*terms], {*terms}
    while stack:
        t = stack.pop()
        if t in known:
            continue
        if cast(Op, t.op).kind == "reduce":
            return True
        stack += [a for a in t.args if a not in seen]
        seen.update(t.args)
    return False


class _Cut:
    """Terms of one box of the elements of another."""

    def __init__(
        self,
        chain: Mapping[Term, None],
        known: Mapping[Term, Any],
        box: tuple[Shape, Shape],
        found: Mapping[Term, Term],
        fill: Fill,
        whole: Collection[Term],
    ) -> None:
        """``box``: where it starts, and its shape. ``found``: what some terms are in
        it. ``whole``: what is joined first where the box has several of its parts."""
        self.chain, self.known, self.fill, self.whole = chain, known, fill, whole
        (self.start, self.shape), self.found = box, dict(found)

    def of(self, term: Term) -> Term:
        """What ``term``, which is broadcast, is in the box."""
        if isinstance(term.dtype, Weak) or not term.ndim:
            return term
        found = self.found.get(term)
        if found is None:
            found = self.found[term] = self._made(term)
        return found

    def _made(self, term: Term) -> Term:
        lead = len(self.shape) - term.ndim
        ends = zip(term.shape, self.start[lead:], self.shape[lead:], strict=True)
        box = [(0, 1) if n == 1 else (start, size) for n, start, size in ends]
        starts, sizes = tuple(s for s, _ in box), tuple(n for _, n in box)
        if term in self.chain:
            args = [self.of(a) for a in term.args]
            return term.graph.node(term.op, args, term.attrs, (term.dtype, sizes))
        if term.op in ASSEMBLIES and term not in self.known:
            for part, at in parts_of(term, self.fill):
                inside = tuple(s - a for s, a in zip(starts, at, strict=True))
                if _holds(part.shape, inside, sizes):
                    return _slice(part, inside, sizes)
            if term not in self.whole:
                return self._joined(term, starts, sizes)
        return _slice(term, starts, sizes)

    def _joined(self, term: Term, starts: Shape, sizes: Shape) -> Term:
        """A box of what is joined, as what joins boxes of its parts."""
        found, lows = [], []
        for array, (at, shape) in zip(_arrays(term), _boxes(term), strict=True):
            low = [max(s - a, 0) for s, a in zip(starts, at, strict=True)]
            ends = zip(starts, sizes, at, shape, strict=True)
            high = [min(s + n - a, m) for s, n, a, m in ends]
            size = tuple(b - a for a, b in zip(low, high, strict=True))
            if min(size, default=1) > 0:
                found.append(_slice(array, tuple(low), size))
                lows.append(
                    [a + i - s for a, i, s in zip(at, low, starts, strict=True)]
                )
        kind, graph = (term.dtype, sizes), term.graph
        if term.op is concatenate_op:
            return graph.node(concatenate_op, found, term.attrs, kind)
        if not found:
            return self.fill(term.args[1], sizes, term)
        sides = zip(sizes, lows[0], found[0].shape, strict=True)
        highs = tuple(n - low - inside for n, low, inside in sides)
        attrs = tuple(lows[0]), highs
        return graph.node(term.op, [found[0], term.args[1]], attrs, kind)


def _holds(shape: Shape, starts: Sequence[int], sizes: Shape) -> bool:
    ends = zip(shape, starts, sizes, strict=True)
    return all(0 <= start and start + size <= n for n, start, size in ends)


def _slice(term: Term, starts: Shape, sizes: Shape) -> Term:
    if sizes == term.shape:
        return term
    attrs = starts, sizes, (1,) * term.ndim
    return term.graph.node(slice_op, [term], attrs, (term.dtype, sizes))
