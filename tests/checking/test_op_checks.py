"""Kernels, prices and derivatives that authors of ops give: wrong ones are refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

import eqsat as eq
from eqsat.checking.op_checks import check_op
from eqsat.define import op, pointwise
from eqsat.kernels import backend_named
from eqsat.terms import Op

HEAD = """import numpy as np
from eqsat.define import Axis, composite, op, pointwise, reduction
from eqsat.ops import exp, log, sqrt

kept = []


"""
KERNEL = '\n\n@mine.lowering("numpy"{more})\ndef kernel({x}, *, out):\n    {lines}\n'

RIGHT = {
    "square": ("x", "x * x", "np.multiply(x, x, out=out)"),
    "in steps": ("x", "exp(x) + 1", "np.exp(x, out=out); out += 1"),
    "two arrays": ("x, y", "x * y + x", "np.multiply(x, y, out=out); out += x"),
    "another order": ("x", "x * 2 + 1", "np.add(x, 0.5, out=out); out *= 2"),
}
WRONG = {
    # kernel: parameters, body, lines, what is said
    "no minus": ("x", "-exp(x)", "np.exp(x, out=out)", "differ by"),
    "another function": ("x", "exp(x)", "np.expm1(x, out=out)", "differ by"),
    "too coarse": ("x", "exp(x)", "out[...] = np.exp(x.astype('f2'))", "differ by"),
    "no NaN": ("x", "x + 1", "out[...] = np.nan_to_num(x) + 1", "finite"),
    "no infinity": ("x", "x * 2", "out[...] = np.clip(x, -1e5, 1e5) * 2", ""),
    "operands swapped": ("x, y", "x - y", "np.subtract(y, x, out=out)", "differ by"),
    "first element": ("x", "x + 1", "out[...] = 0; out[:1] = x[:1] + 1", ""),
    "nothing": ("x", "x + 1", "pass", ""),
    "keeps out": ("x", "x + 1", "np.add(x, 1, out=out); kept.append(out)", "reference"),
    "keeps a view": (
        "x",
        "x + 1",
        "np.add(x, 1, out=out); kept.append(out.T)",
        "reference",
    ),
    "changes x": ("x", "x + 1", "x += 1; out[...] = x", "changes an argument"),
    "outside of out": (
        "x",
        "x + 1",
        "np.add(x, 1, out=out); base = out.base\n"
        "    while base.base is not None: base = base.base\n"
        "    base[:1] = 0",
        "outside of out",
    ),
    "takes strides for granted": (
        "x",
        "x + 1",
        "y = np.lib.stride_tricks.as_strided(x, out.shape, out.strides)\n"
        "    np.add(y, 1, out=out)",
        "",
    ),
    "raises": ("x", "x + 1", "raise KeyError('lost')", "it raises KeyError"),
}
PRICES = {
    "raises": ("lambda *a: 1 / 0", "raises ZeroDivisionError"),
    "negative": ("lambda *a: -1e-6", "expected a finite number"),
    "endless": ("lambda *a: float('inf')", "expected a finite number"),
    "no number": ("lambda *a: float('nan')", "expected a finite number"),
    "text": ("lambda *a: 'fast'", "raises ValueError"),
    "none": ("lambda *a: None", "raises TypeError"),
    "of three": ("lambda types: 1.0", "raises TypeError"),
}
SLOPES = {
    # body, its derivative by x: right where nothing is said
    "square": ("x * x", "g * x * 2.0", True),
    "by the result": ("exp(x)", "g * z", True),
    "root": ("sqrt(x * x + 1)", "g * x / z", True),
    "half of it": ("x * x", "g * x", False),
    "sign": ("exp(x)", "g * z * -1.0", False),
    "another function": ("exp(x)", "g * x", False),
    "no g": ("x * x", "x * 2.0", False),
    "one": ("x * x", "g", False),
    "nothing": ("exp(x)", "g * 0.0", False),
    "off by one": ("exp(x)", "g * (z + 1.0)", False),
    "slightly off": ("exp(x)", "g * z * 1.001", False),
    "squared": ("exp(x)", "g * z * z", False),
    "inverse": ("sqrt(x * x + 1)", "g * z / (x * x + 1.0)", False),
    "cube": ("x * x * x", "g * x * x", False),
}


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run on ``numpy`` alone, in tests of what has no part of a backend."""
    monkeypatch.setattr("eqsat.checking.op_checks.BACKENDS", ("numpy",))


