"""Random generators, clocks and files inside a function are refused by name: a program
would give at every call what the trace has read."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sizes import is_whole

import eqsat as eq
from eqsat.support import Watch
from eqsat.terms.op import Op
from eqsat.terms.op_factories import pointwise
from eqsat.trace import hidden_state

pytestmark = [  # files are left open, as people do
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
X = np.arange(1.0, 5.0)
IMPORTS = (
    "import datetime, io, itertools, os, random, secrets, time, uuid\n"
    "from random import gauss\nfrom time import perf_counter as now\n"
    "from numpy.random import default_rng, rand\nimport numpy.random as npr\n"
)
RNG = "rng = np.random.default_rng(0)\n"
HELD = RNG + "class C: pass\no = C()\no.rng = rng\nk = {'rng': [rng]}\n"
BELOW = RNG + "def draw(n): return rng.random(n)\ndef twice(n): return draw(n)\n"
"""What is defined, what the function returns, and what the message says."""
REFUSED: dict[str, tuple[str, str, str]] = {
    "generator": (RNG, "x + rng.random(4)", "rng.random draws"),
    "normal": (RNG, "x + rng.normal(size=4)", "rng.normal draws"),
    "shuffled": (RNG, "x[rng.permutation(4)]", "rng.permutation draws"),
    "method": (RNG + "draw = rng.uniform", "x + draw()", "draw draws"),
    "attribute": (HELD, "x + o.rng.random()", "rng.random draws"),
    "in a dict": (HELD, "x + k['rng'][0].random()", "k draws"),
    "helper": (BELOW, "x + twice(4)", "rng.random draws"),
    "bits": ("b = np.random.PCG64(0)", "x + b.random_raw()", "b.random_raw draws"),
    "old": ("r = np.random.RandomState(0)", "x + r.rand(4)", "r.rand draws"),
    "global": ("", "x + np.random.rand(4)", "np.random.rand draws"),
    "global normal": ("", "x + npr.standard_normal(4)", "npr.standard_normal draws"),
    "imported": ("", "x + rand(4)", "rand draws"),
    "seeding": ("", "(np.random.seed(5), x + rand(4))[1]", "rand draws"),
    "fresh": ("", "x + np.random.default_rng().normal(size=4)", "reads random numbers"),
    "fresh old": ("", "x + np.random.RandomState().rand(4)", "reads random numbers"),
    "python": ("", "x + random.random()", "random.random draws"),
    "python's": ("", "x * random.randint(1, 9)", "random.randint draws"),
    "gauss": ("", "x + gauss(0, 1)", "gauss draws"),
    "own": ("r = random.Random(0)", "x + r.uniform(0, 1)", "r.uniform draws"),
    "inner": (RNG, "x + [rng.random() for _ in [1]][0]", "rng.random draws"),
    "default": (RNG + "def g(x, r=rng): return x + r.random()", "g(x)", "g.__defaults"),
    "secrets' bits": ("", "x + secrets.randbits(8)", "secrets.randbits draws"),
    "system": ("r = random.SystemRandom()", "x + r.random()", "random numbers"),
    "secrets": ("", "x * secrets.randbelow(9)", "reads random numbers"),
    "urandom": ("", "x + os.urandom(1)[0]", "os.urandom reads random numbers"),
    "uuid": ("", "x + uuid.uuid4().int % 7", "reads random numbers"),
    "time": ("", "x + time.time()", "time.time reads the clock"),
    "counter": ("", "x + now()", "time.perf_counter reads the clock"),
    "monotonic": ("", "x + time.monotonic_ns()", "time.monotonic_ns reads the clock"),
    "local time": ("", "x + time.localtime().tm_sec", "time.localtime reads the clock"),
    "datetime": ("", "x + datetime.datetime.now().second", "now reads the clock"),
    "date": ("", "x + datetime.date.today().day", "today reads the clock"),
    "open": ("", "x + len(open(path).read())", "open reads a file"),
    "pathlib": ("", "x + len(path.read_text())", "open reads a file"),
    "load": ("", "x + np.load(saved)", "open reads a file"),
    "text": ("", "x + np.loadtxt(path)", "open reads a file"),
    "fromfile": ("", "x + np.fromfile(raw)", "fromfile reads a file"),
    "handle": ("h = io.StringIO('1')", "x + len(h.readline())", "h.readline"),
    "file": ("h = open(path)", "x + len(h.read())", "h.read advances"),
    "iterator": ("i = iter([1, 2, 3])", "x + next(i)", "i advances"),
    "count": ("i = itertools.count()", "x + next(i)", "i advances"),
}  # fmt: skip
ALLOWED: dict[str, tuple[str, str]] = {
    "seeded": ("", "x + np.random.default_rng(0).normal(size=4)"),
    "seeded old": ("", "x + np.random.RandomState(0).rand(4)"),
    "seeded python": ("", "x + random.Random(0).random()"),
    "not drawn from": (RNG, "x + (rng is None)"),
    "written": ("", "(open(out, 'w').close(), x)[1]"),
    "written by": ("", "(out.write_text('a'), x)[1]"),
    "saved": ("", "(np.save(out, np.ones(2)), x)[1]"),
    "own iterator": ("", "x * sum(next(iter([i])) for i in range(3))"),
    "import": ("", "(__import__('colorsys'), x)[1]"),
    "time as data": ("t = time.struct_time(range(9))", "x + t.tm_sec"),
    "writes": ("h = open(out, 'w')", "(h.write('a'), h.flush(), x)[2]"),
    "errors": ("import sys", "(sys.stderr.write('a'), x)[1]"),
    "held": ("h = {'i': iter([1]), 'k': 2.0}", "x * h['k']"),
    "closed": ("h = open(path)\nh.close()", "x + h.closed"),
    "untouched": ("h = io.StringIO('a')", "x + h.closed"),
    "sleep": ("", "(time.sleep(0), x)[1]"),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "t.txt").write_text("1 2 3 4")
    np.save(folder / "s.npy", X)
    X.tofile(folder / "raw")
    yield {
        "path": folder / "t.txt",
        "saved": folder / "s.npy",
        "raw": folder / "raw",
        "out": folder / "out.npy",
    }
    gc.collect()  # while warnings of files that nobody has closed are ignored


def function(setup: str, returned: str, paths: dict[str, Path]) -> Any:
    names: dict[str, Any] = {"__name__": "hidden", "np": np, "eq": eq, **paths}
    exec(f"{IMPORTS}\n{setup}\ndef f(x): return {returned}", names)
    return names["f"]


@pytest.mark.parametrize("name", REFUSED)
def test_hidden_state_is_refused_by_name(name: str, paths: dict[str, Path]) -> None:
    setup, returned, message = REFUSED[name]
    f = function(setup, returned, paths)
    for call in (eq.jit(f), eq.jit(f).lower, eq.jit(lambda x: f(x))):
        with pytest.raises(eq.TraceError) as error:
            call(X)
        text = str(error.value)
        assert message in text and "\n  at <string>:" in text
        assert "pass" in text, "the message says what to do"


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_the_same_at_every_call_is_allowed(
    name: str, paths: dict[str, Path]
) -> None:
    f = function(*ALLOWED[name], paths)
    np.testing.assert_array_equal(eq.jit(f)(X), f(X))


def test_a_refusal_takes_no_number() -> None:
    rng = np.random.default_rng(3)
    before = rng.bit_generator.state, random.getstate(), np.random.get_state()[2]
    for f in (
        lambda x: x + rng.random(4),
        lambda x: x + random.random(),
        lambda x: x + np.random.rand(4),
    ):
        with pytest.raises(eq.TraceError):
            eq.jit(f)(X)
    assert before == (
        rng.bit_generator.state,
        random.getstate(),
        np.random.get_state()[2],
    )


def test_generators_as_arguments_are_refused_by_their_names() -> None:
    def f(x: Any, rng: Any) -> Any:
        return x + rng.random(4)

    with pytest.raises(eq.TraceError, match="rng draws random numbers while 'f'"):
        eq.jit(f)(X, np.random.default_rng(0))
    with pytest.raises(eq.TraceError, match="draw draws random numbers"):
        eq.jit(lambda x, draw: x + draw(4))(X, np.random.default_rng(0).random)


def test_gradients_and_methods_are_watched() -> None:
    class Model:
        def __init__(self) -> None:
            self.rng = np.random.default_rng(0)

        def __call__(self, x: Any) -> Any:
            return (x * self.rng.random(4)).sum()

    for f in (eq.jit(Model()), eq.grad(Model()), eq.jit(Model().__call__)):
        with pytest.raises(eq.TraceError, match="draws random numbers"):
            f(X)


def test_a_clock_around_a_call_is_no_hidden_state() -> None:
    import time

    start = time.perf_counter()
    assert (eq.jit(lambda x: x + 1)(X) == X + 1).all()
    assert time.perf_counter() >= start


def test_operators_of_stand_ins_are_not_watched(monkeypatch):
    """The watch sees the call of an operator, and nothing of what eqsat does in it."""
    seen, count = [], 100 if is_whole() else 20
    monkeypatch.setattr(
        hidden_state._Watch,
        "__call__",
        lambda self, frame, event, arg: seen.append(frame.f_globals["__name__"]),
    )

    def many(x):
        for i in range(count):
            x[i : i + 3] = np.sin(x[i : i + 3]) * 2 + x[0]
        return x.copy()

    eq.jit(many).lower(np.ones(200))
    assert count * 6 <= len(seen) < count * 6 * 10
    assert not any(name.startswith(("eqsat.terms", "eqsat.ops")) for name in seen)


class _Late:
    """Something whose value is asked for by code of its own."""

    def __index__(self):
        return int(time.time() * 0)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[_Late()],
        lambda x: x[: _Late()],
        lambda x: x.sum(axis=_Late()),
        lambda x: x[..., _Late()],
    ],
)
def test_operands_with_code_of_their_own_are_watched(fn):
    with pytest.raises(eq.TraceError, match="reads the clock"):
        eq.jit(fn)(np.ones(3))


def test_the_watch_goes_on_after_an_operator():
    def later(x):
        y = x + 1
        try:
            y = y @ np.ones(7)
        except ValueError:
            y = y * 2
        return y + time.time()

    with pytest.raises(eq.TraceError, match="time\\.time reads"):
        eq.jit(later)(np.ones(3))


def test_a_profiler_that_the_function_sets_stays() -> None:
    called: list[str] = []

    def profiled(x: Any) -> Any:
        sys.setprofile(lambda frame, event, arg: called.append(event))
        total = (x * 3 + 1).sum()
        assert sys.getprofile() is not None
        own = not isinstance(sys.getprofile(), Watch)
        sys.setprofile(None)
        assert own
        return total

    assert eq.jit(profiled)(np.ones(4)) == 16.0
    assert "call" in called and sys.getprofile() is None


USED = {"slope": 3.0}


@pytest.mark.parametrize("widened", [False, True])
def test_what_a_users_derivative_reads_is_watched(widened: bool) -> None:
    """The derivative of an op of one's own is a user's code, which eqsat calls."""

    def timed(g: Any, x: Any, y: Any) -> Any:
        return g * time.perf_counter()

    def global_slope(g: Any, x: Any, y: Any) -> Any:
        return g * USED["slope"]

    x = X.astype(np.float16) if widened else X
    try:
        one = pointwise("test_hidden_timed", lambda x: x + 1, vjp=timed)
        with pytest.raises(eq.TraceError, match="perf_counter reads the clock"):
            eq.grad(lambda x: one(x).sum())(x)
        two = pointwise("test_hidden_slope", lambda x: x + 1, vjp=global_slope)
        gradient = eq.grad(lambda x: two(x).sum())
        np.testing.assert_array_equal(gradient(x), np.full(4, 3.0, x.dtype))
        USED["slope"] = 5.0
        np.testing.assert_array_equal(gradient(x), np.full(4, 5.0, x.dtype))
    finally:
        USED["slope"] = 3.0
        for name in ("test_hidden_timed", "test_hidden_slope"):
            Op.registry.pop(name, None)


def test_what_a_users_body_reads_is_watched_in_a_gradient() -> None:
    try:

        @eq.define.composite("... -> ...", recognised=False)
        def test_hidden_body(x: Any) -> Any:
            return x * x * USED["slope"]

        gradient = eq.grad(lambda x: test_hidden_body(x).sum())
        np.testing.assert_array_equal(gradient(X), 6 * X)
        USED["slope"] = 6.0
        np.testing.assert_array_equal(gradient(X), 12 * X)
    finally:
        USED["slope"] = 3.0
        Op.registry.pop("test_hidden_body", None)


def test_what_a_users_reduction_reads_is_watched_in_a_gradient() -> None:
    def combined(a: Any, b: Any) -> Any:
        return np.logaddexp(a, b) + 0 * time.perf_counter()

    def test_hidden_reduction(x: Any) -> Any:
        return x * 1.0

    try:
        define = eq.define.reduction(combine=combined, identity=-np.inf)
        reduced = define(test_hidden_reduction)
        with pytest.raises(eq.TraceError, match="perf_counter reads the clock"):
            eq.grad(lambda x: reduced(x))(X)
    finally:
        for name in ("test_hidden_reduction", "test_hidden_reduction_fold"):
            Op.registry.pop(name, None)
