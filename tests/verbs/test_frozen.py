"""Read-only arrays are constants, and yet may change: by ``setflags``, by what they
show, by others. All of their elements count."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat as eq

Write = Callable[[int, float], None]
N = 3 * 50_000
"""Elements of what is too large to be kept, 8 bytes each."""


def thawed(array: Any) -> tuple[Any, Write]:
    """A read-only array, and how it is written to by way of its owner."""
    array.flags.writeable = False
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base

    def write(i: int, value: float) -> None:
        chain = [owner, array] if owner is not array else [owner]
        for a in chain:
            a.flags.writeable = True
        array.flat[i] = value
        for a in reversed(chain):
            a.flags.writeable = False

    owner.flags.writeable = False
    return array, write


def own(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros(n))


def table(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros((3, n // 3)))


def fortran(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros((3, n // 3), order="F"))


def view(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros(n + 7)[3 : n + 3])


def strided(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros(2 * n)[::2])


def reversed_(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros(n)[::-1])


def float32(n: int, folder: Path) -> tuple[Any, Write]:
    return thawed(np.zeros(n, np.float32))


def of_writable_base(n: int, folder: Path) -> tuple[Any, Write]:
    base = np.zeros(n)
    shown = base[:]
    shown.flags.writeable = False
    return shown, base.__setitem__


def broadcast(n: int, folder: Path) -> tuple[Any, Write]:
    base = np.zeros(n // 3)
    shown = np.broadcast_to(base, (3, n // 3))
    return shown, lambda i, value: base.__setitem__(i % (n // 3), value)


def of_buffer(n: int, folder: Path) -> tuple[Any, Write]:
    data = bytearray(8 * n)
    shown = np.frombuffer(memoryview(data).toreadonly())
    return shown, np.frombuffer(data).__setitem__


def of_ctypes(n: int, folder: Path) -> tuple[Any, Write]:
    data = (ctypes.c_double * n)()
    shown = np.frombuffer(data)
    shown.flags.writeable = False
    return shown, data.__setitem__


def of_library(n: int, folder: Path) -> tuple[Any, Write]:
    base = np.zeros(n)

    shared = dict(base.__array_interface__, data=(base.ctypes.data, True))
    other = SimpleNamespace(__array_interface__=shared, held=base)
    return np.asarray(other), base.__setitem__


def of_dlpack(n: int, folder: Path) -> tuple[Any, Write]:
    base = np.zeros(n)
    shown = np.from_dlpack(base)
    shown.flags.writeable = False
    return shown, base.__setitem__


def mapped(n: int, folder: Path) -> tuple[Any, Write]:
    written = np.memmap(folder / "m", np.float64, "w+", shape=(n,))
    return np.memmap(folder / "m", np.float64, "r", shape=(n,)), written.__setitem__


def of_mmap(n: int, folder: Path) -> tuple[Any, Write]:
    written = np.memmap(folder / "m", np.float64, "w+", shape=(n,))
    with open(folder / "m", "rb") as file:
        shown = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(shown), written.__setitem__


WAYS = [
    *(own, table, fortran, view, strided, reversed_, float32, of_writable_base),
    *(broadcast, of_buffer, of_ctypes, of_library, of_dlpack, mapped, of_mmap),
]


@pytest.mark.parametrize("backend", ["native", "numpy", "mlx"])
@pytest.mark.parametrize("n", [12, N])
@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_one_element_is_seen(
    way: Callable[..., Any], n: int, backend: str, tmp_path: Path
) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    w, write = way(n, tmp_path)
    assert not w.flags.writeable
    jitted = eq.jit(lambda x, w: x + 2 * w, backend=backend)
    outside = eq.jit(lambda x: x - w, backend=backend)
    x = np.ones((), w.dtype)
    for i, value in ((0, 0.0), (7, 1.0), (n - 1, 2.0), (n // 2 + 1, 3.0), (7, 0.0)):
        write(i, value)
        for _ in range(3):  # by Python, and by machine code
            np.testing.assert_array_equal(jitted(x, w), x + 2 * w)
            np.testing.assert_array_equal(outside(x), x - w)


def test_read_only_arrays_are_folded_and_served_by_machine_code() -> None:
    w, _ = own(N, Path())
    f = eq.jit(lambda x, w: x + np.exp(w), backend="native")
    x = np.ones(N)
    f(x, w)
    low = f.lower(x, w)
    assert len(low.trace.inputs) == 1 and len(low.trace.contents) == 1
    assert f._entry is None or len(f._entry) == 1  # type: ignore[arg-type]


def test_what_cannot_change_is_not_compared() -> None:
    fixed = np.frombuffer(np.ones(8).tobytes())
    f = eq.jit(lambda x, w: x + w + np.arange(8.0) + fixed)
    x = np.ones(8)
    assert (f(x, fixed) == x + 2 + np.arange(8)).all()
    low = f.lower(x, fixed)
    assert not low.trace.contents
    (held,) = low.trace.outside.arrays.values()  # its shape may be set anew
    assert held[0].contents is None


def test_what_a_function_keeps_of_itself_is_compared() -> None:
    kept: list[Any] = []

    @eq.jit
    def f(x: Any) -> Any:
        if not kept:
            kept.append(np.arange(8.0)[::2])
        return x + kept[0]

    x = np.ones(4)
    for _ in range(3):
        assert (f(x) == x + kept[0]).all()
        kept[0].base[2] += 1


def test_declared_constants_are_a_promise() -> None:
    w = np.ones(4)
    f = eq.jit(lambda x, w: x + w, constants=["w"])
    x = np.ones(4)
    f(x, w)
    assert not f.lower(x, w).trace.contents


def test_an_array_changed_while_traced_is_refused() -> None:
    w = np.zeros(N)

    @eq.jit
    def f(x: Any) -> Any:
        y = x + w
        w[N // 2 + 1] = 1
        return y

    with pytest.raises(eq.TraceError, match="was changed in place after the program"):
        f(np.ones(()))
