"""What users write their own tests with: strategies and assertions."""

from __future__ import annotations

import doctest
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from natives import run_in_child
from sizes import examples

import eqsat as eq
from eqsat.checking.bounds.error_bounds import Analysis
from eqsat.support.error_interval import Range
from eqsat.terms.signature import broadcast, parse
from eqsat.terms.term import postorder
from eqsat.testing import (
    Agreement,
    Computed,
    DrawnProgram,
    agreement,
    arrays,
    assert_equivalent,
    equivalent,
    programs,
    random_program,
)
from eqsat.trace.trace import trace

BF16 = np.dtype(ml_dtypes.bfloat16)
SIGNATURES = ("m k, k n, n", "... m k, ... k n", "b c h w, c", ", ... n", "3 n, n")


# -- arrays ----------------------------------------------------------------------------


@given(st.data(), st.sampled_from(SIGNATURES))
def test_arrays_fit_their_signature(data: st.DataObject, text: str) -> None:
    drawn = data.draw(arrays(text))
    parse(text).bind([a.shape for a in drawn], "test")
    assert all(a.dtype == np.float32 and np.isfinite(a).all() for a in drawn)


def test_named_axes_differ_and_some_are_unusual() -> None:
    def sizes(drawn: Any) -> tuple[int, int, int]:
        return (*drawn[0].shape, drawn[1].shape[1])

    both = arrays("m k, k n")
    assert find(both, lambda a: len({*sizes(a)}) == 3)
    assert 0 in sizes(find(both, lambda a: 0 in sizes(a)))
    assert 1 in sizes(find(both, lambda a: 1 in sizes(a)))


def test_ellipses_broadcast_in_every_way() -> None:
    def ways(drawn: Any) -> bool:
        x, y = (a.shape[:-1] for a in drawn)
        return x != y and len(x) > 1 and broadcast(x, y) is not None

    x, y = find(arrays("... n, ... n"), ways)
    assert (x + y).ndim == max(x.ndim, y.ndim)


def test_dtypes_and_values_are_as_asked_for() -> None:
    x, i, b = find(arrays("n, n, n", ["bfloat16", "int8", bool]), lambda a: a[1].size)
    assert (x.dtype, i.dtype, b.dtype) == (BF16, np.int8, np.bool_)
    assert not np.isfinite(
        find(arrays("n", elements="special"), lambda a: not np.isfinite(a[0]).all())
    ).all()
    with pytest.raises(eq.OptionError, match="elements='odd': expected one of"):
        find(arrays("n", elements="odd"), lambda a: True)
    with pytest.raises(eq.OptionError, match="2 dtypes for the 1 array of 'n'"):
        find(arrays("n", ["f4", "f4"]), lambda a: True)


def test_arrays_shrink_to_few_elements() -> None:
    (x,) = find(arrays("m n"), lambda a: a[0].size > 0)
    assert x.size <= 6


# -- programs --------------------------------------------------------------------------


