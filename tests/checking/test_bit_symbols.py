"""Two expressions with one symbol are the same bits, for every value of every dtype."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

from eqsat.checking.draws import UNDEFINED
from eqsat.checking.draws.cases import FLOATS, INTEGERS, SPECIAL
from eqsat.checking.proofs.bit_symbols import STRICT, Symbols, _keeps, symbols_of
from eqsat.checking.verdict import bits_differ
from eqsat.ops import (
    absolute,
    add,
    cast,
    divide,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    reciprocal,
    sqrt,
    square,
    subtract,
    where,
)
from eqsat.rulelang import evaluate
from eqsat.terms import BF16, INPUT, Op, TermGraph
from eqsat.trace import Tracer

Made = Callable[[Any, Any], Any]
ONE = (negative, square, absolute, reciprocal, sqrt, lambda v: cast(v, dtype="float64"))
TWO = (add, subtract, multiply, multiply, divide, maximum, minimum)
COMPARED = (less, less_equal, greater, greater_equal, equal, not_equal)
JOINED = (logical_and, logical_or, logical_xor)
LITERALS = (1.0, -1.0, 2.0, 0.5, 0.25, -0.0, 0.0, 0.1, -3.0)
DTYPES = ("f2", "bfloat16", "f4", "f8", "i1", "u1", "i8", "?")


def drawn(rng: random.Random, depth: int) -> Made:
    """An expression of x and y."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice((lambda x, y: x, lambda x, y: y))
    a, b = drawn(rng, depth - 1), drawn(rng, depth - 1)
    kind = rng.randrange(10)
    if kind < 3:
        f = rng.choice(ONE)
        return lambda x, y: f(a(x, y))
    if kind < 6:
        g = rng.choice(TWO)
        return lambda x, y: g(a(x, y), b(x, y))
    if kind < 8:
        n, h = rng.choice(LITERALS), rng.choice((add, subtract, multiply, divide))
        return lambda x, y: h(a(x, y), n)
    if kind == 8:
        c, d = chosen(rng, a, b), rng.choice((a, b))
        return lambda x, y: where(c(x, y), d(x, y), b(x, y))
    return chosen(rng, a, b)


def chosen(rng: random.Random, a: Made, b: Made) -> Made:
    f, g, j = rng.choice(COMPARED), rng.choice(COMPARED), rng.choice(JOINED)
    if rng.random() < 0.3:
        return lambda x, y: logical_not(f(a(x, y), b(x, y)))
    if rng.random() < 0.3:
        return lambda x, y: j(f(a(x, y), b(x, y)), g(b(x, y), a(x, y)))
    return lambda x, y: f(a(x, y), b(x, y))


def values(dtype: np.dtype[Any]) -> list[np.ndarray[Any, Any]]:
    """All pairs of special values and of a few others."""
    if dtype.kind == "b":
        held: list[Any] = [False, True]
    else:
        held = [v for vs in SPECIAL[dtype].values() for v in vs]
    pairs = list(itertools.product(held, held))
    return [np.array(column, dtype) for column in zip(*pairs, strict=True)]


@pytest.mark.parametrize("name", DTYPES)
def test_one_symbol_is_the_same_bits(name: str) -> None:
    dtype = BF16 if name == "bfloat16" else np.dtype(name)
    rng, arrays = random.Random(name), values(dtype)
    found: dict[tuple[int, ...], tuple[Any, np.ndarray[Any, Any]]] = {}
    graph, s = TermGraph(sources=False), Symbols()
    leaves = [graph.node(INPUT, (), (i,), (dtype, (1,))) for i in range(2)]
    whole = TermGraph(sources=False)
    ends = [whole.node(INPUT, (), (i,), (dtype, a.shape)) for i, a in enumerate(arrays)]
    met = 0
    for _ in range(6000 if is_whole() else 500):
        made = drawn(rng, rng.randrange(1, 4))
        try:
            one = made(*map(Tracer, leaves)).term
            term = made(*map(Tracer, ends)).term
            with np.errstate(all="ignore"):
                (result,) = evaluate([term], arrays)
        except UNDEFINED:
            continue
        (symbols,) = symbols_of([one], s)
        key = (str(one.dtype), *symbols.tolist())
        if key in found:
            met += found[key][0] is not one
            assert not bits_differ(found[key][1], result), (
                str(found[key][0]),
                str(one),
            )
        found.setdefault(key, (one, np.broadcast_to(result, arrays[0].shape)))
    assert met > 20


