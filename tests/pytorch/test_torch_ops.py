"""Each operator of the table gives what PyTorch gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sizes import some

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from eqsat.pytorch.graph_nodes import FAMILIES, name_of  # noqa: E402
from eqsat.pytorch.program import TorchProgram  # noqa: E402
from eqsat.pytorch.table import TABLE  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

assert FAMILIES
DTYPES = [
    *("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"),
    "complex64",
]

UNARY = (
    "abs acos acosh alias asin asinh atan atanh bitwise_not ceil clone cos cosh detach "
    "digamma elu erf erfc erfinv exp exp2 expm1 floor gelu hardtanh i0 isfinite isinf "
    "isnan leaky_relu lgamma special_erfcx "
    "special_i0e special_i1 special_i1e special_log_ndtr special_ndtri "
    "lift_fresh_copy log log10 log1p log2 logical_not neg reciprocal relu round rsqrt "
    "sigmoid sign silu sin sinh softplus sqrt square tan tanh trunc"
).split()
BINARY = (
    "atan2 floor_divide fmax fmin gcd hypot lcm logaddexp logical_and logical_or "
    "logical_xor maximum minimum"
).split()
INTEGERS = "bitwise_and bitwise_or bitwise_xor fmod remainder".split()
SCALAR = "eq ge gt le lt ne mul div sub add".split()

CALLS = [
    *(f"{name}.default(x)" for name in UNARY),
    *(f"{name}.default(x, y)" for name in BINARY),
    *(f"{name}.Tensor(x, y)" for name in SCALAR),
    *(f"{name}.Tensor(x, row)" for name in SCALAR),
    *(f"{name}.Tensor(x, one)" for name in SCALAR),
    *(f"{name}.Scalar(x, 2)" for name in SCALAR),
    *(f"{name}.Scalar(x, 1.5)" for name in SCALAR),
    *(f"{name}.Tensor(x, y)" for name in INTEGERS),
    "add.Tensor(x, y, alpha=3)",
    "sub.Tensor(x, y, alpha=2)",
    "rsub.Scalar(x, 2)",
    "rsub.Tensor(x, y, alpha=2)",
    "div.Tensor_mode(x, y, rounding_mode='floor')",
    "div.Tensor_mode(x, y, rounding_mode='trunc')",
    *(f"div.Tensor_mode(x, 3, rounding_mode={mode!r})" for mode in ("floor", "trunc")),
    "floor_divide.default(x, 3)",
    "remainder.Scalar(x, 3)",
    "fmod.Scalar(x, 3)",
    *(f"pow.Tensor_Scalar(nans * 0, {n})" for n in (0.5, -0.5)),
    "pow.Tensor_Scalar(x, 2)",
    "pow.Tensor_Scalar(x, 3.0)",
    "pow.Tensor_Scalar(x, -0.5)",
    "pow.Tensor_Tensor(x, y)",
    "pow.Scalar(2, x)",
    # What gelu of infinity is, PyTorch's own codes do not agree on.
    *(f"{name}.default(nans)" for name in UNARY if name != "gelu"),
    *(f"{name}.default(nans, x)" for name in BINARY),
    "where.self(mask, x, y)",
    "where.self(mask, x, one)",
    "masked_fill.Scalar(x, mask, 2)",
    "masked_fill.Tensor(x, mask, one)",
    "clamp.default(x, 0, 2)",
    "clamp.default(x, None, 1.5)",
    "clamp.Tensor(x, one)",
    "clamp_min.default(x, 1)",
    "clamp_max.default(x, 1)",
    "gelu.default(x, approximate='tanh')",
    "gelu_backward.default(y, x)",
    "gelu_backward.default(y, x, approximate='tanh')",
    "sigmoid_backward.default(y, x)",
    "tanh_backward.default(y, x)",
    "silu_backward.default(y, x)",
    "threshold_backward.default(y, nans, 1)",
    "sum.default(x)",
    "sum.dim_IntList(x, [0, -1], True)",
    "sum.dim_IntList(one, [])",
    "mean.default(x)",
    "mean.dim(x, [1])",
    "prod.default(x)",
    "prod.dim_int(x, 1, True)",
    "var.correction(x, [0, 2], correction=1)",
    "var.correction(x, [1], correction=0, keepdim=True)",
    "var.default(x)",
    "var.dim(x, [1], False, True)",
    "var_mean.correction(x, [2], correction=0)",
    "any.default(x)",
    "any.dim(x, 1)",
    "all.default(x)",
    "all.dims(x, [0, 1], True)",
    "amax.default(nans, [1])",
    "amin.default(x, [0, 2], True)",
    "max.default(nans)",
    "min.default(x)",
    "max.dim(nans, 1)",
    "min.dim(x, 2, True)",
    "max.other(x, y)",
    "min.other(x, y)",
    "argmax.default(x)",
    "argmax.default(nans, 1, True)",
    "argmin.default(x, 0)",
    "argmin.default(one)",
    "logsumexp.default(x, [1])",
    "cumsum.default(x, 1)",
    "cumsum.default(one, 0)",
    "cumprod.default(x, -1)",
    "sort.default(nans, 1)",
    "sort.default(x, 1, True)",
    "sort.stable(x, stable=True, dim=0, descending=True)",
    "topk.default(nans, 2, 1)",
    "topk.default(distinct, 2, 0, False)",
    "view.default(x, [6, 5])",
    "as_strided.default(x, [2, 3, 5], [15, 5, 1])",
    "as_strided.default(x, [4, 3], [2, 3], 5)",
    "copy.default(x, row)",
    "copy.default(x, whole)",
    "view_copy.default(x, [30])",
    "reshape.default(x, [5, -1])",
    "_unsafe_view.default(x, [2, 15])",
    "permute.default(x, [2, 0, 1])",
    "transpose.int(x, 0, -1)",
    "t.default(matrix)",
    "unsqueeze.default(x, -1)",
    "squeeze.default(row)",
    "squeeze.dim(row, 0)",
    "squeeze.dims(row, [0, 1])",
    "expand.default(row, [2, 3, -1])",
    "flip.default(x, [0, 2])",
    "triu.default(x, 1)",
    "tril.default(x, -1)",
    "select.int(x, 1, -2)",
    "slice.Tensor(x, 2, 1, 9223372036854775807, 2)",
    "slice.Tensor(x, 0, -1)",
    "select_scatter.default(x, row2, 1, 2)",
    "slice_scatter.default(x, y[:, :, :2], 2, 1, 3)",
    "cat.default([x, y, empty], 1)",
    "cat.default([x, whole], 0)",
    "stack.default([x, y], -1)",
    "split.Tensor(x, 2, 1)",
    "split_with_sizes.default(x, [1, 4], 2)",
    "unbind.int(x, 1)",
    "repeat.default(x, [2, 1, 1, 3])",
    "roll.default(x, [1, -2], [0, 2])",
    "roll.default(x, [4])",
    "diagonal.default(x, 1, 1, 2)",
    "constant_pad_nd.default(x, [1, 2, -1, 0], 3)",
    "_to_copy.default(x, dtype=torch.float32)",
    "_to_copy.default(x)",
    "prims.convert_element_type(x, torch.float64)",
    "embedding.default(matrix, whole)",
    "embedding_dense_backward.default(x, whole[:, :, 0], 7, -1, False)",
    "embedding_dense_backward.default(x, whole[:, :, 0], 7, 2, False)",
    "index_select.default(x, 1, places)",
    "index.Tensor(x, [None, places])",
    "index.Tensor(x, [places % 2, None, places])",
    "_unsafe_index.Tensor(x, [places % 2])",
    "index_put.default(x, [None, places], one)",
    "index_put.default(x, [places % 2], one, True)",
    "index_put.default(x, [places % 2, places], row[0, 0], True)",
    "index_put.default(x, [mask], one)",
    "_unsafe_index_put.default(x, [places % 2], one, True)",
    "gather.default(x, 1, whole % 3)",
    "gather.default(x, -1, whole[:1, :2] % 5)",
    "scatter.src(x, 1, order, y)",
    "scatter.value(x, 1, whole[:1] % 3, 2)",
    "scatter_add.default(x, 1, whole[:, :, :2] % 3, y)",
    "index_add.default(x, 1, places, y[:, [0, 1, 2, 0]], alpha=2)",
    "mm.default(matrix, matrix.T)",
    "bmm.default(x, x.transpose(1, 2))",
    "mv.default(matrix, matrix[0])",
    "dot.default(matrix[0], matrix[1])",
    "matmul.default(x, matrix.T)",
    "addmm.default(row[0], matrix, matrix[:5].T, beta=2, alpha=3)",
    "addmm.default(matrix, matrix, matrix[:5].T, beta=0)",
    "addmv.default(matrix[:, 0], matrix, matrix[0])",
    "baddbmm.default(x[:, :, :3], x, x.transpose(1, 2))",
    "_softmax.default(x, 1, False)",
    "_softmax.default(one, 0, False)",
    "_safe_softmax.default(nans, 1)",
    "_log_softmax.default(x, -1, False)",
    "_softmax_backward_data.default(x, y, 1, x.dtype)",
    "_log_softmax_backward_data.default(x, y, 2, x.dtype)",
    "native_layer_norm.default(x, [5], row[0, 0], None, 1e-5)",
    "native_layer_norm.default(x, [3, 5], None, None, 1e-3)",
    "native_layer_norm_backward.default(y, x, [5], x[..., :1].clone(),"
    " y[..., :1].clone(), row[0, 0], row[0, 0], [True, True, True])",
    "_native_batch_norm_legit_no_training.default(x, x[0, :, 0], None, x[0, :, 1],"
    " x[0, :, 2].abs(), 0.1, 1e-5)",
    "_native_batch_norm_legit_functional.default(x.float(), *x.float()[0, :, :3].T,"
    " y.float()[0, :, 2].abs(), True, 0.1, 1e-5)",
    "full.default([2, 3], 2.5, dtype=x.dtype)",
    "full_like.default(x, 2)",
    "scalar_tensor.default(2, dtype=x.dtype)",
    "zeros.default([2, 0])",
    "empty.memory_format([2, 0], dtype=x.dtype)",
    "empty_permuted.default([2, 0], [1, 0])",
    "empty_like.default(x[:0])",
    "new_empty.default(x, [0])",
    "ones.default([3], dtype=x.dtype)",
    "zeros_like.default(x)",
    "new_zeros.default(x, [2])",
    "ones_like.default(x)",
    "new_ones.default(x, [2])",
    "new_full.default(x, [2], 3)",
    "arange.default(4)",
    "arange.start(2, 7, dtype=torch.float32)",
    "arange.start_step(1.5, 4, 0.5)",
    "eye.default(3)",
    "eye.m(2, 3, dtype=x.dtype)",
    "convolution.default(image, kernel, kernel[:, 0, 0, 0], [2, 1], [1, 0], [1, 2],"
    " False, [0, 0], 1)",
    "convolution.default(image, kernel[:, :1], None, [1, 1], [0, 1], [1, 1], False,"
    " [0, 0], 2)",
    "convolution.default(image[:, :, 0], kernel[:, :, 0], None, [1], [1], [1], False,"
    " [0], 1)",
    "convolution.default(image, kernel[:2], None, [2, 3], [1, 0], [1, 1], True,"
    " [1, 2], 1)",
    "convolution_backward.default(image[:, :, :3, :4].repeat(1, 2, 1, 1), image,"
    " kernel, [4], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])",
    "max_pool2d_with_indices.default(image, [2, 3])",
    "max_pool2d_with_indices.default(image, [3, 2], [2, 2], [1, 1], [1, 2], True)",
    "max_pool2d_with_indices.default(lowest, [2, 2], [1, 1], [1, 1])",
    "max_pool2d_with_indices_backward.default(image[:, :, :5, :6], image, [2, 2],"
    " [1, 1], [0, 0], [1, 1], False, torch.ops.aten.max_pool2d_with_indices.default("
    "image, [2, 2], [1, 1])[1])",
    "avg_pool2d.default(image, [2, 3])",
    "avg_pool2d.default(image, [3, 2], [2, 2], [1, 1], True)",
    "avg_pool2d.default(image, [3, 2], [2, 2], [1, 1], False, False)",
    "avg_pool2d.default(image, [2, 2], [1, 1], [0, 0], False, True, 3)",
    *(
        f"_scaled_dot_product_flash_attention_for_cpu.default(q, q + 1, q * 2{how})"
        for how in ("", ", 0.0, True", ", attn_mask=bias", ", scale=0.3")
    ),
    *(
        "_scaled_dot_product_flash_attention_for_cpu_backward.default(q, q, q + 1, q,"
        " *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default("
        f"q, q + 1, q, 0.0, {causal}, attn_mask={mask}), 0.0, {causal},"
        f" attn_mask={mask})"
        for causal, mask in ((False, None), (True, None), (False, "bias"))
    ),
]
"""Calls of operators. A name is a tensor of the dtype that is tested, or one beside."""


def tensors(dtype: Any) -> dict[str, Any]:
    """What the calls name."""
    rng = np.random.default_rng(0)

    def made(*shape: int) -> Any:
        drawn = rng.standard_normal(shape) * 3
        if dtype.is_complex:
            drawn = drawn + 1j * rng.standard_normal(shape)
        elif dtype is torch.bool:
            drawn = drawn > 0
        elif not dtype.is_floating_point:
            drawn = np.abs(np.rint(drawn)) if dtype is torch.uint8 else np.rint(drawn)
        return torch.from_numpy(np.asarray(drawn)).to(dtype)

    x = made(2, 3, 5)
    y = made(2, 3, 5)
    y[y == 0] = 1
    nans, lowest = x.clone(), made(1, 1, 3, 3)
    if dtype.is_floating_point:
        nans[0, 1, 2:4] = torch.tensor([float("nan"), float("inf")], dtype=dtype)
        nans[1] = float("-inf")
        lowest[:] = float("-inf")
    whole = torch.from_numpy(rng.integers(0, 7, (2, 3, 5)))
    return {
        **{"x": x, "y": y, "nans": nans, "lowest": lowest, "whole": whole},
        "row": made(1, 1, 5),
        "row2": made(2, 5),
        "one": y[0, 0, 0].clone(),
        "matrix": made(7, 5),
        "empty": made(0),
        "mask": torch.from_numpy(rng.random((2, 3, 5)) < 0.5),
        "places": torch.tensor([2, 0, 1, 2]),
        "order": torch.argsort(torch.rand(2, 3, 5), 1),
        "distinct": torch.arange(12).reshape(3, 4).flip(0).to(dtype),
        "image": made(2, 2, 6, 7),
        "kernel": made(4, 2, 3, 2),
        "q": made(2, 3, 4, 8) / 3 if dtype.is_floating_point else made(2, 3, 4, 8),
        "bias": made(2, 3, 4, 4),
    }


def flat(found: Any) -> list[Any]:
    found = found if isinstance(found, (tuple, list)) else [found]
    return [x for x in found if isinstance(x, torch.Tensor)]


ROUNDINGS = 16
OF_ATTENTION = 64
"""Of gradients of attention: four products of 4 or 8 terms each in a row, a softmax,
and a difference whose terms are larger than what is left of them."""


def compared(
    f: Callable[..., Any], given: list[Any], roundings: int, **options: Any
) -> TorchProgram:
    """Compare what a graph of ``f`` gives with what PyTorch gives."""
    want = flat(f(*given))
    graph = make_fx(lambda *xs: flat(f(*xs)), tracing_mode="fake")(*given)
    program = TorchProgram(graph, {"backend": "numpy", "rules": (), **options})
    found = program([x.clone() for x in given])
    wide = [x.double() if x.dtype == torch.float32 else x for x in given]
    exact = flat(f(*wide))
    assert len(found) == len(want) == len(exact)
    for a, b, c in zip(found, want, exact, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        close(a, b, c, roundings)
    return program


def close(a: Any, b: Any, exact: Any = None, roundings: int = ROUNDINGS) -> None:
    """Compare within some roundings of the dtype, of the largest element; of float32
    also with what float64 gives, from which ``a`` may be twice as far as ``b``."""
    if not (b.dtype.is_floating_point or b.dtype.is_complex):
        assert torch.equal(a, b)
        return
    finite = b[torch.isfinite(b)].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    eps = torch.finfo(b.dtype).eps
    if exact is not None and exact.dtype == torch.float64 != b.dtype:
        theirs = (b - exact)[torch.isfinite(exact)].abs()
        far = float(theirs.max()) if theirs.numel() else 0.0
        if far > roundings / 2 * eps * largest:
            torch.testing.assert_close(
                a.double(), exact, rtol=0, atol=2 * far, equal_nan=True
            )
            return
    torch.testing.assert_close(
        a, b, rtol=roundings * eps, atol=roundings * eps * largest, equal_nan=True
    )


def run(call: str, dtype: Any, **options: Any) -> bool:
    """Run a call; whether PyTorch has it for the dtype."""
    warnings.filterwarnings("ignore", "Casting complex values to real")
    named = tensors(dtype)
    code = compile(call, "a call", "eval")
    names = [n for n in named if n in code.co_names]
    namespace = "prims" if call.startswith("prims") else "aten"
    text = call.removeprefix("prims.")

    def f(*given: Any) -> Any:
        torch.manual_seed(0)
        inside = {**dict(zip(names, given, strict=True)), "torch": torch}
        ops = getattr(torch.ops, namespace)
        return eval(f"_ops.{text}", {"_ops": ops, **inside})

    try:
        f(*(named[n] for n in names))
    except (RuntimeError, NotImplementedError, IndexError):
        return False
    roundings = OF_ATTENTION if "attention_for_cpu_backward" in call else ROUNDINGS
    program = compared(f, [named[n] for n in names], roundings, **options)
    for fallback in program.report().fallbacks:
        assert _is_left(fallback.op, dtype), (dtype, fallback)
    return True


def _is_left(op: str, dtype: Any) -> bool:
    """Whether an operator stays in PyTorch for a dtype."""
    if dtype.is_complex or op in ("div.Tensor_mode", "floor_divide.default"):
        return True
    integer = not dtype.is_floating_point
    left = ("fmod.", "index_add.", "index_put.", "pow.", "remainder.", "sub.", "rsub.")
    return integer and op.startswith(left)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("call", CALLS)
def test_an_operator_gives_what_torch_gives(call: str) -> None:
    names = some(DTYPES, 2, call)
    tried = [run(call, getattr(torch, name)) for name in names]
    if not any(tried):
        assert run(call, torch.float32) or run(call, torch.int64)


def test_every_operator_of_the_table_is_called() -> None:
    called = set()
    for call in CALLS:
        name = call.partition("(")[0]
        called.add(name if name in TABLE else name.rpartition(".")[0])
    assert set(TABLE) <= called | {"detach"}, set(TABLE) - called


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_an_operator_gives_the_same_in_machine_code(call: str) -> None:
    assert run(call, torch.float32, backend="native") or run(
        call, torch.int64, backend="native"
    )


# -- samples of PyTorch's own tests ----------------------------------------------------


def _samples() -> list[Any]:
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError:  # it needs expecttest
        return []
    return [op for op in op_db if not op.name.startswith(("_refs", "masked"))]


WITH_TIES = ("argsort", "sort", "topk")
"""Operators that may name any of equal elements."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["float32", "int64", "bfloat16", "bool"])
def test_operators_on_the_samples_of_torch(name: str) -> None:
    dtype = getattr(torch, name)
    operators = _samples()
    if not operators:
        pytest.skip("the samples need the package expecttest")
    compiled = 0
    for op in operators:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for sample in list(op.sample_inputs("cpu", dtype))[:3]:
            compiled += _compare_sample(op, sample)
    assert compiled > 500


