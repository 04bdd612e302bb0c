"""What an optimisation did: data first, a table second."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.explain.derivation import Derivations
from eqsat.explain.describe import Readable
from eqsat.explain.document import Materials, document, graphs
from eqsat.explain.missed_fusions import Fusion, fusions
from eqsat.explain.timing import Timing
from eqsat.explain.why_not import Question, WhyNot
from eqsat.explain.widened import Widening, widenings
from eqsat.kernels import (
    ClockModel,
    CostModel,
    ExpectedTime,
    Kernel,
    Program,
    inner,
    numpy_calls,
    show_bytes,
)
from eqsat.report import dot, mermaid, page
from eqsat.rulelang import Rule, RuleSet
from eqsat.search import Optimised
from eqsat.support import (
    EqsatError,
    Options,
    SourceLine,
    as_html,
    cached_property,
    counted,
)
from eqsat.terms import postorder

SHOWN = 3
"""Fusions not taken that the table shows."""
MANY = 8
"""Kernels that NumPy runs for one reason, up to which the table names each."""


@dataclass(frozen=True)
class KernelInfo:
    """One kernel of the chosen program."""

    name: str
    kind: str
    ops: tuple[str, ...]
    """Primitive operations of its body, in order."""
    rules: tuple[str, ...]
    """Rules that built it; empty when the user wrote it."""
    cost_s: float
    """The price by which the search chose it (s)."""
    flops: float
    """Floating operations (flop)."""
    bytes: int
    """Bytes read and written."""
    lines: tuple[SourceLine, ...]
    """The user's lines whose work it does."""
    estimate_s: float = 0.0
    """What one thread is expected to take for it by the clock (s)."""
    bound: str = ""
    """What it waits for, as estimated: ``arithmetic``, ``memory`` or ``start``."""


@dataclass(frozen=True)
class NodeInfo:
    """One e-node of a kernel, or one that a rule made such a node of."""

    text: str
    """The operation over its operands."""
    depth: int
    """Rules between it and the kernel; 0 for what the kernel computes itself."""
    rule: str
    """The rule that built it first; empty when the user wrote it."""
    place: str
    """File and line of that rule, or of what the user wrote."""


@dataclass(frozen=True)
class RuleInfo:
    """What one rule did."""

    fired: int
    """Matches, over all e-graph iterations."""
    in_winner: int
    """Nodes of the chosen program that it built."""


