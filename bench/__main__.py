"""``python -m bench``, from the root of the repository."""

from __future__ import annotations

import click

from bench.compile import compile_models
from bench.extraction import extraction
from bench.random_dags import random_dags
from bench.random_programs import random_programs


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure eqsat."""


main.add_command(compile_models)
main.add_command(extraction)
main.add_command(random_dags)
main.add_command(random_programs)

if __name__ == "__main__":
    main(prog_name="python -m bench")
