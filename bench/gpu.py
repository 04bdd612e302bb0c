"""Generated kernels beside MLX's own on a GPU.

Two steps, since a machine with a GPU may have MLX and NumPy only::

    python -m bench.gpu pack FOLDER      # here: programs lowered for CUDA or Metal
    python bench/gpu.py run FOLDER FILE  # there: checked and timed, into FILE

A result must be as near to float32's as one rounding of its dtype, or as twice what
MLX's own op is off. Times are medians of rounds in which the candidates take turns; a
round records many calls and evaluates them at once, so that the device is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 15
ROUND_S = 0.02
"""Seconds that a round of one candidate aims at."""
MOST_BYTES = 8 << 30
"""Most bytes of results that a round holds."""
ROUNDING = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}
LARGE = ((16384, 4096), (4096, 1024))
SMALL = ((1, 1024), (1, 4096), (8, 1024), (8, 4096))
DTYPES = ("bfloat16", "float32")


@dataclass(frozen=True)
class Work:
    """A program: for eqsat, as MLX's own calls, and as plain ops for mx.compile."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    ours: Callable[..., Any]
    own: Callable[..., Any]
    plain: Callable[..., Any]


Functions = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]


def functions(ops: Any, mx: Any) -> dict[str, Functions]:
    """Each program three times; ``ops`` or ``mx`` may be missing where not called."""

    def mean(x: Any) -> Any:
        return mx.mean(x, axis=-1, keepdims=True)

    def rms(x: Any, w: Any) -> Any:
        return x * mx.rsqrt(mean(x * x) + 1e-5) * w

    def norm(x: Any, w: Any, b: Any) -> Any:
        d = x - mean(x)
        return d * mx.rsqrt(mean(d * d) + 1e-5) * w + b

    def soft(x: Any) -> Any:
        e = mx.exp(x - mx.max(x, axis=-1, keepdims=True))
        return e / mx.sum(e, axis=-1, keepdims=True)

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1 + mx.erf(x * 0.7071067811865476))

    def logsumexp(x: Any) -> Any:
        top = mx.max(x, axis=-1, keepdims=True)
        return mx.log(mx.sum(mx.exp(x - top), axis=-1, keepdims=True)) + top

    def groups(x: Any, w: Any, b: Any) -> Any:
        n, c, h, v = x.shape
        y = x.reshape(n, 32, -1)
        d = y - mean(y)
        y = (d * mx.rsqrt(mean(d * d) + 1e-5)).reshape(n, c, h, v)
        return y * w.reshape(c, 1, 1) + b.reshape(c, 1, 1)

    def fast_norm(x: Any, w: Any, b: Any) -> Any:
        return mx.fast.layer_norm(x, w, b, 1e-5)

    def fast_rms(x: Any, w: Any) -> Any:
        return mx.fast.rms_norm(x, w, 1e-5)

    def map_(x: Any, w: Any, b: Any) -> Any:
        return gelu(x * w + b)

    return {
        "map": (lambda x, w, b: ops.gelu(x * w + b), map_, map_),
        "softmax": (
            lambda x: ops.softmax(x),
            lambda x: mx.softmax(x, axis=-1, precise=True),
            soft,
        ),
        "layer_norm": (lambda x, w, b: ops.layer_norm(x, w, b), fast_norm, norm),
        "rms_norm": (lambda x, w: ops.rms_norm(x, w), fast_rms, rms),
        "residual_rms_norm": (
            lambda x, r, w: (x + r, ops.rms_norm(x + r, w)),
            lambda x, r, w: (x + r, fast_rms(x + r, w)),
            lambda x, r, w: (x + r, rms(x + r, w)),
        ),
        "logsumexp": (
            lambda x: ops.logsumexp(x),
            lambda x: mx.logsumexp(x, axis=-1, keepdims=True),
            logsumexp,
        ),
        "column_sum": (
            lambda x: ops.sum(x, 0),
            lambda x: mx.sum(x, axis=0),
            lambda x: mx.sum(x, axis=0),
        ),
        "sum": (lambda x: ops.sum(x), mx and mx.sum, mx and mx.sum),
        "group_norm": (
            lambda x, w, b: ops.group_norm(x, w, b, groups=32),
            groups,
            groups,
        ),
        "linear_gelu": (
            lambda x, w, b: ops.gelu(x @ w + b),
            lambda x, w, b: gelu(mx.addmm(b, x, w)),
            lambda x, w, b: gelu(x @ w + b),
        ),
        "matmul": (lambda x, w: x @ w, lambda x, w: x @ w, lambda x, w: x @ w),
        "lora": (
            lambda x, w, a, b: ops.lora(x, w, a, b, 0.5),
            lambda x, w, a, b: x @ w + (x @ a) @ b * 0.5,
            lambda x, w, a, b: x @ w + (x @ a) @ b * 0.5,
        ),
    }


