"""Functions, arguments and results that saved programs are tried with."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import eqsat as eq

ROOT = Path(__file__).resolve().parents[2]


def drawn(*shape: int, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(sum(shape) + len(dtype))
    return rng.standard_normal(shape).astype(dtype)


def positive(n: int) -> Any:
    a = drawn(n, n, dtype="float64")
    return a @ a.T + n * np.eye(n)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    slope: float = 0.1


W = drawn(48, 64)


def nested(params: Any, x: Any) -> Any:
    h = eq.leaky_relu(x @ params["layers"][0].w + params["layers"][0].b)
    return OrderedDict(h=h, parts=[h.sum(-1), (h.max(), None)], n=h.shape[0], s="done")


def updated(p: Any, g: Any) -> Any:
    p -= 0.1 * g
    return p, (p * p).sum()


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "ffn": (
        lambda x, w, b: eq.gelu(x @ w + b),
        (drawn(40, 48), drawn(48, 64), drawn(64)),
        {},
    ),
    "constant": (lambda x: eq.softmax(x @ W), (drawn(40, 48),), {}),
    "product": (lambda x, y: x @ y + 1, (drawn(300, 400), drawn(400, 500)), {}),
    "shared": (
        lambda x: np.tanh(x) * np.exp(-x) + x.mean(-1, keepdims=True),
        (drawn(2000, 700),),
        {},
    ),
    "double": (
        lambda x, y: x @ y,
        (drawn(90, 70, dtype="float64"), drawn(70, 30, dtype="float64")),
        {},
    ),
    "attention": (
        eq.attention,
        tuple(drawn(2, n, 16) for n in (24, 30, 30)),
        {"causal": False},
    ),
    "conv": (eq.conv2d, (drawn(2, 3, 20, 22), drawn(5, 3, 3, 3)), {}),
    "sort": (lambda x: np.sort(x, -1), (drawn(5, 333),), {}),
    "argsort": (
        lambda x: np.argsort(x, -1, kind="stable"),
        (drawn(5, 333, dtype="float64"),),
        {},
    ),
    "cholesky": (np.linalg.cholesky, (positive(40),), {}),
    "solve": (np.linalg.solve, (positive(33), drawn(33, 4, dtype="float64")), {}),
    "powers": (
        lambda x, y: np.sin(x) ** 3 + np.arctan2(x, y) + np.hypot(x, y) % 3,
        (drawn(1000), drawn(1000)),
        {},
    ),
    "half": (lambda x: x * 2 + np.exp(x), (drawn(777, dtype="float16"),), {}),
    "integers": (lambda x: (x // 3, x % 5, x > 4), (np.arange(-50, 50),), {}),
    "scan": (lambda x: np.cumsum(x, 0), (drawn(30, 20),), {}),
    "take": (
        lambda x, i: x[i],
        (drawn(30, 20), np.array([3, -1, 29])),
        {},
    ),
    "turned": (lambda x: (x.T, x[::-1, 1:], x), (drawn(30, 20),), {}),
    "number": (lambda x, s: x.sum() * s, (drawn(100), np.float32(3)), {}),
    "empty": (lambda x: (x + 1, x.sum()), (drawn(0, 4),), {}),
    "nothing": (lambda x: 3, (drawn(4),), {}),
    "known": (lambda x: np.arange(5) + 1, (drawn(4),), {}),
    "named": (
        lambda x, *, scale, by: [x * scale, {"by": by, 2: x + 1}],
        (drawn(9),),
        {"scale": 3, "by": ("a", None, 2.5)},
    ),
    "nested": (nested, ({"layers": [Layer(W, drawn(64))]}, drawn(40, 48)), {}),
    "space": (
        lambda p: SimpleNamespace(a=p.first + p.second),
        (Pair(drawn(5), drawn(5)),),
        {},
    ),
    "updated": (updated, (drawn(64, 3), drawn(64, 3)), {}),
}


def arrays(value: Any) -> list[Any]:
    """What is in a result, in order."""
    if isinstance(value, dict):
        value = [v for pair in value.items() for v in pair]
    if isinstance(value, SimpleNamespace):
        value = [vars(value)]
    if isinstance(value, (list, tuple)):
        return [type(value), *(x for v in value for x in arrays(v))]
    return [value]


def agree(got: Any, wanted: Any, rtol: float = 0.0) -> None:
    assert type(got) is type(wanted)
    for a, b in zip(arrays(got), arrays(wanted), strict=True):
        assert type(a) is type(b)
        if isinstance(a, np.ndarray | np.generic):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
        else:
            assert a == b


def copied(value: Any) -> Any:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in value)


def alone(home: Path) -> Path:
    """A folder with NumPy and eqsat, and nothing else that is not Python's own."""
    found = Path(np.__file__).parent
    for path in (found, found.parent / "numpy.libs", ROOT / "eqsat"):
        if path.exists():
            (home / path.name).symlink_to(path)
    return home


def inputs_of(args: Any) -> list[Any]:
    """The arrays of the arguments, in order."""
    if isinstance(args, (np.ndarray, np.generic)):
        return [np.array(args)]
    if isinstance(args, dict):
        return [a for v in args.values() for a in inputs_of(v)]
    if isinstance(args, (tuple, list)):
        return [a for v in args for a in inputs_of(v)]
    return inputs_of(vars(args)) if hasattr(args, "__dict__") else []
