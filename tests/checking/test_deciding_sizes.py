"""Sizes decide: a rule that holds for small arrays alone is refused, and a proof that
covers the sizes that follow from a rule covers all."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples

import eqsat as eq
from eqsat.checking.draws import Case
from eqsat.checking.proofs.deciding_sizes import _grid, _Unisolvent, deciding
from eqsat.checking.proofs.needed_sizes import Needed, sizes_needed
from eqsat.checking.proofs.proof import prove
from eqsat.checking.proofs.size_degrees import SizeDegree, SizesOfTerms
from eqsat.ops import (
    add,
    conv2d,
    divide,
    exp,
    mean,
    multiply,
    reshape_op,
    slice_op,
    sqrt,
)
from eqsat.ops import sum as total
from eqsat.ops import transpose_op as transposed
from eqsat.rulelang import entry, length
from eqsat.terms import INPUT, Axis, Ints, TermGraph
from eqsat.trace import Tracer

ROW: Any = {"axis": -1, "keepdims": True}


def count(x: Any) -> Any:
    """How many elements a row has, without the size."""
    return total(x * 0.0 + 1.0, **ROW)


def zeros(n: Any, roots: int) -> Any:
    """n (n - 1) … of as many factors."""
    made = n * 1.0
    for k in range(1, roots):
        made = made * (n - float(k))
    return made


def of(signature: str, sides: Any, **options: Any) -> eq.Rule:
    sides.__doc__ = "A rule of a table."
    return eq.rule(signature, name="case", **options)(sides)


def size_of(x: Any) -> Any:
    return x.shape[-1]


def turned(x: Any, p: Any, times: int) -> Any:
    for _ in range(times):
        x = transposed(x, perm=p)
    return x


def permuted(times: int) -> Any:
    def sides(x, p: Ints):  # type: ignore[no-untyped-def]
        return turned(x, p, times) * 1.0, x * 1.0

    return sides


def along(x, a: Axis):  # type: ignore[no-untyped-def]
    n = total(x * 0.0 + 1.0, axis=a, keepdims=True)
    return zeros(n, 7) * x + x, x + 0.0 * n


def in_kernel(x, w):  # type: ignore[no-untyped-def]
    attrs: Any = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    n = total(w * 0.0 + 1.0, axis=(-1,), keepdims=True)
    return conv2d(x, w + w * zeros(n, 7), **attrs), conv2d(x, w + n * 0.0, **attrs)


def conjugate(x, p: Ints):  # type: ignore[no-untyped-def]
    return transposed(exp(x), perm=p), exp(transposed(x, perm=p))


SMALL = {
    "a number of eight roots": (
        "... n",
        lambda x: (x * (size_of(x) - 1) * (size_of(x) - 2) * (size_of(x) - 3), x * 0.0),
    ),
    "roots up to 8": (
        "... n",
        lambda x: (x * np.prod([size_of(x) - k for k in range(9)]) + x, x + 0.0 * x),
    ),
    "a count without the size": (
        "... n",
        lambda x: (zeros(count(x), 9) * x + x, x + 0.0 * count(x)),
    ),
    "a count in a function": (
        "... n",
        lambda x: (exp(zeros(count(x), 9) * 1e-5) * x, x + 0.0 * count(x)),
    ),
    "a count in a quotient": (
        "... n",
        lambda x: (x / (1.0 + zeros(count(x), 9)), x + 0.0 * count(x)),
    ),
    "a count of two axes": (
        "m n",
        lambda x: (
            zeros(count(x), 4) * zeros(count(x.mT).mT, 4) * x + x,
            x + 0.0 * (count(x) + count(x.mT).mT),
        ),
    ),
    "a count along an axis": ("...", along),
    "a remainder": ("... n", lambda x: (x * (size_of(x) // 9) + x, x + 0.0 * x)),
    "a remainder of 11": (
        "... n",
        lambda x: (x * ((size_of(x) + 10) // 11) + x, x + x),
    ),
    "a long slice": ("... n", lambda x: (x[..., :12] * 2.0, x + x)),
    "a slice at the end": ("... n", lambda x: (x[..., -12:] * 2.0, x + x)),
    "what is behind a long slice": (
        "... n",
        lambda x: (
            x[..., 9:].sum(axis=-1, keepdims=True) + x.sum(axis=-1, keepdims=True),
            x.sum(axis=-1, keepdims=True) * 1.0,
        ),
    ),
    "a long step": ("... n", lambda x: (x[..., ::9] * 2.0, x[..., :1] + x[..., :1])),
    "two slices": ("n", lambda x: (x[2:][:7] * 2.0, x[2:] + x[2:])),
    "Newton's identity of two elements": (
        "... n",
        lambda x: (
            total(x, **ROW) ** 3.0 + 2.0 * total(x**3.0, **ROW),
            3.0 * total(x, **ROW) * total(x**2.0, **ROW),
        ),
    ),
    "Newton's identity of three elements": (
        "... n",
        lambda x: (
            total(x, **ROW) ** 4.0
            + 3.0 * total(x**2.0, **ROW) ** 2.0
            + 8.0 * total(x, **ROW) * total(x**3.0, **ROW),
            6.0 * total(x, **ROW) ** 2.0 * total(x**2.0, **ROW)
            + 6.0 * total(x**4.0, **ROW),
        ),
    ),
    "a kernel": ("b i h v, o i p q", in_kernel),
    "permutations of six axes": ("...", permuted(60)),
}
"""What holds for some sizes and not for others."""
ALL_SIZES = {
    "a number": ("... n", lambda x: (x * size_of(x) + x, x * (size_of(x) + 1))),
    "a count": ("... n", lambda x: (total(x * 0.0 + 3.0, **ROW), count(x) * 3.0)),
    "variance": (
        "... n",
        lambda x: (
            mean(x**2.0, **ROW) - mean(x, **ROW) ** 2.0,
            mean((x - mean(x, **ROW)) ** 2.0, **ROW),
        ),
    ),
    "a root of a mean": (
        "... n",
        lambda x: (
            x / sqrt(mean(x * x, **ROW) + 1.0),
            x / sqrt(total(x * x, **ROW) / size_of(x) + 1.0),
        ),
    ),
    "slices of a long axis": (
        "... n",
        lambda x: (x[..., :12] * 2.0, x[..., :12] + x[..., :12]),
    ),
    "remainders": (
        "... n",
        lambda x: (x * (size_of(x) // 3) * 2.0, x * (2.0 * (size_of(x) // 3))),
    ),
    "a quotient by a count": (
        "... n",
        lambda x: (
            divide(x, count(x) + 1.0),
            x * (1.0 / (size_of(x) + 1.0)) + 0.0 * count(x),
        ),
    ),
    "a product": (
        "m k, k n",
        lambda x, y: (total(x @ y, **ROW), x @ total(y, **ROW)),
    ),
    "one permutation": ("...", conjugate),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", SMALL)
def test_what_holds_for_small_arrays_alone_is_refused(name: str) -> None:
    finding = eq.check(of(*SMALL[name]), lints=False).findings[0]
    assert finding.verdict == "refused"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ALL_SIZES)
def test_what_holds_for_all_sizes_is_proved(name: str) -> None:
    finding = eq.check(of(*ALL_SIZES[name]), lints=False).findings[0]
    assert finding.verdict == "proved", finding.reason


@pytest.mark.parametrize("times", [2, 6, 12, 60])
def test_a_permutation_applied_often_needs_a_long_cycle(times: int) -> None:
    r = of("...", permuted(times), dtypes="any", numerics="exact")
    assert prove(r) is None


# Slices of a stock rule, and of a long axis, are proved every time.
@pytest.mark.slow
def test_composed_slices() -> None:
    def sides(x, b: Ints, s: Ints, c: Ints, v: Ints, t: Ints, u: Ints):  # type: ignore
        start = entry(b, 0) + entry(c, 0) * entry(t, 0)
        step = entry(t, 0) * entry(u, 0)
        inner = slice_op(x, starts=b, sizes=s, steps=t)
        whole = slice_op(x, starts=(start,), sizes=v, steps=(step,))
        return slice_op(inner, starts=c, sizes=v, steps=u), whole

    where = lambda x, b, s, c, v, t, u: (length(b, 1), length(c, 1))  # noqa: E731
    r = of("... n", sides, where=where, numerics="exact")
    assert eq.check(r, lints=False).findings[0].verdict == "proved"


# -- the numbers behind it -------------------------------------------------------------


def needed_of(signature: str, sides: Any, *shapes: tuple[int, ...]) -> Any:
    r = of(signature, sides)
    arrays = {p: np.ones(s) for p, s in zip(r.tensors, shapes, strict=True)}
    return sizes_needed(r, Case(r, np.dtype("f8"), arrays, {}))


def test_sizes_needed() -> None:
    """No size for what is element-wise; two for a sum; above what a slice reaches."""
    assert needed_of("n, n", lambda x, y: (x + y, y + x), (3,), (3,)) == {}
    found = needed_of(*ALL_SIZES["a product"], (2, 3), (3, 4))
    assert {a: n.degree for a, n in found.items()} == {"k": 1, "n": 1}
    assert all(n.least >= 3 for n in found.values())
    found = needed_of("n", SMALL["two slices"][1], (20,))
    assert found["n"].least > 9 and found["n"].period == 1
    assert needed_of("n", SMALL["a remainder"][1], (9,))["n"].period == 9


TREES = st.recursive(
    st.sampled_from(["one", "size", 2.0, 3.0]),
    lambda t: st.tuples(st.sampled_from("+*"), t, t) | st.tuples(st.just("sum"), t),
    max_leaves=7,
)
"""Polynomials in the size of one axis."""


def at_size(tree: Any, n: int) -> Any:
    if tree == "one":
        return Fraction(1)
    if tree == "size":
        return Fraction(n)
    if isinstance(tree, float):
        return Fraction(tree)
    args = [at_size(t, n) for t in tree[1:]]
    if tree[0] == "sum":
        return n * args[0]
    return args[0] + args[1] if tree[0] == "+" else args[0] * args[1]


@examples(100)
@given(TREES)
def test_degrees_bound_polynomials(tree: Any) -> None:
    """The differences of one order more are 0."""
    graph = TermGraph(sources=False)
    x = graph.node(INPUT, (), (0,), (np.dtype("f8"), (5,)))
    size = graph.node(INPUT, (), (1,), (np.dtype("f8"), ()))

    def built(t: Any) -> Any:
        if isinstance(t, str):
            return Tracer(size) if t == "size" else Tracer(x)
        if isinstance(t, float):
            return Tracer(x) * t
        args = [built(a) for a in t[1:]]
        if t[0] == "sum":
            return add(multiply(Tracer(x), 0.0), total(args[0] + Tracer(x), **ROW))
        return add(*args) if t[0] == "+" else multiply(*args)

    work = SizesOfTerms({x: (frozenset("n"),)}, {size: SizeDegree(Counter("n"))})
    top = built(tree).term
    degree = work.needed([top], [top]).num["n"]
    values = [at_size(tree, n) for n in range(1, degree + 4)]
    for _ in range(degree + 1):
        values = [b - a for a, b in itertools.pairwise(values)]
    assert not any(values)


def test_points_are_kept_until_they_decide() -> None:
    """Of a polynomial of degree 1 in each of two sizes: four points, of which no line
    holds three."""
    needed = [Needed(1, 1), Needed(1, 1)]
    group = _Unisolvent(needed)
    for point in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]:
        group.add(point, None)  # type: ignore[arg-type]
    assert len(group.cases) == 3 and not group.full
    group.add((2, 2), None)  # type: ignore[arg-type]
    assert group.full


def test_sizes_that_a_condition_does_not_admit_are_left_out() -> None:
    r = of("n", lambda x: (x * 1.0, x + 0.0), where=lambda x: x.shape[0] % 2 == 0)
    base = Case(r, np.dtype("f8"), {"x": np.ones(4)}, {})
    grid = _grid(base, {"n": Needed(1, 2)})
    assert grid is not None
    assert sorted(c.arrays["x"].size for c in grid) == [2, 4, 6]


def test_what_no_polynomial_describes_is_not_decided() -> None:
    r = of("n", lambda x: (np.prod(x * 2.0, keepdims=True), np.prod(x, keepdims=True)))
    base = Case(r, np.dtype("f8"), {"x": np.ones(4)}, {})
    assert not deciding(r, [base]).whole


def test_merged_axes_count_both() -> None:
    """The sum over an axis that a reshape made of two."""

    def sides(x):  # type: ignore[no-untyped-def]
        m, n = x.shape
        flat = reshape_op(x * 0.0 + 1.0, shape=(m * n,))
        return total(flat, keepdims=True), total(flat * 1.0, keepdims=True)

    found = needed_of("m n", sides, (2, 3))
    assert sum(n.degree for n in found.values()) >= 1
