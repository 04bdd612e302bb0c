"""Stand-ins for arrays while a function is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from eqsat.build import apply
from eqsat.errors import TraceAttributeError, TraceError, at, caller_line
from eqsat.indexing import getitem
from eqsat.numpy_api import Operators
from eqsat.numpy_api.operands import ELSEWHERE, INSTEAD
from eqsat.op import Op
from eqsat.term import Graph, Shape, Term
from eqsat.typerule import is_float

_IN_PLACE = frozenset(
    "byteswap fill partition put resize setfield setflags sort".split()
)
VALUES = frozenset("dump dumps item tobytes tofile tolist".split())
_MEMORY = frozenset("base ctypes data flags flat getfield strides view".split())


class Tracer(Operators):
    """Stands for an array: shape and dtype are known while tracing, values are not."""

    __slots__ = ("term",)

    has_value: ClassVar[bool] = False
    """Whether the values can be asked for."""

    def __init__(self, term: Term) -> None:
        self.term = term

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Tracer:
        """The traced array ``op(*args, **attrs)``."""
        graph = self.term.graph
        terms = [a.within(graph) if isinstance(a, Tracer) else a for a in args]
        return Tracer(apply(op, graph, terms, attrs))

    def within(self, graph: Graph) -> Any:
        """What stands for this array in a term of ``graph``: its term; its value, for
        an array that has one and was recorded elsewhere."""
        return self.term

    def call(self, fn: Callable[..., Any], arguments: Any) -> Any:
        """What ``fn`` returns for :class:`Arguments`, of which this is one: recorded
        with what this array is a part of."""
        args, kwargs = arguments.given()
        return fn(*args, **kwargs)

    # -- what is known -----------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return self.term.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.term.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.term.size

    @property
    def dtype(self) -> Any:
        """The dtype; bare Python numbers, which only bodies of ops see, have none."""
        return self.term.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        size: int = self.dtype.itemsize
        return size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.term.nbytes

    def _is_float(self) -> bool:
        return is_float(self.term.dtype)

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
        return getitem(self, key)

    def __repr__(self) -> str:
        return f"Tracer(shape={self.shape}, dtype={self.dtype})"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        return self

    # -- what is not -------------------------------------------------------------------

    def _refuse(self, what: str, advice: str) -> NoReturn:
        raise TraceError(
            f"{what} of a traced array ({self.dtype}, shape {self.shape}) is not known "
            f"while tracing\n  {advice}{at(caller_line())}"
        )

    def __bool__(self) -> bool:
        self._refuse(
            "the truth value",
            "if, while, and, or, not, in, max() and min() need it; use "
            "np.where(condition, a, b), & and |, np.maximum and np.minimum",
        )

    def __float__(self) -> float:
        self._refuse("the float value", "use np.exp(x), not math.exp(x), and so on")

    def __int__(self) -> int:
        self._refuse("the int value", "use x.astype(int), or pass a Python int")

    def __complex__(self) -> complex:
        self._refuse("the complex value", "complex numbers cannot be traced")

    def __index__(self) -> int:
        self._refuse(
            "the value as an index",
            "range(), bounds of slices, shapes and lists need it; pass a Python int, "
            "or index an array by an array: x[i]",
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        advice = {
            "b": "np.where(x, a, b) chooses by it",
            "i": "eqsat.ops.take(array, x, axis=0) indexes an array by it",
            "u": "eqsat.ops.take(array, x, axis=0) indexes an array by it",
        }
        other = (
            "x needs neither, np.stack joins traced arrays, np.broadcast_to "
            "fills a shape, and eqsat has softmax and logsumexp"
        )
        self._refuse(
            "the data",
            "np.asarray, np.ascontiguousarray and functions that are not traced need "
            "it; " + advice.get(self.dtype.kind, other),
        )

    def __contains__(self, value: object) -> bool:
        self._refuse("the content", "use np.any(x == value)")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TraceError(
            "x[...] = y changes an array in place, which cannot be traced\n"
            f"  use np.where(mask, y, x), or np.concatenate{at(caller_line())}"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}")
        if name in _IN_PLACE:
            why = "changes an array in place, which cannot be traced; make a new array"
        elif name in VALUES:
            why = "is not known while tracing; return the array and ask the result"
        elif name in _MEMORY:
            why = "tells of memory, which a traced array does not have"
        else:
            advice = f"write {INSTEAD[name]}" if name in INSTEAD else ELSEWHERE
            why = f"is not supported in a traced function\n  {advice}"
        raise TraceAttributeError(f"x.{name} {why}{at(caller_line())}")
