"""A linear discriminant analysis of scikit-learn as the egglog package optimises it, in
this process: ``python -m bench.standards.egglog_lda SAMPLES FEATURES`` prints records
as JSON.

``egglog.exp.array_api`` has symbolic arrays by the array API standard. A function of
them becomes an expression, its rules simplify that, and it becomes a function of NumPy,
which Numba can compile. Shapes, dtypes and the classes are told beforehand.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
from egglog.exp import array_api as symbolic
from egglog.exp.array_api_jit import jit
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from bench.reports import Record
from bench.standards.estimators import TOLERANCE, classes, discriminants, in_turn

Function = Callable[[Any, Any], Any]


def as_published(x: Any, y: Any) -> Any:
    """The call of the example in egglog's documentation."""
    return LinearDiscriminantAnalysis(n_components=2).fit_transform(x, y)


def optimised(function: Function, x: Any, y: Any) -> Function:
    """``function`` of NumPy's arrays like ``x`` and ``y``, by egglog's rules."""
    labels = tuple(map(int, np.unique(y)))

    def told(a: Any, b: Any) -> Any:
        for symbol, array in ((a, x), (b, y)):
            symbolic.assume_dtype(symbol, array.dtype)
            symbolic.assume_shape(symbol, array.shape)
        symbolic.assume_isfinite(a)
        symbolic.assume_value_one_of(b, labels)
        return function(a, b)

    found: Function = jit(told)
    return found


def by_numba(function: Function, x: Any, y: Any) -> Function:
    """The same, compiled by Numba."""
    import numba

    found: Function = numba.njit(optimised(function, x, y))
    return found


def record(
    name: str, make: Callable[[], Function], of: Function, x: Any, y: Any
) -> Record:
    """Seconds of making the function and calling it once, and of later calls beside
    ``of`` itself, by NumPy; or why there are none."""
    found: Record = {"name": name, "why": ""}
    start = time.process_time()
    try:
        function = make()
        got = np.asarray(function(x, y))
    except Exception as error:
        said = " ".join(str(error).split()).partition(". ")[0]
        return found | {"why": f"{type(error).__name__}: {said:.160}"}
    found["first_s"] = time.process_time() - start
    want = of(x, y)
    if not np.abs(got - want).max() <= TOLERANCE * np.abs(want).max():
        found["why"] = f"off by {np.abs(got - want).max():.3g}"
    both = {"NumPy": lambda: [of(x, y)], "egglog": lambda: [function(x, y)]}
    return found | in_turn(both)


def main() -> None:
    """Print the records."""
    sklearn.set_config(array_api_dispatch=True)
    x, y = classes(int(sys.argv[1]), int(sys.argv[2]))
    ways: dict[str, tuple[Callable[..., Function], Function]] = {
        "fit_transform, as published": (optimised, as_published),
        "egglog": (optimised, discriminants),
        "egglog and Numba": (by_numba, discriminants),
    }
    print(
        json.dumps(
            [
                record(name, lambda make=make, of=of: make(of, x, y), of, x, y)  # type: ignore[misc]
                for name, (make, of) in ways.items()
            ]
        )
    )


if __name__ == "__main__":
    main()
