"""Numbers that were chosen by measuring, in one table for each family of processors.

Each says what was measured, on what machine, and what it gained, where that is known.
A table begins with the numbers for all processors, those of loops among them
(:class:`~...loop_ir.LoopTuning`), and changes what its family does otherwise. What
follows from hardware or mathematics, such as registers and lines of caches, is no
tuning: it stays where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...loop_ir import (
    EPYC,
    LoopTuning,
    number,
)

XEON = "Intel Xeon (Emerald Rapids)"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Tuning(LoopTuning):
    """The numbers for all processors."""

    # What differs between families.
    has_fast_bfloat_pairs: bool = number(
        False,
        "Whether the instruction that multiplies and sums pairs of bfloat16, where "
        "there is one, is faster than to widen and multiply them.",
        "products of bfloat16 by constants",
        XEON,
        "the instruction takes 1.9 times as long there",
    )
    has_fast_gathers: bool = number(
        False,
        "Whether one instruction reads the elements of a vector from anywhere, where "
        "there is one, sooner than as many reads.",
    )
    foresees_reads: bool = number(
        False,
        "Whether the processor foresees what sums read so well that several streams of "
        "memory at once, or asking for it ahead, take longer.",
        "sums of two large arrays, and of large columns by several threads",
        XEON,
        "streams and asking take 0.80 to 0.97, and 0.85 to 0.95 of the time; norms and "
        "variances of long rows 0.92 to 0.99, a group_norm of 100 KB rows 0.82",
    )

    # What caches hold.
    first_cache_bytes: int = number(
        48 << 10, "What a first cache holds, where asking takes longer than it saves."
    )
    second_cache_bytes: int = number(
        1 << 20,
        "What a second cache holds, from which asking for memory takes longer than "
        "waiting.",
    )
    far_bytes: int = number(1 << 24, "What no cache holds.")
    streamed_bytes: int = number(
        1 << 24,
        "Results from which caches are left to what is read: half of a large L3.",
    )

    # How nests are cut: loops/vector_shape.py.
    map_block: int = number(8192, "Elements in a unit of a long loop.")
    unroll: int = number(
        4,
        "Vectors in a step of the innermost loop, where its work is light.",
        "softmax of rows in cache: two rows abreast, passes of several in one loop",
        gained="nothing more: with AVX-512 the units are busy",
    )
    light_statements: int = number(
        24, "Statements of a body up to which its work is light."
    )
    panel_width: int = number(
        1024, "Most rows that lie side by side in memory and are reduced together."
    )
    least_panel_width: int = number(64, "Fewest such rows.")
    panel_part: int = number(
        128,
        "Elements of each row of a panel, after which sums are carried over.",
        "sums of 8192 rows of 1024, carried over after 64",
        gained="after 64 they take 1.01 times as long",
    )
    rows_at_once: int = number(
        2,
        "Elements of each row of a panel that are read before the next rows.",
        "maxima of 1024 rows of 1024 elements",
        gained="42 µs; by four at once 46, one by one 56 to 60",
    )
    far_extremes_at_once: tuple[int, int] = number(
        (4, 8),
        "The same for extremes of what no second cache holds, by one thread and by "
        "several.",
        "maxima of 8192 rows of 1024 elements by two threads",
        gained="0.50 ms; by four at once 0.57, by two 0.74, one by one 0.90; one "
        "thread of an EPYC 0.86 of two at once for 4096×1024",
    )
    far_sums_at_once: int = number(
        4,
        "The same for sums of what no cache may hold, by several threads, unless the "
        "processor foresees one by one better.",
        "sums of 8192 rows of 1024 by two threads",
        XEON,
        "0.53 ms; by two at once 0.59, one by one 0.63",
    )
    in_order_width: int = number(
        512,
        "Rows of a panel, or multiples, of which sums read one element each at a time, "
        "from end to end of memory.",
        "sums from a second cache",
        gained="0.75 of the time that four streams take; EPYC 0.87 of two",
    )
    most_written_out: int = number(
        32, "Vectors that are written out where they run on from row to row."
    )
    most_scattered: int = number(
        5,
        "Those of them whose elements are stored one by one, since rows end in gaps.",
        "rows of 3 to 14 float32 and float64 between borders, and joined",
        EPYC,
        "1.0 of the time for 7 to 14 in a third to two thirds of the code; 1.1 to 1.3 "
        "for 3 to 6",
    )
    short_row_vectors: tuple[int, int] = number(
        (2, 4),
        "Vectors that a short row has: one whose elements are written, and others.",
        "powers of 10 columns of float64, summed",
        gained="a ninth of the time for lanes from many rows",
    )
    long_waiting_row: int = number(
        128,
        "Elements of a row from which on the processor does not look far enough ahead "
        "to begin the next row while each element waits for the one before it.",
        "running products of 1000 rows of 252",
        gained="float32 0.46, float64 0.75 of the time, four rows at once",
    )
    most_reads: int = number(
        16,
        "Vectors of memory that are read for one vector of elements that lie apart.",
    )

    # Asking for memory ahead: loops/prefetch.py.
    rows_ahead: int = number(
        16, "Rows that are asked for before they are read, where they lie side by side."
    )
    ahead_bytes: int = number(
        8192,
        "How far ahead memory is asked for that is read from end to end, in all arrays "
        "together.",
        "sums of one array in a third cache and from memory; maps",
        gained="0.8 of the time, from memory 0.83 with half of it; maps from memory "
        "0.85 to 0.98, from a third cache nothing",
    )
    near_ahead_bytes: int = number(
        2048,
        "How far ahead in each array that a second cache holds: arrays of NumPy mostly "
        "lie 16 bytes behind the start of a line, so that vectors lie in two.",
        "sums of one array, light maps of two",
        gained="0.8 of the time, at the start of a line 1.05; maps 0.87 to 0.94, at "
        "the start of a line 1.03",
    )
    bare_statements: int = number(
        8, "Statements of a body up to which it waits for memory in a second cache."
    )
    next_row_bytes: int = number(
        1 << 15,
        "Rows up to which the next one is asked for while this one is computed.",
        "variances and norms of 256×512 to 4096×1024",
        EPYC,
        "0.80 to 0.96 of the time, softmax as long",
    )
    next_heavy_row_bytes: int = number(
        1 << 17,
        "The same where functions of it are computed that take longer than memory.",
        "softmax of rows of 39 to 117 KiB",
        gained="0.84 to 0.88 of the time from a third cache, 0.92 from memory; norms "
        "would take 1.04 to 1.08",
    )
    picked_row_bytes: int = number(
        1024,
        "How much of the next row that an index picks is asked for.",
        "embeddings of 256 and 768 elements",
        EPYC,
        "0.87 to 0.94 of the time",
    )

    # Which way memory is gone through: loops/sweep_direction.py.
    sweep_bytes: int = number(
        1 << 21,
        "What a nest touches for each thread from which its direction counts.",
        "calls over 4 and 32 MiB that follow each other",
        "Intel Xeon with 2 MiB of second cache",
        "0.72 to 0.95 of the time, variances of columns 0.6; over 32 MiB sums 0.97",
    )
    slice_bytes: int = number(
        1 << 18,
        "What it touches in a slice: where one begins, memory has not been asked for.",
    )

    # Values that are copied: plan/.
    reread: int = number(
        16,
        "How often elements are read that are copied into columns first.",
        "distances, overlaps and nearest points",
        gained="0.13 to 0.9 of the time for the method",
    )
    copy_elements: int = number(1 << 12, "Elements of a nest that are worth a copy.")
    copy_bytes: int = number(
        1 << 18, "Of copies of one dtype: they stay in the second cache."
    )
    turned_row: int = number(
        128, "Elements of a row for which lanes are turned along rows."
    )
    turned_vectors: int = number(4, "Vectors of rows that are then beside each other.")
    varying_numbers: int = number(
        8,
        "Numbers in one place of a kernel from which on it reads them from memory.",
        "250 steps of Adam and the like, as one function of machine code",
        gained="time to compile; a known number needs no load",
    )
    written_groups: int = number(
        16,
        "Groups up to which a program has code for each one.",
        "time to compile: LLVM takes time with the square of a function",
    )

    # Nests that run plane by plane: plan/planes.py.

    least_planes: int = number(
        4,
        "Planes of each thread, or more, where nests run plane by plane.",
        "windows of images of few channels: threads wait for the last plane",
    )
    planes_bytes: int = number(
        1 << 14,
        "Bytes between such nests of the planes that they run for in turn.",
        "windows of images; half of the smallest first cache",
    )

    # Products: products/, plan/groups.py.
    strip_bytes: int = number(
        1 << 15,
        "Rows of a tile of the left operand that are multiplied at once: they stay in "
        "the first cache, the panel of the right operand in the second.",
    )
    product_rows: int = number(
        192,
        "Rows of a product that are multiplied at once, and stay in cache for what "
        "follows.",
    )
    turned_bytes: int = number(
        2048,
        "Rows of a result up to which a left operand whose rows lie side by side is "
        "read so; for longer ones it is brought into order.",
        "50 times 90×70 by their own transposes, 64×64×64",
        "AMD EPYC (Zen 3)",
        "0.92, 0.95 of the time",
    )
    set_bytes: int = number(
        2048,
        "Multiples of which lie in few sets of a cache: 1024×3000×200 takes 1.25 times "
        "as long if it is read so.",
    )
    masked_rows: int = number(
        48,
        "The same of scores under a mask: few, so that most have one reach.",
        "causal attention",
        gained="1.3 to 1.75 times as fast for leaving out columns",
    )
    masked_columns: int = number(
        64, "Scores of a row from which on it is worth looking at the mask."
    )
    gram_share: float = number(
        0.6,
        "About what share of a product of a matrix by its own transpose is computed.",
        "350×120 by its own transpose, scaled and added to: not scaled beforehand",
        "AMD EPYC (Zen 3)",
        "0.7 of the time",
    )
    lying_bytes: int = number(
        1 << 15,
        "Of operands up to which they are read where they lie: the first cache keeps "
        "them.",
        "16 to 96 rows by 300×64, 300×128 and 64×64, batches of 48×80",
        "AMD EPYC (Zen 3)",
        "0.7 to 0.95 of the time for packing larger ones, 1.05 to 1.09 smaller ones",
    )
    lying_rows: int = number(
        16, "Rows of a product up to which its right operand is read where it lies."
    )
    even_tiles: int = number(
        4,
        "Tiles up to which rows are shared evenly between them: each height is code.",
        "9 to 25 rows by 512×1024 and 256×256",
        EPYC,
        "0.63 to 0.87 of the time",
    )
    small_product: int = number(
        10**6,
        "Multiply-adds of a product up to which OpenBLAS has kernels for small "
        "matrices, with AVX-512.",
        "batches of matrices of 17 to 150 rows and columns, which do not fill tiles",
        "AMD EPYC (Zen 4); Emerald Rapids",
        "0.4 to 0.99 of the time of generated code",
    )
    copied_rows: int = number(
        16, "Rows of the right operand that are copied into panels together."
    )
    packed_per_s: float = number(1e10, "Bytes that one core brings into panels (1/s).")
    thread_columns: int = number(
        128,
        "Columns that are worth a thread where a row vector is multiplied.",
        "500×500 numbers of 8 bytes, two threads",
        EPYC,
        "0.7 of the time",
    )
    line_rows: int = number(8, "Rows of a matrix that are added in one go.")
    line_bytes: int = number(
        1 << 14,
        "What is kept of such a result in the first cache, and read of each row.",
        "a row vector by a matrix from memory",
        gained="82 GB/s, where 4096 bytes give 47",
    )
    dot_rows: int = number(4, "Rows whose dot products are computed side by side.")
    register_rows: int = number(
        4,
        "Rows up to which a matrix that is computed is multiplied in registers.",
        "one row by 2048×2048 weights in 8 and 4 bits",
        gained="a third to a seventh of the time for the method",
    )
    computed_vectors: int = number(
        4, "Vectors of columns of it that one row is multiplied by in one go."
    )
    computed_ahead: int = number(
        4, "Blocks of its rows that are asked for before they are read."
    )
    waiting_rows: int = number(
        16,
        "Rows up to which a product waits for a constant that is twice as large as it "
        "could be; for more of them it is worth computing once.",
    )
    light_additions: int = number(
        12, "Additions an element up to which a constant is computed at each call."
    )

    # Convolutions: convolutions/.
    conv_inner: int = number(
        1024, "Elements of kernels that are multiplied at once, in whole channels."
    )
    conv_panel_bytes: int = number(
        1 << 18, "Columns that are gathered at once: they stay in the second cache."
    )
    conv_kernel_bytes: int = number(
        1 << 18, "Rows of kernels that are multiplied by all of these columns."
    )
    finished_bytes: int = number(
        1 << 15,
        "Results that what follows a convolution finishes before others are computed.",
        "networks of small kernels by two threads: 0.92 to 0.98 of the time",
    )
    shared_line_cost: int = number(
        16,
        "A line of a cache that two threads write to, in lines that one of them reads.",
        "chains of 1×1 and 3×3 convolutions, two processors that share no cache: "
        "at 55×55 places 1.3 µs for each kernel more than at 56×56",
        EPYC,
    )
    lying_kernels: int = number(
        256,
        "Kernels of 1×1 up to which images are read where they lie.",
        "convolutions to 1×1",
        gained="0.78 to 0.95 of the time, for few kernels 0.4 to 0.56",
    )
    even_parts: int = number(
        4, "Parts for each thread from which on some may have one more."
    )
    stencil_kernels: int = number(
        4,
        "Kernels of one channel that are written out: gathering a column costs as much "
        "as multiplying some rows.",
        "3×3 and 5×5 over 64 channels of 56×56 each by itself, over one of 256×256",
        EPYC,
        "moving kernels take 1.2 to 1.9 times as long",
    )
    stencil_taps: int = number(
        49,
        "Elements of a kernel that is written out.",
        "7×7 over 64 channels of 14×14 and 8×8, and of 56×56 with strides of 2",
        EPYC,
        "0.07 and 0.11, and 0.54 of the time",
    )
    best_taps: int = number(30, "Those up to which no loop is faster.")
    stencil_rows: int = number(4, "Rows of a result that a stencil computes together.")
    stencil_places: int = number(1024, "Places of the only row, in one part.")
    image_bytes: int = number(
        1 << 18,
        "Of the rows of many channels that a part reads: the second cache keeps them.",
    )
    slide_rows: int = number(
        4,
        "Rows of a result that a moving kernel computes together.",
        "Gmac/s of kernels of 3, 5, 7 rows, of lines that are cut, and with nothing "
        "counting twice, with AVX-512",
        gained="29, 47, 65, 58, where 30 count nothing twice; np.convolve and blurs "
        "0.03 to 0.3 of the time",
    )
    slide_kernels_rows: tuple[tuple[int, int, int], tuple[int, int, int]] = number(
        ((8, 24, 48), (6, 10, 40)),
        "Kernels up to which it does, of one channel and of several: of fewer than 5 "
        "rows, than 7, and of more.",
        "Gmac/s as above; panels make 85, gathering is as slow as 3.5 and 5.5",
    )
    slide_kernels_cut: tuple[int, int] = number(
        (48, 16), "The same where the only line is cut into slide_rows, and into fewer."
    )
    slide_kernels_strided: int = number(3, "The same with strides.")
    slide_kernels_once: tuple[int, int, int] = number(
        (12, 4, 2),
        "The same where nothing counts twice: of one channel, and of several by rows "
        "of more than 8 elements and others.",
    )
    slide_cuts: int = number(3, "Rows into which the only line is cut at least.")
    slide_vectors: int = number(2, "Vectors of each of these.")
    slide_reuse: int = number(
        8,
        "Rows of a stretch for each row of the result: at its ends rows of an image "
        "count for fewer.",
    )
    taps_images: int = number(
        4,
        "Images for which kernels are read again.",
        "derivatives by kernels of 3×3 and 5×5 over 32 channels, each by itself",
        EPYC,
        "0.15 and 0.08 of the time",
    )
    taps_kernels: int = number(
        32, "Kernels up to which it pays not to gather what is under them."
    )
    taps_places: int = number(49, "Places up to which it does.")
    taps_sums: int = number(
        1024, "Sums of one image: vectors that stay in the second cache."
    )
    lanes_sums: int = number(
        24, "Vectors of sums that registers hold, with a kernel in each lane."
    )
    lanes_places: int = number(14, "Places of a row whose sums these are at most.")
    lanes_taps: int = number(8, "Elements of a kernel's row that are written out.")
    lanes_gathered: tuple[float, float] = number(
        (0.45, 0.6),
        "Vectors that are multiplied in the time in which an element under a kernel is "
        "gathered, and one with strides.",
        "26 convolutions of 1×1 to 5×5 over 3 to 512 channels of 7×7 to 224×224, with "
        "AVX-512",
        "AMD EPYC (Zen 4)",
        "0.73 to 0.97 of the time for not gathering, where kernels are no more than "
        "eight times as many as channels; else up to 1.1",
    )
    lanes_turned: float = number(
        0.4,
        "Those in the time in which a sum is brought into the order of the result.",
        "the same",
        "AMD EPYC (Zen 4)",
        "1.02 to 1.19 of the time where little is gathered, as for 1×1: these are "
        "multiplied by panels",
    )
    turned_inner: int = number(
        512, "Elements of large kernels that are multiplied at once."
    )
    turned_strip_bytes: int = number(
        1 << 18, "Rows under these that are gathered at once, those of whole images."
    )
    turned_result_bytes: int = number(
        1 << 20, "Sums of one part, which stay in the second cache."
    )
    turned_rows: int = number(
        16, "Rows of a part at least: kernels are brought into panels for each."
    )

    # Factorisations and sorts: factors/, sorting/.
    lane_matrix: tuple[int, int] = number(
        (16, 32),
        "Rows and columns of matrices that lanes take; of larger ones LAPACK computes "
        "more at a time.",
        "batches of small systems, beside NumPy",
        gained="3 to 16 times as fast for the method",
    )
    lapack_call_s: float = number(3e-7, "What a call of LU or Cholesky takes (s).")
    lapack_flops_per_s: float = number(2e10, "Its flop in a second.")
    lane_flops_per_s: float = number(5e8, "Those of a lane.")
    decomposition_call_s: float = number(2e-6, "A call of eigh, svd or qr (s).")
    decomposition_flops_per_s: float = number(2e9, "Its flop in a second.")
    large_matrix_flops: float = number(
        5e6,
        "Of one matrix, from which on BLAS may take all threads.",
        "400×400 factored and inverted",
        gained="0.6 to 0.8 of the time",
    )
    left_matrix_flops: float = number(
        3e7, "Of one matrix, from which on calling NumPy costs nothing beside them."
    )
    sort_step_s: float = number(
        3e-10,
        "About how long a sort takes for an element of a row and each doubling of the "
        "row (s).",
    )
    most_single_lanes: int = number(16, "Lanes that networks read one by one.")

    # Threads: runtime/.
    core_bytes_per_s: float = number(8e10, "What one core reads of near memory (1/s).")
    core_vectors_per_s: float = number(3e9, "Vectors of simple ops of one core (1/s).")
    core_flops_per_s: float = number(8e10, "Flop of one core in products (1/s).")
    clock_hz: float = number(3e9, "Rough clock of a core (Hz).")
    thread_s: float = number(4e-6, "Work that is worth a thread that waits for it (s).")
    part_s: float = number(4e-6, "Work of a part, where a thread has several (s).")
    shared_s: float = number(
        1e-5, "Work from which on a program is made for several threads (s)."
    )
    wake_s: float = number(
        2e-4,
        "Work that is worth waking a thread that sleeps (s).",
        "when a woken thread takes part: after 25 µs at best, 100 on a busy machine",
    )
    release_s: float = number(
        1e-5, "Work during which other threads of Python may run (s)."
    )
    turns_awake: int = number(
        2500,
        "Turns before a worker sleeps, some 0.5 ms: more than a short program takes.",
        "sums of 2²⁰ numbers in a row",
        gained="37 µs, where with fewer turns many took 160",
    )
    soon_ns: int = number(
        100_000, "Time between short programs within which workers are woken (ns)."
    )
    late_ns: int = number(
        40_000,
        "Waiting at the end of a short program that tells of a processor that others "
        "use (ns).",
    )
    times_alone: int = number(
        16, "How many times as long as they waited short programs run alone after that."
    )
    spins: int = number(
        300, "Turns of waiting before a thread yields in each: some 10 µs."
    )
    pooled_bytes: int = number(
        1 << 15, "Outputs from which on they lie in blocks of the pool."
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Avx512Tuning(Tuning):
    """Intel's processors with AVX-512, and what ``EQSAT_CPU=x86-64-v4`` stands for."""

    has_fast_gathers: bool = number(
        True,
        "See Tuning.has_fast_gathers.",
        "bilinear and bicubic sampling, an image through a table, np.interp",
        gained="0.33 to 0.58 of the time, with indices that are not checked",
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AmdTuning(Tuning):
    """AMD's processors."""

    has_fast_bfloat_pairs: bool = number(
        True,
        "See Tuning.has_fast_bfloat_pairs.",
        "products of bfloat16 by constants",
        "AMD EPYC with AVX-512",
        "half the time",
    )
    foresees_reads: bool = number(
        True,
        "See Tuning.foresees_reads.",
        "sums of two large arrays, asked for ahead",
        "AMD EPYC (Zen 5)",
        "asking takes longer by two threads, and from a third cache",
    )


COMMON = Tuning()
"""The numbers where no host is at hand: no family changes these."""
AVX512, AMD = Avx512Tuning(), AmdTuning()
X86, ARM = Tuning(), Tuning()
"""Other processors of x86-64, and 64-bit ARM: nothing was measured on them."""
