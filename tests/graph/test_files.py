"""Graphs as JSON and DOT: round trips, and files that are refused."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import block_by_nodes, small
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat.graph import document
from eqsat.rulelang import evaluate
from eqsat.terms import Term, attrs_key, postorder
from eqsat.testing import DrawnProgram, programs
from eqsat.testing.drawn import quiet
from eqsat.trace import trace

# -- both ways -------------------------------------------------------------------------


@pytest.mark.parametrize("made", [small, block_by_nodes])
def test_both_ways(made: Callable[[], eq.Graph], tmp_path: Path) -> None:
    text = made().to_json(tmp_path / "g.json")
    assert eq.Graph.from_json(text).to_json() == text
    assert eq.Graph.from_json(tmp_path / "g.json").to_json() == text
    dot = made().to_dot(tmp_path / "g.dot")
    assert eq.Graph.from_dot(dot).to_json() == text
    assert eq.Graph.from_dot(str(tmp_path / "g.dot")).to_dot() == dot


@pytest.mark.parametrize("dtype", list(document._DTYPES))
def test_constants_of_every_dtype(dtype: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (3, 64), np.uint8)
    value = (bits if dtype == "bool" else bits * 255).view(dtype)
    for held in (value, value[:, ::2], value.T, value[:0], value[0, 0]):
        g = eq.Graph()
        g.output(g.constant(held, "c"))
        for h in (eq.Graph.from_json(g.to_json()), eq.Graph.from_dot(g.to_dot())):
            found = h.nodes["c"].value
            assert (found.dtype, found.shape) == (held.dtype, held.shape)
            assert found.tobytes() == held.tobytes() and not found.flags.writeable


@pytest.mark.parametrize(
    "number", [0.0, -0.0, 1, -(2**63), 2**64 - 1, 0.1, np.inf, -np.inf, np.nan, 5e-324]
)
def test_numbers(number: float) -> None:
    g = eq.Graph()
    x = g.input("x", (), "float64")
    g.output(g.add("add", [x, g.constant(number, "n")]))
    for h in (eq.Graph.from_json(g.to_json()), eq.Graph.from_dot(g.to_dot())):
        found = h.nodes["n"].value
        assert type(found) is type(number) and str(found) == str(number)


def test_names_are_any_line_of_text() -> None:
    g = eq.Graph()
    for name in ('"', "\\", '\\"', "];", "->", "Größe 数", "x\u0301", "{}", "a" * 200):
        g.output(g.add("tanh", g.input(name, (2,), "float32")))
    assert eq.Graph.from_json(g.to_json()).to_json() == g.to_json()
    assert eq.Graph.from_dot(g.to_dot()).to_json() == g.to_json()


def rows(roots: list[Term]) -> Any:
    """What terms say, but for which array a constant is."""
    place: dict[Term, int] = {}
    found = []
    for t in postorder(roots):
        place[t] = len(place)
        attrs = () if t.op.name == "constant" else attrs_key(t.attrs)
        found.append((t.op.name, [place[a] for a in t.args], attrs, t.type))
    return found, [place[r] for r in roots]


@examples(300)
@given(programs())
def test_drawn_programs_come_back_as_they_were(p: DrawnProgram) -> None:
    with quiet():
        g = eq.Graph.from_function(p.function, *p.inputs)
        text = g.to_json()
        read = eq.Graph.from_json(text)
        assert read.to_json() == text
        assert eq.Graph.from_dot(g.to_dot()).to_json() == text
        if p.variables:
            done = trace(p.function, p.inputs).outputs
            assert rows(trace(read.function(), p.variables).outputs) == rows(done)


@examples(60)
@given(programs(max_ops=8))
def test_drawn_programs_are_chosen_and_run_as_without_a_graph(p: DrawnProgram) -> None:
    if not p.variables:
        return
    with quiet():
        g = eq.Graph.from_function(p.function, *p.inputs)
        low = eq.jit(p.function).lower(*p.inputs)
        chosen = g.optimize().function()(*p.variables)
        check_bits(evaluate(low.term, p.variables), chosen)
        check_bits(low.executable(*p.variables), g.run(*map(np.array, p.variables)))


def check_bits(wanted: Any, found: Any) -> None:
    many = found if isinstance(found, tuple) else (found,)
    for a, b in zip(map(np.asarray, wanted), many, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


# -- what is refused -------------------------------------------------------------------

WRONG: list[Any] = [None, True, -1, 2.5, "wrong", [], {}, [None], 10**30]
"""Values of which none is right for all keys."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside."""
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for key, held in inside:
        yield (*path, key)
        yield from places(held, (*path, key))


def changed(
    whole: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]
) -> Any:
    made = copy.deepcopy(whole)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return made


