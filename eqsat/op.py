"""Ops: the record that holds all eqsat knows of an operation, and the decorators that
make one.

An op has one home. Called on arrays it computes its NumPy reference; called on traced
values it builds a term; called on pattern variables of a rule it builds a pattern. A
*composite* is an op whose body is written with other ops: the body is its meaning, its
default lowering, and the rule that recognises it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from eqsat.errors import EqsatError, ShapeError, TraceError, at, caller_line
from eqsat.promote import common_dtype, dtype_of
from eqsat.signature import Bindings, Signature, parse
from eqsat.term import Term, Type
from eqsat.typerule import (
    BF16,
    BySignature,
    Gathered,
    Pointwise,
    TypeRule,
    dtype_code,
)

Axis = Annotated[tuple[int, ...], "Axis"]
"""Annotation of an attribute that is a set of axes, held as sorted negative numbers."""
Ints = Annotated[tuple[int, ...], "Ints"]
"""Annotation of an attribute that is a tuple of integers."""
DTypeName = Annotated[str, "DTypeName"]
"""Annotation of an attribute that is a dtype, held as its name."""
HALF = frozenset([np.dtype("f2"), BF16])
"""Dtypes whose sums are computed in float32."""

KINDS = (
    "leaf",
    "pointwise",
    "reduce",
    "view",
    "contract",
    "library",
    "composite",
    "fused",
)


class Traced:
    """A value that records what is done to it. Subclasses say what a record is."""

    __slots__ = ()

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """``op(*args, **attrs)`` as a value of this kind."""
        raise NotImplementedError


class AttrVar:
    """Base of values that stand for a static attribute in a rule's pattern."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Op:
    """An operation. Made by :func:`op`, :func:`pointwise`, :func:`composite` and
    :func:`fused`."""

    name: str
    kind: str
    """One of :data:`KINDS`."""
    type_rule: TypeRule
    reference: Callable[..., Any]
    """Arrays and attributes to an array."""
    params: tuple[str, ...]
    """Names of the array arguments."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    attrs: Mapping[str, str] = field(default_factory=dict)
    """Attribute names to their kinds: Axis, Ints, int, bool, str, float, DTypeName."""
    attr_defaults: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Attributes that take one of a few values; a rule is made for each."""
    body: Callable[..., Any] | None = None
    """For a composite: the same function, called on traced values."""
    ufunc: np.ufunc | None = None
    variadic: bool = False
    commutative: bool = False
    promotion: str = "common"
    """How argument dtypes meet: ``ufunc``, ``common``, ``float`` (integers become
    float64), ``first`` (each for itself)."""
    own: frozenset[int] = frozenset()
    """Arguments, masks and integers, that keep their own dtype and do not count."""
    flops: Callable[[Sequence[Type], dict[str, Any], Type], float] | None = None
    """Floating operations of one evaluation (flop)."""
    doc: str = ""
    recognised: bool = True
    """Whether the body of this composite is also a rule that finds it."""

    registry: ClassVar[dict[str, Op]] = {}

    def __post_init__(self) -> None:
        assert self.kind in KINDS
        known = Op.registry.get(self.name)
        if (
            known is not None
            and known.reference.__module__ != self.reference.__module__
        ):
            raise EqsatError(
                f"op {self.name!r} is already defined in {known.reference.__module__}"
            )
        Op.registry[self.name] = self

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.doc

    @property
    def __name__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute on arrays, record on traced values."""
        values, attrs = self._arguments(args, kwargs)
        for v in values:
            if isinstance(v, Traced):
                return v.lift(self, values, attrs)
        ndim = np.ndim(values[0]) if values else 0
        return self.reference(*values, **self.settle(attrs, ndim))

    def _arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        if self.variadic:
            values = list(args)
        else:
            if len(args) > len(self.params):
                raise TraceError(
                    f"{self.name}: takes {len(self.params)} arrays, got {len(args)}"
                    f"{at(caller_line())}"
                )
            values = list(args)
            for p in self.params[len(args) :]:
                if p in kwargs:
                    values.append(kwargs[p])
                elif p in self.defaults:
                    values.append(self.defaults[p])
                else:
                    raise TraceError(
                        f"{self.name}: argument {p!r} is missing{at(caller_line())}"
                    )
        attrs = {}
        for name in self.attrs:
            if name in kwargs:
                attrs[name] = kwargs[name]
            elif name in self.attr_defaults:
                attrs[name] = self.attr_defaults[name]
            else:
                raise TraceError(
                    f"{self.name}: attribute {name!r} is missing{at(caller_line())}"
                )
        for name in kwargs:
            if name not in self.attrs and (self.variadic or name not in self.params):
                raise TraceError(
                    f"{self.name}: no argument {name!r}{at(caller_line())}"
                )
        return values, attrs

    def bytes_read(self, i: int, size: float, written: float) -> float:
        """Bytes of argument ``i`` (``size``) that are read to write ``written`` bytes.

        Of a table no more is read than is written.
        """
        table = isinstance(self.type_rule, Gathered) and i == 0
        return min(size, written) if table else size

    def settle(self, attrs: Mapping[str, Any], ndim: int | None) -> dict[str, Any]:
        """Attributes in their one normal form. ``ndim`` is the rank of the first
        argument."""
        return {n: _settle(self.name, k, attrs[n], ndim) for n, k in self.attrs.items()}

    def attr_dict(self, term: Term) -> dict[str, Any]:
        """The attributes of ``term``, a node of this op, by name."""
        return dict(zip(self.attrs, term.attrs, strict=True))


def _settle(who: str, kind: str, value: Any, ndim: int | None) -> Any:
    if isinstance(value, AttrVar):
        return value
    if kind == "Axis":
        return normal_axes(who, value, ndim)
    if kind == "Ints":
        return tuple(v if isinstance(v, AttrVar) else int(v) for v in value)
    if kind == "DTypeName":
        dtype = np.dtype(value)
        dtype_code(dtype)
        return dtype.name
    if kind in ("int", "bool"):
        return int(value)
    return float(value) if kind == "float" else str(value)


def normal_axes(who: str, axis: Any, ndim: int | None) -> tuple[int, ...]:
    """``axis`` (an int, several, or None for all) as sorted negative axis numbers."""
    if ndim is None:
        axes = (axis,) if isinstance(axis, int) else axis
        if axes is None or any(a >= 0 for a in axes):
            raise ShapeError(
                f"{who}: a pattern of any rank needs negative axes, got {axis}"
            )
        return tuple(sorted(axes))
    axes = (
        range(ndim)
        if axis is None
        else axis
        if isinstance(axis, (tuple, list, range))
        else [axis]
    )
    out = set()
    for a in axes:
        a = int(a)
        if not -ndim <= a < ndim:
            raise ShapeError(
                f"{who}: axis {a} is out of bounds for {ndim} "
                f"dimensions{at(caller_line())}"
            )
        negative = a - ndim if a >= 0 else a
        if negative in out:
            raise ShapeError(f"{who}: axis {a} is given twice{at(caller_line())}")
        out.add(negative)
    return tuple(sorted(out))


# -- making ops ------------------------------------------------------------------------

Flops = str | float | Callable[[Sequence[Type], dict[str, Any], Type], float] | None


def op(
    signature: str | TypeRule,
    *,
    kind: str = "library",
    name: str | None = None,
    flops: Flops = None,
    promotion: str = "common",
    dtype: Any = None,
    ufunc: np.ufunc | None = None,
    variadic: bool = False,
) -> Callable[[Callable[..., Any]], Op]:
    """Make an op of a NumPy reference.

    ``signature`` is an axis signature or a type rule. Positional parameters of the
    reference are arrays; keyword-only ones are static attributes, whose annotation is
    their kind. An array annotated ``bool`` or ``int`` is a mask or integers that keep
    their own dtype. ``flops`` is a number per output element or an expression over the
    axes (``"2*m*k*n"``; ``...`` counts as ``batch``).
    """

    def define(reference: Callable[..., Any]) -> Op:
        return _make_op(
            reference,
            signature,
            kind,
            name=name,
            flops=flops,
            promotion=promotion,
            dtype=dtype,
            ufunc=ufunc,
            variadic=variadic,
        )

    return define


def composite(
    signature: str | TypeRule,
    *,
    promotion: str = "float",
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    kind: str = "composite",
    recognised: bool = True,
    check: Callable[[Bindings, dict[str, Any]], str | None] | None = None,
) -> Callable[[Callable[..., Any]], Op]:
    """Make an op of a body written with other ops: its meaning, lowering and
    recognition.

    Called on arrays the body computes float16 and bfloat16 in float32 and rounds once.
    ``check`` gets axis sizes and attributes and says what is wrong with them, or
    nothing.
    """

    def define(body: Callable[..., Any]) -> Op:
        return _make_op(
            body,
            signature,
            kind,
            promotion=promotion,
            body=body,
            choices=choices or {},
            recognised=recognised,
            check=check,
        )

    return define


def fused(
    signature: str | TypeRule,
    *,
    promotion: str = "float",
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    recognised: bool = True,
) -> Callable[[Callable[..., Any]], Op]:
    """A composite that users do not write: a named fusion, chosen by cost."""
    return composite(
        signature,
        promotion=promotion,
        choices=choices,
        kind="fused",
        recognised=recognised,
    )


def pointwise(
    name: str,
    reference: Callable[..., Any],
    *,
    flops: float = 1,
    promotion: str | None = None,
    dtype: Any = None,
    commutative: bool = False,
    doc: str = "",
    nin: int | None = None,
) -> Op:
    """Make a pointwise op. ``reference`` is a ufunc or a function; ``flops`` is flop an
    element."""
    ufunc = reference if isinstance(reference, np.ufunc) else None
    count = nin or (ufunc.nin if ufunc is not None else 1)
    if ufunc is not None and count > 1:
        reference = weak_floats(ufunc)
    return Op(
        name=name,
        kind="pointwise",
        type_rule=Pointwise(np.dtype(dtype) if dtype is not None else None),
        reference=reference,
        params=("x", "y", "z")[:count],
        ufunc=ufunc,
        commutative=commutative,
        promotion=promotion or ("ufunc" if ufunc is not None else "float"),
        flops=_flops(flops, None),
        doc=doc,
    )


def weak_floats(reference: Callable[..., Any]) -> Callable[..., Any]:
    """``reference`` in which a bare float takes on the dtype of a bfloat16 array, as it
    does with every dtype of NumPy's own (NEP 50)."""

    @functools.wraps(reference)
    def weakly(*values: Any) -> Any:
        if any(getattr(v, "dtype", None) == BF16 for v in values):
            values = tuple(BF16.type(v) if type(v) is float else v for v in values)
        return reference(*values)

    return weakly


