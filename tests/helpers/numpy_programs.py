"""Programs in NumPy, drawn line by line from the tables of ``numpy_lines.py``.

- *small*: arrays hold integers and halves of them, few and small. Sums and products of
  these are exact in every order, so that a program has one answer, bit for bit. What is
  not exact, such as a quotient by 3, only flows into decisions, which keep the values
  as written.
- *bits*: any numbers, ∞, NaN, −0 and subnormal ones among them, and only operations
  that NumPy rounds once: ``exact`` has NumPy's bits.
- *loose*: sums, means and functions too, of numbers that are not exact.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import numpy_lines as table

BF16 = np.dtype(ml_dtypes.bfloat16)
GLOBALS = {"np": np, "bf16": BF16}
LARGEST = 1 << 12
"""Sums of 8 products of two such numbers are exact in float32."""
KINDS = {
    "small": (
        *(table.ELEMENTWISE, table.ELEMENTWISE, table.CASTS, table.VIEWS, table.CHOSEN),
        *(table.SUMS, table.MASKS, table.MASKS, table.DECISIONS, table.DECISIONS),
        *(table.MADE, table.WRITES, table.WRITES),
    ),
    "bits": (
        *(table.ELEMENTWISE, table.ELEMENTWISE, table.CASTS, table.CASTS, table.VIEWS),
        *(table.CHOSEN, table.MASKS, table.MASKS, table.DECISIONS, table.MADE),
        *(table.WRITES, table.WRITES),
    ),
    "loose": (
        *(table.ELEMENTWISE, table.VIEWS, table.SUMS, table.SUMS, table.ROUNDED),
        *(table.ROUNDED, table.ROUNDED, table.MADE, table.WRITES),
    ),
}
SHAPES = ((6,), (3, 6), (3, 6), (1, 6), (3, 1), (2, 3, 6), (6, 6), (), (0, 6), (1,))
LAYOUTS = ("plain", "plain", "plain", "fortran", "reversed", "strided", "read-only")
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1 / 3, 1e-7, 1e4, 70000.0)


@dataclass(frozen=True)
class Argument:
    """An array, and how it lies in memory; or a number."""

    value: Any
    layout: str = "plain"

    def made(self) -> Any:
        """The argument anew."""
        a = self.value
        if not isinstance(a, np.ndarray):
            return a
        if self.layout == "fortran":
            return np.array(a, order="F")
        if self.layout == "reversed" and a.ndim:
            return a[..., ::-1].copy()[..., ::-1]
        if self.layout == "strided" and a.ndim:
            return np.repeat(a, 2, -1)[..., ::2]
        made = a.copy()
        made.flags.writeable = self.layout != "read-only"
        return made

    def __str__(self) -> str:
        if not isinstance(self.value, np.ndarray):
            return repr(self.value)
        return f"{self.value!r}  # {self.value.dtype}, {self.layout}"


@dataclass(frozen=True)
class NumpyProgram:
    """Lines of a function of x, y and z, its arguments, and what it returns."""

    kind: str
    arguments: tuple[Argument, ...]
    lines: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    raises: bool = False
    """Whether NumPy refuses the last line."""

    @property
    def text(self) -> str:
        body = "\n    ".join([*self.lines, f"return {', '.join(self.results)}"])
        return f"def f(x, y, z):\n    {body}\n"

    @property
    def function(self) -> Any:
        names = dict(GLOBALS)
        exec(compile(self.text, "<drawn>", "exec"), names)
        return names["f"]

    def made(self) -> tuple[Any, ...]:
        """Arguments anew."""
        return tuple(a.made() for a in self.arguments)

    def run(self) -> dict[str, Any]:
        """The values of all names after the last line, by NumPy; with ``exec`` they are
        globals, so that a name that is not there is an error."""
        names = dict(zip("xyz", self.made(), strict=True))
        with warnings.catch_warnings(), np.errstate(all="ignore", invalid="warn"):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", "invalid value encountered in cast")
            exec("\n".join(self.lines), {**GLOBALS}, names)
        return names

    def __str__(self) -> str:
        given = (f"{n} = {a}" for n, a in zip("xyz", self.arguments, strict=True))
        return "\n".join([*given, self.text])


def numpy_program(seed: int, steps: int = 8) -> NumpyProgram:
    """A program of some ``steps`` lines; one in 16 ends in what NumPy refuses."""
    rng = Random(seed)
    kind = rng.choice(("small", "small", "bits", "bits", "loose"))
    arguments = (_array(rng, kind), _array(rng, kind), _number(rng, kind))
    program = NumpyProgram(kind, arguments)
    values = program.run()
    wrong = rng.random() < 1 / 16
    for _ in range(steps * 3):
        if len(program.lines) < steps and not program.raises:
            late = wrong and len(program.lines) >= steps // 2
            program, values = _extended(program, values, rng, late)
    names = [k for k, v in values.items() if k.startswith("v") and _is_result(v)]
    chosen = names[-3:] + rng.sample("xy", rng.randint(0, 1))
    if program.raises and (made := re.match(r"v\d+(?= = )", program.lines[-1])):
        chosen.append(made[0])  # what no result needs is not computed
    return replace(program, results=tuple(chosen or ["x * 1"]))


def _is_result(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic | int | float)


def _array(rng: Random, kind: str) -> Argument:
    dtype = np.dtype(rng.choice(table.DTYPES))
    if kind == "loose" and rng.random() < 0.7:
        dtype = np.dtype(rng.choice(("float16", "float32", "float64")))
    shape = rng.choice(SHAPES)
    size = int(np.prod(shape))
    draw = _small if kind == "small" else _any if kind == "bits" else _finite
    values = np.array([draw(rng, dtype) for _ in range(size)], dtype)
    return Argument(values.reshape(shape), rng.choice(LAYOUTS))


def _small(rng: Random, dtype: Any) -> Any:
    number = rng.randint(0 if dtype.kind in "ub" else -6, 6)
    return number / 2 if dtype.kind == "f" else number


def _any(rng: Random, dtype: Any) -> Any:
    if dtype.kind == "b" or rng.random() < 0.3:
        return _small(rng, dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.choice((info.min, info.max, info.max // 3, rng.randint(0, 100)))
    if rng.random() < 0.5:
        return rng.gauss(0, 2)
    limits = np.finfo(dtype)
    ends = (limits.max, limits.tiny, limits.smallest_subnormal, limits.eps)
    with np.errstate(over="ignore"):
        return dtype.type(rng.choice((*SPECIAL, *map(float, ends))))


def _finite(rng: Random, dtype: Any) -> Any:
    return rng.gauss(0, 2) if dtype.kind == "f" else _small(rng, dtype)


def _number(rng: Random, kind: str) -> Argument:
    """A number that is an argument: of Python, of NumPy, or an array of no axes."""
    texts = table.NUMBERS
    if kind == "bits" and rng.random() < 0.3:
        texts = table.ODD_NUMBERS
    return Argument(eval(rng.choice(texts), dict(GLOBALS)))


def _extended(
    program: NumpyProgram, values: dict[str, Any], rng: Random, late: bool
) -> tuple[NumpyProgram, dict[str, Any]]:
    """One more line; NumPy says whether it is one. ``late``: one that it refuses."""
    lines = rng.choice(KINDS[program.kind])
    text = _filled(rng.choice(lines), values, rng, program.kind)
    if text is None or any(f(text, values) for f in _DEPARTURES):
        return program, values
    name = f"v{len(program.lines)}"
    line = text if lines is table.WRITES else f"{name} = {text}"
    if "out=" in text and text.startswith("np.") and lines is not table.WRITES:
        line = text
    more = replace(program, lines=(*program.lines, line))
    try:
        found = more.run()
    except Warning:
        return program, values
    except Exception:
        return (replace(more, raises=True) if late else program), values
    fits = _is_small if program.kind == "small" else _is_sized
    return (more, found) if all(map(fits, found.values())) else (program, values)


def _meets_in_float(text: str, held: dict[str, Any]) -> bool:
    """Whether ``ufunc.at`` of integers computes in floats: a row of the guide's table
    of what is not NumPy's."""
    found = re.match(r"np\.\w+\.at\((\w+), (?:0|\[0, 0\]), (.*)\); ", text)
    if found is None or held[found[1]].dtype.kind not in "iu":
        return False
    value = np.asarray(eval(found[2], dict(GLOBALS), held))
    return np.result_type(held[found[1]], value.dtype).kind == "f"


