"""``python -m bench``, from the root of the repository."""

from __future__ import annotations

import click

from bench.compiling.compile import compile_models
from bench.compiling.user_rules import user_rules
from bench.devices.gpu import gpu
from bench.devices.recording import recording
from bench.extraction.instances import extraction
from bench.extraction.random_programs import random_programs
from bench.mathematics.ulp import minimax, ulp
from bench.npbench.run import npbench
from bench.processes.lazy_arrays import lazy_arrays
from bench.processes.limits import limits
from bench.reports.plot import plot
from bench.reports.table import table
from bench.runner.predict import predict
from bench.runner.run import run
from bench.runner.tune import tune
from bench.standards.array_api import array_api
from bench.standards.onnx_models import onnx_models
from bench.standards.onnx_nodes import onnx_nodes
from bench.standards.onnx_peers import onnx_peers
from bench.standards.sklearn_calls import sklearn
from bench.standards.torch_models import torch_models


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure eqsat."""


for command in (
    array_api,
    run,
    table,
    plot,
    lazy_arrays,
    limits,
    predict,
    compile_models,
    extraction,
    gpu,
    minimax,
    npbench,
    onnx_models,
    onnx_nodes,
    onnx_peers,
    random_programs,
    recording,
    sklearn,
    torch_models,
    tune,
    ulp,
    user_rules,
):
    main.add_command(command)

if __name__ == "__main__":
    main(prog_name="python -m bench")
