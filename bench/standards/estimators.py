"""Estimators of scikit-learn on lazy arrays and on arrays of NumPy, in this process:
``python -m bench.standards.estimators SAMPLES FEATURES`` prints records as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise, r2_score

import eqsat as eq
from bench.reports import Record, spread
from bench.standards.sklearn_calls import DISCRIMINANTS

CALLS = 31
"""Later calls that are measured, after two."""
TOLERANCE = 1e-6
"""Relative to the largest value of a result; the data are float64."""

Make = Callable[[Any], Any]
Job = Callable[[Make], Sequence[Any]]


def classes(samples: int, features: int) -> Sequence[Any]:
    """Points of three classes, and which class each is of."""
    found: Sequence[Any] = make_classification(
        samples, features, n_informative=features // 2, n_classes=3, random_state=0
    )
    return found


def discriminants(x: Any, y: Any) -> Any:
    """The points by a linear discriminant analysis: what ``fit_transform`` gives."""
    f = LinearDiscriminantAnalysis(n_components=2).fit(x, y)
    return ((x - f.xbar_) @ f.scalings_)[:, :2]


def jobs(samples: int, features: int) -> dict[str, Job]:
    """What is computed, of arrays that ``make`` makes, by its name."""
    x, y = classes(samples, features)
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
        DISCRIMINANTS: lambda make: [discriminants(make(x), make(y))],
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
        start = time.process_time()
        got = [np.asarray(v) for v in job(eq.asarray)]
        found["first_s"] = time.process_time() - start
    except Exception as error:
        return found | {"why": f"{type(error).__name__}: {error}".partition("\n")[0]}
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            found["why"] = f"result {i}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        elif not np.abs(a - b).max() <= TOLERANCE * np.abs(b).max():
            found["why"] = f"result {i}: off by {np.abs(a - b).max():.3g}"
    both = {"NumPy": lambda: job(np.asarray), "eqsat": lambda: job(eq.asarray)}
    return found | in_turn(both)


def in_turn(jobs: Mapping[str, Callable[[], Sequence[Any]]]) -> Record:
    """Seconds of later calls of each, values and all, one after the other: those of the
    processor, which other programs on the machine change little."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(CALLS + 2):
        for name, job in jobs.items():
            start = time.process_time()
            for value in job():
                np.asarray(value)
            seconds[name].append(time.process_time() - start)
    return {name: spread(spent[2:]) for name, spent in seconds.items()}


def main() -> None:
    """Print the records."""
    sklearn.set_config(array_api_dispatch=True)
    (eq.ones(3) + 1).eval()  # loads the engine
    wanted = jobs(int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps([apart(partial(record, *one)) for one in wanted.items()]))


def apart(work: Callable[[], Record]) -> Record:
    """What ``work`` gives in the child of a fork, which finds no programs of others."""
    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sending.send(work()))
    child.start()
    sending.close()
    found: Record = receiving.recv()
    child.join()
    return found


if __name__ == "__main__":
    main()
