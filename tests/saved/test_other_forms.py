"""A program as a Python module of NumPy alone, and as a library for C."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved_cases import CASES, agree, alone, copied, drawn, inputs_of

import eqsat as eq
from eqsat.saved import is_possible

on_linux = pytest.mark.skipif(not is_possible(), reason="not on this system")
X = drawn(3, 4)

# -- Python ----------------------------------------------------------------------------

NO_MODULE = {"solve": "lu_reference needs scipy.linalg"}


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_module_computes_what_the_function_does(name: str, tmp_path: Path) -> None:
    fn, args, kwargs = CASES[name]
    path = tmp_path / "made.py"
    low = eq.jit(fn).lower(*args, **kwargs)
    if name in NO_MODULE:
        with pytest.raises(eq.SavedProgramError, match=NO_MODULE[name]):
            low.save_module(path)
        return
    low.save_module(path)
    given, again = copied(args), copied(args)
    wanted = eq.jit(fn, backend="numpy")(*again, **kwargs)
    agree(imported(path).run(*given, **kwargs), wanted, rtol=1e-5)
    agree(given, again, rtol=1e-5)


def test_a_module_runs_with_numpy_alone(tmp_path: Path) -> None:
    fn, args, _ = CASES["constant"]
    eq.jit(lambda x: eq.gelu(fn(x))).lower(*args).save_module(tmp_path / "made.py")
    home = alone(tmp_path)
    (home / "eqsat").unlink()
    np.save(tmp_path / "x.npy", args[0])
    text = (
        f"import sys; sys.path[:0] = [{str(home)!r}]\n"
        "import numpy as np, made\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, made.run(np.load({str(tmp_path)!r} + "
        "'/x.npy')))\n"
        "assert not {'scipy', 'eqsat'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", text], check=True)
    got = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(got, eq.gelu(fn(*args)), rtol=1e-5, atol=1e-6)


def test_a_module_names_the_file_of_constants_that_is_damaged(tmp_path: Path) -> None:
    w, v = drawn(4, 5), drawn(5, 2)
    eq.jit(lambda x: np.tanh(x @ w) @ v).lower(X).save_module(tmp_path / "made.py")
    kept = tmp_path / "made.npz"
    whole = kept.read_bytes()
    draw = np.random.default_rng(0)
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    damaged = [b"", b"no archive", flipped, bytes(len(whole))]
    damaged += [whole[: draw.integers(len(whole))] for _ in range(20)]
    for data in damaged:
        kept.write_bytes(data)
        with pytest.raises(ValueError, match=r"made\.npz is damaged"):
            imported(tmp_path / "made.py")
    np.savez(kept, allow_pickle=False, other=w)
    with pytest.raises(ValueError, match=r"made\.npz is .*not of this module"):
        imported(tmp_path / "made.py")
    kept.unlink()
    with pytest.raises(FileNotFoundError, match=r"made\.npz"):
        imported(tmp_path / "made.py")
    kept.write_bytes(whole)
    agree(imported(tmp_path / "made.py").run(X), np.tanh(X @ w) @ v, rtol=1e-5)


def test_what_no_module_can_hold_is_named(tmp_path: Path) -> None:
    def refused(said: str, fn: Callable[..., Any], *args: Any) -> None:
        with pytest.raises(eq.SavedProgramError, match=said):
            eq.jit(fn).lower(*args).save_module(tmp_path / "made.py")

    import ml_dtypes
    import scipy.special

    refused("bfloat16", lambda x: x + 1, X.astype(ml_dtypes.bfloat16))
    refused(r"scipy.special.j0", lambda x: scipy.special.j0(x), X)
    refused("argument args", lambda *args: args[0] + 1, X)
    refused("argument np is called", lambda np: np + 1, X)
    with pytest.raises(eq.SavedProgramError, match=r"expected an identifier and \.py"):
        eq.jit(lambda x: x + 1).lower(X).save_module(tmp_path / "my-module.py")


def test_a_module_writes_to_no_elements_that_share_memory(tmp_path: Path) -> None:
    x = np.arange(6.0)
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, writeable=True)
    low = eq.jit(lambda w: w.fill(5)).lower(windows.copy())
    low.save_module(tmp_path / "made.py")
    run = imported(tmp_path / "made.py").run
    with pytest.raises(ValueError, match="elements of argument w share memory"):
        run(windows)
    agree(x, np.arange(6.0))
    wide = np.zeros((8, 6))
    run(wide[::2, ::-2])
    agree(wide[::2, 1::2], np.full((4, 3), 5.0))


def test_a_module_keeps_the_names_of_arguments(tmp_path: Path) -> None:
    key = 'a"""\n\\ */'
    low = eq.jit(lambda a1, a0, r0: {"r": a1[key] - a0 * r0}).lower({key: X}, X, X)
    low.save_module(tmp_path / "made.py")
    got = imported(tmp_path / "made.py").run({key: X}, r0=X, a0=X + 1)
    agree(got, {"r": X - (X + 1) * X}, rtol=1e-6)


