"""Generated Metal and CUDA kernels on a model of a GPU, against the references of the
ops; and wrong kernels, which the model catches."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import bodies
import numpy as np
import pytest
from agreement import drawn
from metal import model
from programs import assert_near, program_of
from test_backend_numpy import NETWORKS

import eqsat as eq
from eqsat import ops
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.gpu_program import (
    Generated,
    KernelOperand,
    LibraryCall,
    parts_of,
)
from eqsat.backends.loop_ir.index_maps import Unsupported
from eqsat.backends.numpy import evaluate, interpret
from eqsat.kernels.kernel import Kernel
from eqsat.kernels.program import Program
from eqsat.terms.term import Term
from eqsat.terms.type_rules import BF16
from eqsat.testing import Computed, agreement
from eqsat.trace.trace import trace

pytestmark = pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")
rng = np.random.default_rng(0)
Array = np.ndarray[Any, Any]
"""An array."""


class Run:
    """A program whose generated kernels run on the model, the rest by references."""

    def __init__(self, program: Program, language: str) -> None:
        self.program, self.language = program, language
        self.parts: dict[Kernel, list[Any]] = {}
        for kernel in program.kernels:
            try:
                self.parts[kernel] = parts_of(kernel, DIALECTS[language], {})
            except Unsupported:
                continue

    @property
    def units(self) -> list[model.Unit]:
        return [
            unit_of(p, self.language)
            for parts in self.parts.values()
            for p in parts
            if isinstance(p, Generated)
        ]

    def __call__(
        self, arrays: Sequence[Array], functions: dict[model.Unit, Any], seed: int
    ) -> list[Array]:
        values: dict[Any, Array] = dict(zip(self.program.inputs, arrays, strict=True))
        fixed = [*self.program.constants, *self.program.folded]
        values |= {
            t: np.asarray(v) for t, v in evaluate(fixed, {}).items() if t in fixed
        }
        for step in self.program.steps:
            parts = self.parts.get(step) if isinstance(step, Kernel) else None  # type: ignore[arg-type]
            if parts is None:
                terms = step.results if isinstance(step, Kernel) else (step.term,)
                self._by_reference(terms, values)
                continue
            temporaries: dict[int, Array] = {}
            for p in parts:
                if isinstance(p, LibraryCall):
                    self._by_reference([p.term], values)
                else:
                    run_part(p, self.language, values, temporaries, functions, seed)
            for body, r in zip(step.bodies, step.results, strict=True):
                values.setdefault(r, values.get(body))  # type: ignore[arg-type]
        return [values[r] for r in self.program.roots]

    def _by_reference(self, terms: Sequence[Term], values: dict[Any, Array]) -> None:
        found = evaluate(
            list(terms), {t: v for t, v in values.items() if v is not None}
        )
        values |= {t: np.asarray(found[t]) for t in terms}


def kernel_of(program: Program, language: str = "cuda") -> Generated:
    """The only kernel of a program, which is one part."""
    (kernel,) = program.kernels
    (part,) = parts_of(kernel, DIALECTS[language], {})
    assert isinstance(part, Generated)
    return part


def unit_of(p: Generated, language: str) -> model.Unit:
    def described(memory: Sequence[KernelOperand], numbers: Sequence[int]) -> Any:
        return tuple(
            (p.nest.buffers[i].name, m.dtype.name, int(np.prod(m.shape, dtype=int)))
            for m, i in zip(memory, numbers, strict=True)
        )

    s = p.source
    given = described(p.inputs, s.inputs), described(p.outputs, s.outputs)
    return model.Unit(language, s.header, s.body, *given)


def run_part(
    p: Generated,
    language: str,
    values: dict[Any, Array],
    temporaries: dict[int, Array],
    functions: dict[model.Unit, Any],
    seed: int,
) -> None:
    def array(m: KernelOperand) -> Array:
        if m.kind == "table":
            return np.asarray(m.key.array)
        return temporaries[m.key] if m.kind == "temporary" else values[m.key]

    outputs = [np.empty(m.shape, m.dtype) for m in p.outputs]
    function = functions[unit_of(p, language)]
    s = p.source
    model.launched(
        function, [array(m) for m in p.inputs], outputs, s.groups, s.group, seed
    )
    for m, y in zip(p.outputs, outputs, strict=True):
        (temporaries if m.kind == "temporary" else values)[m.key] = y


def draw(*shape: int, dtype: Any = "f4") -> Array:
    return rng.standard_normal(shape).astype(dtype)


def optimised(f: Callable[..., Any], arrays: Sequence[Array]) -> Program:
    return (
        eq.jit(f, backend="numpy", options=eq.Options(deadline_s=60))
        .lower(*arrays)
        .program
    )


Case = tuple[Callable[..., Any], list[Array]]


def cases() -> dict[str, Case]:
    """Programs by name, with arguments."""
    found: dict[str, Case] = {
        name: (f, [draw(*s) for s in shapes]) for name, (f, shapes) in NETWORKS.items()
    }
    for dtype in ("f4", "f2", BF16):
        d = np.dtype(dtype).name
        x, w = draw(5, 64, dtype=dtype), draw(64, dtype=dtype)
        long, v = draw(3, 2048, dtype=dtype), draw(2048, dtype=dtype)
        found |= {
            f"map {d}": (lambda x, w: ops.gelu(x * w) + 1, [x, w]),
            f"map of odd size {d}": (
                lambda x: np.tanh(x) * 2, [draw(1003, dtype=dtype)],
            ),
            f"softmax {d}": (lambda x: ops.softmax(x * 0.5), [long]),
            f"softmax of few {d}": (ops.softmax, [draw(300, 7, dtype=dtype)]),
            f"layer_norm {d}": (ops.layer_norm, [long, v, v]),
            f"rms_norm {d}": (ops.rms_norm, [x, w]),
            f"group_norm {d}": (
                lambda x, g, b: ops.group_norm(x, g, b, groups=2),
                [draw(2, 4, 64, 128, dtype=dtype), *draw(2, 4, dtype=dtype)],
            ),
            f"residual and norm {d}": (
                lambda x, r, w: (x + r, ops.rms_norm(x + r, w)), [long, long, v],
            ),
            f"logsumexp {d}": (ops.logsumexp, [draw(4, 1001, dtype=dtype)]),
            f"columns {d}": (lambda x: np.sum(x, axis=0), [draw(70, 64, dtype=dtype)]),
            f"softmax of columns {d}": (
                lambda x: ops.softmax(x, axis=0), [draw(33, 70, dtype=dtype)],
            ),
            f"all {d}": (lambda x: np.sum(x) / 7, [draw(64, 1024, dtype=dtype)]),
            f"parts of odd size {d}": (
                lambda x: np.sum(x, axis=1), [draw(2, 40001, dtype=dtype) / 64],
            ),
            f"many columns {d}": (
                lambda x: np.max(x, axis=0) * 2, [draw(1024, 40, dtype=dtype)],
            ),
        }  # fmt: skip
    i = rng.integers(-9, 9, (6, 50)).astype("i4")
    found |= {
        "a long row": (ops.softmax, [draw(2, 20000)]),
        "a long row in parts": (ops.softmax, [draw(1, 70000)]),
        "argmax": (lambda x: np.argmax(x, axis=-1), [draw(9, 300)]),
        "argmin of columns": (lambda x: np.argmin(x, axis=0), [draw(90, 30)]),
        "integers": (lambda x: (x // 3, x % -4, x << 2, abs(x), np.sum(x)), [i]),
        "any and all": (lambda x: (np.any(x > 2, axis=1), np.all(x < 2, axis=0)), [i]),
        "transposed": (lambda x: np.tanh(x.T) + 1, [draw(40, 24)]),
        "reversed": (lambda x: np.tanh(x[::-1, ::-2]), [draw(40, 24)]),
        "middle axis": (lambda x: np.sum(x, axis=1), [draw(4, 50, 6)]),
        "both ends": (lambda x: np.sum(x, axis=(0, 2)), [draw(4, 50, 6)]),
        "linear": (
            lambda x, w, b: ops.gelu(x @ w + b), [draw(6, 8), draw(8, 16), draw(16)],
        ),
        "a number": (lambda x: np.tanh(x) * 2, [np.array(0.5, "f4")]),
        "small inputs": (lambda x, w: x * w + 1, [draw(5, 4), draw(4)]),
        "special": (
            lambda x: (ops.softmax(x), np.max(x, axis=1), np.sign(x), np.exp(x)),
            [drawn(3, (40, 24), np.dtype("f4"))],
        ),
    }  # fmt: skip
    return found


CASES = cases()


@pytest.fixture(scope="module", params=["metal", "cuda"])
def built(request: pytest.FixtureRequest) -> Any:
    """All programs with their kernels, compiled at once."""
    runs = {n: Run(optimised(f, xs), request.param) for n, (f, xs) in CASES.items()}
    units = dict.fromkeys(u for r in runs.values() for u in r.units)
    return runs, model.compiled(list(units))


@pytest.mark.parametrize("name", CASES)
def test_programs_on_the_model(name: str, built: Any) -> None:
    runs, functions = built
    f, arrays = CASES[name]
    with np.errstate(all="ignore"):
        want = interpret(trace(f, arrays).outputs, arrays)
        for seed in (0, 3):
            for g, w in zip(runs[name](arrays, functions, seed), want, strict=True):
                assert (g.dtype, g.shape) == (w.dtype, w.shape)
                assert_near(g, w, 4)


def test_most_kernels_are_generated(built: Any) -> None:
    runs, _ = built
    whole = [n for n, r in runs.items() if len(r.parts) == len(r.program.kernels)]
    assert len(whole) >= 0.8 * len(runs), sorted(set(runs) - set(whole))


def random_case(seed: int) -> Case:
    """A random body as one kernel, and arguments."""
    draws = Random(seed)
    shapes = bodies.shapes(draws, 9)
    arrays = [drawn(seed + i, s, np.dtype("f4"), False) for i, s in enumerate(shapes)]
    run: Any = bodies.body(seed, draws.randint(1, 16))
    return bodies.fused_op("nobodys_kernel", run, len(arrays)), arrays


@pytest.mark.parametrize(
    "count",
    [pytest.param(20, id="20"), pytest.param(300, id="300", marks=pytest.mark.slow)],
)
def test_kernels_that_nobody_wrote(count: int) -> None:
    drawn_cases = [random_case(i) for i in range(count)]
    programs = [program_of(f, *xs) for f, xs in drawn_cases]
    runs = [Run(p, ("metal", "cuda")[i % 2]) for i, p in enumerate(programs)]
    functions = model.compiled(list(dict.fromkeys(u for r in runs for u in r.units)))
    assert sum(bool(r.parts) for r in runs) > 0.7 * count
    for i, (run, (_, arrays)) in enumerate(zip(runs, drawn_cases, strict=True)):
        got = run(arrays, functions, i)
        want = interpret(run.program.roots, arrays)
        sides = (Computed(ys, run.program.roots, arrays) for ys in (got, want))
        reason = agreement(*sides).reason
        assert not reason, f"seed {i}: {reason}"


def gelu_and_more(x: Any) -> tuple[Any, Any]:
    return ops.gelu(x), 1 + ops.erf(x)


@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize("dtype", [np.dtype("f2"), BF16], ids=str)
def test_nothing_of_gelu_is_lost_below_zero(dtype: Any, language: str) -> None:
    ends = [-np.inf, np.inf, np.nan, -60000, 60000, -0.0, 0]
    x = np.r_[np.linspace(-5.5, 5.5, 2**12 - len(ends)), ends].astype(dtype)
    bits, least = (8, -134) if dtype == BF16 else (11, -25)
    run = Run(optimised(gelu_and_more, [x]), language)
    assert sum("erf_plus_one(" in u.body for u in run.units) == len(run.units)
    with np.errstate(all="ignore"):
        exact = gelu_and_more(x.astype("f8"))
    for got, want in zip(run([x], model.compiled(run.units), 0), exact, strict=True):
        inside = np.isfinite(want)
        y, w = got.astype("f8"), want[inside]
        assert np.array_equal(y[~inside], want[~inside], equal_nan=True)
        half_unit = 2.0 ** np.maximum(np.frexp(w)[1] - 1 - bits, least)
        near = np.abs(w) * 2.0**-15 + 2.0**-26 * np.abs(x[inside].astype("f8"))
        assert (np.abs(y[inside] - w) <= half_unit + near).all()


# -- wrong kernels ---------------------------------------------------------------------


def generated(
    f: Callable[..., Any], *arrays: Array, language: str = "metal"
) -> Generated:
    """The one kernel of a program."""
    (parts,) = Run(optimised(f, arrays), language).parts.values()
    (part,) = parts
    return part


def agrees(p: Generated, unit: model.Unit, want: Array, *arrays: Array) -> bool:
    """Whether a kernel computes ``want``, whatever the order of the lanes."""
    s = p.source
    for seed in range(6):
        out = np.empty(want.shape, want.dtype)
        model.launched(model.one(unit), arrays, [out], s.groups, s.group, seed)
        if not np.allclose(out, want, rtol=1e-4):
            return False
    return True


SOFTMAX = draw(3, 512)
RETURN = "if (lane == 5) return;\n"
BRANCH = "if (lane < 32) EQ_BARRIER();\n"
PLANTED = {
    "a missing barrier": ("header", "  EQ_BARRIER();\n", ""),
    "too few slots": ("body", "lane, 4)", "lane, 3)"),
    "slots that nobody wrote": ("body", "lane, 4)", "lane, 5)"),
    "a slot not written": ("header", "(lane % 32 == 0) slots", "(lane == 0) slots"),
    "an accumulator not begun": ("body", "float s4 = 0.0f", "float s4 = slots4[0]"),
    "fewer lanes": ("header", "int d = 16;", "int d = 8;"),
    "half of each row": ("body", "own * 4", "own % 64 * 4"),
    "a row beyond": ("body", "row = group;", "row = group + 1;"),
    "a lane that returns": ("body", "const uint row", f"{RETURN}const uint row"),
    "a barrier in a branch": ("body", "float s4", f"{BRANCH}float s4"),
    "a write before": ("body", "eq_store<4>(b1 +", "eq_store<4>(b1 - 4 +"),
}


@pytest.mark.parametrize("name", ["", *PLANTED])
def test_wrong_kernels_are_caught(name: str) -> None:
    p = generated(ops.softmax, SOFTMAX)
    unit = unit_of(p, "metal")
    want = np.asarray(ops.softmax(SOFTMAX))
    if not name:
        assert agrees(p, unit, want, SOFTMAX)
        return
    part, old, new = PLANTED[name]
    text = getattr(unit, part)
    assert old in text, text
    unit = replace(unit, **{part: text.replace(old, new)})
    try:
        assert not agrees(p, unit, want, SOFTMAX)
    except model.ModelError as error:
        assert re.search("buffer|barrier|shuffle", str(error))


@pytest.mark.parametrize("language", ["metal", "cuda"])
def test_a_load_that_slices_may_not_have_is_caught(language: str) -> None:
    x = draw(4, 64)
    p = generated(lambda x: np.tanh(x) + 1, x, language=language)
    unit = unit_of(p, language)
    assert agrees(p, unit, np.tanh(x) + 1, x)
    load, wrong = {
        "metal": ("= eq_load<4>(b0", "= *(const EQ_GLOBAL EqPack<float, 4>*)(b0"),
        "cuda": ("run(EqWhole<false>())", "run(EqWhole<true>())"),
    }[language]
    assert load in unit.body
    bare = replace(unit, body=unit.body.replace(load, wrong))
    with pytest.raises(model.ModelError, match="a misaligned access"):
        agrees(p, bare, np.tanh(x) + 1, x)


def test_a_grid_that_overshoots_is_caught() -> None:
    x = draw(5, 64)
    p = generated(lambda x: np.tanh(x) + 1, x)
    unit, want = unit_of(p, "metal"), np.tanh(x) + 1
    assert agrees(p, unit, want, x)
    bare = "\n".join(line for line in unit.body.splitlines() if "return" not in line)
    with pytest.raises(model.ModelError, match="outside of a buffer"):
        agrees(p, replace(unit, body=bare), want, x)


def test_constant_memory_is_not_device_memory() -> None:
    x = draw(1, 4)
    p = generated(lambda x: np.tanh(x) + 1, x)
    unit = unit_of(p, "metal")
    assert agrees(p, unit, np.tanh(x) + 1, x)
    packed = "b1[0] = eq_load<4>(b0).v[0];"
    header = unit_of(generated(lambda x: np.tanh(x) + 1, draw(4, 64)), "metal").header
    with pytest.raises(model.ModelError, match="no matching function"):
        model.one(replace(unit, header=header, body=packed))
