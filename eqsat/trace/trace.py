"""Tracing: a Python function, run once on stand-ins for its arrays, as terms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from eqsat.numpy_api import (
    AtEnd,
    ForeignKind,
    Operators,
    refuse_outside,
    refuse_subclass,
)
from eqsat.support import (
    BoundsError,
    ReadOnlyError,
    SourceLine,
    TraceError,
    an,
    at,
    caller_line,
    pytree,
)
from eqsat.terms import INPUT, Term, TermGraph, Traced, constant
from eqsat.trace.aliasing import MemoryLayout, Refusal, strides_of
from eqsat.trace.call_arguments import (
    Arguments,
    Leaf,
    Spec,
    dtype_of_array,
    flatten_arguments,
    is_taken,
    to_numpy,
)
from eqsat.trace.caller_writes import CallerWrites
from eqsat.trace.contents import Contents, Seen, is_immutable
from eqsat.trace.end_steps import EndSteps
from eqsat.trace.hidden_state import watched
from eqsat.trace.made_arrays import arrays_made_inside, named_arrays_known
from eqsat.trace.numpy_errors import numpy_errors_told
from eqsat.trace.outside import Outside, package_of
from eqsat.trace.tracer import Tracer

__all__ = [
    "Arguments",
    "Leaf",
    "Operators",
    "Spec",
    "Trace",
    "Tracer",
    "flatten_arguments",
    "trace",
]

_PLAIN = (
    *(int, float, complex, str, bytes, type(None)),
    *(Enum, np.dtype, type, slice, range),
)
"""Types of results that are handed back as they are."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What a function computes: terms from inputs to outputs, and how they nest."""

    graph: TermGraph
    inputs: list[Term]
    """INPUT leaves in the order of :attr:`Arguments.arrays`, the unused ones too."""
    names: list[str]
    """Paths of the inputs: ``params['w'][0]``."""
    outputs: list[Term]
    """What the function returns, what :attr:`ends` are made of, and what the function
    makes of :attr:`writes`."""
    out_tree: pytree.Structure
    constants: list[Any]
    """Arguments that are constant, kept alive for as long as their ``id`` counts."""
    contents: list[Contents]
    """Every array that the program was made of and that can change, and what it
    held."""
    outside: Outside
    """What the function read outside of its arguments."""
    writes: CallerWrites
    """What the function writes to its arguments."""
    numbers: tuple[bool, ...]
    """For each output but those of :attr:`writes` whether NumPy gives one of its
    numbers, and no array."""
    ends: EndSteps
    """What NumPy makes of outputs when the program has ended."""
    strides: Mapping[int, tuple[int, ...]]
    """How inputs must lie in memory: a view of one was written to, or what may be a
    view."""
    call: Arguments
    """What it was made for, without the arrays."""

    def fits(self, call: Arguments) -> bool:
        """Whether the arguments of a call lie in memory as the program needs it."""
        if not self.strides:
            return True
        return all(_strides(call, i) == s for i, s in self.strides.items())

    def check(self, call: Arguments) -> None:
        """Raise :class:`TraceError` where the function would write to arguments of this
        call that cannot be written to: read-only ones, or some that share memory; and
        :class:`DTypeError` where its results would not be of the kind of a call."""
        if call.kind is not None and not self.ends:
            for k in range(len(self.outputs) - len(self.writes.places)):
                if k not in self.writes.returned:
                    call.kind.check(self.outputs[k].dtype)
        if self.writes:
            self.writes.check(call.leaves, self.arrays_outside)

    @property
    def arrays_outside(self) -> list[np.ndarray[Any, Any]]:
        """The arrays that can change and that the function reads outside of its
        arguments."""
        known = (formed for formed, _, _ in self.outside.arrays.values())
        outside = (f.array for f in known if f.contents is not None)
        return [*(c.array for c in self.contents), *outside]

    def finish(self, call: Arguments, results: list[Any]) -> Any:
        """What the function returns for a call, of which the program made ``results``,
        after it has written to the caller's arrays."""
        n = len(results) - len(self.writes.places)
        values = list(self._values(results[:n]))
        if call.kind is not None:
            values = self._of_kind(call.kind, values)
        if self.writes:
            values = self.writes.finish(call.leaves, [*values, *results[n:]])
        return pytree.unflatten(self.out_tree, values)

    def as_written(
        self, fn: Callable[..., Any], call: Arguments, error: IndexError
    ) -> Any:
        """What ``fn`` returns by NumPy, where ``error`` is that of a program that
        leaves some values to NumPy. What it wrote to is as it was if it raises an
        error of its own. Raises ``error`` where nothing is left to NumPy.
        """
        if not self.graph.left_to_numpy:
            raise error
        own = isinstance(fn, pytree.Made)  # such as a gradient, of traced arrays alone
        if own or call.kind is not None or call.are_mlx:
            raise BoundsError(self.graph.left_to_numpy[0]) from error
        inputs = [leaf.given for leaf in call.leaves if not leaf.constant]
        before = [(inputs[i], np.array(inputs[i])) for i in self.writes.places]
        leaves = [leaf.given for leaf in call.leaves]
        positional, named = pytree.unflatten(call.structure, leaves)
        try:
            with np.errstate(all="ignore"):
                return fn(*positional, **named)
        except BaseException:
            for array, held in before:
                array[...] = held
            raise

    def _of_kind(self, kind: ForeignKind, results: Sequence[Any]) -> list[Any]:
        """``results`` as arrays of another library, but for arguments themselves."""
        return [
            a if k in self.writes.returned else kind.given(a)
            for k, a in enumerate(results)
        ]

    def unflatten(self, arrays: Iterable[Any]) -> Any:
        """What the function returns, with ``arrays`` in the places of ``outputs``; an
        array of NumPy gives its number where one is wanted."""
        return pytree.unflatten(self.out_tree, self._values(arrays))

    def _values(self, arrays: Iterable[Any]) -> Iterable[Any]:
        """The values that the function returns, of the outputs of the program."""
        if any(self.numbers):
            arrays = (
                a[()] if is_number and type(a) is np.ndarray else a
                for a, is_number in zip(arrays, self.numbers, strict=False)
            )
        return self.ends.made(list(arrays)) if self.ends else arrays

    def is_current(self) -> bool:
        """Whether all that the program was made of is what it was: arrays, and names
        outside of the function."""
        if self.contents:
            seen: Seen = {}
            if not all(c.is_current(seen) for c in self.contents):
                return False
        return self.outside.changed() is None


