"""Candidates with planted faults, for the tests of the bench."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.peers import Candidate, UnsupportedWorkload
from bench.peers.numpy_peer import Plain
from bench.workloads import Workload


class Changed(Plain):
    """Plain NumPy, its call put through :meth:`change`."""

    def build(self, w: Workload, inputs: list[Any], weights: list[Any]) -> Candidate:
        plain = super().build(w, inputs, weights)
        return Candidate(self.change(plain.call), np.asarray)

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        raise NotImplementedError


class Counted(Changed):
    """Takes 0.1 ms a call, a fiftieth more or less, by a clock of its own, which is
    its process's: no load of the machine changes what is measured."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        now, noise = 0.0, random.Random(type(self).__name__)

        def counted() -> Any:
            nonlocal now
            now += 1e-4 * noise.uniform(0.98, 1.02)
            return call()

        time.perf_counter = lambda: now
        return counted


class Slow(Counted):
    """Does everything one and a half times: every second call is done twice."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        counted, calls = super().change(call), 0

        def slow() -> Any:
            nonlocal calls
            calls += 1
            if calls % 2:
                counted()
            return counted()

        return slow


class Wrong(Changed):
    """Is wrong by a thousandth."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: call() * np.float32(1.001)


class OneNumberWrong(Changed):
    """Is wrong in one number of all."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def wrong() -> Any:
            y = call().copy()
            y.flat[-1] += 1
            return y

        return wrong


class NotANumber(Changed):
    """Has a NaN."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def wrong() -> Any:
            y = call().copy()
            y.flat[0] = np.nan
            return y

        return wrong


class OtherShape(Changed):
    """Has an axis too many, over which the comparison would broadcast."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: call()[None]


class LastPartWrong(Changed):
    """Is wrong by a thousandth in the last gradient."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def wrong() -> Any:
            value, (*others, last) = call()
            return value, (*others, last * np.float32(1.001))

        return wrong


class LastPartMissing(Changed):
    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def short() -> Any:
            value, gradients = call()
            return value, gradients[:-1]

        return short


class Raises(Changed):
    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        raise ValueError("no such kernel\nand a second line")


class Dies(Changed):
    """Ends its process."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: os._exit(7)


class Refuses(Changed):
    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        raise UnsupportedWorkload("no such operation")


class Absent(Plain):
    """Its library is not installed."""

    def __init__(self, threads: int) -> None:
        raise ImportError("No module named 'absent'")


class Loud(Changed):
    """Prints to standard output, through Python and beneath it."""

    def change(self, call: Callable[[], Any]) -> Callable[[], Any]:
        def loud() -> Any:
            print("hello")
            os.write(1, b"hello\n")
            return call()

        return loud
