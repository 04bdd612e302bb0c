"""The table of NumPy's functions that can be traced; other modules fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.support import EqsatError

Handler = Callable[..., Any]

FUNCTIONS: dict[Any, Handler] = {}
"""Functions of NumPy to what is called in their place, by the same argument names."""
DIRECT: set[Any] = set()
"""Those that take any number of arrays: arguments are passed on as they are."""


def covers(
    *names: str, direct: bool = False, replace: bool = False
) -> Callable[[Handler], Handler]:
    """Enter a handler for those of the functions that this version of NumPy has.

    Raises :class:`EqsatError` for a function that a handler of another module covers,
    unless this one is to ``replace`` it.
    """

    def enter(handler: Handler) -> Handler:
        for name in names:
            found: Any = np
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is not None:
                known = FUNCTIONS.get(found, handler).__module__
                if known != handler.__module__ and not replace:
                    raise EqsatError(
                        f"np.{name} has a handler in {known}\n  write "
                        f"covers({name!r}, replace=True) to replace it"
                    )
                FUNCTIONS[found] = handler
                if direct:
                    DIRECT.add(found)
        return handler

    return enter
