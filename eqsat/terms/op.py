"""Ops: the record that holds all eqsat knows of an operation, and the decorators that
make one.

An op has one home. Called on arrays it computes its NumPy reference; called on traced
values it builds a term; called on pattern variables of a rule it builds a pattern. A
*composite* is an op whose body is written with other ops: the body is its meaning, its
default lowering, and the rule that recognises it.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from inspect import Parameter, Signature
from types import DynamicClassAttribute
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from eqsat.support import (
    AxisBoundsError,
    EqsatError,
    ShapeError,
    TraceError,
    at,
    caller_line,
    counted,
)
from eqsat.terms.term import DType, Term, Type, Weak, postorder
from eqsat.terms.type_rules import BF16, TypeRule, dtype_code
from eqsat.terms.view_types import Gathered

Axis = Annotated[Any, "Axis"]
"""Annotation of an attribute that is a set of axes: an int, several, or None for all.
The body of an op is given a tuple of sorted negative numbers."""
Ints = Annotated[Any, "Ints"]
"""Annotation of an attribute that is several integers. The body is given a tuple."""
DTypeName = Annotated[Any, "DTypeName"]
"""Annotation of an attribute that is a dtype. The body is given its name."""
if TYPE_CHECKING:  # plain `Op` is an op of anything
    from typing_extensions import ParamSpec

    P = ParamSpec("P", default=...)
else:
    from typing import ParamSpec

    P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])
HALF = frozenset([np.dtype("f2"), BF16])
"""Dtypes whose sums are computed in float32."""
Vjp = Callable[..., Any]
"""A rule for one argument: ``vjp(g, *args, result, **attrs)`` is the derivative of a
loss by it, where ``g`` is that by the result. None stands for 0, and a
:class:`OnlyWhere` for 0 in some places."""
FLAT: tuple[()] = ()
"""The rules of an op whose derivative is 0 wherever it has one."""

KINDS = (
    "leaf",
    "pointwise",
    "reduce",
    "view",
    "contract",
    "library",
    "composite",
    "fused",
    "kernel",
)


class Cost(IntEnum):
    """What one element of a pointwise op takes, in additions, about."""

    LIGHT = 1
    SLOW = 3
    """Divisions and roots."""
    FUNCTION = 10
    """Exponentials and their like."""


EXACT = 0.0
"""Roundings of an op that gives elements as they are, or numbers that its dtype has."""
ONCE = 1.0
"""Roundings of an op that rounds its exact result."""
LIBRARY = 8.0
"""Roundings (half ulps) that one call of a library's function counts as."""


class Lowering(NamedTuple):
    """How one backend computes an op, where the author of the op says so."""

    function: Callable[..., Any]
    seconds: Callable[[Sequence[Type], dict[str, Any], Type], float] | None
    """What one evaluation costs (s), of argument types, attributes and the result's
    type; None for what the cost model says."""


class OnlyWhere(NamedTuple):
    """What a :data:`Vjp` gives of an argument whose elements count only in some places.

    In the others the derivative is 0, also by what the argument was computed from, be
    that infinite or NaN.
    """

    condition: Any
    """Where elements count; of bools, broadcasts with the argument."""
    part: Any
    """The derivative where they do."""
    is_zero: bool = False
    """Whether ``part`` is 0 in the other places."""


class Fold(NamedTuple):
    """A reduction by a function of two values, which may be joined in any order."""

    combine: Callable[[Any, Any], Any]
    """Associative and commutative; of traced values and of arrays."""
    identity: Callable[[np.dtype[Any]], float]
    """What ``combine`` leaves other values of a dtype as they are with."""


class Traced:
    """A value that records what is done to it. Subclasses say what a record is."""

    __slots__ = ()

    @property
    def known_shape(self) -> Any:
        """What the catalogue takes for the shape; some show users another one."""
        return self.shape  # type: ignore[attr-defined]

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """``op(*args, **attrs)`` as a value of this kind."""
        raise NotImplementedError

    def assigned(self, value: Any, how: str) -> Any:
        """This value as ``out=`` of a function of NumPy that has made ``value``."""
        raise TraceError(f"{how} cannot be traced{at(caller_line())}")

    def made_at_end(self, step: Any) -> Any:
        """What stands for a result whose shape depends on data."""
        raise TraceError(
            f"{step.name} cannot be traced here: the shape of its result depends on "
            f"data{at(caller_line())}"
        )

    def leaves_to_numpy(self, what: str) -> None:
        """Note for which of its values NumPy does otherwise than is recorded, where a
        program raises an IndexError."""
        term = getattr(self, "term", None)
        if term is not None:
            term.graph.left_to_numpy.append(what)

    def lies_as(self) -> Any:
        """An array of NumPy that lies in memory as it does, without elements to read;
        None where that is not known."""
        return None

    def settled(self) -> Any:
        """The value itself, or the array of NumPy that it is known to be now."""
        return self

    def result_of(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        found: Any,
    ) -> Any:
        """``found``, what a function of NumPy has made of this value and others."""
        return found


