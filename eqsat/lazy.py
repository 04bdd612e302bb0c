"""Lazy arrays: operations are recorded, then optimised and run together.

record → outline → the program of that outline, compiled once → values
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import numpy as np

from eqsat.explain import Explanation
from eqsat.jit import Jit, jit
from eqsat.lowered import Lowered
from eqsat.numpy_api import (
    BUFFER,
    SHOW,
    WRITE,
    EndStep,
    are_of_numpy,
    kind_of,
    operands,
    refuse_subclass,
)
from eqsat.numpy_api import array as plain
from eqsat.support import (
    ForkLock,
    RecompileWarning,
    TraceError,
    at,
    caller_line,
    pytree,
    warn,
)
from eqsat.terms import Graph, Op, Term, apply, constant
from eqsat.trace import (
    RECORDING,
    VALUES,
    Outline,
    Recorded,
    Tracer,
    dtype_of_array,
    is_mlx,
    is_taken,
    parts,
    recorded_again,
    to_mlx,
    to_numpy,
    trace,
)

_MOST = 1024
"""Programs that are kept, those used last."""
_LARGEST = 840
"""Operations of one program; what is longer is computed in parts. Larger programs take
seconds to compile, and a part of this size holds a whole number of rounds of a loop of
2 to 8, 10 or 12 operations, so that a long loop is a few programs."""
_MANY_NUMBERS = 8
"""Programs that differ in Python numbers alone before a warning."""


def _of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that applies ``function`` to the values."""

    def method(self: Any, *args: Any) -> Any:
        return function(np.asarray(self), *args)

    return method


