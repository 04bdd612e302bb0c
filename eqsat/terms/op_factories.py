"""Making ops: of a ufunc, of a NumPy reference, or of a body written with other ops."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import numpy as np

from eqsat.support import EqsatError, ShapeError, counted
from eqsat.terms.op import (
    EXACT,
    FLAT,
    HALF,
    LIBRARY,
    Op,
    Vjp,
    annotation_name,
    fraction,
)
from eqsat.terms.promotion import common_dtype, dtype_of
from eqsat.terms.signature import Bindings, Signature, parse
from eqsat.terms.term import Type
from eqsat.terms.type_rules import BF16, BySignature, Pointwise, TypeRule

Q = ParamSpec("Q")
Flops = str | float | Callable[[Sequence[Type], dict[str, Any], Type], float] | None
Vjps = Vjp | tuple[Vjp | None, ...] | str | None
"""Derivatives, as :attr:`Op.vjp` has them; of an op with one argument the rule
alone."""


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
    roundings: float = LIBRARY,
    join: Op | None = None,
    identity: float | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    vjp: Vjps = None,
) -> Callable[[Callable[Q, Any]], Op[Q]]:
    """Make an op of a NumPy reference.

    ``signature`` is an axis signature or a type rule. Positional parameters of the
    reference are arrays; keyword-only ones are static attributes, whose annotation is
    their kind. An array annotated ``bool`` is truth values, any that is not 0 is true;
    one annotated ``int`` is integers that keep their own dtype. ``flops`` is a number
    per output element or an expression over the axes (``"2*m*k*n"``; ``...`` counts as
    ``batch``). ``roundings``, ``join``, ``identity``, ``choices``: see
    :class:`Op`. ``vjp`` are the rules of derivatives, see :attr:`Op.vjp`.
    """

    return functools.partial(
        _make_op,
        signature=signature,
        kind=kind,
        name=name,
        flops=flops,
        promotion=promotion,
        dtype=dtype,
        ufunc=ufunc,
        variadic=variadic,
        roundings=roundings,
        join=join,
        identity=identity,
        choices=choices,
        vjp=vjp,
    )


def composite(
    signature: str | TypeRule,
    *,
    promotion: str = "float",
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    kind: str = "composite",
    recognised: bool = True,
    check: Callable[[Bindings, dict[str, Any]], str | None] | None = None,
    vjp: Vjps = None,
) -> Callable[[Callable[Q, Any]], Op[Q]]:
    """Make an op of a body written with other ops: its meaning, lowering, derivative
    and recognition.

    ``signature``: the axes of arguments and result, such as ``"... n -> ... n"``, or a
    rule of types. ``promotion``: ``float`` turns integers into floats, as NumPy's
    functions of elements do. ``choices``: the values that an attribute may have.
    ``kind``: ``composite``, or ``fused`` for what one kernel computes. ``recognised``:
    whether programs that write the body out are found to be it.
    Called on arrays the body computes float16 and bfloat16 in float32 and rounds once.
    ``check`` gets axis sizes and attributes and says what is wrong with them, or
    nothing. ``vjp`` are rules of derivatives that are better than those of the body.
    """

    def define(body: Callable[Q, Any]) -> Op[Q]:
        return _make_op(
            body,
            signature,
            kind,
            promotion=promotion,
            body=body,
            choices=choices or {},
            recognised=recognised,
            check=check,
            vjp=vjp,
        )

    return define


fused = functools.partial(composite, kind="fused")
"""A composite that users do not write: a named fusion, chosen by cost."""


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
    roundings: float = LIBRARY,
    scale: tuple[float, float] | None = None,
    special: str = "",
    decides: bool | None = None,
    in_own_dtype: bool = False,
    of_truths: bool = False,
    vjp: Vjps = None,
) -> Op:
    """Make a pointwise op. ``reference`` is a ufunc or a function; ``flops`` is flop an
    element; ``of_truths`` says that its arguments are truth values; ``roundings``,
    ``scale``, ``special``, ``decides``, ``in_own_dtype``: see :class:`Op`; ``vjp`` as
    of :func:`op`. A ``dtype`` without fractions has derivative 0, and a ``scale`` is
    one."""
    if dtype is not None and np.dtype(dtype).kind in "biu":
        vjp, roundings = FLAT, EXACT
    if scale is not None and vjp is None:
        vjp = _scaling(scale)
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
        own=frozenset(range(count if of_truths else 0)),
        truths=frozenset(range(count if of_truths else 0)),
        flops=_flops(flops, None),
        flops_each=flops,
        roundings=roundings,
        scale=scale,
        special=special,
        decides=decides,
        in_own_dtype=in_own_dtype,
        doc=doc,
        vjp=_rules(vjp),
    )


def _scaling(scale: tuple[float, float]) -> Vjp:
    return lambda g, x, z: g * fraction(scale, z.dtype)


def _rules(vjp: Vjps) -> tuple[Vjp | None, ...] | str | None:
    return (vjp,) if callable(vjp) else vjp


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
            (
                a.astype(wide, copy=False)
                if isinstance(a, np.ndarray) and i not in own
                else a
            )
            for i, a in enumerate(arrays)
        ]
        return np.asarray(body(*ready, **attrs)).astype(dtype, copy=False)[()]

    return reference


def _make_op(
    fn: Callable[Q, Any],
    signature: str | TypeRule,
    kind: str,
    *,
    name: str | None = None,
    flops: Flops = None,
    promotion: str = "common",
    dtype: Any = None,
    ufunc: np.ufunc | None = None,
    variadic: bool = False,
    roundings: float = LIBRARY,
    join: Op | None = None,
    identity: float | None = None,
    body: Callable[..., Any] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    recognised: bool = True,
    check: Callable[[Bindings, dict[str, Any]], str | None] | None = None,
    vjp: Vjps = None,
) -> Op[Q]:
    params = inspect.signature(fn).parameters.values()
    arrays = [p for p in params if p.kind == p.POSITIONAL_OR_KEYWORD]
    static = [p for p in params if p.kind == p.KEYWORD_ONLY]
    result = np.dtype(dtype) if dtype is not None else None
    sig = parse(signature) if isinstance(signature, str) else None
    names = tuple(p.name for p in arrays)
    kinds = [annotation_name(p.annotation) for p in arrays]
    truths = frozenset(i for i, kind in enumerate(kinds) if kind == "bool")
    own = truths.union(i for i, kind in enumerate(kinds) if kind == "int")
    rule = signature
    if isinstance(rule, str):
        rule = BySignature(parse(rule), result, names, own, check)
    if sig and not variadic and len(sig.inputs) != len(arrays):
        raise ShapeError(
            f"op {fn.__name__}: {counted(len(arrays), 'parameter')}, signature "
            f"{sig.text!r}"
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
        truths=truths,
        flops=_flops(flops, sig),
        flops_each=flops if isinstance(flops, (int, float)) else 0.0,
        roundings=EXACT if kind == "view" else roundings,
        join=join,
        identity=identity,
        doc=inspect.getdoc(fn) or "",
        recognised=recognised,
        vjp=_rules(vjp),
    )


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
