"""Derivatives of convolutions: they are linear in images and in kernels, so that with
whole numbers all of it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layers import Sizes, attributes, drawn_convolutions
from natives import Array
from sizes import examples, some

import eqsat as eq
from eqsat.ops import conv_grad
from eqsat.ops.contract import conv2d_op

FORMS = ["_of_all", "_merged", "_joined"]
CASES: list[tuple[str, Sizes, Sizes, dict[str, Any]]] = [
    ("_of_all", (2, 3, 7, 6), (4, 3, 3, 2), attributes(padding=(1, 3))),
    ("_merged", (2, 3, 9, 8), (3, 1, 3, 3), attributes((2, 2), (1, 1), groups=3)),
    ("_of_all", (1, 6, 30, 30), (2, 6, 5, 5), attributes((6, 5), dilation=(5, 3))),
    ("_merged", (2, 3, 16, 11), (4, 3, 7, 7), attributes((2, 2), (3, 3))),
    ("_merged", (2, 9, 12, 9), (4, 9, 4, 4), attributes((2, 2), (1, 1))),
    ("_merged", (1, 9, 13, 12), (4, 9, 6, 4), attributes((3, 2), (2, 0))),
    ("_merged", (2, 8, 16, 12), (6, 8, 4, 4), attributes((4, 4))),  # patches
    ("_merged", (2, 8, 19, 13), (6, 4, 4, 4), attributes((4, 4), groups=2)),
    ("_merged", (1, 2, 15, 14), (3, 2, 6, 5), attributes((6, 5))),  # many phases
    ("_merged", (2, 2, 5, 20), (3, 2, 2, 3), attributes((1, 3), (4, 5))),
    ("_joined", (2, 6, 9, 10), (4, 6, 3, 3), attributes((2, 2), (1, 1))),
    ("_joined", (2, 6, 9, 10), (4, 6, 1, 1), attributes((2, 2))),  # one phase
    ("_joined", (2, 6, 11, 10), (4, 6, 2, 1), attributes((3, 4), (1, 2))),  # some
    ("_joined", (2, 6, 14, 13), (4, 3, 3, 3), attributes((2, 3), (5, 0), (2, 2), 2)),
    ("_joined", (1, 6, 40, 9), (4, 6, 5, 2), attributes((4, 1), (9, 1), (6, 1))),
    ("_joined", (1, 6, 1, 1), (4, 6, 3, 3), attributes((2, 2), (9, 9))),
]
NOTHING: list[tuple[Sizes, Sizes]] = [
    ((0, 3, 5, 5), (2, 3, 3, 3)),
    ((2, 0, 5, 5), (2, 0, 3, 3)),
    ((1, 3, 5, 5), (0, 3, 3, 3)),
]
BACKENDS = ["numpy", "native"]
backends = pytest.mark.parametrize("backend", BACKENDS)


def whole(seed: int, *shape: int, dtype: Any = np.float64) -> Array:
    """Small whole numbers: sums of their products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def right(
    shape: Sizes, kernel: Sizes, attrs: dict[str, Any], backend: str, dtype: Any
) -> None:
    """Derivatives of ``y = x * w`` weighted by g, and those of the derivatives."""
    x, w = whole(0, *shape, dtype=dtype), whole(1, *kernel, dtype=dtype)
    u, v = whole(2, *shape, dtype=dtype), whole(3, *kernel, dtype=dtype)
    g = whole(4, *conv2d_op.reference(x, w, **attrs).shape, dtype=dtype)

    def loss(x: Any, w: Any, g: Any) -> Any:
        return (eq.conv2d(x, w, **attrs) * g).sum()

    def along(x: Any, w: Any, g: Any, u: Any, v: Any) -> Any:
        dx, dw = eq.grad(loss, (0, 1)).fn(x, w, g)
        return (dx * u).sum() + (dw * v).sum()

    dx, dw = eq.jit(eq.grad(loss, (0, 1)), backend=backend)(x, w, g)
    assert (dx.shape, dx.dtype, dw.shape, dw.dtype) == (shape, dtype, kernel, dtype)
    by_x = conv2d_op.reference(u, w, **attrs)
    by_w = conv2d_op.reference(x, v, **attrs)
    assert np.vdot(dx, u) == np.vdot(g, by_x)
    assert np.vdot(dw, v) == np.vdot(g, by_w)
    found = eq.jit(eq.grad(along, (0, 1, 2)), backend=backend)(x, w, g, u, v)
    np.testing.assert_array_equal(found[2], by_x + by_w)
    want = eq.grad(loss, (0, 1))(u, v, g)
    for got, expected in zip(found[:2], want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_form(form: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_form = [case for case in CASES if case[0] == form]
    for _, shape, kernel, attrs in some(of_form, 1):
        for other in {*FORMS} - {form}:
            monkeypatch.setattr(conv_grad, other, None)
        x, w = whole(0, *shape), whole(1, *kernel)
        eq.grad(lambda x, w=w, a=attrs: (eq.conv2d(x, w, **a) * 2.0).sum())(x)
        monkeypatch.undo()
        right(shape, kernel, attrs, backend, np.dtype(np.float64))


@examples(30)
@given(
    drawn_convolutions(),
    st.sampled_from(["numpy", "native"]),
    st.sampled_from([np.dtype("f4"), np.dtype("f8")]),
)
def test_any_convolution(
    drawn: tuple[Sizes, Sizes, dict[str, Any]], backend: str, dtype: Any
) -> None:
    right(*drawn, backend, dtype)


@backends
@pytest.mark.parametrize(("shape", "kernel"), NOTHING)
def test_convolutions_of_nothing(shape: Sizes, kernel: Sizes, backend: str) -> None:
    attrs = attributes((2, 2), (1, 1))
    right(shape, kernel, attrs, backend, np.dtype(np.float64))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_halves_keep_their_dtype(dtype: Any) -> None:
    attrs = attributes((2, 2), (1, 1))
    shape, kernel = (2, 5, 8, 9), (3, 5, 3, 3)
    x, w = whole(0, *shape, dtype=dtype), whole(1, *kernel, dtype=dtype)

    def loss(x: Any, w: Any) -> Any:
        return eq.conv2d(x, w, **attrs).sum()

    got = eq.grad(loss, (0, 1))(x, w)
    want = eq.grad(loss, (0, 1))(x.astype(np.float64), w.astype(np.float64))
    for g, exact in zip(got, want, strict=True):
        assert g.dtype == dtype
        np.testing.assert_array_equal(g, exact)
