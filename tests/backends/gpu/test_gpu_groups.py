"""How many threads share a group of a generated kernel."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from gpu_runs import kernel_of, optimised, unit_of
from metal import model
from programs import program_of

from eqsat import ops
from eqsat.backends.gpu.printing import maps
from eqsat.terms.type_rules import BF16


@pytest.mark.parametrize(
    ("f", "shape", "dtype", "group"),
    [
        (ops.gelu, (8192, 4096), "float32", 128),
        (ops.gelu, (1024, 1024), "float32", 256),
        (ops.gelu, (8192, 4096), "bfloat16", 256),
        (lambda x: np.tanh(x).T, (8192, 4096), "float32", 256),
        (lambda x: np.tanh(x[::-1, ::-1]), (8192, 4096), "float32", 128),
        (ops.softmax, (4096, 4096), "float32", 512),
        (ops.softmax, (4096, 4096), "bfloat16", 256),
        (ops.softmax, (4096, 1024), "float32", 128),
        (ops.logsumexp, (4096, 4096), "float32", 256),
        (ops.logsumexp, (4096, 4096), "bfloat16", 128),
    ],
)
def test_groups_of_large_arrays(
    f: Callable[..., object], shape: tuple[int, ...], dtype: str, group: int
) -> None:
    x = np.zeros(shape, BF16 if dtype == "bfloat16" else np.dtype(dtype))
    assert kernel_of(optimised(f, [x])).source.group == group


def test_what_a_row_alone_reads_is_kept_in_the_cache() -> None:
    """Not what several rows read, nor where no row is written."""

    def loads(f: Callable[..., object], *arrays: np.ndarray, to: str = "cuda") -> set:
        body = kernel_of(optimised(f, list(arrays)), to).source.body
        return set(re.findall(r"(eq_load\w*)<.*\((b\d)", body))

    x, w = np.zeros((4, 128, 4096), "f4"), np.ones(4096, "f4")
    both = {("eq_load_kept", "b0"), ("eq_load", "b1")}
    assert loads(ops.rms_norm, x, w) == both
    assert loads(lambda x, m: ops.softmax(x + m), x, x[:, :1]) == both
    assert loads(ops.rms_norm, x, w, to="metal") == {
        ("eq_load", "b0"),
        ("eq_load", "b1"),
    }
    assert loads(ops.logsumexp, x) == {("eq_load", "b0")}


@pytest.mark.sampled(6)
@pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize("shape", [(1000,), (16, 68), (1003,)])
def test_large_maps_end_anywhere(
    shape: tuple[int, ...], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last group of 128 threads is not full."""
    monkeypatch.setattr(maps, "LARGE", 64)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    p = kernel_of(program_of(lambda x: x * 2.5, x), language)
    s, y = p.source, np.empty_like(x)
    assert s.group == maps.LARGE_GROUP
    function = model.one(unit_of(p, language))
    model.launched(function, [x], [y], s.groups, s.group, 0)
    np.testing.assert_array_equal(y, x * np.float32(2.5))
