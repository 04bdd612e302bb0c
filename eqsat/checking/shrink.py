"""The smallest counterexample: fewer axes and elements, simpler numbers, and the code
that shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.checking.draws import Case, inside_domain
from eqsat.rulelang import Rule, default_rules
from eqsat.support import Array
from eqsat.terms import BF16

Wrong = Callable[[Case], bool]
"""Whether a case still shows the fault."""
MOST_ELEMENTS = 64
"""Arrays with more elements are simplified as a whole only."""


def shrink(case: Case, wrong: Wrong) -> Case:
    """A smaller case that is still wrong: a local optimum of the steps below."""
    for _ in range(4):
        before = case
        for steps in (_shapes, _numbers, _arrays, _elements):
            case = _greedy(case, steps, wrong)
        if case is before:
            break
    return case


def _greedy(case: Case, steps: Callable[[Case], Iterator[Case]], wrong: Wrong) -> Case:
    """Take the first step that keeps the fault, until none does."""
    for _ in range(100):
        for smaller in steps(case):
            if _holds(smaller) and wrong(smaller):
                case = smaller
                break
        else:
            return case
    return case


def _holds(case: Case) -> bool:
    """Whether the conditions of the rule hold without mending."""
    found = inside_domain(case)
    if found is None or found.numbers != case.numbers:
        return False
    return all(
        np.array_equal(found.arrays[p], a, equal_nan=a.dtype.kind == "f")
        for p, a in case.arrays.items()
    )


def _shapes(case: Case) -> Iterator[Case]:
    """Each axis, wherever it appears, cut to a smaller size; leading axes dropped."""
    axes = dict(zip(case.rule.tensors, case.rule.signature.inputs, strict=True))
    places: dict[Any, list[tuple[str, int]]] = {}
    for p, a in axes.items():
        shape = case.arrays[p].shape
        inner = len(shape) - a.rank
        first = len(a.before)
        for i in range(len(shape)):
            if first <= i < first + inner:
                places.setdefault(first + inner - i, []).append((p, i))
            else:
                token = a.tokens[i if i < first else i - inner + 1]
                token = a.tokens[i] if not a.variadic else token
                if isinstance(token, str):
                    places.setdefault(token, []).append((p, i))
    for where in places.values():
        largest = max(case.arrays[p].shape[i] for p, i in where)
        half = largest // 2
        parts = [*map(slice, (1, 2, half)), slice(half, None), slice(largest - 1)]
        for part in parts if largest > 1 else ():
            if 0 < len(range(largest)[part]) < largest:
                yield _cut(case, where, part)
    for p, a in axes.items():
        array = case.arrays[p]
        if a.variadic and array.ndim > a.rank and not a.before and array.shape[0]:
            yield case.with_array(p, array[0])


def _cut(case: Case, where: list[tuple[str, int]], part: slice) -> Case:
    arrays = dict(case.arrays)
    for p, i in where:
        index = (slice(None),) * i + (part,)
        arrays[p] = np.asarray(arrays[p][index])
    return replace(case, arrays=arrays)


def _numbers(case: Case) -> Iterator[Case]:
    """Simpler number parameters."""
    for p, value in case.numbers.items():
        if case.rule.numbers[p] == "float":
            for simple in (1.0, 2.0, 0.0):
                if simple == value:
                    break
                yield replace(case, numbers={**case.numbers, p: simple})


def _arrays(case: Case) -> Iterator[Case]:
    """Whole arrays of ones, zeros or whole numbers."""
    for p, array in case.arrays.items():
        if array.dtype.kind != "f":
            continue
        for simple in (np.zeros(array.shape), np.ones(array.shape), np.round(array)):
            if np.array_equal(simple, array):
                break
            yield case.with_array(p, simple)


def _elements(case: Case) -> Iterator[Case]:
    """Single elements that become 0, 1, 2, or lose digits."""
    for p, array in case.arrays.items():
        if array.dtype.kind not in "fiu" or array.size > MOST_ELEMENTS:
            continue
        for i, value in enumerate(array.ravel().tolist()):
            for simple in _simpler(value):
                if simple < 0 and array.dtype.kind == "u":
                    continue
                changed = array.copy()
                changed.flat[i] = simple
                yield case.with_array(p, changed)


def _simpler(value: float) -> list[float]:
    if value in (0, 1) or math.isnan(value):
        return []
    options = [0.0, 1.0, 2.0, -1.0]
    if math.isfinite(value):
        options += [round(value), round(value, 1), float(f"{value:.1e}")]
    kept: list[float] = []
    for o in options:
        if o == value:
            break
        kept.append(o)
    return kept


# -- as code ---------------------------------------------------------------------------


def as_code(case: Case, reason: str, left: Any, right: Any) -> str:
    """Python code that shows the counterexample when it is pasted into a prompt."""
    rule = case.rule
    lines = ["import numpy as np"]
    if case.dtype == BF16:
        lines.append("from ml_dtypes import bfloat16")
    lines += ["import eqsat as eq", "from eqsat.rulelang.rule_sides import sides", ""]
    lines.append(f"rule = {_loaded(rule)}")
    for p in rule.params:
        value = case.numbers[p] if p in case.numbers else array_code(case.rounded(p))
        lines.append(f"{p} = {_literal(value)}")
    lines.append(f"left, right = sides(rule, {', '.join(rule.params)})")
    lines.append(f"# {reason}")
    for name, values in (("left", left), ("right", right)):
        shown = values[0] if len(values) == 1 else tuple(values)
        if len(values):
            text = " ".join(repr(np.asarray(v).tolist()) for v in values)
            lines.append(f"# {name}: {text if len(text) < 400 else repr(shown)[:400]}")
    return "\n".join(lines).replace("\n...", "\n# ...")


def _loaded(rule: Rule) -> str:
    stock = next((r for r in default_rules() if r.name == rule.name), None)
    known = stock is not None and stock.place == rule.place
    rules = "eq.default_rules()" if known else f"eq.load_rules({rule.file!r})"
    return f'{rules}["{rule.name}"]{".reverse" if rule.backwards else ""}'


def array_code(array: Array) -> str:
    name = "bfloat16" if array.dtype == BF16 else repr(str(array.dtype))
    wide = array.astype(float) if array.dtype.kind not in "biu" else array
    text = repr(wide.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    if array.size:
        return f"np.array({text}, {name})"
    return f"np.zeros({array.shape}, {name})"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return value if isinstance(value, str) else repr(value)
