"""Derivatives of functions of complex numbers.

The derivative by z = a + b i is ∂L/∂a + i ∂L/∂b, as in torch: z - t g lowers the loss
for small t. (JAX has its conjugate.) So a rule gives Jᴴ g. Of a holomorphic function
that is the conjugate of Jᵀ times the conjugate of g, which the rule of the real
function computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from eqsat.complex_numbers import (
    FUNCTIONS,
    arguments_of,
    call,
    conjugate,
    holds_complex,
    real,
)
from eqsat.numpy_api import composed
from eqsat.support import TraceError, at
from eqsat.terms import (
    CONSTANT,
    VIEW_SETTING,
    OnlyWhere,
    Op,
    Term,
    settings_of,
    through_views,
)
from eqsat.trace import Tracer

_HOLOMORPHIC = frozenset(
    "add subtract multiply divide negative square reciprocal copy exp exp2 expm1 log "
    "log2 log10 log1p sqrt sin cos tan sinh cosh tanh reshape broadcast_to transpose "
    "slice concatenate pad take add_at set_at sum prod matmul".split()
)
"""Ops whose real rule is right for complex numbers but for conjugates."""
_LIKE = {
    **dict.fromkeys(("real", "imag", "conjugate"), "copy"),
    "with_parts": "add",
    "mean": "mean",
}
"""Functions whose elements match as those of an op do."""


def opened(term: Term) -> Term | None:
    """What a call of NumPy that has no rule is in functions that have; None for those
    that have one."""
    name = str(term.attrs[0])
    if not name.startswith("np."):
        return None
    given, own = _shown(term)
    args, kwargs = arguments_of(given, own["args"], own["kwargs"])
    formula = _FORMULAS.get(name[3:])
    found = formula(*args, **kwargs) if formula else composed(name[3:], args, kwargs)
    return None if found is None else cast(Term, found.term)


def _shown(term: Term) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as the function is given them, and its settings."""
    args = [Tracer(a) for a in term.args]
    settings = settings_of(str(term.attrs[1]))
    shown, own = through_views(args, settings, lambda view, x, how: view(x, **how))
    return shown, dict(own)


def taken_apart(term: Term, i: int) -> tuple[Term, list[Term]]:
    """The call ``term`` as a node of the op that it is for real numbers, or is like,
    then the views that its argument ``i`` is given by, last first. None is of a graph:
    they say how elements match."""
    given, own = _shown(term)
    name = str(term.attrs[0])
    op = cast(Op, term.op)
    if name in _LIKE or name not in FUNCTIONS:
        op = Op.registry[_LIKE.get(name, name)]
    node = _detached(op, [x.term for x in given], own, term)
    x, views = Tracer(term.args[i]), []
    for view, how in settings_of(str(term.attrs[1])).get(VIEW_SETTING, {}).get(i, ()):
        seen = Op.registry[view](x, **how)
        views.append(_detached(Op.registry[view], [x.term], how, seen.term))
        x = seen
    return node, views[::-1]


def _detached(op: Op, args: list[Term], own: dict[str, Any], like: Term) -> Term:
    attrs = like.attrs if op is like.op else tuple(own[n] for n in op.attrs)
    return Term.new(like.graph, like.id, op, args, attrs, like.type, like.source)


def part(g: Any, term: Term, node: Term, i: int) -> Any:
    """The derivative by argument ``i`` of ``node``, which ``term`` is taken apart to,
    ``g`` being that by ``term``; None for 0. Raises :class:`TraceError` for a function
    without one."""
    args = [Tracer(a) for a in node.args]
    own = dict(settings_of(str(term.attrs[1])))
    own.pop(VIEW_SETTING, None)
    found = _by(str(term.attrs[0]), g, args, Tracer(term), own, i, term)
    if found is None or holds_complex(args[i]):
        return found
    if isinstance(found, OnlyWhere):
        return found._replace(part=real(found.part))
    return real(found)


def _by(
    name: str, g: Any, args: list[Any], y: Any, own: dict[str, Any], i: int, term: Term
) -> Any:
    if name in _HOLOMORPHIC or (name, own.get("ufunc")) == ("accumulate", "add"):
        more = {"which": i} if Op.registry[name].variadic else {}
        found = _real_rule(name, i)(conjugate(g), *args, y, **own, **more)
        return None if found is None else conjugate(found)
    rules = _RULES.get(name)
    if rules is None:
        raise TraceError(
            f"grad: {name} of complex numbers has no derivative\n"
            f"  compute with x.real and x.imag{at(term.source)}"
        )
    rule = rules[i]
    return None if rule is None else rule(g, *args, y, **own)


def _real_rule(name: str, i: int) -> Callable[..., Any]:
    op = Op.registry[name]
    assert isinstance(op.vjp, tuple)
    rule = op.vjp[0 if op.variadic else i]
    assert rule is not None or i
    return rule or (lambda *_, **__: None)


