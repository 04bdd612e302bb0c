"""``eqsat run``, ``explain``, ``bench`` and ``check`` of a function or a model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from eqsat.command import shared
from eqsat.command.inputs import (
    LAYOUTS,
    ImageOptions,
    read_dims,
    read_files,
    read_specs,
)
from eqsat.command.shared import clean_errors, columns, parse_time, there
from eqsat.command.targets import (
    FunctionTarget,
    GivenArguments,
    Runnable,
    find_target,
    flat,
    shows_progress,
    type_of,
)
from eqsat.support import EqsatError, counted, nearest

if TYPE_CHECKING:
    from eqsat.explain import Explanation

MODEL = click.argument("target", metavar="MODEL")
_SHOWN = 6
"""Elements of an output that a table shows."""
_MOST_IN_JSON = 1000
"""Elements of an output that JSON holds."""


class InputOptions(NamedTuple):
    """The options that say what a model is run on."""

    specs: tuple[str, ...]
    files: tuple[str, ...]
    dims: tuple[str, ...]
    seed: int
    images: ImageOptions

    def bound(self, target: Runnable) -> GivenArguments:
        """The arguments; specs are not drawn yet."""
        given = read_specs(self.specs)
        read = read_files(self.files, target.wanted, self.images)
        if any(n is None for n, _ in given) and any(n is None for n, _ in read):
            raise click.UsageError(
                "--arg and --input are both given without a name; name those of one"
            )
        return target.bound(given + read, read_dims(self.dims))

    def arrays(self, target: Runnable) -> GivenArguments:
        """The arguments, all of them arrays."""
        return self.bound(target).drawn(self.seed)


def _numbers(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[float, ...]:
    """The numbers of ``0.5,0.4,0.3``."""
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: expected numbers with commas between, such as 0.5,0.5,0.5"
        ) from None


_INPUTS = (
    shared.specs,
    click.option(
        "--input",
        "input_files",
        metavar="[NAME=]FILE",
        multiple=True,
        help="An input of a file, in order or by name: .npy, .npz, or an image, which "
        "is resized to the height and width of the input where these are fixed.",
    ),
    click.option(
        "--dim",
        "dims",
        metavar="NAME=SIZE",
        multiple=True,
        help="The size of an axis of a model: batch=1, or x.2=48 for axis 2 of input x "
        "if it has no name.",
    ),
    click.option(
        "--seed",
        default=0,
        show_default=True,
        help="Draws what is not given: normal numbers, and integers 0 and 1.",
    ),
    click.option(
        "--layout",
        type=click.Choice(LAYOUTS),
        help="The axes of an input of images, where they are not plain.",
    ),
    click.option(
        "--scale",
        type=float,
        help="Images: what pixels of 0 to 255 are multiplied by; 1/255 for inputs of "
        "floats.",
    ),
    click.option(
        "--mean",
        callback=_numbers,
        metavar="NUMBERS",
        help="Images: what is subtracted then, one number or one for each channel.",
    ),
    click.option(
        "--std",
        callback=_numbers,
        metavar="NUMBERS",
        help="Images: what is divided by then.",
    ),
)


def with_inputs(command: Callable[..., None]) -> Callable[..., None]:
    """The options of :class:`InputOptions`, as the parameter ``inputs``."""

    @functools.wraps(command)
    def gathered(**given: Any) -> None:
        layout, scale, mean, std = (
            given.pop(n) for n in ("layout", "scale", "mean", "std")
        )
        inputs = InputOptions(
            given.pop("specs"),
            given.pop("input_files"),
            given.pop("dims"),
            given.pop("seed"),
            ImageOptions(layout, scale, mean, std),
        )
        command(inputs=inputs, **given)

    for option in reversed(_INPUTS):
        gathered = option(gathered)
    return gathered


_threads = click.option(
    "--threads",
    type=click.IntRange(1),
    help="Threads of each side; all CPUs if not given.",
)


# -- run -------------------------------------------------------------------------------


@click.command()
@MODEL
@with_inputs
@shared.backend
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the outputs in this .npz.",
)
@shared.as_json
@clean_errors
def run(
    target: str,
    inputs: InputOptions,
    backend: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run MODEL, an .onnx file or FILE.py:FUNC, and show its outputs."""
    import eqsat as eq

    if out is not None and out.suffix != ".npz":
        raise click.BadParameter(f"{out}: expected a file .npz", param_hint="--out")
    shows = shows_progress(as_json)
    found = find_target(target, shows, backend=backend)
    arguments = inputs.arrays(found)
    with eq.options(progress=shows):
        outputs = flat(found.call(arguments))
    if out is not None:
        try:
            np.savez(out, **outputs)
        except OSError as error:
            raise EqsatError(f"{out} cannot be written: {error}") from error
    if as_json:
        record = {
            "inputs": [_described(n, a, 0) for n, a in _each(arguments)],
            "outputs": [_described(n, a, _MOST_IN_JSON) for n, a in outputs.items()],
            "on_host": found.on_host(),
        }
        shared.echo_json(record)
        return
    rows: list[tuple[str, ...]] = [
        ("output", "type", "least", "most", "first elements")
    ]
    for name, array in outputs.items():
        has_size = array.dtype.kind not in "cOU" and array.size
        ends = (array.min(), array.max()) if has_size else ("", "")
        first = " ".join(map(_short, array.reshape(-1)[:_SHOWN]))
        more = " …" if array.size > _SHOWN else ""
        rows.append((name, type_of(array), *map(_short, ends), first + more))
    click.echo("\n".join(columns(rows)))


