"""Recordings: terms that are kept alive by their users alone, and what they compute.

The terms of a trace live as long as its graph. Those of a recording belong to the lazy
arrays that were made with them: nothing is interned, and a term whose value is known
lets go of what it was made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, cast
from weakref import WeakValueDictionary

import numpy as np

from eqsat.lazy.setting import Setting, joined
from eqsat.support import SourceLine, caller_line
from eqsat.terms import (
    CONSTANT,
    INPUT,
    SCALAR,
    Operator,
    Term,
    TermGraph,
    Type,
    attrs_key,
    postorder,
)
from eqsat.trace import Trace, Tracer, never_written


class ValuesAsked(BaseException):
    """What is recorded depends on values, and there are none: it has no recipe."""


class Recorded(Term):
    """A term of a recording. It changes once: with its value it becomes a leaf."""

    __slots__ = ("__weakref__", "setting", "value")

    value: Any
    """The array that it stands for, which nobody writes to; None while not known."""
    setting: Setting | None
    """How it is computed, where an array says so that it is computed of."""

    def settle(self, value: Any) -> None:
        """Make this a leaf that holds ``value``."""
        put = object.__setattr__
        put(self, "value", value)
        put(self, "op", INPUT)
        put(self, "attrs", (0,))
        put(self, "args", ())


class Recording(TermGraph):
    """A graph that holds none of its terms."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._copies: WeakValueDictionary[int, Recorded] = WeakValueDictionary()
        """Leaves that are in use, by the ``id`` of the array that they were made of."""

    def node(
        self,
        op: Operator,
        args: Sequence[Term],
        attrs: tuple[Hashable, ...],
        type_: Type,
        source: SourceLine | None = None,
        setting: Setting | None = None,
    ) -> Recorded:
        """A new term ``op(*args, **attrs)``, with the setting of its arguments."""
        self._check_own(op, args)
        for a in cast(Sequence[Recorded], args):
            if a.setting is not setting:
                setting = joined(setting, a.setting)
        line = source or caller_line()
        number = next(self._numbers)
        made = Recorded.new(self, number, op, args, attrs, type_, line)
        object.__setattr__(made, "value", None)
        object.__setattr__(made, "setting", setting)
        return made

    def known(self, op: Operator, array: np.ndarray[Any, Any]) -> Recorded:
        """A leaf with what ``array`` holds now, the same one for as long as it holds
        that: a loop may use a weight of many megabytes in each round."""
        found = self._copies.get(id(array))
        if found is None or not _same(found.value, array):
            value = array if never_written(array) else array.copy()
            found = self.leaf(value, (array.dtype, array.shape))
            if array.nbytes >= _SHARED:
                self._copies[id(array)] = found
        return found

    def leaf(self, value: Any, type_: Type, setting: Setting | None = None) -> Recorded:
        """A leaf with an array of any library, which nobody writes to."""
        made = self.node(INPUT, (), (0,), type_, setting=setting)
        made.settle(value)
        return made


