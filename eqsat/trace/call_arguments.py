"""The arguments of a call: which are arrays, of which types, and which are constant."""

from __future__ import annotations

import functools
import inspect
import mmap
import operator
import sys
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple, cast

import numpy as np

from eqsat.numpy_api import ForeignKind, check_together, kind_of, refuse_subclass
from eqsat.support import (
    DTypeError,
    TraceError,
    an,
    at,
    cached_property,
    caller_line,
    pytree,
)
from eqsat.terms import BF16, Op, Shape, Traced, dtype_code
from eqsat.trace.tracer import Tracer


@dataclass(frozen=True)
class Spec:
    """The shape and dtype of an array argument, to trace a function without data.

    >>> Spec((2, 3), "float32")
    Spec(shape=(2, 3), dtype=dtype('float32'))
    """

    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, shape: int | Iterable[int], dtype: Any) -> None:
        """Raises :class:`DTypeError` for a dtype that is not supported."""
        sizes = shape if isinstance(shape, Iterable) else (shape,)
        object.__setattr__(self, "shape", tuple(operator.index(s) for s in sizes))
        object.__setattr__(self, "dtype", np.dtype(dtype))
        dtype_code(self.dtype)


class Leaf(NamedTuple):
    """One array argument. ``path`` is how one would write it: ``params['w'][0]``."""

    path: str
    value: Any
    dtype: np.dtype[Any]
    shape: Shape
    constant: bool
    declared: bool
    """Whether it is constant because the caller of ``jit`` says so."""
    foreign: Any = None
    """The array of another library whose memory ``value`` shows."""

    @property
    def given(self) -> Any:
        """What the caller passed."""
        return self.value if self.foreign is None else self.foreign


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of one call: the arrays, and the structure that they are in."""

    structure: pytree.Structure
    leaves: tuple[Leaf, ...]
    owner: pytree.Attributes | None = None
    """What the object holds whose method is called, or that is called itself."""
    names: tuple[str, ...] = ()
    """What the arguments are called, those by position first."""
    kind: ForeignKind | None = None
    """What arrays of results are, where they are not of NumPy or MLX."""

    @property
    def arrays(self) -> list[Any]:
        """The arrays that may change between calls, in order."""
        return [leaf.value for leaf in self.leaves if not leaf.constant]

    @property
    def are_mlx(self) -> bool:
        """Whether one of the arrays is of MLX."""
        return any(is_mlx(leaf.value) for leaf in self.leaves)

    @property
    def parts(self) -> list[pytree.Structure]:
        """The structure of each argument, in the order of :attr:`names`."""
        assert isinstance(self.structure, pytree.TreeNode)
        return [
            c
            for s in self.structure.children
            for c in cast(pytree.TreeNode, s).children
        ]

    @property
    def by_position(self) -> int:
        """How many arguments are given by position."""
        assert isinstance(self.structure, pytree.TreeNode)
        return len(cast(pytree.TreeNode, self.structure.children[0]).children)

    def statics(self) -> Iterator[pytree.Found]:
        """What is no array in the arguments, and part of the program."""
        for name, part in zip(self.names, self.parts, strict=True):
            yield from pytree.statics(part, name)

    def classes(self) -> set[type]:
        """The classes of the user of what is no array in the arguments, and of what
        holds arrays."""
        return {
            kind
            for part in self.parts
            for kind in pytree.classes(part)
            if kind.__module__ not in sys.stdlib_module_names
        }

    def given(self, change: Callable[[Any], Any] = lambda array: array) -> Any:
        """The arguments by position and by name, with each array changed."""
        return pytree.unflatten(self.structure, (change(a.value) for a in self.leaves))

    @cached_property
    def key(self) -> Hashable:
        """Equal for calls of one program: same structure, types and constants.

        Constants count by ``id``, which holds for as long as they are alive.
        """
        types = tuple(
            (
                ("constant", id(leaf.given))
                if leaf.constant
                else (leaf.dtype, leaf.shape, isinstance(leaf.value, np.generic))
            )
            for leaf in self.leaves
        )
        return self.structure, types, self.owner

    @property
    def without_arrays(self) -> Arguments:
        """The same with None for each array."""
        leaves = (leaf._replace(value=None, foreign=None) for leaf in self.leaves)
        return replace(self, leaves=tuple(leaves), owner=None)

    @cached_property
    def varying(self) -> Arguments:
        """The same with read-only arrays as arrays that may change between calls."""
        leaves = (leaf._replace(constant=leaf.declared) for leaf in self.leaves)
        return replace(self, leaves=tuple(leaves))


def flatten_arguments(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    constants: Collection[str | int] = (),
) -> Arguments:
    """The arrays in the arguments of ``fn(*args, **kwargs)``.

    Parameters whose names or positions are in ``constants``, and arrays that nobody can
    write to, are constant. Arrays of other libraries are shown as NumPy's. Raises
    :class:`DTypeError` that names the argument whose dtype is not supported, and
    :class:`TraceError` for masked arrays, matrices, arrays of other libraries that
    NumPy cannot show or that are of two libraries, and names that are no parameters.
    """
    fixed = _constant_names(fn, constants) if constants else ()
    leaves: list[Leaf] = []
    parts: list[pytree.Structure] = []
    n = len(args)
    names = (*argument_names(fn, n), *kwargs)
    for name, value in zip(names, (*args, *kwargs.values()), strict=True):
        constant = bool(fixed) and name.partition("[")[0] in fixed
        if type(value) is np.ndarray:  # as most are
            parts.append(pytree.ARRAY)
            leaves.append(_leaf(name, value, constant))
            continue
        found, part = pytree.flatten(value, is_taken, name)
        parts.append(part)
        leaves.extend(_leaf(path, v, constant) for path, v in found)
    if not kwargs and parts.count(pytree.ARRAY) == n:
        structure = _of_arrays(n)
    else:
        structure = _structure(parts, n, tuple(kwargs))
    return Arguments(structure, tuple(leaves), _owner(fn), names, _kind(leaves))


def _structure(
    parts: Sequence[pytree.Structure], count: int, named: Sequence[str]
) -> pytree.Structure:
    """What arguments are in, ``count`` by position and others by name."""
    positional = pytree.TreeNode(tuple, tuple(range(count)), tuple(parts[:count]))
    by_name = pytree.TreeNode(dict, tuple(named), tuple(parts[count:]))
    return pytree.TreeNode(tuple, (0, 1), (positional, by_name))


@functools.cache
def _of_arrays(count: int) -> pytree.Structure:
    """That of so many arrays by position."""
    return _structure([pytree.ARRAY] * count, count, ())


def _kind(leaves: Sequence[Leaf]) -> ForeignKind | None:
    """The kind of the arrays of other libraries among ``leaves`` that results have."""
    foreign = [leaf for leaf in leaves if leaf.foreign is not None]
    if not foreign:
        return None
    check_together((leaf.path, leaf.given, kind_of(leaf.given)) for leaf in leaves)
    kinds = (kind_of(leaf.foreign) for leaf in foreign)
    return next((k for k in kinds if k is not None and k.give is not None), None)


def _owner(fn: Callable[..., Any]) -> pytree.Attributes | None:
    """The attributes that a bound method or an object with ``__call__`` can read."""
    if type(fn) is FunctionType:
        return None
    owner = pytree.owner(fn)
    if isinstance(owner, Op):  # what it holds never changes
        return None
    return pytree.attributes(owner, is_array)


_PLACEHOLDER = getattr(functools, "Placeholder", object())
"""Stands for an argument of a partial function that is given later."""


def argument_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """What the first ``count`` positional arguments of ``fn`` are called."""
    inner: Any = fn
    bound = 0
    if isinstance(fn, MethodType):
        inner, bound = fn.__func__, 1
    elif type(fn) is partial and not fn.keywords:
        if all(a is not _PLACEHOLDER for a in fn.args):
            inner, bound = fn.func, len(fn.args)
    elif not isinstance(fn, FunctionType):
        inner, bound = type(fn).__call__, 1
    if isinstance(inner, FunctionType) and not hasattr(inner, "__wrapped__"):
        code = inner.__code__
        if bound + count <= code.co_argcount:
            return code.co_varnames[bound : bound + count]
    names: list[str] = []
    for p in _parameters(fn):
        if p.kind is p.VAR_POSITIONAL:
            names += [f"{p.name}[{i}]" for i in range(count - len(names))]
        elif p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD:
            names.append(p.name)
    return (*names, *map(str, range(len(names), count)))[:count]


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of ``fn``; none when it does not tell."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


def _constant_names(
    fn: Callable[..., Any], constants: Collection[str | int]
) -> set[str]:
    """``constants``, names and positions, as names."""
    parameters = _parameters(fn)
    names = [p.name for p in parameters]
    found: set[str] = set()
    for c in constants:
        if not names:
            found.add(str(c))
        elif isinstance(c, int) and c < len(names):
            found.add(names[c])
        elif c in names or any(p.kind is p.VAR_KEYWORD for p in parameters):
            found.add(str(c))
        else:
            called = getattr(fn, "__name__", repr(fn))
            raise TraceError(
                f"constants: {c!r} is no parameter of {called}({', '.join(names)})"
                f"{at(caller_line())}"
            )
    return found


def to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """An array of any library as NumPy's. MLX shows NumPy no bfloat16."""
    if is_mlx(value):
        mlx = sys.modules["mlx.core"]
        if value.dtype == mlx.bfloat16:
            return np.asarray(value.view(mlx.uint16)).view(BF16)
    return np.asarray(value)


