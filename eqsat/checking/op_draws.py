"""Arguments for an op, drawn as programs hold them: of every dtype and size that the op
admits, of every kind of values, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eqsat.checking.draws import (
    FLOATS,
    INTEGERS,
    LIMIT,
    SPECIAL,
    UNDEFINED,
    VALUES,
    fitting_shapes,
    values,
)
from eqsat.rulelang import evaluate
from eqsat.support import Array, cached_property
from eqsat.terms import (
    BOOL,
    INPUT,
    SCALAR,
    Axes,
    DType,
    Op,
    Pointwise,
    Term,
    TermGraph,
    annotation_name,
    postorder,
)
from eqsat.trace import Tracer, body_of

SIZES = (None, 0, 1, 7, 8, 9, 31, 64, 100, None, 5)
"""What one axis is, around the widths of vectors; None for small sizes of all, and then
for no axes under ``...``. At the last one a bare number stands for the last array."""
FEW_SIZES = (None, 0, 9, 31, None, 5)
"""The same for dtypes other than float32."""
NUMBER = 1.5
LONG = 8
"""Axes from this size on leave the others short."""
_F4, _F8, _I8 = np.dtype("f4"), np.dtype("f8"), np.dtype("i8")
Laid = Callable[[Array], Array]


@dataclass(frozen=True)
class CallTypes:
    """A call of an op, without its values. ``term`` is over inputs of its graph."""

    op: Op
    attrs: Mapping[str, Any]
    term: Term
    inputs: tuple[Term, ...]
    numbers: tuple[float, ...] = ()
    """Bare numbers that stand for the last arrays."""

    @property
    def types(self) -> list[tuple[Any, tuple[int, ...]]]:
        """Dtype and shape of each array."""
        return [(t.dtype, t.shape) for t in self.inputs]

    def operands(self, arrays: Sequence[Array]) -> list[Any]:
        """What a kernel is given: the arrays in the dtype in which they meet, and bare
        numbers."""
        met = [t for t in self.term.args if t.op is not SCALAR]
        return [*evaluate(met, arrays), *self.numbers]

    def alone(self, *args: Any) -> Any:
        """The call."""
        return self.op(*args, *self.numbers, **self.attrs)

    @cached_property
    def folds(self) -> bool:
        """Whether elements are joined by an author's function, in any order."""
        return _folds(self.term)

    def inside(self, *args: Any) -> Any:
        """The call between two steps that round nothing, so that kernels of several ops
        hold it."""
        own = self.op.own
        given = (
            x if i in own and x.dtype != BOOL else _half(x) for i, x in enumerate(args)
        )
        return _twice(self.alone(*given))


def _folds(term: Term) -> bool:
    for t in postorder([term]):
        body = body_of(t)
        if getattr(t.op, "fold", None) or (body is not None and _folds(body)):
            return True
    return False


def _half(x: Any) -> Any:
    if x.dtype == BOOL:
        return np.logical_not(x)
    return x * 0.5 if x.dtype in LIMIT else x + 1


def _twice(x: Any) -> Any:
    if x.dtype == BOOL:
        return np.logical_not(x)
    return x * 2.0 if x.dtype in LIMIT else x + 1


def traced(call: CallTypes, function: Callable[..., Any]) -> Term:
    """``function`` of the arrays of ``call``, as a term over inputs of its own."""
    graph = TermGraph(sources=False)
    leaves = [graph.node(INPUT, (), (i,), t) for i, t in enumerate(call.types)]
    found: Term = function(*map(Tracer, leaves)).term
    return found


# -- calls -----------------------------------------------------------------------------


def dtypes_of_calls(op: Op) -> list[tuple[DType, ...]]:
    """Dtypes that arguments are drawn in, one after the other, again and again."""
    single: list[tuple[DType, ...]] = [(d,) for d in (*FLOATS, *INTEGERS, BOOL)]
    mixed: list[tuple[DType, ...]] = [
        (np.dtype("f4"), np.dtype("f8")),
        (np.dtype("i4"), np.dtype("f4")),
    ]
    return single + (mixed if op.variadic or len(op.params) > 1 else [])