class LazyArray(Tracer):
    """An array whose values are computed when they are asked for.

    Made by :func:`array`, and by operators, NumPy's functions and eqsat's ops on lazy
    arrays. Shape and dtype are known at once, and so are errors in them. Its values
    never change: ``x += y`` makes a new array, ``x[i] = y`` is an error, and a copy is
    the array itself.

    Values are asked for by :meth:`eval`, ``np.asarray``, ``float``, ``int``, ``bool``
    (as ``if`` and ``while`` do), ``in``, ``item``, ``tolist``, ``print``, ``repr``,
    ``format`` and ``pickle``, by masks (``x[x > 0]``), and by what writes into an array
    of NumPy or into a file (``a += x``, ``out=``, ``np.save``). They are computed once.

    Python numbers and NumPy's scalars are part of the program. NumPy arrays are taken
    as they are at that moment, which copies them: one that many graphs use is better
    made lazy once, by :func:`array`. Those that nobody can write to are not copied, and
    are constants, as they are for :func:`jit`. Arrays of MLX are made lazy by
    :func:`array` only.

    A function of :func:`jit` or :func:`grad` called with lazy arrays is traced, in each
    call, and becomes part of the graph. In a function that is being traced, a lazy
    array from outside counts as its values do: it is evaluated, and constant.
    """

    __slots__ = ()

    term: Recorded
    has_value = True
    __hash__ = object.__hash__  # type: ignore[assignment]

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The lazy array ``op(*args, **attrs)``; traced where an argument is."""
        for a in args:
            if isinstance(a, Tracer) and not isinstance(a, LazyArray):
                return a.lift(op, args, attrs)
        return LazyArray(apply(op, RECORDING, [_operand(a) for a in args], attrs))

    def within(self, graph: Graph) -> Any:
        """Its term in the graph of lazy arrays, its value (NumPy) in any other."""
        return self.term if graph is RECORDING else to_numpy(self._value())

    def call(self, fn: Callable[..., Any], arguments: Any) -> Any:
        """What ``fn`` returns, traced by itself and recorded; with its lazy arguments
        evaluated where others are being traced."""
        arrays = [leaf.value for leaf in arguments.leaves]
        if any(isinstance(a, Tracer) and not isinstance(a, LazyArray) for a in arrays):
            args, kwargs = arguments.given(
                lambda a: to_numpy(a) if isinstance(a, LazyArray) else a
            )
            return fn(*args, **kwargs)
        done = trace(fn, arguments)
        if done.writes:
            raise TraceError(
                "the function writes to its arguments, and lazy arrays never change\n"
                f"  write to a copy: x = x.copy(){at(caller_line())}"
            )
        operands = map(_operand, arguments.arrays)
        inputs = [o if isinstance(o, Term) else array(o).term for o in operands]
        outputs = recorded_again(done, inputs)
        if done.ends:
            return _made_lazy(done.unflatten(_values(cast(list[Recorded], outputs))))
        return done.unflatten(map(LazyArray, outputs))

    def made_at_end(self, step: EndStep) -> Any:
        """What NumPy makes of the values: only these tell its shape."""
        lazy = [a.term for a in operands(step) if isinstance(a, LazyArray)]
        mlx = any(map(is_mlx, _values(lazy)))
        known = step.of(lambda a: np.asarray(a) if isinstance(a, LazyArray) else a)
        found = known.function(*known.args, **known.kwargs)
        return _made_lazy(found, to_mlx if mlx else array)

    def _value(self) -> Any:
        value = self.term.value
        return _values([self.term])[0] if value is None else value

    def eval(self) -> Any:
        """The values, as a read-only array of NumPy; ``.copy()`` makes one to write to.

        All that was recorded is optimised as by :func:`jit` and run on the default
        backend, unless the values are known already; what was recorded before is then
        let go. The program is compiled once for all graphs of the same operations,
        shapes, dtypes and Python numbers. Where a value comes from an array of MLX,
        MLX computes it, and it is an array of MLX.

        Raises what the program raises, such as ``IndexError`` of :func:`numpy.take`.
        Warns :class:`RecompileWarning` when one graph comes with ever new Python
        numbers.

        >>> array([1.0, 2.0]).eval()
        array([1., 2.])
        """
        return _shown(self._value())

    def lower(self) -> Lowered:
        """The program that :meth:`eval` would run now; one also for graphs of more than
        840 operations, which are evaluated in parts."""
        with _lock():
            outline = Outline([self.term])
            program = _program(outline)
        low: Lowered = program.lower(*outline.leaves)
        return low

    def explain(self) -> Explanation:
        """What optimising for :meth:`eval` does. Ask before evaluating: a value that is
        known needs no program.

        >>> x = array(np.ones((2, 3), np.float32))
        >>> [k.ops for k in (np.tanh(x) + x).explain().kernels]
        [('tanh', 'add')]
        """
        return self.lower().explain()

    # -- what is asked of the values ---------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        shown = _read_only(to_numpy(self._value()))
        return np.array(shown, dtype=dtype, copy=copy)

    __bool__ = _of_values(bool)
    __float__ = _of_values(float)
    __int__ = _of_values(int)
    __complex__ = _of_values(complex)
    __index__ = _of_values(operator.index)
    __str__ = _of_values(str)
    __format__ = _of_values(format)

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def __repr__(self) -> str:
        return "eq." + repr(np.asarray(self)).replace("\n", "\n   ")

    def __reduce__(self) -> Any:
        return array, (self._value(),)

    # -- what differs from traced arrays -----------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in VALUES:
            return getattr(np.asarray(self), name)
        with _told():
            return super().__getattr__(name)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if any(map(_is_mask, keys)) and not any(map(_is_traced, keys)):
            return self._masked(keys)
        value = self.term.value
        if value is None or not _is_basic(keys):
            return super().__getitem__(key)
        # A view now costs less than a program for each index.
        if isinstance(value, np.ndarray):
            with suppress(IndexError):  # which is raised below in other words
                view = np.asarray(value[key])
                return LazyArray(RECORDING.leaf(view, (view.dtype, view.shape)))
        made: LazyArray = super().__getitem__(key)
        return LazyArray(RECORDING.leaf(value[key], made.term.type))

    def _masked(self, keys: Sequence[Any]) -> Any:
        """What masks choose: only values tell how much that is."""
        value, *known = _known((self, *keys))
        if not is_mlx(self.term.value):
            with suppress(IndexError):
                made = np.asarray(value[tuple(known)])
                return LazyArray(RECORDING.leaf(made, (made.dtype, made.shape)))
        return super().__getitem__(tuple(known))

    def __setitem__(self, key: Any, value: Any) -> None:
        with _told():
            super().__setitem__(key, value)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        """As of traced arrays; into arrays of NumPy, by values."""
        if are_of_numpy(inputs[:1] if method == "at" else kwargs.get("out")):
            return getattr(ufunc, method)(*_known(inputs), **_known(kwargs))
        with _told():
            return super().__array_ufunc__(ufunc, method, *inputs, **kwargs)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        written = args[:1] if function in WRITE else kwargs.get("out")
        if function in SHOW or are_of_numpy(written):
            return function(*_known(args), **_known(kwargs))
        with _told():
            return super().__array_function__(function, types, args, kwargs)


def _made_lazy(value: Any, make: Callable[[Any], Any] = lambda a: a) -> Any:
    """``value``, nested as it may be, with lazy arrays of the arrays in it."""
    found, structure = pytree.flatten(value, is_array)
    return pytree.unflatten(structure, (array(make(f.value)) for f in found))


def _known(arguments: Any) -> Any:
    """Arguments, nested as they may be, with arrays of NumPy for the lazy ones."""
    if isinstance(arguments, LazyArray):
        return np.asarray(arguments)
    if isinstance(arguments, Mapping):
        return dict(zip(arguments, _known([*arguments.values()]), strict=True))
    if type(arguments) not in (list, tuple):
        return arguments
    _values([a.term for a in arguments if isinstance(a, LazyArray)])
    return type(arguments)(map(_known, arguments))


@contextmanager
def _told() -> Iterator[None]:
    """Errors of what cannot be recorded tell how to get values."""
    try:
        yield
    except TraceError as error:
        error.add_note("x.eval() gives the values of a lazy array to NumPy")
        raise


def _is_basic(keys: Sequence[Any]) -> bool:
    """Whether ``x[keys]`` is a view of ``x``."""
    kinds = (int, np.integer, slice, type(None), type(...))
    return all(isinstance(k, kinds) and type(k) is not bool for k in keys)


def _is_traced(key: Any) -> bool:
    return isinstance(key, Tracer) and not key.has_value


def _is_mask(key: Any) -> bool:
    if isinstance(key, (LazyArray, np.ndarray)):
        return bool(key.dtype == np.dtype(bool))
    known = isinstance(key, (bool, np.bool_, list))
    return known and np.asarray(key).dtype == np.dtype(bool)


def array(data: Any, dtype: Any = None) -> Any:
    """A lazy array of ``data``: what :func:`numpy.array` takes, and arrays of other
    libraries that :func:`jit` takes, copied.

    An array of MLX stays one, and what is computed of it too. A lazy array, or one that
    is being traced, is given back as it is, in ``dtype``.

    Raises :class:`DTypeError` for dtypes that are not supported, and
    :class:`TraceError` for masked arrays, matrices and arrays of other libraries that
    :func:`jit` refuses.

    >>> x = array([1.0, 2.0], dtype="float32")
    >>> y = x * x + 1
    >>> y.shape, y.dtype
    ((2,), dtype('float32'))
    >>> y.eval()
    array([2., 5.], dtype=float32)
    """
    if isinstance(data, Tracer):
        return data if dtype is None else data.astype(dtype)
    if is_mlx(data):
        type_ = dtype_of_array("eq.array: the data", data), tuple(data.shape)
        made = LazyArray(RECORDING.leaf(_alias(data), type_))
        return made if dtype is None else made.astype(dtype)
    kind = kind_of(data)
    if kind is not None and kind is not BUFFER:
        data = kind.view("eq.array: the data", data)
    if isinstance(data, np.ndarray):
        refuse_subclass(type(data), "eq.array: the data")
    value = np.array(data, dtype=dtype)
    type_ = dtype_of_array("eq.array: the data", value), value.shape
    return LazyArray(RECORDING.leaf(value, type_))


def evaluate(*values: Any) -> Any:
    """``values`` with the lazy arrays in them evaluated together, in one program.

    What several of them need is computed once. Lazy arrays may be nested in dicts,
    lists, tuples and dataclasses; anything else stays as it is. One value gives one,
    several give a tuple.

    >>> x = array([3.0, 4.0])
    >>> norm = np.sqrt(np.sum(x * x))
    >>> evaluate({"norm": norm, "unit": x / norm})
    {'norm': array(5.), 'unit': array([0.6, 0.8])}
    """
    found, structure = pytree.flatten(
        values, lambda v: is_taken(v) or pytree.is_other(v)
    )
    arrays = [f.value for f in found]
    _values([a.term for a in arrays if isinstance(a, LazyArray)])
    known = [a.eval() if isinstance(a, LazyArray) else a for a in arrays]
    result = pytree.unflatten(structure, known)
    return result[0] if len(values) == 1 else result


def _operand(value: Any) -> Any:
    """``value`` as :func:`apply` takes it, with arrays as leaves."""
    if isinstance(value, LazyArray):
        return value.term
    if isinstance(value, np.ndarray):
        return constant(RECORDING, plain(value))
    return value


def _alias(value: Any) -> Any:
    """An array of MLX that shows what ``value`` holds now; MLX copies on writing."""
    return type(value)(value)


def _shown(value: Any) -> Any:
    return _alias(value) if is_mlx(value) else _read_only(value)


def _read_only(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = value.view()
    view.flags.writeable = False
    return view


# -- programs --------------------------------------------------------------------------

_lock = ForkLock()
"""Held while terms are looked at or settled, never while programs compile or run."""
_programs: OrderedDict[Hashable, Jit] = OrderedDict()
_spelled: Counter[Hashable] = Counter()
"""Programs made of each outline, Python numbers aside."""


def _values(terms: Sequence[Recorded]) -> list[Any]:
    """The values of ``terms``, computed together if they are not known."""
    with _lock():
        waiting = parts(terms, _LARGEST)
    while waiting:
        wanted = waiting.pop()
        with _lock():
            outline = Outline(wanted)
            program = _program(outline)
        results = program(*outline.leaves)
        with _lock():
            for term, result in zip(wanted, results, strict=True):
                if term.value is None:  # else another thread was faster
                    term.settle(result)
    return [t.value for t in terms]


def _program(outline: Outline) -> Jit:
    """The compiled program for ``outline``."""
    key = outline.key
    found = _programs.get(key)
    if found is not None:
        _programs.move_to_end(key)
        return found
    _note_numbers(outline)
    while len(_programs) >= _MOST:
        _programs.popitem(last=False)
    _programs[key] = made = _jitted(outline)
    return made


def _jitted(outline: Outline) -> Jit:
    return cast(Jit, jit(outline.function()))


def _note_numbers(outline: Outline) -> None:
    """Warn of Python numbers that are others each time."""
    if len(_spelled) >= _MOST:
        _spelled.clear()
    key = outline.key_without_numbers
    _spelled[key] += 1
    if _spelled[key] == _MANY_NUMBERS:
        warn(
            f"eqsat: a graph of lazy arrays was compiled {_MANY_NUMBERS} times, once "
            f"for each value of a Python number in it. Numbers are part of the "
            f"program. Make an array of one that changes: eq.array(number, x.dtype)",
            RecompileWarning,
        )
