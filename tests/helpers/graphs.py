"""Graphs that tests look at, and one transformer block written in several ways."""

from __future__ import annotations

from typing import Any

import numpy as np

import eqsat as eq

TOKENS, HEADS, SIZE = 16, 4, 16
DIM = HEADS * SIZE
SHAPES = {
    "x": (TOKENS, DIM),
    **{n: (DIM,) for n in ("g1", "c1")},
    **{n: (DIM, DIM) for n in ("wq", "wk", "wv", "wo")},
    **{n: (DIM,) for n in ("g2", "c2")},
    **{"w1": (DIM, 4 * DIM), "b1": (4 * DIM,), "w2": (4 * DIM, DIM), "b2": (DIM,)},
}
"""The arguments of the block, float32."""


def block(
    x: Any,
    g1: Any,
    c1: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    g2: Any,
    c2: Any,
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
) -> Any:
    """A pre-norm transformer block as NumPy users write it."""

    def heads(y: Any) -> Any:
        return y.reshape(TOKENS, HEADS, SIZE).transpose(1, 0, 2)

    h = eq.layer_norm(x, g1, c1)
    q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
    p = eq.softmax(q @ k.swapaxes(-1, -2) * 0.25)
    y = (p @ v).transpose(1, 0, 2).reshape(TOKENS, DIM) @ wo + x
    return eq.gelu(eq.layer_norm(y, g2, c2) @ w1 + b1) @ w2 + b2 + y


def block_by_standard(
    x: Any,
    g1: Any,
    c1: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    wo: Any,
    g2: Any,
    c2: Any,
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
) -> Any:
    """The same by the functions of the array API standard, which has none that are
    fused."""
    xp = x.__array_namespace__()

    def heads(y: Any) -> Any:
        return xp.permute_dims(xp.reshape(y, (TOKENS, HEADS, SIZE)), (1, 0, 2))

    def layer_norm(y: Any, g: Any, c: Any) -> Any:
        d = y - xp.mean(y, axis=-1, keepdims=True)
        v = xp.var(y, axis=-1, keepdims=True)
        return d / xp.sqrt(v + 1e-5) * g + c

    h = layer_norm(x, g1, c1)
    q, k, v = (heads(xp.matmul(h, w)) for w in (wq, wk, wv))
    s = xp.matmul(q, xp.matrix_transpose(k)) * 0.25
    e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    p = e / xp.sum(e, axis=-1, keepdims=True)
    a = xp.reshape(xp.permute_dims(xp.matmul(p, v), (1, 0, 2)), (TOKENS, DIM))
    y = xp.matmul(a, wo) + x
    u = xp.matmul(layer_norm(y, g2, c2), w1) + b1
    return xp.matmul(eq.gelu(u), w2) + b2 + y


def block_by_nodes() -> eq.Graph:
    """The same, node by node; values before queries, which changes nothing."""
    g = eq.Graph()
    for name, shape in SHAPES.items():
        g.input(name, shape, "float32")
    h = g.add("layer_norm", ["x", "g1", "c1"], eps=1e-5)
    parts = {}
    for name in ("wv", "wq", "wk"):
        y = g.add("reshape", g.add("matmul", [h, name]), shape=(TOKENS, HEADS, SIZE))
        parts[name] = g.add("transpose", y, perm=(-2, -3, -1))
    q, k, v = parts["wq"], parts["wk"], parts["wv"]
    s = g.add("matmul", [q, g.add("transpose", k, perm=(-1, -2))])
    p = g.add("softmax", g.add("multiply", [s, 0.25]))
    a = g.add("transpose", g.add("matmul", [p, v]), perm=(-2, -3, -1))
    o = g.add("matmul", [g.add("reshape", a, shape=(TOKENS, DIM)), "wo"])
    y = g.add("add", [o, "x"])
    n = g.add("layer_norm", [y, "g2", "c2"])
    u = g.add("gelu", g.add("add", [g.add("matmul", [n, "w1"]), "b1"]))
    z = g.add("add", [g.add("matmul", [u, "w2"]), "b2"])
    g.output(g.add("add", [z, y], name="result"))
    return g


def arguments() -> list[Any]:
    """Arrays for the block."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) / 4 for s in SHAPES.values()]


def small() -> eq.Graph:
    """Every kind of node and of attribute that a file can hold."""
    g = eq.Graph()
    x = g.input("x", (2, 3), "float32")
    i = g.input("i", (2,), "int64")
    c = g.constant(np.arange(6, dtype=np.float32).reshape(2, 3), "weights")
    y = g.add("where", [g.add("less", [x, c]), x, float("-inf")], name="y")
    z = g.add("take", [y, i], axis=-2)
    m = g.add("max", z, name="largest", axis=[0, 1])
    a = g.add("accumulate", x, ufunc="add", axis=1)
    w = g.add("cast", g.add("matmul_act", [a, c_by_rows(g)], act="relu"), dtype="f8")
    u = g.add("pinv", w, rcond=1e-9)
    t = g.add("solve_triangular", [w, w], lower=True)
    g.output(m, u, y, t)
    return g


def c_by_rows(g: eq.Graph) -> eq.GraphNode:
    """The constant of :func:`small` with its axes swapped."""
    return g.add("slice", g.add("transpose", "weights", perm=(-1, -2)), **_ALL)


_ALL = {"starts": (0, 0), "sizes": (3, 2), "steps": (1, 1)}
