"""How each op is written as a call of MLX: the only place that knows their spelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from eqsat.ops import attention_causal, broadcast_to_op, reshape_op, transpose_op
from eqsat.support import BackendError
from eqsat.terms import HALF, Op, Shape, Term, is_float

from .hosted import Hosted

F64 = np.dtype(np.float64)


@dataclass(frozen=True)
class MLXCall:
    """A term to be written: expressions of its arguments, and its dtypes as they are
    computed."""

    term: Term
    args: tuple[str, ...]
    dtypes: tuple[np.dtype[Any] | None, ...]
    """Of the arguments; None of bare numbers."""
    dtype: np.dtype[Any]
    namespace: dict[str, Any] = field(repr=False)

    @property
    def op(self) -> Op:
        return cast(Op, self.term.op)

    @property
    def attrs(self) -> dict[str, Any]:
        return self.op.attr_dict(self.term)

    @property
    def met(self) -> np.dtype[Any]:
        """The dtype of the first argument that is an array."""
        return next((d for d in self.dtypes if d is not None), self.dtype)


def expression(call: MLXCall) -> str:
    """The text of ``call``. Raises :class:`BackendError` for an op without one."""
    name = call.op.name
    if call.met == F64 and name in _SINGLE:
        return by_host(call)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(call)
    if call.op.kind == "pointwise" and name in _SAME:
        return _call(f"mx.{_SAME[name]}", call.args)
    if call.op.kind == "pointwise" and name in _OWN:
        return _call(f"ops.{name}", call.args)
    if call.op.scale is not None:
        return f"mx.multiply({call.args[0]}, {call.op.factor(call.dtype)!r})"
    if call.op.kind == "leaf":
        raise BackendError(f"{name}: a leaf cannot be computed")
    return by_host(call)


def by_host(call: MLXCall) -> str:
    """The reference of the op, over NumPy's arrays, with the derivative of the op."""
    name = f"{call.op.name}_by_numpy"
    while name in call.namespace:
        name += "_"
    call.namespace[name] = Hosted(call.term, call.dtype)
    return _call(name, call.args)


def has_own(op: Op) -> bool:
    """Whether a composite is one call of MLX, not the calls of its body."""
    return op.name in FAST


