"""A process that compiles and runs programs in children, which are to be killed,
interrupted, or short of room. It reads ``job seed seconds level`` a line, and answers
with the exit status of the child: 0 where all results were NumPy's, -9 where it was
killed after so many seconds.
"""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import eqsat as eq
from eqsat.backends.native import function_code, lower, program_writer
from eqsat.support import disk_cache

LOADED = function_code, lower, program_writer
"""Modules that a child need not import."""
X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
W = np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)
WRITTEN = 40
"""Entries that are written again and again."""
LONGEST_S = 100.0
"""What takes a child so long is a hang; it says where."""
Function = Callable[..., Any]


def functions(seed: int) -> list[tuple[Function, tuple[Any, ...]]]:
    """Functions that no other seed has, and their arguments."""
    c = seed + 0.5

    def relu(x: Any, y: Any) -> Any:
        return np.maximum(x / c + y, 0)

    def softmax(x: Any) -> Any:
        e = np.exp((x - x.max(-1, keepdims=True)) / c)
        return e / e.sum(-1, keepdims=True)

    def product(x: Any, w: Any) -> Any:
        return np.tanh(x @ w / c)

    def table(x: Any) -> Any:
        return np.where(np.tri(6, dtype=bool), x.T @ x, c) + np.arange(6)

    return [(relu, (X, X)), (softmax, (X,)), (product, (X, W)), (table, (X,))]


def same(fast: Function, fn: Function, args: tuple[Any, ...]) -> None:
    """Raises :class:`AssertionError` where the results differ."""
    np.testing.assert_allclose(fast(*args), fn(*args), rtol=1e-5, atol=1e-6)


def use(seed: int) -> None:
    """Compile and run, or run what was kept."""
    for fn, args in functions(seed):
        fast = eq.jit(fn, backend="native")
        for _ in range(3):
            same(fast, fn, args)


def content(number: int) -> bytes:
    """What the entry of that number holds."""
    return str(number).encode() * 30_000


def write(seed: int) -> None:
    """Write entries until somebody kills the child."""
    rng = random.Random(seed)
    while True:
        number = rng.randrange(WRITTEN)
        name = disk_cache.key("written", str(number))
        assert disk_cache.get(name) in (None, content(number))
        disk_cache.put(name, content(number))


INTERRUPTS = 20
"""How many come to one child."""


def interrupt(seed: int) -> None:
    """Compile and call while SIGINT comes, once for each of some functions."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job has it ignored
    rng = random.Random(seed)
    lost: list[Any] = []
    sys.unraisablehook = lost.append  # what comes while an object is freed
    for number in range(INTERRUPTS):
        _interrupted(INTERRUPTS * seed + number, rng.uniform(0, 0.25), lost)
    assert all(u.exc_type is KeyboardInterrupt for u in lost), lost
    assert len(lost) <= INTERRUPTS // 4, lost


def _interrupted(seed: int, after_s: float, lost: list[Any]) -> None:
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT))
    made: list[tuple[Function, Function, tuple[Any, ...]]] = []
    end = time.monotonic() + 30
    before = len(lost)
    try:
        timer.start()
        while time.monotonic() < end and len(lost) == before:
            for fn, args in functions(seed):
                made.append((eq.jit(fn, backend="native"), fn, args))
                for _ in range(20):
                    same(*made[-1])
    except KeyboardInterrupt:
        pass
    else:
        assert len(lost) > before, "SIGINT did not come through"
    for fast, fn, args in made[-8:]:
        same(fast, fn, args)
    use(seed)


THREADS = 16


def threads(seed: int) -> None:
    """Threads call shared functions first at once, and others that they make, while
    entries are damaged and removed."""
    shared = [(eq.jit(f, backend="native"), f, a) for f, a in functions(seed)]
    start = threading.Barrier(THREADS + 1)
    faults: list[str] = []

    def run(number: int) -> None:
        start.wait()
        try:
            for fast, fn, args in shared[number % 4 :] + shared:
                same(fast, fn, args)
            use(seed + number % 3)
        except BaseException:
            faults.append(traceback.format_exc())

    running = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in running:
        thread.start()
    start.wait()
    rng = random.Random(seed)
    while any(thread.is_alive() for thread in running):
        _damage_one(rng)
        time.sleep(0.002)
    assert not faults, faults[0]


def _damage_one(rng: random.Random) -> None:
    folder = disk_cache.info().folder
    names = sorted(os.listdir(folder)) if folder is not None else []
    if folder is None or not names:
        return
    try:
        if rng.random() < 0.3:
            os.unlink(folder / rng.choice(names))
        else:
            with open(folder / rng.choice(names), "r+b") as file:
                file.seek(rng.randrange(1000))
                file.write(rng.randbytes(9))
    except OSError:  # another one has moved or removed it
        pass


def short(seed: int) -> None:
    """Compile and run where no file may be longer than some bytes."""
    most = random.Random(seed).choice([0, 1, 40, 1000, 4000, 12_000])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        use(seed)
    finally:  # so that errors can be written
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


JOBS = {f.__name__: f for f in (use, write, interrupt, threads, short)}


def child(job: str, seed: int, level: str) -> int:
    """The exit status of a job."""
    os.environ["EQSAT_CPU"] = level
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    try:
        JOBS[job](seed)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Serve jobs until the input ends."""
    eq.default_rules()
    for line in sys.stdin:
        job, seed, after_s, level = line.split()
        number = os.fork()
        if not number:
            os._exit(child(job, int(seed), level))
        end = time.monotonic() + float(after_s)
        ended = 0
        while not ended and time.monotonic() < end:
            ended, status = os.waitpid(number, os.WNOHANG)
            time.sleep(0.0005)
        if not ended:
            os.kill(number, signal.SIGKILL)
            _, status = os.waitpid(number, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
