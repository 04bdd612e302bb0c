"""How a program is written for others: a file, a Python module, a C library, ONNX.

Knows what a trace and a program are, and asks backends for code. What a file is, the
room ``saved`` knows. Start with ``program_file.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from eqsat.saving.c_library import save_library
    from eqsat.saving.calls import refuse_others
    from eqsat.saving.onnx_graph import model_of
    from eqsat.saving.program_file import save
    from eqsat.saving.python_module import save_module

__getattr__ = lazy_room(__name__, __file__)
