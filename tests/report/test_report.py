"""The report: what is on the page, that no name becomes markup, drawings as text."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import eqsat as eq
from eqsat.command.cli import main
from eqsat.explain import Explanation
from eqsat.report import dot, mermaid, page, placed
from eqsat.support import EqsatError

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).standard_normal((32, 64)).astype("f4")


def two(x: Array) -> tuple[Array, Array]:
    e = np.exp(x - x.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    return p @ x.T, x.sum(0)


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return eq.jit(two).explain(X)


def embedded(text: str) -> Any:
    """The document in a page."""
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_the_document_and_asks_for_nothing_else(
    explanation: Explanation, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    text = explanation.html(path)
    assert path.read_text(encoding="utf-8") == text
    assert embedded(text) == json.loads(json.dumps(explanation.document()))
    assert not re.search(r"""(src|href)=["'](?!#)""", text)
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text and "@import" not in text and "url(" not in text
    assert "{{" not in text.replace("${{", "")


def test_the_document_has_all_that_the_page_shows(explanation: Explanation) -> None:
    d = explanation.document()
    assert [k["name"] for k in d["kernels"]] == [k.name for k in explanation.kernels]
    after = d["graphs"]["after"]
    for k in d["kernels"]:
        assert after["nodes"][k["node"]]["name"] == k["name"]
        assert 0 < k["share"] <= 1
        assert any(n["chosen"] for c in k["classes"] for n in c["nodes"])
    names = [n["text"] for n in d["graphs"]["before"]["nodes"]]
    for op in ("exp", "max", "sum", "divide", "matmul"):
        assert any(text.startswith(op) for text in names)
    results = [n for n in after["nodes"] if n["name"].startswith("result")]
    assert len(results) == 2
    assert max(m["bytes"] for m in d["memory"]) <= d["peak_bytes"]
    assert {r["name"] for r in d["rules"]} >= set(explanation.rules)
    for rule in d["rules"]:
        assert rule["place"] and "→" in rule["says"]
        assert bool(rule["why"]) is not bool(rule["in_winner"])
    assert set(d["sources"]) == {"numpy", "llvm", "metal", "cuda"}
    assert "define" in d["sources"]["llvm"] and "np." in d["sources"]["numpy"]
    assert "kernel" in d["sources"]["metal"] and "__device__" in d["sources"]["cuda"]


@pytest.mark.parametrize("bad", ["</script><img onerror=alert(1)>", "<!--", "\u2028"])
def test_no_name_becomes_markup(bad: str, explanation: Explanation) -> None:
    document = {**explanation.document(), "title": bad}
    document["graphs"]["after"]["nodes"][0]["name"] = bad
    text = page(document)
    assert embedded(text)["title"] == bad
    assert bad not in text.replace(f"<title>{bad}", "") or "<" not in bad
    assert text.count("<script") == page(explanation.document()).count("<script")


def test_the_program_as_text_for_graphviz_and_mermaid(explanation: Explanation) -> None:
    for which in ("before", "after"):
        graph = explanation.document()["graphs"][which]
        lines = explanation.dot(which).splitlines()
        assert lines[0] == "digraph program {" and lines[-1] == "}"
        nodes = [line for line in lines if re.match(r'  n\d+ \[label="', line)]
        edges = [line for line in lines if re.fullmatch(r"  n\d+ -> n\d+;", line)]
        assert (len(nodes), len(edges)) == (len(graph["nodes"]), len(graph["edges"]))
        chart = explanation.mermaid(which).splitlines()
        assert chart[0] == "flowchart TD"
        assert sum(" --> " in line for line in chart) == len(edges)
    with pytest.raises(EqsatError, match="expected 'before' or 'after'"):
        explanation.dot("middle")


def test_labels_of_drawings_are_escaped() -> None:
    node = {"name": 'a"b\\', "text": "<i>;|{", "type": "", "kind": "map"}
    graph = {"nodes": [node], "edges": []}
    assert r'label="a\"b\\\n<i>;|{"' in dot(graph)
    label = mermaid(graph).splitlines()[1]
    assert label.count('"') == 2 and "<i>" not in label and "#34;" in label


def test_readers_are_below_what_they_read_and_nodes_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    edges = [(int(a), b) for b in range(1, 300) for a in rng.integers(0, b, 2)]
    places = placed(300, edges)
    assert all(places[a][1] < places[b][1] for a, b in edges)
    assert len(set(places)) == 300
    by_layer: dict[int, list[float]] = {}
    for x, layer in places:
        by_layer.setdefault(layer, []).append(x)
    for xs in by_layer.values():
        gaps = np.diff(sorted(xs))
        assert gaps.size == 0 or gaps.min() >= 1 - 1e-9
    assert placed(0, []) == []


def test_what_a_notebook_shows(explanation: Explanation) -> None:
    shown = explanation._repr_html_()
    ElementTree.fromstring(shown)
    assert "NumPy, as written" in shown and "<pre>" in shown


def test_a_program_with_nothing_to_compute_has_a_page() -> None:
    text = eq.jit(lambda x: x.T).explain(X).html()
    assert embedded(text)["kernels"] == []


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import numpy as np\ndef f(x):\n    return np.tanh(x) * 2\n"
    )
    words = ["report", "model.py:f", "--arg", "8x8:f32"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0 and done.output.strip() == "f.html"
    assert embedded((tmp_path / "f.html").read_text("utf-8"))["title"] == "f"
    done = CliRunner().invoke(main, [*words, "--out", "g.html", "--measure"])
    assert done.exit_code == 0
    assert embedded((tmp_path / "g.html").read_text("utf-8"))["timing"]["speedup"] > 0


def test_programs_reports_of_rules_and_lazy_arrays_show_in_notebooks() -> None:
    x = eq.lazy.array(X)
    for shown in (eq.jit(two).lower(X).program, x + 1):
        found = ElementTree.fromstring(shown._repr_html_())
        assert "32" in "".join(found.itertext())
