"""An explanation as one document of plain values, which the report shows.

``graphs`` holds the program ``before`` and ``after``: nodes with a name, an operation,
a type, a line and a place, and edges from what is read to what reads it. Each kernel
has its e-classes with their alternatives, ``memory`` the bytes alive after each step,
``sources`` the text of the program in each language, ``rules`` what each rule did, or
why it did not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from eqsat.explain.describe import Readable
from eqsat.explain.why_not import WhyNot
from eqsat.kernels import ClockModel, Kernel, Program, show_bytes, show_type
from eqsat.report import placed
from eqsat.rulelang import Rule, RuleSet
from eqsat.search import Optimised
from eqsat.support import BackendError, counted
from eqsat.terms import CONSTANT, INPUT, SCALAR, Op, Term, Weak, postorder

ALTERNATIVES = 12
"""E-nodes of a class that are shown."""
KEPT = (
    *("estimate_s", "unfused_s", "numpy_s", "numpy_calls", "peak_bytes"),
    *("baseline_peak_bytes", "phases_s", "timing"),
)
"""Figures of an explanation that the document has under the same names."""
LANGUAGES = ("numpy", "llvm", "metal", "cuda")
LONGEST = 200_000
"""Characters of one source that are kept."""
MANY = 2000
"""E-nodes up to which it is asked why rules did not match: that may search again."""
PATIENCE_S = 2.0
"""Seconds for the reasons why rules are not in the program; no rule is begun after."""


@dataclass(frozen=True)
class Materials:
    """What a document is made of, beside the figures of an explanation."""

    done: Optimised
    program: Program
    written: Program
    rules: RuleSet
    clock: ClockModel
    source: Callable[[str | None], str]
    why_not: Callable[[str], WhyNot]
    backend: str
    title: str


def document(materials: Materials, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The document; ``figures`` is the record of the explanation."""
    after, place = _steps(materials)
    device = materials.clock.device
    return {
        "title": materials.title,
        "subtitle": _subtitle(materials, figures),
        "backend": materials.backend,
        **{name: figures[name] for name in KEPT},
        "remarks": _remarks(figures),
        "device": {
            "name": device.name,
            "flops_per_s": device.flops_per_s,
            "map_flops_per_s": device.map_flops_per_s,
            "memory_bytes_per_s": device.bandwidths[-1][1],
        },
        "graphs": {"before": _terms(materials.written), "after": after},
        "kernels": _kernels(materials, figures, place),
        "memory": _memory(materials.program),
        "rules": _rules(materials, figures),
        "missed": [_missed(f) for f in figures["fusions"] if not f["taken"]],
        "sources": dict(_sources(materials)),
        "made": f"Made by eqsat for {device.name}; estimates are of one thread.",
    }


def graphs(materials: Materials) -> dict[str, Any]:
    """Both graphs of the document."""
    return {"before": _terms(materials.written), "after": _steps(materials)[0]}


def _subtitle(materials: Materials, figures: Mapping[str, Any]) -> str:
    kernels = counted(len(figures["kernels"]), "kernel")
    types = ", ".join(
        f"{materials.program.names[t]}: {show_type(t)}"
        for t in materials.program.inputs
    )
    return (
        f"{kernels} of the backend {materials.backend}, for {types or 'no arguments'}"
    )


def _remarks(figures: Mapping[str, Any]) -> list[str]:
    found = [*figures["widenings"]]
    found += [f"{n} runs as NumPy: {why}" for n, why in figures["by_numpy"].items()]
    if figures["cut_short"]:
        found.append(f"cut short: {figures['cut_short']}; a cheaper program may exist")
    return found


def _missed(fusion: Mapping[str, Any]) -> str:
    return f"{' + '.join(fusion['kernels'])} apart: {fusion['reason']}"


# -- graphs ----------------------------------------------------------------------------


def _graph(nodes: list[dict[str, Any]], edges: list[tuple[int, int]]) -> dict[str, Any]:
    edges = list(dict.fromkeys(edges))
    for node, (x, layer) in zip(nodes, placed(len(nodes), edges), strict=True):
        node["x"], node["layer"] = round(x, 2), layer
    return {"nodes": nodes, "edges": edges}


def _node(name: str, kind: str, text: str, term: Term) -> dict[str, Any]:
    line = "" if term.source is None or not term.args else str(term.source)
    if line and term.source is not None and term.source.text:
        line = f"{line}  {term.source.text}"
    return {
        "name": name,
        "kind": kind,
        "text": text,
        "type": show_type(term),
        "line": line,
    }


def _terms(written: Program) -> dict[str, Any]:
    """The function as it was traced: a node for each operation."""
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[int, int]] = []
    number: dict[Term, int] = {}
    for t in postorder(written.roots):
        if isinstance(t.dtype, Weak) or t.op is SCALAR:
            continue
        op = cast(Op, t.op)
        name = written.names.get(t, op.name) if not t.args else op.name
        number[t] = len(nodes)
        nodes.append(_node(name, _kind(t), _call(t), t))
        edges += [(number[a], number[t]) for a in t.args if a in number]
    return _graph(nodes, edges)


def _kind(term: Term) -> str:
    if term.op is INPUT:
        return "input"
    return "constant" if term.op is CONSTANT else cast(Op, term.op).kind


def _call(term: Term) -> str:
    """An operation with its attributes and its bare numbers."""
    op = cast(Op, term.op)
    if not term.args:
        return "an argument" if term.op is INPUT else "a constant"
    parts = [str(a.attrs[0]) if a.op is SCALAR else "·" for a in term.args]
    parts += [f"{n}={v}" for n, v in op.attr_dict(term).items()]
    return f"{op.name}({', '.join(parts)})"