@pytest.mark.parametrize("name", sorted(STRICT & Op.registry.keys()))
def test_what_is_called_strict_is_nan_where_an_operand_is(name: str) -> None:
    op = Op.registry[name]
    n = len(op.params)
    if op.kind == "reduce":
        attrs = {"axis": (-1,)}
        assert np.isnan(op.reference(np.array([1.0, np.nan, np.inf]), **attrs)).all()
        return
    others = (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
    with np.errstate(all="ignore"):
        for rest in itertools.product(others, repeat=n - 1):
            for at in range(n):
                args = [*rest[:at], np.nan, *rest[at:]]
                assert np.isnan(op.reference(*map(np.float64, args))), args


ALL = (*FLOATS, *INTEGERS, np.dtype("?"))


@pytest.mark.parametrize("wide", ALL, ids=str)
@pytest.mark.parametrize("narrow", ALL, ids=str)
def test_what_a_cast_keeps_comes_back(narrow: Any, wide: Any) -> None:
    """All values of narrow dtypes, and those with few or many bits of wide ones."""
    ones = [2**k - 1 for k in range(1, 64)] + [2**k + 1 for k in range(1, 64)]
    if narrow.itemsize <= 2:
        x = np.arange(256**narrow.itemsize).astype(f"u{narrow.itemsize}")
        x = x.view(narrow) if narrow.kind != "b" else x > 0
    elif narrow.kind in "iu":
        x = np.array([v for v in ones if v <= np.iinfo(narrow).max], narrow)
    else:
        near = np.array(ones, narrow)
        x = np.concatenate([near, 1 / near, -near / 3, [np.inf, np.nan, 0, -0.0]])
        x = x.astype(narrow)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        back = x.astype(wide).astype(narrow)
        differs = bits_differ(x, back)
    assert not (_keeps(narrow, wide) and differs)


def whole(x: Any) -> Any:
    return cast(x, dtype="int64")


FALSE = {
    "zero added": lambda x, y: (x + 0.0, x),
    "associates": lambda x, y: ((x + y) + y, x + (y + y)),
    "distributes": lambda x, y: (x * (y + 1.0), x * y + x),
    "not less": lambda x, y: (logical_not(x < y), x >= y),
    "negated sum": lambda x, y: (-(x + y), -x + -y),
    "zero product": lambda x, y: (x * 0.0, y * 0.0),
    "reciprocal": lambda x, y: (x / y, x * (1.0 / y)),
    "third": lambda x, y: (x / 3.0, x * (1.0 / 3.0)),
    "larger": lambda x, y: (maximum(x, y), maximum(y, x)),
    "root of square": lambda x, y: (sqrt(square(x)), absolute(x)),
    "selected": lambda x, y: (where(x > y, x, y), where(y < x, y, x)),
    "many bits": lambda x, y: (whole(x) + 2**60, whole(x) + (2**60 + 1)),
    "rounded integers": lambda x, y: (
        cast(cast(whole(x), dtype="float64"), dtype="int64"),
        whole(x),
    ),
    "narrowed": lambda x, y: (cast(cast(x, dtype="float16"), dtype="float64"), x + y),
}


def test_what_is_the_same_bits_has_one_symbol() -> None:
    same: tuple[Made, Made] = (lambda x, y: x < y), (lambda x, y: y > x)
    graph, s = TermGraph(sources=False), Symbols()
    leaves = [graph.node(INPUT, (), (i,), (np.dtype("f8"), (1,))) for i in range(2)]
    a, b = symbols_of([f(*map(Tracer, leaves)).term for f in same], s)
    assert a == b


@pytest.mark.parametrize("name", FALSE)
def test_what_is_not_the_same_bits_has_two_symbols(name: str) -> None:
    graph, s = TermGraph(sources=False), Symbols()
    leaves = [graph.node(INPUT, (), (i,), (np.dtype("f8"), (1,))) for i in range(2)]
    left, right = FALSE[name](*map(Tracer, leaves))
    a, b = symbols_of([left.term, right.term], s)
    assert a != b
