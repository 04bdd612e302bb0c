"""What runs machine code: the call's entry, its guards, the team of threads, results.

Knows a program as an address and arguments. Start with ``entry.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import result_pool
    from .entry import READ, NativeEntry, ProgramCode
    from .entry_code import ENTERING, ENTERING_DECLARED, ENTERING_PYTHON, TYPES
    from .guard_code import guards
    from .guard_tables import NoVariantError, Records, variant
    from .result_pool import arena_maker, fresh, maker
    from .shared_runtime import (
        TEAM_FUNCTIONS,
        is_available,
        program_imports,
        python_imports,
        run_alone,
        runtime,
        team_object,
    )
    from .team import asked, is_worth_sharing, thread_limit
    from .team_code import IF_AWAKE
    from .work_sharing_code import MOST_PARTS

__getattr__ = lazy_room(__name__, __file__)
