"""The kernel language: listings of kernels, and index expressions against NumPy's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from families import view
from hypothesis import given
from hypothesis import strategies as st
from natives import fused
from programs import program_of, terms_of
from sizes import seeds

import eqsat as eq
from eqsat import ops
from eqsat.backends.loop_ir.index_maps import (
    ZERO,
    Affine,
    Layout,
    LoopVar,
    Split,
    Unsupported,
    address,
    broadcast_index,
    covers,
    reshape_index,
    slice_index,
    spread,
    transpose_index,
)
from eqsat.backends.loop_ir.nest import (
    Operand,
)
from eqsat.backends.loop_ir.pieces import (
    Loops,
    Piece,
)
from eqsat.backends.numpy import interpret
from eqsat.backends.to_loops.lower import (
    pieces_of,
)
from eqsat.backends.to_loops.schedule import (
    LoopTarget,
)
from eqsat.backends.to_loops.values import (
    Conflict,
    Values,
)
from eqsat.kernels.kernel import Kernel, packed
from eqsat.ops.pointwise import cast
from eqsat.ops.position import pad
from eqsat.ops.transcendental import tanh
from eqsat.ops.view import concatenate, reshape
from eqsat.terms.op import Axis, Op
from eqsat.terms.op_factories import op
from eqsat.terms.type_rules import ReducedAxes

sizes = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
shapes = st.lists(sizes, min_size=1, max_size=4).map(tuple)

# -- listings --------------------------------------------------------------------------


def array(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def of_ops(f: Callable[..., Any], *arrays: Any) -> tuple[Kernel, ...]:
    """The kernels of ``f``, one an op."""
    return tuple(program_of(f, *arrays).kernels)


def chosen(f: Callable[..., Any], *arrays: Any) -> tuple[Kernel, ...]:
    """The kernels that the optimiser makes of ``f``."""
    options = eq.Options()
    low = eq.jit(f, backend="native", options=options).lower(*arrays)
    return tuple(low.program.kernels)


def residual(x: Any, r: Any, w: Any) -> Any:
    h = x + r
    return h, ops.rms_norm(h, w)


X, W = array(6, 32), array(32)
KERNELS: dict[str, tuple[tuple[Kernel, ...], int]] = {
    "map of a broadcast": (of_ops(fused(lambda x, w: tanh(x * w) + x, 2), X, W), 1),
    "halves": (of_ops(fused(lambda x: cast(x * 2.0, "f4"), 1), X.astype("f2")), 1),
    "softmax": (of_ops(ops.softmax, X), 1),
    "softmax of columns": (of_ops(lambda x: ops.softmax(x, axis=0), X), 1),
    "layer norm": (of_ops(ops.layer_norm, X, W, W), 1),
    "residual and norm": (chosen(residual, X, X, W), 1),
    "group norm": (
        of_ops(
            lambda *a: ops.group_norm(*a, groups=2), array(3, 4, 5, 6), *[array(4)] * 2
        ),
        1,
    ),
    "sum of columns": (of_ops(lambda x: ops.sum(x, 0), X), 1),
    "sum of a middle axis": (of_ops(lambda x: ops.sum(x, 1), array(3, 4, 5)), 1),
    "sum of all with 4 threads": (of_ops(lambda x: ops.sum(x), array(300, 400)), 4),
    "position of the largest": (of_ops(lambda x: ops.argmax(x, 1), X), 1),
    "map of a transpose": (of_ops(fused(lambda x, y: x.mT + y, 2), X, array(32, 6)), 1),
    "reverse and steps": (of_ops(fused(lambda x: x[::-1, 1::3] * 2.0, 1), X), 1),
    "reshape that splits": (
        of_ops(fused(lambda x, y: reshape(x, (12, 16)).mT + y, 2), X, array(16, 12)),
        1,
    ),
    "concatenate": (of_ops(fused(lambda x: concatenate([x, tanh(x)], 1), 1), X), 1),
    "pad": (of_ops(fused(lambda x: pad(tanh(x), ((1, 0), (2, 3))), 1), X), 1),
    "gelu epilogue": (
        of_ops(lambda *a: ops.linear(*a, act="gelu"), X, array(32, 8), array(8)),
        1,
    ),
    "attention": (of_ops(ops.attention, *[array(2, 5, 10)] * 2, array(2, 5, 12)), 1),
    "causal attention": (
        of_ops(lambda *a: ops.attention(*a, causal=True), *[array(2, 5, 10)] * 3),
        1,
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_listings(name: str, golden: Callable[[str, str], None]) -> None:
    kernels, threads = KERNELS[name]
    texts = [
        described(piece)
        for k in kernels
        for piece in pieces_of(k, LoopTarget(threads)).pieces
    ]
    golden(f"kernel_{name.replace(' ', '_')}.txt", "\n\n".join(texts) + "\n")


def described(piece: Piece) -> str:
    """The piece as text, with what its buffers are."""
    if isinstance(piece, Loops):
        lines = [f"{b.name}: {where(o)}" for b, o in zip(
            piece.nest.buffers, piece.operands, strict=True
        )]  # fmt: skip
        return "\n".join([*lines, str(piece.nest)])
    m, n, k = piece.sizes
    x, y, out = (where(o) for o in (piece.x, piece.y, piece.out))
    batch = "".join(f"{b}×" for b in piece.batch)
    layouts = ", ".join(f"{a.strides} + {a.offset}" for a in piece.at)
    return f"{out} = {x} {y}: {batch}{m}×{k} by {k}×{n}, {piece.dtype}\n  {layouts}"


def where(operand: Operand) -> str:
    if operand.kind == "array":
        return f"input {operand.key.attrs[0]}"
    return f"{operand.kind} {operand.key}"


def test_a_kernel_names_what_loops_cannot_do() -> None:
    (kernel,) = of_ops(lambda x: ops.sort(x, -1), X)
    with pytest.raises(Unsupported, match="sort in loops"):
        pieces_of(kernel, LoopTarget())


def test_inputs_in_other_layouts_are_read_where_they_lie() -> None:
    (kernel,) = of_ops(fused(lambda x: tanh(x), 1), X)
    (x,) = kernel.inputs
    (piece,) = pieces_of(kernel, LoopTarget(), {x: Layout((-64, 2), 320)}).pieces
    assert isinstance(piece, Loops)
    assert "b0[-64 i0 + 2 i1 + 320]" in str(piece.nest)


# -- index expressions -----------------------------------------------------------------


def at_all(e: Affine, variables: Sequence[LoopVar]) -> Any:
    """The values of an expression while variables run, the last one fastest."""
    grids = np.indices([v.size for v in variables])
    known = dict(zip(variables, grids, strict=True))
    return sum((known[v] * c for v, c in e.terms), np.full(grids.shape[1:], e.offset))


def fresh(shape: Sequence[int], stem: str = "i") -> list[LoopVar]:
    return [LoopVar(f"{stem}{i}", n) for i, n in enumerate(shape)]


def elements(index: Sequence[Affine], variables: Sequence[LoopVar], shape: Any) -> Any:
    """Positions in packed memory of the elements at an index."""
    return at_all(address(tuple(index), packed(tuple(shape))), variables)


@st.composite
def expressions(draw: st.DrawFn, variables: Sequence[LoopVar]) -> Affine:
    factors = draw(st.tuples(*[st.integers(-3, 3)] * len(variables)))
    out = Affine(draw(st.integers(-5, 5)))
    for v, c in zip(variables, factors, strict=True):
        out += Affine.of(v).times(c)
    return out


VARS = fresh((2, 3, 1, 4))


@given(expressions(VARS), expressions(VARS), st.integers(-3, 3))
def test_arithmetic_of_expressions(a: Affine, b: Affine, k: int) -> None:
    x, y = at_all(a, VARS), at_all(b, VARS)
    np.testing.assert_array_equal(at_all(a + b, VARS), x + y)
    np.testing.assert_array_equal(at_all(a.times(k), VARS), x * k)
    assert a + a.times(-1) == ZERO
    assert (a == b) == (x.tolist() == y.tolist())


@given(expressions(VARS), expressions(fresh((3, 2), "j")))
def test_substitution(a: Affine, b: Affine) -> None:
    v = VARS[1]
    got = a.substituted({v: b})
    inner = fresh((3, 2), "j")
    rest = Affine(a.offset, tuple(t for t in a.terms if t[0] != v))
    want = at_all(rest, [*VARS, *inner]) + a.coefficient(v) * at_all(b, [*VARS, *inner])
    np.testing.assert_array_equal(at_all(got, [*VARS, *inner]), want)


@given(shapes, st.randoms(use_true_random=False))
def test_transposes_slices_and_broadcasts(shape: tuple[int, ...], r: Random) -> None:
    x = np.arange(math.prod(shape)).reshape(shape)
    perm = r.sample(range(-len(shape), 0), len(shape))
    y = x.transpose([p + len(shape) for p in perm])
    i = fresh(y.shape)
    index = tuple(map(Affine.of, i))
    got = elements(transpose_index(index, perm), i, shape)
    np.testing.assert_array_equal(got, y)

    cuts = [slice(r.randrange(n), None, r.choice([1, 2, -1, -2])) for n in shape]
    y = x[tuple(cuts)]
    i = fresh(y.shape)
    below = slice_index(
        tuple(map(Affine.of, i)), [c.start for c in cuts], [c.step for c in cuts]
    )
    np.testing.assert_array_equal(elements(below, i, shape), y)

    y = np.broadcast_to(x, (2, *(3 if n == 1 else n for n in shape)))
    i = fresh(y.shape)
    below = broadcast_index(tuple(map(Affine.of, i)), shape)
    np.testing.assert_array_equal(elements(below, i, shape), y)


def split_until_known(shape: Sequence[int], below: Sequence[int]) -> Any:
    """The variables and the index of a reshape, split as far as it asks for."""
    splits: dict[str, int] = {}
    while True:
        values = Values({}, splits)
        index = values.index("i", tuple(shape))
        try:
            found = reshape_index(index, tuple(shape), tuple(below))
        except Split as split:
            assert 1 < split.inner < split.var.size
            assert split.var.size % split.inner == 0
            assert split.var.name not in splits
            splits[split.var.name] = split.inner
            continue
        return [v for e in index for v in sorted(e.variables)], found


@given(shapes, st.randoms(use_true_random=False))
def test_reshapes(shape: tuple[int, ...], r: Random) -> None:
    """From factors of a shape, joined otherwise; none cuts across another's axes."""
    primes = [p for n in shape for p in factors(n)]
    joined = [1]
    for p in primes:
        if r.random() < 0.5:
            joined[-1] *= p
        else:
            joined.append(p)
    for new, old in ((joined, shape), (shape, joined)):
        variables, index = split_until_known(new, old)
        got = elements(index, variables, old)
        np.testing.assert_array_equal(got.ravel(), np.arange(math.prod(shape)))


