"""Calls of models from disk: a model that was called before is neither opened nor
traced in a new process, and its weights are mapped.

What is kept follows from the bytes of the model's file, from options, and from shapes.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.kernels import backend_named
from eqsat.support import (
    BackendError,
    OptionContext,
    Options,
    current,
    disk_cache,
    verifying,
)

if TYPE_CHECKING:
    from eqsat.lowered import Lowered
    from eqsat.onnx.plan import Plan
    from eqsat.onnx.reading import OpenedModel

Shapes = tuple[tuple[int, ...], ...]
_BACKEND = "native"
_MOST = 16
"""Shapes of inputs for which a process keeps a program."""


@dataclass(frozen=True)
class KeptModel:
    """What a call must know of a model."""

    inputs: Sequence[tuple[str, str, Sequence[int | str | None] | None]]
    """Names, dtypes and sizes, as :meth:`.OnnxModel.arrays` has them."""
    outputs: Sequence[str]
    reads: Sequence[int]
    """The inputs that the program takes, by number."""
    gives: Sequence[int]
    """The results of the program that are outputs, by number."""


class KeptCalls:
    """Calls of one model under the same options."""

    def __init__(self, backend: Any, given: Options, said: Sequence[bytes]) -> None:
        self._backend, self._given = backend, given
        self._options = _in_force(given)
        self._said = [*said, self._options.text.encode()]
        self._name = disk_cache.key("model", *self._said)
        data = disk_cache.get(self._name, asked=True)
        self.model = None if data is None else KeptModel(*marshal.loads(data))
        """None where no call was kept."""
        inputs = () if self.model is None else self.model.inputs
        self._names = [n for n, *_ in inputs]
        self._dtypes = [np.dtype(d) for _, d, _ in inputs]
        self._programs: dict[Shapes, Any] = {}
        """Those on disk; None where there was none."""
        self._latest: tuple[OptionContext, bool] | None = None
        """The last context of a call, and whether these serve there."""

    @classmethod
    def of(cls, content: bytes, given: Mapping[str, Any]) -> KeptCalls | None:
        """Those of the model with that digest, where :func:`eqsat.jit` is ``given``
        these arguments; None where calls are not kept: without a cache, with rules of
        one's own, where something watches calls, and for other backends."""
        options = given.get("options")
        named = given.get("backend", _BACKEND) in (None, _BACKEND)
        if not named or given.keys() - {"options", "backend"} or verifying():
            return None
        if not isinstance(options, Options | None):
            return None
        of_all = Options(**({} if options is None else options.given))
        mine = _in_force(of_all)
        is_watched = mine.log or mine.stats or mine.adaptive or mine.trace is not None
        if not mine.cache or is_watched or mine.memory_limit:
            return None
        if mine.backend not in (None, _BACKEND):
            return None
        try:
            backend = backend_named(_BACKEND)
        except BackendError:
            return None
        version = _version_of_onnx()
        if version is None:
            return None
        return cls(backend, of_all, [content, version])

    def _serves_here(self) -> bool:
        """Whether the options in force are those of what is kept."""
        context = current()
        if context is None:
            return True
        latest = self._latest
        if latest is None or latest[0] != context:
            latest = context, _in_force(self._given, context) == self._options
            self._latest = latest
        return latest[1]

    def outputs(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Any] | None:
        """The outputs of a call; None where it is not kept, or has no result."""
        model = self.model
        if model is None or not self._serves_here():
            return None
        arrays = self._in_order(args, named)
        if arrays is None:
            return None
        shapes = tuple([a.shape for a in arrays])
        if shapes not in self._programs:
            self._programs[shapes] = self._recalled(model, shapes)
        program = self._programs[shapes]
        found = None if program is None else program(*[arrays[i] for i in model.reads])
        return None if found is None else [found[i] for i in model.gives]

    def _recalled(self, model: KeptModel, shapes: Shapes) -> Any:
        """The program for inputs of these shapes; None where the model does not take
        them, or another one may be wanted."""
        fits = all(
            sizes is None or _fits(shape, sizes)
            for shape, (_, _, sizes) in zip(shapes, model.inputs, strict=True)
        )
        if not fits or len(self._programs) >= _MOST or not _are_lowerings_known():
            return None
        return self._backend.recall_whole(self._program_name(shapes))

    def _in_order(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> Sequence[Any] | None:
        """The inputs, if all are there and as the program takes them."""
        arrays = in_order(self._names, args, named)
        if arrays is None:
            return None
        for value, dtype in zip(arrays, self._dtypes, strict=True):
            if not _is_plain(value) or value.dtype != dtype:
                return None
        return arrays

    def keep(self, model: OpenedModel, plan: Plan, values: Mapping[str, Any]) -> None:
        """Keep what ``plan`` ran for these inputs, if it was one program of all that
        the model computes."""
        if len(self._programs) >= _MOST or not self._serves_here():
            return
        arrays, names, stages = model.arrays(), [*values], plan.stages
        plain = [*arrays] == names and all(_is_plain(v) for v in values.values())
        if not plain or len(stages) != 1 or stages[0].on_host:
            return
        if any(np.dtype(d.str) != d for d, _ in arrays.values()):
            return  # types that NumPy alone does not know
        (stage,), outputs = stages, [*plan.graph.outputs]
        low = plan.program_of(stage, values)
        if low is None or not {*outputs} <= {*stage.writes} or not self._is_mine(low):
            return
        shapes = tuple(v.shape for v in values.values())
        self._programs[shapes] = None
        known = KeptModel(
            [(n, dtype.str, sizes) for n, (dtype, sizes) in arrays.items()],
            outputs,
            [names.index(n) for n in stage.reads],
            [stage.writes.index(n) for n in outputs],
        )
        data = marshal.dumps(tuple(vars(known).values()), 2)
        disk_cache.put(self._name, data, asked=True)
        name = self._program_name(shapes)
        assert low.place is not None
        other = low.place.tuned, disk_cache.digest(low.place.measured)
        self._backend.keep_whole(name, low.executable, other)

    def _is_mine(self, low: Lowered) -> bool:
        """Whether a new process makes this program of the model, of these options and
        of shapes, and has nothing to say."""
        inputs = low.trace.inputs
        if low.place is None or len(inputs) != len(low.trace.call.leaves):
            return False  # the values of an array that cannot be written to are in it
        if low.search is not None and (low.search.cut_short or low.search.left_out):
            return False
        return low.gives_all and _of_program(low.options) == self._options

    def _program_name(self, shapes: Shapes) -> str:
        said = [*self._said, repr(shapes).encode()]
        name: str = self._backend.whole_name(said, self._options)
        return name


def in_order(
    names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> Sequence[Any] | None:
    """The arguments for inputs with these names, None for those that are missing; None
    where there are more or fewer."""
    if len(args) + len(named) != len(names):
        return None
    return (*args, *map(named.get, names[len(args) :])) if named else args


def _are_lowerings_known() -> bool:
    """Whether all lowerings of ops come with eqsat, as far as they are loaded."""
    if "eqsat.terms" not in sys.modules:
        return True
    from eqsat.serialise import NotPortableError, check_lowerings

    try:
        check_lowerings()
    except NotPortableError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    flags = value.flags if type(value) is np.ndarray else None
    return flags is not None and flags.c_contiguous and flags.aligned


def _fits(shape: Sequence[int], sizes: Sequence[int | str | None]) -> bool:
    pairs = zip(shape, sizes, strict=False)
    free = (str, type(None))
    return len(shape) == len(sizes) and all(
        n == m or isinstance(m, free) for n, m in pairs
    )


def _in_force(given: Options, context: OptionContext | None = None) -> Options:
    return _of_program(given.for_backend(_BACKEND, context))


def _of_program(options: Options) -> Options:
    """What options say of a program; how its making is shown is no matter."""
    return replace(options, progress=True)


def _version_of_onnx() -> bytes | None:
    """What tells the version of the package, which is not imported: it takes 60 ms."""
    spec = find_spec("onnx")
    if spec is None or spec.origin is None:
        return None
    try:
        return Path(spec.origin).with_name("version.py").read_bytes()
    except OSError:
        return None