def is_common(dtypes: Sequence[DType]) -> bool:
    """Whether a call over arrays of these dtypes meets two layouts, and is compiled
    alone and fused; for others there is one program in one layout of each call."""
    return len(dtypes) == 1 and dtypes[0] in (_F4, _F8)


def calls(op: Op, dtypes: Sequence[DType], seed: int) -> Iterator[CallTypes]:
    """Calls of the op over arrays of these dtypes, of all sizes that it admits."""
    sizes = SIZES if tuple(dtypes) == (_F4,) else FEW_SIZES
    for i, size in enumerate(sizes):
        rng = np.random.default_rng((seed, len(str(dtypes)), i))
        numbers = (NUMBER,) if i == len(sizes) - 1 and _takes_a_number(op) else ()
        for _ in range(2):
            with suppress(*UNDEFINED):
                shapes = _shapes(op, rng, size, i)
                yield _call(op, rng, dtypes, shapes, numbers)
                break


def _takes_a_number(op: Op) -> bool:
    axes = _axes(op)
    last = len(axes) - 1
    return last > 0 and axes[last].tokens == ("...",) and last not in op.own


def _shapes(
    op: Op, rng: np.random.Generator, size: int | None, i: int
) -> list[tuple[int, ...]]:
    """Shapes of the arrays, one axis of which is ``size``."""
    axes = _axes(op)
    names = [n for a in axes for n in a.tokens if isinstance(n, str) and n != "..."]
    named = list(dict.fromkeys(names))
    batch: list[int] | None = None
    fixed: dict[str, int] = {}
    if size is not None and named:
        fixed[named[-1 - i % len(named)]] = size
        batch = [] if size >= LONG else None
    elif size is not None:
        batch = [[size], [3, size], [size, 2]][i % 3]
    elif i:
        batch = []

    def pick(n: int) -> int:
        return int(rng.integers(n))

    whole = bool(i % 2)
    return fitting_shapes(axes, pick, fixed, batch=batch, whole=whole, unusual=(None,))


def _call(
    op: Op,
    rng: np.random.Generator,
    dtypes: Sequence[DType],
    shapes: Sequence[tuple[int, ...]],
    numbers: tuple[float, ...],
) -> CallTypes:
    """A call over arrays of ``shapes``, of which ``numbers`` stand for the last."""
    graph = TermGraph(sources=False)
    kinds = _annotations(op, len(shapes))
    types = [
        ({"bool": BOOL, "int": _I8}.get(kinds[j]) or dtypes[j % len(dtypes)], shape)
        for j, shape in enumerate(shapes[: len(shapes) - len(numbers)])
    ]
    inputs = tuple(graph.node(INPUT, (), (j,), t) for j, t in enumerate(types))
    ndim = len(shapes[0]) if shapes else 0
    attrs = op.settle({n: _attr(op, n, rng, ndim) for n in op.attrs}, ndim)
    term = op(*map(Tracer, inputs), *numbers, **attrs).term
    return CallTypes(op, attrs, term, inputs, numbers)


def _axes(op: Op) -> Sequence[Axes]:
    signature = getattr(op.type_rule, "signature", None)
    if signature is not None:
        return list(signature.inputs)
    each = op.kind == "pointwise" or isinstance(op.type_rule, Pointwise)
    one = Axes(("...",)) if each else Axes(("...", "n"))
    return [one] * (len(op.params) or 2)


def _annotations(op: Op, count: int) -> list[str]:
    given = getattr(op.reference, "__annotations__", {})
    if op.variadic:
        return [""] * count
    return [annotation_name(given.get(p, "")) for p in op.params]


