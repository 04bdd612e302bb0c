"""Five hundred rules as users write them, over all families of ops: the text of a rule
file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, count

HEAD = """from eqsat import rule
from eqsat.condition import at_least, nonzero
from eqsat.op import Ints
from eqsat.ops import *
from eqsat.ops.view import broadcast_to_op, concatenate_op, reshape_op, transpose_op
from eqsat.rulelang.pattern import entry
"""
UNARY = (
    "exp expm1 exp2 log log1p log2 sqrt sin cos tan tanh sinh cosh arctan arcsinh "
    "sigmoid absolute square negative relu silu softplus erf floor ceil"
).split()
RISING = "exp expm1 exp2 sinh arctan arcsinh relu tanh sigmoid softplus".split()
ODD = "sin tan tanh sinh arctan arcsinh erf".split()
EVEN = "cos cosh absolute square".split()
INVERSES = (
    "exp log, expm1 log1p, log1p expm1, exp2 log2, sinh arcsinh, arcsinh sinh, "
    "log exp, log2 exp2, square sqrt, negative negative"
).split(", ")
LATTICES = (
    "add maximum, add minimum, maximum minimum, minimum maximum, multiply add, "
    "multiply subtract, logical_and logical_or, logical_or logical_and"
).split(", ")
JOINS = "add multiply maximum minimum logical_and logical_or".split()
LINEAR = "sum mean".split()
NUMBERS = (0.1, 0.2, 0.25, 0.3, 1.25, 1.5, 1.6, 1.75, 2.5, 3.0)

Made = tuple[str, str, str, str]
"""Signature, parameters, both sides, and more for the decorator."""
BOTH = ", both_ways=True"


def text(most: int = 500) -> str:
    """A file of ``most`` rules: of each group some, in turn."""
    groups = [
        list(g)
        for g in (
            views(),
            functions(),
            joins(),
            products(),
            choices(),
            numbers(),
            same(),
        )
    ]
    rows = [row for group in groups for row in group]
    step = len(rows) / most
    assert step >= 1, len(rows)
    chosen = [rows[int(i * step)] for i in range(most)]
    names = (f"many_{i}" for i in count())
    return HEAD + "".join(
        f'\n\n@rule("{signature}"{more})\ndef {name}({params}):\n    return {sides}\n'
        for name, (signature, params, sides, more) in zip(names, chosen, strict=False)
    )


def views() -> Iterator[Made]:
    """Functions of elements commute with views of them."""
    turn, shape = "transpose_op({}, perm=p)", "reshape_op({}, shape=p)"
    for f in UNARY:
        for view in (turn, shape):
            sides = f"{f}({view.format('x')}), {view.format(f'{f}(x)')}"
            yield "...", "x, p: Ints", sides, BOTH
        apart = f"concatenate_op({f}(x), {f}(y), axis=-1)"
        sides = f"{f}(concatenate_op(x, y, axis=-1)), {apart}"
        yield "... m, ... n", "x, y", sides, ""
        wide = "broadcast_to_op({}, shape=p)"
        sides = f"{f}({wide.format('x')}), {wide.format(f'{f}(x)')}"
        yield "...", "x, p: Ints", sides, ""
    for g in JOINS[:4]:
        sides = f"{g}({turn.format('x')}, {turn.format('y')})"
        yield "m n, m n", "x, y, p: Ints", f"{sides}, {turn.format(f'{g}(x, y)')}", ""
        sides = f"{g}({shape.format('x')}, {shape.format('y')})"
        yield "m n, m n", "x, y, p: Ints", f"{sides}, {shape.format(f'{g}(x, y)')}", ""


def functions() -> Iterator[Made]:
    """Odd and even functions, inverses, functions of sums and of numbers."""
    for f in ODD:
        yield "...", "x", f"{f}(x * -1.0), {f}(x) * -1.0", BOTH
        for g in ODD:
            yield "...", "x", f"{f}({g}(x * -1.0)), {f}({g}(x)) * -1.0", ""
    for f in EVEN:
        yield "...", "x", f"{f}(x * -1.0), {f}(x)", ""
        for g in ODD:
            yield "...", "x", f"{f}({g}(x * -1.0)), {f}({g}(x))", ""
    for pair in INVERSES:
        f, g = pair.split()
        yield "...", "x", f"{f}({g}(x)), x", ""
    for f in RISING:
        for g in ("maximum", "minimum"):
            yield "..., ...", "x, y", f"{g}({f}(x), {f}(y)), {f}({g}(x, y))", BOTH
        for r in ("max", "min"):
            of = f"{r}({f}(x), axis=-1, keepdims=True)"
            yield "... n", "x", f"{of}, {f}({r}(x, axis=-1, keepdims=True))", BOTH
    yield "..., ...", "x, y", "exp(x + y), exp(x) * exp(y)", BOTH
    yield "..., ...", "x, y", "exp2(x + y), exp2(x) * exp2(y)", BOTH
    yield "..., ...", "x, y", "log(x * y), log(x) + log(y)", BOTH
    yield "..., ...", "x, y", "log2(x * y), log2(x) + log2(y)", BOTH
    yield "..., ...", "x, y", "sqrt(x * y), sqrt(x) * sqrt(y)", BOTH
    for a, b, sign in (("sin", "cos", "+"), ("sinh", "cosh", "+")):
        whole = f"{a}(x) * {b}(y) {sign} {b}(x) * {a}(y)"
        yield "..., ...", "x, y", f"{a}(x + y), {whole}", BOTH
        yield "...", "x", f"{a}(x * 2.0), {a}(x) * {b}(x) * 2.0", BOTH
    yield "...", "x", "square(sin(x)) + square(cos(x)), x * 0.0 + 1.0", ""
    yield "...", "x", "square(cosh(x)) - square(sinh(x)), x * 0.0 + 1.0", ""
    yield "...", "x", "exp(x) / (exp(x) + 1.0), sigmoid(x)", ""
    yield "...", "x", "sinh(x) / cosh(x), tanh(x)", ""
    yield "...", "x", "sin(x) / cos(x), tan(x)", ""
    yield "...", "x", "x * tanh(softplus(x)), x * tanh(log1p(exp(x)))", BOTH


def joins() -> Iterator[Made]:
    """Order and grouping of operands, and one operation through another."""
    for f in JOINS:
        yield "..., ...", "x, y", f"{f}(x, y), {f}(y, x)", ""
        grouped = f"{f}(x, {f}(y, z))"
        yield "..., ..., ...", "x, y, z", f"{f}({f}(x, y), z), {grouped}", ""
    for pair in LATTICES:
        f, g = pair.split()
        apart = f"{g}({f}(x, y), {f}(x, z))"
        yield "..., ..., ...", "x, y, z", f"{f}(x, {g}(y, z)), {apart}", BOTH
    for r in LINEAR:
        for n in (-1, -2):
            of = f"{r}({{}}, axis={n}, keepdims=True)"
            apart = f"{of.format('x')} + {of.format('y')}"
            yield "m n, m n", "x, y", f"{of.format('x + y')}, {apart}", BOTH
            apart = f"{of.format('x')} - {of.format('y')}"
            yield "m n, m n", "x, y", f"{of.format('x - y')}, {apart}", BOTH
            yield (
                "... m n",
                "x, a: float",
                f"{of.format('x * a')}, {of.format('x')} * a",
                BOTH,
            )
    for f, g in (("less", "greater"), ("less_equal", "greater_equal")):
        yield "..., ...", "x, y", f"{f}(x, y), {g}(y, x)", BOTH
        yield "..., ...", "x, y", f"logical_and({f}(x, y), {f}(x, y)), {f}(x, y)", ""


def products() -> Iterator[Made]:
    """Products are linear and associate."""
    for sign in "+-":
        sides = f"(x {sign} y) @ w, x @ w {sign} y @ w"
        yield "... m k, ... m k, k n", "x, y, w", sides, BOTH
        sides = f"x @ (v {sign} w), x @ v {sign} x @ w"
        yield "... m k, k n, k n", "x, v, w", sides, BOTH
    yield "m k, k j, j n", "x, v, w", "(x @ v) @ w, x @ (v @ w)", BOTH
    yield "... m k, k n", "x, w, a: float", "(x * a) @ w, (x @ w) * a", BOTH
    yield "... m k, k n", "x, w, a: float", "x @ (w * a), (x @ w) * a", BOTH
    yield (
        "m k, k n",
        "x, w",
        "matrix_transpose(x @ w), matrix_transpose(w) @ matrix_transpose(x)",
        BOTH,
    )
    for f in UNARY:
        sides = f"{f}(x @ w + b), {f}(linear(x, w, b))"
        yield "... m k, k n, n", "x, w, b", sides, ""


def choices() -> Iterator[Made]:
    """Choices between functions of elements."""
    for f in UNARY:
        sides = f"where(c, {f}(x), {f}(y)), {f}(where(c, x, y))"
        yield "..., ..., ...", "c: bool, x, y", sides, BOTH
        sides = f"where(logical_not(c), {f}(x), y), where(c, y, {f}(x))"
        yield "..., ..., ...", "c: bool, x, y", sides, ""
    for g in JOINS[:4]:
        sides = f"where(c, {g}(x, z), {g}(y, z)), {g}(where(c, x, y), z)"
        yield "..., ..., ..., ...", "c: bool, x, y, z", sides, BOTH


def same() -> Iterator[Made]:
    """What says the same in more words, without an end."""
    for of in ("x + y", "x * y", "x - y", "maximum(x, y)"):
        yield "..., ...", "x, y", f"{of}, ({of}) * 1.0", ""
        yield "..., ...", "x, y", f"{of}, ({of}) + 0.0", ""
        yield "..., ...", "x, y", f"{of}, -(-({of}))", ""
    twice = "matrix_transpose(matrix_transpose({}))"
    for signature, params, of in (
        ("... m k, k n", "x, y", "x @ y"),
        ("m n, m n", "x, y", "x + y"),
        ("m n, m n", "x, y", "x * y"),
    ):
        yield signature, params, f"{of}, {twice.format(of)}", ""
    yield "... m k, k n", "x, y", "x @ y, (x * 1.0) @ y", ""
    yield "... m k, k n", "x, y", "x @ y, x @ (y + 0.0)", ""
    for f in UNARY:
        yield "...", "x", f"{f}(x), {f}(x) * 1.0 + 0.0", ""


def numbers() -> Iterator[Made]:
    """Activations with numbers of their own, and numbers that meet."""
    for a in NUMBERS:
        yield "...", "x", f"x * sigmoid(x * {a}), x / (exp(x * {-a}) + 1.0)", BOTH
        yield "...", "x", f"relu(x * {a}), relu(x) * {a}", BOTH
        yield "...", "x", f"absolute(x * {a}), absolute(x) * {a}", BOTH
        yield "...", "x", f"maximum(x * {a}, 0.0), maximum(x, 0.0) * {a}", ""
        yield "...", "x", f"exp(x) * {a} - {a}, expm1(x) * {a}", ""
        yield (
            "...",
            "x",
            f"where(x > 0.0, x, x * {a}), relu(x) - relu(x * -1.0) * {a}",
            "",
        )
        yield "...", "x", f"clip(x, -{a}, {a}), minimum(maximum(x, -{a}), {a})", ""
    for a, b in combinations(NUMBERS, 2):
        yield "...", "x", f"exp(x * {a}) * exp(x * {b}), exp(x * {a + b})", ""
        yield "...", "x", f"maximum(x + {a}, x + {b}), x + {max(a, b)}", ""
        yield "...", "x", f"log(x * {a}) - log(x * {b}), x * 0.0 + log({a / b})", ""
