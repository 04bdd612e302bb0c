"""Every op against NumPy: the type of its term, and its value by references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import BF16, DTYPES, FLOATS, Array, agree, drawn, rounded, traced
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, mutually_broadcastable_shapes
from sizes import examples, seeds

import eqsat as eq
from eqsat import ops
from eqsat.ops.support import in_float32
from eqsat.terms.op import Op
from eqsat.terms.term import Term

quick = examples(25)
shapes = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
dtypes = st.sampled_from(DTYPES)
floats = st.sampled_from(FLOATS)


# -- pointwise -------------------------------------------------------------------------

UFUNCS = {name: op.ufunc for name, op in Op.registry.items() if op.ufunc is not None}


@pytest.mark.parametrize("name", [n for n, u in UFUNCS.items() if u.nin == 1])
@quick
@given(seeds, shapes, dtypes)
def test_a_unary_ufunc_is_numpys(name: str, seed: int, shape: Any, dtype: Any) -> None:
    agree(Op.registry[name], UFUNCS[name], drawn(seed, shape, dtype))


@pytest.mark.parametrize("name", [n for n, u in UFUNCS.items() if u.nin == 2])
@quick
@given(
    seeds,
    mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0),
    dtypes,
    dtypes,
)
def test_a_binary_ufunc_is_numpys(
    name: str, seed: int, pair: Any, a: Any, b: Any
) -> None:
    s, t = pair.input_shapes
    x, y = drawn(seed, s, a), drawn(seed + 1, t, b)
    if name in ("power", "left_shift", "right_shift"):
        y = np.asarray(np.abs(y))
    agree(Op.registry[name], UFUNCS[name], x, y)


@pytest.mark.parametrize("number", [2, 0.25, True, np.float32(0.1), np.float64(0.1)])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != BF16], ids=str)
def test_a_number_takes_on_the_dtype_of_an_array(dtype: Any, number: Any) -> None:
    x = drawn(3, (5,), dtype)
    for op in (ops.add, ops.maximum, ops.less, ops.divide):
        agree(lambda v, op=op: op(v, number), lambda v, op=op: op.ufunc(v, number), x)
        agree(lambda v, op=op: op(number, v), lambda v, op=op: op.ufunc(number, v), x)


def test_a_float_does_not_widen_bfloat16() -> None:
    x = drawn(3, (5,), BF16)
    half = BF16.type(0.5)
    agree(lambda v: ops.multiply(v, 0.5), lambda v: v * half, x)
    agree(lambda v: ops.where(v > 0, v, 0.5), lambda v: np.where(v > 0, v, half), x)


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[float])(x)


def stable_sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


POINTWISE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "erf": (ops.erf, erf),
    "sigmoid": (ops.sigmoid, stable_sigmoid),
    "rsqrt": (ops.rsqrt, lambda x: 1 / np.sqrt(x)),
    "leaky_relu": (ops.leaky_relu, lambda x: np.where(x >= 0, x, 0.01 * x)),
    "silu": (ops.silu, lambda x: x * stable_sigmoid(x)),
    "gelu": (ops.gelu, lambda x: x / 2 * (1 + erf(x / math.sqrt(2)))),
    "gelu_tanh": (
        ops.gelu_tanh,
        lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "gelu_sigmoid": (ops.gelu_sigmoid, lambda x: x * stable_sigmoid(1.702 * x)),
    "softplus": (ops.softplus, lambda x: np.logaddexp(x, 0)),
    "sinc": (ops.sinc, np.sinc),
}


@pytest.mark.parametrize("name", POINTWISE)
@quick
@given(seeds, shapes, floats | st.just(np.dtype("i4")))
def test_a_pointwise_function_is_its_formula(
    name: str, seed: int, shape: Any, dtype: Any
) -> None:
    ours, formula = POINTWISE[name]
    agree(ours, rounded(formula), drawn(seed, shape, dtype), tol=8)


@pytest.mark.parametrize("name", ["sigmoid", "rsqrt"])
@pytest.mark.parametrize("dtype", "i1 u1 i2 u2 i4 u4 i8 u8 ?".split())
def test_integers_are_floats_at_once(name: str, dtype: str) -> None:
    """Not first negated in their own dtype, nor rounded in a narrow one."""
    x = np.array([0, 1, 100]).astype(dtype)
    if np.dtype(dtype).kind == "i":
        x[0] = np.iinfo(dtype).min
    op = Op.registry[name]
    with np.errstate(all="ignore"):
        got, want = op(x), op(x.astype(float))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@quick
@given(seeds, shapes, dtypes, dtypes)
def test_cast_copy_relu_clip_and_where(seed: int, shape: Any, a: Any, b: Any) -> None:
    x, y = drawn(seed, shape, a, special=False), drawn(seed + 1, shape, b)
    agree(lambda v: ops.cast(v, b), lambda v: v.astype(b), x)
    agree(ops.copy, np.copy, x)
    agree(ops.relu, lambda v: np.maximum(v, np.zeros((), a)), x)
    agree(lambda v: ops.clip(v, 0, 1), lambda v: np.minimum(np.maximum(v, 0), 1), x)
    agree(lambda v: ops.clip(v, None, 1), lambda v: np.minimum(v, 1), x)
    agree(ops.where, np.where, drawn(seed, shape, np.dtype(bool)), x, y)


# -- functions with NumPy's signature: one call for both modules -----------------------

WIDE = ("sum", "prod", "mean", "var", "std")


@pytest.mark.parametrize("name", [*WIDE, "max", "min", "any", "all"])
@quick
@given(seeds, shapes, dtypes, st.booleans(), st.data())
def test_a_reduction_is_numpys(
    name: str, seed: int, shape: Any, dtype: Any, keepdims: bool, data: st.DataObject
) -> None:
    n = len(shape)
    axes = st.integers(-n, n - 1) if n else st.none()
    some = st.lists(axes, unique_by=lambda a: a % n if n else a, max_size=n).map(tuple)
    axis = data.draw(st.none() | axes | (some if n else st.none()))
    fn = getattr(np, name)
    theirs = in_float32(fn) if name in WIDE else fn
    x = drawn(seed, shape, dtype, special=name not in ("var", "std"))
    agree(
        lambda v: getattr(ops, name)(v, axis=axis, keepdims=keepdims),
        lambda v: theirs(v, axis=axis, keepdims=keepdims),
        x,
        tol=8 if name in WIDE else 0,
    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@quick
@given(seeds, shapes, dtypes, st.booleans(), st.data())
def test_a_position_is_numpys(
    name: str, seed: int, shape: Any, dtype: Any, keepdims: bool, data: st.DataObject
) -> None:
    n = len(shape)
    axis = data.draw(st.none() | st.integers(-n, n - 1)) if n else None
    agree(
        lambda v: getattr(ops, name)(v, axis, keepdims=keepdims),
        lambda v: getattr(np, name)(v, axis, keepdims=keepdims),
        drawn(seed, shape, dtype),
    )


@pytest.mark.parametrize("ddof", [0, 1, 3, 5])
def test_degrees_of_freedom(ddof: int) -> None:
    x = drawn(1, (2, 3), np.dtype("f8"), special=False)
    for fn in ("var", "std"):
        agree(
            lambda v, fn=fn: getattr(ops, fn)(v, 1, ddof=ddof),
            lambda v, fn=fn: getattr(np, fn)(v, 1, ddof=ddof),
            x,
            tol=8,
        )


def test_a_dtype_is_where_a_sum_is_computed() -> None:
    for dtype in ("f4", "f8", "i8"):
        for fn in ("sum", "prod", "mean"):
            if (fn, dtype) != ("mean", "i8"):
                agree(
                    lambda v, fn=fn, d=dtype: getattr(ops, fn)(v, dtype=d),
                    lambda v, fn=fn, d=dtype: getattr(np, fn)(v, dtype=d),
                    drawn(1, (3, 4), np.dtype("i4")),
                    tol=8,
                )


VIEWS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    # name: least rank of x, call for a module
    "reshape": (0, lambda m, x: m.reshape(x, (-1, 1))),
    "ravel": (0, lambda m, x: m.ravel(x)),
    "transpose": (0, lambda m, x: m.transpose(x)),
    "transpose of axes": (3, lambda m, x: m.transpose(x, (1, *range(2, x.ndim), 0))),
    "swapaxes": (2, lambda m, x: m.swapaxes(x, 0, -1)),
    "matrix_transpose": (0, lambda m, x: m.matrix_transpose(x)),
    "moveaxis": (2, lambda m, x: m.moveaxis(x, 0, -1)),
    "moveaxis of two": (3, lambda m, x: m.moveaxis(x, (0, -1), (1, 0))),
    "expand_dims": (0, lambda m, x: m.expand_dims(x, (0, -1))),
    "squeeze": (0, lambda m, x: m.squeeze(m.expand_dims(x, 0))),
    "squeeze of axes": (1, lambda m, x: m.squeeze(x, 0)),
    "broadcast_to": (0, lambda m, x: m.broadcast_to(x, (2, *x.shape))),
    "flip": (0, lambda m, x: m.flip(x)),
    "flip of axes": (2, lambda m, x: m.flip(x, (0, -1))),
    "roll": (0, lambda m, x: m.roll(x, 2)),
    "roll of axes": (2, lambda m, x: m.roll(x, (1, -1), (0, 1))),
    "concatenate": (1, lambda m, x: m.concatenate([x, x, x], -1)),
    "concatenate, ravelled": (0, lambda m, x: m.concatenate([x, x], None)),
    "stack": (0, lambda m, x: m.stack([x, x], -1)),
    "split": (1, lambda m, x: m.split(x, 2, -1)),
    "split at": (1, lambda m, x: m.split(x, [1, -1, 9], -1)),
    "array_split": (1, lambda m, x: m.array_split(x, 3)),
    "repeat": (1, lambda m, x: m.repeat(x, 3, 0)),
    "repeat, ravelled": (0, lambda m, x: m.repeat(x, 2)),
    "tile": (0, lambda m, x: m.tile(x, (2, 1, 3))),
    "pad": (0, lambda m, x: m.pad(x, 1, constant_values=3)),
    "pad of pairs": (2, lambda m, x: m.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, 2),))),
    "take": (1, lambda m, x: m.take(x, [0, -1, 0], axis=0)),
    "take one": (1, lambda m, x: m.take(x, 0, axis=-1)),
    "take of many": (2, lambda m, x: m.take(x, np.zeros((2, 3), int), axis=1)),
    "take, ravelled": (0, lambda m, x: m.take(x, [0])),
    "tril": (0, lambda m, x: m.tril(x, 1)),
    "triu": (0, lambda m, x: m.triu(x, -1)),
    "zeros_like": (0, lambda m, x: m.zeros_like(x)),
    "full_like": (0, lambda m, x: m.full_like(x, 3, dtype="f4")),
    "outer": (0, lambda m, x: m.outer(x, x)),
}


@pytest.mark.parametrize("name", VIEWS)
@quick
@given(seeds, st.data(), dtypes)
def test_a_view_is_numpys(name: str, seed: int, data: Any, dtype: Any) -> None:
    least, call = VIEWS[name]
    side = 1 if "take" in name else 0
    shape = data.draw(
        array_shapes(min_dims=least, max_dims=4, min_side=side, max_side=4)
    )
    x = drawn(seed, shape, dtype)
    agree(lambda v: call(ops, v), lambda v: call(np, v), x)


MIXED: list[Callable[[Any, Any, Any], Any]] = [
    lambda m, x, c: m.add(x, c),
    lambda m, x, c: m.where(c > 0, x, c),
    lambda m, x, c: m.concatenate([c, x, c], -1),
    lambda m, x, c: m.stack([c, x]),
    lambda m, x, c: m.matmul(c, m.swapaxes(x, 0, 1)),
    lambda m, x, c: m.einsum("ij,kj->ik", x, c),
    lambda m, x, c: m.tensordot(c, x, ((1,), (1,))),
    lambda m, x, c: m.take(c, m.argmax(x, 1), axis=1),
    lambda m, x, c: m.outer(c, x),
]


@pytest.mark.parametrize("call", MIXED)
def test_an_array_beside_a_traced_one_is_a_constant(
    call: Callable[[Any, Any, Any], Any],
) -> None:
    c = drawn(1, (3, 4), np.dtype("f8"), special=False)
    x = drawn(2, (3, 4), np.dtype("f4"), special=False)
    agree(lambda v: call(ops, v, c), lambda v: call(np, v, c), x, tol=4)


def test_views_have_one_form() -> None:
    (x,) = traced(np.zeros((2, 3, 5)))
    assert ops.transpose(x, (0, 1, 2)) is x and ops.reshape(x, (2, 3, 5)) is x
    assert ops.broadcast_to(x, (2, 3, 5)) is x and ops.roll(x, 6, 1) is x
    assert ops.swapaxes(x, 1, 2).term is ops.transpose(x, (0, 2, 1)).term
    assert ops.matrix_transpose(x).term.attrs == ((-1, -2),)
    assert ops.flip(x, 2).term.attrs == ((4,), (5,), (-1,))
    assert ops.split(x, [0, 3], 1)[1] is x
    assert ops.split(x, [1], 1)[0].term.attrs == ((0, 0), (1, 5), (1, 1))


@pytest.mark.parametrize("name", Op.registry)
def test_an_op_has_a_meaning_and_a_cost(name: str) -> None:
    op = Op.registry[name]
    assert op.doc and op.name == name
    assert op.flops is not None or op.body is not None or op.kind == "leaf"


def test_costs_count_elements_and_products() -> None:
    x, w = traced(np.zeros((2, 3, 4)), np.zeros((4, 5)))
    image, kernel = traced(np.zeros((1, 4, 5, 5)), np.zeros((6, 2, 3, 3)))
    found = [
        cost(ops.matmul(x, w).term),
        cost(ops.exp(x).term),
        cost(ops.sum(x, 0, keepdims=True).term),
        cost(ops.conv2d(image, kernel, groups=2).term),
    ]
    assert found == [2 * 2 * 3 * 4 * 5, 8 * 24, 24, 2 * 6 * 3 * 3 * 2 * 3 * 3]


def cost(term: Term) -> float:
    op = term.op
    assert isinstance(op, Op) and op.flops is not None
    return op.flops([a.type for a in term.args], op.attr_dict(term), term.type)


def test_of_several_values_for_a_place_the_last_stays() -> None:
    """However they lie: NumPy writes in the order of memory where all lie reversed."""

    def written(x: Any, i: Any, y: Any) -> Any:
        x = x.copy()
        x[i] = y
        return x

    i, y = np.array([[0, 1, 0], [1, 0, 0]]), np.arange(6.0).reshape(2, 3)
    layouts = (np.array, np.asfortranarray, lambda a: np.flip(np.flip(a).copy()))
    for lay, other in itertools.product(layouts, layouts):
        given = np.zeros(2), lay(i), other(y)
        for backend in ("native", "numpy"):
            got = eq.jit(written, backend=backend)(*given)
            np.testing.assert_array_equal(got, [5.0, 3.0])
        np.testing.assert_array_equal(
            Op.registry["set_at"](*given, axis=-1), [5.0, 3.0]
        )