def to_mlx(value: Any) -> Any:
    """An array or a number of NumPy as an array of MLX, of the same dtype."""
    mlx, array = sys.modules["mlx.core"], np.asarray(value)
    if array.dtype == BF16:
        return mlx.array(array.view(np.uint16)).view(mlx.bfloat16)
    name = "bool_" if array.dtype == bool else array.dtype.name
    return mlx.array(array, dtype=getattr(mlx, name))


def is_mlx(value: Any) -> bool:
    """Whether ``value`` is an array of MLX."""
    mlx = sys.modules.get("mlx.core")
    return mlx is not None and isinstance(value, mlx.array)


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array, of NumPy or of another library."""
    if isinstance(value, (np.ndarray, np.generic)):
        return not isinstance(value, (str, bytes))
    return isinstance(value, (Spec, Traced)) or hasattr(type(value), "__dlpack__")


def is_taken(value: Any) -> bool:
    """Whether a call takes ``value`` for an array, to refuse it or not."""
    return is_array(value) or kind_of(value) is not None


def _leaf(path: str, value: Any, constant: bool) -> Leaf:
    if type(value) is np.ndarray and value.flags.writeable:  # most are
        dtype = dtype_of_array(f"argument {path}", value)
        return Leaf(path, value, dtype, value.shape, constant, constant)
    kind = kind_of(value)
    if kind is not None:
        shown = _leaf(path, kind.view(f"argument {path}", value), constant)
        return shown._replace(constant=constant, foreign=value)
    if isinstance(value, Traced) and not isinstance(value, Tracer):
        raise TraceError(
            f"argument {path} is {an(type(value).__name__)}, not an array"
            f"{at(caller_line())}"
        )
    if isinstance(value, np.ndarray):
        refuse_subclass(type(value), f"argument {path}")
    if constant and (
        isinstance(value, Spec) or (isinstance(value, Tracer) and not value.has_value)
    ):
        raise TraceError(
            f"argument {path} is constant and needs data, not "
            f"{an(type(value).__name__)}{at(caller_line())}"
        )
    dtype = dtype_of_array(f"argument {path}", value)
    frozen = isinstance(value, np.ndarray) and never_written(value)
    shape = tuple(value.shape)
    return Leaf(path, value, dtype, shape, constant or frozen, constant)


_SWAP = " (its bytes are swapped; write x.astype(x.dtype.newbyteorder('=')))"


def dtype_of_array(what: str, value: Any) -> np.dtype[Any]:
    """The dtype of an array of any library.

    Raises :class:`DTypeError` that says ``what`` it is.
    """
    dtype = value.dtype
    if not isinstance(dtype, np.dtype):
        name = str(dtype).rpartition(".")[2]
        try:
            dtype = np.dtype(name)
        except TypeError:
            raise DTypeError(
                f"{what}: dtype {dtype} is not supported{at(caller_line())}"
            ) from None
    try:
        dtype_code(dtype)
    except DTypeError as error:
        hint = "" if dtype.isnative else _SWAP
        first, end, line = str(error).partition("\n")
        raise DTypeError(f"{what}{hint}: {first}{end}{line}") from None
    return dtype


def never_written(array: Any) -> bool:
    """Whether ``array``, all arrays that it is a view of, and the memory that they lie
    in are read-only. A file that is mapped is not: others may write to it."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    while isinstance(array, memoryview):
        array = array.obj
    if isinstance(array, mmap.mmap):
        return False
    try:
        return array is None or memoryview(array).readonly
    except TypeError:
        return True  # Memory of another library, which gave a read-only view of it.