def _each(arguments: GivenArguments) -> list[tuple[str, Any]]:
    return [
        *((str(i), np.asarray(a)) for i, a in enumerate(arguments.args)),
        *((n, np.asarray(a)) for n, a in arguments.named.items()),
    ]


def _described(name: str, array: Any, most: int) -> dict[str, Any]:
    """An array for JSON, with its elements where they are ``most`` at most."""
    found = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size > most:
        return found
    plain = array.astype(str) if array.dtype.kind in "cV" else array
    return {**found, "elements": plain.tolist()}


def _short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


# -- explain ---------------------------------------------------------------------------


@click.command()
@MODEL
@with_inputs
@shared.backend
@click.option(
    "--rules",
    "rule_files",
    metavar="FILE",
    multiple=True,
    help="A file of rules to use beside the stock rules.",
)
@click.option(
    "--why",
    metavar="KERNEL",
    multiple=True,
    help="Also show the rules that built each e-node of KERNEL.",
)
@click.option(
    "--why-not",
    metavar="RULE",
    multiple=True,
    help="Also show what stopped RULE.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also time FUNC in NumPy and each kernel, beside the estimates.",
)
@shared.as_json
@clean_errors
def explain(
    target: str,
    inputs: InputOptions,
    backend: str | None,
    rule_files: tuple[str, ...],
    why: tuple[str, ...],
    why_not: tuple[str, ...],
    measure: bool,
    as_json: bool,
) -> None:
    """Show the kernels that MODEL, an .onnx file or FILE.py:FUNC, becomes, their cost,
    and the rules behind them."""

    shows = shows_progress(as_json)
    for file in rule_files:
        there(file, "--rules")
    found = find_target(target, shows, backend=backend, files=rule_files)
    explanations = _explained(found, inputs, measure, shows)
    if (why or why_not) and len(explanations) != 1:
        raise EqsatError(
            f"--why and --why-not are about one program; {target} has "
            f"{counted(len(explanations), 'program')}"
        )
    for e in explanations:
        _refuse_unknown_kernels(why, [k.name for k in e.kernels])
    reasons = {r: e.why_not(r) for e in explanations for r in why_not}
    for reason in reasons.values():
        if reason.kind == "absent":
            raise click.BadParameter(reason.text, param_hint="--why-not")
    if not as_json:
        texts = [*map(str, explanations)]
        texts += [e.why(kernel) for e in explanations for kernel in why]
        texts += [*map(str, reasons.values()), *_host_lines(found)]
        click.echo("\n\n".join(texts))
        return
    records = [e.record() for e in explanations]
    for record, e in zip(records, explanations, strict=True):
        if why:
            nodes = {kernel: e.derivation(kernel) for kernel in why}
            record["why"] = {k: [asdict(n) for n in ns] for k, ns in nodes.items()}
        if reasons:
            record["why_not"] = {r: reason.record() for r, reason in reasons.items()}
    whole = (
        records[0]
        if found.path is None
        else {
            "programs": records,
            "on_host": found.on_host(),
        }
    )
    shared.echo_json(whole)


