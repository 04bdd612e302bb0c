"""Products of float32 by tensor cores that multiply bfloat16."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from natives import Array, fused
from programs import program_of
from sizes import examples

from eqsat.backends.gpu.hopper import products

pytest.importorskip("mlx.core")
import mlx.core as mx
from mlx_checking import ON_GPU, placed
from wide import HERE, drawn, modelled, on_device, ran

from eqsat.backends import mlx
from eqsat.backends.mlx import hopper_calls

HALF_UNIT = 2.0**-24
LEAST = 2.0**-133
LEADS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((3,), ()),
    ((2,), (2,)),
    ((), (2,)),
    ((2, 2), (2, 1)),
    ((2, 1, 2), (1, 2, 1)),
    ((2, 2), (1, 1)),
]
"""Axes before those of the matrices."""
SIZES = [1, 2, 31, 33, 64, 127, 128, 129, 130, 256, 257, 300]


def assert_is_product(
    y: Array, a: Array, b: Array, added: Any = None, factor: float = 1.0
) -> None:
    """Within what rounding each part of a product and sums of 32 explain, and numbers
    below the least of bfloat16; NaN and ∞ where float64 has them."""
    with np.errstate(all="ignore"):
        wide_a, wide_b = a.astype(float), b.astype(float)
        want, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
        want, size = factor * want, abs(factor) * size
        if added is not None:
            want, size = want + added, size + np.abs(added)
        known = np.isfinite(want.astype(np.float32))
        np.testing.assert_array_equal(y[~known], want[~known].astype(np.float32))
        steps = 6 + a.shape[-1] / 32
        small = (
            np.abs(wide_a).sum(-1)[..., :, None] + np.abs(wide_b).sum(-2)[..., None, :]
        )
        room = steps * HALF_UNIT * size + LEAST * (abs(factor) * small + 1)
        assert (np.abs(y - want) <= room)[known].all()


# -- on the model of a GPU -------------------------------------------------------------


def made(
    a: Array,
    b: Array,
    added: Array | None = None,
    factor: float = 1.0,
    halves: int = 0,
    seed: int = 0,
) -> Array:
    """A product on the model of a GPU."""
    product = products.HopperProduct(a.shape, b.shape)
    both = (a, b)
    parts = [
        ran(products.splitting(x.shape, product.is_one), [x], "bfloat16", seed)
        for x in (a, b.swapaxes(-1, -2))
    ]
    lead = product.shape[:-2]
    if not product.is_one:
        both = tuple(np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in both)
    more = [] if added is None else [np.broadcast_to(added, product.shape)]
    kernel = products.multiplying(product, added is not None, factor, halves)
    return ran(kernel, [*parts, *both, *more], "float32", seed)


FEW = [
    (LEADS[0], (128, 128, 32), "CC"),
    (LEADS[0], (130, 257, 161), "FC"),
    (LEADS[1], (50, 33, 64), "CF"),
    (LEADS[2], (129, 300, 40), "CF"),
    (LEADS[5], (20, 140, 65), "FF"),
]


@modelled
@pytest.mark.parametrize(("leads", "sizes", "kinds"), FEW)
@pytest.mark.parametrize("halves", [1, 2])
def test_products_on_the_model(
    leads: Any, sizes: tuple[int, int, int], kinds: str, halves: int
) -> None:
    rng = np.random.default_rng(halves)
    m, n, k = sizes
    a = drawn(rng, (*leads[0], m, k), kinds[0])
    b = drawn(rng, (*leads[1], k, n), kinds[1])
    if halves == 1:
        assert_is_product(made(a, b, halves=1), a, b)
        return
    c = drawn(rng, (n,))
    assert_is_product(made(a, b, c, -0.5, 2, seed=1), a, b, c, -0.5)


def odd(rng: Any, x: Array) -> Array:
    """``x`` with a few numbers whose products are not finite, or all but 0."""
    x = x.copy()
    for value in (np.nan, np.inf, -np.inf, 1e18, 0.0, 1e-38):
        x[tuple(rng.integers(s) for s in x.shape)] = value
    return x


@modelled
def test_what_is_not_finite_on_the_model() -> None:
    rng = np.random.default_rng(5)
    a, b = odd(rng, drawn(rng, (40, 50))), odd(rng, drawn(rng, (50, 150)))
    for added in (None, odd(rng, drawn(rng, (40, 150)))):
        assert_is_product(made(a, b, added), a, b, added)


@modelled
def test_overflow_on_the_model() -> None:
    a, b = np.full((3, 4), 3.4e38, np.float32), np.eye(4, 5, dtype=np.float32)
    b[0, 1], b[2, 3] = 2, -1
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(made(a, b), a @ b)


@modelled
def test_parts_add_up() -> None:
    """Three bfloat16 are a float32."""
    rng = np.random.default_rng(6)
    x = drawn(rng, (128, 32)) * np.float32(2.0) ** rng.integers(-60, 60, (128, 1))
    x = x.astype(np.float32)
    stored = ran(products.splitting(x.shape, True), [x], "bfloat16", 0)
    parts = (stored.reshape(3, 128, 4, 8).astype(np.uint32) << 16).view(np.float32)
    rows = np.arange(128)[:, None]
    chunks = np.arange(4) ^ (rows >> 1 & 3)
    plain = parts[:, rows, chunks].reshape(3, 128, 32)
    np.testing.assert_array_equal(plain.astype(float).sum(0), x)


# -- on the device ---------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of all sizes are ours."""
    monkeypatch.setattr(
        products.HopperProduct, "is_faster", property(lambda self: True)
    )


