"""The nouns: terms, ops, their signatures, shapes and dtypes.

Knows what a term is and how its type follows from those of its arguments. Does not know
which ops there are. Start with ``term.py``, then ``op.py``.
"""

from eqsat.terms.complex_calls import (
    OF_COMPLEX,
    VIEW_SETTING,
    as_call,
    settings_of,
    through_views,
)
from eqsat.terms.integer_range import limits
from eqsat.terms.make_term import (
    apply,
    cast_to,
    constant,
    infer,
    make,
    node_over,
    scalar,
)
from eqsat.terms.op import (
    CONSTANT,
    EXACT,
    FLAT,
    HALF,
    INPUT,
    LIBRARY,
    ONCE,
    SCALAR,
    AttrVar,
    Axis,
    Cost,
    DTypeName,
    Fold,
    Ints,
    Lowering,
    OnlyWhere,
    Op,
    Traced,
    Vjp,
    annotation_name,
    axis_number,
    is_constant,
    listing_ops,
    normal_axes,
)
from eqsat.terms.op_factories import composite, fused, op, pointwise, weak_floats
from eqsat.terms.promotion import check_range, common_dtype
from eqsat.terms.signature import ELLIPSIS, Axes, Bindings, Signature, broadcast, parse
from eqsat.terms.subscripts import Labels, of_lists, parse_subscripts
from eqsat.terms.term import (
    DType,
    Operator,
    Shape,
    Term,
    TermGraph,
    Type,
    Weak,
    attrs_key,
    postorder,
)
from eqsat.terms.type_rules import (
    BF16,
    BOOL,
    FLOAT_CODE,
    BySignature,
    Custom,
    Pointwise,
    ReducedAxes,
    ToDType,
    TypeRule,
    common,
    decode,
    dtype_code,
    dtype_of_code,
    encode,
    is_complex,
    is_float,
    rounding,
    typing,
)
from eqsat.terms.view_types import Gathered, Joined, Padded, Permuted, Sliced, ToShape
