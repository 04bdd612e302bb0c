"""The command ``eqsat``."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.command import shared
from eqsat.command.functions import DTYPES, is_function
from eqsat.command.inputs import read_specs
from eqsat.command.model_commands import (
    InputOptions,
    bench,
    check_model,
    explain,
    report,
    run,
    with_inputs,
)
from eqsat.command.shared import clean_errors, parse_time
from eqsat.command.targets import FunctionTarget, is_model
from eqsat.support import TABLE, EqsatError, OptionError, counted

if TYPE_CHECKING:
    from eqsat.checking import Finding, Report
    from eqsat.demo.report import Record
    from eqsat.rulelang import Rule


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 all is well; 1 it failed, or a check found a difference; "
    "2 the command was used wrongly: an option, a file or a name is not there. Results "
    "go to standard output, progress and errors to standard error.",
)
@click.version_option(package_name="eqsat")
def main() -> None:
    """Find the cheapest program that computes what a NumPy function computes."""


for command in (run, explain, report, bench):
    main.add_command(command)


@main.command()
@click.argument("files", metavar="FILE…|MODEL", nargs=-1, required=True)
@click.option(
    "--examples",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Cases to draw for each rule.",
)
@click.option(
    "--lints/--no-lints", default=True, help="Whether to look for lints, the default."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that test rules. The report is the same.",
)
@click.option(
    "--mutants",
    is_flag=True,
    help="Break each rule in many ways instead, and report what passes.",
)
@with_inputs
@shared.backend
@shared.as_json
@clean_errors
def check(
    files: tuple[str, ...],
    examples: int,
    lints: bool,
    jobs: int,
    mutants: bool,
    inputs: InputOptions,
    backend: str | None,
    as_json: bool,
) -> None:
    """Check the rules in FILEs, or in folders of them: compare both sides on drawn
    arguments, prove them equal where that is possible, and warn of rules that are
    doubles of others, follow from them, or feed each other without end. Run the ops
    that FILEs define on every backend that is here, and compare their derivatives with
    central differences.

    Or check MODEL, an .onnx file or FILE.py:FUNC: compare its outputs, and those of
    ONNX Runtime if it is installed, with what the references of its ops make of the
    same inputs in float64, within the bounds that rounding explains.

    Exits with status 1 when a rule or an op is refused: when its sides differ, when
    the optimiser can never use it, or when a program computes something else; and when
    an output of a model differs.
    """
    from eqsat.checking import report_of, show, with_bar
    from eqsat.command.rule_jobs import loaded, tested_in_order

    models = [f for f in files if is_model(f) or is_function(f)]
    _refuse_others(_OF_RULES if models else _OF_MODELS, bool(models))
    if models:
        if len(files) > 1:
            raise click.UsageError(f"{models[0]} is a model; check one alone")
        if not check_model(models[0], inputs, backend, as_json):
            sys.exit(1)
        return
    for file in files:
        shared.there(file, "FILE…")
    rules, seed = loaded(files), inputs.seed
    if mutants:
        _show_mutants(rules, examples, seed, as_json)
        return

    def run(progress: Callable[[Finding], None] | None) -> Report:
        with tested_in_order(rules, files, examples, seed, jobs) as found:
            return report_of(rules, found, seed=seed, lints=lints, progress=progress)

    steps = len(rules) * (1 + lints) + sum(op.fold is None for op in rules.ops)
    report = with_bar(run, steps) if sys.stderr.isatty() else run(None)
    if as_json:
        shared.echo_json(json.loads(report.to_json()))
    else:
        from rich.console import Console

        show(report, Console())
    if not report.ok:
        sys.exit(1)


_OF_RULES = frozenset("examples lints jobs mutants".split())
_OF_MODELS = frozenset("specs input_files dims layout scale mean std backend".split())
"""Options of ``check`` that are for the one or the other alone."""


def _refuse_others(names: frozenset[str], is_model: bool) -> None:
    """Raise ``click.UsageError`` where one of these options is given."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name)
        if name in names and given is not click.core.ParameterSource.DEFAULT:
            option, *_ = parameter.opts
            what = "rules, and this is a model" if is_model else "models"
            raise click.UsageError(f"{option} is for {what}")


