"""Reductions that users define: a function of each element, an associative function of
two results, its identity, and what becomes of the whole.

A reduction that the catalogue has computes it; any other is a fold, which backends
write as they write sums. Where elements must stay in order they are joined in pairs.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from eqsat.ops import concatenate, full_like, reshape
from eqsat.support import DTypeError, EqsatError, ShapeError
from eqsat.terms import (
    SCALAR,
    Custom,
    Fold,
    Op,
    ReducedAxes,
    Term,
    Type,
    Vjp,
    postorder,
)
from eqsat.trace.expressions import reference_of, traced_over
from eqsat.trace.tracer import Tracer

Combine = Callable[[Any, Any], Any]
Identity = Callable[[np.dtype[Any]], float] | float | None
_DTYPES = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool))
_SAMPLES = (0.5, 1, 2, 3, 0, -1.5)
"""Numbers that a reduction is tried with when it is defined."""
_EXTREMES: dict[np.dtype[Any], tuple[float, ...]] = {
    **{
        d: (1e4, -1e4, float(np.finfo(d).max), float(np.finfo(d).min), np.inf, -np.inf)
        for d in (np.dtype(np.float64), np.dtype(np.float32))
    },
    **{
        np.dtype(d): (np.iinfo(d).max, np.iinfo(d).min + 1, 100, 0)
        for d in ("i8", "i4", "i1", "u1")
    },
}
"""Numbers near the ends of dtypes; the least integer has no absolute value."""
_BY_NAME = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_or": "any",
    "logical_and": "all",
}
"""Functions of two values to the reductions of the catalogue that they make."""


def reduction(
    *,
    combine: Combine,
    identity: Identity = None,
    finish: Callable[[Any, int], Any] | None = None,
    commutative: bool | None = None,
    vjp: Vjp | str | None = None,
) -> Callable[[Callable[[Any], Any]], Op]:
    """Make a reduction of a function of each element, written with NumPy's functions.

    y = finish(f(x₁) ∘ f(x₂) ∘ … ∘ f(xₙ), n), where ∘ is ``combine``. The op is called
    as ``y(x, axis=None, keepdims=False)``. ``combine`` takes two values of the dtype
    that f gives to one; it must be associative. ``identity``: what ``combine`` leaves
    other values as they are with, or a function of the dtype; without one a reduction
    of no elements is an error. ``finish`` takes the whole and the number of elements.
    ``commutative``: whether elements may be joined in any order, as kernels do; by
    default where the expression of ``combine`` shows it. ``vjp``: a rule
    ``(g, *args, result, **attrs)`` of derivatives; by default the expressions are
    differentiated.

    Raises :class:`EqsatError` where numbers show that ``combine`` is not what it is
    said to be.

    >>> import numpy as np
    >>> @reduction(combine=np.add, identity=0, finish=lambda s, n: np.sqrt(s / n))
    ... def root_mean_square(x):
    ...     "√(Σ x² / n)."
    ...     return x * x
    >>> root_mean_square(np.array([3.0, 4.0])).item() ** 2
    12.5
    """

    def define(function: Callable[[Any], Any]) -> Op:
        return _Reduction(function, combine, identity, finish, commutative).defined(vjp)

    return define


class _Reduction(NamedTuple):
    function: Callable[[Any], Any]
    combine: Combine
    identity: Identity
    finish: Callable[[Any, int], Any] | None
    commutative: bool | None

    @property
    def name(self) -> str:
        return self.function.__name__

    def defined(self, vjp: Vjp | str | None) -> Op:
        """The op."""
        self._try_numbers()
        fold = self._fold() if self.identity is not None else None

        @wraps(self.function)
        def body(x: Any, *, axis: tuple[int, ...], keepdims: int) -> Any:
            return self._reduced(x, axis, keepdims, fold)

        rule = Custom(lambda who, types, attrs: self._type(types[0], attrs, body))
        return Op(
            name=self.name,
            kind="composite",
            type_rule=rule,
            reference=reference_of(self.name, body, "common", rule),
            params=(next(iter(inspect.signature(self.function).parameters)),),
            attrs={"axis": "Axis", "keepdims": "bool"},
            attr_defaults={"axis": None, "keepdims": False},
            body=body,
            promotion="common",
            doc=inspect.getdoc(self.function) or "",
            recognised=False,
            vjp=(vjp,) if callable(vjp) else vjp,
        )

    def _type(self, type_: Type, attrs: dict[str, Any], body: Any) -> Type:
        frozen = tuple((n, attrs[n]) for n in ("axis", "keepdims"))
        return _type_of(body, type_, frozen)

    def _fold(self) -> Op:
        """The op of a fold by ``combine``."""

        def reference(x: Any, *, axis: tuple[int, ...]) -> Any:
            return in_pairs(self.combine, x, axis)

        reference.__module__ = self.function.__module__
        rule = ReducedAxes(nonempty=True)
        name = f"{self.name}_fold"
        return Op(
            name=name,
            kind="reduce",
            type_rule=rule,
            reference=_in_module(reference_of(name, reference, "common", rule), self),
            params=("x",),
            attrs={"axis": "Axis"},
            promotion="common",
            flops=self._flops,
            doc=f"The elements of {self.name} joined over the axes, kept with size 1.",
            fold=Fold(self.combine, self._identity),
        )

    def _flops(self, types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
        each = _ops_of(self.combine, np.dtype(types[0][0]))  # type: ignore[arg-type]
        return each * math.prod(types[0][1])

    def _identity(self, dtype: np.dtype[Any]) -> float:
        """The identity as a number of ``dtype``."""
        given: Any = self.identity
        value = given(dtype) if callable(given) else given
        with np.errstate(all="ignore"):
            held = np.asarray(value).astype(dtype)
        if not np.array_equal(held, value, equal_nan=dtype.kind == "f"):
            raise DTypeError(
                f"{self.name}: its identity {value!r} is no {dtype}; give a function "
                f"of the dtype: identity=lambda dtype: …"
            )
        found: float = held.item() if dtype.kind in "biu" else float(held)
        return found

    # -- the body ----------------------------------------------------------------------

    def _reduced(
        self, x: Any, axis: tuple[int, ...], keepdims: int, fold: Op | None
    ) -> Any:
        y = self.function(x)
        if y.shape != x.shape:
            raise ShapeError(
                f"{self.name}: its function of elements gives shape {y.shape} of "
                f"{x.shape}"
            )
        total = self._joined(y, axis, fold)
        count = math.prod(x.shape[a] for a in axis)
        total = total if self.finish is None else self.finish(total, count)
        if keepdims:
            return total
        kept = (n for a, n in enumerate(x.shape, -x.ndim) if a not in axis)
        return reshape(total, tuple(kept))

    def _joined(self, y: Any, axis: tuple[int, ...], fold: Op | None) -> Any:
        """The elements joined over the axes, which stay with size 1."""
        dtype = y.dtype
        leaves, root = _combined(self.combine, dtype)
        if root.type != (dtype, ()):
            raise DTypeError(
                f"{self.name}: combine of two {dtype} gives {root.dtype} of shape "
                f"{root.shape}, expected {dtype} of shape ()"
            )
        if not axis:
            return y
        if any(y.shape[a] == 0 for a in axis):
            return self._of_nothing(y, axis)
        known = self._of_catalogue(leaves, root)
        if known is not None:
            return known(y, axis=axis)
        if fold is not None and self._is_free(leaves, root):
            return fold(y, axis=axis)
        return in_pairs(self.combine, y, axis)

    def _of_nothing(self, y: Any, axis: tuple[int, ...]) -> Any:
        if self.identity is None:
            raise ShapeError(
                f"{self.name}: zero-size array to reduction operation {self.name} "
                f"which has no identity"
            )
        kept = tuple(1 if a in axis else n for a, n in enumerate(y.shape, -y.ndim))
        return full_like(y, self._identity(y.dtype), shape=kept)

    def _of_catalogue(self, leaves: Sequence[Term], root: Term) -> Op | None:
        """The reduction of the catalogue that joins by ``root``."""
        plain = set(root.args) == set(leaves) and len(root.args) == 2
        name = _BY_NAME.get(root.op.name) if plain else None
        return None if name is None else Op.registry[name]

    def _is_free(self, leaves: Sequence[Term], root: Term) -> bool:
        if self.commutative is not None:
            return self.commutative
        return bool(_key(root, tuple(leaves)) == _key(root, tuple(leaves[::-1])))

    # -- trying ------------------------------------------------------------------------

    def _try_numbers(self) -> None:
        """Raises :class:`EqsatError` where numbers refute what is said of
        ``combine``."""
        tried = [dtype for dtype in _DTYPES if self._try(dtype)]
        if not tried:
            raise EqsatError(
                f"{self.name}: combine takes neither floats nor integers nor bools"
            )
        for dtype in _EXTREMES if self.identity is not None else ():
            self._try_extremes(dtype)

    def _try_extremes(self, dtype: np.dtype[Any]) -> None:
        """Whether ``combine`` with the identity leaves the ends of ``dtype`` as they
        are, but for what overflows or becomes NaN on the way."""
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(self.function(np.array(_EXTREMES[dtype], dtype)))
                one = values.dtype.type(self._identity(values.dtype))
                pairs = [
                    (x, np.asarray(pair)[0])
                    for x in values
                    for pair in (
                        self.combine(np.array([one]), np.array([x])),
                        self.combine(np.array([x]), np.array([one])),
                    )
                ]
        except (EqsatError, TypeError, ValueError, AttributeError):
            return
        for x, found in pairs:
            lost = np.isnan(x) or np.isnan(found) or (np.isinf(found) > np.isinf(x))
            if not lost and not np.isclose(found, x, 1e-3, 1e-9):
                raise _Refuted(
                    f"{self.name}: combine does not leave {x} as it is by {one}: it "
                    f"gives {found}"
                )

    def _try(self, dtype: np.dtype[Any]) -> bool:
        """Whether ``combine`` takes what the function gives of numbers of ``dtype``."""
        try:
            with np.errstate(all="ignore"):
                values = self.function(np.array(_SAMPLES).astype(dtype))
                self._check(values)
        except (EqsatError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, _Refuted):
                raise
            return False
        return True

    def _check(self, values: Any) -> None:
        def join(x: Any, y: Any) -> Any:
            return self.combine(np.asarray(x)[None], np.asarray(y)[None])[0]

        for x, y, z in product(values, repeat=3):
            self._alike(
                join(join(x, y), z), join(x, join(y, z)), "associative", x, y, z
            )
            if self.commutative:
                self._alike(join(x, y), join(y, x), "commutative", x, y)
        if self.identity is None:
            return
        one = values.dtype.type(self._identity(values.dtype))
        for x in values:
            self._alike(join(one, x), x, f"left as it is by {one}", x)
            self._alike(join(x, one), x, f"left as it is by {one}", x)

    def _alike(self, a: Any, b: Any, what: str, *given: Any) -> None:
        if np.allclose(a, b, rtol=1e-6, atol=1e-9, equal_nan=True):
            return
        shown = ", ".join(map(str, given))
        raise _Refuted(
            f"{self.name}: combine is not {what}: of {shown} it gives {a} and {b}"
        )


class _Refuted(EqsatError):
    """Numbers that show that a function is not what it is said to be."""


def _in_module(function: Any, of: _Reduction) -> Any:
    function.__module__ = of.function.__module__
    return function


def _type_of(
    body: Callable[..., Any], type_: Type, attrs: tuple[tuple[str, Any], ...]
) -> Type:
    _, root = traced_over(lambda x: body(x, **dict(attrs)), [type_])
    return root.type


def _combined(combine: Combine, dtype: np.dtype[Any]) -> tuple[list[Term], Term]:
    """``combine`` of two elements of ``dtype``: these and its result as terms. Asked
    each time: what it reads outside may have changed."""
    return traced_over(combine, [(dtype, ())] * 2)


@lru_cache(maxsize=1024)
def _ops_of(combine: Combine, dtype: np.dtype[Any]) -> float:
    """About how many operations ``combine`` takes."""
    _, root = _combined(combine, dtype)
    return float(len([*postorder([root])]))


def _key(root: Term, leaves: tuple[Term, ...]) -> Any:
    """What is equal for terms that are equal up to the order of arguments where that
    does not matter; ``leaves`` are numbered as they come."""
    known: dict[Any, int] = {}
    number = {t: known.setdefault(("leaf", i), i) for i, t in enumerate(leaves)}
    made: list[Any] = []
    for t in postorder([root]):
        if t in number:
            continue
        args = [number[a] for a in t.args]
        if t.op.commutative:  # type: ignore[attr-defined]
            args.sort()
        key = (t.op.name, t.attrs if t.op is not SCALAR else repr(t.attrs), *args)
        made.append(key)
        number[t] = known.setdefault(key, len(known))
    return made[-1] if made else number[root]


# -- in order --------------------------------------------------------------------------


def in_pairs(combine: Combine, x: Any, axis: Sequence[int]) -> Any:
    """The elements of ``x`` along axes, none of them empty, joined in C order:
    neighbours, then neighbours of these, until one is left."""
    for a in reversed(axis):
        at = x.ndim + a
        while (n := x.shape[at]) > 1:
            lead = (slice(None),) * at
            joined = combine(
                x[(*lead, slice(0, n - n % 2, 2))], x[(*lead, slice(1, n, 2))]
            )
            x = (
                concatenate([joined, x[(*lead, slice(n - 1, n))]], at)
                if n % 2
                else joined
            )
    return x


def pairs_of(term: Term) -> Term | None:
    """A fold as ops of the catalogue; None for any other term."""
    op = term.op
    assert isinstance(op, Op)
    if op.fold is None:
        return None
    axis = op.attr_dict(term)["axis"]
    found: Term = in_pairs(op.fold.combine, Tracer(term.args[0]), axis).term
    return found
