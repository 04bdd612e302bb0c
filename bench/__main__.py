"""``python -m bench``, from the root of the repository."""

from __future__ import annotations

import click

from bench.compile import compile_models
from bench.extraction import extraction
from bench.gpu import gpu
from bench.limits import limits
from bench.plot import plot
from bench.predict import predict
from bench.random_dags import random_dags
from bench.random_programs import random_programs
from bench.recording import recording
from bench.run import run
from bench.table import table
from bench.ulp import minimax, ulp


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure eqsat."""


for command in (
    run,
    table,
    plot,
    limits,
    predict,
    compile_models,
    extraction,
    gpu,
    minimax,
    random_dags,
    random_programs,
    recording,
    ulp,
):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m bench")