def _steps(materials: Materials) -> tuple[dict[str, Any], dict[str, int]]:
    """The program as it runs, and the numbers of its kernels."""
    program = materials.program
    nodes: list[dict[str, Any]] = []
    edges: list[tuple[int, int]] = []
    number: dict[Term, int] = {}
    place: dict[str, int] = {}
    for kind, terms in (
        ("input", program.inputs),
        ("constant", (*program.constants, *program.folded)),
    ):
        for t in terms:
            number[t] = len(nodes)
            what = "an argument" if kind == "input" else "known beforehand"
            nodes.append(_node(program.names[t], kind, what, t))
    for step in program.steps:
        n = len(nodes)
        if isinstance(step, Kernel):
            place[step.name] = n
            kind, results = step.kind, step.results
            text = " ".join(t.op.name for t in step.bodies[:1] if isinstance(t.op, Op))
            text = f"{kind}, ends in {text}" if text else kind
        else:
            kind, results, text = "view", (step.term,), _call(step.term)
        read = step.term.args
        nodes.append(_node(step.name, kind, text, results[0]))
        edges += [(number[a], n) for a in read if a in number]
        number |= dict.fromkeys((step.term, *results), n)
    for i, root in enumerate(program.roots):
        if root in number:
            edges.append((number[root], len(nodes)))
            name = "result" if len(program.roots) == 1 else f"result {i}"
            nodes.append(_node(name, "input", "what the function returns", root))
    return _graph(nodes, edges), place


# -- kernels ---------------------------------------------------------------------------


def _kernels(
    materials: Materials, figures: Mapping[str, Any], place: Mapping[str, int]
) -> list[dict[str, Any]]:
    search = materials.done.search
    names = materials.program.names
    words = None if search is None else Readable(search, names)
    found = []
    for kernel, row in zip(materials.program.kernels, figures["kernels"], strict=True):
        limit = materials.clock.limit_s(kernel.term)
        found.append(
            {
                **row,
                "node": place[kernel.name],
                "share": min(1.0, limit / row["estimate_s"]) if limit else 0.0,
                "classes": list(_classes(materials, kernel, words)),
            }
        )
    return found


def _classes(
    materials: Materials, kernel: Kernel, like: Readable | None
) -> Iterable[dict[str, Any]]:
    """The e-classes whose nodes a kernel holds, each with its alternatives."""
    search = materials.done.search
    places = search.places.get(kernel.term, ()) if search is not None else ()
    if search is None or not search.won or not places:
        return
    names = materials.program.names
    at = places[0]
    known = {c: names[t] for c, t in at.reads.items() if t in names}
    words = Readable(search, names, at, known, like)
    mine = set(at.nodes)
    graph, weights = search.graph, search.weights
    for i in at.nodes:
        node = graph.nodes[i]
        every = graph.classes[node.cls]
        some = sorted(every, key=lambda j: (j not in mine, weights[j]))[:ALTERNATIVES]
        yield {
            "name": words.node(i),
            "nodes": [
                {
                    "text": words.node(j),
                    "rule": graph.nodes[j].rule,
                    "price_s": _finite(weights[j]),
                    "chosen": j in mine,
                }
                for j in some
            ],
            "more": len(every) - len(some),
        }


def _finite(seconds: float) -> float | None:
    return float(seconds) if seconds < float("inf") else None


def _memory(program: Program) -> list[dict[str, Any]]:
    """Bytes of intermediates and results that are alive after each step."""
    found = []
    slots = program.plan.slots
    for i, step in enumerate(program.steps):
        if isinstance(step, Kernel):
            alive = sum(s.nbytes for s in slots if s.first <= i <= s.last)
            found.append({"name": step.name, "bytes": alive})
    return found


# -- rules and sources -----------------------------------------------------------------


def _rules(materials: Materials, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each rule did. Reasons are found until the time for them is over, those of
    fusions first."""
    fired: Mapping[str, Any] = figures["rules"]
    order = sorted(materials.rules, key=lambda r: (not r.is_fusion, r.name))
    end = time.perf_counter() + PATIENCE_S
    is_small = materials.done.nodes <= MANY
    found = []
    for rule in order:
        did = fired.get(rule.name, {"fired": 0, "in_winner": 0})
        why = ""
        if not did["in_winner"]:
            matched = f"it matched {counted(did['fired'], 'time')} and lost"
            why = matched if did["fired"] else "it never matched"
            if not did["fired"] and is_small and time.perf_counter() < end:
                why = str(materials.why_not(rule.name)).partition("\n")[0]
                why = why.partition(": ")[2] or why
            else:
                why += "; explanation.why_not says more"
        found.append(
            {"name": rule.name, "says": _says(rule), "place": rule.place, **did}
            | {"why": why}
        )
    return sorted(found, key=lambda r: (-r["in_winner"], -r["fired"], r["name"]))


def _says(rule: Rule) -> str:
    """Both sides of a rule."""
    left, right = (", ".join(map(str, side)) for side in (rule.left, rule.right))
    return f"{left} → {right}"


def _sources(materials: Materials) -> Iterable[tuple[str, str]]:
    """The program in each language that can say it."""
    for language in LANGUAGES:
        try:
            text = materials.source(language)
        except (BackendError, ImportError) as error:
            text = f"not to be had here: {error}"
        if len(text) > LONGEST:
            size = show_bytes(len(text))
            text = f"{text[:LONGEST]}\n… ({size} in all; the rest is left out)"
        yield language, text
