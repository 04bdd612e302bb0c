"""Lazy arrays: what is done to them is recorded, and computed when it is asked for.

call → recipe → walk of the graph → its program, compiled once → values
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, reduce, update_wrapper
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from eqsat.explain import Explanation
from eqsat.lazy.graph import RECORDING, Outline, Recorded, ValuesAsked, recorded_again
from eqsat.lazy.programs import LOCK, evaluate_all, program_of, value_of
from eqsat.lazy.recipes import (
    RECIPES,
    ArrayKind,
    CallRecipe,
    array_kind,
    recipe_of,
    spell,
    swapped,
)
from eqsat.lazy.setting import Setting, joined, setting
from eqsat.lazy.standard import StandardArray
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
from eqsat.rulelang import RuleSet
from eqsat.support import (
    OptionError,
    Options,
    Place,
    TraceError,
    as_html,
    at,
    caller_line,
    caller_place,
    line_of,
    pytree,
)
from eqsat.terms import INPUT, Op, Shape, Term, TermGraph, Type, apply, constant
from eqsat.trace import (
    VALUES,
    Tracer,
    dtype_of_array,
    fitted,
    is_array,
    is_mlx,
    is_taken,
    of_numpys_kinds,
    replaced,
    to_mlx,
    to_numpy,
    trace,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def _of_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that applies ``function`` to the values."""

    def method(self: Any, *args: Any) -> Any:
        return function(np.asarray(self), *args)

    return method


def _copied(self: Any, order: str = "C") -> Any:
    """The values in an array of its own."""
    return _twin(self)


def _of_kind(name: str, doc: str) -> Any:
    """A property that an array has of its kind."""
    return property(attrgetter(f"kind.{name}"), doc=doc)


def _recorded(slow: Callable[..., Any]) -> Callable[..., Any]:
    """A method that records by a recipe; ``slow`` records step by step."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _record(slow, (self, *args), kwargs)

    return update_wrapper(method, slow)


def _binary(slow: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`_recorded`, of an operator with another argument."""

    def method(self: Any, other: Any) -> Any:
        of = type(other)
        if of is LazyArray:
            found = RECIPES.get((slow, self.kind, other.kind))
            if found is not None:
                return _made(found, (self, other), caller_place(2))
        elif (of is float and other == other) or of is int:
            spelled = other if other or of is int else str(other)
            found = RECIPES.get((slow, self.kind, of, spelled))
            if found is not None:
                return _made(found, (self,), caller_place(2))
        elif of is np.ndarray:
            other = _operand(other)
        return _record(slow, (self, other), {})

    return update_wrapper(method, slow)