_SHARED = 4096
"""Bytes from which comparing costs less than another copy."""


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays are one, or equal in type and bit for bit."""
    bits = f"u{a.itemsize}"  # NaN is itself, and 0.0 is not -0.0
    return a is b or (a.dtype == b.dtype and np.array_equal(a.view(bits), b.view(bits)))


RECORDING = Recording()
"""The graph of all lazy arrays."""
_NOTHING = RECORDING.known(INPUT, np.zeros(0, np.float32))


def recorded(roots: Iterable[Recorded]) -> Iterator[Recorded]:
    """Every term of a recording below ``roots`` once, arguments first."""
    return cast(Iterator[Recorded], postorder(roots))


def parts(roots: Sequence[Recorded], most: int) -> list[list[Recorded]]:
    """``roots`` whose values are not known, and terms to be computed before them, as
    lists to take from the end: with those before known, each needs ``most`` terms and
    bare numbers, which have no value and are part of every list that needs them."""
    terms = [t for t in recorded(roots) if t.value is None and t.op is not SCALAR]
    number = {t: i // most for i, t in enumerate(terms)}
    wanted: list[dict[Recorded, None]] = [{} for _ in range(-(-len(terms) // most))]
    if len(wanted) > 1:
        for t in terms:
            for a in cast(tuple[Recorded, ...], t.args):
                if number.get(a, number[t]) != number[t]:
                    wanted[number[a]][a] = None
    for r in roots:
        if r.value is None:
            wanted[number[r]][r] = None
    return [list(w) for w in reversed(wanted)]


def recorded_again(done: Trace, inputs: Sequence[Term]) -> list[Term]:
    """The outputs of a trace as terms of the recording, over ``inputs`` of it."""
    made = dict(zip(done.inputs, inputs, strict=True))
    for t in postorder(done.outputs):
        if t.op is CONSTANT:
            array = done.graph.arrays[cast(int, t.attrs[0])]
            made[t] = RECORDING.known(CONSTANT, array)
        elif t not in made:
            args = [made[a] for a in t.args]
            made[t] = RECORDING.node(t.op, args, t.attrs, t.type, t.source)
    return [made[t] for t in done.outputs]


class Outline:
    """What terms compute, apart from the values of the leaves.

    Leaves and other terms are numbered in the order in which they are met, arguments
    first; a leaf's number is written ``~i``.
    """

    def __init__(self, roots: Sequence[Recorded]) -> None:
        self.leaves: list[Any] = []
        """The values of the leaves."""
        self.leaf_terms: list[Recorded] = []
        self._terms: list[Recorded] = []
        places: dict[Term, int] = {}
        types: list[Type] = []
        steps: list[tuple[Operator, tuple[int, ...], Hashable]] = []
        for t in recorded(roots):
            if t.value is not None:
                places[t] = ~len(types)
                types.append(t.type)
                self.leaves.append(t.value)
                self.leaf_terms.append(t)
            else:
                if t.op is INPUT:
                    raise ValuesAsked
                places[t] = len(steps)
                args = tuple([places[a] for a in t.args])
                steps.append((t.op, args, attrs_key(t.attrs)))
                self._terms.append(t)
        if not types:  # as of zeros_like: a function without arguments has no graph
            types.append(_NOTHING.type)
            self.leaves.append(_NOTHING.value)
            self.leaf_terms.append(_NOTHING)
        self._steps = tuple(steps)
        self._roots = tuple([places[r] for r in roots])
        self.line = roots[0].source
        """Where the first root was recorded."""
        self._types = tuple(types)

    @property
    def key(self) -> Hashable:
        """Equal for terms that one program computes."""
        return self._steps, self._types, self._roots

    @property
    def key_without_numbers(self) -> Hashable:
        """Equal also when the bare Python numbers are others."""
        steps = tuple(s[:2] if s[0] is SCALAR else s for s in self._steps)
        return steps, self._types, self._roots

    def function(self) -> Callable[..., tuple[Tracer, ...]]:
        """The function of the leaves that computes the roots, to be traced."""
        rows = [
            (t.op, key[1], t.attrs, t.type, t.source)
            for t, key in zip(self._terms, self._steps, strict=True)
        ]
        roots = self._roots

        def lazy_arrays(*leaves: Tracer) -> tuple[Tracer, ...]:
            graph = leaves[0].term.graph
            made: list[Term] = []

            def at(place: int) -> Term:
                return leaves[~place].term if place < 0 else made[place]

            for op, args, attrs, type_, graph.line in rows:
                made.append(graph.node(op, [at(a) for a in args], attrs, type_))
            graph.line = None
            return tuple(Tracer(at(r), True) for r in roots)

        lazy_arrays.__name__ = "lazy arrays"
        lazy_arrays.eqsat_line = self.line  # type: ignore[attr-defined]
        return lazy_arrays
