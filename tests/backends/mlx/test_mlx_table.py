"""What becomes of each op on MLX: a kernel that is generated, calls of MLX, NumPy's
functions, or an error. An op that is new has to be named here, or has a kernel."""

from __future__ import annotations

from typing import Any

import families
import numpy as np
import pytest
from agreement import BF16
from programs import program_of

import eqsat as eq
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.gpu_program import parts_of
from eqsat.backends.loop_ir.index_maps import (
    Unsupported,
)
from eqsat.kernels.program import Program
from eqsat.terms.op import Op
from eqsat.terms.term import postorder

pytest.importorskip("mlx.core")
mlx = pytest.importorskip("eqsat.backends.mlx")
languages = pytest.mark.parametrize("language", sorted(DIALECTS))
F64 = np.dtype("f8")
HALVES, WHOLE = ("float16", "bfloat16"), ("int32", "uint8")
BY_CALLS: dict[tuple[str, str], str] = {
    **{
        ("nextafter", d): "its steps are those of the half, not of float32"
        for d in HALVES
    },
    **{("gcd", d): "a loop of divisions: MLX runs it" for d in WHOLE},
    **{("lcm", d): "as gcd" for d in WHOLE},
    **{("bitwise_count", d): "MLX's shifts and sums" for d in WHOLE},
    **{("power", d): "negative exponents are checked" for d in WHOLE},
    **{("reciprocal", d): "of 0 what NumPy has" for d in WHOLE},
}
"""Pointwise ops whose results a GPU can hold, without a kernel: why."""
BY_NUMPY = {
    **dict.fromkeys(
        ("lu", "lu_solve", "lu_inv", "cholesky", "solve_triangular"),
        "LAPACK's, which tells a singular matrix, as MLX's on the CPU does not",
    ),
    **dict.fromkeys(("decompose", "pinv"), "LAPACK's, which tells what fails"),
    **dict.fromkeys(
        "erfc erfcx erfinv log_ndtr ndtri digamma trigamma gammaln gamma beta betaln "
        "i0 i0e i1 i1e j0 j1".split(),
        "SciPy's on the CPU, where MLX runs no kernel of ours",
    ),
}
"""Ops of float32 that MLX's CPU has NumPy's functions for: why."""


def given(name: str, dtype: Any) -> list[Any]:
    rng, op = np.random.default_rng(0), Op.registry[name]
    return families.arguments(name, rng, [(2, 65)] * len(op.params), np.dtype(dtype))


def program(name: str, dtype: Any) -> Program:
    op = Op.registry[name]
    return program_of(lambda *xs: op(*xs), *given(name, dtype))


def is_wide(found: Program) -> bool:
    """Whether float64 is computed: of integers, of float_power, or asked for."""
    return any(t.dtype == F64 for t in postorder(found.roots))


def has_kernel(found: Program, language: str) -> bool:
    try:
        parts_of(found.kernels[0], DIALECTS[language], {})
    except Unsupported:
        return False
    return True


@languages
@pytest.mark.parametrize("dtype", ["f4", "f2", BF16, "i4", "u1", "?"], ids=str)
def test_pointwise_ops_have_kernels(language: str, dtype: Any) -> None:
    dtype = np.dtype(dtype)
    without, wanted = set(), {n for n, d in BY_CALLS if d == dtype.name}
    for name in families.POINTWISE:
        if dtype not in families.admitted(name):
            continue
        found = program(name, dtype)
        if is_wide(found):
            with pytest.raises(eq.BackendError, match=r"is float64, which MLX has on"):
                mlx.lower(found, language)
        elif not has_kernel(found, language):
            without.add(name)
    assert without == {n for n in wanted if dtype in families.admitted(n)}


@languages
def test_no_pointwise_op_waits_for_the_host(language: str) -> None:
    for name in families.POINTWISE:
        for dtype in families.admitted(name):
            found = program(name, dtype)
            if not is_wide(found):
                assert "_by_numpy(" not in mlx.lower(found, language).source, name


def test_ops_that_run_as_numpys_on_the_cpu() -> None:
    found = set()
    for name in families.POINTWISE:
        if np.dtype("f4") in families.admitted(name):
            if "_by_numpy(" in mlx.lower(program(name, "f4"), "").source:
                found.add(name)
    others = {n for n in BY_NUMPY if Op.registry[n].kind != "pointwise"}
    assert found == set(BY_NUMPY) - others
