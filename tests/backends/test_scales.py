"""Ops that multiply by a fraction, as degrees do: one number, NumPy's, everywhere."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from programs import program_of

from eqsat.backends.gpu.c_code import DIALECTS
from eqsat.backends.gpu.gpu_program import Generated, parts_of
from eqsat.backends.native import backend as native
from eqsat.backends.numpy import lower
from eqsat.terms import Op

SCALED = [op.name for op in Op.registry.values() if op.scale is not None]
FLOATS = [np.dtype("f4"), np.dtype("f8")]


def drawn(dtype: Any) -> Any:
    return np.random.default_rng(0).standard_normal(1000).astype(dtype)


def test_there_are_some() -> None:
    assert set(SCALED) == {"degrees", "rad2deg", "radians", "deg2rad"}


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_results_are_numpys_bit_for_bit(name: str, dtype: Any) -> None:
    x = drawn(dtype)
    program = program_of(Op.registry[name], x)
    want = getattr(np, name)(x)
    for run in lower(program).run, native.lower(program):
        np.testing.assert_array_equal(np.asarray(run(x)[0]), want)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_mlx_has_numpys_results(name: str, dtype: Any) -> None:
    pytest.importorskip("mlx.core")
    from eqsat.backends import mlx

    x = drawn(dtype)
    found = mlx.lower(program_of(Op.registry[name], x), "").run(mlx.to_mlx(x))[0]
    np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x))


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("language", DIALECTS)
def test_a_gpu_multiplies_by_the_same_number(name: str, language: str) -> None:
    (kernel,) = program_of(Op.registry[name], drawn("f4")).kernels
    (part,) = parts_of(kernel, DIALECTS[language], {})
    assert isinstance(part, Generated)
    text = part.source.body
    numbers = {np.float32(n) for n in re.findall(r"\* (\d[\d.e+-]*)f\)", text)}
    assert numbers == {getattr(np, name)(np.float32(1))}
