"""The MLX backend against the references of the ops, on MLX's default device."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bodies
import numpy as np
import pytest
from agreement import DTYPES, FLOATS, drawn
from hypothesis import given
from hypothesis import strategies as st
from networks import (
    GROUPS,
    NETWORKS,
    NUMPY_ARGUMENTS,
    written,
)
from programs import assert_near, program_of, rounding_of
from sizes import examples, seeds

import eqsat as eq
from eqsat import ops
from eqsat.backends.numpy import interpret
from eqsat.kernels.program import Program
from eqsat.ops.pointwise import cast
from eqsat.ops.transcendental import exp, sigmoid, tanh
from eqsat.ops.view import broadcast_to, flip, reshape
from eqsat.terms.op import Op
from eqsat.terms.term import postorder
from eqsat.terms.type_rules import BF16

mx = pytest.importorskip("mlx.core")
nn = pytest.importorskip("mlx.nn")
mlx = pytest.importorskip("eqsat.backends.mlx")
mlx_entry = pytest.importorskip("eqsat.backends.mlx.entry")
mlx_ops = pytest.importorskip("eqsat.backends.mlx.numpy_semantics")
transformable = pytest.importorskip("eqsat.backends.mlx.transforms").transformable

ON_GPU = mx.default_device().type == mx.gpu
F64 = np.dtype("f8")
DTYPES_HERE = [d for d in DTYPES if d != F64 or not ON_GPU]
FLOATS_HERE = [d for d in FLOATS if d in DTYPES_HERE]
quick = examples(20)
rng = np.random.default_rng(0)


def draw(*shape: int, dtype: str = "f4") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def assert_lowered(
    f: Callable[..., Any],
    *arrays: np.ndarray,
    tol: float = 1,
    language: str | None = None,
) -> str:
    """The MLX program of ``f`` gives what the oracle gives; its source."""
    program = program_of(f, *arrays)
    if ON_GPU and any(t.dtype == F64 for t in postorder(program.roots)):
        with pytest.raises(eq.BackendError, match="float64"):
            mlx.lower(program, language)
        return ""
    low = mlx.lower(program, language)
    got = low(*map(mlx.to_mlx, arrays))
    for y, w in zip(got, interpret(program.roots, arrays), strict=True):
        assert isinstance(y, mx.array)
        g = mlx.to_numpy(y)
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        assert_near(g, w, tol)
    return str(low.source)


# -- programs --------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_numpy_users_write(group: str) -> None:
    arrays = [*NUMPY_ARGUMENTS.values()]
    for text, done in written(group, draw(3, 4)):
        if ON_GPU and any(t.dtype == F64 for t in postorder(done.outputs)):
            continue
        program = Program.of(done.outputs, done.inputs, done.names)
        if any(t.dtype == np.dtype("c16") for t in postorder(done.outputs)):
            with pytest.raises(eq.BackendError, match="MLX has complex64 only"):
                mlx.lower(program)
            continue
        low = mlx.lower(program)
        want = interpret(done.outputs, arrays)
        for g, w, root in zip(low(*arrays), want, done.outputs, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape), text
            assert_near(g, w, 1, rounding_of(root))


@pytest.mark.parametrize("name", NETWORKS)
@quick
@given(seeds, st.sampled_from(FLOATS_HERE), st.booleans())
def test_networks(name: str, seed: int, dtype: Any, special: bool) -> None:
    f, shapes = NETWORKS[name]
    if ON_GPU and name.startswith(("conv2d", "attention")):
        special = False  # cuDNN's algorithms give other results for infinities
    arrays = [drawn(seed + i, s, dtype, special) for i, s in enumerate(shapes)]
    with np.errstate(all="ignore"):
        assert_lowered(f, *arrays, tol=4)


def test_integers_that_trap_a_processor() -> None:
    for dtype in ("i4", "i8", "u4", "i1"):
        least = np.iinfo(dtype).min
        x = np.array([least, 7, 7, 0, least], dtype)
        y = np.array([-1 if least else 3, 0, 2, 0, 1]).astype(dtype)
        with np.errstate(all="ignore"):
            for name in ("floor_divide", "remainder", "fmod", "gcd"):
                assert_lowered(lambda a, b, n=name: Op.registry[n](a, b), x, y)
    x = np.array([1, -3, 5], "i4")
    for n in (0, 5, 31, 32, 40):
        assert_lowered(lambda a, n=n: (np.left_shift(a, n), np.right_shift(a, n)), x)


@pytest.mark.skipif(ON_GPU, reason="no GPU of MLX has float64")
def test_float64_is_computed_in_float64() -> None:
    x = np.linspace(-3, 3, 50)
    names = "exp sin cos erf sigmoid log1p tanh cbrt exp2 log2".split()
    with np.errstate(all="ignore"):
        for name in names:
            assert_lowered(lambda a, n=name: Op.registry[n](a), x, tol=1e-3)
        assert_lowered(lambda a: (np.logaddexp(a, 1.0), ops.cast(a, "f2")), x, tol=1e-3)


def test_an_index_out_of_bounds_reads_nothing() -> None:
    f = eq.jit(lambda x, i: np.take(x, i, axis=0), backend="mlx")
    y = f(draw(4, 3), np.array([0, 4, -5, -1]))
    np.testing.assert_array_equal(np.isnan(y).all(1), [False, True, True, False])
    z = f(np.ones((4, 3), "i4"), np.array([0, 4]))
    np.testing.assert_array_equal(z, [[1] * 3, [0] * 3])


# -- what is asked of results ----------------------------------------------------------


def test_what_is_given_decides_what_is_returned() -> None:
    f = eq.jit(lambda x: np.tanh(x) * 2, backend="mlx")
    x = draw(3, 4)
    assert type(f(x)) is np.ndarray
    y = f(mx.array(x))
    assert isinstance(y, mx.array) and y.dtype == mx.float32
    np.testing.assert_allclose(np.array(y), np.tanh(x) * 2, rtol=1e-5)


def test_arrays_of_mlx_choose_the_backend() -> None:
    f = eq.jit(lambda p: {"y": ops.softmax(p["x"] @ p["w"])})
    p = {"x": draw(4, 6), "w": draw(6, 5)}
    m = {n: mx.array(x) for n, x in p.items()}
    want, got = f(p)["y"], f(m)["y"]
    assert type(want) is np.ndarray and isinstance(got, mx.array)
    np.testing.assert_allclose(np.array(got), want, rtol=1e-5)
    assert f.lower(m).backend.name == "mlx" and f.lower(p).backend.name != "mlx"
    again = pickle.loads(pickle.dumps(eq.jit(np.tanh)))
    assert isinstance(again(m["x"]), mx.array)
    assert type(eq.jit(np.tanh, backend="numpy")(m["x"])) is np.ndarray


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_the_cpu_reads_bfloat16_of_mlx(backend: str) -> None:
    function = eq.jit(lambda x: x[::-1] * 2, backend=backend)
    for _ in range(2):
        found = function(mx.array([1, 2, 3], dtype=mx.bfloat16))
        assert found.dtype == BF16 and found.tolist() == [6, 4, 2]


def test_the_entry_serves_what_it_has_learnt() -> None:
    scale = np.ones(3, "f4")
    f, g = eq.jit(lambda x, y: (x * y, x)), eq.jit(lambda x: x * scale)
    x, y, n = mx.array(draw(4, 3)), mx.array(draw(4, 3)), draw(4, 3)
    calls: Counter[str] = Counter()

    def check(x: Any, y: Any) -> None:
        a, b = f(x, y)
        wants = isinstance(x, mx.array) or isinstance(y, mx.array)
        assert isinstance(a, mx.array) == wants
        want = mlx.to_numpy(x) * mlx.to_numpy(y)
        np.testing.assert_allclose(mlx.to_numpy(a), want, rtol=1e-2)
        np.testing.assert_array_equal(mlx.to_numpy(b), mlx.to_numpy(x))

    half = x.astype(mx.bfloat16), y.astype(mx.bfloat16)
    for pair in ((x, y), (n, n), (x, n), (y, x), (x[:2], y[:2]), half, (x.T, y.T)):
        check(*pair)
        check(*pair)
    slow = mlx_entry.MLXEntry(lambda *a, **k: calls.update(["slow"]))
    slow.function(x, y)
    assert calls["slow"] == 1
    assert np.array_equal(g(x), x * mx.array(scale))
    scale *= 2
    assert np.array_equal(g(x), x * mx.array(scale))


def test_constants_of_mlx() -> None:
    x, w = (mx.array(draw(4, 4)).astype(mx.bfloat16) for _ in "xw")
    y = eq.jit(lambda x, w: x @ w, constants=["w"])(x, w)
    assert y.dtype == mx.bfloat16
    near = np.abs(mlx.to_numpy(y - x @ w).astype(float))
    assert near.max() < 0.05


def test_inside_compile_grad_and_vmap() -> None:
    x, w = mx.array(draw(4, 6)), mx.array(draw(6, 5))
    f = eq.jit(lambda x, w: ops.gelu(ops.layer_norm(x @ w, w[0], w[1])))

    def plain(x: Any, w: Any) -> Any:
        return nn.gelu(mx.fast.layer_norm(x @ w, w[0], w[1], 1e-5))

    for g in (f, mx.compile(f)):
        assert mx.allclose(g(x, w), plain(x, w), atol=1e-5)
    grads = (mx.grad(lambda *xs, g=g: (g(*xs) ** 2).sum(), (0, 1)) for g in (f, plain))
    for a, b in zip(*(g(x, w) for g in grads), strict=True):
        assert mx.allclose(a, b, atol=1e-4)
    many = mx.array(draw(3, 4, 6))
    got, want = (mx.vmap(g, (0, None))(many, w) for g in (f, plain))
    assert mx.allclose(got, want, atol=1e-5)
    got, want = (mx.jvp(g, [x, w], [x, w])[1][0] for g in (f, plain))
    assert mx.allclose(got, want, atol=1e-4)


def test_kernels_have_the_derivatives_of_plain_ops() -> None:
    def plain(x: Any, i: Any, w: Any) -> Any:
        return x * w + mx.sin(x), i + 1

    def opaque(*xs: Any) -> Any:
        return tuple(mx.stop_gradient(y) for y in plain(*xs))

    f = transformable(opaque, lambda: plain)
    x, w = mx.array(draw(4, 3)), mx.array(draw(3))
    i = mx.arange(3)
    assert mx.allclose(f(x, i, w)[0], plain(x, i, w)[0])
    for n in (0, 2):
        got, want = (
            mx.grad(lambda x, w, g=g: g(x, i, w)[0].sum(), n // 2)(x, w)
            for g in (f, plain)
        )
        assert mx.allclose(got, want)
    one = transformable(lambda x: (mx.stop_gradient(x),), lambda: lambda x: (x * x,))
    assert mx.allclose(mx.grad(lambda x: one(x)[0].sum())(x), 2 * x)


def test_views_and_inputs_as_results() -> None:
    def f(x: Any) -> Any:
        y = exp(x)
        many = x, x.mT, x[::2], y, y, y.mT, y[1:], flip(y, 0)
        return *many, broadcast_to(y, (2, 3, 4)), reshape(y.mT, (12,))

    assert_lowered(f, draw(3, 4))


def test_no_elements_and_no_axes() -> None:
    empty = draw(3, 0)
    assert_lowered(lambda x: tanh(ops.sum(exp(x), -1)) + 1.0, empty)
    assert_lowered(lambda x, y: tanh(x @ y) * 2.0, empty, draw(0, 4))
    norms = lambda x, w: (ops.softmax(x), ops.layer_norm(x, w, w))  # noqa: E731
    assert_lowered(norms, draw(0, 5), draw(5))
    assert_lowered(lambda x: (tanh(x) * 2.0, x), np.array(0.5, np.float32))


@pytest.mark.skipif(ON_GPU, reason="kernels are generated there")
def test_the_source_is_readable() -> None:
    arrays = draw(4, 8), draw(8, 6), draw(6), draw(6)
    f = eq.jit(lambda x, w, b, g: ops.rms_norm(x @ w + b, g), backend="mlx")
    source = f.lower(*arrays).source()
    assert "mx.addmm(b, x, w)" in source and "mx.fast.rms_norm(" in source
    assert "# x: 4×8 float32" in source


def test_attention_as_one_call() -> None:
    mask = np.where(rng.random((5, 7)) > 0.3, 0, -np.inf).astype("f4")
    mask[:, 0] = 0
    heads = {"q": (2, 6, 5, 4), "one head": (5, 4), "shared": (2, 3, 2, 5, 4)}
    keys = {"q": (2, 6, 7, 4), "one head": (7, 4), "shared": (2, 3, 1, 7, 4)}
    for name, shape in heads.items():
        q, k, v = draw(*shape), draw(*keys[name]), draw(*keys[name])
        wide = np.broadcast_to(mask, (*shape[:-1], 7))
        for m in (None, "causal", mask, wide):
            seen = m if isinstance(m, np.ndarray) else None
            own = mlx_ops.attention(
                *map(mx.array, (q, k, v)), 0.5, m if seen is None else mx.array(seen)
            )
            want = ops.attention(q, k, v, 0.5, seen, m is not seen)
            np.testing.assert_allclose(np.array(own), want, rtol=1e-4, atol=1e-5)


def causal_attention(m: int, n: int, dtype: Any) -> Program:
    """Causal attention of m queries to n keys, in casts where dtype is short."""
    q, k, v = (eq.Spec((2, 3, t, 16), dtype) for t in (m, n, n))

    def f(q: Any, k: Any, v: Any) -> Any:
        s = np.where(np.tri(m, n, n - m, dtype=bool), q @ k.mT / 4, -np.inf)
        y = s.astype("f4")
        e = np.exp(y - y.max(-1, keepdims=True))
        y = (e / e.sum(-1, keepdims=True)).astype(s.dtype) @ v
        return y.swapaxes(-2, -3).reshape(2, m, 48)

    return eq.jit(f, backend="mlx").lower(q, k, v).program


ONE_CALL = [
    (language, dtype, m)
    for language, dtypes, m in (
        ("metal", ("float32", "float16", "bfloat16"), 6),
        ("cuda", ("float16", "bfloat16"), 6),
        ("cuda", ("float32",), 3),
    )
    for dtype in dtypes
]


@pytest.mark.parametrize(("language", "dtype", "m"), ONE_CALL)
def test_attention_on_a_gpu_is_one_call(language: str, dtype: str, m: int) -> None:
    source = mlx.lower(causal_attention(m, 10, dtype), language).source
    assert source.count("ops.attention(") == 1
    assert "mx.matmul" not in source and "softmax" not in source
    # MLX weighs all keys alike for a query that sees none, where NumPy has NaN
    assert (
        "ops.attention("
        not in mlx.lower(causal_attention(10, 6, dtype), language).source
    )


def test_attention_of_float32_on_cuda_is_one_kernel_between_products() -> None:
    source = mlx.lower(causal_attention(6, 10, "float32"), "cuda").source
    steps = re.findall(r"mx\.matmul|_kernel\w*\(\[", source.partition("def ")[2])
    names = [s[:2] for s in steps]
    assert names[:3] == ["mx", "_k", "mx"] and "mx" not in names[3:]
    assert "ops.attention(" not in source and "mx.softmax" not in source


@pytest.mark.parametrize("language", ["metal", "cuda"])
def test_logsumexp_on_a_gpu_is_a_kernel_of_ours(language: str) -> None:
    # MLX's is ∞ of a row that holds ∞ and NaN
    program = program_of(ops.logsumexp, np.zeros((2, 8), np.float32))
    assert "mx.logsumexp(" not in mlx.lower(program, language).source


@pytest.mark.parametrize("dtype", FLOATS_HERE, ids=str)
def test_logsumexp_of_infinity_and_nan(dtype: Any) -> None:
    x = np.array([[np.inf, np.nan, 1], [np.nan, np.inf, 1], [np.inf, 1, 1]], dtype)
    assert_lowered(ops.logsumexp, x)


@pytest.mark.skipif(ON_GPU, reason="kernels are generated there")
@pytest.mark.parametrize("dtype", [np.dtype("f2"), BF16], ids=str)
def test_halves_are_rounded_once(dtype: Any) -> None:
    x, w, b = (
        drawn(i, s, dtype, False) for i, s in enumerate([(40, 64), (64,), (64,)])
    )
    for f in (
        lambda x, w, b: ops.layer_norm(x, w, b),
        lambda x, w, b: ops.rms_norm(x, w),
        lambda x, w, b: ops.logsumexp(x),
        lambda x, w, b: ops.softmax(x),
    ):
        program = program_of(f, x, w, b)
        (got,) = mlx.lower(program)(x, w, b)
        (want,) = interpret(program.roots, [x, w, b])
        # sums of float32 in another order seldom round to another neighbour
        assert (got == want).mean() > 0.98


def test_a_device_is_measured() -> None:
    said: list[str] = []
    device = mlx.backend.measure(said.append)
    assert len(said) > 3 and device.launch_s > 0
    assert device.flops_per_s > 0 and device.bandwidths[-1][0] == float("inf")


# -- kernels for GPUs ------------------------------------------------------------------


def recorded(f: Callable[..., Any], arrays: list[np.ndarray], folder: Path) -> str:
    """What MLX would compile: it records kernels where there is no Metal too."""
    low = mlx.lower(program_of(f, *arrays), "metal")
    file = str(folder / "kernel.mlxfn")
    given = [mlx.to_mlx(x) for x in arrays]
    mx.export_function(file, lambda *xs: list(low.bare(*xs)), *given)
    return Path(file).read_bytes().decode("latin1")


SIGNATURES = {
    "float32": ["const device float* b0", "device float* b1"],
    "bfloat16": ["const device bfloat16_t* b0", "device bfloat16_t* b1"],
    "float16": ["const device float16_t* b0", "device float16_t* b1"],
    "int32": ["const device int32_t* b0", "device int32_t* b1"],
    "bool": ["const device bool* b0", "device bool* b1"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signature_that_mlx_gives_a_kernel(name: str, tmp_path: Path) -> None:
    dtype = BF16 if name == "bfloat16" else np.dtype(name)
    x = np.ones((4, 64), dtype)
    text = recorded(bodies.fused_op("twice", lambda x: x * x + x, 1), [x], tmp_path)
    (head,) = re.findall(r"\[\[kernel\]\] void \w+\(\n(.*?)\) {", text, re.DOTALL)
    wanted = [f"{a} [[buffer({i})]]" for i, a in enumerate(SIGNATURES[name])]
    for place in ("thread_position_in_threadgroup", "threadgroup_position_in_grid"):
        wanted.append(f"uint3 {place} [[{place}]]")
    assert [line.strip() for line in head.split(",\n")] == wanted


def test_small_inputs_are_constant_and_never_references(tmp_path: Path) -> None:
    arrays = [draw(4, 64), draw(1), np.array(2.0, "f4")]
    f = bodies.fused_op("three", lambda x, y, z: x * y + z, 3)
    text = recorded(f, arrays, tmp_path)
    assert text.count("const constant float* b") == 2 and "float& b" not in text


def test_kernels_are_shown_on_any_machine() -> None:
    x = eq.Spec((8, 64), "bfloat16")
    low = eq.jit(lambda x: ops.softmax(x)).lower(x)
    assert "metal::simd_shuffle_xor" in low.source("metal")
    assert "__shfl_xor_sync" in low.source("cuda")
    assert "// softmax_0: row, 8×64 bfloat16" in low.source("cuda")


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_kernels_are_given_halves_as_they_are(dtype: Any) -> None:
    """Also what calls of MLX make between two kernels of ours."""
    for f, shapes in NETWORKS.values():
        arrays = [draw(*s).astype(dtype) for s in shapes]
        text = str(mlx.lower(program_of(f, *arrays), "cuda").source)
        assert "ops.kernel(" not in text or ".astype(" not in text, text


def test_own_calls_of_mlx_where_a_kernel_would_be_late() -> None:
    def source(f: Callable[..., Any], *arrays: np.ndarray) -> str:
        return str(mlx.lower(program_of(f, *arrays), "cuda").source)

    small, large = draw(4, 64), np.broadcast_to(np.float32(0), (1 << 14, 1 << 12))
    assert "mx.softmax(x0" in source(ops.softmax, small)
    assert "kernel(" in source(ops.softmax, large)
    assert "kernel(" in source(bodies.fused_op("two", lambda x: x * x + x, 1), small)
    for rows in (1 << 5, 1 << 11):
        x = np.broadcast_to(np.float32(0), (rows, 1 << 12))
        text = source(ops.rms_norm, x, draw(1 << 12))
        assert ("mx.fast.rms_norm(" in text) == (rows == 1 << 5)
    x, w, a, b = draw(4, 8), draw(8, 6), draw(8, 2), draw(2, 6)
    text = source(lambda *xs: ops.lora(*xs, 0.5), x, w, a, b)
    assert "mx.addmm(" in text and "alpha=0.5" in text and "kernel(" not in text


@pytest.mark.parametrize("rows", [256, 1536, 4096])
def test_own_calls_of_mlx_only_where_it_is_the_host_that_counts(rows: int) -> None:
    """Of 1, 6 and 16 MB: alone, and behind products that keep a device busy."""

    def source(f: Callable[..., Any]) -> str:
        x = np.broadcast_to(np.zeros((), BF16), (rows, 1024))
        w = np.broadcast_to(np.zeros((), BF16), (1024, 1 << 16))
        return str(mlx.lower(program_of(f, x, w, w.mT), "cuda").source)

    assert ("mx.softmax(" in source(lambda x, w, u: ops.softmax(x))) == (rows < 4096)
    assert "mx.exp(" in source(lambda x, w, u: np.exp(x))
    busy = source(lambda x, w, u: ops.softmax(x @ w @ u))
    assert ("mx.softmax(" in busy) == (rows < 1536)


@pytest.mark.parametrize("optimised", [False, True])
def test_sums_that_mlx_takes_as_many_threads_for(optimised: bool) -> None:
    def source(axis: Any, *shape: int, f: Any = np.sum, dtype: str = "f4") -> str:
        x = np.broadcast_to(np.ones((), dtype), shape)
        low = eq.jit(lambda x: f(x, axis), backend="mlx").lower(x)
        program = low.program if optimised else program_of(lambda x: f(x, axis), x)
        return str(mlx.lower(program, "cuda").source)

    assert "sum_0 = mx.sum(x" in source(None, 64, 512)
    assert "sum_0 = mx.sum(x" in source((1, 2), 512, 8, 16)
    assert "sum_0 = mx.sum(x" in source(-1, 1, 300)
    few = [source(0, 512, 64), source(1, 4, 4096), source((0, 2), 300, 8, 16)]
    inexact = [source(None, 64, 512, dtype="f2"), source(None, 64, 512, dtype="i4")]
    strided = source(1, 4, 512, f=lambda x, axis: np.sum(x.T, axis))
    for text in (*few, *inexact, strided, source(None, 1 << 14, 1 << 12)):
        assert "mx.sum(" not in text and "kernel(" in text


def test_the_dtype_that_no_gpu_has_is_refused() -> None:
    program = program_of(np.tanh, draw(3, dtype="f8"))
    with pytest.raises(eq.BackendError, match=r"x0 .*is float64"):
        mlx.lower(program, "metal")


@pytest.mark.parametrize("language", ["metal", "cuda"])
def test_float64_between_ops_is_refused_unless_it_is_known(language: str) -> None:
    x, c = np.arange(3, dtype="i4"), np.arange(3.0)

    def source(f: Callable[..., Any]) -> str:
        one = bodies.fused_op("one", f, 1)
        return str(mlx.lower(program_of(one, x), language).source)

    for f, op in (
        (lambda x: cast(sigmoid(x), "f4") * 2, "sigmoid"),
        (lambda x: cast(x, "f8") > 0.5, "cast"),
    ):
        with pytest.raises(eq.BackendError, match=rf"{op} inside one_0 .*is float64"):
            source(f)
    text = source(lambda x: cast(x, "f4") * 0.1 + cast(np.exp(c), "f4"))
    assert "float64" not in text