def test_calls_of_a_module_are_checked(tmp_path: Path) -> None:
    w = drawn(4, 5)
    w.flags.writeable = False
    low = eq.jit(lambda x, w, n: {"y": x @ w["a"] * n}).lower(X, {"a": w}, 2)
    low.save_module(tmp_path / "made.py")
    run = imported(tmp_path / "made.py").run
    wanted = run(X, {"a": w.copy()}, 2)
    agree(run(X, ..., 2), wanted)
    for args, error, said in (
        ((X[:2], ..., 2), TypeError, r"argument x is \(2, 4\) of float32"),
        ((X.astype("f8"), ..., 2), TypeError, "of float64"),
        ((X, {"b": w}, 2), TypeError, "expected \\['a'\\]"),
        ((X, {"a": w + 1}, 2), ValueError, "other elements"),
        ((X, ..., 3), TypeError, "argument n is 3, expected 2"),
    ):
        with pytest.raises(error, match=said):
            run(*args)


# -- C ---------------------------------------------------------------------------------

NO_LIBRARY = ("cholesky", "solve", "sort", "argsort")


def called(library: Path, arrays: Any) -> int:
    function = getattr(ctypes.CDLL(str(library)), library.stem.removeprefix("lib"))
    code: int = function(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
    return code


@on_linux
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_a_library_computes_what_the_function_does(name: str, tmp_path: Path) -> None:
    fn, args, kwargs = CASES[name]
    low = eq.jit(fn).lower(*args, **kwargs)
    path = tmp_path / "libmade.so"
    if name in NO_LIBRARY:
        with pytest.raises(eq.BackendError, match="calls no functions of NumPy's"):
            low.save_library(path)
        return
    low.save_library(path)
    call = low.trace
    leaves = [a for a in low.trace.call.leaves if not a.constant]
    given = inputs_of(args)
    assert len(leaves) == len(given)
    own = len(call.outputs) - len(call.writes.places)
    kept = [k for k in range(own) if k not in call.writes.returned]
    # Memory that starts anywhere.
    made = [
        np.empty(t.size + 1, t.dtype)[1:].reshape(t.shape)
        for t in (call.outputs[k] for k in kept)
    ]
    wanted = low.compile()(*copied(given))
    assert called(path, [*given, *made]) == 0
    for k, got in zip(kept, made, strict=True):
        eps = 1e-3 if got.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(got, wanted[k], rtol=eps, atol=eps)
    for n, i in enumerate(call.writes.places):
        np.testing.assert_array_equal(given[i], wanted[own + n])


MAIN = """
#include <stdio.h>
#include "ffn.h"

int main(void) {
    static float x[2000 * 64], h[2000 * 96], s[2000];
    for (int i = 0; i < 2000 * 64; i++) x[i] = (float)(i % 97) / 97 - 0.5f;
    long long at[2] = {0, 1999};
    int code = 0;
    for (int i = 0; i < 20; i++) code |= ffn(x, (const int64_t *)at, h, s);
    double total = 0;
    for (int i = 0; i < 2000 * 96; i++) total += h[i];
    at[1] = 2000;
    printf("%d %.9g %.9g %.9g ", code, total, s[0], s[1]);
    printf("%d\\n", ffn(x, (const int64_t *)at, h, s));
    return 0;
}
"""


@on_linux
def test_a_program_in_c_calls_it(tmp_path: Path) -> None:
    w = drawn(64, 96)

    def ffn(x: Any, at: Any) -> Any:
        h = eq.gelu(x @ w)
        return h, h.sum(-1)[at]

    x = (np.arange(2000 * 64) % 97).astype(np.float32) / 97 - np.float32(0.5)
    x, at = x.reshape(2000, 64), np.array([0, 1999])
    f = eq.jit(ffn, options=eq.Options(threads=3))
    f.lower(x, at).save_library(tmp_path / "libffn.so")
    (tmp_path / "main.c").write_text(MAIN)
    folder = str(tmp_path)
    warned = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["cc", *warned, "main.c", "-L.", "-lffn", "-Wl,-rpath," + folder]
    subprocess.run([*command, "-o", "main"], cwd=folder, check=True)
    said = subprocess.run(
        [folder + "/main"], capture_output=True, text=True, check=True
    )
    code, total, first, last, refused = said.stdout.split()
    h, s = f(x, at)
    assert (code, refused) == ("0", "2")
    np.testing.assert_allclose(float(total), h.sum(dtype=float), rtol=1e-5)
    np.testing.assert_allclose([float(first), float(last)], s[:2], rtol=1e-3, atol=1e-3)


@on_linux
def test_names_that_are_none_in_c_are_refused(tmp_path: Path) -> None:
    low = eq.jit(lambda x: x + 1).lower(X)
    for name in ("my-lib.so", "libint.so", "lib.so", "ffn.dll", "libfree.so"):
        with pytest.raises(eq.SavedProgramError, match=r"such as libffn\.so"):
            low.save_library(tmp_path / name)
    for name in ("libEOF.so", "liberrno.so", "libint64_t.so", "lib__f.so"):
        with pytest.raises(eq.SavedProgramError, match=r"such as libffn\.so"):
            low.save_library(tmp_path / name)
    for name in ("libexp.so", "libmalloc.so", "libmain.so", "libprintf.so"):
        with pytest.raises(eq.SavedProgramError, match="C has a function '"):
            low.save_library(tmp_path / name)
    with pytest.raises(eq.OptionError, match="did you mean 'x86-64-v2'"):
        low.save_library(tmp_path / "libf.so", cpu="x86-64v2")
    low = eq.jit(lambda EOF, stdin, size_t: EOF + stdin * size_t).lower(X, X, X)
    low.save_library(tmp_path / "libmacros.so")
    names = re.findall(r"\*(\w+)", (tmp_path / "macros.h").read_text())
    assert names[-4:] == ["EOF_", "stdin_", "size_t_", "out"]
    low = eq.jit(lambda double, out: double + out).lower(X, X)
    low.save_library(tmp_path / "libadd.so")
    header = (tmp_path / "add.h").read_text()
    low = eq.jit(lambda arena, r0: (arena + r0, 2 * r0)).lower(X, X + 1)
    low.save_library(tmp_path / "libown.so")
    made = [np.empty_like(X), np.empty_like(X)]
    assert called(tmp_path / "libown.so", [X, X + 1, *made]) == 0
    agree(made, [2 * X + 1, 2 * X + 2], rtol=1e-6)
    low = eq.jit(lambda p: p["a */ b"] + 1).lower({"a */ b": X})
    low.save_library(tmp_path / "libkey.so")
    assert (tmp_path / "key.h").read_text().count("*/") == 1
    assert "add(const float *double_, const float *out_2, float *out);" in header
