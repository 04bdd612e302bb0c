"""How the type of a node follows from its arguments: once for terms, once as e-graph
facts.

A type is ``(dtype, shape)``. In the e-graph it is one vector ``[dtype code, d0, d1,
…]``, so that popping trailing axes leaves the dtype in front and one ``:no-merge``
table guards both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eqsat.support import DTypeError, ShapeError, at, caller_line, noted
from eqsat.terms.signature import Bindings, Signature, broadcast
from eqsat.terms.term import DType, Shape, Type, Weak

BF16: np.dtype[np.generic] = np.dtype([("bfloat16", np.uint16)])
"""bfloat16. Where NumPy is alone, which saved programs need, no array has it."""
with suppress(ImportError):
    from ml_dtypes import bfloat16

    BF16 = np.dtype(bfloat16)
_CODES: dict[DType, int] = {Weak.FLOAT: -1, Weak.INT: -2}
_CODES |= {np.dtype(n): i for i, n in enumerate("bool i1 u1 i2 u2 i4 u4 i8 u8".split())}
FLOAT_CODE = 16
"""The least dtype code of a floating dtype."""
_CODES |= {np.dtype("f2"): 16, BF16: 17, np.dtype("f4"): 18, np.dtype("f8"): 19}
_CODES |= {np.dtype("c8"): 12, np.dtype("c16"): 13}
_DTYPES = {code: d for d, code in _CODES.items()}
BOOL = np.dtype(bool)


def dtype_code(dtype: DType) -> int:
    """The code of ``dtype`` in the e-graph. Raises :class:`DTypeError` for unsupported
    dtypes."""
    code = _CODES.get(dtype)
    if code is None:
        supported = (
            "bool, integers of 8 to 64 bits, float16, bfloat16, float32, float64, "
            "complex64 and complex128"
        )
        said = f"dtype {dtype} is not supported; supported are {supported}"
        raise noted(DTypeError(f"{said}{at(caller_line())}"))
    return code


def dtype_of_code(code: int) -> DType:
    """The inverse of :func:`dtype_code`."""
    return _DTYPES[code]


def encode(type_: Type) -> tuple[int, ...]:
    """A type as the vector the e-graph holds."""
    return (dtype_code(type_[0]), *type_[1])


def decode(vector: Sequence[int]) -> Type:
    """The inverse of :func:`encode`."""
    return dtype_of_code(vector[0]), tuple(vector[1:])


def is_float(dtype: DType) -> bool:
    """Whether ``dtype`` is a floating dtype or a bare Python float."""
    return dtype is Weak.FLOAT or (
        dtype is not Weak.INT and dtype_code(dtype) >= FLOAT_CODE
    )


def is_complex(dtype: DType) -> bool:
    """Whether ``dtype`` is complex64, complex128 or a bare Python complex number."""
    return dtype is Weak.COMPLEX or (not isinstance(dtype, Weak) and dtype.kind == "c")


_ROUNDING: dict[DType, float] = {
    np.dtype("f2"): 4.9e-4,
    BF16: 3.9e-3,
    np.dtype("f4"): 6e-8,
    np.dtype("f8"): 2.3e-16,
}


def rounding(dtype: DType) -> float:
    """Half a unit in the last place of 1 in a floating dtype: numbers this close are
    one number.

    0 for other dtypes.
    """
    return 4e-16 if dtype is Weak.FLOAT else _ROUNDING.get(dtype, 0.0)


def common(types: Sequence[Type], who: str) -> DType:
    """The one dtype of the arguments that are not bare numbers."""
    strong = [t[0] for t in types if not isinstance(t[0], Weak)]
    if not strong:
        return Weak.FLOAT if any(t[0] is Weak.FLOAT for t in types) else Weak.INT
    for other in strong[1:]:
        if other != strong[0]:
            raise DTypeError(
                f"{who}: dtypes {strong[0]} and {other} differ{at(caller_line())}"
            )
    return strong[0]


class TypeRule(Protocol):
    """The type of ``op(*args, **attrs)``."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        """The type, or a :class:`ShapeError` or :class:`DTypeError`."""

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        """Rule bodies and heads ``"facts => type"`` for the e-graph; None when Python
        must infer.

        ``call`` is the pattern of the node, with variables ``args`` and ``attrs``.
        """


def typing(call: str, facts: str, result: str) -> str:
    return f"((= e {call}) {facts}) ((set (type e) {result}))"


def demand(call: str, facts: str, a: str, b: str) -> str:
    return f"((= e {call}) {facts}) ((need {a} {b}))"


@dataclass(frozen=True)
class Pointwise:
    """All arguments broadcast together. ``dtype``: a fixed result dtype, else that of
    the arguments.

    ``mask`` says that the first argument is a condition whose dtype does not count.
    """

    dtype: np.dtype[Any] | None = None
    mask: bool = False

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        shape: Shape = ()
        for i, (_, s) in enumerate(types):
            joined = broadcast(shape, s)
            if joined is None:
                raise ShapeError(
                    f"{who}: argument {i} of shape {s} does not broadcast with {shape}"
                    f"{at(caller_line())}"
                )
            shape = joined
        dtype = common(types[1:] if self.mask else types, who)
        return self.dtype or dtype, shape

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        ts = [f"t{i}" for i in range(len(args))]
        facts = " ".join(f"(= {t} (type {a}))" for t, a in zip(ts, args, strict=True))
        if self.mask:
            ts[0] = "(vec-set t0 0 -1)"
        done = f"(vec-set u 0 {dtype_code(self.dtype)})" if self.dtype else "u"
        if len(args) == 1:
            return [typing(call, facts + " (= u t0)", done)]
        rules = []
        joined = ts[0]
        for i, t in enumerate(ts[1:], 1):
            rules.append(demand(call, facts, joined, t))
            facts += f" (= j{i} (bcast {joined} {t}))"
            joined = f"j{i}"
        rules.append(typing(call, f"{facts} (= u {joined})", done))
        return rules


@dataclass(frozen=True)
class BySignature:
    """Shapes by an axis signature; the dtype is that of the array arguments, or
    ``dtype``.

    ``names`` are the arguments' names, for errors; the dtypes of the arguments ``own``
    do not count. ``check`` says what is wrong with the sizes, or nothing.
    """

    signature: Signature
    dtype: np.dtype[Any] | None = None
    names: tuple[str, ...] | None = None
    own: frozenset[int] = frozenset()
    check: Callable[[Bindings, dict[str, Any]], str | None] | None = None

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        bound = self.signature.bind([t[1] for t in types], who, self.names)
        wrong = self.check(bound, attrs) if self.check else None
        if wrong:
            raise ShapeError(
                f"{who}: {wrong}\n  signature {self.signature.text}{at(caller_line())}"
            )
        arrays = [i for i, a in enumerate(self.signature.inputs) if a.tokens]
        counted = [types[i] for i in arrays if i not in self.own]
        return self.dtype or common(counted or types, who), self.signature.output(bound)

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        if any(a.variadic and a.before for a in self.signature.inputs):
            return None
        facts: list[str] = []
        prefixes: list[str] = []
        strong = ""
        for i, (arg, axes) in enumerate(zip(args, self.signature.inputs, strict=True)):
            facts.append(f"(= t{i} (type {arg}))")
            if axes.tokens and not strong and i not in self.own:
                strong = f"t{i}"
            tail = axes.after if axes.variadic else axes.tokens
            if not axes.variadic:
                facts.append(f"(= {len(tail) + 1} (vec-length t{i}))")
            else:
                facts.append(f"(= r{i} (vec-length t{i})) (> r{i} {len(tail)})")
                prefixes.append("(vec-pop " * len(tail) + f"t{i}" + ")" * len(tail))
            for j, axis in enumerate(tail):
                at_ = f"(- r{i} {len(tail) - j})" if axes.variadic else str(j + 1)
                size = axis if isinstance(axis, int) else f"a_{axis}"
                facts.append(f"(= {size} (vec-get t{i} {at_}))")
        return self._conclude(call, " ".join(facts), prefixes, strong)

    def _conclude(
        self, call: str, facts: str, prefixes: list[str], strong: str
    ) -> list[str]:
        rules = []
        prefix = prefixes[0] if prefixes else f"(vec-of (vec-get {strong} 0))"
        for i, p in enumerate(prefixes[1:]):
            rules.append(demand(call, facts, prefix, p))
            facts += f" (= b{i} (bcast {prefix} {p}))"
            prefix = f"b{i}"
        out = self.signature.outputs[0]
        result = (
            prefix if out.variadic or not prefixes else f"(vec-of (vec-get {prefix} 0))"
        )
        for axis in out.after if out.variadic else out.tokens:
            size = axis if isinstance(axis, int) else f"a_{axis}"
            result = f"(vec-push {result} {size})"
        if self.dtype:
            result = f"(vec-set {result} 0 {dtype_code(self.dtype)})"
        rules.append(typing(call, facts, result))
        return rules


MAX_AXES = 6
"""The e-graph types views and reductions over at most this many trailing axes."""


@dataclass(frozen=True)
class ReducedAxes:
    """The axes of the attribute ``axis`` become 1.

    ``nonempty`` says that a reduction over no elements is an error: it has no identity.
    """

    dtype: np.dtype[Any] | None = None
    nonempty: bool = False

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        shape = list(types[0][1])
        for a in attrs["axis"]:
            if not -len(shape) <= a < 0:
                raise ShapeError(
                    f"{who}: axis {a} is out of bounds for shape "
                    f"{types[0][1]}{at(caller_line())}"
                )
            if self.nonempty and shape[a] == 0:
                raise ShapeError(
                    f"{who}: zero-size array to reduction operation {who} which has no "
                    f"identity: "
                    f"axis {a} of shape {types[0][1]} is empty{at(caller_line())}"
                )
            shape[a] = 1
        return self.dtype or types[0][0], tuple(shape)

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        rules = []
        for n in range(MAX_AXES):
            result = "t"
            for i in range(n):
                result = f"(vec-set {result} (+ r (vec-get {attrs[0]} {i})) 1)"
            if self.dtype:
                result = f"(vec-set {result} 0 {dtype_code(self.dtype)})"
            facts = (
                f"(= t (type {args[0]})) (= {n} (vec-length {attrs[0]})) "
                "(= r (vec-length t))"
            )
            rules.append(typing(call, facts, result))
        return rules


@dataclass(frozen=True)
class ToDType:
    """The shape of the argument with the dtype of the attribute ``dtype``."""

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        return np.dtype(attrs["dtype"]), types[0][1]

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        return [typing(call, f"(= t (type {args[0]}))", f"(vec-set t 0 {attrs[0]})")]


@dataclass(frozen=True)
class Custom:
    """Any Python function of types and attributes; ``text`` optionally says it to the
    e-graph."""

    rule: Callable[[str, Sequence[Type], dict[str, Any]], Type]
    text: Callable[[str, Sequence[str], Sequence[str]], list[str]] | None = None

    def infer(self, who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        return self.rule(who, types, attrs)

    def egg(
        self, call: str, args: Sequence[str], attrs: Sequence[str]
    ) -> list[str] | None:
        return self.text(call, args, attrs) if self.text else None
