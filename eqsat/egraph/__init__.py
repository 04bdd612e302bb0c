"""Terms and rules in egglog, and what comes back.

Knows how terms are inserted, rules are run, and e-classes are read as a snapshot. Does
not know what anything costs. Start with ``egraph.py``, then ``schedule.py``.
"""

from eqsat.egraph.egraph import Engine, open_engine
from eqsat.egraph.ematch import Binding, Matcher, fuse
from eqsat.egraph.guard_facts import Class, holds
from eqsat.egraph.insertion import Iteration
from eqsat.egraph.normal_form import fusions, normal_forms, ops_of
from eqsat.egraph.schedule import canonicalise, extend, saturate
from eqsat.egraph.snapshot import (
    Budget,
    EGraph,
    ENode,
    Inserted,
    attr_values,
    engine_attrs,
)
from eqsat.egraph.verify import mistyped
from eqsat.egraph.verify import verify as verify_snapshot
