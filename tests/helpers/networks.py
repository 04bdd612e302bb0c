"""Pointwise ops, what NumPy's users write, and networks: programs for each backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import expressions
import numpy as np
import scipy.special as sp
from agreement import drawn

from eqsat import ops
from eqsat.ops.transcendental import tanh
from eqsat.terms.make_term import apply
from eqsat.terms.op import Op
from eqsat.terms.term import TermGraph
from eqsat.trace.trace import Trace, trace

POINTWISE = sorted(o.name for o in Op.registry.values() if o.kind == "pointwise")


def accepts(op: Op, dtypes: Sequence[Any]) -> bool:
    try:
        graph = TermGraph()
        arrays = [np.ones(1, d) for d in dtypes]
        apply(op, graph, arrays, {"dtype": "float32"} if op.attrs else {})
    except (TypeError, ValueError):
        return False
    return True


def pointwise_case(
    name: str, seed: int, dtype: Any, strided: bool
) -> tuple[Callable[..., Any], list[np.ndarray]] | None:
    """A pointwise op, and arguments that broadcast; None where it has none of the
    dtype."""
    op = Op.registry[name]
    if not accepts(op, [dtype] * len(op.params)):
        return None
    attrs = {"dtype": "float16"} if op.attrs else {}
    shapes = [(3, 5), (5,), (3, 1)]
    if "shift" in name or (name == "power" and dtype.kind in "iu"):
        arrays = [np.ones(s, dtype) for s in shapes]
    else:
        arrays = [drawn(seed + i, s, dtype) for i, s in enumerate(shapes)]
    if strided:
        arrays = [np.repeat(x, 4, axis=-1)[..., ::4] for x in arrays]
    return lambda *xs: op(*xs, **attrs), arrays[: len(op.params)]


GROUPS = [name for name in vars(expressions) if name.isupper()]
NUMPY_ARGUMENTS = expressions.arrays()


def written(group: str, closed_over: np.ndarray) -> Iterator[tuple[str, Trace]]:
    """What NumPy's users write, traced over :data:`NUMPY_ARGUMENTS`."""
    known = {"np": np, "sp": sp, "C": closed_over}
    for text in getattr(expressions, group).split(";"):
        f = eval(f"lambda {', '.join(NUMPY_ARGUMENTS)}: {text.strip()}", known)
        yield text, trace(f, [*NUMPY_ARGUMENTS.values()], {})


def heads(n: int, d: int) -> tuple[int, ...]:
    return 2, 3, n, d


NETWORKS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "softmax": (ops.softmax, [(7, 5)]),
    "softmax, first axis": (lambda x: ops.softmax(x, axis=0), [(7, 5, 3)]),
    "log_softmax": (ops.log_softmax, [(7, 5)]),
    "logsumexp": (ops.logsumexp, [(7, 5)]),
    "gelu": (ops.gelu, [(3, 11)]),
    "gelu_tanh": (ops.gelu_tanh, [(3, 11)]),
    "gelu_sigmoid": (ops.gelu_sigmoid, [(3, 11)]),
    "silu": (ops.silu, [(33,)]),
    "softplus": (ops.softplus, [(33,)]),
    "leaky_relu": (ops.leaky_relu, [(5, 3)]),
    "layer_norm": (ops.layer_norm, [(7, 6), (6,), (6,)]),
    "rms_norm": (ops.rms_norm, [(2, 7, 6), (6,)]),
    "group_norm": (
        lambda *xs: ops.group_norm(*xs, groups=2),
        [(3, 4, 2, 5), (4,), (4,)],
    ),
    "batch_norm": (
        lambda x, m, v, w, b: ops.batch_norm(x, m, v * v, w, b),
        [(3, 4, 2, 5), (4,), (4,), (4,), (4,)],
    ),
    "attention": (ops.attention, [heads(5, 4), heads(7, 4), heads(7, 6)]),
    "attention of groups": (
        ops.attention,
        [(2, 6, 5, 4), heads(7, 4), heads(7, 4)],
    ),
    "attention, causal": (
        lambda *xs: ops.attention(*xs, causal=True),
        [heads(5, 4), heads(7, 4), heads(7, 6)],
    ),
    "attention, masked": (
        lambda q, k, v, m: ops.attention(q, k, v, mask=m),
        [heads(5, 4), heads(7, 4), heads(7, 6), (5, 7)],
    ),
    "attention of one head": (ops.attention, [(6, 6), (6, 6), (6, 6)]),
    "linear": (
        lambda *xs: ops.linear(*xs, act="silu"),
        [(2, 5, 3), (3, 4), (4,)],
    ),
    "linear_residual": (ops.linear_residual, [(2, 5, 3), (3, 4), (4,), (2, 5, 4)]),
    "linear_layer_norm": (
        lambda x, w, b, g, c: ops.linear_layer_norm(x, w, b, g, c, 1e-5),
        [(5, 3), (3, 4), (4,), (4,), (4,)],
    ),
    "layer_norm_linear": (
        lambda x, g, c, w, b: ops.layer_norm_linear(x, g, c, 1e-5, w, b, act="gelu"),
        [(3, 5, 6), (6,), (6,), (6, 4), (4,)],
    ),
    "lora": (
        lambda x, w, a, b: ops.lora(x, w, a, b, 0.5),
        [(7, 6), (6, 4), (6, 2), (2, 4)],
    ),
    "rope": (ops.rope, [(2, 3, 5, 6), (5, 6), (5, 6)]),
    "conv2d": (
        lambda x, w, b: ops.conv2d_act(x, w, b, padding=(1, 1), act="relu"),
        [(3, 4, 5, 6), (2, 4, 3, 3), (2, 1, 1)],
    ),
    "conv2d, transposed": (
        lambda x, w: tanh(ops.conv2d(x, w).transpose(0, 2, 3, 1)),
        [(3, 4, 5, 6), (2, 4, 1, 1)],
    ),
}