@pytest.fixture
def few_backends(request: pytest.FixtureRequest) -> None:
    """The same outside of the whole suite, where the fault is in the kernel or in the
    price for ``numpy``."""
    if not is_whole():
        request.getfixturevalue("by_numpy")


def finding(path: Path, text: str) -> eq.Finding:
    path.write_text(HEAD + text)
    try:
        few = {} if is_whole() else {"examples": 25}
        (found,) = eq.check(eq.load_rules(path), lints=False, **few)
    finally:
        for name in ("mine", "mine_fold"):
            Op.registry.pop(name, None)
    assert (found.kind, found.rule, found.file) == ("op", "mine", str(path))
    first = HEAD.count("\n") + 1
    assert found.line in ([first] if text[0] == "@" else [first, first + 1])
    return found


def kernel(x: str, body: str, lines: str, more: str = "") -> str:
    axes = ", ".join(["..."] * len(x.split(", ")))
    given = f'@composite("{axes} -> ...", recognised=False)\ndef mine({x}):\n'
    return f"{given}    return {body}\n" + KERNEL.format(x=x, lines=lines, more=more)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("few_backends")
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(name: str, tmp_path: Path) -> None:
    found = finding(tmp_path / "ops.py", kernel(*RIGHT[name]))
    assert found.verdict == "tested" and found.examples >= 100, found.reason


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("few_backends")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_refused(name: str, tmp_path: Path) -> None:
    *given, said = WRONG[name]
    found = finding(tmp_path / "ops.py", kernel(*given))
    assert found.verdict == "refused" and said in found.reason
    assert "its kernel for numpy" in found.reason


INFINITE = {
    # what stands where NaN or an infinity should: body, line, what is said
    "a number for NaN": ("x + 1", "np.nan_to_num(x + 1, nan=2.0)", "one alone is fin"),
    "infinity for NaN": ("x + 1", "np.where(np.isnan(x), np.inf, x + 1)", "one is NaN"),
    "NaN for infinity": ("x + 1", "np.where(np.isinf(x), np.nan, x + 1)", "one is NaN"),
    "the other infinity": ("x + 1", "np.where(np.isinf(x), -x, x + 1)", "other signs"),
    "infinity outside of a domain": (
        "log(x)",
        "np.where(x < 0, -np.inf, np.log(x))",
        "one is NaN",
    ),
    "infinity of ∞ - ∞": ("x - x", "np.where(np.isinf(x), x, x - x)", "one is NaN"),
    "the largest for ∞": ("x * 1.5", "np.nan_to_num(x * 1.5, nan=np.nan)", "finite"),
}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("few_backends")
@pytest.mark.parametrize("name", INFINITE)
def test_kernels_hold_at_nan_and_infinities(name: str, tmp_path: Path) -> None:
    body, line, said = INFINITE[name]
    found = finding(tmp_path / "ops.py", kernel("x", body, f"out[...] = {line}"))
    assert found.verdict == "refused" and said in found.reason, found.reason
    assert "expected and got" in found.reason


