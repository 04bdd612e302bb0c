"""What the functions of a user's op read outside may change: a compiled function takes
the new value, as a call in NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.define import composite, op, pointwise, reduction
from eqsat.terms import Op
from eqsat.terms.type_rules import Custom

BACKENDS = "native", "numpy"
STATE = SimpleNamespace(scale=2.0, dtype=np.float32, size=2)


@composite("... -> ...")
def scaled(x: Any) -> Any:
    """By what stands outside."""
    return x * STATE.scale


@composite("... -> ...")
def twice_scaled(x: Any) -> Any:
    """An op of an op."""
    return scaled(scaled(x))


of_elements = pointwise("of_elements", lambda x: x * STATE.scale)


@op("... -> ...")
def only_numpys(x: Any) -> Any:
    """What no kernel holds."""
    return x * STATE.scale


@reduction(combine=np.add, identity=0)
def scaled_sum(x: Any) -> Any:
    """In the function of elements."""
    return x * STATE.scale


@reduction(combine=np.add, identity=0, finish=lambda s, n: s * STATE.scale)
def finished_sum(x: Any) -> Any:
    """In what is done at the end."""
    return x


def _one_end(x: Any, y: Any) -> Any:
    return np.maximum(x, y) if STATE.scale < 3 else np.minimum(x, y)


def _sum_or_product(x: Any, y: Any) -> Any:
    return x + y + 0 * x * y if STATE.scale < 3 else x * y * 1.0 + 0 * x


@reduction(combine=_one_end)
def one_end(x: Any) -> Any:
    """In how two are joined, by a reduction of the catalogue."""
    return x


@reduction(
    combine=_sum_or_product,
    identity=lambda dtype: 0 if STATE.scale < 3 else 1,
    commutative=True,
)
def sum_or_product(x: Any) -> Any:
    """In how two are joined, by code of its own."""
    return x * 1.0


@reduction(combine=np.add, identity=0)
def sum_in_a_dtype(x: Any) -> Any:
    """In the dtype of the result."""
    return x.astype(STATE.dtype)


@op(Custom(lambda who, types, attrs: (np.dtype(STATE.dtype), (STATE.size,))))
def of_a_size(x: Any) -> Any:
    """In the type of the result."""
    return np.full((STATE.size,), 3, STATE.dtype)


X = np.array([1.0, 2.0, 4.0])
OPS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "composite": (scaled, lambda: X * STATE.scale),
    "nested": (twice_scaled, lambda: X * STATE.scale**2),
    "pointwise": (of_elements, lambda: X * STATE.scale),
    "opaque": (only_numpys, lambda: X * STATE.scale),
    "elements": (scaled_sum, lambda: (X * STATE.scale).sum()),
    "finish": (finished_sum, lambda: X.sum() * STATE.scale),
    "join": (one_end, lambda: X.max() if STATE.scale < 3 else X.min()),
    "own join": (sum_or_product, lambda: X.sum() if STATE.scale < 3 else X.prod()),
    "dtype": (sum_in_a_dtype, lambda: X.astype(STATE.dtype).sum()),
    "type": (of_a_size, lambda: np.full((STATE.size,), 3, STATE.dtype)),
}
HELD = SimpleNamespace(op=scaled, ops={"a": scaled})


def _of_the_registry() -> Any:
    return Op.registry["scaled"]


FOUND: dict[str, Callable[[Any], Any]] = {
    "name": lambda x: scaled(x),
    "attribute": lambda x: HELD.op(x),
    "dictionary": lambda x: HELD.ops["a"](x),
    "function": lambda x: _of_the_registry()(x),
    "partial": partial(lambda op, x: op(x), scaled),
}


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    before = dict(vars(STATE))
    yield
    vars(STATE).update(before)


def _agree(found: Any, expected: Any) -> None:
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", OPS)
@pytest.mark.sampled(1)
def test_a_change_is_seen(kind: str, backend: Any) -> None:
    used, expected = OPS[kind]

    def fn(x: Any) -> Any:
        return used(x)

    compiled = eq.jit(fn, backend=backend)
    states = (2.0, np.float32, 2), (5.0, np.float64, 3), (2.0, np.float32, 2)
    for STATE.scale, STATE.dtype, STATE.size in states:
        for one in (compiled, eq.jit(fn, backend=backend)):  # also of others' programs
            _agree(one(X), expected())
        _agree(used(X), expected())


@pytest.mark.parametrize("way", FOUND)
def test_a_change_is_seen_however_the_op_is_found(way: str) -> None:
    compiled = eq.jit(FOUND[way])
    for STATE.scale in (2.0, 5.0):
        _agree(compiled(X), X * STATE.scale)


def test_a_rule_of_a_body_that_changed_is_not_used() -> None:
    def fn(x: Any) -> Any:
        return scaled(x) + x * 2.0

    for STATE.scale in (2.0, 5.0, 2.0):
        _agree(eq.jit(fn)(X), X * (STATE.scale + 2))
