"""Programs as kernels for GPUs: one body, printed as Metal and as CUDA C++.

Nothing here needs a GPU or a library of one: the texts are made on any machine. Start
with ``gpu_program.py``.
"""

from .few_row_products import with_sums
from .generated import Generated, KernelOperand, LibraryCall, Part
from .gpu_program import (
    layouts_of,
    maps_of_rows,
    one_kernel,
    parts_of,
    view_layout,
)
from .minify import compact
