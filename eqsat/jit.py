"""The pipeline, top to bottom: a Python function to a cheaper program that runs.

trace → optimise (regions, e-graph, rules, extraction) → program → backend → call

What was found is kept on disk (:mod:`eqsat.store`), for processes to come.
"""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import os
import sys
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from eqsat.cost import CostModel
from eqsat.errors import (
    BackendError,
    BudgetWarning,
    OptionError,
    TraceError,
    at,
    caller_line,
)
from eqsat.explain import Explanation, explain
from eqsat.op import Op
from eqsat.optimise import Optimised, optimise
from eqsat.options import Options
from eqsat.program import Program
from eqsat.rule import Rule
from eqsat.rulefile import RuleSet
from eqsat.stock import default_rules
from eqsat.store import place_of
from eqsat.term import Term
from eqsat.trace import Arguments, Spec, Trace, Tracer, flatten_arguments, trace

_PATIENCE_S = 60.0
"""Seconds for a search that found its program in time when it was first made."""
_MANY = 4
"""Programs for different read-only arrays in one place, before these count as arrays
that change."""


class Executable(Protocol):
    """A program that a backend has lowered."""

    @property
    def source(self) -> str: ...

    def __call__(self, *arrays: Any) -> list[Any]: ...


class Entry(Protocol):
    """A callable that serves calls it has learnt, and asks another for the rest: the
    one it was made with, or that of the last ``ask``."""

    @property
    def function(self) -> Callable[..., Any]: ...

    def learn(self, call: Arguments, trace: Trace, program: Any) -> None: ...

    def ask(self, fallback: Callable[..., Any]) -> None: ...


class Backend(Protocol):
    """What the entry-point group ``eqsat.backends`` names.

    One that can check arguments faster than Python has ``entry(slow) -> Entry | None``
    too: ``slow`` is called for what the entry has not learnt. One that keeps memory
    between calls has ``release_memory()``.
    """

    @property
    def name(self) -> str: ...

    def lower(self, program: Program, options: Options) -> Executable: ...

    @property
    def model(self) -> CostModel: ...

    def realises(self, op: Op) -> bool: ...


@functools.cache
def backend_named(name: str) -> Backend:
    """The backend of that name. Raises :class:`BackendError` that lists those
    installed."""
    try:
        if name in _OWN:  # reading the entry points takes 30 ms
            backend: Backend = importlib.import_module(f"eqsat.backends.{name}").backend
        else:
            backend = _entry_point(name).load()
    except ImportError as error:
        folder = os.path.dirname(os.path.abspath(__file__))
        raise BackendError(
            f"backend {name!r} does not load: {error}\n"
            f"  eqsat runs from {folder}; if that is a source tree, install it with "
            "pip install -e . or work in another folder"
        ) from error
    _loaded.append(backend)
    return backend


_OWN = ("native", "numpy")


def _entry_point(name: str) -> Any:
    from importlib.metadata import entry_points

    found = {e.name: e for e in entry_points(group="eqsat.backends")}
    if name not in found:
        raise BackendError(
            f"no backend {name!r}; installed: {', '.join(sorted(found)) or 'none'}"
        )
    return found[name]


_loaded: list[Backend] = []


def release_memory() -> None:
    """Give memory back that backends keep for the next call; arrays stay as they
    are."""
    for backend in _loaded:
        release = getattr(backend, "release_memory", None)
        if release is not None:
            release()


def default_backend() -> Backend:
    """``native``, or ``numpy`` where machine code cannot be made."""
    try:
        return backend_named("native")
    except BackendError:
        return backend_named("numpy")


@functools.cache
def _printer(language: str) -> Callable[[Program], str] | None:
    """What writes programs in a language that is no backend's, by the entry-point
    group ``eqsat.languages``."""
    from importlib.metadata import entry_points

    found = list(entry_points(group="eqsat.languages", name=language))
    return found[0].load() if found else None


