"""One program of NPBench in this process: ``python -m bench.npbench.one PATH NAME SCALE
PEER SECONDS``, by NumPy and eqsat or by Numba; prints its record as JSON."""

from __future__ import annotations

import importlib
import importlib.util
import json
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.reports import Record
from eqsat.support import counted

NORM_ERROR = 1e-5
"""What NPBench allows a result to be off, relative to its norm, where a program does
not say."""
ENOUGH_S = 0.5
"""Seconds of calls that are timed."""
MOST_CALLS = 20


class ScienceProgram:
    """A program with the arguments of its preset S, integers divided by ``scale``."""

    def __init__(self, path: Path, name: str, scale: int) -> None:
        text = path.joinpath("bench_info", f"{name}.json").read_text()
        self.info: dict[str, Any] = json.loads(text)["benchmark"]
        where = self.info["relative_path"].replace("/", ".")
        self.module = f"npbench.benchmarks.{where}.{self.info['module_name']}"
        given = self.info["parameters"]["S"]
        self.values: dict[str, Any] = {k: _scaled(v, scale) for k, v in given.items()}
        if init := self.info.get("init"):
            made = getattr(importlib.import_module(self.module), init["func_name"])
            found = made(*(self.values[a] for a in init["input_args"]))
            names = init["output_args"]
            self.values |= zip(names, found if len(names) > 1 else [found], strict=True)

    def function(self, framework: str) -> Callable[..., Any]:
        """The function as NPBench has it for ``framework``."""
        module = importlib.import_module(f"{self.module}_{framework}")
        found: Callable[..., Any] = getattr(module, self.info["func_name"])
        return found

    def arguments(self) -> list[Any]:
        """The arguments, new each time: many programs write to them."""
        return [_copied(self.values[a]) for a in self.info["input_args"]]

    def differs(self, want: Sequence[Any], got: Sequence[Any]) -> str:
        """Why results differ; empty where they do not."""
        if len(want) != len(got):
            return f"{counted(len(got), 'result')}, expected {len(want)}"
        allowed = self.info.get("norm_error", NORM_ERROR)
        for i, (a, b) in enumerate(zip(want, got, strict=True)):
            x, y = np.asarray(a), np.asarray(b)
            if x.shape != y.shape or x.dtype != y.dtype:
                return f"result {i}: {y.dtype} {y.shape}, expected {x.dtype} {x.shape}"
            gap, norm = (
                np.linalg.norm(np.ravel(v).astype(complex)) for v in (x - y, x)
            )
            if not gap <= allowed * (norm or 1):
                return f"result {i}: off by {gap:.3g} of {norm:.3g}"
        return ""


def _scaled(value: Any, scale: int) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    return value if value < 4 else max(4, value // scale)


def _copied(value: Any) -> Any:
    return value.copy() if hasattr(value, "copy") else value


def called(f: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
    """What a call returns, and the arrays that it may have written to."""
    out = f(*args)
    results = [] if out is None else list(out) if isinstance(out, tuple) else [out]
    return [*results, *(a for a in args if isinstance(a, np.ndarray))]


def seconds(f: Callable[..., Any], program: ScienceProgram) -> float:
    """Seconds of a call: the median of several."""
    times: list[float] = []
    while sum(times) < ENOUGH_S and len(times) < MOST_CALLS:
        args = program.arguments()
        start = time.perf_counter()
        f(*args)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def record(path: Path, name: str, scale: int) -> Record:
    """The record of a program: what eqsat makes of it, and how long calls take."""
    import eqsat as eq

    program = ScienceProgram(path, name, scale)
    plain = program.function("numpy")
    found: Record = {"name": name, "scale": scale, "why": ""}
    want = called(plain, program.arguments())
    found["numpy_s"] = seconds(plain, program)
    fast = eq.jit(plain)
    start = time.perf_counter()
    try:
        got = called(fast, program.arguments())
    except Exception as error:
        found["why"] = f"{type(error).__name__}: {error}"
        found["named"] = isinstance(error, eq.EqsatError)
        return found
    found["first_s"] = time.perf_counter() - start
    found["why"] = program.differs(want, got)
    if not found["why"]:
        found["eqsat_s"] = seconds(fast, program)
    return found


def record_of_numba(path: Path, name: str, scale: int) -> Record:
    """Seconds of NPBench's own version for Numba, one thread, or why there are none."""
    if importlib.util.find_spec("numba") is None:
        return {"numba": "not installed"}
    program = ScienceProgram(path, name, scale)
    want = called(program.function("numpy"), program.arguments())
    try:
        fast = program.function("numba_n")
        why = program.differs(want, called(fast, program.arguments()))
    except Exception as error:
        return {"numba": f"{type(error).__name__}: {error}".strip().splitlines()[0]}
    return {"numba": why} if why else {"numba_s": seconds(fast, program)}


def main() -> None:
    """Print the record of one program."""
    path, name, scale, peer, limit_s = Path(sys.argv[1]), *sys.argv[2:6]
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))
    sys.path.insert(0, str(path))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    of = record_of_numba if peer == "numba" else record
    try:
        found = of(path, name, int(scale))
    except Exception:
        last = traceback.format_exc().splitlines()[-1]
        found = {"name": name, "scale": int(scale)}
        found["numba" if peer == "numba" else "why"] = f"NPBench: {last}"
    clean = {k: None if v != v else v for k, v in found.items()}
    print(json.dumps(clean))


if __name__ == "__main__":
    main()
