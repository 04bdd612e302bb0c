"""Reverse mode on terms: from a scalar to its derivatives by some leaves.

One walk from the scalar to the leaves. Each op says how a derivative passes to its
arguments (:attr:`Op.vjp`); a composite that does not is opened, and its body does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from eqsat import complex_gradient
from eqsat.cotangent import Cotangent, carried, summed
from eqsat.kernels import inner
from eqsat.ops import (
    broadcast_to,
    cast,
    equal,
    full_like,
    power,
    reshape_op,
    sum_to,
    where,
)
from eqsat.power_sum import even_power_of_length, is_norm, whole_power_of_sum
from eqsat.support import TraceError, an, at, watched_call
from eqsat.terms import (
    HALF,
    OF_COMPLEX,
    SCALAR,
    DType,
    OnlyWhere,
    Op,
    Shape,
    Term,
    Vjp,
    cast_to,
    constant,
    is_complex,
    is_float,
    postorder,
)
from eqsat.trace import Tracer, body_of, pairs_of, rebuilt


def gradients(root: Term, leaves: Sequence[Term]) -> list[Term]:
    """``root``, a scalar, in terms that its derivatives share, then its derivative by
    each of ``leaves``, of the type of that leaf.

    Raises :class:`TraceError` for an op without a derivative, with the line that made
    it.
    """
    needed = _above(leaves, postorder([root]))

    def opened(term: Term) -> Term | None:
        body = _opened(term) if term in needed else None
        if body is not None:
            needed.update(_above(needed, inner([body], term.args)))
        return body

    (root,) = rebuilt([root], {}, opened)
    found = _pulled_back(root, leaves)
    return [root, *(_whole(found.get(t, 0.0), t).term for t in leaves)]


def _above(leaves: Iterable[Term], terms: Iterable[Term]) -> set[Term]:
    """``leaves``, and those of ``terms``, arguments first, that change with them."""
    found = set(leaves)
    for t in terms:
        if _moves(t.dtype) and not found.isdisjoint(t.args) and _op(t).vjp != ():
            found.add(t)
    return found


def _moves(dtype: DType) -> bool:
    """Whether what is of ``dtype`` can have a derivative."""
    return is_float(dtype) or is_complex(dtype)


def _op(term: Term) -> Op:
    assert isinstance(term.op, Op)
    return term.op


def _opened(term: Term) -> Term | None:
    """The body of a composite without a rule, and a fold as pairs that are joined;
    None for any other term.

    Halves are computed in float32 and rounded once, as composites do.
    """
    op = _op(term)
    if op.name == OF_COMPLEX:
        return complex_gradient.opened(term)
    if op.vjp is not None or op.body is None:
        return pairs_of(term)
    if term.dtype not in HALF:
        return body_of(term)
    args = [_widened(Tracer(a)) for a in term.args]
    body = watched_call(op.body, *args, **op.attr_dict(term))
    found: Term = _narrowed(body, term).term
    return found


def _widened(x: Any) -> Any:
    return cast(x, np.float32) if x.dtype in HALF else x


def _narrowed(x: Any, term: Term) -> Any:
    return Tracer(cast_to(x.term, np.dtype(term.dtype)))  # type: ignore[arg-type]


# -- the walk --------------------------------------------------------------------------


def _pulled_back(root: Term, leaves: Collection[Term]) -> dict[Term, Any]:
    """The derivative of ``root`` by each leaf that it depends on: a traced array that
    broadcasts to the leaf, or a number."""
    order = list(postorder([root]))
    needed = _above(leaves, order)
    waiting: dict[Term, list[Cotangent]] = {root: [Cotangent(1.0)]}
    ends = set(leaves)
    with root.graph.lines() as now:
        for term in reversed(order):
            if term not in needed or term in ends or term not in waiting:
                continue
            now(term)
            given = summed(waiting.pop(term), term)
            for arg, part in _parts(term, given, needed):
                waiting.setdefault(arg, []).append(part)
        return {t: summed(waiting[t], t).settled(t) for t in ends if t in waiting}


def _parts(
    term: Term, given: Cotangent, needed: Collection[Term]
) -> Iterable[tuple[Term, Cotangent]]:
    """What the arguments of ``term`` add to their derivatives.

    A power of a root of squares passes it on to what is squared: the root has no second
    derivative at 0, and the power has.
    """
    of_square = False
    if y := even_power_of_length(term):
        term, of_square, given = term.args[0], True, _by_half_square(term, y, given)
    elif k := whole_power_of_sum(term):
        inside = term.args[0].args[0]
        if k == 1:
            yield inside, given
            return
        term = power(Tracer(inside), k).term
    for i, arg in enumerate(term.args):
        part = _part(term, i, given, of_square) if arg in needed else None
        if part is not None:
            yield arg, part


def _by_half_square(term: Term, y: int, given: Cotangent) -> Cotangent:
    """The derivative by b²/2, ``term`` being bʸ, of which ``given`` is that by it."""
    b = Tracer(term.args[0])
    slope = float(y) if y == 2 else y * power(b, y - 2)
    part = given.passed(_number_or_array(given.value * slope, term, 0), term)
    assert part is not None
    return _fitted(part, term, 0)


def _part(
    term: Term, i: int, given: Cotangent, of_square: bool = False
) -> Cotangent | None:
    """What argument ``i`` of ``term`` adds to its derivative; None for nothing.

    ``of_square`` says that ``given`` is the derivative by half the square of ``term``,
    which is half the sum of the squares of its arguments.
    """
    op = _op(term)
    if op.name == OF_COMPLEX:
        return _through_call(term, i, given, of_square)
    rules: Any = op.vjp or "define it with vjp=, or as a composite of other ops"
    found = rules
    if not isinstance(rules, str):
        rule = rules[0 if op.variadic else i]
        if of_square:
            rule = lambda g, *args: g * args[i]  # noqa: E731
        given = _arrived(given, term, i)
        found = None if rule is None else _applied(rule, term, i, given.value)
        found = _number_or_array(found, term, i)
    if isinstance(found, str):
        raise TraceError(
            f"grad: {op.name} has no derivative\n  {found}{at(term.source)}"
        )
    part = None if found is None else given.passed(found, term)
    return None if part is None else _fitted(part, term, i)


def _through_call(
    term: Term, i: int, given: Cotangent, of_square: bool
) -> Cotangent | None:
    """The same of a call of a function of complex numbers."""
    call, views = complex_gradient.taken_apart(term, i)
    given = _arrived(given, call, i)
    given = given._replace(value=_whole(given.value, term))
    if of_square:
        found = given.value * Tracer(call.args[i])
    else:
        found = complex_gradient.part(given.value, term, call, i)
    part = None if found is None else given.passed(found, call)
    part = None if part is None else _fitted(part, call, i)
    for view in views:
        part = None if part is None else _part(view, 0, part)
    return part


def _arrived(given: Cotangent, term: Term, i: int) -> Cotangent:
    """The derivative by ``term`` as a rule takes it, with the masks of argument ``i``
    where elements do not match by position."""
    op = _op(term)
    if op.kind == "pointwise":
        return given
    masks = carried(given.masks, term, i)
    if op.kind == "reduce":
        return Cotangent(given.value, masks, given.pending)
    g = given.settled(term)
    is_number = isinstance(g, float) and op is reshape_op  # on the way from a loss
    return Cotangent(g if is_number else _whole(g, term), masks)


def _applied(rule: Vjp, term: Term, i: int, g: Any) -> Any:
    op = _op(term)
    args = [t.attrs[0] if t.op is SCALAR else Tracer(t) for t in term.args]
    attrs = op.attr_dict(term) | ({"which": i} if op.variadic else {})
    result = Tracer(term)
    if is_norm(term):
        slope = watched_call(rule, 1.0, *args, result, **attrs)
        return g * where(equal(result, 0.0), 0.0, slope)
    if op.body is None or term.dtype not in HALF:
        return watched_call(rule, g, *args, result, **attrs)
    wide = [a if isinstance(a, (int, float)) else _widened(a) for a in (g, *args)]
    return watched_call(rule, *wide, _widened(result), **attrs)


def _number_or_array(found: Any, term: Term, i: int) -> Any:
    """What a rule has ``found``, with numbers as floats and arrays as traced ones."""
    if isinstance(found, OnlyWhere):
        return found._replace(part=_number_or_array(found.part, term, i))
    if isinstance(found, Tracer) and not isinstance(found.term, Term):
        found = found.within(term.graph)
    if found is None or isinstance(found, (str, Tracer)):
        return found
    if isinstance(found, np.ndarray):
        return Tracer(constant(term.graph, found))
    if isinstance(found, (int, float, np.integer, np.floating)):
        return float(found)
    op = _op(term)
    raise TraceError(
        f"grad: {op.name}: vjp gives {an(repr(type(found).__name__))} for argument "
        f"{op.params[0 if op.variadic else i]!r}, expected an array or a number\n"
        "  vjp= is a tuple of rules, one for each argument, and each gives one "
        f"derivative{at(term.source)}"
    )


def _whole(g: Any, like: Term) -> Any:
    """A derivative as an array of the type of ``like``."""
    if isinstance(g, float):
        return full_like(Tracer(like), g)
    return broadcast_to(_narrowed(g, like), like.shape)


def _fitted(part: Cotangent, term: Term, i: int) -> Cotangent:
    """What argument ``i`` adds to its derivative, in its shape and dtype."""
    arg = term.args[i]
    if _op(term).kind == "pointwise" and arg.shape != term.shape:
        part = Cotangent(part.settled(term), carried(part.masks, term, i))
    return part._replace(value=_added_up(part.value, arg, term))


def _added_up(part: Any, arg: Term, term: Term) -> Any:
    """``part`` of ``term`` for ``arg``: summed where ``arg`` was broadcast, multiplied
    where the part was to be broadcast there too."""
    shape = () if isinstance(part, float) else part.shape
    if _op(term).kind == "pointwise":
        padded = (_aligned(s, term.ndim) for s in (term.shape, arg.shape, shape))
        rows = zip(*padded, strict=True)
        times = math.prod(n for n, a, p in rows if a == p == 1)
        part = part if times == 1 else part * times
    return part if isinstance(part, float) else _narrowed(sum_to(part, arg.shape), arg)


def _aligned(shape: Shape, ndim: int) -> Shape:
    return (1,) * (ndim - len(shape)) + shape
