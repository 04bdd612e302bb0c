"""How data between stages are verified: rules that say what is wrong with a datum.

A verifier is a ``verify.py`` beside the datum: one function for each rule, and
``verify``, which raises for the first rule that is broken. They run where
``EQSAT_VERIFY=1`` asks, and in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from eqsat.support.errors import VerifyError
from eqsat.support.option_table import setting


class Broken:
    """A rule that a datum breaks, and the node, kernel, statement or place that breaks
    it."""

    def __init__(self, node: str, rule: str, actual: object, expected: object) -> None:
        self.node, self.rule = node, rule
        self.actual, self.expected = actual, expected


@cache
def verifying() -> bool:
    """Whether ``EQSAT_VERIFY`` asks for verifiers. Read once."""
    return bool(setting("verify"))


def refuse(stage: str, broken: Iterable[Broken]) -> None:
    """Raise :class:`VerifyError` for the first of ``broken``, if there is one."""
    for found in broken:
        raise VerifyError(stage, found.node, found.rule, found.actual, found.expected)
