"""The conditions of rules (``where=``): facts when a rule rewrites, tests when it runs
on arrays."""

from eqsat.rulelang.condition import *  # noqa: F403
from eqsat.rulelang.condition import __all__ as __all__