def _attr(op: Op, name: str, rng: np.random.Generator, ndim: int) -> Any:
    """A value of an attribute; raises ``ValueError`` where none is known."""
    if name in op.choices:
        return op.choices[name][int(rng.integers(len(op.choices[name])))]
    kind = op.attrs[name]
    if kind == "Axis":
        return _some_axes(op, name, rng, ndim)
    if kind == "bool":
        return int(rng.integers(2))
    if name in op.attr_defaults:
        return op.attr_defaults[name]
    known = {"float": (0.5, 1.5, -2.0), "int": (1, 2, 3)}
    if kind not in known:
        raise ValueError(f"no value of the attribute {name!r} is known")
    return known[kind][int(rng.integers(len(known[kind])))]


def _some_axes(op: Op, name: str, rng: np.random.Generator, ndim: int) -> Any:
    """One axis; where the op has no default, or takes all by default, also several."""
    one = (int(rng.integers(-ndim, 0)),) if ndim else ()
    every = op.attr_defaults.get(name, ()) is None
    return tuple(range(-ndim, 0)) if every and not rng.integers(3) else one


# -- values ----------------------------------------------------------------------------

KINDS = (*VALUES, "NaN", "∞", "-∞", "infinities", "beside 1")
"""Kinds of the values of floats, one a turn; the last of :data:`VALUES` and the rest
are outside of the working range or not finite."""


def _filled(room: Array, a: Array, part: slice) -> Array:
    """``part`` of each axis of ``room``, which holds ``a``."""
    at: tuple[Any, ...] = (..., *[part] * a.ndim)
    held: Array = room[at]
    held[...] = a
    return held


def _steps(a: Array) -> Array:
    """Every second element of a larger array, along each axis."""
    room = np.zeros([2 * n for n in a.shape], a.dtype)
    return _filled(room, a, slice(1, None, 2))


def _inner(a: Array) -> Array:
    """A part of a larger array, that starts at no multiple of a vector."""
    room = np.zeros([n + 3 for n in a.shape], a.dtype)
    return _filled(room, a, slice(1, -2))


def _one_row(a: Array) -> Array:
    """The first row again and again: a stride of 0, in memory that is written."""
    if not a.size or not a.ndim:
        return a.copy()
    return as_strided(a[:1].copy(), a.shape, (0, *a[:1].copy().strides[1:]))


def _one_element(a: Array) -> Array:
    if not a.size:
        return a.copy()
    return as_strided(a.ravel()[:1].copy(), a.shape, (0,) * a.ndim)


LAYOUTS: dict[str, Laid] = {
    "contiguous": lambda a: np.array(a, order="C"),
    "in steps": _steps,
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "transposed": lambda a: a.T.copy().T,
    "part of a larger array": _inner,
    "one row": _one_row,
    "one element": _one_element,
}
"""Copies of an array that lie differently in memory."""
REPEATING = ("one row", "one element")
"""Those that repeat elements."""