def corrupted() -> dict[str, str]:
    """Files that are none of a graph, by what was done to them."""
    text = small().to_json()
    whole = json.loads(text)
    found = {f"cut at {n}": text[:n] for n in range(1, len(text) - 1, 40)}
    for path in places(whole):
        where = "/".join(map(str, path))
        held = whole
        for key in path:
            held = held[key]
        for wrong in WRONG:
            if type(wrong) is not type(held) and not is_right(path, wrong):
                made = changed(whole, path, lambda d, k, w=wrong: d.update({k: w}) if isinstance(d, dict) else d.__setitem__(k, w))  # type: ignore[misc] # fmt: skip # noqa: E501
                found[f"{where} = {wrong!r}"] = json.dumps(made)
        if isinstance(path[-1], str) and not is_optional(path):
            made = changed(whole, path, lambda d, k: d.pop(k))
            found[f"without {where}"] = json.dumps(made)
            made = changed(whole, path, lambda d, k: d.update({k + "_": d.pop(k)}))
            found[f"{where}_"] = json.dumps(made)
    return found


def is_right(path: tuple[Any, ...], value: Any) -> bool:
    """Whether a value of another type stands for one, too."""
    is_number = path[-1] == "number" and type(value) in (int, float)
    axis = path[-1] == "axis" and type(value) is int
    truth = path[-1] == "lower" and value in (0, 1)
    nothing = path[-1] == "axis" and value is None
    return is_number or axis or truth or nothing or path[-1] == "rcond"


def is_optional(path: tuple[Any, ...]) -> bool:
    return path[-1] in ("transposed", "unit", "rcond", "attributes")


def refusal(text: str, read: Callable[[str], Any] = eq.Graph.from_json) -> str:
    start = time.perf_counter()
    with pytest.raises(eq.EqsatError) as caught:
        read(text)
    assert time.perf_counter() - start < 5
    return str(caught.value).partition("\n  at ")[0]


def test_corrupted_files_are_refused_by_a_named_error() -> None:
    files = corrupted()
    assert len(files) > 200
    for what, text in files.items():
        try:
            eq.Graph.from_json(text)
        except eq.EqsatError as error:
            assert str(error), what
        else:
            pytest.fail(f"{what} is read")


@examples(2000)
@given(st.data())
def test_files_with_other_bytes_are_refused_or_valid(data: st.DataObject) -> None:
    made = data.draw(st.sampled_from([eq.Graph.to_json, eq.Graph.to_dot]))
    read = eq.Graph.from_json if made is eq.Graph.to_json else eq.Graph.from_dot
    text = list(made(small()))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from([*'{}[]",:\\0-9eE. xaA\n']))
    try:
        read("".join(text)).validate()
    except eq.EqsatError:
        pass


FILES = {
    "not JSON": "{]",
    "a list": "[]",
    "of others": '{"eqsat": "rules", "version": 1, "nodes": [], "outputs": []}',
    "version 2": '{"eqsat": "graph", "version": 2, "nodes": [], "outputs": []}',
    "version true": '{"eqsat": "graph", "version": true, "nodes": [], "outputs": []}',
    "a key twice": '{"eqsat": "graph", "eqsat": "graph"}',
    "NaN": '{"eqsat": NaN}',
    "digits": '{"eqsat": ' + "9" * 5000 + "}",
    "nested": '{"eqsat": ' + "[" * 10**5 + "]" * 10**5 + "}",
    "empty": '{"eqsat": "graph", "version": 1, "nodes": [], "outputs": []}',
    "brackets": '{"nodes": [' + "{}," * 10**6 + "{}]}",
    "nodes": '{"eqsat": "graph", "version": 1, "outputs": [], "nodes": ['
    + "1," * 60_000
    + "1]}",
}
NODES = {
    "an unknown op": '{"name": "y", "op": "tanhh", "inputs": ["x"]}',
    "an op of no node": '{"name": "y", "op": "kernel", "inputs": ["x"]}',
    "a function": '{"name": "y", "op": "eval", "inputs": ["x"]}',
    "an attribute": '{"name": "y", "op": "tanh", "inputs": ["x"], '
    '"attributes": {"a": 1}}',
    "a key": '{"name": "y", "op": "tanh", "inputs": ["x"], "code": "print()"}',
    "another dtype": '{"name": "y", "op": "tanh", "inputs": ["x"], "dtype": "float64", '
    '"shape": [2, 3]}',
    "a pickle": '{"name": "y", "op": "constant", "dtype": "object", "shape": [1], '
    '"data": "gASVAAAAAAA="}',
    "bools": '{"name": "y", "op": "constant", "dtype": "bool", "shape": [1], '
    '"data": "Ag=="}',
    "short data": '{"name": "y", "op": "constant", "dtype": "int8", "shape": [6], '
    '"data": "AgAA"}',
    "no base64": '{"name": "y", "op": "constant", "dtype": "int8", "shape": [3], '
    '"data": "Ag!A"}',
    "large": '{"name": "y", "op": "constant", "dtype": "int8", "shape": [1000000000], '
    '"data": ""}',
    "a text": '{"name": "y", "op": "accumulate", "inputs": ["x"], '
    '"attributes": {"ufunc": "__loader__", "axis": 0}}',
    "a missing input": '{"name": "y", "op": "tanh", "inputs": ["z"]}',
    "a cycle": '{"name": "y", "op": "tanh", "inputs": ["y"]}',
    "too few": '{"name": "y", "op": "add", "inputs": ["x"]}',
    "a default": '{"name": "y", "op": "rms_norm", "inputs": ["x", "x"]}',
    "axes": '{"name": "y", "op": "reshape", "inputs": ["x"], "attributes": '
    '{"shape": [6, ' + "1, " * 63 + "1]}}",
    "axes of an input": '{"name": "y", "op": "input", "dtype": "int8", "shape": ['
    + "1, " * 64
    + "1]}",
    "inputs": '{"name": "y", "op": "concatenate", "attributes": {"axis": 0}, '
    '"inputs": [' + '"x", ' * 200_000 + '"x"]}',
    "the name": '{"name": "x", "op": "tanh", "inputs": ["x"]}',
}
HEAD = (
    '{"eqsat": "graph", "version": 1, "nodes": [{"name": "x", "op": "input", '
    '"dtype": "float32", "shape": [2, 3]}, '
)


