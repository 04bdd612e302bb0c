"""Assertions that two functions, or a program and its optimised form, agree."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hypothesis
import numpy as np

from eqsat.checking import UNDEFINED, array_code, fitting_shapes
from eqsat.jit import Jit
from eqsat.rulelang import evaluate, tolerance
from eqsat.support import Array, RecompileWarning, TraceError, pytree
from eqsat.terms import BF16, Term, parse
from eqsat.testing.agreement import Agreement, Computed, agreement
from eqsat.testing.drawn import DrawnProgram, quiet
from eqsat.testing.fuzzing import as_dtype
from eqsat.testing.pressing import pressed_arrays, smaller
from eqsat.testing.strategies import ELEMENTS, arrays
from eqsat.trace import flatten_arguments, is_array, trace


def optimised_agreement(
    program: DrawnProgram, fast: Jit, numerics: str = "reassociate"
) -> Agreement:
    """Whether ``fast`` computes of the inputs of ``program`` what its references do.

    ``fast`` is ``eqsat.jit(program.function, …)``, with any backend, rules and options,
    of which ``numerics`` is the class.
    """
    with quiet():
        low = fast.lower(*program.inputs)
        made = fast(*program.inputs)
        written = evaluate(low.trace.outputs, program.variables)
    return agreement(
        Computed(written, low.trace.outputs, program.variables),
        Computed(made, low.term, program.variables),
        numerics,
    )


def assert_equivalent(
    f: Callable[..., Any],
    g: Callable[..., Any],
    signature: str,
    numerics: str = "reassociate",
    *,
    dtype: Any = "float32",
    elements: str | Sequence[str] = ELEMENTS,
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Assert that ``f`` and ``g`` agree on drawn arrays, as a rule's sides must.

    ``signature``, ``dtype`` and ``elements`` are those of :func:`arrays`; ``examples``
    cases are drawn, the same ones for the same ``seed``. Unless you name ``elements``,
    those cases follow in which the check of rules presses a rule: numbers beside each
    other, factors whose product no dtype holds, and what the numbers in ``f`` and ``g``
    lead to. NaN and infinities are drawn where you name them. Each function is called
    on the arrays as it is, a function made by :func:`eqsat.jit` too. ``numerics``:
    ``exact`` wants the same bits; ``reassociate`` that floating results differ by no
    more than the rounding of both computations explains; ``approximate(tol)`` allows
    ``tol`` max(1, \\|x\\|) more. For the last two, both functions must be traceable:
    the bounds are derived from their terms, and bools and integers that rounding
    decides are not compared.

    Where ``f`` refuses the arrays, nothing is asked of ``g``. Raises
    :class:`AssertionError` with the smallest counterexample as code, also when ``f``
    takes none of the arrays, and :class:`TraceError` for a function that cannot be
    traced.

    >>> import numpy as np
    >>> assert_equivalent(lambda x: np.exp(-x), lambda x: 1 / np.exp(x), "n")
    """
    tolerance(numerics)  # which refuses what is no class
    met = itertools.count()

    def test(drawn: tuple[Array, ...]) -> None:
        done = _results(f, drawn)
        hypothesis.assume(not isinstance(done, Exception))
        next(met)
        reason = _difference(f, g, drawn, done, numerics)
        if reason:
            raise AssertionError(_as_code(f, g, drawn, reason))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)  # of drawn shapes
        _run(test, arrays(signature, dtype, elements), examples, seed)
        if elements is ELEMENTS:
            _press(f, g, signature, dtype, numerics, seed)
    if not next(met):
        raise AssertionError(f"{_name(f, 'f')} takes no arrays of {signature!r}")


