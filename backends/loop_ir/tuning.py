"""Numbers of how loops are cut that were chosen by measuring, and what is known of how.

What follows from hardware or mathematics is no tuning: it stays where it is used. The
native backend adds its own numbers, and what differs between families of processors, in
``native/machine/tuning.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

UNKNOWN = "not recorded"
"""What is said where nobody wrote it down."""
EPYC = "AMD EPYC (Zen 4, AVX-512)"


def number(
    value: T,
    meaning: str,
    measured: str = UNKNOWN,
    on: str = UNKNOWN,
    gained: str = UNKNOWN,
) -> T:
    """A number of a table: what it says, what was ``measured`` to choose it, ``on``
    what machine, and what it ``gained``."""
    known: dict[str, Any] = {
        "meaning": meaning,
        "measured": measured,
        "on": on,
        "gained": gained,
    }
    return field(default=value, metadata=known)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class LoopTuning:
    """The numbers by which kernels become loops, for processors and GPUs."""

    # Values that are kept, and products without panels.
    worth_keeping: int = number(
        4,
        "Additions beyond which a value is kept for a later pass, not computed again.",
    )
    kept_bytes: int = number(
        1 << 20,
        "Most bytes of a row that are kept; longer rows are computed again.",
    )
    again: tuple[int, int] = number(
        (16, 64),
        "Additions that take as long as to write an element and to read it again, in a "
        "cache and in memory.",
        "two to four steps of stencils of 3 and 5 points, differences of functions, "
        "pools of normalised channels; 1 to 16 MB",
        "AMD EPYC (Zen 5, AVX-512)",
        "smoothing in one nest 0.57 of the time with 16, not 8; in memory 0.7 of the "
        "time with 64, not 24; pools of normalised channels 0.4 of what four places "
        "for all ops gave",
    )
    again_bytes: int = number(
        1 << 23, "Bytes of an array from which on it is in memory."
    )
    short_sum: int = number(
        8,
        "Elements of a sum, and columns of the result, up to which a product is "
        "written out.",
        "50,000 products of 3×3 by vectors, and by 3×3; colours by 3×3",
        gained="by vectors 0.06 of the time, by 3×3 0.15, colours 0.43",
    )
    few_short_rows: int = number(
        16,
        "Rows of a matrix beyond which products in panels are faster, but for "
        "shorter sums.",
        "100,000 rows of 8 by 8×8",
        gained="in panels 0.86 of the time",
    )
    short_sum_of_many: int = number(
        4,
        "Elements of a sum that is written out for more rows than that.",
        "100,000 rows of 3 by 3×3",
        gained="in panels they take 1.06 of the time",
    )
    small_source: int = number(
        32,
        "How many times smaller what a matrix is made of is computed beforehand.",
    )
    rows_together: tuple[int, ...] = number(
        (16, 8, 4, 2, 1),
        "Rows of a computed matrix that may be computed together, the best number "
        "first: what they have in common is computed once for them.",
    )
    woven: int = number(
        8,
        "Parts that are written together where they are joined element by element.",
        "cross products of 200,000 vectors, products of quaternions",
        gained="0.35 and 0.28 of the time",
    )

    # Convolutions by large kernels that lie in few places.
    turned_places: int = number(
        4, "Places of all images from which on they are a product by kernels."
    )
    turned_kernels: int = number(
        4, "Kernels for which fewer places are: what is under them is not gathered."
    )
    turned_area: int = number(
        16,
        "Elements of a kernel that such a product has in each channel at least.",
        "derivatives of convolutions by their kernels",
        gained="a third of the time for all of the method",
    )

    # Tiles of maps that read across their rows.
    tile: tuple[int, int] = number(
        (16, 64), "Most rows and columns of a tile that is read across its rows."
    )
    folded_tile: tuple[int, int] = number(
        (64, 16),
        "The same where rows are a multiple of folded_bytes apart: their lines fall on "
        "the same few places of a cache, which holds those of 16 rows, not of 64.",
        "transposed copies of 256×256 to 2048×2048 float32",
        EPYC,
        "a quarter of the time",
    )
    folded_bytes: int = number(1024, "See folded_tile.")
    least_tile: int = number(4, "Rows and columns below which tiles do not pay.")

    # Sorted rows.
    network_row: int = number(
        32,
        "Elements of a row that a network sorts, where rows lie side by side.",
        "time to compile: longer ones take a second",
        gained="1000 rows of 8 float32 take 4.5 µs (NumPy 48)",
    )
    network_row_apart: int = number(
        9,
        "The same where rows lie each by itself, but for powers of 2.",
        "time to compile: longer ones take a second",
    )
    network_rows: int = number(4, "Rows that are worth vectors.")

    # Reductions in parts, and what is computed before a nest.
    split_elements: int = number(
        1 << 16, "Elements from which threads split a reduction of few rows."
    )
    swept_elements: int = number(
        1 << 19,
        "Elements from which one thread splits a reduction to one number.",
        "calls over 4 MiB that follow each other",
        "Intel Xeon with 2 MiB of second cache",
        "sums in 0.72 to 0.76 of the time, with sweeps in turns",
    )
    parts: int = number(32, "Parts of a reduction of few rows.")
    least_part: int = number(
        32, "Elements that a part has of each row, where rows lie side by side."
    )
    most_beside_bytes: int = number(
        1 << 23,
        "Bytes in all from which on rows side by side have no parts.",
        "reductions of columns from memory",
        gained="in parts they take as long, or up to 1.05 times as long",
    )
    sum_ends_bytes: int = number(
        3 << 19,
        "What a second cache keeps of columns in memory that one thread sums. Of more "
        "than most_beside_bytes the ends are parts of their own: a call that runs the "
        "other way finds one of them in the cache.",
        "sums of columns of 16 and 32 MB",
        "Intel Xeon with 2 MiB of second cache; " + EPYC,
        "0.95 and 0.97 of the time; EPYC 0.83 to 0.91, and 0.92",
    )
    ends_width: int = number(1024, "Columns up to which ends are parts of their own.")
    most_with_ends_bytes: int = number(1 << 26, "Bytes of all up to which they are.")
    tall_width: int = number(
        64, "Columns from which on tall ones are reduced before what follows."
    )
    tall_elements: int = number(
        1024,
        "Elements of a column that is tall.",
        "variances of 8192×1024 and 65,536×100 float32, means taken off them",
        gained="0.46 and 0.30, and 0.7 and 0.34 of the time; 300×3000 would take 1.6",
    )
    tall_bytes: int = number(
        1 << 20, "Bytes of all columns above which no second cache holds them."
    )
    whole_panels: int = number(
        128,
        "Columns, or multiples, of which a nest goes through memory in whole panels.",
        "softmax down 65,536 rows of 100, 64 and 256 with exponentials in memory",
        gained="0.45, 0.66 and 1.1 of the time",
    )
    again_rows: int = number(
        16,
        "Rows from which what takes long to compute of columns is computed before.",
        "batch norms of 512 rows, with the roots of 512 variances",
        gained="half the time",
    )
    added_elements: int = number(
        64,
        "Elements of a slice that are worth a thread where slices are added.",
    )


LOOPS = LoopTuning()
"""The numbers where no target is at hand: no family of processors changes these."""
