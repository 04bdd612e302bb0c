"""Arrays that show the same memory, while a function is traced: NumPy's views.

Terms never change. A write gives the array another term, and one of their own to all
arrays that show the same memory. Each knows how it is made of the array that owns the
memory (:class:`ArrayView`), and how a write to it is one to that.
"""

from __future__ import annotations

import inspect
import math
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy import bool_, ndarray  # attributes of np are swapped in a trace

from eqsat import ops
from eqsat.complex_numbers import holds_complex, imag, real, with_parts
from eqsat.numpy_api import call_function, getitem, key_parts, name_of, row_of
from eqsat.ops import window
from eqsat.support import (
    EqsatError,
    ReadOnlyError,
    TraceAttributeError,
    TraceError,
    at,
    caller_line,
    untraceable,
)
from eqsat.terms import (
    OF_COMPLEX,
    Op,
    Term,
    TermGraph,
    Traced,
    make,
    settings_of,
    through_views,
)

Change = Callable[[Any], Any]


@dataclass(frozen=True)
class ArrayView:
    """How an array shows another one."""

    function: Callable[..., Any]
    again: Change
    """The view of that array."""
    back: Callable[[Any, Any], Any] | None
    """That array, whose view is to be the second one. None where NumPy makes a view or
    a copy as the strides have it."""
    look: Change | None = None
    """The view of an array of NumPy, of which no element is read. None where that is
    not known."""

    @property
    def called(self) -> str:
        """What people write for it."""
        return f"{name_of(self.function)}(x)"


class MemoryLayout(NamedTuple):
    """How an array lies in memory."""

    shown: np.ndarray[Any, Any]
    """An array of NumPy that lies so, and has no elements to read."""
    needed: Callable[[], None] | None = None
    """Called when the program depends on it. None where it is so in each call."""

    @classmethod
    def of(cls, x: Any, needed: Callable[[], None] | None = None) -> MemoryLayout:
        """That of ``x``, or of a new array of its shape and dtype."""
        none = np.empty(1, x.dtype)
        shown = np.lib.stride_tricks.as_strided(none, x.shape, strides_of(x))
        return cls(shown, needed)


