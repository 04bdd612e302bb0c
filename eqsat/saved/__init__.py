"""Programs as files, which are loaded and run with NumPy alone.

Knows the file, the processor, and the C functions that NumPy brings. Knows nothing of
terms or of how code is made. Start with ``program.py``.
"""

from eqsat.saved.description import (
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
from eqsat.saved.numpy_functions import (
    OF_BLAS,
    SORT_KINDS,
    SORTED_DTYPES,
    BlasLibrary,
    blas_library,
    has_numpy_table,
    numpy_table,
    sorts,
)
from eqsat.saved.portable import CONSTANTS, PortableProgram, UnlinkedLibrary
from eqsat.saved.processor import LEVELS, NATIVE, feature, features, processors, system
from eqsat.saved.program import SavedProgram, digest_of, load
from eqsat.saved.saved_file import replaced, section_of, write
from eqsat.saved.shared_object import IMPORTS, SEAL, is_possible
from eqsat.saved.trees import ARRAY, VALUE, Tree, tree_of
