"""Errors are of NumPy's kinds too, so that ``except`` clauses match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

ONE, SQUARE, WIDE = np.ones(3), np.eye(3), np.ones((2, 3))
STACK = np.ones((2, 2, 3))
AXES = "sum prod max argmax mean std median sort argsort cumsum flip squeeze".split()
SQUARES = "inv det slogdet eigh eigvalsh cholesky".split()
MATRICES = [*SQUARES, "qr", "svd", "pinv"]

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{f"np.{n}": (lambda x, n=n: getattr(np, n)(x, axis=4), SQUARE) for n in AXES},
    "np.concatenate": (lambda x: np.concatenate([x, x], 4), SQUARE),
    "np.stack": (lambda x: np.stack([x, x], 4), SQUARE),
    "np.swapaxes": (lambda x: np.swapaxes(x, 0, 4), SQUARE),
    "x.sum": (lambda x: x.sum(-3), SQUARE),
    "sum of axes": (lambda x: np.sum(x, (0, 7)), SQUARE),
    **{
        f"{n} of {a.shape}": (lambda x, n=n: getattr(np.linalg, n)(x)[0], a)
        for n in MATRICES
        for a in (ONE, WIDE, STACK)
        if n in SQUARES or a is ONE
    },
    "solve": (lambda x: np.linalg.solve(x, np.ones(2)), WIDE),
    "solve of a vector": (lambda x: np.linalg.solve(x, x), ONE),
    "lstsq of a vector": (lambda x: np.linalg.lstsq(x, x, None)[0], ONE),
    "lstsq of a stack": (lambda x: np.linalg.lstsq(x, ONE, None)[0], STACK),
    "lstsq of a scalar": (lambda x: np.linalg.lstsq(x, x[0, 0], None)[0], SQUARE),
    "power": (lambda x: np.linalg.matrix_power(x, 2), WIDE),
    "power of a vector": (lambda x: np.linalg.matrix_power(x, 0), ONE),
    "inverse power": (lambda x: np.linalg.matrix_power(x, -1), WIDE),
    "mask": (lambda x: x[np.array([True, False])], ONE),
    "mask of itself": (lambda x: x[x[:2] > 0].sum(), ONE),
    "mask of axes": (lambda x: x[np.ones((3, 3, 3), bool)], SQUARE),
    "indices": (lambda x: x[[0, 1], [0, 1, 2]], SQUARE),
    "where": (lambda x: np.where(x > 0, x.astype(int), 2**64), ONE),
    "select": (lambda x: np.select([x > 0, x < 0], [x.astype("u1"), 1]), ONE),
    "negative power": (lambda x: x.astype(int) ** -1, ONE),
    "order": (lambda x: x.reshape(3, 3, order="Z"), SQUARE),
    "norm": (lambda x: np.linalg.norm(x, "x"), SQUARE),
    "norm of a vector": (lambda x: np.linalg.norm(x, "fro"), ONE),
    "matrix norm": (lambda x: np.linalg.matrix_norm(x, ord=1), ONE),
    "outer of matrices": (lambda x: np.linalg.outer(x, x), SQUARE),
    "cond of nothing": (lambda x: np.linalg.cond(x), np.zeros((0, 3))),
    "cond of a vector": (lambda x: np.linalg.cond(x, "fro"), ONE),
    "side": (lambda x: np.searchsorted(x, 1, side="mid"), ONE),
    "convolve": (lambda x: np.convolve(x, x, "most"), ONE),
    "mode of take": (lambda x: np.take(x, [0], mode="most"), ONE),
    "bins": (lambda x: np.histogram(x, 0), ONE),
    "x alone": (lambda x: np.where(x > 0, x), ONE),
    "indexing": (lambda x: np.meshgrid(x, x, indexing="yx"), ONE),
    "a name as key": (lambda x: x["a"], ONE),
    "a float as key": (lambda x: x[1.5], ONE),
    "floats as key": (lambda x: x[x], ONE),
    "moveaxis": (lambda x: np.moveaxis(x, 3, 0), ONE),
    "average": (lambda x: np.average(x, -1), np.zeros((0, 3))),
    "correlate": (lambda x: np.correlate(x, x), np.ones(())),
    "matvec": (lambda x: np.matvec(x, x), ONE),
    "vecmat": (lambda x: np.vecmat(x, x), ONE),
}


def kind_of_numpy(function: Callable[[Any], Any], x: Any) -> type[Exception]:
    try:
        function(x)
    except Exception as error:
        return type(error)
    raise AssertionError("NumPy takes it")


@pytest.mark.parametrize("mode", ["jit", "lazy", "grad"])
@pytest.mark.parametrize("name", CASES)
def test_an_error_is_of_the_kind_that_numpy_raises(name: str, mode: str) -> None:
    function, x = CASES[name]
    kind = kind_of_numpy(function, x)
    ways: dict[str, Callable[[Any], Any]] = {
        "jit": eq.jit(function),
        "lazy": lambda x: np.asarray(function(eq.array(x))),
        "grad": eq.grad(lambda x: np.sum(function(x))),
    }
    with pytest.raises(kind) as ours:
        ways[mode](x)
    assert isinstance(ours.value, eq.EqsatError)
    assert "test_error_kinds.py" in str(ours.value)
