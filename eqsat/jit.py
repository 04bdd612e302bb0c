"""The pipeline, top to bottom: a Python function to a cheaper program that runs.

trace → optimise (regions, e-graph, rules, extraction) → program → backend → call

What was found is kept on disk (:mod:`eqsat.program_store`), for processes to come.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
import time
import types
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeAlias, overload

from eqsat.kept_programs import keep, most
from eqsat.kernels import (
    CostModel,
    Entry,
    Program,
    backend_named,
    default_backend,
    verify_program,
)
from eqsat.lowered import Lowered
from eqsat.measure import (
    FunctionCounts,
    ProgramDecision,
    Served,
    Statistics,
    Tuner,
    adapted,
    benchmark,
    counted,
    traced,
)
from eqsat.memory_limit import fitting
from eqsat.program_store import ProgramKey, place_of
from eqsat.recompiles import Recompiles
from eqsat.submission import WorkerTeam, submitted
from eqsat.support import (
    CONTEXTS,
    BackendError,
    BudgetWarning,
    Deadline,
    ForkLock,
    LastUse,
    OptionContext,
    OptionError,
    Options,
    TraceError,
    Watch,
    at,
    caller_line,
    collection_paused,
    current,
    progress,
    pytree,
    tell_phase,
    unwatched,
    verifying,
    warn,
)
from eqsat.terms import Term
from eqsat.trace import (
    Arguments,
    Spec,
    Trace,
    Tracer,
    flatten_arguments,
    trace,
    with_known_as_arrays,
)

if TYPE_CHECKING:  # plain `Jit` is a function of anything
    from concurrent.futures import Future

    from typing_extensions import ParamSpec, TypeVar

    from eqsat.explain import Explanation, Timing
    from eqsat.rulelang import Rule, RuleSet
    from eqsat.search import Optimised

    P = ParamSpec("P", default=...)
    R = TypeVar("R", covariant=True, default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")

_Found: TypeAlias = "tuple[list[Term], Optimised | None, ProgramKey | None]"
_MOST = 1024
"""Calls with read-only arrays that are counted."""
LEAST = 0.25
"""Part of the deadline that machine code has in any case: where tracing or a single
iteration of rules took it all, a program that NumPy runs would be slow for ever."""
SEARCH = 0.25
"""Part of the deadline that the search has at most: what it finds after that is seldom
worth machine code that is not written."""
_MOST_OTHERS = 64
"""Options and backends of one function that have programs of their own; the latest
ones."""
_MANY = 4
"""Programs for different read-only arrays in one place, before these count as arrays
that change."""


class Jit(pytree.Made, Generic[P, R]):
    """A function that is optimised for each signature it is called with. Made by
    :func:`jit`. Type checkers know its parameters and what it returns: those of the
    function."""

    __slots__ = {  # a slot: the call of an object finds the entry without Python
        "__call__": "Run the optimised program; the first call of a signature compiles "
        "it. While another function is traced, its operations become part of that one.",
        "__dict__": "What the function has been given.",
        "__weakref__": "",
    }
    __call__: Callable[P, R]

    def __init__(
        self,
        fn: Callable[..., Any],
        backend: str | None,
        rules: RuleSet | None,
        options: Options,
        constants: Collection[str | int],
        context: OptionContext | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = str(getattr(fn, "__name__", type(fn).__name__))
        chosen = backend or _chosen_backend(options, context)
        self.backend = backend_named(chosen) if chosen else default_backend()
        self.options = options.for_backend(self.backend.name, context)
        self._given = backend, options
        self._for_mlx = None if chosen else functools.partial(self._like, "mlx")
        self._mlx: tuple[Jit, type] | None = None
        self._others: dict[tuple[str | None, OptionContext | None], Jit] = {}
        """The same function for another backend, and under other options."""
        self._latest: tuple[OptionContext, Jit] | None = None
        """The last context of a call, and the function that serves it."""
        self.constants = frozenset(constants)
        self._rules = rules
        self._lowered: dict[Any, Lowered] = {}
        self._frozen: Counter[Any] = Counter()
        self._context = context
        is_logged = "compiles" in self.options.log
        self._recompiles = Recompiles(self.name, fn, is_logged)
        self.counts = FunctionCounts(self.name, self._recompiles.line)
        """What is counted while ``stats`` is on."""
        self._lock = ForkLock()
        self._making: dict[Any, ForkLock] = {}
        """Programs that are being made: who wants one of these waits for it."""
        self._entry, self._direct = _entrance(self)
        asking = functools.partial(_call_in_context, self)
        self.__call__ = asking
        if self._entry is not None and self._direct is self._entry.function:
            self.__call__ = self._entry.watching(CONTEXTS, asking)

    def _like(self, backend: str | None, context: OptionContext | None = None) -> Jit:
        """The same function for ``backend`` and under the options of ``context``, which
        are those of this one where there is none; made when it is first asked for."""
        key = backend, context or self._context
        with self._lock():
            found = self._others.get(key)
            if found is None:
                if len(self._others) >= _MOST_OTHERS:
                    del self._others[next(iter(self._others))]
                options, fixed = self._given[1], self.constants
                found = Jit(self.fn, backend, self._rules, options, fixed, key[1])
                found.counts = self.counts
                self._others[key] = found
        return found

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        if self._rules is not None:
            return self._rules
        from eqsat.rulelang import default_rules

        return default_rules()

    def _call(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call that no entry serves."""
        if self._mlx is not None:
            sibling, array = self._mlx
            if any(type(a) is array for a in args):
                return sibling._call(*args, **kwargs)
        call = flatten_arguments(self.fn, args, kwargs, self.constants)
        if self._for_mlx is not None and call.are_mlx:
            if self._mlx is None:
                self._meet_mlx(self._for_mlx())
            return self._for_mlx()._call(*args, **kwargs)
        for leaf in call.leaves:
            if isinstance(leaf.value, Tracer):
                known = with_known_as_arrays(call)
                if known is not None:
                    return self._call(*known[0], **known[1])
                return leaf.value.call(self.fn, call)
            if isinstance(leaf.value, Spec):
                raise TraceError(
                    f"argument {leaf.path} is a Spec, which has no data; use lower() "
                    f"or explain(){at(caller_line())}"
                )
        with unwatched():
            low, call = self._find(call, runs=True)
            low.trace.check(call)
            self._recompiles.log_layouts(call, low.executable)
            if self._entry is not None and not low.trace.strides:
                entry = self._entry
                entry.learn(call, low.trace, low.executable, low.used)
                dropped = self._lowered.get(call.key) is not low
                if dropped or entry is not self._entry:  # it happened meanwhile
                    entry.forget(call.key)
            try:
                results = low.executable(*call.arrays)
            except IndexError as error:
                return low.trace.as_written(self.fn, call, error)
            return low.trace.finish(call, results)

    def _meet_mlx(self, sibling: Jit) -> None:
        """Have the entry of ``sibling`` tried before Python."""
        self._mlx = sibling, sys.modules["mlx.core"].array
        entry = sibling._entry
        if entry is not None:
            entry.ask(self._call)
            if self._entry is not None:
                self._entry.ask(entry.function)
            else:
                self._direct = entry.function

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jit[P, R]: ...
    @overload
    def __get__(
        self: Jit[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def lower(self, /, *args: Any, **kwargs: Any) -> Lowered:
        """The optimised program for these arguments; a :class:`Spec` can stand for an
        array."""
        me = in_force(self)
        call = flatten_arguments(self.fn, args, kwargs, self.constants)
        if me._for_mlx is not None and call.are_mlx:
            return me._for_mlx()._find(call)[0]
        return me._find(call)[0]

    def explain(self, /, *args: Any, **kwargs: Any) -> Explanation:
        """What optimising for these arguments did.

        ``measure=True``, where the function has no argument of that name, times it
        too, as :meth:`benchmark` does: the table then has the clock beside each
        estimate.
        """
        if kwargs.get("measure") in (True, False) and not _takes(self.fn, "measure"):
            is_timed = kwargs.pop("measure")
        else:
            is_timed = False
        found = self.lower(*args, **kwargs).explain()
        if is_timed:
            found = replace(found, timing=self.benchmark(*args, **kwargs))
        return found

    def benchmark(self, /, *args: Any, **kwargs: Any) -> Timing:
        """The function as NumPy runs it and as eqsat does, timed in turn for about a
        second, each with copies of the arguments; then each kernel by itself, for a
        second, too. Clocks stand beside estimates (s).

        Raises :class:`EqsatError` where an argument is a :class:`Spec`.
        """
        low = self.lower(*args, **kwargs)
        call = flatten_arguments(self.fn, args, kwargs, self.constants)
        return benchmark(self.fn, self, low, call, args, kwargs)

    def stats(self) -> Statistics:
        """What was counted of its calls while ``stats`` was on, as :func:`eqsat.stats`
        does for all functions."""
        return Statistics((self.counts,))

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """The call, begun beside the caller: a :class:`concurrent.futures.Future` of
        its result or error.

        Submitted calls overlap, on as many threads as ``Options(threads)`` allows in
        all: one that is alone has the whole team, several have a thread each, others
        wait for their turn. Those of backends other than ``native`` run one after
        another. Options and ``np.errstate`` are those around ``submit``. The end of the
        interpreter waits for all calls. In the child of a fork, futures of its parent
        raise :class:`EqsatError`. Arrays of MLX are refused: what computes them lazily
        belongs to one thread.

        Until the future is done, arguments must not be written to; those that the
        function itself writes to must not be read either.
        """
        if isinstance(sys.getprofile(), Watch):
            raise TraceError(
                f"{self.name}.submit(...) inside of a traced function; call "
                f"{self.name}(...), which becomes part of it{at(caller_line())}"
            )
        work = functools.partial(_submitted_call, self)
        return submitted(_team(in_force(self)), work, args, kwargs)

    def _find(self, call: Arguments, runs: bool = False) -> tuple[Lowered, Arguments]:
        """The program for a call, and the call as the program takes it. ``runs``:
        whether it is compiled by the backend, too."""
        low = self._current(call)
        if low is not None:
            return low, call
        with self._lock():
            call = _told_apart(self, call)
            making = self._making.setdefault(call.key, ForkLock())
        with making():
            try:
                low = self._current(call) or self._compiled(call, runs)
            finally:
                with self._lock():
                    self._making.pop(call.key, None)
        return low, call

    def _current(self, call: Arguments) -> Lowered | None:
        """The program for a call, unless what it has read has changed."""
        low = self._lowered.get(call.key)
        if low is None or not low.trace.fits(call) or not low.trace.is_current():
            return None
        low.used.now()
        return low

    def _compiled(self, call: Arguments, runs: bool) -> Lowered:
        """A new program for a call."""
        start = time.perf_counter()
        most()  # an error before the work
        with self._lock():
            old = self._lowered.get(call.key)
            cause = self._recompiles.note(call, None if old is None else old.trace)
        deadline_s = self.options.deadline_s
        deadline = Deadline(deadline_s)
        cut_short = ""
        with progress(self.name, deadline_s, self.options.progress) as show:
            with collection_paused():
                low = self._lower(call, deadline, show)
            self._keep(call.key, low)
            if runs:
                show("machine code")
                cut_short = getattr(low.executable, "cut_short", "")
        if cut_short:
            warn(
                f"eqsat: {self.name!r} runs slower than it could: {cut_short} "
                f"(deadline_s={deadline_s:g} is for all of compiling)",
                BudgetWarning,
            )
        spent = time.perf_counter() - start
        self._recompiles.log(cause, spent)
        if self.options.stats:
            self.counts.compiled(low, spent)
        return low

    def _keep(self, key: Any, low: Lowered) -> None:
        """Keep a program, and drop what was called longest ago of all functions where
        there are too many."""
        with self._lock():
            if len(self._frozen) > _MOST:
                self._frozen.clear()
            self._lowered[key] = low
        keep(self, low.used)

    def drop(self, used: LastUse) -> None:
        """Let a program go, as :class:`eqsat.kept_programs.Keeper` says."""
        with self._lock():
            for key in [k for k, low in self._lowered.items() if low.used is used]:
                del self._lowered[key]
                if self._entry is not None:
                    self._entry.forget(key)

    def __repr__(self) -> str:
        return f"<eqsat.jit of {self.name}>"

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        qualified = str(getattr(self, "__qualname__", self.name))
        for name in qualified.split("."):
            found = getattr(found, name, None)
        return qualified if found is self else (Jit, _made_of(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit:
        fn, *rest = _made_of(self)
        return Jit(copy.deepcopy(fn, memo), *rest)

    def _lower(
        self, call: Arguments, deadline: Deadline, show: Callable[[str], None]
    ) -> Lowered:
        start = time.perf_counter()
        traced = trace(self.fn, call, watching=True)
        phases = {"trace": tell_phase("trace", start)}
        model = self.backend.model

        def found(model: CostModel) -> _Found:
            return _terms(self, traced, model, phases, deadline, show)

        terms, done, place = found(model)
        start = time.perf_counter()
        program = Program.of(terms, traced.inputs, traced.names)
        if verifying():
            verify_program(program, "extract" if done is not None else "cache")
        phases["program"] = tell_phase("program", start)
        if done is not None:
            done.phases_s = phases
        low = Lowered(
            traced,
            tuple(terms),
            program,
            self.backend,
            self._rules,
            self.options,
            model,
            phases,
            done,
            max(deadline.left, LEAST * self.options.deadline_s),
            name=self.name,
            place=place,
        )
        if not self.options.memory_limit:
            return low
        return fitting(low, self.name, deadline, lambda model: found(model)[0])


def _told_apart(f: Jit, call: Arguments) -> Arguments:
    """The call, with its read-only arrays as arrays that change where there were
    many of them."""
    plain = call.varying.key
    if plain == call.key:
        return call
    if f._frozen[plain] >= _MANY:
        return call.varying
    is_known = call.key in f._lowered or call.key in f._making
    f._frozen[plain] += not is_known
    return call


def _takes(fn: Callable[..., Any], name: str) -> bool:
    """Whether a function may be given an argument of that name."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def _made_of(f: Jit) -> tuple[Any, ...]:
    backend, options = f._given
    return f.fn, backend, f._rules, options, tuple(f.constants)


def _terms(
    f: Jit,
    traced: Trace,
    model: CostModel,
    phases: dict[str, float],
    deadline: Deadline,
    show: Callable[[str], None],
) -> _Found:
    """The cheapest terms by ``model``, how they were found, None where they were on
    disk, and where they are kept."""
    start = time.perf_counter()
    place = place_of(traced.outputs, f._rules, f.options, model)
    terms = None if place is None else place.recall(traced.inputs)
    phases["cache"] = phases.get("cache", 0.0) + tell_phase("cache", start)
    if terms is not None:
        return terms, None, place
    show("searching")
    done = _search(f, traced, model, phases, deadline.left)
    # What was found without a broken rule is not kept: each process names the rule.
    if place is not None and not done.cut_short and not done.left_out:
        place.keep(done.roots)
    return done.roots, done, place


def _search(
    f: Jit,
    traced: Trace,
    model: CostModel,
    phases: dict[str, float],
    left_s: float,
) -> Optimised:
    """The search, which leaves half of ``left_s`` (s) or more for machine code."""
    from eqsat.search import optimise  # 80 ms that programs from disk do not need

    left_s = min(left_s / 2, SEARCH * f.options.deadline_s)
    start = time.perf_counter()
    rules = f.rules
    phases["load rules"] = tell_phase("load rules", start)
    done = optimise(traced.outputs, rules, f.options, model, seconds=left_s)
    phases.update(done.phases_s)
    if done.cut_short:
        warn(
            f"eqsat: the search for {f.name!r} was cut short: {done.cut_short}; "
            f"the program is correct, a cheaper one may exist",
            BudgetWarning,
        )
    return done


def _team(f: Jit) -> WorkerTeam:
    """The threads that programs of ``f`` run on."""
    count = getattr(f.backend, "team", None)
    if count is None:
        return WorkerTeam(1, None)
    return WorkerTeam(count(f.options), getattr(f.backend, "run_alone", None))


def _submitted_call(f: Jit, /, *args: Any, **kwargs: Any) -> Any:
    """A call on a thread of its own. Raises :class:`BackendError` for arrays of MLX."""
    if "mlx.core" in sys.modules:
        if flatten_arguments(f.fn, args, kwargs, f.constants).are_mlx:
            raise BackendError(
                f"{f.name}.submit(...) with arrays of MLX, which are computed lazily "
                f"on the thread that made them; call {f.name}(...) and mx.async_eval"
            )
    return f(*args, **kwargs)


def _adopt(f: Jit, old: Lowered, new: Lowered) -> None:
    """Serve calls with ``new`` that ``old`` served until now."""
    with f._lock():
        keys = [k for k, low in f._lowered.items() if low is old]
    for key in keys:
        f._keep(key, new)
        if f._entry is not None:
            f._entry.forget(key)


def tune(
    f: Jit,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    budget_s: float,
    tell: Callable[[str], None] = lambda text: None,
    resume: bool = True,
) -> ProgramDecision:
    """Try other programs for a call for about so many seconds, as ``eqsat tune`` does,
    and have the fastest serve such calls. ``resume``: without what earlier runs tried.
    """
    me = in_force(f)
    call = flatten_arguments(me.fn, args, kwargs, me.constants)
    low, call = me._find(call, runs=True)
    tuner = Tuner(low, call.arrays, me.name, resume)
    tuner.run(budget_s, tell, all_=True)
    if tuner.best is not low:
        _adopt(me, low, tuner.best)
    me.counts.decided(tuner.decision)
    return tuner.decision


def _served(f: Jit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Served | None:
    """The program that served a call; None where none did."""
    call = flatten_arguments(f.fn, args, kwargs, f.constants)
    if f._for_mlx is not None and call.are_mlx:
        f = f._for_mlx()
    low = f._lowered.get(call.key) or f._lowered.get(call.varying.key)
    return None if low is None else Served(low, call.arrays, call.are_mlx)


# -- with eq.options(...) --------------------------------------------------------------


def in_force(f: Jit) -> Jit:
    """``f`` under the options that are in force here; another one where they differ."""
    context = current()
    if context is None:
        return f
    latest = f._latest
    if latest is None or latest[0] is not context:
        same = context == f._context or not f._given[1].differ(context)
        latest = context, f if same else f._like(f._given[0], context)
        f._latest = latest
    return latest[1]


def _call_in_context(f: Jit, /, *args: Any, **kwargs: Any) -> Any:
    """A call while there is a ``with eq.options(...)`` somewhere."""
    return in_force(f)._direct(*args, **kwargs)


def _entrance(f: Jit) -> tuple[Entry | None, Callable[..., Any]]:
    """A new entry, and what to call: the entry, or Python where there is none."""
    make = getattr(f.backend, "entry", None)
    entry: Entry | None = make(f._call) if make is not None else None
    function = f._call if entry is None else entry.function
    if f.options.stats:
        function = counted(f, function, functools.partial(_served, f))
    if f.options.trace is not None:
        asked = functools.partial(_served, f)
        function = traced(os.fspath(f.options.trace), f.name, function, asked)
    if f.options.adaptive:
        asked = functools.partial(_served, f)
        function = adapted(f, function, asked, functools.partial(_adopt, f))
    return entry, function


def _chosen_backend(options: Options, context: OptionContext | None) -> str | None:
    """The backend that options name. Raises :class:`OptionError` where there is none of
    that name."""
    name, said = options.backend, f"backend={options.backend!r}"
    if context is not None and "backend" not in options.given:
        name = context.given.get("backend", name)
        said = f"backend={name!r}"
    elif "backend" not in options.given:
        said = f"EQSAT_BACKEND={name!r}"
    try:
        if name is not None:
            backend_named(name)
    except BackendError as error:
        raise OptionError(f"{said}: {error}") from error
    return name


@overload
def jit(
    fn: Callable[P, R],
    backend: str | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    options: Options | None = None,
    constants: Collection[str | int] = (),
) -> Jit[P, R]: ...
@overload
def jit(
    fn: None = None,
    backend: str | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    options: Options | None = None,
    constants: Collection[str | int] = (),
) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    backend: str | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    options: Options | None = None,
    constants: Collection[str | int] = (),
) -> Any:
    """A function that computes what ``fn`` does with the cheapest program found.

    ``fn`` is plain NumPy over arrays, nested in dicts, lists, tuples and dataclasses as
    one likes; numbers, strings and None are part of the signature, and so is what other
    objects hold in attributes and slots. A ``np.memmap`` is read as an array; other
    subclasses of arrays are refused. Arrays of other libraries are read where they lie,
    as ``np.asarray`` shows them; those of PyTorch, JAX and MLX make the results arrays
    of their kind (the documentation has the table). ``backend``: a
    backend's name; by default ``mlx`` for calls with an ``mx.array``, else ``native``,
    or ``numpy`` where that does not load.
    ``rules``: a :class:`RuleSet` (default :func:`default_rules`). ``options``: what
    they do not give, ``with eq.options(...)`` around a call does, else the environment
    as it is now. ``constants``: names
    or positions of parameters that never change; read-only arrays and arrays that the
    function closes over are constants too. Constants are folded once.

    Raises :class:`TraceError`, :class:`ShapeError` and :class:`DTypeError` with the
    user's line; warns :class:`BudgetWarning` when a budget of ``options`` runs out and
    :class:`RecompileWarning` of an argument that has ever new values, shapes or dtypes.

    Usable as ``@eq.jit`` and as ``@eq.jit(options=…)``.
    """
    if fn is None:
        return functools.partial(
            jit, backend=backend, rules=rules, options=options, constants=constants
        )
    if not callable(fn):
        raise OptionError(f"jit: expected a function, got {type(fn).__name__!r}")
    if isinstance(constants, (str, int)):
        raise OptionError(
            f"jit: constants={constants!r}, expected a collection of names or positions"
        )
    if not isinstance(options, Options | None):
        raise OptionError(f"jit: options={options!r}, expected eqsat.Options(...)")
    now = Options(**({} if options is None else options.given))
    return Jit(fn, backend, _as_set(rules), now, constants)


def _as_set(rules: RuleSet | Iterable[Rule] | None) -> RuleSet | None:
    if rules is None:
        return None
    from eqsat.rulelang import Rule, RuleSet

    if isinstance(rules, RuleSet):
        return rules
    listed = tuple(rules) if isinstance(rules, Iterable) else (rules,)
    if not all(isinstance(r, Rule) for r in listed):
        raise OptionError(
            f"jit: rules={rules!r:.60}, expected rules; eqsat.load_rules reads a file"
        )
    return RuleSet(listed)
