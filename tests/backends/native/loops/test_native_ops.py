"""Every op in machine code against its reference: all dtypes, layouts, odd values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

import families
import numpy as np
import pytest
from agreement import BF16, FLOATS
from families import ANY_ZERO, BROADCAST, POINTWISE, SAMPLE, admitted, choices
from hypothesis import given
from hypothesis import strategies as st
from math_bounds import EXACT, LONG, bound
from natives import (
    DTYPES,
    INTEGERS,
    LAYOUTS,
    LENGTHS,
    Array,
    laid,
    layouts,
    mixed,
    near,
    run,
    same_bits,
)
from programs import program_of
from sizes import examples, seeds, some

from bench.mathematics.ulp import SCIPY, reference, ulps
from eqsat.backends.native.math import FUNCTIONS
from eqsat.backends.numpy import interpret
from eqsat.checking.bounds import PRECISION
from eqsat.ops.pointwise import cast
from eqsat.ops.view import permute
from eqsat.support.errors import EqsatError
from eqsat.terms.op import Op

lengths = st.sampled_from(LENGTHS)
ALL = slice(None)
parts = st.sampled_from([ALL, *(slice(i, None, 3) for i in range(3))])
"""Which of the dtypes: the first example has all, and others take less time."""
few = examples(2)
many = examples(60)

BY_NUMPY = {
    "gcd": INTEGERS,
    "lcm": INTEGERS,
    "reciprocal": [*INTEGERS, np.dtype(bool)],
    "nextafter": [np.dtype(d) for d in ("f2", BF16, "i1", "u1", "?")],
    **dict.fromkeys(
        "beta betaln gamma i0 i0e i1 i1e j0 j1 ndtri trigamma".split(), DTYPES
    ),
}
"""Dtypes of arguments of which NumPy computes an op."""
FEW = 16
F4_ULP, LEAST = 2.0**-23, 2.0**-149


def is_shared(x: Array, shape: tuple[int, ...]) -> bool:
    """Whether several elements of a result of ``shape`` read one of ``x``."""
    strides = np.broadcast_to(x, shape).strides
    return any(n > 1 and s == 0 for n, s in zip(shape, strides, strict=True))


def right(name: str, got: Array, args: Sequence[Array]) -> None:
    """``got`` is what the op makes of arrays of the dtype that it computes in."""
    exact = "power" if name == "float_power" else name
    dtype = args[0].dtype
    if not got.size:
        return
    if name == "divide" and dtype in FLOATS and is_shared(args[1], got.shape):
        # Of a divisor of a row the reciprocal is taken once, and a product rounded.
        p = PRECISION[dtype]
        with np.errstate(all="ignore"):
            want = args[0].astype(np.longdouble) / args[1].astype(np.longdouble)
            size = np.where(np.isfinite(want), np.abs(want), 0)
        near(got, want, (2 * p.unit + p.unit**2) * size + p.tiny)
        return
    if exact in EXACT or exact not in FUNCTIONS or dtype not in FLOATS:
        with np.errstate(all="ignore"):
            want = Op.registry[name].reference(*args)
        same_bits(got, want, signs=name not in ANY_ZERO)
    elif dtype.itemsize == 2:
        args = np.broadcast_arrays(*(a.astype(np.float32) for a in args))
        want, size = reference(exact, *args)
        size = np.abs(want if size is None else size)
        near(got, want, bound(exact) * (F4_ULP * size + LEAST))
    elif LONG or dtype == np.float32:
        args = [np.ascontiguousarray(a) for a in np.broadcast_arrays(*args)]
        if exact in SCIPY and dtype == np.float64:  # mpmath takes its time
            got, args = got.ravel()[:FEW], [a.ravel()[:FEW] for a in args]
        errors = ulps(got, *reference(exact, *args))
        worst = np.unravel_index(int(errors.argmax()), errors.shape)
        assert errors[worst] <= bound(exact), [a[worst] for a in (got, *args)]


def pointwise(
    name: str, seed: int, shapes: Sequence[Any], layout: str, dtypes: Sequence[Any]
) -> None:
    """Check an op of arrays of ``dtypes``."""
    rng = np.random.default_rng(seed)
    each, arrays = families.pointwise(name, rng, shapes, layout, dtypes)
    program = program_of(each, *arrays)
    got, reasons = run(program, arrays)
    expected = [d for d in dtypes if d in BY_NUMPY.get(name, ())]
    assert len(reasons) == len(expected), reasons
    for g, root in zip(got, program.roots, strict=True):
        right(name, g, interpret(root.args, arrays))


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_ops(name: str) -> None:
    """One dtype of each class; another length and layout for each op."""
    integers = INTEGERS[::2], INTEGERS[1::2]  # with a sign, and without
    kinds = (FLOATS[:2], FLOATS[2:], *integers, [np.dtype(bool)])
    dtypes = [[d for d in admitted(name) if d in kind] for kind in kinds]
    chosen = [d for kind in dtypes for d in some(kind, 1, kind)]
    rng = Random(name)
    n, layout = rng.choice(LENGTHS), rng.choice(LAYOUTS)
    pointwise(name, n, [(2, n), (2, n)], layout, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("name", POINTWISE)
@few
@given(seeds, lengths, layouts, parts)
def test_pointwise_ops_drawn(
    name: str, seed: int, n: int, layout: str, part: slice
) -> None:
    dtypes = some(admitted(name)[part], 3, seed, layout)
    pointwise(name, seed, [(2, n), (2, n)], layout, dtypes)


@pytest.mark.sampled(48)
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_ops_of_short_rows(name: str) -> None:
    """Rows shorter than vectors, through which these do not run on: windows of larger
    arrays, elements that lie apart, and columns that become rows."""
    op, rng = Op.registry[name], np.random.default_rng(1)
    count = len(op.params)
    dtypes = [d for d in admitted(name) if d in FLOATS] or admitted(name)[-1:]
    arrays, turned = [], []
    for d, n in product(dtypes, some(range(1, 10), 3)):
        for layout in ("window", "strided"):
            shapes = [(3, n)] * count
            made = families.arguments(name, rng, shapes, d)
            arrays += [laid(a, layout) for a in made]
        turned += families.arguments(name, rng, [(n, 5)] * count, d)

    def each(*xs: Any) -> Any:
        beside, across = xs[: len(arrays)], xs[len(arrays) :]
        rows = [permute(x, (-1, -2)) for x in across]
        return families.each_of(op, count)(*beside, *rows)

    program = program_of(each, *arrays, *turned)
    got, _ = run(program, [*arrays, *turned])
    for g, root in zip(got, program.roots, strict=True):
        right(name, g, interpret(root.args, [*arrays, *turned]))


@pytest.mark.slow
@pytest.mark.parametrize("name", POINTWISE)
@many
@given(
    seeds, lengths, layouts, st.sampled_from([((), (3, 1)), ((4, 1), ()), ((2,),) * 2])
)
def test_pointwise_ops_at_length(
    name: str, seed: int, n: int, layout: str, lead: Any
) -> None:
    dtypes = some(admitted(name), 3, seed, layout)
    pointwise(name, seed, [(*lead[0], n), (*lead[1], n)], layout, dtypes)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("shapes", BROADCAST, ids=str)
def test_shapes_that_broadcast(name: str, shapes: Any) -> None:
    for layout in ("packed", "reversed"):
        pointwise(name, 1, shapes, layout, some(admitted(name), 3, layout))


@examples(60)
@given(seeds, st.sampled_from(SAMPLE), st.lists(st.sampled_from(DTYPES), min_size=2))
def test_dtypes_meet_as_in_numpy(seed: int, name: str, dtypes: list[Any]) -> None:
    op, rng = Op.registry[name], np.random.default_rng(seed)
    arrays = [mixed(rng, (3, 17), d) for d in dtypes[: len(op.params)]]
    try:
        program = program_of(lambda *xs: op(*xs), *arrays)
    except EqsatError:
        return
    (got,), reasons = run(program, arrays)
    assert not reasons
    right(name, got, interpret(program.roots[0].args, arrays))


# -- where and cast --------------------------------------------------------------------


@few
@given(seeds, lengths, layouts)
def test_where(seed: int, n: int, layout: str) -> None:
    rng = np.random.default_rng(seed)
    for d in DTYPES:
        shapes = [(2, n), (2, n), (n,)]
        x, y, z = (laid(mixed(rng, s, d), layout) for s in shapes)
        program = program_of(choices, y != y[:1], x, z)
        got, reasons = run(program, [y != y[:1], x, z])
        assert not reasons
        for g, w in zip(got, interpret(program.roots, [y != y[:1], x, z]), strict=True):
            same_bits(g, w)


@pytest.mark.parametrize("a", DTYPES, ids=str)
@few
@given(seeds, lengths, layouts)
def test_casts(a: Any, seed: int, n: int, layout: str) -> None:
    f, arrays = families.casts(
        np.random.default_rng(seed), a, n, layout, some(DTYPES, 5, seed)
    )
    program = program_of(f, *arrays)
    got, reasons = run(program, arrays)
    assert not reasons
    with np.errstate(all="ignore"):
        for g, w in zip(got, interpret(program.roots, arrays), strict=True):
            same_bits(g, w)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cpu", [None, "generic"])
def test_every_half_and_every_rounding_to_it(dtype: str, cpu: str | None) -> None:
    """All of them widened, and the numbers between neighbours and beside those."""
    half = np.dtype(BF16 if dtype == "bfloat16" else dtype)
    all_of_them = np.arange(1 << 16, dtype=np.uint16).view(half)
    program = program_of(lambda x: cast(x, "float32"), all_of_them)
    (wide,), reasons = run(program, [all_of_them], cpu=cpu)
    assert not reasons
    with np.errstate(all="ignore"):
        same_bits(wide, all_of_them.astype(np.float32))
        finite = np.sort(wide[np.isfinite(wide)].astype(np.float64))
        middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
        inf = np.float32(np.inf)
        beside = [np.nextafter(middle, inf), np.nextafter(middle, -inf)]
        edges = np.float32([np.nan, inf, 65519, 65520, 65521, 3.39e38, 3.4028e38])
        values = np.concatenate([wide, middle, *beside, edges, -edges])
        program = program_of(lambda x: cast(x, half), values)
        (got,), reasons = run(program, [values], cpu=cpu)
        assert not reasons
        same_bits(got, values.astype(half))
