"""What a command runs: a function of a file, or a model of ONNX."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
import numpy as np

from eqsat.command.functions import arguments, find_function
from eqsat.command.inputs import Given, InputType, drawn, fill
from eqsat.support import counted, nearest, progress, pytree

if TYPE_CHECKING:
    from eqsat.explain import Explanation
    from eqsat.jit import Jit
    from eqsat.onnx import OnnxModel

Outputs = dict[str, Any]
"""Arrays by name, or lists of them."""


class GivenArguments(NamedTuple):
    """GivenArguments of a target: arrays or :class:`eqsat.Spec`."""

    args: tuple[Any, ...]
    named: dict[str, Any]

    def drawn(self, seed: int) -> GivenArguments:
        """Arrays in the place of specs, of this seed."""
        rng = np.random.default_rng(seed)
        args = tuple(drawn(a, rng) for a in self.args)
        return GivenArguments(args, {n: drawn(v, rng) for n, v in self.named.items()})

    def copied(self) -> GivenArguments:
        """With copies of the arrays."""

        def copied(value: Any) -> Any:
            return np.array(value) if isinstance(value, np.ndarray) else value

        named = {n: copied(v) for n, v in self.named.items()}
        return GivenArguments(tuple(map(copied, self.args)), named)


class Runnable(Protocol):
    """A function or a model."""

    @property
    def path(self) -> Path | None:
        """The file of a model."""

    @property
    def wanted(self) -> Sequence[InputType]:
        """Its inputs in order, as far as it declares them."""

    def bound(self, given: Given, dims: Mapping[str, int]) -> GivenArguments:
        """Its arguments. Raises ``click.UsageError`` where they do not fit."""

    def call(self, arguments: GivenArguments) -> Outputs:
        """Its outputs, as optimised."""

    def given(self, arguments: GivenArguments) -> Outputs:
        """What of its arguments it may write to, as outputs."""

    def explain(self, arguments: GivenArguments) -> list[Explanation]:
        """What optimising did, for each program."""

    def on_host(self) -> dict[str, str]:
        """What NumPy computes between programs, and why."""

    def replaced(
        self, made: Callable[[Callable[..., Any]], Any]
    ) -> Callable[[GivenArguments], Outputs]:
        """The same with ``made`` of each function in the place of a compiled one."""


def find_target(
    text: str,
    shows: bool,
    threads: int | None = None,
    backend: str | None = None,
    files: Sequence[str] = (),
) -> Runnable:
    """What ``FILE.py:FUNC`` or ``MODEL.onnx`` names, for a backend and with files of
    rules beside the stock ones. ``shows``: a line on a terminal tells how far it is."""
    import eqsat as eq

    if not is_model(text):
        return FunctionTarget(text, threads, backend, files)
    path = Path(text)
    if not path.is_file():
        raise click.BadParameter(f"there is no file {text!r}", param_hint="MODEL")
    with progress(path.name, eq.Options().deadline_s, shows) as show:
        show("loading")
        model = eq.from_onnx(path, **_chosen(threads, backend, files))
    return ModelTarget(path, model)


def is_model(text: str) -> bool:
    """Whether a target is a model of ONNX."""
    return text.endswith(".onnx")


def shows_progress(as_json: bool) -> bool:
    """Whether somebody watches: a terminal, to which no JSON goes."""
    return not as_json and sys.stdout.isatty()


def _chosen(
    threads: int | None, backend: str | None, files: Sequence[str]
) -> dict[str, Any]:
    """GivenArguments of :func:`eqsat.jit`; only those that are asked for."""
    import eqsat as eq

    found: dict[str, Any] = {}
    if backend is not None:
        found["backend"] = backend
    if files:
        found["rules"] = eq.default_rules() + eq.load_rules(*files)
    if threads is not None:
        found["options"] = eq.Options(threads=threads)
    return found


def _compiled(
    function: Callable[..., Any],
    threads: int | None,
    backend: str | None,
    files: Sequence[str],
) -> Jit:
    """``function`` for a backend and with further rules; as it is where it is compiled
    already and nothing is asked for."""
    from dataclasses import replace

    import eqsat as eq

    known: Jit = function if isinstance(function, eq.Jit) else eq.jit(function)
    if backend is None and not files and threads is None:
        return known
    options = known.options
    compiled: Jit = eq.jit(
        known.fn,
        backend=backend or known.backend.name,
        rules=known.rules + eq.load_rules(*files) if files else known.rules,
        options=options if threads is None else replace(options, threads=threads),
        constants=known.constants,
    )
    return compiled


class FunctionTarget:
    """A function of a file of Python."""

    path = None
    wanted: Sequence[InputType] = ()

    def __init__(
        self,
        text: str,
        threads: int | None = None,
        backend: str | None = None,
        files: Sequence[str] = (),
    ) -> None:
        self.text = text
        self.jitted = _compiled(find_function(text), threads, backend, files)
        self._written: tuple[str, ...] | None = None
        """Arguments that it writes to: it gets copies. None before the first call."""

    def bound(self, given: Given, dims: Mapping[str, int]) -> GivenArguments:
        if dims:
            raise click.BadParameter(
                "a function has no axes with names; give --arg", param_hint="--dim"
            )
        return GivenArguments(*arguments(self.text, self.jitted.fn, given))

    def call(self, arguments: GivenArguments) -> Outputs:
        return self._outputs(self.jitted, arguments)

    def given(self, arguments: GivenArguments) -> Outputs:
        """The arguments, as outputs of a function that writes to them."""
        from eqsat.trace import flatten_arguments

        call = flatten_arguments(self.jitted.fn, *arguments)
        return {f"argument {leaf.path}": leaf.value for leaf in call.leaves}

    def _outputs(
        self, function: Callable[..., Any], arguments: GivenArguments
    ) -> Outputs:
        """What it returns, and the arguments that it writes to."""
        from eqsat.checking import Evaluated

        own = arguments if self._written == () else arguments.copied()
        outputs = _leaves(function(*own.args, **own.named))
        if isinstance(function, Evaluated):
            return outputs | {f"argument {n}": v for n, v in function.written.items()}
        if own is arguments:
            return outputs
        after = {n: np.asarray(v) for n, v in self.given(own).items()}
        if self._written is None:
            before = self.given(arguments)
            changed = (
                n
                for n, v in after.items()
                if v.tobytes() != np.asarray(before[n]).tobytes()
            )
            self._written = tuple(changed)
        return outputs | {n: after[n] for n in self._written}

    def explain(self, arguments: GivenArguments) -> list[Explanation]:
        return [self.jitted.explain(*arguments.args, **arguments.named)]

    def on_host(self) -> dict[str, str]:
        return {}

    def replaced(
        self, made: Callable[[Callable[..., Any]], Any]
    ) -> Callable[[GivenArguments], Outputs]:
        return partial(self._outputs, made(self.jitted.fn))


def _leaves(result: Any) -> Outputs:
    found, _ = pytree.flatten(result, lambda v: hasattr(v, "dtype"), "result")
    return {leaf.path: np.asarray(leaf.value) for leaf in found}


class ModelTarget:
    """A model of ONNX."""

    def __init__(self, path: Path, model: OnnxModel) -> None:
        self.path, self.model = path, model

    @property
    def wanted(self) -> Sequence[InputType]:
        return [
            InputType(name, dtype, _named(name, sizes))
            for name, (dtype, sizes) in self.model.arrays().items()
        ]

    def bound(self, given: Given, dims: Mapping[str, int]) -> GivenArguments:
        values: dict[str, Any] = {}
        names = self.model.input_names
        for name, value in given:
            if name is None:
                continue
            if name in values:
                raise click.UsageError(f"input {name!r} is given twice")
            known = (*names, *(() if name in names else self.model.defaults))
            if name not in known:
                raise click.UsageError(
                    f"there is no input {name!r}{nearest(name, known)}; there are "
                    f"{', '.join(known)}"
                )
            values[name] = value
        free = [n for n in names if n not in values]
        rest = [value for name, value in given if name is None]
        if len(rest) > len(free):
            raise click.UsageError(
                f"{counted(len(rest), 'input')} without a name, and the model has "
                f"{len(free)} more: {', '.join(free) or 'none'}"
            )
        values |= zip(free, rest, strict=False)
        return GivenArguments((), fill(self.wanted, values, dims))

    def call(self, arguments: GivenArguments) -> Outputs:
        return self.model.run(arguments.named)

    def given(self, arguments: GivenArguments) -> Outputs:
        return {}

    def explain(self, arguments: GivenArguments) -> list[Explanation]:
        return self.model.explain(**arguments.named)

    def on_host(self) -> dict[str, str]:
        return self.model.on_host()

    def replaced(
        self, made: Callable[[Callable[..., Any]], Any]
    ) -> Callable[[GivenArguments], Outputs]:
        model = self.model.compiled_by(made)
        return lambda given: model.run(given.named)


def flat(outputs: Outputs) -> dict[str, Any]:
    """Arrays by name: those of a sequence by number, text as text, no Nones."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, (list, tuple)):
            found |= flat({f"{name}.{i}": v for i, v in enumerate(value)})
        elif value is not None:
            array = np.asarray(value)
            found[name] = array.astype(str) if array.dtype.kind == "O" else array
    return found


def type_of(array: Any) -> str:
    """Its shape and dtype."""
    return f"{'×'.join(map(str, array.shape)) or 'scalar'} {array.dtype}"


def _named(
    name: str, sizes: tuple[int | str | None, ...] | None
) -> tuple[int | str, ...] | None:
    """Sizes in which each axis without one has a name."""
    if sizes is None:
        return None
    return tuple(f"{name}.{i}" if n is None else n for i, n in enumerate(sizes))
