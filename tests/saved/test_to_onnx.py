"""Optimised programs as models of ONNX compute what they do, by ONNX Runtime too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import expressions
import numpy as np
import pytest
import scipy.special as sp
from saved_cases import CASES, drawn, inputs_of

import eqsat as eq
from eqsat.support import SavedProgramError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
X = drawn(3, 4)
NOT_IN_ONNX = {
    **{"sort": "sort of float32", "argsort": "argsort of int64"},
    **{"cholesky": "cholesky of float64", "solve": "lu of float64"},
    **{"powers": "arctan2 of float32", "nothing": "it returns no array"},
}
TOLERANCE = {2: 3e-3, 4: 3e-5, 8: 1e-9}
"""By the bytes of a float."""


def run(model: Any, arrays: Any) -> Any:
    """The outputs of a checked model by ONNX Runtime."""
    onnx.checker.check_model(model, full_check=True)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    session = runtime.InferenceSession(data, options, providers=providers)
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def same(got: Any, wanted: Any, most: int = 8) -> None:
    """``most``: bytes of the floats that the inputs have."""
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        tolerance = TOLERANCE[min(b.itemsize, most)] if b.dtype.kind == "f" else 0
        scale = np.max(np.abs(b), initial=1, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_model_computes_what_the_program_does(name: str) -> None:
    fn, args, kwargs = CASES[name]
    low = eq.jit(fn).lower(*args, **kwargs)
    if name in NOT_IN_ONNX:
        with pytest.raises(eq.SavedProgramError, match=NOT_IN_ONNX[name]):
            low.to_onnx()
        return
    given = inputs_of(args)
    same(run(low.to_onnx(), given), low.compile()(*given))


SPECIAL = np.array([0, -0.0, 1e-30, -1e-9, 0.5, -3, np.inf, -np.inf, np.nan], "f4")
POINTWISE: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, n) for n in "expm1 log1p cbrt sign trunc exp2 log2".split()},
    **{n: getattr(np, n) for n in "square isfinite degrees rint tanh".split()},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "hypot": lambda x: np.hypot(x, x[::-1]),
    "remainder": lambda x: x % np.float32(0.75),
    "floor_divide": lambda x: x[:6] // np.float32(-0.75),
    "fmod": lambda x: np.fmod(x, np.float32(0.75)),
    "fmax": lambda x: np.fmax(x, x[::-1]),
    "gelu": eq.gelu,
    "softmax": lambda x: eq.softmax(x[:6]),
    "logic": lambda x: (x > 0) & ~(x != 1) | np.isnan(x),
    "halves": lambda x: (x.astype("f2") * 3 + 1).sum(),
    "mean of none": lambda x: x[:0].mean(),
    "integers": lambda x: np.arange(9) // 4 - (np.arange(9) - x.size) % 4,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", POINTWISE)
def test_special_values_are_numpys(name: str) -> None:
    fn = POINTWISE[name]
    got = run(eq.jit(fn).lower(SPECIAL).to_onnx(), [SPECIAL])
    same(got, [np.asarray(fn(SPECIAL))])


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("op", [np.remainder, np.floor_divide, np.fmod])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_integers_by_zero_and_the_least_one(op: np.ufunc, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([7, info.min, info.max, info.min, 5, 0, info.min, 100], dtype)
    y = np.array([0, 0, 3, -1 if info.min else 1, 2, 0, info.max, 7], dtype)
    for f, args in (
        (op, (x, y)),
        (lambda x: op(x, 0), (x,)),
        (lambda x: op(x, 3), (x,)),
    ):
        got = run(eq.jit(f).lower(*args).to_onnx(), [*args])
        same(got, [np.asarray(f(*args))])


def test_each_kernel_is_a_function_and_equal_ones_are_one() -> None:
    ws = [drawn(8, 8) + i for i in range(5)]

    def layers(x: Any) -> Any:
        for w in ws:
            x = eq.layer_norm(x + np.tanh(x @ w), np.ones(8, "f4"), np.zeros(8, "f4"))
        return x

    low = eq.jit(layers).lower(drawn(5, 8))
    model = low.to_onnx()
    kernels = {k.name for k in low.program.kernels}
    functions = {f.name for f in model.functions}
    calls = [n for n in model.graph.node if n.domain == "eqsat"]
    assert {n.name for n in calls} == kernels and functions < kernels
    assert all(n.op_type in functions for n in calls)
    same(run(model, [drawn(5, 8)]), [layers(drawn(5, 8))])
    same([eq.from_onnx(model)(drawn(5, 8))], [layers(drawn(5, 8))])


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(eq.OnnxError, match=r"pip install 'eqsat\[onnx\]'"):
        eq.jit(lambda x: x + 1).lower(X).to_onnx()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", [g for g in vars(expressions) if g.isupper()])
def test_numpy_expressions(group: str) -> None:
    arrays = expressions.arrays()
    names, given = ", ".join(arrays), [*arrays.values()]
    known = {"np": np, "sp": sp, "C": drawn(3, 4)}
    for text in getattr(expressions, group).split(";"):
        f = eq.jit(eval(f"lambda {names}: {text.strip()}", known))
        low = f.lower(*given)
        try:
            model = low.to_onnx()
        except eq.SavedProgramError:
            continue
        try:
            got = run(model, given)
        except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
            continue
        try:
            same(got, low.compile()(*given), most=4)
        except AssertionError as error:
            error.add_note(text)
            raise


def changed() -> Any:
    weights = np.ones(2)
    low = eq.jit(lambda x: x * weights).lower(np.ones(2))
    weights[0] = 9
    return low


def by_layout(x: Any) -> Any:
    x.ravel()[1] = 5
    return x * 2


@pytest.mark.parametrize(
    "lowered, match",
    [
        (lambda: eq.jit(lambda x: x[x > 0]).lower(np.ones(3)), "depends on values"),
        (lambda: eq.jit(np.unique).lower(np.ones(3)), "depends on values"),
        (changed, "has changed since it was lowered"),
        (lambda: eq.jit(by_layout).lower(np.ones((2, 3), order="F")), "lie in memory"),
    ],
)
def test_what_is_more_than_a_program_is_refused(lowered: Any, match: str) -> None:
    with pytest.raises(SavedProgramError, match=match):
        lowered().to_onnx()


@pytest.mark.parametrize(
    "f, x, op",
    [
        (lambda x: x.argmax(), np.array([True, False]), "ArgMax"),
        (lambda x: -x, np.ones(3, np.uint8), "Neg"),
        (np.floor, np.ones(3, np.int32), "Floor"),
        (lambda x: x @ x, np.ones((3, 3), np.int16), "MatMul"),
    ],
)
def test_types_that_an_operator_does_not_have_are_refused(
    f: Any, x: Any, op: str
) -> None:
    with pytest.raises(SavedProgramError, match=rf"op_type:{op}\).*unsupported type"):
        eq.jit(f).lower(x).to_onnx()