def _show_mutants(
    rules: Iterable[Rule], examples: int, seed: int, as_json: bool
) -> None:
    """Print the broken rules that pass, and how many fare how."""
    from eqsat.checking import try_mutants

    found = try_mutants(rules, examples, seed)
    if as_json:
        shared.echo_json([asdict(m) for m in found])
        return
    for m in found:
        if m.fate != "refused":
            click.echo(f"{m.rule}: {m.fate}: {m.change}")
    fates = [m.fate for m in found]
    counts = (f"{fates.count(f)} {f}" for f in ("refused", "equivalent", "alive"))
    click.echo(f"{counted(len(found), 'mutant')}: {', '.join(counts)}")


@main.command()
@shared.backend_option("What to measure; the default backend if not given.")
@click.option("--show", is_flag=True, help="Print what is in use; measure nothing.")
@click.option("--reset", is_flag=True, help="Forget all measurements.")
@shared.as_json
@clean_errors
def calibrate(backend: str | None, show: bool, reset: bool, as_json: bool) -> None:
    """Measure this machine, and keep what kernels cost on it for the cost model."""
    from eqsat.kernels import backend_named, default_backend
    from eqsat.kernels import calibrate as measuring

    if reset:
        forgotten = measuring.forget()
        if as_json:
            shared.echo_json({"forgotten": forgotten})
        else:
            click.echo("forgotten" if forgotten else "nothing was kept")
        return
    backend = backend or TABLE["backend"].from_environment()
    found = backend_named(backend) if backend else default_backend()
    if not show:
        if not hasattr(found, "measure"):
            raise OptionError(f"backend {found.name!r} cannot be calibrated")
        more = getattr(found, "measure_rates", None)
        device, calls, rates = measuring.with_bar(found.measure, more)
        file = measuring.keep(found.name, device, calls, rates)
        click.echo(f"kept in {file}", err=True)
    else:
        device, calls = found.model.device, measuring.numpy_calls()
        rates = getattr(getattr(found, "clock", None), "rates", None)
    if as_json:
        record = measuring.record(device) | {"calls of NumPy": calls.record()}
        if rates is not None:
            record[measuring.rates_of(found.name)] = rates.record()
        shared.echo_json(record)
    else:
        click.echo(f"{measuring.text(device)}\n{calls}")
        if rates is not None:
            click.echo(rates)


@main.command()
@click.argument("target", metavar="FILE.py:FUNC")
@shared.specs
@shared.backend
@shared.budget("60s")
@click.option("--again", is_flag=True, help="Try what earlier runs tried, too.")
@shared.as_json
@clean_errors
def tune(
    target: str,
    specs: tuple[str, ...],
    backend: str | None,
    budget: str,
    again: bool,
    as_json: bool,
) -> None:
    """Look for faster programs of FUNC by measuring: kernels are priced as measured,
    others are tried, and one is kept if it is faster when both run in turn.

    Arguments are drawn at random. What is found is kept for this device in the cache on
    disk, where later compiles find it; another run goes on where this one ended.
    """
    from eqsat.jit import tune as tuned

    seconds = parse_time(budget)
    found = FunctionTarget(target, backend=backend)
    args, named = found.bound(read_specs(specs), {}).drawn(0)
    decision = tuned(
        found.jitted,
        args,
        named,
        seconds,
        lambda text: click.echo(text, err=True),
        resume=not again,
    )
    if as_json:
        shared.echo_json(decision.record())
        return
    click.echo(str(decision))
    if decision.left:
        click.echo(f"{counted(decision.left, 'trial')} left for the next run")


@main.command()
@shared.as_json
@clean_errors
def env(as_json: bool) -> None:
    """Show each option that is in force and where it comes from, the versions of what
    eqsat uses, and the folders.

    Exits with status 1 when a variable has a value that its option cannot take.
    """
    from eqsat.command import environment

    found = environment.record()
    if as_json:
        shared.echo_json(found)
    else:
        click.echo(environment.text(found))
    if not environment.is_right(found):
        sys.exit(1)


@main.group()
def cache() -> None:
    """What was compiled before and is kept on disk."""


@cache.command("info")
@shared.as_json
@clean_errors
def cache_info(as_json: bool) -> None:
    """Show where the cache lies, how much is in it, and how large it may grow."""
    from eqsat.support import disk_cache as kept

    found = kept.info()
    if as_json:
        record = {
            "folder": str(found.folder) if found.folder else None,
            "entries": {
                k: {"count": n, "bytes": b} for k, (n, b) in found.kinds.items()
            },
            "bytes": found.bytes,
            "most_bytes": found.most_bytes,
        }
        shared.echo_json(record)
        return
    click.echo(str(found))