def _refuse_unknown_kernels(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ``click.BadParameter`` for a name that is none of ``known``."""
    for name in names:
        if name not in known:
            some = f"; there are {', '.join(known[:8])}" if known else "; there is none"
            raise click.BadParameter(
                f"no kernel {name!r}{nearest(name, known) or some}", param_hint="--why"
            )


def _host_lines(target: Runnable) -> list[str]:
    found = target.on_host()
    return (
        [
            "\n".join(
                [f"on the host: {counted(len(found), 'node')}"]
                + [f"  {node}: {why}" for node, why in found.items()]
            )
        ]
        if found
        else []
    )


# -- report ----------------------------------------------------------------------------


@click.command()
@MODEL
@with_inputs
@shared.backend
@click.option(
    "--rules",
    "rule_files",
    metavar="FILE",
    multiple=True,
    help="A file of rules to use beside the stock rules.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page to write; NAME.html if not given, after the function or the model.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also time FUNC in NumPy and each kernel, beside the estimates.",
)
@shared.as_json
@clean_errors
def report(
    target: str,
    inputs: InputOptions,
    backend: str | None,
    rule_files: tuple[str, ...],
    out: Path | None,
    measure: bool,
    as_json: bool,
) -> None:
    """Write a page of HTML about MODEL, an .onnx file or FILE.py:FUNC: the program
    before and after, kernels, rules, memory and sources. A model of several programs
    has a page for each."""
    shows = shows_progress(as_json)
    for file in rule_files:
        there(file, "--rules")
    found = find_target(target, shows, backend=backend, files=rule_files)
    explanations = _explained(found, inputs, measure, shows)
    stem = target.rpartition(":")[2] if found.path is None else found.path.stem
    first = out or Path(f"{stem}.html")
    pages = []
    for i, e in enumerate(explanations):
        path = first.with_stem(f"{first.stem}-{i + 1}") if i else first
        e.html(path)
        pages.append(str(path))
    if as_json:
        shared.echo_json({"pages": pages})
    else:
        click.echo("\n".join(pages))


def _explained(
    found: Runnable, inputs: InputOptions, measure: bool, shows: bool
) -> list[Explanation]:
    """Explanations of a target's programs."""
    import eqsat as eq

    if measure and found.path is not None:
        raise EqsatError("--measure is about FILE.py:FUNC; eqsat bench times models")
    arguments = inputs.bound(found)
    if measure or found.path is not None:  # what programs a model has hangs on values
        arguments = arguments.drawn(inputs.seed)
    with eq.options(progress=shows):
        explanations = found.explain(arguments)
    if measure:
        assert isinstance(found, FunctionTarget)
        timing = found.jitted.benchmark(*arguments.args, **arguments.named)
        explanations = [replace(e, timing=timing) for e in explanations]
    return explanations


# -- bench -----------------------------------------------------------------------------


@click.command()
@MODEL
@with_inputs
@shared.backend
@_threads
@shared.budget("5s")
@shared.as_json
@clean_errors
def bench(
    target: str,
    inputs: InputOptions,
    backend: str | None,
    threads: int | None,
    budget: str,
    as_json: bool,
) -> None:
    """Time MODEL, an .onnx file or FILE.py:FUNC, under eqsat, and in turn with it under
    ONNX Runtime and OpenVINO, or NumPy, where these are installed.

    NumPy has its own threads: OPENBLAS_NUM_THREADS and its like set them.
    """
    from eqsat.command.timing import time_sides

    seconds = parse_time(budget)
    record = time_sides(
        target, inputs.arrays, backend, threads, seconds, shows_progress(as_json)
    )
    timing = record.get("timing")
    if as_json:
        if timing is not None:
            record["timing"] = timing.record()
        shared.echo_json(record)
        return
    rows = [
        (
            "",
            "load",
            "first call",
            "call",
            "quartiles",
            "least",
            "of eqsat's time",
            "difference",
        )
    ]
    for name, side in record["sides"].items():
        if "failed" in side:
            rows.append((name, f"{side['failed']}", *[""] * 6))
            continue
        low, high = side["quartiles_s"]
        rows.append(
            (
                name,
                _time(side["load_s"]),
                _time(side["first_s"]),
                _time(side["median_s"]),
                f"{_time(low)} to {_time(high)}",
                _time(side["min_s"]),
                f"{side['of_eqsat']:.2f}",
                f"{side['difference']:.1e}",
            )
        )
    click.echo("\n".join(columns(rows)))
    click.echo(f"{counted(record['threads'], 'thread')}, {record['rounds']} rounds")
    if timing is not None:
        click.echo(f"\n{timing}")


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


# -- check -----------------------------------------------------------------------------


def check_model(
    target: str, inputs: InputOptions, backend: str | None, as_json: bool
) -> bool:
    """Compare what a model gives with its reference and with ONNX Runtime, and show it;
    whether all agree."""
    from eqsat.command.comparison import compare

    record = compare(target, inputs.arrays, backend, shows_progress(as_json))
    if as_json:
        shared.echo_json(record)
        return bool(record["agree"])
    peer = record["peer"]
    head = "output", "type", "error", "bound", "NumPy's error"
    rows = [(*head, f"{peer}'s error" if peer else "", "")]
    for o in record["outputs"]:
        errors = map(_error, (o["error"], o["bound"], o["plain_error"]))
        theirs = _error(o["peer_error"]) if peer else ""
        said = ", ".join(o["wrong"]) or "agrees"
        rows.append((o["name"], o["type"], *errors, theirs, said))
    click.echo("\n".join(columns(rows)))
    if record["missing"]:
        click.echo(record["missing"])
    if record["on_host"]:
        click.echo(f"on the host: {counted(len(record['on_host']), 'node')}")
    return bool(record["agree"])


def _error(value: float | None) -> str:
    return "other type" if value is None else f"{value:.1e}"
