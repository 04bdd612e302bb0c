"""Arrays of other libraries: taken as arguments without a copy, given back as their
kind, or refused by name. The table is in eqsat/documentation/howto/arrays.md."""

from __future__ import annotations

import array
import ctypes
import dataclasses
import gc
import importlib.util
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse
from evaluate import assert_same

import eqsat as eq
from eqsat.support.errors import DTypeError, ReadOnlyError, TraceError
from eqsat.trace import flatten_arguments

BACKENDS = ["native", "numpy"]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.bool_, np.int8, np.uint16, np.int64, np.float16, BF16, np.float32]


class ByArray:
    """Known by ``__array__`` alone."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.x if dtype is None else self.x.astype(dtype)


class ByInterface:
    """Known by ``__array_interface__``."""

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def __array_interface__(self) -> Any:
        return self.x.__array_interface__


class ByDLPack:
    """Known by ``__dlpack__``, on a device of choice."""

    def __init__(self, x: Any, device: int = 1) -> None:
        self.x, self.device = x, device

    def __dlpack__(self, **how: Any) -> Any:
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class OnGPU:
    """What CuPy and Numba show."""

    __cuda_array_interface__ = ("shape", "typestr", "data", "version")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("implicit conversion")


PROTOCOLS = [ByArray, ByInterface, ByDLPack]
SHARED = [ByInterface, ByDLPack]


def set_first(x: Any) -> None:
    x[0] = 7


def returned(x: Any, y: Any) -> Any:
    x += y
    return x, x * 2


def view_of(x: Any) -> Any:
    """The array of NumPy that a call reads in the place of ``x``."""
    (leaf,) = flatten_arguments(lambda x: x, (x,), {}).leaves
    return leaf.value


def refusal(f: Callable[..., Any], *args: Any, kind: Any = TraceError) -> str:
    with pytest.raises(kind) as caught:
        f(*args)
    return str(caught.value)


double = eq.jit(lambda x: x * 2 + 1)


# -- protocols, without any library ----------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_what_speaks_a_protocol_is_an_array(kind: Any, backend: str) -> None:
    x, w = np.arange(6.0).reshape(2, 3), np.ones(3)
    f = eq.jit(lambda p, y: p["x"][0].T * 2 + y, backend=backend)
    got = f({"x": [kind(x)]}, ByArray(w[:2]))
    assert type(got) is np.ndarray
    assert_same(got, x.T * 2 + w[:2])
    grad = eq.grad(lambda x: (x * x).sum(), backend=backend)
    assert_same(grad(kind(x)), 2 * x)


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_memory_is_shared_and_kept(kind: Any) -> None:
    x = np.arange(3.0)
    assert np.shares_memory(view_of(kind(x)), x)
    for _ in range(3):
        assert_same(double(kind(x)), x * 2 + 1)
        x += 1
    view, alive = view_of(kind(x)), weakref.ref(x)
    del x
    gc.collect()
    assert alive() is not None and view[0] == 3
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", SHARED)
def test_writes_reach_what_shares_its_memory(kind: Any, backend: str) -> None:
    x = np.arange(3.0)
    given = kind(x)
    got, twice = eq.jit(returned, backend=backend)(given, np.ones(3))
    assert got is given
    assert_same(x, np.arange(3.0) + 1)
    assert_same(twice, 2 * x)
    x.flags.writeable = False
    refused = refusal(eq.jit(set_first), kind(x), kind=ReadOnlyError)
    assert f"{kind.__name__} that cannot be written to" in refused


def test_writes_to_what_may_be_a_copy_are_refused() -> None:
    x = np.arange(3.0)
    assert "argument x" in refusal(eq.jit(set_first), ByArray(x), kind=ReadOnlyError)
    assert_same(x, np.arange(3.0))
    assert x.flags.writeable


def test_two_that_share_memory_are_not_written_to() -> None:
    x = np.arange(3.0)
    f = eq.jit(returned)
    assert "share memory" in refusal(f, ByDLPack(x), ByInterface(x))
    assert "share memory" in refusal(f, x, ByDLPack(x))
    assert_same(x, np.arange(3.0))


def test_one_program_serves_all_kinds() -> None:
    x = np.arange(3.0)
    f = eq.jit(lambda x: np.tanh(x) * 2)
    want = f(x)
    for kind in PROTOCOLS:
        assert_same(f(kind(x)), want)
        assert_same(f.lower(kind(x)).compile()(x)[0], want)
    assert len(f._lowered) == 1
    assert type(f(x)) is np.ndarray


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_declared_constants_count_by_identity(kind: Any) -> None:
    w, x = np.eye(3), np.ones(3)
    f = eq.jit(lambda x, w: x @ w, constants=("w",))
    one, other = kind(w), kind(2 * w)
    for _ in range(2):
        assert_same(f(x, one), x)
        assert_same(f(x, other), 2 * x)
    assert len(f._lowered) == 2


@pytest.mark.parametrize("kind", [ByArray, ByInterface])
def test_dtypes_of_an_array_by_protocol_are_checked(kind: Any) -> None:
    said = refusal(double, kind(np.ones(3, "G")), kind=DTypeError)
    assert "argument x" in said and "complex256" in said


def test_lazy_arrays_copy() -> None:
    x = np.arange(3.0)
    for kind in PROTOCOLS:
        made = eq.array(kind(x))
        x += 1
        assert_same(made.eval(), x - 1)
    for buffer in (array.array("d", [1, 2]), memoryview(x), (ctypes.c_int * 2)(3, 4)):
        assert_same(eq.array(buffer).eval(), np.asarray(buffer))


def test_memory_of_a_device_is_refused() -> None:
    for x in (OnGPU(), ByDLPack(np.ones(2), device=2)):
        for f in (double, eq.array, eq.grad(lambda x: x.sum())):
            said = refusal(f, x)
            assert type(x).__name__ in said and "copy it to the host" in said


def test_a_mask_behind_a_protocol_is_not_lost() -> None:
    x = np.ma.masked_array([1.0, 2.0], [True, False])
    for f in (double, eq.array):
        assert "x.filled" in refusal(f, ByArray(x))
        assert "x.filled" in refusal(f, x)
    own = np.ones(2).view(type("Own", (np.ndarray,), {}))
    assert "Own" in refusal(double, ByArray(own))


def test_what_fails_to_become_an_array_is_named() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise ValueError("no data")

    said = refusal(double, Broken())
    assert (
        "argument x is" in said and "Broken" in said and "ValueError: no data" in said
    )


@pytest.mark.parametrize(
    "x, remedy",
    [
        (scipy.sparse.csr_matrix(np.eye(2)), "x.toarray()"),
        (scipy.sparse.coo_array(np.eye(2)), "x.toarray()"),
        (array.array("d", [1.0, 2.0]), "np.asarray(x)"),
        (memoryview(np.ones(2)), "np.asarray(x)"),
        (memoryview(b"ab"), "np.asarray(x)"),
        ((ctypes.c_double * 2)(1, 2), "np.asarray(x)"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_is_refused_names_the_remedy(x: Any, remedy: str) -> None:
    said = refusal(double, x)
    assert "argument x is" in said and type(x).__name__ in said and remedy in said
    assert remedy in refusal(eq.jit(lambda p: p[0] * 2), [x])


@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize(
    "use",
    [
        lambda x, w: x + w,
        lambda x, w: w + x,
        lambda x, w: x @ w,
        lambda x, w: np.add(w, x),
        lambda x, w: np.dot(w, x),
        lambda x, w: w,
    ],
)
def test_outside_of_arguments_they_are_refused(use: Any, kind: Any) -> None:
    w = kind(np.ones(3))
    for f in (eq.jit(lambda x: use(x, w)), eq.jit(lambda x: eq.jit(use)(x, w))):
        said = refusal(f, np.ones(3))
        assert kind.__name__ in said and "arguments only" in said


def test_containers_and_methods_stay_what_they_are() -> None:
    @dataclasses.dataclass
    class Box:
        x: Any

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise AssertionError("a container is no array")

    class Model:
        def __init__(self) -> None:
            self.rate = 2.0

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise AssertionError("not asked")

        def step(self, x: Any) -> Any:
            return x * self.rate

    assert_same(eq.jit(lambda b: b.x * 2)(Box(np.ones(2))), np.full(2, 2.0))
    model = Model()
    step = eq.jit(model.step)
    assert_same(step(np.ones(2)), np.full(2, 2.0))
    model.rate = 3.0
    assert_same(step(np.ones(2)), np.full(2, 3.0))


def test_types_are_not_kept() -> None:
    def use() -> Any:
        class Passing(ByArray):
            pass

        double(Passing(np.ones(3)))
        return weakref.ref(Passing)

    alive = use()
    gc.collect()
    assert alive() is None


def test_no_library_is_imported() -> None:
    code = (
        "import sys, numpy as np, eqsat as eq\n"
        "class A:\n"
        "    def __array__(self, dtype=None, copy=None): return np.ones(3)\n"
        "eq.jit(lambda x: x + 1, backend='numpy')(A())\n"
        "assert not {'torch', 'jax', 'pandas', 'scipy.sparse'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- PyTorch ---------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def tensor(torch: Any, x: Any) -> Any:
    """A tensor of the values of ``x``."""
    if x.dtype == BF16:
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(x.copy())


def values(x: Any) -> Any:
    """The values of a tensor."""
    if str(x.dtype) == "torch.bfloat16":
        return x.float().numpy().astype(BF16)
    return x.numpy()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors(torch: Any, dtype: Any, backend: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)

    def f(x: Any) -> Any:
        return {"twice": x + x, "sum": x.max(), "n": 3, "part": x.T[1:]}

    g = eq.jit(f, backend=backend)
    want = f(x)
    for t in (tensor(torch, x), tensor(torch, x.T.copy()).T, tensor(torch, x)[:, :]):
        got = g(t)
        for name in ("twice", "sum", "part"):
            assert type(got[name]) is torch.Tensor
            assert_same(values(got[name]), np.asarray(want[name]))
        assert got["n"] == 3


def test_tensors_on_mlx(torch: Any) -> None:
    pytest.importorskip("mlx.core")
    got = eq.jit(lambda x: x * 2 + 1, backend="mlx")(torch.ones(3))
    assert torch.equal(got, torch.full((3,), 3.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_reach_a_tensor(torch: Any, backend: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(3, 2, dtype=dtype)
        row = x.T
        got, twice = eq.jit(returned, backend=backend)(row, torch.ones(2, 3).to(dtype))
        assert got is row and (x == 1).all() and (twice == 2).all()
    w = torch.ones(3, requires_grad=True)
    saved = torch.ones(3)
    loss = (w * saved).sum()
    eq.jit(set_first)(saved)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


def test_results_own_their_memory(torch: Any) -> None:
    f = eq.jit(lambda x: (x, x * 2, np.full(4, 3.0)))
    x = torch.arange(1000.0)
    kept = [f(x) for _ in range(20)]
    kept[0][0][0], kept[0][2][0] = -1, -1
    assert x[0] == 0 and f(x)[2][0] == 3
    x = None
    gc.collect()
    others = [np.full(1000, 5.0, np.float32) for _ in range(50)]
    want = torch.arange(1000.0)
    assert all(torch.equal(k[1], 2 * want) for k in kept) and len(others) == 50


def test_gradients_are_tensors(torch: Any) -> None:
    def loss(p: Any, x: Any) -> Any:
        return ((x @ p["w"] + p["b"]) ** 2).mean()

    p = {"w": torch.randn(3, 2), "b": torch.randn(2)}
    x = torch.randn(4, 3)
    value, g = eq.value_and_grad(loss)(p, x)
    for leaf in p.values():
        leaf.requires_grad_()
    want = loss(p, x)
    want.backward()
    torch.testing.assert_close(value, want.detach())
    torch.testing.assert_close(g["w"], p["w"].grad)
    torch.testing.assert_close(g["b"], p["b"].grad)


def test_tensors_that_are_refused(torch: Any) -> None:
    x = torch.ones(2, 2)

    class Own(torch.Tensor):
        pass

    cases = [
        (x.clone().requires_grad_(), "x.detach()"),
        (torch.nn.Parameter(x), "x.detach()"),
        (x.to_sparse(), "x.to_dense()"),
        (x.to("meta"), "x.cpu()"),
        (torch.complex(x, x).conj().imag, "resolve_neg"),
        (x.as_subclass(Own), "as_subclass"),
    ]
    for t, remedy in cases:
        for f in (double, eq.array, eq.grad(lambda x: x.sum())):
            assert remedy in refusal(f, t)
    assert (np.asarray(double(torch.complex(x, x))) == 3 + 2j).all()
    with pytest.raises(TraceError):
        torch.func.vmap(double)(x)
    assert (double(torch.nn.Parameter(x, requires_grad=False)) == 3).all()


def test_tensors_whose_elements_share_places_are_only_read(torch: Any) -> None:
    for x in (torch.ones(3, 1).expand(3, 2), torch.ones(5).unfold(0, 3, 1)):
        assert (double(x) == 3).all()
        refusal(eq.jit(set_first), x, kind=ReadOnlyError)


def test_a_tensor_outside_that_changes_is_seen(torch: Any) -> None:
    w = torch.ones(3)
    f = eq.jit(lambda x: x + float(w[0]))
    assert_same(f(np.ones(2)), np.full(2, 2.0))
    w[0] = 5
    assert_same(f(np.ones(2)), np.full(2, 6.0))
    assert "arguments only" in refusal(eq.jit(lambda x: w * x), np.ones(3))


@pytest.mark.parametrize(
    "read",
    [lambda w: np.asarray(w), lambda w: w.numpy().copy(), lambda w: float(w[0, 0])],
)
def test_tensors_that_objects_hold_are_seen_to_change(torch: Any, read: Any) -> None:
    class Held:
        w = torch.ones(1, 2)

        def call(self, x: Any) -> Any:
            return x * read(self.weight.detach())

    held, module = Held(), torch.nn.Linear(2, 1)
    held.weight = torch.ones(1, 2)
    x = np.ones((1, 2), np.float32)
    for f, weight in (
        (eq.jit(lambda x: x * read(module.weight.detach())), module.weight),
        (eq.jit(lambda x, m=module: x * read(m.weight.detach())), module.weight),
        (eq.jit(held.call), held.weight),
    ):
        before = f(x)
        with torch.no_grad():
            weight.mul_(2)
        np.testing.assert_allclose(f(x), 2 * before)
    f = eq.jit(lambda m, x: x * read(m.weight.detach()))
    before = f(module, x)
    with torch.no_grad():
        module.weight.mul_(2)
    np.testing.assert_allclose(f(module, x), 2 * before)


def test_arrays_of_numpy_beside_tensors_and_two_libraries(torch: Any) -> None:
    f = eq.jit(lambda x, y: x + y)
    x = torch.ones(2)
    for y in (np.ones(2, np.float32), np.float32(1), ByArray(np.ones(2, np.float32))):
        assert torch.equal(f(x, y), x + 1) and torch.equal(f(y, x), x + 1)
    mx = pytest.importorskip("mlx.core")
    assert "MLX" in refusal(f, x, mx.ones(2)) and "PyTorch" in refusal(f, mx.ones(2), x)


# -- JAX -------------------------------------------------------------------------------


def test_arrays_of_jax() -> None:
    """In a process of its own: JAX warns of each fork once it is imported."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    tests = Path(__file__).with_name("foreign_jax.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout


