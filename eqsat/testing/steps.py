"""Steps of drawn programs: one op, or a few, of values that are there and new leaves.

Every function takes a :class:`Builder` and adds at most one value for the program to
use further; where nothing fits, it adds none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat import ops
from eqsat.op import Op
from eqsat.samples import (
    SELDOM_UNUSUAL,
    Shape,
    broadcastable,
    fitting_shapes,
    one_of,
    shuffled,
)
from eqsat.signature import broadcast
from eqsat.testing.builder import Builder
from eqsat.typerule import BF16, BOOL, BySignature

NUMBERS = (1.0, 2.0, 0.5, -1.0, 3.0, -0.3, 0.1, 4.0, 0.0, 7.0)
"""Bare numbers, of which some are exact in every dtype."""
SAFE = {
    "arccos": "np.tanh({0}) * 0.5",
    "arccosh": "np.abs({0}) + 1.5",
    "arcsin": "np.tanh({0}) * 0.5",
    "arctanh": "np.tanh({0}) * 0.5",
    **dict.fromkeys(("log", "log2", "log10"), "np.abs({0}) + 0.5"),
    **dict.fromkeys(("log1p", "sqrt", "rsqrt"), "np.abs({0})"),
    **dict.fromkeys(("reciprocal", "rsqrt"), "np.abs({0}) + 0.5"),
    **dict.fromkeys(("exp", "exp2", "expm1", "sinh", "cosh"), "np.tanh({0}) * 2.0"),
    "tan": "np.tanh({0})",
}
"""Arguments inside the domain of an op, and away from its poles."""
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
LOGIC = ("logical_and", "logical_or", "logical_xor")


def spelled(op: Op) -> str:
    """How code names an op: the public function when that is the op itself."""
    if getattr(ops, op.name, None) is op:
        return f"ops.{op.name}"
    return f'Op.registry["{op.name}"]'


def ufunc(name: str) -> str:
    """NumPy's name of a pointwise op, or ours where NumPy has none."""
    return f"np.{name}" if hasattr(np, name) else f"ops.{name}"


def pointwise(arity: int) -> list[str]:
    """Names of the pointwise ops of so many arguments."""
    return [
        o.name
        for o in Op.registry.values()
        if o.kind == "pointwise" and len(o.params) == arity and o.name != "cast"
    ]


def _allowed(b: Builder, names: Sequence[str]) -> list[str]:
    return [n for n in names if b.allowed is None or n in b.allowed] or list(names)


# -- pointwise -------------------------------------------------------------------------


def unary(b: Builder) -> None:
    """A pointwise op of one value."""
    x = b.some(lambda n: True)
    if x is None:
        return
    if not b.floating(x):
        return _unary_of_integers(b, x)
    names = [n for n in pointwise(1) if n not in ("invert", "logical_not")]
    name = one_of(b.pick, _allowed(b, names))
    if name in SAFE and b.pick(4):
        b.take(f"{ufunc(name)}({SAFE[name].format(x)})")
    elif b.take(f"{ufunc(name)}({x})") is None and name in SAFE:
        b.take(f"{ufunc(name)}({SAFE[name].format(x)})")


def _unary_of_integers(b: Builder, x: str) -> None:
    if b.dtype_of(x) == BOOL:
        b.take(one_of(b.pick, ("~{0}", "np.logical_not({0})")).format(x))
        return
    forms = ("-{0}", "~{0}", "np.abs({0})", "np.sign({0})", "np.square({0})", "{0} * 3")
    forms += ("{0} & 6", "{0} % 5", "{0} // 3", "{0} + 1", "{0} >> 1", "{0} > 2")
    b.take(one_of(b.pick, forms).format(x))


def binary(b: Builder) -> None:
    """A pointwise op of two values that broadcast, or of one and a number."""
    x = b.some(lambda n: b.dtype_of(n) != BOOL)
    if x is None:
        return
    y = _partner(b, x)
    if not b.floating(x):
        return _binary_of_integers(b, x, y)
    names = [n for n in pointwise(2) if n not in (*BITS, *LOGIC)]
    common = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    name = one_of(b.pick, _allowed(b, (*common, *common, *common, *names)))
    pair = [x, y] if b.pick(2) else [y, x]
    if name in ("divide", "floor_divide", "remainder", "fmod"):
        pair[1] = pair[1] if _is_number(pair[1]) else f"(np.abs({pair[1]}) + 0.5)"
        pair[1] = "0.3" if pair[1] in ("0.0", "-0.0") else pair[1]
    elif name == "power":
        pair = [f"(np.abs({x}) + 0.5)", y if _is_number(y) else f"np.tanh({y})"]
    sign = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}.get(name)
    b.take(
        f"{pair[0]} {sign} {pair[1]}" if sign else f"{ufunc(name)}({', '.join(pair)})"
    )


