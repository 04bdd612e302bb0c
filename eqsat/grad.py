"""Gradients of functions: ``eq.grad`` and ``eq.value_and_grad``.

The function is traced on leaves of its own, the scalar that it returns is
differentiated (:mod:`eqsat.reverse`), and :func:`eqsat.jit` makes one program of all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

from eqsat.jit import Jit, P, R, jit
from eqsat.numpy_api import AtEnd
from eqsat.reverse import gradients
from eqsat.rulelang import Rule, RuleSet
from eqsat.support import (
    DTypeError,
    OptionError,
    Options,
    ShapeError,
    TraceError,
    an,
    at,
    caller_line,
    pytree,
    unwatched,
)
from eqsat.terms import INPUT, Term, TermGraph, constant, is_complex, is_float
from eqsat.trace import (
    Refusal,
    Tracer,
    argument_names,
    dtype_of_array,
    is_array,
    rebuilt,
    to_numpy,
)

Which = int | str | Sequence[int | str]


class How(TypedDict, total=False):
    """Keywords of :func:`eqsat.jit`."""

    backend: str | None
    rules: RuleSet | Iterable[Rule] | None
    options: Options | None
    constants: Collection[str | int]


@overload
def grad(
    fn: Callable[P, Any], argnums: Which = 0, **how: Unpack[How]
) -> Jit[P, Any]: ...
@overload
def grad(
    fn: None = None, argnums: Which = 0, **how: Unpack[How]
) -> Callable[[Callable[P, Any]], Jit[P, Any]]: ...
def grad(fn: Any = None, argnums: Which = 0, **how: Unpack[How]) -> Any:
    """The gradient of ``fn`` by the arguments ``argnums``: ∂fn/∂x for each array x.

    ``fn`` returns an array of one number of a floating dtype. ``argnums`` is the
    position or the name of an argument, or several of them; the gradient is nested as
    that argument is (dicts, lists, tuples and dataclasses of arrays), or a tuple of
    these, and each array has the shape and dtype of the one that it is for. What is no
    array stays as it is. The other keywords are those of :func:`eqsat.jit`: the result
    is a jitted function, so forward and backward are one program, and it can be called
    in traced functions and be differentiated again.

    The gradient by a complex array z = a + b i is ∂fn/∂a + i ∂fn/∂b, as torch has it
    (JAX has its conjugate): z - t g lowers the loss for small t. The loss is real.

    Where a function has no derivative: ``abs``, ``relu``, ``hypot`` and norms have 0 at
    0, as has ``std`` of equal values, and √ of what is written as a sum of squares;
    ``maximum``, ``minimum``, ``max`` and ``min`` share it equally between equals, as
    does ``logaddexp`` between equal infinities; rounding and comparison have 0
    everywhere. √x has ∞ at 0. Eigenvectors and singular vectors of equal values have
    NaN; the values, and vectors of other values beside them, have their derivative.

    What a select does not choose (``where``, ``select``, ``clip``, ``maximum``,
    ``relu``, ``max``, ``sum(..., where=)``, a write under a mask) has 0, be the slope
    behind it infinite or NaN: ``np.where(x > 0, np.sqrt(x), 0)`` has 0 at 0. This holds
    through functions of elements, broadcasting, reductions, views, ``take``, running
    sums, sorting, softmax and normalisations. A product of matrices, a convolution and
    a factorisation mix elements: what lies before them counts, unless all of their
    result is hidden by one condition. An index, a slice and a product with 0
    choose nothing: ``np.sqrt(x)[1:]`` has NaN at x[0] = 0, ``np.sqrt(x[1:])`` has 0.

    Raises :class:`TraceError` for an operation without a derivative,
    :class:`ShapeError` and :class:`DTypeError` for a loss that is no floating number,
    :class:`DTypeError` for an array of ``argnums`` that is not of floats, and
    :class:`OptionError` for ``argnums`` that are no argument.

    >>> import numpy as np
    >>> loss = lambda p, x: ((x @ p["w"] + p["b"]) ** 2).mean()
    >>> p = {"w": np.ones(3), "b": np.zeros(2)}
    >>> grad(loss)(p, np.ones((2, 3)))
    {'w': array([6., 6., 6.]), 'b': array([3., 3.])}
    """
    if fn is None:
        return functools.partial(grad, argnums=argnums, **how)
    return jit(Gradient(fn, argnums, False), **how)


@overload
def value_and_grad(
    fn: Callable[P, R], argnums: Which = 0, **how: Unpack[How]
) -> Jit[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    fn: None = None, argnums: Which = 0, **how: Unpack[How]
) -> Callable[[Callable[P, R]], Jit[P, tuple[R, Any]]]: ...
def value_and_grad(fn: Any = None, argnums: Which = 0, **how: Unpack[How]) -> Any:
    """The pair of what ``fn`` returns and its gradient, in one program.

    ``argnums``, the other keywords and errors are those of :func:`grad`.

    >>> import numpy as np
    >>> value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    if fn is None:
        return functools.partial(value_and_grad, argnums=argnums, **how)
    return jit(Gradient(fn, argnums, True), **how)


