"""Extraction: the cheapest choice of e-nodes and kernels.

Knows cuts, covers, the integer program, and local search. Does not know rules or
regions. Start with ``extract.py``.
"""

from eqsat.search.extraction.bitset_graph import Dense, bits
from eqsat.search.extraction.cover import Cover, CoverOption, build, cover, inside
from eqsat.search.extraction.multi_result import Joint, together, union
