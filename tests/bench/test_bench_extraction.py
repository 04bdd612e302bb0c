"""``python -m bench``: files of e-graphs, and random programs."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from random_covers import convex, drawn, kernels, price, program

from bench.__main__ import main
from bench.compiling.models import MODELS
from bench.extraction.gym import FormatError, load, problem_of
from eqsat.search.extraction.problem import dag_cost, tree_greedy
from eqsat.search.regions import split
from eqsat.terms.op import is_constant
from eqsat.terms.term import postorder
from eqsat.trace.trace import trace

pytestmark = pytest.mark.bench

DIAMOND = Path(__file__).resolve().parents[1] / "egraphs" / "diamond.json"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_file_becomes_a_problem() -> None:
    p = load(DIAMOND)
    assert (len(p.members), len(p.cls)) == (5, 8)
    x, shared, f, g, add = range(5)
    assert p.roots == [add]
    assert p.kids == [(), (x,), (x,), (shared,), (x,), (shared,), (g,), (f, g)]
    assert p.weight == [0, 3, 2, 0.25, 2, 0.25, 1, 1]
    assert [len(m) for m in p.members] == [1, 1, 2, 3, 1]


def changed(**nodes: Any) -> dict[str, Any]:
    """The diamond with some nodes changed, or taken out where the change is None."""
    data: dict[str, Any] = json.loads(DIAMOND.read_text(encoding="utf-8"))
    for name, change in nodes.items():
        if change is None:
            del data["nodes"][name]
        else:
            data["nodes"][name].update(copy.deepcopy(change))
    return data


def without(name: str, key: str) -> dict[str, Any]:
    data = changed()
    del (data["nodes"][name] if name else data)[key]
    return data


BROKEN: dict[str, tuple[Any, str]] = {
    "no object": ([1], "the file is an array, expected an object"),
    "no nodes": (without("", "nodes"), "the file lacks 'nodes'"),
    "no roots": (without("", "root_eclasses"), "the file lacks 'root_eclasses'"),
    "empty roots": ({**changed(), "root_eclasses": []}, "root_eclasses is empty"),
    "a strange root": (
        {**changed(), "root_eclasses": ["add", "h"]},
        "root_eclasses: 'h' is the eclass of no node",
    ),
    "no class": (without("f", "eclass"), "node 'f' lacks 'eclass'"),
    "a class that is a number": (
        changed(f={"eclass": 3}),
        "node 'f': 'eclass' is 3, expected a string",
    ),
    "children that are no array": (
        changed(f={"children": "x"}),
        "node 'f': 'children' is a string, expected an array",
    ),
    "a strange child": (
        changed(x=None),
        "node 'shared': the child 'x' is none of the nodes",
    ),
    "a negative cost": (
        changed(f={"cost": -1}),
        "node 'f': the cost is -1, expected a number of 0 or more",
    ),
    "a cost in words": (
        changed(f={"cost": "cheap"}),
        "node 'f': the cost is 'cheap', expected a number of 0 or more",
    ),
    "a cost that is none": (
        changed(f={"cost": float("nan")}),
        "node 'f': the cost is nan, expected a number of 0 or more",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_missing_or_wrong_is_named(name: str) -> None:
    data, message = BROKEN[name]
    with pytest.raises(FormatError) as error:
        problem_of(data)
    assert str(error.value) == message


def test_the_command_compares_three_ways(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    result = run("extraction", DIAMOND, DIAMOND, "--json", out)
    assert result.exit_code == 0, result.output
    assert "egraphs/diamond" in result.output
    record = json.loads(out.read_text(encoding="utf-8"))
    first, second = record["instances"]
    assert first["instance"] == second["instance"] == "egraphs/diamond"
    assert (first["tree_greedy"], first["eqsat"], first["exact"]) == (5, 4.5, 4.5)
    assert first["optimal"] and first["bound"] == 4.5
    assert record["exact_limit_s"] == 60


@pytest.mark.parametrize("text", ["{", '{"nodes": {}, "root_eclasses": ["a"]}'])
def test_a_bad_file_is_named_before_anything_runs(tmp_path: Path, text: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text, encoding="utf-8")
    result = run("extraction", DIAMOND, bad)
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {bad}: ")
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = run("extraction", tmp_path / "none.json")
    assert result.exit_code == 1
    assert "none.json: not a JSON file: " in result.output


def test_an_egraph_without_leaves_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cycle.json"
    node = {"op": "f", "children": ["a"], "eclass": "a", "cost": 1}
    path.write_text(json.dumps({"nodes": {"a": node}, "root_eclasses": ["a"]}))
    result = run("extraction", path)
    assert result.exit_code == 1
    assert f"{path}: a class that the program needs cannot" in result.output


def test_the_same_seed_gives_the_same_program() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    p = drawn(7)
    assert dag_cost(p, tree_greedy(p))[0] > 0


def test_kernels_hold_what_one_kernel_can() -> None:
    ops, roots = program(random.Random(0), 30)
    users: list[set[int]] = [set() for _ in ops]
    for i, op in enumerate(ops):
        for a in op.args:
            users[a].add(i)
    assert roots == [i for i in range(len(ops)) if not users[i]]
    for out in roots:
        for held in kernels(ops, out):
            kinds = [ops[i].kind for i in held]
            assert out in held and len(held) <= 6
            assert "input" not in kinds
            assert kinds.count("matmul") <= ("reduce" not in kinds)
            assert all(i == out or users[i] & held for i in held)
            assert price(ops, held, [out]) > 1.5e-6


def test_a_kernel_whose_operand_needs_its_result_is_not_convex() -> None:
    """0 → 1 → 2 and 0 → 2: a kernel of 0 and 2 would need 1, which needs 0."""
    users = [{1, 2}, {2}, set[int]()]
    assert not convex(users, frozenset({0, 2}), [1])
    assert convex(users, frozenset({1, 2}), [0])


def test_random_programs_are_as_cheap_as_the_optimum(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = run("random-programs", "--count", "3", "--seed", "7", "--out", out)
    assert done.exit_code == 0, done.output
    assert "3 programs of 20 to 60 ops, the optimum proven for 3" in done.output
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [20 <= r["ops"] <= 60 for r in found["instances"]] == [True] * 3
    for r in found["instances"]:
        assert r["bound"] <= r["exact"] * (1 + 1e-9) <= r["eqsat"] * (1 + 2e-9)
        assert r["exact_program_cost"] <= r["written_cost"]
    assert found["worst_gap"] <= 0.05


def test_cold_compiles_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = run("compile", "add_relu", "blocks_1", "--repeats", "1", "--out", out)
    assert done.exit_code == 0, done.output
    small, block = json.loads(out.read_text(encoding="utf-8"))["models"]
    assert (small["ops"], small["kernels"], small["distinct_regions"]) == (2, 1, 1)
    assert block["ops"] > 40 and block["kernels"] <= 6
    assert 0 < sum(block["phases_s"].values()) <= block["first_s"]
    assert block["search_bytes"] > 0


def test_the_models_of_the_compile_bench_are_what_they_say() -> None:
    resnet = MODELS["resnet50"]()
    (out,) = trace(resnet.function, resnet.arguments).outputs
    ops = [t.op.name for t in postorder([out])]
    assert (ops.count("conv2d"), out.shape) == (53, (1, 1000))
    towers = MODELS["towers"]()
    roots = trace(towers.function, towers.arguments).outputs
    regions = split(roots, is_constant(roots))
    assert len({r.key for r in regions}) == len(regions) > 10