@dataclass(frozen=True)
class _Arguments:
    """With what a function is called to be differentiated."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[Term, Term]
    """Leaves of its own, and the terms that they stand for."""
    structures: list[pytree.Structure]
    """How the arrays are nested in each argument that it is differentiated by."""
    graph: TermGraph


class Gradient(pytree.Made):
    """The function that :func:`grad` jits: it is called with traced arrays, and records
    what ``fn`` does and its gradient."""

    def __init__(self, fn: Callable[..., Any], argnums: Which, valued: bool) -> None:
        if not callable(fn):
            raise OptionError(f"grad: expected a function, got {type(fn).__name__!r}")
        self.fn = fn.fn if isinstance(fn, Jit) else fn
        self.valued = valued
        self.one = isinstance(argnums, (int, str))
        self.argnums = _several(argnums)
        functools.update_wrapper(self, self.fn, updated=())
        self.called = str(getattr(self.fn, "__name__", type(self.fn).__name__))
        self.__name__ = f"grad of {self.called}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with unwatched(but_users=True):
            found = self._arguments(args, kwargs)
        loss = self.fn(*found.args, **found.kwargs)
        with unwatched(but_users=True):
            return self._gradient(loss, found)

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Arguments:
        """The arguments of ``fn``, with leaves of their own in place of arrays that it
        is differentiated by."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs)
        places = self._places(given, len(args))
        nested = [
            pytree.flatten(given[k], is_array, name) for k, name in places.items()
        ]
        for name, (found, structure) in zip(places.values(), nested, strict=True):
            _check(name, found, structure)
        graph = next(
            v.term.graph
            for _, v in pytree.flatten(given, is_array)[0]
            if isinstance(v, Tracer) and not v.has_value
        )
        before = [_term_of(graph, v) for found, _ in nested for _, v in found]
        leaves = [_leaf(graph, t) for t in before]
        arrays = iter(leaves)
        for k, (_, structure) in zip(places, nested, strict=True):
            made = (Tracer(leaf, True) for leaf in arrays)
            given[k] = pytree.unflatten(structure, made)
        given = _unwritten(given, argument_names(self.fn, len(args)))
        return _Arguments(
            tuple(given[i] for i in range(len(args))),
            {k: given[k] for k in kwargs},
            dict(zip(leaves, before, strict=True)),
            [structure for _, structure in nested],
            graph,
        )

    def _gradient(self, loss: Any, by: _Arguments) -> Any:
        """What :func:`grad` or :func:`value_and_grad` returns of the loss."""
        parts = gradients(self._scalar(by.graph, loss), list(by.leaves))
        value, *rest = rebuilt(parts, by.leaves)
        arrays = iter(rest)
        each = tuple(pytree.unflatten(s, map(Tracer, arrays)) for s in by.structures)
        gradient = each[0] if self.one else each
        return (Tracer(value), gradient) if self.valued else gradient

    def _places(self, given: Collection[int | str], count: int) -> dict[int | str, str]:
        """Where the arguments are that are asked for, and what they are called."""
        names = argument_names(self.fn, count)
        found: dict[int | str, str] = {}
        for asked in self.argnums:
            n = asked
            if isinstance(n, str) and n in names:
                n = names.index(n)
            elif isinstance(n, int) and n >= count:
                n = argument_names(self.fn, n + 1)[n]
            if n not in given or n in found:
                why = "is there twice" if n in found else "is not given"
                called = ", ".join([*names, *(k for k in given if isinstance(k, str))])
                raise OptionError(
                    f"grad: argnums={self.argnums}: {asked!r} {why} in the call "
                    f"{self.called}({called}){at(caller_line())}"
                )
            found[n] = names[n] if isinstance(n, int) else n
        return found

    def _scalar(self, graph: TermGraph, loss: Any) -> Term:
        """The term of the loss. Raises what :func:`grad` says."""
        if isinstance(loss, AtEnd):
            loss.refuse("the gradient")
        called = f"grad: {self.called!r} returns the loss, which"
        if not is_array(loss):
            raise TraceError(
                f"{called} is {an(repr(type(loss).__name__))}, expected an array of "
                f"one number{at(caller_line())}"
            )
        term = _term_of(graph, loss)
        if term.shape != ():
            raise ShapeError(
                f"{called} has shape {term.shape}, expected (); return its .sum() or "
                f".mean(){at(term.source)}"
            )
        if not is_float(term.dtype):
            raise DTypeError(
                f"{called} has dtype {term.dtype}, expected a floating one"
                f"{at(term.source)}"
            )
        return term