def _by_body(
    name: str, body: Callable[..., Any], promotion: str, own: frozenset[int]
) -> Callable[..., Any]:
    """The reference of a composite: its body on arrays of one dtype, halves in
    float32."""

    @functools.wraps(body)
    def reference(*values: Any, **attrs: Any) -> Any:
        arrays = [v if type(v) in (int, float) else np.asarray(v) for v in values]
        known = [dtype_of(name, i, a) for i, a in enumerate(arrays) if i not in own]
        dtype = common_dtype(name, promotion, known)
        wide = np.dtype("f4") if dtype in HALF else dtype
        ready = [
            a.astype(wide, copy=False)
            if isinstance(a, np.ndarray) and i not in own
            else a
            for i, a in enumerate(arrays)
        ]
        return np.asarray(body(*ready, **attrs)).astype(dtype, copy=False)[()]

    return reference


def _make_op(
    fn: Callable[..., Any],
    signature: str | TypeRule,
    kind: str,
    *,
    name: str | None = None,
    flops: Flops = None,
    promotion: str = "common",
    dtype: Any = None,
    ufunc: np.ufunc | None = None,
    variadic: bool = False,
    body: Callable[..., Any] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    recognised: bool = True,
    check: Callable[[Bindings, dict[str, Any]], str | None] | None = None,
) -> Op:
    params = inspect.signature(fn).parameters.values()
    arrays = [p for p in params if p.kind == p.POSITIONAL_OR_KEYWORD]
    static = [p for p in params if p.kind == p.KEYWORD_ONLY]
    result = np.dtype(dtype) if dtype is not None else None
    sig = parse(signature) if isinstance(signature, str) else None
    names = tuple(p.name for p in arrays)
    own = frozenset(
        i
        for i, p in enumerate(arrays)
        if annotation_name(p.annotation) in ("bool", "int")
    )
    rule = signature
    if isinstance(rule, str):
        rule = BySignature(parse(rule), result, names, own, check)
    if sig and not variadic and len(sig.inputs) != len(arrays):
        raise ShapeError(
            f"op {fn.__name__}: {len(arrays)} parameters, signature {sig.text!r}"
        )
    return Op(
        name=name or fn.__name__,
        kind=kind,
        type_rule=rule,
        reference=_by_body(fn.__name__, fn, promotion, own) if body else fn,
        params=names,
        defaults={p.name: p.default for p in arrays if p.default is not p.empty},
        attrs={p.name: _attr_kind(fn, p) for p in static},
        attr_defaults={p.name: p.default for p in static if p.default is not p.empty},
        choices=choices or {},
        body=body,
        ufunc=ufunc,
        variadic=variadic,
        promotion=promotion,
        own=own,
        flops=_flops(flops, sig),
        doc=inspect.getdoc(fn) or "",
        recognised=recognised,
    )


