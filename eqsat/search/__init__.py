"""From terms to the cheapest program: regions, saturation, extraction.

Knows the order of the search and its budgets. Does not know how a program runs. Start
with ``optimise.py``.
"""

from eqsat.search.across_regions import constants_with, graph_of, opened_program
from eqsat.search.optimise import Optimised, optimise
from eqsat.search.provenance import RegionOrigin, Search, TermOrigin
from eqsat.search.regions import region_of, split