def _is_cut(text: str, held: dict[str, Any]) -> bool:
    """Whether a mean is cut to an integer dtype that does not hold what it is of."""
    found = re.match(r"np\.mean\((\w+), .*dtype='(\w+)'", text)
    if found is None or (dtype := np.dtype(found[2])).kind not in "iu":
        return False
    x = np.asarray(held[found[1]]).astype(float)
    limits = np.iinfo(dtype)
    return bool(x.size and not (limits.min <= x.min() and x.sum() < limits.max / 2))


def _scales(text: str, held: dict[str, Any]) -> bool:
    """Whether ``np.dot`` multiplies an array by one number, of which BLAS takes 0 times
    NaN for 0."""
    found = re.match(r"np\.dot\((\w+), (\w+)\.T\)", text)
    return found is not None and not all(np.ndim(held[n]) for n in found.groups())


def _adds_floats(text: str, held: dict[str, Any]) -> bool:
    """Whether a product of integers, one of them unsigned, is one of float64: an order
    of additions that rounds."""
    found = re.match(r"(?:np\.dot\()?(\w+)(?: @|,) (\w+)\.T", text)
    if found is None:
        return False
    dtypes = [np.asarray(held[n]).dtype for n in found.groups()]
    both = np.result_type(*dtypes)
    return both.kind == "f" and all(d.kind in "iub" for d in dtypes)


