"""Stand-ins for arrays while a function is traced."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, TypeVar, cast

import numpy as np

from eqsat import ops
from eqsat.numpy_api import (
    ELSEWHERE,
    INSTEAD,
    EndStep,
    Operators,
    Selected,
    announced,
    as_mask,
    at_end,
    check_float_errors,
    check_key,
    getitem,
    judged,
    refuse_outside,
    refuse_subclass,
    settled,
    values_in,
)
from eqsat.support import (
    TraceError,
    at,
    caller_line,
    is_of_library,
    made_elsewhere,
    noted,
    untraceable,
    unwatched_methods,
)
from eqsat.terms import (
    Op,
    Shape,
    Term,
    TermGraph,
    apply,
    constant,
    is_complex,
    is_float,
)
from eqsat.trace import aliasing, in_place, written_places
from eqsat.trace.error_kinds import of_numpys_kinds

F = TypeVar("F", bound=Callable[..., Any])
_IN_PLACE = frozenset("byteswap resize setfield setflags".split())
_ARRAYS: frozenset[Any] = frozenset(
    (
        *(np.where, np.select, np.broadcast_to, np.copy, np.tensordot, np.cov),
        *(np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.astype),
        *(np.isin, np.roll, np.tile, np.moveaxis, np.permute_dims, np.pad),
        *(np.linalg.tensordot, np.expand_dims),
    )
)
"""What gives arrays without axes where most functions give numbers."""
_AS_GIVEN: frozenset[Any] = frozenset(
    (np.reshape, np.squeeze, np.transpose, np.real, np.imag, np.diff)
)
"""What gives a number of a number, and an array of an array."""
_FILLED: frozenset[Any] = frozenset({np.zeros, np.ones, np.empty, np.full})
"""What makes arrays of one value."""
VALUES = frozenset("dump dumps item tobytes tofile tolist".split())
_MEMORY = frozenset("base ctypes data flags getfield strides".split())


def _of_term(name: str, doc: str) -> Any:
    """A property that an array has of its term."""
    return property(attrgetter(f"term.{name}"), doc=doc)


_TEXT = "return the array, and format the result"


def _unknown_of(x: Any, what: str, advice: str) -> str:
    """The message of an error: ``what`` of the values is asked for."""
    return (
        f"{what} of a traced array ({x.dtype}, shape {x.shape}) is not known "
        f"while tracing\n  {advice}{at(caller_line())}"
    )


def _unknown(what: str, advice: str, kinds: str = "") -> Callable[..., Any]:
    """A method that asks for ``what`` of the values. Of dtypes of other ``kinds``, and
    where these are given of several elements, NumPy refuses it too."""

    def refuse(self: Any, *args: Any) -> NoReturn:
        error = TraceError(_unknown_of(self, what, advice))
        known = not kinds or (self.dtype.kind in kinds and self.size == 1)
        raise noted(error) if known else error

    return refuse


_NUMBERS = "biufc"
"""Kinds of dtypes that are numbers."""


def _hash(self: Any) -> int:
    """Of a number; arrays have none in NumPy."""
    if self.is_array:
        raise TypeError("unhashable type: 'numpy.ndarray'")
    advice = (
        "keys of dicts, members of sets and functools.cache need it. Take a number of "
        "Python, or return the array, and ask the result"
    )
    raise untraceable(_unknown_of(self, "the hash", advice))


def _unknown_dtype(x: Any, dtype: Any) -> NoReturn:
    raise untraceable(
        f"x.dtype = {dtype!r} shows the bits of {x.dtype} as another dtype, which "
        f"cannot be traced\n  write x = x.astype(dtype){at(caller_line())}"
    )


def _array_of_array(method: F) -> F:
    """A method that gives a number of a number, and an array of an array."""

    @wraps(method)
    def alike(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = method(self, *args, **kwargs)
        found.is_array = self.is_array
        return found

    return cast(F, alike)


def _rounded(self: Any, digits: Any = None) -> Any:
    """As of a number of NumPy; an array and a bool have none. Without digits it is
    an int of Python, which is not known while tracing."""
    if self.is_array or self.dtype.kind == "b":
        raise TraceError(
            f"round() of an array or bool ({self.dtype}, shape {self.shape}): "
            f"NumPy refuses it. Write np.round(x, digits){at(caller_line())}"
        )
    if digits is None and self.has_value:
        return int(np.rint(self))
    if digits is None:
        what, advice = "the rounded int", "write np.rint(x) or round(x, 1)"
        raise TraceError(_unknown_of(self, what, advice))
    return np.round(self, digits)


def _selects(k: Any) -> bool:
    """Whether a part of a key is a mask that is not known."""
    mask = isinstance(k, Tracer) and k.term is not None and k.dtype == np.dtype(bool)
    return mask and bool(k.shape) and not k.has_value


def _has_ellipsis(key: Any) -> bool:
    return any(k is ... for k in (key if isinstance(key, tuple) else (key,)))


def _filled(
    like: Any, function: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any
) -> Any:
    """What ``np.zeros(shape, like=x)`` and its like make."""
    one = function((), *args, **kwargs)
    return ops.full_like(like, one[()], one.dtype, np.empty(shape, bool).shape)


def _class_in_place(self: Any) -> type:
    """What :func:`isinstance` asks for after the type: in code that is not of a library
    it is the class of NumPy's array, or number, in the place of a traced one."""
    frame = sys._getframe(1)
    if frame.f_globals.get("__name__") == "abc" and frame.f_back is not None:
        frame = frame.f_back  # isinstance(x, numbers.Number)
    if is_of_library(frame):
        return type(self)
    return np.ndarray if self.is_array else self.term.dtype.type


