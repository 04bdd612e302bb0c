"""The modules and optimizers of MLX that a function names, and the arrays that they
hold."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx.optimizers import Optimizer


class WeightSlot(NamedTuple):
    """A place of a module that holds an array."""

    path: str
    holder: Any
    """A dictionary or a list."""
    key: Any

    @property
    def array(self) -> Any:
        """What it holds now."""
        return self.holder[self.key]

    def put(self, array: Any) -> None:
        """Have it hold another array."""
        self.holder[self.key] = array


_HOLDERS = (nn.Module, Optimizer)
_FOLLOWED = (*_HOLDERS, dict, list, tuple, FunctionType, MethodType, functools.partial)


def modules_of(fn: Callable[..., Any]) -> list[Any]:
    """Modules and optimizers that ``fn`` is, is a method of, or names: in its closure,
    defaults and globals or in attributes of its object, also by functions and
    containers there."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    waiting: list[Any] = [fn]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, _HOLDERS):
            found[id(value)] = value
        else:
            waiting += (v for v in _named_by(value) if isinstance(v, _FOLLOWED))
    return list(found.values())


def _named_by(value: Any) -> Iterator[Any]:
    """What a function may call or read, and what a container or an object holds."""
    if isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
        yield getattr(value.__self__, "__dict__", {})
    elif isinstance(value, FunctionType):
        yield from (c.cell_contents for c in value.__closure__ or () if _is_full(c))
        yield from (value.__defaults__ or (), value.__kwdefaults__ or {})
        spaces = value.__globals__
        yield from (spaces.get(name) for name in value.__code__.co_names)
    else:  # an object that can be called
        yield from (getattr(value, "__dict__", {}), getattr(value, "__wrapped__", None))
        yield inspect.getattr_static(value, "__call__", None)


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class _Held(NamedTuple):
    """What a dictionary or a list of a module held."""

    holder: Any
    path: str
    items: dict[Any, Any]
    places: list[int]
    """The identities of what it held: comparing these is quick."""

    @classmethod
    def by(cls, holder: Any, path: str) -> _Held:
        items = dict(holder if isinstance(holder, dict) else enumerate(holder))
        return cls(holder, path, items, [*map(id, items.values())])

    def is_same(self) -> bool:
        """Whether it holds the same objects."""
        holder = self.holder
        now = holder.values() if isinstance(holder, dict) else holder
        return [*map(id, now)] == self.places

    def has_same_keys(self) -> bool:
        """Whether it has entries for the same keys."""
        holder = self.holder
        keys = holder.keys() if isinstance(holder, dict) else range(len(holder))
        return set(keys) == set(self.items)

    def restore(self) -> None:
        """Have it hold what it held."""
        if isinstance(self.holder, list):
            self.holder[:] = self.items.values()
        else:
            self.holder.clear()
            dict.update(self.holder, self.items)  # that of a module is another


class ModuleState:
    """All that some modules and optimizers hold, as it is now."""

    def __init__(self, modules: list[Any]) -> None:
        self.slots: list[WeightSlot] = []
        """Their arrays."""
        self._held: list[_Held] = []
        seen: set[int] = set()
        for i, module in enumerate(modules):
            holder = module if isinstance(module, nn.Module) else vars(module)
            self._walk(holder, str(i), seen)
        self.arrays = [slot.array for slot in self.slots]

    def _walk(self, holder: Any, path: str, seen: set[int]) -> None:
        if id(holder) in seen:
            return
        seen.add(id(holder))
        if isinstance(holder, nn.Module):
            self._held.append(_Held.by(vars(holder), f"{path} "))
        held = _Held.by(holder, path)
        is_fixed = isinstance(holder, tuple)
        if not is_fixed:
            self._held.append(held)
        for key, value in held.items.items():
            if isinstance(value, (dict, list, tuple)):
                self._walk(value, f"{path}.{key}", seen)
            elif isinstance(value, mx.array) and not is_fixed:
                self.slots.append(WeightSlot(f"{path}.{key}", holder, key))

    def moved(self) -> set[str] | None:
        """Paths of arrays in whose place there are others of the same shape and dtype;
        None where the modules hold anything else that is not as it was."""
        moved = set()
        for held in self._held:
            if held.is_same():
                continue
            if not held.has_same_keys():
                return None
            for key, was in held.items.items():
                now = held.holder[key]
                if now is was:
                    continue
                if not _are_alike(now, was):
                    return None
                moved.add(f"{held.path}.{key}")
        return moved

    def has_new_names(self) -> bool:
        """Whether there are more or fewer entries than then."""
        return not all(held.has_same_keys() for held in self._held)

    def restore(self) -> None:
        """Have the modules hold what they held then."""
        for held in self._held:
            held.restore()


def _are_alike(x: Any, y: Any) -> bool:
    """Whether both are arrays of one shape and dtype."""
    if not (isinstance(x, mx.array) and isinstance(y, mx.array)):
        return False
    return bool(x.shape == y.shape and x.dtype == y.dtype)
