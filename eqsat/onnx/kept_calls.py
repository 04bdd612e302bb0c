"""Calls of models from disk: a model that was called before is neither opened nor
traced in a new process, and its weights are mapped.

What is kept follows from the bytes of the model's file, from options, and from shapes.
"""

from __future__ import annotations

import marshal
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
    from eqsat.onnx.plan import Called, Plan
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
        self._programs: dict[Shapes, Any] = {}
        """Those on disk; None where there is none."""
        self._seen: set[Shapes] = set()
        """Shapes whose programs were to be kept."""
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
        if latest is None or latest[0] is not context:
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
        arrays = _in_order(model, args, named)
        if arrays is None:
            return None
        shapes = tuple(a.shape for a in arrays)
        if shapes not in self._programs:
            if len(self._programs) >= _MOST:
                return None
            recalled = self._backend.recall_whole(self._program_name(shapes))
            self._programs[shapes] = recalled
        program = self._programs[shapes]
        found = None if program is None else program(*(arrays[i] for i in model.reads))
        return None if found is None else [found[i] for i in model.gives]

    def wants(self, values: Mapping[str, Any]) -> bool:
        """Whether the program for these inputs is to be kept: it is so once."""
        if len(self._seen) >= _MOST or not self._serves_here():
            return False
        if not all(_is_plain(v) for v in values.values()):
            return False
        shapes = tuple(v.shape for v in values.values())
        is_new = shapes not in self._seen
        self._seen.add(shapes)
        return is_new

    def keep(
        self,
        model: OpenedModel,
        plan: Plan,
        values: Mapping[str, Any],
        called: Called,
    ) -> None:
        """Keep what ``plan`` has ``called`` for these inputs, if it was one program of
        all that the model computes."""
        arrays, names = model.arrays(), [*values]
        if len(plan.stages) != 1 or len(called) != 1 or [*arrays] != names:
            return
        (stage,), ((jitted, given),) = plan.stages, called
        mine = [values.get(n) for n in stage.reads]
        if [*map(id, mine)] != [*map(id, given)]:
            return  # some are known beforehand, or another thread's
        if not {*plan.graph.outputs} <= {*stage.writes}:
            return
        if any(np.dtype(d.str) != d for d, _ in arrays.values()):
            return  # types that NumPy alone does not know
        low = jitted.lower(*given)
        place = low.place
        if place is None or not low.gives_all:
            return
        if _of_program(low.options) != self._options:
            return  # the environment has changed
        known = KeptModel(
            [(n, dtype.str, sizes) for n, (dtype, sizes) in arrays.items()],
            [*plan.graph.outputs],
            [names.index(n) for n in stage.reads],
            [stage.writes.index(n) for n in plan.graph.outputs],
        )
        data = marshal.dumps(tuple(vars(known).values()), 2)
        disk_cache.put(self._name, data, asked=True)
        name = self._program_name(tuple(v.shape for v in values.values()))
        self._backend.keep_whole(name, low.executable, place.tuned)

    def _program_name(self, shapes: Shapes) -> str:
        said = [*self._said, repr(shapes).encode()]
        name: str = self._backend.whole_name(said, self._options)
        return name


def _in_order(
    model: KeptModel, args: Sequence[Any], named: Mapping[str, Any]
) -> list[Any] | None:
    """The inputs, if all are there and as the program takes them."""
    if len(args) + len(named) != len(model.inputs):
        return None
    arrays = []
    for i, (name, dtype, sizes) in enumerate(model.inputs):
        value: Any = args[i] if i < len(args) else named.get(name)
        if not _is_plain(value) or value.dtype.str != dtype:
            return None
        if sizes is not None and not _fits(value.shape, sizes):
            return None
        arrays.append(value)
    return arrays


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
