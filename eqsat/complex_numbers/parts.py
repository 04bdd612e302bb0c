"""Real and imaginary parts, of real numbers too."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.complex_numbers.functions import call
from eqsat.complex_numbers.numpy_call import holds_complex


def real(x: Any) -> Any:
    """The real parts; ``x`` itself where it is real."""
    return call("real", x) if holds_complex(x) else x


def imag(x: Any) -> Any:
    """The imaginary parts, 0 where ``x`` is real."""
    return call("imag", x) if holds_complex(x) else np.zeros_like(x)


def conjugate(x: Any) -> Any:
    """x with the opposite imaginary part; ``x`` itself where it is real."""
    return call("conjugate", x) if holds_complex(x) else x


def with_parts(real: Any, imag: Any) -> Any:
    """Complex numbers of their parts, which have the same shape and dtype."""
    return call("with_parts", real, imag)
