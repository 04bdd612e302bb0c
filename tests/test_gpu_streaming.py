"""CUDA kernels that write more than caches hold: what they mark, and their results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bodies import fused_op
from metal import model
from programs import assert_near, program_of
from test_gpu_kernels import CASES, Run, optimised

import eqsat as eq
from eqsat import ops
from eqsat.backends.gpu import streaming
from eqsat.backends.gpu.dialect import DIALECTS
from eqsat.backends.gpu.parts import Generated, parts_of
from eqsat.backends.numpy import interpret
from eqsat.trace import trace

Array = np.ndarray[Any, Any]
LARGE = np.broadcast_to(np.float32(1), (8192, 4096))
VECTOR = np.ones(4096, np.float32)
_CALL = re.compile(r"\b(eq_(?:load|store)\w*)<.*?>\((b\d+)")


def calls(f: Callable[..., Any], *arrays: Array, language: str = "cuda") -> set[str]:
    """How the one kernel of ``f`` reads and writes its buffers."""
    name = f"nobodys_streaming_{f.__name__}"
    (kernel,) = program_of(fused_op(name, f, len(arrays)), *arrays).kernels
    (part,) = parts_of(kernel, DIALECTS[language], {})
    assert isinstance(part, Generated)
    return {" ".join(found) for found in _CALL.findall(part.source.body)}


def scaled(x: Any, w: Any) -> Any:
    return np.tanh(x) * w


def sums(x: Any) -> Any:
    return x.sum(-1)


def test_what_is_read_once_and_what_is_written() -> None:
    marked = {"eq_load_once b0", "eq_load_once b1", "eq_store_past b2"}
    assert calls(scaled, LARGE, VECTOR) == marked
    assert calls(ops.rms_norm, LARGE, VECTOR) == marked


def test_what_is_read_again() -> None:
    long = np.broadcast_to(np.float32(1), (256, 1 << 17))
    assert calls(ops.softmax, long) == {"eq_load b0", "eq_store_past b1"}
    again = np.broadcast_to(np.float32(1), (1024, 4096))
    shape = (8, *again.shape)
    each = np.broadcast_to(np.float32(1), shape)
    assert calls(scaled, each, again) == {
        "eq_load_once b0", "eq_load b1", "eq_store_past b2",
    }  # fmt: skip


def test_what_caches_hold() -> None:
    plain = {"eq_load b0", "eq_load b1", "eq_store b2"}
    assert calls(scaled, LARGE[:2048], VECTOR) == plain
    assert calls(scaled, LARGE, VECTOR, language="metal") == plain
    assert calls(sums, LARGE) == {"eq_load b0"}


@pytest.mark.skipif(model.COMPILER is None, reason="no C++ compiler")
def test_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PAST_BYTES", 0)
    names = [n for n in CASES if n.split()[0] in "map softmax layer_norm residual a"]
    runs = {n: Run(optimised(CASES[n][0], CASES[n][1]), "cuda") for n in names}
    units = list(dict.fromkeys(u for r in runs.values() for u in r.units))
    assert sum("eq_store_past" in u.body for u in units) > len(names) / 2
    functions = model.compiled(units)
    for name, run in runs.items():
        f, arrays = CASES[name]
        want = interpret(trace(f, arrays).outputs, arrays)
        for g, w in zip(run(arrays, functions, 1), want, strict=True):
            assert g.dtype == w.dtype
            assert_near(g, w, 4)


def test_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    mx = pytest.importorskip("mlx.core")
    if not mx.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.setattr(streaming, "PAST_BYTES", 0)
    rng = np.random.default_rng(0)
    flat = mx.array(rng.standard_normal(64 * 4096 + 1).astype(np.float32))
    w = mx.array(rng.standard_normal(4096).astype(np.float32))
    for dtype in (mx.float32, mx.bfloat16):
        for first in (0, 1):  # the second does not begin on 16 bytes
            x = flat.astype(dtype)[first : first + 64 * 4096].reshape(64, 4096)
            args = [x, w.astype(dtype)]
            arrays = [np.array(a.astype(mx.float32)) for a in args]
            for f in (scaled, ops.rms_norm):
                got = np.array(eq.jit(f)(*args).astype(mx.float32))
                (want,) = interpret(trace(f, arrays).outputs, arrays)
                near = 1e-5 if dtype == mx.float32 else 1 / 128
                np.testing.assert_allclose(got, want, rtol=near, atol=near)