def _several(argnums: Which) -> tuple[int | str, ...]:
    several = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not several or not all(
        isinstance(n, str) or (type(n) is int and n >= 0) for n in several
    ):
        raise OptionError(
            f"grad: argnums={argnums!r}, expected a position from 0 on, the name of an "
            "argument, or several of these"
        )
    return tuple(several)


def _check(
    name: str, found: Sequence[pytree.Found], structure: pytree.Structure
) -> None:
    """Raise unless a gradient by this argument has a meaning in all of it."""
    for path, value in found:
        dtype = dtype_of_array(f"argument {path}", value)
        if not is_float(dtype) and not is_complex(dtype):
            raise DTypeError(
                f"grad: argument {path} has dtype {dtype}, expected a floating one\n"
                f"  pass it in an argument that is not in argnums, or as floats: "
                f"x.astype(float){at(caller_line())}"
            )
    others = list(pytree.statics(structure, name))
    for path, value in others:
        if type(value) is float or (type(value) is int and not found):
            raise DTypeError(
                f"grad: argument {path} is the Python number {value}, a part of the "
                f"program, expected an array\n"
                f"  pass np.float64({value}) or another dtype, or leave it out of "
                f"argnums{at(caller_line())}"
            )
    if not found and others and pytree.held_by(others[0].value):
        path, value = others[0]
        raise DTypeError(
            f"grad: argument {path} is {an(repr(type(value).__name__))}, whose "
            f"arrays are parts of the program, expected arrays\n"
            f"  pass a dict, list, tuple or dataclass of them, or leave it out of "
            f"argnums{at(caller_line())}"
        )
    if not found:
        raise DTypeError(
            f"grad: argument {name} holds no array, expected one of floats"
            f"{at(caller_line())}"
        )


def _term_of(graph: TermGraph, value: Any) -> Term:
    value = value.within(graph) if isinstance(value, Tracer) else value
    return value if isinstance(value, Term) else constant(graph, to_numpy(value))


def _unwritten(
    given: Mapping[int | str, Any], names: Sequence[str]
) -> dict[int | str, Any]:
    """Arguments by position or name, with traced arrays that refuse to be written
    to."""
    made = {}
    for k, value in given.items():
        name = names[k] if isinstance(k, int) else k
        found, structure = pytree.flatten(value, is_array, name)
        made[k] = pytree.unflatten(structure, (_fixed(f.path, f.value) for f in found))
    return made


def _fixed(path: str, value: Any) -> Any:
    if not isinstance(value, Tracer) or value.has_value:
        return value
    why = f"would change the caller's argument {path}; a gradient cannot"
    return Tracer.fixed(value.term, Refusal(TraceError, why), value.is_array)


def _leaf(graph: TermGraph, like: Term) -> Term:
    """A leaf that is no other term, not even one of the same value: what ``fn`` closes
    over is constant here."""
    return graph.node(INPUT, (), (-1 - len(graph.terms),), like.type)