def _record(
    slow: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The result of a call, by its recipe if it has one."""
    key: list[Any] = [slow]
    given: list[LazyArray] = []
    if not spell(args, LazyArray, key, given):
        return _unspelled(slow, args, kwargs)
    if kwargs:
        key += kwargs
        if not spell(kwargs.values(), LazyArray, key, given):
            return _unspelled(slow, args, kwargs)
    spelling = tuple(key)
    try:
        found = RECIPES[spelling]
    except KeyError:
        found = RECIPES[spelling] = _learned(slow, args, kwargs, given)
    if found is None:
        return slow(*args, **kwargs)
    return _made(found, tuple(given), caller_place(2))


def _unspelled(
    slow: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The result of a call that cannot be spelled as it is: arrays that were written to
    are what they are now."""
    given = tuple(kwargs.values())
    now, named = _now(args), _now(given)
    if now is args and named is given:
        return slow(*args, **kwargs)
    return _record(slow, now, dict(zip(kwargs, named, strict=True)))


def _made(recipe: CallRecipe, given: tuple[LazyArray, ...], place: Place | None) -> Any:
    """What a call with a recipe returns."""
    if not recipe.rows:
        return _twin(given[~recipe.root])
    made = _new(LazyArray)
    made.recipe = recipe
    made.kind = recipe.kind
    made.given = given
    made.place = place
    made.value = made.made = None
    return made


def _learned(
    slow: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Sequence[LazyArray],
) -> CallRecipe | None:
    """The recipe of a call: what it records of stand-ins."""
    stand_ins = [
        _StandIn(RECORDING.node(INPUT, (), (0,), g.kind.type, None, g.kind.setting))
        for g in given
    ]
    for stand_in, g in zip(stand_ins, given, strict=True):
        stand_in.kind = g.kind
    rest = iter(stand_ins)
    others = swapped(args, LazyArray, rest)
    named = dict(
        zip(kwargs, swapped((*kwargs.values(),), LazyArray, rest), strict=True)
    )
    try:
        found = slow(*others, **named)
    except (Exception, ValuesAsked):  # the call itself says what is wrong
        return None
    if not isinstance(found, LazyArray):
        return None
    return recipe_of(found.term, found.kind, [s.term for s in stand_ins])


@of_numpys_kinds
class LazyArray(StandardArray, Tracer):
    """An array whose values are computed when they are asked for.

    Made by :func:`array`, and by operators, NumPy's functions and eqsat's ops on lazy
    arrays. Shape and dtype are known at once, and so are errors in them.

    ``x[key] = y`` and ``x += y`` give an array another value, which every name of it
    shows. What was computed of it before keeps the old one, and so does what NumPy
    would make a view: ``x[1:]``, ``x.T`` and ``x.reshape(n)`` are arrays of their own,
    and writing to them does not change ``x``. An array of NumPy that was made of it
    keeps its values too. Other ways to write are errors: ``out=x``, ``np.copyto``, and
    a function of :func:`jit` that writes to its arguments.

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

    __slots__ = ("first", "given", "kind", "made", "now", "place", "recipe", "value")

    __class__ = vars(object)["__class__"]  # not that of the arrays of a traced function
    was_written: ClassVar[bool] = False
    """Whether it was written to. Arrays that it was given to before that see ``first``,
    and ``now`` is what it is."""
    first: LazyArray
    now: LazyArray

    recipe: CallRecipe | None
    """How it is made of what was given; None where terms tell, and once it is known."""
    given: tuple[LazyArray, ...]
    kind: ArrayKind
    place: Place | None
    """Where it was recorded."""
    made: Recorded | None
    """Its term, once something asked for it."""
    value: Any
    """The array that it stands for, which nobody writes to; None while not known."""

    has_value = True
    layout = memory = known = used = None
    path = ()
    __hash__ = object.__hash__

    def __init__(self, term: Term, is_array: bool = False) -> None:
        self.made = cast(Recorded, term)
        self.value = self.made.value
        self.kind = array_kind(term.type, is_array, self.made.setting)
        self.recipe, self.given, self.place = None, (), None

    shape: Shape = _of_kind("shape", "Sizes of the axes.")
    ndim: int = _of_kind("ndim", "Number of axes.")
    size: int = _of_kind("size", "Number of elements.")
    dtype: Any = _of_kind("dtype", "Type of the elements.")
    itemsize: int = _of_kind("itemsize", "Bytes of one element.")
    nbytes: int = _of_kind("nbytes", "Bytes of all elements.")
    is_array = property(
        attrgetter("kind.is_array"),
        lambda self, yes: setattr(self, "kind", self.kind.as_array(yes)),
        doc="Whether NumPy has an array here, and not one of its numbers.",
    )

    @property
    def term(self) -> Recorded:  # type: ignore[override]
        """The term that it stands for, made when it is asked for."""
        return self.made or _term_of(self)

    def lift(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The lazy array ``op(*args, **attrs)``; traced where an argument is."""
        for a in args:
            if isinstance(a, Tracer) and not isinstance(a, LazyArray):
                return a.lift(op, args, attrs)
        return _record(_recorder(op), tuple(map(_operand, args)), attrs)

    def within(self, graph: TermGraph) -> Any:
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
                "the function writes to its arguments, which are lazy arrays\n"
                f"  write to a copy: x = x.copy(){at(caller_line())}"
            )
        given = map(_operand, arguments.arrays)
        inputs = [(g if isinstance(g, LazyArray) else array(g)).term for g in given]
        outputs = [LazyArray(t) for t in recorded_again(done, inputs)]
        if done.ends:
            evaluate_all(outputs)
            found = done.unflatten([a.value for a in outputs])
            return _made_lazy(found, setting_of(outputs))
        return done.unflatten(outputs)

    def made_at_end(self, step: EndStep) -> Any:
        """What NumPy makes of the values: only these tell its shape."""
        lazy = [a for a in operands(step) if isinstance(a, LazyArray)]
        evaluate_all(lazy)
        mlx = any(is_mlx(a.value) for a in lazy)
        known = step.of(lambda a: np.asarray(a) if isinstance(a, LazyArray) else a)
        found = known.function(*known.args, **known.kwargs)
        return _made_lazy(found, setting_of(lazy), to_mlx if mlx else np.asarray)

    def _value(self) -> Any:
        if value_of(self) is None:
            evaluate_all([self])
        return self.value

    def eval(self) -> Any:
        """The values, as a read-only array of NumPy; ``.copy()`` makes one to write to.

        All that was recorded is optimised as by :func:`jit` and run on the default
        backend, unless the values are known already; what was recorded before is then
        let go. The program is compiled once for all graphs of the same operations,
        shapes, dtypes and Python numbers. Where a value comes from an array of MLX,
        MLX computes it, and it is an array of MLX.

        Raises what the program raises, such as ``IndexError`` of ``np.take``.
        Warns :class:`RecompileWarning` when one graph comes with ever new Python
        numbers.

        >>> array([1.0, 2.0]).eval()
        array([1., 2.])
        """
        return _shown(self._value())

    def lower(self) -> Lowered:
        """The program that :meth:`eval` would run now; one also for graphs of more than
        840 operations, which are evaluated in parts."""
        with LOCK():
            outline = Outline([self.term])
            program = program_of(outline, self.kind.setting)
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
    __int__ = __trunc__ = _of_values(int)
    __complex__ = _of_values(complex)
    __index__ = _of_values(operator.index)
    __str__ = _of_values(str)
    __format__ = _of_values(format)

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def __repr__(self) -> str:
        return "eq." + repr(np.asarray(self)).replace("\n", "\n   ")

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    __reduce_ex__ = object.__reduce_ex__

    def __reduce__(self) -> Any:
        return array_with, (self._value(), self.kind.setting)

    # -- what differs from traced arrays -----------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in VALUES:
            return getattr(np.asarray(self), name)
        with _told():
            return super().__getattr__(name)

    def __getitem__(self, key: Any) -> LazyArray:
        value = self.value
        if type(value) is np.ndarray and _is_basic(key):
            with suppress(IndexError):  # which is raised below in other words
                view = np.asarray(value[key])
                return _leaf(view, (view.dtype, view.shape), self.kind.setting)
        found: LazyArray = _record(_getitem, (self, key), {})
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        with _told():
            now = self.now if self.was_written else self
            _become(self, _with_item(now, key, value))

    __copy__ = copy = _copied

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        """As of traced arrays; into arrays of NumPy, by values."""
        if method == "__call__" and not kwargs:
            return _record(_by_ufunc(ufunc), tuple(map(_given, inputs)), {})
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
        if _OURS.issuperset(types):
            return _record(_by_function(function), tuple(args), kwargs)
        with _told():
            return super().__array_function__(function, types, args, kwargs)


