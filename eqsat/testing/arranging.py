"""Steps of drawn programs that reduce, view and gather."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.checking import Shape, one_of, shuffled
from eqsat.terms import BOOL
from eqsat.testing.builder import Builder

# -- reductions ------------------------------------------------------------------------


def reduction(b: Builder) -> None:
    """A sum, mean, extreme or position over some axes."""
    x = b.some(lambda n: b.dtype_of(n) != BOOL and len(b.shape(n)) > 0)
    if x is None:
        return
    names = ["sum", "mean", "max", "min", "var", "std"]
    if b.floating(x):
        names += ["prod", "argmax", "argmin"]
    name = one_of(b.pick, names)
    rank = len(b.shape(x))
    axis: Any = -1 - b.pick(rank)
    if name not in ("argmax", "argmin"):
        if not b.pick(4):
            axis = tuple(shuffled(b.pick, range(-rank, 0))[: 1 + b.pick(rank)])
        elif not b.pick(5):
            axis = None
    if name == "std":
        b.take(f"ops.sqrt(ops.var({x}, axis={axis}) + 0.5)")
    else:
        b.take(f"ops.{name}({x}, axis={axis}, keepdims={bool(b.pick(2))})")


def scan(b: Builder) -> None:
    """Running results, or elements in order, along one axis."""
    x = b.some(lambda n: len(b.shape(n)) > 0 and b.dtype_of(n) != BOOL)
    if x is None:
        return
    forms = (
        "np.cumsum({0}, {1})",
        "np.maximum.accumulate({0}, {1})",
        "np.sort({0}, {1})",
    )
    axis = b.pick(2 * len(b.shape(x))) - len(b.shape(x))
    b.take(one_of(b.pick, forms).format(x, axis))


# -- views -----------------------------------------------------------------------------


def view(b: Builder) -> None:
    """The same elements in another arrangement."""
    x = b.some(lambda n: len(b.shape(n)) > 0)
    if x is None:
        return
    b.take(one_of(b.pick, VIEWS)(b, x, b.shape(x)))


def _transpose(b: Builder, x: str, s: Shape) -> str:
    return f"np.transpose({x}, {tuple(shuffled(b.pick, range(len(s)))[::-1])})"


def _matrix_transpose(b: Builder, x: str, s: Shape) -> str:
    return f"{x}.mT" if len(s) > 1 else f"{x}[:, None]"


def _reshape(b: Builder, x: str, s: Shape) -> str:
    k = b.pick(len(s))
    joined = (*s[:k], math.prod(s[k : k + 2]), *s[k + 2 :])
    n = s[k]
    halves = (*s[:k], 2, n // 2, *s[k + 1 :]) if n and n % 2 == 0 else joined
    return f"{x}.reshape({one_of(b.pick, (joined, halves, (math.prod(s),)))})"


def _slice(b: Builder, x: str, s: Shape) -> str:
    parts = []
    for n in s:
        forms = (":", "::2", "::-1", "1:", ":-1", f"{b.pick(max(n, 1))}:", ":")
        parts.append(one_of(b.pick, forms))
    if not b.pick(4):
        parts[0] = str(b.pick(max(s[0], 1)))
    return f"{x}[{', '.join(parts)}]"


def _broadcast(b: Builder, x: str, s: Shape) -> str:
    return f"np.broadcast_to({x}, {(2 + b.pick(2), *s)})"


def _flip(b: Builder, x: str, s: Shape) -> str:
    return f"np.flip({x}, {b.pick(len(s)) - len(s)})"


def _concatenate(b: Builder, x: str, s: Shape) -> str:
    k = b.pick(len(s))
    y = b.some(
        lambda n: (
            b.dtype_of(n) == b.dtype_of(x)
            and len(b.shape(n)) == len(s)
            and (*b.shape(n)[:k], *b.shape(n)[k + 1 :]) == (*s[:k], *s[k + 1 :])
        )
    )
    return f"np.concatenate([{x}, {y}], {k - len(s)})"


def _stack(b: Builder, x: str, s: Shape) -> str:
    y = b.some(lambda n: b.dtype_of(n) == b.dtype_of(x) and b.shape(n) == s)
    return f"np.stack([{x}, {y}], {b.pick(len(s) + 1)})"


def _pad(b: Builder, x: str, s: Shape) -> str:
    widths = tuple((b.pick(2), b.pick(3)) for _ in s)
    value = one_of(b.pick, ("", ", constant_values=1"))
    return f"ops.pad({x}, {widths}{value})"


def _axes(b: Builder, x: str, s: Shape) -> str:
    k = b.pick(len(s) + 1)
    forms = [f"np.expand_dims({x}, {k})", f"np.squeeze({x}[None], 0)"]
    forms += [f"np.swapaxes({x}, 0, -1)", f"np.moveaxis({x}, 0, -1)", f"{x}.ravel()"]
    return one_of(b.pick, forms)


def _copies(b: Builder, x: str, s: Shape) -> str:
    k = b.pick(len(s))
    forms = [f"np.repeat({x}, 2, axis={k})", f"np.tile({x}, 2)"]
    forms += [f"np.roll({x}, {b.pick(5) - 2}, axis={k})", f"ops.copy({x})"]
    return one_of(b.pick, forms)


def _triangle(b: Builder, x: str, s: Shape) -> str:
    return f"np.{one_of(b.pick, ('tril', 'triu'))}({x}, {b.pick(3) - 1})"


VIEWS = (
    *(_transpose, _matrix_transpose, _reshape, _slice, _broadcast, _flip, _concatenate),
    *(_stack, _pad, _axes, _copies, _triangle),
)


def gather(b: Builder) -> None:
    """Slices at positions that are an argument, or known."""
    x = b.some(lambda n: len(b.shape(n)) > 0 and 0 not in b.shape(n))
    if x is None or not b.may("take"):
        return
    k = b.pick(len(b.shape(x)))
    n = b.shape(x)[k]
    rng = np.random.default_rng(b.pick(1 << 16))
    shape = one_of(b.pick, ((3,), (2,), (), (2, 2)))
    at = b.hold(rng.integers(-n if b.pick(2) else 0, n, shape))
    b.take(f"np.take({x}, {at}, axis={k - len(b.shape(x))})")
