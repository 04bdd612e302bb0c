"""Terms as bytes, and back: for programs that are kept between processes."""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from eqsat.ops import STOCK
from eqsat.terms import (
    CONSTANT,
    INPUT,
    SCALAR,
    Op,
    Term,
    TermGraph,
    decode,
    encode,
    postorder,
)
from eqsat.trace import KERNEL, RESULT, BodyStep, KernelBody

_PLAIN = (int, float, str, bool, bytes, type(None))


class NotPortableError(Exception):
    """What another process might take for something else."""


def encode_terms(roots: Sequence[Term], arrays: Mapping[int, int]) -> bytes:
    """``roots`` with all below them. ``arrays``: numbers of the constant arrays, by
    ``id``. The same terms give the same bytes in every process.

    Raises :class:`NotPortableError` for ops that do not come with eqsat.
    """
    place: dict[Term, int] = {}
    rows: list[tuple[Any, ...]] = []
    for t in postorder(roots):
        op = cast(Op, t.op)
        if op is CONSTANT:
            number = arrays.get(cast(int, t.attrs[0]))
            if number is None:
                raise NotPortableError("a constant that the function does not name")
            attrs: Any = (number,)
        else:
            attrs = tuple(_attribute(a) for a in t.attrs)
        args = tuple(place[a] for a in t.args)
        place[t] = len(rows)
        rows.append((_name(op), args, attrs, encode(t.type)))
    # Version 2 has no references, which would tell one object from two equal ones.
    return marshal.dumps((rows, tuple(place[r] for r in roots)), 2)


def decode_terms(
    data: bytes, graph: TermGraph, arrays: Sequence[int], inputs: Sequence[Term]
) -> list[Term]:
    """The roots that :func:`encode_terms` wrote, as terms of ``graph``. ``arrays``:
    ``id`` of its constant arrays by number; ``inputs``: its INPUT leaves.

    Raises :class:`NotPortableError` when the bytes are of no such terms.
    """
    try:
        rows, roots = marshal.loads(data)
        terms: list[Term] = []
        for name, places, values, type_ in rows:
            op = _op(name)
            args = [terms[i] for i in places]
            if op is INPUT:
                terms.append(inputs[values[0]])
                continue
            attrs = tuple(_value(v) for v in values)
            if op is CONSTANT:
                attrs = (arrays[values[0]],)
            terms.append(graph.node(op, args, attrs, decode(type_)))
        return [terms[i] for i in roots]
    except (ValueError, TypeError, LookupError, EOFError) as error:
        raise NotPortableError(str(error)) from error


def check_lowerings() -> None:
    """Raises :class:`NotPortableError` when an op has a lowering or a price that does
    not come with eqsat."""
    for op in Op.registry.values():
        for own in op.lowerings.values():
            for f in (own.function, own.seconds):
                if f is not None and not str(f.__module__).startswith("eqsat."):
                    raise NotPortableError(f"op {op.name} has a lowering from outside")


def _name(op: Op) -> str:
    if id(op) not in STOCK and op is not _SPECIAL.get(op.name):
        raise NotPortableError(f"op {op.name} does not come with eqsat")
    return op.name


def _op(name: str) -> Op:
    op = _SPECIAL.get(name) or Op.registry[name]
    _name(op)
    return op


_SPECIAL = {o.name: o for o in (INPUT, CONSTANT, SCALAR, KERNEL, RESULT)}


def _attribute(value: Any) -> Any:
    """An attribute as plain values."""
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return tuple(map(_attribute, value))
    if isinstance(value, KernelBody):
        steps = tuple((_name(s.op), _attribute(s.attrs), s.args) for s in value.steps)
        if any(s.op is CONSTANT for s in value.steps):
            raise NotPortableError("a constant inside a kernel")
        return [value.arity, steps, value.results, tuple(map(encode, value.types))]
    raise NotPortableError(f"attribute {value!r}")


def _value(value: Any) -> Any:
    """The inverse of :func:`_attribute`."""
    if type(value) is tuple:
        return tuple(map(_value, value))
    if type(value) is list:
        arity, steps, results, types = value
        made = (BodyStep(_op(n), _value(attrs), args) for n, attrs, args in steps)
        return KernelBody(arity, tuple(made), results, tuple(map(decode, types)))
    return value


def canonical(value: Any) -> bytes:
    """Bytes that are the same for equal settings in every process: dataclasses, sets,
    mappings and sequences of plain values.

    Raises :class:`NotPortableError` for anything else.
    """
    return marshal.dumps(_canonical(value), 2)


def _canonical(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Op):
        return ("op", _name(value))
    if isinstance(value, np.dtype):
        return ("dtype", value.str, value.name)
    if kind in (tuple, list):
        return (kind.__name__, *map(_canonical, value))
    if isinstance(value, (frozenset, set)):
        return ("set", *sorted(marshal.dumps(_canonical(v), 2) for v in value))
    if isinstance(value, Mapping):
        items = ((_canonical(k), _canonical(v)) for k, v in value.items())
        return ("map", *sorted(marshal.dumps(i, 2) for i in items))
    if kind.__module__ == "eqsat.rulelang.pattern" and not is_dataclass(value):
        return ("pattern", *_parts(value))
    if is_dataclass(value) and not isinstance(value, type):
        held = tuple(
            (f.name, _canonical(getattr(value, f.name)))
            for f in fields(value)
            if f.compare
        )
        return (kind.__qualname__, *held)
    raise NotPortableError(f"{kind.__name__} in a key")


def _parts(pattern: Any) -> list[Any]:
    """Each part of a pattern once, which names those below it by their numbers."""
    numbers: dict[Any, int] = {}
    found: list[Any] = []

    def number(p: Any) -> int:
        if p not in numbers:
            held = (
                tuple(map(number, p.args)) if n == "args" else _canonical(getattr(p, n))
                for n in type(p).__slots__
            )
            found.append((type(p).__qualname__, *held))
            numbers[p] = len(numbers)
        return numbers[p]

    number(pattern)
    return found
