"""Where the nodes of a chosen program come from: rules, and the user's lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.egraph import Budget, EGraph, ENode, attr_values
from eqsat.rulelang import RuleSet
from eqsat.search.extraction import Cover, CoverOption, inside
from eqsat.search.regions import Region
from eqsat.support import SourceLine, cached_property
from eqsat.terms import INPUT, Term, TermGraph, make
from eqsat.trace import body_of


@dataclass(frozen=True)
class Origin:
    """Where an extracted term comes from."""

    rules: tuple[str, ...]
    """The rules that built its e-node and, below it, the parts of its body that the
    user did not write; empty when the user wrote the node."""
    lines: tuple[SourceLine, ...]
    """The user's lines whose work it does."""


@dataclass(frozen=True)
class RegionOrigin:
    """A distinct region of a search that has ended."""

    regions: Sequence[Region]
    """Its instances; the first one stood for all."""
    first_leaf: int
    """The number, in the e-graph, of its first leaf."""
    classes: Sequence[int]
    """The class of each term of a region."""
    roots: Sequence[int]
    """The classes that are used outside."""
    cover: Cover

    @cached_property
    def nodes(self) -> Mapping[int, int]:
        """The e-node of each class that its kernels and views compute."""
        found: dict[int, int] = {}
        graph = self.cover.cuts.graph
        for _, way in self.cover.ways:
            for i in nodes_of(self.cover, way):
                found.setdefault(graph.nodes[i].cls, i)
        return found

    @cached_property
    def used(self) -> frozenset[int]:
        """All e-nodes of its kernels and views."""
        ways = (way for _, way in self.cover.ways)
        return frozenset(i for way in ways for i in nodes_of(self.cover, way))


@dataclass(frozen=True)
class TermOrigin:
    """The e-nodes whose work a term of the chosen program does."""

    part: int
    region: Region
    nodes: tuple[int, ...]
    """The e-nodes of its kernel, users before operands."""
    reads: Mapping[int, Term]
    """The classes that it reads, with their terms."""


@dataclass(frozen=True)
class Search:
    """A search that has ended, kept for questions about it."""

    graph: EGraph
    """Saturated, with the e-nodes that fusions built."""
    weigh: Callable[[], Sequence[float]]
    """What gives :attr:`weights`."""
    parts: Sequence[RegionOrigin]
    places: Mapping[Term, tuple[TermOrigin, ...]]
    """Where the terms of the chosen program come from."""
    chosen: Mapping[Term, Term]
    """Results of regions, as written, to the terms chosen for them."""
    cover: Callable[[EGraph, Sequence[int], Budget], Cover]
    """The cheapest cover of classes of another e-graph, under the same options."""
    price: Callable[[Sequence[Cover]], float]
    """Seconds of the program that a cover for each part makes."""
    rules: RuleSet
    """Those that the options admit."""
    phases: frozenset[str]
    """The phases that ran."""
    won: bool = True
    """Whether its program was taken; not when what the user wrote costs less."""

    @cached_property
    def weights(self) -> Sequence[float]:
        """Seconds of each e-node as a kernel by itself."""
        return self.weigh()


def nodes_of(cover: Cover, way: CoverOption) -> tuple[int, ...]:
    """The e-nodes of a kernel or view, users before operands."""
    kernel = way.cut or way.joint
    if kernel is None:
        return (way.node,)
    cuts = cover.cuts
    chosen = inside(cuts, kernel)
    order = cuts.above(way.joint.results if way.joint else (way.cls,), chosen)
    assert order is not None
    return tuple(cuts.nodes[chosen[k]].origin for k in reversed(order))


def lines_behind(node: ENode, written: dict[int, Term]) -> tuple[SourceLine, ...]:
    """Lines of the terms that a chosen node stands for: those above its operands."""
    stop = {id(written[c]) for c in node.children if c in written}
    start = written.get(node.cls)
    found: dict[SourceLine, None] = {}
    stack = [start] if start is not None else []
    seen: set[int] = set()
    while stack:
        t = stack.pop()
        if id(t) in seen or id(t) in stop or not t.args:
            continue
        seen.add(id(t))
        if t.source is not None:
            found[t.source] = None
        stack.extend(t.args)
        if len(seen) > 64:
            break
    return tuple(sorted(found))


def rules_behind(graph: EGraph, node: ENode) -> tuple[str, ...]:
    """The rule of ``node``, then those of composites that its body goes through.

    A body is followed in the e-graph: ``linear[gelu]`` was built on a ``gelu`` node,
    which the rule that recognises gelu may have built.
    """
    if not node.rule:
        return ()
    names = {node.rule: None}
    if node.op.body is not None:
        names.update((below.rule, None) for below in _body_nodes(graph, node))
    return tuple(name for name in names if name)


def _body_nodes(graph: EGraph, node: ENode) -> Iterator[ENode]:
    """Nodes of the e-graph that the body of ``node`` applies to its
    operands."""
    types = [graph.types[c] for c in node.children]
    scratch = TermGraph(sources=False)
    leaves = [
        scratch.node(INPUT, (), (i,), t) for i, t in enumerate(types) if t is not None
    ]
    if len(leaves) < len(types):
        return
    named = dict(zip(node.op.attrs, attr_values(node), strict=True))
    body = body_of(make(node.op, scratch, leaves, named))
    assert body is not None
    bound = dict(zip(leaves, node.children, strict=True))
    yield from _followed(graph, body, node.cls, bound)


def _followed(
    graph: EGraph, body: Term, cls: int, bound: dict[Term, int]
) -> Iterator[ENode]:
    # Nodes that the user wrote come first: a commuted twin explains nothing.
    for i in sorted(graph.classes[cls], key=lambda i: graph.nodes[i].rule != ""):
        node = graph.nodes[i]
        if node.op is not body.op or len(node.children) != len(body.args):
            continue
        if any(
            bound.get(a, c) != c for a, c in zip(body.args, node.children, strict=True)
        ):
            continue
        yield node
        for a, c in zip(body.args, node.children, strict=True):
            if a not in bound and a.args:
                bound[a] = c
                yield from _followed(graph, a, c, bound)
        return
