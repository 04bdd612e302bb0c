"""The namespace of the array API standard, with NumPy as the judge: each name of the
standard is called on lazy arrays and on arrays of NumPy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat import array_api as xp

A = np.array([[0.5, -1.5, 2.0], [3.25, 0.0, -0.75]])
B = np.array([[1.5, 2.0, -0.5], [0.25, 4.0, 1.0]])
U = np.array([[0.1, 0.5, 0.9], [0.3, 0.7, 0.2]])
I = np.array([[3, 1, 2], [1, 0, 7]])  # noqa: E741
J = np.array([[2, 1, 3], [1, 4, 2]])
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
ROWS = np.array([[1, 0, 2], [2, 2, 0]])

CALLS: dict[str, Callable[[Any, Any], Any]] = {}
"""By the name of a function: a call of it in a namespace, ``a`` makes an array."""


def _calls(names: str, *arrays: Any, **kwargs: Any) -> None:
    for name in names.split():

        def call(m: Any, a: Any, name: str = name) -> Any:
            found = m
            for part in name.split("."):
                found = getattr(found, part)
            given = [a(x) if isinstance(x, np.ndarray) else x for x in arrays]
            return found(*given, **kwargs)

        CALLS[name + "".join(f" {k}={v}" for k, v in kwargs.items())] = call


_calls("abs asinh atan ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan", A)
_calls("negative positive real round sign signbit sin sinh square tan tanh trunc", A)
_calls("acos asin atanh log log10 log1p log2 reciprocal sqrt", U)
_calls("acosh", U + 1)
_calls("add atan2 copysign divide equal floor_divide greater greater_equal hypot", A, B)
_calls("less less_equal logaddexp maximum minimum multiply nextafter not_equal", A, B)
_calls("remainder subtract", A, B)
_calls("pow", U, B)
_calls("bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift", I, J)
_calls("bitwise_xor", I, J)
_calls("bitwise_invert", I)
_calls("logical_and logical_or logical_xor", A > 0, B > 1)
_calls("logical_not", A > 0)
_calls("clip", A, -1.0, 1.0)
_calls("clip", A, max=0.5)
_calls("all any count_nonzero argmax argmin max mean min prod std sum var", A)
_calls("all any count_nonzero argmax argmin max mean min prod std sum var", A, axis=1)
_calls("max sum std", A, axis=0, keepdims=True)
_calls("std var", A, correction=1)
_calls("cumulative_prod cumulative_sum diff sort argsort flip", A, axis=1)
_calls("cumulative_sum", A, axis=0, include_initial=True)
_calls("concat stack", [A, B])
_calls("expand_dims squeeze", A[None], axis=0)
_calls("moveaxis", A, 0, 1)
_calls("permute_dims", A, (1, 0))
_calls("repeat", A, 2)
_calls("reshape broadcast_to", A, (2, 3))
_calls("roll", A, 1)
_calls("tile", A, (2, 1))
_calls("unstack matrix_transpose tril triu nonzero", A)
_calls("broadcast_arrays meshgrid", A[0], B[0])
_calls("searchsorted", np.sort(U[0]), U)
_calls("take", A, np.array([1, 0]), axis=0)
_calls("take_along_axis", A, ROWS, axis=1)
_calls("unique_all unique_counts unique_inverse", ROWS)
_calls("where", A > 0, A, B)
_calls("matmul", A, B.T.copy())
_calls("tensordot", A, B.T.copy(), axes=1)
_calls("vecdot", A, B)
_calls("linalg.det linalg.eigvalsh linalg.inv linalg.cholesky linalg.pinv", S)
_calls("linalg.slogdet linalg.svdvals linalg.trace linalg.diagonal", S)
_calls("linalg.matrix_norm linalg.matrix_rank linalg.matrix_transpose", S)
_calls("linalg.vector_norm", S)
_calls("linalg.matrix_power", S, 3)
_calls("linalg.matmul linalg.solve", S, A.T.copy())
_calls("linalg.outer", A[0], B[0])
_calls("linalg.cross linalg.vecdot", A, B)
_calls("linalg.tensordot", S, S)
_calls("fft.fftshift fft.ifftshift", A)
_calls("zeros_like ones_like", A)
_calls("full_like", A, 3)
_calls("zeros ones", (2, 3))
_calls("full", (2, 3), 1.5)
_calls("arange", 1, 9, 2)
_calls("linspace", 0, 1, 5)
_calls("eye", 3)
_calls("fft.fftfreq fft.rfftfreq", 5)
_calls("astype", A, np.float32)
_calls("asarray", [[1, 2], [3, 4]])
_calls("asarray", A, dtype=np.float32)

BY_PROPERTY = {
    *("empty", "empty_like", "from_dlpack", "can_cast", "finfo", "isdtype"),
    *("result_type", "unique_values"),
    *("linalg.eigh", "linalg.qr", "linalg.svd"),
    *(f"fft.{i}{f}" for i in ("", "i") for f in ("fft", "fftn", "rfft", "rfftn")),
    *("fft.hfft", "fft.ihfft", "fft.irfft", "fft.irfftn"),
}
"""Functions that have tests of their own below."""


def _names() -> list[str]:
    extensions = [f"linalg.{n}" for n in dir(xp.linalg)]
    extensions += [f"fft.{n}" for n in dir(xp.fft)]
    found = []
    for name in [*xp.__all__, *extensions]:
        value: Any = xp
        for part in name.split("."):
            value = getattr(value, part)
        if inspect.isfunction(value) and not name.rpartition(".")[2].startswith("_"):
            found.append(name)
    helpers = {"of_numpy", "check_device", "array"}
    return [n for n in found if n.rpartition(".")[2] not in helpers]


def test_every_function_of_the_namespace_is_called_here() -> None:
    called = {name.partition(" ")[0] for name in CALLS}
    assert called | BY_PROPERTY == {*_names()}


def same(found: Any, want: Any, where: str) -> None:
    """Fail unless a result is NumPy's, in lazy arrays."""
    if isinstance(want, (tuple, list)):
        assert len(found) == len(want), where
        for f, w in zip(found, want, strict=True):
            same(f, w, where)
        return
    assert isinstance(found, eq.LazyArray), where
    assert found.dtype == want.dtype and found.shape == np.shape(want), where
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12, err_msg=where)


