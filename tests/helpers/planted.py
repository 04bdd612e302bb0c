"""Defects planted in data that stages hand over, and what verifiers say of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eqsat.support.errors import VerifyError


@contextmanager
def caught(stage: str, node: str, rule: str) -> Iterator[None]:
    """Inside, a verifier names this stage, this node and this rule (parts of each),
    and says what is there and what should be."""
    with pytest.raises(VerifyError) as raised:
        yield
    error = raised.value
    assert error.stage == stage
    assert node in error.node
    assert rule in error.rule
    lines = str(error).splitlines()
    assert lines[0] == f"{stage}: {error.node}: {error.rule}"
    assert f"  actual: {error.actual}" in str(error)
    assert f"  expected: {error.expected}" in str(error)
