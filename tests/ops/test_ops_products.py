"""Products, einsum and convolution against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agreement import BF16, FLOATS, Array, agree, names, normal, rounded, traced
from hypothesis import given
from hypothesis import strategies as st
from sizes import examples, seeds

import eqsat as eq
from eqsat import ops
from eqsat.support.errors import ShapeError

quick = examples(30)
floats = st.sampled_from(FLOATS)
sizes = st.integers(0, 4)


# -- integers --------------------------------------------------------------------------

FEW_BITS = st.sampled_from(["i1", "u1", "i2", "u2", "i4"])
WIDE = st.sampled_from(["i2", "i4", "u4", "i8"])


def whole(seed: int, dtype: str, *shape: int) -> Array:
    """Numbers at and near the ends of a dtype: sums of their products need all digits
    that they can."""
    ends = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    choice = rng.integers(0, 3, shape)
    near = rng.integers(0, 3, shape)
    found = np.where(choice == 0, ends.min + near, ends.max - near)
    return np.where(choice == 2, near, found).astype(dtype)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@quick
@given(seeds, FEW_BITS, FEW_BITS, WIDE, st.integers(0, 1200))
def test_products_of_integers_have_no_rounding(
    backend: str, seed: int, left: str, right: str, wide: str, k: int
) -> None:
    x, y = whole(seed, left, 3, k), whole(seed + 1, right, k, 5)

    def f(x: Any, y: Any) -> Any:
        from_zero = x.astype(wide) - np.array(7, wide)
        again = np.einsum("ij,kj->ki", from_zero, y.T)
        return from_zero @ y.astype(wide), again, x @ y, from_zero[0] @ y

    with np.errstate(all="ignore"):
        want = f(x, y)
    for a, b in zip(eq.jit(f, backend=backend)(x, y), want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@quick
@given(seeds, FEW_BITS, FEW_BITS, st.sampled_from([1, 2, 40, 90]), st.booleans())
def test_convolutions_of_integers_have_no_rounding(
    backend: str, seed: int, left: str, right: str, channels: int, grouped: bool
) -> None:
    groups = channels if grouped else 1
    x = whole(seed, left, 2, channels, 7, 6)
    w = whole(seed + 1, right, 2 * groups, channels // groups, 3, 2)

    def f(x: Any, w: Any) -> Any:
        x, w = (v.astype(np.int32) - 1 for v in (x, w))
        return eq.conv2d(x, w, stride=(1, 2), padding=1, groups=groups)

    np.testing.assert_array_equal(eq.jit(f, backend=backend)(x, w), f(x, w))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (whole(0, "i1", 4, 300), whole(1, "i1", 300, 4).astype(np.int64)),
        (whole(0, "u1", 4, 300), np.full((300, 4), 100, np.int64)),
    ],
    ids=["by values of a constant", "of one value"],
)
def test_constants_are_as_small_as_they_are(x: Array, y: Array) -> None:
    fast = eq.jit(lambda x: x @ y)
    assert "float32" in fast.lower(x).source("numpy")
    np.testing.assert_array_equal(fast(x), x @ y)


# -- products --------------------------------------------------------------------------

PRODUCTS: dict[
    str, tuple[Callable[[Any, Any, Any], Any], tuple[int, ...], tuple[int, ...]]
] = {
    # name: call for a module, shapes over the sizes a, b, c, d by position
    "matmul": (lambda m, x, y: m.matmul(x, y), (0, 1), (1, 2)),
    "matmul, batch": (lambda m, x, y: m.matmul(x, y), (3, 0, 1), (1, 2)),
    "vector, vector": (lambda m, x, y: m.matmul(x, y), (0,), (0,)),
    "vector, matrix": (lambda m, x, y: m.matmul(x, y), (0,), (3, 0, 1)),
    "matrix, vector": (lambda m, x, y: m.matmul(x, y), (3, 0, 1), (1,)),
    "dot": (lambda m, x, y: m.dot(x, y), (0, 1), (1, 2)),
    "dot, number": (lambda m, x, y: m.dot(x, y), (), (1, 2)),
    "dot, many axes": (lambda m, x, y: m.dot(x, y), (0, 1), (3, 1, 2)),
    "inner": (lambda m, x, y: m.inner(x, y), (3, 0, 1), (2, 1)),
    "outer": (lambda m, x, y: m.outer(x, y), (0, 1), (2,)),
    "vdot": (lambda m, x, y: m.vdot(x, y), (0, 1), (0, 1)),
    "tensordot": (lambda m, x, y: m.tensordot(x, y), (0, 1, 2), (1, 2, 3)),
    "tensordot of axes": (
        lambda m, x, y: m.tensordot(x, y, ((0, -1), (1, 0))),
        (0, 1, 2),
        (2, 0, 3),
    ),
    "tensordot of none": (lambda m, x, y: m.tensordot(x, y, 0), (0,), (1, 2)),
}


@pytest.mark.parametrize("name", PRODUCTS)
@quick
@given(seeds, floats, st.lists(sizes, min_size=4, max_size=4))
def test_a_product_is_numpys(name: str, seed: int, dtype: Any, size: list[int]) -> None:
    call, left, right = PRODUCTS[name]
    x = normal(seed, *(size[i] for i in left), dtype=dtype)
    y = normal(seed + 1, *(size[i] for i in right), dtype=dtype)
    formula = rounded(lambda a, b: call(np, a, b))
    agree(lambda a, b: call(ops, a, b), formula, x, y, tol=8)


EINSUMS = [
    ("bhqd,bhkd->bhqk", ["transpose", "matmul"]),
    ("bhqk,bhkd->bhqd", ["matmul"]),
    ("ij,jk", ["matmul"]),
    ("...ij,...jk->...ik", ["matmul"]),
    ("bsd,de->bse", ["matmul"]),
    ("bsd,ed->bse", ["transpose", "matmul"]),
    ("de,bsd->bse", ["matmul"]),
    ("bsd,dhe->bshe", ["reshape", "matmul", "reshape"]),
    ("bhqd,bkd->bhqk", ["reshape", "transpose", "matmul"]),
    ("mk,k->m", ["reshape", "matmul", "reshape"]),
    ("ij->ji", ["transpose"]),
    ("ij->", ["sum", "reshape"]),
    ("i,i->", ["multiply", "sum", "reshape"]),
    ("bi,i->bi", ["multiply"]),
    ("ii->i", ["reshape", "slice"]),
    ("ij->ij", []),
]


@pytest.mark.parametrize(("text", "steps"), EINSUMS)
def test_einsum_makes_no_needless_step(text: str, steps: list[str]) -> None:
    size = dict(zip("bhqkdseijmn", range(2, 13), strict=True))
    shapes = [[size[c] for c in p if c != "."] for p in text.split("->")[0].split(",")]
    arrays = [normal(i, *shape) for i, shape in enumerate(shapes)]
    assert names(ops.einsum(text, *traced(*arrays)).term) == steps
    einsum_agrees(text, *arrays)


def einsum_agrees(text: str, *arrays: Array) -> None:
    formula = rounded(lambda *xs: np.einsum(text, *xs))
    agree(lambda *xs: ops.einsum(text, *xs), formula, *arrays, tol=8)


def test_einsum_of_attention_is_the_matrix_product() -> None:
    q, k = traced(np.zeros((2, 3, 4, 5)), np.zeros((2, 3, 6, 5)))
    assert ops.einsum("bhqd,bhkd->bhqk", q, k).term is (q @ k.mT).term


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    size = dict(zip("abcde", draw(st.permutations([1, 2, 3, 4, 0])), strict=True))
    letters = st.lists(st.sampled_from("abcde"), max_size=4, unique=True)
    parts = draw(st.lists(letters, min_size=1, max_size=3))
    if draw(st.booleans()):
        parts[0] += parts[0][:1]
    known = sorted({c for p in parts for c in p})
    output = draw(st.permutations(known))[: draw(st.integers(0, len(known)))]
    one = st.booleans() if draw(st.booleans()) else st.just(False)
    shapes = [
        tuple(1 if p.count(c) == 1 and draw(one) else size[c] for c in p) for p in parts
    ]
    return ",".join(map("".join, parts)) + "->" + "".join(output), shapes


@examples(300)
@given(expressions(), seeds)
def test_einsum_is_numpys(case: tuple[str, list[tuple[int, ...]]], seed: int) -> None:
    text, shapes = case
    arrays = [normal(seed + i, *shape) for i, shape in enumerate(shapes)]
    einsum_agrees(text, *arrays)


@pytest.mark.parametrize(
    "text",
    [
        "...i,...i",
        "...i,...i->...",
        "i...,...->...i",
        "...ij,kj",
        "a...b,b->...a",
        "...->",
    ],
)
def test_an_ellipsis_broadcasts(text: str) -> None:
    shapes = {"...i,...i": ((4, 1, 3), (5, 3)), "...i,...i->...": ((5, 3), (4, 1, 3))}
    shapes |= {"i...,...->...i": ((3, 4, 1), (5,)), "...ij,kj": ((2, 4, 3), (5, 3))}
    shapes |= {"a...b,b->...a": ((2, 5, 4, 3), (3,)), "...->": ((2, 3),)}
    arrays = [normal(i, *shape) for i, shape in enumerate(shapes[text])]
    if text == "...->":
        with pytest.raises(ShapeError, match="names 0 axes of 2"):
            ops.einsum(text, *traced(*arrays))
    else:
        einsum_agrees(text, *arrays)


@pytest.mark.parametrize("dtype", [np.dtype("f2"), BF16, np.dtype("f4")], ids=str)
def test_einsum_keeps_the_dtype(dtype: Any) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    for text in ("ij,kj->ik", "ij,ij->i", "ij,ij->j", "ij->j"):
        einsum_agrees(text, *[x] * (1 + text.count(",")))


def test_einsum_of_integers_is_numpys() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for text in ("ij,kj->ik", "ij,ij->i", "ij->j"):
        agree(
            lambda *xs, text=text: ops.einsum(text, *xs),
            lambda *xs, text=text: np.einsum(text, *xs),
            *[x] * (1 + text.count(",")),
        )


def convolved(x: Array, w: Array, s: int, p: int, d: int, groups: int) -> Array:
    """Convolution by its definition, one element of the kernel at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    (n, _, h, v), (o, each, kh, kw) = x.shape, w.shape
    rows, cols = (h - d * (kh - 1) - 1) // s + 1, (v - d * (kw - 1) - 1) // s + 1
    y = np.zeros((n, groups, o // groups, rows, cols))
    for i in range(kh):
        for j in range(kw):
            part = x[:, :, i * d :, j * d :][:, :, : rows * s : s, : cols * s : s]
            part = part.reshape(n, groups, each, rows, cols)
            y += np.einsum(
                "ngcrs,goc->ngors", part, w[..., i, j].reshape(groups, -1, each)
            )
    return y.reshape(n, o, rows, cols)


@quick
@given(
    seeds,
    floats,
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_conv2d_is_its_definition(
    seed: int,
    dtype: Any,
    n: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    k: int,
) -> None:
    x = normal(seed, n, 2 * groups, 7, 6, dtype=dtype)
    w = normal(seed + 1, 3 * groups, 2, k, 3, dtype=dtype)
    agree(
        lambda a, b: ops.conv2d(a, b, stride, padding, dilation, groups),
        rounded(lambda a, b: convolved(a, b, stride, padding, dilation, groups)),
        x,
        w,
        tol=20,
    )


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype("i4")], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 7, 6), (0, 1, 4, 4)])
def test_pooling_is_its_definition(dtype: Any, shape: tuple[int, ...]) -> None:
    x = normal(0, *shape, dtype=dtype)

    def windows(v: Array, fill: float, p: int) -> Array:
        v = np.pad(v, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=fill)
        views = np.lib.stride_tricks.sliding_window_view(v, (3, 2), axis=(2, 3))
        return views[:, :, ::2, ::2]

    low = np.iinfo(dtype).min if dtype.kind == "i" else -np.inf
    agree(
        lambda v: ops.max_pool2d(v, (3, 2), 2, 1),
        lambda v: windows(v, low, 1).max((-1, -2)),
        x,
    )
    agree(
        lambda v: ops.avg_pool2d(v, (3, 2), (2, 2)),
        rounded(lambda v: windows(v, 0, 0).mean((-1, -2))),
        x,
        tol=8,
    )