_DEPARTURES = (_meets_in_float, _is_cut, _scales, _adds_floats)


def _is_sized(value: Any) -> bool:
    a = np.asarray(value)
    return a.size <= 200 and a.dtype.kind != "O" and a.dtype.kind not in "cM"


def _is_small(value: Any) -> bool:
    if not isinstance(value, np.ndarray | np.generic):
        return True
    a = np.asarray(value)
    if a.dtype.kind == "b" or not _is_sized(a):
        return a.dtype.kind == "b"
    x = a.astype(float)
    exact = (x * 64 == np.rint(x * 64)).all() if a.dtype.kind in "fV" else True
    return bool(np.isfinite(x).all() and (abs(x) <= LARGEST).all() and exact)


def _filled(template: str, held: dict[str, Any], rng: Random, kind: str) -> str | None:
    """The line with names and numbers of what is there, or None."""
    choices: dict[str, Sequence[str]] = _choices(held, rng, kind)
    if kind == "small" and "initial=" in template:
        choices["n"] = [n for n in choices["n"] if n not in table.ODD_NUMBERS]
    told = kind == "small" and _TELLS_ZEROS.search(template)
    original = template

    def chosen(key: re.Match[str]) -> str:
        name = rng.choice(choices[key[1]])
        if key[1] == "o":
            choices["O"] = [name]
        return f"({name} + 0)" if told and name in held else name

    try:
        while "{" in template:
            template = re.sub(r"\{(\w)\}", chosen, template)
    except IndexError:  # there is none
        return None
    value = "out=" not in template and original not in table.WRITES
    if kind == "bits" and value and _CHOOSES.search(template):
        return f"({template}) + 0"
    return template


_CHOOSES = re.compile(r"max|min|clip|sort\(")
"""What may choose between 0 and −0: NumPy's choice depends on dtype, length and
processor. A 0 that is added makes 0 of either."""


def _is_kept(number: str) -> bool:
    """Whether products with a number are finite and normal: where rules were used, what
    is not is a row of the guide's table."""
    value = abs(float(eval(number, dict(GLOBALS))))
    return value == 0 or 1e-4 < value < 1000


_TELLS_ZEROS = re.compile(r"copysign|signbit")
"""What tells 0 from −0. Sums have no such sign: a row of the guide's table."""


def _choices(held: dict[str, Any], rng: Random, kind: str) -> dict[str, Sequence[str]]:
    arrays = {k: v for k, v in held.items() if isinstance(v, np.ndarray)}
    plain = [k for k, v in arrays.items() if v.dtype != BF16]
    whole = [k for k in plain if arrays[k].dtype.kind in "iub"]
    numbers = list(table.NUMBERS)
    if rng.random() < (0.05 if kind == "small" else 0.2):
        numbers = list(table.ODD_NUMBERS)
    if kind == "loose":
        numbers = [n for n in numbers if _is_kept(n)]
    own = [k for k in held if np.ndim(held[k]) == 0 and k not in ("x", "y")]
    numbers += [k for k in own if np.asarray(held[k]).dtype != BF16] * 2
    return {
        **dict.fromkeys("abc", plain),
        **dict.fromkeys("ij", whole),
        "f": [k for k in plain if k not in whole],
        "h": [k for k in arrays if k not in plain],
        "m": [k for k in plain if arrays[k].dtype == bool],
        "o": [k for k, v in arrays.items() if v.flags.writeable and k in plain],
        "n": numbers,
        "t": table.DTYPES,
        "x": table.AXES,
        "k": table.SLICES,
        "s": table.SHAPES,
    }