# -- rules of calls --------------------------------------------------------------------


def _adjoint(x: Any) -> Any:
    return conjugate(x).mT


def _power(g: Any, x: Any, y: Any, z: Any) -> Any:
    """g y xʸ⁻¹, of a known negative y as y xʸ / x: x may be too large for the first."""
    known = y.term.graph.arrays[y.term.attrs[0]] if y.term.op is CONSTANT else 0
    if np.all(np.real(known) < 0):
        return g * conjugate(y * (z / x))
    return g * conjugate(np.where(y == 0, 0, y * x ** (y - 1)))


def _exponent(g: Any, x: Any, y: Any, z: Any) -> Any:
    return g * conjugate(np.where(x == 0, 0, z * np.log(x + 0j)))


def _sign(g: Any, x: Any, y: Any) -> Any:
    across = g - y * np.real(conjugate(y) * g)
    return np.where(x == 0, 0, across / np.abs(x))


def _around_one(x: Any) -> tuple[Any, Any]:
    """1 - x and 1 + x, which keep the side of a branch cut that x is on."""
    return -(x - 1), x - (-1)


def _arcsin(g: Any, x: Any, z: Any) -> Any:
    a, b = _around_one(x)
    return g / conjugate(np.sqrt(a) * np.sqrt(b))


def _arctanh(g: Any, x: Any, z: Any) -> Any:
    """g / (1 - x²), whose square may be out of range."""
    return g / conjugate(1 - x) / conjugate(1 + x)


def _arccosh(g: Any, x: Any, z: Any) -> Any:
    return g / conjugate(np.sqrt(x - 1) * np.sqrt(x - (-1)))