@given(shapes, st.randoms(use_true_random=False))
def test_slices_of_reshapes(shape: tuple[int, ...], r: Random) -> None:
    """Where there is an index, it is right; aligned parts of an axis have one."""
    whole = math.prod(shape)
    ends = [slice(0, n, 1) for n in shape]
    axis = r.randrange(len(shape))
    n = shape[axis]
    parts = r.choice([p for p in range(1, n + 1) if n % p == 0])
    is_aligned = r.random() < 0.5
    first = r.randrange(parts) * (n // parts) if is_aligned else r.randrange(n)
    end = first + n // parts if is_aligned else r.randint(first + 1, n)
    ends[axis] = slice(first, end, 1)
    y = np.arange(whole).reshape(shape)[tuple(ends)]
    i = fresh(y.shape)
    cut = slice_index(
        tuple(map(Affine.of, i)), [c.start for c in ends], [c.step for c in ends]
    )
    try:
        index = reshape_index(cut, shape, (whole,))
    except Unsupported:
        assert not is_aligned
        return
    np.testing.assert_array_equal(elements(index, i, (whole,)), y)


def factors(n: int) -> list[int]:
    """The prime factors of a number of :data:`sizes`."""
    found = []
    for p in (2, 2, 2, 3):
        if n % p == 0:
            found.append(p)
            n //= p
    return found


def test_reshapes_across_axes_have_no_index() -> None:
    for new, old in (((2, 3), (3, 2)), ((4, 9), (6, 6)), ((10,), (2, 5))):
        if new == (10,):
            split_until_known(new, old)
            continue
        with pytest.raises(Unsupported, match="cuts across axes"):
            split_until_known(new, old)
    i = Affine.of(LoopVar("i", 4))
    with pytest.raises(Unsupported, match="under a reshape"):
        reshape_index((i.times(-1) + Affine(3),), (4,), (2, 2))
    with pytest.raises(Split, match="i into 2×2"):
        reshape_index((i,), (4,), (2, 2))


@given(shapes, st.randoms(use_true_random=False))
def test_variables_spread_over_axes(shape: tuple[int, ...], r: Random) -> None:
    variables = fresh([p for n in shape for p in factors(n)] or [1])
    index = spread(variables, shape)
    got = elements(index, variables, shape)
    np.testing.assert_array_equal(got.ravel(), np.arange(math.prod(shape)))
    assert covers(index, shape)
    if math.prod(shape) > 1:
        assert not covers(tuple(ZERO for _ in shape), shape)


@given(seeds, shapes, st.integers(1, 5))
def test_addresses_below_chains_of_views(
    seed: int, shape: tuple[int, ...], steps: int
) -> None:
    """The values of a kernel that only moves elements are one load."""
    x = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)

    def f(x: Any) -> Any:
        r = Random(seed)
        for _ in range(steps):
            y = view(r, x)
            x = x if y.term.op.name in ("concatenate", "pad") else y
        return x

    (root,), (leaf,) = terms_of(f, [x])
    found = loaded(root, {leaf: ("x", Layout(packed(shape)))})
    if found is not None:
        variables, at = found
        (want,) = interpret([root], [x])
        np.testing.assert_array_equal(at_all(at, variables).ravel(), want.ravel())


