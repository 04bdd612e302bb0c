"""Programs as files, which are loaded and run with NumPy alone.

Knows the file, the processor, and the C functions that NumPy brings. Knows nothing of
terms or of how code is made. Start with ``program.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from .description import (
        PROGRAM,
        ArrayType,
        Description,
        NamedTree,
        SavedArgument,
        SavedCalls,
        SavedCode,
        SavedLibrary,
        SavedResult,
        seal_of_code,
        seal_of_library,
    )
    from .numpy_functions import (
        OF_BLAS,
        SORT_KINDS,
        SORTED_DTYPES,
        BlasLibrary,
        blas_library,
        has_numpy_table,
        is_sort,
        numpy_table,
        sorts,
    )
    from .portable import CONSTANTS, PortableProgram, UnlinkedLibrary
    from .processor import LEVELS, NATIVE, feature, features, processors, system
    from .program import SavedProgram, digest_of, load
    from .saved_file import memory_address, replaced, section_of, write
    from .shared_object import IMPORTS, SEAL, is_possible
    from .trees import ARRAY, VALUE, Tree, tree_of

__getattr__ = lazy_room(__name__, __file__)
