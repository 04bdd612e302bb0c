"""A model as small as one can be, and sentences for it."""

from __future__ import annotations

import numpy as np


def small_minilm(dtype: str, dim: int = 24, hidden: int = 40) -> dict[str, np.ndarray]:
    """Random weights of two layers under the published names."""
    rng = np.random.default_rng(7)
    w = {
        "embeddings.word_embeddings.weight": (50, dim),
        "embeddings.position_embeddings.weight": (16, dim),
        "embeddings.token_type_embeddings.weight": (2, dim),
        "embeddings.LayerNorm.weight": (dim,),
        "embeddings.LayerNorm.bias": (dim,),
    }
    for i in range(2):
        at = f"encoder.layer.{i}."
        parts = {f"attention.self.{p}": (dim, dim) for p in ("query", "key", "value")}
        parts["attention.output.dense"] = (dim, dim)
        parts["intermediate.dense"] = (hidden, dim)
        parts["output.dense"] = (dim, hidden)
        for name, shape in parts.items():
            w |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            w |= {f"{at}{name}.weight": (dim,), f"{at}{name}.bias": (dim,)}
    return {name: rng.normal(0, 0.4, shape).astype(dtype) for name, shape in w.items()}


def small_batch(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Three sentences of 9, 5 and 1 tokens."""
    ids = np.random.default_rng(8).integers(0, 50, (3, 9))
    return ids, (np.arange(9) < np.array([[9], [5], [1]])).astype(dtype)
