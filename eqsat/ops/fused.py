"""Named fusions: composites that one kernel computes. Their bodies are the rules that
find them.

Cost decides whether one is used; a body is never a promise of profit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.ops.attention import (
    attention_causal,
    attention_masked,
    attention_scaled,
    some_keys,
)
from eqsat.ops.contract import conv2d_op
from eqsat.ops.nn import (
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    relu,
    silu,
    softmax,
    some_elements,
)
from eqsat.ops.norm import layer_norm, rms_norm
from eqsat.ops.pointwise import add, divide, maximum, minimum, multiply, subtract
from eqsat.ops.transcendental import sigmoid, tanh
from eqsat.support import ShapeError, at, caller_line
from eqsat.terms import Custom, Ints, Op, Type, fused

ACTIVATIONS: dict[str, Any] = {
    "": lambda x: x,
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "gelu_sigmoid": gelu_sigmoid,
    "silu": silu,
    "sigmoid": sigmoid,
    "tanh": tanh,
}
"""Activations that an epilogue can apply, by name; the empty name is none."""
_ANY = tuple(ACTIVATIONS)
_SOME = _ANY[1:]
_BINARY: dict[str, Op] = {
    o.name: o for o in (add, subtract, multiply, divide, maximum, minimum)
}


@fused("... k, k n, n -> ... n", choices={"act": _ANY})
def linear(x: Any, w: Any, b: Any, *, act: str = "") -> Any:
    """act(x w + b)."""
    return ACTIVATIONS[act](x @ w + b)


@fused("... k, k n -> ... n", choices={"act": _SOME})
def matmul_act(x: Any, w: Any, *, act: str) -> Any:
    """act(x w)."""
    return ACTIVATIONS[act](x @ w)


@fused("... k, k n, n, ... n -> ... n")
def linear_residual(x: Any, w: Any, b: Any, r: Any) -> Any:
    """x w + b + r."""
    return x @ w + b + r


@fused("... k, k n, ... n -> ... n")
def matmul_residual(x: Any, w: Any, r: Any) -> Any:
    """x w + r."""
    return x @ w + r


@fused("... k, k n, n, n, n,  -> ... n")
def linear_layer_norm(x: Any, w: Any, b: Any, g: Any, c: Any, eps: Any) -> Any:
    """layer_norm(x w + b) with scale g and shift c."""
    return layer_norm(x @ w + b, g, c, eps)


@fused("... k, k n, n, ... n, n, n,  -> ... n")
def linear_residual_layer_norm(
    x: Any, w: Any, b: Any, r: Any, g: Any, c: Any, eps: Any
) -> Any:
    """layer_norm(x w + b + r) with scale g and shift c."""
    return layer_norm(x @ w + b + r, g, c, eps)


@fused("... k, k n, n,  -> ... n")
def matmul_rms_norm(x: Any, w: Any, g: Any, eps: Any) -> Any:
    """rms_norm(x w) with scale g."""
    return rms_norm(x @ w, g, eps)


@fused("... k, k, k, , k n, n -> ... n", choices={"act": _ANY})
def layer_norm_linear(
    x: Any, g: Any, c: Any, eps: Any, w: Any, b: Any, *, act: str = ""
) -> Any:
    """act(layer_norm(x) w + b)."""
    return ACTIVATIONS[act](layer_norm(x, g, c, eps) @ w + b)


@fused("... k, k, k, , k n -> ... n", choices={"act": _ANY})
def layer_norm_matmul(
    x: Any, g: Any, c: Any, eps: Any, w: Any, *, act: str = ""
) -> Any:
    """act(layer_norm(x) w)."""
    return ACTIVATIONS[act](layer_norm(x, g, c, eps) @ w)


@fused("... k, k, , k n, n -> ... n", choices={"act": _ANY})
def rms_norm_linear(x: Any, g: Any, eps: Any, w: Any, b: Any, *, act: str = "") -> Any:
    """act(rms_norm(x) w + b)."""
    return ACTIVATIONS[act](rms_norm(x, g, eps) @ w + b)


@fused("... k, k, , k n -> ... n", choices={"act": _ANY})
def rms_norm_matmul(x: Any, g: Any, eps: Any, w: Any, *, act: str = "") -> Any:
    """act(rms_norm(x) w)."""
    return ACTIVATIONS[act](rms_norm(x, g, eps) @ w)


@fused("... k, k n, k j, j n,  -> ... n")
def lora(x: Any, w: Any, a: Any, b: Any, s: Any) -> Any:
    """x w + s (x a) b, the low-rank product in the cheap order. Hu et al. 2021,
    arXiv:2106.09685."""
    return x @ w + (x @ a) @ b * s


@fused("... k, k n, k j, j n -> ... n")
def lora_plain(x: Any, w: Any, a: Any, b: Any) -> Any:
    """x w + (x a) b."""
    return x @ w + (x @ a) @ b


@fused("... k, k n, k j, j n, n -> ... n")
def lora_linear(x: Any, w: Any, a: Any, b: Any, c: Any) -> Any:
    """x w + (x a) b + c."""
    return x @ w + (x @ a) @ b + c


@fused("... k, k n, k j, j n, n, ... n -> ... n")
def lora_residual(x: Any, w: Any, a: Any, b: Any, c: Any, r: Any) -> Any:
    """x w + (x a) b + c + r."""
    return x @ w + (x @ a) @ b + c + r


@fused("... n,  -> ... n", check=some_elements)
def scaled_softmax(x: Any, s: Any) -> Any:
    """softmax(s x) over the last axis."""
    return softmax(x * s, axis=(-1,))


@fused("... m d, ... n d, ... n e, , ... m e -> ... m e", check=some_keys)
def attention_residual(q: Any, k: Any, v: Any, s: Any, r: Any) -> Any:
    """softmax(s q kᵀ) v + r."""
    return attention_scaled(q, k, v, s) + r


@fused("... m d, ... n d, ... n e, , ... m n, ... m e -> ... m e", check=some_keys)
def attention_masked_residual(q: Any, k: Any, v: Any, s: Any, mask: Any, r: Any) -> Any:
    """softmax(s q kᵀ + mask) v + r."""
    return attention_masked(q, k, v, s, mask) + r


@fused("... m d, ... n d, ... n e, , ... m e -> ... m e", check=some_keys)
def attention_causal_residual(q: Any, k: Any, v: Any, s: Any, r: Any) -> Any:
    """Causal softmax(s q kᵀ) v + r."""
    return attention_causal(q, k, v, s) + r


@fused("..., ... -> ...", choices={"op": tuple(_BINARY), "act": _SOME})
def binary_act(x: Any, y: Any, *, op: str, act: str) -> Any:
    """act(x ∘ y) for an arithmetic operation ∘; one of the operands may be a number."""
    return ACTIVATIONS[act](_BINARY[op](x, y))


@fused("..., ... -> ...", choices={"act": _SOME})
def gated(x: Any, y: Any, *, act: str) -> Any:
    """act(x) y: the gate of GLU, GEGLU and SwiGLU. Shazeer 2020, arXiv:2002.05202."""
    return ACTIVATIONS[act](x) * y


def _conv_act_type(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
    dtype, shape = conv2d_op.type_rule.infer(who, types[:2], attrs)
    if types[2][1] != (shape[1], 1, 1):
        raise ShapeError(
            f"{who}: argument 'b' has shape {types[2][1]}, expected ({shape[1]}, 1, 1)"
            f"{at(caller_line())}"
        )
    return dtype, shape


@fused(
    Custom(_conv_act_type),
    choices={"act": _ANY},
    recognised=False,
)
def conv2d_act(
    x: Any,
    w: Any,
    b: Any,
    *,
    stride: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
    act: str = "",
) -> Any:
    """act(conv2d(x, w) + b) with b (o 1 1); found by the rules of convolution."""
    y = conv2d_op(
        x, w, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    return ACTIVATIONS[act](y + b)
