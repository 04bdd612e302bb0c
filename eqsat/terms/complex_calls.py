"""How a function of complex numbers is written in a node of the op that calls NumPy.

The node names the function; its settings are a dict of Python, as text. Views of
complex arguments are settings too: NumPy makes them when it calls the function, so that
they copy nothing and the function sees NumPy's own strides.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.support import EqsatError
from eqsat.terms.op import Op
from eqsat.terms.term import Term

OF_COMPLEX = "of_complex"
"""The name of the op that is all functions of complex numbers."""
VIEW_SETTING = "views"
"""The setting that says which views of arguments a function is given."""
_VIEWS = frozenset("reshape broadcast_to transpose slice".split())
View = tuple[str, dict[str, Any]]
"""The name of a view, and its attributes."""


@functools.lru_cache(maxsize=1 << 14)
def settings_of(text: str) -> Mapping[str, Any]:
    """The settings that are written in a node. Raises :class:`EqsatError` for text
    that is none."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if (
        not isinstance(found, dict)
        or not all(isinstance(k, str) for k in found)
        or not _are_views(found.get(VIEW_SETTING, {}))
    ):
        raise EqsatError(f"of_complex: settings {text!r:.60} are no settings")
    return found


def _are_views(found: Any) -> bool:
    """Whether ``found`` gives views by the numbers of arguments."""
    return isinstance(found, dict) and all(
        type(i) is int
        and isinstance(views, list)
        and all(
            isinstance(v, tuple)
            and len(v) == 2
            and v[0] in _VIEWS
            and isinstance(v[1], dict)
            for v in views
        )
        for i, views in found.items()
    )


def as_call(
    function: str, args: Sequence[Term], settings: Mapping[str, Any]
) -> tuple[list[Term], dict[str, Any]]:
    """Arguments and attributes of the node that calls ``function``; arguments that are
    views are those that they show."""
    given, views = [], {}
    for i, a in enumerate(args):
        seen: list[View] = list(settings.get(VIEW_SETTING, {}).get(i, ()))
        while (below := _view(a)) is not None:
            a, view = below
            seen[:0] = view
        given.append(a)
        if seen:
            views[i] = seen
    known = dict(settings) | ({VIEW_SETTING: views} if views else {})
    return given, {"function": function, "settings": repr(known)}


def _view(term: Term) -> tuple[Term, list[View]] | None:
    """What ``term`` shows, and how, where it is a view of complex numbers."""
    if term.op.name != OF_COMPLEX or term.attrs[0] not in _VIEWS:
        return None
    known = dict(settings_of(str(term.attrs[1])))
    first = known.pop(VIEW_SETTING, {}).get(0, [])
    return term.args[0], [*first, (str(term.attrs[0]), known)]


def through_views(args: Sequence[Any], settings: Mapping[str, Any], view: Any) -> Any:
    """The arguments as the function is given them, and its settings without views.
    ``view(op, x, attrs)`` makes one view."""
    own = {k: v for k, v in settings.items() if k != VIEW_SETTING}
    shown = list(args)
    for i, views in settings.get(VIEW_SETTING, {}).items():
        for name, attrs in views:
            shown[i] = view(_view_op(name), shown[i], attrs)
    return shown, own


def _view_op(name: str) -> Op:
    if name not in _VIEWS:
        raise EqsatError(f"of_complex: {name!r:.40} is no view")
    return Op.registry[name]
