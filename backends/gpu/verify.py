"""What must hold of the kernels that a GPU runs: of nests, their texts, and the grids
that start them.

Each function is a rule, or a few that are checked together; see
:mod:`eqsat.support.verification`. A text is read line by line, as writers print it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import prod

import numpy as np

from eqsat.kernels import Kernel
from eqsat.support import Broken, counted, refuse
from eqsat.terms import Term

from ..loop_ir import (
    REDUCTIONS,
    Buffer,
    Layout,
    Nest,
    broken_nest,
    extent_of,
)
from .c_code import SIMD
from .generated import Generated, KernelOperand, Part
from .printing import POWERS, Source

WIDE = np.dtype(np.float64)
MOST_THREADS = 1024
"""Of a group, on every device."""
MOST_SHARED = 1 << 15
"""Bytes that a group shares: Metal's limit, less than CUDA's."""
NAME = r"\b(?:i_\w+|[ahpqrsv]\d+|slots\d+|row|own|inside|thread_|block)\b"
"""Names that writers give to variables."""
DECLARED = re.compile(rf"(?<!return)(?<=[\w>]) +({NAME})(?= *(?:=|;|\[))")
SHARED = re.compile(r"EQ_SHARED ([\w<>]+) \w+\[(\d+)\];")
MEETS = re.compile(r"EQ_BARRIER\(|\beq_group<")
"""Where all threads of a group have to come."""
BYTES = {"bool": 1, "char": 1, "half": 2, "float": 4, "EqPower": 8}


def verify(
    parts: Sequence[Part],
    kernel: Kernel,
    layouts: Mapping[Term, Layout],
) -> None:
    """Raise :class:`VerifyError` where what computes ``kernel``, whose inputs lie as
    ``layouts`` says, breaks a rule."""
    rules = [_order(parts, kernel)]
    for i, part in enumerate(parts):
        if isinstance(part, Generated):
            rules += _rules(part, layouts, f"{kernel.name}, part {i}")
    refuse("gpu kernels", chain.from_iterable(rules))


def _rules(
    part: Generated, layouts: Mapping[Term, Layout], name: str
) -> list[Iterator[Broken]]:
    extents = [_extent(m, layouts) for m in part.memory]
    known = REDUCTIONS | {POWERS}
    rules = [_operands(part, name), *_of_text(part.source, part.buffers, name)]
    rules += [broken_nest(nest, extents, name, known) for nest in part.nests]
    if not part.source.joined:
        return [*rules, _grid(part.source, part.nests[0], name)]
    for nest, source in zip(part.nests, part.source.joined, strict=True):
        rules.append(_grid(source, nest, name))
    return [*rules, _joined(part.source, name)]


def _of_text(
    source: Source, buffers: Sequence[Buffer], name: str
) -> list[Iterator[Broken]]:
    return [
        _group(source, name),
        _names(source, buffers, name),
        _meetings(source, name),
    ]


def _joined(source: Source, name: str) -> Iterator[Broken]:
    """The groups of a joined kernel are those of its parts, and as large."""
    found = [(s.groups, s.group) for s in source.joined]
    if source.groups != sum(n for n, _ in found):
        yield Broken(name, "groups are those of its parts", source.groups, found)
    if {size for _, size in found} != {source.group}:
        yield Broken(name, "groups of all parts are as large", found, source.group)


def _extent(m: KernelOperand, layouts: Mapping[Term, Layout]) -> tuple[int, int]:
    layout = layouts.get(m.key) if m.kind == "term" else None
    return extent_of(layout, m.shape)


def _order(parts: Sequence[Part], kernel: Kernel) -> Iterator[Broken]:
    """Memory between kernels is written before it is read, and all is written once."""
    written: set[KernelOperand] = set()
    for i, part in enumerate(parts):
        if not isinstance(part, Generated):
            continue
        name = f"{kernel.name}, part {i}"
        for m in part.inputs:
            if m.kind == "temporary" and m not in written:
                rule = "what it reads was written by an earlier part"
                yield Broken(name, rule, f"temporary {m.key}", "written")
        for m in part.outputs:
            if m in written:
                yield Broken(name, "memory is written once", m.key, "not written yet")
        written |= set(part.outputs)


def _operands(part: Generated, name: str) -> Iterator[Broken]:
    """Parameters are the buffers: inputs those that are read only."""
    buffers, source = part.buffers, part.source
    for which, places, given, is_out in (
        ("inputs", source.inputs, part.inputs, False),
        ("outputs", source.outputs, part.outputs, True),
    ):
        expected = tuple(i for i, b in enumerate(buffers) if b.written == is_out)
        if places != expected or len(given) != len(places):
            yield Broken(name, f"its {which} are buffers", places, expected)
            continue
        for i, m in zip(places, given, strict=True):
            if m.dtype != buffers[i].dtype:
                rule = "a parameter has the dtype of its buffer"
                yield Broken(f"{name}: b{i}", rule, m.dtype, buffers[i].dtype)
    held = [*buffers, *(s for nest in part.nests for s in nest.statements())]
    if any(x.dtype == WIDE for x in held if hasattr(x, "dtype")):
        yield Broken(name, "a GPU computes in 32 bits", WIDE, "float32 at most")


def _group(source: Source, name: str) -> Iterator[Broken]:
    """A group has as many threads and as much memory as devices allow."""
    if source.group not in range(1, MOST_THREADS + 1) or source.groups < 1:
        rule = f"a grid has groups of 1 to {MOST_THREADS} threads"
        yield Broken(name, rule, (source.groups, source.group), "such groups")
    if "eq_simd<" in source.body and source.group % SIMD:
        yield Broken(name, "lanes run in step", source.group, f"a multiple of {SIMD}")
    shared = sum(_bytes(t) * int(n) for t, n in SHARED.findall(source.body))
    if shared > MOST_SHARED:
        yield Broken(name, "threads share so many bytes", shared, MOST_SHARED)


def _bytes(kind: str) -> int:
    """Bytes of an element; of a value with its place, those of both."""
    if kind.startswith("EqAt<"):
        return 2 * max(_bytes(kind[5:-1]), 4)
    digits = re.search(r"\d+", kind)
    return BYTES.get(kind, int(digits[0]) // 8 if digits else 4)


def _grid(source: Source, nest: Nest, name: str) -> Iterator[Broken]:
    """The threads of the grid cover all elements, and none goes past them."""
    body = source.body
    wide = max(map(int, re.findall(r"int j = 0; j < (\d+); \+\+j", body)), default=1)
    maps = re.search(r"if \(thread_ >= (\d+)\) return;", body)
    rows = re.search(r"const \w+ row = (.*);", body)
    columns = re.search(r"block = group % (\d+);", body)
    if maps:
        wanted, found = int(maps[1]), nest.elements
        if wanted > source.threads or wanted * wide < found:
            actual = (
                f"{counted(source.threads, 'thread')}, {wanted} of them for {wide} each"
            )
            yield Broken(name, "the grid covers the result", actual, found)
    elif rows:
        each = re.search(r"\* (\d+)", rows[1])
        found = source.groups * (int(each[1]) if each else 1)
        if found < nest.rows:
            yield Broken(name, "the grid covers the rows", found, nest.rows)
        elif found > nest.rows and f"if (row >= {nest.rows}) return;" not in body:
            yield Broken(name, "no thread goes past the rows", found, nest.rows)
    elif columns and nest.grid:
        *outer, lane = nest.grid
        blocks, most = int(columns[1]), prod(v.size for v in outer)
        if source.groups != blocks * most or blocks * SIMD * wide < lane.size:
            groups = counted(source.groups, "group")
            actual = f"{groups}, {blocks} of {SIMD} × {counted(wide, 'column')}"
            expected = f"{most} × {counted(lane.size, 'column')}"
            yield Broken(name, "the grid covers the columns", actual, expected)
        if f"inside = c < {lane.size};" not in body:
            yield Broken(name, "no thread goes past the columns", "?", lane.size)
    else:
        yield Broken(name, "its threads know their work", "no rows", "rows or elements")


def _names(source: Source, buffers: Sequence[Buffer], name: str) -> Iterator[Broken]:
    """Parameters are used, names are declared where they are used, blocks end."""
    body = source.body
    given = {b.name for b in buffers}
    used = set(re.findall(r"\b(?:b|parts|row)\d+\b", body))
    if used != given:
        rule = "its text uses its parameters and no others"
        yield Broken(name, rule, sorted(used), sorted(given))
    scopes: list[set[str]] = [set()]
    for line in body.splitlines():
        for text in re.split(r"([{}])", line):
            if text == "{":
                scopes.append(set())
            elif text == "}":
                scopes.pop()
                if not scopes:
                    yield Broken(name, "blocks begin and end", line.strip(), "balanced")
                    return
            new = DECLARED.findall(text)
            known = set().union(*scopes, new)
            for use in re.findall(NAME, text):
                if use not in known:
                    rule = "a name is declared where it is used"
                    yield Broken(f"{name}: {line.strip()}", rule, use, sorted(known))
            scopes[-1].update(new)
    if len(scopes) > 1:
        yield Broken(name, "blocks begin and end", len(scopes) - 1, "balanced")


def _meetings(source: Source, name: str) -> Iterator[Broken]:
    """All threads of a group come to each of its barriers."""
    apart = {"lane"}
    around: list[str] = []
    gone = ""
    for line in map(str.strip, source.body.splitlines()):
        left, _, right = line.partition(" = ")
        if right and not MEETS.search(line) and _mentions(right, apart):
            apart.update(re.findall(r"(\w+)(?:\[[^]]*\])?$", left))
            apart.update(re.findall(r", (\w+) =", right))
        if line.startswith("}"):
            around.pop() if around else None
        if MEETS.search(line):
            for text in (*around, gone):
                if _mentions(text, apart):
                    rule = "all threads of a group come to its barriers"
                    yield Broken(f"{name}: {line}", rule, text, "no thread is away")
        if line.endswith("{"):
            around.append(line if line.startswith(("if", "for")) else "")
        if line.endswith("return;"):
            gone = line


def _mentions(text: str, names: set[str]) -> bool:
    return not names.isdisjoint(re.findall(r"\w+", text))