OPS_WRONG = {
    # the file, what is said
    "steps": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("numpy")
def kernel(x, *, out):
    whole = x.base if isinstance(x.base, np.ndarray) else x
    if whole.ndim == 1 and whole.size == 2 * x.size:
        x = whole[: x.size]
    np.add(x, 1, out=out)
""",
        ["its kernel for numpy", "in steps", "strides (", "differ by"],
    ),
    "memory order": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("numpy")
def kernel(x, *, out):
    out[...] = (x.ravel("K") + 1).reshape(x.shape)
""",
        ["its kernel for numpy", "transposed", "differ by"],
    ),
    "integers": (
        """@composite("... -> ...", promotion="common", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("numpy")
def kernel(x, *, out):
    out[...] = (x.astype("f4") + 1).astype(x.dtype) if x.dtype.kind in "iu" else x + 1
""",
        ["its kernel for numpy", "int", "not the same bits"],
    ),
    "unsigned integers": (
        """@composite("... -> ...", promotion="common", recognised=False)
def mine(x):
    return np.maximum(x, 3)


@mine.lowering("numpy")
def kernel(x, *, out):
    signed = x.view(f"i{x.dtype.itemsize}") if x.dtype.kind == "u" else x
    out[...] = np.maximum(signed, 3)
""",
        ["its kernel for numpy", "uint"],
    ),
    "empty": (
        """@op("... n -> ... 1", kind="reduce")
def mine(x):
    return np.sum(x, axis=-1, keepdims=True, dtype=x.dtype)


@mine.lowering("numpy")
def kernel(x, *, out):
    out[...] = np.sum(x[..., 1:], -1, keepdims=True, dtype=x.dtype) + x[..., :1]
""",
        ["its kernel for numpy", "(0,)", "it raises ValueError"],
    ),
    "empty, another identity": (
        """@op("... n -> ... 1", kind="reduce")
def mine(x):
    return np.sum(x, axis=-1, keepdims=True, dtype=x.dtype)


@mine.lowering("numpy")
def kernel(x, *, out):
    np.sum(x, axis=-1, keepdims=True, dtype=x.dtype, out=out)
    if not x.size:
        out[...] = 1
""",
        ["its kernel for numpy", "(0,)", "0.0 and 1.0"],
    ),
    "operands that broadcast": (
        """@composite("..., ... -> ...", recognised=False)
def mine(x, y):
    return x * y


@mine.lowering("numpy")
def kernel(x, y, *, out):
    out[...] = (np.ravel(x) * np.resize(y, x.size)).reshape(out.shape)
""",
        ["its kernel for numpy"],
    ),
    "a bare number": (
        """@composite("..., ... -> ...", recognised=False)
def mine(x, y):
    return x * y


@mine.lowering("numpy")
def kernel(x, y, *, out):
    np.multiply(x, y if y.ndim else y[()], out=out)
""",
        ["its kernel for numpy", "the number 1.5", "it raises AttributeError"],
    ),
    "after 32 elements": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("numpy")
def kernel(x, *, out):
    np.add(x, 1, out=out)
    out.reshape(-1)[32:] = 0
""",
        ["its kernel for numpy"],
    ),
    "denormals are 0": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x * 2.0


@mine.lowering("numpy")
def kernel(x, *, out):
    least = np.finfo(np.float64).tiny if x.dtype == "f8" else 2.0**-126
    out[...] = np.where(np.abs(x) < least, 0, x * 2)
""",
        ["its kernel for numpy", "denormal", "differ by"],
    ),
    "order": (
        """@reduction(
    combine=lambda x, y: np.where(x > y, x, y), identity=-np.inf, commutative=True
)
def mine(x):
    return x
""",
        ["on native", "axis="],
    ),
    "finish": (
        """@reduction(
    combine=np.add,
    identity=0,
    finish=lambda s, n: s / (n + 1) if hasattr(s, "term") else s / n,
)
def mine(x):
    return x
""",
        ["on numpy", "differ by"],
    ),
    "expression": (
        """mine = pointwise(
    "mine", lambda x: x * 3 if hasattr(x, "term") else x * 2
)
""",
        ["on numpy", "differ by"],
    ),
    "reference of another dtype": (
        """@op("... -> ...")
def mine(x):
    return np.asarray(x, "f8") * 2
""",
        ["its reference gives float64", "its signature says float32"],
    ),
    "reference of another shape": (
        """@op("... n -> ... 1")
def mine(x):
    return np.sum(x, axis=-1, dtype=x.dtype)
""",
        ["its reference gives float", "its signature says"],
    ),
    "native": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("native", seconds=lambda *_: 1e-9)
def kernel(x, *, out):
    out[...] = x - 1
