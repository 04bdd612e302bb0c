"""Arrays for two functions, drawn as the check of rules draws them where rounding shows
most, and where the numbers of the functions lead (:mod:`eqsat.checking.draws`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from eqsat.checking import LIMIT, Pressing, fitting_shapes, led_to, ways
from eqsat.support import Array
from eqsat.terms import SCALAR, Axes, Term, postorder

Drawn = tuple[Array, ...]
TIMES = 4
"""How often what is left to chance is drawn: rules have as many floating dtypes."""


def pressed_arrays(
    axes: Sequence[Axes],
    dtypes: Sequence[np.dtype[Any]],
    terms: Sequence[Term],
    seed: int,
) -> Iterator[Drawn]:
    """Arrays of some axes and dtypes that press what is computed by ``terms``."""
    rng = np.random.default_rng(seed)
    met = list(postorder(terms))
    numbers = [t.attrs[0] for t in met if t.op is SCALAR]
    named = [float(n) for n in numbers if isinstance(n, (int, float))]
    finite = [n for n in dict.fromkeys(named) if np.isfinite(n)]
    params = range(len(axes))
    leads = led_to(terms, params, finite)
    floats = [d for d in dtypes if d in LIMIT]
    dtype = min(floats or dtypes, key=lambda d: LIMIT.get(d, 0))
    asked = Pressing(dtype, dict(enumerate(dtypes)), leads, finite)
    tokens = [a for of in axes for a in of.tokens]
    names = [a for a in dict.fromkeys(tokens) if isinstance(a, str) and a != "..."]
    ops = {t.op.name for t in met}
    led = any(a or b for a, b in leads.values())
    for way in ways(dtype, ops, led, TIMES):
        fixed, batch = way.sizes(names, rng)
        shapes = fitting_shapes(
            axes,
            lambda n: int(rng.integers(n)),
            fixed,
            batch=batch,
            whole=True,
            unusual=(None,),
        )
        with np.errstate(all="ignore"):
            made = way.draw(asked, rng, dict(enumerate(shapes)))
            yield tuple(made[i].astype(d) for i, d in enumerate(dtypes))


def smaller(
    axes: Sequence[Axes], drawn: Drawn, fails: Callable[[Drawn], bool]
) -> Drawn:
    """A part of arrays of some axes that ``fails`` as well: of each axis a half, as
    often as one does."""
    while True:
        for part in _parts(axes, drawn):
            if fails(part):
                drawn = part
                break
        else:
            return drawn


def _parts(axes: Sequence[Axes], drawn: Drawn) -> Iterator[Drawn]:
    """The arrays with half of an axis, in all arrays that have it."""
    places: dict[Any, list[tuple[int, int]]] = {}
    for i, (of, a) in enumerate(zip(axes, drawn, strict=True)):
        extra = a.ndim - of.rank
        at = len(of.before)
        for k, token in enumerate((*of.before, *of.after)):
            places.setdefault(token, []).append((i, k + extra * (k >= at)))
        for k in range(extra):
            places.setdefault(k - extra, []).append((i, at + k))
    for token, held in places.items():
        n = drawn[held[0][0]].shape[held[0][1]]
        if (isinstance(token, int) and token > 0) or n < 2:
            continue
        for low, high in ((0, n // 2), (n // 2, n)):
            part = list(drawn)
            for i, k in held:
                part[i] = np.take(part[i], range(low, high), k)
            yield tuple(part)
