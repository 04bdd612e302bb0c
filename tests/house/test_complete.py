"""Every op × backend × dtype: code of the backend's own, or a fallback that it states.

Nothing here names ops: arguments are found by asking an op's type rule, and what
becomes of it by lowering a program of the op alone. So an op that is new is checked
without a word here. As a script this prints the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from sizes import some

from eqsat import define, ops
from eqsat.backends import numpy as numpy_backend
from eqsat.backends.gpu import Generated, parts_of
from eqsat.backends.gpu.c_code import DIALECTS
from eqsat.backends.loop_ir import (
    Layout,
    Unsupported,
)
from eqsat.backends.native.machine import host
from eqsat.backends.native.plan import Layered, Places
from eqsat.backends.numpy import interpret
from eqsat.kernels import Program, packed
from eqsat.support import BackendError, EqsatError
from eqsat.terms import (
    BF16,
    ELLIPSIS,
    INPUT,
    Axis,
    BySignature,
    Op,
    ReducedAxes,
    Term,
    TermGraph,
    apply,
)

DTYPES = [np.dtype(bool), *(np.dtype(f"{k}{n}") for k in "iu" for n in (1, 2, 4, 8))]
DTYPES += [np.dtype("f2"), BF16, np.dtype("f4"), np.dtype("f8")]
CODE, LIBRARY, REFUSED = "code", "library", "refused"
"""A backend's own code; what it hands on, with a reason; a dtype that the op refuses.
"""

# -- programs of one op ----------------------------------------------------------------

SHAPES = [(4, 4), (4,), (5, 4), (1, 4, 4, 4), (4, 4, 1, 1), (4, 1, 1), ()]
SETTINGS: dict[str, Sequence[Any]] = {
    "Axis": [(-1,)],
    "Ints": [(4, 4), (1, 1), (0, 0), (-1, -2), (4,)],
    "int": [-1, 1, 4],
    "bool": [0],
    "float": [0.5],
    "str": ["add", "stable", "svdvals", "with_parts", "{}"],
    "DTypeName": ["float32"],
}
"""What attributes of each kind may be, to try."""


def settings(op: Op) -> Iterator[dict[str, Any]]:
    """Attributes to try: what the op offers, else its defaults, else any."""
    tried = [
        op.choices.get(n)
        or ([op.attr_defaults[n]] if n in op.attr_defaults else SETTINGS[kind])
        for n, kind in op.attrs.items()
    ]
    for values in itertools.product(*tried):
        yield dict(zip(op.attrs, values, strict=True))


def shapes(op: Op) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Shapes of arguments to try; those of a signature are known."""
    if isinstance(op.type_rule, BySignature):
        for rest in (4, 4), ():  # what "..." stands for
            inputs = op.type_rule.signature.inputs
            yield tuple(tuple(_sizes(a.tokens, rest)) for a in inputs)
        return
    yield from itertools.product(SHAPES, repeat=2 if op.variadic else len(op.params))


def _sizes(tokens: Sequence[Any], rest: Sequence[int]) -> Iterator[int]:
    for t in tokens:
        yield from rest if t == ELLIPSIS else [t if isinstance(t, int) else 4]


@dataclass(frozen=True)
class Case:
    """A program of one op, and arrays to run it with."""

    program: Program
    arrays: list[Any]


@cache
def case_of(op: Op, dtype: np.dtype[Any]) -> Case | None:
    """``op`` of arrays of ``dtype``; None where it refuses them."""
    owns = [np.dtype(np.int64), np.dtype(bool)] if op.own else [dtype]
    for given, attrs in itertools.product(shapes(op), settings(op)):
        for own in owns:
            kinds = [own if i in op.own else dtype for i in range(len(given))]
            try:
                return _case(op, kinds, given, attrs)
            except (EqsatError, AttributeError, LookupError, ValueError):
                continue
    return None


def _case(
    op: Op, kinds: Sequence[Any], given: Sequence[Any], attrs: dict[str, Any]
) -> Case:
    graph = TermGraph(sources=False)
    args: list[Any] = []
    inputs: list[Term] = []
    arrays: list[Any] = []
    for i, (kind, shape) in enumerate(zip(kinds, given, strict=True)):
        if shape == () and isinstance(op.type_rule, BySignature):  # a bare number
            args.append(0.5 if kind.kind not in "biu" else 1)
            continue
        inputs.append(graph.node(INPUT, (), (len(inputs),), (kind, shape)))
        args.append(inputs[-1])
        whole = kind.kind in "biu"
        arrays.append((elements(shape, whole) * (i not in op.own)).astype(kind))
    case = Case(Program.of([apply(op, graph, args, attrs)], inputs), arrays)
    with suppress(NotImplementedError):
        interpret(case.program.roots, arrays)  # which refuses what types let through
    return case