@pytest.mark.parametrize("name", CALLS)
def test_functions_give_what_numpy_gives(name: str) -> None:
    call = CALLS[name]
    same(
        call(xp, lambda x: eq.array(x) * 1 if x.dtype != bool else eq.array(x)),
        call(np, np.asarray),
        name,
    )


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_both_ways_is_stable(descending: bool) -> None:
    data = np.array([[3, 1, 2, 1, 3], [0, 0, 5, -1, 5]])
    sign = -1 if descending else 1
    x = xp.asarray(data)
    order = np.argsort(sign * data, axis=-1, stable=True)
    same(xp.argsort(x, descending=descending), order, "argsort")
    want = np.take_along_axis(data, order, -1)
    same(xp.sort(x, descending=descending), want, "sort")
    same(xp.sort(x, descending=descending, axis=0), np.sort(data, 0)[::sign], "sort 0")


def test_unique_values_are_in_order() -> None:
    """As scikit-learn needs them, whatever NumPy's own function does."""
    data = np.array([5.0, 0.0, np.nan, 7.0, 2.0, 5.0, np.nan, -1.0])
    want = np.array([-1.0, 0.0, 2.0, 5.0, 7.0, np.nan, np.nan])
    same(xp.unique_values(xp.asarray(data)), want, "unique_values")
    same(xp.unique_counts(xp.asarray(data)).values, want, "unique_counts")


def test_decompositions_multiply_to_the_matrix() -> None:
    x = xp.asarray(S)
    q, r = xp.linalg.qr(x)
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    values, vectors = xp.linalg.eigh(x)
    for product in (q @ r, (u * s) @ vh, (vectors * values) @ vectors.mT):
        np.testing.assert_allclose(product, S, atol=1e-12)
    assert xp.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")


@pytest.mark.parametrize("name", "fft ifft fftn ifftn rfft rfftn ihfft".split())
def test_transforms_are_complex(name: str) -> None:
    """Where the core knows no complex numbers, the error names their dtype."""
    transform = getattr(xp.fft, name)
    if "complex128" not in xp.__array_namespace_info__().dtypes():
        with pytest.raises(eq.DTypeError, match="complex128"):
            transform(xp.asarray(A))
        return
    want = getattr(np.fft, name)(A)
    same(transform(xp.asarray(A)), want, name)
    back = {"rfft": "irfft", "rfftn": "irfftn", "ihfft": "hfft"}.get(name)
    if back is not None:
        made = getattr(np.fft, back)(want)
        same(getattr(xp.fft, back)(xp.asarray(want)), made, back)


