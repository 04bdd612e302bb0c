"""Programs that were saved compute what they did, in a process of their own too."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import expressions
import numpy as np
import pytest
import scipy.special as sp
from saved_cases import CASES, Layer, Pair, agree, alone, copied, drawn, updated

import eqsat as eq
from eqsat.saved import LEVELS, features, is_possible
from eqsat.support import ReadOnlyError

pytestmark = pytest.mark.skipif(not is_possible(), reason="not on this system")


BY_LEVEL = "ffn product shared attention conv sort cholesky powers half".split()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_a_saved_program_computes_what_the_function_does(
    name: str, tmp_path: Path
) -> None:
    fn, args, kwargs = CASES[name]
    f = eq.jit(fn, backend="native")
    path = tmp_path / "f.eqsat"
    f.lower(*args, **kwargs).save(path)
    loaded = eq.load(path)
    given, again = copied(args), copied(args)
    agree(loaded(*given, **kwargs), f(*again, **kwargs))
    for a, b in zip(given, again, strict=True):
        agree(a, b)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", [g for g in vars(expressions) if g.isupper()])
def test_numpy_expressions(group: str, tmp_path: Path) -> None:
    given = [*expressions.arrays().values()]
    names = ", ".join(expressions.arrays())
    known = {"np": np, "sp": sp, "C": drawn(3, 4)}
    for text in getattr(expressions, group).split(";"):
        f = eq.jit(eval(f"lambda {names}: {text.strip()}", known))
        try:
            f.lower(*given).save(tmp_path / "f")
        except (eq.SavedProgramError, eq.BackendError):
            continue
        try:
            agree(eq.load(tmp_path / "f")(*given), f(*given))
        except Exception as error:
            error.add_note(text)
            raise


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BY_LEVEL)
def test_code_for_lesser_processors(name: str, tmp_path: Path) -> None:
    fn, args, kwargs = CASES[name]
    path = tmp_path / "f.eqsat"
    low = eq.jit(fn).lower(*args, **kwargs)
    levels = [n for n in LEVELS if n == "generic" or platform.machine() == "x86_64"]
    levels = [n for n in levels if LEVELS[n] <= features()]
    low.save(path, cpu=("native", *levels))
    wanted = eq.jit(fn)(*args, **kwargs)
    for cpu in levels:
        loaded = eq.load(path, cpu=cpu)
        assert loaded.cpu == cpu
        eps = np.finfo(wanted.dtype).eps
        agree(loaded(*args, **kwargs), wanted, rtol=300 * eps)
    assert eq.load(path).cpu == "native"


# -- calls that do not fit -------------------------------------------------------------


def saved(fn: Callable[..., Any], path: Path, *args: Any, **kwargs: Any) -> Any:
    eq.jit(fn).lower(*args, **kwargs).save(path)
    return eq.load(path)


X = drawn(3, 4)
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("dtype", (X.astype("f8"), {"w": X}), {}, eq.DTypeError, "x has dtype float64"),
    ("shape", (X[:2], {"w": X}), {}, eq.ShapeError, r"x has shape \(2, 4\)"),
    ("kind", ([1.0], {"w": X}), {}, eq.ArgumentError, "x is a 'list'"),
    ("bytes", (X.astype(">f4"), {"w": X}), {}, eq.DTypeError, "dtype >f4"),
    ("masked", (np.ma.masked_array(X), {"w": X}), {}, eq.ArgumentError, "Masked"),
    ("key", (X, {"v": X}), {}, eq.ArgumentError, "p lacks 'w', has 'v'"),
    ("container", (X, [X]), {}, eq.ArgumentError, "p is a 'list', expected a 'dict'"),
    ("inside", (X, {"w": X[0]}), {}, eq.ShapeError, r"p\['w'\] has shape"),
    ("missing", (X,), {}, eq.ArgumentError, "p is missing"),
    ("unknown", (X, {"w": X}), {"q": 1}, eq.ArgumentError, "q is given"),
    ("twice", (X, {"w": X}), {"x": X}, eq.ArgumentError, "x is given twice"),
    ("many", (X, {"w": X}, 2, 3), {}, eq.ArgumentError, "by position, but was given 4"),
    ("static", (X, {"w": X}), {"scale": 3}, eq.ArgumentError, "scale is 3, expected 2"),
    ("type", (X, {"w": X}), {"scale": 2.0}, eq.ArgumentError, "2.0, expected 2"),
    ("text", (X, {"w": X}), {"how": "sum"}, eq.ArgumentError, "expected 'mean'"),
]


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def scaled(x: Any, p: Any, scale: int = 1, how: str = "") -> Any:
        return getattr(x * p["w"] * scale, how)()

    path = tmp_path_factory.mktemp("saved") / "scaled.eqsat"
    return saved(scaled, path, X, {"w": X}, scale=2, how="mean")


def test_any_strides_and_names_will_do(scaled: Any) -> None:
    turned, steps = np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2]
    off = np.frombuffer(b"." + X.tobytes(), np.float32, offset=1).reshape(3, 4)
    wanted = (X * X * 2).mean()
    for x in (X, turned, steps, off, X[::-1][::-1]):
        got = scaled(x, {"w": steps}, scale=2, how="mean")
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    by_name = scaled(how="mean", p={"w": X}, scale=2, x=X)
    np.testing.assert_allclose(by_name, wanted, rtol=1e-6)


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c[0])
def test_other_calls_are_refused_by_name(scaled: Any, case: Any) -> None:
    _, args, kwargs, error, said = case
    more = {} if "missing" in said or "many" in said else {"scale": 2, "how": "mean"}
    if "by position" in said:
        more = {}
    with pytest.raises(error, match=said):
        scaled(*args, **{**more, **kwargs})


@pytest.mark.parametrize("several", [False, True])
def test_calls_of_plain_arrays_by_position(several: bool, tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        made = x @ y + 1
        return (made, x.sum(0)) if several else made

    random = np.random.default_rng(0)
    x, y = random.standard_normal((3, 4)), random.standard_normal((4, 5))
    eq.jit(f).lower(x, y).save(tmp_path / "f.eqsat")
    program = eq.load(tmp_path / "f.eqsat")
    frozen = y.copy()
    frozen.flags.writeable = False
    kept = [program(x, y) for _ in range(3)]
    for z in (y, np.asfortranarray(y), y[:, ::-1], frozen, y.view(np.memmap)):
        found, want = program(x, z), f(x, z)
        for a, b in zip(found, want, strict=True) if several else [(found, want)]:
            assert type(a) is np.ndarray
            np.testing.assert_allclose(a, b)
    for again in kept:  # results are arrays of their own
        np.testing.assert_allclose(again[0], f(x, y)[0])
    with pytest.raises(eq.DTypeError, match="argument x has dtype float32"):
        program(x.astype(np.float32), y)
    with pytest.raises(eq.ShapeError, match="argument y has shape"):
        program(x, y[:, :4])
    with pytest.raises(eq.EqsatError, match="argument y is missing"):
        program(x)


def test_constants_are_checked_or_left_out(tmp_path: Path) -> None:
    w = drawn(4, 5)
    w.flags.writeable = False
    f = saved(lambda x, w: x @ w, tmp_path / "f", X, w)
    wanted = f(X, w)
    agree(f(X, ...), wanted)
    agree(f(X, w.copy()), wanted)
    agree(f(X, w), wanted)
    with pytest.raises(eq.ArgumentError, match="w has other elements"):
        f(X, w + 1)
    with pytest.raises(eq.ArgumentError, match="x is an 'ellipsis'"):
        f(..., w)


def test_arguments_without_a_result_are_an_error(tmp_path: Path) -> None:
    at = np.array([0, 2])
    f = saved(lambda x, i: x[i], tmp_path / "f", X, at)
    agree(f(X, at), X[at])
    with pytest.raises(IndexError, match="outside of its array"):
        f(X, at + 1)
    agree(f(X, at), X[at])
    factor = saved(np.linalg.cholesky, tmp_path / "g", np.eye(40))
    with pytest.raises(np.linalg.LinAlgError, match="cannot be factored"):
        factor(-np.eye(40))


def test_arguments_that_are_written_to_must_be_free(tmp_path: Path) -> None:
    f = saved(updated, tmp_path / "f", X.copy(), X.copy())
    x = X.copy()
    with pytest.raises(eq.ArgumentError, match="p and g share memory"):
        f(x, x)
    frozen = x.copy()
    frozen.flags.writeable = False
    with pytest.raises(ReadOnlyError, match="writes to argument p"):
        f(frozen, x)
    p, _ = f(x, X)
    assert p is x
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), writeable=True)[0]
    g = saved(updated, tmp_path / "g", windows.copy(), windows.copy())
    with pytest.raises(eq.ArgumentError, match="elements of argument p share memory"):
        g(windows, windows.copy())
    g(windows.copy(), windows)


def test_results_of_classes_are_given_them(tmp_path: Path) -> None:
    path = tmp_path / "f"
    f = eq.jit(lambda x: (Pair(x + 1, 2), Layer(x, x * 2)))
    f.lower(X).save(path)
    with pytest.raises(eq.SavedProgramError, match=r"Layer; pass classes=\[Layer\]"):
        eq.load(path)
    known = saved(np.linalg.slogdet, tmp_path / "known", np.eye(3))
    assert known(np.eye(3)).logabsdet == 0
    pair, layer = eq.load(path, classes=[Pair, Layer])(X)
    assert type(pair) is Pair and type(layer) is Layer and layer.slope == 0.1
    agree(pair.first, X + 1)
    agree(layer.b, X * 2)


# -- what cannot be saved --------------------------------------------------------------


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    def refused(error: type[Exception], said: str, fn: Any, *args: Any) -> None:
        path = tmp_path / "no"
        with pytest.raises(error, match=said):
            eq.jit(fn).lower(*args).save(path)
        assert not path.exists()

    refused(eq.BackendError, "NumPy runs a part", lambda x: np.fft.fft(x).real, X)
    refused(eq.SavedProgramError, "depends on values", np.nonzero, X)
    refused(eq.SavedProgramError, "argument k is", lambda x, k: x, X, object())
    low = eq.jit(lambda x: x + 1).lower(X)
    with pytest.raises(eq.OptionError, match="did you mean 'x86-64-v3'"):
        low.save(tmp_path / "no", cpu=("x86-64v3",))
    with pytest.raises(eq.OptionError, match="expected one or more"):
        low.save(tmp_path / "no", cpu=())


def test_a_missing_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = eq.jit(lambda x: x + 1).lower(X)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(eq.BackendError, match="'no-such-compiler' of a C compiler"):
        low.save(tmp_path / "no")


def test_a_lesser_processor_is_told_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eqsat.saved import program

    path = tmp_path / "f"
    eq.jit(lambda x: x + 1).lower(X).save(path)
    monkeypatch.setattr(program, "features", lambda: frozenset({"sse2"}))
    with pytest.raises(eq.BackendError, match=r"native \(this processor lacks .*sse2$"):
        eq.load(path)
    with pytest.raises(eq.BackendError, match="no code for 'generic'; it has native"):
        eq.load(path, cpu="generic")
    monkeypatch.setattr(program, "system", lambda: "plan9-mips")
    with pytest.raises(eq.BackendError, match="this is plan9-mips"):
        eq.load(path)


# -- processes -------------------------------------------------------------------------

ALONE = """
import sys
sys.path[:0] = [{home!r}]
import threading, os
import numpy as np, eqsat as eq
f, g = eq.load({f!r}, threads=3), eq.load({g!r})
x, y = np.load({x!r}), np.load({y!r})
assert f.threads == 3
first = f(x)
np.testing.assert_array_equal(first, np.load({first!r}))
np.testing.assert_allclose(g(x, y), np.load({second!r}), rtol=1e-4, atol=1e-4)
def run():
    for _ in range(20):
        np.testing.assert_array_equal(f(x), first)
