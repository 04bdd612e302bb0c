"""Convolutions: windows as products, and direct loops for few kernels or channels.

Start with ``conv_plan.py``, which chooses among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.support import lazy_room

if TYPE_CHECKING:
    from . import conv_plan, kernel_lanes
    from .channel_lane_calls import ChannelCalls
    from .conv_calls import ImageCalls
    from .kernel_lane_calls import LaneCalls
    from .lanes_code import Lanes, LanesBlock
    from .large_kernel_calls import LargeKernelCalls
    from .large_kernels import ImageBlocks
    from .slide_code import SlideBlock, Slides
    from .taps_code import Taps, TapsBlock
    from .window_code import Stencil, Windows

__getattr__ = lazy_room(__name__, __file__)
