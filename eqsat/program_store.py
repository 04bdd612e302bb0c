"""Programs that were found before: a new process need not search again.

A program is kept under its traced terms, the rules, the cost model and the options.
Constant arrays count by their types and by the facts that rules ask of their values.

Traces are kept, too, of functions whose result depends on a name and on the types of
their arguments alone: a new process need not run them.
"""

from __future__ import annotations

import marshal
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eqsat.kernels import CostModel, calibrate
from eqsat.serialise import (
    NotPortableError,
    canonical,
    check_lowerings,
    decode_terms,
    encode_terms,
)
from eqsat.support import Options, disk_cache, version
from eqsat.terms import CONSTANT, INPUT, Term, constant, is_constant, postorder
from eqsat.trace import Tracer

if TYPE_CHECKING:
    from eqsat.rulelang import Rule, RuleSet

_OTHER: dict[str, Any] = {
    **{"threads": 0, "backend": None, "backends": {}, "cache": True},
    **{"log": frozenset(), "progress": True, "lazy_limit": 1},
    **{"stats": False, "adaptive": False, "trace": None, "memory_limit": 0},
}
"""Options that do not change which program is found."""


@dataclass(frozen=True)
class ProgramKey:
    """Where the program for traced terms is kept."""

    name: str
    written: Sequence[Term]
    arrays: Sequence[int]
    """``id`` of the constant arrays, in the order in which the terms name them."""
    tuned: str
    """Where a faster program is kept, which was found by measuring on this device."""
    tried: str
    """Where it is kept what was tried."""
    measured: bytes | None
    """What was kept as ``tuned`` when this was made."""

    def recall(self, inputs: Sequence[Term]) -> list[Term] | None:
        """The roots of the program, as terms of the graph of ``inputs``, by measurement
        if there is such a one; None when there is none."""
        found = self._decoded(self.tuned, self.measured, inputs)
        if found is None:
            data = disk_cache.get(self.name, asked=True)
            found = self._decoded(self.name, data, inputs)
        return found

    def _decoded(
        self, name: str, data: bytes | None, inputs: Sequence[Term]
    ) -> list[Term] | None:
        if data is None:
            return None
        try:
            graph = self.written[0].graph
            roots = decode_terms(data, graph, self.arrays, inputs)
            if [r.type for r in roots] == [r.type for r in self.written]:
                return roots
        except NotPortableError:
            pass
        disk_cache.drop(name, asked=True)
        return None

    def tuning(self) -> bytes | None:
        """What was tried, as :meth:`keep_tuned` was given it."""
        return disk_cache.get(self.tried, asked=True)

    def keep_tuned(self, roots: Sequence[Term] | None, tried: bytes) -> None:
        """Keep a faster program, if there is one, and what was tried."""
        numbers = {a: i for i, a in enumerate(self.arrays)}
        try:
            if roots is not None:
                disk_cache.put(self.tuned, encode_terms(roots, numbers), asked=True)
            disk_cache.put(self.tried, tried, asked=True)
        except NotPortableError:
            pass

    def keep(self, roots: Sequence[Term]) -> None:
        """Keep the roots of the program that was found."""
        numbers = {a: i for i, a in enumerate(self.arrays)}
        try:
            disk_cache.put(self.name, encode_terms(roots, numbers), asked=True)
        except NotPortableError:
            pass


def place_of(
    roots: Sequence[Term], rules: RuleSet | None, options: Options, model: CostModel
) -> ProgramKey | None:
    """Where the program for ``roots`` is kept; None where it is not: where ``options``
    turn the cache off, and with ops or lowerings that do not come with eqsat.
    ``rules``: None for the stock rules."""
    if not roots or not options.cache:
        return None
    try:
        check_lowerings()
        arrays = _arrays(roots)
        numbers = {a: i for i, a in enumerate(arrays)}
        parts = (
            encode_terms(roots, numbers),
            canonical([*_facts(roots, rules)] if arrays else []),
            _rules_key(rules),
            version(),
            canonical(replace(options, **_OTHER)),
            canonical(model),
        )
        name = disk_cache.key("program", *parts)
        here = calibrate.machine()
        more = (disk_cache.key(kind, *parts, here) for kind in ("tuned", "tried"))
    except NotPortableError:
        return None
    tuned, tried = more
    measured = disk_cache.get(tuned, asked=True)
    return ProgramKey(name, tuple(roots), arrays, tuned, tried, measured)


def _arrays(roots: Sequence[Term]) -> list[int]:
    return [cast(int, t.attrs[0]) for t in postorder(roots) if t.op is CONSTANT]


def _facts(roots: Sequence[Term], rules: RuleSet | None) -> Iterator[tuple[str, ...]]:
    """What is known of the values of constants that others read."""
    from eqsat.rulelang import OF_MASKS, facts_of

    asked = OF_MASKS if rules is None else rules.asked
    known = is_constant(roots)
    read = (a for t in postorder(roots) if not known[t] for a in t.args)
    for a in dict.fromkeys(read):
        if known[a]:
            yield facts_of(a, asked)


def _rules_key(rules: RuleSet | None) -> bytes:
    if rules is None:
        return b"stock"
    from eqsat.rulelang import RuleSet, default_rules

    known = default_rules() if default_rules.cache_info().currsize else RuleSet()
    return b"stock" if rules is known else _key_of(rules, known)


@lru_cache(maxsize=32)
def _key_of(rules: RuleSet, known: RuleSet) -> bytes:
    """Rules by what they say; stock rules by name."""
    stock = set(known)
    return canonical([r.name if r in stock else _content(r) for r in rules])


