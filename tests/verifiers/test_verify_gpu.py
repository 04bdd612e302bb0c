"""Defects planted in kernels for GPUs are caught, each by its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from natives import fused
from planted import caught
from programs import program_of

from eqsat import ops
from eqsat.backends.gpu.c_code.dialect import DIALECTS
from eqsat.backends.gpu.generated import Generated, Part
from eqsat.backends.gpu.gpu_program import parts_of
from eqsat.backends.gpu.verify import verify
from eqsat.backends.loop_ir.index_maps import (
    Affine,
)
from eqsat.backends.loop_ir.nest import (
    Accumulate,
    Const,
    Load,
)
from eqsat.kernels.kernel import Kernel
from eqsat.ops.transcendental import tanh

STAGE = "gpu kernels"


@dataclass
class Made:
    """A kernel and what computes it on a GPU."""

    kernel: Kernel
    parts: list[Part]

    def check(self, i: int = 0, **changes: Any) -> None:
        """Verify with changes of one part."""
        parts = [*self.parts]
        parts[i] = replace(parts[i], **changes)
        verify(parts, self.kernel, {})

    def source(self, i: int = 0, **changes: Any) -> None:
        """Verify with changes of how one part is written and started."""
        self.check(i, source=replace(self.part(i).source, **changes))

    def text(self, old: str, new: str, i: int = 0) -> None:
        """Verify with other words in the text of one part."""
        body = self.part(i).source.body
        assert old in body
        self.source(i, body=body.replace(old, new))

    def part(self, i: int = 0) -> Generated:
        part = self.parts[i]
        assert isinstance(part, Generated)
        return part


def made_of(f: Callable[..., Any], *shape: int, language: str = "metal") -> Made:
    (kernel,) = program_of(f, np.zeros(shape, np.float32)).kernels
    return Made(kernel, parts_of(kernel, DIALECTS[language], {}))


@pytest.fixture(scope="module")
def wide() -> Made:
    """Elements, several of which each thread takes."""
    return made_of(fused(lambda x: tanh(x) * 2.0, 1), 40, 33)


@pytest.fixture(scope="module")
def long() -> Made:
    """A row for each thread group."""
    return made_of(ops.softmax, 64, 4100)


@pytest.fixture(scope="module")
def short() -> Made:
    """Rows of which a group takes several."""
    return made_of(ops.softmax, 1001, 40)


@pytest.fixture(scope="module")
def columns() -> Made:
    """Rows side by side."""
    return made_of(lambda x: ops.sum(x, 0), 64, 4100)


@pytest.fixture(scope="module")
def split() -> Made:
    """Few long rows, in two steps."""
    return made_of(lambda x: ops.sum(x, 1), 2, 1 << 20)


@pytest.mark.parametrize("language", ["metal", "cuda"])
@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (fused(lambda x: tanh(x) * 2.0, 1), (40, 33)),
        (fused(lambda x: tanh(x).mT * 2.0, 1), (40, 33)),
        (ops.softmax, (64, 4100)),
        (ops.softmax, (1001, 40)),
        (ops.softmax, (5000, 3)),
        (lambda x: ops.softmax(x, axis=0), (64, 100)),
        (lambda x: ops.sum(x, 0), (64, 4100)),
        (lambda x: ops.argmax(x, 1), (7, 1000)),
        (lambda x: ops.sum(x, 1), (2, 1 << 20)),
        (ops.softmax, (2, 1 << 20)),
    ],
)
def test_what_is_generated_breaks_no_rule(
    f: Callable[..., Any], shape: tuple[int, ...], language: str
) -> None:
    made = made_of(f, *shape, language=language)
    verify(made.parts, made.kernel, {})


# -- nests and memory ------------------------------------------------------------------


def test_an_unknown_reduction(long: Made) -> None:
    nest = (
        long.part()
        .nests[0]
        .changed(lambda s: replace(s, op="median") if isinstance(s, Accumulate) else s)
    )
    with caught(STAGE, "median of v", "its reduction is known"):
        long.check(nests=(nest,))


def test_a_loop_past_the_end_of_its_buffer(wide: Made) -> None:
    nest = (
        wide.part()
        .nests[0]
        .changed(
            lambda s: replace(s, at=s.at + Affine(1)) if isinstance(s, Load) else s
        )
    )
    with caught(STAGE, "b0[", "inside of its memory"):
        wide.check(nests=(nest,))


def test_a_value_that_is_read_before_it_is_made(wide: Made) -> None:
    nest = wide.part().nests[0]
    (only,) = nest.passes
    turned = replace(only, body=only.body[::-1])
    with caught(STAGE, "part 0", "made before it is read"):
        wide.check(nests=(replace(nest, passes=(turned,)),))


def test_a_parameter_of_another_type(wide: Made) -> None:
    (x,) = wide.part().inputs
    with caught(STAGE, "b0", "the dtype of its buffer"):
        wide.check(inputs=(replace(x, dtype=np.dtype(np.float16)),))


def test_numbers_of_64_bits(wide: Made) -> None:
    number = Const(99, np.dtype(np.float64), 2.0)
    nest = wide.part().nests[0]
    (only,) = nest.passes
    longer = replace(only, before=(*only.before, number))
    with caught(STAGE, "part 0", "a GPU computes in 32 bits"):
        wide.check(nests=(replace(nest, passes=(longer,)),))


def test_an_input_that_is_not_given(wide: Made) -> None:
    with caught(STAGE, "part 0", "its inputs are buffers"):
        wide.source(inputs=())


def test_a_part_that_reads_what_a_later_one_writes(split: Made) -> None:
    assert len(split.parts) == 2
    with caught(STAGE, "part 0", "was written by an earlier part"):
        verify(split.parts[::-1], split.kernel, {})


def test_a_result_that_is_written_by_two_parts(wide: Made) -> None:
    with caught(STAGE, "part 1", "memory is written once"):
        verify(wide.parts * 2, wide.kernel, {})


# -- grids -----------------------------------------------------------------------------


def test_a_grid_that_does_not_cover_the_elements(wide: Made) -> None:
    with caught(STAGE, "part 0", "the grid covers the result"):
        wide.source(groups=wide.part().source.groups - 1)


def test_a_grid_that_does_not_cover_the_rows(long: Made, short: Made) -> None:
    for made in (long, short):
        with caught(STAGE, "part 0", "the grid covers the rows"):
            made.source(groups=made.part().source.groups - 1)


def test_a_grid_that_does_not_cover_the_columns(columns: Made) -> None:
    with caught(STAGE, "part 0", "the grid covers the columns"):
        columns.source(groups=columns.part().source.groups - 1)


def test_threads_past_the_rows(short: Made) -> None:
    with caught(STAGE, "part 0", "no thread goes past the rows"):
        short.text("if (row >= 1001) return;", "")


def test_threads_past_the_columns(columns: Made) -> None:
    with caught(STAGE, "part 0", "no thread goes past the columns"):
        columns.text("inside = c < 4100;", "inside = true;")


def test_a_group_that_no_device_starts(long: Made) -> None:
    with caught(STAGE, "part 0", "groups of 1 to 1024 threads"):
        long.source(group=2048)


def test_lanes_that_do_not_run_in_step(short: Made) -> None:
    with caught(STAGE, "part 0", "lanes run in step"):
        short.source(group=short.part().source.group + 1)


def test_more_memory_than_a_group_has(long: Made) -> None:
    with caught(STAGE, "part 0", "threads share so many bytes"):
        long.text("[32];", "[32000];")


@pytest.fixture(scope="module")
def joined() -> Made:
    """Two maps in one kernel."""
    f = fused(lambda x: ops.concatenate([tanh(x), x[:30] * 2.0], axis=0), 1)
    return made_of(f, 40, 33)


def test_a_joined_kernel_without_the_groups_of_a_part(joined: Made) -> None:
    with caught(STAGE, "part 0", "groups are those of its parts"):
        joined.source(groups=joined.part().source.groups - 1)


def test_a_joined_kernel_of_larger_groups(joined: Made) -> None:
    with caught(STAGE, "part 0", "groups of all parts are as large"):
        joined.source(group=2 * joined.part().source.group)


def test_a_part_of_a_joined_kernel_that_does_not_cover_its_elements(
    joined: Made,
) -> None:
    first, second = joined.part().source.joined
    fewer = replace(second, groups=second.groups - 1)
    with caught(STAGE, "part 0", "the grid covers the result"):
        joined.source(joined=(first, fewer), groups=joined.part().source.groups - 1)


# -- texts -----------------------------------------------------------------------------


def test_a_parameter_that_the_text_does_not_use(wide: Made) -> None:
    with caught(STAGE, "part 0", "its parameters and no others"):
        wide.text("b0", "b1")


def test_a_parameter_that_is_not_declared(wide: Made) -> None:
    with caught(STAGE, "part 0", "its parameters and no others"):
        wide.text("b0", "b7")


def test_a_name_that_is_not_declared(long: Made) -> None:
    with caught(STAGE, "r0[", "declared where it is used"):
        long.text("float r0[8];", "")


def test_a_name_that_is_used_outside_of_its_block(long: Made) -> None:
    body = long.part().source.body
    inside = next(x.strip() for x in body.splitlines() if " v2 = " in x)
    with caught(STAGE, "v2", "declared where it is used"):
        long.source(body=body + "const float a99 = v2;\n")
    assert inside


def test_a_block_that_does_not_end(long: Made) -> None:
    body = long.part().source.body.rstrip()
    with caught(STAGE, "part 0", "blocks begin and end"):
        long.source(body=body + "\n{\n")
    with caught(STAGE, "part 0", "blocks begin and end"):
        long.source(body=body + "\n}\n")


def test_a_barrier_that_some_threads_miss(columns: Made, long: Made) -> None:
    with caught(STAGE, "EQ_BARRIER();", "come to its barriers"):
        columns.text("EQ_BARRIER();", "if (inside) {\nEQ_BARRIER();\n}")
    with caught(STAGE, "EQ_BARRIER();", "come to its barriers"):
        columns.text("EQ_BARRIER();", "if (y > 3) return;\nEQ_BARRIER();")
    body = long.part().source.body
    row = next(x for x in body.splitlines() if " row = " in x)
    with caught(STAGE, "eq_group<", "come to its barriers"):
        other = row.replace("group", "lane")
        long.text(row, f"{other}\nif (row >= 64) return;")