def _is_number(code: str) -> bool:
    return code.lstrip("-")[:1].isdigit()


def _partner(b: Builder, x: str) -> str:
    """Another operand for ``x``: a value of its dtype, a new leaf, or a number."""
    kind = b.pick(4)
    if kind == 0 and b.floating(x):
        return repr(one_of(b.pick, NUMBERS))
    if kind < 3:
        y = b.some(
            lambda n: (
                b.dtype_of(n) == b.dtype_of(x)
                and broadcast(b.shape(n), b.shape(x)) is not None
            )
        )
        if y is not None:
            return y
    return b.leaf(tuple(broadcastable(b.shape(x), b.pick)), b.dtype_of(x))


def _binary_of_integers(b: Builder, x: str, y: str) -> None:
    forms = ("{0} + {1}", "{0} * {1}", "{0} - {1}", "np.maximum({0}, {1})")
    forms += ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "{0} << ({1} & 3)")
    forms += ("{0} >> ({1} & 3)", "{0} // (({1} & 3) + 1)", "{0} % (({1} & 3) + 1)")
    forms += (
        "np.minimum({0}, {1})",
        "{0} < {1}",
        "{0} == {1}",
        "{0} / (({1} & 3) + 1)",
    )
    b.take(one_of(b.pick, forms).format(x, y))


def comparison(b: Builder) -> None:
    """Bools of two values."""
    x = b.some(b.floating)
    if x is None:
        return
    if not b.pick(4):
        test = one_of(b.pick, _allowed(b, ("isfinite", "isnan", "isinf")))
        b.take(f"np.{test}({x})")
        return
    b.take(f"np.{one_of(b.pick, _allowed(b, COMPARISONS))}({x}, {_partner(b, x)})")


def logic(b: Builder) -> None:
    """Bools of bools, or numbers of bools."""
    x = b.some(lambda n: b.dtype_of(n) == BOOL)
    if x is None:
        return comparison(b)
    y = b.some(
        lambda n: (
            b.dtype_of(n) == BOOL and broadcast(b.shape(n), b.shape(x)) is not None
        )
    )
    forms = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "np.sum({0})", "{0}.any()")
    forms += ("np.all({0})", "np.mean({0})", "{0}.astype(np.int32)", "{0} * 2")
    forms += ("np.any({0}, -1)",)
    b.take(one_of(b.pick, forms if b.shape(x) else forms[:-1]).format(x, y))


def choice(b: Builder) -> None:
    """``where`` and ``clip``."""
    x = b.some(b.floating)
    if x is None:
        return
    y = _partner(b, x)
    if not b.pick(4):
        low, high = sorted((one_of(b.pick, NUMBERS), one_of(b.pick, NUMBERS)))
        b.take(f"np.clip({x}, {low}, {high})")
        return
    test = b.some(
        lambda n: (
            b.dtype_of(n) == BOOL and broadcast(b.shape(n), b.shape(x)) is not None
        )
    )
    if test is None or not b.pick(3):
        test = b.leaf(tuple(broadcastable(b.shape(x), b.pick)), BOOL)
    pair = (x, y) if b.pick(2) else (y, x)
    b.take(f"np.where({test}, {', '.join(pair)})")


def cast(b: Builder) -> None:
    """Another dtype."""
    x = b.some(lambda n: True)
    if x is None:
        return
    names = ["np.float32", "np.float64", "np.int32", "np.int64", "np.float16", "bool"]
    names += ["np.uint8", "np.int8"]
    if b.dtype == BF16:
        names.insert(0, "bfloat16")
    to = one_of(b.pick, names)
    if b.floating(x) and to in ("np.uint8", "np.int8", "np.int32", "np.int64"):
        low = "np.abs" if to == "np.uint8" else ""
        b.take(f"{low}({x}).astype({to})")
    else:
        b.take(f"{x}.astype({to})")


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
    forms += [f"np.roll({x}, {b.pick(5) - 2}, axis={k})", f"np.copy({x})"]
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
    if x is None:
        return
    k = b.pick(len(b.shape(x)))
    n = b.shape(x)[k]
    rng = np.random.default_rng(b.pick(1 << 16))
    shape = one_of(b.pick, ((3,), (2,), (), (2, 2)))
    at = b.hold(rng.integers(-n if b.pick(2) else 0, n, shape))
    b.take(f"np.take({x}, {at}, axis={k - len(b.shape(x))})")


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
    op = Op.registry[one_of(b.pick, _allowed(b, names))]
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


STEPS: tuple[Callable[[Builder], None], ...] = (
    *(unary, unary, unary, binary, binary, binary, binary, reduction, view, view),
    *(product, composite, composite, choice, comparison, logic, cast, gather, images),
)
"""Steps of programs, with repeats for weight; templates of rules come besides."""