def strides_of(x: Any) -> tuple[int, ...]:
    """The strides of an array of NumPy, in bytes; of anything else with a shape and a
    dtype those of rows one after the other."""
    if isinstance(x, np.ndarray):
        return x.strides
    strides, step = [], x.dtype.itemsize
    for n in reversed(x.shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class Array(Protocol):
    """A traced array, as far as writes go."""

    term: Any
    size: int
    shape: Any
    known: Any
    layout: MemoryLayout | None
    memory: SharedMemory | None
    path: tuple[ArrayView, ...]


class Refusal(NamedTuple):
    """Why nothing is written to an array."""

    kind: type[EqsatError]
    why: str
    """What follows the name of the write in the message."""


class SharedMemory:
    """What an array and its views share."""

    def __init__(
        self, owner: Array, make: Callable[[Any], Any], refusal: Refusal | None
    ):
        self.term = owner.term
        self.held = owner.known
        """The array of NumPy that the owner shows, while its values are known."""
        self.layout = _own_layout(owner)
        """How the owner lies in it; None where that is not known."""
        self.needed: set[Callable[[], None]] = set()
        """Called at a write: who sees it depends on a layout."""
        self.make = make
        self.refusal = refusal
        """Why nothing is written to it; None where something may be."""
        self._shown: list[weakref.ref[Any]] = []

    def add(self, x: Array) -> None:
        """Take ``x``, a view of the owner, into account."""
        x.memory = self
        if self.refusal is None:
            self._shown.append(weakref.ref(x))

    def check(self, how: str) -> None:
        """Raise the refusal of this memory, if it has one."""
        if self.refusal is not None:
            kind, why = self.refusal
            raise kind(
                f"{how} {why}\n  write to a copy: x = x.copy(){at(caller_line())}"
            )

    def write(self, x: Array, new: Term, how: str) -> None:
        """Make ``new`` the value of ``x``, the owner or a view."""
        self.check(how)
        for needed in self.needed:
            needed()
        others = [y for y in self.alive() if y is not x]
        unsure = next((v.called for v in x.path if v.back is None), None)
        if unsure is not None:
            if others:
                raise _unknown(how, unsure)
            x.memory, x.path, x.term = None, (), new
            return
        self.term = self._behind(x, new)
        x.term = new
        for y in others:
            hidden = next((v.called for v in y.path if v.back is None), None)
            y.term = self._seen(y) if hidden is None else Stale(_unknown(how, hidden))

    def alive(self) -> list[Any]:
        """The arrays that share it and are in use. Those that are not any more are
        asked once."""
        shown = [(r, r()) for r in self._shown]
        self._shown = [r for r, y in shown if y is not None]
        return [y for _, y in shown if y is not None]

    def _behind(self, x: Array, new: Term) -> Term:
        """The owner's term once ``x`` is ``new``."""
        shown = [self.make(self.term)]
        for v in x.path[:-1]:
            shown.append(v.again(shown[-1]))
        value = self.make(new)
        for before, v in zip(reversed(shown), reversed(x.path), strict=False):
            assert v.back is not None
            value = v.back(before, value)
        return value.term  # type: ignore[no-any-return]

    def _seen(self, y: Array) -> Term:
        value = self.make(self.term)
        for v in y.path:
            value = v.again(value)
        return value.term  # type: ignore[no-any-return]


def shared(owner: Array, refusal: Refusal | None = None) -> SharedMemory:
    """The memory of ``owner``, and why nothing is written to it."""
    memory = SharedMemory(owner, type(owner), refusal)
    memory.add(owner)
    return memory


def _own_layout(x: Array) -> MemoryLayout | None:
    """How an array with memory of its own lies: a result of one axis is in order."""
    is_row = x.layout is None and len(x.shape) == 1
    return MemoryLayout.of(x) if is_row else x.layout


def layout_of(x: Array) -> MemoryLayout | None:
    """How ``x`` lies in memory; None where that is not known."""
    if x.size <= 1:
        return MemoryLayout.of(x)
    layout = _own_layout(x) if x.memory is None else x.memory.layout
    for v in x.path:
        if layout is None or v.look is None:
            return None
        layout = layout._replace(shown=v.look(layout.shown))
    return layout


def lies_as(x: Array) -> np.ndarray[Any, Any] | None:
    """An array of NumPy that lies as ``x``, without elements to read; None where that
    is not known. The program is for arrays that lie so."""
    layout = layout_of(x)
    if layout is None:
        return None
    if layout.needed is not None:
        layout.needed()
    return layout.shown


def check_mask(x: Array, mask: Any, how: str) -> None:
    """Raise :class:`TraceError` if ``mask`` shows elements of ``x`` in other places.
    NumPy then reads parts of the mask after it has written to them; what is written
    depends on how many elements it takes at a time."""
    of_mask = getattr(mask, "memory", None)
    if x.memory is None or of_mask is not x.memory or mask is x:
        return
    owner = MemoryLayout.of(of_mask.term).shown
    one, other = _elements(x, owner), _elements(mask, owner)
    if one is not None and other is not None:
        same = _lies(one) == _lies(other)
        if same or not np.shares_memory(one, other):
            return
    raise TraceError(
        f"{how}: the mask shows the memory of x, to which is written\n"
        f"  write under a copy, mask.copy(){at(caller_line())}"
    )


def _elements(x: Array, shown: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Which elements of ``shown``, for the owner of its memory, ``x`` shows; None where
    that depends on a layout."""
    for v in x.path:
        if v.look is None:
            return None
        shown = v.look(shown)
    return shown


def _lies(x: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return x.__array_interface__["data"], x.shape, x.strides


def shown_by_layout(
    x: Any, found: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Any
) -> Any:
    """``found``, which is ``function(x, *args, **kwargs)``: a view of ``x`` or a copy
    as this lies in memory."""
    layout = layout_of(x) if x.is_array else None
    asked = [a for a in (*args, *kwargs.values()) if isinstance(a, str)]
    if kwargs.get("copy"):
        return type(found)(found.term, True)
    if found is x and function in (np.reshape, np.rot90):  # a view, however it lies
        return shown(x, found, view_at, ...)
    if len(x.shape) < 2 and function is np.ravel:  # one order alone
        asked, args, kwargs = [], (), {}
    if layout is None or "A" in asked or "K" in asked:
        if found is x and function is not np.ravel:
            return x
        return shown(x, found, view_of, function, args, kwargs, None)
    memory = x.memory or shared(x)
    found = type(found)(found.term, True) if found is x else found
    seen = _seen_by(function, layout.shown, *args, **kwargs)
    if seen is None:
        own = shared(found)
    else:
        own = memory
        if seen is layout.shown:
            found = x
        else:
            found = shown(x, found, view_by_order, function, args, kwargs)
    if layout.needed is not None:
        memory.needed.add(layout.needed)
        own.needed.add(layout.needed)
    return found


def _seen_by(
    function: Callable[..., Any], x: np.ndarray[Any, Any], *args: Any, **kwargs: Any
) -> np.ndarray[Any, Any] | None:
    """``function(x, *args, **kwargs)`` where NumPy makes a view, and no element is
    read. None where it makes a copy."""
    if function is np.rot90:
        return np.rot90(x, *args, **kwargs)
    if function is np.reshape:
        try:
            return np.reshape(x, *args, **kwargs, copy=False)
        except ValueError:
            return None
    columns = function is np.asfortranarray or "F" in (*args, *kwargs.values())
    if not (x.flags.f_contiguous if columns else x.flags.c_contiguous):
        return None
    return np.reshape(x, -1, *args, **kwargs) if function is np.ravel else x


def shown(x: Any, found: Any, view: Callable[..., ArrayView], *how: Any) -> Any:
    """``found``, which shows ``x`` as the view of ``how`` says; numbers are copies, and
    so is what arrays show of them. What shows all of it is another array, whose shape
    is its own."""
    if not found.is_array:
        return found
    shows_all = found is x
    if shows_all:
        found = type(x)(x.term, True)
    if not x.is_array:
        x = type(x)(x.term)
    memory = x.memory or shared(x)
    if memory.refusal is None:
        found.path = x.path if shows_all else (*x.path, view(*how))
    memory.add(found)
    return found


class Stale:
    """Stands for the term of an array of which nobody knows whether it has changed."""

    def __init__(self, error: TraceError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error


def _unknown(how: str, called: str) -> TraceError:
    return TraceError(
        f"{how} changes an array that may share memory with another: {called} makes a "
        f"view or a copy, depending on how the array lies in memory\n"
        f"  call {called} on a copy, x.copy(), or copy its result{at(caller_line())}"
    )


# -- parts -----------------------------------------------------------------------------


def with_part(x: Any, key: Any, new: Any) -> Any:
    """``x`` with ``new`` in the place of ``x[key]``; ``key`` holds integers, slices,
    ``...`` and None."""
    parts = [k for k in key_parts(key, x.shape) if k is not None]
    pairs = zip(parts, x.shape, strict=True)
    rows = [row_of(k, n, axis) for axis, (k, n) in enumerate(pairs)]
    return _placed(x, rows, ops.reshape(new, tuple(map(len, rows))), 0)


def _placed(x: Any, rows: Sequence[range], new: Any, axis: int) -> Any:
    """``x`` with ``new`` at ``rows`` of the axes from ``axis`` on."""
    whole = [row == range(n) for row, n in zip(rows, x.shape, strict=True)]
    axis = next((a for a in range(axis, len(rows)) if not whole[a]), len(rows))
    if axis == len(rows):
        return new
    row, n = rows[axis], x.shape[axis]
    if not row:
        return x
    if not all(whole[axis + 1 :]):
        inner = _along(x, axis, row)
        if row.step == 1:
            inner = ops.concatenate(_pieces(x, axis, row), axis)
        now = [*map(range, inner.shape[: axis + 1]), *rows[axis + 1 :]]
        new = _placed(inner, now, new, axis + 1)
    if row.step != 1 and len(row) > 1:
        order = np.arange(n)
        order[list(row)] = n + np.arange(len(row))
        return ops.take(ops.concatenate([x, new], axis), order, axis)
    before, behind = range(row.start), range(row.start + len(row), n)
    joined = [*_pieces(x, axis, before), new, *_pieces(x, axis, behind)]
    return ops.concatenate(joined, axis)


def part(x: Any, key: Any) -> Any:
    """``x[key]``, the key being of integers, slices, ``...`` and None: of an array that
    was written part by part a part itself, where it lies in one."""
    parts = key_parts(key, x.shape)
    axis = _joint(x)
    if axis is None:
        return getitem(x, key)
    place = [i for i, k in enumerate(parts) if k is not None][axis]
    k = parts[place]
    row = row_of(k, x.shape[axis], axis)
    pieces = _pieces(x, axis, row) if row.step == 1 else []
    if len(pieces) != 1 or pieces[0] is x:
        return getitem(x, key)
    parts[place] = 0 if isinstance(k, int) else slice(None)
    return part(pieces[0], tuple(parts))


def _joint(x: Any) -> int | None:
    """The axis along which ``x`` joins arrays."""
    axis = _axis_of(x.term)
    return None if axis is None else len(x.shape) + axis


def _axis_of(term: Term) -> int | None:
    """The axis, a negative number, along which ``term`` joins arrays."""
    name, attrs = getattr(term.op, "name", ""), term.attrs
    if name == OF_COMPLEX and attrs[0] == "concatenate":
        return int(settings_of(str(attrs[1]))["axis"])
    return int(attrs[0]) if name == "concatenate" else None  # type: ignore[call-overload]


def _pieces(x: Any, axis: int, row: range) -> list[Any]:
    """Arrays that together are the elements ``row``, side by side, of one axis."""
    if not row:
        return []
    if row == range(x.shape[axis]):
        return [x]
    if _joint(x) != axis:
        return [_along(x, axis, row)]
    ends, terms = _ends(x.term)
    first, last = bisect_right(ends, row.start), bisect_left(ends, row.stop)

    def cut(i: int) -> list[Any]:
        start = ends[i] - terms[i].shape[axis]
        own = range(max(row.start, start) - start, min(row.stop, ends[i]) - start)
        return _pieces(type(x)(terms[i]), axis, own)

    if first == last:
        return cut(first)
    whole = [type(x)(t) for t in terms[first + 1 : last] if t.shape[axis]]
    return [*cut(first), *whole, *cut(last)]


Joint = tuple[list[int], Sequence[Term]]
_ENDS: WeakKeyDictionary[TermGraph, dict[int, Joint]] = WeakKeyDictionary()
_MOST_ENDS = 64


def _ends(term: Term) -> Joint:
    """Where each of the arrays ends that ``term`` joins, and these arrays."""
    known = _ENDS.setdefault(term.graph, {})
    found = known.get(term.id)
    if found is None:
        if len(known) >= _MOST_ENDS:
            known.clear()
        parts: Sequence[Term] = term.args
        if term.op.name == OF_COMPLEX:
            how = settings_of(str(term.attrs[1]))
            parts = through_views(parts, how, _view_term)[0]
        axis = len(term.shape) + (_axis_of(term) or 0)
        found = [*accumulate(t.shape[axis] for t in parts)], parts
        known[term.id] = found
    return found


def _view_term(view: Op, term: Term, attrs: dict[str, Any]) -> Term:
    return make(view, term.graph, [term], attrs)


def _along(x: Any, axis: int, row: range) -> Any:
    """The elements ``row`` of one axis."""
    behind = x.shape[axis + 1 :]
    return window(
        x,
        (row.start, *(0 for _ in behind)),
        (len(row), *behind),
        (row.step, *(1 for _ in behind)),
    )


# -- views -----------------------------------------------------------------------------

_PERMUTED = frozenset(
    {
        *(np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.matrix_transpose),
        np.linalg.matrix_transpose,
    }
)
_TURNED = frozenset({np.flip, np.flipud, np.fliplr})
_ITSELF = frozenset({np.atleast_1d, np.atleast_2d, np.atleast_3d, np.squeeze})
"""Functions that give an array itself where they have nothing to do."""
_SAME_ORDER = frozenset({np.expand_dims}) | _ITSELF
_REPEATED = frozenset({np.broadcast_to, np.diagonal, np.linalg.diagonal, np.diag})
_PARTS = frozenset({np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit})
_BY_PLACES = frozenset(f for n in ["unstack"] if (f := getattr(np, n, None)))
_BY_LAYOUT = frozenset(
    {np.reshape, np.ravel, np.rot90, np.ascontiguousarray, np.asfortranarray}
)
"""Functions that make a view or a copy, as their first argument lies in memory."""
_UNSURE = _BY_LAYOUT | {np.lib.stride_tricks.sliding_window_view, np.meshgrid}
_VIEWS = _PERMUTED | _TURNED | _SAME_ORDER | _REPEATED | _PARTS | _UNSURE | _BY_PLACES
"""Functions whose results may show their first argument."""


def view_of(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Any,
    which: int | None,
) -> ArrayView:
    """How the result of a function of :data:`VIEWS`, or number ``which`` of several,
    shows its first argument."""

    def again(x: Any) -> Any:
        found = call_function(function, (), (x, *args), kwargs)
        return found if which is None else found[which]

    def look(x: Any) -> Any:
        found = function(x, *args, **kwargs)
        return found if which is None else found[which]

    back: Callable[[Any, Any], Any] | None = None
    if function in _TURNED:

        def back(x: Any, new: Any) -> Any:
            return again(new)

    elif function in _SAME_ORDER:

        def back(x: Any, new: Any) -> Any:
            return ops.reshape(new, x.shape)

    elif function in _PERMUTED:

        def back(x: Any, new: Any) -> Any:
            sizes = tuple(range(2, 2 + len(x.shape)))
            dummy = np.lib.stride_tricks.as_strided(
                np.empty(1, bool), sizes, (0,) * len(sizes)
            )
            moved = function(dummy, *args, **kwargs).shape
            return ops.transpose(new, [moved.index(n) for n in sizes])

    elif function in _PARTS:

        def back(x: Any, new: Any) -> Any:
            starts = []
            for axis, n in enumerate(x.shape):
                of_axis = np.arange(n).reshape(n, *(1,) * (len(x.shape) - axis - 1))
                parts = function(np.broadcast_to(of_axis, x.shape), *args, **kwargs)
                starts.append(int(parts[which].flat[0]) if new.size else 0)
            rows = [slice(a, a + n) for a, n in zip(starts, new.shape, strict=True)]
            return with_part(x, tuple(rows), new)

    elif function in _BY_PLACES:

        def back(x: Any, new: Any) -> Any:
            return _placed_at(x, look(_places(x)), new)

    elif function in _REPEATED:

        def back(x: Any, new: Any) -> Any:
            raise ReadOnlyError(
                f"the result of {name_of(function)}(x) is read-only\n"
                f"  write to a copy: x.copy(){at(caller_line())}"
            )

    return ArrayView(function, again, back, None if function in _UNSURE else look)


def view_by_order(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Any
) -> ArrayView:
    """How the result of a function of :data:`_BY_LAYOUT` shows its first argument,
    where NumPy makes a view."""

    def back(x: Any, new: Any) -> Any:
        return _placed_at(x, function(_places(x), *args, **kwargs), new)

    def look(x: Any) -> Any:
        return _seen_by(function, x, *args, **kwargs)

    return ArrayView(
        function,
        lambda x: call_function(function, (), (x, *args), kwargs),
        back,
        look,
    )


def view_by_einsum(args: Sequence[Any], kwargs: Any, which: int) -> ArrayView:
    """How the result of ``np.einsum`` shows argument ``which``, of which nothing is
    added up."""

    def of(x: Any) -> Sequence[Any]:
        return *args[:which], x, *args[which + 1 :]

    def look(x: Any) -> Any:
        return np.einsum(*of(x), **kwargs)

    return ArrayView(
        np.einsum,
        lambda x: call_function(np.einsum, (), of(x), kwargs),
        lambda x, new: _placed_at(x, look(_places(x)), new),
        look,
    )


def _places(x: Any) -> Any:
    return np.arange(math.prod(x.shape)).reshape(x.shape)


def _placed_at(x: Any, places: Any, new: Any) -> Any:
    """``x`` with ``new`` at ``places`` in the order of its elements."""
    n, flat = math.prod(x.shape), places.ravel()
    if np.array_equal(flat, np.arange(n)):
        return ops.reshape(new, x.shape)
    source = np.arange(n)
    source[flat] = n + np.arange(flat.size)
    both = ops.concatenate([ops.ravel(x), ops.ravel(new)])
    return ops.reshape(ops.take(both, source, 0), x.shape)


def view(x: Any, dtype: Any = None, type: Any = ndarray) -> Any:
    """``x.view()``: the array itself in another object. Raises :class:`TraceError` for
    another dtype and for a subclass of arrays."""
    if inspect.isclass(dtype) and issubclass(dtype, ndarray):
        dtype, type = None, dtype
    if type is not ndarray:
        raise untraceable(
            f"x.view({type.__name__}) makes an array of a subclass, expected np.ndarray"
            f"\n  return x, and call view on the result{at(caller_line())}"
        )
    if dtype is None or dtype == x.dtype:
        return x[...]
    raise untraceable(
        f"x.view({np.dtype(dtype)}) shows the bits of {x.dtype} as another dtype, "
        "which cannot be traced\n  x.astype(dtype) converts the values"
        f"{at(caller_line())}"
    )


def view_by_places(function: Callable[..., Any], x: Any, shown: Any) -> ArrayView:
    """How an array of NumPy shows another one, ``x``, by where its elements lie."""
    n, at_x = x.size, _addresses(x).ravel()
    order = np.argsort(at_x, kind="stable")
    wanted = _addresses(shown)
    found = np.searchsorted(at_x[order], wanted).clip(max=max(n - 1, 0))
    places = order[found]
    if x.dtype != shown.dtype or not np.array_equal(at_x[places], wanted):
        return ArrayView(function, lambda y: y, None)

    def again(y: Any) -> Any:
        return ops.take(ops.ravel(y), places, 0)

    shape, strides = shown.shape, shown.strides  # and not the array: it is counted
    return ArrayView(
        function,
        again,
        lambda y, new: _placed_at(y, places, new),
        lambda y: np.lib.stride_tricks.as_strided(y, shape, strides),
    )


def _addresses(x: Any) -> Any:
    """Where each element of an array of NumPy lies in memory."""
    found = np.full(x.shape, x.__array_interface__["data"][0])
    for i, step in zip(np.indices(x.shape, sparse=True), x.strides, strict=True):
        found += i * step
    return found


def view_at(key: Any) -> ArrayView:
    """How ``x[key]`` shows ``x``, the key being of integers, slices, ``...`` and
    None."""
    return ArrayView(
        getitem,
        lambda x: part(x, key),
        lambda x, new: with_part(x, key, new),
        lambda x: x[key],
    )


def is_basic(key: Any) -> bool:
    """Whether NumPy makes ``x[key]`` a view."""
    keys = key if isinstance(key, tuple) else (key,)
    arrays = (list, tuple, range, ndarray, Traced, bool, bool_)
    return not any(isinstance(k, arrays) for k in keys)


def set_shape(x: Any, shape: Any) -> None:
    """``x.shape = shape``: the array itself shows its memory otherwise. Raises
    :class:`TraceError` for an argument of the caller's."""
    if x.layout is not None and x.layout.needed is not None:
        raise untraceable(
            "x.shape = y would change the shape of the caller's argument, which cannot "
            f"be traced\n  write x = x.reshape(y){at(caller_line())}"
        )
    found = ops.reshape(x, _sizes(x, shape))
    layout = layout_of(x) or _supposed_layout(x)
    view = view_by_order(np.reshape, (found.shape,), {})
    if layout is not None and view.look is not None:
        if (seen := view.look(layout.shown)) is None:
            raise TraceAttributeError(
                f"x.shape = {found.shape}: the elements do not lie in this order in "
                f"memory\n  write x = x.reshape(y){at(caller_line())}"
            )
        layout = layout._replace(shown=seen)
    if x.memory is None:
        x.layout = layout
    else:
        x.path = (*x.path, view)
    x.term = found.term


def _supposed_layout(x: Any) -> MemoryLayout | None:
    """How a view of something computed lies, whose elements are taken to lie in
    order."""
    if x.memory is None or x.memory.layout is not None:
        return None
    owner = MemoryLayout.of(x.memory.term).shown
    seen = _elements(x, owner)
    return None if seen is None else MemoryLayout(seen)


def _sizes(x: Any, shape: Any) -> tuple[int, ...]:
    """A shape in which -1 may stand for one size."""
    tried = np.broadcast_to(np.empty((), bool), x.shape)
    found: tuple[int, ...] = np.reshape(tried, shape).shape
    return found


# -- results ---------------------------------------------------------------------------


def _behind_first(x: Any, args: Sequence[Any], kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments behind ``x``, where this is the first one."""
    if args:
        return (args[1:], kwargs) if args[0] is x else None
    return (), {k: v for k, v in kwargs.items() if v is not x}


def _result_of_view(x: Any, function: Any, args: Any, kwargs: Any, found: Any) -> Any:
    behind = _behind_first(x, args, kwargs)
    if behind is None or (function is np.diag and len(x.shape) == 1):
        return found
    if function in _BY_LAYOUT:
        return shown_by_layout(x, found, function, *behind)
    if found is x and function in _ITSELF:
        return x
    if found is x and function in _REPEATED:
        found = type(x)(x.term, x.is_array)
    if isinstance(found, Traced):
        return shown(x, found, view_of, function, *behind, None)
    if function in _ITSELF:  # of several arrays, each by itself
        return found
    parts = (shown(x, f, view_of, function, *behind, i) for i, f in enumerate(found))
    return type(found)(parts)


def _result_of_einsum(x: Any, function: Any, args: Any, kwargs: Any, found: Any) -> Any:
    places = [i for i, a in enumerate(args) if isinstance(a, Traced)]
    operands = len(args) - 1 if isinstance(args[0], str) else len(args) // 2
    if operands == len(places) == 1:  # which NumPy shows where it adds up nothing
        (i,) = places
        tried = np.empty((2,) * len(x.shape))
        seen = np.einsum(*args[:i], tried, *args[i + 1 :], **kwargs)
        if seen.base is not None:
            return shown(x, found, view_by_einsum, args, kwargs, i)
    return found


def _result_of_meshgrid(
    x: Any, function: Any, args: Any, kwargs: Any, found: Any
) -> Any:
    if kwargs.get("copy", True):
        own = [type(x)(f.term) if any(f is a for a in args) else f for f in found]
        return type(found)(own)
    pairs = zip(args, found, strict=True)
    return [
        shown(a, f, view_of, function, (), {}, None) if isinstance(a, Traced) else f
        for a, f in pairs
    ]


def _result_of_nothing(name: str, default: Any, nothing: int) -> Callable[..., Any]:
    """What a function gives whose second argument says how often it is done: its first
    one itself where that is ``nothing``."""

    def result(x: Any, function: Any, args: Any, kwargs: Any, found: Any) -> Any:
        times = args[1] if len(args) > 1 else kwargs.get(name, default)
        if times == nothing and _behind_first(x, args, kwargs) is not None:
            return x
        return type(found)(found.term) if found is x else found

    return result


def real_of(x: Any) -> Any:
    """``x.real``, which shows the real parts; ``x`` itself where it is real."""
    return call_function(np.real, (), (x,), {})


def imag_of(x: Any) -> Any:
    """``x.imag``, which shows the imaginary parts."""
    return call_function(np.imag, (), (x,), {})


_OF_REAL = ArrayView(
    np.real,
    real,
    lambda x, new: with_parts(new, imag(x)),
    np.real,
)
_OF_IMAG = ArrayView(
    np.imag,
    imag,
    lambda x, new: with_parts(real(x), new),
    np.imag,
)


def _result_of_real(x: Any, function: Any, args: Any, kwargs: Any, found: Any) -> Any:
    return shown(x, found, lambda: _OF_REAL) if holds_complex(x) else x


def _result_of_imag(x: Any, function: Any, args: Any, kwargs: Any, found: Any) -> Any:
    if holds_complex(x):
        return shown(x, found, lambda: _OF_IMAG)
    if found.is_array:
        why = "would change np.imag(x), which is read-only"
        shared(found, Refusal(ReadOnlyError, why))
    return found


def _result_of_astype(x: Any, function: Any, args: Any, kwargs: Any, found: Any) -> Any:
    if found.dtype != x.dtype:
        return found
    return x if not kwargs.get("copy", True) else type(found)(found.term)


RESULTS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(_VIEWS, _result_of_view),
    np.astype: _result_of_astype,
    np.einsum: _result_of_einsum,
    np.diff: _result_of_nothing("n", 1, 0),
    np.imag: _result_of_imag,
    np.linalg.matrix_power: _result_of_nothing("n", None, 1),
    np.meshgrid: _result_of_meshgrid,
    np.real: _result_of_real,
}
"""What gives the results of functions that may show, or be, an argument ``x``: called
with ``x``, the function, its arguments, and the result as an array of its own."""
