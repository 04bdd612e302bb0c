"""Programs in NumPy, drawn line by line: numbers of all kinds, casts between dtypes,
comparisons of values that are computed twice, masks, writes and made arrays.

Arrays hold integers and halves of them, few and small: sums and products of these are
exact in every order, so that a program has one answer, bit for bit. What is not exact,
such as a quotient by 3, only flows into decisions, which keep the values as written.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

DTYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
)
NUMBERS = (
    *("True", "False", "0", "1", "2", "-1", "3", "0.5", "-0.0", "2.0", "-1.5", "0.25"),
    *(
        "np.float32(0.5)",
        "np.float64(2)",
        "np.int8(3)",
        "np.uint8(2)",
        "np.bool_(True)",
    ),
    *("np.int64(-2)", "np.float16(1.5)"),
)
LARGEST = 1 << 12
"""Sums of 8 products of two such numbers are exact in float32."""
SHAPES = ((6,), (3, 6), (1, 6), (3, 1), ())
STEPS = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "-{a}", "abs({a})", "{a} + {n}"),
    *("{n} - {a}", "{a} * {n}", "np.maximum({a}, {b})", "np.minimum({a}, {n})"),
    *("{a}.astype('{t}')", "np.where({m}, {a}, {b})", "np.where({m}, {a}, {n})"),
    *("np.where({n}, {a}, {b})", "{a}.sum({x})", "{a}.max({x})", "np.min({a}, {x})"),
    *("np.sum({a}, {x}, where={m})", "np.sum({a}, {x}, dtype='{t}')", "{a}[..., ::-1]"),
    *(
        "{a}[..., 1:] * 1",
        "{a}.T",
        "np.clip({a}, {n}, {n})",
        "np.zeros_like({a}) + {n}",
    ),
    *("np.full({a}.shape, {n})", "np.square({a})", "np.concatenate([{a}, {b}], -1)"),
    *(
        "np.add({a}, {b}, dtype='float64')",
        "np.stack([{a}, {b}])",
        "np.cumsum({a}, {x})",
    ),
)
MASKS = (
    *("{a} < {b}", "{a} == {n}", "{a} >= {n}", "{m} & {m}", "{m} | {m}", "~{m}"),
    *(
        "np.logical_and({a}, {n})",
        "np.logical_or({n}, {a})",
        "np.logical_xor({a}, {b})",
    ),
    *("np.logical_not({a})", "{a} != {b}", "np.isfinite({a})", "{a}.astype(bool)"),
    *("({a} / 3 * 3) == {a}", "{a} / 7 > {b} / 7", "{a} * 0.1 < {b} * 0.1"),
    *("{a} / 3 + {b} / 3 >= ({a} + {b}) / 3", "np.any({a}, {x})", "np.all({m}, {x})"),
)
DECISIONS = (
    *("np.floor({a} / 3)", "np.rint({a} * 0.1)", "{a} // 2", "{a} % 3", "np.sign({a})"),
    *(
        "np.argmax({a}, {x})",
        "np.argmin({a} * 0.7 / 0.7, {x})",
        "np.trunc({a} / 7 * 3)",
    ),
    *(
        "np.ceil({a} * 0.3 + 0.1)",
        "({a} * 1.1).astype('int64')",
        "np.count_nonzero({m})",
    ),
    *("np.argsort({a} / 3, kind='stable')", "np.divmod({a}, 3)[0]", "np.sum({m}, {x})"),
)
WRITES = (
    *("{o}[...] = {n}", "{o}[{m}] = {n}", "{o}[..., 0] = {a}[..., 0]", "{o} += {n}"),
    *("{o} *= {b}", "{o}[..., 1:] += {n}", "{o}[{m}] += {n}", "{o} -= {b}"),
)


@dataclass
class NumpyProgram:
    """Lines of a function of x and y, and what they need."""

    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        body = "\n    ".join([*self.lines, f"return {', '.join(self.results)}"])
        return f"def f(x, y):\n    {body}\n"

    @property
    def results(self) -> list[str]:
        """The last values."""
        made = [n for n in self.values if n not in ("x", "y", "np")]
        return made[-4:] or ["x * 1"]


def numpy_program(seed: int, steps: int = 8) -> tuple[str, tuple[Any, ...]]:
    """The text of a function ``f(x, y)``, and arguments."""
    rng = Random(seed)
    inputs = tuple(_array(rng) for _ in range(2))
    program = NumpyProgram(
        values=dict(zip("xy", (a.copy() for a in inputs), strict=True))
    )
    for _ in range(steps * 3):
        if len(program.lines) < steps:
            _extended(program, rng)
    return program.text, inputs


def _array(rng: Random) -> Any:
    dtype = np.dtype(rng.choice(DTYPES.split()))
    shape = rng.choice(SHAPES[:4])
    low = 0 if dtype.kind in "ub" else -6
    numbers = np.array([rng.randint(low, 6) for _ in range(int(np.prod(shape)))])
    halves = numbers / 2 if dtype.kind == "f" else numbers
    return halves.reshape(shape).astype(dtype)


def _extended(program: NumpyProgram, rng: Random) -> None:
    """Try one more line; NumPy says whether it is one."""
    kind = rng.choice((STEPS, STEPS, STEPS, MASKS, MASKS, DECISIONS, DECISIONS, WRITES))
    name = f"v{len(program.lines)}"
    held = {
        k: v.copy() if isinstance(v, np.ndarray) else v
        for k, v in program.values.items()
    }
    text = _filled(rng.choice(kind), held, rng)
    if text is None:
        return
    line = text if kind is WRITES else f"{name} = {text}"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            exec(line, {"np": np}, held)
        except Exception:
            return
    if all(map(_is_small, held.values())):
        program.values = held
        program.lines.append(line)


def _is_small(value: Any) -> bool:
    a = np.asarray(value)
    if a.dtype.kind == "b":
        return True
    x = a.astype(float)
    exact = (x * 64 == np.rint(x * 64)).all() if a.dtype.kind == "f" else True
    return a.size <= 200 and bool(
        np.isfinite(x).all() and (abs(x) <= LARGEST).all() and exact
    )


def _filled(template: str, held: dict[str, Any], rng: Random) -> str | None:
    masks = [k for k, v in held.items() if np.asarray(v).dtype == bool]
    arrays = [k for k, v in held.items() if isinstance(v, np.ndarray) and v.ndim]
    made = [k for k in arrays if k not in ("x", "y")]
    choices = {
        "a": arrays,
        "b": arrays,
        "m": masks,
        "o": made,
        "n": list(NUMBERS),
        "t": DTYPES.split(),
        "x": ["-1", "0", "None"],
    }
    while "{" in template:
        key = template[template.index("{") + 1]
        if not choices[key]:
            return None
        template = template.replace(f"{{{key}}}", rng.choice(choices[key]), 1)
    return template