def trace(
    fn: Callable[..., Any],
    args: Arguments | Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    constants: Collection[str | int] = (),
    watching: bool = False,
) -> Trace:
    """Run ``fn(*args, **kwargs)`` on stand-ins for its arrays and record what it does.

    Arrays may be nested in dicts, lists, tuples and dataclasses, and may be given as
    :class:`Spec`. They become inputs; parameters whose names or positions are in
    ``constants``, arrays that nobody can write to, and arrays that ``fn`` closes over
    become constants. Numbers, strings and None are part of the program. An exception of
    ``fn`` passes through. What :func:`flatten_arguments` made may stand for the
    arguments. ``watching``: the trace is to be used again, so that what ``fn`` reads
    outside of its arguments is noted, and hidden state is refused (:func:`.watched`).

    Raises :class:`TraceError` for what cannot be recorded and :class:`DTypeError` for
    dtypes that are not supported, with the argument or the user's line.

    >>> trace(lambda x: x + x, [Spec((2, 3), "float32")]).outputs
    [<add #1: 2×3 float32>]
    """
    if not isinstance(args, Arguments):
        args = flatten_arguments(fn, args, kwargs or {}, constants)
    try:
        return _traced(fn, args, watching, nullcontext())
    except TraceError as error:
        if not error.elsewhere:
            raise
        first = error
    try:
        return _traced(fn, args, watching, named_arrays_known())
    except TraceError as error:
        raise (first if error.elsewhere else error) from None


