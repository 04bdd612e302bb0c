"""Steps of drawn programs that contract, and composites of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.checking import SELDOM_UNUSUAL, Shape, fitting_shapes, one_of
from eqsat.terms import BOOL, BySignature, Op, broadcast
from eqsat.testing.builder import Builder
from eqsat.testing.pointwise import permitted


def spelled(op: Op) -> str:
    """How code names an op: the public function when that is the op itself."""
    if getattr(ops, op.name, None) is op:
        return f"ops.{op.name}"
    return f'Op.registry["{op.name}"]'


# -- products --------------------------------------------------------------------------


def product(b: Builder) -> None:
    """A matrix product with another value or a new matrix, or an einsum."""
    x = b.some(lambda n: b.floating(n) and len(b.shape(n)) > 0)
    if x is None:
        return
    s, dtype = b.shape(x), b.dtype_of(x)
    y = b.some(
        lambda n: (
            b.dtype_of(n) == dtype
            and len(b.shape(n)) > 1
            and b.shape(n)[-2] == s[-1]
            and broadcast(b.shape(n)[:-2], s[:-2]) is not None
        )
    )
    if y is None or not b.pick(2):
        y = b.leaf((s[-1], one_of(b.pick, b.sizes)), dtype)
    if len(s) == 1 or b.pick(3):
        b.take(f"{x} @ {y}")
        return
    forms = ["np.einsum('...k,kn->...n', {0}, {1})", "np.einsum('...ij->...ji', {0})"]
    forms += [
        "np.einsum('...ij->...i', {0})",
        "np.einsum('...ij,...kj->...ik', {0}, {0})",
    ]
    forms += ["np.einsum('...ij,...ij->...i', {0}, {0})", "{0} @ {0}.mT"]
    b.take(one_of(b.pick, forms[b.pick(2) * (len(b.shape(y)) == 2) :]).format(x, y))


def images(b: Builder) -> None:
    """A convolution or a pooling of images n c h w."""
    x = b.some(lambda n: b.floating(n) and len(b.shape(n)) == 4)
    if x is None or not b.pick(3):
        x = b.leaf((1 + b.pick(2), 1 + b.pick(4), 4 + b.pick(3), 5 + b.pick(3)))
    _, c, h, w = b.shape(x)
    dtype = b.dtype_of(x)
    kind = b.pick(5)
    if kind == 1 and min(h, w) > 1:
        extra = one_of(b.pick, ("", ", stride=1", ", padding=1"))
        name = one_of(b.pick, ("max_pool2d", "avg_pool2d"))
        b.take(f"ops.{name}({x}, {one_of(b.pick, ('2', '(1, 2)'))}{extra})")
        return
    groups = one_of(b.pick, [g for g in (1, 2, 3, 4) if g <= c and c % g == 0] or [1])
    kernel = (groups * (1 + b.pick(2)), c // groups, 1 + b.pick(3), 1 + b.pick(2))
    y = b.leaf(kernel, dtype)
    attrs = one_of(b.pick, ("", ", padding=1", ", stride=2", ", stride=(1, 2)"))
    attrs += one_of(b.pick, ("", "", ", dilation=(1, 2)"))
    b.take(f"ops.conv2d({x}, {y}{attrs}, groups={groups})")


# -- composites ------------------------------------------------------------------------


def composite(b: Builder) -> None:
    """A composite of the catalogue, its arguments by its signature."""
    names = [
        o.name
        for o in Op.registry.values()
        if o.kind in ("composite", "fused") and o.body is not None
    ]
    op = Op.registry[one_of(b.pick, permitted(b, names))]
    if op.name == "dequantize":
        return _dequantize(b)
    x = b.some(lambda n: b.floating(n) and len(b.shape(n)) > 0)
    rule = op.type_rule
    attrs = {n: one_of(b.pick, v) for n, v in op.choices.items()}
    attrs |= {n: (-1,) for n, k in op.attrs.items() if k == "Axis"}
    if x is None:
        return
    if not isinstance(rule, BySignature):
        if len(op.params) == 1:
            b.take(call(op, [x], attrs))
        return
    args = _arguments(b, op, rule, x)
    if "groups" in op.attrs:
        attrs["groups"] = one_of(b.pick, (1, 2))
    b.take(call(op, args, attrs))


def _arguments(b: Builder, op: Op, rule: BySignature, x: str) -> list[str]:
    """Operands of ``op``: ``x`` first where it fits, leaves or values otherwise."""
    inputs, shape = rule.signature.inputs, b.shape(x)
    first = inputs[0]
    fits = len(shape) >= first.rank if first.variadic else len(shape) == first.rank
    fixed: dict[str, int] = {}
    batch: tuple[int, ...] | None = None
    if fits:
        tail = first.after if first.variadic else first.tokens
        sizes = shape[len(shape) - len(tail) :]
        fixed = {a: n for a, n in zip(tail, sizes, strict=True) if isinstance(a, str)}
        batch = shape[: len(shape) - len(tail)] if first.variadic else None
    elif b.pick(2):
        even = 2 * (1 + b.pick(2))
        fixed = dict.fromkeys(
            ("d", "c") if op.name in ("rope", "group_norm") else (), even
        )
    shapes = fitting_shapes(inputs, b.pick, fixed, batch=batch, unusual=SELDOM_UNUSUAL)
    dtype = b.dtype_of(x) if fits else b.dtype
    args = [x] if fits else [b.leaf(shapes[0], dtype)]
    for i in range(1, len(inputs)):
        if not inputs[i].tokens:
            eps = ("1e-5", "0.01") if op.params[i] == "eps" else ("0.5", "1.0", "0.1")
            args.append(one_of(b.pick, eps))
        elif i in op.own:
            args.append(b.leaf(shapes[i], BOOL))
        else:
            args.append(existing_or_leaf(b, shapes[i], dtype))
        if op.params[i] == "var":
            args[-1] = f"(np.abs({args[-1]}) + 0.5)"
    return args


def existing_or_leaf(b: Builder, shape: Shape, dtype: Any) -> str:
    """A value of just that type, or a new leaf."""
    y = None
    if b.pick(2):
        y = b.some(lambda n: b.shape(n) == shape and b.dtype_of(n) == dtype)
    return b.leaf(shape, dtype) if y is None else y


def _dequantize(b: Builder) -> None:
    if not b.may("dequantize"):
        return
    rng = np.random.default_rng(b.pick(1 << 16))
    g, each = 1 + b.pick(3), 1 + b.pick(4)
    batch = (one_of(b.pick, b.sizes),)
    q = b.hold(rng.integers(-128, 128, (*batch, g * each), np.int8))
    zero = b.hold(rng.integers(-8, 8, (*batch, g), np.int8))
    scale = b.leaf((*batch, g))
    b.take(f"ops.dequantize({q}, {scale}, {zero})")


def call(op: Op, args: Sequence[str], attrs: dict[str, Any]) -> str:
    """The code of a call."""
    named = [f"{n}={v!r}" for n, v in attrs.items()]
    return f"{spelled(op)}({', '.join([*args, *named])})"
