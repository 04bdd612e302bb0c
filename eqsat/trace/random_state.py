"""Objects that change when they are asked: random generators, iterators, files."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from io import BytesIO, IOBase, StringIO
from types import BuiltinMethodType, MethodType, MethodWrapperType
from typing import Any
from weakref import ProxyTypes

from numpy import ndindex
from numpy.random import BitGenerator, Generator, RandomState


def owner_of(value: Any) -> Any:
    """The object that a method is bound to; any other value itself."""
    methods = MethodType, BuiltinMethodType, MethodWrapperType
    return value.__self__ if isinstance(value, methods) else value


def has_state(value: Any) -> bool:
    """Whether asking ``value`` for a number or an element changes it."""
    kinds = (Generator, RandomState, BitGenerator, random.Random)
    if type(value) in ProxyTypes:  # asking a dead one is an error
        return False
    return isinstance(value, kinds) or is_iterator(value) or _is_read(value)


def is_iterator(value: Any) -> bool:
    """Whether ``value`` is an iterator of Python's own, or a ``np.ndindex``, whose
    place nobody can ask for."""
    kind: Any = type(value)
    own = (
        kind.__module__.partition(".")[0] in sys.stdlib_module_names or kind is ndindex
    )
    return own and isinstance(value, Iterator) and not isinstance(value, IOBase)


def _is_read(value: Any) -> bool:
    """Whether ``value`` is an open file that is only read, from some place in it."""
    if not isinstance(value, IOBase) or value.closed or not value.readable():
        return False
    in_memory = isinstance(value, (StringIO, BytesIO))
    return in_memory or (value.seekable() and not value.writable())


def state_of(value: Any) -> Any:
    """The state of what :func:`has_state`; None where it cannot be asked for."""
    if isinstance(value, IOBase):
        return _place_in(value)
    if isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else value.getstate()
    if isinstance(value, RandomState):
        return value.get_state(legacy=False)
    bits = value.bit_generator if isinstance(value, Generator) else value
    return bits.state if isinstance(bits, BitGenerator) else None


def set_state(value: Any, state: Any) -> None:
    """Put what has a state back to one of :func:`state_of`."""
    if isinstance(value, IOBase):
        value.seek(state)
    elif isinstance(value, random.Random):
        value.setstate(state)
    elif isinstance(value, RandomState):
        value.set_state(state)
    else:
        bits = value.bit_generator if isinstance(value, Generator) else value
        bits.state = state


def _place_in(file: IOBase) -> int:
    """Where a file is read from; -1 where it is closed or being iterated over."""
    try:
        return file.tell()
    except (OSError, ValueError):
        return -1
