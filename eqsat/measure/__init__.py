"""What calls take: counts and seconds of functions, programs and kernels.

Knows compiled programs, their cost model and the search; does not change what runs.
Start with ``counts.py``; ``kernel_times.py`` runs kernels one by one, ``report.py``
shows all, ``tuning.py`` decides between programs.
"""

from eqsat.measure.adaptive import adapted
from eqsat.measure.benchmark import benchmark
from eqsat.measure.call_trace import traced
from eqsat.measure.counts import FunctionCounts, Served, counted
from eqsat.measure.report import Statistics, stats
from eqsat.measure.tuning import ProgramDecision, Tuner