def _content(rule: Rule) -> tuple[Any, ...]:
    return (
        *(rule.name, rule.phase, rule.numerics, rule.dtypes, rule.both_ways),
        *(rule.params, rule.numbers, rule.masks, rule.hint, rule.signature.text),
        *(rule.left, rule.right, rule.facts),
    )


# -- traces ----------------------------------------------------------------------------

_MOST_BYTES = 1 << 20
"""Of all constants that are kept with a trace; others have names."""
_FEW_BYTES = 1 << 10
"""Of a constant that is kept even where it is part of a named array."""
Recipe = tuple[Any, ...]
"""How a constant is made: of a named array, or of bytes."""


def keep_trace(
    name: str, arguments: Sequence[Any], found: Sequence[Any], named: Any
) -> None:
    """Keep what a function gave for traced ``arguments``, all of them inputs of the
    trace, if all of it is traced. ``named``: arrays that a new process has, by name."""
    if not _are_inputs(arguments) or not _are_traced(found):
        return
    roots = [x.term for x in found]
    held = roots[0].graph.arrays if roots else {}
    ids = [cast(int, t.attrs[0]) for t in postorder(roots) if t.op is CONSTANT]
    places = _Places({n: x for n, x in named.items() if type(x) is np.ndarray})
    try:
        recipes = [places.recipe(held[i]) for i in ids]
        terms = encode_terms(roots, {a: i for i, a in enumerate(ids)})
    except NotPortableError:
        return
    shown = [x.is_array for x in found]
    disk_cache.put(name, marshal.dumps((terms, recipes, shown), 2), asked=True)


def recall_trace(
    name: str,
    arguments: Sequence[Any],
    named: Callable[[set[str]], Mapping[str, Any]],
) -> list[Any] | None:
    """What :func:`keep_trace` was given, for new arguments; None where nothing is kept.
    ``named`` gives the arrays of some names."""
    data = disk_cache.get(name, asked=True) if _are_inputs(arguments) else None
    if data is None:
        return None
    try:
        terms, recipes, shown = marshal.loads(data)
        arrays = named({r[1] for r in recipes if r[0] == "view"})
        graph = arguments[0].term.graph
        made = [constant(graph, _made(r, arrays)).attrs[0] for r in recipes]
        inputs = [x.term for x in arguments]
        roots = decode_terms(terms, graph, cast("list[int]", made), inputs)
        pairs = zip(roots, shown, strict=True)
        return [Tracer(root, is_array) for root, is_array in pairs]
    except (NotPortableError, ValueError, TypeError, LookupError, EOFError):
        disk_cache.drop(name, asked=True)
        return None


def _are_inputs(arguments: Sequence[Any]) -> bool:
    """Whether arguments are the inputs of a trace, in order."""
    if not arguments or not _are_traced(arguments):
        return False
    terms: list[Term] = [x.term for x in arguments]
    return all(t.op is INPUT and t.attrs[0] == i for i, t in enumerate(terms))


def _are_traced(values: Sequence[Any]) -> bool:
    return all(type(x) is Tracer for x in values)


class _Places:
    """Where arrays lie in memory."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        whole = (
            (x.ctypes.data, x.nbytes, n)
            for n, x in named.items()
            if x.size and x.flags.c_contiguous and x.dtype != object
        )
        self._named = sorted(whole)
        self._starts = [start for start, _, _ in self._named]
        self._spare = _MOST_BYTES

    def recipe(self, x: Any) -> Recipe:
        """How ``x`` is made of a named array that it shows, or of its bytes. Raises
        :class:`NotPortableError`."""
        if type(x) is not np.ndarray or x.dtype.kind not in "biuf":
            raise NotPortableError("an array of another kind")
        kind = x.dtype.str, x.shape
        if _apart(x).nbytes <= _FEW_BYTES:
            return self._of_bytes(x)
        first = x.ctypes.data
        steps = zip(x.shape, x.strides, strict=True)
        reach = [(n - 1) * s for n, s in steps]
        low = first + sum(r for r in reach if r < 0)
        high = first + sum(r for r in reach if r > 0) + x.itemsize
        at = bisect_right(self._starts, low) - 1
        if at >= 0:
            start, size, name = self._named[at]
            if high <= start + size:
                return "view", name, *kind, first - start, x.strides
        return self._of_bytes(x)

    def _of_bytes(self, x: Any) -> Recipe:
        apart = _apart(x)
        self._spare -= apart.nbytes
        if self._spare < 0:
            raise NotPortableError("an array without a name")
        return "bytes", apart.tobytes(), x.dtype.str, x.shape, apart.shape


def _apart(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements that have memory of their own."""
    one, all_of = slice(1), slice(None)
    return x[tuple(all_of if s else one for s in x.strides)]


def _made(recipe: Recipe, named: Mapping[str, Any]) -> Any:
    """The array of a recipe, which nobody can write to where it is of bytes. Raises
    ``ValueError`` for one that is not in its array."""
    kind, of, dtype, shape, *place = recipe
    if kind == "bytes":
        if not math.prod(shape):
            return np.empty(shape, dtype)
        (apart,) = place
        return np.broadcast_to(np.frombuffer(of, dtype).reshape(apart), shape)
    offset, strides = place
    flat = named[of].reshape(-1).view(np.uint8)
    return np.ndarray(shape, dtype, flat, offset, strides)
