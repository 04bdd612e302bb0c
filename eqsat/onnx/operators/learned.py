"""Trees and tables of the domain ``ai.onnx.ml``, and steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.onnx.operators.table import known, operator

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(x: Any, places: Any) -> Any:
    """Elements of the last axis."""
    found = np.take(x, places.reshape(-1), axis=-1)
    return found.reshape(1, -1) if x.ndim == 1 else found


@operator("Binarizer", domain=ML)
def binarizer(x: Any, *, threshold: float) -> Any:
    """1 above a threshold, else 0."""
    return (x > threshold).astype(x.dtype)


@operator("LabelEncoder", domain=ML, on_host=True)
def label_encoder(
    x: Any,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Any = None,
    keys_floats: Any = None,
    keys_int64s: Any = None,
    keys_strings: Any = None,
    keys_tensor: Any = None,
    values_floats: Any = None,
    values_int64s: Any = None,
    values_strings: Any = None,
    values_tensor: Any = None,
) -> Any:
    """What a table has for each element."""
    keys = next(
        k
        for k in (keys_tensor, keys_floats, keys_int64s, keys_strings)
        if k is not None
    )
    columns = [
        (values_tensor, None, None),
        (values_floats, default_float, np.float32),
        (values_int64s, default_int64, np.int64),
        (values_strings, default_string, object),
    ]
    values, default, dtype = next(c for c in columns if c[0] is not None)
    if values_tensor is not None:
        dtype = values_tensor.dtype
        other = {"f": default_float, "i": default_int64}.get(dtype.kind, default_string)
        default = other if default_tensor is None else default_tensor.reshape(-1)[0]
    keys = np.asarray(keys).reshape(-1).tolist()
    table = dict(zip(keys, np.asarray(values).reshape(-1).tolist(), strict=True))
    nan = next((v for k, v in table.items() if k != k), default)
    items = known(x).reshape(-1).tolist()
    made = np.empty(len(items), dtype)
    made[:] = [table.get(k, default) if k == k else nan for k in items]
    return made.reshape(x.shape)


@operator("TreeEnsemble", domain=ML, on_host=True)
def tree_ensemble(
    x: Any,
    *,
    aggregate_function: int,
    leaf_targetids: Any,
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int | None = None,
    nodes_falseleafs: Any,
    nodes_falsenodeids: Any,
    nodes_featureids: Any,
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = None,
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: Any,
    nodes_truenodeids: Any,
    post_transform: int,
    tree_roots: Any,
) -> Any:
    """Sums of the leaves that decision trees lead to."""
    if post_transform:
        raise ValueError(f"post_transform {post_transform} is not supported")
    x = known(x)
    members = _members(nodes_modes, membership_values)
    tests = [
        lambda v, s: v <= s,
        lambda v, s: v < s,
        lambda v, s: v >= s,
        lambda v, s: v > s,
        lambda v, s: v == s,
        lambda v, s: v != s,
    ]
    targets = n_targets or int(max(leaf_targetids)) + 1
    made = np.zeros((len(x), targets), x.dtype)
    for i, row in enumerate(x):
        found: list[list[float]] = [[] for _ in range(targets)]
        for root in tree_roots:
            at, is_leaf = int(root), False
            for _ in range(len(nodes_modes) + 1):
                if is_leaf:
                    break
                v, mode = row[nodes_featureids[at]], int(nodes_modes[at])
                if mode == 6:
                    true = float(v) in members[at]
                else:
                    true = bool(tests[mode](v, nodes_splits[at]))
                tracks = nodes_missing_value_tracks_true
                if np.isnan(v) and tracks is not None and tracks[at]:
                    true = True
                leafs = nodes_trueleafs if true else nodes_falseleafs
                ids = nodes_truenodeids if true else nodes_falsenodeids
                at, is_leaf = int(ids[at]), bool(leafs[at])
            else:
                raise ValueError("a tree has a circle")
            found[int(leaf_targetids[at])].append(float(leaf_weights[at]))
        for t, weights in enumerate(found):
            if weights:
                join = (np.mean, np.sum, np.min, np.max)[aggregate_function]
                made[i, t] = (
                    join(weights)
                    if aggregate_function
                    else sum(weights) / len(tree_roots)
                )
    return made


def _members(modes: Any, values: Any) -> dict[int, set[float]]:
    """The sets of nodes that ask for membership; NaN ends each set."""
    rows: list[set[float]] = [set()]
    for v in [] if values is None else np.asarray(values).tolist():
        if v != v:
            rows.append(set())
        else:
            rows[-1].add(float(v))
    asking = [i for i, m in enumerate(modes) if int(m) == 6]
    return dict(zip(asking, rows, strict=False))


# -- training --------------------------------------------------------------------------


def _groups(xs: Any, count: int) -> list[Any]:
    """Parameters, gradients and states of each parameter."""
    n = len(xs) // count
    return list(zip(*(xs[i * n : (i + 1) * n] for i in range(count)), strict=True))


def _in_order(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(v for column in zip(*rows, strict=True) for v in column)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Any,
    step: Any,
    *xs: Any,
    decay_factor: float,
    epsilon: float,
    norm_coefficient: float,
) -> Any:
    """x - r g / (√h + ε), where h sums g². Duchi et al. 2011."""
    r = rate / (1 + step * decay_factor)
    rows = []
    for x, g, h in _groups(xs, 3):
        g = norm_coefficient * x + g
        h = h + g * g
        rows.append(((x - r * g / (np.sqrt(h) + epsilon)).astype(x.dtype), h))
    return _in_order(rows)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Any,
    step: Any,
    *xs: Any,
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> Any:
    """Kingma & Ba 2015, arXiv:1412.6980."""
    rows = []
    corrected = rate * np.sqrt(1 - beta ** step.astype(np.float64))
    corrected = corrected / (1 - alpha ** step.astype(np.float64))
    r = np.where(step > 0, corrected, rate)
    for x, g, v, h in _groups(xs, 4):
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        y = x - r * v / (np.sqrt(h) + epsilon)
        rows.append((((1 - norm_coefficient_post) * y).astype(x.dtype), v, h))
    return _in_order(rows)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Any,
    step: Any,
    *xs: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """A step along a running sum of gradients, or beyond it (Nesterov)."""
    rows = []
    for x, g, v in _groups(xs, 3):
        g = norm_coefficient * x + g
        v = alpha * v + np.where(step > 0, beta, 1) * g
        along = g + alpha * v if mode == "nesterov" else v
        rows.append(((x - rate * along).astype(x.dtype), v.astype(x.dtype)))
    return _in_order(rows)