@on_device
@examples(6)
@pytest.mark.parametrize("leads", LEADS)
@given(
    st.tuples(*[st.sampled_from(SIZES)] * 3),
    st.tuples(*[st.sampled_from(["packed", "fortran", "reversed", "broadcast"])] * 2),
    st.sampled_from(["", "row", "all", "odd"]),
    st.integers(0, 2**32 - 1),
)
def test_products_on_the_device(
    leads: Any, sizes: Any, layouts: Any, more: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = sizes
    a, b = drawn(rng, (*leads[0], m, k)), drawn(rng, (*leads[1], k, n))
    if more == "odd":
        a, b = odd(rng, a), odd(rng, b)
    xs = [placed(x, layout) for x, layout in zip((a, b), layouts, strict=True)]
    a, b = map(mlx.to_numpy, xs)
    shape = products.HopperProduct(a.shape, b.shape).shape
    c = None
    if more in ("row", "all"):
        c = drawn(rng, shape if more == "all" else (n,))

    def f(a: Any, b: Any, *c: Any) -> Any:
        return 0.25 * (a @ b) + c[0] if c else a @ b

    given = [a, b] if c is None else [a, b, c]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products.HopperProduct, "is_faster", property(lambda self: True))
        lowered = mlx.lower(program_of(f, *given), None)
    assert "product_kernel(" in lowered.source
    (y,) = lowered.run(*xs, *([mlx.to_mlx(c)] if c is not None else []))
    factor = 0.25 if c is not None else 1.0
    assert_is_product(mlx.to_numpy(y), a, b, c, factor)


@on_device
@pytest.mark.parametrize("exponent", [-30, -20, 20, 30])
def test_large_and_small_numbers(exponent: int, always: None) -> None:
    """An operand whose size is 10³⁰ or its inverse, by one of the inverse size."""
    rng = np.random.default_rng(7)
    a = drawn(rng, (128, 256)) * np.float32(10.0**exponent)
    b = drawn(rng, (256, 128)) * np.float32(10.0**-exponent)
    (y,) = mlx.lower(program_of(lambda a, b: a @ b, a, b))(a, b)
    assert_is_product(y, a, b)


@on_device
def test_large_products_are_ours_and_nearer() -> None:
    rng = np.random.default_rng(8)
    a, b = drawn(rng, (2, 1024, 2048)), drawn(rng, (2048, 1500))
    lowered = mlx.lower(program_of(lambda a, b: a @ b, a, b))
    assert "product_kernel(" in lowered.source
    want = a.astype(float) @ b
    (y,) = lowered(a, b)
    theirs = mlx.to_numpy(mx.matmul(mx.array(a), mx.array(b)))
    assert np.abs(y - want).mean() < np.abs(theirs - want).mean()


@on_device
def test_gradients_through_own_products() -> None:
    rng = np.random.default_rng(9)
    a, b = drawn(rng, (1024, 1024)), drawn(rng, (1024, 1024))
    f = mlx.lower(program_of(lambda a, b: (a @ b) ** 2, a, b)).run
    found = mx.grad(lambda a, b: f(a, b)[0].sum(), argnums=(0, 1))
    ga, gb = map(mlx.to_numpy, found(mx.array(a), mx.array(b)))
    y = a.astype(float) @ b
    for found, want in ((ga, 2 * y @ b.T), (gb, 2 * a.T @ y)):
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())


# -- when ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "ours"),
    [
        ((8192, 4096), (4096, 4096), True),
        ((8, 1024, 4096), (4096, 16384), True),
        ((2048, 2048), (2048, 2048), True),
        ((1, 4096), (4096, 4096), False),
        ((256, 256), (256, 256), False),
        ((8192, 4096), (4096, 16), False),
        ((8192, 16), (16, 4096), False),
        ((0, 64), (64, 64), False),
        ((4096, 0), (0, 4096), False),
    ],
)
def test_which_products_are_ours(
    left: tuple[int, ...], right: tuple[int, ...], ours: bool
) -> None:
    assert products.HopperProduct(left, right).is_faster is ours


@pytest.mark.parametrize(
    ("setting", "ours"), [("0", True), ("1", False), ("no", True), (None, False)]
)
def test_only_where_float32_is_not_rounded(
    setting: str | None, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is None:
        monkeypatch.delenv("MLX_ENABLE_TF32")
    else:
        monkeypatch.setenv("MLX_ENABLE_TF32", setting)
    assert not hopper_calls.are_ours("metal") and not hopper_calls.are_ours("")
    if not ON_GPU:
        assert hopper_calls.are_ours("cuda") is ours


def test_operands_are_split_once() -> None:
    x = np.broadcast_to(np.float32(0), (2048, 2048))

    def f(x: Any, w: Any, v: Any) -> Any:
        return (x @ w, x @ v, w @ x.T)

    program = program_of(f, x, x, x)
    if ON_GPU and not HERE:
        return
    text = mlx.lower(program, "cuda").source
    lines = [line for line in text.splitlines() if "split_kernel" in line]
    calls = [line for line in lines if "_parts" in line]
    assert len(calls) == 4, (
        calls
    )  # x by rows, which are columns of x.T; w; w and v turned


def test_heads_are_split_without_a_copy() -> None:
    x = np.broadcast_to(np.float32(0), (2, 1024, 1024))

    def heads(x: Any, w: Any) -> Any:
        return (x @ w).reshape(2, 1024, 16, 64).swapaxes(1, 2)

    if not ON_GPU or HERE:
        text = mlx.lower(program_of(fused(heads, 2), x, x[0]), "cuda").source
        body = text[text.index("def program") :]
        assert len(re.findall(r"_kernel\w*\(\[", body)) == 3, body
