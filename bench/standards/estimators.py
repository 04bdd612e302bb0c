"""Estimators of scikit-learn on lazy arrays and on arrays of NumPy, in this process:
``python -m bench.standards.estimators SAMPLES FEATURES`` prints records as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise, r2_score

import eqsat as eq
from bench.reports import Record

CALLS = 15
TOLERANCE = 1e-6
"""Relative to the largest value of a result; the data are float64."""
Make = Callable[[Any], Any]
Job = Callable[[Make], Sequence[Any]]


def jobs(samples: int, features: int) -> dict[str, Job]:
    """What is computed, of arrays that ``make`` makes, by its name."""
    x, y = make_classification(
        samples, features, n_informative=features // 2, n_classes=3, random_state=0
    )
    noise = np.random.default_rng(0).normal(size=samples)
    t = x @ np.arange(features) + noise
    some, others = x[:500], x[500:1000]

    def lda(make: Make) -> Sequence[Any]:
        f = LinearDiscriminantAnalysis().fit(make(x), make(y))
        return f.predict_proba(make(x)), f.transform(make(x)), f.predict(make(x))

    def pca(solver: str) -> Job:
        def job(make: Make) -> Sequence[Any]:
            f = PCA(n_components=4, svd_solver=solver).fit(make(x))
            return f.transform(make(x)), f.explained_variance_

        return job

    def ridge(make: Make) -> Sequence[Any]:
        f = Ridge(alpha=0.5, solver="svd").fit(make(x), make(t))
        return f.coef_, f.predict(make(x))

    def pairs(name: str) -> Job:
        metric = getattr(pairwise, name)
        return lambda make: [metric(make(abs(some)), make(abs(others)))]

    metrics = ["euclidean_distances", "cosine_similarity", "rbf_kernel"]
    metrics += ["polynomial_kernel", "additive_chi2_kernel", "paired_cosine_distances"]
    return {
        "LinearDiscriminantAnalysis": lda,
        "PCA, full": pca("full"),
        "PCA, covariance_eigh": pca("covariance_eigh"),
        "Ridge, svd": ridge,
        **{name: pairs(name) for name in metrics},
        "r2_score": lambda make: [r2_score(make(t), make(t + noise))],
    }


def record(name: str, job: Job) -> Record:
    """Whether results agree, and the seconds of a first and a later call."""
    found: Record = {"name": name, "why": ""}
    want = [np.asarray(v) for v in job(np.asarray)]
    try:
        start = time.perf_counter()
        got = [np.asarray(v) for v in job(eq.asarray)]
        found["first_s"] = time.perf_counter() - start
    except Exception as error:
        return found | {"why": f"{type(error).__name__}: {error}".partition("\n")[0]}
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            found["why"] = f"result {i}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        elif not np.abs(a - b).max() <= TOLERANCE * np.abs(b).max():
            found["why"] = f"result {i}: off by {np.abs(a - b).max():.3g}"
    return found | {
        "numpy_s": later(job, np.asarray),
        "eqsat_s": later(job, eq.asarray),
    }


def later(job: Job, make: Make) -> float:
    """Median seconds of a later call, values and all."""
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        for value in job(make):
            np.asarray(value)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[2:]))


def main() -> None:
    """Print the records."""
    sklearn.set_config(array_api_dispatch=True)
    (eq.ones(3) + 1).eval()  # loads the engine
    wanted = jobs(int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps([record(name, job) for name, job in wanted.items()]))


if __name__ == "__main__":
    main()
