"""The house: arrows between rooms point one way, and go through doors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrows import House, Import, statements

ROOT = Path(__file__).resolve().parents[2]
HOUSE = House(ROOT)

LINE = (
    "support report saved terms complex_numbers ops numpy_api trace rulelang egraph "
    "kernels search/extraction search explain condition define op serialise "
    "program_store saving lowered memory_limit recompiles kept_programs submission "
    "measure jit cotangent power_sum complex_gradient reverse checking/bounds "
    "checking/draws checking/proofs checking grad lazy array_api graph "
    "operator_table onnx/operators onnx pytorch mlx can_fuse random __init__ testing "
    "demo command __main__ pytest_plugin"
).split()
"""Rooms of eqsat and the files beside them, the earliest first."""

BACKENDS = (
    "__init__ interpret loop_ir to_loops numpy native/machine native/math native/loops "
    "native/products native/convolutions native/runtime native/sorting native/factors "
    "native/plan native/writing native/function_code native/function_library "
    "native/program_record native/code_pieces native/program_writer "
    "native/whole_program native/numpy_fallback native/lower native/clock "
    "native/native_costs native/core_rates native/shared_library "
    "native/portable native/__init__ gpu/c_code gpu/printing gpu/hopper gpu mlx"
).split()
"""Rooms of the backends, the earliest first."""

BACKENDS_ASK = set("support saved terms ops trace kernels serialise reverse".split())
"""Rooms of eqsat that backends may import: nothing of the search."""

PUBLIC_NAMES = {"eqsat.condition"}
"""A public name for one file of a room."""
PROGRAMS = ("eqsat.demo", "eqsat.command")
"""Rooms of programs that people start: their files are asked one by one."""


def place(room: str) -> tuple[int, int] | None:
    """Where a room stands in the line; None for the bench, which may ask anything."""
    top, _, inside = room.partition("/")
    if top == "eqsat":
        return 0, LINE.index(inside)
    if top == "backends":
        return 1, BACKENDS.index(inside)
    return None


def said(i: Import) -> str:
    return f"{i.source}:{i.line}"


def test_every_room_has_its_place_in_the_line() -> None:
    rooms = {HOUSE.room(m).partition("/") for m in HOUSE.modules}
    assert {inside for top, _, inside in rooms if top == "eqsat"} == set(LINE)
    assert {inside for top, _, inside in rooms if top == "backends"} == set(BACKENDS)


def test_no_arrow_points_back() -> None:
    for i in HOUSE.imports:
        start, end = HOUSE.room(i.source), HOUSE.room(i.target)
        a, b = place(start), place(end)
        if start != end and a and b and a[0] == b[0]:
            assert b < a, f"{said(i)}: {start} comes before {end}, so must not ask it"


def test_no_room_and_no_module_is_in_a_circle() -> None:
    assert HOUSE.circles_of_rooms() == []
    assert HOUSE.circles_of_modules() == []


def test_rooms_ask_each_other_at_the_door() -> None:
    for i in HOUSE.past_doors():
        open_house = i.target.startswith(PROGRAMS)
        assert open_house or i.source in PUBLIC_NAMES, (
            f"{said(i)}: import it from {i.target.rpartition('.')[0]}, "
            f"which re-exports what others may use, not from {i.target}"
        )


@pytest.mark.parametrize("top", ["eqsat", "backends"])
def test_each_room_says_what_it_knows_and_where_to_start(top: str) -> None:
    for name, path in HOUSE.modules.items():
        if path.relative_to(ROOT).parts[0] == top and HOUSE.is_package(name):
            doc = ast.get_docstring(HOUSE.trees[name])
            assert doc, f"{path}: a room says in its docstring what it knows"


def test_eqsat_never_imports_rules_or_backends() -> None:
    for i in HOUSE.imports:
        target = HOUSE.room(i.target).partition("/")[0]
        if HOUSE.room(i.source).startswith("eqsat"):
            assert target == "eqsat", f"{said(i)}: imports {i.target}"


def test_backends_know_nothing_of_the_search() -> None:
    for i in HOUSE.imports:
        top, _, room = HOUSE.room(i.target).partition("/")
        if HOUSE.room(i.source).startswith("backends") and top == "eqsat":
            assert room in BACKENDS_ASK, f"{said(i)}: imports {i.target}"


def test_no_folder_is_a_heap_and_no_class_has_too_many_methods() -> None:
    assert HOUSE.crowded() == {}
    assert HOUSE.large_classes() == {}


def test_a_public_class_name_stands_for_one_class() -> None:
    assert HOUSE.repeated_classes() == {}


def parsed(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for name, path in HOUSE.modules.items():
        if path.relative_to(ROOT).parts[0] in folders:
            yield path, HOUSE.trees[name]


def test_mapped_folders_import_themselves_relatively() -> None:
    """In the source tree ``eqsat.backends`` is no folder, so type checkers lose it."""
    for path, tree in parsed("rules", "backends"):
        for node in statements(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            for name in names:
                top = name.removeprefix("eqsat.").split(".")[0]
                assert top not in (
                    "rules",
                    "backends",
                ), f"{path.name}:{node.lineno}: write the import of {name} with dots"


def test_only_the_engine_module_touches_egglog() -> None:
    """Neither an import nor a string in code names the engine; prose may."""
    for path, tree in parsed("eqsat"):
        text = path.read_text(encoding="utf-8")
        if path.name == "egglog_engine.py" or "egglog" not in text:
            continue
        prose = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = id(node) not in prose and node.value.split(".")[0] == "egglog"
                assert not named, f"{path.name}:{node.lineno}: {node.value!r}"
            modules = [a.name for a in getattr(node, "names", [])]
            modules.append(getattr(node, "module", None) or "")
            assert not any(m.split(".")[0] == "egglog" for m in modules), path
