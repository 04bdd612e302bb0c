"""What pages show that has its home elsewhere: files, ops, results of the bench."""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import eqsat.ops
from bench.reports import duration, geometric_mean, laid_out, read, text
from eqsat.terms import Op

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results"
PAGES = {
    "rules/README.md": "/reference/rule_language.md",
    "bench/README.md": "/reference/measurements.md",
    "eqsat/README.md": "/reference/inside.md",
    "CHANGELOG.md": "/reference/changelog.md",
}
"""Pages of the site that show files of other folders."""


def file(name: str) -> str:
    """A file of another folder. Its links lead to pages of the site, or to nothing."""
    folder = posixpath.dirname(name)

    def linked(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, _, anchor = target.partition("#")
        if path.startswith("https:") or not path:
            return match[0]
        there = posixpath.normpath(posixpath.join(folder, path))
        if picture:
            return f"![{words}](/../../{there})"
        page = PAGES.get(there)
        if there.startswith("eqsat/documentation/"):
            page = there.removeprefix("eqsat/documentation")
        return f"[{words}]({page}{'#' if anchor else ''}{anchor})" if page else words

    content = (ROOT / name).read_text(encoding="utf-8")
    pieces = re.split(r"(^```.*?^```$)", content, flags=re.MULTILINE | re.DOTALL)
    pieces[::2] = (
        re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", linked, p) for p in pieces[::2]
    )
    return "".join(pieces)


# -- ops -------------------------------------------------------------------------------


def ops(*modules: str) -> str:
    """The public ops of files of ``eqsat/ops``: call, shapes, meaning, parameters."""
    return "\n\n".join(
        described(name, value)
        for name in eqsat.ops.__all__
        if home(value := getattr(eqsat.ops, name)) in modules
    )


def home(value: Any) -> str:
    """The file of ``eqsat/ops`` that defines an op or a function."""
    function = value.reference if isinstance(value, Op) else value
    function = value.body or function if isinstance(value, Op) else function
    module = str(inspect.unwrap(function).__module__)
    return module.removeprefix("eqsat.ops.") if "eqsat.ops" in module else "pointwise"


def described(name: str, value: Any) -> str:
    call = re.sub(r": '?Any'?| -> '?Any'?", "", str(inspect.signature(value)))
    op = isinstance(value, Op)
    text = value.doc if op else inspect.getdoc(value) or ""
    axes = (
        getattr(getattr(value.type_rule, "signature", None), "text", "") if op else ""
    )
    told = re.sub(r"``([^`]*)``", r"`\1`", text).replace("*", r"\*")
    parts = [f"### `{name}{call}`", told, f"Axes: `{axes}`" if axes else ""]
    return "\n\n".join(filter(None, parts))


# -- results ---------------------------------------------------------------------------

Cells = list[str]


def found(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def machine(name: str) -> str:
    """Where, and with what, a file of results was made."""
    d = found(name)
    kept = ("cpu", "cpus", "eqsat", "numpy", "torch", "mlx", "python", "commit")
    told = ", ".join(f"{k} {d[k]}" for k in kept if k in d)
    return f"*bench/results/{name}.json: {told}.*"


def table(rows: Iterable[Cells]) -> str:
    return laid_out([*rows], markdown=True)


def parts(name: str, heading: str) -> list[str]:
    """The tables of a file of ``bench run`` whose heading matches."""
    whole = text(read(RESULTS / f"{name}.json"), markdown=True)
    found = re.split(r"^(?=### )", whole, flags=re.MULTILINE)
    return [p for p in found if re.match(heading, p)]


def means(name: str) -> str:
    """Geometric means of a file of ``bench run``."""
    return "\n\n".join([machine(name), *parts(name, "### Geometric.* eqsat-native, ")])


def workloads(name: str) -> str:
    """Each workload of a file of ``bench run``."""
    return "\n\n".join(parts(name, "### eqsat-native, "))


def time(spread: Any) -> str:
    return duration(spread["median_s"]) if spread and "median_s" in spread else "–"


def npbench() -> str:
    rows = [["program", "sizes divided by", "NumPy", "Numba", "eqsat", "NumPy / eqsat"]]
    gains = []
    for p in found("npbench")["programs"]:
        if "eqsat_s" not in p:
            rows.append([p["name"], "", "", "", p["why"].split("\n")[0][:60], ""])
            continue
        gains.append(p["numpy_s"] / p["eqsat_s"])
        numba = duration(p["numba_s"]) if p.get("numba_s") else "–"
        cells = [str(p["scale"]), duration(p["numpy_s"]), numba, duration(p["eqsat_s"])]
        rows.append([p["name"], *cells, f"{gains[-1]:.2f}"])
    rows.append(["geometric mean", "", "", "", "", f"{geometric_mean(gains):.2f}"])
    return "\n\n".join([machine("npbench"), table(rows)])


def torch_models() -> str:
    rows = [["model", "eager", "eqsat", "Inductor", "Inductor / eqsat"]]
    for name, m in found("torch_models")["models"].items():
        ways = [m[w].get("call") for w in ("eager", "eqsat", "inductor")]
        gain = ways[2]["median_s"] / ways[1]["median_s"] if ways[2] and ways[1] else 0
        rows.append([f"{name} ({m['family']})", *map(time, ways), f"{gain:.2f}"])
    return "\n\n".join([machine("torch_models"), table(rows)])


def gpu(name: str) -> str:
    rows = found(name)["rows"]
    peers = list(dict.fromkeys(p for r in rows for p in r["results"]))
    cells = [["workload", *peers]]
    for r in rows:
        got = [r["results"].get(p, {}) for p in peers]
        cells.append([r["workload"], *(time(g) for g in got)])
    return "\n\n".join([machine(name), table(cells)])


def lazy() -> str:
    rows = [["what", "eqsat", "numpy", "mlx"]]
    for what, by in found("lazy")["seconds"].items():
        rows.append([what, *(time(by.get(p)) for p in rows[0][1:])])
    return "\n\n".join([machine("lazy"), table(rows)])


def sklearn() -> str:
    rows = [["call", "first", "later", "NumPy", "NumPy / later"]]
    for c in found("sklearn")["calls"]:
        if "eqsat" in c:
            gain = c["NumPy"]["median_s"] / c["eqsat"]["median_s"]
            cells = [duration(c["first_s"]), time(c["eqsat"]), time(c["NumPy"])]
            rows.append([c["name"], *cells, f"{gain:.2f}"])
    return "\n\n".join([machine("sklearn"), table(rows)])


def compiling() -> str:
    rows = [["model", "first call", "the same, from disk"]]
    for m in found("compile")["models"]:
        rows.append([m["model"], duration(m["first_s"]), duration(m["again_s"])])
    return "\n\n".join([machine("compile"), table(rows)])


def tuning(name: str) -> str:
    rows = [["workload", "kernels", "after", "times as fast after"]]
    for r in found(name)["rows"]:
        after = [str(r["kernels"]), str(r["kernels_after"]), f"{r['gain']:.2f}"]
        rows.append([r["workload"], *after])
    return "\n\n".join([machine(name), table(rows)])


def predicted() -> str:
    d = found("predict")
    if "classes" not in d:
        rows = [["kind", "number", "rank correlation", "estimate / clock", "spread"]]
        for c in d["summary"]:
            figures = (c["spearman"], c["mean_ratio"], c["spread"])
            cells = [f"{f or 0:.2f}" for f in figures]
            rows.append([c["tag"], str(c["number"]), *cells])
        return "\n\n".join([machine("predict"), table(rows)])
    rows = [
        ["of", "class", "number", "estimate / clock", "quartiles", "within 2 times"]
    ]
    for c in d["classes"]:
        low, high = c["quartiles"]
        told = [f"{c['median_ratio']:.2f}", f"{low:.2f} to {high:.2f}"]
        name = f"{c['side']}, {c['set']}"
        within = f"{c['within_2']:.0%}"
        rows.append([name, c["class"], str(c["number"]), *told, within])
    return "\n\n".join([machine("predict"), table(rows)])


def standards() -> str:
    nodes, api = found("onnx_nodes")["all"], found("array_api")["modules"]
    rows = [["suite", "passed", "failed or refused"]]
    of = {"cases of ONNX": nodes}
    for name, modules in api.items():
        total: dict[str, int] = {}
        for counts in modules.values():
            for outcome, n in counts.items():
                total[outcome] = total.get(outcome, 0) + n
        of[f"array API standard, {name}"] = total
    for name, counts in of.items():
        others = sum(n for k, n in counts.items() if k not in ("passed", "skipped"))
        rows.append([name, str(counts["passed"]), str(others)])
    return table(rows)


MAKERS: dict[str, Callable[..., str]] = {
    f.__name__: f
    for f in (
        file, ops, means, workloads, npbench, torch_models, gpu, lazy, sklearn,
        compiling, tuning, predicted, standards,
    )
}  # fmt: skip
