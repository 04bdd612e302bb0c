"""Arrays of JAX as arguments; run by ``test_foreign.py`` in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from evaluate import assert_same

import eqsat as eq
from eqsat.support.errors import DTypeError, ReadOnlyError, TraceError

BACKENDS = ["native", "numpy"]
BF16 = np.dtype(ml_dtypes.bfloat16)


def set_first(x: Any) -> None:
    x[0] = 7


def returned(x: Any, y: Any) -> Any:
    x += y
    return x, x * 2


def refusal(f: Callable[..., Any], *args: Any, kind: Any = TraceError) -> str:
    with pytest.raises(kind) as caught:
        f(*args)
    return str(caught.value)


double = eq.jit(lambda x: x * 2 + 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.int32, BF16, np.float32], ids=str)
def test_arrays_of_jax(dtype: Any, backend: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    f = eq.jit(lambda x: (x + x, x.max()), backend=backend)
    for _ in range(5):
        for got, want in zip(f(jax.numpy.asarray(x)), (x + x, x.max()), strict=True):
            assert isinstance(got, jax.Array)
            assert_same(np.asarray(got), np.asarray(want))
    assert len(f._lowered) == 1
    x = jax.numpy.ones(3)
    assert isinstance(eq.grad(lambda x: (x * x).sum())(x), jax.Array)


def test_arrays_of_jax_are_not_written_to() -> None:
    x = jax.numpy.zeros(3)
    assert "ArrayImpl" in refusal(eq.jit(set_first), x, kind=ReadOnlyError)
    assert float(x[0]) == 0
    out = np.zeros(3, np.float32)
    got, twice = eq.jit(returned)(out, x + 1)
    assert got is out and out[0] == 1 and isinstance(twice, jax.Array)


def test_jax_cuts_no_result_in_silence() -> None:
    f = eq.jit(lambda x: (x * 2, x.argmax()))
    with jax.enable_x64(False):
        out = np.zeros(3)
        g = eq.jit(lambda out, x: (returned(out, x), x.argmax()))
        for h, args in ((f, ()), (g, (out,))):
            said = refusal(h, *args, jax.numpy.ones(3), kind=DTypeError)
            assert "int64" in said or "float64" in said
            assert "x.astype" in said
        assert (out == 0).all()
    with jax.enable_x64(True):
        assert f(jax.numpy.ones(3))[1].dtype == np.int64


def test_what_jax_traces_is_refused() -> None:
    x = jax.numpy.ones(3, np.float32)
    for change in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())):
        assert "JAX traces" in refusal(change(double), x)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    inside = jax.jit(lambda x: jax.pure_callback(double, shape, x))
    assert_same(np.asarray(inside(x)), np.full(3, 3, np.float32))
    refusal(double, jax.random.key(0))
