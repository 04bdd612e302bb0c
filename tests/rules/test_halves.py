"""What is found in float32 is found in half precision, spelled with casts; rules of one
dtype."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, expit

import eqsat as eq
from eqsat.checking.rule_trial import programs
from eqsat.egraph import open_engine, saturate
from eqsat.egraph.snapshot import Budget
from eqsat.terms.type_rules import BF16

HALVES = (np.dtype("f2"), BF16)
rng = np.random.default_rng(0)
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def widened(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` in float32, rounded to the dtype of its first argument."""

    def wide(x: Any, *args: Any) -> Any:
        return f(*(a.astype(np.float32) for a in (x, *args))).astype(x.dtype)

    return wide


def ops_of(f: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Ops of the chosen kernels, each op one by itself."""
    low = eq.jit(f, options=eq.Options(fusion=False, **options)).lower(*args)
    return [k.op.name for k in low.program.kernels]


def exp_shifted(x: Any) -> Any:
    return np.exp(x - x.max(-1, keepdims=True))


def softmax(x: Any) -> Any:
    e = exp_shifted(x)
    return e / e.sum(-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    return x - x.max(-1, keepdims=True) - np.log(exp_shifted(x).sum(-1, keepdims=True))


def logsumexp(x: Any) -> Any:
    top = x.max(-1, keepdims=True)
    return np.log(np.exp(x - top).sum(-1, keepdims=True)) + top


def standardize(x: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    return standardize(x) * g + b


def rms_norm(x: Any, g: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g


def group_norm(x: Any, g: Any, b: Any) -> Any:
    n, c, h, w = x.shape
    y = standardize(x.reshape(n, 2, -1)).reshape(n, c, h, w)
    return y * g[:, None, None] + b[:, None, None]


X, G, B = draw(6, 16), draw(16), draw(16)
FOUND: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "softmax": (softmax, (X,)),
    "log_softmax": (log_softmax, (X,)),
    "logsumexp": (logsumexp, (X,)),
    "layer_norm": (layer_norm, (X, G, B)),
    "rms_norm": (rms_norm, (X, G)),
    "standardize": (standardize, (X,)),
    "group_norm": (group_norm, (draw(2, 4, 3, 5), draw(4), draw(4))),
    "gelu": (lambda x: 0.5 * x * (1 + erf(x / 2**0.5)), (X,)),
    "gelu_tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))),
        (X,),
    ),
    "gelu_sigmoid": (lambda x: x * expit(1.702 * x), (X,)),
    "silu": (lambda x: x * expit(x), (X,)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), (X,)),
    "relu": (lambda x: np.maximum(x, 0), (X,)),
    "matmul": (lambda x, y: x @ y, (draw(3, 6, 16), draw(16, 5))),
}


@each_half
@pytest.mark.parametrize("name", FOUND)
def test_casts_around_a_composite(name: str, dtype: Any) -> None:
    f, arrays = FOUND[name]
    args = [a.astype(dtype) for a in arrays]
    assert ops_of(widened(f), *args) == [name]
    fast, want = eq.jit(widened(f))(*args), widened(f)(*args)
    assert fast.dtype == want.dtype == dtype and fast.shape == want.shape
    slack = 2 * float(np.finfo("f2").eps if dtype == "f2" else 2.0**-7)
    np.testing.assert_allclose(fast.astype(float), want.astype(float), slack, slack)


@each_half
def test_weights_in_float32_stay(dtype: Any) -> None:
    x, g = X.astype(dtype), G.astype("f4")
    found = ops_of(lambda x, g: rms_norm(x.astype("f4"), g).astype(x.dtype), x, g)
    assert found == ["cast", "rms_norm", "cast"]


@pytest.mark.parametrize("to", ["f4", "f2", BF16], ids=str)
def test_casts_to_another_dtype_stay(to: Any) -> None:
    x = X.astype(BF16 if to == "f2" else "f2")
    found = ops_of(lambda x: softmax(x.astype("f4")).astype(to), x)
    assert found == ["cast", "softmax", "cast"][: 2 if to == "f4" else 3]


@each_half
def test_casts_by_way_of_float64_stay(dtype: Any) -> None:
    found = ops_of(lambda x: softmax(x.astype("f8")).astype(x.dtype), X.astype(dtype))
    assert found == ["cast", "softmax", "cast"]


# -- attention -------------------------------------------------------------------------

N, M, D = 6, 10, 16
QKV = draw(2, 3, N, D), draw(2, 3, M, D), draw(2, 3, M, D)


def attention(of_scores: Callable[[Any], Any], q: Any, k: Any, v: Any) -> Any:
    """With scores of the dtype of q, and a softmax in float32."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return widened(softmax)(of_scores(scores)) @ v


SEEN = np.tri(N, M, M - N, dtype=bool)
BIAS = draw(N, M)
ATTENTION: dict[str, Callable[[Any], Any]] = {
    "attention_scaled": lambda s: s,
    "attention_causal": lambda s: np.where(SEEN, s, -np.inf),
    "attention_masked": lambda s: s + BIAS.astype(s.dtype),
}


@each_half
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, dtype: Any) -> None:
    f = partial(attention, ATTENTION[name])
    args = [a.astype(dtype) for a in QKV]
    assert ops_of(f, *args) == [name]
    got = eq.jit(f)(*args)
    want = f(*(a.astype(float) for a in args))
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(float), want, rtol=0.05, atol=0.03)