def works(ops: Any, mx: Any) -> Iterator[Work]:
    """All programs with their sizes."""
    known = functions(ops, mx)
    vectors = {"map": 2, "layer_norm": 2, "rms_norm": 1, "residual_rms_norm": 1}

    def work(name: str, dtype: str, *shapes: tuple[int, ...]) -> Work:
        size = "x".join(map(str, shapes[0]))
        return Work(f"{name}-{size}-{dtype}", shapes, dtype, *known[name])

    for dtype in DTYPES:
        for m, n in LARGE:
            for name in known:
                if name in ("group_norm", "linear_gelu", "matmul", "lora"):
                    continue
                more = [(m, n)] * (name == "residual_rms_norm")
                rest = [(n,)] * vectors.get(name, 0)
                yield work(name, dtype, (m, n), *more, *rest)
        for shape in SMALL:
            yield work("softmax", dtype, shape)
            yield work("rms_norm", dtype, shape, shape[1:])
        yield work("group_norm", dtype, (64, 256, 64, 64), (256,), (256,))
        d = 4096
        yield work("matmul", dtype, (8192, d), (d, d))
        yield work("linear_gelu", dtype, (8192, d), (d, d), (d,))
        yield work("lora", dtype, (8192, d), (d, d), (d, 16), (16, d))


# -- here ------------------------------------------------------------------------------


def pack(folder: Path, language: str) -> None:
    """Write each program as the Python text that runs it, and its tables."""
    import eqsat as eq
    from eqsat import ops
    from eqsat.backends.mlx import devices, lower
    from eqsat.jit import backend_named

    backend: Any = backend_named("mlx")
    device = devices.H200 if language == "cuda" else devices.apple("Apple M1 Max")
    backend.__dict__["model"] = eq.cost.CostModel(
        device, devices.GPU_TARGET, backend="mlx"
    )
    folder.mkdir(parents=True, exist_ok=True)
    for w in works(ops, None):
        specs = [eq.Spec(s, w.dtype) for s in w.shapes]
        low = eq.jit(w.ours, backend="mlx").lower(*specs)
        made = lower(low.program, language)
        (folder / f"{w.name}.py").write_text(made.source, encoding="utf-8")
        print(w.name, len(low.program.kernels), "kernels")


# -- there -----------------------------------------------------------------------------