""",
        ["its kernel for native: no program calls it"],
    ),
    "mlx": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("mlx")
def kernel(x):
    return x - 1
""",
        ["on mlx", "strides (", "expected and got", "differ by"],
    ),
    "mlx at infinity": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("mlx")
def kernel(x):
    import mlx.core as mx

    return mx.where(mx.isinf(x), float("nan"), x + 1)
""",
        ["on mlx, op by op", "one is NaN, the other infinite"],
    ),
    "mlx of integers": (
        """@composite("... -> ...", promotion="common", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("mlx")
def kernel(x):
    import mlx.core as mx

    if mx.issubdtype(x.dtype, mx.integer):
        return (x.astype(mx.float32) + 1).astype(x.dtype)
    return x + 1
""",
        ["on mlx", "int", "not the same bits"],
    ),
    "mlx, another shape": (
        """@composite("... n -> ... n", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("mlx")
def kernel(x):
    return (x + 1)[..., :1]
""",
        ["on mlx"],
    ),
    "mlx raises": (
        """@composite("... -> ...", recognised=False)
def mine(x):
    return x + 1


@mine.lowering("mlx")
def kernel(x):
    raise KeyError("lost")
""",
        ["on mlx", "it raises KeyError"],
    ),
    "a slope that differences cannot tell": (
        """@composite(
    "... -> ...", recognised=False, vjp=lambda g, x, z: g * z * (1 + 1e-12)
)
def mine(x):
    return exp(x)
""",
        ["its derivative by 'x'", "not that of its body", "differ by"],
    ),
    "a slope that is wrong far out": (
        """@composite(
    "... -> ...",
    recognised=False,
    vjp=lambda g, x, z: g * np.where(x > 50.0, 0.0, x * 2.0),
)
def mine(x):
    return x * x
""",
        ["its derivative by 'x'", "not that of its body", "large values"],
    ),
    "a slope by the second argument": (
        """@composite(
    "..., ... -> ...",
    recognised=False,
    vjp=(lambda g, x, y, z: g * y, lambda g, x, y, z: g * y),
)
def mine(x, y):
    return x * y
""",
        ["its derivative by 'y'", "central differences"],
    ),
    "a slope that is 0": (
        """@composite(
    "..., ... -> ...", recognised=False, vjp=(lambda g, x, y, z: g * y, None)
)
def mine(x, y):
    return x * y
""",
        ["its derivative by 'y' is 0", "central differences"],
    ),
    "a slope beside integers": (
        """@op("... n, ... -> ...", vjp=(lambda g, x, i, z: x * 0.0 + 2.0, None))
def mine(x, i: int):
    return x[..., 0] * i.astype(x.dtype)
""",
        ["its derivative by 'x'", "central differences"],
    ),
    "a slope that raises": (
        """@composite("... -> ...", recognised=False, vjp=lambda g, x, z: g.lost)
def mine(x):
    return exp(x)
""",
        ["its derivative raises AttributeError"],
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OPS_WRONG)
def test_wrong_ops_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, said = OPS_WRONG[name]
    for backend in (
        "native",
        "mlx",
    ):  # where the fault is of one backend, no other runs
        if backend in name:
            monkeypatch.setattr("eqsat.checking.op_checks.BACKENDS", (backend,))
    if "mlx" in name:
        pytest.importorskip("mlx.core")
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == "refused"
    for part in said:
        assert part in found.reason, found.reason


def _on_steps(x: Any, y: Any) -> Any:
    return y if x.flags.c_contiguous or x.size < 2 else np.flip(y)


BROKEN_BACKENDS = {
    # what a backend makes of a right result y of x, what is said
    "minus": (lambda x, y: -y, "differ by"),
    "at infinity": (
        lambda x, y: np.where(np.isinf(x), np.nan, y),
        "the other infinite",
    ),
    "at NaN": (lambda x, y: np.nan_to_num(y, nan=0, posinf=9, neginf=9), "is finite"),
    "at a stride": (_on_steps, "strides"),
    "after a vector": (
        lambda x, y: np.where(np.arange(y.size).reshape(y.shape) < 8, y, 0),
        "differ by",
    ),
    "another dtype": (lambda x, y: y.astype("f8"), "another type"),
    "another shape": (lambda x, y: y[None], "another type"),
    "small integers": (
        lambda x, y: y.astype("f4").astype(y.dtype) if y.dtype.kind == "i" else y,
        "not the same bits",
    ),
    "denormals": (
        lambda x, y: np.where(np.abs(y) < 2.0**-126, 0, y).astype(y.dtype),
        "differ by",
    ),
    "bools": (lambda x, y: ~y if y.dtype == bool else y, "not the same bits"),
    "nowhere": (lambda x, y: y, ""),
}
HERE = ["numpy", "native", *(["mlx"] if find_spec("mlx") else [])]


@pytest.mark.parametrize("name", BROKEN_BACKENDS)
@pytest.mark.parametrize("backend", HERE)
def test_backends_that_compute_something_else_are_found(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a backend gives what ``numpy`` does, spoilt."""
    change, said = BROKEN_BACKENDS[name]
    spoilt = backend

    def jit(f: Any, backend: str, options: eq.Options) -> Any:
        by_numpy = eq.jit(f, backend="numpy", options=options)

        def program(*arrays: Any) -> Any:
            found = by_numpy(*arrays)
            if backend != spoilt:
                return found
            return [
                np.asarray(change(x, y)) for x, y in zip(arrays, found, strict=True)
            ]

        return program

    monkeypatch.setattr("eqsat.checking.op_programs.jit", jit)
    if not is_whole():  # the others are not spoilt
        monkeypatch.setattr("eqsat.checking.op_checks.BACKENDS", (backend,))
    monkeypatch.setattr("eqsat.checking.op_programs.absent", lambda op: {})
    own = op("... -> ...", name="mine")(lambda x: x * 2 if x.dtype != bool else ~x)
    try:
        found = check_op(own)
    finally:
        Op.registry.pop("mine", None)
    assert found is not None
    assert found.verdict == ("refused" if said else "tested"), found.reason
    assert not said or f"on {backend}, " in found.reason
    assert said in found.reason


OPS_RIGHT = {
    "kernels of two backends": """@composite("... -> ...", recognised=False)
def mine(x):
    return x * x + 1


@mine.lowering("numpy")
def kernel(x, *, out):
    np.multiply(x, x, out=out)
    out += 1


@mine.lowering("mlx")
def mlx_kernel(x):
    return x * x + 1
""",
    "integers": """@composite("..., ... -> ...", promotion="common", recognised=False)
def mine(x, y):
    return x * y + 1


@mine.lowering("numpy")
def kernel(x, y, *, out):
    np.multiply(x, y, out=out)
    np.add(out, 1, out=out, casting="unsafe")
""",
    "attributes": """@composite("... n -> ... n", recognised=False)
def mine(x, *, axis: Axis = (-1,), scale: float = 2.0):
    return (x - np.max(x, axis=axis, keepdims=True)) * scale


@mine.lowering("numpy")
def kernel(x, *, out, axis, scale):
    np.subtract(x, np.max(x, axis=axis, keepdims=True), out=out)
    out *= scale
""",
    "a reduction": """@op("... n -> ... 1", kind="reduce")
def mine(x):
    return np.sum(x, axis=-1, keepdims=True, dtype=x.dtype)


@mine.lowering("numpy", seconds=lambda types, attrs, out: 1e-6)
def kernel(x, *, out):
    np.sum(x, axis=-1, keepdims=True, dtype=x.dtype, out=out)
""",
    "a mask": """@composite("..., ... -> ...", recognised=False)
def mine(x, kept: bool):
    return np.where(kept, x, -1.0)


@mine.lowering("numpy")
def kernel(x, kept, *, out):
    out[...] = -1
    np.copyto(out, x, where=kept)
""",
    "a fold": """@reduction(combine=np.logaddexp, identity=-np.inf)
def mine(x):
    return x
""",
    "a mean": """@reduction(combine=np.add, identity=0, finish=lambda s, n: s / n)
def mine(x):
    return x * x
""",
    "an expression": """mine = pointwise("mine", lambda x: x / (1 + np.abs(x)))
""",
    "a comparison": """mine = pointwise("mine", lambda x: x * x > 0.5, dtype=bool)
""",
    "what only NumPy knows": """@op(
    "... n -> ... n", vjp=lambda g, x, y: g * np.arange(x.shape[-1], 0, -1)
)
def mine(x):
    return (x * np.arange(x.shape[-1], 0, -1)).astype(x.dtype)
""",
    "slopes of two": """@composite(
    "..., ... -> ...",
    recognised=False,
    vjp=(lambda g, x, y, z: g * y, lambda g, x, y, z: g * x),
)
def mine(x, y):
    return x * y
""",
    "no slope": """@composite(
    "... -> ...", recognised=False, vjp=lambda g, x, z: "write exp"
)
def mine(x):
    return exp(x)
""",
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OPS_RIGHT)
def test_right_ops_pass(name: str, tmp_path: Path) -> None:
    found = finding(tmp_path / "ops.py", OPS_RIGHT[name])
    assert found.verdict == "tested", found.reason
    assert found.examples >= 200


def test_a_backend_that_is_not_here_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqsat.checking.op_checks.BACKENDS", ("numpy", "mlx"))

    def missing(name: str) -> object:
        if name == "mlx":
            raise eq.BackendError("backend 'mlx' does not load: none\n  pip install it")
        return backend_named(name)

    monkeypatch.setattr("eqsat.checking.op_programs.backend_named", missing)
    text, _ = OPS_WRONG["mlx"]
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == "tested"
    assert [(t.kind, t.text) for t in found.lints] == [
        ("not run", "on mlx: backend 'mlx' does not load: none")
    ]


# Backends that are not here and kernels that are not run are named every time.
@pytest.mark.slow
def test_dtypes_that_a_backend_refuses_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eqsat.checking.op_checks.BACKENDS", ("native",))
    text = """@reduction(combine=np.fmax, identity=np.nan)
def mine(x):
    return x
"""
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == "tested"
    (lint,) = found.lints
    assert "on native, of int32, int64, uint8" in lint.text
    assert "DTypeError: mine: its identity nan is no int32" in lint.text


@pytest.mark.usefixtures("by_numpy")
def test_kernels_and_prices_are_as_they_were(tmp_path: Path) -> None:
    """The check makes kernels free and watches them; both end with it."""

    def seconds(*_: object) -> float:
        return 1e-3

    own = pointwise("mine", lambda x: x + 1)
    try:
        own.lowering("numpy", seconds=seconds)(lambda x, *, out: np.add(x, 1, out=out))
        before = dict(own.lowerings)
        found = check_op(own)
        assert found is not None and found.verdict == "tested"
        assert own.lowerings == before
    finally:
        Op.registry.pop("mine", None)


@pytest.mark.usefixtures("few_backends")
@pytest.mark.parametrize("name", PRICES)
def test_prices_that_are_none_are_named(name: str, tmp_path: Path) -> None:
    seconds, said = PRICES[name]
    text = kernel(*RIGHT["square"], f", seconds={seconds}")
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == "refused"
    assert "seconds of its kernel for numpy" in found.reason and said in found.reason


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("by_numpy")
@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_are_compared_with_differences(name: str, tmp_path: Path) -> None:
    body, slope, right = SLOPES[name]
    text = (
        f'@composite("... -> ...", recognised=False, vjp=lambda g, x, z: {slope})\n'
        f"def mine(x):\n    return {body}\n"
    )
    found = finding(tmp_path / "ops.py", text)
    assert found.verdict == ("tested" if right else "refused"), found.reason
    assert right or "central differences say" in found.reason


@pytest.mark.usefixtures("by_numpy")
def test_a_kernel_that_is_not_run_is_named(tmp_path: Path) -> None:
    text = kernel(*RIGHT["square"]).replace('"numpy"', '"elsewhere"')
    lints = finding(tmp_path / "ops.py", text).lints
    assert [t.kind for t in lints if "elsewhere" in t.text] == ["not run"]
