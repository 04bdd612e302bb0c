"""The modules of MLX that a function calls, and the arrays that they hold."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn


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


def modules_of(fn: Callable[..., Any]) -> list[Any]:
    """Modules that ``fn`` is, is a method of, or names: in its closure, its defaults or
    its globals, also by functions named there."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    waiting: list[Any] = [fn]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            found[id(value)] = value
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
        else:
            waiting += _named_by(value)
    return list(found.values())


def _named_by(fn: Any) -> Iterator[Any]:
    """What a function may call or read."""
    if isinstance(fn, MethodType):
        yield from (fn.__self__, fn.__func__)
    elif isinstance(fn, functools.partial):
        yield from (fn.func, fn.args, fn.keywords)
    elif isinstance(fn, FunctionType):
        for cell in fn.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # it is empty
                continue
        yield fn.__defaults__ or ()
        yield fn.__kwdefaults__ or ()
        spaces = fn.__globals__
        for name in fn.__code__.co_names:
            value = spaces.get(name)
            if isinstance(value, (nn.Module, FunctionType, functools.partial)):
                yield value
    elif hasattr(fn, "__wrapped__"):
        yield fn.__wrapped__


class ModuleState:
    """All that some modules hold, as it is now."""

    def __init__(self, modules: list[Any]) -> None:
        self.slots: list[WeightSlot] = []
        """Their arrays."""
        self._others: list[tuple[Any, Any, Any]] = []
        self._holders: list[tuple[Any, Any]] = []
        seen: set[int] = set()
        for i, module in enumerate(modules):
            self._walk(module, str(i), seen)
        self.arrays = [slot.array for slot in self.slots]

    def _walk(self, holder: Any, path: str, seen: set[int]) -> None:
        if id(holder) in seen:
            return
        seen.add(id(holder))
        items = list(holder.items() if isinstance(holder, dict) else enumerate(holder))
        if isinstance(holder, nn.Module):
            own = vars(holder)
            self._others += [(own, k, v) for k, v in own.items()]
        if not isinstance(holder, tuple):
            self._holders.append((holder, dict(items)))
        for key, value in items:
            if isinstance(value, (dict, list, tuple)):
                self._others.append((holder, key, value))
                self._walk(value, f"{path}.{key}", seen)
            elif isinstance(value, mx.array) and not isinstance(holder, tuple):
                self.slots.append(WeightSlot(f"{path}.{key}", holder, key))
            else:
                self._others.append((holder, key, value))

    def moved(self) -> set[str] | None:
        """Paths of arrays in whose place there are others of the same shape and dtype;
        None where the modules hold anything else that is not as it was."""
        moved = set()
        try:
            for slot, array in zip(self.slots, self.arrays, strict=True):
                now = slot.array
                if now is not array:
                    if now.shape != array.shape or now.dtype != array.dtype:
                        return None
                    moved.add(slot.path)
            same = all(h[k] is v for h, k, v in self._others)
        except (AttributeError, IndexError, KeyError):
            return None
        same = same and all(len(h) == len(kept) for h, kept in self._holders)
        return moved if same else None

    def has_new_names(self) -> bool:
        """Whether there are more or fewer entries than then."""
        return any(set(kept) != set(_keys(h)) for h, kept in self._holders)

    def restore(self) -> None:
        """Have the modules hold what they held then."""
        for holder, kept in self._holders:
            if isinstance(holder, list):
                holder[:] = kept.values()
            else:
                holder.clear()
                dict.update(holder, kept)  # modules have another update


def _keys(holder: Any) -> Any:
    return holder.keys() if isinstance(holder, dict) else range(len(holder))