@examples(30)
@given(programs())
def test_programs_run_and_are_code(program: DrawnProgram) -> None:
    seen: dict[str, Any] = {}
    exec(str(program), seen)
    again = [seen[n] for n in program.arguments]
    for a, b in zip(program.inputs, again, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
        assert a.flags.writeable == b.flags.writeable
    first, second = trace(program.function, program.inputs), program(*again)
    assert [t.type for t in first.outputs] == [(a.dtype, a.shape) for a in second]


REACH = """
import eqsat as eq
from eqsat.op import Op
from eqsat.terms import postorder
from eqsat.testing import random_program
from eqsat.trace import trace

reached, held = set(), set()
for i in range(2000):
    program = random_program(i)
    outputs = trace(program.function, program.inputs).outputs
    reached |= {t.op.name for t in postorder(outputs)}
    held |= program.rules
kinds = ("fused", "leaf", "kernel")
ours = {o.name for o in Op.registry.values() if o.kind not in kinds}
assert len(ours - reached) < 0.08 * len(ours), ours - reached
assert len(held) > 0.8 * len(eq.default_rules())
"""


@pytest.mark.slow
def test_programs_reach_the_whole_catalogue() -> None:
    run_in_child(REACH)  # where no test has added ops, which programs would draw


def test_programs_use_the_ops_and_dtypes_that_are_given() -> None:
    for i in range(40):
        program = random_program(i, ops=["add", "tanh", "max"], dtypes=["float64"])
        outputs = trace(program.function, program.inputs).outputs
        used = {t.op.name for t in postorder(outputs) if t.args}
        assert used <= {"add", "tanh", "max"}
        assert {a.dtype for a in program.inputs} <= {np.dtype("f8"), np.dtype(bool)}
    with pytest.raises(eq.OptionError, match="there is no op 'tan_h'"):
        random_program(0, ops=["tan_h"])


@pytest.mark.slow
def test_programs_shrink_with_hypothesis() -> None:
    def has_sum(program: DrawnProgram) -> bool:
        return "ops.sum(" in program.source

    program = find(programs(), has_sum, settings=settings(max_examples=2000))
    assert len(program.rules) <= 1 and len(program.steps) <= 6
    assert sum(a.size for a in program.inputs) <= 12


# -- agreement -------------------------------------------------------------------------


def judged(f: Any, *inputs: Any, by: float = 0.0) -> Agreement:
    """What comparing ``f`` with itself plus ``by`` finds."""
    terms = trace(f, inputs).outputs
    with np.errstate(all="ignore"):
        exact = [np.asarray(f(*inputs))]
        moved = [(a + a.dtype.type(by)).astype(a.dtype) for a in exact]
    return agreement(Computed(exact, terms, inputs), Computed(moved, terms, inputs))


def test_a_difference_beyond_rounding_is_told() -> None:
    x = np.float32([1.0, 2.0, 3.0])
    assert judged(np.exp, x) == Agreement("", 3, 0)
    assert not judged(np.exp, x, by=1e-7).reason
    assert "rounding explains" in judged(np.exp, x, by=1e-4).reason
    assert (
        "1 and 2 at (0,) differ" in judged(lambda i: i * i, x.astype(int), by=1).reason
    )


def test_integers_keep_their_dtype_beside_numbers() -> None:
    """100 + 100 is -56 in int8; as floats it would be 200."""
    x = np.array([100], np.int8)
    (term,) = trace(lambda x: ((x + 100) & 15) * 1.0, [x]).outputs
    assert Analysis([x], Range(1e4)).ball(term).value == 8.0


def test_what_rounding_decides_is_undecided() -> None:
    x = np.float32([0.1, 5.0])
    assert judged(lambda x: x * 3 > 0.3, x).undecided == 1
    assert judged(lambda x: np.sqrt(x * 3 - 0.3), x).undecided == 0
    assert judged(lambda x: np.take(x, np.argmax(x - x * 0.3)), x).undecided == 0
    near = judged(lambda x: np.take(x, np.argmax(np.stack([x[0] * 3, 0.3]))), x)
    assert near.undecided == 1


def test_views_carry_what_rounding_decides() -> None:
    x = np.float32([0.1, 5.0])
    found = judged(lambda x: np.concatenate([x * 3 > 0.3, x > 1]), x)
    assert (found.elements, found.undecided) == (4, 1)


# Deep programs are compiled in graph/test_graph.py every time.
@pytest.mark.slow
def test_programs_may_be_deeper_than_the_stack() -> None:
    def f(x: Any) -> Any:
        for i in range(2000):
            x = np.tanh(x + i % 3)
        return x

    found = judged(f, np.float32([0.5]))
    assert (found.reason, found.elements) == ("", 1)


def test_infinite_values_are_exact() -> None:
    """A mask of -∞ leaves the rest of a softmax as certain as it was."""
    x = np.float32([[0.5, 1.5, 2.5]])
    keep = np.array([[True, False, True]])
    f = lambda x, k: eq.softmax(np.where(k, x * 0.3, -np.inf))  # noqa: E731
    (term,) = trace(f, [x, keep]).outputs
    (ball,) = Analysis([x, keep], Range(1e4)).balls([term])
    assert ball.value[0, 1] == 0 and (ball.error < 1e-5).all()


@pytest.mark.parametrize("ufunc", [np.logaddexp, np.logaddexp2])
def test_a_larger_operand_and_a_logarithm_may_cancel(ufunc: Any) -> None:
    x = np.array([-1.0, -np.log(2.0), -np.inf, 3.0])
    for by in (1e-16, -1e-16):
        assert not judged(lambda x: ufunc(x, x), x, by=by).reason
    assert judged(lambda x: ufunc(x, x), x, by=1e-14).reason


def test_numbers_of_float64_may_be_rounded() -> None:
    """(x - 1) + 0.1 = x - 0.9, where 0.9 is the rounded sum of the numbers."""
    x = np.array([0.9127724256380558])
    rules = eq.default_rules()
    fast = eq.jit(lambda x: (x + -1.0) + 0.1, rules=rules)
    low = fast.lower(x)
    written = Computed([(x + -1.0) + 0.1], low.trace.outputs, [x])
    assert not agreement(written, Computed([fast(x)], low.term, [x])).reason
    assert fast(x) != (x + -1.0) + 0.1


# -- equivalence -----------------------------------------------------------------------


def test_equivalent_functions_pass() -> None:
    def plain(x, w, b):  # type: ignore[no-untyped-def]
        h = x @ w + b
        return {"y": h / (1 + np.exp(-h)), "h": [h]}

    fast = eq.jit(plain)
    assert_equivalent(plain, fast, "m k, k n, n", examples=20)
    assert_equivalent(plain, fast, "m k, k n, n", dtype="float16", examples=20, seed=3)
    assert_equivalent(np.add, lambda x, y: y + x, "..., ...", "exact")


@pytest.mark.parametrize(
    ("f", "g", "numerics", "said"),
    [
        (np.sinh, np.tanh, "reassociate", "sinh and tanh differ"),
        (np.tanh, lambda x: np.tanh(x) + 1e-4, "approximate(1e-6)", "differ by"),
        (lambda x: x * 3 / 3, lambda x: x, "exact", "not the same bits"),
        (lambda x: x, lambda x: x.astype("f8"), "exact", "the types differ: float32"),
        (lambda x: x, lambda x: (x, x), "exact", "the results nest differently"),
        (lambda x: x, lambda x: x @ x, "reassociate", "g fails where f does not"),
        (lambda x: x.reshape(1000, 2), np.sin, "exact", "f takes no arrays of 'm n'"),
    ],
    ids=range(7),
)
def test_different_functions_fail(f: Any, g: Any, numerics: str, said: str) -> None:
    signature = "m n" if "m n" in said or "fails" in said else "n"
    with pytest.raises(AssertionError, match=re.escape(said)):
        assert_equivalent(f, g, signature, numerics)


def test_a_tolerance_allows_more() -> None:
    assert_equivalent(np.tanh, lambda x: np.tanh(x) + 1e-4, "n", "approximate(1e-3)")


def test_the_smallest_counterexample_is_code() -> None:
    def wrong(x):  # type: ignore[no-untyped-def]
        return np.where(x > 1.5, x, np.maximum(x, 0))

    def relu(x):  # type: ignore[no-untyped-def]
        return np.where(x > -1.5, np.maximum(x, 0), x)

    with pytest.raises(AssertionError) as caught:
        assert_equivalent(wrong, relu, "m n")
    text = str(caught.value)
    first, code = text.split("\n\n")
    assert first.startswith("wrong and relu differ: ")
    seen: dict[str, Any] = {"wrong": wrong, "relu": relu}
    exec(code, seen)
    x = seen["x0"]
    assert x.size <= 6 and not np.array_equal(wrong(x), relu(x))
    with pytest.raises(AssertionError, match=re.escape(text)):
        assert_equivalent(wrong, relu, "m n")


def test_what_cannot_be_traced_is_an_error_that_says_so() -> None:
    def branches(x):  # type: ignore[no-untyped-def]
        return x if x.sum() > 0 else -x

    with pytest.raises(eq.TraceError):
        assert_equivalent(branches, np.abs, "n")
    with pytest.raises(AssertionError, match="branches and absolute differ"):
        assert_equivalent(branches, np.abs, "n", "exact")


def test_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(equivalent) == (0, 2)