@cache.command("clear")
@shared.as_json
@clean_errors
def cache_clear(as_json: bool) -> None:
    """Remove all that is kept."""
    from eqsat.support import disk_cache as kept

    count = kept.clear()
    if as_json:
        shared.echo_json({"removed": count})
    else:
        click.echo(f"removed {counted(count, 'entry')}")


@main.group()
def demo() -> None:
    """Run the optimiser on a model."""


def _size(
    name: str, default: int, text: str, least: int = 1
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option that is a whole number of ``least`` or more."""
    return click.option(
        name,
        type=click.IntRange(least),
        default=default,
        show_default=True,
        metavar="N",
        help=text,
    )


@demo.command()
@_size("--layers", 12, "How many blocks.")
@_size("--seq", 128, "Rows of the input: tokens of a sequence.")
@_size("--dim", 768, "Features of a token; a multiple of the heads.")
@_size("--heads", 12, "Heads of attention.")
@click.option(
    "--lora",
    type=click.IntRange(0),
    default=0,
    metavar="R",
    help="Rank of an adapter on each output projection; 0 for none.",
)
@click.option(
    "--norm",
    type=click.Choice(["layer", "rms"]),
    default="layer",
    show_default=True,
    help="Layer norm and gelu, or RMS norm and SwiGLU.",
)
@shared.as_json
@clean_errors
def block(
    layers: int, seq: int, dim: int, heads: int, lora: int, norm: str, as_json: bool
) -> None:
    """Transformer blocks in plain NumPy with random weights; needs no network."""
    from eqsat.demo import block as demonstration

    try:
        config = demonstration.Config(layers, seq, dim, heads, lora, norm)
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    _print(demonstration.run(config), demonstration.show, as_json)


@demo.command()
@_size("--layers", 6, "How many blocks.")
@_size("--dim", 384, "Features of a word; a multiple of the heads.")
@_size("--heads", 6, "Heads of attention; a multiple of the heads of keys.")
@_size("--key-heads", 2, "Heads of keys and values, which heads share.")
@_size("--words", 4096, "Words of the vocabulary.")
@_size("--prompt", 32, "Words that are given.")
@_size("--tokens", 128, "Words to write.", least=2)
@shared.as_json
@clean_errors
def generate(
    layers: int,
    dim: int,
    heads: int,
    key_heads: int,
    words: int,
    prompt: int,
    tokens: int,
    as_json: bool,
) -> None:
    """A decoder with random weights writes words; needs no network."""
    from eqsat.demo import generate as demonstration

    try:
        sizes = demonstration.Sizes(layers, dim, heads, key_heads, words)
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    _print(demonstration.run(sizes, prompt, tokens), demonstration.show, as_json)


@demo.command()
@click.option(
    "--sentences",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text file with a sentence a line, instead of the eight built in.",
)
@click.option(
    "--dtype",
    type=click.Choice(["f32", "f64"]),
    default="f32",
    show_default=True,
    help="What to compute in.",
)
@shared.as_json
@clean_errors
def minilm(file: Path | None, dtype: str, as_json: bool) -> None:
    """Embed sentences with all-MiniLM-L6-v2 (downloads 83 MB once)."""
    lines = _sentences(file) if file else None
    for module in ("safetensors", "tokenizers"):
        if importlib.util.find_spec(module) is None:
            raise EqsatError(
                f"this demonstration needs {module}: pip install 'eqsat[demo]'"
            )
    from eqsat.demo import minilm as demonstration
    from eqsat.demo.weights import fetch_with_bar

    folder = fetch_with_bar()
    sentences = lines or demonstration.SENTENCES
    record = demonstration.run(folder, sentences, DTYPES[dtype])
    _print(record, demonstration.show, as_json)


def _sentences(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(
            f"{file}: expected UTF-8 text: {error}", param_hint="--sentences"
        ) from error
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise click.BadParameter(
            f"{file} is empty; expected a sentence a line", param_hint="--sentences"
        )
    return found


def _print(record: Record, show: Callable[[Record, Any], None], as_json: bool) -> None:
    if as_json:
        shared.echo_json(record)
        return
    from rich.console import Console

    show(record, Console())