@dataclass(frozen=True)
class Drawn:
    """Values for a call, and what the op's reference makes of them."""

    call: CallTypes
    arrays: tuple[Array, ...]
    kind: str
    layout: str

    def __str__(self) -> str:
        texts = (f"{a.dtype} {a.shape} strides {a.strides}" for a in self.arrays)
        attrs = "".join(f", {n}={v!r}" for n, v in self.call.attrs.items())
        numbers = "".join(f"; the number {n}" for n in self.call.numbers)
        given = f"{'; '.join(texts)}{numbers}{attrs}"
        return f"{given}; {self.layout}, {self.kind} values"

    @cached_property
    def finite(self) -> bool:
        """Whether no argument holds NaN or an infinity."""
        return all(np.isfinite(_wide(a)).all() for a in self.arrays)

    @property
    def laid(self) -> Iterator[Drawn]:
        """The same values in every layout."""
        yield self
        for name, lay in LAYOUTS.items():
            if name not in REPEATING:
                arrays = tuple(map(lay, self.arrays))
                yield replace(self, arrays=arrays, layout=name)

    @property
    def plain(self) -> Drawn:
        """The same with 1 in place of what is not finite."""
        with np.errstate(all="ignore"):
            arrays = tuple(
                (
                    np.where(np.isfinite(_wide(a)), a, np.ones((), a.dtype))
                    if a.dtype in LIMIT
                    else a
                )
                for a in self.arrays
            )
        return replace(self, arrays=arrays)

    @property
    def limit(self) -> tuple[Any, float]:
        """The narrowest floating dtype, and its working range."""
        given = (a.dtype for a in self.arrays if a.dtype in LIMIT)
        dtype = min(given, key=LIMIT.__getitem__, default=FLOATS[0])
        return dtype, LIMIT[dtype]

    @cached_property
    def within(self) -> bool:
        """Whether finite elements are in the working range."""
        _, limit = self.limit
        sizes = (np.abs(_wide(a)) for a in self.arrays if a.dtype != BOOL)
        return all((s[np.isfinite(s)] <= limit).all() for s in sizes)


def _wide(a: Array) -> Array:
    return a.astype(np.float64) if a.dtype != np.float64 else a


def drawn(
    call: CallTypes, place: int, turn: int, seed: int, layout: str = ""
) -> Drawn | None:
    """Values of turn number ``turn`` for the call at ``place`` of its program, of
    finite numbers where the op's reference has no value of others; None where it has
    none of these either. A call meets few layouts, since programs are
    compiled for each."""
    rng = np.random.default_rng((seed, turn, place))
    if not layout:
        names = list(LAYOUTS)
        way = turn % 2 if is_common([call.types[0][0]]) else 0
        picked = np.random.default_rng((seed, place, way)).integers(len(names))
        layout = names[int(picked)]
    with np.errstate(all="ignore"):
        for kind in (KINDS[turn], "uniform"):
            arrays = tuple(
                LAYOUTS[layout](_values(kind, rng, t, call, i))
                for i, t in enumerate(call.types)
            )
            with suppress(Exception):  # outside of the domain of the reference
                evaluate([call.term], arrays)
                return Drawn(call, arrays, kind, layout)
    return None


def _values(kind: str, rng: Any, type_: Any, call: CallTypes, i: int) -> Array:
    dtype, shape = type_
    if dtype == _I8 and i in call.op.own:
        return np.asarray(rng.integers(0, 2, shape))
    if dtype not in FLOATS and dtype != BOOL:
        return _whole_numbers(kind, rng, shape, dtype)
    if kind in VALUES or dtype == BOOL:
        return values(kind, rng, shape, dtype)
    array = values("uniform", rng, shape, dtype)
    return _beside(array, rng, SPECIAL[dtype][kind])


def _whole_numbers(kind: str, rng: Any, shape: Any, dtype: Any) -> Array:
    """Integers: any, small ones, or special ones beside small ones."""
    if kind in ("huge", "large", "special"):
        return values(kind, rng, shape, dtype)
    low = 0 if np.dtype(dtype).kind == "u" else -9
    array = np.asarray(rng.integers(low, 10, shape)).astype(dtype)
    special = SPECIAL[dtype]
    classes = {"zeros": "0", "tiny": "both ends", "denormal": "least"}
    classes |= {"∞": "greatest", "repeated": "near the end"}
    return _beside(array, rng, special[classes[kind]]) if kind in classes else array


def _beside(array: Array, rng: Any, special: Sequence[Any]) -> Array:
    """Some elements of ``array``, one at least, are ``special``."""
    if not array.size:
        return array
    flat = array.ravel()
    chosen = rng.uniform(0, 1, flat.size) < 0.1
    chosen[int(rng.integers(flat.size))] = True
    picked = rng.integers(len(special), size=int(chosen.sum()))
    flat[chosen] = np.asarray(special).astype(array.dtype)[picked]
    return flat.reshape(array.shape)