def _compare_sample(op: Any, sample: Any) -> bool:
    """Compare a sample if all of it runs in eqsat, and its graph has fixed shapes."""
    from torch.utils import _pytree as torch_pytree

    from eqsat.pytorch.dynamo import decompositions

    leaves, spec = torch_pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    given = [x for x in leaves if isinstance(x, torch.Tensor)]
    if any(x.layout is not torch.strided for x in given):
        return False

    def f(*tensors: Any) -> Any:
        rest = iter(tensors)
        put = [next(rest) if isinstance(x, torch.Tensor) else x for x in leaves]
        first, args, named = torch_pytree.tree_unflatten(put, spec)
        return flat(torch_pytree.tree_leaves(op.op(first, *args, **named)))

    try:
        want = f(*(x.clone() for x in given))
        graph = make_fx(
            torch.func.functionalize(f),
            decomposition_table=dict(decompositions()),
            tracing_mode="fake",
        )(*(x.clone() for x in given))
    except Exception:  # it has no graph
        return False
    program = TorchProgram(graph, {"backend": "numpy", "rules": ()})
    found = program([x.clone() for x in given])
    if program.report().fallbacks or not program.report().programs:
        return False
    for a, b in zip(found, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), op.name
        if "empty" not in op.name and op.name not in WITH_TIES:
            close(a, b)
    return True


def test_names_of_operators() -> None:
    graph = make_fx(lambda x: x.sum(), tracing_mode="fake")(torch.ones(2))
    (node,) = [n for n in graph.graph.nodes if n.op == "call_function"]
    assert name_of(node) == "sum.default"