threads = [threading.Thread(target=run) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
child = os.fork()
if not child:
    os._exit(not np.array_equal(f(x), first))
assert os.waitpid(child, 0)[1] == 0
tops = {{m.partition(".")[0] for m in sys.modules}} - set(sys.stdlib_module_names)
print(*sorted(t for t in tops if t[0] != "_" and "cython" not in t))
"""


def test_numpy_alone_runs_them(tmp_path: Path) -> None:
    home = tmp_path / "alone"
    home.mkdir()
    x, y = drawn(400, 700), drawn(700, 300)
    shared, _, _ = CASES["shared"]
    names = {n: str(tmp_path / n) for n in ("f", "g")}
    options = eq.Options(threads=4)
    low = eq.jit(shared, options=options).lower(x)
    low.save(names["f"])
    product = eq.jit(lambda x, y: eq.softmax(x @ y)).lower(x, y)
    product.save(names["g"])
    made = {
        **{"x": x, "y": y, "first": low.compile()(x)[0]},
        "second": product.compile()(x, y)[0],
    }
    for name, array in made.items():
        names[name] = str(tmp_path / f"{name}.npy")
        np.save(names[name], array)
    text = ALONE.format(home=str(alone(home)), **names)
    command = [sys.executable, "-I", "-S", "-W", "error::UserWarning", "-c", text]
    environment = {**os.environ, "EQSAT_CACHE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["eqsat", "numpy"]


def test_libraries_go_with_their_programs(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    path = tmp_path / "f"
    first = saved(lambda x: x + 1, path, X)
    before = open_files()
    for i in range(3):
        eq.jit(lambda x, i=i: x * i).lower(X).save(path)
        agree(eq.load(path)(X), X * np.float32(i))
    assert open_files() == before
    agree(first(X), X + 1)
    done = [threading.Thread(target=first, args=(X,)) for _ in range(4)]
    [t.start() for t in done]
    [t.join() for t in done]