@dataclass(frozen=True)
class Lowered:
    """One function for one signature, from its terms to what runs."""

    trace: Trace
    term: tuple[Term, ...]
    """The chosen terms, one for each result."""
    program: Program
    backend: Backend
    rule_set: RuleSet | None
    """The rules; None for the stock rules, which may not be loaded yet."""
    options: Options
    model: CostModel
    seconds: Mapping[str, float]
    """Seconds of each phase."""
    search: Optimised | None
    """How the terms were found; None when an earlier process found them."""

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        return default_rules() if self.rule_set is None else self.rule_set

    @functools.cached_property
    def optimised(self) -> Optimised:
        """How the terms were found. Searches again when an earlier process found
        them."""
        return self._found_again() if self.search is None else self.search

    @functools.cached_property
    def executable(self) -> Executable:
        """The program, compiled by its backend."""
        return self.backend.lower(self.program, self.options)

    def compile(self) -> Executable:
        """The program as a callable over flat arrays."""
        return self.executable

    def source(self, language: str | None = None) -> str:
        """The source of the program in ``language``: ``numpy``, ``llvm``, another
        backend's name, or ``metal`` or ``cuda`` for its kernels on a GPU, which need
        not be there.

        Raises :class:`BackendError` when no backend of that name is installed.
        """
        name = self.backend.name if language is None else language
        name = "native" if name == "llvm" else name
        if name == self.backend.name:
            return self.executable.source
        printer = _printer(name)
        if printer is not None:
            return printer(self.program)
        return backend_named(name).lower(self.program, self.options).source

    def explain(self) -> Explanation:
        """What was done, and what it is estimated to save.

        The search is repeated with the provenance of every node kept, which compiling
        leaves out: it takes half as long again.
        """
        outputs, rules = self.trace.outputs, self.rules
        written = Program.of(outputs, self.trace.inputs)
        return explain(
            self.derived,
            self.program,
            written,
            rules,
            self.model,
            self.options,
            lambda options: optimise(outputs, rules, options, self.model),
        )

    @functools.cached_property
    def derived(self) -> Optimised:
        """The optimisation with the rules that built each node."""
        again = self._found_again(provenance=True)
        again.phases_s = dict(self.seconds)
        return again

    def _found_again(self, provenance: bool = False) -> Optimised:
        """The search for these terms; what the program is as it runs, where another
        search finds others: a deadline fell elsewhere."""
        options = self.options
        if self.search is None:  # it had time enough
            deadline_s = max(_PATIENCE_S, options.deadline_s)
            options = replace(options, deadline_s=deadline_s)
        written = self.trace.outputs
        again = optimise(written, self.rules, options, self.model, provenance)
        if tuple(again.roots) == self.term:
            if self.search is not None:
                again.cut_short = self.search.cut_short
            return again
        if self.search is not None:
            return self.search
        options = replace(options, deadline_s=0)
        as_it_is = optimise(self.term, RuleSet(), options, self.model)
        as_it_is.cut_short = ""
        return as_it_is


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: compiling makes many objects that live on,
    and one full collection in the middle costs 15 ms, a tenth of compiling a
    transformer block."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class Jit:
    """A function that is optimised for each signature it is called with. Made by
    :func:`jit`."""

    __slots__ = {  # a slot: the call of an object finds the entry without Python
        "__call__": "Run the optimised program; the first call of a signature compiles "
        "it. While another function is traced, its operations become part of that one.",
        "__dict__": "What the function has been given.",
        "__weakref__": "",
    }
    __call__: Callable[..., Any]

    def __init__(
        self,
        fn: Callable[..., Any],
        backend: str | None,
        rules: RuleSet | None,
        options: Options,
        constants: Collection[str | int],
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = str(getattr(fn, "__name__", type(fn).__name__))
        self.backend = backend_named(backend) if backend else default_backend()
        self.options = options.for_backend(self.backend.name)
        self._given = backend, options
        self._for_mlx = self._sibling(options) if backend is None else None
        self._mlx: tuple[Jit, type] | None = None
        self.constants = frozenset(constants)
        self._rules = rules
        self._lowered: dict[Any, Lowered] = {}
        self._frozen: Counter[Any] = Counter()
        self._lock = threading.RLock()
        make = getattr(self.backend, "entry", None)
        self._entry: Entry | None = make(self._call) if make is not None else None
        self.__call__ = self._call if self._entry is None else self._entry.function

    def _sibling(self, options: Options) -> Callable[[], Jit]:
        """The same function for arrays of MLX, made when some come."""
        return functools.cache(
            lambda: Jit(self.fn, "mlx", self._rules, options, self.constants)
        )

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        return default_rules() if self._rules is None else self._rules

    def _call(self, *args: Any, **kwargs: Any) -> Any:
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
                return self.fn(*args, **kwargs)
            if isinstance(leaf.value, Spec):
                raise TraceError(
                    f"argument {leaf.path} is a Spec, which has no data; use lower() "
                    f"or explain(){at(caller_line())}"
                )
        low, call = self._find(call)
        if self._entry is not None:
            self._entry.learn(call, low.trace, low.executable)
        return low.trace.unflatten(low.executable(*call.arrays))

    def _meet_mlx(self, sibling: Jit) -> None:
        """Have the entry of ``sibling`` tried before Python."""
        self._mlx = sibling, sys.modules["mlx.core"].array
        entry = sibling._entry
        if entry is not None:
            entry.ask(self._call)
            if self._entry is None:
                self.__call__ = entry.function
            else:
                self._entry.ask(entry.function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The optimised program for these arguments; a :class:`Spec` can stand for an
        array."""
        call = flatten_arguments(self.fn, args, kwargs, self.constants)
        if self._for_mlx is not None and call.are_mlx:
            return self._for_mlx()._find(call)[0]
        return self._find(call)[0]

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What optimising for these arguments did."""
        return self.lower(*args, **kwargs).explain()

    def _find(self, call: Arguments) -> tuple[Lowered, Arguments]:
        """The program for a call, and the call as the program takes it."""
        low = self._lowered.get(call.key)
        if low is not None and low.trace.is_current():
            return low, call
        with self._lock:
            plain = call.varying.key
            if plain != call.key:
                if self._frozen[plain] >= _MANY:
                    call = call.varying
                else:
                    self._frozen[plain] += call.key not in self._lowered
            low = self._lowered.get(call.key)
            if low is None or not low.trace.is_current():
                with _collection_paused():
                    low = self._lowered[call.key] = self._lower(call)
        return low, call

    def __repr__(self) -> str:
        return f"<eqsat.jit of {self.name}>"

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        qualified = str(getattr(self, "__qualname__", self.name))
        for name in qualified.split("."):
            found = getattr(found, name, None)
        return qualified if found is self else (Jit, self._made_of())

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit:
        fn, *rest = self._made_of()
        return Jit(copy.deepcopy(fn, memo), *rest)

    def _made_of(self) -> tuple[Any, ...]:
        backend, options = self._given
        return self.fn, backend, self._rules, options, tuple(self.constants)

    def _lower(self, call: Arguments) -> Lowered:
        start = time.perf_counter()
        traced = trace(self.fn, call)
        phases = {"trace": time.perf_counter() - start}
        model = self.backend.model
        start = time.perf_counter()
        place = place_of(traced.outputs, self._rules, self.options, model)
        terms = None if place is None else place.recall(traced.inputs)
        phases["cache"] = time.perf_counter() - start
        done = None
        if terms is None:
            done = self._search(traced, model, phases)
            terms = done.roots
            if place is not None and not done.cut_short:
                place.keep(terms)
        start = time.perf_counter()
        program = Program.of(terms, traced.inputs, traced.names)
        phases["program"] = time.perf_counter() - start
        if done is not None:
            done.phases_s = phases
        return Lowered(
            traced,
            tuple(terms),
            program,
            self.backend,
            self._rules,
            self.options,
            model,
            phases,
            done,
        )

    def _search(
        self, traced: Trace, model: CostModel, phases: dict[str, float]
    ) -> Optimised:
        start = time.perf_counter()
        rules = self.rules
        phases["load rules"] = time.perf_counter() - start
        done = optimise(traced.outputs, rules, self.options, model)
        phases.update(done.phases_s)
        if done.cut_short:
            warnings.warn(
                f"eqsat: the search for {self.name!r} was cut short: {done.cut_short}; "
                f"the program is correct, a cheaper one may exist",
                BudgetWarning,
                stacklevel=5,
            )
        return done


def jit(
    fn: Callable[..., Any] | None = None,
    backend: str | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    options: Options | None = None,
    constants: Collection[str | int] = (),
) -> Any:
    """A function that computes what ``fn`` does with the cheapest program found.

    ``fn`` is plain NumPy over arrays, nested in dicts, lists, tuples and dataclasses as
    one likes; numbers, strings and None are part of the signature. ``backend``: a
    backend's name; by default ``mlx`` for calls with an ``mx.array``, else ``native``,
    or ``numpy`` where that does not load.
    ``rules``: a :class:`RuleSet` (default :func:`default_rules`). ``constants``: names
    or positions of parameters that never change; read-only arrays and arrays that the
    function closes over are constants too. Constants are folded once.

    Raises :class:`TraceError`, :class:`ShapeError` and :class:`DTypeError` with the
    user's line; warns :class:`BudgetWarning` when a budget of ``options`` runs out.

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
    return Jit(fn, backend, _as_set(rules), options or Options(), constants)


def _as_set(rules: RuleSet | Iterable[Rule] | None) -> RuleSet | None:
    if rules is None or isinstance(rules, RuleSet):
        return rules
    listed = tuple(rules) if isinstance(rules, Iterable) else (rules,)
    if not all(isinstance(r, Rule) for r in listed):
        raise OptionError(
            f"jit: rules={rules!r:.60}, expected rules; eqsat.load_rules reads a file"
        )
    return RuleSet(listed)