@dataclass(frozen=True)
class Explanation:
    """The chosen program beside the one that the user wrote, and how it was found.

    Costs are what the search compares (s); ``baseline`` is the traced function with one
    kernel an operation. Estimates are what a clock is expected to show for one thread
    (s): :attr:`estimate_s`, :attr:`unfused_s` and :attr:`numpy_s`.
    """

    kernels: tuple[KernelInfo, ...]
    rules: Mapping[str, RuleInfo]
    cost_s: float
    baseline_cost_s: float
    baseline_kernels: int
    peak_bytes: int
    """Most memory of intermediates and results at once, as planned (bytes)."""
    baseline_peak_bytes: int
    phases_s: Mapping[str, float]
    """Seconds of each phase of the compilation."""
    classes: int
    """E-classes after saturation."""
    nodes: int
    """E-nodes after saturation."""
    regions: int
    distinct_regions: int
    optimal_gap: float | None = None
    """Exact extraction: the relative distance to the proven bound."""
    cut_short: str = ""
    """Which budget ran out, if one did; the program is correct all the same."""
    fusions: tuple[Fusion, ...] = ()
    """The fusions that were taken, then the best that were not, and why."""
    _asked: Asked | None = field(default=None, repr=False, compare=False)
    """What questions are answered from."""
    _reasons: Callable[[], Mapping[str, str]] = field(
        default=dict, repr=False, compare=False
    )
    _workspace: Callable[[], int | None] = field(
        default=lambda: None, repr=False, compare=False
    )
    _materials: Callable[[Callable[[str], WhyNot]], Materials] | None = field(
        default=None, repr=False, compare=False
    )
    """What the report is made of, given what answers why not."""
    result_bytes: int = 0
    """Memory of the results (bytes)."""
    estimate_s: float = 0.0
    """A call of the program (s)."""
    unfused_s: float = 0.0
    """A call with one kernel an operation, on the same backend (s)."""
    numpy_s: float = 0.0
    """NumPy as the function is written, one call an operation (s)."""
    numpy_calls: int = 0
    """Operations of the function as written, without views."""
    widenings: tuple[Widening, ...] = ()
    """Lines at which float32 becomes float64 unasked."""
    timing: Timing | None = None
    """What the clock said, where it was asked."""

    @cached_property
    def by_numpy(self) -> Mapping[str, str]:
        """Kernels that the backend has NumPy run, and why. Compiles the program."""
        return self._reasons()

    @cached_property
    def workspace_bytes(self) -> int | None:
        """Memory of a call beside the results (bytes), as compiled; None where the
        program cannot run. Compiles the program."""
        return self._workspace()

    def document(self) -> dict[str, Any]:
        """All of it as plain values, as :mod:`eqsat.explain.document` describes them.
        Compiles the program. Raises :class:`EqsatError` for an explanation that was
        made without its search."""
        if self._materials is None:
            raise EqsatError("this explanation was made without its search")
        return document(self._materials(self.why_not), self.record())

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report: one page of HTML that needs no network; written to ``path``,
        where one is given. Compiles the program."""
        text = page(self.document())
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def dot(self, which: str = "after") -> str:
        """The program ``after``, or ``before``, which is the function as written, as a
        graph for Graphviz."""
        return dot(self._graph(which))

    def mermaid(self, which: str = "after") -> str:
        """The same for Mermaid."""
        return mermaid(self._graph(which))

    def _graph(self, which: str) -> Any:
        if which not in ("before", "after"):
            raise EqsatError(f"which={which!r}: expected 'before' or 'after'")
        if self._materials is None:
            raise EqsatError("this explanation was made without its search")
        return graphs(self._materials(self.why_not))[which]

    def _repr_html_(self) -> str:
        return as_html(str(self))

    def derivation(self, kernel: str) -> tuple[NodeInfo, ...]:
        """The e-nodes of a kernel, each followed by those that its rule made it of.

        A rule made a node of the one before it that is less deep. Raises
        :class:`EqsatError` when there is no kernel of that name.
        """
        self._kernel(kernel)
        return () if self._asked is None else self._asked.derivation(kernel)

    def why(self, kernel: str) -> str:
        """How a kernel came about, in words.

        Its operations; its e-nodes with the rule that built each, and, indented below
        a node, those that the rule matched, down to what the user wrote; and the
        user's lines that it does the work of. Raises :class:`EqsatError` when there is
        no kernel of that name.
        """
        k = self._kernel(kernel)
        lines = [f"{k.name}: {' '.join(k.ops)}"]
        nodes = self.derivation(kernel)
        shown = ["  " * (n.depth + 1) + n.text for n in nodes]
        wide = min(max(map(len, shown), default=0), 60)
        for n, text in zip(nodes, shown, strict=True):
            made = f"rule {n.rule}" if n.rule else "as written"
            lines.append(f"{text:{wide}}  {made}  {n.place}".rstrip())
        if self._asked is not None and not self._asked.signed:
            lines.append(
                "  (the search was cut short. It was repeated for this list and ended "
                "elsewhere, so some rules are not known.)"
            )
        lines += [f"  line {s}  {s.text}".rstrip() for s in k.lines]
        return "\n".join(lines)

    def _run_by_numpy(self) -> Iterator[str]:
        """Which kernels NumPy runs and why; of many for one reason, how many."""
        names: dict[str, list[str]] = {}
        for name, why in self.by_numpy.items():
            names.setdefault(why, []).append(name)
        of = counted(len(self.kernels), "kernel")
        for why, some in names.items():
            if len(some) > MANY:
                yield f"NumPy runs {len(some)} of {of}: {why}"
            else:
                yield from (f"{name} runs as NumPy: {why}" for name in some)

    def why_not(self, rule: str | Rule) -> WhyNot:
        """Why a rule, or the rule of a name, is not in the chosen program.

        Where it never matched, its left side is laid over the e-graph, and the answer
        says where most of it fits and what stops it; where it lost, by how much. This
        may extract some programs, and search once more without regions: up to a few
        times ``Options.deadline_s``.
        """
        if self._asked is None:
            raise EqsatError("this explanation was made without its search")
        return self._asked.question.why_not(rule)

    def _kernel(self, name: str) -> KernelInfo:
        for k in self.kernels:
            if k.name == name:
                return k
        names = ", ".join(k.name for k in self.kernels)
        raise EqsatError(f"no kernel {name!r}; there are {names}")

    def to_json(self) -> str:
        """Everything as JSON text."""
        return json.dumps(self.record(), indent=1)

    def record(self) -> dict[str, Any]:
        """Everything as plain dicts, lists, numbers and strings."""
        return {
            "kernels": [
                {
                    "name": k.name,
                    "kind": k.kind,
                    "ops": list(k.ops),
                    "rules": list(k.rules),
                    "cost_s": k.cost_s,
                    "estimate_s": k.estimate_s,
                    "bound": k.bound,
                    "flops": k.flops,
                    "bytes": k.bytes,
                    "lines": [str(s) for s in k.lines],
                }
                for k in self.kernels
            ],
            "rules": {
                n: {"fired": r.fired, "in_winner": r.in_winner}
                for n, r in self.rules.items()
            },
            "cost_s": self.cost_s,
            "baseline_cost_s": self.baseline_cost_s,
            "baseline_kernels": self.baseline_kernels,
            "peak_bytes": self.peak_bytes,
            "baseline_peak_bytes": self.baseline_peak_bytes,
            "workspace_bytes": self.workspace_bytes,
            "result_bytes": self.result_bytes,
            "estimate_s": self.estimate_s,
            "unfused_s": self.unfused_s,
            "numpy_s": self.numpy_s,
            "numpy_calls": self.numpy_calls,
            "widenings": [str(w) for w in self.widenings],
            "timing": None if self.timing is None else self.timing.record(),
            "phases_s": dict(self.phases_s),
            "classes": self.classes,
            "nodes": self.nodes,
            "regions": self.regions,
            "distinct_regions": self.distinct_regions,
            "optimal_gap": self.optimal_gap,
            "cut_short": self.cut_short,
            "by_numpy": dict(self.by_numpy),
            "fusions": [f.record() for f in self.fusions],
        }

    def __str__(self) -> str:
        rows = [("kernel", "kind", "µs", "bound by", "Mflop", "moved", "rules")]
        for k in self.kernels:
            rows.append(
                (
                    k.name,
                    k.kind,
                    f"{k.estimate_s * 1e6:.1f}",
                    k.bound,
                    f"{k.flops / 1e6:.1f}",
                    show_bytes(k.bytes),
                    " ← ".join(k.rules) or "as written",
                )
            )
        wide = [max(len(r[i]) for r in rows) for i in range(6)]
        table = [
            "  ".join(
                (*(c.ljust(w) for c, w in zip(r, wide, strict=False)), r[6])
            ).rstrip()
            for r in (rows if self.kernels else ())
        ]
        table += self._estimates()
        table.append(
            f"peak memory {show_bytes(self.peak_bytes)}; as written "
            f"{show_bytes(self.baseline_peak_bytes)}"
        )
        if self.workspace_bytes is not None:
            whole = self.workspace_bytes + self.result_bytes
            table.append(
                f"memory of a call {show_bytes(whole)}: workspace "
                f"{show_bytes(self.workspace_bytes)}, results "
                f"{show_bytes(self.result_bytes)}"
            )
        table.append(
            f"compiled in {sum(self.phases_s.values()) * 1e3:.0f} ms: "
            + ", ".join(f"{n} {s * 1e3:.0f}" for n, s in self.phases_s.items())
        )
        table += [f"  {text}" for text in self._run_by_numpy()]
        table += [f"  {w}" for w in self.widenings]
        missed = [f for f in self.fusions if not f.taken]
        table += [f"  {f}" for f in missed[:SHOWN]]
        if self.cut_short:
            table.append(f"cut short: {self.cut_short}; a cheaper program may exist")
        if self.timing is not None:
            table += ["", str(self.timing)]
        return "\n".join(table)

    def _estimates(self) -> Iterator[str]:
        """What one thread takes for the program, without fusion, and in NumPy."""
        if not self.kernels:
            yield "nothing to compute"
            return
        yield (
            f"{counted(len(self.kernels), 'kernel')}, {_us(self.estimate_s)} estimated "
            f"for one thread"
        )
        rows = (
            ("NumPy, as written", self.numpy_calls, "operation", self.numpy_s),
            ("without fusion", self.baseline_kernels, "kernel", self.unfused_s),
        )
        for what, number, unit, seconds in rows:
            yield (
                f"{what}: {counted(number, unit)}, {_us(seconds)} "
                f"({seconds / self.estimate_s:.2f} times as long)"
            )


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


@dataclass(frozen=True)
class Asked:
    """A search and its program, from which questions are answered when asked."""

    done: Optimised
    program: Program
    rules: RuleSet
    options: Options
    again: Callable[[Options], Optimised]
    """The same search under other options."""

    @property
    def signed(self) -> bool:
        """Whether the rules that built the nodes are known."""
        return self.done.search is None or bool(self.done.search.graph.tables)

    @cached_property
    def derivations(self) -> Derivations:
        search = self.done.search
        assert search is not None
        return Derivations(search, Readable(search, self.program.names))

    @cached_property
    def question(self) -> Question:
        behind = {
            k.name: frozenset(n.rule for n in self.derivation(k.name) if n.rule)
            for k in self.program.kernels
        }
        derivations = None if self.done.search is None else self.derivations
        return Question(
            self.done, self.rules, self.options, behind, self.again, derivations
        )

    def derivation(self, kernel: str) -> tuple[NodeInfo, ...]:
        """The e-nodes of a kernel and what they were made of."""
        (term,) = (k.term for k in self.program.kernels if k.name == kernel)
        search = self.done.search
        places = search.places.get(term, ()) if search is not None else ()
        if search is None or not search.won or not places:
            source = "" if term.source is None else str(term.source)
            return (NodeInfo(str(term.op.name), 0, "", source),)
        found = []
        names = self.program.names
        for place in places:
            known = {c: names[t] for c, t in place.reads.items() if t in names}
            like = self.derivations.words
            words = Readable(search, names, place, known, like)
            for i in place.nodes:
                for step in self.derivations.of(i):
                    found.append(self._info(words, step.node, step.depth))
        return tuple(found)

    def _info(self, words: Readable, i: int, depth: int) -> NodeInfo:
        node = words.search.graph.nodes[i]
        if node.rule:
            place = self.rules[node.rule].place
        else:
            line = words.line(node.cls, node.op)
            place = "" if line is None else str(line)
        return NodeInfo(words.node(i), depth, node.rule, place)


def explain(
    done: Optimised,
    program: Program,
    baseline: Program,
    rules: RuleSet,
    model: CostModel,
    options: Options,
    again: Callable[[Options], Optimised],
    by_numpy: Callable[[], Mapping[str, str]],
    workspace: Callable[[], int | None],
    clock: ClockModel,
    source: Callable[[str | None], str],
    title: str,
) -> Explanation:
    """The explanation of one optimisation, lowered as ``program``, with what ``clock``
    expects of it. ``source`` gives the program in a language, ``title`` is what
    the function is called.

    ``again``: the same search under other options, for questions that need one.
    ``by_numpy``: kernels that NumPy runs, and why. ``workspace``: memory beside the
    results (bytes), None where the program cannot run.
    """
    calls = numpy_calls()
    roots = baseline.roots
    won: dict[str, int] = {}
    for origin in done.origins.values():
        for name in origin.rules:
            won[name] = won.get(name, 0) + 1
    return Explanation(
        kernels=tuple(
            _kernel_info(k, done, model, expected)
            for k, expected in zip(program.kernels, clock.kernels(program), strict=True)
        ),
        rules={
            name: RuleInfo(fired, won.get(name, 0))
            for name, fired in sorted(done.fired.items())
        },
        cost_s=done.cost_s,
        baseline_cost_s=done.baseline_cost_s,
        baseline_kernels=len(baseline.kernels),
        peak_bytes=program.peak_bytes,
        baseline_peak_bytes=baseline.naive_peak_bytes,
        phases_s=dict(done.phases_s),
        classes=done.classes,
        nodes=done.nodes,
        regions=done.regions,
        distinct_regions=done.distinct_regions,
        optimal_gap=done.optimal_gap,
        cut_short=done.cut_short,
        fusions=fusions(program, model.under(options)),
        _asked=Asked(done, program, rules, options, again),
        _reasons=by_numpy,
        _workspace=workspace,
        _materials=lambda why_not: Materials(
            done, program, baseline, rules, clock, source, why_not, model.backend, title
        ),
        result_bytes=program.result_bytes,
        estimate_s=clock.call_s(program),
        unfused_s=clock.call_s(baseline),
        numpy_s=calls.program(roots),
        numpy_calls=sum(calls.counts(t) for t in postorder(roots)),
        widenings=widenings(roots),
    )


def _kernel_info(
    kernel: Kernel, done: Optimised, model: CostModel, expected: ExpectedTime
) -> KernelInfo:
    origin = done.origins.get(kernel.term)
    body: Sequence[Any] = inner(kernel.bodies, kernel.term.args)
    return KernelInfo(
        name=kernel.name,
        kind=kernel.kind,
        ops=tuple(t.op.name for t in body),
        rules=origin.rules if origin else (),
        cost_s=model.term(kernel.term),
        flops=kernel.flops,
        bytes=kernel.bytes,
        lines=origin.lines if origin else (),
        estimate_s=expected.seconds,
        bound=expected.bound,
    )
