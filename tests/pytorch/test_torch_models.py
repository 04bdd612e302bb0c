"""Models under ``torch.compile(backend="eqsat")`` give what they give without."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import eqsat.pytorch as eqsat_torch  # noqa: E402
from eqsat.support import EqsatError, OptionError, TraceError  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    eqsat_torch.fallbacks(clear=True)


class Cells(nn.Module):  # type: ignore[misc, name-defined]
    """A few steps of two recurrent cells."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(5, 6), nn.GRUCell(6, 4)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(x.shape[0], 6)
        s = x.new_zeros(x.shape[0], 4)
        for i in range(2):
            h, c = self.lstm(x[:, i], (h, c))
            s = self.gru(h, s)
        return s, c


def mlp() -> Any:
    return nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3), nn.Softmax(-1))


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 2, 1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def encoder() -> Any:
    return nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, (4, 5)),
    "convolutions": (convolutions, (2, 3, 6, 5)),
    "encoder": (encoder, (2, 3, 16)),
    "cells": (Cells, (3, 2, 5)),
    "norms": (lambda: nn.Sequential(nn.LayerNorm(6), nn.BatchNorm1d(6)), (5, 6)),
    "groups": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU()), (2, 4, 3, 3)),
}


def leaves(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def compare(model: Any, x: Any, trains: bool) -> None:
    """Results, gradients and buffers of a model and of the compiled one."""
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend="eqsat")
    given = [x.clone().requires_grad_(trains) for _ in range(2)]
    with torch.set_grad_enabled(trains):
        want = leaves(model(given[0]))
        found = leaves(compiled(given[1]))
    for a, b in zip(found, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert a.stride() == b.stride()
    if trains:
        weights = [torch.randn(b.shape) for b in want]
        for results in (want, found):
            total = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
            total.backward()
        torch.testing.assert_close(given[1].grad, given[0].grad, rtol=1e-3, atol=1e-4)
        pairs = zip(other.parameters(), model.parameters(), strict=True)
        for p, q in pairs:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-4)
    for p, q in zip(other.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["mlp", "convolutions"])
def test_a_model_that_trains(name: str) -> None:
    make, shape = MODELS[name]
    compare(make(), torch.randn(shape), trains=True)
    assert eqsat_torch.fallbacks() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("trains", [False, True])
def test_a_model(name: str, trains: bool) -> None:
    make, shape = MODELS[name]
    compare(make().train(trains), torch.randn(shape), trains)
    left = {f.op for f in eqsat_torch.fallbacks()}
    assert left <= {"_transformer_encoder_layer_fwd.default"}


def test_the_name_is_an_entry_point() -> None:
    (found,) = entry_points(group="torch_dynamo_backends", name="eqsat")
    assert found.load() is eqsat_torch.backend


def test_another_shape_is_another_program() -> None:
    model = nn.Linear(4, 3)
    compiled = torch.compile(model, backend=eqsat_torch.backend)
    for n in (2, 3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), model(x))


def test_what_stays_in_torch_is_listed() -> None:
    def f(x: Any, y: Any) -> Any:
        return torch.linalg.det(torch.exp(x)) + torch.cummax(y, 0).values.sum()

    x, y = torch.rand(3, 3), torch.rand(4)
    compiled = torch.compile(f, backend="eqsat")
    torch.testing.assert_close(compiled(x, y), f(x, y))
    left = eqsat_torch.fallbacks(clear=True)
    assert {f.op for f in left} == {"_linalg_det.default", "cummax.default"}
    assert {f.reason for f in left} == {"the table has no such operator"}
    assert eqsat_torch.fallbacks() == []


def test_a_program_that_cannot_be_made_is_run_by_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from eqsat.pytorch.table import TABLE

    calls = []

    def sin(x: Any) -> Any:
        calls.append(x)
        if len(calls) > 1:
            raise TraceError("not again")
        return np.sin(x)

    monkeypatch.setitem(TABLE, "sin", sin)
    x = torch.rand(3)
    compiled = torch.compile(lambda x: x.sin() * 2, backend="eqsat")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x.sin() * 2)
    assert len(calls) == 2
    left = {(f.op, f.reason) for f in eqsat_torch.fallbacks()}
    assert left == {("sin.default", "not again"), ("mul.Tensor", "not again")}


def test_random_numbers_are_those_of_torch() -> None:
    def f(x: Any) -> Any:
        first = torch.rand(50) * x.sin()
        y = torch.nn.functional.dropout(first, 0.5) + torch.randn(50)
        return torch.where(torch.bernoulli(x) > 0, y, y.cos())

    x = torch.rand(50)
    torch.manual_seed(1)
    want = f(x)
    torch.manual_seed(1)
    torch.testing.assert_close(torch.compile(f, backend="eqsat")(x), want)


def test_writes_to_arguments_and_results_that_are_arguments() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        y[:, 0] = x.sum()
        return x, y.T, (x * 2)[:, 1:]

    given = [torch.rand(2, 3), torch.rand(3, 2)]
    other = [x.clone() for x in given]
    want = f(*given)
    found = torch.compile(f, backend="eqsat")(*other)
    for a, b in zip((*other, *found), (*given, *want), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert found[0] is other[0]
    assert found[1].data_ptr() == other[1].data_ptr()


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
def test_dtypes_of_models(name: str) -> None:
    dtype = getattr(torch, name)
    model = mlp().to(dtype)
    x = torch.randn(3, 5, dtype=dtype)
    found = torch.compile(model, backend="eqsat")(x)
    assert found.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found, model(x), rtol=16 * eps, atol=16 * eps)


def test_a_gradient_that_is_expanded_is_no_constant() -> None:
    compiled = torch.compile(lambda x: x.exp().tanh(), backend="eqsat")
    for n in (1.0, 2.0):
        x = torch.rand(3, requires_grad=True)
        (compiled(x) * 1).sum().mul(n).backward()
        torch.testing.assert_close(x.grad, n * (1 - x.exp().tanh() ** 2) * x.exp())


def test_options_are_those_of_jit() -> None:
    x = torch.rand(3)
    options = {"backend": "numpy"}
    compiled = torch.compile(torch.sin, backend="eqsat", options=options)
    torch.testing.assert_close(compiled(x), torch.sin(x))
    with pytest.raises(OptionError, match=r"no option 'speed'; there are backend"):
        eqsat_torch.backend(None, [], options={"speed": 1})
    with pytest.raises(OptionError, match="mode='reduce-overhead'"):
        eqsat_torch.backend(None, [], mode="reduce-overhead")


def test_other_devices_are_refused() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from eqsat.pytorch.program import TorchProgram

    graph = make_fx(lambda x: x + 1)(torch.ones(2, device="meta"))
    with pytest.raises(EqsatError, match="on the device meta, expected cpu"):
        TorchProgram(graph, {})
