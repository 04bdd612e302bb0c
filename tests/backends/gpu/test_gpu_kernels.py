"""Generated Metal and CUDA kernels on a model of a GPU, against the references of the
ops; and wrong kernels, which the model catches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import bodies
import numpy as np
import pytest
from agreement import drawn
from gpu_runs import Array, Run, optimised, unit_of
from metal import model
from networks import NETWORKS
from programs import assert_near, program_of
from sizes import is_whole

from eqsat import ops
from eqsat.backends.gpu.gpu_program import Generated
from eqsat.backends.numpy import interpret
from eqsat.terms.type_rules import BF16
from eqsat.testing import Computed, agreement
from eqsat.trace.trace import trace

pytestmark = pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")
rng = np.random.default_rng(0)


def draw(*shape: int, dtype: Any = "f4") -> Array:
    return rng.standard_normal(shape).astype(dtype)


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


LANGUAGES = ["metal", "cuda"]
IN_THREE = re.compile(r" (float32|float16|bfloat16)$")


def is_quick(name: str, language: str) -> bool:
    """Of the programs of three dtypes each language runs one in every run of the tests,
    another one than the other language, and of the other programs every second."""
    found = IN_THREE.search(name)
    if found is None:  # the long row takes seconds
        turn = list(CASES).index(name) + len(language)
        return name != "a long row in parts" and turn % 2 == 0
    turn = list(CASES).index(name[: found.start()] + " float32") + len(language)
    return found[1] == ("float32", "float16", "bfloat16")[turn % 3]


@cache
def built(language: str, quick: bool) -> tuple[dict[str, Run], dict[model.Unit, Any]]:
    """Programs with their kernels, compiled at once."""
    names = [n for n in CASES if is_quick(n, language) == quick]
    runs = {n: Run(optimised(*CASES[n]), language) for n in names}
    units = dict.fromkeys(u for r in runs.values() for u in r.units)
    return runs, model.compiled(list(units))


@pytest.mark.parametrize(
    ("name", "language"),
    [
        pytest.param(n, g, marks=() if is_quick(n, g) else pytest.mark.slow)
        for n in CASES
        for g in LANGUAGES
    ],
)
def test_programs_on_the_model(name: str, language: str) -> None:
    runs, functions = built(language, is_quick(name, language))
    f, arrays = CASES[name]
    with np.errstate(all="ignore"):
        want = interpret(trace(f, arrays).outputs, arrays)
        for seed in (0, 3) if is_whole() else (3,):
            for g, w in zip(runs[name](arrays, functions, seed), want, strict=True):
                assert (g.dtype, g.shape) == (w.dtype, w.shape)
                assert_near(g, w, 4)


@pytest.mark.parametrize("language", LANGUAGES)
def test_most_kernels_are_generated(language: str) -> None:
    runs, _ = built(language, True)
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


@pytest.mark.sampled(2)
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


def agrees(p: Generated, function: Any, want: Array, *arrays: Array) -> bool:
    """Whether a kernel computes ``want``, whatever the order of the lanes."""
    s = p.source
    for seed in range(6):
        out = np.empty(want.shape, want.dtype)
        model.launched(function, arrays, [out], s.groups, s.group, seed)
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


@pytest.fixture(scope="module")
def planted() -> Any:
    """A kernel, and functions of it and of its wrong forms, compiled at once."""
    p = generated(ops.softmax, SOFTMAX)
    right = unit_of(p, "metal")
    units = {"": right}
    for name, (part, old, new) in PLANTED.items():
        text = getattr(right, part)
        assert old in text, text
        units[name] = replace(right, **{part: text.replace(old, new)})
    functions = model.compiled(list(units.values()))
    return p, {name: functions[u] for name, u in units.items()}


@pytest.mark.parametrize("name", ["", *PLANTED])
def test_wrong_kernels_are_caught(name: str, planted: Any) -> None:
    p, functions = planted
    want = np.asarray(ops.softmax(SOFTMAX))
    try:
        assert agrees(p, functions[name], want, SOFTMAX) == (not name)
    except model.ModelError as error:
        assert name and re.search("buffer|barrier|shuffle", str(error))


@pytest.mark.parametrize("language", ["metal", "cuda"])
def test_a_load_that_slices_may_not_have_is_caught(language: str) -> None:
    x = draw(4, 64)
    p = generated(lambda x: np.tanh(x) + 1, x, language=language)
    unit = unit_of(p, language)
    load, wrong = {
        "metal": ("= eq_load<4>(b0", "= *(const EQ_GLOBAL EqPack<float, 4>*)(b0"),
        "cuda": ("run(EqWhole<false>())", "run(EqWhole<true>())"),
    }[language]
    assert load in unit.body
    bare = replace(unit, body=unit.body.replace(load, wrong))
    functions = model.compiled([unit, bare])
    assert agrees(p, functions[unit], np.tanh(x) + 1, x)
    with pytest.raises(model.ModelError, match="a misaligned access"):
        agrees(p, functions[bare], np.tanh(x) + 1, x)


def test_a_grid_that_overshoots_is_caught() -> None:
    x = draw(5, 64)
    p = generated(lambda x: np.tanh(x) + 1, x)
    unit, want = unit_of(p, "metal"), np.tanh(x) + 1
    body = "\n".join(line for line in unit.body.splitlines() if "return" not in line)
    bare = replace(unit, body=body)
    functions = model.compiled([unit, bare])
    assert agrees(p, functions[unit], want, x)
    with pytest.raises(model.ModelError, match="outside of a buffer"):
        agrees(p, functions[bare], want, x)


def test_constant_memory_is_not_device_memory() -> None:
    x = draw(1, 4)
    p = generated(lambda x: np.tanh(x) + 1, x)
    unit = unit_of(p, "metal")
    assert agrees(p, model.one(unit), np.tanh(x) + 1, x)
    packed = "b1[0] = eq_load<4>(b0).v[0];"
    header = unit_of(generated(lambda x: np.tanh(x) + 1, draw(4, 64)), "metal").header
    with pytest.raises(model.ModelError, match="no matching function"):
        model.one(replace(unit, header=header, body=packed))
