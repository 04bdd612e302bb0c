"""What the commands share: how they end with an error, options, and columns of text."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from eqsat.support import EqsatError, nearest


def clean_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Print an error of this library as one message; ``--debug`` for its traceback.
    With ``--json`` what is printed in the meantime, by a user's file too, goes to
    standard error; :func:`echo_json` alone writes to standard output."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def guarded(debug: bool, **options: Any) -> None:
        context, out = click.get_current_context(), sys.stdout
        context.meta[_OUT] = out
        quiet = options.get("as_json", False)
        with contextlib.redirect_stdout(sys.stderr if quiet else out):
            try:
                command(**options)
            except EqsatError as error:
                if debug:
                    raise
                raise click.ClickException(str(error)) from error

    return guarded


_OUT = "eqsat.command.stdout"
"""Where the context of a command keeps its standard output."""


def echo_json(record: Any) -> None:
    """Print the one result of a command. Numbers that JSON lacks are texts: ``"nan"``,
    ``"inf"`` and ``"-inf"``."""
    text = json.dumps(_finite(record), indent=1, allow_nan=False)
    click.echo(text, file=click.get_current_context().meta[_OUT])


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return (
        str(value) if isinstance(value, float) and not math.isfinite(value) else value
    )


def _known_backend(
    context: click.Context, parameter: click.Parameter, name: str | None
) -> str | None:
    known = {e.name for e in entry_points(group="eqsat.backends")}
    if name is not None and name not in known:
        raise click.BadParameter(
            f"no backend {name!r}; installed: {', '.join(sorted(known))}"
            f"{nearest(name, known)}"
        )
    return name


def there(file: str, hint: str) -> str:
    """A file or a folder, or ``click.BadParameter``."""
    if not Path(file).exists():
        raise click.BadParameter(f"there is no file {file!r}", param_hint=hint)
    return file


as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, and nothing else, to standard output.",
)
specs = click.option(
    "--arg",
    "specs",
    metavar="[NAME=]SHAPE:DTYPE",
    multiple=True,
    help="One argument, in order or by name: 512x768:f32, scalar:f32, mask=8x1:bool.",
)


def backend_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--backend``, one that is installed."""
    return click.option("--backend", metavar="NAME", callback=_known_backend, help=text)


backend = backend_option("Backend to compile for; the default chooses.")


def budget(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--budget``."""
    return click.option(
        "--budget",
        default=default,
        show_default=True,
        metavar="TIME",
        help="About how long: 60s, 5m.",
    )


def parse_time(text: str) -> float:
    """Seconds of ``60s``, ``5m`` or ``90``, or ``click.BadParameter``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|)", text)
    if match is None:
        raise click.BadParameter(
            f"{text!r}: expected a time, such as 60s or 5m", param_hint="--budget"
        )
    return float(match[1]) * (60 if match[2] == "m" else 1)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