@each_half
def test_attention_in_float32(dtype: Any) -> None:
    f = widened(partial(attention, ATTENTION["attention_causal"]))
    args = [a.astype(dtype) for a in QKV]
    assert ops_of(f, *args) == ["attention_causal"]
    # libraries' attention rounds the weights too: not what was asked for bit by bit
    assert "attention_causal" not in ops_of(f, *args, numerics="exact")


# -- rules of one dtype ----------------------------------------------------------------


@eq.rule("...", dtypes="bfloat16")
def doubled(x):  # type: ignore[no-untyped-def]
    """cos x of bfloat16, for a test, = cos(-x)."""
    return np.cos(np.sin(x)), np.cos(-np.sin(x))


RULES = [doubled]


def fired(dtype: Any) -> int:
    rules = eq.default_rules() + RULES
    low = eq.jit(lambda x: np.cos(np.sin(x)), rules=rules).lower(X.astype(dtype))
    return int(low.optimised.fired.get("doubled", 0))


def test_a_rule_of_one_dtype_keeps_to_it() -> None:
    assert fired(BF16) == 1
    assert not any(fired(d) for d in ("f2", "f4", "f8"))


def test_why_not_names_the_dtype() -> None:
    rules = eq.default_rules() + RULES
    e = eq.jit(lambda x: np.cos(np.sin(x)), rules=rules).explain(X.astype("f2"))
    why = e.why_not("doubled")
    assert why.kind == "dtype"
    assert "expected bfloat16, found float16" in str(why)


def test_a_rule_is_checked_in_its_dtype() -> None:
    def through_float32(x: Any) -> Any:
        """bfloat16 survives a cast to float32 and back."""
        return eq.ops.cast(eq.ops.cast(x, "float32"), "bfloat16") * 3.0, x * 3.0

    for dtype, verdict in {"bfloat16": "proved", "float16": "refused"}.items():
        r = eq.rule("...", dtypes=dtype, numerics="exact")(through_float32)
        assert eq.check(r, examples=40)["through_float32"].verdict == verdict


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(
        eq.RuleError, match=r"dtypes='int8', expected one of float, any"
    ):
        eq.rule("...", dtypes="int8")(lambda x: (x + x, 2.0 * x))


def test_rules_of_halves_load_where_they_can_match() -> None:
    """One of the 48."""
    program, *_ = programs(eq.default_rules()["softmax_of_bfloat16"])
    engine = open_engine(eq.default_rules(), program.ops)
    engine.insert(program.start)
    saturate(engine, Budget(math.inf, 2000))
    found = re.findall(r':name "(\w+_of_b?float16)"', engine.dump()())
    assert found == ["softmax_of_bfloat16"]
