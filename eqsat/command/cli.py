"""The command ``eqsat``."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from eqsat.support import TABLE, EqsatError, OptionError, counted

if TYPE_CHECKING:
    from eqsat.checking import Finding, Report
    from eqsat.demo.report import Record
    from eqsat.jit import Jit
    from eqsat.rulelang import Rule
    from eqsat.trace import Spec

DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""Short names of dtypes on the command line."""

_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>[^:=]*):(?P<dtype>\w+)")
_SHAPE = re.compile(r"\d+(x\d+)*")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="eqsat")
def main() -> None:
    """Find the cheapest program that computes what a NumPy function computes."""


def _clean_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Print an error of this library as one message; ``--debug`` for its traceback."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def guarded(debug: bool, **options: Any) -> None:
        try:
            command(**options)
        except EqsatError as error:
            if debug:
                raise
            raise click.ClickException(str(error)) from error

    return guarded


_arguments = click.option(
    "--arg",
    "specs",
    metavar="[NAME=]SHAPE:DTYPE",
    multiple=True,
    help="One argument, in order or by name: 512x768:f32, scalar:f32, mask=8x1:bool.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON only.")


@main.command()
@click.argument("target", metavar="FILE.py:FUNC")
@_arguments
@click.option("--backend", help="Backend to compile for; the default chooses.")
@click.option(
    "--rules",
    "files",
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
@_as_json
@_clean_errors
def explain(
    target: str,
    specs: tuple[str, ...],
    backend: str | None,
    files: tuple[str, ...],
    why: tuple[str, ...],
    why_not: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the kernels that FUNC becomes, their cost, and the rules behind them."""
    function = find_function(target)
    args, named = arguments(target, function, [parse_spec(s) for s in specs])
    explanation = _compiled(function, backend, files).explain(*args, **named)
    reasons = {rule: explanation.why_not(rule) for rule in why_not}
    if not as_json:
        texts = [
            str(explanation),
            *map(explanation.why, why),
            *map(str, reasons.values()),
        ]
        click.echo("\n\n".join(texts))
        return
    record = explanation.record()
    if why:
        nodes = {kernel: explanation.derivation(kernel) for kernel in why}
        record["why"] = {k: [asdict(n) for n in found] for k, found in nodes.items()}
    if reasons:
        record["why_not"] = {rule: reason.record() for rule, reason in reasons.items()}
    click.echo(json.dumps(record, indent=1))


def _compiled(
    function: Callable[..., Any], backend: str | None, files: Sequence[str]
) -> Jit:
    """``function`` for a backend and with further rules; as it is where it is compiled
    already and nothing is asked for."""
    import eqsat as eq

    known: Jit = function if isinstance(function, eq.Jit) else eq.jit(function)
    if backend is None and not files:
        return known
    compiled: Jit = eq.jit(
        known.fn,
        backend=backend or known.backend.name,
        rules=known.rules + eq.load_rules(*files) if files else known.rules,
        options=known.options,
        constants=known.constants,
    )
    return compiled


@main.command()
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option(
    "--examples",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Cases to draw for each rule.",
)
@click.option("--seed", default=0, show_default=True, help="Chooses the cases.")
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
@_as_json
@_clean_errors
def check(
    files: tuple[str, ...],
    examples: int,
    seed: int,
    lints: bool,
    jobs: int,
    mutants: bool,
    as_json: bool,
) -> None:
    """Check the rules in FILEs, or in folders of them: compare both sides on drawn
    arguments, prove them equal where that is possible, and warn of rules that are
    doubles of others, follow from them, or feed each other without end. Run the ops
    that FILEs define on every backend that is here, and compare their derivatives with
    central differences.

    Exits with status 1 when a rule or an op is refused: when its sides differ, when
    the optimiser can never use it, or when a program computes something else.
    """
    from eqsat.checking import report_of, show, with_bar
    from eqsat.command.rule_jobs import loaded, tested_in_order

    rules = loaded(files)
    if mutants:
        _show_mutants(rules, examples, seed, as_json)
        return

    def run(progress: Callable[[Finding], None] | None) -> Report:
        with tested_in_order(rules, files, examples, seed, jobs) as found:
            return report_of(rules, found, seed=seed, lints=lints, progress=progress)

    steps = len(rules) * (1 + lints) + sum(op.fold is None for op in rules.ops)
    report = with_bar(run, steps) if sys.stderr.isatty() else run(None)
    if as_json:
        click.echo(report.to_json())
    else:
        from rich.console import Console

        show(report, Console())
    if not report.ok:
        sys.exit(1)


def _show_mutants(
    rules: Iterable[Rule], examples: int, seed: int, as_json: bool
) -> None:
    """Print the broken rules that pass, and how many fare how."""
    from eqsat.checking import try_mutants

    found = try_mutants(rules, examples, seed)
    if as_json:
        click.echo(json.dumps([asdict(m) for m in found], indent=1))
        return
    for m in found:
        if m.fate != "refused":
            click.echo(f"{m.rule}: {m.fate}: {m.change}")
    fates = [m.fate for m in found]
    counts = (f"{fates.count(f)} {f}" for f in ("refused", "equivalent", "alive"))
    click.echo(f"{counted(len(found), 'mutant')}: {', '.join(counts)}")


@main.command()
@click.option("--backend", help="What to measure; the default backend if not given.")
@click.option("--show", is_flag=True, help="Print what is in use; measure nothing.")
@click.option("--reset", is_flag=True, help="Forget all measurements.")
@_as_json
@_clean_errors
def calibrate(backend: str | None, show: bool, reset: bool, as_json: bool) -> None:
    """Measure this machine, and keep what kernels cost on it for the cost model."""
    from eqsat.kernels import backend_named, default_backend
    from eqsat.kernels import calibrate as measuring

    if reset:
        click.echo("forgotten" if measuring.forget() else "nothing was kept")
        return
    backend = backend or TABLE["backend"].from_environment()
    found = backend_named(backend) if backend else default_backend()
    if not show:
        if not hasattr(found, "measure"):
            raise OptionError(f"backend {found.name!r} cannot be calibrated")
        device = measuring.with_bar(found.measure)
        file = measuring.keep(found.name, device)
        click.echo(f"kept in {file}", err=True)
    else:
        device = found.model.device
    if as_json:
        click.echo(json.dumps(measuring.record(device), indent=1))
    else:
        click.echo(measuring.text(device))


@main.command()
@click.argument("target", metavar="FILE.py:FUNC")
@_arguments
@click.option("--backend", help="Backend to compile for; the default chooses.")
@click.option(
    "--budget",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="About how long: 60s, 5m.",
)
@click.option("--again", is_flag=True, help="Try what earlier runs tried, too.")
@_as_json
@_clean_errors
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
    from eqsat.command.drawn_arguments import drawn
    from eqsat.jit import tune as tuned

    seconds = parse_time(budget)
    function = find_function(target)
    args, named = arguments(target, function, [parse_spec(s) for s in specs])
    jitted = _compiled(function, backend, ())
    decision = tuned(
        jitted,
        [drawn(a) for a in args],
        {name: drawn(a) for name, a in named.items()},
        seconds,
        lambda text: click.echo(text, err=True),
        resume=not again,
    )
    if as_json:
        click.echo(json.dumps(decision.record(), indent=1))
        return
    click.echo(str(decision))
    if decision.left:
        click.echo(f"{counted(decision.left, 'trial')} left for the next run")


@main.command()
@_as_json
@_clean_errors
def env(as_json: bool) -> None:
    """Show each option that is in force and where it comes from, the versions of what
    eqsat uses, and the folders.

    Exits with status 1 when a variable has a value that its option cannot take.
    """
    from eqsat.command import environment

    found = environment.record()
    click.echo(json.dumps(found, indent=1) if as_json else environment.text(found))
    if not environment.is_right(found):
        sys.exit(1)


@main.group()
def cache() -> None:
    """What was compiled before and is kept on disk."""


@cache.command("info")
@_as_json
@_clean_errors
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
        click.echo(json.dumps(record, indent=1))
        return
    click.echo(str(found))


@cache.command("clear")
@_clean_errors
def cache_clear() -> None:
    """Remove all that is kept."""
    from eqsat.support import disk_cache as kept

    count = kept.clear()
    click.echo(f"removed {counted(count, 'entry')}")


@main.group()
def demo() -> None:
    """Run the optimiser on a model."""


@demo.command()
@click.option("--layers", type=click.IntRange(1), default=12, show_default=True)
@click.option("--seq", type=click.IntRange(1), default=128, show_default=True)
@click.option("--dim", type=click.IntRange(1), default=768, show_default=True)
@click.option("--heads", type=click.IntRange(1), default=12, show_default=True)
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
@_as_json
@_clean_errors
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
@click.option("--layers", type=click.IntRange(1), default=6, show_default=True)
@click.option("--dim", type=click.IntRange(1), default=384, show_default=True)
@click.option("--heads", type=click.IntRange(1), default=6, show_default=True)
@click.option("--key-heads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--words", type=click.IntRange(1), default=4096, show_default=True)
@click.option("--prompt", type=click.IntRange(1), default=32, show_default=True)
@click.option("--tokens", type=click.IntRange(2), default=128, show_default=True)
@_as_json
@_clean_errors
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
    "--dtype", type=click.Choice(["f32", "f64"]), default="f32", show_default=True
)
@_as_json
@_clean_errors
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
        click.echo(json.dumps(record, indent=2))
        return
    from rich.console import Console

    show(record, Console())


# -- the target and the arguments of `explain` and `tune` ------------------------------


def find_function(target: str) -> Callable[..., Any]:
    """The function that ``FILE.py:FUNC`` names, or ``click.BadParameter``."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise _bad_target(
            f"{target!r}: expected FILE.py:FUNC, such as model.py:forward"
        )
    path = Path(file)
    if not path.is_file():
        raise _bad_target(f"there is no file {file!r}; expected FILE.py:FUNC")
    module = _load(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise _bad_target(_not_there(module, path, name))
    found: Callable[..., Any] = function
    return found


def _bad_target(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="FILE.py:FUNC")


def _load(path: Path) -> ModuleType:
    """Run a file as a module that, like a script, imports from its own folder."""
    name = "eqsat_explained"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _bad_target(f"{str(path)!r} is not a Python file; expected FILE.py:FUNC")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise EqsatError(
            f"{path} does not load: {type(error).__name__}: {error}"
        ) from error
    return module


def _not_there(module: ModuleType, path: Path, name: str) -> str:
    own = [
        n
        for n, value in vars(module).items()
        if callable(value) and not n.startswith("_") and not inspect.isclass(value)
    ]
    near = difflib.get_close_matches(name, own, n=3)
    some = f"it has {', '.join(sorted(own)[:8])}" if own else "it defines none"
    hint = f"did you mean {' or '.join(near)}?" if near else some
    return f"{path} has no function {name!r}; {hint}"


def parse_time(text: str) -> float:
    """Seconds of ``60s``, ``5m`` or ``90``, or ``click.BadParameter``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|)", text)
    if match is None:
        raise click.BadParameter(
            f"{text!r}: expected a time, such as 60s or 5m", param_hint="--budget"
        )
    return float(match[1]) * (60 if match[2] == "m" else 1)


def parse_spec(text: str) -> tuple[str | None, Spec]:
    """The name, or None, and the argument that ``[NAME=]SHAPE:DTYPE`` describes."""
    from eqsat.trace import Spec

    match = _SPEC.fullmatch(text)
    if match is None:
        raise _bad_spec(text, "")
    name, shape, short = match["name"], match["shape"], match["dtype"]
    dtype = DTYPES.get(short, short)
    if dtype not in DTYPES.values():
        raise _bad_spec(
            text, f"{short!r} is not a dtype; known are {', '.join(DTYPES)}"
        )
    if shape != "scalar" and not _SHAPE.fullmatch(shape):
        raise _bad_spec(text, f"{shape!r} is not a shape")
    sizes = () if shape == "scalar" else tuple(map(int, shape.split("x")))
    return name, Spec(sizes, dtype)


def _bad_spec(text: str, why: str) -> click.BadParameter:
    return click.BadParameter(
        f"{text!r}: {why + '; ' if why else ''}expected [NAME=]SHAPE:DTYPE, such as "
        f"512x768:f32, scalar:f32 or x=8:i64",
        param_hint="--arg",
    )


def arguments(
    target: str,
    function: Callable[..., Any],
    given: Sequence[tuple[str | None, Spec]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``given`` as positional and named arguments of ``function``."""
    positional = [spec for name, spec in given if name is None]
    named: dict[str, Spec] = {}
    for name, spec in given:
        if name in named:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--arg")
        if name is not None:
            named[name] = spec
    try:
        signature = inspect.signature(function)
    except ValueError:
        return tuple(positional), named
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise click.BadParameter(
            f"{error}; {target} takes {signature}", param_hint="--arg"
        ) from error
    return bound.args, bound.kwargs
