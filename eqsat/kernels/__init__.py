"""What one kernel may hold, what it costs, and programs made of kernels.

Knows the cost model, the plan of memory, and what a backend must offer. Does not know
how a program is found. Start with ``program.py``; ``backend.py`` is the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from eqsat.kernels import calibrate, measure_numpy
    from eqsat.kernels.backend import (
        Backend,
        Entry,
        Executable,
        backend_named,
        default_backend,
        pooled_bytes,
        printer,
        release_memory,
    )
    from eqsat.kernels.buffer_plan import Slot, bases_of, is_reshaped
    from eqsat.kernels.calibrate import measure_cpu, measured, numpy_calls, seconds
    from eqsat.kernels.clock_model import ClockModel, ExpectedTime, clock_of
    from eqsat.kernels.cost_model import (
        CPU,
        TURNED,
        CostModel,
        Device,
        nbytes,
        read_bytes,
        term_flops,
        times_computed,
    )
    from eqsat.kernels.decisions import decided, decides, rounds, zones
    from eqsat.kernels.fusion_state import (
        ATTENTION,
        CONTRACT,
        LEAF,
        LIBRARY,
        LIGHT,
        MAP,
        PLAIN,
        ROW,
        SQUEEZED,
        STORED,
        VIEW,
        State,
        hindrance,
        join,
        merged,
        refusal,
    )
    from eqsat.kernels.joins_in_place import LINE, starts_in
    from eqsat.kernels.kernel import (
        Kernel,
        View,
        body_over,
        inner,
        packed,
        strides_of_view,
    )
    from eqsat.kernels.measured_table import MeasuredTable
    from eqsat.kernels.numpy_call_times import between
    from eqsat.kernels.one_kernel import kernel_alone
    from eqsat.kernels.program import Program, show_bytes, show_type
    from eqsat.kernels.target import Target
    from eqsat.kernels.verify import verify_program

__getattr__ = lazy_room(__name__, __file__)
