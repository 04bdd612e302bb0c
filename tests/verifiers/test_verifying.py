"""Verifiers run where stages hand over, in order, and only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import eqsat as eq
from eqsat.backends.gpu import source_listing
from eqsat.backends.native.plan import verify as of_plan
from eqsat.backends.native.plan import verify_code as of_code
from eqsat.support import verification
from eqsat.support.errors import VerifyError
from eqsat.support.verification import Broken, refuse, verifying

VERIFIERS = (
    "eqsat.egraph.verify",
    "eqsat.kernels.verify",
    "eqsat.backends.loop_ir.verify_pieces",
    "eqsat.backends.gpu.verify",
)
X = np.ones((64, 48), np.float32)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages whose data are verified, as that happens."""
    seen: list[str] = []

    def spy(stage: str, broken: Iterable[Broken]) -> None:
        seen.append(stage)
        refuse(stage, broken)

    for module in (*map(import_module, VERIFIERS), of_plan, of_code):
        monkeypatch.setattr(module, "refuse", spy)
    monkeypatch.setenv("EQSAT_CACHE", "0")
    return seen


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EQSAT_VERIFY", "0")
    verifying.cache_clear()
    yield
    monkeypatch.undo()
    verifying.cache_clear()


def layer(x: Any, w: Any) -> Any:
    return eq.softmax(np.tanh(x @ w) + 1)


def test_each_stage_is_verified_in_order(stages: list[str]) -> None:
    low = eq.jit(layer, backend="native").lower(X, X.T.copy())
    assert stages == ["saturate", "fuse", "extract"]
    low.compile()
    expected = ["saturate", "fuse", "extract", "loops", "native plan", "native program"]
    assert list(dict.fromkeys(stages)) == expected
    source_listing.metal(low.program)
    assert "gpu kernels" in stages


def test_nothing_is_verified_unless_asked(stages: list[str], off: None) -> None:
    low = eq.jit(layer, backend="native").lower(X, X.T.copy())
    low.compile()
    source_listing.metal(low.program)
    assert not verification.verifying() and stages == []


def test_the_first_broken_rule_is_named() -> None:
    listed = [Broken("kernel 3", "it ends", 1, 2), Broken("kernel 4", "it ends", 3, 4)]
    with pytest.raises(VerifyError) as raised:
        refuse("stage", iter(listed))
    assert isinstance(raised.value, eq.EqsatError)
    said = "stage: kernel 3: it ends\n  actual: 1\n  expected: 2"
    assert str(raised.value) == said
    refuse("stage", iter(()))