def test_messages_of_files(golden: Callable[[str, str], None]) -> None:
    texts = {
        **FILES,
        **{k: f'{HEAD}{n}], "outputs": ["y"]}}' for k, n in NODES.items()},
    }
    said = [f"{what}\n{refusal(text)}\n" for what, text in texts.items()]
    dot = small().to_dot()
    lines = dot.split("\n")
    wrong = {
        "dot: html": "<html>",
        "dot: no end": "\n".join(lines[:-2]),
        "dot: a subgraph": dot.replace("\n}", "\n  subgraph a { b; }\n}"),
        "dot: a node twice": "\n".join([*lines[:3], lines[2], *lines[3:]]),
        "dot: an edge twice": "\n".join([*lines[:-2], lines[-3], *lines[-2:]]),
        "dot: an edge to nowhere": dot.replace("\n}", '\n  "x" -> "q" [label="0"];\n}'),
        "dot: a gap": dot.replace("\n}", '\n  "x" -> "y" [label="7"];\n}'),
        "dot: lines": f"digraph{chr(10) * 300_000}",
        "dot: version": dot.replace('version\\": 1', 'version\\": 9'),
    }
    said += [f"{k}\n{refusal(t, eq.Graph.from_dot)}\n" for k, t in wrong.items()]
    # Which op is the nearest depends on those that other tests register.
    unknown = r"(unknown op '(?:kernel|eval)'); did you mean '\w+'\?"
    golden("graph_files.txt", re.sub(unknown, r"\1", "\n".join(said)))


def test_edges_of_a_dot_file_may_be_changed() -> None:
    g = eq.Graph()
    x, y = (g.input(n, (3,), "float32") for n in "xy")
    g.output(g.add("subtract", [x, y], name="d"))
    text = g.to_dot().replace('"x" -> "d" [label="0"]', '"x" -> "d" [label="1"]')
    text = text.replace('"y" -> "d" [label="1"]', '"y" -> "d" [label="0"]')
    assert eq.Graph.from_dot(text).nodes["d"].inputs == ("y", "x")


def test_what_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_CONSTANTS", 23)
    with pytest.raises(eq.GraphError, match="node 'weights': with this constant of 24"):
        small().to_json()
    monkeypatch.setattr(document, "MOST_CONSTANTS", 24)
    small().to_json()
    monkeypatch.setattr(document, "MOST_TEXT", 1000)
    for write in (small().to_json, small().to_dot):
        with pytest.raises(eq.GraphError, match="at most 1000 bytes"):
            write()
    monkeypatch.setattr(document, "MOST_NODES", 5)
    with pytest.raises(eq.GraphError, match="at most 5 nodes"):
        small().to_json()


def test_files_are_not_read_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "g.json"
    small().to_json(file)
    monkeypatch.setattr(document, "MOST_TEXT", 100)
    with pytest.raises(eq.GraphError, match="at most 100 bytes"):
        eq.Graph.from_json(file)
    with pytest.raises(eq.GraphError, match="at most 100 characters"):
        eq.Graph.from_json(small_text(file))
    file.write_bytes(b'{"\xff')
    with pytest.raises(eq.GraphError, match="UTF-8"):
        eq.Graph.from_json(file)
    with pytest.raises(eq.GraphError, match="is no file"):
        eq.Graph.from_json("nowhere.json")
    with pytest.raises(FileNotFoundError):
        eq.Graph.from_json(tmp_path / "nowhere.json")


def small_text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_an_op_that_no_catalogue_has_is_no_node() -> None:
    from eqsat.trace import define_pointwise

    mine = define_pointwise("only_here", lambda x: x * x + 1)
    g = eq.Graph()
    x = g.input("x", (3,), "float32")
    g.output(g.add(mine, x, name="y"))
    text = g.to_json()
    assert eq.Graph.from_json(text).nodes["y"].op == "only_here"
    del mine.registry["only_here"]
    assert "unknown op 'only_here'" in refusal(text)
