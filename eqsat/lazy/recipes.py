"""What calls with lazy arrays record, found again by the types of their arguments.

Promotion, broadcasting and the many forms of a call of NumPy are gone through once for
each kind of call: on stand-ins, which have types and no values. What they record is the
call's recipe. Each later call makes one object, which holds the recipe and the arrays
it was given; its terms are made when a program is compiled.

A call has no recipe where its result depends on values, or is more than one array.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from eqsat.lazy.graph import RECORDING, Recorded, recorded
from eqsat.lazy.setting import Setting
from eqsat.support import SourceLine
from eqsat.terms import INPUT, Operator, Term, Type

_MOST = 1 << 14
"""Recipes that are kept. Python numbers are part of them, and may be others each
time."""


class ArrayKind:
    """Dtype, shape, whether NumPy has an array here, and how it is computed: one object
    for each."""

    __slots__ = (
        *("dtype", "is_array", "itemsize", "nbytes", "ndim", "setting", "shape"),
        "size",
    )

    def __init__(self, type_: Type, is_array: bool, setting: Setting | None) -> None:
        self.dtype: Any
        self.dtype, self.shape = type_
        self.is_array, self.setting = is_array, setting
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.itemsize: int = self.dtype.itemsize
        self.nbytes = self.size * self.itemsize

    @property
    def type(self) -> Type:
        return self.dtype, self.shape

    def as_array(self, yes: bool) -> ArrayKind:
        """The same where NumPy has an array, or a number."""
        return array_kind(self.type, yes, self.setting)


_KINDS: dict[tuple[Type, bool, Setting | None], ArrayKind] = {}


def array_kind(
    type_: Type, is_array: bool = False, setting: Setting | None = None
) -> ArrayKind:
    """The kind of a type; arrays with axes are arrays."""
    key = type_, is_array or bool(type_[1]), setting
    found = _KINDS.get(key)
    if found is None:
        found = _KINDS.setdefault(key, ArrayKind(*key))
    return found


class CallRecipe:
    """The terms that a call records over the terms of its lazy arguments."""

    __slots__ = ("kind", "root", "rows", "size")

    def __init__(
        self,
        rows: Sequence[tuple[Operator, tuple[int, ...], Any, Type]],
        root: int,
        kind: ArrayKind,
    ) -> None:
        self.rows = rows
        """Op, places of its arguments, attributes, and type; an argument of the call is
        written ``~i``."""
        self.root = root
        self.size = len(rows)
        self.kind = kind

    def term(self, given: Sequence[Recorded], line: SourceLine | None) -> Recorded:
        """The result over the terms of the arguments."""
        made: list[Recorded] = []

        def at(place: int) -> Recorded:
            return given[~place] if place < 0 else made[place]

        for op, args, attrs, type_ in self.rows:
            terms = [at(a) for a in args]
            made.append(RECORDING.node(op, terms, attrs, type_, line))
        return at(self.root)


def recipe_of(
    result: Recorded, kind: ArrayKind, inputs: Sequence[Term]
) -> CallRecipe | None:
    """The recipe of ``result``; None where it holds values of other arrays."""
    places: dict[Term, int] = {t: ~i for i, t in enumerate(inputs)}
    rows: list[tuple[Operator, tuple[int, ...], Any, Type]] = []
    for t in recorded([result]):
        if t in places:
            continue
        if t.op is INPUT:
            return None
        places[t] = len(rows)
        rows.append((t.op, tuple([places[a] for a in t.args]), t.attrs, t.type))
    return CallRecipe(rows, places[result], kind)


class _Recipes(dict[Hashable, "CallRecipe | None"]):
    """Recipes by how a call is spelled; None for calls without one. There is room for
    so many, and for as many again when it is used up."""

    def __setitem__(self, spelling: Hashable, found: CallRecipe | None) -> None:
        if len(self) >= _MOST:
            self.clear()
        super().__setitem__(spelling, found)


RECIPES: Final = _Recipes()

_BY_VALUE = frozenset((int, str, bool, type(None), type, type(...), type(np.float32)))
"""Types whose values are equal only if they mean the same. Zeros of two signs are equal
as floats, and so are ``1`` and ``True``: types are spelled too."""


def spell(values: Iterable[Any], kind: type, key: list[Any], given: list[Any]) -> bool:
    """Add values to the spelling of a call, and the lazy arrays among them, which are
    of the type ``kind``, to what is ``given``. False where a value cannot be spelled:
    an array of NumPy, an object of the user's."""
    for v in values:
        of = type(v)
        if of is kind:
            key.append(v.kind)
            given.append(v)
        elif of in _BY_VALUE or isinstance(v, np.dtype):
            key += (of, v)
        elif of is float:
            if v != v:
                return False
            key += (of, v) if v else (of, str(v))
        elif of is tuple or of is list:
            key += (of, len(v))
            if not spell(v, kind, key, given):
                return False
        elif of is slice:
            key.append(of)
            if not spell((v.start, v.stop, v.step), kind, key, given):
                return False
        elif isinstance(v, np.generic):
            key += (v.dtype, v.tobytes())
        else:
            return False
    return True


def swapped(values: Any, kind: type, others: Iterable[Any]) -> Any:
    """Values with ``others`` in the place of the lazy arrays, in their order."""
    if type(values) is kind:
        return next(iter(others))
    if type(values) in (tuple, list):
        return type(values)(swapped(v, kind, others) for v in values)
    if type(values) is slice:
        ends = (values.start, values.stop, values.step)
        return slice(*(swapped(v, kind, others) for v in ends))
    return values