def _mean(g: Any, x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    n = max(math.prod(x.shape[a] for a in axis), 1)
    return np.broadcast_to(g / n, x.shape)


def _columns(a: Any, b: Any) -> bool:
    """Whether ``b`` is one vector."""
    return len(b.shape) == 1


def _solved(a: Any, b: Any, g: Any) -> Any:
    """The x of aᴴ x = g, as a matrix of columns."""
    g = g[..., None] if _columns(a, b) else g
    return np.linalg.solve(_adjoint(a), g)


def _by_right(g: Any, a: Any, b: Any, x: Any) -> Any:
    found = _solved(a, b, g)
    return found[..., 0] if _columns(a, b) else found


def _by_matrix(g: Any, a: Any, b: Any, x: Any) -> Any:
    x = x[..., None] if _columns(a, b) else x
    return -_solved(a, b, g) @ _adjoint(x)


def _inverse(g: Any, a: Any, y: Any) -> Any:
    return -_adjoint(y) @ g @ _adjoint(y)


def _det(g: Any, a: Any, y: Any) -> Any:
    return g[..., None, None] * conjugate(call("cofactors", a))


def _cofactors(g: Any, a: Any, y: Any) -> Any:
    t, y = _adjoint(np.linalg.inv(a)), conjugate(y)
    return np.sum(g * y, (-2, -1), keepdims=True) * t - y @ g.mT @ t


_OTHER_WAY = {
    None: "forward",
    "backward": "forward",
    "ortho": "ortho",
    "forward": "backward",
}
"""Norms of the transform that is adjoint."""


def _transform(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    """The arguments of a Fourier transform along one axis."""
    return n, axis, _OTHER_WAY[norm]


def _fitted(x: Any, n: int, axis: int) -> Any:
    """``x`` with ``n`` elements along an axis: cut, or with zeros behind."""
    have, axis = x.shape[axis], axis % len(x.shape)
    if n <= have:
        return x[(slice(None),) * axis + (slice(n),)]
    room = [(0, n - have if a == axis else 0) for a in range(len(x.shape))]
    return np.pad(x, room)


def _fft(g: Any, x: Any, y: Any, args: Any, kwargs: Any) -> Any:
    _, axis, norm = _transform(*args, **kwargs)
    return _fitted(np.fft.ifft(g, None, axis, norm), x.shape[axis], axis)


def _ifft(g: Any, x: Any, y: Any, args: Any, kwargs: Any) -> Any:
    _, axis, norm = _transform(*args, **kwargs)
    return _fitted(np.fft.fft(g, None, axis, norm), x.shape[axis], axis)


def _rfft(g: Any, x: Any, y: Any, args: Any, kwargs: Any) -> Any:
    n, axis, norm = _transform(*args, **kwargs)
    whole = _fitted(g, n or x.shape[axis], axis)
    return _fitted(np.fft.ifft(whole, None, axis, norm), x.shape[axis], axis)


def _irfft(g: Any, x: Any, y: Any, args: Any, kwargs: Any) -> Any:
    """Each number but the first, and the last of an even count, stands for two."""
    n, axis, norm = _transform(*args, **kwargs)
    n = y.shape[axis]
    found = np.moveaxis(np.fft.rfft(g, None, axis, norm), axis, -1)
    times = np.full(n // 2 + 1, 2.0, g.dtype)
    times[[0, -1] if n % 2 == 0 else [0]] = 1
    return _fitted(np.moveaxis(found * times, -1, axis), x.shape[axis], axis)


_RULES: dict[str, tuple[Callable[..., Any] | None, ...]] = {
    "power": (_power, _exponent),
    "float_power": (_power, _exponent),
    "absolute": (lambda g, x, y: g * np.sign(x),),
    "sign": (_sign,),
    "arccosh": (_arccosh,),
    "arcsin": (_arcsin,),
    "arccos": (lambda g, x, y: -_arcsin(g, x, y),),
    "arctan": (lambda g, x, y: _arctanh(g, 1j * x, y),),
    "arcsinh": (lambda g, x, y: _arcsin(g, 1j * x, y),),
    "arctanh": (_arctanh,),
    "where": (
        None,
        lambda g, c, x, y, z: OnlyWhere(c, g),
        lambda g, c, x, y, z: OnlyWhere(np.logical_not(c), g),
    ),
    "cast": (lambda g, x, y, dtype: g,),
    "conjugate": (lambda g, x, y: conjugate(g),),
    "real": (lambda g, x, y: g,),
    "imag": (lambda g, x, y: g * 1j,),
    "with_parts": (
        lambda g, x, y, z: np.real(g),
        lambda g, x, y, z: np.imag(g),
    ),
    "mean": (_mean,),
    "product_of_vectors": (
        lambda g, x, y, z: g * conjugate(y),
        lambda g, x, y, z: g * conjugate(x),
    ),
    "solve": (_by_matrix, _by_right),
    "inv": (_inverse,),
    "det": (_det,),
    "cofactors": (_cofactors,),
    "np.fft.fft": (_fft,),
    "np.fft.ifft": (_ifft,),
    "np.fft.rfft": (_rfft,),
    "np.fft.irfft": (_irfft,),
}


# -- formulas --------------------------------------------------------------------------


def _squares(x: Any) -> Any:
    """|x|², of parts that are differentiated by themselves."""
    return np.real(x) ** 2 + np.imag(x) ** 2


def _var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    **_: Any,
) -> Any:
    d = _squares(a - np.mean(a, axis, keepdims=True))
    total = np.sum(d, axis, keepdims=keepdims)
    return total / max(d.size // max(total.size, 1) - ddof, 0)


def _norm(
    x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, **_: Any
) -> Any:
    if ord not in (None, 2, "fro") or (ord == 2 and axis is None and x.ndim > 1):
        return None
    return np.sqrt(np.sum(_squares(x), axis, keepdims=keepdims))


def _vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    return np.sum(conjugate(a) * b, axis)


def _over_axes(
    last: Callable[..., Any], other: Callable[..., Any], last_first: bool, own: Any
) -> Callable[..., Any]:
    """A transform over axes, as transforms of one each; ``own`` are those over which it
    is where that is not said, None for all."""

    def transformed(a: Any, s: Any = None, axes: Any = own, norm: Any = None) -> Any:
        if axes is None:
            axes = range(-(len(a.shape) if s is None else len(s)), 0)
        axes = list(axes)
        sizes = list(s or [a.shape[axis] for axis in axes])
        if not (last_first or s):
            sizes[-1] = 2 * (a.shape[axes[-1]] - 1)
        pairs = list(zip(axes, sizes, strict=True))
        end, n = pairs.pop()
        a = last(a, n, end, norm) if last_first else a
        for axis, size in reversed(pairs):
            a = other(a, size, axis, norm)
        return a if last_first else last(a, n, end, norm)

    return transformed


def _of_axes(ending: str, own: Any) -> dict[str, Callable[..., Any]]:
    fft = np.fft
    rows: dict[str, tuple[Any, Any, bool]] = {
        "fft": (fft.fft, fft.fft, True),
        "ifft": (fft.ifft, fft.ifft, True),
        "rfft": (fft.rfft, fft.fft, True),
        "irfft": (fft.irfft, fft.ifft, False),
    }
    return {f"fft.{k}{ending}": _over_axes(*row, own) for k, row in rows.items()}


_FORMULAS: dict[str, Callable[..., Any]] = {
    "angle": lambda z, deg=False: (
        np.arctan2(np.imag(z), np.real(z)) * (180 / math.pi if deg else 1.0)
    ),
    "var": _var,
    "std": lambda *args, **kwargs: np.sqrt(_var(*args, **kwargs)),
    "linalg.norm": _norm,
    "vdot": lambda a, b: np.sum(conjugate(np.ravel(a)) * np.ravel(b)),
    "vecdot": _vecdot,
    "linalg.vecdot": _vecdot,
    **_of_axes("2", (-2, -1)),
    **_of_axes("n", None),
    "matvec": lambda m, v: (m @ v[..., None])[..., 0],
    "vecmat": lambda v, m: (conjugate(v)[..., None, :] @ m)[..., 0, :],
}
