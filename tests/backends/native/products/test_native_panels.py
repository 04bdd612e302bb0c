"""Constants in panels are the same however their elements lie in memory."""

import itertools

import numpy as np
import pytest

from eqsat.backends.loop_ir import Layout
from eqsat.backends.native.products.tiles import Panels

RNG = np.random.default_rng(2)


def lying(array, order):
    """``array`` with axes in another order in memory."""
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def filled(panels, array):
    out = np.full(panels.elements, np.nan, np.float32)
    panels.fill(out, panels.given(array))
    return out


@pytest.mark.parametrize("kept", [(), (3,)])
@pytest.mark.parametrize("columns", [5, 32, 50])
def test_order_in_memory(kept, columns):
    rows = 7
    whole = RNG.standard_normal((*kept, columns, 1, rows)).astype(np.float32)
    apart = [columns * rows] * len(kept)
    plain = Layout((*apart, columns, 1))
    turned = Layout((*apart, 1, rows))
    flat = Layout((*apart, 2, 2 * columns))
    for layout in (plain, turned, flat):
        k, n = (rows, columns) if layout is not flat else (columns // 2, rows // 2)
        panels = Panels(kept, (k, n), layout, 3, 16)
        want = filled(panels, whole)
        for order in itertools.permutations(range(whole.ndim)):
            got = filled(panels, lying(whole, order))
            np.testing.assert_array_equal(got, want)


def test_one_number_for_all():
    whole = np.broadcast_to(np.float32(2), (40, 30))
    panels = Panels((), (30, 40), Layout((1, 30)), 3, 16)
    want = filled(panels, np.ascontiguousarray(whole))
    np.testing.assert_array_equal(filled(panels, whole), want)
