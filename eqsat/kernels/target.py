"""What a backend can run as one kernel."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.support import KINDS


@dataclass(frozen=True)
class Target:
    """The kernels of several e-nodes that a backend can realise; cuts that it cannot do
    not exist. One op by itself is always a kernel."""

    kinds: frozenset[str] = frozenset(KINDS)
    prologues: frozenset[str] = frozenset({"map", "row"})
    """What the left operand of a product may be, computed as it is read."""
    longest_row: int = 1 << 24
    """Most elements that a kernel may reduce to one."""
    most_arrays: int = 16
    """Most arrays that a kernel may read and write."""
    most_results: int = 4
    """Most values that one kernel may write."""
    most_nodes: int = 96
    """Most e-nodes in a kernel."""
    least_elements: int = 0
    """Fewest elements of the domain of a kernel of several e-nodes."""
    split_before: frozenset[str] = frozenset()
    """Ops of several steps whose first argument is computed into memory by a kernel of
    its own before the rest."""
    gram_share: float = 1.0
    """Share of the flops of a product of a matrix by its own transpose that count."""
    joins_in_place: bool = False
    """Whether kernels write their results where a join wants them."""
    split_after: frozenset[str] = frozenset()
    """Ops of several steps whose last step is a kernel of its own that reads the rest
    from memory."""