class AttrVar:
    """Base of values that stand for a static attribute in a rule's pattern."""

    __slots__ = ()

    @property
    def is_tuple(self) -> bool:
        """Whether it stands for several integers."""
        return False

    def quotient(self, whole: Any, part: Any) -> Any:
        """``whole`` / ``part``, of sizes that divide."""
        raise NotImplementedError

    def grant(self, symbol: str, a: Any, b: Any) -> None:
        """Take ``a symbol b`` of sizes for granted; ``symbol`` is a comparison."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Op(Generic[P]):
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
    """Attributes that take one of a few values; the body of a composite is a rule for
    each."""
    body: Callable[..., Any] | None = None
    """For a composite: the same function, called on traced values."""
    ufunc: np.ufunc | None = None
    special: str = ""
    """The name of the ufunc of ``scipy.special`` that the op is, where it is one."""
    variadic: bool = False
    commutative: bool = False
    promotion: str = "common"
    """How argument dtypes meet: ``ufunc``, ``common``, ``float`` (integers become
    float64), ``first`` (each for itself)."""
    own: frozenset[int] = frozenset()
    """Arguments, masks and integers, that keep their own dtype and do not count."""
    truths: frozenset[int] = frozenset()
    """Those of :attr:`own` that are truth values: they are made bool, true where they
    are not 0."""
    flops: Callable[[Sequence[Type], dict[str, Any], Type], float] | None = None
    """Floating operations of one evaluation (flop)."""
    flops_each: float = 0.0
    """The same for each element of the result, where that is one number."""
    roundings: float = LIBRARY
    """Half ulps that its last steps may be off: :data:`EXACT`, :data:`ONCE`, or those
    of a library. Those of the terms of a sum are not counted here."""
    join: Op | None = None
    """Of a reduction, the op that joins the results of two parts; None where no op
    does. A mean is divided after that."""
    identity: float | None = None
    """Of a reduction, what joined to a result leaves it as it is; ±∞ stands for the
    largest or least number of a dtype."""
    scale: tuple[float, float] | None = None
    """Where the op multiplies by a fraction: what is above and below its line."""
    decides: bool | None = None
    """Whether the result jumps where an operand moves by a rounding, as comparisons and
    roundings do. None where it does if it has no fraction, or if its derivative is 0
    everywhere."""
    in_own_dtype: bool = False
    """Whether the op is about the numbers of its dtype. Half precision is then not
    computed in float32."""
    doc: str = ""
    recognised: bool = True
    """Whether the body of this composite is also a rule that finds it."""
    vjp: tuple[Vjp | None, ...] | str | None = None
    """The :data:`Vjp` of each argument, None where it is 0 (:data:`FLAT`: everywhere).
    A text, also one that a rule gives, says what to write instead of what has no
    derivative. Of a variadic op the one rule of all, called with the number of the
    argument as ``which``. A composite without rules has those of its body. Where the op
    is pointwise or a reduction, ``g`` may be a bare number or have fewer elements than
    the result: it broadcasts."""
    fold: Fold | None = None
    """For a reduction that is not of the catalogue: how it joins two values."""
    opaque: str = ""
    """Why only the reference says what the op computes; empty for all others."""
    lowerings: dict[str, Lowering] = field(default_factory=dict)
    """Backends' names to the lowerings that :meth:`lowering` gave."""
    home: str = field(init=False)
    """The module that defines it."""

    registry: ClassVar[dict[str, Op]] = {}

    def __post_init__(self) -> None:
        assert self.kind in KINDS
        rules = () if self.variadic or not isinstance(self.vjp, tuple) else self.vjp
        if rules and len(rules) != len(self.params):
            raise EqsatError(
                f"op {self.name}: vjp has {counted(len(rules), 'rule')}, expected "
                f"{len(self.params)}, for {' and '.join(self.params)}"
            )
        lacking = [name for name in self.choices if name not in self.attrs]
        if lacking:
            names = ", ".join(map(repr, self.attrs)) or "none"
            raise EqsatError(
                f"op {self.name}: choices of attribute {lacking[0]!r}, which it lacks; "
                f"its attributes: {names}"
            )
        home = str(self.reference.__module__)
        if home.startswith(_MAKERS) or not hasattr(self.source, "__code__"):
            home = _module_that_defines()
        object.__setattr__(self, "home", home)
        known, listed = Op.registry.get(self.name), _MADE.get()
        if listed is not None:
            listed.append(self)
        elif known is not None and known.home != home:
            raise EqsatError(f"op {self.name!r} is already defined {known.whereabouts}")
        Op.registry[self.name] = self

    @property
    def source(self) -> Callable[..., Any]:
        """The function that says what it is."""
        found: Callable[..., Any] = inspect.unwrap(self.body or self.reference)
        return found

    @property
    def place(self) -> tuple[str, int]:
        """File and line of that function; empty and 0 where it has none."""
        code = getattr(self.source, "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code else ("", 0)

    @property
    def whereabouts(self) -> str:
        """Where it is defined, for errors."""
        file, line = self.place
        return f"at {file}:{line}" if file else f"in {self.home}"

    @property
    def cost(self) -> Cost:
        """How long one element takes."""
        if self.flops_each < 4:
            return Cost.LIGHT
        return Cost.SLOW if self.flops_each < 8 else Cost.FUNCTION

    def neutral(self, dtype: np.dtype[Any]) -> float:
        """:attr:`identity` as a number of ``dtype``."""
        assert self.identity is not None
        if math.isfinite(self.identity) or dtype.kind == "f":
            return self.identity
        if dtype.kind == "b":
            return self.identity > 0
        held = np.iinfo(dtype)
        return int(held.max if self.identity > 0 else held.min)

    def factor(self, dtype: DType) -> float:
        """The fraction :attr:`scale` in a floating dtype, as :func:`fraction` has
        it."""
        assert self.scale is not None
        return fraction(self.scale, dtype)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.doc

    @property
    def __name__(self) -> str:
        return self.name

    @DynamicClassAttribute
    def __signature__(self) -> Signature:
        """Arrays by position or name, attributes by name."""
        empty = Parameter.empty
        arrays = [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=self.defaults.get(name, empty),
            )
            for name in self.params
        ]
        if self.variadic:
            arrays = [Parameter("arrays", Parameter.VAR_POSITIONAL)]
        named = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=self.attr_defaults.get(name, empty),
                annotation=kind,
            )
            for name, kind in self.attrs.items()
        ]
        return Signature([*arrays, *named])

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Compute on arrays, record on traced values."""
        values, attrs = self._arguments(args, kwargs)
        for v in values:
            if isinstance(v, Traced):
                return v.lift(self, values, attrs)
        ndim = np.ndim(values[0]) if values else 0
        return self.reference(*values, **self.settle(attrs, ndim))

    def lowering(
        self,
        backend: str,
        *,
        seconds: Callable[[Sequence[Type], dict[str, Any], Type], float] | None = None,
        replace: bool = False,
    ) -> Callable[[F], F]:
        """Make a function the kernel of this op on ``backend``.

        For ``numpy`` it is called as ``f(*arrays, out=out, **attrs)`` and fills
        ``out``, an array of the result's shape and dtype that is not initialised and
        shares no memory with an argument; bare numbers come as Python numbers. A
        composite that is part of another op's kernel is computed by its body.
        ``seconds``: the price of one call (s), a function of the types of the arguments
        (pairs of dtype and shape), the attributes, and the type of the result; the cost
        model's roofline prices it otherwise. Raises :class:`EqsatError` when an
        attribute is called ``out``, and when another module gave a lowering for
        ``backend``, unless this one is to ``replace`` it.
        """
        if "out" in self.attrs:
            raise EqsatError(
                f"op {self.name}: attribute 'out' is also what a lowering fills; call "
                f"it something else"
            )

        def define(function: F) -> F:
            known = self.lowerings.get(backend, Lowering(function, None)).function
            if known.__module__ != function.__module__ and not replace:
                raise EqsatError(
                    f"op {self.name} has a lowering for {backend} in "
                    f"{known.__module__}\n  write {self.name}.lowering({backend!r}, "
                    "replace=True) to replace it"
                )
            self.lowerings[backend] = Lowering(function, seconds)
            return function

        return define

    def _arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        if self.variadic:
            values = list(args)
        else:
            if len(args) > len(self.params):
                call = ", ".join([*self.params, *(f"{n}=…" for n in self.attrs)])
                raise TraceError(
                    f"{self.name}: takes {counted(len(self.params), 'array')}, got "
                    f"{len(args)}\n  write {self.name}({call}){at(caller_line())}"
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
        argument. Raises :class:`TraceError` for one that is none of its
        :attr:`choices`."""
        settled = {
            n: _settle(self.name, k, attrs[n], ndim) for n, k in self.attrs.items()
        }
        for name, choices in self.choices.items():
            value = settled[name]
            if isinstance(value, (str, int, float)) and value not in choices:
                raise TraceError(
                    f"{self.name}: attribute {name!r} is {value!r:.80}, expected one "
                    f"of {', '.join(map(repr, choices))}{at(caller_line())}"
                )
        return settled

    def attr_dict(self, term: Term) -> dict[str, Any]:
        """The attributes of ``term``, a node of this op, by name."""
        return dict(zip(self.attrs, term.attrs, strict=True))