class _Written(LazyArray):
    """An array that was written to: another one in its place."""

    __slots__ = ()
    was_written = True
    given: Any = property(attrgetter("now.given"))
    place: Any = property(attrgetter("now.place"))
    recipe: Any = property(attrgetter("now.recipe"))
    value: Any = property(
        attrgetter("now.value"), lambda self, known: setattr(self.now, "value", known)
    )
    made: Any = property(attrgetter("now.made"))
    term: Any = property(attrgetter("now.term"))

    def _value(self) -> Any:
        return self.now._value()


_Written.__name__ = _Written.__qualname__ = LazyArray.__name__  # as others see it
_OURS = frozenset((LazyArray, _Written))


class _StandIn(LazyArray):
    """An array of a kind, of which nothing else is known."""

    __slots__ = ()

    def _value(self) -> Any:
        raise ValuesAsked


_new = LazyArray.__new__


def _leaf(value: Any, type_: Type, setting: Setting | None = None) -> LazyArray:
    """A lazy array whose values are known, and never change."""
    made = _new(LazyArray)
    made.value, made.kind = value, array_kind(type_, False, setting)
    made.recipe = made.made = made.place = None
    made.given = ()
    return made


def _twin(array: LazyArray) -> LazyArray:
    """An array of its own with the same values."""
    array = array.now if array.was_written else array
    made = _new(LazyArray)
    with LOCK():
        made.made = array.made if value_of(array) is not None else array.term
        made.value, made.recipe, made.given = array.value, array.recipe, array.given
    made.kind, made.place = array.kind, array.place
    return made


