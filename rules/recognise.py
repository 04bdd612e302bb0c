"""Other spellings of what the catalogue has a name for.

The body of a composite is its first rule; these are the forms that NumPy users write
besides.
"""

from eqsat import rule
from eqsat.ops import (
    exp,
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    log,
    log_softmax,
    logsumexp,
    max,
    mean,
    rope,
    sigmoid,
    silu,
    softmax,
    sum,
    tanh,
)
from eqsat.rulelang import equal
from eqsat.terms import Axis

PHASE = "recognise"


@rule("...")
def sigmoid_of_exp(x):
    """1 / (1 + e⁻ˣ) = σ(x)."""
    return 1.0 / (1.0 + exp(-x)), sigmoid(x)


@rule("...")
def sigmoid_of_tanh(x):
    """½ (1 + tanh(x/2)) = σ(x)."""
    return 0.5 * (1.0 + tanh(0.5 * x)), sigmoid(x)


@rule("..., ...")
def sigmoid_gate_of_tanh(x, y):
    """½ y (1 + tanh(x/2)) = y σ(x)."""
    return 0.5 * (y * (1.0 + tanh(0.5 * x))), y * sigmoid(x)


@rule("...")
def silu_of_quotient(x):
    """x / (1 + e⁻ˣ) = silu(x)."""
    return x / (1.0 + exp(-x)), silu(x)


@rule("...")
def gelu_sigmoid_of_quotient(x):
    """x / (1 + e^(-1.702 x)) = gelu_sigmoid(x)."""
    return x / (1.0 + exp(-1.702 * x)), gelu_sigmoid(x)


@rule("...")
def gelu_tanh_of_tanh(x):
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) = gelu_tanh(x)."""
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + tanh(inner)), gelu_tanh(x)


@rule("...")
def gelu_tanh_factored(x):
    """½ x (1 + tanh(√(2/π) x (1 + 0.044715 x²))) = gelu_tanh(x)."""
    inner = 0.7978845608028654 * (x * (1.0 + 0.044715 * (x * x)))
    return 0.5 * (x * (1.0 + tanh(inner))), gelu_tanh(x)


@rule("...")
def gelu_summed(x):
    """½ x + ½ x erf(x/√2) = gelu(x)."""
    from eqsat.ops import erf

    return x * 0.5 + x * erf(x * 0.7071067811865476) * 0.5, gelu(x)


@rule("...")
def softmax_of_reciprocal(x, axis: Axis):
    """e (1 / Σ e) = softmax(x), where e = exp(x - max x)."""
    e = exp(x - max(x, axis=axis, keepdims=True))
    return e * (1.0 / sum(e, axis=axis, keepdims=True)), softmax(x, axis=axis)


@rule("...")
def logsumexp_shifted(x, axis: Axis):
    """m + log Σ exp(x - m) = logsumexp(x), where m = max x."""
    m = max(x, axis=axis, keepdims=True)
    return m + log(sum(exp(x - m), axis=axis, keepdims=True)), logsumexp(x, axis=axis)


@rule("...")
def softmax_of_logsumexp(x, axis: Axis):
    """exp(x - logsumexp x) = softmax(x)."""
    return exp(x - logsumexp(x, axis=axis)), softmax(x, axis=axis)


@rule("...")
def log_softmax_of_logsumexp(x, axis: Axis):
    """x - logsumexp x = log_softmax(x)."""
    return x - logsumexp(x, axis=axis), log_softmax(x, axis=axis)


@rule("... n")
def mean_of_last_axis(x):
    """Σ x / n = mean(x) over the last axis."""
    return sum(x, axis=-1, keepdims=True) / x.shape[-1], mean(x, axis=-1, keepdims=True)


@rule("... n")
def mean_of_quotient(x):
    """Σ (x / n) = mean(x) over the last axis."""
    n = x.shape[-1]
    return sum(x * (1.0 / n), axis=-1, keepdims=True), mean(x, axis=-1, keepdims=True)


@rule(
    "... s d, s d, s d",
    where=lambda x, c, s: equal(x.shape[-1] // 2 * 2, x.shape[-1]),
    name="rope",
)
def rope_of_halves(x, c, s):
    """x c + (-x₂, x₁) s = rope(x), of two halves x₁, x₂ of the same size."""
    assert rope.body is not None
    return rope.body(x, c, s), rope(x, c, s)