# -- pandas ----------------------------------------------------------------------------


@pytest.fixture
def pandas() -> Any:
    return pytest.importorskip("pandas")


def test_series_and_frames_give_arrays_of_numpy(pandas: Any) -> None:
    x = np.arange(6.0).reshape(3, 2)
    for given in (
        pandas.Series(x[:, 0]),
        pandas.DataFrame(x),
        pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}),
        pandas.Index([1, 2, 3]),
        pandas.RangeIndex(3),
    ):
        got = double(given)
        assert type(got) is np.ndarray
        assert_same(got, given.to_numpy() * 2 + 1)
        assert "cannot be written to" in refusal(
            eq.jit(set_first), given, kind=ReadOnlyError
        )
    column = pandas.Series(x[:, 0])
    assert np.shares_memory(view_of(column), column.to_numpy())


def test_dtypes_of_pandas_that_are_refused(pandas: Any) -> None:
    for x in (
        pandas.Series([1, None], dtype="Int64"),
        pandas.Series(["a"], dtype="category"),
        pandas.Series(["a"]),
        pandas.Series([1, "a"], dtype=object),
        pandas.to_datetime(pandas.Series(["2020-01-01"])),
        pandas.DataFrame({"a": [1.0], "b": ["x"]}),
        pandas.MultiIndex.from_tuples([(1, 2)]),
    ):
        for f in (double, eq.array):
            said = refusal(f, x, kind=DTypeError)
            assert "x is" in said or "x: dtype" in said or "the data" in said
    assert "np.asarray" in refusal(double, pandas.array([1, 2]))