def _module_that_defines() -> str:
    """The module whose code makes an op of a function that is not its own, such as one
    of NumPy."""
    frame = sys._getframe(2)
    while (name := str(frame.f_globals.get("__name__"))).startswith(_MAKERS):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return name


_MAKERS = "eqsat.terms.", "eqsat.trace.", "dataclasses"
_MADE: ContextVar[list[Op] | None] = ContextVar("_MADE", default=None)


@contextmanager
def listing_ops() -> Iterator[list[Op]]:
    """Lists the ops that are made within this block, each of which replaces one of its
    name: who lists them refuses those that it should not."""
    found: list[Op] = []
    token = _MADE.set(found)
    try:
        yield found
    finally:
        _MADE.reset(token)


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
    if kind != "float":
        return str(value)
    number = float(value)
    return math.nan if math.isnan(number) else number  # one that equals itself


def axis_number(who: str, axis: Any) -> int:
    """``axis`` as an int. Raises :class:`TraceError` for what is none: 1.0, (0,)."""
    try:
        return operator.index(axis)
    except TypeError:
        raise TraceError(
            f"{who}: axis {axis!r:.60}, expected an int{at(caller_line())}"
        ) from None


def normal_axes(who: str, axis: Any, ndim: int | None) -> tuple[int, ...]:
    """``axis`` (an int, several, or None for all) as sorted negative axis numbers."""
    if ndim is None:
        axes = (axis,) if isinstance(axis, int) else axis
        if axes is None or any(a >= 0 for a in axes):
            raise ShapeError(
                f"{who}: axis {axis} of a pattern whose number of axes is not fixed; "
                f"write negative axes, or name all axes in the signature in place of "
                f"'...'"
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
        a = axis_number(who, a)
        if not -ndim <= a < ndim:
            raise AxisBoundsError(
                f"{who}: axis {a} is out of bounds for "
                f"{counted(ndim, 'dimension')}{at(caller_line())}"
            )
        negative = a - ndim if a >= 0 else a
        if negative in out:
            raise ShapeError(f"{who}: axis {a} is given twice{at(caller_line())}")
        out.add(negative)
    return tuple(sorted(out))


# -- making ops ------------------------------------------------------------------------


def fraction(scale: tuple[float, float], dtype: DType) -> float:
    """A fraction as NumPy computes it in a floating dtype: the quotient of two numbers
    that are rounded first; of float16 and bfloat16 in float32."""
    wide = np.float64 if isinstance(dtype, Weak) else dtype.type
    kind = np.float32 if dtype in HALF else wide
    above, below = map(kind, scale)
    return float(above / below)


def annotation_name(annotation: Any) -> str:
    """The name of an annotation, evaluated or not: ``Ints``, ``bool``."""
    if isinstance(annotation, str):
        return annotation
    marks = getattr(annotation, "__metadata__", None)
    return str(marks[0]) if marks else getattr(annotation, "__name__", str(annotation))


# -- leaves ----------------------------------------------------------------------------


def _leaf(name: str, kind: str) -> Op:
    def no_reference(**attrs: Any) -> Any:
        raise EqsatError(f"a leaf ({name}) has no reference")

    def no_rule(who: str, types: Sequence[Type], attrs: dict[str, Any]) -> Type:
        raise EqsatError(f"the type of a leaf ({name}) is given")

    from eqsat.terms.type_rules import Custom

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


def is_constant(roots: Sequence[Term]) -> dict[Term, bool]:
    """For every term below ``roots``, whether it depends on no input."""
    known: dict[Term, bool] = {}
    for t in postorder(roots):
        known[t] = t.op is not INPUT and all(known[a] for a in t.args)
    return known