def loaded(root: Any, memory: Mapping[Any, Any]) -> Any:
    """The variables and the address of a term that is a view of memory; None where a
    reshape cuts across axes."""
    splits: dict[str, int] = {}
    while True:
        values = Values(memory, splits)
        index = values.index("i", root.shape)
        try:
            value = values.values[values.root(root, index)]
        except Split as split:
            splits[split.var.name] = split.inner
            continue
        except Conflict as conflict:
            assert conflict.term.op.name == "reshape"
            return None
        assert value.op == "load"
        return [v for e in index for v in sorted(e.variables)], value.at


def test_a_users_reduction_is_not_taken_for_one_of_ours() -> None:
    """What no backend knows how to join is a library call, not another reduction."""

    @op(ReducedAxes(), kind="reduce")
    def sum_of_squares(x: Any, *, axis: Axis) -> Any:
        return np.sum(x * x, axis=axis, keepdims=True)

    try:
        x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        for f in (lambda x: sum_of_squares(x, axis=-1), of_squares(sum_of_squares)):
            fast = eq.jit(f, backend="native")
            np.testing.assert_allclose(fast(x), f(x), rtol=1e-6)
            reasons = fast.lower(x).executable.reasons
            assert "sum_of_squares in loops" in reasons.values()
    finally:
        del Op.registry["sum_of_squares"]


def of_squares(sum_of_squares: Callable[..., Any]) -> Callable[..., Any]:
    """A user's reduction between ops that would be one kernel with it."""
    return lambda x: sum_of_squares(np.tanh(x) * 2, axis=-1) + 1