def _become(array: LazyArray, made: LazyArray) -> None:
    """Make ``made``, which nobody else has, what an array is now."""
    with LOCK():
        if not array.was_written:
            array.first = first = _new(LazyArray)
            for name in _STATE:
                setattr(first, name, getattr(array, name))
            array.__class__ = _Written
        array.now = made


_STATE = ("given", "kind", "made", "place", "recipe", "value")


def _now(values: Any) -> Any:
    """Values, nested as they may be, with what arrays that were written to are now; the
    same object where there are none."""
    if type(values) is _Written:
        return values.now
    if type(values) in (tuple, list):
        found = type(values)(map(_now, values))
        same = all(a is b for a, b in zip(found, values, strict=True))
        return values if same else found
    if type(values) is slice:
        ends = (values.start, values.stop, values.step)
        found = _now(ends)
        return values if found is ends else slice(*found)
    return values


def _term_of(array: LazyArray) -> Recorded:
    """The term of an array, made of those of what it was given."""
    with LOCK():
        stack = [array]
        while stack:
            last = stack[-1]
            given = [g.first if g.was_written else g for g in last.given]
            waiting = [g for g in given if g.made is None]
            if last.made is None and waiting:
                stack += waiting
                continue
            stack.pop()
            if last.made is not None:
                continue
            if last.recipe is None:
                kind = last.kind
                last.made = RECORDING.leaf(last.value, kind.type, kind.setting)
            else:
                terms = [cast(Recorded, g.made) for g in given]
                last.made = last.recipe.term(terms, line_of(last.place))
    return cast(Recorded, array.made)


# -- how calls are recorded step by step -----------------------------------------------


@cache
def _recorder(op: Op) -> Callable[..., Any]:
    """Records an op."""

    def record(*args: Any, **attrs: Any) -> Any:
        terms = [a.term if isinstance(a, LazyArray) else a for a in args]
        return LazyArray(apply(op, RECORDING, terms, attrs))

    return record


@cache
def _by_ufunc(ufunc: np.ufunc) -> Callable[..., Any]:
    """Records a ufunc of NumPy's."""

    def record(*inputs: Any) -> Any:
        one = next(i for i in inputs if isinstance(i, LazyArray))
        with _told():
            return Tracer.__array_ufunc__(one, ufunc, "__call__", *inputs)

    return record


@cache
def _by_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Records another function of NumPy's."""

    def record(*args: Any, **kwargs: Any) -> Any:
        one = _new(LazyArray)  # what it is, is not asked
        with _told():
            return Tracer.__array_function__(one, function, (LazyArray,), args, kwargs)

    return record


