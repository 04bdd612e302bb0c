"""``Options(adaptive=True)``: programs are priced again while they run."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from eqsat.lowered import Lowered
from eqsat.measure.counts import FunctionCounts, Served
from eqsat.measure.tuning import Tuner
from eqsat.support import EqsatError, LastUse, Watch

FIRST_LOOK = 16
"""Calls after which a function's program is looked at; later ones after twice as many
each time."""
BUDGET_S = 10.0
"""Seconds for one program."""
NAME = "eqsat adaptive"
"""What its threads are called."""


class Adapting(Protocol):
    """A function whose programs may be exchanged."""

    name: str
    counts: FunctionCounts


def adapted(
    of: Adapting,
    function: Callable[..., Any],
    served: Callable[[tuple[Any, ...], dict[str, Any]], Served | None],
    adopt: Callable[[Lowered, Lowered], None],
) -> Callable[..., Any]:
    """``function``, some of whose calls look at the program that served them, once for
    each. A thread of its own measures its kernels; where some depart from the model, it
    searches anew, and has a program that is faster ``adopt``-ed."""
    looked: weakref.WeakSet[LastUse] = weakref.WeakSet()
    calls = itertools.count(1)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        number = next(calls)
        if number & (number - 1) or number < FIRST_LOOK:
            return result
        if not isinstance(sys.getprofile(), Watch):
            found = served(args, kwargs)
            if found and not found.is_lazy and found.low.used not in looked:
                looked.add(found.low.used)
                arrays = [np.array(a) for a in found.arrays]
                work = (of, found.low, arrays, adopt)
                try:
                    threading.Thread(None, _look, NAME, work).start()
                except RuntimeError:  # the interpreter goes down
                    pass
        return result

    return call


def _look(
    of: Adapting,
    low: Lowered,
    arrays: Sequence[Any],
    adopt: Callable[[Lowered, Lowered], None],
) -> None:
    try:
        tuner = Tuner(low, arrays, of.name)
        tuner.run(BUDGET_S, lambda text: None, all_=False)
    except (EqsatError, ArithmeticError, LookupError, MemoryError) as error:
        of.counts.failed(f"{type(error).__name__}: {error}")
        return
    if tuner.best is not low:
        adopt(low, tuner.best)
    of.counts.decided(tuner.decision)
