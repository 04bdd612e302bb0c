"""What the commands share: how they end with an error, options, and columns of text."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from eqsat.support import EqsatError


def clean_errors(command: Callable[..., None]) -> Callable[..., None]:
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


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON only.")
specs = click.option(
    "--arg",
    "specs",
    metavar="[NAME=]SHAPE:DTYPE",
    multiple=True,
    help="One argument, in order or by name: 512x768:f32, scalar:f32, mask=8x1:bool.",
)
backend = click.option("--backend", help="Backend to compile for; the default chooses.")


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
