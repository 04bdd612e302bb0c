"""What a workload needs at least: floating operations and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.workloads import Drawn, Workload, leaves
from eqsat.checking import longest_sum
from eqsat.kernels.cost_model import term_flops
from eqsat.terms.term import postorder
from eqsat.trace.open_composites import primitives
from eqsat.trace.trace import trace


@dataclass(frozen=True)
class Need:
    """The least that any program for a workload must do."""

    product_flops: float
    """Floating operations in products (flop), counted on the traced function. For the
    gradient each product of a loss counts once more for each factor that depends on
    what the loss is differentiated by."""
    other_flops: float
    """All others (flop), as eqsat counts them; no limit is derived from these."""
    longest_sums: tuple[int, ...]
    """Terms of the longest sum before each array of the result."""
    bytes: int
    """Inputs and weights read once, the results written once."""

    def limit_s(self, flops_per_s: float, bytes_per_s: float) -> float:
        """Seconds that no program can beat on a machine of these peaks."""
        return max(self.product_flops / flops_per_s, self.bytes / bytes_per_s)

    def limited_by(self, flops_per_s: float, bytes_per_s: float) -> str:
        """Which of the two: ``flops`` or ``bytes``."""
        by_flops = self.product_flops / flops_per_s > self.bytes / bytes_per_s
        return "flops" if by_flops else "bytes"


def need(w: Workload, drawn: Drawn, result: Any) -> Need:
    """What ``w`` over ``drawn``, with the result ``result``, needs."""
    inputs, weights = drawn
    traced = trace(w.jitted().fn, [*inputs, *weights])
    outputs = list(leaves(traced.unflatten(traced.outputs)))
    counted = [term_flops(t) for t in postorder(outputs)]
    products = sum(products for products, _ in counted)
    if w.argnums:
        products = _products_both_ways(w, inputs)
    moved = sum(a.nbytes for a in leaves([*drawn, result])) - w.unread(drawn)
    return Need(
        products * w.flops_share,
        sum(others for _, others in counted),
        tuple(map(longest_sum, outputs)),
        int(moved),
    )


def _products_both_ways(w: Workload, inputs: list[Any]) -> float:
    """Of a loss and its gradient (flop), however the gradient is spelled."""
    traced = trace(w.over_plain, inputs)
    terms = iter(traced.inputs)
    nested = [[next(terms) for _ in leaves(tree)] for tree in inputs]
    varied = {t for n in w.argnums for t in nested[n]}
    found = 0.0
    for t in postorder([*map(primitives, traced.outputs)]):
        factors = sum(a in varied for a in t.args)
        if factors:
            varied.add(t)
        found += term_flops(t)[0] * (1 + factors)
    return found