def _traced(
    fn: Callable[..., Any],
    args: Arguments,
    watching: bool,
    inside: AbstractContextManager[None],
) -> Trace:
    """The trace of one run, which is ``inside`` a context."""
    graph = TermGraph()
    used = graph.arrays = _Constants()
    graph.float_errors = dict(np.geterr())
    inputs: list[Term] = []
    needed: set[int] = set()
    stand_ins = [_stand_in(graph, leaf, inputs, needed) for leaf in args.leaves]
    positional, named = pytree.unflatten(args.structure, stand_ins)
    with arrays_made_inside() as made:
        with (
            watched(fn, args.statics(), args.classes())
            if watching
            else nullcontext(Outside())
        ) as out:
            made.cached, made.package = out.cached, package_of(fn)
            try:
                with inside, numpy_errors_told():
                    result = fn(*positional, **named)
            except TraceError as error:
                error.elsewhere = error.elsewhere and out.changed() is None
                raise
        _check_arguments(args, (positional, named), stand_ins)
        found, out_tree = pytree.flatten(result, _is_result, "result")
        _check_plain(out_tree)
        ends, computed = EndSteps.found([f.value for f in found])
        paths = [f.path for f in found if not isinstance(f.value, AtEnd)]
        paths += [_part_of(found)] * (len(computed) - len(paths))
        outputs = [
            _output_term(graph, path, value)
            for path, value in zip(paths, computed, strict=True)
        ]
    numbers = tuple(map(_is_number, computed))
    pairs = zip(stand_ins, args.leaves, strict=True)
    varying = [x for x, leaf in pairs if not leaf.constant]
    writes = CallerWrites.found(varying, inputs, [f.value for f in found])
    outputs += [varying[i].term for i in writes.places]
    used.check()
    graph.float_errors = None
    graph.sources = False  # what is made of these terms later is on no line
    names = [leaf.path for leaf in args.leaves if not leaf.constant]
    fixed = [leaf.given for leaf in args.leaves if leaf.constant]
    declared = {id(leaf.value) for leaf in args.leaves if leaf.declared}
    del result, found, computed
    contents = [
        c
        for k, c in used.held.items()
        if k not in declared and not (k in used and c.is_private(holders=1))
    ] + made.kept()
    return Trace(
        *(graph, inputs, names, outputs, out_tree, fixed, contents, out, writes),
        *(numbers, ends, {i: _strides(args, i) for i in needed}),
        args.without_arrays,
    )


def _stand_in(
    graph: TermGraph, leaf: Leaf, inputs: list[Term], needed: set[int]
) -> Tracer:
    """What stands for an argument; ``inputs`` has the terms of those that vary, and
    ``needed`` the positions of those whose layout in memory turns out to count."""
    if leaf.constant:
        held = constant(graph, to_numpy(leaf.value))
        would = f"would change the caller's argument {leaf.path}, which is"
        if leaf.declared:
            return Tracer.fixed(held, Refusal(TraceError, f"{would} constant"))
        return Tracer.fixed(held, Refusal(ReadOnlyError, f"{would} read-only"))
    inputs.append(graph.node(INPUT, (), (len(inputs),), (leaf.dtype, leaf.shape)))
    made = Tracer(inputs[-1], not isinstance(leaf.value, np.generic))
    count = partial(needed.add, len(inputs) - 1)
    made.layout = MemoryLayout.of(_as_numpy(leaf), count)
    return made


def _is_result(value: Any) -> bool:
    return isinstance(value, AtEnd) or is_taken(value)


def _part_of(found: Sequence[pytree.Found]) -> str:
    """The paths of what is made when the program has ended."""
    return ", ".join(f.path for f in found if isinstance(f.value, AtEnd))


