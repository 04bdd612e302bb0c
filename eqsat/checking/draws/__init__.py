"""Arguments for a rule, drawn as programs hold them.

Knows shapes, attributes, special values, and the classes that a rule admits. Does not
know when its two sides agree. Start with ``cases.py``.
"""

from eqsat.checking.draws.cases import (
    INTEGERS,
    NUMBERS,
    SPECIAL,
    UNDEFINED,
    Case,
    dtypes_of,
    inside_domain,
    loose,
    sample,
)
from eqsat.checking.draws.explore import explore
from eqsat.checking.draws.pressed import Pressing, ways
from eqsat.checking.draws.rule_attributes import draw_attributes, roles
from eqsat.checking.draws.rule_shapes import draw_shapes, fitting_sizes, named_axes
from eqsat.checking.draws.sample_arrays import (
    FLOATS,
    INSIDE,
    LIMIT,
    SELDOM_UNUSUAL,
    VALUES,
    Pick,
    Shape,
    bools,
    broadcastable,
    fitting_shapes,
    one_of,
    shuffled,
    values,
)
from eqsat.checking.draws.solutions import led_to
from eqsat.checking.draws.worst_points import worst_points
