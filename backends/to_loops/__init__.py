"""Kernels of terms become loops: values at index expressions, in order, as nests.

Knows which values a kernel needs and which pass computes each. Does not know what code
they become. Start with ``lower.py``, then ``values.py``.
"""

from .computed_operands import mapped, work
from .constant_values import DeferredConstant, opened, source_of_pairs
from .lower import copy_of, pieces_of
from .narrow_products import is_short
from .nesting import ELIMINATIONS
from .schedule import LoopTarget