def _getitem(array: LazyArray, key: Any) -> Any:
    """Records an index."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(map(_is_mask, keys)) and not any(map(_is_traced, keys)):
        return _masked(array, keys)
    found: LazyArray = Tracer.__getitem__(array, key)
    value = value_of(array)
    if is_mlx(value) and _is_basic(key):  # a view costs less than a program for each
        return _leaf(value[key], found.kind.type, array.kind.setting)
    return found


def _masked(array: LazyArray, keys: Sequence[Any]) -> Any:
    """What masks choose: only values tell how much that is."""
    value, *known = _known((array, *keys))
    if not is_mlx(value_of(array)):
        with suppress(IndexError):
            made = np.asarray(value[tuple(known)])
            return _leaf(made, (made.dtype, made.shape), setting_of((array, *keys)))
    return Tracer.__getitem__(array, tuple(known))


def _with_item(array: LazyArray, key: Any, value: Any) -> LazyArray:
    """What an array is once ``x[key] = value`` is done."""
    keys = key if isinstance(key, tuple) else (key,)
    chosen = any(map(_is_mask, keys)) and np.ndim(value) > 0  # its size needs values
    known = [a for a in (array, *keys, value) if isinstance(a, LazyArray)]
    if is_mlx(value_of(array)) or not (
        chosen or all(type(value_of(a)) is np.ndarray for a in known)
    ):
        return cast(LazyArray, _record(replaced, (array, key, _operand(value)), {}))
    written = np.array(array)
    written[_known(key)] = _known(value)
    return _leaf(written, array.kind.type, setting_of(known))


def _in_place(name: str) -> Callable[..., Any]:
    """``x += y``: an array becomes x + y in its own dtype and shape; a number of NumPy
    stays, and the name is given to another one."""
    plain, symbol = getattr(Tracer, f"__{name}__"), _SYMBOLS[name]

    def slow(self: Any, other: Any) -> Any:
        made = plain(self, other)
        if made is NotImplemented or not self.is_array:
            return made
        how = f"x {symbol}= y"
        return fitted(self, made, self.shape, how, "same_kind")

    record = _binary(update_wrapper(slow, plain))

    def method(self: LazyArray, other: Any) -> Any:
        made = record(self.now if self.was_written else self, other)
        if isinstance(made, LazyArray) and self.kind.is_array:
            _become(self, made)
            return self
        return made

    return update_wrapper(method, plain)


def _of_now(name: str) -> Callable[..., Any]:
    """A method of what an array that was written to is now."""

    def method(self: Any, other: Any) -> Any:
        return getattr(self.now, name)(other)

    return update_wrapper(method, getattr(LazyArray, name))


_SYMBOLS = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//"},
    **{"mod": "%", "matmul": "@", "and": "&", "or": "|", "xor": "^"},
    **{"lshift": "<<", "rshift": ">>", "pow": "**"},
}
for _name in _SYMBOLS:
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(LazyArray, _form, _binary(getattr(Tracer, _form)))
        setattr(_Written, _form, _of_now(_form))
    setattr(LazyArray, f"__i{_name}__", _in_place(_name))
for _name in "lt le gt ge eq ne".split():
    _form = f"__{_name}__"
    setattr(LazyArray, _form, _binary(getattr(Tracer, _form)))
    setattr(_Written, _form, _of_now(_form))
for _name in (
    "__neg__ __pos__ __abs__ __invert__ all any argmax argmin argsort astype clip "
    "cumprod cumsum diagonal dot flatten max mean min prod ravel repeat reshape "
    "round squeeze std sum swapaxes take trace transpose var"
).split():
    setattr(LazyArray, _name, _recorded(getattr(Tracer, _name)))
for _name in ("T", "mT"):
    setattr(LazyArray, _name, property(_recorded(getattr(Tracer, _name).fget)))


def _made_lazy(
    value: Any, setting: Setting | None, make: Callable[[Any], Any] = lambda a: a
) -> Any:
    """``value``, nested as it may be, with lazy arrays of the arrays in it."""
    found, structure = pytree.flatten(value, is_array)
    return pytree.unflatten(
        structure, (array_with(make(f.value), setting) for f in found)
    )


def setting_of(arguments: Any) -> Setting | None:
    """What the lazy arrays among arguments, nested as they may be, say of how they are
    computed. Raises :class:`OptionError` where they say two things."""
    if isinstance(arguments, LazyArray):
        return arguments.kind.setting
    if isinstance(arguments, Mapping):
        arguments = [*arguments.values()]
    nested = arguments if isinstance(arguments, (list, tuple)) else ()
    return reduce(joined, map(setting_of, nested), None)


def _known(arguments: Any) -> Any:
    """Arguments, nested as they may be, with arrays of NumPy for the lazy ones."""
    if isinstance(arguments, LazyArray):
        return np.asarray(arguments)
    if isinstance(arguments, Mapping):
        return dict(zip(arguments, _known([*arguments.values()]), strict=True))
    if type(arguments) not in (list, tuple):
        return arguments
    evaluate_all([a for a in arguments if isinstance(a, LazyArray)])
    return type(arguments)(map(_known, arguments))


@contextmanager
def _told() -> Iterator[None]:
    """Errors of what cannot be recorded tell how to get values."""
    try:
        yield
    except TraceError as error:
        error.add_note("x.eval() gives the values of a lazy array to NumPy")
        raise


def _is_basic(key: Any) -> bool:
    """Whether ``x[key]`` is a view of ``x``."""
    if type(key) in _VIEWING:
        return True
    keys = key if type(key) is tuple else (key,)
    return all(type(k) in _VIEWING or isinstance(k, np.integer) for k in keys)


_VIEWING = frozenset((int, slice, type(None), type(...)))


def _is_traced(key: Any) -> bool:
    return isinstance(key, Tracer) and not key.has_value


def _is_mask(key: Any) -> bool:
    if isinstance(key, (LazyArray, np.ndarray)):
        return bool(key.dtype == np.dtype(bool))
    known = isinstance(key, (bool, np.bool_, list))
    return known and np.asarray(key).dtype == np.dtype(bool)


def array(
    data: Any,
    dtype: DTypeLike | None = None,
    *,
    backend: str | None = None,
    rules: RuleSet | None = None,
    options: Options | None = None,
) -> LazyArray:
    """A lazy array of ``data``: what :func:`numpy.array` takes, and arrays of other
    libraries that :func:`jit` takes, copied.

    An array of MLX stays one, and what is computed of it too. One that is being traced
    is given back as it is, in ``dtype``.

    ``backend``, ``rules`` and ``options`` are those of :func:`jit` for all that is
    computed of the array, and stronger than ``with eq.options(...)``. Arrays that say
    nothing go along with those that do. Arrays that say two things are an
    :class:`OptionError` when both come into one expression. A lazy array for ``data``
    is evaluated then, and its values are those of the new one.

    Raises :class:`DTypeError` for dtypes that are not supported, :class:`TraceError`
    for masked arrays, matrices and arrays of other libraries that :func:`jit` refuses,
    :class:`BackendError` for a backend that is not there, and :class:`OptionError` for
    what are no rules or options, and for a backend of an array that is being traced.

    >>> x = array([1.0, 2.0], dtype="float32")
    >>> y = x * x + 1
    >>> y.shape, y.dtype
    ((2,), dtype('float32'))
    >>> y.eval()
    array([2., 5.], dtype=float32)
    """
    how = setting(backend, rules, options)
    if how is not None and isinstance(data, Tracer):
        if not isinstance(data, LazyArray):
            raise OptionError(
                "eq.array: the backend, rules and options of an array that is being "
                f"traced are those of the function{at(caller_line())}"
            )
        data = data._value()
    return array_with(data, how, dtype)


def array_with(
    data: Any, setting: Setting | None, dtype: DTypeLike | None = None
) -> LazyArray:
    """As :func:`array`, which has the setting of other arrays."""
    if isinstance(data, Tracer):
        made = data if dtype is None else data.astype(dtype)
        own = made is data and isinstance(data, LazyArray)
        return cast(LazyArray, made.copy() if own else made)
    if is_mlx(data):
        type_ = dtype_of_array("eq.array: the data", data), tuple(data.shape)
        made = _leaf(_alias(data), type_, setting)
        return made if dtype is None else made.astype(dtype)
    kind = kind_of(data)
    if kind is not None and kind is not BUFFER:
        data = kind.view("eq.array: the data", data)
    if isinstance(data, np.ndarray):
        refuse_subclass(type(data), "eq.array: the data")
    value = np.array(data, dtype=dtype)
    type_ = dtype_of_array("eq.array: the data", value), value.shape
    return _leaf(value, type_, setting)


def evaluate(*values: Any) -> Any:
    """``values`` with the lazy arrays in them evaluated together, in one program for
    each backend that they were made for.

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
    evaluate_all([a for a in arrays if isinstance(a, LazyArray)])
    known = [a.eval() if isinstance(a, LazyArray) else a for a in arrays]
    result = pytree.unflatten(structure, known)
    return result[0] if len(values) == 1 else result


def _operand(value: Any) -> Any:
    """``value`` as an argument of an op, with arrays of NumPy as leaves."""
    if isinstance(value, np.ndarray):
        return LazyArray(constant(RECORDING, plain(value)))
    return value


def _given(value: Any) -> Any:
    """``value`` as an argument of a ufunc."""
    return _operand(value) if type(value) is np.ndarray else value


def _alias(value: Any) -> Any:
    """An array of MLX that shows what ``value`` holds now; MLX copies on writing."""
    return type(value)(value)


def _shown(value: Any) -> Any:
    return _alias(value) if is_mlx(value) else _read_only(value)


def _read_only(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = value.view()
    view.flags.writeable = False
    return view
