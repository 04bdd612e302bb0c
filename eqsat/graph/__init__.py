"""Programs built node by node, and as files: JSON and DOT.

Knows nodes by name, what is wrong with them, and how they become a function or a file.
Does not know how a program is found: that is :func:`eqsat.jit`'s. Start with
``graph.py``, then ``nodes.py``.
"""

from eqsat.graph.graph import Graph
from eqsat.graph.nodes import GraphNode

__all__ = ["Graph", "GraphNode"]