def _press(
    f: Callable[..., Any],
    g: Callable[..., Any],
    signature: str,
    dtype: Any,
    numerics: str,
    seed: int,
) -> None:
    """Compare ``f`` and ``g`` where the check of rules presses the sides of a rule."""

    def difference(drawn: tuple[Array, ...]) -> str:
        done = _results(f, drawn)
        if isinstance(done, Exception):
            return ""
        return _difference(f, g, drawn, done, numerics)

    axes = parse(signature).inputs
    many = isinstance(dtype, (list, tuple))
    dtypes = [*map(as_dtype, dtype)] if many else [as_dtype(dtype)] * len(axes)
    plain = fitting_shapes(axes, lambda n: 0, batch=[3], unusual=(None,))
    ones = [np.ones(s, d) for s, d in zip(plain, dtypes, strict=True)]
    terms: list[Term] = []
    for h in (f, g):
        with suppress(Exception), quiet():  # what cannot be traced names no numbers
            terms += _terms(h, ones, "reassociate")[0]
    for drawn in pressed_arrays(axes, dtypes, terms, seed):
        if difference(drawn):
            small = smaller(axes, drawn, lambda part: bool(difference(part)))
            raise AssertionError(_as_code(f, g, small, difference(small)))


def _run(
    test: Callable[..., None],
    strategy: hypothesis.strategies.SearchStrategy[Any],
    examples: int,
    seed: int,
) -> None:
    """Call ``test`` on values drawn by a seed; raise what it raised of the smallest."""
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    drawn = hypothesis.given(strategy)(test)
    try:
        hypothesis.seed(seed)(settings(drawn))()
    except hypothesis.errors.Unsatisfiable:
        return
    except AssertionError as error:
        raise AssertionError(str(error)) from None


def _results(f: Callable[..., Any], drawn: Sequence[Array]) -> Any:
    """What ``f`` computes of copies of the arrays, or the error that it raises."""
    with quiet():
        try:
            return f(*(a.copy() for a in drawn))
        except TraceError:
            raise
        except UNDEFINED as error:
            return error


def _difference(
    f: Callable[..., Any],
    g: Callable[..., Any],
    drawn: Sequence[Array],
    done: Any,
    numerics: str,
) -> str:
    other = _results(g, drawn)
    if isinstance(other, Exception):
        why = str(other).splitlines()[0]
        return f"{_name(g, 'g')} fails where {_name(f, 'f')} does not: {why}"
    left, structure = pytree.flatten(done, is_array, "result")
    right, nested = pytree.flatten(other, is_array, "result")
    if structure != nested:
        return "the results nest differently"
    one, two = (
        Computed([leaf.value for leaf in found], *_terms(h, drawn, numerics))
        for found, h in ((left, f), (right, g))
    )
    return agreement(one, two, numerics, strict=True).reason


def _terms(h: Callable[..., Any], drawn: Sequence[Array], numerics: str) -> Any:
    """The terms that ``h`` is computed by, and their inputs; none for ``exact``."""
    if numerics == "exact":
        return (), ()
    if isinstance(h, Jit):
        call = flatten_arguments(h.fn, drawn, {}, h.constants)
        return h.lower(*drawn).term, call.arrays
    return trace(h, drawn).outputs, drawn


def _name(f: Callable[..., Any], default: str) -> str:
    name = str(getattr(f, "__name__", default))
    return name if name.isidentifier() else default


def _as_code(
    f: Callable[..., Any], g: Callable[..., Any], drawn: Sequence[Array], why: str
) -> str:
    names = [f"x{i}" for i in range(len(drawn))]
    lines = [f"{_name(f, 'f')} and {_name(g, 'g')} differ: {why}", ""]
    lines.append("import numpy as np")
    if any(a.dtype == BF16 for a in drawn):
        lines.append("from ml_dtypes import bfloat16")
    lines += [f"{n} = {array_code(a)}" for n, a in zip(names, drawn, strict=True)]
    for h, default in ((f, "f"), (g, "g")):
        shown = repr(_results(h, drawn)).replace("\n", "\n# ")
        lines.append(f"{_name(h, default)}({', '.join(names)})")
        lines.append(f"# {shown[:400]}")
    return "\n".join(lines)
