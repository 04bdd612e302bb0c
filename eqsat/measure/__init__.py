"""What calls take: counts and seconds of functions, programs and kernels.

Knows compiled programs and their cost model; does not change what runs. Start with
``counts.py``; ``kernel_times.py`` runs kernels one by one, ``report.py`` shows all.
"""

from eqsat.measure.counts import FunctionCounts, Served, counted
from eqsat.measure.report import Statistics, stats
