"""The arguments that the numbers of a rule lead to.

A rule that names 49 may be wrong where x x = 49, where x + 3 = 49, or at a multiple of
49. So each number that stands beside an operand, and each number at which a function
has an edge, is carried down to the variables, by the inverses of the functions on the
way. What several variables reach together is shared among them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from eqsat.checking.draws.named_numbers import named_numbers
from eqsat.rulelang import Expr, Num, PatternVar, Rule
from eqsat.support import cached_by_identity
from eqsat.terms import INPUT, SCALAR, Op, Term

MOST = 160
"""Numbers that are kept for one variable, and for one place of a pattern."""
FACTORS = (1, -1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 14, 17, 19, 23, 29, 49, 0.5, 1.5)
"""What multiples of a named number are drawn."""
SHARES = (1, 2, 3, 4, 5, 6, 7, 8)
"""How many equal elements a sum is split into."""
WHOLE = (0.0, 1.0, -1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 0.5, -0.5, 1.5, 2.5)
EDGES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys("floor ceil rint trunc cast".split(), WHOLE),
    **dict.fromkeys("sign absolute sqrt rsqrt reciprocal erf".split(), (0.0,)),
    **dict.fromkeys("log log2 log10".split(), (0.0, 1.0)),
    **dict.fromkeys("exp exp2 expm1 cosh".split(), (0.0,)),
    "log1p": (-1.0, 0.0),
    **dict.fromkeys("arcsin arccos arctanh".split(), (-1.0, 1.0)),
    "arccosh": (1.0,),
    "sin": (0.0, math.pi / 2, math.pi),
    "cos": (0.0, math.pi / 2, math.pi),
    "tan": (math.pi / 2,),
}
"""Operands at which a function has a step, a pole, or an end."""

Inverse = Callable[[Any], Any]
INVERSES: dict[str, Inverse] = {
    "negative": lambda t: (-t,),
    "absolute": lambda t: (t, -t),
    "square": lambda t: (np.sqrt(t), -np.sqrt(t)),
    "sqrt": lambda t: (t * t,),
    "rsqrt": lambda t: (1 / (t * t),),
    "cbrt": lambda t: (t**3,),
    "reciprocal": lambda t: (1 / t,),
    "exp": lambda t: (np.log(t),),
    "exp2": lambda t: (np.log2(t),),
    "expm1": lambda t: (np.log1p(t),),
    "log": lambda t: (np.exp(t),),
    "log2": lambda t: (np.exp2(t),),
    "log10": lambda t: (10.0**t,),
    "log1p": lambda t: (np.expm1(t),),
    "sin": lambda t: (np.arcsin(t), math.pi - np.arcsin(t)),
    "cos": lambda t: (np.arccos(t), -np.arccos(t)),
    "tan": lambda t: (np.arctan(t),),
    "arcsin": lambda t: (np.sin(t),),
    "arccos": lambda t: (np.cos(t),),
    "arctan": lambda t: (np.tan(t),),
    "sinh": lambda t: (np.arcsinh(t),),
    "cosh": lambda t: (np.arccosh(t), -np.arccosh(t)),
    "tanh": lambda t: (np.arctanh(t),),
    "arcsinh": lambda t: (np.sinh(t),),
    "arccosh": lambda t: (np.cosh(t),),
    "arctanh": lambda t: (np.tanh(t),),
    "sigmoid": lambda t: (np.log(t) - np.log1p(-t),),
    **dict.fromkeys("floor rint trunc".split(), lambda t: (t, t + 0.5)),
    "ceil": lambda t: (t, t - 0.5),
}
"""The operands at which a function has a value."""

BESIDE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda t, c: (t - c,), lambda t, c: (t - c,)),
    "subtract": (lambda t, c: (t + c,), lambda t, c: (c - t,)),
    "multiply": (lambda t, c: (t / c,), lambda t, c: (t / c,)),
    "divide": (lambda t, c: (t * c,), lambda t, c: (c / t,)),
    "power": (
        lambda t, c: (t ** (1 / c), -(t ** (1 / c)), -((-t) ** (1 / c))),
        lambda t, c: (np.log(t) / np.log(c),),
    ),
    "maximum": (lambda t, c: (t,), lambda t, c: (t,)),
    "minimum": (lambda t, c: (t,), lambda t, c: (t,)),
    "floor_divide": (lambda t, c: (t * c,), lambda t, c: (c / t,)),
    "remainder": (lambda t, c: (t, t + c), lambda t, c: ()),
    "fmod": (lambda t, c: (t, t + c), lambda t, c: ()),
}
"""The operand on the left or on the right at which a function has a value t, where the
other one is c."""
AT_THE_NUMBER = frozenset(
    "less less_equal greater greater_equal equal not_equal maximum minimum fmax fmin"
    " subtract".split()
)
"""Functions of two operands for which it matters whether these are equal."""
MULTIPLES = frozenset("remainder fmod floor_divide".split())


@cached_by_identity
def solutions(rule: Rule) -> dict[str, tuple[list[float], list[float]]]:
    """For each array of ``rule`` the numbers that what it names is carried down to, and
    what its numbers make among themselves."""
    named = list(named_numbers(rule).values)
    return led_to((*rule.left, *rule.right), rule.tensors, named)


def led_to(
    sides: Iterable[Any], variables: Iterable[Any], named: list[float]
) -> dict[Any, tuple[list[float], list[float]]]:
    """What patterns or terms lead to, for each of their ``variables``: a name, or the
    number of an input."""
    found: dict[Any, dict[float, None]] = {p: {} for p in variables}
    wanted: dict[Any, dict[float, None]] = {}
    for p in reversed(_bottom_up(sides)):
        if isinstance(p, PatternVar):
            found.setdefault(p.name, {}).update(wanted.get(p, {}))
        elif isinstance(p, Term) and p.op is INPUT:
            found.setdefault(p.attrs[0], {}).update(wanted.get(p, {}))
        elif isinstance(getattr(p, "op", None), Op) and p.args:
            for arg, values in _carried(p, [*wanted.get(p, {})]):
                kept = wanted.setdefault(arg, {})
                kept.update(dict.fromkeys(_finite(values)))
                wanted[arg] = dict(itertools.islice(kept.items(), MOST))
    others = [*dict.fromkeys(_of_named(named))]
    return {p: ([*itertools.islice(of, MOST)], others) for p, of in found.items()}


def _bottom_up(sides: Iterable[Any]) -> list[Any]:
    """The parts of some patterns, each behind those that it is made of."""
    made: dict[Any, None] = {}
    stack = [(s, False) for s in sides]
    while stack:
        p, done = stack.pop()
        if done:
            made.setdefault(p)
        elif p not in made:
            stack.append((p, True))
            stack += [(a, False) for a in getattr(p, "args", ())]
    return list(made)


def _carried(p: Any, wanted: list[float]) -> Iterator[tuple[Any, list[float]]]:
    """For the operands of ``p`` the numbers at which it has an edge, or a value of
    those that are ``wanted``."""
    name, args = p.op.name, p.args
    if len(args) == 1:
        (x,) = args
        edges = EDGES.get(name, ()) if p.op.kind == "pointwise" else ()
        inverse = INVERSES.get(name)
        if inverse is not None:
            yield x, [*edges, *_values(inverse, wanted)]
        elif p.op.kind == "pointwise":
            yield x, [*edges, *wanted]
        else:
            yield x, [t / n for t in wanted for n in SHARES]
    elif len(args) == 2 and args[0] == args[1]:
        yield args[0], [*_of_one(name, wanted)]
    elif len(args) == 2:
        yield from _of_two(p, wanted)
    else:
        yield from ((a, wanted) for a in args)


def _of_one(name: str, wanted: list[float]) -> Iterator[float]:
    """Of a function of an operand and itself."""
    if name == "multiply":
        yield from _values(INVERSES["square"], wanted)
    elif name == "add":
        yield from (t / 2 for t in wanted)
    yield from wanted


def _of_two(p: Any, wanted: list[float]) -> Iterator[tuple[Any, list[float]]]:
    name = p.op.name
    numbers = [_number(a) for a in p.args]
    for i, arg in enumerate(p.args):
        c = numbers[1 - i]
        if numbers[i] is not None:
            continue
        if c is None:
            yield arg, [*_shared(name, wanted)]
            continue
        values = [c] if name in AT_THE_NUMBER else []
        if name in MULTIPLES:
            values += [c * k for k in FACTORS]
        solve = BESIDE.get(name)
        if solve is None:
            values += wanted
        else:
            values += _values(partial(_beside, solve[i], c), wanted)
        yield arg, values
        if name == "divide" and i == 1:
            yield arg, [0.0]


def _beside(solve: Callable[..., Any], c: float, t: Any) -> Any:
    return solve(t, c)


def _shared(name: str, wanted: list[float]) -> Iterator[float]:
    """What two operands may each hold, so that together they give a value."""
    for t in wanted:
        yield from (t, t / 2)
        yield from (1.0, t - 1, t + 1) if name in ("add", "subtract") else (1.0, 2.0)
        if name == "multiply" and t > 0:
            yield math.sqrt(t)
    if name in AT_THE_NUMBER:
        yield 1.0


def _number(p: Any) -> float | None:
    if isinstance(p, Term):
        number: Any = p.attrs[0] if p.op is SCALAR else None
    else:
        number = p.value if isinstance(p, Num) else None
    if number is None or isinstance(number, (Expr, complex)):
        return None
    value = float(number)
    return value if math.isfinite(value) else None


def _values(f: Callable[[Any], Any], wanted: Iterable[float]) -> list[float]:
    found: list[float] = []
    with np.errstate(all="ignore"):
        for t in wanted:
            found += [float(v) for v in f(np.float64(t))]
    return found


def _of_named(named: list[float]) -> list[float]:
    """Multiples, powers, roots and reciprocals of named numbers, and what two of them
    make together."""
    few = sorted(named, key=abs)[:12]
    found = [c * k for c in few for k in FACTORS]
    for c in few:
        found += [c * c, 1 / c if c else 0.0, math.sqrt(abs(c)), c + 1, c - 1]
    for a, b in itertools.permutations(few[:6], 2):
        found += [a + b, a - b, a * b, a / b if b else 0.0]
    return [*_finite(found)]


def _finite(values: Iterable[float]) -> Iterator[float]:
    return (float(v) for v in values if math.isfinite(v) and abs(v) < 1e30)