def test_labels_that_pandas_would_align_are_refused(pandas: Any) -> None:
    add = eq.jit(lambda x, y: x + y)
    x = pandas.Series([1.0, 2.0, 3.0])
    assert_same(add(x, x.copy()), 2 * x.to_numpy())
    assert "labels" in refusal(add, x, x.iloc[::-1])
    assert_same(add(x, x.iloc[::-1].to_numpy()), np.full(3, 4.0))
    frame = pandas.DataFrame(np.ones((3, 2)), columns=["a", "b"])
    fit = eq.jit(lambda x, w: x @ w)
    assert_same(fit(frame, pandas.Series([1.0, 2], ["a", "b"])), np.full(3, 3.0))
    assert "labels" in refusal(fit, frame, pandas.Series([1.0, 2], ["b", "a"]))
    assert "labels" in refusal(add, frame, frame[["b", "a"]])
    assert_same(eq.jit(lambda x, y: y @ x)(frame, x), np.full(2, 6.0))


def test_a_series_beside_a_traced_array_is_refused(pandas: Any) -> None:
    w = pandas.Series([1.0, 2.0, 3.0])
    for use in (lambda x: w + x, lambda x: x * w, lambda x: np.add(w, x)):
        assert "arguments only" in refusal(eq.jit(use), np.ones(3))
    f = eq.jit(lambda x: x + np.asarray(w))
    assert_same(f(np.ones(3)), np.array([2.0, 3.0, 4.0]))
    w.iloc[0] = 9
    assert_same(f(np.ones(3)), np.array([10.0, 3.0, 4.0]))
