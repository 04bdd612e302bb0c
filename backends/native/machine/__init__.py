"""The processor: vectors, caches, BLAS, LLVM, and values of its types.

Knows nothing of kernels. Start with ``host.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import blas
    from .c_layouts import (
        ALIGNED,
        C_CONTIGUOUS,
        OBJECTS,
        OWNDATA,
        WRITEABLE,
        Objects,
        each,
        every,
        expand,
        has_versions,
        is_as_expected,
        member_offset,
        words,
    )
    from .folding_builder import FoldingBuilder
    from .memory import ALIGNMENT, MemoryRef, aligned
    from .objects import compiled
    from .processor import (
        Host,
        LoadedObject,
        compile_ir,
        forget,
        holds_llvm,
        host,
        let_go_of_llvm,
        load,
    )
    from .tuning import COMMON, Tuning
    from .value_types import (
        F32,
        I1,
        I8,
        I32,
        I64,
        constant,
        from_memory,
        lanes_of,
        least,
        memory_type,
        most,
        register_type,
        splat,
        to_memory,
        widened,
    )

__getattr__ = lazy_room(__name__, __file__)