@unwatched_methods
@of_numpys_kinds
class Tracer(Operators):
    """Stands for an array: shape and dtype are known while tracing, values are not.

    What is written to it gives it another term, and the arrays that show the same
    memory (:mod:`eqsat.trace.aliasing`).
    """

    __class__ = property(_class_in_place)
    __slots__ = (
        *("__weakref__", "is_array", "known", "layout", "memory", "path", "term"),
        "used",
    )

    has_value: ClassVar[bool] = False
    """Whether the values can be asked for."""

    def __init__(self, term: Term, is_array: bool = False) -> None:
        self.term = term
        self.is_array = is_array or bool(term.shape)
        """Whether NumPy has an array here, and not one of its numbers."""
        self.layout: aliasing.MemoryLayout | None = None
        """How it lies in memory that is its own; None where that is not known."""
        self.memory: aliasing.SharedMemory | None = None
        """What it shares with its views; None without any."""
        self.path: tuple[aliasing.ArrayView, ...] = ()
        """How it shows the owner of its memory."""
        self.known: Any = None
        """The array of NumPy that it is (:class:`KnownArray`)."""
        self.used: Any = None
        """What that held when the program last used it."""

    @classmethod
    def fixed(
        cls, term: Term, refusal: aliasing.Refusal, is_array: bool = True
    ) -> Tracer:
        """An array to which nothing can be written."""
        made = cls(term, is_array)
        aliasing.shared(made, refusal)
        return made

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Tracer:
        """The traced array ``op(*args, **attrs)``."""
        graph = self.term.graph
        if graph.float_errors is not None:
            check_float_errors(graph.float_errors)
        terms = [a.within(graph) if isinstance(a, Tracer) else a for a in args]
        return Tracer(apply(op, graph, terms, attrs))

    def within(self, graph: TermGraph) -> Any:
        """What stands for this array in a term of ``graph``: its term; its value, for
        an array that has one and was recorded elsewhere."""
        return self.term

    def call(self, fn: Callable[..., Any], arguments: Any) -> Any:
        """What ``fn`` returns for :class:`Arguments`, of which this is one: recorded
        with what this array is a part of."""
        for leaf in arguments.leaves:
            refuse_outside(leaf.given, f"argument {leaf.path}")
        args, kwargs = arguments.given()
        return fn(*args, **kwargs)

    lies_as = aliasing.lies_as

    def made_at_end(self, step: EndStep) -> Any:
        """What stands for a result that NumPy makes of what arrays hold now, when the
        program has ended."""
        graph = self.term.graph

        def held(value: Any) -> Any:
            if step.function is np.trim_zeros and isinstance(value, Tracer):
                how = (np.trim_zeros, lambda x: x, None)
                return aliasing.shown(
                    value, Tracer(value.term), aliasing.ArrayView, *how
                )
            is_array = isinstance(value, np.ndarray) or getattr(value, "is_array", True)
            if isinstance(value, Tracer):
                value = value.within(graph)
            if isinstance(value, np.ndarray):
                refuse_subclass(type(value), f"{step.name}: an argument")
                value = constant(graph, value)
            return Tracer(value, is_array) if isinstance(value, Term) else value

        return announced(step.of(held))

    # -- what is known -----------------------------------------------------------------

    shape: Shape = _of_term("shape", "Sizes of the axes.").setter(aliasing.set_shape)
    ndim: int = _of_term("ndim", "Number of axes.")
    size: int = _of_term("size", "Number of elements.")
    dtype: Any = _of_term(
        "dtype", "Bare Python numbers, which only bodies of ops see, have none."
    ).setter(_unknown_dtype)
    itemsize: int = _of_term("dtype.itemsize", "Bytes of one element.")
    nbytes: int = _of_term("nbytes", "Bytes of all elements.")

    def _is_float(self) -> bool:
        return is_float(self.term.dtype) or is_complex(self.term.dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TraceError(f"len() of a traced array without axes{at(caller_line())}")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TraceError(
                f"iteration over a traced array without axes{at(caller_line())}"
            )
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        key = as_mask(settled(key), self.shape)
        masks = [k for k in (key if isinstance(key, tuple) else (key,)) if _selects(k)]
        if masks:
            check_key(self, key)
            if masks[0] is not key or self.has_value:
                return at_end("x[mask]", operator.getitem, (self, key), {})
            return Selected(Tracer(self.term), Tracer(key.term))
        if self.has_value:
            return getitem(self, key)
        basic = aliasing.is_basic(key)
        found = aliasing.part(self, key) if basic else getitem(self, key)
        if not found.shape:  # NumPy copies a number, and shows an array for ``...``
            found = Tracer(found.term, _has_ellipsis(key))
        if not basic:
            return found
        return aliasing.shown(self, found, aliasing.view_at, key)

    def __repr__(self) -> str:
        return f"Tracer(shape={self.shape}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        if spec:
            raise untraceable(_unknown_of(self, "the text", _TEXT))
        return repr(self)

    __reduce_ex__ = _unknown("the pickle", "return the array, and pickle the result")

    def __copy__(self) -> Tracer:
        return self if self.has_value else type(self)(self.term, self.is_array)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        return self.__copy__()

    # -- views and writes --------------------------------------------------------------

    def copy(self, order: str = "C") -> Any:
        """The values in an array of its own."""
        judged("x.copy", "order", order)
        found = self._copy()
        if order == "C" and not self.has_value:
            found.layout = aliasing.MemoryLayout.of(found)
        return found

    def result_of(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        found: Any,
    ) -> Any:
        """``found``, which shows this array where NumPy makes a view; else an array of
        its own."""
        if self.has_value:
            return found
        if isinstance(found, Tracer) and not found.shape:
            given = self.is_array if function in _AS_GIVEN else function in _ARRAYS
            found = type(found)(found.term, given)
            if not found.is_array:
                return found
        result = aliasing.RESULTS.get(function)
        if result is not None:
            return result(self, function, args, kwargs, found)
        if isinstance(found, Tracer) and any(
            found is a for a in values_in(args, kwargs)
        ):
            return type(found)(found.term)
        return found

    _copy = _array_of_array(Operators.copy)
    astype = _array_of_array(Operators.astype)
    changed = in_place.changed
    __round__ = _rounded
    __setitem__ = in_place.set_item
    fill = in_place.fill
    sort = in_place.sort
    partition = in_place.partition
    put = written_places.put
    assigned = in_place.assigned
    real = property(aliasing.real_of, in_place.write_real, doc="The real parts.")
    imag = property(aliasing.imag_of, in_place.write_imag, doc="The imaginary parts.")
    flat = written_places.flat_of(written_places.FlatView)
    view = aliasing.view

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if method == "at":
            return written_places.ufunc_at(ufunc, *settled(inputs))
        out: Any = kwargs.get("out") or ()
        if any(isinstance(o, Tracer) for o in out):
            return in_place.into(ufunc, method, inputs, kwargs)
        found = super().__array_ufunc__(ufunc, method, *inputs, **kwargs)
        return self.result_of(ufunc, inputs, {}, found)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if function in _FILLED and not self.has_value:  # asked for by like=
            return _filled(self, function, *args, **kwargs)
        if function in written_places.WRITES:
            return written_places.WRITES[function](*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)

    # -- what is not -------------------------------------------------------------------

    __bool__ = _unknown(
        "the truth value",
        "if, while, and, or, not, in, max() and min() need it. Use "
        "np.where(condition, a, b), & and |, np.maximum and np.minimum",
        _NUMBERS,
    )
    __float__ = _unknown(
        "the float value",
        "write np.exp(x), not math.exp(x), and x.astype(float), not float(x)",
        _NUMBERS,
    )
    __int__ = _unknown(
        "the int value", "use x.astype(int), or pass a Python int", _NUMBERS
    )
    __trunc__ = __int__
    __complex__ = _unknown("the complex value", "write x.astype(complex)", _NUMBERS)
    __index__ = _unknown(
        "the index value",
        "range(), bounds of slices, shapes and lists need it. Pass a Python int, "
        "or index an array by an array: x[i]",
        "iu",
    )
    __contains__ = _unknown("the content", "use np.any(x == value)")
    __hash__ = _hash  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        advice = {
            "b": "To choose by it, write np.where(x, a, b)",
            "i": "To index an array by it, write eqsat.ops.take(array, x, axis=0)",
            "u": "To index an array by it, write eqsat.ops.take(array, x, axis=0)",
        }
        other = (
            "Write to arrays that are made in the traced function, by np.zeros(...) or "
            "np.array(y). eqsat has eq.softmax, eq.logsumexp, eq.solve_triangular and "
            "eq.cho_solve"
        )
        needed = "np.asarray and functions that eqsat cannot trace need it. "
        needed += advice.get(self.dtype.kind, other)
        raise noted(made_elsewhere(_unknown_of(self, "the data", needed)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        if name in _IN_PLACE:
            why = "changes an array in place, which cannot be traced; make a new array"
        elif name in VALUES:
            why = "is not known while tracing; return the array, and ask the result"
        elif name in _MEMORY:
            why = "describes memory, and a traced array has none"
        else:
            advice = f"write {INSTEAD[name]}" if name in INSTEAD else ELSEWHERE
            why = f"is not supported in a traced function\n  {advice}"

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise untraceable(f"x.{name} {why}{at(caller_line())}")

        return refuse if callable(getattr(np.ndarray, name)) else refuse()