def annotation_name(annotation: Any) -> str:
    """The name of an annotation, evaluated or not: ``Ints``, ``bool``."""
    if isinstance(annotation, str):
        return annotation
    marks = getattr(annotation, "__metadata__", None)
    return str(marks[0]) if marks else getattr(annotation, "__name__", str(annotation))


def _attr_kind(fn: Callable[..., Any], p: inspect.Parameter) -> str:
    kind = annotation_name(p.annotation)
    if kind not in ("Axis", "Ints", "int", "bool", "str", "float", "DTypeName"):
        raise EqsatError(
            f"op {fn.__name__}: attribute {p.name!r} needs an annotation: Axis, Ints, "
            f"int, bool, "
            f"str, float or DTypeName"
        )
    return kind


def _flops(
    flops: Flops, sig: Signature | None
) -> Callable[[Sequence[Type], dict[str, Any], Type], float] | None:
    if flops is None or callable(flops):
        return flops
    if isinstance(flops, str):
        assert sig is not None
        code = compile(flops, "<flops>", "eval")
        known = sig

        def by_axes(types: Sequence[Type], attrs: dict[str, Any], out: Type) -> float:
            bound = known.bind([t[1] for t in types], "flops")
            sizes: dict[str, Any] = {
                k: v for k, v in bound.items() if isinstance(v, int)
            }
            batch = bound.get("...", ())
            assert isinstance(batch, tuple)
            sizes["batch"] = float(np.prod(batch, dtype=float))
            return float(eval(code, {"__builtins__": {}}, sizes))

        return by_axes
    each = float(flops)
    return lambda types, attrs, out: each * float(np.prod(out[1], dtype=float))


# -- leaves ----------------------------------------------------------------------------


def _leaf(name: str, kind: str) -> Op:
    def no_reference(**attrs: Any) -> Any:
        raise EqsatError(f"a leaf ({name}) has no reference")

    def no_rule(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        raise EqsatError(f"the type of a leaf ({name}) is given")

    from eqsat.typerule import Custom

    return Op(
        name=name,
        kind="leaf",
        type_rule=Custom(no_rule),
        reference=no_reference,
        params=(),
        attrs={"value": kind},
        doc=f"Leaf: {name}.",
    )


INPUT = _leaf("input", "int")
CONSTANT = _leaf("constant", "int")
SCALAR = _leaf("scalar", "float")
