"""A model as a function."""

from __future__ import annotations

import copy
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.onnx.kept_calls import KeptCalls
from eqsat.support import (
    EqsatError,
    OnnxError,
    an,
    counted,
    nearest,
    once,
    refuse_unknown,
)

if TYPE_CHECKING:
    from eqsat.explain import Explanation
    from eqsat.onnx.kept_calls import KeptModel
    from eqsat.onnx.plan import Called, Compile
    from eqsat.onnx.plans import Plans
    from eqsat.onnx.reading import OpenedModel


_OPTIONS = ("backend", "rules", "options", "constants")
"""Arguments of :func:`eqsat.jit`."""
_MOST_READ = 1 << 30
"""Bytes of a file that are read at once: systems give 2 GiB at most."""


class OnnxModel:
    """A model of ONNX as a function of its inputs, by position or by name. Made by
    :func:`eqsat.from_onnx`.

    It gives the output, or a tuple of several in their order; :meth:`run` gives them by
    name. Arrays are checked against the types that the model declares. It can be called
    in functions of :func:`eqsat.jit` and :func:`eqsat.grad` if nothing of it runs on
    the host.
    """

    def __init__(
        self,
        opens: Callable[[], OpenedModel],
        compile: Compile,
        content: bytes | None = None,
        kept: KeptCalls | None = None,
    ) -> None:
        """``opens`` reads the model. ``content`` tells it from all others, in every
        process; None where nothing does. ``kept``: its calls on disk."""
        self._opens: Callable[[], OpenedModel] | None = opens
        self._compile, self._content = compile, content
        self._kept = kept
        self._plans: dict[frozenset[str], Plans] = {}
        self._direct: Callable[..., list[Any] | None] | None = None
        """What makes a call that was made before."""

    @once
    def _opened(self) -> OpenedModel:
        assert self._opens is not None
        found = self._opens()
        self._opens = None  # it holds the file, or its bytes
        return found

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: nothing of what is kept, which belongs to a process."""
        opened = self._opened
        held = {**vars(self), "_opened": opened}
        held |= {"_kept": None, "_direct": None, "_plans": {}}
        return {n: v for n, v in held.items() if not n.endswith("_guard")}

    @property
    def _known(self) -> KeptModel | None:
        """What is on disk of the model."""
        return None if self._kept is None else self._kept.model

    @property
    def inputs(self) -> dict[str, Any]:
        """Types of inputs by name, as messages of ONNX."""
        return self._opened.inputs

    @property
    def defaults(self) -> dict[str, Any]:
        """Types of inputs that have a value if none is given."""
        return self._opened.defaults

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of inputs."""
        known = self._known
        return tuple(self.inputs if known is None else (n for n, *_ in known.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of outputs."""
        known = self._known
        return tuple(self._opened.graph.outputs if known is None else known.outputs)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The output, or a tuple of several."""
        found = self._outputs(args, named)
        return found[0] if len(found) == 1 else tuple(found)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name; names of inputs may be no names of Python."""
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise OnnxError(
                f"run: inputs is {an(repr(type(inputs).__name__))}, expected arrays by "
                f"name: {', '.join(self.input_names)}"
            )
        return dict(zip(self.outputs, self._outputs((), inputs), strict=True))

    def explain(self, /, *args: Any, **named: Any) -> list[Explanation]:
        """What optimising did, for each program that a call runs; those of graphs
        inside of nodes that run on the host are left out."""
        plans, values = self._planned(args, named)
        called: Called = []
        plans.run(values, called)
        return [jitted.explain(*arrays) for jitted, arrays in called]

    def arrays(self) -> dict[str, tuple[Any, tuple[int | str | None, ...] | None]]:
        """Dtype and sizes of each input that is an array. A size that is not fixed is
        the axis's name, or None; sizes are None where any shape will do."""
        known = self._known
        if known is None:
            return self._opened.arrays()
        return {
            n: (np.dtype(dtype), None if sizes is None else tuple(sizes))
            for n, dtype, sizes in known.inputs
        }

    def compiled_by(self, compile: Compile) -> OnnxModel:
        """The same model with ``compile`` in the place of :func:`eqsat.jit`: it makes
        of a function of arrays one that gives the same results."""
        other = copy.copy(self)
        other._compile, other._plans = compile, {}
        other._content = other._kept = other._direct = None
        return other

    def on_host(self) -> dict[str, str]:
        """Nodes that NumPy computes between programs, and why, as found so far."""
        plans = chain.from_iterable(self._plans.values())
        return {str(n): why for p in plans for n, why in p.on_host.items()}

    def _outputs(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        kept = self._kept
        if kept is not None:
            found = kept.outputs(args, named)
            if found is not None:
                return found
        if self._direct is not None:
            found = self._direct(args, named)
            if found is not None:
                return found
        plans, values = self._planned(args, named)
        plan, found = plans.run(values)
        if not plan.on_host and values.keys() == self.inputs.keys():
            plans.note_direct(values, plan, found)
            self._direct = plans.directly
        if plan.has_traced:
            plan.has_traced = False
            if kept is not None:
                kept.keep(self._opened, plan, values)
        given = {id(v) for v in _arrays([*values.values()])}
        return [_own(x, given, bool(plan.on_host)) for x in found]

    def _planned(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[Plans, dict[str, Any]]:
        values = self._given(args, named)
        key = frozenset(values).intersection(self.defaults)
        if key not in self._plans:
            from eqsat.onnx.nodes import ModelGraph
            from eqsat.onnx.plans import Plans

            g = self._opened.graph
            constants = {k: v for k, v in g.constants.items() if k not in key}
            inputs = [n for n in g.inputs if n not in constants]
            graph = ModelGraph(g.name, inputs, g.outputs, constants, g.nodes)
            self._plans[key] = Plans(graph, self._compile, self._content)
        return self._plans[key], values

    def _given(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        known = self._opened.checks
        names = self.inputs
        if len(args) > len(names):
            raise OnnxError(
                f"the model has {counted(len(names), 'input')} ({', '.join(names)}), "
                f"got {counted(len(args), 'argument')}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in known:
                raise OnnxError(f"there is no input {name!r}{nearest(name, known)}")
            if name in given:
                raise OnnxError(f"input {name!r} is given twice")
            given[name] = value
        for name in names:
            if name not in given:
                if name not in self._opened.optional:
                    raise OnnxError(f"input {name!r} is missing")
                given[name] = None
        return {n: known[n](v) for n, v in given.items()}


def _arrays(values: Sequence[Any]) -> Iterator[Any]:
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from _arrays(v)
        elif isinstance(v, np.ndarray):
            yield v


def _own(value: Any, given: set[int], on_host: bool) -> Any:
    """An output in memory of its own: one may be an input, and what the host makes may
    show one."""
    if isinstance(value, list):
        return [_own(v, given, on_host) for v in value]
    is_view = on_host and isinstance(value, np.ndarray) and not value.flags.owndata
    return value.copy() if is_view or id(value) in given else value


def read(source: Any, folder: Any, options: Mapping[str, Any]) -> OnnxModel:
    """What :func:`eqsat.from_onnx` gives."""
    if find_spec("onnx") is None:
        raise EqsatError(
            "eq.from_onnx needs the package onnx\n  pip install 'eqsat[onnx]'"
        )
    refuse_unknown(options, (*_OPTIONS, "folder"), "eq.from_onnx: ")
    content = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        content = hashlib.sha256(data).digest()
        opens = functools.partial(_of_bytes, data, "the model", folder)
    elif _is_message(source):
        opens = functools.partial(_of_message, source, folder)
    elif not isinstance(source, (str, os.PathLike)):
        raise OnnxError(
            f"eq.from_onnx: source is {an(repr(type(source).__name__))}, expected a "
            "path, the bytes of a file or a ModelProto"
        )
    else:
        path = Path(source)
        what = f"model {str(path)!r}"
        if not path.is_file():
            is_folder = "it is a folder" if path.is_dir() else "there is no such file"
            raise OnnxError(f"{what}: {is_folder}")
        file = _OpenFile(open(path, "rb"))
        content = file.digest()
        above = path.parent.absolute() if folder is None else folder
        opens = functools.partial(_of_file, file, what, content, above)
    kept = None if content is None else KeptCalls.of(content, options)
    compile = functools.partial(_jit, options)
    model = OnnxModel(opens, compile, content, kept)
    if kept is None or kept.model is None:
        opened = model._opened
        if not opened.is_one_file:
            model._content = model._kept = None
    return model


def _is_message(source: Any) -> bool:
    onnx = sys.modules.get("onnx")  # where it is not loaded, there is no message of it
    return onnx is not None and isinstance(source, onnx.ModelProto)


def _jit(options: Mapping[str, Any], function: Callable[..., Any]) -> Any:
    from eqsat.jit import jit

    return jit(function, **options)


def _of_message(message: Any, folder: Any) -> OpenedModel:
    from eqsat.onnx.reading import opened

    return opened(message, None if folder is None else Path(folder))


def _of_bytes(data: bytes, what: str, folder: Any) -> OpenedModel:
    from eqsat.onnx.reading import parsed

    return _of_message(parsed(data, what), folder)


class _OpenFile:
    """A file until its model is opened, or gone: it may be removed meanwhile."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def digest(self) -> bytes:
        return hashlib.file_digest(self._file, "sha256").digest()

    def read(self) -> bytes:
        """All of it. Children of a fork have one place in the file in common, which
        does not count."""
        parts, start, place = list[bytes](), 0, self._file.fileno()
        if not hasattr(os, "pread"):
            self._file.seek(0)
            return bytes(self._file.read())
        while part := os.pread(place, _MOST_READ, start):
            parts.append(part)
            start += len(part)
        return b"".join(parts)


def _of_file(file: _OpenFile, what: str, content: bytes, folder: Any) -> OpenedModel:
    """The model of an open file, whose digest is ``content``."""
    data = file.read()
    if hashlib.sha256(data).digest() != content:
        raise OnnxError(f"{what} has changed since it was read; read it again")
    found = _of_bytes(data, what, folder)
    file.close()
    return found
