"""The backend ``"eqsat"`` of ``torch.compile``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from eqsat.pytorch.program import TorchProgram
from eqsat.pytorch.refusals import unless_refused
from eqsat.pytorch.table import entry_for
from eqsat.support import OptionError, refuse_unknown

PARAMETERS = ("backend", "constants", "options", "rules")
"""What ``options=`` of ``torch.compile``, and ``from_torch``, may name: parameters of
``eqsat.jit``."""


MORE = (
    "_adaptive_avg_pool2d",
    "_batch_norm_with_update_functional",
    "addbmm",
    "copysign",
    "linalg_vector_norm",
    "native_batch_norm",
    "native_group_norm",
    "native_group_norm_backward",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_nearest1d",
    "upsample_nearest2d",
)
"""Operators that PyTorch counts among its core, and can write with others."""


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions of all operators that the table has not, but for those
    that draw random numbers: in parts they would draw others. A call that PyTorch
    refuses stays whole."""
    aten = torch.ops.aten
    found = {
        **core_aten_decompositions(),
        **get_decompositions([getattr(aten, name) for name in MORE]),
    }
    return {
        op: f if _is_composite(op) else unless_refused(op, f)
        for op, f in found.items()
        if entry_for(str(op).removeprefix("aten.")) is None
        and not (_is_random(op) and not _is_composite(op))
    }


def _is_random(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def _is_composite(op: Any) -> bool:
    """Whether PyTorch itself computes an operator by calling others: attention, with
    dropout or without."""
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))


def compile_graph(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """A function that runs a graph of Dynamo, and its gradient."""
    if mode not in (None, "default"):
        raise OptionError(f"torch.compile(mode={mode!r}), expected 'default'")
    given = dict(options or {})
    refuse_unknown(given, PARAMETERS, "torch.compile(options=…): ")

    def compiled(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        program = TorchProgram(graph, given)

        def run(given: list[Any]) -> Any:
            return program(given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    made: Callable[..., Any] = aot_autograd(
        fw_compiler=compiled,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )(module, inputs)
    return made