def elements(shape: tuple[int, ...], whole: bool) -> Any:
    """Elements of matrices that have an inverse, ``whole`` ones too."""
    x = np.full(shape, 0.0 if whole else 0.5)
    return x + np.eye(*shape[-2:]) if x.ndim >= 2 else x


# -- what becomes of them --------------------------------------------------------------


def by_numpy(case: Case) -> str:
    """NumPy's calls, or the reference of the op: both are run."""
    low = numpy_backend.lower(case.program)
    with np.errstate(all="ignore"):
        low.run(*case.arrays)
    return "reference" if "_reference(" in low.source else CODE


def by_native(case: Case) -> str:
    program = case.program
    layouts = [Layout(packed(t.shape)) for t in program.inputs]
    reasons = Layered(program, Places(program, layouts), host(), 1).reasons
    return "; ".join(dict.fromkeys(reasons.values())) if reasons else CODE


def by_gpu(language: str) -> Callable[[Case], str]:
    def asked(case: Case) -> str:
        try:
            kernels = case.program.kernels
            parts = [p for k in kernels for p in parts_of(k, dialect, {})]
        except Unsupported as why:
            return str(why)
        return CODE if all(isinstance(p, Generated) for p in parts) else LIBRARY

    dialect = DIALECTS[language]
    return asked


def by_mlx(case: Case) -> str:
    from eqsat.backends import mlx

    low = mlx.lower(case.program, "")
    low.run(*map(mlx.to_mlx, case.arrays))
    return "NumPy's" if "_by_numpy(" in low.source else CODE


BACKENDS: dict[str, Callable[[Case], str]] = {
    "numpy": by_numpy,
    "native": by_native,
    **{language: by_gpu(language) for language in sorted(DIALECTS)},
}
if find_spec("mlx") is not None:
    BACKENDS["mlx"] = by_mlx


def outcome(op: Op, backend: str, dtype: np.dtype[Any]) -> str:
    """What becomes of ``op`` of arrays of ``dtype``: empty where nothing does."""
    case = case_of(op, dtype)
    if case is None:
        return REFUSED
    try:
        return BACKENDS[backend](case)
    except BackendError as why:
        return str(why)
    except NotImplementedError:
        return ""


CATALOGUE = [
    op
    for op in Op.registry.values()
    if id(op) in ops.STOCK and op.kind not in ("leaf", "kernel")
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", sorted({op.kind for op in CATALOGUE}))
def test_every_op_has_code_or_a_stated_fallback(kind: str, backend: str) -> None:
    for op in CATALOGUE:
        if op.kind == kind:
            chosen = some(DTYPES, 2, op.name)
            found = {d.name: outcome(op, backend, d) for d in chosen}
            if {*found.values()} == {REFUSED}:
                found = {d.name: outcome(op, backend, d) for d in DTYPES}
            assert all(found.values()), (op.name, found)
            assert {*found.values()} != {REFUSED}, (
                f"no arguments of {op.name} are tried"
            )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["pointwise", "reduce", "view", "library", "contract"])
def test_an_op_without_either_is_found(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No backend takes an op that it does not know for one that it does."""
    monkeypatch.setattr(Op, "registry", dict(Op.registry))
    op = planted(kind)
    found = outcome(op, backend, np.dtype("f4"))
    if backend in ("numpy", "mlx"):
        assert found == ""
    else:
        assert found not in ("", CODE)


def planted(kind: str) -> Op:
    """An op that nothing computes."""

    def reference(x: Any) -> Any:
        raise NotImplementedError

    def reduced(x: Any, *, axis: Axis) -> Any:
        raise NotImplementedError

    if kind == "reduce":
        return define.op(ReducedAxes(), kind=kind, name="nothing")(reduced)
    return define.op("... -> ...", kind=kind, name="nothing")(reference)


def table() -> Iterator[str]:
    """The table: of each op and backend, what becomes of which dtypes."""
    for op in CATALOGUE:
        for backend in BACKENDS:
            found: dict[str, list[str]] = {}
            for d in DTYPES:
                found.setdefault(outcome(op, backend, d), []).append(d.name)
            cells = [f"{' '.join(names)}: {what}" for what, names in found.items()]
            yield f"{op.kind:10} {op.name:28} {backend:7} {'; '.join(cells)}"


if __name__ == "__main__":
    print(*table(), sep="\n")