def load_ops() -> Any:
    """The functions that programs call, without the rest of eqsat."""
    names = ["eqsat", "eqsat.typerule", "eqsat.backends", "eqsat.backends.mlx"]
    names += ["eqsat.backends.native", "eqsat.backends.native.math"]
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = []
        sys.modules[name] = module
    sys.modules["eqsat.typerule"].__dict__["BF16"] = None
    for name in ("native.math.coefficients", "mlx.arrays", "mlx.ops"):
        full = f"eqsat.backends.{name}"
        file = (ROOT / "backends").joinpath(*name.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(full, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        parent, _, last = full.rpartition(".")
        setattr(sys.modules[parent], last, module)
        spec.loader.exec_module(module)
    return sys.modules["eqsat.backends.mlx.ops"]


def candidates(w: Work, folder: Path, mx: Any) -> dict[str, Callable[..., Any]]:
    """What computes ``w``, by name."""
    scope: dict[str, Any] = {}
    text = (folder / f"{w.name}.py").read_text(encoding="utf-8")
    exec(compile(text, w.name, "exec"), scope)
    found = {"eqsat": scope["program"], "mlx": w.own, "mx.compile": mx.compile(w.plain)}
    return found | {"copy": lambda *xs: (mx.negative(xs[0]),)}


def arrays(w: Work, mx: Any) -> list[Any]:
    """Arguments: normal, the weights of products scaled down."""
    rng = np.random.default_rng(0)
    found = []
    for i, shape in enumerate(w.shapes):
        x = rng.standard_normal(shape, np.float32)
        x *= shape[0] ** -0.5 if i and len(shape) == 2 and shape != w.shapes[0] else 1
        found.append(mx.array(x).astype(getattr(mx, w.dtype)))
    mx.eval(found)
    return found


def results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def errors(w: Work, made: dict[str, Any], xs: list[Any], mx: Any) -> dict[str, float]:
    """The largest error of each candidate, in units of the largest result."""
    wide = [x.astype(mx.float32) for x in xs]
    want = results(w.plain(*wide))
    found = {}
    for name, f in made.items():
        worst = 0.0
        for y, z in zip(results(f(*xs)), want, strict=name != "copy"):
            if y.shape != z.shape:
                y = y.reshape(z.shape)
            off = mx.max(mx.abs(y.astype(mx.float32) - z)) / mx.max(mx.abs(z))
            worst = max(worst, float(off)) if float(off) == float(off) else float("nan")
        found[name] = worst
    return found


def timed(made: dict[str, Any], xs: list[Any], mx: Any) -> dict[str, list[float]]:
    """Seconds of a call in each round, the candidates in turn."""
    counts: dict[str, int] = {}
    found: dict[str, list[float]] = {n: [] for n in made}
    for name, f in made.items():
        for _ in range(3):
            mx.eval(f(*xs))
        start = time.perf_counter()
        mx.eval(f(*xs))
        once = time.perf_counter() - start
        size = sum(y.nbytes for y in results(f(*xs)))
        most = max(1, MOST_BYTES // max(size, 1))
        counts[name] = int(min(max(ROUND_S / once, 1) * 4, most, 500))
    for _ in range(ROUNDS):
        for name, f in made.items():
            start = time.perf_counter()
            mx.eval([f(*xs) for _ in range(counts[name])])
            found[name].append((time.perf_counter() - start) / counts[name])
    return found


def run(folder: Path, file: Path) -> int:
    """Check and time all programs; 1 when a result is wrong."""
    import mlx.core as mx

    load_ops()
    wrong = 0
    found: dict[str, Any] = {
        "mlx": str(getattr(mx, "__version__", "")),
        "device": {k: str(v) for k, v in mx.device_info().items()},
        "programs": {},
    }
    for w in works(None, mx):
        if not (folder / f"{w.name}.py").exists():
            continue
        xs = arrays(w, mx)
        try:
            made = candidates(w, folder, mx)
            off = errors(w, {n: f for n, f in made.items() if n != "copy"}, xs, mx)
            limit = max(2 * off["mlx"], ROUNDING[w.dtype])
            right = off["eqsat"] <= limit
            spent = timed(made, xs, mx)
        except Exception as error:
            found["programs"][w.name] = {"failed": str(error)[:2000]}
            print(f"{w.name}: {str(error)[:1500]}", flush=True)
            wrong += 1
            continue
        wrong += not right
        times = {n: statistics.median(t) for n, t in spent.items()}
        found["programs"][w.name] = {
            "right": right,
            "errors": off,
            "median_s": times,
            "rounds_s": spent,
        }
        row = "  ".join(f"{n} {t * 1e6:8.1f}" for n, t in times.items())
        print(f"{w.name:38} {row} µs{'' if right else '  WRONG'} {off}", flush=True)
        file.write_text(json.dumps(found, indent=1), encoding="utf-8")
        mx.clear_cache()
    return int(wrong > 0)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("pack", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path, nargs="?", default=Path("gpu.json"))
    parser.add_argument("--language", default="cuda", choices=("cuda", "metal"))
    given = parser.parse_args()
    if given.step == "pack":
        pack(given.folder, given.language)
        return 0
    return run(given.folder, given.file)


if __name__ == "__main__":
    sys.exit(main())
