"""Checks of MLX programs: on MLX's default device, and with generated kernels on the
model of a GPU. Imported where MLX is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import modelled
import numpy as np
import nvcc
import pytest
from natives import Array, fused, laid
from programs import assert_near, program_of

import eqsat as eq
from eqsat.backends import mlx
from eqsat.backends.numpy import interpret
from eqsat.kernels.kernel import inner
from eqsat.kernels.program import Program
from eqsat.terms.term import postorder
from eqsat.testing import Computed, agreement

ON_GPU = mx.default_device().type == mx.gpu
F64 = np.dtype("f8")
OF_NVIDIA = pytest.mark.skipif(nvcc.COMPILER is None, reason="no nvcc")
WAYS: list[Any] = ["device"]
"""MLX's default device; kernels in a language on the model of a GPU; kernels compiled
by NVIDIA's compiler, not run. Only the first needs the device."""
if not ON_GPU:
    slow = pytest.mark.slow
    WAYS += [pytest.param("metal", marks=slow), pytest.param("cuda", marks=slow)]
    WAYS.append(pytest.param("nvcc", marks=[slow, OF_NVIDIA]))
every_way = pytest.mark.parametrize("way", WAYS)
Case = tuple[Callable[..., Any], list[Any]]


def takes_all(way: str) -> bool:
    """Whether there is time for all that is drawn: MLX's calls on a CPU. Where kernels
    are compiled, dtypes, layouts and programs take turns."""
    return way == "device" and not ON_GPU


def shared(items: Sequence[Any], turn: int, of: int) -> list[Any]:
    """Every ``of``-th item."""
    return [*items[turn % of :: of]]


def placed(x: Array, layout: str) -> Any:
    """An array of MLX whose elements, those of ``laid(x, layout)``, lie so."""
    x = laid(x, layout)
    if layout == "broadcast" and x.ndim and x.shape[0]:
        return mx.broadcast_to(mlx.to_mlx(x[:1]), x.shape)
    if layout == "fortran":
        return mx.transpose(mlx.to_mlx(x.T))
    if layout == "reversed":
        return mlx.to_mlx(np.flip(x))[(slice(None, None, -1),) * x.ndim]
    if layout == "strided" and x.ndim:
        return mlx.to_mlx(np.repeat(x, 3, axis=-1))[..., ::3]
    if layout == "window" and x.ndim:
        return mlx.to_mlx(np.pad(x, 1))[(slice(1, -1),) * x.ndim]
    if layout == "misaligned":
        return mlx.to_mlx(np.r_[np.zeros(1, x.dtype), x.ravel()])[1:].reshape(x.shape)
    return mlx.to_mlx(x)


def placed_for(source: str, arrays: Sequence[Array], layout: str) -> list[Any]:
    """Arguments of a program, in a layout that MLX's products take."""
    # MLX 0.32 asks cuBLASLt for an algorithm without saying how operands are aligned:
    # one for multiples of 256 bytes, which fails ("not supported") for x[1:].
    by_library = re.search(r"mx\.(matmul|addmm)\(|ops\.attention\(", source)
    if ON_GPU and layout == "misaligned" and by_library:
        layout = "packed"
    return [placed(x, layout) for x in arrays]


def is_refused(program: Program, language: str | None) -> bool:
    """Whether float64 is computed, also inside kernels, which is an error for a GPU."""
    terms = postorder(program.roots)
    for kernel in program.kernels:
        terms = [*terms, *inner(kernel.bodies, kernel.term.args)]
    if all(t.dtype != F64 for t in terms):
        return False
    with pytest.raises(eq.BackendError, match="is float64, which MLX has on the CPU"):
        mlx.lower(program, language)
    return True


def check(
    way: str,
    cases: Iterable[Case],
    layout: str = "packed",
    tol: float | None = None,
    fuse: bool = True,
) -> int:
    """Each program computes what its references do, as it is written and as one kernel:
    up to ``tol`` roundings, or what rounding explains. The number of kernels."""
    found = [x for f, xs in cases for x in forms(f, xs, layout, fuse)]
    return check_programs(way, found, layout, tol)


def check_programs(
    way: str,
    found: Sequence[tuple[Program, Computed]],
    layout: str = "packed",
    tol: float | None = None,
) -> int:
    """Each program computes what is told beside it, or is refused for its float64. The
    number of kernels that were generated."""
    language = {"device": None, "nvcc": "cuda"}.get(way, way)
    if not takes_all(way):
        found = [x for x in found if not is_refused(x[0], language)]
    runs: list[Any]
    if way == "device":
        runs = [mlx.lower(p) for p, _ in found]
        sources = [r.source for r in runs]
        count = sum(s.count("ops.kernel(") for s in sources)
        both = zip(sources, found, strict=True)
        given = [placed_for(s, w.inputs, layout) for s, (_, w) in both]
    else:
        assert language is not None
        runs = [modelled.Modelled(p, language) for p, _ in found]
        given = [[placed(x, layout) for x in w.inputs] for _, w in found]
        called = [*zip(runs, given, strict=True)]
        if way == "nvcc":
            units = modelled.units_of(called)
            nvcc.assert_compiles(units)
            return len(units)
        count = len(modelled.compiled(called))
    for run, xs, (program, wanted) in zip(runs, given, found, strict=True):
        with np.errstate(all="ignore"):
            got = [mlx.to_numpy(y) for y in run(*xs)]
            agrees(got, wanted, program, tol)
    return count


def forms(
    f: Callable[..., Any], arrays: Sequence[Array], layout: str, fuse: bool
) -> Iterator[tuple[Program, Computed]]:
    """Programs of ``f``, and what its references compute. On a GPU the one that is
    written as it is only where MLX's own calls do it: compilers take most of the time,
    and its kernels are those of other programs."""
    seen = [laid(x, layout) for x in arrays]
    program = program_of(f, *seen)
    with np.errstate(all="ignore"):
        want = interpret(program.roots, seen)
    wanted = Computed(want, program.roots, seen)
    if not (fuse and ON_GPU and generates(program)):
        yield program, wanted
    if fuse and len(want) == 1 == len({x.dtype for x in seen}):
        yield program_of(fused(f, len(arrays)), *seen), wanted
    elif fuse:  # an op takes arguments of one dtype and has one result
        yield eq.jit(f, backend="mlx").lower(*seen).program, wanted


def generates(program: Program) -> bool:
    """Whether MLX is given kernels of ours on its default device."""
    refused = is_refused(program, None)
    return not refused and "ops.kernel(" in mlx.lower(program).source


def agrees(
    got: Sequence[Array], wanted: Computed, program: Program, tol: float | None
) -> None:
    for g, w in zip(got, wanted.arrays, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if tol is not None:
            assert_near(g, w, tol)
    if tol is None:
        made = Computed(got, program.roots, wanted.inputs)
        assert not (found := agreement(wanted, made)).reason, found
