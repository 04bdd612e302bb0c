"""Primitives of MLX mean in programs what they mean in MLX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import eqsat as eq

mx = pytest.importorskip("mlx.core")

UNARY = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh ceil cos cosh degrees erf erfinv "
    "exp expm1 floor isfinite isinf isnan log log10 log1p log2 logical_not nan_to_num "
    "negative reciprocal round rsqrt sigmoid sign sin sinh sqrt square tan tanh"
).split()
BINARY = (
    "add arctan2 divide equal floor_divide greater greater_equal less less_equal "
    "logaddexp logical_and logical_or maximum minimum multiply not_equal power "
    "remainder subtract"
).split()
INTEGERS = (
    "add bitwise_and bitwise_or bitwise_xor divide equal floor_divide greater "
    "left_shift less maximum minimum multiply remainder right_shift subtract"
).split()
REDUCTIONS = (
    "all any argmax argmin argpartition argsort cummax cummin cumprod cumsum logsumexp "
    "max mean median min partition prod softmax sort std sum var"
).split()
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 3.0, np.inf, -np.inf, np.nan, 100.0]
TOLERANCES = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Some units in the last place: MLX rounds halves in each of its steps."""
Results = dict[str, Any]


def compare(function: Callable[..., Results], *args: Any) -> None:
    """Compare the results of a function with MLX's, and check that MLX computed none
    of them."""
    fast = eq.from_mlx(function)
    found, want = fast(*args), function(*args)
    assert fast.report().fallbacks == ()
    for name, x in want.items():
        y = found[name]
        assert (x.dtype, x.shape) == (y.dtype, y.shape), name
        dtype = str(x.dtype).removeprefix("mlx.core.")
        near = TOLERANCES.get(dtype, 4e-6 if dtype == "complex64" else 0)
        if dtype == "bfloat16":
            x, y = x.astype(mx.float32), y.astype(mx.float32)
        np.testing.assert_allclose(
            np.array(y), np.array(x), rtol=near, atol=near, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_element_by_element(dtype: str) -> None:
    x = mx.array(SPECIAL).astype(getattr(mx, dtype))

    def function(x: Any, y: Any) -> Results:
        found = {name: getattr(mx, name)(x) for name in UNARY}
        found |= {name: getattr(mx, name)(x, y) for name in BINARY}
        found |= dict(zip(("quotient", "rest"), mx.divmod(x, y), strict=True))
        found["equal_nan"] = mx.array_equal(x, x, equal_nan=True)
        found["where"] = mx.where(x > 0, x, mx.exp(y)) * 2 + 1
        found["int32"] = mx.clip(nan_free(x), -9, 9).astype(mx.int32)
        found["bool"] = x.astype(mx.bool_)
        return found

    def nan_free(x: Any) -> Any:
        return mx.nan_to_num(x)

    for turn in range(3):
        compare(function, x, mx.roll(x, 3 * turn + 1))


@pytest.mark.parametrize(
    "dtype", ["bool_", "uint8", "uint32", "uint64", "int8", "int16", "int32", "int64"]
)
def test_integers_element_by_element(dtype: str) -> None:
    kind = getattr(mx, dtype)
    x = mx.array([0, 1, -1, 5, -7, 100, 3, -128, 127]).astype(kind)
    y = mx.array([1, 2, 3, 2, 7, 3, 1, 5, 2]).astype(kind)
    is_bool = dtype == "bool_"
    dropped = ("shift", "floor", "remainder") if is_bool else ()

    def function(x: Any, y: Any) -> Results:
        names = (n for n in INTEGERS if not n.endswith(dropped) or not dropped)
        names = (n for n in names if not n.startswith(dropped) or not dropped)
        found = {name: getattr(mx, name)(x, y) for name in names}
        found |= {n: getattr(mx, n)(x) for n in ("abs", "sign", "square", "exp")}
        if not is_bool:
            found |= {"round": mx.round(x), "negative": mx.negative(x)}
            found |= dict(zip(("quotient", "rest"), mx.divmod(x, y), strict=True))
        for other in ("float32", "int8", "bool_", "uint32"):
            found[other] = x.astype(getattr(mx, other))
        rows = x.reshape(3, 3)
        for name in ("sum", "prod", "max", "argmin", "cumsum", "sort", "any"):
            found[f"{name} of rows"] = getattr(mx, name)(rows, axis=1)
        found["before"] = mx.cummax(rows, axis=0, inclusive=False)
        return found

    compare(function, x, y)


def test_complex_numbers() -> None:
    rng = np.random.default_rng(0)
    x, y = (
        mx.array((rng.normal(size=6) + 1j * rng.normal(size=6)).astype(np.complex64))
        for _ in range(2)
    )

    def function(x: Any, y: Any) -> Results:
        names = "abs conj cos exp imag log negative real sin sqrt square".split()
        found = {name: getattr(mx, name)(x) for name in names}
        names = "add divide equal multiply subtract".split()
        found |= {name: getattr(mx, name)(x, y) for name in names}
        found["sum"] = x.sum()
        found["float32"] = x.astype(mx.float32)
        found["product"] = x.reshape(2, 3) @ y.reshape(3, 2)
        return found

    compare(function, x, y)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reductions(dtype: str) -> None:
    mx.random.seed(0)
    x = mx.random.normal((3, 7, 4)).astype(getattr(mx, dtype))

    def function(x: Any) -> Results:
        found = {}
        for name in REDUCTIONS:
            take = (x, 2) if "partition" in name else (x,)
            found[name] = getattr(mx, name)(*take, axis=1)
        del found["partition"], found["argpartition"]  # of which one place is known
        found["third"] = mx.partition(x, 2, axis=1)[:, 2]
        found["sum of all"] = x.sum()
        found["kept"] = x.max(axis=(0, 2), keepdims=True)
        found["back"] = mx.cumsum(x, axis=2, reverse=True, inclusive=False)
        found["least"] = mx.cummin(x, axis=0, inclusive=False)
        found["products"] = mx.cumprod(x, axis=1, inclusive=False)
        found["top"] = mx.sort(mx.topk(x, 3, axis=1), axis=1)
        return found

    compare(function, x)


def test_arrangements() -> None:
    x = mx.arange(60, dtype=mx.float32).reshape(3, 4, 5)

    def function(x: Any) -> Results:
        parts = mx.split(x, [1, 3], axis=1)
        return {
            "reshape": mx.flatten(x, 0, 1).reshape(5, 12),
            "unflatten": mx.unflatten(x, 1, (2, 2)),
            "transpose": x.transpose(2, 0, 1),
            "moveaxis": mx.moveaxis(x, 0, 2)[None].squeeze(0),
            "broadcast": mx.broadcast_to(x[:, :1], (2, 3, 4, 5)),
            "concatenate": mx.concatenate([x, parts[0]], axis=1),
            "stack": mx.stack([x, x + 1], axis=2),
            **{f"part {i}": part for i, part in enumerate(parts)},
            "pad": mx.pad(x, ((0, 1), (2, 0), (0, 0)), constant_values=7),
            "edge": mx.pad(x, 1, mode="edge"),
            "slice": x[1:, ::2, 3:1:-1],
            "back": x[::-1, -1:-4:-2],
            "none": x[:, 2:2],
            "tile": mx.tile(x, (2, 1, 1)),
            "repeat": mx.repeat(x, 2, axis=1),
            "roll": mx.roll(x, 2, axis=1),
            "tril": mx.tril(x, -1),
            "diag": mx.diag(x[0, 0]),
            "trace": mx.trace(x),
            "arange": x[0, 0] + mx.arange(1, 6),
            "linspace": x[0, 0] + mx.linspace(0, 1, 5),
            "eye": x[0, :, :4] @ mx.eye(4),
            "meshgrid": mx.meshgrid(x[0, 0], x[0, :, 0])[1],
            "windows": mx.as_strided(x, (3, 2, 3, 2, 5), (20, 5, 1, 5, 0)),
            "steps": mx.as_strided(x, (2, 3, 2), (31, 7, 2), 4),
            "einsum": mx.einsum("ijk,ilk->jl", x, x),
            "tensordot": mx.tensordot(x, x, axes=[[0, 2], [0, 2]]),
            "outer": mx.outer(x[0, 0], x[0, 1]),
            "addmm": mx.addmm(x, x, x[0, :, :4].sum() * mx.eye(5), 2.0, 0.5),
        }

    compare(function, x)


def test_indices() -> None:
    mx.random.seed(0)
    x, i = mx.random.normal((4, 3, 5)), mx.array([2, 0, -1])
    places = mx.random.randint(0, 4, (2, 3, 5))
    table = mx.random.normal((6, 2))

    def function(x: Any, i: Any, places: Any) -> Results:
        written, masked = x * 1, x * 1
        written[i] = 5.0
        written[1:3, :, ::2] = 2.0
        masked[x > 0] = -1.0
        masked[:, 0, 0] = x[:, 1, 1]
        return {
            "first": x[i],
            "middle": x[:, i],
            "two": x[i, i],
            "apart": x[i, :, i],
            "last two": x[:, i, i],
            "sliced": x[i, 1:2],
            "grid": x[i[:, None], i[:2]],
            "take": mx.take(x, i, axis=2),
            "flat": mx.take(x, i),
            "one": x[i[0]],
            "table": table[i],
            "along": mx.take_along_axis(x, places, axis=0),
            "put": mx.put_along_axis(x, places, mx.array(1.0), axis=0),
            "written": written,
            "masked": masked,
            "added": x.at[i].add(x[:3]),
            "added twice": x.at[mx.zeros_like(i)].add(1.0),
            "columns": x.at[:, i].add(x[:, :3]),
            "slices": mx.as_strided(x, (2, 2), (1, 1)) + x[i[:1], 1, :2],
            "least": x.at[1:3].minimum(0.25),
            "part": mx.slice(x, mx.maximum(i[1:], 0), (0, 2), (2, 3, 4)),
            "update": mx.slice_update(x, x[:2], mx.maximum(i[1:2], 0), (0,)),
            "some": masked_values(x),
        }

    def masked_values(x: Any) -> Any:
        y = x[:, 0] * 1
        y[y > 0] = mx.arange(20, dtype=mx.float32)
        return y

    compare(function, x, i, places)


@pytest.mark.parametrize(
    "how",
    [
        {"stride": 2, "padding": 1},
        {"padding": ([0, 2], [1, 0]), "kernel_dilation": (2, 1)},
        {"padding": (2, 1), "input_dilation": (3, 2), "flip": True},
        {"padding": ([-1, 0], [2, -1]), "groups": 2},
        {"padding": (1, 5), "input_dilation": 2, "groups": 2, "kernel_dilation": 2},
    ],
    ids=lambda how: " ".join(how),
)
def test_convolutions(how: dict[str, Any]) -> None:
    mx.random.seed(0)
    groups = how.get("groups", 1)
    x = mx.random.normal((2, 9, 8, 4))
    w = mx.random.normal((6, 3, 2, 4 // groups))

    def function(x: Any) -> Results:
        return {"y": mx.conv_general(x, w, **how)}

    fast = eq.from_mlx(function)
    found, want = fast(x)["y"], function(x)["y"]
    assert fast.report().fallbacks == ()
    # both sums of 24 products are this near to the true one
    near = 2 * 25 * 2.0**-24 * mx.conv_general(mx.abs(x), mx.abs(w), **how)
    assert bool((mx.abs(found - want) <= near).all())


def test_an_image_of_one_axis() -> None:
    mx.random.seed(0)
    x, w = mx.random.normal((2, 9, 4)), mx.random.normal((6, 3, 4))

    def function(x: Any) -> Results:
        return {"y": mx.conv1d(x, w, 2, 1, 2)}

    fast = eq.from_mlx(function)
    found, want = fast(x)["y"], function(x)["y"]
    near = 2 * 13 * 2.0**-24 * mx.conv1d(mx.abs(x), mx.abs(w), 2, 1, 2)
    assert bool((mx.abs(found - want) <= near).all())


# -- what stays in MLX -----------------------------------------------------------------


def chosen_rows_of_quantized(x: Any) -> Any:
    """Products with quantised matrices that indices choose."""
    w = mx.quantize(mx.arange(512.0).reshape(4, 4, 32) / 512, group_size=32, bits=8)
    how = {"group_size": 32, "bits": 8, "transpose": True}
    left, right = mx.array([0, 1]), mx.array([3, 1])
    x = mx.tile(x[:2, None], (1, 1, 8))
    return mx.gather_qmm(x, *w, lhs_indices=left, rhs_indices=right, **how) + 1


def quantized_to_floats_of_4_bits(x: Any) -> Any:
    """A product with a matrix of another kind of quantisation."""
    how = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    w = mx.quantize(mx.arange(128.0).reshape(4, 32) / 128, **how)
    return mx.quantized_matmul(mx.tile(x, (1, 8)), *w, **how) + 1


def spread_and_in_steps(x: Any) -> Any:
    """A convolution in steps over an image with zeros between its elements."""
    image, kernel = x[None, :, :, None], mx.ones((1, 2, 2, 1))
    return mx.conv_general(image, kernel, stride=2, input_dilation=2) + 1


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Convolution", spread_and_in_steps),
        ("FFT", lambda x: mx.fft.irfft2(mx.fft.rfft2(x) * 2)),
        ("FFT", lambda x: mx.abs(mx.fft.ifft(mx.fft.fft(x, n=7)))),
        ("Power", lambda x: x.astype(mx.int32) ** x.astype(mx.int32)),
        ("View", lambda x: mx.view(x, mx.int32) + 1),
        ("Sort", lambda x: mx.abs(mx.sort(x.astype(mx.complex64)))),
        ("Scatter", lambda x: x.at[:, x[0].astype(mx.int32)].multiply(x)),
        ("Scatter", lambda x: x.at[x[0].astype(mx.int32)].maximum(x + 1)),
        ("SearchSorted", lambda x: mx.searchsorted(mx.sort(x[0]), x[1])),
        ("Hadamard", lambda x: mx.hadamard_transform(x) + 1),
        ("QRF", lambda x: mx.linalg.qr(x, stream=mx.cpu)[1] + 1),
        ("SVD", lambda x: mx.linalg.svd(x, compute_uv=False, stream=mx.cpu) + 1),
        ("Eigh", lambda x: mx.linalg.eigvalsh(x + x.T, stream=mx.cpu)),
        ("Inverse", lambda x: mx.linalg.tri_inv(mx.tril(x) + 3, stream=mx.cpu)),
        ("GatherMM", lambda x: mx.gather_mm(x, x[None], rhs_indices=mx.array([0]))),
        ("GatherQMM", chosen_rows_of_quantized),
        ("QuantizedMatmul", quantized_to_floats_of_4_bits),
        ("Quantize", lambda x: mx.dequantize(*mx.quantize(mx.tile(x, (1, 16))))),
    ],
)
def test_what_stays_in_mlx_is_told(op: str, function: Any) -> None:
    mx.random.seed(0)
    x = mx.abs(mx.random.normal((4, 4))) + 1
    fast = eq.from_mlx(function)
    np.testing.assert_allclose(np.array(fast(x)), np.array(function(x)), rtol=1e-5)
    report = fast.report()
    assert {f.op for f in report.fallbacks} & {op, "the whole function"}
    assert all(f.reason and f"× {f.op}: " in str(report) for f in report.fallbacks)


@pytest.mark.parametrize(
    ("reason", "function"),
    [
        ("CustomTransforms", lambda x: mx.checkpoint(mx.exp)(x)),
        ("CumLogAddExp", lambda x: mx.logcumsumexp(x)),
        ("Attempting to eval", lambda x: x * 2 if x.sum().item() > 0 else x),
    ],
)
def test_what_mlx_cannot_write_down_it_runs(reason: str, function: Any) -> None:
    x = mx.ones((3, 3))
    fast = eq.from_mlx(function, x)
    np.testing.assert_array_equal(np.array(fast(x)), np.array(function(x)))
    (fallback,) = fast.report().fallbacks
    assert fallback.op == "the whole function" and reason in fallback.reason


# -- primitives of GPUs ----------------------------------------------------------------


def run(op: str, inputs: list[Any], arguments: list[Any], results: list[Any]) -> Any:
    """A primitive that MLX writes down on a GPU only, or for other languages than
    Python, computed by its function."""
    from eqsat.mlx.plan import computed
    from eqsat.mlx.primitive_graph import ArraySpec, Primitive, numpy_dtype

    def specs(arrays: list[Any], kind: str) -> tuple[ArraySpec, ...]:
        return tuple(
            ArraySpec(f"{kind}{i}", tuple(x.shape), numpy_dtype(x.dtype))
            for i, x in enumerate(arrays)
        )

    node = Primitive(op, specs(inputs, "in"), tuple(arguments), specs(results, "out"))
    names = [i.name for i in node.inputs]

    def function(*arrays: Any) -> Any:
        return computed(node, dict(zip(names, arrays, strict=True)))

    found = eq.jit(function)(*map(np.array, inputs))
    for x, y in zip(found, results, strict=True):
        size = float(mx.abs(y).max())
        np.testing.assert_allclose(x, np.array(y), rtol=1e-5, atol=1e-5 * size)


def test_slices_at_indices() -> None:
    x, i = mx.arange(24.0).reshape(6, 4), mx.array([3, 0, 2])
    rows = mx.stack([x[k : k + 2, :3] for k in (3, 0, 2)])
    run("Gather", [x, i], [[0], (2, 3)], [rows])
    columns = mx.stack([x[:, 1:3], x[:, 0:2]])
    run("Gather", [x, mx.array([1, 0])], [[1], (6, 2)], [columns])
    total = mx.zeros((6, 4))
    for k, values in zip((3, 0, 2), rows, strict=True):
        total[k : k + 2, :3] = total[k : k + 2, :3] + values
    run("Scatter", [mx.zeros((6, 4)), i, rows], [2, [0]], [total])


def test_norms_of_gpus() -> None:
    mx.random.seed(0)
    x, g = mx.random.normal((2, 3, 5, 8))
    w, b = mx.random.normal((2, 8))
    one = mx.array(1.0)
    run("RMSNorm", [x, w], [1e-5], [mx.fast.rms_norm(x, w, 1e-5)])
    run("RMSNorm", [x, one], [1e-5], [mx.fast.rms_norm(x, None, 1e-5)])
    run("LayerNorm", [x, w, b], [1e-5], [mx.fast.layer_norm(x, w, b, 1e-5)])

    def rms(x: Any, w: Any) -> Any:
        return mx.fast.rms_norm(x, w, 1e-5)

    def layer(x: Any, w: Any, b: Any) -> Any:
        return mx.fast.layer_norm(x, w, b, 1e-5)

    run("RMSNormVJP", [x, w, g], [1e-5], mx.vjp(rms, [x, w], [g])[1])
    run("LayerNormVJP", [x, w, b, g], [1e-5], mx.vjp(layer, [x, w, b], [g])[1])


@pytest.mark.parametrize("is_interleaved", [False, True])
def test_rotary_embedding_of_gpus(is_interleaved: bool) -> None:
    mx.random.seed(0)
    x = mx.random.normal((2, 3, 5, 8))
    for dims, offset in ((8, mx.array(3)), (6, mx.array([1, 4]))):
        for freqs in (None, mx.arange(1, dims // 2 + 1, dtype=mx.float32)):
            y = mx.fast.rope(
                *(x, dims),
                traditional=is_interleaved,
                base=None if freqs is not None else 100.0,
                scale=0.5,
                offset=offset,
                freqs=freqs,
            )
            given = [x, offset] if freqs is None else [x, offset, freqs]
            how = [dims, is_interleaved, 100.0, 0.5]
            run("RoPE", given, [*how, True], [y])
            run("RoPE", [y, *given[1:]], [*how, False], [x])


@pytest.mark.parametrize("mask", [None, "causal", "array", "bools"])
def test_attention_of_gpus(mask: Any) -> None:
    mx.random.seed(0)
    q, (k, v) = mx.random.normal((1, 4, 6, 8)), mx.random.normal((2, 1, 2, 6, 8))
    arrays: list[Any] = []
    if mask == "array":
        arrays = [mx.random.normal((1, 4, 6, 6))]
    elif mask == "bools":
        arrays = [mx.tril(mx.ones((6, 6), mx.bool_))]
    y = mx.fast.scaled_dot_product_attention(
        q, k, v, scale=0.3, mask=arrays[0] if arrays else mask
    )
    how = [0.3, mask == "causal", False, False, False]
    run("ScaledDotProductAttention", [q, k, v, *arrays], how, [y])
