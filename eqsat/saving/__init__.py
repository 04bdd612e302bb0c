"""How a program is written for others: a file, a Python module, a C library, ONNX.

Knows what a trace and a program are, and asks backends for code. What a file is, the
room ``saved`` knows. Start with ``program_file.py``.
"""

from eqsat.saving.c_library import save_library
from eqsat.saving.onnx_graph import model_of
from eqsat.saving.program_file import save
from eqsat.saving.python_module import save_module
