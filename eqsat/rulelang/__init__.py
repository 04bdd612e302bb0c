"""The language of rules: patterns, conditions, rule files in Python and egglog text.

Knows what a rule says. Does not know what matches it: that is ``egraph``. Start with
``rule.py``; ``ruleset.py`` reads files.
"""

from eqsat.rulelang import egg_schema
from eqsat.rulelang.broken import BrokenRule, failure, warn_of
from eqsat.rulelang.condition import (
    LEAF_FACTS,
    OF_MASKS,
    at_least,
    at_most,
    before,
    causal,
    causal_bias,
    domain,
    equal,
    facts_of,
    hides_future,
    length,
    moderate,
    nonzero,
    normal,
    not_half,
    not_scalar,
    orthonormal,
    positive,
    positive_definite,
    regular,
    same_shape,
    symmetric,
)
from eqsat.rulelang.egg_rules import rule_forms, tells_numbers
from eqsat.rulelang.expression import Expr, entry
from eqsat.rulelang.fact import Fact
from eqsat.rulelang.instantiate import (
    axis_sizes,
    instantiate,
    known_value,
    number_names,
)
from eqsat.rulelang.match_binding import used
from eqsat.rulelang.pattern import (
    Num,
    Pattern,
    PatternNode,
    PatternVar,
    exprs,
    nodes,
    own_exprs,
    show,
    show_attribute,
)
from eqsat.rulelang.pattern_match import (
    evaluate_attribute,
    is_scalar,
    match,
    substitute,
)
from eqsat.rulelang.recognition import of_casts, recognition
from eqsat.rulelang.rule import PHASES, Rule, RulePatterns, rule, tolerance
from eqsat.rulelang.rule_sides import RuleTerms, evaluate, leaf_value, trace_sides
from eqsat.rulelang.ruleset import RuleSet, load_rules
from eqsat.rulelang.stock_rules import default_rules, own_rules