def _output_term(graph: TermGraph, path: str, value: Any) -> Term:
    if isinstance(value, Tracer):
        value = value.within(graph)
    if isinstance(value, Term):
        if value.graph is not graph:
            raise TraceError(
                f"{path} was made while tracing another function{at(caller_line())}"
            )
        return value
    if isinstance(value, (Traced, Spec)):
        raise TraceError(
            f"{path} is {an(type(value).__name__)}, not an array{at(caller_line())}"
        )
    refuse_outside(value, path)
    dtype_of_array(path, value)
    if isinstance(value, np.ndarray):
        refuse_subclass(type(value), path)
    return constant(graph, to_numpy(value))


def _is_number(value: Any) -> bool:
    """Whether NumPy has one of its numbers for a result."""
    if isinstance(value, Tracer):
        return not (value.has_value or value.is_array)
    return isinstance(value, np.generic)


def _check_arguments(
    given: Arguments, passed: Any, stand_ins: Sequence[Tracer]
) -> None:
    """Refuse a function that replaced a part of its arguments."""
    most = pytree.MOST_DEPTH + 2  # arguments by position and by name, and both
    found, structure = pytree.flatten(passed, is_taken, most_depth=most)
    if structure != given.structure:
        raise TraceError(
            "the function changed an argument; the caller would not see it\n"
            f"  copy the dict or list first, and return it{at(caller_line())}"
        )
    for leaf, now, before in zip(given.leaves, found, stand_ins, strict=True):
        if now.value is not before:
            raise TraceError(
                f"the function replaced argument {leaf.path}; the caller would not "
                f"see it\n  return the new value{at(caller_line())}"
            )


def _check_plain(out_tree: pytree.Structure) -> None:
    for path, value in pytree.statics(out_tree, "result"):
        if not isinstance(value, _PLAIN):
            if hasattr(value, "close"):
                value.close()
            raise TraceError(
                f"{path} is {an(repr(type(value).__name__))}; a traced function "
                "returns arrays, numbers, strings, None, and dicts, lists, tuples and "
                f"dataclasses of them{at(caller_line())}"
            )
        if isinstance(value, str) and "Tracer(shape=" in value:
            raise TraceError(
                f"{path} is a text of an array whose values are not known while "
                f"tracing: {value!r}\n  return the array, and format the result"
                f"{at(caller_line())}"
            )


def _strides(call: Arguments, place: int) -> tuple[int, ...]:
    """How an input of a call lies in memory, along axes of several elements."""
    leaf = [leaf for leaf in call.leaves if not leaf.constant][place]
    pairs = zip(strides_of(_as_numpy(leaf)), leaf.shape, strict=True)
    return tuple(step for step, n in pairs if n > 1)


def _as_numpy(leaf: Leaf) -> Any:
    """The array of an argument, or what tells its shape and dtype as NumPy's does."""
    return leaf.value if isinstance(leaf.value, np.ndarray) else leaf


class _Constants(dict[int, "np.ndarray[Any, Any]"]):
    """The arrays that a trace uses, with what they held when it first used them."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, Contents] = {}
        """Those that can change."""
        self._lines: dict[int, SourceLine | None] = {}
        self._seen: Seen = {}

    def __setitem__(self, key: int, array: np.ndarray[Any, Any]) -> None:
        if key not in self and array.size and not is_immutable(array):
            self.held[key] = Contents(array, self._seen)
            self._lines[key] = caller_line()
        super().__setitem__(key, array)

    def check(self) -> None:
        """Raise :class:`TraceError` when an array has changed since."""
        seen: Seen = {}
        for key, contents in self.held.items():
            if not contents.is_current(seen):
                raise TraceError(
                    f"an array of shape {self[key].shape} was changed in place after "
                    "the program used it as a constant\n"
                    f"  make a copy there: x.copy(){at(self._lines[key])}"
                )