def number(value: float, dtype: np.dtype[Any]) -> str:
    """A bare number."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "mx.nan"
        return "mx.inf" if value > 0 else "-mx.inf"
    if isinstance(value, int) and dtype.kind == "f":
        return repr(float(value))
    if isinstance(value, int) and value >= 1 << 63:  # which MLX takes of no Python int
        return f"mx.array({value - (1 << 64)}, dtype=mx.int64).view(mx.uint64)"
    if isinstance(value, int) and dtype.kind in "iu" and abs(value) >= 1 << 31:
        return f"mx.array({value}, dtype={dtype_text(dtype)})"
    return repr(value)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """``mx.float32``."""
    return "mx.bool_" if dtype == np.dtype(bool) else f"mx.{dtype.name}"


def cast_text(text: str, to: np.dtype[Any]) -> str:
    """``text`` as an array of another dtype."""
    return f"{text}.astype({dtype_text(to)})"


def _call(function: str, words: Sequence[str]) -> str:
    return f"{function}({', '.join(words)})"


# -- views -----------------------------------------------------------------------------


def view(term: Term, arg: str) -> str:
    """The expression of a view of ``arg``."""
    op = cast(Op, term.op)
    attrs = op.attr_dict(term)
    source, *_ = term.args
    if op is reshape_op:
        return f"mx.reshape({arg}, {tuple(term.shape)})"
    if op is broadcast_to_op:
        return f"mx.broadcast_to({arg}, {tuple(term.shape)})"
    if op is transpose_op:
        perm = attrs["perm"]
        if tuple(perm) == (-1, -2):
            return f"mx.swapaxes({arg}, -1, -2)"
        lead = source.ndim - len(perm)
        order = (*range(lead), *(source.ndim + p for p in perm))
        return f"mx.transpose({arg}, {order})"
    if op.name != "slice":
        raise BackendError(f"{op.name}: no view that MLX spells")
    parts = [
        _part(start, size, step)
        for start, size, step in zip(
            attrs["starts"], attrs["sizes"], attrs["steps"], strict=True
        )
    ]
    lead = source.ndim - len(parts)
    return f"{arg}[{', '.join([':'] * lead + parts)}]"


def _part(start: int, size: int, step: int) -> str:
    if size == 0:
        return "0:0"
    stop = start + size * step
    end = "" if stop < 0 else str(stop)
    return f"{start}:{end}" + (f":{step}" if step != 1 else "")


# -- primitives ------------------------------------------------------------------------

Rule = Callable[[MLXCall], str]


def _view(c: MLXCall) -> str:
    return view(c.term, c.args[0])


def _cast(c: MLXCall) -> str:
    if c.met == F64 and c.dtype in HALF:  # MLX would round twice
        return by_host(c)
    return cast_text(c.args[0], c.dtype)


def _copy(c: MLXCall) -> str:
    return c.args[0]


def _where(c: MLXCall) -> str:
    text = _call("mx.where", c.args)
    return text if c.dtypes[1] or c.dtypes[2] else cast_text(text, c.dtype)


def _matmul(c: MLXCall) -> str:
    return _call("mx.matmul" if is_float(c.dtype) else "ops.matmul", c.args)


def _axes(axes: Sequence[int]) -> str:
    return f"axis={axes[0] if len(axes) == 1 else tuple(axes)}"


def reduced(name: str, x: str, axes: Sequence[int], kept: bool = True) -> str:
    """A reduction of ``x``, whose axes stay as 1 where they are ``kept``."""
    return f"mx.{name}({x}, {_axes(axes)}{', keepdims=True' * kept})"


_OF_NOTHING = {"sum": "zeros", "prod": "ones", "any": "zeros", "all": "ones"}


def _reduction(name: str) -> Rule:
    def rule(c: MLXCall) -> str:
        if not c.term.args[0].size:  # MLX may never be done with it
            shape, dtype = tuple(c.term.shape), f"dtype={dtype_text(c.dtype)}"
            made = _OF_NOTHING.get(name)
            return f"mx.{made}({shape}, {dtype})" if made else by_host(c)
        text = reduced(name, c.args[0], c.attrs["axis"])
        narrow = c.dtype.kind in "biu" and name in ("sum", "prod")
        return cast_text(text, c.dtype) if narrow else text

    return rule


def _position(name: str) -> Rule:
    def rule(c: MLXCall) -> str:
        axis = c.attrs["axis"][0]
        text = f"mx.{name}({c.args[0]}, axis={axis}, keepdims=True)"
        return cast_text(text, c.dtype)

    return rule


def _concatenate(c: MLXCall) -> str:
    return f"mx.concatenate([{', '.join(c.args)}], axis={c.attrs['axis']})"


def _take(c: MLXCall) -> str:
    return f"ops.take({c.args[0]}, {c.args[1]}, axis={c.attrs['axis']})"


def _add_at(c: MLXCall) -> str:
    return _call("ops.add_at", [*c.args, str(c.attrs["axis"]), str(c.attrs["size"])])


def _set_at(c: MLXCall) -> str:
    return _call("ops.set_at", [*c.args, str(c.attrs["axis"])])


def _pad(c: MLXCall) -> str:
    x, value = c.args
    arg, *_ = c.term.args
    low, high = c.attrs["low"], c.attrs["high"]
    lead = [(0, 0)] * (arg.ndim - len(low))
    widths = [*lead, *zip(low, high, strict=True)]
    fill = value if c.dtypes[1] is None else cast_text(value, c.dtype)
    if c.dtypes[1] is None:
        fill = f"mx.array({value}, dtype={dtype_text(c.dtype)})"
    return f"mx.pad({x}, {widths}, constant_values={fill})"


def _iota(c: MLXCall) -> str:
    return f"mx.arange({c.attrs['shape'][0]}, dtype={dtype_text(c.dtype)})"


def _sort(c: MLXCall) -> str:
    return f"mx.sort({c.args[0]}, axis={c.attrs['axis'][0]})"


def _argsort(c: MLXCall) -> str:
    text = f"mx.argsort({c.args[0]}, axis={c.attrs['axis'][0]})"
    return cast_text(text, c.dtype)


def _accumulate(c: MLXCall) -> str:
    name, axis = c.attrs["ufunc"], c.attrs["axis"][0]
    single = c.met == F64 and name in _SINGLE
    known = name in _SAME or name in _OWN
    if single or not known:
        return by_host(c)
    function = f"mx.{_SAME[name]}" if name in _SAME else f"ops.{name}"
    return f"ops.accumulate({c.args[0]}, {function}, {name!r}, axis={axis})"


def _conv2d(c: MLXCall) -> str:
    if not is_float(c.dtype) or c.dtype == F64:  # MLX's is of float32
        return by_host(c)
    a = c.attrs
    words = [str(a[n]) for n in ("stride", "padding", "dilation", "groups")]
    return _call("ops.conv2d", [*c.args, *words])


def _same_of_integers(name: str) -> Rule:
    def rule(c: MLXCall) -> str:
        return _call(f"mx.{name}", c.args) if is_float(c.met) else c.args[0]

    return rule


def _invert(c: MLXCall) -> str:
    is_bool = c.met == np.dtype(bool)
    return _call("mx.logical_not" if is_bool else "mx.bitwise_invert", c.args)


_SINGLE = frozenset("exp erf sigmoid sin cos logaddexp".split())
"""Functions that MLX computes in float32, whatever the dtype."""
_SAME = {
    **{
        n: n
        for n in (
            "add subtract multiply divide negative square maximum minimum exp expm1 "
            "log log2 log10 log1p logaddexp sqrt rsqrt sin cos tan arcsin arccos "
            "arctan arctan2 sinh cosh tanh arcsinh arccosh arctanh less less_equal "
            "greater greater_equal equal not_equal isnan isinf isfinite logical_and "
            "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor "
            "sigmoid"
        ).split()
    },
    "absolute": "abs",
}
"""Ops of the same meaning in MLX."""
_OWN = frozenset(
    "floor_divide remainder fmod power reciprocal sign copysign fmax fmin exp2 cbrt "
    "hypot left_shift right_shift logaddexp2 heaviside nextafter gcd lcm signbit "
    "bitwise_count erf".split()
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "broadcast_to", "transpose", "slice"), _view),
    "cast": _cast,
    "copy": _copy,
    "where": _where,
    "matmul": _matmul,
    **{n: _reduction(n) for n in ("sum", "prod", "mean", "max", "min", "any", "all")},
    "argmax": _position("argmax"),
    "argmin": _position("argmin"),
    "concatenate": _concatenate,
    "take": _take,
    "add_at": _add_at,
    "set_at": _set_at,
    "pad": _pad,
    "iota": _iota,
    "sort": _sort,
    "argsort": _argsort,
    "accumulate": _accumulate,
    "conv2d": _conv2d,
    "rint": _same_of_integers("round"),
    **{n: _same_of_integers(n) for n in ("floor", "ceil", "trunc")},
    "invert": _invert,
    "float_power": lambda c: _call("mx.power", c.args),
}

# -- composites ------------------------------------------------------------------------


def _norm(name: str, weights: int) -> Rule:
    """``mx.fast`` norms: x, the weights, eps, which must be a number."""

    def rule(c: MLXCall) -> str:
        x, *rest, eps = c.args
        given = [*rest, *["None"] * (weights - len(rest))]
        return _call(f"mx.fast.{name}", [x, *given, eps])

    return rule


def _softmax(c: MLXCall) -> str:
    return f"mx.softmax({c.args[0]}, {_axes(c.attrs['axis'])}, precise=True)"


def _logsumexp(c: MLXCall) -> str:
    return reduced("logsumexp", c.args[0], c.attrs["axis"])


def _attention(c: MLXCall) -> str | None:
    q_, k_, v_ = (t.shape for t in c.term.args[:3])
    blind = c.op is attention_causal and q_[-2] > k_[-2]
    if blind or not _is_grouped(q_[:-2], k_[:-2], v_[:-2]):
        return None  # MLX has another answer than NaN for queries that see no key
    q, k, v, scale, *mask = c.args
    kind = {"attention_causal": '"causal"'}.get(c.op.name, mask[0] if mask else "None")
    return _call("ops.attention", [q, k, v, scale, kind])


def _is_grouped(q: Shape, k: Shape, v: Shape) -> bool:
    """Whether all have the same batches and heads, or neighbours of q's heads share
    one of k and v."""
    shared = len(q) >= 2 and q[:-1] == k[:-1] and k[-1] == 1
    return k == v and (q == k or shared)


FAST: dict[str, Callable[[MLXCall], str | None]] = {
    "rms_norm": _norm("rms_norm", 1),
    "rms_normalize": _norm("rms_norm", 1),
    "layer_norm": _norm("layer_norm", 2),
    "standardize": _norm("layer_norm", 2),
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    **dict.fromkeys(
        ("attention_scaled", "attention_causal", "attention_masked"), _attention
    ),
    "attention_padded": _attention,
}
"""Composites that MLX has a kernel for, of float16, bfloat16 and float32."""
OF_FACTORS = frozenset(["lu_det", "lu_logabsdet", "lu_sign"])
"""Composites of a factorisation, which stands for its matrix: derivatives of their
bodies by MLX would be by its elements."""
ROUND_BETWEEN = frozenset(["layer_norm", "rms_norm", "logsumexp"])
"""Those that round float16 and bfloat16 between their steps on a CPU."""
_NUMBERS = {
    "rms_norm": 2,
    "rms_normalize": 1,
    "layer_norm": 3,
    "standardize": 1,
    **dict.fromkeys(
        "attention_scaled attention_causal attention_masked attention_padded".split(), 3
    ),
}
"""Arguments that have to be bare numbers."""


def fast(call: MLXCall) -> str | None:
    """A composite as one call; None where MLX's does not fit."""
    rule = FAST.get(call.op.name)
    if rule is None or call.term.size == 0:
        return None
    place = _NUMBERS.get(call.op.name)
    if place is not None and call.dtypes[place] is not None:
        return None
    if any(d not in (call.dtype, None) for d in call.dtypes):
        return None
    if not is_float(call.dtype) or call.dtype == F64:
        return None
    return rule(call)
