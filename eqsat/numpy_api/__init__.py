"""NumPy on traced values: operators, methods, ufuncs (NEP 13), functions (NEP 18)."""

from eqsat.numpy_api.functions import supported_functions
from eqsat.numpy_api.operators import Operators

__all__ = ["Operators", "supported_functions"]