def test_dtypes() -> None:
    x = xp.asarray([1, 2], dtype=xp.int8)
    assert xp.result_type(x, xp.int16, 1) == xp.int16
    assert xp.can_cast(x, xp.int16) and not xp.can_cast(xp.float64, xp.int8)
    assert xp.finfo(xp.asarray(1.0)).bits == 64 and xp.iinfo(xp.int8).max == 127
    assert xp.isdtype(x.dtype, "integral") and not xp.isdtype(x.dtype, xp.int16)
    assert xp.isdtype(xp.float32, ("bool", "real floating"))
    y = xp.astype(x, xp.int8, copy=False)
    y[0] = 5
    assert int(x[0]) == 5
    xp.astype(x, xp.int8)[0] = 7
    assert int(x[0]) == 5


def test_inspection() -> None:
    info = xp.__array_namespace_info__()
    assert info.devices() == [info.default_device()] == [xp.zeros(1).device]
    assert info.capabilities()["boolean indexing"]
    assert info.default_dtypes()["real floating"] == xp.float64
    for name, dtype in info.dtypes().items():
        assert getattr(xp, name) == dtype
        assert (xp.ones(2, dtype=dtype) == 1).all()
    assert [*info.dtypes(kind="bool")] == ["bool"]
    assert xp.__array_api_version__ == "2024.12"


def test_arrays_know_their_namespace_and_device() -> None:
    x = eq.array(A) * 2
    assert x.__array_namespace__() is xp is eq.array_api
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match=r"2019\.01"):
        x.__array_namespace__(api_version="2019.01")
    assert x.to_device(x.device) is x
    for wrong in (
        lambda: x.to_device("gpu"),
        lambda: x.to_device("cpu", stream=1),
        lambda: xp.zeros(2, device="gpu"),
        lambda: xp.asarray(A, device="gpu"),
        lambda: xp.astype(x, xp.int8, device="gpu"),
    ):
        with pytest.raises(ValueError):
            wrong()
    np.testing.assert_array_equal(x.mT, (A * 2).T)


def test_asarray_copies_what_others_may_write_to() -> None:
    source = A.copy()
    x = xp.asarray(source)
    source[0] = 9
    np.testing.assert_array_equal(x, A)
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    y = xp.asarray(x, copy=True)
    y[0] = 9
    np.testing.assert_array_equal(x, A)
    for wrong in (A, [1.0, 2.0]):
        with pytest.raises(ValueError, match="copy=False"):
            xp.asarray(wrong, copy=False)


@pytest.mark.parametrize("made", [lambda: eq.array(A)[1:], lambda: eq.array(A)[1:] * 1])
def test_dlpack_both_ways(made: Callable[[], Any]) -> None:
    x = made()
    shown = np.from_dlpack(x)
    np.testing.assert_array_equal(shown, A[1:])
    assert not shown.flags.writeable and x.__dlpack_device__() == (1, 0)
    for kwargs in ({}, {"copy": True}, {"copy": False}, {"max_version": (1, 0)}):
        np.testing.assert_array_equal(np.from_dlpack(_Once(x, kwargs)), A[1:])
    source = A.copy()
    y = xp.from_dlpack(source)
    source[...] = 0
    np.testing.assert_array_equal(y, A)
    assert xp.from_dlpack(y) is y and xp.from_dlpack(y, copy=True) is not y
    with pytest.raises(BufferError, match="copy=False"):
        xp.from_dlpack(source, copy=False)


class _Once:
    """A producer whose consumer asks in the ways that ``kwargs`` say."""

    def __init__(self, x: Any, kwargs: dict[str, Any]) -> None:
        self.x, self.kwargs = x, kwargs

    def __dlpack__(self, **asked: Any) -> Any:
        return self.x.__dlpack__(**self.kwargs)

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()


def test_dlpack_with_torch() -> None:
    torch = pytest.importorskip("torch")
    x = xp.from_dlpack(torch.arange(3.0)) * 2
    assert torch.from_dlpack(x).tolist() == [0.0, 2.0, 4.0]


def test_calls_are_recorded_and_what_depends_on_values_is_not() -> None:
    x = xp.asarray(A)
    y = xp.sum(xp.exp(x) * 2, axis=0)
    assert y.value is None
    assert [k.ops for k in y.explain().kernels] == [
        ("exp", "multiply", "sum", "reshape")
    ]
    assert xp.unique_values(x).value is not None
    np.testing.assert_allclose(y, (np.exp(A) * 2).sum(0))


def test_the_names_at_the_top_are_those_of_the_standard() -> None:
    for name in "arange asarray eye full linspace ones zeros".split():
        assert getattr(eq, name) is getattr(xp, name)
