"""What objects of Python's library, and views of NumPy's, hold: parts by type.

Types are known by their names, so that no module is imported for them.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Final

Parts = list[tuple[Hashable, Any]]
"""Names and values."""
_ABSENT: Final = object()

PROXIES = frozenset(weakref.ProxyTypes)
"""Types of weak proxies. Python takes one for what it stands for, and asking a dead one
raises ``ReferenceError``: ask for these types first."""


def is_weak(kind: type) -> bool:
    """Whether ``kind`` is of weak references or proxies."""
    return kind in PROXIES or issubclass(kind, weakref.ref)


def is_known(kind: type) -> bool:
    """Whether :func:`parts` or :func:`referent` tells what objects of a type hold."""
    return is_weak(kind) or f"{kind.__module__}.{kind.__qualname__}" in _PARTS


def referent(value: Any) -> Any:
    """What a weak reference or proxy stands for; None for a dead one, and for any
    other object."""
    if type(value) in PROXIES:
        try:
            return value.__reduce_ex__.__self__
        except ReferenceError:
            return None
    return weakref.ref.__call__(value) if is_weak(type(value)) else None


def parts(value: Any) -> Parts | None:
    """What an object of a known type holds now; None for any other object."""
    kind = type(value)
    ask = _of_kind.get(kind)
    if ask is None and kind.__qualname__ in _QUALNAMES:
        ask = _PARTS.get(f"{kind.__module__}.{kind.__qualname__}")
        if ask is not None:
            _of_kind[kind] = ask
    return None if ask is None else ask(value)


def _named(*names: str) -> Callable[[Any], Parts]:
    """The attributes of these names, of those that are there."""

    def ask(value: Any) -> Parts:
        found = [(name, getattr(value, name, _ABSENT)) for name in names]
        return [(name, part) for name, part in found if part is not _ABSENT]

    return ask


def _assigned(value: Any) -> Parts:
    return list(vars(value).items())


def _behind(proxy: Any) -> Any:
    """The mapping that a read-only proxy shows."""
    return gc.get_referents(proxy)[0]


def _of_view(view: Any) -> Parts:
    return [("mapping", _behind(view.mapping))]


def _of_context(variable: Any) -> Parts:
    try:
        return [("get", variable.get())]
    except LookupError:  # nothing is set, and it has no default
        return []


def _of_file(file: Any) -> Parts:
    return [] if file.closed else [("value", file.getvalue())]


def _of_iterated(value: Any) -> Parts:
    try:
        return [("operands", value.operands), ("index", value.iterindex)]
    except ValueError:  # it is closed
        return []


def _by_key(value: Any) -> Parts:
    return [("keys", tuple(value.data)), ("data", value.data)]


_BY_NAMES = {
    "builtins.method": "__func__ __self__",
    "builtins.cell": "cell_contents",
    "functools.partial": "func args keywords",
    "collections.ChainMap": "maps",
    "collections.UserDict": "data",
    "collections.UserList": "data",
    "collections.UserString": "data",
    "collections.abc.KeysView": "_mapping",
    "collections.abc.ValuesView": "_mapping",
    "collections.abc.ItemsView": "_mapping",
    "weakref.WeakValueDictionary": "data",
    "queue.Queue": "queue",
    "queue.LifoQueue": "queue",
    "queue.PriorityQueue": "queue",
    "threading.Event": "_flag",
    "configparser.ConfigParser": "_defaults _sections",
    "configparser.RawConfigParser": "_defaults _sections",
    "configparser.SectionProxy": "_name _parser",
    "multiprocessing.sharedctypes.Synchronized": "_obj",
    "multiprocessing.sharedctypes.SynchronizedArray": "_obj",
    "multiprocessing.shared_memory.SharedMemory": "_buf",
    "numpy.flatiter": "base index",
    "numpy.broadcast": "iters index",
    "numpy.ndenumerate": "iter",
}
_VIEWS = "dict_keys dict_values dict_items odict_keys odict_values odict_items".split()
_PARTS: dict[str, Callable[[Any], Parts]] = {
    **{kind: _named(*names.split()) for kind, names in _BY_NAMES.items()},
    **{f"builtins.{kind}": _of_view for kind in _VIEWS},
    "builtins.mappingproxy": lambda v: [("mapping", _behind(v))],
    "types.SimpleNamespace": _assigned,
    "argparse.Namespace": _assigned,
    "_thread._local": _assigned,
    "_contextvars.ContextVar": _of_context,
    "_io.StringIO": _of_file,
    "_io.BytesIO": _of_file,
    "numpy.nditer": _of_iterated,
    "weakref.WeakKeyDictionary": _by_key,
    "_weakrefset.WeakSet": lambda v: [("data", tuple(v.data))],
}
_QUALNAMES = frozenset(name.rpartition(".")[2] for name in _PARTS)
_of_kind: dict[type, Callable[[Any], Parts]] = {}
"""The types among them that were seen: none is of a user."""
