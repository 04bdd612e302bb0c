"""NumPy on traced values: operators, methods, ufuncs (NEP 13), functions (NEP 18).

Knows how each function of NumPy is said in ops, indexing included. Does not know how
values are traced. Start with ``operators.py``; ``table.py`` lists the functions.
"""

# These enter their functions into the table.
from eqsat.numpy_api import arrange as arrange
from eqsat.numpy_api import compute as compute
from eqsat.numpy_api import counting as counting
from eqsat.numpy_api import linalg as linalg
from eqsat.numpy_api import matrices as matrices
from eqsat.numpy_api import order as order
from eqsat.numpy_api import spaces as spaces
from eqsat.numpy_api import statistics as statistics
from eqsat.numpy_api import windows as windows
from eqsat.numpy_api.asking import SHOW, WRITE, are_of_numpy
from eqsat.numpy_api.at_end import (
    AtEnd,
    EndStep,
    announced,
    as_mask,
    at_end,
    operands,
    replaced_in,
)
from eqsat.numpy_api.foreign import (
    BUFFER,
    TORCH,
    ForeignKind,
    check_together,
    kind_of,
    memory_of,
    refuse_outside,
    tensor_memory,
    tensor_of,
    type_name,
)
from eqsat.numpy_api.functions import (
    call_function,
    call_traced,
    composed,
    supported_functions,
)
from eqsat.numpy_api.indexing import (
    are_together,
    check_key,
    extent_of,
    flat_places,
    getitem,
    in_bounds,
    is_mask,
    key_along,
    key_items,
    key_parts,
    row_of,
)
from eqsat.numpy_api.masked_index import Selected, where_under
from eqsat.numpy_api.operands import (
    ELSEWHERE,
    INSTEAD,
    array,
    check_float_errors,
    chosen,
    held,
    holds_traced,
    judged,
    name_of,
    operand,
    plain_number,
    refuse_argument,
    refuse_function,
    refuse_subclass,
    settled,
    stacked,
    values_in,
)
from eqsat.numpy_api.operators import Operators
from eqsat.numpy_api.ufuncs import call_ufunc
