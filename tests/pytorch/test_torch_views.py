"""What PyTorch gives without a copy shares memory with what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch_functions import Model, torch

import eqsat as eq
from eqsat import pytorch as eqsat_torch

flat = torch.utils._pytree.tree_leaves

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


VIEWS = {
    "split": lambda y: y.split(3),
    "split of the last axis": lambda y: y.split([1, 3], -1),
    "chunk": lambda y: y.T.chunk(2),
    "unbind": lambda y: y.unbind(1),
    "tensor_split": lambda y: y.tensor_split([1, 2], 1),
    "hsplit": lambda y: torch.hsplit(y, 2),
    "iteration": tuple,
    "parts of parts": lambda y: [c.T.split(1)[1] for c in y.chunk(2)],
    "as_strided": lambda y: y.as_strided((3, 2), (1, 4), 1),
    "overlapping": lambda y: y.as_strided((3, 2), (2, 1)),
    "unfold": lambda y: y.unfold(0, 2, 2),
    "narrow": lambda y: y.narrow(0, 1, 2).flatten(),
    "view_as_real": lambda y: torch.view_as_real(torch.complex(y, y)),
}
SOURCES = {
    "argument": lambda x: x,
    "program": lambda x: x * 2,
    "torch": lambda x: torch.cummax(x, 0).values,
}


def _calls(f: Callable[..., Any], x: Any) -> list[Callable[..., Any]]:
    program = torch.export.export(Model(f), (x,))
    return [
        torch.compile(f, backend=eqsat_torch.backend),
        eq.from_torch(program),
        eq.from_torch(program.run_decompositions()),
    ]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", VIEWS)
def test_writes_to_parts_reach_the_whole(name: str, source: str) -> None:
    """And writes to the whole reach its parts."""

    def f(x: Any) -> Any:
        y = SOURCES[source](x)
        return y, VIEWS[name](y)

    x = torch.arange(16.0).reshape(4, 4)
    for call in _calls(f, x):
        for i in range(len(flat(f(x)))):
            want, found = flat(f(x.clone())), flat(call(x.clone()))
            want[i][-1] = found[i][-1] = 50
            for a, b in zip(found, want, strict=True):
                assert torch.equal(a, b) and a.stride() == b.stride()


def test_parts_are_read_and_written_inside() -> None:
    """By programs, by operators that stay in PyTorch, and in place."""

    def f(x: Any) -> Any:
        y = x.exp()
        a, b = y.split(2)
        a += 1
        b.unbind(0)[1].mul_(2)
        parts = torch.cummax(torch.stack(y.unbind(1)), 0).values.split([1, 3])
        return y, a * parts[1][:2], parts[0] + torch.cummax(b, 1).values.sum()

    x = torch.rand(4, 4)
    for call in _calls(f, x):
        for a, b in zip(call(x), f(x), strict=True):
            torch.testing.assert_close(a, b)
